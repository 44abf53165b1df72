"""The arithmetic of scripts/bench/scale_bench.py, from made-up figures: nothing is measured."""

import argparse
import contextlib
import io
import os
import struct
import sys

from harness import Failure, expect, expect_in, expect_true, test

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts", "bench"))
sys.dont_write_bytecode = True  # nothing is built in the source folders
import scale_bench  # noqa: E402
import scaling  # noqa: E402


def expect_near(seen, wanted, what, tolerance=1e-6):
    expect_true(abs(seen - wanted) <= tolerance * max(1, abs(wanted)),
                f"{what}: {seen}; expected {wanted}")


def points_of(law, counts):
    return [(count, law.rate_at(count)) for count in counts]


@test()
def lists_of_cores(_box):
    for text, cores in (("0", [0]), ("0-3", [0, 1, 2, 3]), ("4,0-1,7", [4, 0, 1, 7])):
        expect(scaling.cores_of(text), cores, text)
    for text, told in (("", "is no core"), ("a", "is no core"), ("1-2-3", "is no core"),
                       ("-1", "is no core"), ("1,", "is no core"), ("3-1", "write 1-3"),
                       ("0-2,2", "listed twice"), ("0-64", "at most 64 shards")):
        try:
            scaling.cores_of(text)
        except argparse.ArgumentTypeError as error:
            expect_in(told, str(error), f"the refusal of {text!r}")
            continue
        raise Failure(f"{text!r} was taken")


@test()
def numbers_of_shards_end_with_all_cores(_box):
    for cores, counts in ((1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8]),
                          (12, [1, 2, 4, 8, 12])):
        expect(scaling.shard_counts(cores), counts, f"of {cores} cores")


@test()
def shards_take_turns_at_cores(_box):
    expect(scaling.shards_on([4, 6], 3), [("s0", 4), ("s1", 6), ("s2", 4)], "the shards")
    expect(scaling.shares(64, 2), [32, 32], "connections of two clients")
    expect(scaling.shares(7, 3), [3, 2, 2], "connections of three clients")
    expect(scaling.shares(2, 4), [1, 1, 0, 0], "connections of too many clients")


@test()
def the_busiest_shard_counts(_box):
    spent = scaling.spent_ns({"s0": 100, "s1": 500}, {"s0": 100 + 4 * 10 ** 9, "s1": 500 + 10 ** 9})
    expect(spent, {"s0": 4 * 10 ** 9, "s1": 10 ** 9}, "the time of each")
    expect(scaling.busiest_rate(800, spent), 200.0, "requests in a second of it")
    expect(scaling.largest_share(spent, 16 * 10 ** 9), 0.25, "its share of a core")


@test()
def a_law_is_found_in_its_own_points(_box):
    for law in (scaling.Usl(1000, 0.05, 0.001), scaling.Usl(250_000, 0, 0),
                scaling.Usl(3.5, 0.2, 0), scaling.Usl(700, 0, 0.01)):
        points = points_of(law, (1, 2, 4, 8, 16, 64))
        found = scaling.fit_usl(points)
        for name, wanted in law._asdict().items():
            expect_near(getattr(found, name), wanted, f"{name} of {law}")
        expect_near(scaling.largest_error(found, points), 0, f"the error of {law}")
        expect_near(scaling.error_of_the_last(points), 0, f"the error at 64 of {law}")
    expect(scaling.Usl(10, 0, 0).rate_at(7), 70, "the rate of seven that nothing slows")


@test()
def a_law_has_no_negative_factor(_box):
    """More than twice of one, by an error of the measurement: the law is linear then, and its error
    is told."""
    points = [(1, 100), (2, 220), (4, 460)]
    found = scaling.fit_usl(points)
    expect((found.contention, found.coherence), (0, 0), "the factors")
    expect_true(0.03 < scaling.largest_error(found, points) < 0.15, "the error")
    # Two points: one factor fits them.
    two = scaling.fit_usl([(1, 100), (2, 180)])
    expect_near(two.rate_at(1), 100, "the rate of one")
    expect_near(two.rate_at(2), 180, "the rate of two")
    expect(scaling.error_of_the_last([(1, 100), (2, 180)]), None, "the error that nobody knows")


@test()
def errors_are_relative(_box):
    """A small rate counts as much as a large one: the law passes between the points, by the same
    part of each."""
    law = scaling.fit_usl([(1, 100), (1, 110), (64, 64 * 100), (64, 64 * 110)])
    for count in (1, 64):
        expect_true(1.0 < law.rate_at(count) / (100 * count) < 1.1, f"the law at {count}")


@test()
def prepared_requests_have_one_length(_box):
    fields = ("prefix", "hellos", "hello_bytes", "hello_reply", "batch", "reply", "requests")
    for text, wanted in (
            (scaling.kvd_gets(100_000, 100, 32, batch_count=3),
             {"prefix": 9, "hellos": 0, "hello_bytes": 0, "hello_reply": 0, "batch": 32 * 16,
              "reply": 32 * (24 + 100 + 7), "requests": 32}),
            (scaling.nbd_reads(["ram00", "ram01"], 1 << 20, 4096, 8, batch_count=3),
             {"prefix": 8, "hellos": 2, "hello_bytes": 26 + 5, "hello_reply": 70, "batch": 8 * 28,
              "reply": 8 * (16 + 4096), "requests": 8})):
        head = dict(zip(fields, struct.unpack_from("<7I", text)))
        expect(head, wanted, "the head")
        expect(len(text), 28 + head["prefix"] + head["hellos"] * head["hello_bytes"] +
               3 * head["batch"], "the length of the file")
    try:
        scaling.replay_file(b"", [], 0, [b"a", b"bc"], 1, 1)
    except ValueError:
        return
    raise Failure("batches of different lengths were taken")


def made_up(rates, **more):
    return {"rate": {n: [rate, rate * 1.1, rate * 0.9] for n, rate in rates.items()},
            "clients": {n: [0.5] * 3 for n in rates}, **more}


@test()
def rows_of_two_cores_are_judged(_box):
    rates = {1: 500, 2: 800, 8: 780, 64: 700}
    busiest = {n: [rate] * 3 for n, rate in {1: 1000, 2: 1750, 8: 5000, 64: 20_000}.items()}
    measured = made_up(rates, busiest=busiest,
                       idle={n: [0.0005] * 3 if n < 64 else [0.002] * 3 for n in rates})
    rows = scale_bench.crowded_rows({"kvd": measured, "blockd": measured})
    reached = {row["title"]: [entry["reached"] for entry in row["comparisons"]] for row in rows}
    expect(reached["kvd gets, 8 shards on two cores"], [True], "0.975 of 2 shards")
    expect(reached["kvd gets, 64 shards on two cores"], [False], "0.875 of 2 shards")
    expect(reached["NBD reads of 4 KiB, a second of the busiest shard"], [True], "1.75 of 1 shard")
    expect(reached["blockd, the busiest of idle shards"], [True, True, True, False], "idle shards")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        scale_bench.print_rows(rows)
        scale_bench.print_clients({"kvd": measured})
        laws = scale_bench.models({"kvd": measured, "blockd": measured}, "busiest")
    expect(sorted(laws), ["blockd", "kvd"], "the models")
    for text in ("0.875 of 2 shards, at least 0.9 NOT reached", "a model, not measured",
                 "kvd: clients busy 50% (1 shard), 50% (2 shards)"):
        expect_in(text, said.getvalue(), "what is printed")
    expect_true(all("model" not in row["title"] for row in rows), "no row of a model")


@test()
def rows_of_many_cores_stand_beside_the_peer(_box):
    ours, theirs = made_up({1: 100, 2: 190, 4: 350}), made_up({1: 80, 2: 150, 4: 250})
    rows = scale_bench.rows_on_cores({"kvd": ours, "memcached": theirs, "blockd": ours})
    said = {row["title"]: [entry["with"] for entry in row["comparisons"]] for row in rows}
    expect(said["kvd gets, each shard on a core"], ["1 shard, by 2", "1 shard, by 4"], "of one")
    expect(said["gets, 4 cores"], ["memcached -t 4"], "of the peer")
    expect([entry["reached"] for row in rows for entry in row["comparisons"]],
           [None] * sum(len(row["comparisons"]) for row in rows), "figures without targets")
    with contextlib.redirect_stdout(io.StringIO()) as output:
        scale_bench.models({"kvd": made_up({1: 1, 2: 2}), "blockd": ours}, "rate")
    expect_in("kvd gets: no model: any would fit 2 numbers of shards", output.getvalue(),
              "what is printed")
