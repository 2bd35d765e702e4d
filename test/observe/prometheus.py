"""What the scripts of this folder share: asking Prometheus, and taking expressions apart."""
import json
import re
import urllib.error
import urllib.parse
import urllib.request

JOB = "pd-router"       # of the router in Prometheus
WITHOUT = "without-"    # begins the jobs that scrape the same page with one family taken away

SELECTOR = re.compile(r"\b([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}")
MATCHER = re.compile(r'([a-z_]+)(=~|!~|!=|=)"((?:[^"\\]|\\.)*)"')
NAME = re.compile(r"\b(?:pd_router|vllm|go|process)[_:][a-zA-Z0-9_:]+")


def base(name):
    """The family of a histogram's series."""
    return re.sub(r"_(bucket|sum|count)$", "", name)


def text(url):
    with urllib.request.urlopen(url, timeout=20) as r:
        return r.read().decode()


class Prometheus:
    def __init__(self, url):
        self.url = url
        self.known = {}

    def get(self, path, **query):
        """The data of an answer; an error of Prometheus is a ValueError with its text."""
        try:
            answer = json.loads(text(f"{self.url}/api/v1/{path}?" + urllib.parse.urlencode(query, doseq=True)))
        except urllib.error.HTTPError as e:
            answer = json.load(e)
        if answer["status"] != "success":
            raise ValueError(answer["error"])
        return answer["data"]

    def over(self, expr, begin, end, step=1):
        """The series of a range query, as (labels, numbers), without what is no finite number and without the jobs that
        lack something, unless they were asked for."""
        got = self.get("query_range", query=expr, start=begin, end=end, step=step)["result"]
        return self._series(expr, [(s["metric"], s["values"]) for s in got])

    def at(self, expr, time):
        got = self.get("query", query=expr, time=time)["result"]
        return self._series(expr, [(s["metric"], [s["value"]]) for s in got])

    @staticmethod
    def _series(expr, series):
        bad = ("NaN", "+Inf", "-Inf")
        keep = [(labels, [float(v) for _, v in values if v not in bad]) for labels, values in series
                if WITHOUT in expr or not labels.get("job", "").startswith(WITHOUT)]
        return [s for s in keep if s[1]]

    def values(self, metric, label, job=JOB):
        """The values that a label of a metric has."""
        key = metric, job
        if key not in self.known:
            self.known[key] = self.get("series", **{"match[]": f'{metric}{{job="{job}"}}'})
        return {s[label] for s in self.known[key] if label in s}


def strangers(prom, expr):
    """Values in the matchers of an expression that the metric's label does not have: they select nothing, or exclude
    nothing, and Prometheus says so to nobody."""
    for metric, matchers in SELECTOR.findall(expr):
        for label, op, value in MATCHER.findall(matchers):
            if "$" in value or label == "job":
                continue
            pattern = op in ("=~", "!~")
            for v in value.split("|") if pattern else [value]:
                if not (pattern and re.search(r"[.*+?()\[\]{}^\\]", v)) and v not in prom.values(metric, label):
                    yield f'{metric} has no {label}="{v}"'
