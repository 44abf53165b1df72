"""System calls forbidden by a profile, one at a time (seccomp, of a unit or a container): the
appliance serves without the call, or ends with one message that names it. It is never ready but
unresponsive, and never ends by an assertion.

FORBID_ALL=1 tests all calls that the program makes, instead of the most critical ones.
"""

import concurrent.futures
import contextlib
import errno
import os
import re
import signal
import socket
import subprocess
import sys
import time

import forbidding
from harness import (BEDPLATE, BOUND_SECONDS, Failure, Skip, expect, expect_in, expect_true,
                     free_port, need_tools, read_line, read_text, test, to_toml, wait_for)

MESSAGE = re.compile(r"bedplate: [^\n]+: [^\n]+; [^\n]+\n")  # doing: answer; cure
ANSWERS = {"EPERM": errno.EPERM, "ENOSYS": errno.ENOSYS}
LANES = 2

# Calls of all phases: of the boot, of its end, and of the service. The appliance can do without
# some of them.
CALLS = {
    "io_uring-or-epoll": [
        "accept4", "clone3", "eventfd2", "fallocate", "fcntl", "ftruncate", "futex",
        "get_robust_list", "getrandom", "io_uring_enter", "io_uring_register", "io_uring_setup",
        "madvise", "memfd_create", "mlock", "mlockall", "mseal", "newfstatat", "poll", "prlimit64",
        "recvmmsg", "rt_sigprocmask", "rt_sigtimedwait", "sched_getaffinity", "sched_setaffinity",
        "sendmmsg", "set_robust_list", "setsockopt", "socket"],
    "epoll": ["epoll_create1", "epoll_ctl", "epoll_wait", "recvmsg", "sendmsg"],
}

# Without these calls a program cannot start, end, or print a message.
BEYOND_HELP = {"arch_prctl", "execve", "exit", "exit_group", "mprotect", "rt_sigreturn", "write",
               "writev"}


def configure(directory, sockets, ports, relayed_to):
    """Returns a configuration with a service of each kind: streams, datagrams, a thread, files,
    processes."""
    with open(f"{directory}.volume", "wb") as file:
        file.truncate(1 << 20)
    return {
        "appliance": {"name": "forbidden", "runtime_directory": directory,
                      "drain_timeout_ms": 100},
        "pool": {"bytes": "192 MiB", "pages": "4 KiB"},
        "event_loop": {"sockets": sockets},
        "shard": [{"name": "main", "cpu": max(os.sched_getaffinity(0))}],
        "kvd": {"listen": [f"tcp:127.0.0.1:{ports['kvd']}"], "cache_bytes": "8 MiB",
                "max_connections": 8},
        "http": {"listen": [f"tcp:127.0.0.1:{ports['http']}"]},
        "control": {},
        "blockd": {"listen": [f"unix:{directory}.nbd"],
                   "volume": [{"name": "ram0", "bytes": "1 MiB"},
                              {"name": "file0", "file": f"{directory}.volume"}]},
        "tsrelay": {"stream": [{"name": "news",
                                "leg": [{"address": f"127.0.0.1:{ports['leg']}"}],
                                "output": [{"to": f"127.0.0.1:{relayed_to}"}]}]},
        "group": [{"name": "main", "members": 3}],
        "process": [{"name": "ann", "user": "root", "group": "main", "heap_bytes": "16 MiB"}],
    }


class Trial:
    """One appliance. The command `prefix` forbids its system calls."""

    def __init__(self, box, name, sockets, prefix):
        self.name = name
        self.ports = {each: free_port() for each in ("kvd", "http", "leg")}
        self.receiver = box.closing.enter_context(
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self.receiver.bind(("127.0.0.1", 0))
        self.log = box.path(f"{name}.txt")
        self.directory = box.path(f"{name}.run")
        config = box.write(f"{name}.toml", to_toml(configure(
            self.directory, sockets, self.ports, self.receiver.getsockname()[1])))
        self.process = box.spawn([*prefix, BEDPLATE, "run", config], self.log,
                                 stdout=subprocess.PIPE)

    def said(self):
        return read_text(self.log)

    def is_ready(self):
        line = read_line(self.process.stdout.fileno())
        expect_true(line in ("", "bedplate: ready\n"), f"the first line: {line!r}")
        return line != ""

    def answer_of(self, service, request):
        with socket.create_connection(("127.0.0.1", self.ports[service]), BOUND_SECONDS) as one:
            one.sendall(request)
            return one.recv(100)

    def relayed(self):
        """Sends packets until the relay forwards one. Returns that packet."""
        payload = (b"\x47\x1f\xff\x10" + bytes(184)) * 7
        self.receiver.settimeout(0.1)
        end = time.monotonic() + BOUND_SECONDS
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while time.monotonic() < end:
                sender.sendto(payload, ("127.0.0.1", self.ports["leg"]))
                with contextlib.suppress(TimeoutError):
                    return self.receiver.recv(2000)
        raise Failure("the relay sends nothing on")

    def expect_service(self):
        """Checks that each service answers, and that the appliance ends cleanly."""
        expect_in(b"VERSION", self.answer_of("kvd", b"version\r\n"), "what kvd answers")
        expect_in(b"200 OK", self.answer_of("http", b"GET /healthz HTTP/1.0\r\n\r\n"),
                  "what http answers")
        with socket.socket(socket.AF_UNIX) as nbd:
            nbd.settimeout(BOUND_SECONDS)
            nbd.connect(f"{self.directory}.nbd")
            expect(nbd.recv(8), b"NBDMAGIC", "what blockd begins with")
        self.relayed()
        self.process.send_signal(signal.SIGTERM)
        expect(self.process.wait(BOUND_SECONDS), 0, "the exit code after SIGTERM")

    def expect_refusal(self, call):
        """Checks for one message in three parts that names the call."""
        code = self.process.wait(BOUND_SECONDS)
        expect_true(code in (1, 2), f"the exit code is {code}, of a refusal it is 1 or 2")
        last = self.said().splitlines(keepends=True)[-1:]
        expect_true(last and MESSAGE.fullmatch(last[0]), f"a message in three parts: {last}")
        expect_in(call, last[0], "the message")

    def judge(self, call):
        """Returns a text about the fault, or nothing."""
        try:
            if self.is_ready():
                self.expect_service()
            else:
                self.expect_refusal(call)
            for words in ("assert", "is a defect", "terminate called"):
                expect_true(words not in self.said(), f"it says {words!r}")
        except (Failure, OSError, subprocess.TimeoutExpired) as error:
            return f"without {self.name}: {error}\n{self.said()[-600:]}"
        return ""


def walk(box, sockets, calls):
    """Tries each call with each error, several at a time."""
    if os.uname().machine != "x86_64":
        raise Skip("the filter of this test is for x86-64")
    known = forbidding.call_numbers()
    if not known:
        raise Skip("the kernel's header with the numbers of calls is not here (linux-libc-dev)")

    def one(case):
        call, answer = case
        prefix = [sys.executable, forbidding.__file__, call, str(ANSWERS[answer])]
        trial = Trial(box, f"{call}-{answer}", sockets, prefix)
        wrong = trial.judge(call)
        if trial.process.poll() is None:
            trial.process.kill()
        return wrong

    cases = [(call, answer) for call in calls for answer in ANSWERS]
    with concurrent.futures.ThreadPoolExecutor(LANES) as lanes:
        wrong = list(filter(None, lanes.map(one, cases)))
    if wrong:
        raise Failure(f"{len(wrong)} of {len(cases)}:\n" + "\n".join(wrong))


def calls_of_an_appliance(box, sockets):
    """The names of all calls that an appliance makes, from its start to its end."""
    need_tools("strace")
    summary = box.path("calls")
    trial = Trial(box, "traced", sockets, ["strace", "-D", "-f", "-c", "-o", summary])
    expect_true(trial.is_ready(), f"it is ready under strace: {trial.said()}")
    trial.expect_service()
    wait_for(lambda: os.path.exists(summary) and "total\n" in read_text(summary), "the summary")
    lines = [line.split() for line in read_text(summary).splitlines()]
    return sorted({line[-1] for line in lines if len(line) in (5, 6) and line[3].isdigit()} - {"total"})


@test(sockets=CALLS)
def each_call_is_done_without_or_named(box, sockets):
    calls = CALLS[sockets]
    if os.environ.get("FORBID_ALL"):
        seen = calls_of_an_appliance(box, sockets)
        expect_true(len(seen) > 50, f"the calls that it makes: {seen}")
        calls = sorted({*seen, *calls} - BEYOND_HELP)
        print(f"{len(calls)} calls, {len(ANSWERS)} answers", flush=True)
    walk(box, sockets, calls)


@test()
def check_finds_what_run_would(box):
    """`check` reports the forbidden calls, before anything is taken."""
    directory = box.path("runtime")
    config = box.write("bedplate.toml", to_toml(configure(
        directory, "epoll", {each: free_port() for each in ("kvd", "http", "leg")}, free_port())))
    if os.uname().machine != "x86_64":
        raise Skip("the filter of this test is for x86-64")
    calls = "accept4,recvmmsg,rt_sigtimedwait"
    done = box.run(sys.executable, forbidding.__file__, calls, str(errno.EPERM), BEDPLATE, "check",
                   config, expect_code=1)
    expect(done.stderr, "bedplate: trying the system calls that it needs: Operation not permitted; "
                        "a seccomp profile forbids rt_sigtimedwait, accept4, recvmmsg: allow it, in "
                        "SystemCallFilter= of the unit or --security-opt seccomp= of the "
                        "container\n", "what check says")
    expect(os.path.exists(directory), False, "a runtime directory that nobody asked for")


@test()
def a_fallback_to_epoll_needs_its_calls(box):
    """`check` reports the calls of epoll if io_uring is forbidden, too."""
    settings = configure(box.path("runtime"), "io_uring-or-epoll",
                         {each: free_port() for each in ("kvd", "http", "leg")}, free_port())
    # Processes that join use epoll, and so do the threads of these services.
    for part in ("group", "process", "http", "control"):
        del settings[part]
    config = box.write("bedplate.toml", to_toml(settings))
    if os.uname().machine != "x86_64":
        raise Skip("the filter of this test is for x86-64")
    done = box.run(sys.executable, forbidding.__file__, "io_uring_setup,epoll_wait",
                   str(errno.EPERM), BEDPLATE, "check", config, expect_code=1)
    expect_in("a seccomp profile forbids epoll_wait: allow it", done.stderr, "what check says")
    settings["control"] = {}
    config = box.write("bedplate.toml", to_toml(settings))
    done = box.run(sys.executable, forbidding.__file__, "epoll_wait", str(errno.EPERM), BEDPLATE,
                   "check", config, expect_code=1)
    expect_in("a seccomp profile forbids epoll_wait: allow it", done.stderr, "with [control]")
