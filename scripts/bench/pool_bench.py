#!/usr/bin/python3
"""Measures costs that the pool avoids: the key of a pointer, against a registration cache's lookup
and against the registration itself; and a random walk's TLB misses, in the pool and in ordinary
memory.

key_cost and page_walk measure everything once in each round, in turn. It is not a pass/fail
test: it exits 0 whatever the figures, unless a program failed to run.
"""
import argparse
import os
import statistics
import subprocess

import common
from common import BUILD, MIB, BenchError

POOL_BYTES = {"key_cost": 8 * 16 * MIB, "page_walk": 512 * MIB}
REGION_COUNTS = (1, 1000, 100000)
REGISTERED_BYTES = {4096: "4 KiB", 65536: "64 KiB", MIB: "1 MiB", 64 * MIB: "64 MiB"}
TRANSPARENT = "/sys/kernel/mm/transparent_hugepage/enabled"
TARGET_NS = 2
ROUND_MAX_S = 300


def measure(program):
    """Runs one round. Returns {name: figure}; a line "error ..." is kept as text."""
    common.wait_for_hugepages(POOL_BYTES[program])
    try:
        done = subprocess.run([f"{BUILD}/{program}"], stdin=subprocess.DEVNULL, check=False,
                              capture_output=True, text=True, timeout=ROUND_MAX_S)
    except subprocess.TimeoutExpired:
        raise BenchError(f"running {program}: it did not end in {ROUND_MAX_S} s; run it by hand")
    if done.returncode != 0:
        raise BenchError(f"running {program}: {done.stderr.strip()[-500:]}; run it by hand")
    figures = (line.split(" ", 1) for line in done.stdout.splitlines())
    return {name: value if name == "error" else float(value) for name, value in figures}


def show_row(title, first, second):
    print(f"  {title:24}{first:34}{second}")


def show_keys(rounds):
    lookups = {"key": "key, 8 segments"}
    for kind in ("hash", "tree"):
        lookups |= {f"{kind}:{count}": f"{kind}, regions: {count:,}" for count in REGION_COUNTS}
    print(f"the key of a random pointer, median (min..max) of {len(rounds)} rounds, in ns of "
          "processor time")
    show_row("", "each alone", "each waits for the one before")
    for name, text in lookups.items():
        show_row(text, *(common.spread([r[f"{name}:{how}"] for r in rounds])
                         for how in ("alone", "chained")))
    key_ns = statistics.median(r["key:alone"] for r in rounds)
    reached = key_ns <= TARGET_NS
    print(f"  target: key at most {TARGET_NS} ns, each alone: {common.verdict(reached)} "
          f"({key_ns:.2f} ns)")
    return reached


def show_registrations(rounds):
    print("a registration on demand: registering and deregistering, in us")
    show_row("", "io_uring buffer update", "mlock + munlock")
    for size, text in REGISTERED_BYTES.items():
        show_row(text, *(common.spread([r[f"{kind}:{size}"] / 1e3 for r in rounds])
                         for kind in ("io_uring", "mlock")))


def show_walks(rounds):
    try:
        with open(TRANSPARENT, encoding="ascii") as file:
            transparent = file.read().strip()
    except OSError as error:
        transparent = error.strerror
    print("a random walk over 512 MiB, cache line by cache line")
    show_row("", "ns a step", "dTLB load misses a step")
    for name, text in (("pool", "pool, pages of 2 MiB"), ("ordinary", "malloc")):
        misses = [r[f"{name}_misses"] for r in rounds if f"{name}_misses" in r]
        show_row(text, common.spread([r[f"{name}_ns"] for r in rounds]),
                 common.spread(misses) if misses else "not counted")
    for error in {r["error"] for r in rounds if "error" in r}:
        print(f"  this machine does not count dTLB load misses (perf_event_open: {error}); a "
              "virtual\n  machine does with a virtual PMU")
    ratio = statistics.median(r["ordinary_ns"] / r["pool_ns"] for r in rounds)
    print(f"  malloc / pool {ratio:.2f}; of malloc's block "
          f"{max(r['transparent_mib'] for r in rounds):.0f} MiB lie in transparent hugepages\n"
          f"  ({transparent})")
    return ratio


def report_rows(rounds):
    keys, walks = rounds["key_cost"], rounds["page_walk"]
    lookups = {"bedplate": "key", **{f"{kind}, {count:,} regions": f"{kind}:{count}"
                                     for kind in ("hash", "tree") for count in REGION_COUNTS}}
    own = [r["key:alone"] for r in keys]
    return [
        common.row("the key of a random pointer", "ns", {
            title: [r[f"{name}:alone"] for r in keys] for title, name in lookups.items()},
                   [common.compared(f"{TARGET_NS} ns", [ns / TARGET_NS for ns in own], 1, False)],
                   is_rate=False),
        common.row("a random walk over 512 MiB, each step", "ns", {
            "bedplate": [r["pool_ns"] for r in walks], "malloc": [r["ordinary_ns"] for r in walks]},
                   [common.compared("malloc", [r["pool_ns"] / r["ordinary_ns"] for r in walks],
                                    None, False)], is_rate=False)]


def main():
    parser = argparse.ArgumentParser(description="Measures keys, registrations and the TLB.")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    common.require({f"{BUILD}/{program}": "scripts/bench/run.sh" for program in POOL_BYTES})
    rounds = {program: [] for program in POOL_BYTES}
    with common.reserved_hugepages(max(POOL_BYTES.values())):
        for _ in range(options.rounds):
            for program, measured in rounds.items():
                measured.append(measure(program))
    reached = show_keys(rounds["key_cost"])
    show_registrations(rounds["key_cost"])
    ratio = show_walks(rounds["page_walk"])
    path = common.write_json("pool.json", {"key_cost": rounds["key_cost"], "reached": reached,
                                           "page_walk": rounds["page_walk"], "ratio": ratio},
                             report_rows(rounds))
    print(f"every round: {os.path.relpath(path)}")


common.run_main(main)
