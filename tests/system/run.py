#!/usr/bin/python3
"""Runs the system tests: the real program as a black box, against third-party clients.

    BEDPLATE=build/release/bedplate /usr/bin/python3 tests/system/run.py [--list] [PATTERN...]

A PATTERN is a part of a test's name, or a shell pattern (`clients.*epoll*`). A test's output
and its server's log are shown if it fails. The last line is `N passed, N failed, N skipped`;
the exit code is 1 if anything failed. The tests leave the machine as they found it: the
last test checks that. If ONLY_TESTS has names, one per line, only these run.
"""

import argparse
import fnmatch
import glob
import importlib
import os
import signal
import sys
import time
import traceback

import harness
from harness import Failure, Skip

# A limit for a whole test. The tests' own waits have bounds.
TEST_SECONDS_MAX = (600 + 2 * int(os.environ.get("TSRELAY_SECONDS", "0")) +
                    10 * int(os.environ.get("TSRELAY_MIB", "0")))


def main():
    parser = argparse.ArgumentParser(description="Runs Bedplate's system tests.")
    parser.add_argument("pattern", nargs="*", help="a part of a name, or a shell pattern")
    parser.add_argument("--list", action="store_true", help="print the names and run nothing")
    options = parser.parse_args()
    for path in sorted(glob.glob(os.path.join(os.path.dirname(__file__), "*_test.py"))):
        importlib.import_module(os.path.basename(path).removesuffix(".py"))
    only = os.environ.get("ONLY_TESTS", "").splitlines()
    tests = [test for test in harness.TESTS
             if is_chosen(test[0], options.pattern) and (not only or test[0] in only)]
    if options.list:
        print("\n".join(name for name, _ in tests))
        return 0
    if not os.access(harness.BEDPLATE, os.X_OK):
        sys.exit(f"tests/system/run.py: looking for the program: there is no {harness.BEDPLATE}; "
                 f"build it (make all), or name it with BEDPLATE=PATH")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit("stopped by a signal"))
    signal.signal(signal.SIGALRM, on_alarm)
    name, _, value = harness.RUN_MARK.partition("=")
    os.environ[name] = value
    return run_all(tests)


def is_chosen(name, patterns):
    return not patterns or any(pattern in name or fnmatch.fnmatchcase(name, pattern)
                               for pattern in patterns)


def on_alarm(*_):
    raise Failure(f"the test took more than {TEST_SECONDS_MAX} s")


def run_all(tests):
    before = Machine()
    outcomes = {"passed": [], "failed": [], "skipped": []}
    try:
        for name, function in tests:
            outcomes[run_one(name, function)].append(name)
    finally:
        harness.HUGEPAGES.give_back()
    outcomes[run_one("nothing_is_left", lambda _: before.expect_unchanged())].append("")
    for name in filter(None, outcomes["failed"]):  # those that can run alone
        print(f"failed: {name}")
    print(", ".join(f"{len(names)} {outcome}" for outcome, names in outcomes.items()))
    return 1 if outcomes["failed"] else 0


def run_one(name, function):
    """Runs a test, prints its line and returns its outcome."""
    box = harness.Sandbox()
    started = time.monotonic()
    signal.alarm(TEST_SECONDS_MAX)
    try:
        function(box)
        outcome, detail = "passed", ""
    except Skip as reason:
        outcome, detail = "skipped", f": {reason}"
    except Exception as error:  # any exception is a failure of this test
        outcome, detail = "failed", f"\n{indent(describe(error) + box.logs())}"
    finally:
        signal.alarm(0)
        box.close()
    print(f"{outcome:7} {name} ({time.monotonic() - started:.1f} s){detail}", flush=True)
    return outcome


def describe(error):
    """The message, and its origin in the tests."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if os.path.dirname(frame.filename) == os.path.dirname(os.path.abspath(__file__))]
    origin = " <- ".join(f"{os.path.basename(frame.filename)}:{frame.lineno}"
                         for frame in reversed(frames[2:] or frames))
    kind = "" if isinstance(error, Failure) else f"{type(error).__name__}: "
    return f"{kind}{error}\n({origin})\n"


def indent(text):
    return "".join(f"    {line}\n" for line in text.splitlines()).rstrip("\n")


class Machine:
    """The machine's state, which the tests must leave as it was."""

    def __init__(self):
        self.files = harness.possible_leftovers()
        folders = glob.glob("/sys/kernel/mm/hugepages/hugepages-*kB")
        self.page_sizes = [int(folder.split("-")[-1].removesuffix("kB")) * harness.KIB
                           for folder in folders]
        self.hugepages = self._hugepages()

    def _hugepages(self):
        return {size: harness.orphaned_hugepages(size) for size in self.page_sizes}

    def _differences(self):
        new = sorted(harness.possible_leftovers() - self.files)
        found = [f"file {path}" for path in new]
        found += [f"process {pid}: {command}"
                  for pid, command in harness.marked_processes().items()]
        found += [f"{pages} hugepages more than before of {size // harness.KIB} KiB"
                  for size, pages in harness.HUGEPAGES.raised.items() if pages]
        found += [f"{pages} hugepages of {size // harness.KIB} KiB that no process maps"
                  for size, pages in self._hugepages().items() if pages > self.hugepages[size]]
        return found

    def expect_unchanged(self):
        try:  # bounded: io_uring gives its pages back a moment after the process has ended
            harness.wait_for(lambda: not self._differences(), "the machine as it was")
        except Failure:
            raise Failure("left behind: " + "; ".join(self._differences())) from None


if __name__ == "__main__":
    sys.exit(main())
