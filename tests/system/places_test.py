"""Messages by name, with the same code wherever the peer is: on the same shard, on another shard,
in another process, in an untrusted process. (On another host: tests/guest/verbs_test.py.)"""

import os

from harness import (BEDPLATE, BOUND_SECONDS, expect, expect_in, need_backend, read_text, test,
                     to_toml, wait_for)

PLACES = os.path.join(os.path.dirname(BEDPLATE), "places")
DONE = "put, get, add: good"


def places(box, sockets, shards, ask):
    return {"appliance": {"name": "test", "runtime_directory": box.path("runtime")},
            "pool": {"bytes": "160 MiB", "pages": "4 KiB"},
            "event_loop": {"sockets": sockets},
            "shard": [{"name": name, "cpu": cpu} for name, cpu in
                      zip(shards, sorted(os.sched_getaffinity(0)))],
            "group": [{"name": "main", "members": 3}],
            "process": [{"name": "ann", "user": "root", "group": "main", "heap_bytes": "16 MiB",
                         "read": ["heap"]},
                        {"name": "stranger", "user": "root", "trusted": False, "heap_bytes": "16 MiB"}],
            "places": {"ask": ask}}


def start(box, configuration):
    path = box.write("places.toml", to_toml(configuration))
    process = box.spawn([PLACES, "run", path], "places.log")
    wait_for(lambda: "bedplate: ready" in read_text(box.path("places.log")), "it is ready")
    return process


def reports(log):
    return [line for line in read_text(log).splitlines()
            if " by " in line and not line.startswith("bedplate:")]


def wait_for_reports(log, count):
    wait_for(lambda: len(reports(log)) == count, f"{count} reports in {log}")
    return reports(log)


@test(sockets=["io_uring", "epoll"])
def one_code_reaches_all_places_by_name(box, sockets):
    need_backend(sockets)
    shards = ["a", "b"][:len(os.sched_getaffinity(0))]
    appliance = start(box, places(box, sockets, shards, [*shards, "ann", "stranger"]))
    socket = box.path("runtime/test.join")
    box.spawn([PLACES, "join", socket, "ann", "test"], "ann.log")
    box.spawn([PLACES, "join", socket, "stranger", "test"], "stranger.log")
    seen = wait_for_reports(box.path("places.log"), len(shards) + 2)
    expect(seen[0], f"a by self: echo 8, lent, {DONE}", "to itself")
    early = dict(line.removeprefix("in create ").split(": ", 1)
                 for line in read_text(box.path("places.log")).splitlines()
                 if line.startswith("in create "))
    expect([early[name] for name in shards], ["known"] * len(shards), "shards, in create()")
    for name in ("ann", "stranger"):
        expect_in("shm: no living member has this name", early[name], "a process, in create()")
    if len(shards) == 2:
        expect(seen[1], f"b by shards, since self: this is a: echo 7, lent, {DONE}",
               "to another shard")
    ann, stranger = seen[-2:]
    expect_in("ann by shm, since self: this is a; ", ann, "the provider for a process, and why")
    expect_in(f": echo 7, lent, {DONE}", ann, "to a process")
    # The process maps no memory of the owner, so the owner can lend it none.
    expect_in("stranger by shm, ", stranger, "the provider for one that is not trusted")
    expect_in(f": echo 6, no loan, {DONE}", stranger, "to one that is not trusted")
    expect(wait_for_reports(box.path("ann.log"), 1),
           [f"test by shm: echo 7, lent, {DONE}"], "from a process to the owner")
    # The process may not write the owner's area, and no other process writes there for it.
    expect(wait_for_reports(box.path("stranger.log"), 1),
           ["test by shm: echo 6, lent, put refused"], "from one that is not trusted to the owner")
    appliance.terminate()
    expect(appliance.wait(BOUND_SECONDS), 0, "the exit code")


@test()
def a_message_that_the_peer_does_not_have_is_told_by_name(box):
    """The example program ping joins, but has no message names."""
    configuration = places(box, "io_uring-or-epoll", ["a"], ["ann"])
    appliance = start(box, configuration)
    ping = os.path.join(os.path.dirname(BEDPLATE), "examples", "ping")
    box.spawn([ping, box.path("runtime/test.join"), "ann", "nobody"], "ping.log")
    expect_in(": it has no message places.echo", wait_for_reports(box.path("places.log"), 1)[0],
              "what is said")
    appliance.terminate()
    expect(appliance.wait(BOUND_SECONDS), 0, "the exit code")
