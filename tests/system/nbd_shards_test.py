"""blockd with connections on two shards: several connections of one client are spread, and see the
same bytes; a request crosses only to a volume of the other shard; limits, methods, TLS and a drain
are those of one server."""

import select

from control_test import stopped_thread
from harness import (BACKENDS, KIB, MIB, expect, expect_in, expect_true, need_tools, test, to_toml,
                     wait_for)
import raw_nbd as nbd
from raw_nbd import RawClient, pattern
from tls_test import KEY_LINE, key_uri, secret

SHARDS = ["network", "storage"]


def configuration(box, sockets="io_uring-or-epoll", **blockd):
    """ram0 is on the shard storage, near on the shard network."""
    made = box.configuration("two_shards", sockets, connections_shards=SHARDS, **blockd)
    made["blockd"]["volume"].append({"name": "near", "bytes": 8 * MIB, "shard": "network"})
    made["control"] = {}
    return made


def start(box, sockets="io_uring-or-epoll", **blockd):
    return box.appliance(configuration(box, sockets, **blockd))


def on_each(appliance, name, counters="connections"):
    """A counter of each shard."""
    return [appliance.blockd(counters)[shard][name] for shard in SHARDS]


def two_clients(box, appliance, volume="ram0"):
    """Clients of a Unix socket take turns: the first is on the shard network."""
    clients = [nbd.connect(box, appliance, volume=volume) for _ in SHARDS]
    wait_for(lambda: on_each(appliance, "connections_open") == [1, 1], "a client on each shard")
    return clients


@test(sockets=BACKENDS, transport=["tcp", "unix"])
def nbdcopy_with_many_connections(box, sockets, transport):
    need_tools("nbdcopy")
    appliance = start(box, sockets)
    image = box.write("disk.img", pattern("disk", 64 * MIB))
    many = ["--connections=8", "--threads=8", "--requests=32"]
    box.run("nbdcopy", *many, image, appliance.uri(transport))
    box.run("nbdcopy", *many, appliance.uri(transport), "back.img")
    box.run("cmp", image, "back.img")
    total = on_each(appliance, "connections_total")
    expect_true(sum(total) >= 16, f"connections: {total}")
    if transport == "unix":  # over TCP the kernel spreads them by a hash
        expect_true(min(total) >= 4, f"they are spread: {total}")
    wait_for(lambda: appliance.blockd("volumes")["ram0"]["written_bytes"] == 64 * MIB,
             "the sum of the bytes written")
    appliance.stop()


@test(sockets=BACKENDS)
def requests_cross_only_to_another_shard(box, sockets):
    appliance = start(box, sockets)
    far, home = two_clients(box, appliance)
    data = pattern("data", 4 * KIB)
    home.write(0, data)
    for _ in range(20):
        expect_true(home.read(0, 4 * KIB) == data, "what a client of the volume's shard reads")
    expect(on_each(appliance, "crossings", "lanes"), [0, 0], "crossings for a volume at home")
    for _ in range(20):
        expect_true(far.read(0, 4 * KIB) == data, "what a client of the other shard reads")
    expect(on_each(appliance, "crossings", "lanes"), [20, 0], "crossings for a volume elsewhere")
    with RawClient(appliance.address()) as third:  # on the shard network again
        third.greet().go("near")
        third.verify("near")
        expect(on_each(appliance, "connections_open"), [2, 1], "the clients")
    expect(on_each(appliance, "crossings", "lanes"), [20, 0], "crossings for the volume near")
    wait_for(lambda: appliance.blockd("volumes")["ram0"]["requests_read"] == 40, "the sum of reads")
    appliance.stop()


@test(sockets=BACKENDS)
def tls_on_both(box, sockets):
    need_tools("nbdcopy")
    appliance = start(box, sockets, tls_shared_keys=secret(box, "keys.psk", KEY_LINE))
    image = box.write("disk.img", pattern("disk", 64 * MIB))
    box.run("nbdcopy", "--connections=8", "--threads=8", image, key_uri(appliance))
    box.run("nbdcopy", "--connections=8", "--threads=8", key_uri(appliance), "back.img")
    box.run("cmp", image, "back.img")
    expect_true(appliance.blockd("tls_handshakes") >= 16, "the sum of the handshakes")
    expect(sum(on_each(appliance, "tls_handshakes", "tls")), appliance.blockd("tls_handshakes"),
           "those of each shard")
    appliance.stop()


@test()
def a_limit_is_one_budget(box):
    """No test waits for a budget: see limits_test.py."""
    appliance = start(box)
    near, far = two_clients(box, appliance)
    appliance.ask("blockd.limit", volume="ram0", read_rate_bytes=4 * KIB)
    expect(far.call(nbd.READ, 0, 4 * MIB).error, 0, "the read that uses up the budget")
    for client in (near, far):
        client.request(nbd.READ, 0, 512)

    def waiting():
        return appliance.blockd("volume_limits")["ram0"]["reads_waiting"]

    wait_for(lambda: waiting() == 2, "the reads of both")
    expect(select.select([near.socket, far.socket], [], [], 0.2)[0], [], "what comes meanwhile")
    with RawClient(appliance.address()) as third, RawClient(appliance.address()) as leaves:
        for client in (third, leaves):
            client.greet().go("ram0")
            client.request(nbd.READ, 0, 512)
        wait_for(lambda: waiting() == 4, "those of two more")
    wait_for(lambda: waiting() == 2, "those that left take their requests along")
    appliance.ask("blockd.unlimit", volume="ram0")
    for client in (near, far):
        expect(client.reply().error, 0, "the read that waited")
    appliance.stop()


@test()
def methods_are_for_all_shards(box):
    appliance = start(box)
    clients = two_clients(box, appliance)
    said = appliance.ask("blockd.read_only", volume="ram0", on=True)
    expect(said, {"volume": "ram0", "read_only": True, "shards": SHARDS}, "the answer")
    for client in clients:
        expect(client.error(nbd.WRITE, 0, payload=b"x"), nbd.EPERM, "a write")
    appliance.ask("blockd.read_only", volume="ram0", on=False)
    for client in clients:
        expect(client.error(nbd.WRITE, 0, payload=b"x"), 0, "a write")
    expect(appliance.ask("blockd.listen", on=False), {"listening": False, "shards": SHARDS},
           "the answer")
    for transport in ("tcp", "unix"):
        with RawClient(appliance.address(transport)) as late:
            late.expect_disconnect("a client that comes now", 0)
    appliance.ask("blockd.listen", on=True)
    appliance.ask("blockd.hold", volume="ram0", on=True)
    for client in clients:
        client.request(nbd.READ, 0, 512)
    wait_for(lambda: sum(on_each(appliance, "requests_read")) == 2, "both reads")
    expect(appliance.ask("blockd.hold", volume="ram0", on=False)["released"], 2, "those held")
    for client in clients:
        expect(client.reply().error, 0, "a read that was held")
    appliance.stop()


@test()
def a_stopped_shard(box):
    """The other one serves its clients and its volumes; nothing is lost."""
    appliance = start(box)
    far, home = two_clients(box, appliance)
    near = nbd.connect(box, appliance, volume="near")
    wait_for(lambda: on_each(appliance, "connections_open") == [2, 1], "the third client")
    home.write(0, b"before")
    with stopped_thread(appliance.pid, "storage"):
        home.request(nbd.READ, 0, 6)
        far.request(nbd.READ, 0, 6)
        for i in range(50):
            near.verify(str(i))
        expect(select.select([home.socket, far.socket], [], [], 0.1)[0], [], "answers of the other")
    for client in (home, far):
        expect(client.reply().data, b"before", "the answer afterwards")
    appliance.stop()


@test(sockets=BACKENDS)
def drains_as_one(box, sockets):
    appliance = start(box, sockets)
    clients = two_clients(box, appliance)
    appliance.ask("blockd.hold", volume="ram0", on=True)
    for client in clients:
        client.request(nbd.READ, 0, 512)
    wait_for(lambda: sum(on_each(appliance, "requests_read")) == 2, "both reads")
    appliance.process.terminate()
    for client in clients:
        expect(client.reply().error, 0, "a read that was held")
        client.expect_disconnect("after the answer", 0)
    expect(appliance.wait_exit(), 0, "the exit code")
    expect_true("not drained" not in appliance.log_text(), "it is drained in time")


@test()
def wrong_shards_are_refused(box):
    for shards, told in ((["third"], 'no shard has the name "third"'),
                         (["network"] * 2, 'element 2 of "connections_shards" appears twice'),
                         ([], '"connections_shards" has 0 elements')):
        wrong = configuration(box)
        wrong["blockd"]["connections_shards"] = shards
        done = box.bedplate("check", box.write("wrong.toml", to_toml(wrong)), expect_code=2)
        expect_in(told, done.stdout + done.stderr, "what check says")
