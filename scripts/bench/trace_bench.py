#!/usr/bin/python3
"""Measures the appliance's cost of `bedplate trace`: each station of a request, and its record.

trace_cost measures everything once in each round. A row of nbd_bench.py shows the effect on a block
server: `bedplate` against `bedplate-untraced`. It is not a pass/fail test: it exits 0 whatever the
figures, unless a program failed to run.
"""
import argparse
import os
import statistics
import subprocess

import common
from common import BUILD, BenchError

PROGRAM = f"{BUILD}/trace_cost"
TITLES = {"begin": "a request's begin", "station": "a station", "record": "its record in the ring",
          "look": "a look at the clock, once a batch"}
TARGET_NS = 5  # for one station
ROUND_MAX_S = 60


def measure():
    try:
        done = subprocess.run([PROGRAM], stdin=subprocess.DEVNULL, check=True, capture_output=True,
                              text=True, timeout=ROUND_MAX_S)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise BenchError(f"running trace_cost: {error}; run it by hand") from None
    return {name: float(value) for name, value in map(str.split, done.stdout.splitlines())}


def report_rows(rounds):
    stations = [each["station"] for each in rounds]
    return [common.row("a station of a request that is traced", "ns", {"bedplate": stations}, [
        common.compared(f"{TARGET_NS} ns", [ns / TARGET_NS for ns in stations], 1, False)],
                       is_rate=False)]


def main():
    parser = argparse.ArgumentParser(description="Measures what tracing requests costs.")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    common.require({PROGRAM: "scripts/bench/run.sh"})
    common.warn_if_busy()
    rounds = [measure() for _ in range(options.rounds)]
    print(f"tracing, median (min..max) of {len(rounds)} rounds, in ns")
    for name, title in TITLES.items():
        print(f"  {title:36}{common.spread([each[name] for each in rounds])}")
    reached = statistics.median(each["station"] for each in rounds) <= TARGET_NS
    print(f"  a station at most {TARGET_NS} ns: {common.verdict(reached)}")
    path = common.write_json("trace.json", {"rounds": rounds}, report_rows(rounds))
    print(f"every round: {os.path.relpath(path)}")


common.run_main(main)
