"""kvd on several shards: clients get the answers of one shard, whatever shards own their keys."""

import os
import random
import threading

from harness import (BACKENDS, BOUND_SECONDS, KIB, MIB, Skip, expect, expect_in, expect_true,
                     need_tools, test, wait_for)
from kvd_test import Client, start

SHARDS = [2, 4]


def start_shards(box, sockets, count, **keys):
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < count:
        raise Skip(f"{count} shards need as many processors; this machine has {len(cores)}")
    names = [f"s{i}" for i in range(count)]
    shards = [{"name": name, "cpu": core} for name, core in zip(names, cores)]
    return start(box, sockets, {"shard": shards},
                 **{"shards": names, "cache_bytes": "32 MiB", **keys})


def total(appliance, name):
    return sum(counters[name] for counters in appliance.counter("shards").values())


def of_first(appliance, name):
    return appliance.counter("shards")["s0"][name]


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
    used = [counters["items"] > 0 for counters in appliance.counter("shards").values()]
    expect(used, [True] * count, "which shards have items")
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
    expect_true(of_first(appliance, "crossings") * 3 < of_first(appliance, "crossed"),
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
    wait_for(lambda: of_first(appliance, "connections_open") == 1, "the ends of those that left")
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
