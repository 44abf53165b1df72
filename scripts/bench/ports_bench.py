#!/usr/bin/python3
"""Ports that forward to one another, against dpdk-testpmd's `io` forwarding; and the boot time of
ports.

    make && scripts/bench/run.sh ports [--rounds N] [--seconds S]

Both forward frames of 64 bytes between two ports unchanged, on core 0: ours with its loop, its
counters and its buffers in the pool, testpmd with its own hugepages and only its loop.
Rounds are interleaved: in each, each contender runs everything.

memif: two memifs to another process, a testpmd on core 1 that returns each frame on the other
memif; 1024 frames circulate, none is lost. The figure is the frames that arrive at that process on
both. The figures cannot show whether it has idle time: it does the same work as the measured
forwarder, so the slower of the two sets the pace, and a ratio over 1 is not visible.

af_packet: two veth pairs into a network namespace, in which a testpmd on core 1 sends into one pair
without pause, and the end of the other pair counts arrivals. The kernel does most of the work.

ring: two rings within the process, so that only the forwarder works; the figure is the
frames that it takes from both. 1024 frames circulate. Ours enter through two taps, which forward to
the rings and are then removed; testpmd generates its own.

Cold start: from exec to `bedplate: ready` of an appliance with a cache, with two ports (two memifs
that listen) and without.
"""
import argparse
import contextlib
import json
import os
import random
import re
import select
import socket
import statistics
import subprocess
import time

from common import (BEDPLATE, MIB, BenchError, compared, ratio_text, ratios, require,
                    reserved_hugepages, row, run_main, service_config, spread, start, stop,
                    verdict, wait_for_hugepages, warn_if_busy, work_directory, write_json)

TESTPMD = "dpdk-testpmd"
POOL_BYTES, TESTPMD_BYTES = 192 * MIB, 128 * MIB
# Rings show the cost of a loop that does more than testpmd's, without a device: no target.
TARGETS, BOOT_EXTRA_MAX_MS = {"memif": 0.95, "af_packet": 0.95, "ring": None}, 300
CIRCULATING = 16  # bursts in each direction
BURST = 32
DESCRIPTORS = 1024
NAMESPACE = f"bedplate-bench-{os.getpid()}"
LINKS = [f"bp{os.getpid() % 100000:05}{which}" for which in "abcd"]  # a and b are local; c and d
                                                                     # are in the namespace
PATIENCE_SECONDS = 30


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"ip {' '.join(words)}: {done.stderr.strip()}; run as root")


@contextlib.contextmanager
def veth_pairs():
    """Connects a to c and b to d; c and d are in a namespace."""
    ip("netns", "add", NAMESPACE)
    try:
        for near, far in (LINKS[0::2], LINKS[1::2]):
            ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", NAMESPACE)
            for prefix, link in (((), near), (("-n", NAMESPACE), far)):
                ip(*prefix, "link", "set", link, "addrgenmode", "none")
                ip(*prefix, "link", "set", link, "up")
        yield
    finally:
        subprocess.run(["ip", "netns", "delete", NAMESPACE], check=False)
        for near in LINKS[:2]:
            subprocess.run(["ip", "link", "delete", near], check=False, stderr=subprocess.DEVNULL)


def arrived():
    """The number of frames that arrived at d."""
    done = subprocess.run(["ip", "netns", "exec", NAMESPACE, "cat",
                           f"/sys/class/net/{LINKS[3]}/statistics/rx_packets"],
                          capture_output=True, text=True, check=True)
    return int(done.stdout)


# ---- the two forwarders ----

TAPS = [f"bpr{os.getpid() % 100000:05}{which}" for which in "ab"]


def kinds(directory):
    """The names of each kind of port, for ours and for testpmd."""
    sockets = [f"{directory}/memif{i}.sock" for i in (0, 1)]
    log2 = DESCRIPTORS.bit_length() - 1
    return {
        "memif": ([f"memif:{path}" for path in sockets],
                  [f"net_memif{i},role=server,id=0,socket={path},socket-abstract=no,rsize={log2}"
                   for i, path in enumerate(sockets)]),
        "af_packet": ([f"af_packet:{link}" for link in LINKS[:2]],
                      [f"net_af_packet{i},iface={link},blocksz=65536,framesz=2048,"
                       f"framecnt={DESCRIPTORS}" for i, link in enumerate(LINKS[:2])]),
        # Two of our rings with one name connect to each other; a ring of testpmd's connects to
        # itself.
        "ring": (["ring:both"] * 2, [f"net_ring{i}" for i in (0, 1)]),
    }


def bedplate(directory, kind):
    role = 'role = "server"\n' if kind == "memif" else ""
    tables = "".join(f"""[[port]]
name = "p{i}"
device = "{device}"
{role}descriptors = {DESCRIPTORS}
forward_to = "p{1 - i}"
""" for i, device in enumerate(kinds(directory)[kind][0]))
    if kind == "ring":
        tables += "".join(f'[[port]]\nname = "seed{i}"\ndevice = "tap:{tap}"\n'
                          f'forward_to = "p{i}"\n' for i, tap in enumerate(TAPS))
    return [BEDPLATE, "run", service_config(directory, "ports-" + kind.replace("_", "-"),
                                            [("main", 0)], POOL_BYTES, "io_uring", tables)]


def testpmd(name, core, devices, *options):
    return ["stdbuf", "-oL", TESTPMD, f"--file-prefix={name}", "--in-memory",
            "-m", str(TESTPMD_BYTES // MIB), "--no-pci", "--no-telemetry",
            "--lcores", f"0@{core},1@{core}",
            *(f"--vdev={device}" for device in devices), "--", "--total-num-mbufs=16384",
            f"--rxd={DESCRIPTORS}", f"--txd={DESCRIPTORS}", *options]


FORWARDERS = {
    "bedplate": bedplate,
    "testpmd": lambda directory, kind: testpmd("forwards", 0, kinds(directory)[kind][1],
                                               "--forward-mode=io", *["-i"] * (kind == "ring")),
}


class Conversation:
    """A program with a command line interface, and its output."""

    def __init__(self, process):
        self._process = process
        self._said = ""

    def say(self, line):
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def wait(self, pattern, what):
        """Waits for the pattern in further output, and returns the match."""
        end = time.monotonic() + PATIENCE_SECONDS
        while (found := re.search(pattern, self._said)) is None:
            left = end - time.monotonic()
            if left < 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise BenchError(f"waiting for {what}: it said {self._said[-1000:]}")
            more = os.read(self._process.stdout.fileno(), 1 << 16)
            if not more:
                raise BenchError(f"waiting for {what}: it ended; it said {self._said[-1000:]}")
            self._said += more.decode(errors="replace")
        self._said = self._said[found.end():]
        return found


@contextlib.contextmanager
def talking(argv):
    process = start(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        yield Conversation(process)
    finally:
        stop(process)
        process.stdin.close()
        process.stdout.close()


@contextlib.contextmanager
def forwarding(name, directory, kind):
    wait_for_hugepages(POOL_BYTES)
    ready = {"bedplate": "bedplate: ready",
             "testpmd": "testpmd> " if kind == "ring" else "Press enter to exit"}[name]
    with talking(FORWARDERS[name](directory, kind)) as said:
        said.wait(ready, f"{name} to forward")
        yield name, said


# ---- measuring ----

def rate_of(count, seconds):
    """The growth of count() per second."""
    began, before = time.monotonic(), count()
    time.sleep(seconds)
    ended, after = time.monotonic(), count()
    return (after - before) / (ended - began)


def received_by(said):
    """The number of packets that a testpmd has received on both ports."""
    said.say("show port stats all")
    return sum(int(said.wait(r"RX-packets: (\d+)", "counters").group(1)) for _ in (0, 1))


def measure_memif(directory, seconds, _forwarder):
    """Frames per second that return to the other process."""
    devices = [device.replace("role=server", "role=client")
               for device in kinds(directory)["memif"][1]]
    with talking(testpmd("circulates", 1, devices, "--forward-mode=io", "-i")) as other:
        other.wait("testpmd> ", "the other process")

        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            other.say("show port summary all")
            if all(other.wait(r"net_memif\d\s.*?(up|down)", "links").group(1) == "up"
                   for _ in (0, 1)):
                break
            time.sleep(0.05)
        other.say(f"start tx_first {CIRCULATING}")
        time.sleep(0.3)
        return rate_of(lambda: received_by(other), seconds)


def measure_af_packet(_directory, seconds, _forwarder):
    """Frames per second that arrive."""
    sender = testpmd("sends", 1, [f"net_af_packet0,iface={LINKS[2]},framecnt={DESCRIPTORS},"
                                  "blocksz=65536,framesz=2048"], "--forward-mode=txonly")
    with talking(["ip", "netns", "exec", NAMESPACE, *sender]) as said:
        said.wait("Press enter to exit", "the sender")
        time.sleep(0.3)
        return rate_of(arrived, seconds)


def inject(tap, received):
    """Injects circulating frames through a tap, which is then removed."""
    ip("link", "set", tap, "addrgenmode", "none")
    ip("link", "set", tap, "up")
    count = CIRCULATING * BURST
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
        out.bind((tap, 0))
        for sent in range(BURST, count + 1, BURST):
            for _ in range(BURST):
                out.send(bytes((2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5)) + bytes(46))
            end = time.monotonic() + PATIENCE_SECONDS
            while received() < sent:
                if time.monotonic() > end:
                    raise BenchError(f"{sent} frames were sent by {tap}: {received()} came")
                time.sleep(0.01)
    ip("link", "delete", tap)


def measure_ring(directory, seconds, forwarder):
    """Frames per second that the forwarder takes from both rings."""
    name, said = forwarder
    if name == "testpmd":
        said.say(f"start tx_first {CIRCULATING}")
        time.sleep(0.3)
        return rate_of(lambda: received_by(said), seconds)

    def received(*ports):
        done = subprocess.run([BEDPLATE, "stats", "ports-ring", "--json", "--directory",
                               f"{directory}/run-ports-ring"],
                              capture_output=True, text=True, check=True)
        queues = json.loads(done.stdout)["services"]["port"]["queue"]
        return sum(queues[f"{port}/main"]["received_frames"] for port in ports)

    for i, tap in enumerate(TAPS):
        inject(tap, lambda i=i: received(f"seed{i}"))
    time.sleep(0.3)
    return rate_of(lambda: received("p0", "p1"), seconds)


MEASURES = {"memif": measure_memif, "af_packet": measure_af_packet, "ring": measure_ring}


def time_to_ready(directory, with_ports):
    tables = """[kvd]
listen = ["unix:%s/kvd.sock"]
cache_bytes = "32 MiB"
""" % directory
    if with_ports:
        tables += "".join(f'[[port]]\nname = "p{i}"\nrole = "server"\n'
                          f'device = "memif:{directory}/boot{i}.sock"\n' for i in (0, 1))
    path = service_config(directory, f"boot-{int(with_ports)}", [("main", 0)], POOL_BYTES,
                          "io_uring", tables)
    wait_for_hugepages(POOL_BYTES)
    began = time.perf_counter()
    with talking([BEDPLATE, "run", path]) as said:
        said.wait("bedplate: ready", "the appliance")
        return (time.perf_counter() - began) * 1e3


def run_round(directory, options, results):
    for kind, measure in MEASURES.items():
        for name in random.sample(sorted(FORWARDERS), len(FORWARDERS)):
            with forwarding(name, directory, kind) as forwarder:
                rate = measure(directory, options.seconds, forwarder)
            results[kind].setdefault(name, []).append(rate / 1e6)
    for name, with_ports in (("without ports", False), ("with ports", True)):
        results["boot"].setdefault(name, []).append(time_to_ready(directory, with_ports))


def extra_ms(results):
    return [with_ports - without for with_ports, without in
            zip(results["boot"]["with ports"], results["boot"]["without ports"])]


def print_table(results):
    for kind in MEASURES:
        print(f"{kind}: million frames of 64 bytes a second")
        for name, rates in results[kind].items():
            print(f"  {name:10}{spread(rates)}")
        print(f"  bedplate / testpmd: "
              f"{ratio_text(ratios(results[kind], 'bedplate', ['testpmd']), TARGETS[kind])}")
    print("exec to ready, ms")
    for name, times in results["boot"].items():
        print(f"  {name:14}{spread(times)}")
    extra = extra_ms(results)
    print(f"  by ports: {spread(extra)}; at most {BOOT_EXTRA_MAX_MS} "
          f"{verdict(statistics.median(extra) <= BOOT_EXTRA_MAX_MS)}")


def report_rows(results):
    rows = [row(f"frames forwarded between two ports, {kind}", "M/s", results[kind],
                [compared("testpmd", ratios(results[kind], "bedplate", ["testpmd"]),
                          TARGETS[kind])])
            for kind in MEASURES]
    limits = [without + BOOT_EXTRA_MAX_MS for without in results["boot"]["without ports"]]
    rows.append(row("exec to ready", "ms", results["boot"], [
        compared(f"without ports + {BOOT_EXTRA_MAX_MS} ms",
                 [mine / limit for mine, limit in zip(results["boot"]["with ports"], limits)],
                 1, False)], False, "with ports"))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    options = parser.parse_args()
    require({TESTPMD: "scripts/setup.sh bench", BEDPLATE: "make", "ip": "iproute2",
             "stdbuf": "coreutils"})
    load = warn_if_busy()
    results = {**{kind: {} for kind in MEASURES}, "boot": {}}
    with work_directory() as directory, reserved_hugepages(POOL_BYTES + 2 * TESTPMD_BYTES), \
            veth_pairs():
        for _ in range(options.rounds):
            run_round(directory, options, results)
    print_table(results)
    write_json("ports.json", {"load": load, "rounds": options.rounds, **results},
               report_rows(results))


run_main(main)
