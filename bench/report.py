#!/usr/bin/env python3
"""Turns the rows of a bench run into results.json, results.md and plots.

Called by bench/run with the directory that holds rows.jsonl (one JSON object a
line, see bench/measure.hpp) and uncontended-*.json (Google Benchmark's). Rows
of the same bench, subject and place are repeats: of each figure the median
and the range are kept. Nothing but the standard library.
"""

import argparse
import glob
import html
import json
import math
import os
import platform
import statistics
import sys

# What a table shows of a bench; the rest is in results.json.
COLUMNS = {
    "contention": ["per_second", "fairness", "wait.p50_us", "wait.p99_us",
                   "messages_per_grant", "cpu_us_per_grant"],
    "escalation": ["warm_lock_ns", "warm_release_ns", "fresh_lock_ns",
                   "warm_to_first"],
    "scope": ["take_ns", "pair_ns", "give_ns", "bytes_per_lock", "left_bytes",
              "open.p50_us", "p50_us", "first_waiter_ms", "last_waiter_ms",
              "all_free_ms"],
    "designs": ["locks_per_second", "transactions_per_second", "mean_us",
                "p50_us", "p95_us", "p99_us", "max_us", "restarts",
                "cpu_s_per_million_locks", "peak_mb", "messages_per_lock"],
    "deadlock": ["mean_us", "p50_us", "p95_us", "p99_us", "max_us"],
    "failover": ["p50_us", "p95_us", "max_us", "beyond_timeout_us"],
    "servers": ["per_second", "fairness", "p50_us", "p99_us", "mean_ms"],
    "uncontended": ["ns"],
}
COLOURS = ["#1f6fb2", "#c8553d", "#4f9d69", "#8a5fb0", "#c79a2b", "#5b6770"]


def flat(figures, prefix=""):
    """Nested figures as one level, with dots."""
    for key, value in figures.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        elif isinstance(value, (int, float)):
            yield prefix + key, float(value)


def summed_up(figures):
    # One figure for all kinds of restarts, as the peers have it.
    if "deadlock_restarts" in figures:
        figures["restarts"] = (figures["deadlock_restarts"]
                               + figures["timeout_restarts"])
    return figures


def read_rows(where):
    rows = []
    path = os.path.join(where, "rows.jsonl")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
    for path in sorted(glob.glob(os.path.join(where, "uncontended-*.json"))):
        with open(path, encoding="utf-8") as file:
            for x in json.load(file)["benchmarks"]:
                if x.get("run_type") == "iteration" and not x.get("error_occurred"):
                    rows.append({
                        "bench": "uncontended", "subject": x["name"],
                        "where": {}, "good": True, "lacks": "",
                        "figures": {"ns": x["real_time"]
                                    * x.get("threads", 1)}})
    return rows


def merge(rows):
    """One entry per bench, subject and place; the absent ones."""
    groups, absent = {}, {}
    for row in rows:
        if "absent" in row:
            absent[row["bench"], row["subject"]] = row["absent"]
            continue
        key = (row["bench"], row["subject"],
               json.dumps(row["where"], sort_keys=False))
        groups.setdefault(key, []).append(row)
    merged = []
    for (bench, subject, where), members in groups.items():
        values = {}
        for row in members:
            for name, x in summed_up(dict(flat(row["figures"]))).items():
                values.setdefault(name, []).append(x)
        merged.append({
            "bench": bench, "subject": subject, "where": json.loads(where),
            "repeats": len(members), "lacks": members[0]["lacks"],
            "good": all(x["good"] for x in members),
            "figures": {k: {"median": statistics.median(v), "least": min(v),
                            "most": max(v)} for k, v in values.items()}})
    return merged, absent


# -- the table ----------------------------------------------------------------

def number(x):
    if abs(x) >= 1000:
        return f"{x:,.0f}"
    return f"{x:.0f}" if x == int(x) else f"{x:.3g}"


def cell(figure):
    if figure is None:
        return ""
    if figure["least"] == figure["most"]:
        return number(figure["median"])
    return (f"{number(figure['median'])} "
            f"({number(figure['least'])}-{number(figure['most'])})")


def table(bench, entries):
    shown = [c for c in COLUMNS[bench]
             if any(c in x["figures"] for x in entries)]
    lines = [f"## {bench}", "",
             "| subject | where | " + " | ".join(shown) + " | proven | lacks |",
             "| --- " * (len(shown) + 4) + "|"]
    for x in entries:
        where = ", ".join(f"{k} {v}" for k, v in x["where"].items())
        cells = " | ".join(cell(x["figures"].get(c)) for c in shown)
        lines.append(f"| {x['subject']} | {where} | {cells} | "
                     f"{'yes' if x['good'] else 'NO'} | {x['lacks']} |")
    return "\n".join(lines) + "\n"


# -- the plots ----------------------------------------------------------------

class Canvas:
    """A plot with a logarithmic y axis."""

    def __init__(self, title, unit, least, most):
        self.width, self.height, self.left, self.top = 900, 460, 90, 60
        self.bottom, self.right = self.height - 60, self.width - 180
        self.low = math.floor(math.log10(max(least, 1e-3)))
        self.high = max(math.ceil(math.log10(max(most, 1e-3))), self.low + 1)
        self.parts = []
        self.text(self.left, 28, title, size=18)
        self.text(self.left, 47, unit, colour="#666")
        for power in range(self.low, self.high + 1):
            y = self.y(10.0 ** power)
            self.line(self.left, y, self.right, y, "#ddd")
            self.text(self.left - 8, y + 4, f"{10.0 ** power:,g}", "end")

    def y(self, value):
        share = ((math.log10(max(value, 1e-3)) - self.low)
                 / (self.high - self.low))
        return self.bottom - share * (self.bottom - self.top)

    def text(self, x, y, what, anchor="start", size=12, colour="#222"):
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" '
            f'text-anchor="{anchor}">{html.escape(str(what))}</text>')

    def line(self, x1, y1, x2, y2, colour, width=1):
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
            f'stroke="{colour}" stroke-width="{width}"/>')

    def bar(self, x, width, value, colour):
        y = self.y(value)
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{self.bottom - y:.1f}" fill="{colour}"/>')

    def dot(self, x, y, colour):
        self.parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')

    def legend(self, names):
        for i, name in enumerate(names):
            y = self.top + 22 * i
            self.parts.append(f'<rect x="{self.right + 20}" y="{y}" width="14" '
                              f'height="14" fill="{COLOURS[i % 6]}"/>')
            self.text(self.right + 40, y + 12, name)

    def write(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(
                f'<svg xmlns="http://www.w3.org/2000/svg" '
                f'width="{self.width}" height="{self.height}" '
                f'viewBox="0 0 {self.width} {self.height}" '
                f'font-family="sans-serif">'
                f'<rect width="100%" height="100%" fill="white"/>'
                + "".join(self.parts) + "</svg>\n")


def median_of(entry, name):
    figure = entry["figures"].get(name)
    return figure["median"] if figure and figure["median"] > 0 else None


def plot_contention(entries, path):
    series = {}
    for x in entries:
        value = median_of(x, "per_second")
        if x["where"].get("threads") == 2 and value:
            series.setdefault(x["subject"], []).append(
                (x["where"]["actors"], value))
    if not series:
        return
    values = [v for points in series.values() for _, v in points]
    sizes = sorted({n for points in series.values() for n, _ in points})
    plot = Canvas("One hot term", "grants per second, by number of actors",
                  min(values), max(values))
    step = (plot.right - plot.left) / (len(sizes) + 1)
    place = {n: plot.left + step * (i + 1) for i, n in enumerate(sizes)}
    for n in sizes:
        plot.text(place[n], plot.bottom + 20, f"{n:,}", "middle")
    for i, points in enumerate(series.values()):
        points.sort()
        at = [(place[n], plot.y(v)) for n, v in points]
        for (x1, y1), (x2, y2) in zip(at, at[1:]):
            plot.line(x1, y1, x2, y2, COLOURS[i % 6], 2)
        for x, y in at:
            plot.dot(x, y, COLOURS[i % 6])
    plot.legend(series)
    plot.write(path)


def plot_designs(entries, path):
    """Of two nodes, and of the fewest clients and the largest pool."""
    rows = [x for x in entries
            if x["where"]["nodes"] == 2 and median_of(x, "locks_per_second")]
    if not rows:
        return
    best = {}
    for x in rows:
        key = (x["subject"], x["where"]["design"])
        if key not in best or ((x["where"]["clients"], -x["where"]["pool"])
                               < (best[key]["where"]["clients"],
                                  -best[key]["where"]["pool"])):
            best[key] = x
    subjects = sorted({s for s, _ in best}, key=lambda s: s != "pawl")
    designs = sorted({d for _, d in best})
    values = [median_of(x, "locks_per_second") for x in best.values()]
    plot = Canvas("The four designs, two nodes", "keys locked per second",
                  min(values) / 2, max(values))
    step = (plot.right - plot.left) / len(designs)
    width = step * 0.8 / len(subjects)
    for i, design in enumerate(designs):
        left = plot.left + step * (i + 0.1)
        plot.text(left + step * 0.4, plot.bottom + 20, design, "middle")
        for j, subject in enumerate(subjects):
            if (subject, design) in best:
                value = median_of(best[subject, design], "locks_per_second")
                plot.bar(left + width * j, width - 2, value, COLOURS[j % 6])
                plot.text(left + width * (j + 0.5), plot.y(value) - 5,
                          number(value), "middle", 10)
    plot.legend(subjects)
    plot.write(path)


# -- all of it ----------------------------------------------------------------

def machine():
    model = "unknown processor"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return (f"{model}, {os.cpu_count()} processors, {platform.system()} "
            f"{platform.release()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("where")
    parser.add_argument("--repeats", default="?")
    parser.add_argument("--load", default="?")
    parser.add_argument("--seconds", default="?")
    parser.add_argument("--commit", default="?")
    options = parser.parse_args()
    merged, absent = merge(read_rows(options.where))
    about = {"machine": machine(), "commit": options.commit,
             "repeats": options.repeats, "load_before": options.load,
             "load_after": f"{os.getloadavg()[0]:.2f}",
             "seconds": options.seconds}
    into = lambda name: os.path.join(options.where, name)
    with open(into("results.json"), "w", encoding="utf-8") as file:
        json.dump({"about": about, "rows": merged,
                   "absent": [{"bench": b, "subject": s, "why": w}
                              for (b, s), w in absent.items()]}, file, indent=1)
        file.write("\n")
    with open(into("results.md"), "w", encoding="utf-8") as file:
        file.write("Median (least-most) of all repeats.\n\n")
        for key, value in about.items():
            file.write(f"- {key.replace('_', ' ')}: {value}\n")
        file.write("\n")
        for bench in COLUMNS:
            entries = [x for x in merged if x["bench"] == bench]
            if entries:
                file.write(table(bench, entries) + "\n")
        for (bench, subject), why in absent.items():
            file.write(f"- {bench}: {subject} is absent: {why}\n")
    of = lambda bench: [x for x in merged if x["bench"] == bench]
    plot_contention(of("contention"), into("contention.svg"))
    plot_designs(of("designs"), into("designs.svg"))
    return 0 if all(x["good"] for x in merged) else 1


if __name__ == "__main__":
    sys.exit(main())
