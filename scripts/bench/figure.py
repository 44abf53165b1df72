#!/usr/bin/python3
"""Makes the README's figure, docs/pictures/measured.svg, from the report of `make bench` or `make
bench-quick`: the rows of ROWS, each with the report's values.

    scripts/bench/figure.py

`make figure` runs the quick benchmarks first. A row missing from the report is an error.
"""
import argparse
import html
import json
import os
import re

import common
from common import BUILD, BenchError
from report import BAR_HEIGHT, BAR_WIDTH, BARS_STYLE, NAME_WIDTH, TEXT_WIDTH, bars, write

PICTURE = os.path.join(common.ROOT, "docs/pictures/measured.svg")
TITLE_HEIGHT, GAP, EDGE = 22, 12, 16
# (benchmark, its row's title, the label for readers without the report)
ROWS = [
    ("message", r"^latency 8( B)?$", "A message of 8 bytes to another process"),
    ("nbd", r"unix 4k read depth 32 connections 1$", "NBD, reads of 4 KiB at depth 32"),
    ("nbd", r"unix 4k write depth 32 connections 1$", "NBD, writes of 4 KiB at depth 32"),
    ("relay", r"one to \d+, packets a core$", "A transport stream to many outputs"),
    ("kvd", r"^get x", "memcached's protocol, gets"),
    ("alloc", r"larson", "malloc: threads that free what others took"),
]
# Contenders shown under another name; our other contenders (OURS) are left out.
NAMES = {"uct": "UCX, uct", "ucp": "UCX, ucp", "bare-spin": "bare server", "bare": "bare server"}
OURS = re.compile("epoll|seccomp|again")
STYLE = f"""{BARS_STYLE}
text {{ font: 12px system-ui, sans-serif; fill: #1d2430; }} .page {{ fill: #ffffff; }}
.title {{ font-weight: 600; font-size: 13px; }} .soft {{ fill: #5b6575; }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #e6e9ef; }} .page {{ fill: #0d1117; }}
  .soft {{ fill: #9aa4b2; }} }}
"""


def chosen(found):
    """[(words, unit and direction, row)] of ROWS."""
    rows = []
    for benchmark, title, words in ROWS:
        fitting = [row for row in found.get(benchmark, {}).get("report", [])
                   if re.search(title, row["title"])]
        if not fitting:
            raise BenchError(f"looking for a row {title!r} of {benchmark}: there is none; run make "
                             "bench-quick")
        row = dict(fitting[0])
        row["figures"] = {"Bedplate" if name == row["judged"] else NAMES.get(name, name): values
                          for name, values in row["figures"].items() if not OURS.search(name)}
        row["judged"] = "Bedplate"
        better = "more" if row["is_rate"] else "less"
        rows.append((words, f"{row['unit']}, {better} is better", row))
    return rows


def drawn(found):
    parts, y, width = [], EDGE, NAME_WIDTH + BAR_WIDTH + TEXT_WIDTH
    for words, unit, row in chosen(found):
        height = BAR_HEIGHT * len([values for values in row["figures"].values() if values])
        inner = bars(row).replace("<svg ", f'<svg x="{EDGE}" y="{y + TITLE_HEIGHT}" '
                                           f'height="{height}" ', 1)
        parts.append(f'<text class="title" x="{EDGE}" y="{y + 14}">{html.escape(words)}<tspan '
                     f'class="soft" font-weight="400"> [{html.escape(unit)}]</tspan></text>{inner}')
        y += TITLE_HEIGHT + height + GAP
    left = next(iter(found.values()))
    machine = left["machine"]
    rounds = {len(values) for _, _, row in chosen(found) for values in row["figures"].values()}
    for line in (f"{machine['cpu']}, {machine['cpus']} processors, Linux {machine['kernel']}, "
                 f"{left['date']}.",
                 f"Medians of {min(rounds)} to {max(rounds)} interleaved rounds; whiskers from the "
                 "least to the most. make figure measures again."):
        parts.append(f'<text class="soft" x="{EDGE}" y="{y + 8}">{html.escape(line)}</text>')
        y += TITLE_HEIGHT - 4
    width, y = width + 2 * EDGE, y + 8
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}" '
            f'height="{y}" role="img" aria-label="Bedplate beside others"><style>{STYLE}</style>'
            f'<rect width="{width}" height="{y}" class="page"/>' + "\n".join(parts) + "</svg>\n")


def main():
    argparse.ArgumentParser(description="Draws the README's figure.").parse_args()
    try:
        with open(f"{BUILD}/report.json", encoding="utf-8") as file:
            found = json.load(file)
    except OSError as error:
        raise BenchError(f"reading {error.filename}: {error.strerror}; run make bench-quick")
    write(PICTURE, drawn(found))


if __name__ == "__main__":
    common.run_main(main)
