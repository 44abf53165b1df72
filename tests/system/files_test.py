"""A service with a planned file (tests/system/journal.c): operations on it run and are counted, a
boot without the file is refused with a message, an error fails only its operation, and the log
names a file system that hangs and a callback that blocks."""
import contextlib
import errno
import json
import os
import resource
import signal
import socket
import time
import tomllib

from fuse_file import FSYNC, READ, WRITE, FuseFile
from harness import (BACKENDS, BEDPLATE, BOUND_SECONDS, expect, expect_in, expect_true, need_backend,
                     read_text, stopped, test, to_toml, wait_for)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
JOURNAL = os.path.join(os.path.dirname(BEDPLATE), "journal")
FILE_BYTES_MAX = 1 << 30  # more than any segment of the pool has


def configure(box, path, sockets="io_uring-or-epoll", stall_ms=0, **journal):
    """Writes a configuration on ordinary pages, like apps/examples/store.toml."""
    with open(os.path.join(ROOT, "apps/examples/store.toml"), "rb") as file:
        configuration = tomllib.load(file)
    configuration["appliance"] = {"name": "journal", "runtime_directory": box.path("runtime"),
                                  "drain_timeout_ms": 1000}
    configuration["shard"][0]["cpu"] = min(os.sched_getaffinity(0))
    configuration["event_loop"] = {"sockets": sockets, "stall_ms": stall_ms}
    del configuration["store"]
    configuration["journal"] = {"listen": [f"unix:{box.path('journal.sock')}"], "file": path,
                                **journal}
    return box.write("journal.toml", to_toml(configuration))


class Journal:
    """A running appliance with the journal service, and a client of it."""

    def __init__(self, box, config, **options):
        self.box = box
        self.process = box.spawn([JOURNAL, "run", config], "journal.log", **options)
        wait_for(lambda: "journald: ready" in self.log(), "it is ready")
        self.client = box.closing.enter_context(socket.socket(socket.AF_UNIX))
        self.client.settimeout(BOUND_SECONDS)
        self.client.connect(box.path("journal.sock"))

    def log(self):
        return read_text(self.box.path("journal.log"))

    def say(self, line):
        self.client.sendall(line.encode() + b"\n")

    def ask(self, line):
        self.say(line)
        answer = b""
        while not answer.endswith(b"\n"):
            part = self.client.recv(4096)
            expect_true(part, f"it answers {line!r}")
            answer += part
        return answer.decode().rstrip("\n")

    def counters(self):
        return self.stats()["services"]["journal"]["files"]["log"]

    def shard(self):
        return self.stats()["shard"]["main"]

    def stats(self):
        return json.loads(self.box.run(JOURNAL, "stats", "--directory", self.box.path("runtime"),
                                       "--json").stdout)

    def stop(self, code):
        self.process.terminate()
        expect(self.process.wait(BOUND_SECONDS), code, "the exit code after SIGTERM")


@test(sockets=BACKENDS)
def is_read_written_synced_and_counted(box, sockets):
    need_backend(sockets)
    path = box.write("log", "apples and pears")
    journal = Journal(box, configure(box, path, sockets, bytes_min=16))
    expect(journal.ask("read 0 6"), "read 6 apples", "what it reads")
    expect(journal.ask("write 11 figs!"), "write 5", "what it writes")
    expect(journal.ask("sync"), "sync 0", "a sync")
    expect(read_text(path), "apples and figs!", "what others read then")
    expect(journal.ask("read 11 100"), "read 5 figs!", "what it reads at the end")
    expect(journal.ask("read 16 100"), "read 0", "what it reads behind the end")
    expect(journal.counters(), {"file_operations": 5, "file_read_bytes": 11,
                                "file_written_bytes": 5, "file_errors": 0, "file_polled": 0,
                                "file_polling_ended": False},
           "its counters")
    journal.stop(0)


@test(command=["check", "run"], what=["missing", "no_device", "directory", "pipe", "read_only",
                                         "one_of_two"])
def what_cannot_be_opened_is_told(box, command, what):
    """The message has the file, the service, the key, the system's error, and the cure."""
    path = "/dev/bedplate-no-disk" if what == "no_device" else box.path(what)
    answer = {"missing": "No such file or directory; create it, or name another file",
              "no_device": "there is no such device; attach it (lsblk lists the present ones), or "
                           "name a file outside /dev",
              "directory": "Is a directory; name a file, or a block device",
              "pipe": "it is neither a file nor a block device; name a file or a block device",
              "read_only": "Read-only file system; run as its owner or as root, and check that its "
                           "file system can be written to",
              "one_of_two": "No such file or directory; create it, or name another file"}[what]
    if what == "directory":
        os.mkdir(path)
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "read_only":
        path = box.closing.enter_context(FuseFile(box, is_read_only=True)).path
    with contextlib.ExitStack() as taken:
        also = []
        if what == "one_of_two":  # one report has each problem of the boot
            taken.enter_context(listening(box.path("journal.sock")))
            also = ["Address already in use"]
        refused = box.run(JOURNAL, command, configure(box, path), expect_code=1)
    expect_in(f"journald: opening {path} for file in [journal]: {answer}\n", refused.stderr,
              f"what {command} says")
    for text in also:
        expect_in(text, refused.stderr, f"what {command} says as well")
    expect("sealed" in refused.stderr, False, "that it went on")


@test()
def a_file_that_need_not_be_written_to_need_not_be_writable(box):
    """The file is read-only: a write fails, but only its own operation."""
    with FuseFile(box, b"apples", is_read_only=True) as file:
        journal = Journal(box, configure(box, file.path, read_only=True))
        expect(journal.ask("write 0 pear"), f"write {-errno.EBADF}", "a write")
        expect(journal.ask("read 0 6"), "read 6 apples", "a read")
        journal.stop(0)


@test()
def what_the_service_itself_refuses_is_told(box):
    path = box.write("log", "short")
    refused = box.run(JOURNAL, "run", configure(box, path, bytes_min=6), expect_code=1)
    expect_in("journald: journal: reading the log: it is shorter than bytes_min in [journal]; name "
              "another file, or make it longer (truncate)\n", refused.stderr, "what run says")
    expect("ready" in refused.stdout + refused.stderr, False, "that it serves")


@test(sockets=BACKENDS)
def an_error_is_the_operations_alone(box, sockets):
    need_backend(sockets)
    with FuseFile(box, b"apples and pears") as file:
        journal = Journal(box, configure(box, file.path, sockets))
        file.errors = {READ: errno.EIO, WRITE: errno.ENOSPC, FSYNC: errno.EIO}
        expect(journal.ask("read 0 6"), f"read {-errno.EIO}", "a read that fails")
        expect(journal.ask("write 0 figs"), f"write {-errno.ENOSPC}", "a write that fails")
        expect(journal.ask("sync"), f"sync {-errno.EIO}", "a sync that fails")
        file.errors = {}
        expect(journal.ask("write 0 figs!!"), "write 6", "a write after that")
        expect(journal.ask("read 0 6"), "read 6 figs!!", "a read after that")
        expect(journal.counters(), {"file_operations": 5, "file_read_bytes": 6,
                                    "file_written_bytes": 6, "file_errors": 3, "file_polled": 0,
                                    "file_polling_ended": False},
               "its counters")
        journal.stop(0)


def limited():
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, FILE_BYTES_MAX))


@test(sockets=BACKENDS)
def a_write_beyond_the_limit_of_a_files_size_is_an_error(box, sockets):
    """The kernel's signal does not end the process."""
    need_backend(sockets)
    journal = Journal(box, configure(box, box.write("log", "apples"), sockets), preexec_fn=limited)
    expect(journal.ask(f"write {FILE_BYTES_MAX} figs"), f"write {-errno.EFBIG}", "a write")
    expect(journal.ask("write 0 pears"), "write 5", "a write after that")
    expect(journal.counters()["file_errors"], 1, "errors")
    journal.stop(0)


@test(command=["check", "run"])
def a_file_beyond_the_limit_is_refused(box, command):
    path = box.write("log", "")
    os.truncate(path, 2 * FILE_BYTES_MAX)
    refused = box.run(JOURNAL, command, configure(box, path), expect_code=1, preexec_fn=limited)
    expect_in(f"it may grow to {2 * FILE_BYTES_MAX} bytes, but this process may not write "
              f"files beyond {FILE_BYTES_MAX}; ulimit -f unlimited, or LimitFSIZE=infinity",
              refused.stderr, f"what {command} says")


@test()
def a_counters_file_that_is_cut_is_named(box):
    """The cut ends the appliance, which has the file mapped, but not the readers of the file."""
    journal = Journal(box, configure(box, box.write("log", "")))
    path = box.path("runtime/journal.stats")
    os.truncate(path, 0)
    expect(journal.process.wait(BOUND_SECONDS), -signal.SIGBUS, "how it ends")
    expect_in(f"using the file {path}, which is mapped at ", journal.log(), "its log")
    expect_in(": another process has truncated it; find which one", journal.log(), "its log")
    for command in ("stats", "top", "trace"):
        words = [command, "--once"] if command == "top" else [command]
        said = box.run(JOURNAL, *words, "--from", path, expect_code=1)
        expect_in(path, said.stderr, f"what {command} says")


@test(sockets=BACKENDS, action=["read 0 6", "write 0 figs", "sync"])
def what_hangs_is_named_and_left(box, sockets, action):
    """The file system's server hangs. The stop waits for the operation as long as for the drain,
    and then ends."""
    need_backend(sockets)
    with FuseFile(box, b"apples and pears") as file:
        journal = Journal(box, configure(box, file.path, sockets))
        expect(journal.ask("read 0 6"), "read 6 apples", "a read before that")
        file.hang()
        journal.say(action)
        wait_for(file.is_asked, "the request")
        journal.stop(1)
        expect_in("stopping: the kernel has not completed 1 of the operations on the file "
                  "journal.log within 1 s", journal.log(), "its log")
        expect(journal.log().count("not drained"), 0, "complaints about the drain")


@test(sockets=BACKENDS)
def what_blocks_its_shard_is_named_and_counted(box, sockets):
    need_backend(sockets)
    journal = Journal(box, configure(box, box.write("log", ""), sockets, stall_ms=50))
    expect(journal.ask("read 0 6"), "read 0", "what does not block")
    expect(journal.ask("block 500"), "block 0", "what blocks")
    wait_for(lambda: journal.shard()["stalls"] > 0, "the counter of stalls")
    expect_true(journal.shard()["stall_longest_ns"] >= 500_000_000, "the longest of them is told")
    told = wait_for(lambda: [line for line in journal.log().splitlines() if "stall_ms" in line],
                    "the log's line about the stall")
    expect_in("journal", told[0].partition("with work: ")[2], "those that the line names")
    journal.stop(0)


@test()
def a_stopped_process_has_no_stall(box):
    """A stop signal, a debugger or a frozen control group stops the whole process. No service is
    blamed for that time."""
    config = configure(box, box.write("log", ""), stall_ms=200)
    text = read_text(config).replace("stall_ms = 200", "stall_ms = 200\nspin_us = 1000000")
    journal = Journal(box, box.write("journal.toml", text))

    def stop_while_it_is_awake():
        journal.ask("read 0 6")  # then it mostly spins for a second
        with stopped(journal.process.pid):
            time.sleep(1)  # five times stall_ms
        return journal.shard()["standstills"]

    wait_for(stop_while_it_is_awake, "a counted standstill")
    expect(journal.shard()["stalls"], 0, "the counter of stalls")
    expect_in("the whole process stood still for ", journal.log(), "its log")
    journal.stop(0)
    expect(journal.log().count("stall_ms"), 0, "lines about stalls")


@test()
def without_a_limit_no_stall_is_told(box):
    journal = Journal(box, configure(box, box.write("log", ""), stall_ms=0))
    expect(journal.ask("block 500"), "block 0", "what blocks")
    expect(journal.ask("read 0 6"), "read 0", "what comes after it")
    expect(journal.shard()["stalls"], 0, "the counter of stalls")
    journal.stop(0)
    expect(journal.log().count("stall_ms"), 0, "lines about it")


def listening(path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    return listener
