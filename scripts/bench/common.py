"""Helpers of all benchmarks: paths, cleanup, hugepages, statistics, JSON.

A resource acquired here is released when its `with` block ends, also if a signal ends it. This
module measures nothing.
"""
import contextlib
import json
import math
import os
import platform
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build", "bench")
BEDPLATE = os.path.abspath(os.environ.get("BEDPLATE", f"{ROOT}/build/release/bedplate"))
# Another tree, also built in build/release, for comparison with this one.
OTHER_TREE = os.environ.get("BEDPLATE_OTHER")
OTHER_BEDPLATE = f"{OTHER_TREE}/build/release/bedplate"
OTHERS = ("other", "other-again")  # twice, to show how much the same build differs from itself
MIB = 1 << 20
HUGEPAGE_BYTES = 2 * MIB
HUGEPAGES = "/sys/kernel/mm/hugepages/hugepages-2048kB"
STOP_MAX_S = 15
HUGEPAGES_MAX_S = 10
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class BenchError(Exception):
    """A program failed to run; the message has the three parts: doing, answer, cure."""


def run_main(main):
    """Runs main() and exits: 0 success, 1 a program failed to run, 130 interrupted."""
    def interrupt(_number, _frame):
        for number in SIGNALS:  # a second signal must not interrupt the cleanup
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in SIGNALS:
        signal.signal(number, interrupt)
    name = os.path.basename(sys.argv[0])
    try:
        main()
    except BenchError as error:
        sys.exit(f"{name}: {error}")
    except KeyboardInterrupt:
        print(f"{name}: interrupted; everything that it had started is stopped", file=sys.stderr)
        sys.exit(130)


def require(programs):
    """Stops unless each program is installed. `programs`: a dict of program to its package."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        cures = ", ".join(sorted({programs[program] for program in missing}))
        raise BenchError(f"looking for {', '.join(missing)}: not found; comes with: {cures}")


@contextlib.contextmanager
def work_directory():
    """A directory on tmpfs that is removed afterwards."""
    path = tempfile.mkdtemp(prefix="bedplate-bench-", dir="/dev/shm")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def hugepage_count(name):
    with open(f"{HUGEPAGES}/{name}", encoding="ascii") as file:
        return int(file.read())


def available_hugepage_count():
    return hugepage_count("free_hugepages") - hugepage_count("resv_hugepages")


def wait_for_hugepages(total_bytes):
    """Waits, with a bound, until the pages are free: io_uring releases its registered buffers only
    some time after the process has ended. Requires: reserved_hugepages(total_bytes)."""
    deadline = time.monotonic() + HUGEPAGES_MAX_S
    while available_hugepage_count() < total_bytes // HUGEPAGE_BYTES:
        if time.monotonic() > deadline:
            raise BenchError(f"waiting for {total_bytes // MIB} MiB of hugepages: only "
                             f"{available_hugepage_count()} are free after {HUGEPAGES_MAX_S} s; "
                             "stop other users of hugepages")
        time.sleep(0.005)


def set_hugepage_count(count):
    with open(f"{HUGEPAGES}/nr_hugepages", "w", encoding="ascii") as file:
        file.write(str(count))


@contextlib.contextmanager
def reserved_hugepages(total_bytes):
    """Reserves the missing hugepages for total_bytes, and releases exactly these afterwards."""
    missing = max(0, total_bytes // HUGEPAGE_BYTES - available_hugepage_count())
    before = hugepage_count("nr_hugepages")
    added = 0
    try:
        if missing:
            try:
                set_hugepage_count(before + missing)
            except OSError as error:
                raise BenchError(f"reserving {missing} hugepages: {error.strerror}; run as root, "
                                 f"or: echo {before + missing} > {HUGEPAGES}/nr_hugepages")
            added = hugepage_count("nr_hugepages") - before
            if added < missing:
                raise BenchError(f"reserving {missing} hugepages: the kernel reserved {added}; "
                                 "free memory, or choose a smaller volume (--volume-mib)")
        yield
    finally:
        if added > 0:  # relative, so that pages reserved by others meanwhile stay
            set_hugepage_count(hugepage_count("nr_hugepages") - added)


_commands = {}  # commands of this benchmark, in the order of their first run


def note_command(argv):
    """Adds a command to the report, once however often it ran, without random names."""
    text = re.sub(r"\S*/bedplate-bench-[^/ ]+", "$WORK", shlex.join(map(str, argv)))
    text = re.sub(r"(tcp:|127\.0\.0\.1:|[Pp]ort[ =])\d+", r"\1$PORT", text)
    _commands[text.replace(ROOT + "/", "")] = True


def commands():
    return list(_commands)


def start(argv, **options):
    """Starts a program in a new session, so that Ctrl-C reaches only this script."""
    note_command(argv)
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen(argv, start_new_session=True, **options)


def stop(process):
    """Ends a started program and its children: first with SIGTERM, then with SIGKILL."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(STOP_MAX_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def bedplate_config(directory, name, shards, pool_bytes, volume_bytes, listen, sockets,
                    enforce="kernel", keys="", **appliance):
    """The configuration of a block server. Requires: shards as [(name, cpu)], in the order
    connections, volumes. `keys`: lines of [blockd]; `appliance`: numeric keys of [appliance]."""
    return service_config(directory, name, shards, pool_bytes, sockets, f"""[blockd]
listen = ["{listen}"]
{keys}
[[blockd.volume]]
name = "ram0"
bytes = {volume_bytes}
""", enforce, **appliance)


def service_config(directory, name, shards, pool_bytes, sockets, tables, enforce="kernel",
                   event_loop="", **appliance):
    """Writes a configuration with the `tables` of services and returns its path. `event_loop`:
    further lines of that table."""
    more = "".join(f"{key} = {value}\n" for key, value in appliance.items())
    shard_tables = "".join(f'[[shard]]\nname = "{shard}"\ncpu = {cpu}\n' for shard, cpu in shards)
    path = os.path.join(directory, f"{name}.toml")
    with open(path, "w", encoding="ascii") as file:
        file.write(f"""[appliance]
name = "{name}"
runtime_directory = "{directory}/run-{name}"
{more}[pool]
bytes = {pool_bytes}
pages = "2 MiB"
enforce = "{enforce}"
[event_loop]
sockets = "{sockets}"
{event_loop}{shard_tables}{tables}""")
    return path


def spread(values):
    median, least, most = (f"{value:.3g}" if value < 1000 else f"{value:.0f}"
                           for value in (statistics.median(values), min(values), max(values)))
    return f"{median} ({least}..{most})"


def verdict(reached):
    return "reached" if reached else "NOT reached"


def ratios(rounds, name, others):
    """Returns the ratio of `name` to the best of `others`, for each round."""
    bests = zip(*(rounds[other] for other in others if other in rounds))
    return [mine / max(best) for mine, best in zip(rounds[name], bests)]


def median_interval(values):
    """Returns the 95 % interval of the median, by ranks, valid for any distribution."""
    ordered, count = sorted(values), len(values)
    chances = [math.comb(count, below) / 2 ** count for below in range(count)]
    # With a chance of at most 2.5 % per side the median lies beyond the outer `rank` values.
    rank = sum(sum(chances[:below + 1]) <= 0.025 for below in range(count))
    if rank == 0:
        raise BenchError(f"computing the interval of a median of {count} rounds: it needs 6; "
                         "raise --rounds")
    return ordered[rank - 1], ordered[-rank]


def print_builds(figures, name):
    """Compares this build with another, if that was measured (twice)."""
    if not set(OTHERS) <= set(figures):
        return
    other, again = OTHERS
    for what, of in ((f"{name} / {other}", name), (f"{other} / itself", again)):
        values = [mine / theirs for mine, theirs in zip(figures[of], figures[other])]
        low, high = median_interval(values)
        print(f"  {what}: {statistics.median(values):.3f}, 95 % interval {low:.3f}..{high:.3f}")


def ratio_text(values, target):
    if not values:
        return f"{'-':>6}{'':17}"
    median = statistics.median(values)
    judged = f"{target} {verdict(median >= target)}" if target else ""
    shown = math.floor(median * 100) / 100  # never rounded up to a target that was missed
    return f"{shown:6.2f} {judged:16}"


def warn_if_busy():
    """Returns the load, and warns if others use the machine."""
    load = os.getloadavg()[0]
    if load > 0.3:
        print(f"the machine is busy (load {load:.2f}): the figures will vary", file=sys.stderr)
    return load


def row(title, unit, figures, comparisons=(), is_rate=True, judged="bedplate"):
    """One row of the report (scripts/bench/report.py).

    figures: {contender: [figure of each round]}; is_rate: larger is better; comparisons: results of
    compared().
    """
    return {"title": title, "unit": unit, "is_rate": is_rate, "judged": judged,
            "figures": figures, "comparisons": [entry for entry in comparisons if entry]}


def compared(other, values, target=None, is_rate=True):
    """The ratios of the judged to `other`, and the target for their median: a minimum for rates,
    otherwise a maximum. None without values."""
    if not values:
        return None
    median = statistics.median(values)
    reached = None if target is None else median >= target if is_rate else median <= target
    return {"with": other, "ratios": values, "target": target, "is_rate": is_rate,
            "reached": reached}


def comparison_text(comparison):
    """The result of compared(), as text."""
    text = f"{statistics.median(comparison['ratios']):.3g} of {comparison['with']}"
    if comparison["target"] is not None:
        text += (f", {'at least' if comparison['is_rate'] else 'at most'} {comparison['target']} "
                 f"{verdict(comparison['reached'])}")
    return text


def write_json(name, results, rows):
    """Writes build/bench/NAME with all data needed to judge the figures later; the report shows
    `rows`."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":")[1].strip() for line in file if "model name" in line), "")
    os.makedirs(BUILD, exist_ok=True)
    path = os.path.join(BUILD, name)
    machine = {"kernel": platform.release(), "cpu": model, "cpus": os.cpu_count()}
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"machine": machine, "date": time.strftime("%Y-%m-%d %H:%M"), **results,
                   "report": rows, "commands": commands()}, file, indent=1)
    return path
