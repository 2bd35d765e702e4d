#!/usr/bin/env python3
"""Proves the dashboards and alerts against a Prometheus that has watched routers under traffic.

usage: prove.py config HOST:PORT...                            the configuration for that Prometheus, with all routers, on stdout
       prove.py check PROMETHEUS_URL BEGIN SENT ROUTER_URL...  BEGIN in Unix seconds, SENT: how many requests the traffic was

One line for each dashboard, for the alerts and for the traffic; then, for each dashboard, that the check notices when a
metric is taken away: a second job scrapes the same page without it.
"""
import json
import pathlib
import re
import sys
import time

from dashboards import Dashboard, fill
from prometheus import JOB, NAME, WITHOUT, Prometheus, base, strangers, text

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RULES = ROOT / "deploy/prometheus/pd-router.rules.yml"
RUNBOOK = ROOT / "docs/runbook.md"

# The family that is taken away from each dashboard for its self-test.
TAKEN = {"operate": "pd_router_queue_wait_seconds", "slots-and-kv": "pd_router_slot_seconds_total",
         "clients-and-tokens": "pd_router_ttft_seconds", "benchmark-run": "pd_router_tokens_total"}

# What the traffic is made for. Alerts are meant here as conditions: that they wait before they fire is for their unit tests.
OUTCOMES = {"ok", "invalid", "unavailable", "queue_full", "queue_timeout", "client_gone", "prefill_refused", "stream_failed"}
ALERTS = {"PdRouterPrefillDown", "PdRouterDecodeNodeDown", "PdRouterRequestsRefused", "PdRouterKVTransfersFailing"}

failed = False


def say(ok, what, *details):
    global failed
    failed |= not ok
    print("ok  " if ok else "FAIL", what)
    for d in details:
        print("    ", d)


def config(routers):
    """Prometheus reads JSON, as it is YAML too."""
    def job(name, **more):
        return {"job_name": name, "static_configs": [{"targets": routers}], **more}
    drops = [job(WITHOUT + name, metric_relabel_configs=[{"source_labels": ["__name__"], "regex": family + "(_bucket|_sum|_count)?", "action": "drop"}])
             for name, family in TAKEN.items()]
    return {"global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "2s"}, "rule_files": [str(RULES)],
            "scrape_configs": [job(JOB), *drops]}


class Proof:
    def __init__(self, prom, begin, end):
        self.prom, self.begin, self.end = prom, begin, end

    def series(self, expr, whole=False):
        """Expressions over the whole time range have their value at its end."""
        return self.prom.at(expr, self.end) if whole else self.prom.over(expr, self.begin, self.end)

    def target(self, t, values):
        """What is wrong with one expression, and whether it was ever something else than zero."""
        try:
            series = self.series(fill(t.expr, values, int(self.end - self.begin)), t.over_all)
        except ValueError as e:
            return str(e), False
        if not series:
            return "no data", False
        for label in re.findall(r"\{\{(\w+)\}\}", t.legend):
            if any(label not in labels for labels, _ in series):
                return f"the legend's {label} is not in the result", False
        return "; ".join(strangers(self.prom, t.expr)), any(any(numbers) for _, numbers in series)

    def dashboard(self, d, job):
        """What is wrong with a dashboard, by target, and by what else."""
        values, wrong = d.resolve(self.prom, job)
        bad, moved = {}, set()
        for t in d.targets:
            why, nonzero = self.target(t, values)
            if why:
                bad[t.where] = why
            if nonzero:
                moved.add(t.panel)
        wrong += [f"panel {p} shows nothing but zero" for p in d.panels if p not in moved]
        return bad, wrong

    def alert(self, rule):
        """What is wrong with an alert, and whether its condition held at any time."""
        if rule["health"] != "ok":
            return f'{rule["health"]}: {rule.get("lastError")}', False
        expr = rule["query"]
        wrong = [n for n in NAME.findall(expr) if not self.prom.values(n, "__name__")]
        if wrong:
            return f"no metric {wrong[0]}", False
        # With bool a comparison gives 0 and 1, where it would give nothing.
        if not self.prom.over(re.sub(r" (==|!=|>=|<=|>|<) ", r" \1 bool ", expr), self.begin, self.end):
            return "its two sides never have data", False
        return "; ".join(strangers(self.prom, expr)), bool(self.prom.over(expr, self.begin, self.end))


def check_alerts(proof):
    rules = [r for g in proof.prom.get("rules")["groups"] for r in g["rules"]]
    headings = re.findall(r"^#+ (PdRouter\w+)$", RUNBOOK.read_text(), re.M)
    bad, held = [], set()
    for r in rules:
        why, true = proof.alert(r)
        if why:
            bad.append(f'{r["name"]}: {why}')
        if true:
            held.add(r["name"])
        if r["annotations"].get("runbook_url") != f'docs/runbook.md#{r["name"].lower()}' or r["name"] not in headings:
            bad.append(f'{r["name"]}: no such section in docs/runbook.md')
        bad += [f'{r["name"]}: {v}' for a in r["alerts"] for v in a["annotations"].values() if "error" in v and "template" in v]
    bad += [f"docs/runbook.md: no alert {h}" for h in headings if h not in {r["name"] for r in rules}]
    bad += [f"{a}: the traffic should make it true" for a in sorted(ALERTS - held)]
    say(not bad, f"{len(rules)} alerts: both sides of each have data, each has its section in the runbook; true in this run: {', '.join(sorted(held))}", *bad)


def check_traffic(page, sent):
    """page holds those of all routers."""
    rows = re.findall(r'^pd_router_requests_total\{.*outcome="(\w+)".*\} (\S+)$', page, re.M)
    outcomes = {}
    for name, n in rows:
        outcomes[name] = outcomes.get(name, 0) + int(float(n))
    bad = [f"no request ended as {o}" for o in sorted(OUTCOMES) if not outcomes.get(o)]
    if sum(outcomes.values()) != sent:
        bad.append(f"{sent} requests were sent")
    say(not bad, f"traffic: {sum(outcomes.values())} requests, " + ", ".join(f"{o} {n}" for o, n in sorted(outcomes.items()) if n), *bad)


def check_queue(routers):
    """GET /queue tells of the arena what the metrics page tells, now that nothing moves."""
    bad, staged = [], 0
    for r in routers:
        want = {state: int(n) for state, n in re.findall(r'^pd_router_arena_slots\{state="(\w+)"\} (\d+)$', text(r + "/metrics"), re.M)}
        got = json.loads(text(r + "/queue")).get("arena")
        staged += got is not None
        if (got and got["slots"]) != (want or None) or got and (got["kv_ready"] or not got["bytes"]):
            bad.append(f"{r}: {got}, and in metrics {want}")
    say(not bad and staged == 1, "/queue shows the arena of the staged router, and none of the direct one", *bad)


def check(prometheus, begin, sent, routers):
    prom, page = Prometheus(prometheus), "".join(text(r + "/metrics") for r in routers)
    proof = Proof(prom, begin, time.time())
    all_of_them = [Dashboard.load(p) for p in sorted((ROOT / "deploy/grafana").glob("*.json"))]
    check_traffic(page, sent)
    check_queue(routers)
    for d in all_of_them:
        bad, wrong = proof.dashboard(d, JOB)
        say(not bad and not wrong, f"{d.title}: {len(d.panels)} panels, {len(d.targets)} queries, {len(d.variables)} variables",
            *wrong, *(f"{where}: {why}" for where, why in bad.items()))
    shown = {base(n) for d in all_of_them for t in d.targets for n in NAME.findall(t.expr)}
    families = {m for m in re.findall(r"^# TYPE (\S+)", page, re.M) if m.startswith("pd_router_")}
    missing = sorted(families - shown)
    say(not missing, f"every one of {len(families)} pd_router families is on a panel", *missing)
    unknown = sorted(n for n in set(NAME.findall(RUNBOOK.read_text())) if f"# TYPE {base(n)} " not in page and f"# TYPE {n} " not in page)
    say(not unknown, "every metric named in docs/runbook.md is on the page", *unknown)
    check_alerts(proof)
    for d in all_of_them:
        family = TAKEN[d.name]
        want = {t.where for t in d.targets if family in t.expr}
        bad, _ = proof.dashboard(d, WITHOUT + d.name)
        say(want and set(bad) == want, f"{d.title} without {family}: the check finds the {len(want)} queries that need it",
            *(f"not found: {w}" for w in sorted(want - set(bad))), *(f"{w}: {bad[w]}" for w in sorted(set(bad) - want)))


if sys.argv[1] == "config":
    json.dump(config(sys.argv[2:]), sys.stdout, indent=1)
else:
    check(sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
    sys.exit(failed)
