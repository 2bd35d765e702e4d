"""A small HTTP client that keeps what it saw: status, headers, bytes, server-sent events, and how the connection ended."""
import http.client
import json
import time
import urllib.parse

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "hi"}]


class Reply:
    """One answer. ended is "clean", "aborted" (the connection broke) or "left" (we hung up)."""

    def __init__(self, status, headers):
        self.status, self.headers, self.raw, self.ended, self.seconds = status, headers, b"", "clean", 0.0

    @property
    def json(self):
        try:
            return json.loads(self.raw)
        except ValueError:
            return None

    @property
    def streamed(self):
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def events(self):
        """The data of every complete event, [DONE] as that string, JSON otherwise."""
        out = []
        for block in self.raw.decode("utf-8", "replace").split("\n\n")[:-1]:
            data = "\n".join(line[5:].lstrip(" ") for line in block.split("\n") if line.startswith("data:"))
            if data:
                out.append(data if data == "[DONE]" else json.loads(data))
        return out

    @property
    def chunks(self):
        return [e for e in self.events if isinstance(e, dict)]

    @property
    def text(self):
        """What a client would show, of a blocking or streamed reply."""
        docs = self.chunks if self.streamed else [self.json or {}]
        parts = (c.get("delta") or c.get("message") or {"content": c.get("text")} for d in docs for c in d.get("choices") or [])
        return "".join(p.get("content") or "" for p in parts)

    @property
    def finish(self):
        docs = self.chunks if self.streamed else [self.json or {}]
        return next((c["finish_reason"] for d in docs for c in d.get("choices") or [] if c.get("finish_reason")), None)

    @property
    def usage(self):
        docs = self.chunks if self.streamed else [self.json or {}]
        return next((d["usage"] for d in reversed(docs) if d.get("usage")), None)

    def __str__(self):
        return f"{self.status} {self.ended} {self.raw[-300:]!r}"


def call(base, method, path, body=None, until=None, timeout=60):
    """Sends one request. until(reply) is asked after every read of the body; when it says yes we hang up."""
    url = urllib.parse.urlparse(base)
    conn = http.client.HTTPConnection(url.hostname, url.port, timeout=timeout)
    raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    began = time.monotonic()
    try:
        conn.request(method, path, raw, {"Content-Type": "application/json"} if raw is not None else {})
        resp = conn.getresponse()
        reply = Reply(resp.status, {k.lower(): v for k, v in resp.getheaders()})
        try:
            while piece := resp.read1(65536):
                reply.raw += piece
                if until and until(reply):
                    reply.ended = "left"
                    break
        except (http.client.HTTPException, OSError):
            reply.ended = "aborted"
        reply.seconds = time.monotonic() - began
        return reply
    finally:
        conn.close()


def chat(base, until=None, **fields):
    return call(base, "POST", CHAT, {"model": "stub", "messages": MESSAGES, **fields}, until)


def complete(base, **fields):
    return call(base, "POST", TEXT, {"model": "stub", "prompt": "hi", **fields})


def set_prefill(prefill, **values):
    """Changes the behaviour of the fake prefill node."""
    call(prefill, "POST", "/_set", values)


def prefill_log(prefill):
    """Every POST that the fake prefill node was sent so far."""
    return call(prefill, "GET", "/_log").json


def node_status(node):
    """What the decode node does: "idle" or "busy"."""
    return call(node, "GET", "/decode_status").json["status"]


def wait_idle(node, within=40.0):
    """Waits for the node's slot, and returns how long that took, or None when it stayed busy."""
    began = time.monotonic()
    while time.monotonic() - began < within:
        if node_status(node) == "idle":
            return time.monotonic() - began
        time.sleep(0.01)
    return None
