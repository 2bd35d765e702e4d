#!/usr/bin/env python3
"""Holds a result of the black-box suite against the list of cases that are known to fail.

usage: known.py RESULT.json LIST

LIST has one case a line, its id and the reason, and `#` for comments. It can only shrink: a case that fails and is not listed
is an error, and so is one that is listed and passes.
"""
import json
import sys


def read(path):
    """The list as {id: reason}."""
    known = {}
    with open(path, encoding="utf-8") as f:
        for n, line in enumerate(f, 1):
            if line.strip() and not line.startswith("#"):
                case, _, reason = line.strip().partition(" ")
                if not reason.strip() or case in known:
                    sys.exit(f"{path}:{n}: want an id, once, and a reason")
                known[case] = reason.strip()
    return known


def judge(cases, known):
    """Complaints: one line each."""
    out = []
    for c in cases:
        if c["verdict"] == "FAIL" and c["id"] not in known:
            out.append(f"FAIL {c['id']} {c['title']}: {c['reason'][:300]}")
        if c["verdict"] == "PASS" and c["id"] in known:
            out.append(f"FAIL {c['id']} passes: take it out of the list ({known[c['id']]})")
    return out


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        cases = json.load(f)["cases"]
    known = read(sys.argv[2])
    wrong = judge(cases, known)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    count = {v: sum(c["verdict"] == v for c in cases) for v in ("PASS", "FAIL", "SKIP")}
    missing = sum(c["verdict"] == "FAIL" and c["id"] in known for c in cases)
    if missing:
        print(f"{missing} fail as listed")
    print(f"blackbox: {count['PASS']} passed, {len(wrong)} failed, {count['SKIP'] + missing} skipped")
    sys.exit(bool(wrong) or not cases)


main()
