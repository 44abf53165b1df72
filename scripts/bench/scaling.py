"""Arithmetic of scale_bench.py: lists of cores, shares of time, prepared requests, and a model.

This module measures nothing and starts nothing: a test calls its functions with made-up figures
(tests/system/scale_bench_test.py).
"""
import argparse
import collections
import itertools
import random
import struct

SHARDS_MAX = 64  # of an appliance


# ---- cores ---------------------------------------------------------------------------------------

def cores_of(text):
    """The cores in a list such as "0-3,8", in its order."""
    cores = []
    for part in text.split(","):
        ends = part.split("-")
        if len(ends) > 2 or not all(end.isascii() and end.isdigit() for end in ends):
            raise argparse.ArgumentTypeError(f"{part!r} is no core; write a list such as 0-3,8")
        first, last = int(ends[0]), int(ends[-1])
        if first > last:
            raise argparse.ArgumentTypeError(f"{part} runs backwards; write {last}-{first}")
        cores += range(first, last + 1)
    if len(set(cores)) != len(cores):
        raise argparse.ArgumentTypeError("a core is listed twice")
    if len(cores) > SHARDS_MAX:
        raise argparse.ArgumentTypeError(f"{len(cores)} cores; an appliance has at most "
                                         f"{SHARDS_MAX} shards")
    return cores


def shard_counts(core_count):
    """The numbers of shards to measure on so many cores: 1, 2, 4, ... and all."""
    counts = [1 << i for i in range(core_count.bit_length()) if 1 << i <= core_count]
    return counts if counts[-1] == core_count else [*counts, core_count]


def shards_on(cores, count):
    """[(name, core)] of so many shards, which take turns at the cores."""
    return [(f"s{i}", cores[i % len(cores)]) for i in range(count)]


def shares(total, count):
    """`count` numbers that differ by one at most and add up to `total`."""
    return [total // count + (i < total % count) for i in range(count)]


# ---- processor time ------------------------------------------------------------------------------

def spent_ns(before, after):
    """The time that each shard took in between, from {shard: nanoseconds}."""
    return {shard: after[shard] - before[shard] for shard in after}


def busiest_rate(requests, spent):
    """Requests for each second of the shard that took the most time."""
    return requests / (max(spent.values()) / 1e9)


def largest_share(spent, elapsed_ns):
    """The share of a core that the busiest shard took."""
    return max(spent.values()) / elapsed_ns


# ---- prepared requests: the files of replay_client.c ---------------------------------------------

def replay_file(prefix, hellos, hello_reply_bytes, batches, reply_bytes, request_count):
    """All hellos have one length, and so have all batches. `prefix`: the first bytes of a reply;
    `reply_bytes`, `request_count`: of a batch."""
    hello_bytes = len(hellos[0]) if hellos else 0
    if {len(hello) for hello in hellos} > {hello_bytes} or len({*map(len, batches)}) != 1:
        raise ValueError("hellos or batches of different lengths")
    head = struct.pack("<7I", len(prefix), len(hellos), hello_bytes, hello_reply_bytes,
                       len(batches[0]), reply_bytes, request_count)
    return b"".join((head, prefix, *hellos, *batches))


def kvd_gets(keys, value_bytes, depth, batch_count=64):
    """Gets of random keys, as kvd_client.c fills them in."""
    chance = random.Random(1)
    batches = [b"".join(b"get key%07d\r\n" % chance.randrange(keys) for _ in range(depth))
               for _ in range(batch_count)]
    reply = b"VALUE key0000000 0 %d\r\n" % value_bytes + bytes(value_bytes) + b"\r\nEND\r\n"
    return replay_file(b"VALUE key", [], 0, batches, depth * len(reply), depth)


def nbd_reads(volumes, volume_bytes, block_bytes, depth, batch_count=64):
    """Reads of random blocks; each connection in turn takes the next of the volumes. The numbers
    are those of nbd_client.c."""
    hellos = [struct.pack(">IQIII", 3, 0x49484156454F5054, 7, 4 + len(name) + 2, len(name)) + name +
              struct.pack(">H", 0) for name in map(str.encode, volumes)]
    greeting, export, acknowledgement = 18, 20 + 12, 20  # bytes
    chance = random.Random(1)
    batches = [b"".join(struct.pack(">IHHQQI", 0x25609513, 0, 0, i,
                                    chance.randrange(volume_bytes // block_bytes) * block_bytes,
                                    block_bytes) for i in range(depth)) for _ in range(batch_count)]
    return replay_file(struct.pack(">II", 0x67446698, 0), hellos,
                       greeting + export + acknowledgement, batches, depth * (16 + block_bytes),
                       depth)


# ---- the model -----------------------------------------------------------------------------------

class Usl(collections.namedtuple("Usl", "rate contention coherence")):
    """Gunther's Universal Scalability Law: `rate` is that of one, `contention` the share of work
    that waits for others, `coherence` the cost of each pair."""

    def rate_at(self, count):
        slower = 1 + self.contention * (count - 1) + self.coherence * count * (count - 1)
        return self.rate * count / slower


def solved(matrix, vector):
    """The solution of a few linear equations; None if they have none or many."""
    rows = [[*row, value] for row, value in zip(matrix, vector)]
    count = len(rows)
    for i in range(count):
        pivot = max(range(i, count), key=lambda k: abs(rows[k][i]))
        if abs(rows[pivot][i]) < 1e-12:
            return None
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(count):
            if k != i:
                factor = rows[k][i] / rows[i][i]
                rows[k] = [mine - factor * its for mine, its in zip(rows[k], rows[i])]
    return [rows[i][count] / rows[i][i] for i in range(count)]


def fit_usl(points):
    """The law with the least squares of relative errors at [(count, rate)], two counts or more.

    count / rate is linear in the terms 1, count - 1 and count * (count - 1). Multiplied by rate /
    count each equation has the value 1, so all errors are relative. No factor may be negative: so
    each choice of terms is solved, and the best of the possible solutions taken.
    """
    scale = max(rate for _, rate in points)
    best = None
    for more in itertools.chain.from_iterable(
            itertools.combinations((1, 2), size) for size in range(3)):
        columns = (0, *more)
        if len(columns) > len({count for count, _ in points}):
            continue
        rows = [[rate / scale / count * (1, count - 1, count * (count - 1))[i] for i in columns]
                for count, rate in points]
        found = solved([[sum(row[i] * row[k] for row in rows) for k in range(len(columns))]
                        for i in range(len(columns))],
                       [sum(row[i] for row in rows) for i in range(len(columns))])
        if found is None or found[0] <= 0 or min(found) < 0:
            continue
        squares = sum((1 - sum(map(float.__mul__, row, found))) ** 2 for row in rows)
        if best is None or squares < best[0]:
            best = squares, dict(zip(columns, found))
    factors = best[1]
    one = factors[0]
    return Usl(scale / one, factors.get(1, 0.0) / one, factors.get(2, 0.0) / one)


def largest_error(law, points):
    """The largest relative error of the law at the points."""
    return max(abs(law.rate_at(count) / rate - 1) for count, rate in points)


def error_of_the_last(points):
    """The relative error at the last point of the law that the others give: how well the law
    extends. None with less than three points."""
    if len(points) < 3:
        return None
    return abs(fit_usl(points[:-1]).rate_at(points[-1][0]) / points[-1][1] - 1)
