"""tsrelay on several shards: each stream is served where the plan says."""

import json
import os

from harness import (BACKENDS, Skip, expect, expect_in, expect_true, free_port, test, to_toml,
                     wait_for)
from http_test import get, sample
from relay_rig import (PAYLOAD_BYTES, TSREADER, Receiver, expect_same, free_ports, generate, output,
                       payloads_of, rtp, send_all, sender, start_streams, wait_for_file)
from trace_test import traced

NAMES = ["east", "west"]


def shards():
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < len(NAMES):
        raise Skip(f"{len(NAMES)} shards need as many processors; this machine has {len(cores)}")
    return [{"name": name, "cpu": core} for name, core in zip(NAMES, cores)]


def stream(name, port, receiver, **keys):
    return {"name": name, "window_ms": 10_000, "leg": [{"address": f"127.0.0.1:{port}"}],
            "output": [output(receiver)], **keys}


def homes_in(plan):
    return {one["part"]: one["shard"] for one in plan["homes"]}


@test(sockets=BACKENDS)
def streams_are_where_the_plan_says(box, sockets):
    """Loads are 16 MiB/s for the first stream and 2 MiB/s for each of the others, of which one
    names its shard. All tools tell the same shards, and the shards trace the packets."""
    homes = {"first": "east", "second": "west", "third": "west", "fourth": "west"}
    keys = {"first": {"rate_bytes": "8 MiB"}, "fourth": {"shard": "west"}}
    payloads = payloads_of(generate(box, 1))[:300]
    ports = {name: free_ports(2) for name in homes}
    receivers = {name: Receiver(box) for name in homes}
    http = free_port()
    relay = start_streams(
        box, [stream(name, ports[name], receivers[name], **keys.get(name, {})) for name in homes],
        sockets, {"shard": shards(), "control": {}, "http": {"listen": [f"tcp:127.0.0.1:{http}"]}})
    for name, receiver in receivers.items():
        send_all(sender(box), [rtp(i, each) for i, each in enumerate(payloads)], ports[name],
                 [receiver])
        expect_true(receiver.content() == b"".join(payloads), f"{name} is what was sent")

    plan = box.plan(relay.config)
    expect(homes_in(plan), homes, "the plan")
    expect(box.plan(relay.config), plan, "the plan, once more")
    expect_in("tsrelay streams first: on the shard east", box.bedplate("plan", relay.config).stdout,
              "the plan as text")
    carves = {carve["owner"]: segment["owner"] for segment in plan["segments"]
              for carve in segment["carves"]}
    for index, home in enumerate(homes.values()):
        shard = NAMES.index(home)
        expect(carves[f"datagrams-{shard}-s{index}_leg0:tsrelay"], f"datagrams-{shard}:tsrelay",
               f"where the buffers of stream {index} are")
    explained = box.bedplate("plan", "--explain", "--json", relay.config).stdout
    expect(homes_in(json.loads(explained)), homes, "plan --explain")
    expect({name: relay.stream("shard", name) for name in homes}, homes, "stats")
    expect({one["stream"]: one["shard"] for one in relay.ask("tsrelay.streams")}, homes, "ctl")
    seen = box.bedplate("top", "--once", "--json", "--interval", "0.1", "--directory",
                        relay.runtime_directory).stdout
    text = json.dumps(json.loads(seen))
    metrics = get(http, "/metrics")[1]
    for name, home in homes.items():
        expect_in(f'"{name}": {{"shard": "{home}"', text, "top")
        sample(metrics, f'bedplate_tsrelay_streams_info{{streams="{name}",shard="{home}"}}')
        why = "which it names" if name == "fourth" else "by load"
        load = 16 if name == "first" else 2
        expect_in(f"tsrelay: {name}: on the shard {home}, {why}; its planned load is {load} MiB/s",
                  relay.log_text(), "the log")
    took = traced(box, relay, "--service", "tsrelay")
    expect({(one["subject"], one["shard"]) for one in took}, set(homes.items()),
           "the shards that took packets")
    relay.stop()


@test(sockets=BACKENDS)
def all_parts_of_a_stream_are_on_its_shard(box, sockets):
    """A stream on the second shard has two legs, FEC and a recording. Another one has a reader, so
    it is on the first shard, however large that shard's load is."""
    content = generate(box, 1)
    payloads = payloads_of(content)
    packets = [rtp(i, each) for i, each in enumerate(payloads)]
    legs, outputs, port = free_ports(4), free_ports(6), free_ports(2)
    media, columns, rows = (Receiver(box, port=outputs + beside) for beside in (0, 2, 4))
    heavy, read = Receiver(box), Receiver(box)
    far = {"name": "far", "window_ms": 10_000, "fec": {"columns": 5, "rows": 5},
           "leg": [{"address": f"127.0.0.1:{legs + beside}"} for beside in (0, 2)],
           "output": [output(media, fec=True)], "recording": [{"path": box.path("far.ts")}]}
    relay = start_streams(
        box, [stream("heavy", free_ports(2), heavy, shard="east", rate_bytes="1 GiB"), far,
              stream("read", port, read, readers=1)], sockets,
        {"shard": shards(), "group": [{"name": "main", "members": 4}],
         "process": [{"name": "ann", "user": "root", "group": "main", "heap_bytes": "16 MiB",
                      "read": ["datagrams-0:tsrelay"]}]})
    expect({name: relay.stream("shard", name) for name in ("heavy", "far", "read")},
           {"heavy": "east", "far": "west", "read": "east"}, "the shards")
    box.spawn([TSREADER, os.path.join(relay.runtime_directory, "test.join"), "ann", "read",
               "ann.ts"], "ann.log")
    wait_for(lambda: relay.stream("readers", "read") == 1, "the reader")
    # Each leg lacks every other packet, but for the last ones.
    out, last = sender(box), len(packets) - 10
    for i, packet in enumerate(packets):
        for leg in range(2):
            if i % 2 == leg or i in (0, 1) or i >= last:
                out.sendto(packet, ("127.0.0.1", legs + 2 * leg))
        if i % 16 == 15:
            media.wait_for(i - 1)
    media.wait_for(len(packets))
    send_all(out, packets, port, [read])
    expect_true(media.content() == content, "far is what was sent")
    expect_true(relay.stream("fec_sent", "far") > 0, "FEC was sent")
    columns.wait_for(1)
    rows.wait_for(1)
    wait_for_file(box, "far.ts", len(payloads) * PAYLOAD_BYTES)
    wait_for_file(box, "ann.ts", len(payloads) * PAYLOAD_BYTES)
    expect_same(box, "far.ts", content)
    expect_same(box, "ann.ts", content)
    wait_for(lambda: relay.stream("held", "far") == 0, "all buffers to be back")
    relay.stop()


@test()
def one_shard_needs_no_home(box):
    """With one shard nothing tells where streams are."""
    receiver = Receiver(box)
    relay = start_streams(box, [stream("news", free_ports(2), receiver)])
    expect_true("homes" not in box.plan(relay.config), "no homes in the plan")
    expect_true("shard" not in relay.part("streams"), "no shard in stats")
    expect_true("on the shard" not in relay.log_text(), "no shard in the log")
    relay.stop()


@test()
def shards_that_make_no_sense_are_refused(box):
    """Each is refused before anything is taken, with a cure."""
    base = {"appliance": {"name": "test"}, "pool": {"bytes": "128 MiB", "pages": "4 KiB"},
            "shard": [{"name": name, "cpu": cpu} for cpu, name in enumerate(NAMES)]}
    port = {"name": "wan", "device": "null", "shards": ["east"]}
    leg = [{"address": "127.0.0.1:5004"}]
    for relay, change, tables, wanted in [
            ({"shards": ["east", "north"]}, {}, {},
             'no shard has the name "north"; expected one of: east, west'),
            ({"shards": ["west", "west"]}, {}, {}, 'element 2 of "shards" appears twice'),
            ({"shards": []}, {}, {}, '"shards" has 0 elements'),
            ({}, {"shard": "north"}, {}, 'no shard has the name "north"'),
            ({"shards": ["west"]}, {"readers": 1}, {}, "processes reach the first shard alone"),
            ({}, {"shard": "west", "leg": [{**leg[0], "network": "wan"}]}, {"port": [port]},
             "its network wan has no queue on this shard; add it to shards of the [[port]] wan"),
            ({"shards": ["west"]}, {"leg": [{**leg[0], "network": "wan"}]}, {"port": [port]},
             "no shard that may serve it has queues of all its networks")]:
        stream_of = {"name": "news", "leg": leg, **change}
        config = box.write("bad.toml",
                           to_toml({**base, **tables, "tsrelay": {**relay, "stream": [stream_of]}}))
        done = box.bedplate("plan", config, expect_code=None)
        expect_true(done.returncode != 0, f"{relay}, {change} is refused")
        expect_in(wanted, done.stderr, "what is said")
