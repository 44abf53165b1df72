#!/usr/bin/python3
"""Combines the benchmarks' results in build/bench into one report: report.html, and report.json.

    scripts/bench/report.py

All benchmarks write their rows in one format (common.row), so this script knows no benchmark by
name. A row is shown as bars (the median of its rounds, with whiskers from minimum to maximum) and
with its comparisons. If another build was measured, too, the report begins with the significant
changes: the 95 % interval of the paired ratios excludes 1 by more than the other build differs
from itself.
"""
import argparse
import glob
import html
import json
import os
import statistics
import sys

import common
from common import BUILD, BenchError, spread

BAR_WIDTH, BAR_HEIGHT, NAME_WIDTH, TEXT_WIDTH = 300, 18, 190, 230
# Plain colours instead of CSS variables, which some image viewers do not know.
BARS_STYLE = """
.ours { fill: #2f6fb0; } .theirs { fill: #b4bcc8; } .floor { fill: #3a7d44; }
.whisker { stroke: #1d2430; }
@media (prefers-color-scheme: dark) { .ours { fill: #6aa9e9; } .theirs { fill: #5b6575; }
  .floor { fill: #79c184; } .whisker { stroke: #e6e9ef; } }
"""
STYLE = f"""{BARS_STYLE}
:root {{ color-scheme: light dark; --bad: #b3261e; --good: #2e7d32; --line: #8a94a6; }}
@media (prefers-color-scheme: dark) {{ :root {{ --bad: #f2867e; --good: #7fcf85; }} }}
body {{ font: 15px/1.45 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto;
  padding: 0 1rem; }}
h2 {{ margin-top: 2.5rem; border-bottom: 1px solid var(--line); }}
h3 {{ font-size: 1rem; margin: 1.2rem 0 .2rem; }}
pre {{ overflow-x: auto; font-size: 12px; }}
svg {{ max-width: 100%; height: auto; }} svg text {{ font: 12px system-ui, sans-serif;
  fill: currentColor; }}
.reached {{ color: var(--good); }} .missed {{ color: var(--bad); font-weight: 600; }}
"""


def load():
    """{benchmark: its results}, by name. Files in an older format are skipped."""
    found = {}
    for path in sorted(glob.glob(f"{BUILD}/*.json")):
        name = os.path.basename(path).removesuffix(".json")
        if name == "report":
            continue
        with open(path, encoding="utf-8") as file:
            try:
                left = json.load(file)
            except ValueError as error:
                raise BenchError(f"reading {path}: {error}; run that benchmark again")
        if "report" in left:
            found[name] = left
        else:
            print(f"{path}: left by an older benchmark; not shown", file=sys.stderr)
    if not found:
        raise BenchError(f"looking for results in {BUILD}: there are none; run make bench")
    return found


def bars(row):
    """An SVG with a bar for each contender."""
    figures = {name: values for name, values in row["figures"].items() if values}
    most = max((max(values) for values in figures.values()), default=0) or 1
    height = BAR_HEIGHT * len(figures)
    parts = [f'<svg viewBox="0 0 {NAME_WIDTH + BAR_WIDTH + TEXT_WIDTH} {height}" width='
             f'"{NAME_WIDTH + BAR_WIDTH + TEXT_WIDTH}" role="img" '
             f'aria-label="{html.escape(row["title"])}">']
    for index, (name, values) in enumerate(figures.items()):
        y, colour = index * BAR_HEIGHT, "theirs"
        if name == row["judged"]:
            colour = "ours"
        elif "floor" in name or name.startswith("bare"):
            colour = "floor"
        width, low, high = (BAR_WIDTH * value / most
                            for value in (statistics.median(values), min(values), max(values)))
        middle = y + BAR_HEIGHT / 2
        parts.append(
            f'<text x="{NAME_WIDTH - 8}" y="{middle + 4}" text-anchor="end">{html.escape(name)}'
            f'</text><rect x="{NAME_WIDTH}" y="{y + 3}" width="{max(width, 1):.1f}" '
            f'height="{BAR_HEIGHT - 6}" class="{colour}"/>'
            f'<path d="M{NAME_WIDTH + low:.1f} {middle}H{NAME_WIDTH + high:.1f}" '
            f'class="whisker"/><text x="{NAME_WIDTH + high + 8:.1f}" '
            f'y="{middle + 4}">{html.escape(spread(values))}</text>')
    return "\n".join(parts + ["</svg>"])


def changes(found):
    """For each row with two builds: (a line, True if it changed)."""
    lines = []
    for name, left in found.items():
        for row in left["report"]:
            figures = row["figures"]
            if not {"other", "other-again", row["judged"]} <= set(figures):
                continue
            ours, same = (common.ratios(figures, of, ["other"])
                          for of in (row["judged"], "other-again"))
            if len(ours) < 6:
                lines.append((f"{name}: {row['title']}: needs 6 rounds to judge", False))
                continue
            low, high = common.median_interval(ours)
            noise = max(abs(end - 1) for end in common.median_interval(same))
            changed = low > 1 + noise or high < 1 - noise
            better = (statistics.median(ours) > 1) == row["is_rate"]
            lines.append((f"{name}: {row['title']}: {statistics.median(ours):.3f} of the other "
                          f"build ({low:.3f}..{high:.3f}; noise {noise:.3f})"
                          + (f": {'better' if better else 'WORSE'}" if changed else ""), changed))
    return lines


def targets(found):
    """Judges all comparisons with a target: (number reached, lines of the missed ones)."""
    reached, missed = 0, []
    for name, left in found.items():
        for row in left["report"]:
            for comparison in row["comparisons"]:
                if comparison["target"]:
                    if comparison["reached"]:
                        reached += 1
                    else:
                        missed.append(
                            f"{name}: {row['title']}: {common.comparison_text(comparison)}")
    return reached, missed


def page(found):
    machines = {json.dumps(left["machine"]): left["machine"] for left in found.values()}
    reached, missed = targets(found)
    parts = ["<!DOCTYPE html><html lang=en><meta charset=utf-8>"
             '<meta name=viewport content="width=device-width">'
             f"<title>Bedplate, measured</title><style>{STYLE}</style>"
             "<h1>Bedplate, measured</h1>"]
    for machine in machines.values():
        parts.append(f"<p>{html.escape(machine['cpu'])}, {machine['cpus']} processors, Linux "
                     f"{html.escape(machine['kernel'])}.</p>")
    parts.append("<p>Bars are medians of all rounds, whiskers the least and the most. A ratio is "
                 "the median of the ratios within each round.</p>")
    parts.append(f"<p>{reached} of {reached + len(missed)} targets reached.</p>")
    if missed:
        parts.append("<ul>" + "".join(f"<li class=missed>{html.escape(line)}</li>"
                                      for line in missed) + "</ul>")
    compared = changes(found)
    if compared:
        parts.append(f"<h2>Beside {html.escape(os.environ.get('BEDPLATE_OTHER', 'another build'))}"
                     "</h2><ul>" + "".join(
                         f"<li{' class=missed' if 'WORSE' in line else ''}>{html.escape(line)}</li>"
                         for line, _ in sorted(compared, key=lambda entry: not entry[1])) + "</ul>")
    for name, left in found.items():
        parts.append(f"<h2 id={name}>{name}</h2><p>{left['date']}</p>")
        for row in left["report"]:
            parts.append(f"<h3>{html.escape(row['title'])} [{row['unit']}]</h3>{bars(row)}<p>")
            for comparison in row["comparisons"]:
                look = {None: "", False: " class=missed", True: " class=reached"}
                parts.append(f"<span{look[comparison['reached']]}>"
                             f"{html.escape(common.comparison_text(comparison))}</span><br>")
            parts.append("</p>")
        commands = "\n".join(left.get("commands", []))
        parts.append(f"<details><summary>All commands</summary><pre>{html.escape(commands)}"
                     "</pre></details>")
    return "\n".join(parts) + "</html>\n"


def main():
    argparse.ArgumentParser(description="Makes one report of all benchmarks.").parse_args()
    found = load()
    for line, _ in changes(found):
        print(line)
    reached, missed = targets(found)
    for line in missed:
        print(line)
    print(f"{reached} of {reached + len(missed)} targets reached")
    write(f"{BUILD}/report.json", json.dumps(found, indent=1))
    write(f"{BUILD}/report.html", page(found))


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    print(os.path.relpath(path))


if __name__ == "__main__":
    common.run_main(main)
