#!/usr/bin/python3
"""Each source, and each header with code, needs a test of its name, or a line in tested_by.txt.

A header, its source and its data path are one unit (x.h, x.cc, x_datapath.cc); a C source is a unit
of its own. Its test is NAME_test.cc in the folder of tests/ that mirrors the unit's folder. The
test must reach the unit by includes (a header stands for its source, and a source without a header
for the headers that it includes) or name it; a Python test must contain a word of its name.

Prints a line for each missing test.
"""

import functools
import pathlib
import re

from includes import COMMENT_OR_TEXT, ROOT, headers_of_ours, text_of

FOLDERS = ("platform", "pinned_pool", "alloc", "transport", "apps")
TESTED_BY = ROOT / "scripts" / "tested_by.txt"
# The body of a function, not of a class or a table.
CODE = re.compile(r"\)(?:\s*(?:const|noexcept|override|\w+_\([^()]*\)|[:,]))*\s*\{(?!\s*\})")


def unit_of(path):
    """A C source is a program by itself: ping.c and ping.cc are two units."""
    name = path.name if path.suffix == ".c" else path.stem.removesuffix("_datapath")
    return path.parent, name


@functools.cache
def units():
    """The files of each unit, by folder and name."""
    found = {}
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*")):
            path = file.relative_to(ROOT)
            if path.suffix in (".c", ".cc", ".h"):
                found.setdefault(unit_of(path), []).append(path)
    return found


def has_code(files):
    return any(path.suffix != ".h" or CODE.search(COMMENT_OR_TEXT.sub("", text_of(str(path))))
               for path in files)


@functools.cache
def tests_said():
    """The tests of units without a test of their name: {"FOLDER/NAME": [test, ...]}."""
    lines = TESTED_BY.read_text(encoding="utf-8").splitlines()
    pairs = (line.split(": ") for line in lines if not line.startswith("#"))
    return {unit: tests.split(", ") for unit, tests in pairs}


@functools.cache
def reached_from(test):
    """The headers that a test includes, and those that their sources include, recursively."""
    reached, open_ = set(), {test}
    while open_:
        more = set().union(*(headers_of_ours(path) for path in open_)) - reached
        reached |= more
        open_ = {str(path) for header in more if header.endswith(".h")
                 for path in units().get(unit_of(pathlib.Path(header)), ())} - reached
    return reached


def exercises(test, folder, name, files):
    if f"{folder}/{name}" in text_of(test):
        return True
    if test.endswith("_test.py"):
        return any(re.search(word, text_of(test), re.IGNORECASE)
                   for word in name.split("_") if len(word) > 2)
    headers = [str(path) for path in files if path.suffix == ".h"] or re.findall(
        rf'^#include "({folder.parts[0]}/[^"]+)"', text_of(str(files[0])), re.MULTILINE)
    return any(header in reached_from(test) for header in headers)


def complaint(folder, name, files):
    said = tests_said().get(f"{folder}/{name}")
    name = name.removesuffix(".c")
    own = [test for test in (f"tests/{folder}/{name}_test.cc",) if (ROOT / test).is_file()]
    if own and said:
        return f"has a line in scripts/tested_by.txt ({said[0]}), but also {own[0]}"
    if not own and not said:
        return f"has no tests/{folder}/{name}_test.cc, and no line in scripts/tested_by.txt"
    if own and all(path.suffix == ".cc" for path in files):
        return None  # declared in a C header
    for test in own or said:
        if not test.startswith("tests/") or not (ROOT / test).is_file():
            return f"has a line in scripts/tested_by.txt with {test}, which does not exist"
        if not exercises(test, folder, name, files):
            return f"is not exercised by {test}"
    return None


def main():
    for (folder, name), files in units().items():
        told = complaint(folder, name, files) if has_code(files) else None
        if told:
            print(f"{files[0]}: {told}")
    there = {f"{folder}/{name}" for folder, name in units()}
    for unit in tests_said().keys() - there:
        print(f"scripts/tested_by.txt: {unit} does not exist")


if __name__ == "__main__":
    main()
