"""What the two routers are asked, by engine mode (peer.sh). Each case is (name, path, body, prefill settings)."""
from wire import CHAT, MESSAGES, TEXT

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}}


def chat(name, prefill=None, **fields):
    """A chat case in both forms, blocking and streaming."""
    body = {"model": "stub", "messages": MESSAGES, "max_tokens": 8, **fields}
    body = {k: v for k, v in body.items() if v is not ...}
    yield name, CHAT, body, prefill
    yield name + ", stream", CHAT, {**body, "stream": True}, prefill


def refused(name, **fields):
    """A chat case that is over before there is anything to stream."""
    body = {"model": "stub", "messages": MESSAGES, "max_tokens": 8, **fields}
    yield name, CHAT, body, None


def text(name, **fields):
    yield name, TEXT, {"model": "stub", "prompt": "hi", "max_tokens": 8, **fields}, None


def plain():
    yield from chat("plain")
    yield from chat("usage asked for", stream_options={"include_usage": True})
    yield from chat("engine ends by itself", max_tokens=200)
    yield from chat("one token", max_tokens=1)
    yield from chat("no max_tokens", max_tokens=..., stop="STOP")
    yield from chat("max_completion_tokens wins", max_completion_tokens=3)
    yield from chat("max_tokens as text", max_tokens="5")
    yield from chat("stop across tokens", stop="STOP")
    yield from chat("stop list", stop=["zzz", " tail", "ta"])
    yield from chat("stop included", stop="STOP", include_stop_str_in_output=True)
    yield from chat("stop never comes", stop="zzz")
    yield from chat("logprobs", logprobs=True, top_logprobs=2)
    yield from chat("logprobs without candidates", logprobs=True)
    yield from chat("logprobs with stop", logprobs=True, top_logprobs=1, stop="STOP")
    yield from chat("sampling", temperature=0.7, top_p=0.9, top_k=20)
    yield from chat("penalties", repetition_penalty=1.1, presence_penalty=0.5)
    yield from chat("ignore_eos", ignore_eos=True)
    yield from chat("tools without a parser", tools=[TOOL])
    yield from chat("fields for the model", user="u", cache_salt="s", chat_template_kwargs={"enable_thinking": False}, priority=3)
    yield from chat("kv_transfer_params of a client", kv_transfer_params={"tilert_host": "10.9.9.9"})
    yield from chat("response_format text", response_format={"type": "text"})
    yield from chat("grammar violated", regex="__violate__")
    yield from chat("grammar unknown to the node", response_format={"type": "json_schema", "json_schema": {"schema": {"type": "object"}}})
    yield from chat("neutral values", n=1, best_of=1, min_p=0, frequency_penalty=0, logit_bias={}, seed=None, min_tokens=0)
    yield from text("completions")
    yield from text("completions streamed", stream=True)
    yield from text("completions with stop", stop="STOP")
    yield from text("completions with token ids", prompt=[320, 321, 322])
    yield from text("completions with a list of prompts", prompt=["a", "b"])
    yield from text("completions with echo", echo=True)
    yield from text("completions with logprobs", logprobs=1)
    yield from chat("prefill says 400", {"status": 400})
    yield from chat("prefill says 404", {"status": 404})
    yield from chat("prefill says 500", {"status": 500})
    for field, values in {
        "max_tokens": (0, -1, "abc", 1.5, [1]), "temperature": ("hot", "nan", -1, True), "top_p": ("x", -0.1), "top_k": (1.5, "20.0"),
        "n": (2, "x"), "best_of": (2,), "seed": (0,), "min_tokens": (4,), "min_p": (0.1,), "frequency_penalty": (0.5, "x"),
        "logit_bias": ({"1": 2},), "stop_token_ids": ([1],), "bad_words": (["x"],), "allowed_token_ids": ([1],), "stop": ("", 5, ["", "a"]),
        "include_stop_str_in_output": ("maybe", 2), "logprobs": (1, "yes"), "prompt_logprobs": (1,), "use_beam_search": (True,),
        "skip_special_tokens": (False,), "chat_template_kwargs": ("x",), "response_format": ("json", {"type": "json_schema"}),
        "repetition_penalty": ("x",), "messages": ("x",), "stream_options": ({"include_usage": True},),
    }.items():
        for value in values:
            yield from refused(f"{field}={value!r}", **{field: value})
    yield from refused("top_logprobs without logprobs", top_logprobs=2)
    yield from refused("top_logprobs=6", logprobs=True, top_logprobs=6)
    for name, raw in (("body is no JSON", b"{bad"), ("body is a list", b"[]"), ("body is empty", b"")):
        yield name, CHAT, raw, None
    for path in ("/health", "/pool_status", "/v1/models", "/metrics", "/nothing"):
        yield "GET " + path, path, None, None


def unusual():
    """For an engine that ends in another way."""
    yield from chat("plain")
    yield from chat("usage asked for", stream_options={"include_usage": True})
    yield from text("completions")


CASES = {"plain": plain, "eos": unusual, "window": unusual, "raise": unusual}
