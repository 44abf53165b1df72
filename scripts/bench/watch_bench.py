#!/usr/bin/python3
"""Measures the cost of watching NBD and the messages of two processes: `bedplate top`, a scrape of
/metrics each second and the page (/events), against the same appliance unwatched.

Two appliances run all the time; the idle one sleeps. Each round measures each of them
three times in random order: watched, unwatched, and unwatched again, which shows the noise.
The shard has a core of its own; the watchers, the appliance's other threads and the client share
the other core. NBD's client is the lean one (nbd_client.c). It mostly waits for the server, so the
watchers do not slow it down. The client of the messages (kvd_messages.cc) spins for each answer, so
the watchers take time from it. A measurement lasts whole seconds, so that each has the same number
of looks. The report also has the processor time of the watchers and of the appliance's other
threads: this is the cost of watching without the noise of two compared figures. It is not a
pass/fail test: it exits 0 whatever the figures, unless a program failed to run.
"""
import argparse
import contextlib
import http.client
import os
import random
import subprocess
import threading
import time

import common
from common import BEDPLATE, BUILD, MIB, BenchError
from kvd_server import KVD_MESSAGES, asker_tables, kvd_config, said_of, wait_for
from nbd_server import NbdServer, Setup, free_port, listen_address

LEAN_CLIENT = f"{BUILD}/nbd_client"
VOLUME_BYTES = 64 * MIB
POOL_BYTES = VOLUME_BYTES + 192 * MIB
MESSAGES_POOL_BYTES = 192 * MIB
NBD, MESSAGES = "watched-nbd", "watched-messages"  # the names of the two appliances
MODES = ("read", "write")
KVD_CLIENT = f"{BUILD}/kvd_client"
KEYS, VALUE_BYTES, SLICE_ANSWERS = 1000, 100, 40_000
FIGURES = ("watched", "unwatched", "unwatched again")
SHARD = "main"
TARGET = 0.99  # share of the unwatched figure: the lower end of the paired interval
CLIENT_MAX_S = 120
EVENTS_SEEN = 2  # events with metrics, before measuring
HTTP_MAX_S = 20


class Watchers:
    """All three watchers, active from __enter__() to __exit__()."""

    def __init__(self, name, runtime_directory, port):
        self._name, self._directory, self._port = name, runtime_directory, port
        self._is_over = threading.Event()
        self._is_seen = threading.Event()
        self._failures = []
        self._threads = [threading.Thread(target=self._run, args=(each,))
                         for each in (self._scrape, self._follow)]

    def __enter__(self):
        # top draws on a terminal, which `script` provides.
        top = f"{BEDPLATE} top --directory {self._directory} {self._name}"
        self._top = common.start(["script", "-qfc", top, "/dev/null"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 env=dict(os.environ, TERM="xterm"))
        for thread in self._threads:
            thread.start()
        if not self._is_seen.wait(HTTP_MAX_S):
            self.__exit__()
            raise BenchError(f"watching: no event of the page in {HTTP_MAX_S} s {self._failures}")
        return self

    def pids(self):
        """The process ids of `script` and of its children."""
        with open(f"/proc/{self._top.pid}/task/{self._top.pid}/children", encoding="ascii") as file:
            return [self._top.pid, *map(int, file.read().split())]

    def __exit__(self, *_):
        self._is_over.set()
        if self._top.poll() is not None:
            self._failures.append(f"top ended with {self._top.returncode}")
        common.stop(self._top)
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise BenchError(f"watching: {self._failures[0]}")

    def _run(self, watch):
        try:
            watch()
        except (OSError, http.client.HTTPException) as error:
            self._failures.append(f"{watch.__name__}: {error}")

    def _ask(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=HTTP_MAX_S)
        connection.request("GET", path)
        reply = connection.getresponse()
        if reply.status != 200:
            raise http.client.HTTPException(f"{path}: {reply.status}")
        return connection, reply

    def _scrape(self):
        while not self._is_over.wait(1):
            connection, reply = self._ask("/metrics")
            with contextlib.closing(connection):
                reply.read()

    def _follow(self):
        connection, reply = self._ask("/events")
        with contextlib.closing(connection):
            seen = 0
            while not self._is_over.is_set():
                seen += reply.readline().startswith(b"event:metrics")
                if seen == EVENTS_SEEN:
                    self._is_seen.set()


def listen_http(config):
    """Adds [http] to the configuration, and returns the port."""
    port = free_port()
    with open(config, "a", encoding="ascii") as file:
        file.write(f'[http]\nlisten = ["tcp:127.0.0.1:{port}"]\n')
    return port


def run(argv, log):
    """Returns the output of a client of the appliance."""
    common.note_command(argv)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=CLIENT_MAX_S, check=False)
    if done.returncode != 0:
        raise BenchError(f"running {' '.join(argv)}: exit code {done.returncode}, "
                         f"{done.stderr.strip()}; the appliance said: {said_of(log)}")
    return done.stdout


def beside_ns(pids):
    """The processor time of all their threads except the shard's."""
    total = 0
    for task in (f"/proc/{pid}/task/{thread}" for pid in pids
                 for thread in os.listdir(f"/proc/{pid}/task")):
        with open(f"{task}/comm", encoding="ascii") as name, \
                open(f"{task}/schedstat", encoding="ascii") as file:
            total += 0 if name.read().strip() == SHARD else int(file.read().split()[0])
    return total


@contextlib.contextmanager
def nbd(directory, options):
    """Yields the appliance: its name, the folder of its counters, its port and process, and a
    function that measures it for a number of seconds: {name: thousands per second}."""
    setup = Setup(directory, NBD, "unix", os.path.join(directory, "nbd.sock"), 0, VOLUME_BYTES,
                  options.server_cpu, options.client_cpu)
    config = common.bedplate_config(directory, NBD, [(SHARD, options.server_cpu)], POOL_BYTES,
                                    VOLUME_BYTES, listen_address(setup), "io_uring")
    port = listen_http(config)

    def measure(seconds):
        figures = {}
        for mode in MODES:
            said, _ = running.run_client([LEAN_CLIENT, f"unix:{setup.path}", mode, "4096", "32",
                                          str(seconds)])
            figures[f"NBD {mode}s of 4 KiB, depth 32"] = float(said.split()[0]) / 1e3
        return figures

    with NbdServer(NBD, setup, lambda _: [BEDPLATE, "run", config], cores=2) as running:
        yield NBD, os.path.join(directory, f"run-{NBD}"), port, running.process.pid, measure


@contextlib.contextmanager
def messages(directory, options):
    """Like nbd(), for a service that answers the messages of another process."""
    kvd_port = free_port()
    config = kvd_config(directory, MESSAGES, options.server_cpu, kvd_port, MESSAGES_POOL_BYTES,
                        "io_uring", "32 MiB", asker_tables(VALUE_BYTES))
    port = listen_http(config)
    runtime = os.path.join(directory, f"run-{MESSAGES}")

    def ask(slices):
        """Returns thousands of answers per second, and the nanoseconds of each slice."""
        said = run([KVD_MESSAGES, "ask", os.path.join(runtime, f"{MESSAGES}.join"), str(KEYS),
                    str(VALUE_BYTES), str(slices)], log.name)
        # One line per slice: the times from question to answer, of bare messages and of kvd's.
        each_ns = [sum(map(float, line.split())) * SLICE_ANSWERS / 2 for line in said.splitlines()]
        return slices * SLICE_ANSWERS / sum(each_ns) * 1e6, sum(each_ns) / slices

    slice_ns = None

    def measure(seconds):
        nonlocal slice_ns
        if slice_ns is None:
            _, slice_ns = ask(20)
        return {"messages, answered one at a time": ask(max(1, round(seconds * 1e9 / slice_ns)))[0]}

    with open(os.path.join(directory, "log"), "ab") as log:
        process = common.start(["taskset", "-c", f"{options.server_cpu},{options.client_cpu}",
                                KVD_MESSAGES, "serve", "run", config], stdout=log, stderr=log)
    try:
        wait_for(port, log.name)
        run([KVD_CLIENT, str(kvd_port), "fill", "1", "1", "0", str(KEYS), str(VALUE_BYTES)],
            log.name)
        yield MESSAGES, runtime, port, process.pid, measure
    finally:
        common.stop(process)


def run_round(appliances, seconds, results, beside):
    for name, directory, port, pid, measure in appliances:
        for figure in random.sample(FIGURES, len(FIGURES)):
            with contextlib.ExitStack() as stack:
                pids = [os.getpid(), pid]
                if figure == "watched":
                    pids += stack.enter_context(Watchers(name, directory, port)).pids()
                before, began_ns = beside_ns(pids), time.monotonic_ns()
                measured = measure(seconds)
                share = (beside_ns(pids) - before) / (time.monotonic_ns() - began_ns)
                beside.setdefault(name, {each: [] for each in FIGURES})[figure].append(share * 1e3)
            for what, value in measured.items():
                results.setdefault(what, {each: [] for each in FIGURES})[figure].append(value)


def report_rows(results, beside):
    rows = [common.row(f"{what}, watched", "k/s", figures, [
        common.compared("unwatched", common.ratios(figures, "watched", ["unwatched"])),
        common.compared("itself", common.ratios(figures, FIGURES[2], ["unwatched"]))],
                       judged="watched") for what, figures in results.items()]
    return rows + [common.row(f"{name}: run beside shard and client", "ms/s", figures, [],
                              judged="watched", is_rate=False) for name, figures in beside.items()]


def print_table(results, beside):
    for what, figures in results.items():
        print(f"{what} [k/s]")
        for figure, values in figures.items():
            print(f"  {figure:16}{common.spread(values)}")
        common.print_builds(figures, "watched", FIGURES[1:])
        low, _ = common.median_interval(common.ratios(figures, "watched", ["unwatched"]))
        print(f"  the interval begins above {TARGET}: {common.verdict(low >= TARGET)}")
    for name, figures in beside.items():
        told = (f"{figure} {common.spread(values)}" for figure, values in figures.items())
        print(f"{name}: run beside shard and client [ms/s] {', '.join(told)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=1, help="of each measurement")
    parser.add_argument("--server-cpu", type=int, default=0)
    parser.add_argument("--client-cpu", type=int, default=1)
    options = parser.parse_args()
    own = dict.fromkeys((LEAN_CLIENT, KVD_MESSAGES, KVD_CLIENT), "scripts/bench/run.sh")
    common.require({**own, BEDPLATE: "make", "script": "bsdutils", "taskset": "util-linux"})
    load = common.warn_if_busy()
    os.sched_setaffinity(0, {options.client_cpu})  # this process and its children, except the
                                                   # server
    results, beside = {}, {}
    with common.reserved_hugepages(POOL_BYTES + MESSAGES_POOL_BYTES), \
            common.work_directory() as directory, nbd(directory, options) as first, \
            messages(directory, options) as second:
        appliances = (first, second)
        run_round(appliances, options.seconds, {}, {})  # warms pages and caches
        for _ in range(options.rounds):
            run_round(appliances, options.seconds, results, beside)
    path = common.write_json("watch.json", {"load": load, "rows": results, "beside": beside},
                             report_rows(results, beside))
    print_table(results, beside)
    print(f"every round: {os.path.relpath(path)}")


common.run_main(main)
