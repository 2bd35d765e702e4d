#!/usr/bin/env python3
"""Checks of test/sim-nixl.sh: simulated nodes against NIXL and nodes of other makes. usage: checks.py PART ARGUMENT...

sent ROUTER CTRL_PORT PID     requests through the router; the bytes in the decode node's memory are those of the simulated prefill node
damaged PREFILL CTRL_PORT PID the same with a flipped byte, which must be found where it was flipped
taken ROUTER NODE             requests whose KV another sender brings to a simulated node with a stub engine
raw PREFILL FROM TO IMPL      nixl_peer.py as receiver of the simulated prefill node, and as the one who brings KV from one simulated node to another
load ROUTER FILE              clients in closed loops, until FILE.stop exists; FILE gets the number of good answers, again and again
"""
import json
import os
import socket
import subprocess
import sys
import threading
import time
import uuid

HERE, KIT = os.path.dirname(os.path.abspath(__file__)), os.environ["KIT"]
sys.path[:0] = [HERE, os.path.join(HERE, "../peer"), os.path.join(KIT, "peer")]
import content  # noqa: E402
import kvsender  # noqa: E402
import wire  # noqa: E402


def need(ok, why):
    if not ok:
        raise AssertionError(str(why))


def hello(port):
    s = kvsender.connect("127.0.0.1", int(port))
    try:
        return kvsender.recv_msg(s)
    finally:
        s.close()


def rid_of(reply):
    return reply.json["id"].removeprefix("chatcmpl-")


def ask(base, say, **fields):
    return wire.chat(base, model="glm5", messages=[{"role": "user", "content": "say:" + say}], **fields)


def sent(router, ctrl, pid):
    total = 0
    for say in ("Hi", "Hello there, how are you? " * 4, "a longer one. " * 40, "and a short one"):
        r = ask(router, say, max_tokens=20)
        need(r.status == 200 and r.ended == "clean" and r.finish == "stop" and r.usage["completion_tokens"] == 4, r)
        total += content.compare(pid, hello(ctrl), rid_of(r), r.usage["prompt_tokens"], say)
    return f"4 requests, {total} bytes of KV as they should be"


def prefill(base, ctrl, say):
    """One request to a prefill node as a router sends it: rid, tokens of the prompt, first token."""
    r = ask(base, say, max_tokens=1, logprobs=True, top_logprobs=1, request_id=uuid.uuid4().hex,
            kv_transfer_params={"tilert_host": "127.0.0.1", "tilert_ctrl_port": int(ctrl)})
    need(r.status == 200, r)
    first = r.json["choices"][0]["logprobs"]["content"][0]["token"]
    return rid_of(r), r.usage["prompt_tokens"], int(first.removeprefix("token_id:"))


def handed_off(base, n):
    end = time.monotonic() + 30
    while (c := wire.call(base, "GET", "/sim/counters").json)["Handoffs"] < n:
        need(time.monotonic() < end and c["HandoffsFailed"] == 0, c)
        time.sleep(0.01)


def damaged(base, ctrl, pid):
    before = wire.call(base, "GET", "/sim/counters").json["Handoffs"]
    rid, tokens, _ = prefill(base, ctrl, "something")
    handed_off(base, before + 1)
    try:
        content.compare(pid, hello(ctrl), rid, tokens, "something")
    except content.Different as e:
        need(str(e).startswith("PE plane, layer 0, row 0, byte 127: "), e)
        return f"found: {e}"
    raise AssertionError("a flipped byte was not found")


def taken(router, node):
    for n in (1, 4, 8):
        r = wire.chat(router, max_tokens=n)
        need(r.status == 200 and r.usage["completion_tokens"] == min(n, 4), r)
    counters = wire.call(node, "GET", "/sim/counters").json
    need(counters["ChecksFailed"] == 0 and counters["Requests"] == 3, counters)
    return "3 requests"


class Peer:
    """A process of nixl_peer.py."""

    def __init__(self, impl):
        args = [sys.executable, "-B", os.path.join(KIT, "nixl/nixl_peer.py"), "--impl", impl, "--name", uuid.uuid4().hex, "--size", str(64 << 20)]
        self.p = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for k, v in self(op="hello").items():
            setattr(self, k, v)

    def __call__(self, **request):
        self.p.stdin.write(json.dumps(request) + "\n")
        self.p.stdin.flush()
        answer = json.loads(self.p.stdout.readline())
        need(answer.get("ok"), answer)
        return answer

    def end(self):
        self.p.stdin.close()
        self.p.wait(20)


def raw(base, from_ctrl, to_node, impl):
    peer = Peer(impl)
    try:
        return f"received {receive(peer, base)} bytes; {relay(peer, base, from_ctrl, *to_node.split(':'))} bytes from node to node"
    finally:
        peer.end()


def receive(peer, base):
    """The peer's memory is the buffer of a decode node whose control port is here, with one rank."""
    room, (layers, kv, pe) = 512, content.LAYOUTS[9008]
    h = {"magic": "tilert-pd", "protocol_version": 2, "layout_version": 9008, "transport": "nixl", "max_seq_len": room, "busy": False, "senders": 1,
         "nixl_meta": peer.md, "nixl_dev": 0, "kv_base": peer.addr, "pe_base": peer.addr + layers * room * kv,
         "ki_base": peer.addr + layers * room * (kv + pe)}
    port = socket.create_server(("127.0.0.1", 0))
    say, got = "to a peer of another make " * 10, {}

    def serve():
        s, _ = port.accept()
        with s:
            kvsender.send_msg(s, h)
            q = kvsender.recv_msg(s)
            kvsender.send_msg(s, {"accepted": True, "rid": q["rid"], "rank": q["rank"], "generation": 7})
            got.update(kvsender.recv_msg(s))

    with port:
        t = threading.Thread(target=serve, daemon=True)
        t.start()
        rid, tokens, _ = prefill(base, port.getsockname()[1], say)
        t.join(60)
    need(got == {"done": True, "rid": rid, "rank": 0, "generation": 7}, got)
    return content.compare(peer.pid, h, rid, tokens, say)


def relay(peer, base, from_ctrl, host, to_ctrl, to_http):
    """The peer reads what the prefill node brought to one node and writes it to another, which then finds all of it right."""
    before = wire.call(base, "GET", "/sim/counters").json["Handoffs"]
    say = "carried on by somebody else " * 8
    rid, tokens, first = prefill(base, from_ctrl, say)
    handed_off(base, before + 1)
    layers, kv, pe = content.LAYOUTS[9008]
    move = lambda h: kvsender.plan(h, layers, kv, pe, tokens, 512, 0, 0, 1)
    source = hello(from_ctrl)
    lists = lambda h: {"local": [[s, n] for s, _, n in move(h)], "remote": [[d, n, h["nixl_dev"]] for _, d, n in move(h)], "timeout_s": 30}
    need(peer(op="read", peer=peer(op="load", md=source["nixl_meta"])["peer"], **lists(source))["status"] == 0, "read")
    s = kvsender.connect(host, int(to_ctrl))
    with s:
        h = kvsender.recv_msg(s)
        kvsender.send_msg(s, {"rid": rid, "rank": 0, "seq_len": tokens, "last_prompt_token": 0, "sampling": None, "admission_window_s": 3.0})
        accept = kvsender.recv_msg(s)
        need(accept["accepted"], accept)
        need(peer(op="write", peer=peer(op="load", md=h["nixl_meta"])["peer"], **lists(h))["status"] == 0, "write")
        kvsender.send_msg(s, {"done": True, "rid": rid, "rank": 0, "generation": accept["generation"]})
        r = wire.call(f"http://{host}:{to_http}", "POST", "/pd/decode", {"rid": rid, "first_token_id": first, "max_tokens": 400})
    need(r.status == 200 and r.json["seq_len"] == tokens and len(r.json["token_ids"]) > 8, r)
    return sum(n for _, _, n in move(h))


def load(router, file):
    end, good, bad, wrong, lock = time.monotonic() + 200, [], [], [], threading.Lock()

    def client(i):
        n = 0
        while time.monotonic() < end and not os.path.exists(file + ".stop"):
            n += 1
            say = f"client {i} says {n} " * 20
            try:
                r = ask(router, say, max_tokens=4000)
                ok = r.status == 200 and r.ended == "clean"
                need(not ok or r.text == say, f"another text: {r.text!r}, want {say!r}")
                with lock:
                    (good if ok else bad).append(time.monotonic())
                    with open(file + ".new", "w") as f:
                        f.write(str(len(good)))
                    os.replace(file + ".new", file)
            except OSError:
                bad.append(time.monotonic())
            except AssertionError as e:
                wrong.append(str(e))

    ts = [threading.Thread(target=client, args=(i,)) for i in range(4)]
    for t in ts:
        t.start()
    for t in ts:
        t.join()
    need(not wrong, wrong[:1])
    need(good and (not bad or good[-1] > bad[-1]), f"{len(good)} good, {len(bad)} failed, none good after the last failure")
    return f"{len(good)} good answers, {len(bad)} failed, none wrong"


if __name__ == "__main__":
    part = {f.__name__: f for f in (sent, damaged, taken, raw, load)}[sys.argv[1]]
    try:
        print("ok  ", *sys.argv[1:2], "-", part(*sys.argv[2:]), flush=True)
    except (AssertionError, content.Different, OSError, KeyError, ValueError) as e:
        print("FAIL", *sys.argv[1:2], "-", f"{type(e).__name__}: {str(e)[:600]}", flush=True)
        sys.exit(1)
