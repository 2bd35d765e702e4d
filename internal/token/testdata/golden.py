"""Writes what the reference library (tokenizers 0.23) decodes ids to, for the tests of this package.

    golden.py small DIR     small hand-made tokenizers, each as DIR/NAME/tokenizer.json, with DIR/NAME/golden.json
    golden.py real DIR...   DIR/golden.json beside each DIR/tokenizer.json that is there already

golden.json: library; size (highest id + 1); sequences, each [ids, text of every prefix, the same without special tokens]
(real: the whole text only); kept and skipped (real only): for every 1,000 ids the SHA-256 over the texts of these ids
alone, each followed by a zero byte.
"""
import hashlib
import json
import os
import random
import sys

import tokenizers

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
UNDERSCORE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
FALLBACK, FUSE = {"type": "ByteFallback"}, {"type": "Fuse"}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
PLAIN = [*range(33, 127), *range(161, 173), *range(174, 256)]
LETTERS = {b: chr(b) for b in PLAIN} | {
    b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in PLAIN)}


def sequence(*decoders):
    return {"type": "Sequence", "decoders": list(decoders)}


def metaspace(scheme):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}


def letters(b):
    return "".join(LETTERS[c] for c in (b.encode() if isinstance(b, str) else b))


def added(*tokens, normalized=False):
    """(id, content, special) of added tokens."""
    return [{"id": i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": normalized,
             "special": s} for i, c, s in tokens]


def tokenizer(vocab, decoder, extra=(), normalizer=None, model="BPE"):
    if not isinstance(vocab, dict):
        vocab = {t: i for i, t in enumerate(vocab)}
    types = {
        "BPE": {"dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": []},
        "WordLevel": {"vocab": vocab, "unk_token": "<unk>"},
        "Unigram": {"unk_id": 0, "vocab": [[t, -1.5 - i] for t, i in vocab.items()], "byte_fallback": False},
    }
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(extra), "normalizer": normalizer,
            "pre_tokenizer": None, "post_processor": None, "decoder": decoder, "model": {"type": model} | types[model]}


PIECES = ["Hello", " world", "世界", "。", "\"quoted\\", "\u2028", "🙂", "\x00\x1f", "ÿ"]
PARTS = [b"\xe4\xb8", b"\x96\xe7", b"\x95", b"\xf0\x9f\x99", b"\x82 after", b"\xed\xa0", b"\xc0\xaf", b"\xf4\x90"]
BYTES = [f"<0x{b:02X}>" for b in range(256)]
WORDS = ["<unk>", "▁", "▁Hello", "▁world", "he▁llo", "世", "▁▁", "x", " y", "!", "\n", "�"]
PREPEND = {"type": "Sequence", "normalizers": [
    {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}


def small():
    level = [LETTERS[b] for b in range(256)] + [letters(p) for p in PIECES + PARTS]
    n = len(level)
    yield "byte-level", tokenizer(level, BYTE_LEVEL, added(
        (n, "<|end|>", True), (n + 1, "<think>", False), (n + 2, "｜DSML｜", False), (n + 3, "é", False),
        (n + 4, "a b", False), (n + 5, "<|é|>", True), (72, "H", False), (n + 6, "\\\"\n", False)))
    yield "added-ids", tokenizer({"a": 0, "b": 7, "c": 2}, sequence(BYTE_LEVEL), added(
        (9, "<x>", False), (12, "<y>", True), (2, "c", True), (13, "<x>", True), (14, "<z>", False), (14, "", True)))
    llama = ["<unk>", "<s>", "</s>", *BYTES, *WORDS[1:], "<0x+F>", "<0xag>", "<0xé>", "<0x4>", "<0x41>x"]
    special = added((0, "<unk>", True), (1, "<s>", True), (2, "</s>", True), (len(llama), "<mark>", False))
    yield "llama", tokenizer(llama, sequence(UNDERSCORE, FALLBACK, FUSE, STRIP), special)
    yield "gemma", tokenizer(llama, sequence(UNDERSCORE, FALLBACK, FUSE), special)
    yield "fallback", tokenizer(llama, FALLBACK, special)
    yield "metaspace", tokenizer(WORDS, metaspace("always"), added((0, "<unk>", True), (12, "a▁b", False)), None, "Unigram")
    yield "metaspace-never", tokenizer(WORDS, metaspace("never"), added((0, "<unk>", True)), None, "Unigram")
    yield "metaspace-fused", tokenizer(WORDS, sequence(UNDERSCORE | {"pattern": {"String": "l"}, "content": "▁L"},
                                                       metaspace("first"), FUSE, STRIP | {"start": 2}))
    yield "no-decoder", tokenizer(WORDS, None, added((0, "<unk>", True), (12, "", False)), None, "WordLevel")
    yield "strip-each", tokenizer(WORDS, sequence(UNDERSCORE, STRIP), added((0, "<unk>", True)), None, "WordLevel")
    yield "fuse-only", tokenizer(WORDS, sequence(sequence(), FUSE, FUSE), added((0, "<unk>", True)))
    yield "normalized", tokenizer(["a", "▁b"], sequence(UNDERSCORE, FUSE), added(
        (2, "x y", False), (3, " z", False), normalized=True) + added((2, "x y", False)), PREPEND)
    yield "normalized-bytes", tokenizer(["a"], BYTE_LEVEL, added(
        (1, "é 世", False), (2, "<|x|>", False), normalized=True) + added((3, "ô", False)), {"type": "ByteLevel"})


def sequences(rnd, t, size, count, longest):
    """Id lists: any ids, some of them outside the vocabulary; and lists over a few ids, so that these meet often."""
    for i in range(count):
        few = [rnd.randrange(size) for _ in range(6)] if i % 3 == 0 else range(size + 2)
        yield [rnd.choice(few) for _ in range(rnd.randint(1, longest))]
    for text in ("Hello world", "今天天气很好。所以我们出去散步了。", "naïve 🙂👩‍👩‍👧 𝛼\n\n\tif x:\n", "  two  spaces"):
        if ids := t.encode(text, add_special_tokens=True).ids:
            yield ids[:60]


def size_of(t):
    return max(t.get_vocab(with_added_tokens=True).values()) + 1


def write(folder, rows, **rest):
    """One sequence a line, so that a change can be read."""
    with open(os.path.join(folder, "golden.json"), "w", encoding="utf-8") as f:
        head = json.dumps({"library": tokenizers.__version__} | rest)
        body = ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
        f.write(f'{head[:-1]}, "sequences": [\n{body}\n]}}\n')


def write_small(root):
    for name, value in small():
        folder = os.path.join(root, name)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
            json.dump(value, f, ensure_ascii=name in ("byte-level", "metaspace"), indent=1 if name == "llama" else None,
                      separators=(",", ":") if name == "gemma" else None)
        t, rnd = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json")), random.Random(name)
        size = size_of(t)
        lists = [[i] for i in range(size + 2)] + list(sequences(rnd, t, size, 60, 9))
        rows = [[ids, *([t.decode(ids[:n + 1], skip_special_tokens=s) for n in range(len(ids))] for s in (False, True))]
                for ids in lists]
        write(folder, rows, size=size)


def write_real(folder):
    t, rnd = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json")), random.Random(1)
    size = size_of(t)
    rows = [[ids, *([t.decode(ids, skip_special_tokens=s)] for s in (False, True))]
            for ids in sequences(rnd, t, size, 600, 60)]
    hashes = [[], []]
    for start in range(0, size, 1000):
        for skip in (False, True):
            h = hashlib.sha256()
            for i in range(start, min(start + 1000, size)):
                h.update(t.decode([i], skip_special_tokens=skip).encode() + b"\0")
            hashes[skip].append(h.hexdigest())
    write(folder, rows, size=size, kept=hashes[0], skipped=hashes[1])


if __name__ == "__main__":
    if sys.argv[1] == "small":
        write_small(sys.argv[2])
    else:
        for path in sys.argv[2:]:
            write_real(path)
