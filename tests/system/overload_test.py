"""Clients that request too much, too slowly or without end: they affect only themselves.

In each test a bystander is served in parallel, with verified data. Afterwards all resources are
free: connections_open and the server's open files return to their earlier values.
"""

import contextlib
import resource
import socket
import struct

from harness import (BACKENDS, KIB, LAYOUTS, MIB, Failure, Skip, expect, expect_true, test,
                     wait_for)
import raw_nbd as nbd
from raw_nbd import connect, connected, greeted, pattern

CROWD = 1000
TOP_OFFSET = 63 * MIB  # where the bystander works


class Bystander:
    """A client that is served during the whole test. Holds the server's resources before the
    overload."""

    def __init__(self, box, appliance, transport="unix"):
        self.appliance = appliance
        self.client = connect(box, appliance, transport)
        self.round = 0
        self.verify()
        self.connections = appliance.blockd("connections_open")
        self.files = appliance.open_files()

    def verify(self, rounds=1):
        for _ in range(rounds):
            self.round += 1
            self.client.verify(self.round, TOP_OFFSET)

    def expect_resources_back(self):
        for what, wanted, probe in (
                ("connections_open", self.connections,
                 lambda: self.appliance.blockd("connections_open")),
                ("open files", self.files, self.appliance.open_files)):
            try:
                wait_for(lambda: probe() == wanted, what)
            except Failure:
                expect(probe(), wanted, f"{what} of the server after the trouble")
        self.verify()


def allow_open_files(count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise Skip(f"a process may have {hard} open files here; the test needs {count}")
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def send_until_blocked(client, piece, bystander, most_bytes=64 * MIB):
    """Sends `piece` repeatedly until the server takes no more, while it serves others. Returns the
    number of complete pieces, and the unsent rest of the last one."""
    block = piece * 1024
    sent_bytes, before = 0, None
    client.socket.setblocking(False)
    while sent_bytes != before:
        before = sent_bytes
        with contextlib.suppress(BlockingIOError):
            while sent_bytes < most_bytes:
                sent_bytes += client.socket.send(block[sent_bytes % len(block):])
        expect_true(sent_bytes < most_bytes, "the server stops taking requests at some point")
        bystander.verify(5)
    client.socket.settimeout(nbd.BOUND_SECONDS)
    count, rest = divmod(sent_bytes, len(piece))
    return count, piece[rest:] if rest else b""


@test(layout=LAYOUTS, sockets=BACKENDS, transport=["tcp", "unix"])
def never_reads_replies(box, layout, sockets, transport):
    """A flood of reads is answered in full once its client reads. Until then, only this client
    waits."""
    appliance = box.appliance(box.configuration(layout, sockets))
    bystander = Bystander(box, appliance)
    sleeper = connect(box, appliance, transport, receive_buffer_bytes=16 * KIB)
    data = pattern("sleeper", 1 * MIB)
    sleeper.write(0, data)
    count = 64  # of requests in flight: the server takes them all and is stuck with the replies
    for _ in range(count):
        sleeper.request(nbd.READ, 0, len(data))
    bystander.verify(200)
    expect(appliance.blockd("connections_open"), 2, "connections_open meanwhile")
    for _ in range(count):
        reply = sleeper.reply()
        expect_true(not reply.error and reply.data == data, "a late reply is right")
    sleeper.verify("awake")
    sleeper.close()
    bystander.expect_resources_back()
    appliance.stop()


@test(layout=LAYOUTS, sockets=BACKENDS)
def floods_and_never_reads(box, layout, sockets):
    """A client sends requests without end and reads no reply. The server stops taking requests, and
    drops them all when the client disconnects."""
    appliance = box.appliance(box.configuration(layout, sockets, requests_per_connection=4))
    bystander = Bystander(box, appliance)
    data = pattern("flood", 32 * KIB)
    for reads_late in (True, False):
        flooder = connect(box, appliance, receive_buffer_bytes=16 * KIB)
        flooder.write(0, data)
        piece = nbd.request_bytes(nbd.READ, 0, len(data), cookie=7)
        count, rest = send_until_blocked(flooder, piece, bystander)
        if reads_late:
            for index in range(count + bool(rest)):
                if index == count:
                    flooder.send(rest)
                flooder.read_lengths[7] = len(data)
                expect_true(flooder.reply().data == data, "a late reply is right")
            flooder.verify("awake")
        flooder.close()
        bystander.expect_resources_back()
    appliance.stop()


@test()
def never_finishes_the_handshake(box):
    """A client that never finishes the handshake times out, whatever it sends. An idle client in
    transmission never does."""
    appliance = box.appliance(box.configuration(handshake_timeout_ms=5000))
    bystander = Bystander(box, appliance)
    silent = connected(box, appliance)
    half = connected(box, appliance, "tcp")
    half.send(b"\0\0")
    stuck = greeted(box, appliance)
    stuck.send(nbd.option_bytes(nbd.GO, b"\0\0\0", 100))
    deaf = greeted(box, appliance)
    deaf.socket.setblocking(False)
    with contextlib.suppress(BlockingIOError, ConnectionError):
        while True:
            deaf.socket.send(nbd.option_bytes(nbd.LIST) * 100)
    deaf.socket.settimeout(nbd.BOUND_SECONDS)
    chatty = greeted(box, appliance)
    with contextlib.suppress(nbd.Disconnected):
        while True:  # ends when the server disconnects, or by the test's own bound
            expect(chatty.option_result(nbd.LIST), nbd.REP_ACK, "the answer to LIST")
    for client, what in ((silent, "silence"), (half, "half the flags"), (stuck, "half an option")):
        client.expect_disconnect(f"{what} for longer than the handshake may take")
    deaf.expect_disconnect("many options and no reply read", 64 * MIB)
    bystander.expect_resources_back()
    expect(appliance.blockd("handshake_timeouts"), 5, "handshake_timeouts")


def crowd_of(box, appliance, count, transport):
    """Connects `count` clients, none of which has read or sent anything yet."""
    return [connected(box, appliance, transport) for _ in range(count)]


def is_greeted(client):
    """True if the server greets; False if it closes the connection at once."""
    with contextlib.suppress(nbd.Disconnected):
        client.greet()
        return True
    return False


@test(layout=LAYOUTS, sockets=BACKENDS, transport=["tcp", "unix"])
def too_many_connections(box, layout, sockets, transport):
    """1,000 clients where 64 are allowed: 64 are served, the others are closed at once."""
    allow_open_files(4 * CROWD)
    appliance = box.appliance(box.configuration(layout, sockets))
    bystander = Bystander(box, appliance)
    refused = appliance.blockd("connections_refused")
    crowd = crowd_of(box, appliance, CROWD, transport)
    bystander.verify(20)
    served = [client for client in crowd if is_greeted(client)]
    expect(len(served), 63, "clients of the crowd that were greeted")
    expect(appliance.blockd("connections_open"), 64, "connections_open")
    expect(appliance.blockd("connections_refused") - refused, CROWD - 63, "connections_refused")
    for client in served:
        expect(client.go().read(0, 512), bytes(512), "the data of one in the crowd")
    bystander.verify(20)
    for client in crowd:
        client.close()
    bystander.expect_resources_back()
    connect(box, appliance, transport).verify("a newcomer afterwards")
    appliance.stop()


@test(layout=LAYOUTS, sockets=BACKENDS)
def a_thousand_connections(box, layout, sockets):
    """1,000 clients where as many are allowed, all at work at once, over TCP and Unix."""
    allow_open_files(4 * CROWD)
    configuration = box.configuration(layout, sockets, max_connections=CROWD + 1,
                                      requests_per_connection=4)
    appliance = box.appliance(configuration)
    bystander = Bystander(box, appliance)
    crowd = [client for transport in ("tcp", "unix")
             for client in crowd_of(box, appliance, CROWD // 2, transport)]
    for client in crowd:
        client.greet().go()
    bystander.verify(20)
    expect(appliance.blockd("connections_open"), CROWD + 1, "connections_open")
    for index, client in enumerate(crowd):
        client.request(nbd.WRITE, index * 4096, payload=pattern(index, 4096))
    bystander.verify()
    for client in crowd:
        expect(client.reply().error, 0, "the error of a write of the crowd")
    for index, client in enumerate(crowd):
        client.request(nbd.READ, (CROWD - 1 - index) * 4096, 4096)
    for index, client in enumerate(crowd):
        expect_true(client.reply().data == pattern(CROWD - 1 - index, 4096),
                    f"client {index} reads what another wrote")
    for client in crowd:
        client.close()
    bystander.expect_resources_back()
    appliance.stop()


@test(sockets=BACKENDS)
def comes_and_goes(box, sockets):
    """2,000 connections one after the other, ended in every way, leave nothing behind."""
    appliance = box.appliance(box.configuration(sockets=sockets, max_connections=8))
    bystander = Bystander(box, appliance, "tcp")
    farewells = [
        lambda client: None,
        lambda client: client.send(b"\0"),
        lambda client: client.greet(),
        lambda client: client.greet().option_result(nbd.ABORT),
        lambda client: client.greet().go().send(nbd.request_bytes(nbd.DISC)),
        lambda client: client.greet().go().request(nbd.READ, 0, 8 * MIB),
        lambda client: client.greet().go().send(nbd.request_bytes(nbd.WRITE, 0, MIB) + b"half"),
        lambda client: client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                                struct.pack("ii", 1, 0)),
    ]
    for index in range(2000):
        with nbd.RawClient(appliance.address("tcp" if index % 16 < 8 else "unix")) as client:
            # A refusal is allowed while the server has not yet noticed that others have
            # disconnected.
            with contextlib.suppress(nbd.Disconnected):
                farewells[index % len(farewells)](client)
        if index % 50 == 0:
            bystander.verify()
    bystander.expect_resources_back()
    appliance.stop()
