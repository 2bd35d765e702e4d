#!/usr/bin/env python3
"""Traffic for a router in front of simulated nodes, a stretch at a time.

usage: traffic.py URL STRETCH [SECONDS]     prints how many requests it sent, as JSON

  steady  what a router usually sees: two clients, blocking and streaming, stop strings, one that has seen enough
  ahead   the same of four clients, for a staged router with one node: some wait with their KV ready
  crowd   twelve clients with long replies: the line fills, some are refused, some wait in vain, some give up
  wrong   requests that the router, vLLM or the nodes cannot serve, each a few times
"""
import http.client
import json
import random
import sys
import threading
import time
import urllib.parse

url = urllib.parse.urlparse(sys.argv[1])
stretch, seconds = sys.argv[2], float(sys.argv[3]) if len(sys.argv) > 3 else 0
sent, lock = 0, threading.Lock()
MODEL = "glm5"


def send(path, body, patience=60.0, enough=None):
    """Sends one request and reads the reply; enough is after how many bytes the client leaves. Says what it got."""
    global sent
    with lock:
        sent += 1
    c = http.client.HTTPConnection(url.hostname, url.port, timeout=patience)
    try:
        c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        r.read(enough) if enough else r.read()
        return r.status
    except OSError as e:        # a time-out is a client that leaves
        return type(e).__name__
    except http.client.HTTPException as e:      # a reply that broke off, as it should when a node dies
        return type(e).__name__
    finally:
        c.close()


def chat(text, tokens, **more):
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": tokens, "ignore_eos": True, **more}


def words(rng, n):
    return " ".join(rng.choice(("slots", "lines", "nodes", "tokens", "wait", "for", "the", "of")) for _ in range(n))


def usual(rng):
    """One request of the steady kind. Prompts begin alike, so that the prefill node finds some of them cached."""
    text, tokens = "You are a helper. " * 20 + words(rng, rng.randrange(5, 400)), rng.randrange(20, 120)
    kind = rng.randrange(6)
    if kind == 0:
        return send("/v1/chat/completions", chat(text, tokens))
    if kind == 1:
        return send("/v1/completions", {"model": MODEL, "prompt": text, "max_tokens": tokens, "stream": True})
    if kind == 2:
        return send("/v1/chat/completions", chat("say:one two three STOP " + "and on " * 400, 1500, stop=["STOP"], stream=True))
    if kind == 3:
        return send("/v1/chat/completions", chat(text, 800, stream=True), enough=200)
    return send("/v1/chat/completions", chat(text, tokens, stream=True, stream_options={"include_usage": True}))


def crowded(rng):
    patience = rng.choice((0.4, 1.5, 20, 20))       # the short ones give up in the line
    return send("/v1/chat/completions", chat(words(rng, 50), rng.randrange(400, 1500), stream=True), patience)


def until(end, one, seed):
    rng = random.Random(seed)
    while time.monotonic() < end:
        if one(rng) in (429, 503):
            time.sleep(0.1)


def clients(n, one):
    end = time.monotonic() + seconds
    threads = [threading.Thread(target=until, args=(end, one, seed)) for seed in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def wrong():
    for _ in range(3):
        for want, got in (
            (400, send("/v1/chat/completions", {"messages": "a text", "max_tokens": -1})),
            (400, send("/v1/completions", {"prompt": "x", "temperature": "warm"})),
            (501, send("/v1/chat/completions", chat("x", 5, stop_token_ids=[7]))),
            (404, send("/v1/chat/completions", chat("x", 5) | {"model": "another"})),
        ):
            if got != want:
                sys.exit(f"traffic: {got} for a request that wants {want}")


if stretch == "steady":
    clients(2, usual)
elif stretch == "ahead":
    clients(4, usual)
elif stretch == "crowd":
    clients(12, crowded)
else:
    wrong()
print(json.dumps({"stretch": stretch, "sent": sent}))
