"""perf: two processes over shared memory measure messages, puts and gets."""

import json
import signal

from harness import (BEDPLATE, BOUND_SECONDS, expect, expect_in, expect_true, read_text, test,
                     wait_for)

OPERATIONS = ["send", "put", "get"]
PERCENTILES = ["min_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"]


class Server:
    """The side that answers."""

    def __init__(self, box):
        self.box = box
        self.address = f"unix:{box.path('perf.sock')}"
        self.process = box.spawn([BEDPLATE, "perf", "serve", self.address], "serve.log")
        wait_for(lambda: "answering at" in read_text(box.path("serve.log")), "the server")

    def measure(self, *words):
        """Returns the report, after the checks that hold for every measurement."""
        report = json.loads(self.box.bedplate("perf", *words, "--json", self.address).stdout)
        expect((report["operation"], report["provider"], report["address"]),
               (words[0], "shm", self.address), "what was measured")
        for result in report["results"]:
            expect_true(result["count"] > 0 and result["verified"] > 0, f"a result: {result}")
        return report

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        expect(self.process.wait(BOUND_SECONDS), 0, "the server's exit code")


@test(operation=OPERATIONS)
def latency_has_percentiles_in_order_and_what_was_asked_for(box, operation):
    server = Server(box)
    report = server.measure(operation, "-n", "300", "--size", "1,8,512,4K")
    expect([(result["bytes"], result["count"]) for result in report["results"]],
           [(size, 300) for size in (1, 8, 512, 4096)], "sizes and counts")
    expect(report["is_half_round_trip"], operation != "get", "half of there and back")
    for result in report["results"]:
        times = [result[key] for key in PERCENTILES]
        expect(times, sorted(times), "percentiles")
        expect_true(0 < result["min_ns"] <= result["mean_ns"] <= result["max_ns"], "the mean")
        # The 200 operations of the warm-up, at each side that receives data.
        expect(result["verified"], 200 if operation == "get" else 400, "what was verified")
    server.stop()


@test(operation=OPERATIONS, directions=["there", "both"])
def bandwidth_counts_what_it_says(box, operation, directions):
    server = Server(box)
    both = ["--both"] if directions == "both" else []
    report = server.measure(operation, "--bandwidth", "-n", "5000", "--size", "64,4K", *both)
    for result in report["results"]:
        expect(result["count"], 5000, "count")
        rate = result["count"] / result["elapsed_ns"] * 1e9
        if both:
            expect_true(result["back_count"] > 0, "the other side's")
            rate += result["back_count"] / result["back_elapsed_ns"] * 1e9
        expect_true(abs(result["operations_per_second"] / rate - 1) < 1e-6, "the rate")
        expect_true(abs(result["bytes_per_second"] / rate / result["bytes"] - 1) < 1e-6, "bytes")
    server.stop()


@test()
def a_duration_ends_and_sleeping_sides_wake_each_other(box):
    server = Server(box)
    report = server.measure("send", "--events", "-d", "1", "--size", "8")
    expect(report["mode"], "events", "mode")
    result = report["results"][0]
    expect_true(result["count"] > 0, f"some came there and back: {result}")
    server.stop()


@test()
def people_get_a_table_that_begins_with_what_is_used(box):
    server = Server(box)
    table = box.bedplate("perf", "put", "-n", "10", "--size", "64", server.address).stdout
    for line in ("put latency, unix:", "  provider  shm", "  pool      16 MiB in pages of ",
                 "p99.9", "        64         10 "):
        expect_in(line, table, "the table")
    server.stop()


@test()
def a_client_that_was_killed_leaves_the_server_to_the_next(box):
    server = Server(box)
    for turn in range(3):
        client = box.spawn([BEDPLATE, "perf", "put", "-d", "60", "--size", "4K", server.address],
                           f"client.{turn}.log")
        wait_for(lambda: "p99.9" in read_text(box.path(f"client.{turn}.log")), "the client")
        client.kill()
        client.wait(BOUND_SECONDS)
        server.measure("send", "-n", "100", "--size", "64")
    server.stop()


@test()
def a_client_that_comes_in_anothers_place_is_told_to_that_one(box):
    server = Server(box)
    first = box.spawn([BEDPLATE, "perf", "send", "-d", "60", "--size", "64", server.address],
                      "first.log")
    wait_for(lambda: "p99.9" in read_text(box.path("first.log")), "the first client")
    server.measure("send", "-n", "100", "--size", "64")
    expect(first.wait(BOUND_SECONDS), 1, "the first client's exit code")
    expect_in(": it is now measuring with another client; ", read_text(box.path("first.log")),
              "why")
    server.stop()


@test()
def a_client_waits_for_its_server(box):
    address = f"unix:{box.path('perf.sock')}"
    client = box.spawn([BEDPLATE, "perf", "get", "-n", "10", "--size", "8", address], "client.log")
    wait_for(lambda: "nanosleep" in read_text(f"/proc/{client.pid}/wchan"), "the client's pause")
    server = Server(box)
    expect(client.wait(BOUND_SECONDS), 0, "the client's exit code")
    server.stop()


@test()
def what_cannot_be_is_refused_with_the_cure(box):
    server = Server(box)
    address = server.address
    cases = [
        (["send", "--size", "64K", address],
         "choosing what to send: 64 KiB are requested, but at most 4 KiB are possible; make --size "
         "smaller"),
        (["put", "--size", "8M", address], "8 MiB are requested, but at most 4 MiB are possible"),
        (["put", "--size", "8,x", address],
         "reading --size 8,x: this is not a list of sizes; write"),
        (["put", "--size", "0", address], "this is not a list of sizes"),
        (["put", "-n", "0", address],
         "reading -n 0: this is not such a number; write a number from 1"),
        (["put", "-d", "1", "-n", "1", address],
         "reading -d: it cannot be combined with -n; leave one out"),
        (["put", "--both", address], "reading --both: latency is always measured in both"),
        (["put", "--events", address], "reading --events: the target of a put gets no event"),
        (["put", "somewhere"], "reading the address somewhere: "),
        (["put", "unix:"], 'reading the address unix:: "unix:" is not a listen address'),
        (["put", "tcp:here:7471"], "the address is not numeric; write tcp:ADDRESS:PORT, "
                                   "numeric, for verbs, or unix:PATH for shared memory"),
        (["put", "activation:"], "perf gets no sockets from a service manager; write tcp:"),
        (["put", "--device", "rxe0", address], "it is shared memory, which uses no RDMA device; "
                                               "leave out --device and --port"),
        (["put"], "reading the command line: missing ADDRESS; see: bedplate perf --help"),
        (["jump", address], "perf cannot measure jump; see: bedplate perf --help"),
        (["register", address], "register takes no ADDRESS, but got "),
        (["serve", "--bandwidth", address], "reading --bandwidth: perf serve has no such option; "
                                            "give it to the side that measures"),
        (["register", "-d", "1"], "reading -d 1: perf register has no such option; leave it out"),
        (["register", "--size", "1000M"], "at most 64 MiB is possible; make --size smaller"),
    ]
    for words, message in cases:
        expect_in(message, box.bedplate("perf", *words, expect_code=2).stderr, " ".join(words))
    server.stop()
    gone = box.bedplate("perf", "put", address, expect_code=1).stderr
    expect_in(f"No such file or directory; start there, as the same user: bedplate perf serve "
              f"{address}", gone, "nobody there")
