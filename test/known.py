#!/usr/bin/env python3
"""Holds results of the black-box suite against the list of cases that are known to fail.

usage: known.py again LIST RESULT.json                  prints the ids of unexpected failures, with commas
       known.py judge LIST RESULT.json [SECOND.json]    says what is wrong; a case of the second run counts as that run has it

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


def unexpected(cases, known):
    return [c for c in cases.values() if c["verdict"] == "FAIL" and c["id"] not in known]


def judge(known, first, second):
    cases = first | second
    wrong = [f"FAIL {c['id']} {c['title']}: {c['reason'][:300]}" for c in unexpected(cases, known)]
    wrong += [f"FAIL {i} passes: take it out of the list ({known[i]})" for i, c in cases.items() if i in known and c["verdict"] == "PASS"]
    unsteady = [i for i, c in second.items() if c["verdict"] == "PASS"]
    listed = [i for i, c in cases.items() if i in known and c["verdict"] == "FAIL"]
    count = {v: sum(c["verdict"] == v for c in cases.values()) for v in ("PASS", "SKIP")}
    for line in wrong:
        print(line)
    for what, ids in (("known to fail", listed), ("passed only when run again", unsteady)):
        if ids:
            print(f"{what}: {' '.join(ids)}")
    print(f"blackbox: {count['PASS']} passed, {len(wrong)} failed, {count['SKIP'] + len(listed)} skipped")
    return 1 if wrong or not cases else 0


def main():
    mode, known, results = sys.argv[1], read_list(sys.argv[2]), [read_cases(p) for p in sys.argv[3:]]
    if mode == "again":
        print(",".join(c["id"] for c in unexpected(results[0], known)))
        return 0
    return judge(known, results[0], results[1] if len(results) > 1 else {})


sys.exit(main())
