"""Crashes of an appliance (tests/system/crasher.cc): the record in its log and in its counters file,
the commands that show it, and the next start."""

import ctypes
import glob
import json
import os
import re
import resource
import shutil
import signal

from harness import (BEDPLATE, BOUND_SECONDS, expect, expect_in, expect_true, need_tools, read_text,
                     stopped, test, to_toml, wait_for)

CRASHER = os.path.join(os.path.dirname(BEDPLATE), "crasher")
ENDS = {"assertion": signal.SIGABRT, "exception": signal.SIGABRT, "abort": signal.SIGABRT,
        "fault": signal.SIGSEGV, "overflow": signal.SIGSEGV, "null": signal.SIGSEGV}
CAUSES = {"assertion": r"signal 6 \(ABRT\)", "exception": r"signal 6 \(ABRT\)",
          "abort": r"signal 6 \(ABRT\)", "fault": r"signal 11 \(SEGV\) at address 0x1000",
          "overflow": r"signal 11 \(SEGV\) at address 0x[0-9a-f]+",
          "null": r"signal 11 \(SEGV\) at address 0x0"}
REASONS = {"assertion": r"tests/system/crasher\.cc:\d+: assertion failed: change >= 0; ",
           "exception": r"an uncaught exception: basic_string::at: .*; this is a defect: "}
SYS_TGKILL = 234


def without_core():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Till:
    """An appliance whose service crashes on demand."""

    def __init__(self, box, log="till.log", is_ready=True, **keys):
        self.box, self.file = box, log
        path = box.write("till.toml", to_toml({
            "appliance": {"name": "till", "runtime_directory": box.path("runtime")},
            "pool": {"bytes": "96 MiB", "pages": "4 KiB"},
            "shard": [{"name": "main", "cpu": min(os.sched_getaffinity(0))}],
            "control": {},
            "crasher": keys}))
        self.process = box.spawn([CRASHER, "run", path], log, preexec_fn=without_core)
        if is_ready:
            wait_for(lambda: "bedplate: ready" in self.log(), "it is ready")

    def log(self):
        return read_text(self.box.path(self.file))

    def ask(self, *words, **options):
        return self.box.run(CRASHER, "ctl", "--directory", self.box.path("runtime"), *words,
                            **options).stdout

    def crash(self, way):
        self.ask("crasher.crash", f"how={way}", expect_code=None)  # there is no answer
        self.expect_end(-ENDS[way])

    def expect_end(self, code):
        expect(self.process.wait(BOUND_SECONDS), code, "its exit code")

    def thread(self, name):
        """The number of the thread of this name."""
        for path in glob.glob(f"/proc/{self.process.pid}/task/*/comm"):
            if read_text(path).strip() == name:
                return int(path.split("/")[-2])
        raise AssertionError(f"there is no thread {name}")

    def record(self):
        """The lines of the record in the log, as the counters file has them. There is one."""
        causes = re.findall(r"^bedplate: error: crash: (.*)$", self.log(), re.MULTILINE)
        expect(len(causes), 1, "lines about a crash")
        reasons = re.findall(r"^bedplate: (.*(?:assertion failed|uncaught exception).*)$",
                             self.log(), re.MULTILINE)
        calls = re.findall(r"^bedplate: error: (  called from .*)$", self.log(), re.MULTILINE)
        return [*reasons, *causes, *calls]


def stats(box, *options):
    where = () if "--from" in options else ("--directory", box.path("runtime"))
    return box.run(CRASHER, "stats", *where, *options).stdout


def findings(box):
    """The verdicts and values of doctor about the appliance."""
    said = box.run(CRASHER, "doctor", "--directory", box.path("runtime"), "--json",
                   expect_code=None).stdout
    return [(one["verdict"], one["value"]) for one in json.loads(said)
            if one["name"] == "appliance till"]


def expect_shown(box, record, *options):
    """`stats` shows the record, as text and as JSON."""
    text = stats(box, *options)
    expect_true(re.search(r"^crash at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$", text, re.MULTILINE),
                f"the time of the crash in {text}")
    for line in record:
        expect_in(f"\n  {line}\n", text, "what stats shows")
    expect(json.loads(stats(box, "--json", *options))["crash"]["lines"], record, "the JSON")


@test(way=list(ENDS))
def a_crash_of_a_shard_is_recorded(box, way):
    need_tools("addr2line")
    till = Till(box)
    till.crash(way)
    record = till.record()
    if way in REASONS:
        expect_true(re.match(REASONS[way], record[0]), f"the reason: {record[0]}")
    cause = record[1 if way in REASONS else 0]
    expect_true(re.fullmatch(f"{CAUSES[way]} in thread main, shard main, service crasher, build "
                             "[0-9a-f]{40}", cause), f"the cause: {cause}")
    calls = [line.split()[-1] for line in record if line.startswith("  called from ")]
    functions = box.run("addr2line", "-Cfie", CRASHER, *calls).stdout
    if way != "abort":
        expect_in(f"crash_by_{way}", functions, "the calls")
    expect_true("on_crash" not in functions, f"the calls of the handler are left out: {functions}")
    expect_shown(box, record)
    copy = shutil.copy(box.path("runtime/till.stats"), box.path("copy"))
    expect_shown(box, record, "--from", copy)
    (verdict, value), = findings(box)
    expect(verdict, "warning", "doctor's verdict")
    expect_true(value.startswith("it has crashed, at ") and value.endswith(cause),
                f"what doctor says: {value}")
    if way in REASONS:
        expect_in(record[0], value, "what doctor says")


@test(target=["process", "shard"])
def a_signal_of_another_process_is_recorded(box, target):
    till = Till(box)
    pid = till.process.pid
    if target == "process":
        os.kill(pid, signal.SIGSEGV)
    else:
        libc = ctypes.CDLL(None, use_errno=True)
        expect(libc.syscall(SYS_TGKILL, pid, till.thread("main"), signal.SIGSEGV), 0, "tgkill")
    till.expect_end(-signal.SIGSEGV)
    cause = till.record()[0]
    place = r"main, shard main(, service \w+)?" if target == "shard" else r"\w+(, \w+ \w+)*"
    expect_true(re.fullmatch(rf"signal 11 \(SEGV\) from process {os.getpid()} in thread {place}, "
                             "build [0-9a-f]{40}", cause), f"the cause: {cause}")
    expect_shown(box, till.record())


@test()
def a_stopped_appliance_records_the_signal_once_it_goes_on(box):
    till = Till(box)
    with stopped(till.process.pid):
        os.kill(till.process.pid, signal.SIGABRT)
        expect(till.process.poll(), None, "its exit code while it is stopped")
    till.expect_end(-signal.SIGABRT)
    expect_in(f"signal 6 (ABRT) from process {os.getpid()} in thread ", till.record()[0],
              "the cause")
    expect_shown(box, till.record())


@test()
def a_crash_during_the_boot_is_recorded(box):
    """Its counters file was not complete yet."""
    till = Till(box, is_ready=False, at_boot=True)
    till.expect_end(-signal.SIGSEGV)
    cause = till.record()[0]
    expect_in("at address 0x1000 in thread crasher, service crasher, build ", cause, "the cause")
    expect_shown(box, till.record())


@test()
def a_crash_of_a_child_is_not_the_appliances(box):
    till = Till(box)
    expect(till.ask("crasher.crash-child").strip(), str(int(signal.SIGSEGV)), "the child's end")
    expect_true("crash:" not in till.log(), "nothing in the log")
    expect_true("crash" not in json.loads(stats(box, "--json")), "nothing in the counters file")
    till.process.terminate()
    till.expect_end(0)
    expect_true(not os.path.exists(box.path("runtime")), "nothing is left")


@test()
def the_next_start_keeps_the_record(box):
    first = Till(box)
    first.crash("assertion")
    kept = box.path("runtime/till.crash")
    second = Till(box, "second.log")
    expect_true("crash at" not in stats(box), "the second run has no record")
    expect_shown(box, first.record(), "--from", kept)
    (good, runs), (warning, earlier) = findings(box)
    expect((good, runs), ("good", "runs; nothing needs a look"), "doctor about the second run")
    expect(warning, "warning", "doctor's verdict about the first run")
    expect_true(earlier.startswith("an earlier run has crashed, at "), f"about it: {earlier}")
    expect_in("assertion failed: change >= 0", earlier, "doctor about the first run")
    second.process.kill()
    second.expect_end(-signal.SIGKILL)
    expect_in("it has ended without the record of a crash", findings(box)[0][1],
              "doctor about one that was killed")
    third = Till(box, "third.log")
    expect_shown(box, first.record(), "--from", kept)  # one that was killed leaves no record
    third.crash("fault")
    fourth = Till(box, "fourth.log")
    expect_shown(box, third.record(), "--from", kept)
    fourth.process.terminate()
    fourth.expect_end(0)
    expect(os.listdir(box.path("runtime")), ["till.crash"], "the files after a clean stop")
    expect(len(findings(box)), 1, "findings after a clean stop")
    os.unlink(kept)
    expect(findings(box), [], "findings once the file is removed")
