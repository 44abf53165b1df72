"""Hostile processes of another user: none ends the appliance or keeps others out."""

import os
import subprocess
import sys
import tomllib

from harness import (BEDPLATE, KIB, MIB, Skip, expect, expect_true, few_hugepages, read_text, test,
                     wait_for)

HERE = os.path.dirname(os.path.abspath(__file__))
PING = os.path.join(os.path.dirname(BEDPLATE), "examples", "ping")
NOBODY = "65534"


def hosts(box, **messages):
    """The configuration of two.toml on hugepages, and two outsiders: a stranger, and a trusted
    process of another user."""
    if os.getuid() != 0:
        raise Skip("only root can become another user")
    with open(os.path.join(HERE, "../../apps/examples/two.toml"), "rb") as file:
        configuration = tomllib.load(file)
    configuration["appliance"]["runtime_directory"] = box.path("runtime")
    configuration["pool"] = {"bytes": "256 MiB", "pages": "2 MiB"}
    configuration["shard"][0]["cpu"] = min(os.sched_getaffinity(0))
    configuration["group"].append({"name": "other", "members": 2})
    configuration["process"] += [
        {"name": "stranger", "user": NOBODY, "trusted": False, "heap_bytes": "8 MiB"},
        {"name": "worker", "user": NOBODY, "group": "other", "heap_bytes": "8 MiB"}]
    configuration["messages"] = messages
    return configuration


class Outsider:
    count = 0

    def __init__(self, box, appliance, name, *actions):
        Outsider.count += 1
        self.log = box.path(f"outsider.{Outsider.count}.log")
        path = os.path.join(appliance.runtime_directory, "two.join")
        self.process = box.spawn([sys.executable, os.path.join(HERE, "outsider.py"), path, name,
                                  *actions], f"outsider.{Outsider.count}.log",
                                 stdin=subprocess.PIPE)
        wait_for(lambda: len(self.said()) == len(actions) or self.process.poll() is not None,
                 f"{name} doing {actions}")
        expect_true(self.process.poll() is None, f"{name} did it all ({read_text(self.log)})")

    def said(self):
        """The complete lines of the log. The last line may still be incomplete."""
        return read_text(self.log).split("\n")[:-1]

    def end(self):
        self.process.stdin.close()
        expect(self.process.wait(20), 0, f"its exit code ({read_text(self.log)})")


def wait_for_line(appliance, text, count=1):
    wait_for(lambda: appliance.log_text().count(text) >= count or
             appliance.process.poll() is not None, f"{count} times {text!r} in the log")
    expect(appliance.process.poll(), None, "the appliance's exit code")


@test(name=["stranger", "worker"])
def holes_end_nobody(box, name):
    appliance = box.appliance(hosts(box))
    hostile = Outsider(box, appliance, name, "fill", "ready", "punch")
    with few_hugepages(0):  # another process takes the pages that it gave back
        hostile.end()
        wait_for_line(appliance, "is forgotten")
        expect(appliance.audit(), "ok", "the audit")
    Outsider(box, appliance, name, "look", "ready").end()
    wait_for_line(appliance, "is forgotten", 2)
    again = Outsider(box, appliance, name, "look")
    expect(again.said(), ["look dirty [] holes []"], "what the next one is handed")
    again.end()
    appliance.stop()


@test()
def pages_of_what_outsiders_write_are_as_planned(box):
    appliance = box.appliance(hosts(box))
    pages = {owner: segment["page_bytes"]
             for owner, segment in appliance.stats()["segment"].items()}
    expect(pages, {segment["owner"]: segment["page_bytes"]
                   for segment in box.plan(appliance.config)["segments"]}, "the pages")
    small = {owner for owner, page in pages.items() if page == 4 * KIB}
    expect(small, {"boot", "members", "fifo:other", "heap:worker.0", "exchange:stranger.0",
                   "heap:stranger.0"}, "what lies on pages of 4 KiB")
    expect(pages["heap:ann.0"], 2 * MIB, "the pages of a process of the appliance's own user")
    appliance.stop()


@test(name=["stranger", "worker"])
def seals_keep_nobody_out(box, name):
    appliance = box.appliance(hosts(box))
    hostile = Outsider(box, appliance, name, "seal", "ready")
    expect(hostile.said()[0], "seal ", "the seals that it could set")
    hostile.end()
    wait_for_line(appliance, "is forgotten")
    Outsider(box, appliance, name, "look", "ready").end()
    appliance.stop()


@test()
def failures_of_strangers_stop_nobody(box):
    appliance = box.appliance(hosts(box, on_join_failure="stop"))
    for turn in range(1, 4):
        Outsider(box, appliance, "stranger", "fail").end()
        wait_for_line(appliance, "of stranger.0, could not join", turn)
        wait_for_line(appliance, "is forgotten", turn)
    ann = box.spawn([PING, os.path.join(appliance.runtime_directory, "two.join"), "ann", "two"],
                    "ann.log")
    wait_for_line(appliance, "of main, joined")
    ann.kill()
    Outsider(box, appliance, "worker", "fail").end()  # it is trusted: the configuration says so
    expect(appliance.wait_exit(), 1, "the appliance's exit code")


@test()
def how_much_of_its_heap_a_process_has_used_is_its_own_to_know(box):
    appliance = box.appliance(hosts(box))
    owners = appliance.stats()["owner"]
    for name in ("heap:ann.0", "heap:stranger.0", "heap:worker.0"):
        expect(owners[name]["used_bytes"], None, f"what is used of {name}")
    expect(owners["fifo:main"]["used_bytes"], None, "of a FIFO, which is in use as a whole")
    expect_true(any(line.startswith("  heap:ann.0 ") and line.endswith(" -")
                    for line in appliance.stats_text().splitlines()), "what the text says")
    appliance.stop()
