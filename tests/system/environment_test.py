"""The environment at start: limits, sandboxes and descriptors set by other programs.

A program that cannot start ends with exit code 1 (2 for a bad variable of ours) and one line in
three parts. It leaves nothing behind.
"""

import json
import os
import re
import socket
import subprocess

from forbidding import forbid
from harness import (BACKENDS, BEDPLATE, LAYOUTS, MIB, Appliance, Skip, expect, expect_in,
                     expect_true, few_hugepages, hugepages_of, is_refused, need_tools,
                     possible_leftovers, test, to_toml, wait_for)
from raw_nbd import connect

MESSAGE = re.compile(r"bedplate: [^\n]+: [^\n]+; [^\n]+\n")  # doing: answer; cure
SYS_MEMFD_CREATE, SYS_IO_URING_SETUP = 319, 425  # x86-64


def refused(box, *argv, code=1, **options):
    """Returns the messages of a command that ends with `code`. Checks that each has three parts,
    and that nothing is left behind."""
    before = possible_leftovers()
    done = box.run(*argv, expect_code=code, **options)
    expect(done.stdout, "", "the standard output")
    for line in done.stderr.splitlines(keepends=True):
        expect_true(MESSAGE.fullmatch(line), f"a message in three parts: {line!r}")
    expect(sorted(possible_leftovers() - before), [], "files left behind")
    return done.stderr



def address_space_of(program):
    """The bytes of the program's segments. The kernel ends a program whose limit is below that."""
    headers = subprocess.run(["readelf", "-lW", program], check=True, stdout=subprocess.PIPE,
                             text=True).stdout
    return sum(int(line.split()[5], 16) for line in headers.splitlines()
               if line.split()[:1] == ["LOAD"])


# name: (the option of prlimit, words of the message)
LIMITS = {
    "address_space": ("--as={room}",
                      "Cannot allocate memory; raise the limit on address "
                      "space: ulimit -v unlimited"),
    "file_size": (f"--fsize={MIB}", "a file may have at most 1 MiB, and a segment is a file; raise "
                                    "the limit on files: ulimit -f unlimited"),
    "open_files": ("--nofile=3", "Too many open files; raise the limit of open files, which is 3: "
                   "ulimit -n 1024"),
}


@test(limit=LIMITS)
def limit_before_main(box, limit):
    """If segment 0 cannot be created, one line has the cause and the cure."""
    need_tools("prlimit")
    option, words = LIMITS[limit]
    # A heap of 16 MiB does not fit into 14 MiB. The mappings of a coverage build fit.
    option = option.format(room=address_space_of(BEDPLATE) + 14 * MIB)
    said = refused(box, "prlimit", option, BEDPLATE, "doctor")
    expect_in("taking 16 MiB for boot in pages of 4 KiB: " + words, said, "the message")
    expect(said.count("\n"), 1, "the number of messages")


@test()
def file_size_in_preflight(box):
    """The limit of the file size suffices for segment 0, but not for the pool."""
    need_tools("prlimit")
    config = box.write("bedplate.toml", to_toml(box.configuration()))
    box.ensure_hugepages(config)
    said = refused(box, "prlimit", f"--fsize={32 * MIB}", BEDPLATE, "run", config)
    expect_in("checking the limit of file sizes: 32768 KiB are allowed, ", said, "the message")
    expect_in("; ulimit -f unlimited, or LimitFSIZE=infinity in its unit\n", said, "the message")


def forbidding(system_call):
    """Options of a process that may not make this call, as under a container's seccomp profile."""
    if os.uname().machine != "x86_64":
        raise Skip("the filter of this test is for x86-64")
    return {"preexec_fn": lambda: forbid([system_call])}


@test()
def memfd_is_forbidden(box):
    """The pool consists of memfds: if they are forbidden, the message names the cause."""
    said = refused(box, BEDPLATE, "doctor", **forbidding(SYS_MEMFD_CREATE))
    expect_in("Operation not permitted; a seccomp profile forbids memfd_create: allow it", said,
              "the message")


@test(layout=LAYOUTS, sockets=[*BACKENDS, "io_uring-or-epoll"])
def sockets_are_named_as_they_are(box, layout, sockets):
    """The log and the counters name the backend of each shard, also if io_uring is configured and
    forbidden."""
    is_refused = sockets not in BACKENDS
    appliance = box.appliance(box.configuration(layout, sockets),
                              **forbidding(SYS_IO_URING_SETUP) if is_refused else {})
    wanted = "epoll" if is_refused else sockets
    names = LAYOUTS[layout]
    said = re.findall(r"shard (\S+) on core \d+, sockets through (\S+)\n", appliance.log_text())
    expect(said, [(name, wanted) for name in names], "the shards in the log")
    expect([shard["backend"] for shard in appliance.stats()["shard"].values()],
           [wanted] * len(names),
           "the shards in the counters")
    folder = f"/proc/{appliance.pid}/fd"
    opened = [os.readlink(f"{folder}/{number}") for number in os.listdir(folder)]
    expect(opened.count("anon_inode:[eventpoll]"), len(names) if wanted == "epoll" else 0,
           "the epoll instances that it has")
    appliance.stop()


@test(missing=["/proc", "/sys"])
def system_files_are_missing(box, missing):
    """In a container without /proc or /sys, preflight reports the lack before anything is taken."""
    need_tools("unshare")
    configuration = box.configuration()
    configuration["pool"]["pages"] = "4 KiB"
    config = box.write("bedplate.toml", to_toml(configuration))
    script = 'umount -l "$1" && exec "$2" run "$3"'
    if box.run("unshare", "-m", "true", expect_code=None).returncode != 0:
        raise Skip("this user may not make a mount namespace")
    said = refused(box, "unshare", "-m", "sh", "-c", script, "sh", missing, BEDPLATE, config)
    expect_in(f"checking {missing}/", said, "the message")
    expect_in(f" {missing}\n", said, "the cure")


@test(kind=["closed", "memory", "datagram", "not_listening"])
def wrong_activation(box, kind):
    """Descriptor 3 was announced as a listening socket, but is something else."""
    configuration = box.configuration(listen=["activation:"])
    configuration["pool"]["pages"] = "4 KiB"
    config = box.write("bedplate.toml", to_toml(configuration))
    words = {"closed": "closed", "memory": "a file or memory", "datagram": "not a stream socket",
             "not_listening": "a socket that does not listen"}[kind]
    with socket.socket(type=socket.SOCK_DGRAM) as datagram, socket.socket() as idle:
        memory = os.memfd_create("memory")
        given = {"memory": memory, "datagram": datagram.fileno(), "not_listening": idle.fileno()}
        move = f"exec 3<&{given[kind]}" if kind in given else "exec 3<&-"
        script = f'{move}; LISTEN_PID=$$ LISTEN_FDS=1 exec "$1" run "$2"'
        said = refused(box, "bash", "-c", script, "sh", BEDPLATE, config,
                       pass_fds=tuple(given.values()))
        os.close(memory)
    expect_in(f"descriptor 3 should be a listening stream socket, but is {words}; ", said,
              "the message")


@test(value=["", "0", "-1", "lots", "16MB", "0x1000000", "5 TiB", "99999999999999999999999"])
def boot_bytes_are_nonsense(box, value):
    """A bad BEDPLATE_BOOT_BYTES ends the program with exit code 2, before main."""
    said = refused(box, BEDPLATE, "doctor", code=2,
                   env={**os.environ, "BEDPLATE_BOOT_BYTES": value})
    expect_in(f'BEDPLATE_BOOT_BYTES: "{value}" is not a size of segment 0; set it to a size '
              'from', said, "the message")


# name: the redirections that close the streams
CLOSED = {"input": "0<&-", "output": "1>&-", "error": "2>&-", "all": "0<&- 1>&- 2>&-"}


@test(closed=CLOSED)
def closed_streams(box, closed):
    """Started without some of descriptors 0 to 2, the appliance plans, serves, logs and stops as
    usual, and its output goes into no other file."""
    shell = ("sh", "-c", f'exec "$0" "$@" {CLOSED[closed]}')
    appliance = Appliance(box, box.configuration(), argv_prefix=shell)
    planned = box.run(*shell, BEDPLATE, "plan", appliance.config)
    expect(planned.stdout == "", closed in ("output", "all"), "whether nothing is printed")
    box.ensure_hugepages(appliance.config)
    appliance.process = box.spawn(appliance.argv, appliance.log)
    wait_for(lambda: appliance.process.poll() is not None or not is_refused(appliance.address()),
             "the listener")
    appliance.expect_alive()
    streams = [os.readlink(f"/proc/{appliance.pid}/fd/{number}") for number in range(3)]
    expect([name for name in streams if "memfd" in name], [], "memory in place of a stream")
    connect(box, appliance).verify("an appliance without streams")
    appliance.stop()


@test()
def segment_0_may_lie_on_hugepages(box):
    """The appliance does not ask again for pages that it has taken before main."""
    environment = {**os.environ, "BEDPLATE_BOOT_PAGE_BYTES": "2 MiB"}
    configuration = box.configuration()
    path = box.write("bedplate.toml", to_toml(configuration))
    plan = json.loads(box.bedplate("plan", path, "--json", env=environment).stdout)
    expect(plan["segments"][0]["page_bytes"], 2 * MIB, "the pages of segment 0 in the plan")
    with few_hugepages(hugepages_of(plan)[2 * MIB]):
        appliance = box.appliance(configuration, env=environment)
        expect(appliance.stats()["segment"]["boot"]["page_bytes"], 2 * MIB, "its pages")
        connect(box, appliance).verify("with segment 0 on hugepages")
        appliance.stop()
