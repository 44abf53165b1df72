"""The memory that malloc returns. The environment chooses it; the configuration can state the
choice."""

import json
import os

from harness import MIB, expect, expect_in, expect_true, read_text, test, to_toml
import raw_nbd as nbd
from raw_nbd import connect, pattern

# name: (variables, value of [alloc] expect, whether the value is right)
EXPECTATIONS = {
    "pool": ({}, "pool", True),
    "not_ordinary": ({}, "ordinary", False),
    "ordinary": ({"BEDPLATE_LEAVE_PINNED": "no"}, "ordinary", True),
    "not_pool": ({"BEDPLATE_LEAVE_PINNED": "no"}, "pool", False),
    "disabled": ({"BEDPLATE_ALLOC_DISABLE": "1"}, "ordinary", True),
    "fakeroot": ({"FAKEROOTKEY": "17"}, "pool", False),
    "pipeline": ({"BEDPLATE_LEAVE_PINNED": "no", "BEDPLATE_LEAVE_PINNED_PIPELINE": "yes"}, "pool",
                 True),
}


@test(case=EXPECTATIONS)
def expectation(box, case):
    """A configuration may state an expected heap; run and check refuse any other."""
    variables, expected, is_so = EXPECTATIONS[case]
    environment = {**os.environ, **variables}
    configuration = box.configuration()
    configuration["alloc"] = {"expect": expected}
    config = box.write("bedplate.toml", to_toml(configuration))
    box.ensure_hugepages(config)
    if is_so:
        box.bedplate("check", config, env=environment)
        box.appliance(configuration, env=environment).stop()
        return
    for command in ("check", "run"):
        done = box.bedplate(command, config, env=environment, expect_code=2)
        expect_in(f'[alloc] expect = "{expected}"', done.stderr, f"what {command} says")
        expect(done.stderr.count("\n"), 1, f"the lines that {command} says")


@test()
def doctor_explains_the_decision(box):
    """`doctor` reports malloc's memory in one sentence, with the reason."""
    for variables, words in (({}, "pool memory, because leave_pinned is yes"),
                             ({"BEDPLATE_LEAVE_PINNED": "no"}, "ordinary memory, because"),
                             ({"FAKEROOTKEY": ""}, "because FAKEROOTKEY is set")):
        told = box.bedplate("doctor", "--json", env={**os.environ, **variables}).stdout
        value = {item["name"]: item["value"] for item in json.loads(told)}["malloc"]
        expect_in(words, value, "doctor about malloc")


@test()
def serves_with_an_ordinary_heap(box):
    """With an ordinary heap, only services use the pool. The appliance still serves, and the pool
    is locked."""
    appliance = box.appliance(env={**os.environ, "BEDPLATE_LEAVE_PINNED": "no"})
    client = connect(box, appliance)
    data = pattern(1, MIB)
    client.write(0, data)
    expect_true(client.read(0, MIB) == data, "the data are those that were written")
    expect(client.error(nbd.FLUSH, 0, 0), 0, "the error of FLUSH")
    pool = appliance.stats()["pool"]
    expect((pool["sealed"], appliance.audit(), pool["support_level"]), (True, "ok", "MUNMAP"),
           "sealed, audit and support_level")
    owners = appliance.stats()["owner"]
    expect((owners["boot"]["used_bytes"], owners["heap"]["used_bytes"]), (0, 0), "what the heap uses of the pool")
    resident = {line.split(":")[0]: int(line.split()[1])
                for line in read_text(f"/proc/{appliance.pid}/status").splitlines()
                if line.startswith("VmRSS")}["VmRSS"]
    expect_true(resident < 256 * 1024, f"the untouched heap is not there: {resident} KiB are")
    appliance.stop()


@test()
def support_is_proved(box):
    """`stats` has the support level that boot has tested. Boot frees the blocks of its test."""
    appliance = box.appliance()
    stats = appliance.stats()
    level = stats["pool"]["support_level"].split()
    expect_true({"FREE", "CHUNK"} <= set(level), f"FREE and CHUNK are among {level}")
    used = stats["owner"]["heap"]["used_bytes"]
    expect_true(used <= 16 * MIB, f"the heap of an idle appliance uses little: {used}")
    appliance.stop()


@test()
def heap_without_room_grows_for_the_proof(box):
    """Segment 0 has less than 4 MB free, so it grows for a command that only reads."""
    told = box.bedplate("doctor", "--json", env={**os.environ, "BEDPLATE_BOOT_BYTES": "8 MiB"})
    item = {item["name"]: item for item in json.loads(told.stdout)}["support level"]
    expect((item["verdict"], item["value"]), ("good", "FREE CHUNK"), "the support level")


@test()
def limits_are_shown(box):
    """`stats` shows the limit of each owner, and the used bytes of the heap."""
    configuration = box.configuration()
    configuration["limit"] = [{"owner": "heap:blockd", "bytes": "48 MiB"}]
    appliance = box.appliance(configuration)
    stats = appliance.stats()
    owners = stats["heap_owner"]
    expect(owners["heap:blockd"]["limit_bytes"], 48 * MIB, "the limit of heap:blockd")
    expect_true(0 < owners["heap:blockd"]["used_bytes"] <= 48 * MIB, "heap:blockd has something")
    expect_true(owners["heap"]["limit_bytes"] is None, "nobody limited heap")
    heap = stats["heap"]
    expect_true(heap["free_bytes"] >= heap["largest_free_bytes"] > 0, "free, and in one piece")
    used = sum(each["used_bytes"] for each in stats["heap_class"].values())
    charged = sum(owner["used_bytes"] for owner in owners.values())
    expect_true(0 < used <= charged, f"blocks ({used}) lie in what is charged ({charged})")
    appliance.stop()


@test()
def limit_of_nobody_is_refused(box):
    """A limit for an owner that no service has is refused, and the message lists the owners."""
    configuration = box.configuration()
    configuration["limit"] = [{"owner": "heap:nobody", "bytes": "1 MiB"}]
    config = box.write("bedplate.toml", to_toml(configuration))
    for command in ("run", "check", "plan"):
        done = box.bedplate(command, config, expect_code=2)
        expect_in("limiting the heap memory of heap:nobody: this configuration has no such owner; "
                  "owner in [[limit]] may be: heap, heap:runtime, heap:blockd", done.stderr,
                  f"what {command} says")


@test()
def start_without_proof(box):
    """The smallest heap has less than 4 MB left when boot tests the support. An appliance that
    expects the pool does not start; others start with a warning. The message has the cure."""
    plain = box.configuration("two_shards")  # with main, three threads for two chunks of 4 MiB
    del plain["blockd"]
    plain["pool"] = {"bytes": "32 MiB", "pages": "4 KiB", "heap_min_bytes": "8 MiB"}
    expecting = {**plain, "alloc": {"expect": "pool"}}
    words = ("proving that malloc uses the pool: malloc: the heap has no 4 MB free; "
             "give the heap 4 MB more ([pool] bytes)")
    config = box.write("bedplate.toml", to_toml(expecting))
    done = box.bedplate("run", config, expect_code=1)
    expect_in(words, done.stderr.splitlines()[-1], "the last line that run says")
    expect(done.stdout, "", "what is said of being ready")
    expect(os.path.exists(box.path("runtime")), False, "whether the counters are left")

    appliance = box.appliance(plain)
    expect_in(words, appliance.log_text(), "the log of a program that expects nothing")
    level = appliance.stats()["pool"]["support_level"].split()
    expect_true(not {"FREE", "CHUNK"} & set(level), f"neither FREE nor CHUNK is in {level}")
    appliance.stop()

    expecting["pool"] = {**plain["pool"], "bytes": "44 MiB"}  # each thread first takes a chunk
    box.appliance(expecting).stop()
