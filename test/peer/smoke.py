#!/usr/bin/env python3
"""Checks this router in front of the real TileRT decode server: a stub engine that says WORDS, real control plane, real KV over NIXL.

usage: smoke.py ROUTER_URL PREFILL_URL NODE_URL PREFILL_LOG      (base URLs; the log of the fake prefill node tells of the transfers)
"""
import json
import sys
import threading
import time

import wire
from wire import chat, complete

ROUTER, PREFILL, NODE, PREFILL_OUTPUT = sys.argv[1:5]
# The first token comes from the prefill node; then what peer.sh has the engine say, a token every 20 ms.
WORDS = ["Hello", ", world", ". ", "ST", "OP", " tail", " more", "!"]
PLAIN = "".join(WORDS)
LONG = 120  # tokens, so that a request can be left in its middle
CHECKS = []  # (function, tries)


def check(f):
    CHECKS.append((f, 1))
    return f


def timed(f):
    """A check that measures: the best of three counts, as a transfer takes seconds on a machine that is busy."""
    CHECKS.append((f, 3))
    return f


def need(ok, why):
    if not ok:
        raise AssertionError(str(why))


def whole(r, text=PLAIN, finish="length", tokens=None):
    """r is a finished reply with that text."""
    need(r.status == 200 and r.ended == "clean", r)
    need(r.text == text, f"text {r.text!r}, want {text!r}")
    need(r.finish == finish, f"finish_reason {r.finish}, want {finish}")
    if r.streamed:
        need(r.events[-1] == "[DONE]", r)
    if tokens is not None:
        need(r.usage and r.usage["completion_tokens"] == tokens and r.usage["total_tokens"] == r.usage["prompt_tokens"] + tokens,
             f"usage {r.usage}, want {tokens}")


@check
def blocking():
    whole(chat(ROUTER, max_tokens=8), tokens=8)


@check
def streaming():
    r = chat(ROUTER, max_tokens=8, stream=True, stream_options={"include_usage": True})
    whole(r, tokens=8)
    need(r.chunks[-1]["choices"] == [], "the usage chunk has no choices")
    need(sum("role" in c["delta"] for k in r.chunks for c in k["choices"]) == 1, "one role")
    gaps = len([k for k in r.chunks if k["choices"] and k["choices"][0]["delta"].get("content")])
    need(gaps > 1, "the text came in one piece")


@check
def engine_ends_by_itself():
    r = chat(ROUTER, max_tokens=200, stream=True)
    need(r.finish == "stop" and r.text.startswith(PLAIN), r)


@check
def one_token():
    whole(chat(ROUTER, max_tokens=1), "Hello", tokens=1)
    whole(chat(ROUTER, max_tokens=1, stream=True), "Hello")


@check
def completions():
    r = complete(ROUTER, max_tokens=8)
    whole(r, tokens=8)
    need(r.json["object"] == "text_completion" and r.json["id"].startswith("cmpl-"), r)


@timed
def stop_across_tokens():
    for stream in (False, True):
        r = chat(ROUTER, max_tokens=100, stop=["never", "STOP"], stream=stream)
        whole(r, "Hello, world. ", "stop")
        need(r.seconds < 1.5, f"{r.seconds:.2f} s: the node was not stopped, its engine takes 2 s for 100 tokens")
        r = chat(ROUTER, max_tokens=100, stop="STOP", include_stop_str_in_output=True, stream=stream)
        whole(r, "Hello, world. STOP", "stop")


@check
def logprobs():
    for stream in (False, True):
        r = chat(ROUTER, max_tokens=5, logprobs=True, top_logprobs=2, stream=stream)
        whole(r, "".join(WORDS[:5]))
        docs = r.chunks if stream else [r.json]
        rows = [e for d in docs for c in d["choices"] for e in (c.get("logprobs") or {}).get("content") or []]
        need([e["token"] for e in rows] == WORDS[:5], rows)
        need(all(len(e["top_logprobs"]) <= 2 for e in rows), rows)


@timed
def leaving_a_stream_frees_the_node():
    r = chat(ROUTER, max_tokens=LONG, stream=True, until=lambda r: len(r.chunks) > 3)
    need(r.ended == "left", r)
    took = wire.wait_idle(NODE, 5)
    need(took is not None and took < 1, f"node busy for {took} s after the client left")
    whole(chat(ROUTER, max_tokens=8), tokens=8)


@timed
def leaving_a_blocking_request_frees_the_node():
    try:
        wire.call(ROUTER, "POST", wire.CHAT, {"model": "stub", "messages": wire.MESSAGES, "max_tokens": LONG}, timeout=0.7)
        need(False, "no time-out")
    except TimeoutError:
        pass
    took = wire.wait_idle(NODE, 5)
    need(took is not None and took < 1, f"node busy for {took} s after the client left")
    whole(chat(ROUTER, max_tokens=8), tokens=8)


@check
def waiters_are_served_in_order():
    seen, got, threads = len(wire.prefill_log(PREFILL)), {}, []
    for i in range(6):
        body = {"model": "stub", "messages": [{"role": "user", "content": f"n{i}"}], "max_tokens": 12, "stream": bool(i % 2)}
        t = threading.Thread(target=lambda i=i, body=body: got.update({i: wire.call(ROUTER, "POST", wire.CHAT, body)}))
        t.start()
        threads.append(t)
        time.sleep(0.05)
    for t in threads:
        t.join()
    for i in range(6):
        need(got[i].status == 200 and got[i].text.startswith(PLAIN), f"{i}: {got[i]}")
    order = [e["body"]["messages"][0]["content"] for e in wire.prefill_log(PREFILL)[seen:]]
    need(order == [f"n{i}" for i in range(6)], order)


@check
def every_transfer_arrived():
    with open(PREFILL_OUTPUT, encoding="utf-8") as f:
        sent = [json.loads(line) for line in f if line.startswith('{"t"') and '"kv"' in line]
    need(sent, "no transfer at all")
    bad = [s for s in sent if set(s["outcome"].values()) != {"sent"}]
    need(not bad, bad[:2])


def attempt(f, tries):
    """None when f passed, else the last failure."""
    failure = None
    for _ in range(tries):
        try:
            f()
            return None
        except Exception as e:  # whatever it is, the next check still runs
            failure = e
            wire.wait_idle(NODE)
    return failure


def main():
    failed = 0
    for f, tries in CHECKS:
        began = time.monotonic()
        failure = attempt(f, tries)
        failed += failure is not None
        verdict, why = ("PASS", "") if failure is None else ("FAIL", f": {type(failure).__name__}: {str(failure)[:500]}")
        print(f"{verdict} peer {f.__name__} ({time.monotonic() - began:.2f} s){why}", flush=True)
    print(f"peer: {len(CHECKS) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


main()
