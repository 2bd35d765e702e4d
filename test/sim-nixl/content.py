"""The KV that a simulated prefill node writes, made anew from what internal/sim/content.go says about it, to be held against the memory of
whoever received it. A row is a token of the KV or PE plane, or a page of the KI plane: a hash of the request, the row's place, and words that
follow from both. In the first layer of the KV plane the script stands in place of the words, as far as it goes.
"""
import array
import json
import struct

MASK = (1 << 64) - 1
STRIDE = 0x9E3779B97F4A7C15
KV, PE, KI = 0, 1, 2
PAGE, PAGE_BYTES = 64, 8448
LAYOUTS = {9008: (8, 528, 128), 10: (79, 528, 128), 50: (79, 1024, 128)}  # layout_version: layers, bytes of a KV row, of a PE row


def spread(a, b):
    x = a ^ (b * STRIDE & MASK)
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def request_hash(rid, tokens):
    h = 14695981039346656037
    for c in rid.encode():
        h = (h ^ c) * 1099511628211 & MASK
    return max(spread(h, tokens), 1)


def crc64(data):
    """CRC-64/XZ, as Go's ECMA table gives it."""
    crc = MASK
    for c in data:
        crc ^= c
        for _ in range(8):
            crc = crc >> 1 ^ (0xC96C5795D7870F42 if crc & 1 else 0)
    return crc ^ MASK


def row(h, plane, layer, n, size):
    place = (plane + 1) << 56 | layer << 40 | n
    x, words = spread(h, place), size // 8 - 2
    return struct.pack("<QQ", h, place) + array.array("Q", ((x + i * STRIDE) & MASK for i in range(words))).tobytes()


def pages(n):
    return -(-n // PAGE)


def addresses(hello):
    """(plane, layer, address) of every layer in the receiver's memory."""
    layers, kv, pe = LAYOUTS[hello["layout_version"]]
    room, shards = hello["max_seq_len"], hello.get("nshards", 1) or 1
    for plane, base, stride in ((KV, "kv_base", room * kv), (PE, "pe_base", room * pe), (KI, "ki_base", pages(room) * PAGE_BYTES)):
        bases = hello[base] if isinstance(hello[base], list) else [hello[base]]
        for layer in range(layers):
            yield plane, layer, bases[layer % shards] + layer // shards * stride


class Different(Exception):
    pass


def compare(pid, hello, rid, tokens, say):
    """Raises Different at the first byte of the process's memory that is not the request's. Returns how many were compared."""
    _, kv, pe = LAYOUTS[hello["layout_version"]]
    h, done = request_hash(rid, tokens), 0
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for plane, layer, at in addresses(hello):
            size, rows = {KV: (kv, tokens), PE: (pe, tokens), KI: (PAGE_BYTES, pages(tokens))}[plane]
            memory.seek(at)
            got = memory.read(size * rows)
            want = b"".join(row(h, plane, layer, n, size) for n in range(rows))
            if plane == KV and layer == 0:
                want = with_script(want, got, size, h, say)
            if got != want:
                i = next(i for i in range(len(want)) if got[i] != want[i])
                raise Different(f"{'KV PE KI'.split()[plane]} plane, layer {layer}, row {i // size}, byte {i % size}: {got[i]:#04x}, want {want[i]:#04x}")
            done += len(got)
    return done


def with_script(want, got, size, h, say):
    """The first layer as it must be, with the script that was found there, which must be a good one and say that."""
    body = lambda b: b"".join(b[i + 16:i + size] for i in range(0, len(b), size))
    found = body(got)
    magic, length, crc = struct.unpack_from("<IIQ", found)
    script = found[16:16 + length]
    if magic != 0x74706373 or crc != crc64(script) ^ h:
        raise Different("the script is damaged")
    if (said := json.loads(script)["say"]) != say:
        raise Different(f"the script says {said!r}, want {say!r}")
    whole = found[:16 + length] + body(want)[16 + length:]
    step = size - 16
    return b"".join(want[i * size:i * size + 16] + whole[i * step:(i + 1) * step] for i in range(len(want) // size))
