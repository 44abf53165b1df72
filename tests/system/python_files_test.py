"""The Python package's reader of counters files, with made-up and damaged files. It must agree with
`bedplate stats --from`, and never read outside a file, hang or raise anything but its Error."""

import json
import os
import struct
import time

import bedplate
from bedplate import counters
from harness import KIB, expect, expect_in, expect_true, test

MAGIC, FORMAT = 0x32_73_74_61_74_73_70_62, 2
HEADER, SET, LABEL = "=QIi64sQ" + "QII" * 6 + "IIQQ", "=64s64s64sIIIIQII", "=32s160s"
COUNTER, ALERT = "=48s16s16s160s160sIIII16s", "=II160sQ"
NO_VALUE = (1 << 64) - 1
BUCKETS = 592
SECONDS_MAX = 30  # only a hang takes so long


def aligned(count):
    return (count + 63) // 64 * 64


class MadeUp:
    """A counters file, part by part: tests change a part before they write it."""

    def __init__(self):
        self.sets, self.labels, self.counters, self.alerts = [], [], [], []
        self.values = bytearray()
        self.traces = b""
        self.counter_bytes = struct.calcsize(COUNTER)
        self.header = {}  # fields that differ from what the parts make

    def add(self, owner, name, instance, values, labels=(), is_there=1, first=None):
        """`values`: (name, kind, unit, words, column, step_bits, its words). A set with `first` has
        the counters that begin there."""
        own = len(self.counters) if first is None else first
        self.sets.append([owner, name, instance, own, len(values), len(self.labels), len(labels),
                          len(self.values), is_there, 0])
        self.labels += labels
        offset = 0
        for counter, kind, unit, words, column, step_bits, data in values:
            if first is None:
                self.counters.append([counter, kind, unit, "It counts.", words, offset,
                                      8 * len(data), step_bits, 0, column])
            offset += 8 * len(data)
            self.values += struct.pack(f"={len(data)}Q", *data)
        self.values += bytes(aligned(len(self.values)) - len(self.values))
        return self

    def write(self, box, name="made.stats"):
        at = aligned(struct.calcsize(HEADER))
        tables, body = [], bytearray()
        for form, records in ((SET, self.sets), (LABEL, self.labels), (COUNTER, self.counters),
                              (ALERT, self.alerts)):
            record_bytes = self.counter_bytes if form is COUNTER else struct.calcsize(form)
            tables.append([at + len(body), len(records), record_bytes])
            body += b"".join(struct.pack(form, *(each.encode() if isinstance(each, str) else each
                                                 for each in record)
                                         )[:record_bytes].ljust(record_bytes, b"\0")
                             for record in records)
            body += bytes(aligned(len(body)) - len(body))
        begin = at + len(body)  # of the values
        for i, record in enumerate(self.sets):
            place = tables[0][0] - at + i * struct.calcsize(SET) + 3 * 64 + 4 * 4
            struct.pack_into("=Q", body, place, begin + record[7])
        end = begin + len(self.values)
        fields = {"magic": MAGIC, "format": FORMAT, "pid": 4711, "name": b"made",
                  "file_bytes": end + len(self.traces), "sets": tables[0], "labels": tables[1],
                  "counters": tables[2],
                  "rings": [end, 1, 8] if self.traces else [0, 0, 0], "sources": [0, 0, 0],
                  "subjects": [0, 0, 0], "alerts": [len(self.alerts), tables[3][2]],
                  "created_ns": 5, "begun_ns": 6, **self.header}
        flat = [each for field in fields.values()
                for each in (field if isinstance(field, list) else [field])]
        head = struct.pack(HEADER, *flat)
        head += bytes(at - len(head))
        return box.write(name, bytes(head + body + self.values + self.traces))


def histogram(*values):
    buckets = [0] * BUCKETS
    for bucket in values:
        buckets[bucket] += 1
    return buckets


def of_every_kind():
    made = MadeUp()
    made.add("", "shard", "main", [
        ("rounds", "counter", "rounds", "", "rounds", 0, [1 << 63]),
        ("level", "gauge", "bytes", "", "", 0, [12345]),
        ("none", "gauge", "bytes", "", "", 0, [NO_VALUE]),
        ("asleep", "gauge", "boolean", "", "", 0, [1]),
        ("odd", "gauge", "boolean", "", "", 0, [2]),
        ("state", "state", "state", "stopped|open", "", 0, [1]),
        ("strange", "state", "state", "stopped|open", "", 0, [7]),
        ("flags", "flags", "flags", "A|B|C", "", 0, [0b1101]),
        ("no_flags", "flags", "flags", "A|B|C", "", 0, [0]),
        ("text", "text", "text", "", "", 0, [int.from_bytes(b"\xc3\xa9t\xc3\xa9", "little"), 0]),
        ("time", "histogram", "ns", "", "", 4, histogram(*range(0, 400), 591, 591)),
        ("coarse", "histogram", "ns", "", "", 5, [1, 2, 3]),
        ("new", "matrix", "cells", "", "", 0, [4, 5])], [["backend", "io_uring"]])
    made.add("", "shard", "spare", [("rounds", "counter", "rounds", "", "", 0, [3])], is_there=0)
    made.add("kvd", "sessions", "", [("gets", "counter", "requests", "", "", 0, [9])])
    made.add("kvd", "tenants", "ann", [("hits", "counter", "requests", "", "", 0, [8])])
    made.add("kvd", "tenants", "bob", [("hits", "counter", "requests", "", "", 0, [7])],
             first=len(made.counters) - 1)
    made.alerts = [[0, 1, "{level} on {backend} is {state}, {none}, {nothing}, {rounds}{", 17],
                   [1, 0, "a spare set", 17], [2, 0, "{gets} gets", 0],
                   [4, 0, "{hits} hits of {time", 3]]
    return made


def stats(path):
    begin = time.monotonic()
    try:
        return counters.read_file(path).stats()
    except bedplate.Error as error:
        expect_true(str(error).startswith("reading counters") and path in str(error),
                    f"what the error is about: {error}")
        return str(error)
    finally:
        expect_true(time.monotonic() - begin < SECONDS_MAX, "it hangs")


def printed(box, path):
    """The same of `bedplate stats`."""
    done = box.bedplate("stats", "--json", "--from", path, expect_code=None)
    if done.returncode != 0:
        return done.stderr
    seen = json.loads(done.stdout)
    del seen["audit"]
    return seen


def is_refused(seen):
    return isinstance(seen, str)


@test()
def each_kind_is_what_the_command_prints(box):
    made = of_every_kind()
    path = made.write(box)
    seen = stats(path)
    expect(seen, printed(box, path), "the values")
    expect({name: value for name, value in seen["shard"]["main"].items() if name != "time"},
           {"backend": "io_uring", "rounds": 1 << 63, "level": 12345, "none": None, "asleep": True,
            "odd": 2, "state": "open", "strange": "7", "flags": "A C 8", "no_flags": "none",
            "text": "été", "coarse": {"kind": "histogram", "unit": "ns", "values": [1, 2, 3]},
            "new": {"kind": "matrix", "unit": "cells", "values": [4, 5]}}, "each kind")
    expect(seen["shard"]["main"]["time"]["count"], 402, "the values of the histogram")
    expect(list(seen["shard"]), ["main"], "sets that are in use")
    expect(seen["services"]["kvd"],
           {"gets": 9, "tenants": {"ann": {"hits": 8}, "bob": {"hits": 7}}}, "a service")
    expect([sign["says"] for sign in seen["signs"]],
           ["12.1 KiB on io_uring is open, unknown, , 9223372036854775808{", "7 hits of {time"],
           "the alerts")
    snapshot = counters.read_file(path)
    main = snapshot.find("shard", "main")
    expect((main["rounds"].column, main["level"].column, main["level"].help),
           ("rounds", "", "It counts."), "descriptions")
    expect((snapshot.is_running, snapshot.pid, snapshot.created_ns), (False, 4711, 5), "the header")


@test()
def older_and_newer_builds_are_read(box):
    for change in ("without columns", "longer records", "with traces"):
        made = of_every_kind()
        if change == "without columns":
            made.counter_bytes -= 16
        elif change == "with traces":
            made.traces = b"\xff" * 4096  # only `bedplate trace` reads them
        else:
            made.counter_bytes += 24
        path = made.write(box)
        seen = stats(path)
        expect(seen["shard"]["main"]["level"], 12345, f"a value of a file {change}")
        expect(seen, printed(box, path), f"all of a file {change}")


WRONG = {  # changes of the header, and a part of the answer
    "magic": ({"magic": MAGIC + 1}, "not a counters file"),
    "format": ({"format": 3}, "it has format 3, but this package reads 2"),
    "longer": ({"file_bytes": 1 << 40}, "it was truncated: "),
    "shorter": ({"file_bytes": 300}, "its records point outside the file"),
    "sets_behind": ({"sets": [1 << 20, 5, 224]}, "outside"),
    "sets_far": ({"sets": [(1 << 64) - 224, 5, 224]}, "outside"),
    "many_sets": ({"sets": [256, (1 << 32) - 1, 224]}, "outside"),
    "short_sets": ({"sets": [256, 5, 216]}, "outside"),
    "odd_sets": ({"sets": [257, 5, 224]}, "outside"),
    "labels_behind": ({"labels": [1 << 30, 1, 192]}, "outside"),
    "no_labels": ({"labels": [256, 0, 192]}, "outside"),
    "no_counters": ({"counters": [256, 0, 432]}, "outside"),
    "huge_counters": ({"counters": [256, 15, (1 << 32) - 8]}, "outside"),
    "many_alerts": ({"alerts": [1 << 30, 176]}, "outside"),
    "rings_inside": ({"rings": [512, 1, 8]}, "outside"),
}


@test(what=list(WRONG))
def a_wrong_header_is_refused(box, what):
    change, answer = WRONG[what]
    made = of_every_kind()
    made.header = change
    path = made.write(box)
    expect_in(answer, stats(path), "the refusal")
    expect_true(is_refused(printed(box, path)), "the command refuses it, too")


def with_set(index, value):
    made = of_every_kind()
    made.sets[0][index] = value
    return made


def with_counter(index, value):
    made = of_every_kind()
    made.counters[1][index] = value
    return made


def with_alert(index, value):
    made = of_every_kind()
    made.alerts[3][index] = value
    return made


@test()
def wrong_records_are_refused(box):
    for made in (with_set(3, 1 << 31), with_set(4, (1 << 32) - 1), with_set(5, 77), with_set(6, 2),
                 with_set(7, 1 << 40), with_set(7, 4), with_counter(5, 1 << 31),
                 with_counter(5, 4), with_counter(6, 0), with_counter(6, 12),
                 with_counter(6, (1 << 32) - 8), with_alert(0, 5), with_alert(1, 1)):
        path = made.write(box)
        expect_in("its records point outside the file", stats(path), "the refusal")
        expect_true(is_refused(printed(box, path)), "the command refuses it, too")
    # Values of a real file do not overlap. A million that do would be a million copies of the file.
    made = MadeUp()
    made.add("", "pool", "", [("bytes", "matrix", "bytes", "", "", 0, [0] * 100_000)])
    for i in range(1000):
        made.sets.append([*made.sets[0][:2], f"{i}", *made.sets[0][3:]])
    expect_in("its records point outside the file", stats(made.write(box)), "the refusal")


@test()
def no_file_is_waited_for(box):
    os.mkfifo(box.path("fifo.stats"))
    os.symlink("/dev/zero", box.path("zero.stats"))
    os.mkdir(box.path("folder.stats"))
    box.write("empty.stats", b"")
    box.write("text.stats", b"no counters at all\n" * 100)
    for name in ("fifo", "zero", "folder", "empty", "text", "none"):
        expect_true(is_refused(stats(box.path(f"{name}.stats"))), f"{name} is refused")
    made = of_every_kind()
    made.header = {"file_bytes": 1 << 40}
    path = made.write(box, "huge.stats")
    os.truncate(path, 1 << 40)
    expect_in("larger than a counters file can be", stats(path), "a file of 1 TiB")


@test()
def any_cut_is_refused(box):
    whole = of_every_kind().write(box)
    length = os.path.getsize(whole)
    with open(whole, "rb") as file:
        content = file.read()
    for kept in [*range(0, 400, 7), *range(400, length, 997), length - 8, length - 1]:
        expect_true(is_refused(stats(box.write("cut.stats", content[:kept]))), f"{kept} bytes")
    expect_in("outside", stats(box.write("long.stats", content + bytes(8))), "8 bytes more")


@test()
def damaged_files_are_read_or_refused(box):
    """Random bytes change: it is read, or refused with the package's Error. The package accepts no
    file that the command refuses."""
    dice = box.dice()
    with open(of_every_kind().write(box), "rb") as file:
        content = file.read()
    records_end = len(content) - 8 * KIB  # most of the rest are values, and any value is good
    for turn in range(1000):
        damaged = bytearray(content)
        for _ in range(dice.randrange(1, 4)):
            at = dice.randrange(records_end) // 4 * 4
            word = dice.choice([0, 1, 7, 8, 0xFF, 1 << 16, (1 << 31), (1 << 32) - 8, (1 << 32) - 1,
                                dice.randrange(1 << 32)])
            damaged[at:at + 4] = struct.pack("=I", word)
        path = box.write("damaged.stats", bytes(damaged))
        seen = stats(path)
        if turn % 30 == 0 and not is_refused(seen):
            done = box.bedplate("stats", "--json", "--from", path, expect_code=None)
            expect(done.returncode, 0, f"the command's exit code: {done.stderr}")


@test()
def a_file_that_changes_is_read_or_refused(box):
    """Another program cuts and restores the file all the time."""
    made = of_every_kind()
    path = made.write(box)
    length = os.path.getsize(path)
    code = ("import os, sys\n"
            "while True:\n"
            "    os.truncate(sys.argv[1], int(sys.argv[2]) // 2)\n"
            "    os.truncate(sys.argv[1], int(sys.argv[2]))\n")
    box.spawn(["/usr/bin/python3", "-c", code, path, str(length)], "cutter.log")
    for _ in range(2000):
        seen = stats(path)
        if not is_refused(seen):
            expect(seen["name"], "made", "the name")


@test()
def many_sets_are_read(box):
    """A file with many sets is read."""
    made = MadeUp()
    made.add("", "pool", "", [("bytes", "gauge", "bytes", "", "", 0, [5])])
    for i in range(20_000):
        made.add("", "owner", f"{i}", [("used", "gauge", "bytes", "", "", 0, [i])],
                 first=None if i == 0 else 1)
    path = made.write(box)
    expect(stats(path)["owner"]["19999"], {"used": 19_999}, "the last of many sets")
    made.header = {"sets": [256, 20_001, 1 << 16]}
    expect_in("outside", stats(made.write(box)), "sets that would be longer than the file")
