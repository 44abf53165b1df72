#!/usr/bin/python3
"""The memory of shared-memory FIFOs with 1024 processes: the table of Open MPI's RFC "Fragmented sm
Allocations" (2009) row by row, computed to the byte from that version's structures and allocations,
next to the figures of `bedplate plan --fifo` for the same parameters.

Each figure has its source: published (in the RFC), modelled (by this file), planned (by
`bedplate plan`) or allocated (by processes that really joined: joined_memory.cc). It is not a
pass/fail test: it exits 0 whatever the figures, unless a program failed to run.
"""
import argparse
import json
import os
import subprocess

import common
from common import BEDPLATE, BenchError

PEERS = 1024
LINE_BYTES = 128
GOALS = {"lazy L64": 64 * common.MIB, "mesh 16 L64": 155_000_000}  # in total
SETUP_GOAL_S = 2
JOINED_MEMORY = os.path.join(common.BUILD, "joined_memory")
SHARED_MAX_BYTES = 200 * common.MIB
PRIVATE = "private to each process"  # the name in joined_memory.cc

# ---- The model of Open MPI 1.3 (LP64), which the RFC describes ----
# The structures and their allocation come from its published source. The growth of free lists, and
# that a fragment's header takes a line, are inferred from the RFC's rows.

FIFO_BYTES = 80        # ompi_fifo_t
WRAPPER_BYTES = 64     # ompi_cb_fifo_wrapper_t
CONTROL_BYTES = 12     # ompi_cb_fifo_ctl_t: a head or a tail
HEADERS_BYTES = 32     # of the allocator: the headers of a segment and a chunk
FREE_LIST_FIRST, FREE_LIST_STEP = 8, 64


def align_up(number, unit):
    return -(-number // unit) * unit


def allocated(payload_bytes, alignment):
    """Bytes of one allocation: the alignment is added, and the end rounded up to a long."""
    return align_up(payload_bytes + alignment + HEADERS_BYTES, 8)


def free_list(count, fragment_bytes, alignment):
    """A free list of one process that grew in steps until it had `count` fragments."""
    counts = [FREE_LIST_FIRST] + [FREE_LIST_STEP] * max(0, -(-(count - FREE_LIST_FIRST)
                                                             // FREE_LIST_STEP))
    return sum(allocated(number * fragment_bytes, alignment) for number in counts)


def model(alignment, aggregated=False, entries=128, eager_bytes=4096 + LINE_BYTES,
          chunk_bytes=32768):
    """The RFC's rows in bytes. Requires: whole lines in eager_bytes, header included."""
    pairs = PEERS * (PEERS - 1)
    eager = PEERS * free_list(2 * PEERS, eager_bytes, alignment)
    largest = PEERS * free_list(FREE_LIST_FIRST, chunk_bytes + LINE_BYTES, alignment)
    fifos = PEERS * allocated(PEERS * FIFO_BYTES, alignment)
    if aggregated:  # for each process, itself included: FIFOs, queues, heads with tails, wrappers
        each = PEERS * (FIFO_BYTES + entries * 8 + 2 * CONTROL_BYTES + WRAPPER_BYTES)
        rows = {"FIFOs and CBs": PEERS * allocated(each, alignment), "eager freelists": eager,
                "max freelists": largest}
    else:
        rows = {"CB wrappers": pairs * allocated(WRAPPER_BYTES, alignment),
                "CB queues+tails": pairs * allocated(entries * 8 + LINE_BYTES, alignment),
                "CB heads": pairs * allocated(CONTROL_BYTES, alignment),
                "eager freelists": eager, "other": fifos + largest}
    return {**rows, "total": sum(rows.values())}


# The RFC's figures, in 10^6 bytes, and the model's arguments for each.
VARIANTS = {
    "8K pages": (dict(alignment=8192), dict(zip(
        ("CB wrappers", "CB queues+tails", "CB heads", "eager freelists", "other", "total"),
        (8682, 9822, 8632, 9171, 370, 36677)))),
    "4K pages": (dict(alignment=4096), dict(zip(
        ("CB wrappers", "CB queues+tails", "CB heads", "eager freelists", "other", "total"),
        (4391, 5531, 4341, 9032, 362, 23658)))),
    "cache lines": (dict(alignment=LINE_BYTES), dict(zip(
        ("CB wrappers", "CB queues+tails", "CB heads", "eager freelists", "other", "total"),
        (235, 1374, 184, 8898, 355, 11046)))),
    "aggregated": (dict(alignment=LINE_BYTES, aggregated=True), dict(zip(
        ("FIFOs and CBs", "eager freelists", "max freelists", "total"),
        (1250, 8899, 270, 10418)))),
    # The published eager row fits only if the header lies within the 256 bytes.
    "aggregated, tuned": (dict(alignment=LINE_BYTES, aggregated=True, entries=16, eager_bytes=256,
                               chunk_bytes=8192), dict(zip(
        ("FIFOs and CBs", "eager freelists", "max freelists", "total"),
        (311, 544, 68, 924)))),
}

# ---- Ours ----

# The row of the RFC for each of our parts; the rest is "other".
ROW_OF_PART = {"wrappers": "wrappers", "queues": "queues + tails",
               "claims and tails": "queues + tails", "heads and tails": "heads (mesh: + tails)",
               "eager regions": "eager"}
ROWS = ["wrappers", "queues + tails", "heads (mesh: + tails)", "eager", "boxes, loans, other",
        "total"]
QUESTIONS = {
    "mesh": ["mesh", "--eager", "4096", "--line-bytes", "128"],
    "mesh 16/256": ["mesh", "--entries", "16", "--eager", "256", "--line-bytes", "128"],
    "lazy": ["lazy", "--eager", "4096", "--line-bytes", "128"],
    "mesh 16 L64": ["mesh", "--entries", "16", "--eager", "4096"],
    "lazy L64": ["lazy", "--eager", "4096"],
}


def planned(question):
    argv = [BEDPLATE, "plan", "--json", "--peers", str(PEERS), "--fifo", *question]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"asking {' '.join(argv)}: {done.stderr.strip()}; run it by hand")
    return json.loads(done.stdout)


def rows_of(answer):
    rows = dict.fromkeys(ROWS, 0)
    for part in answer["parts"]:
        rows[ROW_OF_PART.get(part["part"], "boxes, loans, other")] += part["bytes"]
    rows["total"] = answer["total_bytes"]
    return rows


def allocated_by_processes(layout, heard):
    """The memory of PEERS processes that really joined: the output of joined_memory.cc."""
    argv = [JOINED_MEMORY, layout, str(PEERS), str(heard)]
    with common.reserved_hugepages(SHARED_MAX_BYTES):
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"running {' '.join(argv)}: {done.stderr.strip()}; run it by hand")
    answer = json.loads(done.stdout)
    answer["private_bytes"] = next(part["bytes"] for part in answer["parts"]
                                   if part["part"] == PRIVATE)
    answer["shared_bytes"] = answer["total_bytes"] - answer["private_bytes"]
    return answer


# ---- The tables ----


def megabytes(number):
    return f"{number / 1e6:,.0f}" if number >= 100e6 else f"{number / 1e6:,.1f}"


def print_model():
    """Returns the model's figures, by variant."""
    print(f"Open MPI 1.3 sm, {PEERS} processes, 4K eager, 32K chunk, {LINE_BYTES}-byte lines "
          "(tuned: 256 B, 16 entries, 8K), in 10^6 bytes")
    results = {}
    for name, (arguments, published) in VARIANTS.items():
        rows = results[name] = model(**arguments)
        print(f"\n  {name:22} {'published':>10} {'modelled':>10} {'difference':>11}")
        for row, figure in published.items():
            print(f"  {row:22} {figure:10,} {rows[row] / 1e6:10,.1f} "
                  f"{rows[row] / 1e6 - figure:+11.1f}")
    return results


def print_ours(columns, kind):
    if not columns:
        return
    print(f"\nBedplate, {PEERS} processes, {kind}, in 10^6 bytes\n(16: entries, else 128; 256: "
          f"eager bytes, else 4K; L64: 64-byte lines, else {LINE_BYTES})\n")
    print(f"  {'':22} " + " ".join(f"{name:>12}" for name in columns))
    for row in ROWS:
        print(f"  {row:22} " + " ".join(f"{megabytes(column[row]):>12}"
                                        for column in columns.values()))
    print(f"  {'bytes for each member':22} " +
          " ".join(f"{-(-column['total'] // PEERS):12,}" for column in columns.values()))


def print_allocated(answers):
    print(f"\nBedplate, {PEERS} processes that joined, in 10^6 bytes, whole pages; entries, eager "
          "bytes and lines\nas in the columns L64 above; private: what each keeps in its own "
          "heap\n")
    print(f"  {'':14} {'shared':>9} {'private':>9} {'page tables':>12} {'set up in':>10}")
    for name, answer in answers.items():
        print(f"  {name:14} {megabytes(answer['shared_bytes']):>9} "
              f"{megabytes(answer['private_bytes']):>9} "
              f"{megabytes(answer['page_tables_bytes']):>12} {answer['setup_s']:8.2f} s")
    for name, answer in answers.items():
        goal = GOALS[name]
        print(f"  {name}: {answer['shared_bytes'] / 1e6:.1f} of {goal / 1e6:.1f} in all: "
              f"{common.verdict(answer['shared_bytes'] <= goal)}; set up within {SETUP_GOAL_S} s: "
              f"{common.verdict(answer['setup_s'] < SETUP_GOAL_S)}")


def report_row(name, answer):
    return common.row(f"{PEERS} processes joined, {name}", "MB", {
        "bedplate": [answer["shared_bytes"] / 1e6], "goal": [GOALS[name] / 1e6],
        "Open MPI, tuned (published)": [VARIANTS["aggregated, tuned"][1]["total"]]}, [
            common.compared("goal", [answer["shared_bytes"] / GOALS[name]], 1, False)],
                      is_rate=False)


def print_growth(answers):
    print(f"\nGrowth with traffic, lazy, {PEERS} receivers\n")
    print(f"  {'each hears from':16} {'boxes':>7} {'of them MB':>11} {'private MB more':>16}")
    for answer in answers:
        print(f"  {answer['heard']:16} {answer['boxes_given']:7} "
              f"{megabytes(answer['box_bytes']):>11} "
              f"{megabytes(answer['private_growth_bytes']):>16}")


def main():
    parser = argparse.ArgumentParser(description="The memory of FIFOs at 1024 processes.")
    parser.add_argument("--heard", default="1,8,32,1023",
                        help="from how many others each hears, with traffic (1,8,32,1023)")
    options = parser.parse_args()
    common.require({BEDPLATE: "make", JOINED_MEMORY: "scripts/bench/run.sh fifo"})
    planned_answers = {name: planned(question) for name, question in QUESTIONS.items()}
    modelled = print_model()
    print_ours({name: rows_of(answer) for name, answer in planned_answers.items()}, "planned")
    joined = {"lazy L64": allocated_by_processes("lazy", 0),
              "mesh 16 L64": allocated_by_processes("mesh", 0)}
    print_allocated(joined)
    growth = [allocated_by_processes("lazy", int(heard)) for heard in options.heard.split(",")]
    print_growth(growth)
    path = common.write_json("fifo.json", {"modelled": modelled, "planned": planned_answers,
                                           "allocated": joined, "growth": growth},
                             [report_row(name, answer) for name, answer in joined.items()])
    print(f"every row: {os.path.relpath(path)}")


common.run_main(main)
