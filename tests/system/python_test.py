"""The Python package (docs/python.md): processes in Python that join a pool (python_peer.py has
their work), the control socket, and real counters; python_files_test.py has made-up files."""

import json
import os
import re
import signal
import socket
import tempfile
import threading

import bedplate
from bedplate import counters
from harness import (BEDPLATE, BOUND_SECONDS, MIB, ROOT, expect, expect_in, expect_true, need_tools,
                     read_text, test, wait_for)
from messages_test import PROGRAMS, greetings, heard, start, two, wait_for_line

PACKAGE = os.path.join(os.path.dirname(BEDPLATE), "python")
LIBRARY = os.path.join(PACKAGE, "bedplate/libbedplate-join.so.0")
PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "python_peer.py")
PYTHON = ["/usr/bin/python3", "-B", "-X", "dev"]  # warns of what is not closed, checks its memory


def python(box, appliance, name, action, peer):
    return box.spawn([*PYTHON, PEER, os.path.join(appliance.runtime_directory, "two.join"), name,
                      action, peer], f"{name}.log", env={**os.environ, "PYTHONPATH": PACKAGE})


def expect_done(box, *peers):
    for name, process in peers:
        expect(process.wait(BOUND_SECONDS), 0,
               f"the exit code of {name} ({read_text(box.path(f'{name}.log'))})")


def run_two(box, appliance, ann, bob):
    """Runs the two actions against each other, until both have ended."""
    peers = [("ann", python(box, appliance, "ann", ann, "bob")),
             ("bob", python(box, appliance, "bob", bob, "ann"))]
    expect_done(box, *peers)
    wait_for_line(appliance, "is forgotten", 2)
    expect(appliance.log_text().count("of main, left"), 2, "those who left")
    expect_true("cut off" not in appliance.log_text(), "nobody is cut off")
    appliance.stop()


# ---- Joining ----


@test(other=["python", *PROGRAMS])
def processes_greet_each_other(box, other):
    appliance = box.appliance(two(box))
    ann = python(box, appliance, "ann", "greet", "bob")
    bob = (python(box, appliance, "bob", "greet", "ann") if other == "python" else
           start(box, appliance, other, "bob", "ann"))
    expect_done(box, ("ann", ann), ("bob", bob))
    expect(heard(box, "ann.log"), greetings("bob"), "what ann heard")
    expect(heard(box, "bob.log"), greetings("ann"), "what bob heard")
    appliance.stop()


@test()
def a_loan_is_read_without_a_copy(box):
    """A view shows the lender's memory, and none is left when the loan is given back. A forked
    child cannot give back its parent's loan."""
    run_two(box, box.appliance(two(box)), "lend", "borrow")


@test()
def a_loan_to_one_who_dies_comes_back(box):
    appliance = box.appliance(two(box))
    lender = python(box, appliance, "ann", "lend_to_one_who_dies", "bob")
    holder = python(box, appliance, "bob", "hold", "ann")
    wait_for(lambda: "has it" in read_text(box.path("bob.log")), "the loan")
    expect(lender.poll(), None, f"the lender waits ({read_text(box.path('ann.log'))})")
    holder.kill()
    expect_done(box, ("ann", lender))
    appliance.stop()


@test()
def a_loan_of_one_who_dies_can_be_read(box):
    appliance = box.appliance(two(box))
    holder = python(box, appliance, "bob", "hold", "ann")
    lender = python(box, appliance, "ann", "lend_to_one_who_dies", "bob")
    wait_for(lambda: "has it" in read_text(box.path("bob.log")), "the loan")
    lender.kill()
    wait_for(lambda: "still has it" in read_text(box.path("bob.log")), "its end")
    expect(holder.poll(), None, f"the holder lives ({read_text(box.path('bob.log'))})")
    appliance.stop()


@test(signal_name=["SIGTERM", "SIGKILL"])
def an_end_of_the_owner_is_an_exception(box, signal_name):
    appliance = box.appliance(two(box))
    waiting = python(box, appliance, "ann", "wait", "two")
    wait_for(lambda: "waits" in read_text(box.path("ann.log")), "its wait")
    appliance.process.send_signal(signal.Signals[signal_name])
    expect_done(box, ("ann", waiting))
    appliance.wait_exit()


@test()
def signals_end_waits_and_lose_nothing(box):
    run_two(box, box.appliance(two(box)), "be_interrupted", "send_many")


@test()
def threads_send_and_a_loop_receives(box):
    run_two(box, box.appliance(two(box)), "send_from_threads", "receive_in_a_loop")


@test()
def mistakes_are_exceptions(box):
    appliance = box.appliance(two(box))
    expect_done(box, ("ann", python(box, appliance, "ann", "misuse", "two")))
    appliance.stop()


@test()
def a_block_outside_the_pool_is_not_lent(box):
    """A process without a heap in the pool allocates in its own segment 0."""
    configuration = two(box)
    configuration["process"][0]["heap_bytes"] = 0
    appliance = box.appliance(configuration)
    lender = python(box, appliance, "ann", "lend", "bob")
    python(box, appliance, "bob", "hold", "ann")
    expect(lender.wait(BOUND_SECONDS), 1, "the exit code")
    expect_in("lending a block: this member may not read the memory; set heap_bytes",
              read_text(box.path("ann.log")), "the message")
    appliance.stop()


@test()
def those_who_may_not_join_are_told_why(box):
    configuration = two(box)
    configuration["process"][0]["user"] = "nobody"
    appliance = box.appliance(configuration)
    ann = python(box, appliance, "ann", "greet", "bob")
    expect(ann.wait(BOUND_SECONDS), 1, "the exit code")
    expect_in("python_peer: joining the pool as ann: user 0 may not join, user 65534 may; start it",
              read_text(box.path("ann.log")), "the message")
    appliance.stop()


@test()
def values_of_a_service_are_lent(box):
    """A process in Python asks kvd by messages, and reads a long value where it lies."""
    configuration = two(box)
    configuration["pool"]["bytes"] = 160 * MIB
    configuration["kvd"] = {"listen": [f"unix:{box.path('kvd.sock')}"], "cache_bytes": 8 * MIB}
    configuration["process"][0]["read"] = ["kvd"]
    appliance = box.appliance(configuration)
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(BOUND_SECONDS)
        client.connect(box.path("kvd.sock"))
        for key, value in ((b"short", b"value"), (b"long", b"v" * 100_000)):
            client.sendall(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))
            expect(client.recv(64), b"STORED\r\n", "what kvd answers")
    expect_done(box, ("ann", python(box, appliance, "ann", "get_values", "two")))
    expect(read_text(box.path("ann.log")).count("lent\n"), 1, "the values that were lent")
    appliance.stop()


# ---- The shared object, and the types ----


@test()
def the_shared_object_exports_the_c_interface_alone(box):
    """It can be opened at any time: it needs no space in the thread-local block that each thread
    begins with."""
    need_tools("nm", "readelf")
    symbols = box.run("nm", "-D", "--defined-only", LIBRARY).stdout.split()[2::3]
    expect({name for name in symbols if not name.startswith(("bp_", "bedplate_interface_"))}, set(),
           "other symbols")
    declared = set(re.findall(r"\b(bp_\w+)\(", re.sub(r"/\*.*?\*/", "", read_text(os.path.join(
        ROOT, "apps/c_interface/bedplate.h")), flags=re.S)))
    lacks = {name for name in declared - set(symbols) if "verbs" not in name}
    expect(lacks, set(), "functions of bedplate.h that it lacks")
    text = box.run("readelf", "-dWr", LIBRARY).stdout
    expect_in("Library soname: [libbedplate-join.so.0]", text, "its name")
    expect_in("NODELETE", text, "it stays loaded")
    expect_true(not re.search(r"TPOFF|TPREL", text), "no relocation in the block of each thread")


@test()
def types_are_complete(box):
    need_tools("mypy")
    box.run("mypy", "--strict", "--cache-dir", box.path("cache"),
            os.path.join(ROOT, "python/bedplate"))


# ---- The control socket, and the counters ----


@test()
def an_appliance_is_asked_and_read(box):
    configuration = box.configuration()
    configuration["control"] = {}
    appliance = box.appliance(configuration)
    directory = appliance.runtime_directory
    expect(counters.list_appliances(directory), ["test"], "the appliances there")
    with counters.CountersFile.open(directory=directory) as file, \
            bedplate.Control.open(directory=directory) as control:
        before = file.snapshot()
        expect((before.appliance, before.pid, before.is_running), ("test", appliance.pid, True),
               "its name and process")
        requests = before.find("control", owner="control")["requests"]
        expect((requests.kind, requests.unit), ("counter", "requests"), "what the counter is")
        for _ in range(3):
            expect(control.call("ping")["pid"], appliance.pid, "the answer")
        after = file.snapshot()
        expect(after.find("control", owner="control")["requests"].value - requests.value, 3,
               "requests")
        expect_true(after.is_of_run(before), "it is the same run")
        for method, parameters, code in (("pang", {}, -32601), ("counters", {"owner": 1}, -32602),
                                         ("log.set", {"level": "loud"}, -32000)):
            expect(appliance.refusal(method, **parameters)[0], code, method)
        pool = after.find("pool")
        expect(set(after.stats()["pool"]), {*pool, *pool.labels}, "the counters of a set")
        appliance.process.kill()
        appliance.wait_exit()
        wait_for(lambda: not file.is_running(), "the lock of a process that is dead")
        expect(file.snapshot().is_running, False, "what a crash leaves")
        try:
            control.call("ping")
        except bedplate.Error as error:
            expect_in(f"asking {directory}/test.control for ping: ", str(error), "after the crash")
        else:
            expect_true(False, "a dead appliance answers")


@test()
def stats_are_those_of_the_command(box):
    configuration = box.configuration()
    configuration["control"] = {}
    appliance = box.appliance(configuration)

    def shape(tree):
        return {key: shape(value) if isinstance(value, dict) else type(value)
                for key, value in tree.items()}

    seen, printed = appliance.stats(), json.loads(appliance.stats_text("--json"))
    expect(printed.pop("audit"), "ok", "the audit, which the command makes")
    expect(shape(seen), shape(printed), "names and types of all values")
    for name in ("segment", "way_back"):
        expect(seen[name], printed[name], f"the values of {name}, which stand still")


def noise(own_id):
    return [b"", b"{]", b"17", b"[1]", b"null", b"\xff\xfe", b"[" * 100_000, b"9" * 10_000,
            b'{"id":"other","result":1}', b'{"id":%s}' % own_id, b'{"result":1}',
            b'{"id":null,"error":17}']


ANSWERS = {  # what the other end sends after the noise: lines, or b"" for the end; the outcome
    "an_answer": (lambda own_id: [*noise(own_id), b'{"id":%s,"result":[7]}' % own_id], [7]),
    "an_answer_twice": (lambda own_id: 2 * [b'{"id":%s,"result":[7]}' % own_id], [7]),
    "the_end": (lambda own_id: noise(own_id)[:3], "it closed the connection; received: 17"),
    "no_answer": (lambda own_id: None, "it did not answer in time"),
    "an_endless_line": (lambda own_id: [b"x" * 100_000], "received: xxx"),
    "a_complaint": (lambda own_id: [b'{"id":null,"error":{"code":-32000,"message":"too many"}}'],
                    "too many"),
    "an_error": (lambda own_id: [b'{"id":%s,"error":{"code":-1,"message":"no"}}' % own_id], "no"),
    "a_strange_error": (lambda own_id: [b'{"id":%s,"error":[]}' % own_id], "without a message"),
}


@test(what=list(ANSWERS))
def answers_of_a_bad_server(box, what):
    """A server's nonsense ends in an Error, in time, or is skipped."""
    lines, outcome = ANSWERS[what]

    def serve():
        client, _ = listener.accept()
        with client:
            request = b""
            while request.count(b"\n") < 2:
                request += client.recv(65536)
            own_id = re.search(rb'"id": ("[^"]*")', request)[1]
            said = lines(own_id)
            if said is None:
                client.recv(1)  # until the client ends
            else:
                client.sendall(b"\n".join(said) + b"\n" * (what != "an_endless_line"))

    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/control")
        listener.listen()
        server = threading.Thread(target=serve)
        server.start()
        patience = 0.2 if what == "no_answer" else BOUND_SECONDS
        with bedplate.Control(f"{folder}/control", timeout=patience) as control:
            try:
                seen = control.call("ping")
            except bedplate.Error as error:
                seen = error.answer
        server.join(BOUND_SECONDS)
    if isinstance(outcome, str):
        expect_in(outcome, seen, "the Error")
    else:
        expect(seen, outcome, "the result")


@test()
def nobody_to_ask_or_to_read(box):
    there, none = box.directory, box.path("none")
    for call, doing in ((lambda: bedplate.Control(none), "connecting to "),
                        (lambda: counters.read("none", there), "reading counters: opening "),
                        (lambda: counters.read(None, there), "looking for appliances in "),
                        (lambda: counters.read(None, none), "looking for appliances in ")):
        try:
            call()
        except bedplate.Error as error:
            expect_true(error.doing.startswith(doing) and error.answer and error.cure,
                        f"three parts of {error!r}")
        else:
            expect_true(False, f"not refused: {doing}")
    box.write("one.stats", "")
    box.write("two.stats", "")
    try:
        counters.read(None, box.directory)
    except bedplate.Error as error:
        expect_in("there are 2: one, two; name one", str(error), "a choice")
