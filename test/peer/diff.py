#!/usr/bin/env python3
"""Asks two routers in front of the same nodes the same things, and tells every difference.

usage: diff.py run MODE THEIR_URL OUR_URL PREFILL_URL NODE_URL     prints the differences as JSON lines
       diff.py judge DIFFERENCES.jsonl LIST                        holds them against the list

A difference is {"mode", "case", "where", "theirs", "ours"}; where is
  status, ended, form     HTTP status; clean or aborted; json, stream, error or other
  header NAME             of the reply
  $.path                  a leaf of a JSON reply, or of a stream taken as a whole
  chunks, chunk KIND      the order of a stream's chunks, and the members of each kind
  error type, message, members   of an error, in a stream too; members are the paths of its envelope
  prefill calls, prefill $.path  what the prefill node was sent
  idle                    whether the decode node came to rest
Ids, times and durations are compared by kind, not by value. Replies of different forms are compared no further than their errors,
and what the prefill node was sent only when both routers asked it.

LIST has one kind of difference a line: `CASE | WHERE | reason`, the first two with * as in file names. A difference that no line
covers is an error, and so is a line that covers none: the list is what docs/compatibility.md may claim.
"""
import fnmatch
import json
import re
import sys
import time

import wire
from cases import CASES

# Header names that say nothing about a router's behaviour.
TRANSPORT = {"date", "server", "content-length", "transfer-encoding", "connection"}


def plain(path, value):
    """A value without what differs from one call to the next."""
    if isinstance(value, str):
        value = re.sub(r"[0-9a-f]{32}(-0)?", "<hex>", value)
        value = re.sub(r"call_[0-9a-f]{24}", "call_<hex>", value)
    elif isinstance(value, int) and path.endswith(".created"):
        value = "<now>" if abs(value - time.time()) < 3600 else value
    elif isinstance(value, (int, float)) and "timing_ms." in path:
        value = "<ms>"
    return value


def flat(value, path="$"):
    """The leaves of a JSON value, as {path: plain value}."""
    out = {}
    if isinstance(value, dict) and value:
        for k, v in value.items():
            out |= flat(v, f"{path}.{k}")
    elif isinstance(value, list) and value:
        for i, v in enumerate(value):
            out |= flat(v, f"{path}[{i}]")
    else:
        out[path] = plain(path, value)
    return out


def kind(chunk):
    """What a chunk of a stream is for."""
    if chunk == "[DONE]":
        return chunk
    if "error" in chunk:
        return "error"
    if not chunk.get("choices"):
        return "usage"
    choice = chunk["choices"][0]
    parts = [k for k in ("role", "content", "reasoning_content", "tool_calls") if choice.get("delta", {}).get(k) not in (None, "")]
    return "+".join(parts + ["end"] * bool(choice.get("finish_reason"))) or "empty"


def error_facts(doc):
    """An error, whichever of the two envelopes it has."""
    inner = doc.get("error")
    inner = inner if isinstance(inner, dict) else {}
    message = inner.get("message") or inner.get("error") or doc.get("error") or doc.get("detail")
    return {"error type": doc.get("error_type") or inner.get("type") or inner.get("error_type"), "error message": plain("", message),
            "error members": sorted(flat(doc))}


def stream_facts(reply):
    """What a stream says as a whole, the order of its chunks, and the members of each kind of them."""
    rows = [e for c in reply.chunks for x in c.get("choices") or [] for e in (x.get("logprobs") or {}).get("content") or []]
    facts = {"$.text": reply.text, "$.finish_reason": reply.finish, "$.usage": reply.usage and sorted(reply.usage.items()),
             "$.logprobs": [plain("", e["token"]) for e in rows], "chunks": []}
    for chunk in reply.events:
        k = kind(chunk)
        if facts["chunks"][-1:] != [k]:
            facts["chunks"].append(k)
        if k == "error":
            facts |= error_facts(chunk)
        elif chunk != "[DONE]":
            leaves = flat(chunk)
            facts.setdefault(f"chunk {k}", sorted({re.sub(r"(bytes|top_logprobs)\[\d+\]", r"\1[]", p) for p in leaves}))
            for p in ("$.id", "$.object", "$.created", "$.model", "$.choices[0].stop_reason"):
                if p in leaves:
                    facts[p] = leaves[p]
    return facts


def reply_facts(reply):
    doc = reply.json
    if reply.streamed:
        form, facts = "stream", stream_facts(reply)
    elif isinstance(doc, dict) and reply.status >= 400:
        form, facts = "error", error_facts(doc)
    elif doc is not None:
        form, facts = "json", flat(doc)
    else:
        form, facts = "other", {"$": reply.raw.decode("utf-8", "replace")[:200]}
    headers = {f"header {k}": re.sub(r"dur=[0-9.]+", "dur=<ms>", plain("", v)) for k, v in reply.headers.items() if k not in TRANSPORT}
    return facts | headers | {"status": reply.status, "ended": reply.ended, "form": form}


def ask(router, prefill, node, path, body, settings):
    """All that is to be compared of one call, as {where: value}."""
    if settings:
        wire.set_prefill(prefill, **settings)
    before = len(wire.prefill_log(prefill))
    try:
        reply = wire.call(router, "GET" if body is None else "POST", path, body)
    finally:
        if settings:
            wire.set_prefill(prefill, status=200)
    calls = wire.prefill_log(prefill)[before:]
    facts = reply_facts(reply) | {"prefill calls": [c["path"] for c in calls], "idle": wire.wait_idle(node) is not None}
    for call in calls[:1]:
        facts |= {f"prefill {p}": v for p, v in flat(call["body"]).items()}
    return facts


def differences(a, b):
    """The places in which two sets of facts differ, as far as they can be compared."""
    apart = []
    if a["form"] != b["form"]:
        apart += ["$", "chunk", "header", "error members"]
    if a["prefill calls"] != b["prefill calls"]:
        apart += ["prefill $"]
    return [w for w in sorted(a.keys() | b.keys()) if a.get(w) != b.get(w) and not w.startswith(tuple(apart))]


def run(mode, theirs, ours, prefill, node):
    for name, path, body, settings in CASES[mode]():
        a, b = (ask(url, prefill, node, path, body, settings) for url in (theirs, ours))
        for where in differences(a, b):
            row = {"mode": mode, "case": name, "where": where, "theirs": a.get(where), "ours": b.get(where)}
            print(json.dumps(row, ensure_ascii=False), flush=True)


def read_list(path):
    """The listed kinds, as [place, case pattern, where pattern, reason]."""
    out = []
    for n, line in enumerate(open(path, encoding="utf-8"), 1):
        if line.strip() and not line.startswith("#"):
            fields = [f.strip() for f in line.split("|", 2)]
            if len(fields) != 3 or not all(fields):
                sys.exit(f"{path}:{n}: want `CASE | WHERE | reason`")
            out.append([f"{path}:{n}", *fields])
    return out


def covers(line, row):
    where = row["where"].replace("[", "(").replace("]", ")")  # brackets mean something else in a pattern
    return fnmatch.fnmatchcase(f"{row['mode']}: {row['case']}", line[1]) and fnmatch.fnmatchcase(where, line[2])


def judge(differences, expected):
    rows, lines = [json.loads(line) for line in open(differences, encoding="utf-8")], read_list(expected)
    news = {}  # the same difference in many cases is one complaint
    for row in rows:
        if not any(covers(line, row) for line in lines):
            what = json.dumps({k: row[k] for k in ("where", "theirs", "ours")}, ensure_ascii=False)
            news.setdefault(what[:300], []).append(f"{row['mode']}: {row['case']}")
    for what, where in news.items():
        print(f"FAIL not in the list: {what} in {len(where)} cases: {'; '.join(where[:3])}")
    gone = [line for line in lines if not any(covers(line, row) for row in rows)]
    for at, case, where, reason in gone:
        print(f"FAIL {at}: no such difference any more: {case} | {where} | {reason}")
    print(f"differences: {len(lines) - len(gone)} passed, {len(news) + len(gone)} failed")
    sys.exit(bool(news or gone))


if sys.argv[1] == "run":
    run(*sys.argv[2:])
else:
    judge(*sys.argv[2:])
