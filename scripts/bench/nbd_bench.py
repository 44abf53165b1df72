#!/usr/bin/python3
"""NBD against peers: Bedplate, nbdkit, qemu-nbd and a bare server, interleaved.

In each round and on each transport all servers are restarted and filled with the same random
data, which is read back and compared (a peer answers reads of zeros without payload, which would
make the benchmark worthless). Then every workload runs against one server after the other;
each round begins with another server. Servers run on one core, the client on another; all have the
same client. Ratios are computed within a round, and then their median is taken.

Rows with one connection and small requests use a lean client (nbd_client.c), which
sends them in batches: fio takes longer for each request than the servers do. `client idle` is the
share of time in which the client had no reply to read: above 0 the client is faster than the
server. In these rows a bare server that, like Bedplate, spins while it waits is added (bare-spin).

It is not a pass/fail test: it exits 0 whatever the figures, unless a program failed to run.
"""
import argparse
import collections
import contextlib
import filecmp
import json
import os
import re
import statistics
import subprocess
import sys

import common
from common import BEDPLATE, BUILD, MIB, BenchError
from nbd_server import NbdServer, Setup, free_port, keys_of, listen_address

POOL_EXTRA_BYTES = 192 * MIB  # in addition to the volume: heap, connections, segment 0
BARE_TARGET = 0.9             # over a Unix socket, in every row
BATCH_BARE_TARGET = 0.95      # for batches of small requests

# ---- servers: each makes its command from a `Setup` ----------------------------------------------

def bedplate(setup, sockets, shards, enforce="kernel", **appliance):
    tls = (f'tls_shared_keys = "{keys_of(setup)}"\nplain_text = "refused"'
            if setup.transport == "tls" else "")
    config = common.bedplate_config(setup.directory, setup.name, shards,
                                    setup.volume_bytes + POOL_EXTRA_BYTES, setup.volume_bytes,
                                    listen_address(setup), sockets, enforce, tls, **appliance)
    return [BEDPLATE, "run", config]


def bedplate_io_uring(setup):
    return bedplate(setup, "io_uring", [("main", setup.server_cpu)])


def bedplate_epoll(setup):
    return bedplate(setup, "epoll", [("main", setup.server_cpu)])


def bedplate_filtered(setup):
    return bedplate(setup, "io_uring", [("main", setup.server_cpu)], "seccomp")


def bedplate_epoll_filtered(setup):
    return bedplate(setup, "epoll", [("main", setup.server_cpu)], "seccomp")


def bedplate_two_cores(setup):
    return bedplate(setup, "io_uring",
                    [("network", setup.server_cpu), ("storage", setup.client_cpu)])


def bedplate_untraced(setup):
    return bedplate(setup, "io_uring", [("main", setup.server_cpu)], trace_requests=0)


def bedplate_other(setup):
    return [common.OTHER_BEDPLATE, *bedplate_io_uring(setup)[1:]]


def nbdkit(setup):
    # allocator=malloc: "can be faster because the implementation is simpler and the locking
    # strategy allows more concurrency" (nbdkit-memory-plugin(1)); it also measured faster. Threads:
    # its default of 16 for each connection; 1 was faster only at depth 1, by a tenth.
    where = (["--unix", setup.path] if setup.transport == "unix"
             else ["--ipaddr", "127.0.0.1", "--port", str(setup.port)])
    if setup.transport == "tls":
        where += ["--tls=require", f"--tls-psk={keys_of(setup)}"]
    return ["nbdkit", "--foreground", *where, "memory", f"size={setup.volume_bytes}",
            "allocator=malloc"]


def qemu_nbd(setup):
    # A raw file on tmpfs. aio=native (which needs cache=none) is the fastest mode here: at depth 32
    # it reads 111k per second, 83k with io_uring, 68k with threads; cache=unsafe gains nothing.
    # tmpfs supports O_DIRECT only from Linux 6.6: below that, writeback with io_uring, the next
    # best. --shared=0: any number of clients. No workload discards.
    image = os.path.join(setup.directory, f"{setup.name}.img")
    with open(image, "wb") as file:
        file.truncate(setup.volume_bytes)
    try:
        os.close(os.open(image, os.O_RDONLY | os.O_DIRECT))
        mode = ["--cache=none", "--aio=native"]
    except OSError:
        mode = ["--cache=writeback", "--aio=io_uring"]
    where = (["--socket", setup.path] if setup.transport == "unix"
             else ["--bind", "127.0.0.1", "--port", str(setup.port)])
    if setup.transport == "tls":
        where += ["--object", "tls-creds-psk,id=tls,endpoint=server,dir="
                  f"{os.path.dirname(keys_of(setup))}", "--tls-creds=tls"]
    return ["qemu-nbd", "--format=raw", "--persistent", "--shared=0", *mode, *where, image]


def bare(setup):
    where = f"unix:{setup.path}" if setup.transport == "unix" else f"tcp:{setup.port}"
    return [f"{BUILD}/bare_server", str(setup.volume_bytes), where]


def bare_spinning(setup):
    return [*bare(setup), "spin"]


Kind = collections.namedtuple("Kind", "command cores program provider")
SERVERS = {  # in the order of the table, Bedplate's configurations first
    "bedplate": Kind(bedplate_io_uring, 1, BEDPLATE, "make"),
    "bedplate-epoll": Kind(bedplate_epoll, 1, BEDPLATE, "make"),
    "bedplate-seccomp": Kind(bedplate_filtered, 1, BEDPLATE, "make"),
    "epoll-seccomp": Kind(bedplate_epoll_filtered, 1, BEDPLATE, "make"),
    "bedplate-2core": Kind(bedplate_two_cores, 2, BEDPLATE, "make"),
    "bedplate-untraced": Kind(bedplate_untraced, 1, BEDPLATE, "make"),
    "nbdkit": Kind(nbdkit, 1, "nbdkit", "nbdkit"),
    "qemu-nbd": Kind(qemu_nbd, 1, "qemu-nbd", "qemu-utils"),
    "bare": Kind(bare, 1, f"{BUILD}/bare_server", "scripts/bench/run.sh"),
    "bare-spin": Kind(bare_spinning, 1, f"{BUILD}/bare_server", "scripts/bench/run.sh"),
}
if common.OTHER_TREE:
    SERVERS |= {name: Kind(bedplate_other, 1, common.OTHER_BEDPLATE, "make, in the other tree")
                for name in common.OTHERS}
CONFIGURATIONS = ("bedplate", "bedplate-epoll", "bedplate-seccomp", "epoll-seccomp",
                  "bedplate-2core", "bedplate-untraced")
PEERS = ("nbdkit", "qemu-nbd")
BARE = ("bare", "bare-spin")
LEAN_CLIENT = f"{BUILD}/nbd_client"
CLIENTS = {"taskset": "util-linux", "fio": "fio", "nbdcopy": "libnbd-bin",
           LEAN_CLIENT: "scripts/bench/run.sh"}

# ---- workloads ----------------------------------------------------------------------------------

Workload = collections.namedtuple(
    "Workload", "client mode block depth connections transports peer_target extra_servers")
BOTH, UNIX, ALL = ("unix", "tcp"), ("unix",), ("unix", "tcp", "tls")
EPOLL = ("bedplate-epoll",)
FILTERED = ("bedplate-epoll", "bedplate-seccomp", "epoll-seccomp")  # the cost of [pool] enforce
TWO = ("bedplate-2core",)
TRACED = ("bedplate-untraced",)  # the cost of the ring of the last requests (docs/trace.md)
LEAN_BLOCKS = {"512": "512", "4k": "4096", "16k": "16384"}
WORKLOADS = [
    # client, mode, block, depth, connections, transports, target against the best peer (Unix
    # socket), further configurations of Bedplate (Unix socket)
    Workload("lean", "read", "512", 1, 1, UNIX, 1.6, ()),
    Workload("lean", "write", "512", 1, 1, UNIX, 1.6, ()),
    Workload("lean", "read", "4k", 1, 1, BOTH, 1.6, FILTERED),
    Workload("lean", "write", "4k", 1, 1, BOTH, 1.6, EPOLL),
    Workload("lean", "read", "16k", 1, 1, UNIX, 1.6, ()),
    Workload("lean", "write", "16k", 1, 1, UNIX, 1.6, ()),
    Workload("lean", "read", "512", 32, 1, UNIX, 1.8, ()),
    Workload("lean", "write", "512", 32, 1, UNIX, 1.5, EPOLL),
    Workload("lean", "read", "4k", 32, 1, BOTH, 1.8, FILTERED + TRACED),
    Workload("lean", "write", "4k", 32, 1, BOTH, 1.5, EPOLL + TRACED),
    Workload("lean", "read", "16k", 32, 1, UNIX, 1.8, ()),
    Workload("lean", "write", "16k", 32, 1, UNIX, 1.5, EPOLL),
    Workload("fio", "randread", "4k", 32, 4, UNIX, None, TWO),
    Workload("fio", "randwrite", "4k", 32, 4, UNIX, None, TWO),
    Workload("fio", "randread", "4k", 32, 16, UNIX, None, TWO),
    Workload("fio", "randwrite", "4k", 32, 16, UNIX, None, TWO),
    Workload("fio", "read", "128k", 8, 1, BOTH, 1.4, EPOLL),
    Workload("fio", "write", "128k", 8, 1, BOTH, 1.4, EPOLL),
    Workload("nbdcopy", "copy-out", None, None, None, ALL, None, EPOLL),
    Workload("nbdcopy", "copy-in", None, None, None, ALL, None, EPOLL),
]


def label(workload, transport):
    if workload.block is None:
        return f"{transport} nbdcopy {workload.mode}"
    return (f"{transport} {workload.block} {workload.mode} depth {workload.depth} "
            f"connections {workload.connections}")


def unit(workload):
    return "GB/s" if workload.block in (None, "128k") else "kIOPS"


# ---- running ------------------------------------------------------------------------------------

def hugepages_bytes(options, names):
    """Returns the hugepage bytes that the servers need."""
    return (len(set(names) & {*CONFIGURATIONS, *common.OTHERS}) * (options.volume_bytes + POOL_EXTRA_BYTES)
            + len(set(names) & set(BARE)) * (options.volume_bytes + common.HUGEPAGE_BYTES))


class Server(NbdServer):
    """One of SERVERS, running, and filled with the image."""

    def __init__(self, options, directory, image, name, transport):
        setup = Setup(directory, f"{name}-{transport}", transport,
                      os.path.join(directory, f"{name}.sock"), free_port(),
                      options.volume_bytes, options.server_cpu, options.client_cpu)
        kind = SERVERS[name]
        super().__init__(name, setup, kind.command, kind.cores)
        self.options, self.image = options, image

    def __enter__(self):
        super().__enter__()
        try:
            self.fill()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        super().__exit__()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.setup.directory, f"{self.setup.name}.img"))

    def fill(self):
        back = f"{self.image}.back"
        self.run_client(["nbdcopy", self.image, self.uri])
        self.run_client(["nbdcopy", self.uri, back])
        same = filecmp.cmp(self.image, back, shallow=False)
        os.unlink(back)
        if not same:
            raise BenchError(f"reading back what {self.name} was filled with: it differs; this is "
                             "a bug of that server, and its figures are meaningless")

    def measure(self, workload):
        """Returns the figure of one run, in the unit of unit(), and the client's idle share, if the
        client reports it."""
        if workload.client == "lean":
            where = (f"unix:{self.setup.path}" if self.setup.transport == "unix"
                     else f"tcp:{self.setup.port}")
            said, _ = self.run_client([LEAN_CLIENT, where, workload.mode,
                                       LEAN_BLOCKS[workload.block], str(workload.depth),
                                       str(self.options.seconds)])
            requests, idle = map(float, said.split())
            return requests / 1e3, idle
        if workload.client == "nbdcopy":
            ends = ([self.uri, "null:"] if workload.mode == "copy-out" else [self.image, self.uri])
            _, seconds = self.run_client(["nbdcopy", *ends])
            return self.options.volume_bytes / seconds / 1e9, None
        figures = self.fio(workload.mode, workload.block, workload.depth, workload.connections,
                           self.options.seconds)
        figure = figures["iops"] / 1e3 if unit(workload) == "kIOPS" else figures["bw_bytes"] / 1e9
        return figure, None


def servers_of(workload, transport, options):
    extra = workload.extra_servers if transport == "unix" else ()
    other_bare = "bare" if workload.client == "lean" else "bare-spin"
    without = BARE if transport == "tls" else (other_bare,)
    return [name for name in SERVERS if name in options.servers and name not in without
            and (name in extra or name not in CONFIGURATIONS[1:])]


def selected(options, transport):
    return [workload for workload in WORKLOADS if transport in workload.transports
            and re.search(options.only, label(workload, transport))
            and servers_of(workload, transport, options)]


def run_round(options, directory, image, round_index, transport, results):
    workloads = selected(options, transport)
    needed = {name for workload in workloads for name in servers_of(workload, transport, options)}
    if not needed:
        return
    common.wait_for_hugepages(hugepages_bytes(options, needed))
    print(f"round {round_index + 1} of {options.rounds}, {transport}", file=sys.stderr, flush=True)
    with contextlib.ExitStack() as stack:
        running = {name: stack.enter_context(Server(options, directory, image, name, transport))
                   for name in SERVERS if name in needed}
        for workload in workloads:
            names = servers_of(workload, transport, options)
            first = round_index % len(names)
            row = results.setdefault(label(workload, transport), {"unit": unit(workload)})
            for name in names[first:] + names[:first]:
                figure, idle = running[name].measure(workload)
                row.setdefault("rounds", {}).setdefault(name, []).append(round(figure, 4))
                if idle is not None:
                    row.setdefault("client_idle", {}).setdefault(name, []).append(idle)


# ---- the table ----------------------------------------------------------------------------------

def targets_of(workload, transport, name):
    """Returns the targets (against the best peer, against the bare server), if any."""
    if transport == "tls" and name == "bedplate":
        return 1.0, None
    if transport != "unix" or name != "bedplate":
        return None, None
    is_batch = workload.client == "lean" and workload.depth > 1
    return workload.peer_target, BATCH_BARE_TARGET if is_batch else BARE_TARGET


def print_table(options, results):
    print(f"\nmedian (min..max) of {options.rounds} rounds; server on core {options.server_cpu}, "
          f"client on core {options.client_cpu}\n"
          f"{'':44}{'/ better peer':23}{'/ bare server':22}\n"
          f"{'':44}{'ratio  target':23} {'ratio  target':22}")
    for transport in options.transports:
        for workload in selected(options, transport):
            title = label(workload, transport)
            rounds, idle = results[title]["rounds"], results[title].get("client_idle", {})
            print(f"{title} [{unit(workload)}]")
            for name in (name for name in SERVERS if name in rounds):
                line = f"  {name:17}{common.spread(rounds[name]):25}"
                if name in CONFIGURATIONS:
                    targets = targets_of(workload, transport, name)
                    line += common.ratio_text(common.ratios(rounds, name, PEERS), targets[0])
                    line += common.ratio_text(common.ratios(rounds, name, BARE), targets[1])
                if name in idle:
                    line = f"{line:90}client idle {statistics.median(idle[name]):.0%}"
                print(line.rstrip())
            common.print_builds(rounds, "bedplate")


def report_rows(options, results):
    rows = []
    for transport in options.transports:
        for workload in selected(options, transport):
            title = label(workload, transport)
            figures = results[title]["rounds"]
            targets = targets_of(workload, transport, "bedplate")
            rows.append(common.row(title, unit(workload), figures, [
                common.compared(f"the better of {' and '.join(PEERS)}",
                                common.ratios(figures, "bedplate", PEERS), targets[0]),
                common.compared("the bare server", common.ratios(figures, "bedplate", BARE),
                                targets[1])] if "bedplate" in figures else ()))
    return rows


def versions(programs):
    """Returns the first line of each program's --version."""
    return {program: subprocess.run([program, "--version"], capture_output=True, text=True,
                                    check=True).stdout.split("\n")[0] for program in programs}


def parse_options():
    def names(known):
        def parse(text):
            chosen = text.split(",")
            if not set(chosen) <= set(known):
                raise argparse.ArgumentTypeError(f"choose from {','.join(known)}")
            return chosen
        return parse

    parser = argparse.ArgumentParser(description="Measures NBD servers against each other.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2, help="of each fio run (default 2)")
    parser.add_argument("--only", metavar="REGEX", default="", help="rows whose title matches, "
                        "as in 'unix 4k randread depth 32 connections 1'")
    parser.add_argument("--servers", type=names(SERVERS), default=list(SERVERS),
                        metavar="A,B", help=f"of {','.join(SERVERS)}")
    parser.add_argument("--transports", type=names(ALL), default=list(ALL), metavar="A,B",
                        help=f"of {','.join(ALL)}")
    parser.add_argument("--volume-mib", type=int, default=512)
    parser.add_argument("--server-cpu", type=int, default=0)
    parser.add_argument("--client-cpu", type=int, default=1)
    options = parser.parse_args()
    options.volume_bytes = options.volume_mib * MIB
    if options.volume_mib <= 0 or options.volume_bytes % common.HUGEPAGE_BYTES != 0:
        parser.error("--volume-mib: a multiple of 2, please; the pool has pages of 2 MiB")
    if not any(selected(options, transport) for transport in options.transports):
        parser.error(f"no row that matches {options.only!r} is measured with these servers")
    return options


def main():
    options = parse_options()
    common.require(CLIENTS | {SERVERS[name].program: SERVERS[name].provider
                              for name in options.servers})
    load = common.warn_if_busy()
    results = {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(common.reserved_hugepages(hugepages_bytes(options, options.servers)))
        directory = stack.enter_context(common.work_directory())
        image = os.path.join(directory, "image")
        with open(image, "wb") as file:
            for _ in range(options.volume_mib):
                file.write(os.urandom(MIB))
        for round_index in range(options.rounds):
            for transport in options.transports:
                run_round(options, directory, image, round_index, transport, results)
            path = common.write_json("nbd.json", {
                "options": vars(options), "load": load,
                "versions": versions(["fio", "nbdcopy", *(set(PEERS) & set(options.servers))]),
                "rows": results}, report_rows(options, results))
    print_table(options, results)
    print(f"every round: {os.path.relpath(path)}")


common.run_main(main)
