"""`bedplate trace`: the last requests, and the station that the test makes slow."""

import json
import os
import re
import shutil
import signal
import socket
import time

import kvd_test
import raw_nbd
import relay_rig
from fuse_file import FSYNC, READ, FuseFile
from harness import (BACKENDS, BEDPLATE, KIB, LAYOUTS, MIB, expect, expect_in, expect_true,
                     need_tools, read_text, test, wait_for)
from raw_nbd import connect

REPOSITORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
HELD_NS = 300_000_000
STATIONS = ["received", "granted", "queued", "begun", "done", "answered", "sent"]


def trace(box, appliance, *options, **how):
    return box.bedplate("trace", *options, "--directory", appliance.runtime_directory, **how)


def traced(box, appliance, *options):
    return [json.loads(line)
            for line in trace(box, appliance, "--json", *options).stdout.splitlines()]


def start(box, layout="one_shard", **appliance_keys):
    configuration = box.configuration(layout)
    configuration["control"] = {}
    configuration["appliance"].update(appliance_keys)
    return box.appliance(configuration)


def hold(box, appliance, is_on):
    box.bedplate("ctl", "blockd.hold", "volume=ram0", f"on={json.dumps(is_on)}", "--directory",
                 appliance.runtime_directory)


def step(request, station):
    """The time from the previous station."""
    names = list(request["stations"])
    before = names[names.index(station) - 1]
    return request["stations"][station] - request["stations"][before]


def expect_slow(request, station):
    expect_true(step(request, station) >= HELD_NS, f"not slow on the way to {station}: {request}")
    # If the machine stops for that long, another station may be even slower.
    expect(step(request, request["slowest"]),
           max(step(request, name) for name in list(request["stations"])[1:]), "the slowest")


@test(layout=list(LAYOUTS))
def requests_are_told_with_their_stations(box, layout):
    """Requests of each kind are printed in the order in which they ended."""
    appliance = start(box, layout)
    client = connect(box, appliance)
    client.write(0, bytes(1 * MIB))  # is granted a destination
    client.write(4096, b"x" * 4096)  # only its header is read ahead, so it is granted one, too
    client.read(0, 8192)
    expect(client.error(raw_nbd.READ, 1 << 40, 4096), raw_nbd.EINVAL, "a read behind the end")
    expect(client.error(raw_nbd.FLUSH), 0, "a flush")
    wait_for(lambda: len(traced(box, appliance)) == 5, "five requests that were sent")
    seen = traced(box, appliance, "--service", "blockd")
    expect([one["kind"] for one in seen], ["write", "write", "read", "read", "flush"], "the kinds")
    expect([one["bytes"] for one in seen], [1 * MIB, 4096, 8192, 4096, 0], "their sizes")
    expect([one["handle"] for one in seen], [1, 2, 3, 4, 5], "what the client calls them")
    expect([one["number"] for one in seen], [1, 2, 3, 4, 5], "their order")
    expect({one["subject"] for one in seen}, {"ram0"}, "the volume")
    expect({one["shard"] for one in seen}, {list(LAYOUTS[layout])[0]}, "where they ended")
    usual = [name for name in STATIONS if name != "granted"]
    expect([list(one["stations"]) for one in seen],
           [STATIONS, STATIONS, usual, ["received", "answered", "sent"], usual], "their stations")
    for one in seen:
        expect(one["total_ns"], one["stations"]["sent"], "the whole")


@test(layout=list(LAYOUTS), sockets=BACKENDS)
def a_slow_store_is_seen(box, layout, sockets):
    """A request that the file system keeps waiting is slow between begun and done."""
    with FuseFile(box, bytes(1 * MIB)) as fuse:
        configuration = box.configuration(layout, sockets)
        configuration["blockd"]["volume"] = [{"name": "disk", "file": fuse.path}]
        appliance = box.appliance(configuration)
        client = connect(box, appliance, volume="disk")
        client.write(0, b"x" * 4096)
        for request, action in [(raw_nbd.READ, READ), (raw_nbd.FLUSH, FSYNC)]:
            with fuse.held(action):
                client.request(request, 0, 4096 if request == raw_nbd.READ else 0)
                wait_for(lambda: appliance.stats()["services"]["blockd"]["stores"]["disk"]
                         ["operations"] == 1, "the store works")
                time.sleep(HELD_NS / 1e9)  # at least this slow
            expect(client.reply().error, 0, "the answer")
        wait_for(lambda: len(traced(box, appliance)) == 3, "all were sent")
        slow = [one for one in traced(box, appliance, "--slower-than", "290ms")
                if one["number"] > 1]
        expect([(one["kind"], one["subject"]) for one in slow],
               [("read", "disk"), ("flush", "disk")], "those that are slow")
        for one in slow:
            expect_slow(one, "done")
        client.close()
        appliance.stop()


@test(layout=list(LAYOUTS))
def a_volume_on_hold_is_seen(box, layout):
    """A request to a volume on hold is slow between queued and begun."""
    appliance = start(box, layout)
    client = connect(box, appliance)
    client.read(0, 512)
    hold(box, appliance, True)
    client.request(raw_nbd.READ, 0, 4096)
    wait_for(lambda: appliance.blockd("requests_read") == 2, "the request")
    time.sleep(HELD_NS / 1e9)  # at least this slow
    hold(box, appliance, False)
    expect(client.reply().error, 0, "the answer")
    wait_for(lambda: len(traced(box, appliance)) == 2, "it was sent")
    request, = [one for one in traced(box, appliance, "--slower-than", "290ms")
                if one["number"] == 2]
    expect_slow(request, "begun")
    text = trace(box, appliance, "--service", "blockd", "--slower-than", "290ms").stdout
    expect_in("blockd read ram0, 4 KiB, 0x2, shard ", text, "the line")
    if request["slowest"] == "begun":
        expect_in("ms of it from queued to begun\n", text, "where the time went")


@test(layout=list(LAYOUTS))
def a_slow_client_is_seen(box, layout):
    """A read whose client does not take the answer is slow between answered and sent."""
    appliance = start(box, layout)
    client = connect(box, appliance)
    client.request(raw_nbd.READ, 0, 16 * MIB)
    wait_for(lambda: appliance.blockd("read_ns")["count"] == 1, "the answer")
    time.sleep(HELD_NS / 1e9)
    expect(client.reply().error, 0, "the answer")
    wait_for(lambda: len(traced(box, appliance)) == 1, "it was sent")
    expect_slow(traced(box, appliance)[0], "sent")


@test()
def a_slow_upload_is_seen(box):
    """A write whose payload comes late is slow between granted and queued."""
    appliance = start(box)
    client = connect(box, appliance)
    header = raw_nbd.request_bytes(raw_nbd.WRITE, 0, 1 * MIB, b"", cookie=1)
    client.send(header)
    wait_for(lambda: appliance.granted() == 1, "its destination")
    time.sleep(HELD_NS / 1e9)
    client.send(bytes(1 * MIB))
    expect(client.reply().error, 0, "the answer")
    wait_for(lambda: len(traced(box, appliance)) == 1, "it was sent")
    expect_slow(traced(box, appliance)[0], "queued")


@test(sockets=BACKENDS)
def a_slow_client_of_kvd_is_seen(box, sockets):
    """A client of kvd does not read its answers. The requests of one send are one record."""
    appliance = kvd_test.start(box, sockets)
    client = kvd_test.Client(box, appliance, "unix", receive_buffer_bytes=4096)
    expect(client.store(b"long", bytes(1 * MIB)), b"STORED\r\n", "a set")
    client.send(b"get long\r\n" * 8)
    wait_for(lambda: appliance.counter("hits") > 0, "the first get")
    time.sleep(HELD_NS / 1e9)
    for _ in range(8):
        head = client.line().split()
        client.input.read(int(head[3]) + 2)
        expect(client.line(), b"END\r\n", "the end of a get")
    wait_for(lambda: sum(one["handle"] for one in traced(box, appliance, "--service", "kvd")
                         if one["kind"] == "get") == 8, "all were sent")
    seen = traced(box, appliance)
    expect([one["kind"] for one in seen[:2]], ["set", "get"], "the first two")
    expect({tuple(one["stations"]) for one in seen}, {("received", "answered", "sent")}, "stations")
    expect_slow(seen[1], "sent")


@test()
def a_packet_that_waits_for_another_is_seen(box):
    """Two packets behind a gap are slow between arrived and ordered. The packet that fills the gap
    is not."""
    out = box.closing.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    out.bind(("127.0.0.1", 0))
    receiver = relay_rig.Receiver(box)
    port = relay_rig.free_ports(1)
    relay = relay_rig.start(box, [{"address": f"127.0.0.1:{port}"}], [relay_rig.output(receiver)])
    payloads = relay_rig.payloads_of(relay_rig.generate(box, 1))

    def send(number):
        out.sendto(relay_rig.rtp(number, payloads[number]), ("127.0.0.1", port))
    send(0)
    receiver.wait_for(1)
    send(2)
    send(3)
    wait_for(lambda: relay.stream("held") == 2, "those that wait")
    time.sleep(HELD_NS / 1e9)
    send(1)
    receiver.wait_for(4)
    wait_for(lambda: len(traced(box, relay)) == 4, "all were taken")
    seen = traced(box, relay, "--service", "tsrelay")
    expect([(one["handle"], one["subject"], one["kind"]) for one in seen],
           [(number, "news", "received") for number in range(4)], "the packets")
    expect({tuple(one["stations"]) for one in seen}, {("arrived", "ordered", "taken")}, "stations")
    for one in seen[2:]:
        expect_slow(one, "ordered")


@test()
def only_what_is_asked_for_is_told(box):
    """Filters select the requests of one service, and those slower than a given time."""
    configuration = box.configuration()
    configuration["kvd"] = {"listen": [f"unix:{box.path('kvd.sock')}"], "cache_bytes": "16 MiB"}
    appliance = box.appliance(configuration)
    connect(box, appliance).read(0, 512)
    other = box.closing.enter_context(socket.socket(socket.AF_UNIX))
    other.connect(box.path("kvd.sock"))
    other.sendall(b"get nothing\r\n")
    expect(other.recv(100), b"END\r\n", "a get")
    wait_for(lambda: len(traced(box, appliance)) == 2, "both were sent")
    for service, kind in (("blockd", "read"), ("kvd", "get")):
        seen = traced(box, appliance, "--service", service)
        expect([(one["service"], one["kind"]) for one in seen], [(service, kind)], service)
    # More than a record can hold.
    expect(traced(box, appliance, "--slower-than", "300s"), [], "those slower than five minutes")
    expect(len(traced(box, appliance, "--slower-than", "0s")), 2, "those that took any time")


@test(layout=list(LAYOUTS))
def a_client_that_goes_leaves_what_was_answered(box, layout):
    """Requests behind an answer that the client does not read are printed with the stations that
    they reached."""
    appliance = start(box, layout)
    client = connect(box, appliance, receive_buffer_bytes=16 * KIB)
    client.request(raw_nbd.READ, 0, 16 * MIB)
    wait_for(lambda: appliance.blockd("read_ns")["count"] == 1, "the first answer")
    client.request(raw_nbd.READ, 0, 512)
    wait_for(lambda: appliance.blockd("requests_read") == 2, "the second request")
    connect(box, appliance).read(0, 1024)  # takes the same path, after it
    client.close()
    wait_for(lambda: len(traced(box, appliance)) == 3, "all three")
    usual = [name for name in STATIONS if name != "granted"]
    expect({one["bytes"]: list(one["stations"]) for one in traced(box, appliance)},
           {1024: usual, 16 * MIB: usual[:-1], 512: usual[:-2]}, "their stations")


@test()
def it_follows_until_the_appliance_ends(box):
    appliance = start(box)
    client = connect(box, appliance)
    client.read(0, 512)
    follow = box.spawn([BEDPLATE, "trace", "--json", "--follow", "--directory",
                        appliance.runtime_directory], "follow.log",
                       stdout=open(box.path("followed"), "w"))

    def followed():
        with open(box.path("followed")) as file:
            return [json.loads(line)["number"] for line in file]
    wait_for(lambda: followed() == [1], "the one before")
    client.read(0, 512)
    wait_for(lambda: followed() == [1, 2], "the next one")
    client.close()
    appliance.stop()
    expect(follow.wait(), 0, "that of trace")
    expect(followed(), [1, 2], "each once")


@test()
def a_crash_leaves_them(box):
    """The last requests are in the file that a crash leaves, and in any copy of it."""
    appliance = start(box)
    connect(box, appliance).read(0, 512)
    wait_for(lambda: len(traced(box, appliance)) == 1, "it was sent")
    appliance.process.send_signal(signal.SIGKILL)
    appliance.process.wait()
    expect([one["kind"] for one in traced(box, appliance)], ["read"], "what is left")
    copy = box.path("copy.stats")
    shutil.copy(os.path.join(appliance.runtime_directory, "test.stats"), copy)
    expect_in("blockd read ram0, 512 bytes", box.bedplate("trace", "--from", copy).stdout, "the copy")
    os.truncate(copy, os.path.getsize(copy) - 64)
    done = box.bedplate("trace", "--from", copy, expect_code=1)
    expect_in("it was truncated: ", done.stderr, "of a copy that is cut")
    foreign = box.write("foreign.stats", "x" * 4096)
    done = box.bedplate("trace", "--from", foreign, expect_code=1)
    expect_in("the file is incomplete, or not a counters file", done.stderr, "of a foreign one")
    expect(len(done.stderr.splitlines()), 1, "the lines of the message")


@test()
def it_may_be_left_out(box):
    appliance = start(box, trace_requests=0)
    connect(box, appliance).read(0, 512)
    done = trace(box, appliance, expect_code=1)
    expect_in("it has none; set [appliance] trace_requests above 0", done.stderr, "the message")


@test()
def what_makes_no_sense_is_refused(box):
    appliance = start(box)
    for wrong in ("2", "ms", "2 ms", "-2ms", "2m", "12345678901ms", ""):
        done = trace(box, appliance, "--slower-than", wrong, expect_code=2)
        expect_in("--slower-than takes a time such as 500us, 2ms or 1s, not", done.stderr, wrong)
    done = trace(box, appliance, "--service", "none", expect_code=2)
    expect_in("looking for requests of none: the appliance traces those of: blockd", done.stderr,
              "the message")


def probes_of(box, program):
    """{name: its numbers of arguments} of the probes of the provider bedplate."""
    need_tools("readelf")
    notes = box.run("readelf", "--wide", "--notes", program,
                    env={**os.environ, "LC_ALL": "C"}).stdout
    found = {}
    for name, arguments in re.findall(
            r"Provider: bedplate\n\s*Name: (\w+)\n.*\n\s*Arguments:(.*)", notes):
        found.setdefault(name, set()).add(len(arguments.split()))
    return found


@test()
def probes_are_those_of_the_document(box):
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", read_text(os.path.join(REPOSITORY,
                                                                          "docs/trace.md")), re.M)
    expect_true(len(rows) > 0, "docs/trace.md has no table of probes")
    expect(probes_of(box, BEDPLATE), {name: {len(arguments.split(","))} for name, arguments in rows},
           "the probes of the program")
