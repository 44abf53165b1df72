"""A relay loses interfaces, addresses and routes, and gets them back. It runs in a network
namespace of the test's own, at the far end of a cable."""

import random
import socket
import struct

from harness import expect, expect_in, expect_true, test, to_toml, wait_for
from other_host import OtherHost
from relay_rig import TS_BYTES, Receiver, free_ports, output, rtp, sender, start

PAYLOAD = bytes([0x47]) + bytes(TS_BYTES - 1)


class Wire:
    """A relay behind a cable, with its sender and its receiver."""

    def __init__(self, box, is_named=True):
        self.box, self.host = box, OtherHost(box)
        # The limit of one membership reveals memberships of deleted interfaces that were not
        # dropped.
        self.inside("sysctl", "-q", "-w", "net.ipv4.igmp_max_memberships=1")
        self.route()
        self.port, number = free_ports(4), random.randrange(1, 255)
        self.group, self.out_group = f"239.255.{number}.1", f"239.255.{number}.2"
        self.sent = 0
        interface = {"interface": self.host.far} if is_named else {}
        self.relay = start(box, [{"address": f"{self.group}:{self.port}", **interface},
                                 {"address": f"{self.host.far_address}:{self.port + 1}"}],
                           [{"to": f"{self.out_group}:{self.port + 2}",
                             "interface": self.host.far}],
                           argv_prefix=("ip", "netns", "exec", self.host.name),
                           window_ms=50, sender_timeout_ms=200)

    def inside(self, *argv):
        self.box.run("ip", "netns", "exec", self.host.name, *argv)

    def route(self):
        self.inside("ip", "route", "add", "239.0.0.0/8", "dev", self.host.far)

    def expect_all(self, what):
        """Checks that packets arrive by both legs, and leave by the output."""
        out = sender(self.box)
        out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF,
                       socket.inet_aton(self.host.near_address))
        receiver = Receiver(self.box, self.port + 2, self.out_group)
        receiver.socket.setsockopt(
            socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
            struct.pack("4s4s", socket.inet_aton(self.out_group),
                        socket.inet_aton(self.host.near_address)))
        before = [self.relay.leg("packets", leg) for leg in (0, 1)]

        def come():
            for to in ((self.group, self.port), (self.host.far_address, self.port + 1)):
                out.sendto(rtp(self.sent, PAYLOAD), to)
            self.sent += 1
            receiver.drain()
            return receiver.datagrams and all(
                self.relay.leg("packets", leg) > before[leg] for leg in (0, 1))

        wait_for(come, f"packets by both legs and the output, {what}")
        receiver.socket.close()
        out.close()


@test(by=["name", "routes"])
def interfaces_come_back(box, by):
    """An interface that is deleted and created again has the same name and another number. The
    relay joins the group on it, whether the leg or the routes name it, and sends multicast over
    it."""
    wire = Wire(box, is_named=by == "name")
    wire.expect_all("at first")
    for time in range(2):
        wire.host.pull_out(box)
        wait_for(lambda: wire.relay.log_text().count("the interface is gone") > time,
                 "the interface that is gone to be told")
        wait_for(lambda: wire.relay.part("legs", "news/0")["comes"] == "no interface",
                 "the leg's word")
        wire.host.plug_in(box)
        wire.route()
        wire.expect_all(f"after time {time}")
    expect_in("continues on interface", wire.relay.log_text(), "what the log says")
    wire.relay.stop()


@test()
def addresses_and_links_come_back(box):
    """A link goes down and up; an address, and then a route, is removed and added. The relay
    recovers."""
    wire = Wire(box)
    ip = ("ip", "link", "set", wire.host.far)
    address = f"{wire.host.far_address}/30"
    for take, give in [
            ([(*ip, "down")], [(*ip, "up")]),
            ([("ip", "address", "del", address, "dev", wire.host.far)],
             [("ip", "address", "add", address, "dev", wire.host.far)]),
            ([("ip", "route", "del", "239.0.0.0/8")], [])]:
        wire.expect_all(f"before {take}")
        for command in take:
            wire.inside(*command)
        wait_for(lambda: wire.relay.leg("is_silent", 0), "silence")
        for command in give:
            wire.inside(*command)
        box.run("ip", "netns", "exec", wire.host.name, "ip", "route", "add", "239.0.0.0/8", "dev",
                wire.host.far, expect_code=None)
        wire.expect_all(f"after {take}")
    wire.relay.stop()


@test()
def what_a_silent_leg_drops_is_said(box):
    """The log and the alerts have the cause and the cure, and not only that nothing arrives."""
    receiver = Receiver(box)
    port = free_ports(2)
    relay = start(box, [{"address": f"127.0.0.1:{port}"}], [output(receiver)],
                  sender_timeout_ms=200)
    out = sender(box)

    def is_said():
        out.sendto(bytes([0x47]) * 1472, ("127.0.0.1", port))  # ffmpeg's default size
        alerts = [alert for alert in relay.stats()["signs"]
                  if alert["of"] == "tsrelay legs news/0"]
        return "pkt_size=1316" in relay.log_text() and len(alerts) >= 2 and alerts

    alerts = []
    wait_for(lambda: alerts.append(is_said()) or alerts[-1], "the cause")
    said = " ".join(alert["says"] for alert in alerts[-1])
    expect_in("pkt_size=1316", said, "an alert's cure")
    expect_true("comes" in [alert["counter"] for alert in alerts[-1]],
                f"the state raises one: {alerts}")
    relay.stop()


@test()
def broadcast_is_asked_for(box):
    """An output to a broadcast address is used if the configuration allows it. Otherwise `check`
    and `run` refuse it."""
    port = free_ports(2)
    receiver = Receiver(box, address="")
    leg, out = [{"address": f"127.0.0.1:{port}"}], {"to": f"127.255.255.255:{receiver.port}"}
    config = box.write("bad.toml", to_toml({
        "appliance": {"name": "bad", "runtime_directory": box.path("bad")},
        "pool": {"bytes": "128 MiB", "pages": "4 KiB"}, "shard": [{"name": "main", "cpu": 0}],
        "tsrelay": {"stream": [{"name": "news", "leg": leg, "output": [out]}]}}))
    for command in ("check", "run"):
        done = box.bedplate(command, config, expect_code=None)
        expect_true(done.returncode != 0, f"{command} refuses it")
        expect_in("broadcast = true", done.stderr, "the cure")
    relay = start(box, leg, [{**out, "broadcast": True, "name": "all"}])
    sender(box).sendto(rtp(1, PAYLOAD), ("127.0.0.1", port))
    receiver.wait_for(1)
    expect(relay.output("refused", "all"), 0, "packets that were refused")
    relay.stop()
