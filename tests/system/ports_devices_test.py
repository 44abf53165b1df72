"""Ports over each kind of device that needs no hardware: af_packet, af_xdp, tap and memif.

The kernel's end of each is in a network namespace of the test's own. The appliance with a
tap also runs in it, and makes its interface there. A memif connects two appliances: one forwards
frames from the namespace, the other answers.
"""

import contextlib
import os
import signal
import socket
import struct
import threading
import time

from harness import (BOUND_SECONDS, Failure, Skip, expect, expect_in, expect_true, read_text, test, wait_for)
from ports_test import OURS, PORT, THEIRS, EchoAppliance, Wire, configuration, echo, find_values

BROKEN_PACKETS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "transport", "dpdk",
                              "net", "broken_packets.py")
AF_XDP = 44
SO_NO_CHECK = 11
GROUP, ANSWERS = "239.1.2.3", "239.1.2.4"
WHILE_IDLE_SECONDS = 4


def need_xdp():
    try:
        socket.socket(AF_XDP, socket.SOCK_RAW, 0).close()
    except OSError as error:
        raise Skip(f"AF_XDP: {error.strerror}") from None


def inside(appliance, wire):
    """Makes the appliance run in the namespace."""
    appliance.argv[:0] = ["nsenter", "--net", f"--target={wire.holder.pid}"]
    return appliance


def started(box, device, **port):
    """Starts an appliance whose port is of that kind. Returns it, and a socket at the other end."""
    wire = Wire(box)
    if device == "af_xdp":
        need_xdp()
    if device != "tap":
        return EchoAppliance(box, configuration(box, f"{device}:{wire.near}", **port)).start(), \
            wire.socket()
    tap = f"bpt{os.getpid() % 100000}"
    wire.inside("ip", "addr", "flush", "dev", wire.far)
    appliance = inside(EchoAppliance(box, configuration(box, f"tap:{tap}", **port)), wire).start()
    wire.inside("ip", "addr", "add", f"{THEIRS}/24", "dev", tap)
    return appliance, wire.socket()


@test(device=["af_packet", "af_xdp", "tap"])
def datagrams_come_back(box, device):
    appliance, client = started(box, device)
    echo(client, 500)
    expect_true(appliance.count("received_frames") >= 500, "frames that came are counted")
    expect(appliance.audit(), "ok", "the audit of the pool")
    appliance.stop()


@test(device=["af_packet", "af_xdp", "tap"])
def a_frame_wakes_an_idle_shard(box, device):
    appliance, client = started(box, device)
    echo(client, 10)  # both ends know each other's address
    expect_in("port wan: frames wake an idle shard", appliance.log_text(), "the log")

    def wakes():
        return max(find_values(appliance.stats(), "wakes"))

    for _ in range(5):
        before = wakes()

        def woken():
            echo(client, 1)
            return wakes() > before
        wait_for(woken, "a datagram that wakes the shard")
    # The shard does not wake by itself to poll the port.
    sleeps = find_values(appliance.stats(), "sleeps")[0]
    time.sleep(WHILE_IDLE_SECONDS)
    looks = find_values(appliance.stats(), "sleeps")[0] - sleeps
    expect_true(looks < 100, f"the idle shard slept {looks} times in {WHILE_IDLE_SECONDS} s")
    appliance.stop()


@test()
def the_address_of_a_tap_is_the_configurations(box):
    appliance, client = started(box, "tap", mac="02:00:00:00:07:07")
    echo(client, 10)
    holder = next(process for process in box.processes if process.args[0] == "unshare")
    known = box.run("nsenter", "--net", f"--target={holder.pid}", "ip", "neigh", "show", OURS).stdout
    expect_in("02:00:00:00:07:07", known, "what the kernel knows of the port")
    appliance.stop()


@test()
def broken_packets_are_dropped_and_counted_by_cause(box):
    """The broken packets of the packet layer's test come through a tap. On other interfaces the
    kernel reassembles fragments and removes tags."""
    wire = Wire(box)
    tap = f"bpt{os.getpid() % 100000}"
    # The kernel sends no packets of its own at its end.
    wire.inside("sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6")
    box.run("/usr/bin/python3", BROKEN_PACKETS, "capture", "causes")
    with open(box.path("causes"), encoding="ascii") as file:
        expected = {name: int(count) for name, count in (line.split() for line in file)}
    del expected["none"]
    expected["no-socket"] += 2  # complete packets of IPv6
    settings = configuration(box, f"tap:{tap}", mac="02:00:00:00:00:01")
    settings["echo"]["local"] = "0.0.0.0:5004"
    appliance = inside(EchoAppliance(box, settings), wire).start()
    wire.inside("ip", "link", "set", tap, "up")
    sender = wire.make(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
    sender.bind((tap, 0))
    with open(box.path("capture"), "rb") as file:
        file.seek(24)
        while head := file.read(16):
            frame = file.read(struct.unpack_from("<I", head, 8)[0])
            if len(frame) >= 14:
                sender.send(frame)
            else:  # an interface sends no shorter frame
                expected["too-short"] -= 1

    def counted():
        drops = appliance.stats()["services"]["port"]["net"]["wan/main"]
        return {name: drops[f"drop_{name.replace('-', '_')}"] for name in expected}

    with contextlib.suppress(Failure):
        wait_for(lambda: counted() == expected, "all of them")
    expect(counted(), expected, "what was dropped, by cause")
    appliance.stop()


# ---- multicast ----

@test(device=["af_packet"])
def groups_are_received_and_sent_to(box, device):
    wire = Wire(box)
    settings = configuration(box, f"{device}:{wire.near}")
    settings["echo"].update(group=GROUP, answer_to=f"{ANSWERS}:{PORT}")
    appliance = EchoAppliance(box, settings).start()
    listener, sender = wire.socket(), wire.socket()
    listener.bind(("0.0.0.0", PORT))
    here = socket.inet_aton(THEIRS)
    listener.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                        socket.inet_aton(ANSWERS) + here)
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, here)
    for i in range(200):
        datagram = struct.pack("<Q", i) * 100
        sender.sendto(datagram, (GROUP, PORT))
        expect(listener.recv(65536), datagram, f"datagram number {i} of the group")
    # A datagram to another group reaches no socket.
    before = max(find_values(appliance.stats(), "received_datagrams"))
    sender.sendto(b"to nobody", ("239.1.2.5", PORT))
    sender.sendto(b"the last one", (GROUP, PORT))
    expect(listener.recv(65536), b"the last one", "what follows")
    expect(max(find_values(appliance.stats(), "received_datagrams")), before + 1,
           "datagrams that came to sockets")
    appliance.stop()


# ---- memif: frames from the namespace go over it to another appliance, and back ----

class Forwarder(EchoAppliance):
    """Two ports that forward to one another: an interface and a memif."""

    def __init__(self, box, interface, path, role):
        cpus = sorted(os.sched_getaffinity(0))
        super().__init__(box, {
            "appliance": {"name": "forwarder", "runtime_directory": box.path("forwarder")},
            "pool": {"bytes": "256 MiB", "pages": "2 MiB"},
            "shard": [{"name": "main", "cpu": cpus[-1]}],
            "port": [{"name": "outside", "device": f"af_packet:{interface}",
                      "forward_to": "between"},
                     {"name": "between", "device": f"memif:{path}", "role": role,
                      "forward_to": "outside"}],
        }, "forwarder.toml")


def plain_socket(wire):
    """Returns a socket whose datagrams have no checksum. The kernel leaves the checksum of others
    to the device, and a memif, unlike the kernel's interfaces, does not take an incomplete one."""
    made = wire.socket()
    made.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
    return made


OTHER = {"client": "server", "server": "client"}


def memif_pair(box, role):
    """Starts the appliance that answers. Returns it, the wire, and a function that creates the
    other one."""
    wire = Wire(box)
    path = box.path("memif.sock")
    answers = EchoAppliance(box, configuration(box, f"memif:{path}", role=role)).start()
    return answers, wire, lambda: Forwarder(box, wire.near, path, OTHER[role])


@test(role=["client", "server"])
def a_memif_connects_whoever_comes_first(box, role):
    answers, wire, forwarder = memif_pair(box, role)
    expect(answers.count("state"), "down", "the state of a memif without a peer")
    other = forwarder().start()
    wait_for(lambda: answers.count("state") == "up", "the memif to be connected")
    echo(plain_socket(wire), 500)
    other.stop()
    wait_for(lambda: answers.count("state") == "down", "the memif to be down")
    answers.stop()


@test(role=["client", "server"])
def a_memif_whose_peer_is_killed_in_a_flood_comes_back(box, role):
    answers, wire, forwarder = memif_pair(box, role)
    client = plain_socket(wire)
    for _ in range(3):
        other = forwarder().start()
        wait_for(lambda: answers.count("state") == "up", "the memif to be connected")
        before = max(find_values(answers.stats(), "received_frames"))
        with Flood(client):
            wait_for(lambda seen=before: max(find_values(answers.stats(), "received_frames"))
                     > seen + 5000, "frames that come by the memif")
            other.process.send_signal(signal.SIGKILL)
            other.process.wait(BOUND_SECONDS)
        wait_for(lambda: answers.count("state") == "down", "the memif to be down")
        answers.expect_alive()
    other = forwarder().start()
    wait_for(lambda: answers.count("state") == "up", "the memif to be connected")
    echo(plain_socket(wire), 100)
    other.stop()
    answers.stop()


@test()
def a_file_where_a_memif_would_listen_stays(box):
    path = box.write("precious", "words")
    appliance = EchoAppliance(box, configuration(box, f"memif:{path}", role="server"))
    appliance.ensure_hugepages()
    done = box.run(*appliance.argv, expect_code=None)
    expect_true(done.returncode > 0, "the boot is refused")
    expect_in(f"memif:{path}", done.stderr, "what it says")
    expect(read_text(path), "words", "the file")


class Flood:
    """Sends datagrams without a pause until it is closed."""

    def __init__(self, client):
        self._client = client
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def _send(self):
        while not self._ends.is_set():
            for _ in range(64):
                self._client.sendto(bytes(1000), (OURS, PORT))

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join()
