#!/usr/bin/python3
"""tsrelay against a bare relay and multicat: loss-free rate, latency, cost of many outputs.

    make && scripts/bench/run.sh relay [--rounds N] [--seconds S]

Datagrams of 7 transport stream packets (188 bytes each) go over a veth pair: the relays run here on
core 0, a lean client (datagram_probe.c) in a network namespace on core 1. GSO (of UDP, too), TSO
and GRO are off at both ends, so each datagram crosses the pair as a packet of its own, as on a
wire. Rounds are interleaved: in each, every relay runs everything.

For tsrelay and the bare relay 8 MiB may wait in the kernel; multicat has no such option.

One to one: the highest rate without loss, found by bisection. A rate counts if at least one of
three trials is sent in time without loss (other programs of the machine sometimes take the core,
which is not the relay's fault). `client alone`: the same with the client sending to itself, in both
directions on its own core, which is more work for it than with a relay. Latency: at half of the
lowest loss-free rate of the relays in this round, from the call that sends a datagram until the
kernel has received it back.

One to 100: the relay's processor time for each packet sent, at a rate that all relays reach. The
packets go to an unused address in the namespace, which counts and drops them. multicat sends to one
output, so 100 instances listen to one group, as its documentation advises. `a core` is the number
of packets per second that one core could send at this cost.

With BEDPLATE_OTHER, tsrelay is compared only with that tree's: its processor time, one to 100.
"""
import argparse
import contextlib
import os
import random
import statistics
import subprocess
import time

from common import (BEDPLATE, BUILD, MIB, OTHER_BEDPLATE, OTHER_TREE, OTHERS, BenchError, compared,
                    print_builds, ratio_text, ratios, require, reserved_hugepages, row, run_main,
                    service_config, spread, start, stop, verdict, wait_for_hugepages, warn_if_busy,
                    work_directory, write_json)

POOL_BYTES = 128 * MIB
# BEYOND is unused: the other end of the pair counts and drops packets to it.
HERE, THERE, BEYOND, GROUP = "10.213.47.1", "10.213.47.2", "10.213.47.3", "239.213.47.1"
IN_PORT, OUT_PORT, OUTPUTS = 5004, 6000, 100
NAMESPACE = f"bedplate-bench-{os.getpid()}"
OURS, THEIRS = f"bpb{os.getpid()}"[:14] + "a", f"bpb{os.getpid()}"[:14] + "b"
RATE_MIN, RATE_MAX, RATE_STEPS, TRIALS = 20_000, 1_600_000, 9, 3
WIDE_RATE = 400  # datagrams per second, each to 100 outputs
TARGETS = {"bare": 1.0, "multicat": 1.2}
WIDE_TARGET = 3


def ip(*words):
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"ip {' '.join(map(str, words))}: {done.stderr.strip()}; run as root")
    return done.stdout


def inside(*argv):
    return ["ip", "netns", "exec", NAMESPACE, *map(str, argv)]


def run(*argv):
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"running {' '.join(map(str, argv))}: {done.stderr.strip()}")
    return done.stdout


@contextlib.contextmanager
def veth_pair():
    """A namespace with one end of a veth pair; no offload merges packets."""
    ip("netns", "add", NAMESPACE)
    try:
        ip("link", "add", OURS, "type", "veth", "peer", "name", THEIRS, "netns", NAMESPACE)
        for prefix, link, address in (([], OURS, HERE), (["-n", NAMESPACE], THEIRS, THERE)):
            ip(*prefix, "address", "add", f"{address}/24", "dev", link)
            ip(*prefix, "link", "set", link, "up")
            ip(*prefix, "route", "add", "224.0.0.0/4", "dev", link)
        for prefix, link in (([], OURS), (inside(), THEIRS)):
            run(*prefix, "ethtool", "-K", link, "gso", "off", "tso", "off", "gro", "off",
                "tx-udp-segmentation", "off")
        ip("-n", NAMESPACE, "link", "set", "lo", "up")  # for `client alone`
        hardware = run(*inside("cat", f"/sys/class/net/{THEIRS}/address")).strip()
        ip("neighbour", "add", BEYOND, "lladdr", hardware, "dev", OURS)
        yield
    finally:
        subprocess.run(["ip", "link", "delete", OURS], capture_output=True, check=False)
        ip("netns", "delete", NAMESPACE)


def received_packets():
    return int(run(*inside("cat", f"/sys/class/net/{THEIRS}/statistics/rx_packets")))


def destination(group):
    return BEYOND if group else THERE


# ---- relays: each makes its commands, one for each process ---------------------------------------

def tsrelay(directory, outputs, group, program=BEDPLATE):
    listed = "".join(f'''[[tsrelay.stream.output]]
name = "out{i}"
to = "{destination(group)}:{OUT_PORT + i}"
''' for i in range(outputs))
    leg = f'address = "{group or HERE}:{IN_PORT}"\n'
    if group:
        leg += f'interface = "{OURS}"\n'
    path = service_config(directory, f"relay-{outputs}", [("main", 0)], POOL_BYTES, "io_uring",
                          f"""[tsrelay]
[[tsrelay.stream]]
name = "one"
receive_queue_bytes = "8 MiB"
[[tsrelay.stream.leg]]
{leg}{listed}""")
    return [[program, "run", path]]


def multicat(_directory, outputs, group):
    source = f"@{group}:{IN_PORT}/ifaddr={HERE}" if group else f"@{HERE}:{IN_PORT}"
    return [["taskset", "-c", "0", "multicat", "-u", "-U", source, f"{destination(group)}:{OUT_PORT + i}"]
            for i in range(outputs)]


def bare(_directory, outputs, group):
    return [["taskset", "-c", "0", f"{BUILD}/bare_relay", HERE if not group else group, str(IN_PORT),
             destination(group), str(OUT_PORT), str(outputs)]]


RELAYS = {"tsrelay": tsrelay, "multicat": multicat, "bare": bare}
BUILDS = {"tsrelay": tsrelay, **{name: lambda directory, outputs, group: tsrelay(
    directory, outputs, group, OTHER_BEDPLATE) for name in OTHERS}}


@contextlib.contextmanager
def running(relay, directory, outputs=1, group=None):
    """Yields the processes once they receive."""
    processes = []
    wait_for_hugepages(POOL_BYTES)
    with open(f"{directory}/log", "ab") as log:
        try:
            for command in relay(directory, outputs, group):
                processes.append(start(command, stdout=log, stderr=log))
            wait_until_relayed(processes, directory, group)
            yield processes
        finally:
            for process in processes:
                stop(process)


def wait_until_relayed(processes, directory, group):
    end = time.monotonic() + 15
    while time.monotonic() < end:
        if any(process.poll() is not None for process in processes):
            break
        before = received_packets()
        result = probe(50, 0.02, to=group, port=0 if group else OUT_PORT)
        if result["received"] > 0 or (group and received_packets() > before + OUTPUTS // 2):
            return
    with open(f"{directory}/log", encoding="utf-8", errors="replace") as file:
        raise BenchError(f"waiting for a relay: nothing comes back; it said:\n{file.read()[-1500:]}")


def probe(rate, seconds, to=None, port=OUT_PORT):
    in_port = OUT_PORT if to == THERE else IN_PORT
    words = run(*inside("taskset", "-c", "1", f"{BUILD}/datagram_probe", to or HERE, in_port, THERE,
                        port, rate, seconds)).split()
    names = ("sent", "received", "misplaced", "p50_us", "p99_us", "p999_us", "idle", "rate")
    return dict(zip(names, map(float, words)))


# ---- measuring ----------------------------------------------------------------------------------

def loses_nothing(rate, seconds, to):
    for _ in range(TRIALS):
        result = probe(rate, seconds, to)
        is_sent = result["rate"] > 0.98 * rate  # otherwise the client was too slow
        if is_sent and result["received"] == result["sent"] and result["misplaced"] == 0:
            return result
    return None


def loss_free(seconds, to=None):
    """The highest rate, and the client's idle share at that rate."""
    low, high, idle = 0, RATE_MAX, 0
    rate = 100_000
    for _ in range(RATE_STEPS):
        result = loses_nothing(rate, seconds, to)
        if result:
            low, idle = rate, result["idle"]
        else:
            high = rate
        rate = (max(low, RATE_MIN) + high) // 2 if high < RATE_MAX else min(2 * rate, RATE_MAX)
    return low, idle


def processor_ns(processes):
    """The processes' time to the nanosecond, including the kernel's work for their packets."""
    total = 0
    for process in processes:
        for thread in os.listdir(f"/proc/{process.pid}/task"):
            with open(f"/proc/{process.pid}/task/{thread}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
    return total


def measure_wide(name, processes, seconds):
    """Nanoseconds of processor time per packet sent, in a trial without loss."""
    wanted = WIDE_RATE * seconds * OUTPUTS
    for _ in range(TRIALS):
        before_ns, before = processor_ns(processes), received_packets()
        probe(WIDE_RATE, seconds, to=GROUP, port=0)
        time.sleep(0.1)
        spent_ns, packets = processor_ns(processes) - before_ns, received_packets() - before
        if packets >= wanted:
            return spent_ns / packets
    raise BenchError(f"sending to {OUTPUTS} outputs by {name}: {packets} packets of {wanted:.0f} "
                     f"came in the last of {TRIALS} trials; the rate is too high for this machine")


def run_round(directory, options, results):
    names = random.sample(sorted(RELAYS), len(RELAYS))
    rates = {}
    for name in names:
        with running(RELAYS[name], directory):
            rates[name], idle = loss_free(options.seconds)
        results["rate"].setdefault(name, []).append(rates[name])
        results["idle"].setdefault(name, []).append(idle)
    results["alone"].append(loss_free(options.seconds, THERE)[0])
    for name in names:
        with running(RELAYS[name], directory):
            late = probe(min(rates.values()) // 2 or RATE_MIN, options.seconds)
        results["late"].setdefault(name, []).append(
            [late["p50_us"], late["p99_us"], late["p999_us"]])
    for name in names:
        if name == "bare":
            continue  # it cannot join a group
        with running(RELAYS[name], directory, OUTPUTS, GROUP) as processes:
            results["wide_ns"].setdefault(name, []).append(
                measure_wide(name, processes, options.seconds))


def compare_builds(directory, options):
    spent = {name: [] for name in BUILDS}
    for _ in range(options.rounds):
        for name in random.sample(sorted(BUILDS), len(BUILDS)):
            with running(BUILDS[name], directory, OUTPUTS, GROUP) as processes:
                spent[name].append(measure_wide(name, processes, options.seconds))
    print(f"one to {OUTPUTS}, processor time for each packet")
    print_builds(spent, "tsrelay")


def print_table(results):
    print(f"{'one to one':14}{'k datagrams/s without loss':32}client idle")
    for name, rates in results["rate"].items():
        print(f"{'':14}{name:12}{spread([rate / 1e3 for rate in rates]):26}"
              f"{statistics.median(results['idle'][name]):.0%}")
    print(f"{'':14}{'client alone':12}{spread([rate / 1e3 for rate in results['alone']])}")
    for other, target in TARGETS.items():
        print(f"{'':14}tsrelay / {other}: "
              f"{ratio_text(ratios(results['rate'], 'tsrelay', [other]), target)}")
    print("at half of it  p50, p99, p99.9 in us")
    medians = {}
    for name, late in results["late"].items():
        medians[name] = [statistics.median(column) for column in zip(*late)]
        print(f"{'':14}{name:12}" + ", ".join(spread(list(column)) for column in zip(*late)))
    below = all(ours < theirs for ours, theirs in zip(medians["tsrelay"], medians["multicat"]))
    print(f"{'':14}tsrelay below multicat: {verdict(below)}")
    print(f"{'one to ' + str(OUTPUTS):14}{'ns a packet':32}k packets/s a core")
    for name, spent in results["wide_ns"].items():
        print(f"{'':14}{name:12}{spread(spent):26}{1e6 / statistics.median(spent):.0f}")
    wide = [theirs / ours for ours, theirs in zip(results["wide_ns"]["tsrelay"],
                                                  results["wide_ns"]["multicat"])]
    print(f"{'':14}tsrelay / multicat: {spread(wide)}; at least {WIDE_TARGET} "
          f"{verdict(statistics.median(wide) >= WIDE_TARGET)}")


def report_rows(results):
    rates = {name: [rate / 1e3 for rate in values] for name, values in results["rate"].items()}
    rows = [row("one to one, without loss", "k/s", rates, [
        compared(other, ratios(rates, "tsrelay", [other]), target)
        for other, target in TARGETS.items()], judged="tsrelay")]
    for i, part in enumerate(("p50", "p99", "p99.9")):
        late = {name: [entry[i] for entry in entries] for name, entries in results["late"].items()}
        rows.append(row(f"one to one at half of it, {part}", "us", late, [
            compared("multicat", ratios(late, "tsrelay", ["multicat"]), 1, False)],
                        False, "tsrelay"))
    wide = {name: [1e6 / spent for spent in values] for name, values in results["wide_ns"].items()}
    rows.append(row(f"one to {OUTPUTS}, packets a core", "k/s", wide, [
        compared("multicat", ratios(wide, "tsrelay", ["multicat"]), WIDE_TARGET)],
                    judged="tsrelay"))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    require({"multicat": "scripts/setup.sh bench", BEDPLATE: "make", "taskset": "util-linux",
             "ethtool": "scripts/setup.sh bench",
             f"{BUILD}/datagram_probe": "scripts/bench/run.sh",
             f"{BUILD}/bare_relay": "scripts/bench/run.sh"})
    load = warn_if_busy()
    results = {"rate": {}, "alone": [], "idle": {}, "late": {}, "wide_ns": {}}
    with work_directory() as directory, reserved_hugepages(POOL_BYTES), veth_pair():
        if OTHER_TREE:
            compare_builds(directory, options)
            return
        for _ in range(options.rounds):
            run_round(directory, options, results)
    print_table(results)
    write_json("relay.json", {"load": load, "rounds": options.rounds, **results},
               report_rows(results))


run_main(main)
