#!/usr/bin/python3
"""Runs the tests for real devices on this machine: `make check-hardware`.

    scripts/hardware.py [--build build/release] [--system /]

Lists RDMA ports, network cards, NVMe drives, hugepages and NUMA nodes, tells what it will touch,
and asks for consent (YES=1 in the environment agrees; without a terminal the answer is no). It
registers memory, opens queue pairs, binds memory windows, and sends between ports. It takes free
hugepages and returns them. It writes to no drive, changes no setting, and brings no link up or
down. The last line is `N passed, N failed, N skipped`; the exit code is 1 if anything failed.
"""

import argparse
import glob
import os
import re
import subprocess
import sys
from dataclasses import dataclass

ADDRESS = "127.0.0.1"  # the two sides exchange queue pair addresses here; data goes by RDMA
PERF_PORT = 17471
STEP_SECONDS = 900  # an upper bound against hangs
GIB_KIB = 1 << 20


@dataclass(frozen=True)
class RdmaPort:
    device: str
    port: int
    is_active: bool

    def text(self):
        return f"{self.device} port {self.port}, {'up' if self.is_active else 'down'}"


@dataclass(frozen=True)
class Machine:
    """The hardware, according to /sys."""
    ports: tuple = ()
    cards: tuple = ()   # text lines: a network card and its capabilities
    drives: tuple = ()  # text lines
    nodes: tuple = ()   # NUMA nodes with memory
    huge: tuple = ()    # (page size in KiB, number of free pages, node)

    def active_ports(self):
        return [port for port in self.ports if port.is_active]

    def free_pages(self, kib):
        return sum(free for size, free, _ in self.huge if size == kib)


def text_of(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def natural(path):
    return [int(word) if word.isdigit() else word for word in re.split(r"(\d+)", path)]


def entries(system, pattern):
    return sorted(glob.glob(os.path.join(system, pattern)), key=natural)


def find_ports(system):
    ports = []
    for path in entries(system, "sys/class/infiniband/*/ports/*"):
        device = path.split(os.sep)[-3]
        # "4: ACTIVE"
        is_active = text_of(f"{path}/state").endswith(" ACTIVE")
        ports.append(RdmaPort(device, int(os.path.basename(path)), is_active))
    return tuple(ports)


def find_cards(system):
    """Cards on a bus, not lo or veth. They are only listed: no test here drives them."""
    cards = []
    for path in entries(system, "sys/class/net/*"):
        if not os.path.exists(f"{path}/device"):
            continue
        words = [os.path.basename(path),
                 f"PCI {text_of(f'{path}/device/vendor')}:{text_of(f'{path}/device/device')}",
                 "up" if text_of(f"{path}/operstate") == "up" else "down"]
        functions = text_of(f"{path}/device/sriov_totalvfs")
        if functions not in ("", "0"):
            words.append(f"SR-IOV with {functions} functions")
        cards.append(", ".join(words))
    return tuple(cards)


def find_drives(system):
    return tuple(f"{os.path.basename(path)}, {text_of(f'{path}/model') or 'unnamed'}"
                 for path in entries(system, "sys/class/nvme/nvme*"))


def find_nodes(system):
    return tuple(int(os.path.basename(path).removeprefix("node"))
                 for path in entries(system, "sys/devices/system/node/node[0-9]*")
                 if not re.search(r"MemTotal:\s+0 kB", text_of(f"{path}/meminfo")))


def find_hugepages(system):
    found = []
    for path in entries(system, "sys/devices/system/node/node[0-9]*/hugepages/hugepages-*kB"):
        node = int(re.search(r"/node(\d+)/", path)[1])
        kib = int(re.search(r"hugepages-(\d+)kB$", path)[1])
        found.append((kib, int(text_of(f"{path}/free_hugepages") or 0), node))
    return tuple(found)


def find_machine(system):
    return Machine(find_ports(system), find_cards(system), find_drives(system), find_nodes(system),
                   find_hugepages(system))


def describe(machine):
    """The hardware, as lines of text."""
    def lines(title, found):
        return [f"{title}: {one}" for one in found] or [f"{title}: none"]
    pages = [f"{kib // 1024} MiB on node {node}: {free} free" for kib, free, node in machine.huge]
    return [*lines("RDMA", [port.text() for port in machine.ports]),
            *lines("network card", machine.cards), *lines("NVMe drive", machine.drives),
            *lines("NUMA node", machine.nodes), *lines("hugepages of", pages)]


@dataclass(frozen=True)
class Step:
    """`server`, if any, runs in parallel with `command`. `reason`: why it is skipped, or empty."""
    name: str
    touches: str
    command: tuple = ()
    server: tuple = ()
    reason: str = ""


def unit_step(tests, name, touches, groups, reason):
    words = [word for group in groups for word in ("-g", group)]
    return Step(name, touches, (tests, *words), (), reason)


def perf_steps(program, ports):
    """Between the first two active ports, or from one port to itself."""
    reason = "" if ports else "no RDMA port that is up"
    one, other = (ports[0], ports[-1]) if ports else (RdmaPort("none", 1, False),) * 2
    direction = f"{one.device} port {one.port} to {other.device} port {other.port}"
    address = f"tcp:{ADDRESS}:{PERF_PORT}"

    def side(port):
        return ("--device", port.device, "--port", str(port.port), address)
    server = (program, "perf", "serve", *side(other))
    for what in (("send", "--latency"), ("put", "--bandwidth"), ("get", "--bandwidth")):
        yield Step(f"perf {what[0]} {what[1].removeprefix('--')}", f"sends from {direction}",
                   (program, "perf", *what, "-d", "5", *side(one)), server, reason)
    yield Step("perf register", f"registers up to 1 MiB, again and again, with {one.device}",
               (program, "perf", "register", "--device", one.device, "--port", str(one.port)), (),
               reason)


def plan_steps(machine, build):
    """All tests, each with the devices that it touches, or the reason why it does not run here."""
    tests, program = os.path.join(build, "bedplate-tests"), os.path.join(build, "bedplate")
    ports = machine.active_ports()
    no_port = "" if ports else "no RDMA port that is up"
    yield unit_step(tests, "verbs", "opens queue pairs, binds memory windows and sends, on the first "
                    "RDMA port that can be used", ("Verbs", "ConnectionManager"), no_port)
    yield unit_step(tests, "registration", "registers the pool on that port",
                    ("KeyTable", "KeyOfBlocks"), no_port)
    yield from perf_steps(program, ports)
    yield unit_step(tests, "NUMA placement", "uses hugepages of each node",
                    ("Numa", "NodePlacement"),
                    "" if len(machine.nodes) > 1 else "there is only one NUMA node")
    yield unit_step(tests, "pages of 1 GiB", "uses some of the free ones",
                    ("PinnedPool", "NodePlacement"),
                    "" if machine.free_pages(GIB_KIB) else "no page of 1 GiB is free")


def is_agreed(environment, has_terminal, ask):
    """YES=1 agrees, or a person who types yes; everything else refuses."""
    if environment.get("YES") == "1":
        return True
    return has_terminal and ask("Run these? (yes/no) ").strip().lower() in ("y", "yes")


def counts_of(output, exit_code):
    """(passed, failed, skipped) of a step's output; without a closing line it is one test."""
    found = re.findall(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", output, re.M)
    if not found:
        return (1, 0, 0) if exit_code == 0 else (0, 1, 0)
    passed, failed, skipped = map(int, found[-1])
    return passed, max(failed, 1) if exit_code != 0 else failed, skipped


def run_step(step):
    """Its counts and its output."""
    server = None
    try:
        if step.server:
            server = subprocess.Popen(step.server, stdout=subprocess.PIPE, text=True)
            if server.stdout.readline() == "":
                return (0, 1, 0), "its server ended before it was ready"
        done = subprocess.run(step.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=STEP_SECONDS, check=False)
        return counts_of(done.stdout, done.returncode), done.stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return (0, 1, 0), str(error)
    finally:
        if server is not None:
            server.terminate()
            server.wait()
            server.stdout.close()


def run_steps(steps):
    """Returns the exit code."""
    totals = [0, 0, 0]
    for step in steps:
        if step.reason:
            counts = (0, 0, 1)
            print(f"skipped: {step.name}: {step.reason}", flush=True)
        else:
            counts, output = run_step(step)
            print(output, flush=True)
            print(f"{'failed' if counts[1] else 'passed'}  {step.name}", flush=True)
        totals = [total + count for total, count in zip(totals, counts)]
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")
    return 1 if totals[1] else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--system", default="/", help="the folder whose sys/ is read")
    options = parser.parse_args()
    machine = find_machine(options.system)
    print("This machine has")
    print("\n".join(f"  {line}" for line in describe(machine)))
    steps = list(plan_steps(machine, options.build))
    print("These tests will run; they write to no drive and change no setting")
    print("\n".join(f"  {step.name}: {step.touches}" if not step.reason else
                    f"  {step.name}: will be skipped: {step.reason}" for step in steps))
    if all(step.reason for step in steps):
        return run_steps(steps)
    if not is_agreed(os.environ, sys.stdin.isatty(), input):
        print("hardware: nothing was run; answer yes, or set YES=1 if there is no terminal")
        print(f"0 passed, 0 failed, {len(steps)} skipped")
        return 0
    return run_steps(steps)


if __name__ == "__main__":
    sys.exit(main())
