"""The probes of the program are those that docs/trace.md lists."""

import os
import re

from harness import BEDPLATE, expect, expect_true, need_tools, read_text, test

REPOSITORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def probes_of(box, program):
    """{name: its numbers of arguments}, of the provider bedplate."""
    need_tools("readelf")
    notes = box.run("readelf", "--wide", "--notes", program,
                    env={**os.environ, "LC_ALL": "C"}).stdout
    found = {}
    for name, arguments in re.findall(
            r"Provider: bedplate\n\s*Name: (\w+)\n.*\n\s*Arguments:(.*)", notes):
        found.setdefault(name, set()).add(len(arguments.split()))
    return found


@test()
def probes_are_those_of_the_document(box):
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", read_text(os.path.join(REPOSITORY,
                                                                          "docs/trace.md")), re.M)
    expect_true(len(rows) > 0, "docs/trace.md has no table of probes")
    expect(probes_of(box, BEDPLATE), {name: {len(arguments.split(","))} for name, arguments in rows},
           "the probes of the program")
