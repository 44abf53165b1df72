"""`bedplate plan --explain` compares each key with the peak of a run, and proposes a new value."""

import json
import re
import shutil

from harness import KIB, MIB, expect, expect_in, expect_true, test, to_toml, wait_for
from raw_nbd import READ, connect, connected, request_bytes
from relay_rig import Receiver, free_ports, output, rtp, sender, start


def explain(box, config, *options):
    told = json.loads(box.bedplate("plan", "--explain", "--json", *options, config).stdout)
    return told, {one["key"]: one for one in told["keys"]}


def planned_bytes(box, config):
    """The bytes of all planned segments but the heap. The heap gets the rest of the pool."""
    return sum(segment["bytes"] for segment in box.plan(config)["segments"]
               if segment["owner"] != "heap")


@test()
def a_key_that_is_too_large(box):
    """`explain` prints the key's peak, a smaller value, and the saved bytes. A plan with that value
    saves exactly these bytes."""
    configuration = box.configuration(max_connections=100)
    appliance = box.appliance(configuration)
    clients = [connect(box, appliance) for _ in range(8)]
    for client in clients[1:]:
        client.close()
    wait_for(lambda: appliance.blockd("connections_open") == 1, "the end of seven clients")
    told, keys = explain(box, appliance.config)
    expect((told["name"], told["running"]), ("test", True), "whose peaks they are")
    found = keys["blockd.max_connections"]
    expect((found["value"], found["peak"], found["proposed"]), (100, 8, 10), "of its value")
    expect((found["refused"], found["unit"]), (0, "connections"), "of what")
    expect_true(found["saved_bytes"] > 90 * 128 * KIB, f"what it saves: {found}")
    expect_in("closed at once", found["risk"], "the risk")
    text = box.bedplate("plan", "--explain", appliance.config).stdout
    row = next(line for line in text.splitlines() if line.startswith("blockd.max_connections"))
    expect(row.split()[1:4], ["100", "8", "10"], "its row")
    expect_in(f"risk: {found['risk']}", text, "the table")
    expect_in("proposed: the peak, or what ran out, plus 25 %", text, "the margin")

    configuration["blockd"]["max_connections"] = 10
    smaller = box.write("smaller.toml", to_toml(configuration))
    saved = planned_bytes(box, appliance.config) - planned_bytes(box, smaller)
    expect(found["saved_bytes"], saved, "the bytes that the proposed value saves")


@test()
def a_key_that_was_too_small(box):
    """A refusal makes the proposed value larger. The counters file of a killed appliance gives the
    same result."""
    appliance = box.appliance(box.configuration(max_connections=4))
    for _ in range(4):
        connect(box, appliance)
    late = connected(box, appliance)
    late.expect_disconnect("a fifth client")
    wait_for(lambda: appliance.blockd("connections_refused") == 1, "its refusal")
    running, _ = explain(box, appliance.config)
    kept = box.path("kept.stats")
    appliance.process.kill()
    appliance.wait_exit()
    shutil.copy(f"{appliance.runtime_directory}/test.stats", kept)
    crashed, _ = explain(box, appliance.config)
    copied, _ = explain(box, appliance.config, "--from", kept)
    expect([told["running"] for told in (running, crashed, copied)], [True, False, False], "it runs")
    for told in (running, crashed, copied):
        found, = (one for one in told["keys"] if one["key"] == "blockd.max_connections")
        expect((found["value"], found["peak"], found["refused"], found["proposed"]), (4, 4, 1, 5),
               "of its value")
        expect_true(found["saved_bytes"] <= 0, f"what it takes: {found}")
    text = box.bedplate("plan", "--explain", "--from", kept, appliance.config).stdout
    expect_in("NOT running", text, "the head")
    expect_in("it was too small: 1 refused or lost", text, "the table")


@test()
def requests_of_one_connection(box):
    """The peak is the largest number of requests at once. A later client with fewer requests does
    not lower it."""
    configuration = box.configuration(requests_per_connection=64)
    configuration["pool"]["pages"] = "4 KiB"  # so that small savings are visible
    appliance = box.appliance(configuration)
    for count in (8, 2):
        client = connect(box, appliance)
        client.send(b"".join(request_bytes(READ, 0, 4 * KIB, cookie=i) for i in range(count)))
        client.receive(count * (16 + 4 * KIB))
    found = explain(box, appliance.config)[1]["blockd.requests_per_connection"]
    expect((found["value"], found["peak"], found["proposed"]), (64, 8, 10), "of its value")
    expect_true(found["saved_bytes"] > 0, f"what it saves: {found}")


@test()
def the_heap(box):
    """The proposed size of the pool leaves out the heap bytes that were never in use. An appliance
    boots with the proposed sizes."""
    configuration = box.configuration()
    configuration["pool"]["heap_min_bytes"] = "16 MiB"
    configuration["limit"] = [{"owner": "heap:blockd", "bytes": "64 MiB"}]
    appliance = box.appliance(configuration)
    _, keys = explain(box, appliance.config)
    pool, limit = keys["pool.bytes"], keys["limit[heap:blockd].bytes"]
    expect((pool["value"], pool["refused"]), (256 * MIB, 0), "of the pool")
    expect_true(4 * MIB < pool["peak"] < 64 * MIB, f"the heap's peak: {pool}")
    expect(pool["value"] - pool["proposed"], pool["saved_bytes"], "what it saves")
    expect_true(limit["peak"] < limit["proposed"] < limit["value"], f"of the limit: {limit}")
    appliance.stop()
    configuration["pool"]["bytes"] = pool["proposed"]
    configuration["limit"][0]["bytes"] = limit["proposed"]
    box.appliance(configuration, file="smaller.toml").stop()


@test()
def what_a_stream_needs(box):
    """The peak of window_packets is the longest span from a missing packet to one that came early.
    The peak of queue_packets is the most packets that waited at once."""
    receiver, port = Receiver(box), free_ports(2)
    relay = start(box, [{"address": f"127.0.0.1:{port}"}], [output(receiver)])
    out = sender(box)
    for number in (0, 1, 4, 3, 2):
        out.sendto(rtp(number, b"\x47\x1f\xff\x10" + bytes(184)), ("127.0.0.1", port))
    receiver.wait_for(5)
    relay.wait_for_stream("packets", 5)
    told, keys = explain(box, relay.config)
    window = keys["tsrelay.stream[news].window_packets"]
    queue = keys["tsrelay.stream[news].queue_packets"]
    expect((window["peak"], window["proposed"]), (3, 4), "of the window")
    expect_true(3 <= queue["peak"] <= 5 and queue["proposed"] < queue["value"], f"the queue: {queue}")
    expect_true(queue["saved_bytes"] > 0 and queue["refused"] == 0, f"what it saves: {queue}")
    expect_true(not [key for key in told["unknown"] if "packets" in key], f"{told['unknown']}")


@test()
def a_key_that_nothing_measures(box):
    """A key that no counter measures is listed as unknown."""
    appliance = box.appliance()
    told, keys = explain(box, appliance.config)
    expect_in("blockd.volume[ram0].bytes", told["unknown"], "what is not known")
    expect_true(not set(told["unknown"]) & set(keys), "known and unknown")
    text = box.bedplate("plan", "--explain", appliance.config).stdout
    expect_in("unknown, since no counter measures them:\n", text, "the table")
    expect_in("\n  blockd.volume[ram0].bytes\n", text, "the table")


@test()
def refuses_what_makes_no_sense(box):
    config = box.write("good.toml", to_toml(box.configuration()))
    for arguments, code, wanted in [
            (["--from", config, config], 2, "--from needs --explain"),
            (["--explain"], 2, "missing CONFIG or --fifo"),
            (["--explain", "--fifo", "mesh", config], 2, "--fifo takes no configuration"),
            (["--explain", config], 1, "test.stats: No such file.* or name the counters file .* --from"),
            (["--explain", "--from", config, config], 1, "reading counters from")]:
        done = box.bedplate("plan", *arguments, expect_code=code)
        expect(done.stdout, "", "the standard output")
        expect(len(done.stderr.splitlines()), 1, f"the lines on standard error: {done.stderr}")
        expect_true(re.search(wanted, done.stderr), f"of {arguments}: {done.stderr}")
