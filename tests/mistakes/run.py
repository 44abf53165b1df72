#!/usr/bin/python3
"""Makes each mistake of this folder, and compares what the program prints, to the letter.

    tests/mistakes/run.py [BUILD...]       (build/release)

A BUILD has the archives of a release or, called debug, of a debug build. Each mistake is a file
NAME.cc or NAME.c, a service that makes it; MISTAKES says how the program ends, and what it prints.
The last line is `N passed, N failed, N skipped`; the exit code is 1 if anything failed.
"""

import glob
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BOUND_SECONDS = 120  # only a hang reaches it
WARNINGS = ["-O0", "-Wall", "-Wextra", "-Werror"]
CONFIGURATION = """[appliance]
name = "mistake"
runtime_directory = "{folder}/run"
drain_timeout_ms = 300
[pool]
bytes = "96 MiB"
pages = "4 KiB"
heap_min_bytes = "16 MiB"
[event_loop]
sockets = "epoll"
[[shard]]
name = "main"
cpu = {cpu}
[cache]
"""
# Lines that a busy or a small machine adds, and the record of a crash (tests/system/crash_test.py).
IGNORED = re.compile(r"bedplate: warning: (shard main waited \d+ ms for its core|the whole process "
                     r"stood still|mistake: not prevented here)|"
                     r"bedplate: error: (crash: signal 6 |  called from )")
ABORTED = -signal.SIGABRT
BROKEN = "bedplate: broken contract: "
WARNED = "bedplate: warning: "
ELSEWHERE = (" was called on another thread than its shard's: call it there (EventLoop::submit, "
             "bp_post)")
LISTENS = 'listen = ["unix:{folder}/cache.socket"]\n'
UNPLANNED_TIMER = ("service cache arms more timers on shard main than it plans, 0: "
                   "ServicePlan::timers (bp_plan_timers)")


class Mistake:
    """How the program ends, and the lines that it prints: `code` and `text` in a release and in a
    debug build, unless `debug` says otherwise. None: such a build does not notice it, and is not
    tried. In a text {n} is any number, {word} any word, {line} that of [cache]. `more` follows in
    the configuration; {folder} is a folder of the run's own."""

    def __init__(self, name, code, text, debug=(), more=""):
        self.name, self.more = name, more
        self.ends = {"release": None if code is None else (code, text),
                     "debug": debug or (code, text)}


MISTAKES = [
    # More than planned.
    Mistake("unplanned_timer", ABORTED, BROKEN + UNPLANNED_TIMER),
    Mistake("unplanned_timer_in_c", ABORTED, BROKEN + UNPLANNED_TIMER),
    Mistake("timer_of_another", 0, "", debug=(0, f"{WARNED}broken contract: {UNPLANNED_TIMER}"),
            more="[store]\n"),
    Mistake("unplanned_sockets", 0, WARNED + "broken contract: service cache attaches more sockets "
            "to shard main than it plans, 0: ServicePlan::connections (bp_plan_connections); it is "
            "refused (ENOSPC)"),
    Mistake("unplanned_watch", 0, WARNED + "broken contract: service cache watches more "
            "descriptors on shard main than it plans, 0: ServicePlan::watches (bp_plan_watches); "
            "it is refused (ENOSPC)"),
    Mistake("unplanned_question", ABORTED, BROKEN + "more questions are in flight than a service "
            "plans on this shard, 1: ServicePlan::questions (bp_plan_questions)"),
    # On another thread.
    Mistake("connect_elsewhere", ABORTED, f"{BROKEN}Messenger::connect{ELSEWHERE}"),
    Mistake("send_elsewhere", ABORTED, f"{BROKEN}Endpoint::am_send{ELSEWHERE}"),
    Mistake("timer_elsewhere", None, None,
            debug=(ABORTED, f"{BROKEN}EventLoop::timers{ELSEWHERE}")),
    Mistake("question_elsewhere", ABORTED, f"{BROKEN}ShardAsker::ask{ELSEWHERE}"),
    Mistake("coroutine_resumed_elsewhere", ABORTED, f"{BROKEN}CoroutineEvent::set{ELSEWHERE}"),
    Mistake("answer_elsewhere", ABORTED, f"{BROKEN}LaterAnswer::finish or StreamSession::resume"
            f"{ELSEWHERE}", more=LISTENS),
    Mistake("file_elsewhere", None, None, debug=(ABORTED, f"{BROKEN}File::begin{ELSEWHERE}")),
    # Wrong calls.
    Mistake("timer_without_function", ABORTED, BROKEN + "a timer without a function is armed: "
            "Timer::expired"),
    Mistake("two_sends", ABORTED, BROKEN + "a socket begins a send while its earlier one is in "
            "flight: StreamSockets::send"),
    Mistake("poll_in_a_handler", ABORTED, BROKEN + "a handler or another callback of a poll polls "
            "its messenger: it returns instead (Messenger::poll, wait; bp_poll, bp_wait)"),
    Mistake("loan_given_back_twice", ABORTED, BROKEN + "a loan is given back twice: "
            "Messenger::release"),
    Mistake("loop_of_no_shard", ABORTED, BROKEN + "service cache asks for shard number 9, and "
            "there are 1: ServiceContext::loop"),
    Mistake("loop_of_no_shard_in_c", ABORTED, BROKEN + "service cache asks for shard number 9, and "
            "there are 1: bp_loop_of"),
    Mistake("double_free", None, None, debug=(
        ABORTED, "bedplate: freeing 0x{n}: the block that began there, of {word} and the size "
        "class of {n} bytes, is already free; correct the program: `addr2line -Cfpe FILE OFFSET` "
        "names each of these calls")),
    # Answers.
    Mistake("question_answered_twice", ABORTED, BROKEN + "a question is answered twice, or before "
            "it has arrived: ShardQuestion::answer (bp_answer)"),
    Mistake("question_asked_again", ABORTED, BROKEN + "a question is asked that is not answered "
            "yet: ShardAsker::ask (bp_ask)"),
    Mistake("answer_twice", ABORTED, BROKEN + "a later answer is finished that does not wait: "
            "LaterAnswer::finish, once", more=LISTENS),
    Mistake("answer_after_the_client_left", ABORTED, BROKEN + "a later answer is finished that "
            "does not wait: LaterAnswer::finish, once", more=LISTENS),
    Mistake("answer_never", 0, WARNED + "mistake: cache not drained after {n} ms: stopping, and "
            "closing what is still open", more=LISTENS),
    Mistake("answer_overtaken", ABORTED, BROKEN + "a step says something after later(), which "
            "others may overtake: say it before, or by LaterAnswer::say", more=LISTENS),
    Mistake("answers_of_one_step", ABORTED, BROKEN + "a step asks for a second later answer: "
            "StreamSession::later", more=LISTENS),
    Mistake("answer_too_long", None, None, debug=(ABORTED, BROKEN + "a step says more than 2048 "
            "bytes: StreamSession::say"), more=LISTENS),
    # Coroutines.
    Mistake("coroutine_awaited_twice", ABORTED, BROKEN + "a coroutine is awaited twice: call it "
            "again"),
    Mistake("coroutine_destroyed", ABORTED, BROKEN + "a coroutine is destroyed before its end: its "
            "Coroutine stays until then"),
    # Names.
    Mistake("key_described_twice", 2, 'bedplate: {config}:{line}:1: [cache] is described with two '
            'keys or tables "bytes"; this is a defect of the service: give each a name of its own'),
    Mistake("method_added_twice", 1, "bedplate: control: cache: adding the method cache.flush: "
            "another one has this name; this is a defect of the service: "
            "apps/services/control_methods.h says what a method needs", more="[control]\n"),
    Mistake("owner_without_name", 2, "bedplate: cache: planning a segment: the name of its owner, "
            "or of a carve's, is empty or has control characters; this is a defect of the service"),
    Mistake("service_with_a_bad_name", 2, "bedplate: describing the table of the service The "
            "Cache: this is not a valid service name; this is a defect of the program: a name has "
            "1 to 32 characters of a-z, 0-9 and -"),
    # Too slow.
    Mistake("blocking_tick", 0, WARNED + "cache: tick() took {n} ms of the main thread: signals, "
            "drains and the supervisor waited for it; let a thread of the service wait "
            "(ServicePlan::threads)"),
    Mistake("blocking_drain", 0, WARNED + "cache: request_drain() took {n} ms of the main thread: "
            "signals, drains and the supervisor waited for it; let a thread of the service wait "
            "(ServicePlan::threads)"),
    Mistake("stalls", 0, "\n".join((
        WARNED + "shard main was occupied for {n} ms, {n} of them without a core (stall_ms is "
        "100); with work: a timer (cache); each is timed for the next 10 s",
        WARNED + "a timer (cache) occupied shard main for {n} ms, {n} of them without a core "
        "(stall_ms is 100)",
        WARNED + "a call from another thread (cache) occupied shard main for {n} ms, {n} of them "
        "without a core (stall_ms is 100)"))),
]


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_SECONDS,
                          check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{shlex.join(command)}\nexit code {done.returncode}:\n"
                             f"{done.stdout}{done.stderr}")


def build_program(build, folder):
    """One program with all mistakes: one compilation takes a tenth of the time of twenty."""
    checks = ["-DBP_DEBUG=1"] if os.path.basename(build) == "debug" else []
    objects = []
    for source in glob.glob(f"{HERE}/*.c"):
        objects.append(os.path.join(folder, f"{os.path.basename(source)}.o"))
        run(["gcc", "-std=c99", *WARNINGS, f"-I{ROOT}/apps/c_interface", "-c", source, "-o",
             objects[-1]])
    whole = os.path.join(folder, "mistakes.cc")
    with open(whole, "w", encoding="utf-8") as file:
        file.writelines(f'#include "{source}"\n' for source in sorted(glob.glob(f"{HERE}/*.cc")))
    objects.append(os.path.join(folder, "mistakes.o"))
    run(["g++", "-std=c++20", *WARNINGS, *checks, f"-I{ROOT}", "-c", whole, "-o", objects[-1]])
    program = os.path.join(folder, "mistakes")
    run(["g++", "-static", "-o", program, *objects, "-Wl,-u,malloc", "-Wl,-u,_Znwm",
         os.path.join(build, "libbedplate-malloc.a"), os.path.join(build, "libbedplate.a"),
         "-luring", "-lpthread"])
    return program


def without_core():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def check(program, mistake, end):
    code, text = end
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        config = os.path.join(folder, "mistake.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIGURATION.format(folder=folder, cpu=min(os.sched_getaffinity(0))))
            file.write(mistake.more.format(folder=folder))
        done = subprocess.run([program, mistake.name, "run", config], capture_output=True,
                              text=True, timeout=BOUND_SECONDS, check=False,
                              preexec_fn=without_core)
        pattern = re.escape(text)
        for name, value in (("n", "[0-9a-f]+"), ("word", r"\S+"), ("config", re.escape(config)),
                            ("line", str(CONFIGURATION.count("\n")))):
            pattern = pattern.replace(re.escape(f"{{{name}}}"), value)
    lines = [line for line in done.stderr.splitlines() if not IGNORED.match(line)]
    if done.returncode != code or not re.fullmatch(pattern, "\n".join(lines)):
        raise AssertionError(f"exit code {done.returncode}, expected {code}; it printed\n"
                             f"{done.stderr}instead of\n{text}")


def check_table():
    files = {os.path.splitext(os.path.basename(path))[0] for path in glob.glob(f"{HERE}/*.c*")}
    names = {mistake.name for mistake in MISTAKES}
    if files - {"main"} != names:
        raise AssertionError(f"of one only: {sorted((files - {'main'}) ^ names)}")


def tests(builds, directory):
    yield "the table has each file", check_table
    for build in builds:
        kind = os.path.basename(build)
        folder = os.path.join(directory, kind)
        os.mkdir(folder)
        program = build_program(build, folder)
        for mistake in MISTAKES:
            end = mistake.ends[kind]
            if end is not None:
                yield f"{kind}, {mistake.name}", lambda m=mistake, e=end, p=program: check(p, m, e)


def main():
    builds = [os.path.abspath(build) for build in sys.argv[1:] or [f"{ROOT}/build/release"]]
    only = os.environ.get("ONLY_TESTS", "").splitlines()
    failed, passed_count = [], 0
    with tempfile.TemporaryDirectory(prefix="bedplate-") as directory:
        for name, test in tests(builds, directory):
            if only and name not in only:
                continue
            begin = time.monotonic()
            try:
                test()
                passed_count += 1
                print(f"passed  {name} ({time.monotonic() - begin:.1f} s)", flush=True)
            except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
                failed.append(name)
                print(f"failed  {name}\n{error}", flush=True)
    for name in failed:
        print(f"failed: {name}")
    print(f"{passed_count} passed, {len(failed)} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
