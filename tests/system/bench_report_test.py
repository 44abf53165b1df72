"""The report of the benchmarks, from made-up results: nothing is measured here."""

import contextlib
import io
import json
import os
import sys
import tempfile

from harness import Failure, expect, expect_in, test

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts", "bench"))
sys.dont_write_bytecode = True  # nothing is built in the source folders
import common  # noqa: E402
import report  # noqa: E402

MACHINE = {"kernel": "6.1", "cpu": "A & B", "cpus": 2}
BETTER, SAME = [110, 111, 112, 109, 110, 111, 112, 110], [100, 101, 99, 100, 100, 102, 99, 100]


def left(*rows):
    return {"machine": MACHINE, "date": "2026-01-02 03:04", "commands": ["taskset <1> run"],
            "report": list(rows)}


def made_in(files):
    """Returns the output of report.py, and its page."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        said, build, argv = io.StringIO(), report.BUILD, sys.argv
        report.BUILD, sys.argv = folder, ["report.py"]
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                report.main()
            with open(os.path.join(folder, "report.html"), encoding="utf-8") as file:
                return said.getvalue(), file.read()
        finally:
            report.BUILD, sys.argv = build, argv


@test()
def targets_that_are_missed_are_said(_box):
    row = common.row("4k reads", "k/s", {"bedplate": [90], "peer": [100]}, [
        common.compared("peer", [0.9], 1.0), common.compared("floor", [0.9], 0.8)])
    said, page = made_in({"nbd.json": json.dumps(left(row))})
    expect_in("nbd: 4k reads: 0.9 of peer, at least 1.0 NOT reached", said, "what is printed")
    expect_in("1 of 2 targets reached", said, "what is printed")
    expect_in("A &amp; B", page, "the page")
    expect_in("taskset &lt;1&gt; run", page, "the page")


@test()
def less_is_better_where_it_is_no_rate(_box):
    expect(common.compared("peer", [0.9, 1.2, 0.95], 1.0, is_rate=False)["reached"], True, "reached")
    expect(common.compared("peer", [0.9, 1.2, 1.1], 1.0, is_rate=False)["reached"], False, "reached")


@test()
def another_build_has_changed_beyond_the_noise_only(_box):
    faster = common.row("faster", "k/s", {"bedplate": BETTER, "other": SAME, "other-again": SAME})
    slower = common.row("slower", "ns", {"bedplate": BETTER, "other": SAME, "other-again": SAME},
                        is_rate=False)
    noisy = common.row("noisy", "k/s", {"bedplate": BETTER, "other": SAME, "other-again": [
        80, 120, 85, 115, 80, 120, 85, 115]})
    lines = dict(report.changes({"x": left(faster, slower, noisy)}))
    expect(len(lines), 3, "rows")
    for line, changed in lines.items():
        expect(changed, "noisy" not in line, line)
        expect(line.endswith("WORSE"), "slower" in line, line)


@test()
def a_file_that_is_cut_short_is_named(_box):
    try:
        made_in({"nbd.json": "{"})
    except common.BenchError as error:
        expect_in("nbd.json", str(error), "the error")
        expect_in("run that benchmark again", str(error), "the error")
        return
    raise Failure("it was taken")


@test()
def commands_have_no_random_names(_box):
    common.note_command(["serve", "/dev/shm/bedplate-bench-x1y2/a.toml", "tcp:40123"])
    expect_in("serve $WORK/a.toml tcp:$PORT", "\n".join(common.commands()), "the commands")
