#!/usr/bin/python3
"""Sends, puts and their bandwidth over soft RoCE, against Debian's perftest.

Both run in one virtual machine with one processor, in turns, between two of its processes. QEMU
counts instructions, two nanoseconds each, so figures repeat to half a percent whatever else this
machine does. They show the instructions per message, including the kernel's. It exits 0
whatever the figures, unless a program failed to run.
"""
import argparse
import glob
import json
import os
import re
import shutil
import statistics
import subprocess

import common
from common import BEDPLATE, BUILD, MIB, ROOT, BenchError

ICOUNT = "-icount shift=1,sleep=off"
SECONDS_MAX_OF_ROUND = 60
LATENCY_TARGET, BANDWIDTH_TARGET = 1.05, 0.95
BYTES, BLOCK_BYTES = 8, 65536

# name: perftest's command, whether it polls in parallel with its peer, our command.
KINDS = {
    "send": ("ib_send_lat", True, "send"),
    "send, events": ("ib_send_lat -e", False, "send --events"),
    "put": ("ib_write_lat", True, "put"),
    "put bandwidth": ("ib_write_bw", False, "put --bandwidth"),
}

# After a thread yields the other thread runs, however long the first has run before.
SETUP = """
rdma link add rxe0 type rxe netdev lo || exit
mount -t debugfs none /sys/kernel/debug
echo 1000000000 > /sys/kernel/debug/sched/wakeup_granularity_ns
/bedplate perf serve tcp:127.0.0.1:7471 > /tmp/serve 2>&1 &
until grep -q answering /tmp/serve; do sleep 0.1; done
theirs() {
  "$@" > /tmp/server 2>&1 &
  sleep 1
  "$@" 127.0.0.1 > /tmp/client 2>&1 || { cat /tmp/client; exit 1; }
  wait $!
  cat /tmp/client
}
"""


def script(rounds, counts):
    lines = [SETUP]
    for _ in range(rounds):
        for name, (theirs, polls, ours) in KINDS.items():
            is_bandwidth = "bandwidth" in name
            size = BLOCK_BYTES if is_bandwidth else BYTES
            count = counts[is_bandwidth]
            preload = "env LD_PRELOAD=/yield_after_post.so" if polls else ""
            lines.append(f"echo == perftest {name}\n"
                         f"theirs {preload} {theirs} -F -s {size} -n {count}\n"
                         f"echo == bedplate {name}\n"
                         f"/bedplate perf {ours} --size {size} -n {count} --json "
                         "tcp:127.0.0.1:7471 || exit")
    return "\n".join(lines)


def run_guest(commands, seconds):
    drivers = glob.glob("/usr/lib/*/libibverbs/librxe-*.so")
    if not drivers:
        raise BenchError("looking for the driver of soft RoCE: not found; comes with: "
                         "ibverbs-providers")
    programs = {program.split()[0]: "perftest" for program, _, _ in KINDS.values()}
    common.require({**programs, "rdma": "iproute2"})
    files = [shutil.which(program) for program in {**programs, "rdma": ""}]
    files += ["/etc/libibverbs.d/rxe.driver", drivers[0],
              f"{BUILD}/yield_after_post.so=/yield_after_post.so", f"{BEDPLATE}=/bedplate"]
    done = subprocess.run(
        [f"{ROOT}/tests/guest/run.sh", "--append", "hugepages=64", "--seconds", str(seconds),
         "--modules", "ib_uverbs rdma_rxe", "--files", " ".join(files), "--qemu", ICOUNT,
         "--", "/bin/sh", "-c", commands],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise BenchError(f"measuring in the guest: exit code {done.returncode}\n"
                         f"{done.stdout[-2000:]}{done.stderr[-2000:]}; see tests/guest/run.sh")
    return done.stdout


def their_figure(text, is_bandwidth):
    """Median microseconds in one direction, or MiB/s: perftest's MB are 2^20 bytes."""
    size = BLOCK_BYTES if is_bandwidth else BYTES
    line = re.search(rf"^ *{size} +\d+ .*$", text, re.MULTILINE)
    if not line:
        raise BenchError(f"reading perftest's report: there is no line of {size} bytes\n{text}; "
                         "run it by hand")
    return float(line.group(0).split()[3 if is_bandwidth else 4])


def our_figure(text, is_bandwidth):
    report = json.loads(text[text.index("{\n"):text.rindex("\n}") + 2])
    if report["page_bytes"] != 2 * MIB:
        raise BenchError("checking the pool: it is not on hugepages; raise hugepages= in "
                         "verbs_bench.py")
    result = report["results"][0]
    return result["bytes_per_second"] / MIB if is_bandwidth else result["p50_ns"] / 1e3


def read_figures(output):
    figures = {name: {"bedplate": [], "perftest": []} for name in KINDS}
    for who, name, text in re.findall(r"^== (bedplate|perftest) (.*)\n([\s\S]*?)(?=^== |\Z)",
                                      output, re.MULTILINE):
        read = our_figure if who == "bedplate" else their_figure
        figures[name][who].append(read(text, "bandwidth" in name))
    return figures


def report_rows(figures):
    rows = []
    for name, sides in figures.items():
        is_rate = "bandwidth" in name
        rows.append(common.row(name, "MiB/s" if is_rate else "us", {
            side: sides[side] for side in ("bedplate", "perftest")}, [
                common.compared("perftest", sides["ratios"], sides["target"], is_rate)], is_rate))
    return rows


def main():
    parser = argparse.ArgumentParser(description="Measures verbs beside perftest in a guest.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-n", type=int, default=1000, help="messages of each latency")
    parser.add_argument("--blocks", type=int, default=500, help="of 64 KiB, of each bandwidth")
    options = parser.parse_args()
    common.require({BEDPLATE: "make"})
    output = run_guest(script(options.rounds, {False: options.n, True: options.blocks}),
                       SECONDS_MAX_OF_ROUND * (options.rounds + 1))
    figures = read_figures(output)
    print(f"soft RoCE in one guest, one processor, {ICOUNT}; median (min..max) of "
          f"{options.rounds} rounds\n{'':16} {'bedplate':>22} {'perftest':>22}  ratio")
    for name, sides in figures.items():
        ratios = [ours / theirs for ours, theirs in zip(sides["bedplate"], sides["perftest"])]
        ratio = statistics.median(ratios)
        if "bandwidth" in name:
            unit, target, reached = "MiB/s", BANDWIDTH_TARGET, ratio >= BANDWIDTH_TARGET
        else:
            unit, target, reached = "us", LATENCY_TARGET, ratio <= LATENCY_TARGET
        sides.update(ratios=ratios, ratio=ratio, target=target, reached=reached)
        print(f"{name:16} {common.spread(sides['bedplate']):>22} "
              f"{common.spread(sides['perftest']):>22}  {ratio:.3f} {unit:5} target {target} "
              f"{common.verdict(reached)}")
    path = common.write_json("verbs.json", {"icount": ICOUNT, "bytes": BYTES,
                                            "block_bytes": BLOCK_BYTES, "figures": figures},
                             report_rows(figures))
    print(f"every round: {os.path.relpath(path)}")


common.run_main(main)
