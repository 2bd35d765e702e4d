"""The dashboards as lists of expressions, filled in as Grafana does."""
import json
import re
from dataclasses import dataclass, field


@dataclass
class Target:
    """One expression of a panel or an annotation."""
    where: str
    expr: str
    legend: str = ""
    panel: str = ""

    @property
    def over_all(self):
        """Whether it is about the whole time range, so that it has one value and no line."""
        return "$__range" in self.expr


@dataclass
class Dashboard:
    name: str
    title: str
    variables: list
    panels: list = field(default_factory=list)
    targets: list = field(default_factory=list)

    @classmethod
    def load(cls, path):
        d = json.loads(path.read_text())
        self = cls(path.stem, d["title"], d["templating"]["list"])
        for p in d["panels"]:
            if p["type"] == "row":
                continue
            self.panels.append(p["title"])
            self.targets += [Target(f'{p["title"]} {q["refId"]}', q["expr"], q.get("legendFormat", ""), p["title"]) for q in p["targets"]]
        self.targets += [Target(f'annotation {a["name"]}', a["expr"], a["titleFormat"]) for a in d["annotations"]["list"] if "expr" in a]
        return self

    def resolve(self, prom, job):
        """The values of all variables with everything chosen, and what is wrong with them."""
        values, wrong = {}, []
        for v in self.variables:
            if v["type"] == "datasource":
                continue
            if v["type"] == "textbox":
                values[v["name"]] = v["query"]
            elif v["name"] == "job":
                values["job"] = job
                if job not in prom.get("label/job/values", **{"match[]": metric(v)}):
                    wrong.append(f"variable job does not offer {job}")
            else:
                found = prom.get(f"label/{label(v)}/values", **{"match[]": fill(metric(v), values)})
                values[v["name"]] = v.get("allValue") or "|".join(re.escape(x).replace("\\", "\\\\") for x in found)
                if not found and not v.get("allValue"):     # one that matches everything may have nothing to offer
                    wrong.append(f'variable {v["name"]} has no values')
        return values, wrong


LABEL_VALUES = re.compile(r"label_values\((.+), (\w+)\)$")


def metric(variable):
    return LABEL_VALUES.match(variable["query"])[1]


def label(variable):
    return LABEL_VALUES.match(variable["query"])[2]


def fill(expr, values, seconds=0):
    """An expression with variables and windows filled in, for a scrape each second and a time range of so many seconds."""
    for name, value in {"__rate_interval": "8s", "__interval_ms": "1000", "__interval": "1s", "__range_s": f"{seconds}",
                        "__range": f"{seconds}s", **values}.items():
        expr = re.sub(rf"\$(?:{name}\b|\{{{name}\}})", lambda _, v=value: v, expr)
    if "$" in re.sub(r'"\$\d"', "", expr):      # label_replace has $1 of its own
        raise ValueError(f"a variable is left in {expr}")
    return expr
