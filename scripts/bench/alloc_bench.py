#!/usr/bin/python3
"""Allocation: the pool's heap against glibc, mimalloc, jemalloc and tcmalloc, interleaved.

Every allocator is a shared object, preloaded into the same dynamically linked programs:
alloc_workloads, which mostly allocates, and programs from Debian. In each round every
row runs under one allocator after the other; each round begins with another allocator. Ratios are
computed within a round, and then their median is taken. Each round has its own copies of the shared
objects and of alloc_workloads: the page frames of a file decide how its pages share
the caches, for as long as the kernel caches the file. From an unlucky copy the same bytes run at
0.7 of their speed.

The pool's heap is that of an appliance: a segment of hugepages, taken before main, sealed. To
separate the effect of hugepages, mimalloc runs a second time on the same hugepages.
Set-up (including the taking of the pool: boot_bench.py) and warm-up are excluded for all.

It is not a pass/fail test: it exits 0 whatever the figures, unless a program failed to run.
"""
import argparse
import collections
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import common
from common import BUILD, MIB, ROOT, BenchError

HEAP_BYTES = 1024 * MIB
RUN_MAX_S = 60
WARMUP_S = 0.1
MIMALLOC_TARGET, MEAN_TARGET, GLIBC_TARGET = 0.97, 1.0, 1.0
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
WORKLOADS = f"{BUILD}/alloc_workloads"
STOPWATCH = f"{BUILD}/stopwatch.so"
PROGRAMS = f"{ROOT}/scripts/bench/programs"
HARDENED = os.path.abspath(os.environ.get("BEDPLATE_HARDENED_SO",
                                          f"{ROOT}/build/hardened/bench/libbedplate-heap.so"))

# ---- allocators ---------------------------------------------------------------------------------

Allocator = collections.namedtuple("Allocator", "library environment page_kib provider note")
POOL = {"BEDPLATE_BENCH_HEAP_BYTES": str(HEAP_BYTES)}
ALLOCATORS = {  # in the order of the table
    "bedplate": Allocator(
        f"{ROOT}/build/release/bench/libbedplate-heap.so", POOL, 2048, "make bench-heap",
        "the pool's heap: a sealed segment of 2 MiB pages, no environment"),
    "glibc": Allocator(None, {}, 4, None, "nothing preloaded, no tunables"),
    "mimalloc": Allocator(
        f"{LIBRARIES}/libmimalloc.so.2", {}, 4, "libmimalloc2.0",
        "Debian's 2.0; the option that its readme turns off for speed, page reset, is off"),
    "mimalloc-huge": Allocator(
        f"{LIBRARIES}/libmimalloc.so.2",
        {"MIMALLOC_RESERVE_HUGE_OS_PAGES": "1", "MIMALLOC_EAGER_COMMIT_DELAY": "0"}, 2048,
        "libmimalloc2.0", "the same, with hugepages reserved as its readme recommends, and used by "
        "threads from their first block on"),
    "jemalloc": Allocator(
        f"{LIBRARIES}/libjemalloc.so.2",
        {"MALLOC_CONF": "background_thread:true,metadata_thp:auto,dirty_decay_ms:30000,"
                        "muzzy_decay_ms:30000"}, 4, "libjemalloc2",
        "Debian's 5.3, set as its TUNING.md says for processor time"),
    "tcmalloc": Allocator(
        f"{LIBRARIES}/libtcmalloc_minimal.so.4",
        {"TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES": str(HEAP_BYTES), "TCMALLOC_RELEASE_RATE": "0"},
        4, "libtcmalloc-minimal4", "gperftools 2.10: large thread caches, nothing given back"),
}
if os.path.exists(HARDENED):
    ALLOCATORS["hardened"] = Allocator(HARDENED, POOL, 2048, "make MODE=hardened bench-heap",
                                       "the pool's heap, MODE=hardened")
JUDGED = ("bedplate", "hardened")


def copies_of_round(options, directory):
    """Returns a copy of each file for one round. Copies stay, so that the next get other frames."""
    copies = tempfile.mkdtemp(dir=directory)
    files = {ALLOCATORS[name].library for name in options.allocators} - {None} | {WORKLOADS}
    return {file: shutil.copy(file, tempfile.mkdtemp(dir=copies)) for file in files}


def environment(name, libraries, copies):
    """Returns a program's environment under this allocator; `libraries` are preloaded first."""
    allocator = ALLOCATORS[name]
    preloaded = [*libraries, *([copies[allocator.library]] if allocator.library else [])]
    inherited = {key: os.environ[key] for key in ("PATH",) if key in os.environ}
    return {**inherited, "LANG": "C", "LD_PRELOAD": ":".join(preloaded), **allocator.environment}


# ---- rows ---------------------------------------------------------------------------------------

Row = collections.namedtuple("Row", "title argv stdin environment")


def workload_rows(options):
    def row(name, text, thread_count):
        cpus = ",".join(str(cpu) for cpu in options.cpus[:thread_count])
        plural = "s" if thread_count > 1 else ""
        return Row(f"{text}, {thread_count} thread{plural}",
                   [WORKLOADS, name, cpus, str(options.seconds), str(WARMUP_S)], None, {})

    one_or_both = [(1, name, text) for name, text in (
        ("pairs-16", "pairs of 16 B"), ("pairs-64", "pairs of 64 B"),
        ("pairs-1K", "pairs of 1 KiB"), ("pairs-32K", "pairs of 32 KiB"),
        ("bursts-64", "bursts of 1000 x 64 B"))]
    one_or_both += [(count, name, text) for count in (1, 2) for name, text in (
        ("mixed-1K", "mixed up to 1 KiB"), ("mixed-8K", "mixed up to 8 KiB"),
        ("mixed-256K", "mixed up to 256 KiB"))]
    one_or_both += [(2, name, text) for name, text in (
        ("producer-consumer", "producer-consumer"), ("thread-churn", "thread churn"),
        ("larson", "larson-like server"), ("xmalloc", "xmalloc-like server"))]
    return [row(name, text, count) for count, name, text in one_or_both]


def program_rows(options, directory):
    preprocessed = os.path.join(directory, "templates.ii")
    subprocess.run(["g++", "-E", "-std=c++17", f"{PROGRAMS}/templates.cc", "-o", preprocessed],
                   check=True)
    compiler = subprocess.run(["g++", "-print-prog-name=cc1plus"], check=True, text=True,
                              capture_output=True).stdout.strip()
    return [
        Row("python3", ["/usr/bin/python3", "-S", f"{PROGRAMS}/records.py"], None,
            {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "1"}),
        Row("perl", ["perl", f"{PROGRAMS}/records.pl"], None, {"PERL_HASH_SEED": "1"}),
        Row("lua", ["lua5.4", f"{PROGRAMS}/records.lua"], None, {}),
        Row("sqlite3", ["sqlite3", ":memory:"], f"{PROGRAMS}/records.sql", {}),
        Row("jq", ["jq", "-n", "-f", f"{PROGRAMS}/records.jq"], None, {}),
        Row("cc1plus", [compiler, "-fpreprocessed", "-quiet", "-std=c++17", preprocessed, "-o",
                        "/dev/null"], None, {}),
    ]


def is_workload(row):
    return row.argv[0] == WORKLOADS


def unit(row):
    return "M/s" if is_workload(row) else "runs/s"


def select(options, directory):
    rows = [row for row in workload_rows(options) + program_rows(options, directory)
            if re.search(options.only, row.title)]
    if not rows:
        raise BenchError(f"choosing rows: none matches {options.only!r}; see the titles in the "
                         "table of a whole run")
    return rows


# ---- running ------------------------------------------------------------------------------------

def run(argv, allocator, **options):
    """Runs a program to its end. Returns its stdout."""
    process = common.start(argv, stderr=subprocess.PIPE, text=True, **options)
    try:
        output, errors = process.communicate(timeout=RUN_MAX_S)
    except subprocess.TimeoutExpired:
        raise BenchError(f"running {' '.join(argv)} under {allocator}: no end after {RUN_MAX_S} s; "
                         "run it by hand")
    finally:
        common.stop(process)
    if process.returncode != 0:
        raise BenchError(f"running {' '.join(argv)} under {allocator}: exit code "
                         f"{process.returncode}, {errors.strip()[-500:]}; run it by hand")
    return output


def check_allocator(name, copies):
    """Stops unless malloc is the allocator's and blocks lie on pages of the table's size."""
    said = run([WORKLOADS, "where"], name, stdout=subprocess.PIPE,
               env=environment(name, [], copies))
    library, page_kib = said.split()
    wanted = ALLOCATORS[name].library or "libc.so.6"
    if os.path.basename(library) != os.path.basename(wanted):
        raise BenchError(f"preloading {name}: malloc is {library}'s; reinstall "
                         f"{ALLOCATORS[name].provider}")
    if int(page_kib) != ALLOCATORS[name].page_kib:
        raise BenchError(f"preloading {name}: its blocks lie on pages of {page_kib} KiB, not "
                         f"{ALLOCATORS[name].page_kib}; free memory for hugepages")


def measure(options, row, name, copies):
    """Returns (operations per second, page faults) of one run."""
    if ALLOCATORS[name].page_kib > 4:
        common.wait_for_hugepages(HEAP_BYTES)
    libraries = [] if is_workload(row) else [STOPWATCH]
    variables = {**environment(name, libraries, copies), **row.environment}
    if is_workload(row):
        line = run([copies[WORKLOADS], *row.argv[1:]], name, stdout=subprocess.PIPE, env=variables)
    else:
        line = run_program(row, name, variables, options.cpus[0])
    costs = json.loads(line)
    rate = costs["operations"] / costs[f"{options.clock}_s"]
    return round(rate / (1e6 if is_workload(row) else 1), 4), costs["faults"]


def run_program(row, name, variables, cpu):
    """Runs a program with the stopwatch preloaded. Returns the stopwatch's line."""
    reader, writer = os.pipe()
    with os.fdopen(reader, encoding="ascii") as line:
        with os.fdopen(writer, "w"), open(row.stdin or os.devnull, encoding="ascii") as stdin:
            run(row.argv, name, stdin=stdin, stdout=subprocess.DEVNULL, pass_fds=[writer],
                preexec_fn=lambda: os.sched_setaffinity(0, [cpu]),
                env={**variables, "BENCH_STOPWATCH_FD": str(writer)})
        return line.read()


def run_round(options, rows, round_index, copies, results):
    print(f"round {round_index + 1} of {options.rounds}", file=sys.stderr, flush=True)
    names = options.allocators
    first = round_index % len(names)
    for row in rows:
        result = results.setdefault(row.title, {"unit": unit(row), "rounds": {}, "faults": {}})
        for name in names[first:] + names[:first]:
            rate, faults = measure(options, row, name, copies)
            result["rounds"].setdefault(name, []).append(rate)
            result["faults"].setdefault(name, []).append(faults)


# ---- the table ----------------------------------------------------------------------------------

def fault_text(row, name, faults):
    """Returns the most faults of a round; the pool's heap must have none in workloads."""
    if name not in JUDGED or not is_workload(row):
        return f"{max(faults):7}"
    return f"{max(faults):7} 0 {common.verdict(max(faults) == 0)}"


def print_rows(rows, results):
    for row in rows:
        rounds, faults = results[row.title]["rounds"], results[row.title]["faults"]
        print(f"{row.title} [{unit(row)}]")
        for name, values in rounds.items():
            line = f"  {name:15}{common.spread(values):25}"
            for peer, target in (("mimalloc", MIMALLOC_TARGET), ("mimalloc-huge", None),
                                 ("glibc", GLIBC_TARGET)):
                ratios = common.ratios(rounds, name, [peer]) if name in JUDGED else []
                line += common.ratio_text(ratios, target)
            print(f"{line}{fault_text(row, name, faults[name])}".rstrip())


def report_row(row, result):
    rounds = result["rounds"]
    targets = {"mimalloc": MIMALLOC_TARGET, "glibc": GLIBC_TARGET, "jemalloc": None,
               "tcmalloc": None}
    return common.row(row.title, unit(row), rounds, [
        common.compared(peer, common.ratios(rounds, JUDGED[0], [peer]), target)
        for peer, target in targets.items() if {peer, JUDGED[0]} <= set(rounds)])


def print_means(rows, results, name):
    """Prints the geometric means over all rows, and the number of rows that reach the targets."""
    for peer, row_target, mean_target in (("mimalloc", MIMALLOC_TARGET, MEAN_TARGET),
                                          ("mimalloc-huge", None, None),
                                          ("glibc", GLIBC_TARGET, None),
                                          ("jemalloc", None, None), ("tcmalloc", None, None)):
        medians = [statistics.median(common.ratios(results[row.title]["rounds"], name, [peer]))
                   for row in rows if peer in results[row.title]["rounds"]]
        if not medians:
            continue
        line = f"  {name} / {peer:15}" + common.ratio_text([statistics.geometric_mean(medians)],
                                                           mean_target)
        if row_target:
            reached = sum(median >= row_target for median in medians)
            line += f"rows with at least {row_target}: {reached} of {len(medians)}"
        print(line.rstrip())


def print_table(options, rows, results):
    clock = {"wall": "time by the clock", "cpu": "processor time"}[options.clock]
    print(f"\nmedian (min..max) of {options.rounds} rounds, by {clock}; processors "
          f"{','.join(map(str, options.cpus))}; page faults while measured: the most of any round")
    for name in options.allocators:
        print(f"  {name:15}{ALLOCATORS[name].note}")
    print(f"{'':42}{'/ mimalloc':23}{'/ mimalloc-huge':23}{'/ glibc':23}\n"
          f"{'':42}" + f"{' ratio  target':23}" * 3 + " faults target")
    print_rows(rows, results)
    print("geometric mean over the rows")
    for name in (name for name in JUDGED if name in options.allocators):
        print_means(rows, results, name)


def parse_options():
    def names(text):
        chosen = text.split(",")
        if not set(chosen) <= set(ALLOCATORS):
            raise argparse.ArgumentTypeError(f"choose from {','.join(ALLOCATORS)}")
        return [name for name in ALLOCATORS if name in chosen]

    parser = argparse.ArgumentParser(description="Measures allocators against each other.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.25,
                        help="measured of each workload, after its warm-up (default 0.25)")
    parser.add_argument("--quick", action="store_const", const={"rounds": 3, "seconds": 0.05},
                        default={}, help="for development: 3 rounds of 0.05 seconds")
    parser.add_argument("--only", metavar="REGEX", default="", help="rows whose title matches, "
                        "as in 'mixed|perl'")
    parser.add_argument("--allocators", type=names, default=list(ALLOCATORS), metavar="A,B",
                        help=f"of {','.join(ALLOCATORS)}")
    parser.add_argument("--cpus", type=lambda text: [int(cpu) for cpu in text.split(",")],
                        default=[0, 1], metavar="A,B", help="two processors (default 0,1)")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall",
                        help="judge by processor time where others use the machine, too")
    options = parser.parse_args()
    vars(options).update(options.quick)
    if len(options.cpus) != 2:
        parser.error("--cpus: two processors, as in 0,1")
    return options


def main():
    options = parse_options()
    common.require({WORKLOADS: "scripts/bench/run.sh", "perl": "perl-base", "lua5.4": "lua5.4",
                    "sqlite3": "sqlite3", "jq": "jq", "g++": "g++"})
    for name in options.allocators:
        library = ALLOCATORS[name].library
        if library is not None and not os.path.exists(library):
            raise BenchError(f"looking for {library}: not found; comes with: "
                             f"{ALLOCATORS[name].provider}")
    load = common.warn_if_busy()
    results = {}
    with (common.reserved_hugepages(HEAP_BYTES), common.work_directory() as directory,
          tempfile.TemporaryDirectory(dir=BUILD) as copies_directory):  # tmpfs may be noexec
        rows = select(options, directory)
        for round_index in range(options.rounds):
            copies = copies_of_round(options, copies_directory)
            for name in options.allocators if round_index == 0 else []:
                check_allocator(name, copies)
            run_round(options, rows, round_index, copies, results)
            path = common.write_json("alloc.json", {
                "options": vars(options), "load": load, "rows": results,
                "allocators": {name: ALLOCATORS[name]._asdict() for name in options.allocators}},
                [report_row(row, results[row.title]) for row in rows])
    print_table(options, rows, results)
    print(f"every round: {os.path.relpath(path)}")


common.run_main(main)
