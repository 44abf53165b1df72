"""Limits of volumes, tenants and listeners of blockd, changed by `ctl` while clients use them.

No test waits for a budget. A read of 4 MiB at 4 KiB a second leaves a debt of a quarter of an hour:
further reads go when the limit is changed.
"""

import json
import select

from harness import (KIB, LAYOUTS, MIB, expect, expect_in, expect_true, free_port, test, wait_for)
from http_test import get
import raw_nbd
from raw_nbd import RawClient

SPENT = 4 * MIB


def start(box, layout="one_shard", **more):
    configuration = box.configuration(layout)
    configuration["control"] = {}
    configuration["blockd"]["volume"].append({"name": "other", "bytes": 8 * MIB})
    configuration |= more
    return configuration


def limits_of(appliance, kind, name):
    return appliance.blockd(f"{kind}_limits")[name]


def spent(client, count):
    """Uses up the budget of reads, and then asks for `count` more, which wait."""
    client.request(raw_nbd.READ, 0, SPENT)
    expect(client.reply().error, 0, "the first read")
    for _ in range(count):
        client.request(raw_nbd.READ, 0, 512)


def expect_silence(client):
    expect(select.select([client.socket], [], [], 0.2)[0], [], "what comes while they wait")


@test(layout=list(LAYOUTS))
def requests_wait_for_their_volume(box, layout):
    """Reads over the limit wait, writes and other volumes go on; the end of the limit releases all
    in their order. Counters, top and /metrics show it."""
    port = free_port()
    appliance = box.appliance(start(box, layout, http={"listen": [f"tcp:127.0.0.1:{port}"]}))
    said = appliance.ask("blockd.limit", volume="ram0", read_rate_bytes=4 * KIB)
    expect((said["volume"], said["read_rate_bytes"], said["read_rate"]), ("ram0", 4 * KIB, None),
           "the answer")
    with RawClient(appliance.address()) as client, RawClient(appliance.address()) as other:
        client.greet().go("ram0")
        other.greet().go("other")
        spent(client, 3)
        wait_for(lambda: limits_of(appliance, "volume", "ram0")["reads_waiting"] == 3, "3 reads")
        expect_silence(client)
        spent(other, 1)
        expect(other.reply().error, 0, "a read of another volume")
        client.request(raw_nbd.WRITE, 0, payload=b"w" * 512)
        expect(client.reply().error, 0, "a write of the same client")
        top = box.bedplate("top", "--once", "--interval", "0.1", "--directory",
                           appliance.runtime_directory).stdout
        expect_true("waiting" in top, f"top shows that reads wait: {top}")
        expect_in('bedplate_blockd_volume_limits_reads_waiting{', get(port, "/metrics")[1],
                  "/metrics")
        said = appliance.ask("blockd.unlimit", volume="ram0")
        expect((said["read_rate_bytes"], said["reads_waiting"]), (None, 0), "the end")
        expect([client.reply().error for _ in range(3)], [0, 0, 0], "what waited")
    expect(limits_of(appliance, "volume", "ram0")["read_wait_ns"]["count"], 3, "waits that ended")


@test()
def two_changes_in_a_row_both_hold(box):
    appliance = box.appliance(start(box))
    appliance.ask("blockd.limit", volume="ram0", read_rate_bytes=4 * KIB)
    appliance.ask("blockd.limit", volume="ram0", write_rate=7, burst_ms=2000)
    said, = (one for one in appliance.ask("blockd.limits") if one.get("volume") == "ram0")
    expect([said[key] for key in ("read_rate", "read_rate_bytes", "write_rate", "write_rate_bytes",
                                  "burst_ms")], [None, 4 * KIB, 7, None, 2000], "the limits")
    counted = limits_of(appliance, "volume", "ram0")
    expect((counted["read_rate_bytes"], counted["write_rate"]), (4 * KIB, 7), "the counters")
    with RawClient(appliance.address()) as client:
        client.greet().go("ram0")
        spent(client, 1)
        wait_for(lambda: limits_of(appliance, "volume", "ram0")["reads_waiting"] == 1, "the read")


@test()
def the_commands_of_the_document(box):
    """Those of docs/nbd.md, and what they answer."""
    configuration = start(box)
    configuration["blockd"]["volume"].append({"name": "disk0", "bytes": 8 * MIB})
    appliance = box.appliance(configuration)

    def ctl(*words):
        return json.loads(box.bedplate("ctl", *words, "--directory",
                                       appliance.runtime_directory).stdout)

    said = ctl("blockd.limit", "volume=disk0", "write_rate=1000", "read_rate=2000")
    expect((said["write_rate"], said["read_rate"]), (1000, 2000), "the new limits")
    said = ctl("blockd.unlimit", "volume=disk0", "key=read_rate")
    expect((said["write_rate"], said["read_rate"]), (1000, None), "without the one")
    expect([one for one in ctl("blockd.limits") if one.get("volume") == "disk0"], [said],
           "the same in the list")


@test(layout=list(LAYOUTS))
def volumes_of_a_tenant_share_its_limit(box, layout):
    configuration = start(box, layout)
    configuration["blockd"]["tenant"] = [{"name": "acme", "limits": {"read_rate_bytes": 4 * KIB}}]
    for volume in configuration["blockd"]["volume"]:
        volume["tenant"] = "acme"
    appliance = box.appliance(configuration)
    with RawClient(appliance.address()) as one, RawClient(appliance.address()) as two:
        one.greet().go("ram0")
        two.greet().go("other")
        spent(one, 0)
        two.request(raw_nbd.READ, 0, 512)
        wait_for(lambda: limits_of(appliance, "tenant", "acme")["reads_waiting"] == 1, "the other")
        expect_silence(two)
        appliance.ask("blockd.unlimit", tenant="acme", key="read_rate_bytes")
        expect(two.reply().error, 0, "what waited")


@test()
def a_listener_has_a_limit_of_its_own(box):
    configuration = start(box)
    listener = next(one for one in configuration["blockd"]["listen"] if one.startswith("unix:"))
    configuration["blockd"]["listener"] = [{"address": listener,
                                            "limits": {"read_rate_bytes": 4 * KIB}}]
    appliance = box.appliance(configuration)
    with RawClient(appliance.address("unix")) as local, RawClient(appliance.address("tcp")) as far:
        local.greet().go("ram0")
        far.greet().go("ram0")
        spent(local, 1)
        spent(far, 1)
        expect(far.reply().error, 0, "a client of another listener")
        waiting = [one["reads_waiting"] for one in appliance.ask("blockd.limits")
                   if one.get("listener") == listener]
        expect(waiting, [1], "reads that wait")
        expect_silence(local)


@test()
def a_client_that_leaves_takes_its_requests_along(box):
    """Its requests would use up the budget of the clients that are there."""
    appliance = box.appliance(start(box))
    appliance.ask("blockd.limit", volume="ram0", read_rate_bytes=4 * KIB)
    with RawClient(appliance.address()) as stays:
        stays.greet().go("ram0")
        spent(stays, 1)
        with RawClient(appliance.address()) as leaves:
            leaves.greet().go("ram0")
            for _ in range(5):
                leaves.request(raw_nbd.READ, 0, 512)
            wait_for(lambda: limits_of(appliance, "volume", "ram0")["reads_waiting"] == 6, "all")
        wait_for(lambda: limits_of(appliance, "volume", "ram0")["reads_waiting"] == 1, "the one")
        wait_for(lambda: appliance.blockd("connections_open") == 1, "its slot")


@test()
def a_drain_ends_all_limits(box):
    appliance = box.appliance(start(box))
    appliance.ask("blockd.limit", volume="ram0", read_rate_bytes=4 * KIB)
    with RawClient(appliance.address()) as client:
        client.greet().go("ram0")
        spent(client, 2)
        wait_for(lambda: limits_of(appliance, "volume", "ram0")["reads_waiting"] == 2, "two reads")
        appliance.process.terminate()
        expect([client.reply().error for _ in range(2)], [0, 0], "what waited")
    expect(appliance.wait_exit(), 0, "its exit code")
    expect_true("not drained" not in appliance.log_text(), "it is drained in time")


@test()
def bad_limits_are_refused(box):
    appliance = box.appliance(start(box))
    for parameters, words in (
            ({"volume": "ram0", "read_rate": 0}, "read_rate is 0; expected 1..1000000000"),
            ({"volume": "ram0", "write_rate_bytes": 512},
             "write_rate_bytes is 512; expected 4096.."),
            ({"volume": "none", "read_rate": 1}, "blockd has no volume of this name"),
            ({"tenant": "acme", "read_rate": 1}, "blockd has no tenant of this name"),
            ({"read_rate": 1}, "no volume, tenant or listener is given"),
            ({"volume": "ram0"}, "no new value is given")):
        code, said = appliance.refusal("blockd.limit", **parameters)
        expect(code, -32000, f"the code for {parameters}")
        expect_in(words, said, f"the refusal of {parameters}")
    code, said = appliance.refusal("blockd.unlimit", volume="ram0", key="reads")
    expect((code, "no limit has this name" in said), (-32000, True), f"the refusal: {said}")
