#!/usr/bin/env python3
"""Holds results of the black-box suite against the list of cases that are known to fail.

usage: known.py LIST RESULT.json

LIST has one case a line, its id and the reason, and `#` for comments. It can only shrink: a case that fails and is not listed
is an error, and so is one that is listed and passes.
"""
import json
import sys


def read_list(path):
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


def read_cases(path):
    """The cases of one run as {id: case}."""
    with open(path, encoding="utf-8") as f:
        return {c["id"]: c for c in json.load(f)["cases"]}


def judge(known, cases):
    wrong = [f"FAIL {c['id']} {c['title']}: {c['reason'][:300]}" for i, c in cases.items() if c["verdict"] == "FAIL" and i not in known]
    wrong += [f"FAIL {i} passes: take it out of the list ({known[i]})" for i, c in cases.items() if i in known and c["verdict"] == "PASS"]
    listed = [i for i, c in cases.items() if i in known and c["verdict"] == "FAIL"]
    count = {v: sum(c["verdict"] == v for c in cases.values()) for v in ("PASS", "SKIP")}
    for line in wrong:
        print(line)
    if listed:
        print(f"known to fail: {' '.join(listed)}")
    print(f"blackbox: {count['PASS']} passed, {len(wrong)} failed, {count['SKIP'] + len(listed)} skipped")
    return 1 if wrong or not cases else 0


sys.exit(judge(read_list(sys.argv[1]), read_cases(sys.argv[2])))
