#!/usr/bin/env python3
"""Holds the metrics page to what readers other than Prometheus make of it: AIPerf, which scrapes it during a benchmark, and
the aggregation of InferenceX, which turns what AIPerf kept into the published result.

usage: page.py ROUTER_URL           prints one line a rule, and how many requests it sent as JSON
       page.py ROUTER_URL merged    for a router that adds vLLM's page to its own; sends nothing

Run the former while nothing else uses the router: one rule compares counters with the replies to its own requests.
"""
import http.client
import json
import re
import sys
import urllib.parse

url = urllib.parse.urlparse(sys.argv[1])
merged = sys.argv[2:] == ["merged"]
failed, sent = False, 0


def ask(method, path, body=None):
    c = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
    c.request(method, path, body, {"Content-Type": "application/json"} if body else {})
    r = c.getresponse()
    return r.status, r.getheader("Content-Type") or "", r.read().decode()


LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')


def samples(page):
    """The page as (name, labels, number), in its order."""
    for line in page.splitlines():
        if line and not line.startswith("#"):
            m = re.match(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)", line)
            yield m[1], dict(LABEL.findall(m[2] or "")), float(m[3])


def family(name, types):
    """The family of a sample: the parts of a histogram or summary belong to it."""
    short = re.sub(r"_(bucket|sum|count)$", "", name)
    return short if name not in types and types.get(short) in ("histogram", "summary") else name


# The rules. Each gives what is wrong with a page, or nothing.

def a_vllm_family(page):
    """the aggregation finds its adapter by a vllm: family, and refuses a page without one"""
    if not any(name.startswith("vllm:") for name, _, _ in samples(page)):
        return "no vllm: family"


def no_dynamo_family(page):
    """a single dynamo_ family would make it take the router for another system"""
    return next((name for name, _, _ in samples(page) if name.startswith("dynamo_")), None)


def one_block_a_family(page):
    """AIPerf keeps the last block of a family and forgets those before it"""
    types, seen, last = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.M)), set(), None
    for line in page.splitlines():
        m = re.match(r"# (?:TYPE|HELP) (\S+)", line) or re.match(r"([a-zA-Z_:][\w:]*)", line)
        this = family(m[1], types)
        if this != last and this in seen:
            return f"{this} in two blocks"
        seen.add(this)
        last = this


def one_label_set_a_worker(page):
    """sources are told apart by their labels: a worker with two sets of them is two sources"""
    sets = {}
    for name, labels, _ in samples(page):
        if name.startswith("vllm:") and "component" in labels:
            sets.setdefault((labels["component"], labels.get("worker_id")), set()).add(tuple(sorted(labels.items())))
    if not any(component == "decode" for component, _ in sets):
        return 'no component="decode"'
    return next((f"{worker} has {len(s)} sets of labels" for worker, s in sets.items() if len(s) > 1), None)


def names_that_survive(page):
    """AIPerf skips families with these endings, and cuts _total off counters"""
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.M))
    for name, kind in types.items():
        if name.startswith(("vllm:", "pd_router_")):
            if re.search(r"_(created|uptime)$|_uptime_", name) or kind == "summary":
                return f"{name} is skipped"
            if (kind == "counter") != name.endswith("_total"):
                return f"{name} is a {kind}"


RULES = [a_vllm_family, no_dynamo_family, one_block_a_family, one_label_set_a_worker, names_that_survive]

# For each rule a page that breaks it, made from the real one.
BREAK = {
    a_vllm_family: lambda page: re.sub(r"(?m)^.*vllm:.*\n", "", page),
    no_dynamo_family: lambda page: page + "# TYPE dynamo_frontend_requests_total counter\ndynamo_frontend_requests_total 1\n",
    one_block_a_family: lambda page: page + '# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total{engine="0"} 1\n',
    one_label_set_a_worker: lambda page: re.sub(r'(vllm:generation_tokens_total\{component="decode",)', r'\1dp_rank="0",', page, count=1),
    names_that_survive: lambda page: page.replace("pd_router_connections", "pd_router_connections_uptime"),
}


def say(ok, what, why=""):
    global failed
    failed |= not ok
    print("ok  " if ok else "FAIL", "merged page:" if merged else "metrics page:", what + (f": {why}" if why else ""))


def generated(page):
    return sum(n for name, labels, n in samples(page) if name == "vllm:generation_tokens_total" and labels.get("component") == "decode")


def decode_tokens_only():
    """The first token of a reply is prefill's, which vLLM counts under the same name: with both pages read, none counts twice."""
    global sent
    before, told = generated(ask("GET", "/metrics")[2]), 0
    for tokens in (1, 2, 7, 60, 200):
        for stream in (False, True):
            body = {"model": "glm5", "messages": [{"role": "user", "content": "a few words"}], "max_tokens": tokens, "ignore_eos": True, "stream": stream,
                    **({"stream_options": {"include_usage": True}} if stream else {})}
            status, _, reply = ask("POST", "/v1/chat/completions", json.dumps(body))
            sent += 1
            if stream:
                reply = next(x[6:] for x in reversed(reply.split("\n\n")) if '"usage":{' in x)
            told += json.loads(reply)["usage"]["completion_tokens"] - 1
            if status != 200:
                return say(False, "a request for the count of tokens failed", reply[:200])
    counted = generated(ask("GET", "/metrics")[2]) - before
    say(counted == told > 0, "generation_tokens counts what decode nodes generated and not the first token of each reply", f"{counted:g} of {told}")


def both_pages(page):
    """vLLM's own series stand beside ours in the families that both have"""
    found = [labels for name, labels, _ in samples(page) if name == "vllm:generation_tokens_total"]
    if not any("component" in labels for labels in found) or all("component" in labels for labels in found):
        return f"vllm:generation_tokens_total has only {found}"


status, kind, page = ask("GET", "/metrics")
say(status == 200 and kind.startswith("text/plain"), "plain text for a reader that asks for nothing", kind)
status, _, nothing = ask("HEAD", "/metrics")
say(status == 200 and not nothing, "HEAD is answered, which AIPerf asks first", str(status))
for rule in [r for r in RULES if r is not names_that_survive] + [both_pages] if merged else RULES:    # vLLM names its own as it likes
    why = rule(page)
    say(not why, rule.__doc__, why)
    if rule in BREAK and not rule(BREAK[rule](page)):
        say(False, f"a page that breaks a rule is let pass ({rule.__name__})")
if not merged:
    decode_tokens_only()
    print(json.dumps({"stretch": "page", "sent": sent}))
sys.exit(failed)
