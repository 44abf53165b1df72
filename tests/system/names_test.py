"""One appliance per name: files that other users may lock or not, and a refused second start."""

import fcntl
import os
import signal
import socket
import struct

from harness import (BOUND_SECONDS, Appliance, Skip, expect, expect_in, expect_true, is_refused,
                     read_text, test, wait_for)
from raw_nbd import connect

ROUNDS = 12  # of two starts at once
F_OFD_SETLK = 37


def with_group(box, name="test"):
    """An appliance that serves NBD, and lets a process join."""
    configuration = box.configuration()
    configuration["appliance"]["name"] = name
    configuration["messages"] = {"socket": box.path("pool.join")}
    configuration["group"] = [{"name": "main", "members": 2}]
    configuration["process"] = [{"name": "ann", "user": "root", "group": "main", "trusted": True}]
    return configuration


def lock_file(path, kind):
    """Locks all of `path` by fcntl. The lock ends with the returned descriptor."""
    fd = os.open(path, os.O_RDWR if kind == fcntl.F_WRLCK else os.O_RDONLY)
    fcntl.fcntl(fd, F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0))
    return fd


def stale_socket(path, kind):
    """Creates a socket file without a server. Returns its inode, which distinguishes it from a new
    one."""
    with socket.socket(socket.AF_UNIX, kind) as server:
        server.bind(path)
    return os.stat(path).st_ino


@test(lock=["fcntl", "flock"])
def reader_of_the_counters_keeps_nobody_out(box, lock):
    """Any user may read the counters of a crashed appliance, and so lock them. The next start still
    works."""
    configuration = box.configuration()
    crashed = box.appliance(configuration)
    crashed.process.kill()
    crashed.wait_exit()
    files = os.listdir(crashed.runtime_directory)
    open_to_all = [name for name in files
                   if os.stat(os.path.join(crashed.runtime_directory, name)).st_mode & 0o044]
    expect(open_to_all, ["test.stats"], "the files that others can open")
    path = os.path.join(crashed.runtime_directory, "test.stats")
    if lock == "fcntl":
        held = lock_file(path, fcntl.F_RDLCK)
    else:
        held = os.open(path, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_SH)
    appliance = box.appliance(configuration)
    connect(box, appliance).verify("after the restart")
    appliance.stop()
    os.close(held)


@test()
def name_comes_before_sockets(box):
    """While another appliance has the name, no socket file is touched, not even a stale one: a
    server that has bound its socket but does not listen yet looks the same."""
    configuration = with_group(box)
    appliance = Appliance(box, configuration)
    box.ensure_hugepages(appliance.config)
    os.mkdir(appliance.runtime_directory)
    holder = os.open(os.path.join(appliance.runtime_directory, "test.lock"),
                     os.O_RDWR | os.O_CREAT, 0o600)
    os.close(holder)
    holder = lock_file(os.path.join(appliance.runtime_directory, "test.lock"), fcntl.F_WRLCK)
    inodes = {path: stale_socket(path, kind)
              for path, kind in ((appliance.address(), socket.SOCK_STREAM),
                                 (box.path("pool.join"), socket.SOCK_SEQPACKET))}
    for command in ("run", "check"):
        done = box.bedplate(command, appliance.config, expect_code=1)
        expect_in("starting the appliance test: an appliance of this name is running: it holds",
                  done.stderr, f"what {command} says")
        for path, inode in inodes.items():
            expect_true(os.path.exists(path), f"{command} leaves {path} there")
            expect(os.stat(path).st_ino, inode, f"the file of {path} after {command}")
    os.close(holder)
    appliance.start()
    connect(box, appliance).verify("with the name free")
    appliance.stop()
    expect_true(not os.path.exists(box.path("pool.join")), "the join socket is gone")


@test()
def of_two_starts_one_wins(box):
    """Two appliances start at once, many times. One serves at all its sockets; the other reports
    the reason."""
    configuration = with_group(box)
    first = Appliance(box, configuration)
    box.ensure_hugepages(first.config)
    join_socket = box.path("pool.join")
    for index in range(ROUNDS):
        rivals = [box.spawn(first.argv, f"{index}.{rival}.log") for rival in range(2)]
        wait_for(lambda: [rival for rival in rivals if rival.poll() is not None],
                 "the end of one of the two")
        loser = next(number for number, rival in enumerate(rivals) if rival.poll() is not None)
        expect(rivals[loser].poll(), 1, "the exit code of the one that lost")
        expect_in("an appliance of this name is running",
                  read_text(box.path(f"{index}.{loser}.log")), "what the one that lost says")
        first.process = rivals[1 - loser]
        wait_for(lambda: first.process.poll() is not None or "bedplate: ready" in
                 read_text(box.path(f"{index}.{1 - loser}.log")), "the one that won serves")
        connect(box, first).verify(index)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as joiner:
            joiner.settimeout(BOUND_SECONDS)
            joiner.connect(join_socket)
        first.stop()


@test(command=["run", "check"])
def full_runtime_directory(box, command):
    """A full runtime directory is refused. The counters file is mapped, so without blocks its first
    access would end the process."""
    if os.geteuid() != 0:
        raise Skip("mounting a small file system takes root")
    configuration = box.configuration()
    directory = configuration["appliance"]["runtime_directory"]
    os.mkdir(directory)
    shell = ("unshare", "--mount", "--propagation", "private", "sh", "-c",
             f'mount -t tmpfs -o size=64k none {directory} && exec "$0" "$@"')
    appliance = Appliance(box, configuration, argv_prefix=shell)
    box.ensure_hugepages(appliance.config)
    done = box.run(*appliance.argv[:-2], command, appliance.config, expect_code=1)
    expect(done.stdout, "", "the standard output")
    expect_in(f" for the counters file {directory}/test.stats: No space left on device; free that "
              "much space in the file system of", done.stderr, "the message")
    expect(done.stderr.count("\n"), 1, "the number of messages")
    os.rmdir(directory)
    appliance.expect_nothing_left()
