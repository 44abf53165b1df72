#!/usr/bin/python3
"""What watching costs: NBD with `bedplate top` open, a scrape of /metrics each second and the page
(/events), against the same appliance with nobody looking.

One appliance runs all the time. Each round measures it three times, in an order of chance: watched,
unwatched, and unwatched again, which shows what the same differs from itself. The shard has a core
of its own; those that watch, the appliance's own threads and the client have the other one. The
client is the lean one (nbd_client.c), which waits for the server most of the time, so that it is
not what the watchers slow down. It is no timed test: it exits 0 whatever the figures, unless
something failed to run.
"""
import argparse
import contextlib
import http.client
import os
import random
import subprocess
import threading

import common
from common import BEDPLATE, BUILD, MIB, BenchError
from nbd_server import NbdServer, Place, free_port, listen_address

LEAN_CLIENT = f"{BUILD}/nbd_client"
VOLUME_BYTES = 64 * MIB
POOL_BYTES = VOLUME_BYTES + 192 * MIB
NAME = "watched-one"
MODES = ("read", "write")
FIGURES = ("watched", "unwatched", "unwatched again")
TARGET = 0.99  # of the unwatched one: where the paired interval begins
EVENTS_SEEN = 2  # of metrics, before anything is measured
HTTP_MAX_S = 20


class Watchers:
    """All three of them, looking, from __enter__() to __exit__()."""

    def __init__(self, place, port):
        self._place, self._port = place, port
        self._is_over = threading.Event()
        self._is_seen = threading.Event()
        self._failures = []
        self._threads = [threading.Thread(target=self._run, args=(each,))
                         for each in (self._scrape, self._follow)]

    def __enter__(self):
        runtime = os.path.join(self._place.directory, f"run-{NAME}")
        # top draws on a terminal, which `script` gives it.
        self._top = common.start(["script", "-qfc", f"{BEDPLATE} top --directory {runtime} {NAME}",
                                  "/dev/null"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 env=dict(os.environ, TERM="xterm"))
        for thread in self._threads:
            thread.start()
        if not self._is_seen.wait(HTTP_MAX_S):
            self.__exit__()
            raise BenchError(f"watching: no event of the page in {HTTP_MAX_S} s {self._failures}")
        return self

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


def server(directory, port, options):
    place = Place(directory, NAME, "unix", os.path.join(directory, "nbd.sock"), 0, VOLUME_BYTES,
                  options.server_cpu, options.client_cpu)
    config = common.bedplate_config(directory, NAME, [("main", options.server_cpu)], POOL_BYTES,
                                    VOLUME_BYTES, listen_address(place), "io_uring")
    with open(config, "a", encoding="ascii") as file:
        file.write(f'[http]\nlisten = ["tcp:127.0.0.1:{port}"]\n')
    return NbdServer(NAME, place, lambda _: [BEDPLATE, "run", config], cores=2)


def measure(running, mode, seconds):
    said, _ = running.run_client([LEAN_CLIENT, f"unix:{running.place.path}", mode, "4096", "32",
                                  str(seconds)])
    return float(said.split()[0]) / 1e3


def run_round(running, port, options, results):
    for figure in random.sample(FIGURES, len(FIGURES)):
        with contextlib.ExitStack() as stack:
            if figure == "watched":
                stack.enter_context(Watchers(running.place, port))
            for mode in MODES:
                results[mode][figure].append(measure(running, mode, options.seconds))


def report_rows(results):
    return [common.row(f"NBD {mode}s of 4 KiB, depth 32, watched", "k/s", figures, [
        common.compared("unwatched", common.ratios(figures, "watched", ["unwatched"])),
        common.compared("itself", common.ratios(figures, FIGURES[2], ["unwatched"]))],
                       judged="watched") for mode, figures in results.items()]


def print_table(results):
    for mode, figures in results.items():
        print(f"NBD {mode}s of 4 KiB at depth 32 [k/s]")
        for figure, values in figures.items():
            print(f"  {figure:16}{common.spread(values)}")
        common.print_builds(figures, "watched", FIGURES[1:])
        low, _ = common.median_interval(common.ratios(figures, "watched", ["unwatched"]))
        print(f"  the interval begins above {TARGET}: {common.verdict(low >= TARGET)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement")
    parser.add_argument("--server-cpu", type=int, default=0)
    parser.add_argument("--client-cpu", type=int, default=1)
    options = parser.parse_args()
    common.require({LEAN_CLIENT: "scripts/bench/run.sh", BEDPLATE: "make", "script": "bsdutils",
                    "taskset": "util-linux"})
    load = common.warn_if_busy()
    os.sched_setaffinity(0, {options.client_cpu})  # this and what it starts, but for the server
    results = {mode: {figure: [] for figure in FIGURES} for mode in MODES}
    port = free_port()
    with common.reserved_hugepages(POOL_BYTES), common.work_directory() as directory, \
            server(directory, port, options) as running:
        for mode in MODES:
            measure(running, mode, options.seconds)  # the volume's pages and all else are warm
        for _ in range(options.rounds):
            run_round(running, port, options, results)
    path = common.write_json("watch.json", {"load": load, "rows": results}, report_rows(results))
    print_table(results)
    print(f"every round: {os.path.relpath(path)}")


common.run_main(main)
