"""`bedplate top`: the activity of appliances, from their counters while clients use them."""

import json
import os
import signal
import threading
import time

from harness import (BACKENDS, BEDPLATE, BOUND_SECONDS, LAYOUTS, MIB, Failure, expect, expect_in,
                     expect_true, read_text, test, wait_for)
from raw_nbd import connect


def top(box, appliance, *options, **how):
    return box.bedplate("top", *options, "--directory", appliance.runtime_directory, **how)


class Load:
    """A client that reads 4 KiB again and again, until the block ends."""

    def __init__(self, box, appliance):
        self.client = connect(box, appliance)
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self.work)

    def work(self):
        while not self.ends.is_set():
            self.client.read(0, 4096)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join()


@test(layout=LAYOUTS)
def once_says_what_goes_on(box, layout):
    """--once prints rates, percentiles and bars, in lines of 80 columns of ASCII, and the same as
    JSON."""
    appliance = box.appliance(box.configuration(layout))
    with Load(box, appliance):
        text = top(box, appliance, "--once", "--interval", "0.5").stdout
        told = json.loads(top(box, appliance, "test", "--once", "--json", "--interval", "0.5").stdout)
    expect_true(text.isascii() and all(len(line) <= 80 for line in text.splitlines()), text)
    lines = text.splitlines()
    expect_in(f"test: pid {appliance.pid}, running, the last 0.", lines[0], "the head")
    titles = [line for line in lines if not line.startswith(" ")]
    expect(titles[1:3], ["shard", "source"], "what comes first")
    expect_in("blockd", titles, "the service")
    heap = next(line for line in lines[lines.index("owner"):] if line.split()[0] == "heap")
    expect_true("#" in heap and "%" in heap, f"the heap's bar: {heap}")
    seen, = told["appliances"]
    expect((seen["name"], seen["pid"], seen["running"]), ("test", appliance.pid, True), "whose")
    blockd = seen["services"]["blockd"]
    reads = blockd["requests_read"]
    expect_true(reads["per_second"] > 0 and reads["total"] > 0, f"the reads: {reads}")
    expect_true(0 < blockd["read_ns"]["p50"] <= blockd["read_ns"]["max"], "their times")
    expect_true(blockd["read_ns"]["per_second"] > 0, "those timed")
    expect(blockd["requests_write"]["per_second"], 0, "the writes")
    expect(set(seen["shard"]), set(LAYOUTS[layout]), "the shards")


def processor_ns(appliance, thread):
    """The processor time that the thread of this name has used."""
    for task in os.listdir(f"/proc/{appliance.pid}/task"):
        path = f"/proc/{appliance.pid}/task/{task}/"
        if read_text(path + "comm") == thread + "\n":
            return int(read_text(path + "schedstat").split()[0])
    raise Failure(f"{appliance.pid} has no thread {thread}")


@test(sockets=BACKENDS)
def busy_is_what_the_kernel_copies_too(box, sockets):
    """The busy time of a shard is at least the processor time of its thread, including time in the
    kernel."""
    appliance = box.appliance(box.configuration(sockets=sockets))
    client = connect(box, appliance)
    before_ns = processor_ns(appliance, "main")
    for _ in range(20):
        client.read(0, 32 * MIB)
    worked_ns = processor_ns(appliance, "main") - before_ns
    # The shard measures its time before it sleeps, at most every 10 ms.
    client.read(0, 1)
    time.sleep(0.02)
    client.read(0, 1)
    wait_for(lambda: appliance.stats()["shard"]["main"]["asleep"], "its sleep")
    shard = appliance.stats()["shard"]["main"]
    counted_ns = shard["busy_ns"] + shard["spin_ns"]
    expect_true(counted_ns >= worked_ns, f"{counted_ns} ns are no less than {worked_ns}: {shard}")


@test()
def all_appliances_are_shown_or_one_by_name(box):
    first = box.appliance()
    configuration = box.configuration(listen=[f"unix:{box.path('second.sock')}"])
    configuration["appliance"]["name"] = "second"
    second = box.appliance(configuration, file="second.toml")
    text = top(box, first, "--once", "--interval", "0.1").stdout
    for name, pid in (("test", first.pid), ("second", second.pid)):
        expect_in(f"{name}: pid {pid}, running", text, "the text")
    told = json.loads(top(box, first, "second", "--once", "--json", "--interval", "0.1").stdout)
    expect([one["pid"] for one in told["appliances"]], [second.pid], "the one that was named")
    # A file without counters does not hide the others.
    box.write("runtime/alien.stats", "no counters at all")
    done = top(box, first, "--once", "--interval", "0.1", expect_code=1)
    expect(done.stdout.count(", running"), 2, "those that can be read")
    expect_in("alien.stats: the file is shorter than the header of a counters file", done.stderr,
              "the message")
    told = json.loads(top(box, first, "--once", "--json", "--interval", "0.1", expect_code=1).stdout)
    expect(["error" in one for one in told["appliances"]], [True, False, False], "those in JSON")


@test()
def it_goes_on_until_they_have_ended(box):
    appliance = box.appliance()
    watch = box.spawn([BEDPLATE, "top", "--json", "--interval", "0.1", "--directory",
                       appliance.runtime_directory], "top.log")
    wait_for(lambda: read_text(box.path("top.log")).count("\n") >= 2, "two lines")
    appliance.stop()
    expect(watch.wait(BOUND_SECONDS), 0, "the exit code")
    for line in open(box.path("top.log"), encoding="utf-8"):
        expect_true(json.loads(line)["appliances"], "a line")


@test()
def a_crashed_one_is_shown_as_it_was(box):
    appliance = box.appliance()
    appliance.process.send_signal(signal.SIGKILL)
    appliance.process.wait()
    text = top(box, appliance, "--once").stdout
    expect_in("NOT running: its last counters", text, "the head")
    expect("/s" in text.split("NOT running")[1], False, "rates of what does nothing")


@test()
def words_that_make_no_sense(box):
    for words in (["--interval", "0"], ["--interval", "soon"], ["--interval", ""], ["a", "b"]):
        box.bedplate("top", *words, "--once", expect_code=2)
    done = box.bedplate("top", "--once", "--directory", box.path("none"), expect_code=1)
    expect_in("none", done.stderr, "the message")


@test()
def what_the_control_socket_answers_is_shown_as_what_the_file_says(box):
    """--socket is for an appliance whose files are not visible, like that of an image."""
    configuration = box.configuration()
    configuration["control"] = {}
    appliance = box.appliance(configuration)
    socket = os.path.join(appliance.runtime_directory, "test.control")
    near, = json.loads(top(box, appliance, "--once", "--json", "--interval", "0.1").stdout)["appliances"]
    with Load(box, appliance):
        told = json.loads(box.bedplate("top", "--once", "--json", "--interval", "0.5", "--socket",
                                       socket).stdout)
        text = box.bedplate("top", "--once", "--interval", "0.1", "--socket", socket).stdout
    far, = told["appliances"]
    expect((far["name"], far["pid"], far["running"]), ("test", appliance.pid, True), "whose")
    expect_true(far["seconds"] > 0 and far["services"]["blockd"]["requests_read"]["per_second"] > 0,
                f"the reads: {far['services']['blockd']}")
    expect(shape_of(far), shape_of(near), "what there is")
    expect_in(f"test: pid {appliance.pid}, running, the last 0.", text.splitlines()[0], "the head")
    watch = box.spawn([BEDPLATE, "top", "--json", "--interval", "0.1", "--socket", socket], "top.log")
    wait_for(lambda: read_text(box.path("top.log")).count("\n") >= 2, "two lines")
    appliance.stop()
    watch.wait(BOUND_SECONDS)
    told = [line for line in read_text(box.path("top.log")).splitlines() if line.startswith("{")]
    expect_true(json.loads(told[0])["appliances"][0]["running"], "the first line")
    last = json.loads(told[-1])["appliances"][0]
    expect_in(socket, last["error"], "what it says of one that has gone")
    done = box.bedplate("top", "--once", "--socket", socket, expect_code=1)
    expect_in("check that a server listens there", done.stderr, "what to do")
    for words in (["test"], ["--from", socket]):
        box.bedplate("top", "--socket", socket, *words, expect_code=2)


def shape_of(seen):
    """The names of all values in it, without the keys that differ each time."""
    if not isinstance(seen, dict):
        return None
    return {key: shape_of(value) for key, value in seen.items() if key not in ("path", "signs")}
