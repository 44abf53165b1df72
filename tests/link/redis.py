#!/usr/bin/python3
"""Redis, linked as docs/allocator.md says: BGSAVE writes a snapshot of the time of the fork.

    tests/link/redis.py [BUILD]       (build/release)

A forked child writes the whole database to a file while its parent continues. Redis' sources are
fetched from the distribution's source package into build/redis, and never committed. The last line
is `N passed, N failed, N skipped`.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

import run as link

SOURCES = os.path.join(link.ROOT, "build/redis")
SERVER = os.path.join(SOURCES, "src/redis-server")
KEYS = 10_000
PATIENCE_SECONDS = 100
HEAP = {"BEDPLATE_BOOT_BYTES": "256 MiB"}


def build():
    if not os.path.exists(os.path.join(SOURCES, "src/Makefile")):
        subprocess.run([os.path.join(link.ROOT, "scripts/debian_source.sh"), "redis", SOURCES],
                       check=True)
    line = link.documented_lines()["pool"]
    words = [os.path.join(link.BUILD, word) if word.endswith(".a") else word
             for word in line[line.index("program.o") + 1:]]
    if os.path.exists(SERVER):
        os.unlink(SERVER)  # the archives may have changed
    done = subprocess.run(["make", "-C", os.path.join(SOURCES, "src"), "-s", "MALLOC=libc",
                           "USE_SYSTEMD=no", "OPT=-O1", "V=1",
                           f"FINAL_LIBS={' '.join(words)} -lstdc++ -lm -ldl -lrt", "redis-server"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stdout[-2000:] + done.stderr[-2000:])


class Redis:
    """A server on a socket in `directory`, and one connection to it."""

    def __init__(self, directory, environment):
        self.path = os.path.join(directory, "socket")
        self.log = open(os.path.join(directory, "log"), "a+", encoding="utf-8")
        self.process = subprocess.Popen(
            [SERVER, "--port", "0", "--unixsocket", self.path, "--save", "", "--dir", directory,
             "--rdbcompression", "no"],
            stdout=self.log, stderr=self.log, env={**os.environ, **HEAP, **environment})
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            self.socket = socket.socket(socket.AF_UNIX)
            try:
                self.socket.connect(self.path)
                self.answers = self.socket.makefile("rb")
                self.ask([b"PING"])  # refused while it loads
                break
            except (OSError, AssertionError):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError("redis does not start:\n" + self.said()) from None
                self.socket.close()
                time.sleep(0.01)

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        self.process.kill()
        self.process.wait()
        self.log.close()

    def child(self):
        pid = self.process.pid
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return int(file.read().split()[0])

    def read(self):
        line = self.answers.readline()
        if line[:1] == b"$":
            return self.answers.read(int(line[1:]) + 2)[:-2] if line[1:2] != b"-" else None
        if line[:1] not in (b"+", b":"):
            raise AssertionError(f"redis answers {line!r}\n{self.said()}")
        return line[1:-2]

    def ask(self, *requests):
        """Sends requests, each a list of words. Returns the answers."""
        self.socket.sendall(b"".join(
            b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word)
                                               for word in words) for words in requests))
        return [self.read() for _ in requests]

    def fill(self, text, keys):
        self.ask(*([b"SET", b"key:%d" % i, text * (1 + i % 90)] for i in keys))

    def fact(self, section, name):
        for line in self.ask([b"INFO", section])[0].decode().splitlines():
            if line.startswith(name + ":"):
                return line.split(":", 1)[1]
        raise AssertionError(f"{name} is not there")


def save_under_writes(directory, environment):
    """Rewrites every key while BGSAVE runs. Returns BGSAVE's status and the server's log."""
    with Redis(directory, environment) as redis:
        for first in range(0, KEYS, 1000):
            redis.fill(b"before", range(first, first + 1000))
        # The child pauses at each key, and is stopped until all keys have been rewritten.
        redis.ask([b"CONFIG", b"SET", b"rdb-key-save-delay", b"100"], [b"BGSAVE"])
        child = redis.child()
        os.kill(child, signal.SIGSTOP)
        for first in range(0, KEYS, 1000):
            redis.fill(b"after", range(first, first + 1000))
        os.kill(child, signal.SIGCONT)
        rounds = 0
        deadline = time.monotonic() + PATIENCE_SECONDS
        while redis.fact(b"persistence", "rdb_bgsave_in_progress") == "1":
            if time.monotonic() > deadline:
                raise AssertionError("BGSAVE does not end")
            first = rounds * 1000 % KEYS
            redis.fill(b"after %d " % rounds, range(first, first + 1000))
            rounds += 1
        return redis.fact(b"persistence", "rdb_last_bgsave_status"), redis.said()


def check_snapshot(directory):
    """Checks that the file is valid, and has each key's value of before the fork."""
    checker = os.path.join(directory, "redis-check-rdb")
    os.symlink(SERVER, checker)
    done = subprocess.run([checker, os.path.join(directory, "dump.rdb")], capture_output=True,
                          text=True, check=False, timeout=PATIENCE_SECONDS,
                          env={**os.environ, **HEAP})
    if done.returncode != 0:
        raise AssertionError(f"redis-check-rdb:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    with Redis(directory, {}) as redis:
        for first in range(0, KEYS, 1000):
            keys = range(first, first + 1000)
            found = redis.ask(*([b"GET", b"key:%d" % i] for i in keys))
            wrong = [i for i, value in zip(keys, found) if value != b"before" * (1 + i % 90)]
            if wrong:
                raise AssertionError(f"key:{wrong[0]} is {found[wrong[0] - first]!r}")


def check_bgsave():
    with tempfile.TemporaryDirectory() as directory:
        status, said = save_under_writes(directory, {})
        if status != "ok" or "bedplate" in said:
            raise AssertionError(f"BGSAVE: {status}\n{said}")
        check_snapshot(directory)


def check_shared_bgsave():
    """With a shared heap, the child logs once that it goes on as a forked child."""
    with tempfile.TemporaryDirectory() as directory:
        _, said = save_under_writes(directory, {"BEDPLATE_FORK": "share"})
        if said.count("bedplate: continuing in a forked child") != 1:
            raise AssertionError(said)


def check_refused_bgsave():
    with tempfile.TemporaryDirectory() as directory, \
            Redis(directory, {"BEDPLATE_FORK": "refuse"}) as redis:
        try:
            redis.ask([b"BGSAVE"])
        except AssertionError:
            pass
        said = redis.said()
        if "Function not implemented" not in said or "bedplate: forking: " not in said:
            raise AssertionError(said)


def main():
    build()
    checks = (check_bgsave, check_shared_bgsave, check_refused_bgsave)
    return link.run_all((check.__name__, check) for check in checks)


if __name__ == "__main__":
    sys.exit(main())
