#!/usr/bin/python3
"""Volumes on a file or a block device, against peers and against the sum of their parts.

A request to such a volume crosses a socket, and then goes to the drive. The floor is the sum of
both times, each measured in the same round: fio's time for the same request directly on the same
file (io_uring, registered buffers and files, O_DIRECT), and the time of nbd_bench.py's bare server
over the same socket with the same client, from memory. Times are 1 / (requests per second).

Peers bypass the page cache as Bedplate does (qemu-nbd: cache=none, aio=native; nbdkit: cache=none),
and in separate rows use it (qemu-nbd: cache=writeback, aio=io_uring; nbdkit: its default).
Memory size bounds the page cache: all servers run in a memory control group of a quarter of the
file's size.

    scripts/bench/run.sh store [--on file|loop] [--rounds N]

`file` is a file on this machine's disk (build/bench), `loop` a loop device over a file on tmpfs.
Servers run on one core, clients on another, one server at a time.
"""
import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile

import common
from common import BEDPLATE, BUILD, MIB, BenchError
from nbd_server import (NbdServer, Setup, fio_figures, fio_options, free_port, listen_address)

POOL_BYTES = 256 * MIB
FLOOR_TARGET = 1.05  # at most this multiple of the sum
PEER_TARGET = 0.67   # at most this share of a peer's time: 1.5 times its requests
WORKLOADS = [("randread", "4k", 1), ("randwrite", "4k", 1), ("randread", "4k", 32),
             ("randwrite", "4k", 32), ("randread", "128k", 8), ("randwrite", "128k", 8)]


# ---- servers: each makes its command from a `Setup` and the path of its volume -------------------

def bedplate(setup, path):
    key = "device" if path.startswith("/dev/") else "file"
    return [BEDPLATE, "run", common.service_config(
        setup.directory, setup.name, [("main", setup.server_cpu)], POOL_BYTES, "io_uring",
        f'[blockd]\nlisten = ["{listen_address(setup)}"]\n'
        f'[[blockd.volume]]\nname = "disk"\n{key} = "{path}"\n')]


def nbdkit(*options):
    def command(setup, path):
        return ["nbdkit", "--foreground", "--unix", setup.path, "file", path, *options]
    return command


def qemu_nbd(*options):
    def command(setup, path):
        return ["qemu-nbd", "--format=raw", "--persistent", "--shared=0", "--discard=unmap",
                *options, "--socket", setup.path, path]
    return command


def bare(setup, _path):
    return [f"{BUILD}/bare_server", str(setup.volume_bytes), f"unix:{setup.path}"]


SERVERS = {
    "bedplate": bedplate,
    "qemu-nbd": qemu_nbd("--cache=none", "--aio=native"),
    "nbdkit": nbdkit("cache=none"),
    "qemu-nbd, cache": qemu_nbd("--cache=writeback", "--aio=io_uring"),
    "nbdkit, cache": nbdkit(),
    "bare": bare,
}
DIRECT = ("qemu-nbd", "nbdkit")
CACHED = ("qemu-nbd, cache", "nbdkit, cache")
PROGRAMS = {"taskset": "util-linux", "fio": "fio", "nbdkit": "nbdkit", "qemu-nbd": "qemu-utils",
            "losetup": "mount", f"{BUILD}/bare_server": "scripts/bench/run.sh", BEDPLATE: "make"}


# ---- the volume ----------------------------------------------------------------------------------

@contextlib.contextmanager
def served(options):
    """The path of a file or device filled with random data."""
    directory = BUILD if options.on == "file" else "/dev/shm"
    with tempfile.NamedTemporaryFile(prefix="bedplate-bench-", dir=directory) as file:
        for _ in range(options.file_mib):
            file.write(os.urandom(MIB))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if options.on == "file":
            yield file.name
            return
        device = subprocess.run(["losetup", "--find", "--show", file.name], check=True,
                                capture_output=True, text=True).stdout.strip()
        try:
            yield device
        finally:
            subprocess.run(["losetup", "--detach", device], check=True)


@contextlib.contextmanager
def limited_memory(total_bytes):
    """Limits the memory of this process and its children, including their page cache."""
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                        ("/sys/fs/cgroup", "memory.max")):
        group = f"{root}/bedplate-bench-{os.getpid()}"
        try:
            os.mkdir(group)
        except OSError:
            continue
        if os.path.exists(f"{group}/{limit}"):
            break
        os.rmdir(group)
    else:
        raise BenchError("making a control group for memory below /sys/fs/cgroup: there is none; "
                         "run as root, with the controller `memory` mounted and enabled")
    try:
        write(f"{group}/{limit}", total_bytes)
        write(f"{group}/cgroup.procs", os.getpid())
        yield
    finally:
        write(f"{root}/cgroup.procs", os.getpid())
        os.rmdir(group)


def write(path, value):
    with open(path, "w", encoding="ascii") as file:
        file.write(str(value))


# ---- running -------------------------------------------------------------------------------------

def drive_microseconds(options, directory, path, workload):
    """The time of a request directly to the drive."""
    output = os.path.join(directory, "fio.json")
    # On the server's core, like the server.
    subprocess.run(["taskset", "-c", str(options.server_cpu), "fio", "--ioengine=io_uring",
                    f"--filename={path}", f"--size={options.file_mib}m", "--direct=1",
                    "--fixedbufs", "--registerfiles",
                    *fio_options(*workload, options.seconds, output)],
                   check=True, stdout=subprocess.DEVNULL)
    return 1e6 / fio_figures(workload[0], output, "the drive")["iops"]


def run_round(options, directory, path, round_index, results):
    print(f"round {round_index + 1} of {options.rounds}", file=sys.stderr, flush=True)
    names = list(SERVERS)
    first = round_index % len(names)
    common.wait_for_hugepages(hugepages_bytes(options))
    for workload in options.workloads:
        results[workload].setdefault("drive", []).append(
            drive_microseconds(options, directory, path, workload))
    for name in names[first:] + names[:first]:
        setup = Setup(directory, name.replace(", ", "-"), "unix", f"{directory}/nbd.sock",
                      free_port(), options.file_mib * MIB, options.server_cpu, options.client_cpu)
        with NbdServer(name, setup, lambda setup: SERVERS[name](setup, path)) as server:
            for workload in options.workloads:
                figures = server.fio(*workload[:3], 1, options.seconds)
                results[workload].setdefault(name, []).append(1e6 / figures["iops"])
            # A server's delayed writes must not burden the next server.
            server.run_client(["sync"])


def hugepages_bytes(options):
    return POOL_BYTES + options.file_mib * MIB + common.HUGEPAGE_BYTES


# ---- the table -----------------------------------------------------------------------------------

def title(workload):
    return "{} {} depth {}".format(workload[1], workload[0], workload[2])


def print_table(options, rows):
    print(f"\nmicroseconds for a request (1 / rate), median (min..max) of {options.rounds} rounds; "
          f"server on core {options.server_cpu}, client on core {options.client_cpu}")
    for row in rows:
        print(row["title"])
        for name, values in row["figures"].items():
            print(f"  {name:22}{common.spread(values)}")
        for comparison in row["comparisons"]:
            print(f"  bedplate: {common.comparison_text(comparison)}")


def report_row(workload, times):
    floor = [drive + socket for drive, socket in zip(times["drive"], times["bare"])]
    best = {what: [mine / min(peer) for mine, *peer in zip(
        times["bedplate"], *(times[name] for name in peers))]
        for what, peers in (("the better direct peer", DIRECT),
                            ("the better peer with cache", CACHED))}
    return common.row(title(workload), "us", {"drive + bare server": floor, **times}, [
        common.compared("drive + bare server", [
            mine / sum_ for mine, sum_ in zip(times["bedplate"], floor)], FLOOR_TARGET, False),
        *(common.compared(what, ratios, PEER_TARGET, False)
          for what, ratios in best.items())], is_rate=False)


def parse_options():
    parser = argparse.ArgumentParser(description="Measures volumes on files and block devices.")
    parser.add_argument("--on", choices=("file", "loop"), default="file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=1, help="of each fio run (default 1)")
    parser.add_argument("--only", metavar="REGEX", default="", help="rows whose title matches, "
                        "as in '4k randread depth 32'")
    parser.add_argument("--file-mib", type=int, default=2048)
    parser.add_argument("--server-cpu", type=int, default=0)
    parser.add_argument("--client-cpu", type=int, default=1)
    options = parser.parse_args()
    options.workloads = [row for row in WORKLOADS if re.search(options.only, title(row))]
    if not options.workloads:
        parser.error(f"no row matches {options.only!r}")
    return options


def main():
    options = parse_options()
    common.require(PROGRAMS)
    load = common.warn_if_busy()
    results = {workload: {} for workload in options.workloads}
    with contextlib.ExitStack() as stack:
        stack.enter_context(common.reserved_hugepages(hugepages_bytes(options)))
        directory = stack.enter_context(common.work_directory())
        path = stack.enter_context(served(options))
        stack.enter_context(limited_memory(options.file_mib * MIB // 4))
        for round_index in range(options.rounds):
            run_round(options, directory, path, round_index, results)
    rows = [report_row(workload, times) for workload, times in results.items()]
    written = common.write_json(f"store-{options.on}.json", {
        "options": {**vars(options), "workloads": [title(row) for row in options.workloads]},
        "load": load, "rows": {title(row): times for row, times in results.items()}},
        rows)
    print_table(options, rows)
    print(f"every round: {os.path.relpath(written)}")


common.run_main(main)
