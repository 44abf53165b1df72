"""The pool's promises (pinned_pool/pinned_pool.h), seen from outside the process.

The plan is compared with the blocks of every memfd and with the kernel's maps, not with what the
program says about itself; system calls are counted by strace, page faults by the kernel.
"""

import collections
import contextlib
import os
import re
import signal
import stat

from harness import (BACKENDS, KIB, LAYOUTS, MIB, Failure, Skip, expect, expect_in, expect_true,
                     memory_areas, need_tools, read_line, read_text, test)
import raw_nbd as nbd
from raw_nbd import connect, pattern

# FORBIDDEN calls never occur after the seal. USUAL calls are traced only to prove that strace
# works.
FORBIDDEN = ["mmap", "munmap", "brk", "madvise", "mremap", "mprotect"]
USUAL = ["io_uring_enter", "epoll_wait", "epoll_pwait", "epoll_pwait2"]
LOAD_SECONDS = 10  # as promised
DATA_REQUESTS = 300


def memfds_of(appliance):
    """(owner, bytes really taken, page_bytes) of every memfd that the process holds."""
    found = {}
    folder = f"/proc/{appliance.pid}/fd"
    for number in os.listdir(folder):
        path = os.path.join(folder, number)
        name = re.fullmatch(r"/memfd:(.*) \(deleted\)", os.readlink(path))
        if name:
            status = os.stat(path)
            expect_true(stat.S_ISREG(status.st_mode), f"{name[1]} is a memfd")
            found[status.st_ino] = (name[1], status.st_blocks * 512, status.st_blksize)
    return sorted(found.values())


def planned(box, appliance):
    return sorted((segment["owner"], segment["bytes"], segment["page_bytes"])
                  for segment in box.plan(appliance.config)["segments"])


@test(layout=LAYOUTS, sockets=BACKENDS, page=["2 MiB", "4 KiB"])
def plan_is_what_is_taken(box, layout, sockets, page):
    """The plan matches the blocks of the memfds, and the areas and pages of the kernel's map, to
    the byte."""
    configuration = box.configuration(layout, sockets)
    configuration["pool"]["pages"] = page
    configuration["blockd"]["volume"].append({"name": "odd one", "bytes": 3 * MIB + 4 * KIB})
    appliance = box.appliance(configuration)
    plan = planned(box, appliance)
    expect(memfds_of(appliance), plan, "the memfds: owner, bytes, page_bytes")
    areas = [area for area in memory_areas(f"/proc/{appliance.pid}/smaps")
             if area.path.startswith("/memfd:")]
    taken = collections.Counter()
    for area in areas:
        name = area.path.removeprefix("/memfd:").removesuffix(" (deleted)")
        expect(area.rights, "rw-s", f"the rights of {name}")
        taken[name, area.page_bytes] += area.end - area.begin
        if area.page_bytes > 4 * KIB:
            expect(area.hugetlb_kib * KIB, area.end - area.begin, f"hugetlb bytes of {name}")
        else:
            expect_true("lo" in area.flags, f"{name} is locked: {area.flags}")
        if appliance.stats()["pool"]["enforced_by_kernel"]:
            expect_true("sl" in area.flags, f"{name} is sealed (mseal): {area.flags}")
    expect(sorted((name, total, size) for (name, size), total in taken.items()), plan,
           "the maps: owner, bytes, page_bytes")
    appliance.stop()


@test(layout=LAYOUTS, sockets=BACKENDS)
def pool_range_is_all_memfds(box, layout, sockets):
    """The pool's range has only memfds. The only other shared writable memory is the rings and the
    counters file."""
    appliance = box.appliance(box.configuration(layout, sockets))
    areas = memory_areas(f"/proc/{appliance.pid}/smaps")
    pool = [area for area in areas if area.path.startswith("/memfd:")]
    begin, end = min(area.begin for area in pool), max(area.end for area in pool)
    inside = [area for area in areas if begin <= area.begin < end]
    expect([area.path for area in inside], [area.path for area in pool], "the pool's range")
    others = {area.path for area in areas if area.rights.startswith("rw-s")}
    others -= {area.path for area in pool}
    allowed = {"anon_inode:[io_uring]", f"{appliance.runtime_directory}/test.stats"}
    expect(others - allowed, set(), "other shared writable memory")
    expect([area for area in areas if "w" in area.rights and "x" in area.rights], [],
           "memory that is writable and executable")


@test(layout=LAYOUTS, sockets=BACKENDS)
def stacks_are_planned(box, layout, sockets):
    """Beside the program itself, private writable memory consists of the planned stacks, which are
    locked."""
    appliance = box.appliance(box.configuration(layout, sockets))
    stacks = box.plan(appliance.config)["stacks"]
    areas = memory_areas(f"/proc/{appliance.pid}/smaps")
    program_end = max(area.end for area in areas if area.path.endswith("/bedplate"))
    for area in areas:  # its zeroed data follow, in several areas: a fork wipes one page
        program_end = area.end if area.begin == program_end else program_end
    private = [area for area in areas if area.rights == "rw-p" and not area.path
               and area.begin >= program_end]
    expect([area.end - area.begin for area in private], [stacks["bytes_each"]] * stacks["count"],
           "the sizes of private areas")
    for area in private:
        expect_true("lo" in area.flags, f"a stack is locked: {area.flags}")
    guards = {area.end for area in areas if area.rights == "---p"}
    expect([area.begin in guards for area in private], [True] * len(private), "guard pages below")


@test(sockets=BACKENDS, enforce=["kernel", "seccomp"])
def no_way_back(box, sockets, enforce):
    """Open ways back are reported by name. With the filter none is open, and the appliance still
    serves."""
    configuration = box.configuration(sockets=sockets)
    configuration["pool"]["enforce"] = enforce
    appliance = box.appliance(configuration)
    ways = appliance.stats()["way_back"]
    ways_back = {state: [way_back for way_back, said in ways.items()
                         if said["state"] == state]
                 for state in ("open", "refused in libc only")}
    libc_only = ways_back["refused in libc only"]
    if enforce == "seccomp":
        expect(ways_back, {"open": [], "refused in libc only": []}, "the ways back")
        expect_in("Seccomp:\t2", read_text(f"/proc/{appliance.pid}/status"), "the status")
    else:
        expect_in("munlock, then madvise GUARD_INSTALL", libc_only, "what only libc refuses")
        expect_in(libc_only[0], appliance.log_text(), "the log")
    expect(appliance.audit(), "ok", "the audit")
    for transport in ("tcp", "unix"):
        connect(box, appliance, transport).verify(transport)
    appliance.stop()


@test(layout=LAYOUTS)
def shards_are_pinned(box, layout):
    appliance = box.appliance(box.configuration(layout))
    tasks = f"/proc/{appliance.pid}/task"
    cpus = [re.search(r"Cpus_allowed_list:\s*(\S+)", read_text(f"{tasks}/{task}/status"))[1]
            for task in os.listdir(tasks)]
    for shard in appliance.configuration["shard"]:
        expect_true(str(shard["cpu"]) in cpus, f"a thread is pinned to {shard['cpu']}: {cpus}")


# ---- After the seal ----


def threads_faults(appliance):
    """{thread: page faults so far, minor and major}."""
    faults = {}
    tasks = f"/proc/{appliance.pid}/task"
    for task in os.listdir(tasks):
        fields = read_text(f"{tasks}/{task}/stat").rpartition(")")[2].split()
        faults[task] = int(fields[7]) + int(fields[9])
    return faults


def use_everything(box, appliance):
    """Uses each path of the server once, with new connections. This is the warm-up, and part of the
    load."""
    for transport in ("tcp", "unix"):
        for structured in (False, True):
            with nbd.RawClient(appliance.address(transport)) as client:
                client.greet().option(nbd.LIST)
                client.option(12, bytes(70))
                client.option(nbd.INFO, nbd.export_request("none"))
                client.go(structured=structured)
                client.verify("everything", 60 * MIB, MIB)
                for command in (nbd.FLUSH, nbd.TRIM, nbd.WRITE_ZEROES):
                    length = 0 if command == nbd.FLUSH else 4096
                    expect(client.error(command, 60 * MIB, length), 0, f"the error of {command}")
                expect(client.error(nbd.WRITE, 1 << 40, 100, bytes(100)), nbd.ENOSPC, "the error")
                expect(client.error(99), nbd.EINVAL, "the error of an unknown command")
                client.send(nbd.request_bytes(nbd.WRITE, 62 * MIB, MIB) + b"half")


def load(box, appliance, *more):
    """fio with verified reads and writes over both kinds of socket, below 32 MiB."""
    jobs = [f"--name={transport} --uri={appliance.uri(transport)} --offset={index * 16}M"
            for index, transport in enumerate(("tcp", "unix"))]
    return box.spawn(["fio", "--output=fio.txt", "--ioengine=nbd", "--rw=randrw",
                      "--bsrange=4k-256k", "--iodepth=16", "--size=16M", "--verify=crc32c",
                      "--verify_state_save=0", *more, *" ".join(jobs).split()], "fio.log")


def finish(process, what):
    expect(process.wait(LOAD_SECONDS + nbd.BOUND_SECONDS), 0, f"the exit code of {what}")


@contextlib.contextmanager
def system_calls(box, appliance):
    """Yields a dict that afterwards has the number of calls of each system call."""
    counts = {}
    read_end, write_end = os.pipe()
    with os.fdopen(read_end), os.fdopen(write_end, "w") as pipe:
        tracer = box.spawn(["strace", "-f", "-c", "-U", "name,calls", "-o", box.path("strace.txt"),
                            "-e", f"trace={','.join(FORBIDDEN + USUAL)}", "-p",
                            str(appliance.pid)], "strace.log", stderr=pipe)
        line = read_line(read_end)
        if "attached" not in line:
            tracer.wait(nbd.BOUND_SECONDS)
            raise Skip(f"strace cannot attach here: {line.strip()}")
        yield counts
        tracer.send_signal(signal.SIGINT)
        tracer.wait(nbd.BOUND_SECONDS)
    for line in read_text(box.path("strace.txt")).splitlines():
        fields = line.split()
        if len(fields) == 2 and fields[1].isdigit():
            counts[fields[0]] = int(fields[1])


@test(layout=LAYOUTS, sockets=BACKENDS)
def nothing_changes_after_the_seal(box, layout, sockets):
    """Ten seconds of load, with clients that come and go, cause no memory call, no page fault, no
    registration, no new thread, and no other map."""
    need_tools("fio", "strace")
    configuration = box.configuration(layout, sockets)
    configuration["appliance"]["runtime_directory"] = box.tmpfs_path("runtime")
    appliance = box.appliance(configuration)
    finish(load(box, appliance), "fio's warm-up")
    use_everything(box, appliance)
    areas = [area[:5] for area in memory_areas(f"/proc/{appliance.pid}/smaps")]
    registrations = appliance.stats()["pool"]["registrations"]
    with system_calls(box, appliance) as counts:
        faults = threads_faults(appliance)
        fio = load(box, appliance, "--time_based", f"--runtime={LOAD_SECONDS}")
        while fio.poll() is None:
            use_everything(box, appliance)
        finish(fio, "fio")
        expect(threads_faults(appliance), faults, "page faults of each thread under load")
    expect_true(any(counts.get(name) for name in USUAL), f"strace saw the event loops: {counts}")
    expect({name: count for name, count in counts.items() if name in FORBIDDEN}, {},
           "memory system calls under load")
    expect([area[:5] for area in memory_areas(f"/proc/{appliance.pid}/smaps")], areas, "the maps")
    pool = appliance.stats()["pool"]
    expect((pool["sealed"], pool["registrations_after_seal"], appliance.audit()), (True, 0, "ok"),
           "sealed, registrations_after_seal and audit")
    expect(pool["registrations"], registrations, "registrations after the load")
    if sockets == "io_uring":
        expect_true(registrations > 0, "the pool is registered with the rings")
    appliance.stop()


@test(sockets=BACKENDS)
def data_survive_every_mix(box, sockets):
    """Random requests over four connections and both shards are checked against a model of the
    volume."""
    appliance = box.appliance(box.configuration("two_shards", sockets))
    clients = [connect(box, appliance, transport, structured=structured)
               for transport in ("tcp", "unix") for structured in (False, True)]
    dice = box.dice()
    size = 64 * MIB
    model = bytearray(size)
    for index in range(DATA_REQUESTS):
        client = dice.choice(clients)
        length = dice.choice([1, 511, 4096, 65537, dice.randrange(1, 2 * MIB)])
        offset = dice.choice([0, size - length, dice.randrange(size - length)])
        kind = dice.choice(["write", "write", "read", "zeroes", "fua"])
        if kind == "read":
            if client.read(offset, length) != model[offset:offset + length]:
                raise Failure(f"request {index}: {length} bytes at {offset} are wrong")
            continue
        data = bytes(length) if kind == "zeroes" else pattern(index, length)
        if kind == "zeroes":
            expect(client.error(nbd.WRITE_ZEROES, offset, length), 0, "the error of WRITE_ZEROES")
        else:
            client.write(offset, data, nbd.FLAG_FUA if kind == "fua" else 0)
        model[offset:offset + length] = data
    for begin in range(0, size, 16 * MIB):
        expect_true(clients[0].read(begin, 16 * MIB) == model[begin:begin + 16 * MIB],
                    f"16 MiB at {begin} are those of the model")
    appliance.stop()
