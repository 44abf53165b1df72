"""A service in C with datagrams, a watch, and a connection that it opens itself
(apps/examples/relay.c), over both backends."""

import json
import os
import socket

from harness import (BEDPLATE, BOUND_SECONDS, expect, expect_in, need_backend, read_text, test,
                     to_toml, wait_for)

RELAY = os.path.join(os.path.dirname(BEDPLATE), "examples", "relay")


def udp():
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(("127.0.0.1", 0))
    made.settimeout(BOUND_SECONDS)
    return made


def configure(box, sockets, **relay):
    return box.write("relay.toml", to_toml({
        "appliance": {"name": "relay", "runtime_directory": box.path("runtime")},
        "pool": {"bytes": "256 MiB", "pages": "4 KiB"},
        "event_loop": {"sockets": sockets},
        "shard": [{"name": "main", "cpu": min(os.sched_getaffinity(0))}],
        "relay": relay}))


@test(sockets=["io_uring", "epoll"])
def it_relays_and_reports_and_drains(box, sockets):
    need_backend(sockets)
    with udp() as source, udp() as sink, udp() as reserved, socket.create_server(
            ("127.0.0.1", 0)) as collector:
        collector.settimeout(BOUND_SECONDS)
        entry = reserved.getsockname()
        reserved.close()
        path = configure(box, sockets, to="127.0.0.1:%d" % sink.getsockname()[1],
                         collector="tcp:127.0.0.1:%d" % collector.getsockname()[1],
                         **{"from": "127.0.0.1:%d" % entry[1]})
        process = box.spawn([RELAY, "run", path], "relay.log")
        wait_for(lambda: "bedplate: ready" in read_text(box.path("relay.log")), "it is ready")
        connection, _ = collector.accept()
        for number in range(50):
            source.sendto(b"datagram %d" % number, entry)
            expect(sink.recv(2000), b"datagram %d" % number, "what arrives")
        with connection:
            connection.settimeout(BOUND_SECONDS)
            heard = b""
            while b"relayed 50\n" not in heard:
                part = connection.recv(4096)
                if not part:
                    break
                heard += part
            expect_in(b"relayed 50\n", heard, "what the collector hears")
        seen = json.loads(box.run(RELAY, "stats", "--directory", box.path("runtime"),
                                  "--json").stdout)
        expect(seen["services"], {"relay": {"relayed": 50, "lost": 0}}, "its counters")
        (shard,) = seen["shard"].values()
        expect((shard["received_datagrams"], shard["sent_datagrams"]), (50, 50),
               "the counters of its shard")
        expect((shard["dropped_datagrams"], shard["truncated_datagrams"]), (0, 0), "losses")
        process.terminate()
        expect(process.wait(BOUND_SECONDS), 0, "the exit code")
    expect(read_text(box.path("relay.log")).count("not drained"), 0, "complaints")


@test()
def what_makes_no_sense_ends_the_boot(box):
    path = configure(box, "epoll", to="localhost:5")
    refused = box.run(RELAY, "run", path, expect_code=None)
    expect_in("\"localhost:5\" is not an address for datagrams: the address is not numeric; write "
              "\"ADDRESS:PORT\"", refused.stderr, "the log")
    path = configure(box, "epoll", to="127.0.0.1:5", **{"from": "192.0.2.1:5"})
    refused = box.run(RELAY, "run", path, expect_code=None)
    expect_in("binding a datagram socket to 192.0.2.1:5", refused.stderr, "the log")
