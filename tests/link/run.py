#!/usr/bin/python3
"""Links small programs as docs/allocator.md says, and looks whose malloc they have.

    tests/link/run.py [BUILD]       (build/release)

The last line is `N passed, N failed, N skipped`; the exit code is 1 when anything failed.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build/release"))
HERE = os.path.join(ROOT, "tests/link")
COMPILE = ["g++", "-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}"]
KINDS = {"static": ["-static"], "static-pie": ["-static-pie"], "pie": ["-pie"],
         "no-pie": ["-no-pie"]}
DYNAMIC_KINDS = ("pie", "no-pie")
BOOT_BYTES = "24 MiB"
WAYS = ("before main", "malloc", "calloc", "realloc", "reallocarray", "memalign", "aligned_alloc",
        "posix_memalign", "valloc", "pvalloc", "large malloc", "strdup", "new", "aligned new",
        "string", "thread")


def documented_lines():
    """The two link lines of docs/allocator.md: {"own": [...], "pool": [...]}."""
    with open(os.path.join(ROOT, "docs/allocator.md"), encoding="utf-8") as file:
        lines = [shlex.split(line) for line in re.findall(r"^ {4}(g\+\+ .*)$", file.read(), re.M)]
    own, pool = (line for line in lines if "program.o" in line)
    return {"own": own, "pool": pool}


def run(command, environment=None, expect_code=0):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, **(environment or {})})
    if done.returncode != expect_code:
        raise AssertionError(f"{shlex.join(command)}\nexit code {done.returncode}, expected "
                             f"{expect_code}:\n{done.stdout}{done.stderr}")
    return done.stdout


class Workshop:
    """Compiles and links into a directory of its own."""

    def __init__(self, directory):
        self.directory = directory
        self.lines = documented_lines()

    def path(self, name):
        return os.path.join(self.directory, name)

    def compile(self, name):
        run([*COMPILE, "-c", os.path.join(HERE, f"{name}.cc"), "-o", self.path(f"{name}.o")])

    def library(self):
        run([*COMPILE, "-shared", "-fPIC", os.path.join(HERE, "library.cc"), "-o",
             self.path("library.so")])
        return self.path("library.so")

    def link(self, name, whose, kind, *more):
        """Links NAME.o and `more` by the documented line, as an executable of `kind`."""
        output = self.path(f"{name}-{whose}-{kind}")
        line = [os.path.join(BUILD, word) if word.endswith(".a") else word
                for word in self.lines[whose]]
        line[line.index("program.o")] = self.path(f"{name}.o")
        line += [self.path(f"{other}.o") for other in more]
        line[line.index("program")] = output
        run([*line[:1], *KINDS[kind], *line[1:]])
        return output


def facts(program, environment=None):
    environment = {"BEDPLATE_BOOT_BYTES": BOOT_BYTES, **(environment or {})}
    return dict(line.split(": ", 1) for line in run([program], environment).splitlines())


def expected_facts(whose):
    segments = {"pool": {"segments": "1", "segment 0": BOOT_BYTES}, "own": {"segments": "0"}}
    return {**{way: whose for way in WAYS}, **segments[whose], "explicit": "pool"}


def compare(told, expected):
    wrong = {what: (told.get(what), expected.get(what)) for what in {*told, *expected}
             if told.get(what) != expected.get(what)}
    if wrong:
        raise AssertionError(f"told and expected: {wrong}")


def tests(workshop):
    """Pairs of a name and a function that raises when the test fails."""
    for whose in ("own", "pool"):
        for kind in KINDS:
            yield f"{whose} malloc, {kind}", lambda whose=whose, kind=kind: compare(
                facts(workshop.link("program", whose, kind)), expected_facts(whose))
            yield f"{whose} malloc, {kind}, unnamed", lambda whose=whose, kind=kind: compare(
                facts(workshop.link("quiet_program", whose, kind)), {"strdup": whose})
        for kind in DYNAMIC_KINDS:
            yield f"{whose} malloc, {kind}, opens a library", lambda whose=whose, kind=kind: run(
                [workshop.link("dlopen_program", whose, kind), whose, workshop.library()])
    for kind in KINDS:
        # The decision falls inside the first malloc: early, when the loader is still at work.
        yield f"ordinary memory by the environment, {kind}", lambda kind=kind: compare(
            facts(workshop.link("program", "pool", kind), {"BEDPLATE_LEAVE_PINNED": "no"}),
            expected_facts("own"))
        yield f"ordinary memory by a constant, {kind}", lambda kind=kind: compare(
            facts(workshop.link("program", "pool", kind, "constant")), expected_facts("own"))
        yield f"the environment before the constant, {kind}", lambda kind=kind: compare(
            facts(workshop.link("program", "pool", kind, "constant"),
                  {"BEDPLATE_LEAVE_PINNED": "yes"}), expected_facts("pool"))


def main():
    failed_count, passed_count = 0, 0
    with tempfile.TemporaryDirectory() as directory:
        workshop = Workshop(directory)
        for name in ("program", "quiet_program", "dlopen_program", "constant"):
            workshop.compile(name)
        for name, test in tests(workshop):
            try:
                test()
                passed_count += 1
                print(f"passed  {name}", flush=True)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                failed_count += 1
                print(f"failed  {name}\n{error}", flush=True)
    print(f"{passed_count} passed, {failed_count} failed, 0 skipped")
    return 1 if failed_count else 0


if __name__ == "__main__":
    sys.exit(main())
