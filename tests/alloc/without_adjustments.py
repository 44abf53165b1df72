#!/usr/bin/python3
"""Leaves out each adjustment of mimalloc (scripts/mimalloc_adjustments.sh) in turn, and expects the
test that is named there to fail. With all adjustments the test must pass.

    /usr/bin/python3 tests/alloc/without_adjustments.py

Uses the existing release build (`make MODE=release tests`). The last line is `N passed, N failed,
N skipped`; the exit code is 1 if anything failed.
"""

import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
ENTRY = re.compile(r"^# Test: (.*)$\n(\w+)\(\) \{$", re.M)
# These are compiled from mimalloc's sources (scripts/mk/flags.mk).
OBJECTS = ("confined_mimalloc", "intercepting_heap", "heap_walk", "thread_heaps")
MADE_ANEW = (*(f"alloc/{name}.o" for name in OBJECTS), "libbedplate.a", "libbedplate-malloc.a",
             "bedplate-tests")


def adjustments():
    with open(os.path.join(ROOT, "scripts/mimalloc_adjustments.sh"), encoding="utf-8") as file:
        return [(name, test) for test, name in ENTRY.findall(file.read())]


def make_without(name):
    """Builds the unit tests without the adjustment `name`. Returns their path and the finished make."""
    folder = os.path.join("build", "without", name)
    shutil.rmtree(os.path.join(ROOT, folder), ignore_errors=True)
    subprocess.run([os.path.join(ROOT, "scripts/mimalloc.sh"), f"{folder}/mimalloc"], cwd=ROOT,
                   check=True, env={**os.environ, "WITHOUT": name})
    # Hard links to the release build's files. Files that are rebuilt are removed first, so that
    # make does not write into the release build.
    subprocess.run(["cp", "-al", "build/release", f"{folder}/release"], cwd=ROOT, check=True)
    for path in MADE_ANEW:
        os.remove(os.path.join(ROOT, folder, "release", path))
    # Without warnings: functions that only the adjustment calls are unused.
    made = subprocess.run(
        ["make", "--no-print-directory", "MODE=release", "DOZENS=1", "WARNINGS=-w",
         f"BUILD={folder}/release",
         f"MIMALLOC={folder}/mimalloc", f"{folder}/release/bedplate-tests"],
        cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return os.path.join(ROOT, folder, "release", "bedplate-tests"), made


def run_test(program, test):
    group, name = test.split(".")
    return subprocess.run([program, "-sg", group, "-sn", name], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)


def problem_of(name, test):
    """The reason why `test` does not show the need for the adjustment `name`; None: it does."""
    program, made = make_without(name)
    if test.startswith("a static_assert in "):
        if made.returncode == 0 or "static assertion failed" not in made.stdout:
            return f"it compiles without it:\n{made.stdout}"
        return None
    if made.returncode != 0:
        return f"it does not compile without it:\n{made.stdout}"
    whole = run_test(os.path.join(ROOT, "build/release/bedplate-tests"), test)
    if whole.returncode != 0 or " 1 ran" not in whole.stdout:
        return f"{test} fails with it, or is not there:\n{whole.stdout}"
    if run_test(program, test).returncode == 0:
        return f"{test} passes without it"
    return None


def main():
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for name, test in adjustments():
        if test.startswith("none;"):
            print(f"skipped {name}: {test}", flush=True)
            counts["skipped"] += 1
            continue
        problem = problem_of(name, test)
        print(f"passed  {name}" if problem is None else f"failed  {name}: {problem}", flush=True)
        counts["passed" if problem is None else "failed"] += 1
    shutil.rmtree(os.path.join(ROOT, "build", "without"), ignore_errors=True)
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    return 1 if counts["failed"] > 0 else 0


if __name__ == "__main__":
    sys.exit(main())
