"""Groups (apps/boot/messaging): the appliance makes them, and the examples exchange messages."""

import fcntl
import json
import os
import re
import resource
import signal
import tomllib

from harness import (BEDPLATE, BOUND_SECONDS, MIB, Skip, expect, expect_in, expect_true, read_text,
                     test, wait_for)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
EXAMPLES = os.path.join(os.path.dirname(BEDPLATE), "examples")
PROGRAMS = {"c++": os.path.join(EXAMPLES, "ping"), "c": os.path.join(EXAMPLES, "ping-c")}
C_PEER = os.path.join(os.path.dirname(BEDPLATE), "c-peer")
CPP_PEER = os.path.join(os.path.dirname(BEDPLATE), "cpp-peer")
GREETINGS = 3
F_SEAL_FUTURE_WRITE = 0x10


def two(box):
    """The examples' own configuration, in this test's directory."""
    with open(os.path.join(ROOT, "apps/examples/two.toml"), "rb") as file:
        configuration = tomllib.load(file)
    configuration["appliance"]["runtime_directory"] = box.path("runtime")
    configuration["shard"][0]["cpu"] = min(os.sched_getaffinity(0))
    return configuration


def start(box, appliance, program, name, peer, log=None, **options):
    argv = [PROGRAMS[program], os.path.join(appliance.runtime_directory, "two.join"), name, peer]
    return box.spawn(argv, log or f"{name}.log", **options)


def greetings(name):
    return [f"heard: {name} says hello {i}" for i in range(GREETINGS)]


def heard(box, log):
    return [line for line in read_text(box.path(log)).splitlines() if line.startswith("heard")]


def wait_for_line(appliance, text, count=1):
    wait_for(lambda: appliance.log_text().count(text) >= count, f"{count} times {text!r} in a log")


@test(first=list(PROGRAMS), second=list(PROGRAMS))
def two_processes_greet_each_other(box, first, second):
    appliance = box.appliance(two(box))
    for turn in range(1, 4):  # a slot is used again, as new
        logs = {name: f"{name}.{turn}.log" for name in ("ann", "bob")}
        ann = start(box, appliance, first, "ann", "bob", logs["ann"])
        bob = start(box, appliance, second, "bob", "ann", logs["bob"])
        for name, process in (("ann", ann), ("bob", bob)):
            expect(process.wait(BOUND_SECONDS), 0,
                   f"{name}'s exit code ({read_text(box.path(logs[name]))})")
        expect(heard(box, logs["ann"]), greetings("bob"), "what ann heard")
        expect(heard(box, logs["bob"]), greetings("ann"), "what bob heard")
        wait_for_line(appliance, "is forgotten", 2 * turn)
    for line in ("of main, joined", "of main, left"):
        expect(appliance.log_text().count(line), 6, f"the lines that say {line!r}")
    appliance.stop()


@test()
def every_function_of_the_c_interface_does_its_work(box):
    appliance = box.appliance(two(box))
    peers = [box.spawn([C_PEER, os.path.join(appliance.runtime_directory, "two.join"), *words],
                       f"{words[0]}.log") for words in (("ann", "bob"), ("bob", "ann", "use"))]
    for name, process in zip(("ann", "bob"), peers):
        expect(process.wait(BOUND_SECONDS), 0, f"{name}'s exit code")
    appliance.stop()


@test(language=["c", "c++"])
def a_process_that_starts_anew_waits_for_its_place(box, language):
    appliance = box.appliance(two(box))
    socket = os.path.join(appliance.runtime_directory, "two.join")
    first = box.spawn([C_PEER, socket, "ann", "bob"], "first.log")  # it waits for bob
    wait_for_line(appliance, "of main, joined")
    again = ([C_PEER, socket, "ann", "bob"] if language == "c" else [CPP_PEER, socket, "ann"])
    second = box.spawn(again, "second.log")
    wait_for_line(appliance, "all 1 planned slots are in use, 0 of them by processes that died")
    expect(second.poll(), None, "the second's exit code while the first lives")
    first.kill()
    wait_for_line(appliance, "of main, joined", 2)
    if language == "c":
        bob = box.spawn([C_PEER, socket, "bob", "ann", "use"], "bob.log")
        expect(bob.wait(60), 0, f"bob's exit code ({read_text(box.path('bob.log'))})")
    expect(second.wait(60), 0, f"the second's exit code ({read_text(box.path('second.log'))})")
    appliance.stop()


def facts(box, appliance, *kinds, name="ann", **options):
    """The facts that cpp-peer prints about the pool that it joined."""
    socket = os.path.join(appliance.runtime_directory, "two.join")
    return json.loads(box.run(CPP_PEER, socket, name, *kinds, **options).stdout)


@test()
def single_copy_is_what_the_owner_configured_or_less(box):
    configuration = two(box)
    # One slot for each process that joins: the test does not depend on when a dead process is
    # forgotten.
    configuration["group"][0]["members"] = 12
    configuration["process"][0]["max_count"] = 8
    configuration["process"][0]["heap_bytes"] = 0
    configuration["process"].append({"name": "stranger", "user": "root", "trusted": False})
    configuration["messages"] = {"single_copy": ["knem", "cma"]}
    appliance = box.appliance(configuration)
    if "single copy by cma: chosen" not in appliance.log_text():
        raise Skip("cma does not work here, or knem does")
    for kinds, taken in (((), "cma"), (("xpmem", "cma"), "cma"), (("knem",), "none"),
                         (("none",), "none")):
        expect(facts(box, appliance, *kinds)["single_copy"], taken, f"taken of {kinds or 'all'}")
    expect(facts(box, appliance, name="stranger")["single_copy"], "none", "with a stranger")
    appliance.stop()
    for order in ([], ["knem"]):  # knem is not here, otherwise cma would not have been taken
        configuration["messages"]["single_copy"] = order
        appliance = box.appliance(configuration)
        for kinds in ((), ("cma",)):
            expect(facts(box, appliance, *kinds)["single_copy"], "none", f"of {kinds or 'all'}")
        appliance.stop()


@test()
def one_whom_nobody_trusts_has_the_owner_alone(box):
    configuration = two(box)
    configuration["process"].append({"name": "probe", "user": "root", "trusted": False,
                                     "heap_bytes": "8 MiB"})
    appliance = box.appliance(configuration)
    path = os.path.join(appliance.runtime_directory, "two.join")
    for turn in range(1, 3):  # a stranger's slot is used again, too
        probe = box.spawn([C_PEER, path, "probe", "two", "stranger"], f"probe.{turn}.log")
        wait_for(lambda: probe.poll() is not None or
                 "has tried all" in read_text(box.path(f"probe.{turn}.log")), "the stranger")
        expect(probe.poll(), None, "the stranger's exit code "
               f"({read_text(box.path(f'probe.{turn}.log'))})")
        maps = read_text(f"/proc/{probe.pid}/maps")
        for name, is_there in (("exchange:probe.0", True), ("heap:probe.0", True),
                               ("fifo:main", False), ("heap:ann.0", False)):
            expect(f"memfd:{name} " in maps, is_there, f"{name} is mapped by the stranger")
        names = ("ann", "bob")
        peers = [start(box, appliance, "c", name, other, f"{name}.{turn}.log")
                 for name, other in (names, reversed(names))]
        for name, process in zip(names, peers):
            expect(process.wait(BOUND_SECONDS), 0, f"{name}'s exit code")
        probe.send_signal(signal.SIGKILL)
        wait_for_line(appliance, "of probe.0, died", turn)
        wait_for_line(appliance, "is forgotten", 3 * turn)
    expect_true("cut off" not in appliance.log_text(), "nobody is cut off")
    appliance.stop()


@test(program=list(PROGRAMS))
def a_death_ends_its_peer_only(box, program):
    appliance = box.appliance(two(box))
    ann = start(box, appliance, program, "ann", "bob")
    wait_for_line(appliance, "ann (process")
    ann.send_signal(signal.SIGSTOP)  # it receives nothing more from bob
    bob = start(box, appliance, program, "bob", "ann")
    wait_for(lambda: "connected to ann" in read_text(box.path("bob.log")), "bob's connection")
    ann.send_signal(signal.SIGKILL)
    expect(bob.wait(BOUND_SECONDS), 1, "bob's exit code")
    wait_for_line(appliance, "of main, died")
    wait_for_line(appliance, "is forgotten", 2)
    appliance.stop()


@test(program=list(PROGRAMS), signal_name=["SIGTERM", "SIGKILL"])
def an_end_of_the_owner_ends_those_who_wait(box, program, signal_name):
    appliance = box.appliance(two(box))
    ann = start(box, appliance, program, "ann", "bob")
    wait_for_line(appliance, "ann (process")
    appliance.process.send_signal(signal.Signals[signal_name])
    expect(ann.wait(BOUND_SECONDS), 1, "ann's exit code")
    expect_in("the owner of the pool has died or stopped", read_text(box.path("ann.log")),
              "what ann says")
    appliance.wait_exit()


@test(program=list(PROGRAMS))
def who_may_not_join_is_told_why(box, program):
    configuration = two(box)
    configuration["process"][0]["user"] = "nobody"
    configuration["messages"] = {"on_join_failure": "stop"}
    appliance = box.appliance(configuration)
    ann = start(box, appliance, program, "ann", "bob")
    expect(ann.wait(BOUND_SECONDS), 1, "ann's exit code")
    said = read_text(box.path("ann.log"))
    expect_in("joining the pool as ann: user 0 may not join, user 65534 may; start it", said, "ann")
    wait_for_line(appliance, "user 0 may not")
    appliance.stop()  # a refusal does not stop the appliance


@test(program=list(PROGRAMS), on_join_failure=["continue", "stop"])
def who_cannot_use_its_part_is_named(box, program, on_join_failure):
    configuration = two(box)
    configuration["messages"] = {"on_join_failure": on_join_failure}
    appliance = box.appliance(configuration)
    limit = 30 * MIB  # enough for segment 0, but not for the heap beside it
    ann = start(box, appliance, program, "ann", "bob",
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    expect(ann.wait(BOUND_SECONDS), 1, "ann's exit code")
    reason = ("taking 16 MiB for heap:ann.0 in pages of 4 KiB: Cannot allocate memory; raise the "
              "limit on address space")
    expect_in(reason, read_text(box.path("ann.log")), "what ann says")
    wait_for_line(appliance, reason)
    wait_for_line(appliance, "member 1 of main, could not join")
    if on_join_failure == "continue":
        wait_for_line(appliance, "is forgotten")
        appliance.stop()
        return
    expect(appliance.wait_exit(), 1, "the appliance's exit code")
    expect_in('stopping, because [messages] on_join_failure is "stop"', appliance.log_text(),
              "the log")
    appliance.expect_nothing_left()


@test()
def who_has_no_rdma_device_is_told_why(box):
    """Two processes request a device. One is not configured to use it; for the other, the appliance
    has none."""
    if os.path.exists("/sys/class/infiniband"):
        raise Skip("there may be an RDMA device")
    configuration = two(box)
    configuration["verbs"] = {"required": False}
    configuration["process"][1]["verbs"] = True
    appliance = box.appliance(configuration)
    socket = os.path.join(appliance.runtime_directory, "two.join")
    for name, why in (
            ("ann", "this process is not planned to use one; set verbs = true in its [[process]] "
                    "of the owner's configuration"),
            ("bob", "the appliance has none, and requires none; see the owner's log for why, or "
                    "do without")):
        said = f"opening the appliance's RDMA device as {name}: {why}"
        for program, words in ((CPP_PEER, (name, "verbs")), (C_PEER, (name, "two", "verbs"))):
            before = appliance.log_text().count("is forgotten")
            peer = box.run(program, socket, *words, expect_code=1)
            expect_in(said, peer.stderr, f"what {program} says")
            wait_for_line(appliance, "is forgotten", before + 1)
        expect(appliance.log_text().count(said), 2, f"how often the owner is told of {name}")
    expect(appliance.log_text().count("could not join"), 4, "who could not join")
    appliance.stop()


@test()
def stats_show_each_group(box):
    configuration = two(box)
    configuration["process"].append({"name": "probe", "user": "root", "trusted": False})
    appliance = box.appliance(configuration)

    def groups():
        return appliance.stats()["group"]

    def members(**states):
        counts = {"free": 0, "joining": 0, "alive": 0, "dead": 0, "quiet": 0, **states}
        return {f"members_{state}": count for state, count in counts.items()}

    def members_of(group):
        return {name: count for name, count in group.items() if name.startswith("members_")}

    before = groups()
    expect({name: group["layout"] for name, group in before.items()},
           {"main": "lazy", "probe.0": "exchange"}, "the groups")
    expect(members_of(before["main"]), members(free=2, alive=1), "the members at first")
    ann = start(box, appliance, "c++", "ann", "two")  # greets the owner, which has no handler
    wait_for(lambda: groups()["main"]["received"] == 3, "three messages received")
    wait_for(lambda: members_of(groups()["main"]) == members(free=1, alive=2),
             "ann in the counters")
    counted = groups()
    expect(counted["main"], {**before["main"], **members(free=1, alive=2), "received": 3,
                             "unhandled": 3}, "what main has counted")
    expect(counted["probe.0"], before["probe.0"], "what probe.0 has counted")
    lines = appliance.stats_text()
    table = lines[lines.index("\ngroup\n"):].splitlines()[2:5]
    expect(table[0].split()[:2], ["layout", "members_alive"], "the head in stats")
    expect(table[1].split()[:3], ["main", "lazy", "2"], "the line of main in stats")
    expect_in("members_free 1", lines, "what is the same in both groups")
    ann.send_signal(signal.SIGKILL)
    wait_for(lambda: members_of(groups()["main"]) == members_of(before["main"]), "ann forgotten")
    appliance.stop()


@test()
def segments_that_others_write_are_named(box):
    configuration = two(box)
    configuration["process"].append({"name": "probe", "user": "root", "trusted": False})
    appliance = box.appliance(configuration)
    unsealed = set()
    for number in os.listdir(f"/proc/{appliance.pid}/fd"):
        path = f"/proc/{appliance.pid}/fd/{number}"
        found = re.fullmatch(r"/memfd:(.*) \(deleted\)", os.readlink(path))
        if found:
            with open(path, "rb") as file:
                seals = fcntl.fcntl(file, fcntl.F_GET_SEALS)
            if not seals & F_SEAL_FUTURE_WRITE:
                unsealed.add(found[1])
    expect(unsealed, {"fifo:main", "heap:ann.0", "heap:bob.0", "exchange:probe.0"}, "the memfds")
    stats = appliance.stats()
    expect({owner for owner, segment in stats["segment"].items() if not segment["write_seal"]},
           unsealed, "what stats say at each segment")
    text = appliance.stats_text()
    table = text[text.index("\nsegment\n"):].splitlines()[2:]
    expect(table[0].split()[-1], "write_seal", "the last column of the segments")
    warned = [line.split()[0] for line in table[1:len(stats["segment"]) + 1]
              if line.endswith(" no")]
    expect(set(warned), unsealed, "what the text says at each segment")
    appliance.stop()


@test()
def the_pool_of_a_joiner_is_sealed(box):
    appliance = box.appliance(two(box))
    pool = appliance.stats()["pool"]
    found = facts(box, appliance)
    expect(found["segments"], 5, "boot, members, fifo and two heaps")
    expect_true(found["sealed"], "the joiner's pool is sealed")
    expect(found["audit"], "ok", "its audit")
    expect_true(found["munmap_refused_in_libc"], "munmap of any segment is refused")
    expect(found["munmap_refused_by_kernel"], pool["enforced_by_kernel"], "and as a raw call")
    appliance.stop()


@test()
def the_threads_of_groups_are_planned(box):
    appliance = box.appliance(two(box))
    threads = os.listdir(f"/proc/{appliance.pid}/task")
    expect(len(threads) - 1, box.plan(appliance.config)["stacks"]["count"], "threads with stacks")
    stats = appliance.stats()
    expect_true(stats["pool"]["sealed"], "the pool is sealed")
    expect(stats["pool"]["registrations_after_seal"], 0, "registrations after the seal")
    appliance.stop()
