"""kvd on several shards: clients get the answers of one shard, whatever shards own their keys."""

import os
import random
import threading

from harness import (BACKENDS, BOUND_SECONDS, KIB, MIB, Skip, expect, expect_in, expect_true,
                     need_tools, test, to_toml, wait_for)
from kvd_test import Client, start
from kvd_tls_test import SecureClient
from tls_test import make_certificates

SHARDS = [2, 4]


def start_shards(box, sockets, count, tables=None, **keys):
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < count:
        raise Skip(f"{count} shards need as many processors; this machine has {len(cores)}")
    shards = [{"name": f"s{i}", "cpu": cores[i]} for i in range(count)]
    return start(box, sockets, {"shard": shards, **(tables or {})},
                 **{"cache_bytes": "32 MiB", **keys})


def of_each(appliance, name):
    """A counter of each shard."""
    return [counters[name] for _, counters in sorted(appliance.counter("kvd").items())]


def total(appliance, name):
    """The appliance has the sum, too, but makes it twice a second."""
    return sum(of_each(appliance, name))


@test(sockets=BACKENDS, count=SHARDS)
def memccapable(box, sockets, count):
    """Passes libmemcached's own test of the ASCII protocol."""
    need_tools("memccapable")
    appliance = start_shards(box, sockets, count)
    host, port = appliance.address("tcp")
    seen = box.run("memccapable", "-a", "-h", host, "-p", str(port)).stdout
    expect_in("All tests passed", seen, "what memccapable says")
    expect_true("[FAIL]" not in seen, "no check fails")
    appliance.stop()


@test(sockets=BACKENDS, count=SHARDS, transport=["tcp", "unix"])
def values_of_all_sizes(box, sockets, count, transport):
    """Long values are received into the owner's cache, and sent from there."""
    appliance = start_shards(box, sockets, count)
    client = Client(box, appliance, transport)
    for size in (0, 1, 100, 1023, 1536, 4096, 4097, 16 * KIB, 100_000, MIB):
        values = {b"key%d" % i: os.urandom(size) for i in range(2 * count)}
        for key, value in values.items():
            expect(client.store(key, value), b"STORED\r\n", f"a set of {size} bytes")
        for key, value in values.items():
            expect_true(client.get(key) == value, f"a get of {size} bytes is what was set")
    expect(client.store(b"key0", bytes(MIB + 1)), b"SERVER_ERROR object too large for cache\r\n",
           "a value larger than value_max_bytes")
    expect(client.get(b"key0"), None, "what the client wanted gone")
    expect([items > 0 for items in of_each(appliance, "items")], [True] * count,
           "which shards have items")
    appliance.stop()


@test(sockets=BACKENDS)
def clients_are_on_all_shards(box, sockets):
    """Each shard has its part of max_connections; a full one gives clients to the other one."""
    appliance = start_shards(box, sockets, 2, max_connections=7)  # 4 each
    clients = [Client(box, appliance, "unix") for _ in range(4)]
    for i, client in enumerate(clients):
        expect(client.store(b"key%d" % i, b"x"), b"STORED\r\n", "a set")
    expect(of_each(appliance, "connections_open"), [2, 2], "clients of a Unix socket")
    clients += [Client(box, appliance) for _ in range(4)]
    for client in clients:
        for i in range(4):
            expect(client.get(b"key%d" % i), b"x", "a get")
    expect(of_each(appliance, "connections_open"), [4, 4], "all clients")
    wait_for(lambda: appliance.counter("connections_open") == 8, "their sum")
    expect(Client(box, appliance).line(), b"", "a client more")
    expect(total(appliance, "connections_refused"), 1, "the count")
    expect_true(all(crossed > 0 for crossed in of_each(appliance, "crossed")), "all shards ask")
    appliance.stop()


@test()
def one_shard_has_the_names_of_always(box):
    """`shard` names the only shard, beside others; it goes not together with `shards`."""
    appliance = start_shards(box, "io_uring-or-epoll", 2, shard="s1")
    client = Client(box, appliance)
    expect(client.store(b"key", b"x"), b"STORED\r\n", "a set")
    counters = appliance.stats()["services"]["kvd"]
    expect((counters["sets"], counters["crossed"]), (1, 0), "its counters")
    expect_true("kvd" not in counters and "moves" not in counters, "there are no shards to tell")
    appliance.stop()
    both = {**appliance.configuration}
    both["kvd"] = {**both["kvd"], "shards": ["s0"]}
    done = box.bedplate("check", box.write("both.toml", to_toml(both)), expect_code=2)
    expect_in('"shards" is set beside "shard"; expected only one of them', done.stderr, "check")


@test(sockets=BACKENDS)
def clients_share_the_limit_of_their_listener(box, sockets):
    """The budget is one for the clients of all shards: a long value that any of them reads leaves a
    debt of minutes for all. The end of the limit lets them go, and so does a drain."""
    appliance = start_shards(box, sockets, 2, {"control": {}})
    listener = next(one for one in appliance.configuration["kvd"]["listen"]
                    if one.startswith("unix:"))
    clients = [Client(box, appliance, "unix") for _ in range(4)]
    for i, client in enumerate(clients):
        expect(client.store(b"key%d" % i, bytes(MIB)), b"STORED\r\n", "a set")
    expect(of_each(appliance, "connections_open"), [2, 2], "clients of each shard")

    def waiting():
        return appliance.counter("listener_limits")[listener]["reads_waiting"]

    for spender in (0, 1):  # of either shard
        appliance.ask("kvd.limit", listener=listener, read_rate_bytes=4 * KIB)
        expect_true(clients[spender].get(b"key1") == bytes(MIB), "the first read")
        others = [client for client in clients if client is not clients[spender]]
        for client in others:
            client.send(b"get a\r\nset b 0 0 1\r\nx\r\nget b\r\n")
        wait_for(lambda: waiting() == 3, "the reads")
        appliance.ask("kvd.unlimit", listener=listener)
        for client in others:
            expect([client.line() for _ in range(5)],
                   [b"END\r\n", b"STORED\r\n", b"VALUE b 0 1\r\n", b"x\r\n", b"END\r\n"],
                   "what waited")
        expect(waiting(), 0, "what waits")
    appliance.ask("kvd.limit", listener=listener, read_rate_bytes=4 * KIB)
    expect_true(clients[0].get(b"key0") == bytes(MIB), "the first read")
    clients[1].send(b"get a\r\n" * 3)
    clients[2].send(b"get a\r\n" * 3)
    wait_for(lambda: waiting() == 2, "the reads")
    appliance.stop()  # a drain ends all limits
    for client in clients[1:3]:
        expect(client.input.read(), b"END\r\n" * 3, "what waited")


@test(sockets=BACKENDS)
def tls_on_all_shards(box, sockets):
    folder = make_certificates(box)
    appliance = start_shards(box, sockets, 2, max_connections=8, plain_text="refused",
                             tls_certificate=f"{folder}/server-cert.pem",
                             tls_key=f"{folder}/server-key.pem")
    clients = [SecureClient(box, appliance, folder, "unix") for _ in range(4)]
    for i, client in enumerate(clients):
        expect(client.store(b"key%d" % i, bytes(100_000)), b"STORED\r\n", "a set")
    for client in clients:
        for i in range(4):
            expect_true(client.get(b"key%d" % i) == bytes(100_000), "a get")
    expect(of_each(appliance, "connections_open"), [2, 2], "clients of each shard")
    expect([tls["tls_handshakes"] for tls in appliance.counter("tls").values()], [2, 2],
           "the handshakes of each shard")
    appliance.stop()


def converse(client, name, seed, problems):
    """Random commands in pipelines on keys of its own; a dictionary knows the answers."""
    chance = random.Random(seed)
    keys = [b"%s:%d" % (name, i) for i in range(20)]
    known = {}
    for _ in range(100):
        requests, wanted = [], []
        for _ in range(chance.randrange(1, 60)):
            key, what = chance.choice(keys), chance.randrange(6)
            if what < 2:
                value = chance.randbytes(chance.choice((0, 10, 200, 2000, 20_000)))
                requests.append(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))
                wanted.append(b"STORED\r\n")
                known[key] = value
            elif what == 2:
                requests.append(b"delete %s\r\n" % key)
                wanted.append(b"DELETED\r\n" if known.pop(key, None) is not None
                              else b"NOT_FOUND\r\n")
            else:
                asked = chance.sample(keys, chance.randrange(1, len(keys)))
                requests.append(b"get %s\r\n" % b" ".join(asked))
                wanted += [b"VALUE %s 0 %d\r\n%s\r\n" % (each, len(known[each]), known[each])
                           for each in asked if each in known] + [b"END\r\n"]
        # The server takes no more from a client that reads nothing: it sends and reads at a time.
        sender = threading.Thread(target=client.send, args=(b"".join(requests),))
        sender.start()
        reply = b"".join(wanted)
        seen = client.input.read(len(reply))
        sender.join()
        if seen != reply:
            problems.append(f"{name} with seed {seed}: {len(seen)} of {len(reply)} bytes")
            return


@test(sockets=BACKENDS, count=SHARDS)
def many_clients_at_once(box, sockets, count):
    """Each client sees what it did, in its order, while others work on the same shards."""
    appliance = start_shards(box, sockets, count)
    problems = []
    threads = [threading.Thread(target=converse,
                                args=(Client(box, appliance, ("tcp", "unix")[i % 2]), b"c%d" % i,
                                      random.randrange(1 << 30), problems)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_SECONDS)
    expect(problems, [], "wrong answers")
    expect_true(not any(thread.is_alive() for thread in threads), "all clients end")
    expect_true(total(appliance, "crossings") * 3 < total(appliance, "crossed"),
                "commands cross together")
    expect(total(appliance, "gets"), total(appliance, "hits") + total(appliance, "misses"), "gets")
    appliance.stop()


@test(sockets=BACKENDS)
def clients_that_leave(box, sockets):
    """Clients leave in the middle of values and of pipelines. Others go on, and nothing is lost."""
    appliance = start_shards(box, sockets, 2)
    stays = Client(box, appliance)
    value = os.urandom(500_000)
    for key in (b"a", b"b", b"c", b"d"):
        stays.store(key, value)
    for i in range(40):
        leaves = Client(box, appliance, ("tcp", "unix")[i % 2])
        leaves.send((b"get a b c d\r\n" * 20, b"set new%d 0 0 900000\r\n" % i + bytes(400_000),
                     b"get a\r\nset a 0 0 9000\r\nabc")[i % 3])
        if i % 2:
            leaves.input.read(1000 if i % 3 == 0 else 0)
        leaves.input.close()
        leaves.socket.close()
        expect_true(stays.get(b"c") == value, "another client's get")
    wait_for(lambda: total(appliance, "connections_open") == 1, "the ends of those that left")
    for i in range(200):
        expect(stays.store(b"filler%d" % i, bytes(900_000)), b"STORED\r\n", "a set afterwards")
    expect(total(appliance, "no_memory"), 0, "refused values")
    appliance.stop()


@test(sockets=BACKENDS)
def of_all_shards_at_once(box, sockets):
    """flush_all and stats mean all shards; a drain answers what has come."""
    appliance = start_shards(box, sockets, 2)
    client = Client(box, appliance)
    for i in range(50):
        client.store(b"key%d" % i, b"x")
    client.send(b"stats\r\n")
    stats = dict(iter(lambda: tuple(client.line().split()[1:]) or None, None))
    expect((stats[b"curr_items"], stats[b"cmd_set"], stats[b"threads"]), (b"50", b"50", b"2"),
           "what stats says")
    expect(client.ask(b"flush_all\r\n"), b"OK\r\n", "flush_all")
    expect(client.ask(b"get " + b" ".join(b"key%d" % i for i in range(50)) + b"\r\n"), b"END\r\n",
           "a get of all keys")
    client.send(b"set last 0 0 1\r\nx\r\n" * 500)
    expect(client.input.read(8 * 500), b"STORED\r\n" * 500, "the answers")
    appliance.stop()
