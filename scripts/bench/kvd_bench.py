#!/usr/bin/python3
"""kvd against a bare server and memcached -t 1: speed, processor time, latency.

    make && scripts/bench/run.sh kvd [--rounds N] [--seconds S]

All servers have the same lean client (kvd_client.c). Servers run on core 0, the client on core 1.
Rounds are interleaved: in each, every server runs every workload. Values of 100 bytes, 100,000
keys. The result has medians with minimum and maximum, and kvd's ratios in each round: with one
connection at depth 1 to a bare server of the same protocol (bare_kv_server.c, which spins and
checks nothing); at depth 32, and with 64 connections, to memcached, in operations per second and in
processor time per operation. `client idle` is the share of time in which the client had no reply to
read: above 0 the client is faster than the server. Latency: an open loop over 64 connections at
half of memcached's rate with 64 connections in this round, from the due time of each request.

After idling: a get every tenth of a second, between which the server sleeps and the client spins.
Shows how much longer its answer takes than on a busy connection, and the share of a core that an
appliance without clients takes.

By messages (kvd_messages.cc): a joined process asks for random values, one at a time, and asks
a service on the same shard that sends as many bytes without a lookup.

With BEDPLATE_OTHER, kvd is compared only with that tree's: operations per second, processor time.
"""

import argparse
import contextlib
import os
import random
import statistics
import subprocess
import time

from common import (compared, row, BEDPLATE, BUILD, MIB, OTHER_BEDPLATE, OTHER_TREE, OTHERS,
                    BenchError, print_builds, ratio_text, ratios, require, reserved_hugepages,
                    run_main, spread, start, stop, verdict, wait_for_hugepages, warn_if_busy,
                    work_directory, write_json)
from kvd_server import KVD_MESSAGES, asker_tables, kvd_config, wait_for
from nbd_server import free_port

KEYS, VALUE_BYTES = 100_000, 100
POOL_BYTES = 128 * MIB
WORKLOADS = [(operation, connections, depth) for operation in ("get", "set")
             for connections, depth in ((1, 1), (1, 32), (64, 1))]
# The required ratio of kvd's speed, and the peer.
TARGETS = {(1, 1): (0.95, "bare"), (1, 32): (1.3, "memcached"), (64, 1): (1.3, "memcached")}
PACED = ("get", 64, 1)  # at half of memcached's speed in this workload
SELDOM_PER_SECOND, SELDOM_SECONDS, IDLE_SECONDS = 10, 2, 2
AFTER_IDLING_MAX_US, IDLE_SHARE_MAX = 100, 0.01
MESSAGE_SLICES = 5  # per round, each of bare messages and of gets
MESSAGE_RATIO_MAX = 1.5


def kvd(directory, port, sockets, program=BEDPLATE):
    return [program, "run", kvd_config(directory, "kvd-" + sockets.replace("_", "-"), 0, port,
                                       POOL_BYTES, sockets, "64 MiB")]


def memcached(_directory, port):
    return ["taskset", "-c", "0", "memcached", "-u", "nobody", "-l", "127.0.0.1", "-U", "0",
            "-p", str(port), "-t", "1", "-m", "64"]


SERVERS = {
    "kvd": lambda directory, port: kvd(directory, port, "io_uring"),
    "kvd-epoll": lambda directory, port: kvd(directory, port, "epoll"),
    "memcached": memcached,
    "bare": lambda _directory, port: ["taskset", "-c", "0", f"{BUILD}/bare_kv_server", str(port)],
}
BUILDS = {"kvd": SERVERS["kvd"], **{name: lambda directory, port: kvd(
    directory, port, "io_uring", OTHER_BEDPLATE) for name in OTHERS}}


def run_lines(*argv):
    """The numbers in a program's output, line by line."""
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"running {argv}: {done.stderr.strip()}; see its source")
    return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]


def client(port, *words, rate=None):
    lines = run_lines("taskset", "-c", "1", f"{BUILD}/kvd_client", port, *words, KEYS, VALUE_BYTES,
                      *([rate] if rate else []))
    return lines[0] if lines else []


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def running_ns(pid):
    """The processor time of all its threads, to the nanosecond."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total


def run_idle(port, pid, busy_us):
    """The extra time of the first answer (median, p99: microseconds), and the idle share."""
    time.sleep(0.2)
    before, begin = running_ns(pid), time.monotonic_ns()
    time.sleep(IDLE_SECONDS)
    share = (running_ns(pid) - before) / (time.monotonic_ns() - begin)
    _, median_us, p99_us = client(port, "get", 1, 1, SELDOM_SECONDS, rate=SELDOM_PER_SECOND)
    return {"median_us": median_us - busy_us, "p99_us": p99_us - busy_us, "share": share}


@contextlib.contextmanager
def running(directory, command):
    """Yields the port and the process of a server that has all keys."""
    port = free_port()
    wait_for_hugepages(POOL_BYTES)
    with open(f"{directory}/log", "ab") as log:
        process = start(command(directory, port), stdout=log, stderr=log)
    try:
        wait_for(port, f"{directory}/log")
        client(port, "fill", 1, 1, 0)
        yield port, process
    finally:
        stop(process)


def measure(port, process, name, seconds, results):
    for workload in WORKLOADS:
        before = processor_seconds(process.pid)
        speed, idle = client(port, *workload, seconds)
        spent = processor_seconds(process.pid) - before
        result = results[workload].setdefault(name, {"speed": [], "idle": [], "ns": []})
        result["speed"].append(speed)
        result["idle"].append(idle)
        result["ns"].append(spent * 1e9 / (speed * seconds))


def run_one(directory, name, options, results, latencies, idlings):
    with running(directory, SERVERS[name]) as (port, process):
        measure(port, process, name, options.seconds, results)
        if results[PACED].get("memcached"):
            rate = results[PACED]["memcached"]["speed"][-1] / 2
            latencies.setdefault(name, []).append(
                client(port, *PACED, options.seconds, rate=rate)[2])
        busy_us = 1e6 / results["get", 1, 1][name]["speed"][-1]
        idlings.setdefault(name, []).append(run_idle(port, process.pid, busy_us))


def compare_builds(options):
    results = {workload: {} for workload in WORKLOADS}
    with work_directory() as directory, reserved_hugepages(POOL_BYTES):
        for _ in range(options.rounds):
            for name in random.sample(sorted(BUILDS), len(BUILDS)):
                with running(directory, BUILDS[name]) as (port, process):
                    measure(port, process, name, options.seconds, results)
    for (operation, connections, depth), builds in results.items():
        for what, word in (("speed", "operations a second"), ("ns", "processor time each")):
            print(f"{operation} x{connections} depth {depth}, {word}")
            print_builds({name: result[what] for name, result in builds.items()}, "kvd")


def ask_by_messages(directory):
    """Nanoseconds from question to answer, one value per slice: [bare message, get]."""
    port = free_port()
    path = kvd_config(directory, "messages", 0, port, POOL_BYTES, "io_uring", "48 MiB",
                      asker_tables(VALUE_BYTES))
    wait_for_hugepages(POOL_BYTES)
    with open(f"{directory}/log", "ab") as log:
        process = start([KVD_MESSAGES, "serve", "run", path], stdout=log, stderr=log)
    try:
        wait_for(port, f"{directory}/log")
        client(port, "fill", 1, 1, 0)
        return run_lines("taskset", "-c", "1", KVD_MESSAGES, "ask",
                         f"{directory}/run-messages/messages.join", KEYS, VALUE_BYTES,
                         MESSAGE_SLICES)
    finally:
        stop(process)


def print_messages(slices):
    ratios_of_slices = [get_ns / bare_ns for bare_ns, get_ns in slices]
    reached = verdict(statistics.median(ratios_of_slices) <= MESSAGE_RATIO_MAX)
    print(f"by message: get {spread([get_ns for _, get_ns in slices])} ns, "
          f"bare {spread([bare_ns for bare_ns, _ in slices])} ns; "
          f"{spread(ratios_of_slices)}; at most {MESSAGE_RATIO_MAX} {reached}")


def print_idlings(idlings):
    for name, rows in idlings.items():
        late = spread([row["median_us"] for row in rows])
        print(f"{'after idling':24}{name:12}{late} us longer, "
              f"p99 {spread([row['p99_us'] for row in rows])}; idle "
              f"{statistics.median(row['share'] for row in rows):.2%} of a core")
    for name in ("kvd", "kvd-epoll"):
        late = statistics.median(row["median_us"] for row in idlings[name])
        share = statistics.median(row["share"] for row in idlings[name])
        print(f"{'':24}{name}: at most {AFTER_IDLING_MAX_US} us "
              f"{verdict(late <= AFTER_IDLING_MAX_US)}; at most {IDLE_SHARE_MAX:.0%} of a core "
              f"{verdict(share <= IDLE_SHARE_MAX)}")


def print_table(results, latencies):
    print(f"{'workload':24}{'server':12}{'k operations/s':26}{'server ns each':26}client idle")
    for (operation, connections, depth), servers in results.items():
        for name, result in servers.items():
            label = f"{operation} x{connections} depth {depth}"
            print(f"{label:24}{name:12}{spread([v / 1e3 for v in result['speed']]):26}"
                  f"{spread(result['ns']):26}{statistics.median(result['idle']):.0%}")
        target, other = TARGETS[connections, depth]
        speeds = {name: result["speed"] for name, result in servers.items()}
        print(f"{'':24}kvd / {other}: {ratio_text(ratios(speeds, 'kvd', [other]), target)}")
        if other == "memcached":
            spent = [mine / theirs for mine, theirs in zip(servers["kvd"]["ns"],
                                                           servers[other]["ns"])]
            print(f"{'':24}processor time, kvd / {other}: {spread(spent)}; at most 1 "
                  f"{verdict(statistics.median(spent) <= 1)}")
    for name, values in latencies.items():
        print(f"{'get x64, paced':24}{name:12}p99 {spread(values)} us")
    below = statistics.median(latencies["kvd"]) < statistics.median(latencies["memcached"])
    print(f"{'':24}kvd below memcached: {verdict(below)}")


def report_rows(results, latencies, idlings, slices):
    rows = []
    for workload, servers in results.items():
        target, other = TARGETS[workload[1:]]
        speeds = {name: [speed / 1e3 for speed in result["speed"]]
                  for name, result in servers.items()}
        rows.append(row("{} x{} depth {}".format(*workload), "k/s", speeds, [
            compared(other, ratios(speeds, "kvd", [other]), target)], judged="kvd"))
    rows.append(row("get x64, p99 at half of memcached's rate", "us", latencies, [
        compared("memcached", [mine / theirs for mine, theirs in zip(
            latencies["kvd"], latencies["memcached"])], 1, False)], False, "kvd"))
    late = {name: [entry["median_us"] for entry in entries] for name, entries in idlings.items()}
    rows.append(row("first answer after idling, longer by", "us", late, [
        compared(f"{AFTER_IDLING_MAX_US} us", [us / AFTER_IDLING_MAX_US for us in late["kvd"]], 1,
                 False)], False, "kvd"))
    asked = {"get": [get for _, get in slices], "bare message": [bare for bare, _ in slices]}
    rows.append(row("by message from a local process", "ns", asked, [
        compared("a bare message", [get / bare for bare, get in slices], MESSAGE_RATIO_MAX, False)],
                    False, "get"))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2)
    options = parser.parse_args()
    require({"memcached": "scripts/setup.sh bench", BEDPLATE: "make", "taskset": "util-linux",
             f"{BUILD}/kvd_client": "scripts/bench/run.sh",
             f"{BUILD}/bare_kv_server": "scripts/bench/run.sh",
             KVD_MESSAGES: "scripts/bench/run.sh"})
    load = warn_if_busy()
    if OTHER_TREE:
        compare_builds(options)
        return
    results, latencies, idlings = {workload: {} for workload in WORKLOADS}, {}, {}
    slices = []
    with work_directory() as directory, reserved_hugepages(POOL_BYTES):
        for _ in range(options.rounds):
            # memcached first: the others' rate is half of memcached's.
            others = random.sample(sorted(set(SERVERS) - {"memcached"}), len(SERVERS) - 1)
            for name in ["memcached", *others]:
                run_one(directory, name, options, results, latencies, idlings)
            slices += ask_by_messages(directory)
    print_table(results, latencies)
    print_idlings(idlings)
    print_messages(slices)
    write_json("kvd.json", {"load": load, "rounds": options.rounds, "seconds": options.seconds,
                            "paced_p99_us": latencies, "by_message_ns": slices, "idling": idlings,
                            "results": [{"workload": workload, **servers}
                                        for workload, servers in results.items()]},
               report_rows(results, latencies, idlings, slices))


run_main(main)
