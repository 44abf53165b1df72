"""Limits of kvd's listeners, changed by `ctl` while clients read and write.

No test waits for a budget. A value of 1 MiB at 4 KiB a second leaves a debt of minutes: further
requests go when the limit is changed.
"""

import select

from harness import (BACKENDS, KIB, MIB, expect, expect_in, expect_true, free_port, test, wait_for)
from http_test import get
from kvd_test import Client, start

VALUE = bytes(MIB)


def begin(box, sockets, **tables):
    return start(box, sockets, {"control": {}, **tables})


def listener_of(appliance, transport):
    return next(one for one in appliance.configuration["kvd"]["listen"]
                if one.startswith(transport + ":"))


def limits_of(appliance, listener):
    return appliance.counter("listener_limits")[listener]


def waiting(appliance, listener):
    return limits_of(appliance, listener)["reads_waiting"]


def spend(client):
    """Uses up the budget of bytes to read."""
    expect_true(client.get(b"big") == VALUE, "the first read")


def expect_silence(client):
    expect(select.select([client.socket], [], [], 0.2)[0], [], "what comes while it waits")


@test(sockets=BACKENDS)
def requests_wait_for_their_listener(box, sockets):
    """Reads over the limit wait in their order, and so do their clients; other listeners go on. The
    end of the limit releases all. Counters, top and /metrics show it."""
    port = free_port()
    appliance = begin(box, sockets, http={"listen": [f"tcp:127.0.0.1:{port}"]})
    tcp = listener_of(appliance, "tcp")
    client, other = Client(box, appliance), Client(box, appliance, "unix")
    client.store(b"big", VALUE)
    said = appliance.ask("kvd.limit", listener=tcp, read_rate_bytes=4 * KIB)
    expect((said["listener"], said["read_rate_bytes"], said["read_rate"]), (tcp, 4 * KIB, None),
           "the answer")
    spend(client)
    client.send(b"get a\r\nset b 0 0 1\r\nx\r\nget b\r\n")
    wait_for(lambda: waiting(appliance, tcp) == 1, "the read")
    expect_silence(client)
    spend(other)
    top = box.bedplate("top", "--once", "--interval", "0.1", "--directory",
                       appliance.runtime_directory).stdout
    expect_in("kvd", top, "top")
    expect_in("bedplate_kvd_listener_limits_reads_waiting{", get(port, "/metrics")[1], "/metrics")
    said = appliance.ask("kvd.unlimit", listener=tcp)
    expect((said["read_rate_bytes"], said["reads_waiting"]), (None, 0), "the end")
    expect([client.line() for _ in range(5)],
           [b"END\r\n", b"STORED\r\n", b"VALUE b 0 1\r\n", b"x\r\n", b"END\r\n"], "what waited")
    expect(limits_of(appliance, tcp)["read_wait_ns"]["count"], 1, "waits that ended")
    appliance.stop()


@test()
def two_changes_in_a_row_both_hold(box):
    appliance = begin(box, BACKENDS[0])
    tcp = listener_of(appliance, "tcp")
    client = Client(box, appliance)
    client.store(b"big", VALUE)
    appliance.ask("kvd.limit", listener=tcp, read_rate_bytes=4 * KIB)
    appliance.ask("kvd.limit", listener=tcp, write_rate=7, burst_ms=2000)
    said, = (one for one in appliance.ask("kvd.limits") if one["listener"] == tcp)
    expect([said[key] for key in ("read_rate", "read_rate_bytes", "write_rate", "write_rate_bytes",
                                  "burst_ms")], [None, 4 * KIB, 7, None, 2000], "the limits")
    counted = limits_of(appliance, tcp)
    expect((counted["read_rate_bytes"], counted["write_rate"]), (4 * KIB, 7), "the counters")
    spend(client)
    client.send(b"get a\r\n")
    wait_for(lambda: waiting(appliance, tcp) == 1, "the read")
    appliance.ask("kvd.unlimit", listener=tcp)
    appliance.stop()


@test(sockets=BACKENDS)
def limits_of_the_configuration_hold_from_the_start(box, sockets):
    path = box.path("limited.sock")
    limited = {"address": f"unix:{path}", "limits": {"write_rate_bytes": "4 KiB"}}
    appliance = start(box, sockets, {"control": {}}, listen=[f"unix:{path}"], listener=[limited])
    client = Client(box, appliance, "unix")
    expect(client.store(b"a", VALUE), b"STORED\r\n", "the first write")
    client.send(b"delete a\r\n")
    wait_for(lambda: [one["writes_waiting"] for one in appliance.ask("kvd.limits")] == [1],
             "the write")
    expect_silence(client)
    appliance.ask("kvd.unlimit", listener=f"unix:{path}", key="write_rate_bytes")
    expect(client.line(), b"DELETED\r\n", "what waited")
    appliance.stop()


@test(sockets=BACKENDS)
def a_drain_ends_all_limits(box, sockets):
    appliance = begin(box, sockets)
    tcp = listener_of(appliance, "tcp")
    client = Client(box, appliance)
    client.store(b"big", VALUE)
    appliance.ask("kvd.limit", listener=tcp, read_rate_bytes=4 * KIB)
    spend(client)
    client.send(b"get a\r\nget a\r\n")
    wait_for(lambda: waiting(appliance, tcp) == 1, "the read")
    appliance.process.terminate()
    expect([client.line() for _ in range(3)], [b"END\r\n", b"END\r\n", b""], "what waited")
    expect(appliance.wait_exit(), 0, "its exit code")
    expect_true("not drained" not in appliance.log_text(), "it is drained in time")


@test()
def bad_limits_are_refused(box):
    appliance = begin(box, BACKENDS[0])
    tcp = listener_of(appliance, "tcp")
    for parameters, words in (
            ({"listener": tcp, "read_rate": 0}, "read_rate is 0; expected 1..1000000000"),
            ({"listener": "none", "read_rate": 1}, "kvd has no listener of this name"),
            ({"listener": tcp}, "no new value is given")):
        code, said = appliance.refusal("kvd.limit", **parameters)
        expect(code, -32000, f"the code for {parameters}")
        expect_in(words, said, f"the refusal of {parameters}")
    appliance.stop()
