"""Runs the services of deploy/compose/compose.yaml without containers, and asks Prometheus what it sees.

usage: compose.py PROJECT.json CONTAINERFILE ROUTER PROMETHEUS WORK     PROJECT.json is what compose-go makes of the file

Run it in namespaces of its own (test/deploy.sh): each service gets an address of loopback, its name stands in /etc/hosts, and what
listens on 0.0.0.0 listens on that address. Entry points, commands, names, ports, configs and the health check are the files' own; images
and Grafana itself are not run, but each mounted path must exist.
"""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time
import urllib.request

project, containerfile, router, prometheus, work = json.load(open(sys.argv[1])), *sys.argv[2:6]
work = pathlib.Path(work)
services = project["services"]
address = {name: f"127.0.1.{i + 1}" for i, name in enumerate(services)}


def words(v):
    """A command as compose has it: text that is split as by a shell, or a list; $$ is a dollar."""
    return [w.replace("$$", "$") for w in (shlex.split(v) if isinstance(v, str) else v or [])]


def mounts(service):
    """Where the paths of a container lie on this host; configs are written to a folder of this run."""
    found = {v["target"]: pathlib.Path(v["source"]) for v in service.get("volumes", ())}
    for c in service.get("configs", ()):
        path = work / "configs" / c["target"].strip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(project["configs"][c["source"]]["content"])
        found[c["target"]] = path
    for target, path in found.items():
        assert path.exists(), f"{target} is mounted from {path}, which does not exist"
    return found


def command(name, service):
    own = [str(router)] if service.get("image") == "pd-router" else []
    argv = words(service.get("entrypoint")) or own
    argv += words(service.get("command"))
    for target, path in mounts(service).items():
        argv = [a.replace(target, str(path)) if a.startswith(target) else a for a in argv]
    return [a.replace("0.0.0.0", address[name]).replace("/tmp/tiny", str(work / "tiny")) for a in argv]


def start(name, argv, **env):
    return subprocess.Popen(argv, stdout=open(work / f"{name}.out", "wb"), stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                            env={**os.environ, "PATH": f"{work / 'bin'}:{os.environ['PATH']}", **env})


def until(what, true, seconds=30):
    end = time.monotonic() + seconds
    while True:
        got = true()
        if got or time.monotonic() > end:
            break
        for name, p in running.items():
            assert p.poll() is None, f"{name} ended with {p.returncode}: {(work / f'{name}.out').read_text()[-1000:]}"
        time.sleep(0.1)
    assert got, f"not within {seconds} s: {what}"
    print(f"ok   compose: {what}")


def ask(path):
    try:
        with urllib.request.urlopen(f"http://prometheus:9090/api/v1/{path}", timeout=5) as r:
            return json.load(r)["data"]
    except OSError:
        return {}


def healthy(check):
    return subprocess.run(check, env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
hosts = work / "hosts"
hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{a} {n}\n" for n, a in address.items()))
subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
(work / "bin").mkdir(exist_ok=True)
(work / "bin" / "pd-router").symlink_to(router)
health = json.loads(re.search(r"^HEALTHCHECK [^\n]*\\\n *CMD (\[.*\])$", pathlib.Path(containerfile).read_text(), re.M).group(1))

running = {}
try:
    first = [n for n in services if n not in ("grafana", "prometheus") and not services[n].get("depends_on")]
    assert not healthy(health), "the health check is content without a router"
    for name in first:
        running[name] = start(name, command(name, services[name]))
    until("the image's health check is content with the router", lambda: healthy(health))
    for name in [n for n in services if services[n].get("depends_on")]:
        running[name] = start(name, command(name, services[name]))

    # Prometheus' image reads that file by default. Its rules lie beside it.
    config = mounts(services["prometheus"])
    place = config["/etc/prometheus/prometheus.yml"]
    (place.parent / "pd-router.rules.yml").write_bytes(config["/etc/prometheus/pd-router.rules.yml"].read_bytes())
    running["prometheus"] = start("prometheus", [prometheus, f"--config.file={place}", f"--storage.tsdb.path={work / 'tsdb'}"])
    jobs = {"pd-router", "vllm-prefill"}
    until("Prometheus reads both pages", lambda: {t["labels"]["job"] for t in ask("targets").get("activeTargets", ()) if t["health"] == "up"} == jobs)
    until("Prometheus has the alerts", lambda: any(g["rules"] for g in ask("rules").get("groups", ())))
    served = "query?query=" + urllib.request.quote('sum(pd_router_requests_total{outcome="ok"})')
    until("it counts requests that were served", lambda: any(float(r["value"][1]) > 0 for r in ask(served).get("result", ())))

    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (mounts(services["grafana"])["/dashboards"] / pathlib.Path(home).name).exists(), f"no {home}"
    print("ok   compose: Grafana's dashboards are there")

    running["router"].terminate()
    grace = int(services["router"]["stop_grace_period"].removesuffix("s"))
    assert running.pop("router").wait(grace) == 0, "the router did not end well"
    print("ok   compose: SIGTERM ends the router")
finally:
    for p in running.values():
        p.kill()
