#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""monitoring.py RULES DASHBOARD PAGE... : what a dashboard and rules ask for is served by the programs whose /metrics pages these are.

Every page is whole and well-formed, no two rows of one disagree; rules and dashboard have the members that Prometheus and Grafana
need; each metric that an expression names is on a page, and so is each label that it selects or groups by. Prints what is wrong.
"""
import json
import re
import sys

import yaml

SAMPLE = re.compile(r'^([a-z_:]+)(?:\{((?:[a-z_]+="[^"\\]*",?)*)\})? (-?[0-9.e+-]+|\+Inf|NaN)$')
# Made by Prometheus itself.
OWN_METRICS = {"up"}
OWN_LABELS = {"job", "instance"}
FUNCTIONS = set(
    "sum max min avg count rate increase changes deriv histogram_quantile clamp_min absent by without and or unless on".split()
)
wrong = []


def read_page(path):
    """name -> set of label names, of the rows (histograms under the name of the row)."""
    types, labels, seen = {}, {}, set()
    for line in open(path, encoding="utf-8"):
        line = line.rstrip("\n")
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            if name in types or kind not in ("counter", "gauge", "histogram"):
                wrong.append(f"{path}: {line}")
            if (kind == "counter") != name.endswith("_total"):
                wrong.append(f"{path}: {name} is a {kind}")
            types[name] = kind
            labels[name] = set()
        elif not line.startswith("# HELP "):
            match = SAMPLE.match(line)
            if not match:
                wrong.append(f"{path}: not a sample: {line}")
                continue
            name = match[1]
            stem = re.sub("_(bucket|sum|count)$", "", name)
            row = name if name in types else stem
            if row not in types or (row != name and types[row] != "histogram"):
                wrong.append(f"{path}: a sample without its row: {line}")
            if (name, match[2]) in seen:
                wrong.append(f"{path}: twice: {line}")
            seen.add((name, match[2]))
            labels.setdefault(row, set()).update(re.findall("([a-z_]+)=", match[2] or ""))
    return labels


def check_expression(where, expression, served):
    pairs = {"(": ")", "[": "]", "{": "}"}
    stack = []
    for c in re.sub('"[^"]*"', "", expression):
        if c in pairs:
            stack.append(pairs[c])
        elif c in pairs.values() and (not stack or stack.pop() != c):
            wrong.append(f"{where}: unbalanced: {expression}")
    if stack:
        wrong.append(f"{where}: unbalanced: {expression}")
    bare = re.sub('"[^"]*"', '""', expression)
    known = set(OWN_LABELS) | {"le"}
    selectors = re.findall(r"([a-z_]+)\{([^}]*)\}", bare)
    names = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(by|without|on) \([^)]*\)", "", bare)
    for name in re.findall(r"[a-z_]{2,}", names):
        if name in FUNCTIONS or name in OWN_METRICS:
            continue
        row = name if name in served else re.sub("_(bucket|sum|count)$", "", name)
        if row not in served:
            wrong.append(f"{where}: {name} is served by no program")
        known |= served.get(row, set())
    for name, inside in selectors:
        row = name if name in served else re.sub("_(bucket|sum|count)$", "", name)
        for label in re.findall(r"([a-z_]+)[=!]", inside):
            if label not in served.get(row, set()) | OWN_LABELS | ({"le"} if row != name else set()):
                wrong.append(f"{where}: {name} has no label {label}")
    for group in re.findall(r"\b(?:by|without|on) \(([^)]*)\)", bare):
        for label in group.split(","):
            if label.strip() not in known:
                wrong.append(f"{where}: no metric has the label {label}")


def check_rules(path, served):
    rules = yaml.safe_load(open(path, encoding="utf-8"))
    names = set()
    for group in rules["groups"]:
        for rule in group["rules"]:
            where = f"{path}: {rule['alert']}"
            if rule["alert"] in names or not {"expr", "labels", "annotations"} <= set(rule) <= {
                "alert", "expr", "for", "labels", "annotations",
            }:
                wrong.append(f"{where}: members")
            names.add(rule["alert"])
            if not re.fullmatch("[0-9]+[smh]", rule.get("for", "1m")):
                wrong.append(f"{where}: for")
            if rule["labels"].get("severity") not in ("warning", "critical"):
                wrong.append(f"{where}: severity")
            if set(rule["annotations"]) != {"summary", "description"}:
                wrong.append(f"{where}: annotations")
            check_expression(where, rule["expr"], served)
    return len(names)


def check_dashboard(path, served):
    board = json.load(open(path, encoding="utf-8"))
    ids, places, n = set(), [], 0
    for panel in board["panels"]:
        where = f"{path}: {panel['title']}"
        place = panel["gridPos"]
        if panel["id"] in ids or place["x"] + place["w"] > 24:
            wrong.append(f"{where}: id or place")
        ids.add(panel["id"])
        for other in places:
            if (
                place["x"] < other["x"] + other["w"] and other["x"] < place["x"] + place["w"]
                and place["y"] < other["y"] + other["h"] and other["y"] < place["y"] + place["h"]
            ):
                wrong.append(f"{where}: lies over another")
        places.append(place)
        for target in panel.get("targets", []):
            n += 1
            check_expression(where, target["expr"], served)
    return n


def main():
    served = {}
    for path in sys.argv[3:]:
        for name, labels in read_page(path).items():
            served.setdefault(name, set()).update(labels)
    n_rules = check_rules(sys.argv[1], served)
    n_targets = check_dashboard(sys.argv[2], served)
    print("\n".join(wrong))
    print(f"{n_rules} rules, {n_targets} expressions, {len(served)} metrics")
    sys.exit(1 if wrong or n_rules < 10 or n_targets < 20 or len(served) < 30 else 0)


main()
