#!/usr/bin/python3
"""Time from exec to `bedplate: ready` with a 1 GiB pool, against a bare program that takes and
zeroes 1 GiB of hugepages with as many threads as there are cores.

Both start in the same way, in turn in each round, on the same hugepages. It is not a pass/fail
test: it exits 0 whatever the figures, unless a program failed to run.
"""
import argparse
import os
import statistics
import subprocess
import time

import common
from common import BEDPLATE, BUILD, MIB, BenchError

POOL_BYTES = 1024 * MIB
VOLUME_BYTES = 768 * MIB
TARGET_FACTOR, TARGET_EXTRA_MS = 1.15, 30


def time_to_line(argv, line):
    """Returns the milliseconds from exec until the program prints the line; then ends it."""
    common.wait_for_hugepages(POOL_BYTES)
    began = time.perf_counter()
    process = common.start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        said = process.stdout.readline()
        took_ms = (time.perf_counter() - began) * 1e3
        if said.strip() != line:
            common.stop(process)
            errors = process.stderr.read().strip()[-500:] or "it said nothing"
            raise BenchError(f"starting {' '.join(argv)}: {errors}; run it by hand")
    finally:
        common.stop(process)
        process.stdout.close()
        process.stderr.close()
    return took_ms


def main():
    parser = argparse.ArgumentParser(description="Measures the time to boot a 1 GiB pool.")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    bare_zero = f"{BUILD}/bare_zero"
    common.require({bare_zero: "scripts/bench/run.sh", BEDPLATE: "make"})
    threads = len(os.sched_getaffinity(0))
    threads = max(n for n in range(1, threads + 1) if POOL_BYTES // common.HUGEPAGE_BYTES % n == 0)
    rounds = {"bedplate": [], "bare": []}
    with common.reserved_hugepages(POOL_BYTES), common.work_directory() as directory:
        config = common.bedplate_config(directory, "boot", [("main", 0)], POOL_BYTES, VOLUME_BYTES,
                                        f"unix:{directory}/boot.sock", "io_uring-or-epoll")
        programs = {"bare": ([bare_zero, str(POOL_BYTES), str(threads)], "ready"),
                    "bedplate": ([BEDPLATE, "run", config], "bedplate: ready")}
        # Not measured: a hypervisor may back memory only on first touch.
        time_to_line(*programs["bare"])
        for _ in range(options.rounds):
            for name, (argv, line) in programs.items():
                rounds[name].append(round(time_to_line(argv, line), 3))
    excess = [mine - (TARGET_FACTOR * bare + TARGET_EXTRA_MS)
              for mine, bare in zip(rounds["bedplate"], rounds["bare"])]
    reached = statistics.median(excess) <= 0
    ratio = statistics.median(a / b for a, b in zip(rounds["bedplate"], rounds["bare"]))
    print(f"exec to ready with a 1 GiB pool, median (min..max) of {options.rounds} rounds, in ms\n"
          f"  bedplate           {common.spread(rounds['bedplate'])}\n"
          f"  bare, {threads:2} threads   {common.spread(rounds['bare'])}\n"
          f"  ratio {ratio:.2f}; target: at most {TARGET_FACTOR} x bare + {TARGET_EXTRA_MS} ms: "
          f"{common.verdict(reached)} (by {abs(statistics.median(excess)):.0f} ms)")
    path = common.write_json("boot.json", {"threads": threads, "milliseconds": rounds,
                                           "ratio": ratio, "reached": reached},
                             [common.row("exec to ready, 1 GiB pool", "ms", rounds, [
                                 common.compared(f"{TARGET_FACTOR} x bare + {TARGET_EXTRA_MS} ms", [
                                     mine / (TARGET_FACTOR * bare + TARGET_EXTRA_MS)
                                     for mine, bare in zip(rounds["bedplate"], rounds["bare"])],
                                                 1, False)], is_rate=False)])
    print(f"every round: {os.path.relpath(path)}")


common.run_main(main)
