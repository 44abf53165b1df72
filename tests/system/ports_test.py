"""Ports (apps/ports) over a pair of virtual interfaces, one end in a network namespace of its own."""

import contextlib
import json
import os
import re
import socket
import struct
import subprocess
import time

import harness
from harness import (BEDPLATE, BOUND_SECONDS, KIB, MIB, Appliance, Failure, Skip, expect, expect_in,
                     expect_true, memory_areas, need_tools, read_text, test, wait_for)

PORT_ECHO = os.path.join(os.path.dirname(BEDPLATE), "port-echo")
OURS, THEIRS = "192.0.2.1", "192.0.2.2"
OURS6, THEIRS6 = "2001:db8::1", "2001:db8::2"
PORT = 7007
CLONE_NEWNET = 0x40000000


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Skip(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Wire:
    """A pair of virtual interfaces. One end is here, without addresses; the other is in a namespace
    that a process of the test holds."""

    def __init__(self, box):
        need_tools("ip", "unshare", "nsenter", "ping")
        self.box = box
        self.near, self.far = f"bpa{os.getpid() % 100000}", f"bpb{os.getpid() % 100000}"
        self.holder = box.spawn(["unshare", "--net", "sleep", "infinity"], "namespace.log")
        own = os.readlink("/proc/self/ns/net")
        wait_for(lambda: self.holder.poll() is not None or
                 os.readlink(f"/proc/{self.holder.pid}/ns/net") != own, "a network namespace")
        if self.holder.poll() is not None:
            raise Skip(f"no network namespace: {read_text(box.path('namespace.log')).strip()}")
        ip("link", "add", self.near, "type", "veth", "peer", "name", self.far)
        box.closing.callback(self.remove)
        with contextlib.suppress(OSError):  # the kernel's own IPv6 sends nothing here
            with open(f"/proc/sys/net/ipv6/conf/{self.near}/disable_ipv6", "w",
                      encoding="ascii") as file:
                file.write("1")
        ip("link", "set", self.far, "netns", str(self.holder.pid))
        ip("link", "set", self.near, "up")
        self.inside("ip", "addr", "add", f"{THEIRS}/24", "dev", self.far)
        self.inside("ip", "addr", "add", f"{THEIRS6}/64", "dev", self.far, "nodad")
        self.inside("ip", "link", "set", self.far, "up")
        self.inside("ip", "link", "set", "lo", "up")

    def remove(self):
        subprocess.run(["ip", "link", "del", self.near], capture_output=True, check=False)

    def inside(self, *argv, **options):
        """Runs a command in the namespace."""
        return self.box.run("nsenter", "--net", "--target", str(self.holder.pid), *argv, **options)

    def socket(self, family=socket.AF_INET):
        """A UDP socket in the namespace."""
        return self.make(lambda: socket.socket(family, socket.SOCK_DGRAM))

    def make(self, function):
        """Returns the socket that `function` creates, in the namespace."""
        own = os.open("/proc/self/ns/net", os.O_RDONLY)
        there = os.open(f"/proc/{self.holder.pid}/ns/net", os.O_RDONLY)
        try:
            set_namespace(there)
            made = self.box.closing.enter_context(function())
        finally:
            set_namespace(own)
            os.close(own)
            os.close(there)
        made.settimeout(BOUND_SECONDS)
        return made


def set_namespace(fd):
    libc = harness.ctypes.CDLL(None, use_errno=True)
    if libc.setns(fd, CLONE_NEWNET) != 0:
        raise Skip(f"setns: {os.strerror(harness.ctypes.get_errno())}")


def configuration(box, device, **port):
    cpus = sorted(os.sched_getaffinity(0))
    return {
        "appliance": {"name": "ports", "runtime_directory": box.path("runtime")},
        "pool": {"bytes": "256 MiB", "pages": "2 MiB"},
        "shard": [{"name": "main", "cpu": cpus[0]}],
        "port": [{"name": "wan", "device": device, "addresses": [f"{OURS}/24", f"{OURS6}/64"],
                  **port}],
        "echo": {"network": "wan", "local": f"0.0.0.0:{PORT}"},
    }


class EchoAppliance(Appliance):
    def __init__(self, box, settings, file="bedplate.toml"):
        super().__init__(box, settings, file)
        self.argv[0] = PORT_ECHO

    def ensure_hugepages(self):
        plan = json.loads(self.box.run(PORT_ECHO, "plan", self.config, "--json").stdout)
        for page_bytes, pages in harness.hugepages_of(plan).items():
            harness.HUGEPAGES.ensure_free(page_bytes, pages)

    def start(self):
        self.ensure_hugepages()
        self.process = self.box.spawn(self.argv, self.log, stdout=subprocess.PIPE)
        seen = harness.read_line(self.process.stdout.fileno())
        expect(seen, "bedplate: ready\n", "the first line of port-echo")
        self.box.appliances.append(self)
        return self

    def count(self, name):
        """One of the counters of the service `port`, from any of its sets."""
        found = find_values(self.stats()["services"]["port"], name)
        if not found:
            raise Failure(f"stats has no {name}")
        return found[0]


def find_values(tree, name):
    if not isinstance(tree, (dict, list)):
        return []
    below = tree.values() if isinstance(tree, dict) else tree
    own = [tree[name]] if isinstance(tree, dict) and name in tree else []
    return own + [value for part in below for value in find_values(part, name)]


def echo(client, count, address=(OURS, PORT), size=1000):
    """Sends `count` datagrams, one after the other, and receives each back."""
    for i in range(count):
        datagram = struct.pack("<Q", i) * (size // 8)
        client.sendto(datagram, address)
        expect(client.recv(65536), datagram, f"datagram number {i}")


def maps_of(appliance):
    """The appliance's mappings, except for its stack, which grows."""
    return [(area.begin, area.end, area.rights, area.path)
            for area in memory_areas(f"/proc/{appliance.pid}/smaps") if area.path != "[stack]"]


@test()
def an_appliance_answers_ping_and_datagrams(box):
    wire = Wire(box)
    appliance = EchoAppliance(box, configuration(box, f"af_packet:{wire.near}")).start()
    wire.inside("ping", "-c", "3", "-i", "0.2", "-W", "10", OURS)
    wire.inside("ping", "-c", "3", "-i", "0.2", "-W", "10", OURS6)
    echo(wire.socket(), 300)
    expect_true(appliance.count("received_frames") >= 300, "frames that came are counted")
    # The client may have the last one before the shard counts it.
    wait_for(lambda: appliance.count("sent_datagrams") >= 300, "datagrams that went are counted")
    expect(appliance.count("copied_bytes"), 0, "bytes of datagrams that were copied")
    witness = appliance.stats()["services"]["echo"]
    expect((witness["sent_in_place"], witness["sent_elsewhere"]), (300, 0),
           "where the driver was given datagrams")
    appliance.stop()


@test()
def all_of_dpdk_lies_in_the_pool_and_nothing_changes_after_the_seal(box):
    before = harness.files_below("/run/dpdk", "/var/run/dpdk", "/tmp/dpdk")
    wire = Wire(box)
    appliance = EchoAppliance(box, configuration(box, f"af_packet:{wire.near}")).start()
    client = wire.socket()
    echo(client, 10)
    maps, files = maps_of(appliance), appliance.open_files()
    echo(client, 2000)
    wire.inside("ping", "-c", "3", "-i", "0.2", "-W", "10", OURS)
    expect(maps_of(appliance), maps, "what is mapped after load")
    expect(appliance.open_files(), files, "open files after load")
    pool = 0x108000000000
    for area in memory_areas(f"/proc/{appliance.pid}/smaps"):
        if pool <= area.begin < pool + (512 << 30):
            expect_in("/memfd:", area.path, "a part of the pool's range")
            continue
        expect(area.hugetlb_kib, 0, f"KiB of hugepages beside the pool, at {area.begin:x}")
        if area.inode == 0 and not area.path.startswith("[") and "w" in area.rights:
            expect_true(area.end - area.begin <= 2 * MIB,
                        f"{(area.end - area.begin) // KIB} KiB beside the pool: {area}")
    expect_in("audit                      ok", appliance.box.run(
        PORT_ECHO, "stats", "ports", "--directory", appliance.runtime_directory).stdout, "stats")
    expect(harness.files_below("/run/dpdk", "/var/run/dpdk", "/tmp/dpdk"), before,
           "files of DPDK's")
    expect_in("eal-intr-thread on core", appliance.stats_text(), "stats")
    appliance.stop()


@test()
def a_link_that_goes_down_is_told_and_comes_back(box):
    wire = Wire(box)
    appliance = EchoAppliance(box, configuration(box, f"af_packet:{wire.near}")).start()
    client = wire.socket()
    echo(client, 10)
    wire.inside("ip", "link", "set", wire.far, "down")
    wait_for(lambda: appliance.count("state") == "down", "the link to be down in stats")
    wire.inside("ip", "link", "set", wire.far, "up")
    wait_for(lambda: appliance.count("state") == "up", "the link to be up in stats")
    expect(appliance.count("link_downs"), 1, "how often the link went down")
    for line in ("port wan: the link is down", "port wan: the link is up"):
        expect_in(line, appliance.log_text(), "the log")
    echo(client, 10)
    appliance.stop()


@test()
def an_interface_that_vanishes_is_told_and_the_rest_goes_on(box):
    wire = Wire(box)
    appliance = EchoAppliance(box, configuration(box, f"af_packet:{wire.near}")).start()
    echo(wire.socket(), 10)
    wire.remove()
    wait_for(lambda: appliance.count("state") == "gone", "the port to be gone in stats")
    expect_in("port wan: the device is gone", appliance.log_text(), "the log")
    appliance.stop()


@test(device=["af_packet", "ring"])
def an_idle_port_costs_less_than_a_hundredth_of_a_core(box, device):
    wire = Wire(box)
    appliance = EchoAppliance(box, configuration(box, f"{device}:{wire.near}")).start()
    if device == "af_packet":
        echo(wire.socket(), 10)

    def processor_seconds():
        """The processor time of all its threads, to the nanosecond."""
        tasks = f"/proc/{appliance.pid}/task"
        return sum(int(read_text(f"{tasks}/{task}/schedstat").split()[0])
                   for task in os.listdir(tasks)) / 1e9

    def is_idle():
        began, begin = time.monotonic(), processor_seconds()
        time.sleep(4)
        seconds, passed = processor_seconds() - begin, time.monotonic() - began
        return seconds <= 0.01 * passed

    wait_for(is_idle, "four seconds with less than a hundredth of processor time")
    appliance.stop()


@test()
def what_stands_against_a_port_is_one_line_with_its_cure(box):
    settings = configuration(box, "af_packet:nosuchif")
    settings["port"].append({"name": "lan", "device": "ffff:ff:1f.7"})
    done = box.run(PORT_ECHO, "check", box.write("bad.toml", harness.to_toml(settings)),
                   expect_code=None)
    expect_true(done.returncode != 0, "check refuses")
    expect_in("looking for the device af_packet:nosuchif of the port wan: there is no such network "
              "interface; name one that `ip link` lists", done.stderr, "the report")
    expect_in("looking for the PCI device ffff:ff:1f.7: there is none at this address", done.stderr,
              "the report")


@test()
def doctor_lists_the_drivers(box):
    said = box.run(PORT_ECHO, "doctor", expect_code=None).stdout
    line = re.search(r"ports +drivers: (.*)", said)
    expect_true(line is not None, f"doctor tells the drivers: {said}")
    for driver in ("af_packet", "memif", "ring", "null", "tap"):
        expect_true(driver in line[1].split(), f"{driver} is linked in")
