"""A service in C (apps/examples/store.c): the runtime's commands know it, its table is checked as
strictly as any, its counters are in `stats`, it answers on its socket and by messages, and drains."""

import json
import os
import socket
import tomllib

from harness import (BEDPLATE, BOUND_SECONDS, expect, expect_in, free_port, need_backend, read_text,
                     test, to_toml, wait_for)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
STORE = os.path.join(os.path.dirname(BEDPLATE), "examples", "store")
C_PEER = os.path.join(os.path.dirname(BEDPLATE), "c-peer")


def configure(box, sockets="io_uring-or-epoll", control=False, **store):
    """Writes the example's configuration, with this test's directory. Returns its path and its
    port."""
    with open(os.path.join(ROOT, "apps/examples/store.toml"), "rb") as file:
        configuration = tomllib.load(file)
    port = free_port()
    configuration["appliance"]["runtime_directory"] = box.path("runtime")
    configuration["shard"][0]["cpu"] = min(os.sched_getaffinity(0))
    configuration["event_loop"] = {"sockets": sockets}
    configuration["group"] = [{"name": "main", "members": 2}]
    configuration["process"] = [{"name": "ann", "user": "root", "group": "main"}]
    configuration["store"] = {"listen": [f"tcp:127.0.0.1:{port}"], **store}
    if control:
        configuration["control"] = {}
    return box.write("store.toml", to_toml(configuration)), port


class Running:
    def __init__(self, box, path):
        self.box = box
        self.process = box.spawn([STORE, "run", path], "store.log")
        wait_for(lambda: "bedplate: ready" in read_text(box.path("store.log")), "it is ready")

    def stats(self, *options):
        return json.loads(self.box.run(STORE, "stats", "--directory", self.box.path("runtime"),
                                       "--json", *options).stdout)

    def stop(self):
        self.process.terminate()
        expect(self.process.wait(BOUND_SECONDS), 0, "the exit code")


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=BOUND_SECONDS)


def ask(client, text, lines):
    client.sendall(text.encode())
    got = b""
    while got.count(b"\n") < lines:
        part = client.recv(4096)
        if not part:
            break
        got += part
    return got.decode()


@test(sockets=["io_uring", "epoll"])
def it_answers_and_counts_and_drains(box, sockets):
    need_backend(sockets)
    path, port = configure(box, sockets, entries=2)
    store = Running(box, path)
    with connect(port) as client, connect(port) as other:
        expect(ask(client, "set apple red\nget apple\nget pear\nhm\n", 4),
               "STORED\nVALUE red\nNONE\nERROR\n", "the answers to four lines at once")
        expect(ask(client, "set pear green\nset fig blue\nset apple ripe\n", 3),
               "STORED\nFULL\nSTORED\n", "what a store of two keys says")
        for byte in "get apple":
            other.sendall(byte.encode())
        expect(ask(other, "\n", 1), "VALUE ripe\n", "the answer to a line in pieces")
        expect(store.stats()["services"], {"store": {"gets": 3, "hits": 2}}, "its counters")
        told = store.stats("--describe")["services"]["store"]
        expect({name: one.get("column") for name, one in told.items()},
               {"gets": "requests", "hits": None}, "what is seen of them at a glance")
        peer = box.spawn([C_PEER, box.path("runtime/store.join"), "ann", "store", "store", "pear"],
                         "ann.log")
        expect(peer.wait(BOUND_SECONDS), 0, f"the peer's exit code ({read_text(box.path('ann.log'))})")
        expect_in("value: green", read_text(box.path("ann.log")), "what a process was told")
        other.sendall(b"x" * 256)
        expect(other.recv(16), b"", "what ends a line that never does")
        store.stop()
        expect(client.recv(16), b"", "what a client hears at the drain")
    expect_in("store: signal 15, draining", read_text(box.path("store.log")), "the log")
    expect(read_text(box.path("store.log")).count("not drained"), 0, "complaints")


@test()
def it_is_told_what_to_do(box):
    """Over the control socket, the service's method is listed, runs on its shard, and is refused
    with a cure."""
    path, port = configure(box, control=True)
    store = Running(box, path)
    where = ["--directory", box.path("runtime")]
    expect_in("store.forget: Forgets a key.", box.run(STORE, "ctl", "--list").stdout, "its list")
    listed, = (one for one in json.loads(box.run(STORE, "ctl", *where, "methods").stdout)
               if one["name"] == "store.forget")
    expect([(one["name"], one["type"], one["required"]) for one in listed["parameters"]],
           [("key", "text", True)], "its parameters")
    with connect(port) as client:
        ask(client, "set apple red\nset pear green\n", 2)
        said = json.loads(box.run(STORE, "ctl", *where, "store.forget", "key=apple").stdout)
        expect(said, {"left": 1}, "its answer")
        expect(ask(client, "get apple\nget pear\n", 2), "NONE\nVALUE green\n", "what is left")
    for key in ("apple", "x" * 40):
        refused = box.run(BEDPLATE, "ctl", *where, "store.forget", f"key={key}",
                          expect_code=1)
        expect_in("forgetting a key: there is no such key; check it with: get KEY", refused.stderr,
                  "what is not there")
    store.stop()


@test()
def stats_watches_and_reads_what_a_crash_left(box):
    path, port = configure(box)
    store = Running(box, path)
    watched = box.spawn([STORE, "stats", "--watch", "--directory", box.path("runtime")],
                        "watch.log")
    with connect(port) as client:
        # --watch shows only the rates of counters that change.
        def is_shown():
            ask(client, "get apple\n", 1)
            return "store gets " in read_text(box.path("watch.log"))
        wait_for(is_shown, "the rate of gets")
        expect_in("/s\n", read_text(box.path("watch.log")), "what --watch prints")
        expect("store hits " in read_text(box.path("watch.log")), False, "what has not changed")
        gets = store.stats()["services"]["store"]["gets"]
        store.process.kill()
    expect(watched.wait(BOUND_SECONDS), 0, "the exit code of --watch once it has gone")
    left = box.path("runtime/store.stats")
    seen = json.loads(box.run(STORE, "stats", "--from", left, "--json").stdout)
    expect((seen["running"], seen["services"]["store"]["gets"]), (False, gets), "what it left")
    # Another program's `stats` reads the file as well, because the file describes its counters.
    other = json.loads(box.run(BEDPLATE, "stats", "--from", left, "--json").stdout)
    expect(other["services"], seen["services"], "what another program makes of it")


@test()
def the_commands_know_its_table(box):
    path, port = configure(box, entries=0)
    refused = box.run(STORE, "check", path, expect_code=2)
    expect_in('"entries" is 0; expected integer: 1..1000000', refused.stderr, "what check says")
    path, port = configure(box, entrys=5)
    refused = box.run(STORE, "check", path, expect_code=2)
    expect_in('unknown key "entrys"; did you mean "entries"? [store] may have: listen, shard, '
              'entries', refused.stderr, "what check says")
    # Another program has no such service.
    path, port = configure(box)
    refused = box.run(BEDPLATE, "check", path, expect_code=2)
    expect_in('unknown table "store": no service of this program has it', refused.stderr,
              "what another program says")
    keys = json.loads(box.run(STORE, "keys", "store", "--json").stdout)
    expect([key["key"] for key in keys], ["store.listen", "store.shard", "store.entries",
                                              "store.plain_text"], "keys")
    with connect_listening(port):
        refused = box.run(STORE, "check", path, expect_code=1)
    expect_in("Address already in use", refused.stderr, "what check says of its port")
    plan = json.loads(box.run(STORE, "plan", path, "--json").stdout)
    expect_in("store", [segment["owner"] for segment in plan["segments"]], "the plan's segments")


def connect_listening(port):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener
