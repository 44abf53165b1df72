"""The accounts charged for a service's memory, in each function that the runtime calls; and
the messages that an operator still gets when a service has used up the heap
(tests/system/heap_owners.cc)."""

import http.client
import json
import os
import signal
import socket

from harness import (BEDPLATE, BOUND_SECONDS, MIB, Skip, expect, expect_in, expect_true, free_port,
                     need_backend, read_text, test, to_toml, wait_for)

EATER = os.path.join(os.path.dirname(BEDPLATE), "heap-owners")
AT_START = ["prepare", "create", "methods", "sealed", "start", "tick", "source", "timer", "watch",
            "file", "datagram", "message"]
AT_END = ["request_drain", "call", "is_drained", "stopped"]


class Eater:
    def __init__(self, box, sockets="io_uring-or-epoll"):
        self.box = box
        self.port, self.http_port = free_port(), free_port()
        path = box.write("eater.toml", to_toml({
            "appliance": {"name": "eater", "runtime_directory": box.path("runtime")},
            "pool": {"bytes": "96 MiB", "pages": "4 KiB"},
            "event_loop": {"sockets": sockets},
            "shard": [{"name": "main", "cpu": min(os.sched_getaffinity(0))}],
            "control": {},
            "http": {"listen": [f"tcp:127.0.0.1:{self.http_port}"]},
            "eater": {"listen": [f"tcp:127.0.0.1:{self.port}"], "file": box.path("eaten")}}))
        self.process = box.spawn([EATER, "run", path], "eater.log")
        wait_for(lambda: "bedplate: ready" in self.log(), "it is ready")
        level = self.stats()["pool"]["support_level"]
        if "FREE" not in level:
            self.stop()
            raise Skip(f"malloc is not the pool's here, and charges nobody: {level}")

    def log(self):
        return read_text(self.box.path("eater.log"))

    def ask(self, method, *words):
        return self.box.run(EATER, "ctl", "--directory", self.box.path("runtime"), "--json", method,
                            *words).stdout

    def page(self, target):
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=BOUND_SECONDS)
        connection.request("GET", target)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    def stats(self):
        return json.loads(self.box.run(EATER, "stats", "--directory", self.box.path("runtime"),
                                       "--json").stdout)

    def accounts(self):
        """{function: the account charged for its memory}, from the service's log."""
        return dict(line.removeprefix("eater: ").rsplit(": ", 1) for line in self.log().splitlines()
                    if line.startswith("eater: ") and ": " in line.removeprefix("eater: "))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        expect(self.process.wait(BOUND_SECONDS), 0, "the exit code")


@test(sockets=["io_uring", "epoll"])
def memory_is_charged_to_the_service_that_is_called(box, sockets):
    """In the boot, the control thread, the shards, all kinds of callbacks, and the end, memory is
    charged to the service's own account."""
    need_backend(sockets)
    eater = Eater(box, sockets)
    with socket.create_connection(("127.0.0.1", eater.port), timeout=BOUND_SECONDS) as client:
        client.sendall(b"x")
        wait_for(lambda: "received" in eater.accounts(), "it has received")
    expect_in("true", eater.ask("eater.eat"), "the answer of its method")
    wait_for(lambda: set(AT_START) <= set(eater.accounts()), "all that begins has begun")
    eater.stop()
    accounts = eater.accounts()
    everywhere = [*AT_START, "accepted", "received", "method", "method_at_loop", *AT_END]
    expect(set(everywhere) - set(accounts), set(), "the functions that were not called")
    expect({where: whose for where, whose in accounts.items() if whose != "own"}, {},
           "where memory was charged to another")


@test()
def operators_are_answered_while_the_heap_is_full(box):
    """One service has used up the heap. control, http and counters still work, and the appliance
    ends as usual."""
    eater = Eater(box)
    with socket.create_connection(("127.0.0.1", eater.port), timeout=BOUND_SECONDS) as client:
        client.sendall(b"f")
        wait_for(lambda: "eater: full" in eater.log(), "the heap is full")
    wait_for(lambda: eater.stats()["heap"]["largest_free_bytes"] < 4 * MIB, "the counters say so")
    refused = eater.stats()["heap_owner"]["heap:control"]["refused"]
    for _ in range(20):
        expect_in('"appliance":"eater"', eater.ask("ping").replace(" ", ""), "ping")
    expect_in('"heap_owner"', eater.ask("counters"), "the counters")
    expect_in("eater.eat", eater.ask("methods"), "the methods")
    expect_in("heap:reserve", eater.ask("plan"), "the plan")
    expect_in("serving", eater.ask("services"), "the services")
    eater.ask("log.set", "level=debug")
    for target in ("/healthz", "/readyz", "/metrics", "/", "/stats.json", "/log", "/signs"):
        status, text = eater.page(target)
        expect((target, status, bool(text)), (target, 200, True), "a page")
    expect_in("bedplate_heap_owner_used_bytes", eater.page("/metrics")[1], "the metrics")
    expect(eater.page("/healthz")[0], 200, "whether it is healthy")
    screen = box.run(EATER, "top", "--directory", box.path("runtime"), "--once").stdout
    expect_in("heap:eater", screen, "what top shows")
    expect(eater.stats()["heap_owner"]["heap:control"]["refused"], refused, "refusals of control")
    eater.stop()
