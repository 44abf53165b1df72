#!/usr/bin/python3
"""How kvd and blockd scale with the number of their shards.

    make all && scripts/bench/run.sh scale [--rounds N] [--seconds S]
    scripts/bench/run.sh scale --cores LIST [--rounds N] [--seconds S]

The first form needs two cores, and uses no more. 1, 2, 8 and 64 shards take turns at the two cores
([event_loop] shared_cores), and on each core there is a client, always with the same requests:
gets of 100 bytes over 64 connections at depth 32, and reads of 4 KiB from 16 volumes in memory in
the same way, over Unix sockets. The clients replay prepared bytes and sleep while they wait
(replay_client.c), so the processors have no work but requests. Rounds are interleaved, in random
order, and each starts every appliance anew. The rows:

- Crowded: requests per second of 8 and of 64 shards, beside those of 2. All share the two cores
  with the clients, so this is what many shards cost, and not how far they scale.
- A second of the busiest shard: the requests in a measurement, divided by the processor time of the
  shard that took most of it in the same time. The time of the clients is not in it. It would be the
  rate if each shard had a core of its own, and nothing but these cores were the limit: no such
  machine was measured. The cost of what crosses between shards is in it, and so is an uneven load.
  The kernel's work for a message counts for the thread that does it; a Unix socket has no work that
  is done later. Shards do not poll here (spin_us is 0): polling would count as work.
- Idle: the share of a core that the busiest shard takes without clients, with default settings.

The second form is for machines with more cores. It measures requests per second of 1, 2, 4, ...
shards of kvd and of blockd, each on a core of LIST, and memcached with as many threads on the same
cores, as memcached(1) advises (no more threads than cores). The clients have all other cores, use
TCP, and are the same for all numbers of shards. `clients` is their share of busy time: near 100 %
they are the limit, and more cores for them are needed. It begins no round that would end after five
minutes.

A model is printed below the rows of a service: the Universal Scalability Law, with the least
squares of relative errors at the measured numbers. Its errors are printed with it: the largest at
these numbers, and that at the largest number if only the others are known. A model is no
measurement, and has no row in the report.
"""
import argparse
import contextlib
import os
import random
import statistics
import subprocess
import sys
import time

import common
import scaling
from common import BEDPLATE, BUILD, MIB, BenchError
from kvd_server import said_of, wait_for
from nbd_server import free_port

REPLAY_CLIENT, KVD_CLIENT = f"{BUILD}/replay_client", f"{BUILD}/kvd_client"
SHARDS = (1, 2, 8, 64)
CONNECTIONS, DEPTH = 64, 32
KEYS, VALUE_BYTES = 100_000, 100
VOLUMES, VOLUME_BYTES, BLOCK_BYTES = 16, 4 * MIB, 4096
TITLES = {"kvd": "kvd gets", "blockd": "NBD reads of 4 KiB"}

# A shard beyond the number of cores gets no more time, so it can only cost: more questions between
# shards, with fewer requests in each, and more switches of threads. These are the shares of the
# rate of 2 shards that remain. Below them, a file for a large machine could not be tried on a small
# one.
CROWDED_MIN = {8: 0.95, 64: 0.90}
# It would be 2 if nothing crossed. Half of the requests cross to the other shard and back.
SCALING_MIN = 1.7
# All 64 shards, while they are idle, then take less than 7 % of one core.
IDLE_MAX = 0.001

IDLE_SETTLE_S, IDLE_S = 0.5, 3
READY_MAX_S, CLIENT_MAX_S = 60, 120
CORES_MAX_S = 300  # with --cores; with the build, the whole run takes less than six minutes
CLIENTS_BUSY_MAX = 0.9


# ---- servers -------------------------------------------------------------------------------------

def pool_bytes(shards, connections, volumes):
    """Enough for either service: for each shard its part of the heap, lanes and buffers."""
    return (256 + 6 * shards + connections // 4 + 4 * volumes) * MIB


def kvd_tables(listen, shards, connections, _volumes):
    # With so few places to spare, a shard that is full gives its clients to the others, so they are
    # spread evenly.
    return f"""[kvd]
listen = [{listen}]
shards = "all"
cache_bytes = "128 MiB"
value_max_bytes = "64 KiB"
max_connections = {connections + shards}
"""


def blockd_tables(listen, shards, connections, volumes):
    names = ", ".join(f'"{name}"' for name, _ in scaling.shards_on([0], shards))
    return f"""[blockd]
listen = [{listen}]
connections_shards = [{names}]
volumes_shards = [{names}]
max_connections = {connections + shards}
requests_per_connection = {2 * DEPTH}
""" + "".join(f"""[[blockd.volume]]
name = "{name}"
bytes = {VOLUME_BYTES}
""" for name in volume_names(volumes))


TABLES = {"kvd": kvd_tables, "blockd": blockd_tables}


def volume_names(count):
    return [f"ram{i:02}" for i in range(count)]


class Case:
    """A server to measure: `shards` of `service` on `cores`, or memcached's threads; and where its
    clients are."""

    def __init__(self, service, shards, cores, client_cores, connections, volumes, *, unix):
        self.service, self.shards, self.cores = service, shards, cores
        self.client_cores, self.connections, self.volumes = client_cores, connections, volumes
        self.unix = unix

    def memory_bytes(self):
        return pool_bytes(self.shards, self.connections, self.volumes)

    def requests(self, directory):
        """The file that the clients replay."""
        return os.path.join(directory, "nbd" if self.service == "blockd" else "kvd")

    @contextlib.contextmanager
    def running(self, directory, event_loop):
        """Yields the address for clients, and the process id."""
        port = free_port()
        name = f"{self.service}-{self.shards}"
        path = os.path.join(directory, f"{name}.sock")
        log = os.path.join(directory, f"{name}.log")
        argv = ["taskset", "-c", ",".join(map(str, self.cores)),
                *self.command(directory, name, port, path, event_loop)]
        with open(log, "wb") as file:
            process = common.start(argv, stdout=file, stderr=file)
        try:
            if self.service == "memcached":
                wait_for(port, log)
            else:
                wait_until_ready(process, log)
            if self.service != "blockd":
                run([KVD_CLIENT, port, "fill", 1, 1, 0, KEYS, VALUE_BYTES])
            yield (f"unix:{path}" if self.unix else f"tcp:{port}"), process.pid
        finally:
            common.stop(process)

    def command(self, directory, name, port, path, event_loop):
        if self.service == "memcached":
            return ["memcached", "-u", "nobody", "-l", "127.0.0.1", "-U", "0", "-p", str(port),
                    "-t", str(self.shards), "-m", "128", "-c", str(self.connections + 64)]
        common.wait_for_hugepages(self.memory_bytes())
        listen = f'"tcp:127.0.0.1:{port}"' + (f', "unix:{path}"' if self.unix else "")
        tables = TABLES[self.service](listen, self.shards, self.connections, self.volumes)
        shards = scaling.shards_on(self.cores, self.shards)
        return [BEDPLATE, "run", common.service_config(
            directory, name, shards, self.memory_bytes(), "io_uring", tables,
            event_loop=event_loop)]

    def rate(self, directory, seconds, event_loop):
        """Thousands of requests per second; the same per second of the busiest shard (not of
        memcached); the clients' share of busy time."""
        with self.running(directory, event_loop) as (address, pid):
            before = self.shard_ns(pid)
            requests, rate, busy = self.replay(address, seconds, self.requests(directory))
            spent = scaling.spent_ns(before, self.shard_ns(pid))
        return {"rate": rate / 1e3, "clients": busy,
                **({"busiest": scaling.busiest_rate(requests, spent) / 1e3} if spent else {})}

    def idle(self, directory, event_loop):
        """The share of a core that the busiest shard takes without clients."""
        with self.running(directory, event_loop) as (_, pid):
            time.sleep(IDLE_SETTLE_S)
            before, begin_ns = self.shard_ns(pid), time.monotonic_ns()
            time.sleep(IDLE_S)
            spent = scaling.spent_ns(before, self.shard_ns(pid))
            return scaling.largest_share(spent, time.monotonic_ns() - begin_ns)

    def shard_ns(self, pid):
        """The processor time of each shard's thread, which has the shard's name."""
        names = {} if self.service == "memcached" else dict(scaling.shards_on([0], self.shards))
        found = {}
        for task in (f"/proc/{pid}/task/{number}" for number in os.listdir(f"/proc/{pid}/task")):
            # A thread of the kernel's may end meanwhile; a shard may not.
            with contextlib.suppress(OSError), \
                    open(f"{task}/comm", encoding="ascii", errors="replace") as comm, \
                    open(f"{task}/schedstat", encoding="ascii") as file:
                name = comm.read().strip()
                if name in names:
                    found[name] = int(file.read().split()[0])
        if len(found) != len(names):
            raise BenchError(f"looking for the threads of {len(names)} shards in /proc/{pid}/task: "
                             f"{len(found)} are there; run the appliance by hand")
        return found

    def replay(self, address, seconds, path):
        """All clients at a time. Returns requests, requests per second, and the share of time in
        which a client was busy."""
        clients = []
        try:
            first = 0
            for core, count in zip(self.client_cores,
                                   scaling.shares(self.connections, len(self.client_cores))):
                if count > 0:
                    clients.append(common.start(
                        ["taskset", "-c", str(core), REPLAY_CLIENT, address, str(first), str(count),
                         str(seconds), path],
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
                first += count
            said = [client.communicate(timeout=CLIENT_MAX_S) for client in clients]
        except subprocess.TimeoutExpired:
            raise BenchError(f"running {REPLAY_CLIENT}: no end after {CLIENT_MAX_S} s; the server "
                             "answers nothing") from None
        finally:
            for client in clients:
                common.stop(client)
        for client, (_, errors) in zip(clients, said):
            if client.returncode != 0:
                raise BenchError(f"running {REPLAY_CLIENT} {address}: exit code "
                                 f"{client.returncode}, {errors.strip()}; see its source")
        figures = [list(map(float, text.split())) for text, _ in said]
        return (sum(requests for requests, _, _ in figures),
                sum(requests / took for requests, took, _ in figures),
                statistics.mean(busy / took for _, took, busy in figures))


def wait_until_ready(process, log):
    end = time.monotonic() + READY_MAX_S
    while time.monotonic() < end and process.poll() is None:
        with open(log, encoding="utf-8", errors="replace") as file:
            if "bedplate: ready" in file.read():
                return
        time.sleep(0.02)  # between two looks, bounded by `end`
    raise BenchError(f"starting an appliance: it is not ready; it said: {said_of(log)}")


def run(argv):
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, check=False,
                          timeout=CLIENT_MAX_S)
    if done.returncode != 0:
        raise BenchError(f"running {argv[0]}: {done.stderr.strip()}; see its source")


def write_requests(directory, volumes):
    for name, text in (("kvd", scaling.kvd_gets(KEYS, VALUE_BYTES, DEPTH)),
                       ("nbd", scaling.nbd_reads(volume_names(volumes), VOLUME_BYTES, BLOCK_BYTES,
                                                 DEPTH))):
        with open(os.path.join(directory, name), "wb") as file:
            file.write(text)


# ---- on two cores --------------------------------------------------------------------------------

def label(shards):
    return f"{shards} shard{'s' if shards > 1 else ''}"


def crowded_cases():
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise BenchError("looking for two cores: this process may use one; run it where there are "
                         "two")
    return [Case(service, shards, cores, cores, CONNECTIONS, VOLUMES, unix=True)
            for service in TABLES for shards in SHARDS]


def run_crowded(options, directory, cases):
    """{service: {what: {shards: figure of each round}}}, what: rate, busiest, clients, idle."""
    results = {service: {} for service in TABLES}
    for round_index in range(options.rounds):
        print(f"round {round_index + 1} of {options.rounds}", file=sys.stderr, flush=True)
        for case in random.sample(cases, len(cases)):
            figures = case.rate(directory, options.seconds, "spin_us = 0\nshared_cores = true\n")
            figures["idle"] = case.idle(directory, "shared_cores = true\n")
            for what, value in figures.items():
                results[case.service].setdefault(what, {n: [] for n in SHARDS})[
                    case.shards].append(value)
    return results


def crowded_rows(results):
    rows = []
    for service, measured in results.items():
        title, rates = TITLES[service], measured["rate"]
        for shards, target in CROWDED_MIN.items():
            rows.append(common.row(f"{title}, {shards} shards on two cores", "k/s", {
                label(n): rates[n] for n in (shards, 2)}, [
                common.compared("2 shards", ratios(rates, shards, 2), target)],
                                   judged=label(shards)))
        busiest = measured["busiest"]
        rows.append(common.row(f"{title}, a second of the busiest shard", "k", {
            label(n): busiest[n] for n in SHARDS}, [
            common.compared("1 shard, by 2", ratios(busiest, 2, 1), SCALING_MIN)],
                               judged=label(2)))
        idle = measured["idle"]
        rows.append(common.row(f"{service}, the busiest of idle shards", "% of a core", {
            label(n): [100 * share for share in idle[n]] for n in SHARDS}, [
            common.compared(f"{IDLE_MAX:.1%} of a core, {label(n)}",
                            [share / IDLE_MAX for share in idle[n]], 1, False) for n in SHARDS],
                               False, label(max(SHARDS))))
    return rows


def ratios(figures, mine, others):
    return [one / other for one, other in zip(figures[mine], figures[others])]


# ---- on many cores -------------------------------------------------------------------------------

def cases_on(cores):
    client_cores = sorted(os.sched_getaffinity(0) - set(cores))
    if not set(cores) <= os.sched_getaffinity(0):
        raise BenchError(f"looking for the cores {cores}: this process may use "
                         f"{sorted(os.sched_getaffinity(0))}; list some of these")
    if not client_cores:
        raise BenchError("looking for cores of the clients: all are listed; leave at least one to "
                         "them")
    most = len(cores)
    connections = max(CONNECTIONS, 8 * most)
    return [Case(service, shards, cores[:shards], client_cores, connections, max(VOLUMES, most),
                 unix=False)
            for service in ("kvd", "memcached", "blockd")
            for shards in scaling.shard_counts(most)]


def run_on_cores(options, directory, cases):
    """{service: {what: {shards: figure of each round}}}, what: rate, busiest, clients."""
    results, end, longest_s = {}, time.monotonic() + CORES_MAX_S, 0
    for round_index in range(options.rounds):
        begin = time.monotonic()
        if begin + longest_s > end:
            print(f"{round_index} rounds of {options.rounds}: the time is over", file=sys.stderr)
            break
        print(f"round {round_index + 1} of {options.rounds}", file=sys.stderr, flush=True)
        for case in random.sample(cases, len(cases)):
            for what, value in case.rate(directory, options.seconds, "").items():
                results.setdefault(case.service, {}).setdefault(what, {}).setdefault(
                    case.shards, []).append(value)
        longest_s = max(longest_s, time.monotonic() - begin)
    return results


def rows_on_cores(results):
    rows, peers = [], results["memcached"]["rate"]
    for service in TABLES:
        rates = dict(sorted(results[service]["rate"].items()))
        rows.append(common.row(f"{TITLES[service]}, each shard on a core", "k/s", {
            label(n): values for n, values in rates.items()}, [
            common.compared(f"1 shard, by {n}", ratios(rates, n, 1)) for n in rates if n > 1],
                               judged=label(max(rates))))
    for n, values in sorted(results["kvd"]["rate"].items()):
        rows.append(common.row(f"gets, {n} core{'s' if n > 1 else ''}", "k/s", {
            "kvd": values, "memcached": peers[n]}, [
            common.compared(f"memcached -t {n}", [
                mine / theirs for mine, theirs in zip(values, peers[n])])], judged="kvd"))
    return rows


# ---- output --------------------------------------------------------------------------------------

def print_rows(rows):
    for row in rows:
        print(f"{row['title']} [{row['unit']}]")
        for name, values in row["figures"].items():
            print(f"  {name:16}{common.spread(values)}")
        for comparison in row["comparisons"]:
            print(f"  {common.comparison_text(comparison)}")


def print_clients(results):
    for service, measured in results.items():
        busy = {n: statistics.median(values) for n, values in sorted(measured["clients"].items())}
        print(f"{service}: clients busy " + ", ".join(
            f"{share:.0%} ({label(n)})" for n, share in busy.items()))


def warn_of_slow_clients(results):
    if any(statistics.median(values) > CLIENTS_BUSY_MAX for measured in results.values()
           for values in measured["clients"].values()):
        print(f"clients that are busy for over {CLIENTS_BUSY_MAX:.0%} of the time limit the "
              "servers: list fewer cores")


def models(results, what):
    """{service: the model of its medians}, printed with its errors."""
    laws = {}
    for service in TABLES:
        points = [(n, statistics.median(values))
                  for n, values in sorted(results[service][what].items())]
        if len(points) < 3:
            print(f"{TITLES[service]}: no model: any would fit {len(points)} numbers of shards")
            continue
        law, last = scaling.fit_usl(points), points[-1][0]
        laws[service] = law._asdict()
        print(f"{TITLES[service]}: a model, not measured (Universal Scalability Law): contention "
              f"{law.contention:.3g}, coherence {law.coherence:.3g}")
        print(f"  off by {scaling.largest_error(law, points):.0%} at most where it was fitted; "
              f"without {label(last)}, off by {scaling.error_of_the_last(points):.0%} there")
        print("  " + ", ".join(f"{label(n)} {law.rate_at(n):.0f} k"
                               for n in (1, 2, 4, 8, 16, 32, 64)))
    return laws


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=scaling.cores_of, metavar="LIST",
                        help="measure shards on these cores, such as 0-15; clients get the others")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1, help="of each measurement")
    return parser.parse_args()


def main():
    options = parse_options()
    programs = {BEDPLATE: "make", "taskset": "util-linux",
                **dict.fromkeys((REPLAY_CLIENT, KVD_CLIENT), "scripts/bench/run.sh")}
    if options.cores:
        programs["memcached"] = "scripts/setup.sh bench"
    common.require(programs)
    load = common.warn_if_busy()
    cases = cases_on(options.cores) if options.cores else crowded_cases()
    with common.work_directory() as directory, \
            common.reserved_hugepages(max(case.memory_bytes() for case in cases)):
        write_requests(directory, cases[0].volumes)
        run_all = run_on_cores if options.cores else run_crowded
        results = run_all(options, directory, cases)
    rows = rows_on_cores(results) if options.cores else crowded_rows(results)
    print_rows(rows)
    print_clients(results)
    if options.cores:
        warn_of_slow_clients(results)
    laws = models(results, "rate" if options.cores else "busiest")
    path = common.write_json("scale-cores.json" if options.cores else "scale.json", {
        "load": load, "options": vars(options), "results": results, "models": laws}, rows)
    print(f"every round: {os.path.relpath(path)}")


if __name__ == "__main__":
    common.run_main(main)
