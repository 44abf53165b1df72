#!/usr/bin/python3
"""Messages between two cores: Bedplate, UCX, Open MPI, libfabric, boost, DPDK and the kernel.

Every contender is one of our programs, build/bench/message_NAME, that makes two processes, pins
them to cores 0 and 1 and prints one line of JSON: the nanoseconds of one operation, as the median,
the least and the 90th percentile of its batches. In each round all contenders of a row run
one after the other; each round begins with another contender. The row's floor runs just before and
just after each: a hypervisor moves the cores, so a figure is meaningful only as a ratio to
the mean of these two. If the two are far apart, the figure is measured again, for all contenders
alike. Smaller ratios of times are better, larger ratios of rates.

It is not a pass/fail test: it exits 0 whatever the figures, unless a program failed to run.
"""
import argparse
import collections
import glob
import json
import os
import statistics
import subprocess
import sys

import common
from common import BUILD, BenchError

RUN_MAX_S = 60
LOAN_SPREAD_TARGET = 1.10  # between the sizes of a loan
FLOOR_DRIFT_MAX = 1.25     # between the floors before and after; above it the cores were moved
TRIES_MAX = 3

# ---- rows: the measurements ----------------------------------------------------------------------

Floor = collections.namedtuple("Floor", "program kind bytes")
Row = collections.namedtuple("Row", "kind bytes iterations floor floor_target peer_target peers",
                             defaults=(None, None, None))
RATES = {"bandwidth": "GB/s", "put_copied": "GB/s", "put_asleep": "GB/s", "cma": "GB/s", "rate16": "M/s", "lane": "M/s"}  # the others: ns
BARE = "floor"


def bare_message(kind, size):
    return Floor(BARE, kind, size)


def rings(kind, size):
    return Floor("minimal_ring", kind, size)


# Targets apply to Bedplate: its ratio to the floor, and to the best of `peers` (empty: of all).
ROWS = [
    Row("latency", 8, 25_000, bare_message("latency", 8), 1.15, 1.0),
    Row("latency", 64, 25_000, bare_message("latency", 64), 1.15, 1.0),
    Row("latency", 1024, 10_000, bare_message("latency", 1024), 1.10),
    Row("am_send", 8, 25_000, bare_message("latency", 8), 1.30),
    # Its floor is the same operation without the idle groups.
    Row("am_send_idle", 8, 25_000, Floor("bedplate", "am_send", 8), 1.05),
    Row("loan", 4 << 10, 25_000, bare_message("latency", 8), 1.5),
    Row("loan", 64 << 10, 25_000, bare_message("latency", 8), 1.5),
    Row("loan", 1 << 20, 25_000, bare_message("latency", 8), 1.5),
    Row("read_large", 4 << 10, 10_000, bare_message("read_large", 4 << 10)),
    Row("read_large", 64 << 10, 1_000, bare_message("read_large", 64 << 10)),
    Row("read_large", 1 << 20, 100, bare_message("read_large", 1 << 20)),
    Row("bandwidth", 64 << 10, 10_000, bare_message("bandwidth", 64 << 10), None, 0.95),
    Row("bandwidth", 1 << 20, 500, bare_message("bandwidth", 1 << 20), None, 0.95),
    Row("put_copied", 64 << 10, 2_000, bare_message("put_copied", 64 << 10), 0.91),
    Row("put_copied", 10 << 20, 100, bare_message("put_copied", 10 << 20), 0.91),
    Row("put_asleep", 64 << 10, 2_000, bare_message("put_asleep", 64 << 10), 0.91),
    Row("put_asleep", 10 << 20, 100, bare_message("put_asleep", 10 << 20), 0.91),
    Row("cma", 64 << 10, 1_000, bare_message("cma", 64 << 10), None, 1.0, ("vader cma",)),
    Row("cma", 1 << 20, 100, bare_message("cma", 1 << 20), None, 1.0, ("vader cma",)),
    Row("rate16", 8, 500_000, rings("rate16", 8), None, 1.5),
    Row("lane", 1, 3_000_000, rings("lane", 1), 1.0),
    Row("lane", 32, 10_000_000, rings("lane", 32), None, 1.0),
]
KINDS = list(dict.fromkeys(row.kind for row in ROWS))
# The hypervisor may move the two cores: to a common cache, and apart.
LINE = Row("line", 8, 20_000, None)
FAR_NS = 80


def size_text(size):
    for factor, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def title(row):
    if row.kind == "lane":
        return f"lane, 8 B items, bursts of {row.bytes}"
    return f"{row.kind} {size_text(row.bytes)}"


def unit(row):
    return RATES.get(row.kind, "ns")


def is_rate(row):
    return row.kind in RATES


def figure(row, ns):
    """Returns the figure to print for the nanoseconds of one operation, in the row's unit."""
    return {"ns": ns, "GB/s": row.bytes / ns, "M/s": 1e3 / ns}[unit(row)]


# ---- contenders: each makes its command from the row and the directory of its files --------------

Contender = collections.namedtuple("Contender", "program kinds command environment provider note")


def forked(program, variant=None, kind=None):
    """A program that forks its second process itself. Its head comment lists its VARIANTs."""
    def command(row, _directory):
        return [f"{BUILD}/message_{program}", kind or row.kind, str(row.bytes), str(row.iterations),
                *([variant] if variant else [])]
    return command


def libfabric(row, directory):
    return [*forked("libfabric")(row, directory), os.path.basename(directory)]


def mpirun(single_copy, variant=None):
    # Both processes pin themselves, like all contenders. `isolated`: this machine alone, without
    # ssh.
    def command(row, directory):
        options = {"plm": "isolated", "pml": "ob1", "btl": "self,vader",
                   "btl_vader_single_copy_mechanism": single_copy, "mpi_yield_when_idle": "0",
                   "orte_tmpdir_base": directory, "btl_vader_backing_directory": directory,
                   "osc_sm_backing_directory": directory}
        settings = [word for name, value in options.items() for word in ("--mca", name, value)]
        return ["mpirun", "-np", "2", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
                *settings, *forked("vader", variant)(row, directory)]
    return command


POSIX, POSIX_CMA = {"UCX_TLS": "posix,self"}, {"UCX_TLS": "posix,cma,self"}
BUILT = "scripts/bench/run.sh message"
CONTENDERS = {  # in the order of the table
    "bedplate": Contender("bedplate", KINDS, forked("bedplate"), {}, "make bench", "ours"),
    "one line": Contender(BARE, ["latency"], forked(BARE, kind="line"), {}, BUILT,
                          "a word to and fro on one line, the same for every size"),
    "uct": Contender("uct", ["latency", "rate16"], forked("uct"), {}, BUILT,
                     "UCX, lower level over posix: active messages; 16 endpoints"),
    "uct put": Contender("uct", ["read_large", "bandwidth"], forked("uct"), {}, BUILT,
                         "UCX, lower level over posix: put, and a put of the flag"),
    "ucp": Contender("ucp", ["latency", "read_large", "cma", "rate16"], forked("ucp"), POSIX, BUILT,
                     "UCX, upper level over posix: tagged; rate16: active messages, 16 endpoints"),
    "ucp cma": Contender("ucp", ["read_large", "cma"], forked("ucp"), POSIX_CMA, BUILT,
                         "the same over posix and CMA"),
    "ucp put": Contender("ucp", ["read_large", "bandwidth"], forked("ucp", "put"), POSIX, BUILT,
                         "UCX, upper level over posix: put, and a put of the flag"),
    "vader": Contender("vader", ["latency", "read_large", "cma", "rate16"], mpirun("none"), {},
                       BUILT, "Open MPI without CMA; rate16: 16 communicators in turn"),
    "vader cma": Contender("vader", ["read_large", "cma"], mpirun("cma"), {}, BUILT,
                           "Open MPI with CMA"),
    "vader put": Contender("vader", ["bandwidth"], mpirun("none", "put"), {}, BUILT,
                           "MPI_Put into a window that MPI allocated"),
    "vader send": Contender("vader", ["bandwidth"], mpirun("none", "send"), {}, BUILT,
                            "MPI_Send without CMA"),
    "libfabric": Contender("libfabric", ["latency", "read_large", "cma"], libfabric, {}, BUILT,
                           "provider shm, which uses CMA above 4 KiB"),
    "pipe": Contender("descriptor", ["latency"], forked("descriptor", "pipe"), {}, BUILT,
                      "non-blocking, polled"),
    "unix socket": Contender("descriptor", ["latency"], forked("descriptor", "unix_socket"), {},
                             BUILT, "non-blocking, polled"),
    "boost": Contender("boost", ["lane"], forked("boost"), {}, BUILT, "spsc_queue"),
    "rte_ring": Contender("rte_ring", ["lane"], forked("rte_ring"), {}, BUILT,
                          "DPDK, one producer and one consumer"),
}
if common.OTHER_TREE:
    CONTENDERS |= {name: Contender("other", KINDS, forked("other"), {}, BUILT,
                                   f"Bedplate, built in {common.OTHER_TREE}") for name in common.OTHERS}
JUDGED, NOT_PEERS = "bedplate", ("bedplate", "one line", *common.OTHERS)
PACKAGES = ("libucx0", "openmpi-bin", "libfabric1", "libboost-dev", "libdpdk-dev")


def contenders_of(row, options):
    return [name for name in options.contenders if row.kind in CONTENDERS[name].kinds]


# ---- running ------------------------------------------------------------------------------------

def run(argv, environment, directory):
    """Runs a contender to its end and removes its files. Returns its figures."""
    inherited = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    process = common.start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           cwd=directory, env={**inherited, "LANG": "C", "TMPDIR": directory,
                                               "UCX_POSIX_DIR": directory, **environment})
    try:
        output, errors = process.communicate(timeout=RUN_MAX_S)
    except subprocess.TimeoutExpired:
        raise BenchError(f"running {' '.join(argv)}: no end after {RUN_MAX_S} s; run it by hand")
    finally:
        common.stop(process)
        for path in glob.glob(f"{directory}-*"):  # files of libfabric, whose folder is fixed
            os.unlink(path)
    if process.returncode != 0:
        raise BenchError(f"running {' '.join(argv)}: exit code {process.returncode}, "
                         f"{errors.strip()[-500:]}; run it by hand")
    return json.loads(output)


def measure(name, row, directory):
    contender = CONTENDERS[name]
    return run(contender.command(row, directory), contender.environment, directory)


def measure_floor(row, directory):
    argv = forked(row.floor.program)(row._replace(kind=row.floor.kind, bytes=row.floor.bytes),
                                     directory)
    return run(argv, {}, directory)


def measure_line(directory):
    """Returns the time for one cache line to move from core to core."""
    return run(forked(BARE, kind="line")(LINE, directory), {}, directory)["ns"]


def run_row(row, names, directory, results):
    """Adds one round of the row, with a floor before the first contender and after each."""
    if row.kind == "lane":
        results.setdefault("line_ns", []).append([measure_line(directory)])
    after_ns = measure_floor(row, directory)["ns"]
    for name in names:
        for tries in range(1, TRIES_MAX + 1):
            before_ns, figures = after_ns, measure(name, row, directory)
            after_ns = measure_floor(row, directory)["ns"]
            if max(before_ns, after_ns) <= FLOOR_DRIFT_MAX * min(before_ns, after_ns):
                break
        mean_ns = (before_ns + after_ns) / 2
        ratio = mean_ns / figures["ns"] if is_rate(row) else figures["ns"] / mean_ns
        results["rounds"].setdefault(name, []).append({
            **figures, "floor_ns": [before_ns, after_ns], "tries": tries,
            "ratio": round(ratio, 4)})
    if row.kind == "lane":
        results["line_ns"][-1].append(measure_line(directory))


# ---- the table ----------------------------------------------------------------------------------

def ratios_of(result, name):
    return [entry["ratio"] for entry in result["rounds"][name]]


def ratios_to_best(row, result):
    """Returns Bedplate's ratio to its best peer in each round, both relative to their floors."""
    others = [name for name in result["rounds"] if name in (row.peers or CONTENDERS)
              and name not in NOT_PEERS]
    if not others:
        return []
    best = max if is_rate(row) else min
    peers = zip(*(ratios_of(result, name) for name in others))
    return [mine / best(peer) for mine, peer in zip(ratios_of(result, JUDGED), peers)]


def judged(row, values, target):
    median = statistics.median(values)
    reached = median >= target if is_rate(row) else median <= target
    return f"{'at least' if is_rate(row) else 'at most'} {target} {common.verdict(reached)}"


def judgement(row, result):
    """Returns text about Bedplate's targets in this row."""
    parts = []
    if row.floor_target:
        parts.append(judged(row, ratios_of(result, JUDGED), row.floor_target))
    to_best = ratios_to_best(row, result)
    if to_best:
        target = f", {judged(row, to_best, row.peer_target)}" if row.peer_target else ""
        parts.append(f"/ best peer {common.spread(to_best)}{target}")
    return "; ".join(parts)


def print_row(row, result):
    floors = [ns for entries in result["rounds"].values() for entry in entries
              for ns in entry["floor_ns"]]
    print(f"{title(row)} [{unit(row)}]\n"
          f"  {'floor':12}{common.spread([figure(row, ns) for ns in floors]):29}")
    for name in (name for name in CONTENDERS if name in result["rounds"]):
        figures = [figure(row, entry["ns"]) for entry in result["rounds"][name]]
        line = f"  {name:12}{common.spread(figures):29}{common.spread(ratios_of(result, name)):29}"
        print((line + (judgement(row, result) if name == JUDGED else "")).rstrip())
    print_by_distance(row, result)
    common.print_builds({name: ratios_of(result, name) for name in result["rounds"]}, JUDGED)


def print_by_distance(row, result):
    """Prints a lane's rounds by the distance of the cores, without rounds in which they moved."""
    if row.kind != "lane" or JUDGED not in result["rounds"]:
        return
    to_best = ratios_to_best(row, result)
    for text, is_there in (("near", lambda ns: ns < FAR_NS), ("far", lambda ns: ns >= FAR_NS)):
        rounds = [index for index, ends in enumerate(result["line_ns"])
                  if all(map(is_there, ends))]
        if rounds and to_best:
            line = statistics.median(ns for index in rounds for ns in result["line_ns"][index])
            print(f"  {len(rounds)} rounds on {text} cores, {line:.0f} ns: / best peer "
                  f"{common.spread([to_best[index] for index in rounds])}")


def report_row(row, result):
    figures = {"floor": []} | {name: [] for name in CONTENDERS if name in result["rounds"]}
    for name, entries in result["rounds"].items():
        figures[name] += [figure(row, entry["ns"]) for entry in entries]
        figures["floor"] += [figure(row, ns) for entry in entries for ns in entry["floor_ns"]]
    comparisons = ()
    if JUDGED in result["rounds"]:
        comparisons = [
            common.compared("the floor", ratios_of(result, JUDGED), row.floor_target, is_rate(row)),
            common.compared("the best peer, both by their floors", ratios_to_best(row, result),
                            row.peer_target, is_rate(row))]
    return common.row(title(row), unit(row), figures, comparisons, is_rate(row))


def print_loans(results):
    """Reports whether a loan takes the same time at every size."""
    loans = [statistics.median(ratios_of(results[title(row)], JUDGED)) for row in ROWS
             if row.kind == "loan" and JUDGED in results.get(title(row), {}).get("rounds", {})]
    if loans:
        apart = max(loans) / min(loans)
        print(f"loans, largest / smallest of the medians: {apart:.2f}; at most "
              f"{LOAN_SPREAD_TARGET}: {common.verdict(apart <= LOAN_SPREAD_TARGET)}")


def print_table(options, rows, results):
    print(f"\nmedian (min..max) of {options.rounds} rounds; processes on cores 0 and 1; "
          "floor: the bare message; of rate16 and lane the minimal ring, of am_send_idle am_send")
    for name in options.contenders:
        print(f"  {name:12}{CONTENDERS[name].note}")
    print(f"{'':14}{'figure':29}{'ratio to the floor':29}")
    for row in rows:
        print_row(row, results[title(row)])
    print_loans(results)


def versions():
    said = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *PACKAGES],
                          capture_output=True, text=True, check=False).stdout
    return dict(line.split() for line in said.splitlines())


def parse_options():
    def names(known):
        def parse(text):
            chosen = text.split(",")
            if not set(chosen) <= set(known):
                raise argparse.ArgumentTypeError(f"choose from {','.join(known)}")
            return [name for name in known if name in chosen]
        return parse

    parser = argparse.ArgumentParser(description="Measures messages between two cores.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", type=names(KINDS), default=KINDS, metavar="A,B",
                        help=f"kinds, of {','.join(KINDS)}")
    parser.add_argument("--contenders", type=names(CONTENDERS), default=list(CONTENDERS),
                        metavar="A,B", help=f"of {','.join(CONTENDERS)}")
    return parser.parse_args()


def main():
    options = parse_options()
    if JUDGED in options.contenders and not os.path.exists(f"{BUILD}/message_{JUDGED}"):
        print(f"Bedplate is not measured: {os.path.relpath(BUILD)}/message_{JUDGED} is not there; "
              "the peers are measured alone", file=sys.stderr)
        options.contenders.remove(JUDGED)
    programs = {f"{BUILD}/message_{CONTENDERS[name].program}": CONTENDERS[name].provider
                for name in options.contenders}
    programs |= {f"{BUILD}/message_{row.floor.program}": BUILT for row in ROWS}
    if f"{BUILD}/message_vader" in programs:
        programs["mpirun"] = "openmpi-bin"
    common.require(programs)
    rows = [row for row in ROWS if row.kind in options.only and contenders_of(row, options)]
    if not rows:
        raise BenchError("choosing what to measure: none of the contenders supports any of the "
                         "kinds; choose more of either (--help)")
    if not {0, 1} <= os.sched_getaffinity(0):
        raise BenchError(f"looking for cores 0 and 1: only {os.sched_getaffinity(0)} are allowed; "
                         "start it without taskset, or widen the cpuset")
    load = common.warn_if_busy()
    results = {title(row): {"unit": unit(row), "floor": row.floor._asdict(), "rounds": {}}
               for row in rows}
    with common.work_directory() as directory:
        for round_index in range(options.rounds):
            print(f"round {round_index + 1} of {options.rounds}", file=sys.stderr, flush=True)
            for row in rows:
                names = contenders_of(row, options)
                first = round_index % len(names)
                run_row(row, names[first:] + names[:first], directory, results[title(row)])
            path = common.write_json("message.json", {
                "options": vars(options), "load": load, "versions": versions(), "rows": results},
                [report_row(row, results[title(row)]) for row in rows])
    print_table(options, rows, results)
    print(f"every round: {os.path.relpath(path)}")


common.run_main(main)
