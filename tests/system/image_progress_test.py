"""The progress report of building an image, shown if it takes long; the test sets its clock."""

import contextlib
import io
import os
import subprocess
import sys

from harness import expect, expect_in, expect_true, need_tools, test

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts/image")
sys.path.insert(0, FOLDER)
import build  # noqa: E402
import progress  # noqa: E402
from unit_texts import unit_texts  # noqa: E402

MIB = 1 << 20


class Clock:
    def __init__(self):
        self.tenths = 10_000

    def __call__(self):
        return self.tenths / 10


class Terminal(io.StringIO):
    """A terminal of 80 columns."""

    def isatty(self):
        return True

    def fileno(self):
        raise OSError("none")


@contextlib.contextmanager
def term(kind):
    before = os.environ.get("TERM")
    os.environ["TERM"] = kind
    try:
        yield
    finally:
        if before is None:
            del os.environ["TERM"]
        else:
            os.environ["TERM"] = before


def work(output, clock, steps, step_tenths=1):
    """Reports one of 100 MiB at each step."""
    with progress.Progress("compressing", 100 * MIB, output, clock) as told:
        for _ in range(steps):
            clock.tenths += step_tenths
            told.add(MIB)
    return output.getvalue()


@test()
def amounts_are_written_as_all_else_writes_them(_box):
    for _, number, text in unit_texts("bytes"):
        expect(progress.amount_text(number), text, f"{number} bytes")


@test()
def less_than_a_second_says_nothing(box):
    with term("xterm"):
        expect(work(Terminal(), Clock(), 9), "", "what a terminal shows")
    expect(work(io.StringIO(), Clock(), 49), "", "what a file has")


@test()
def a_file_has_a_line_every_five_seconds(box):
    said = work(io.StringIO(), Clock(), 22, 5).splitlines()
    expect(said, ["image: compressing: 10 MiB of 100 MiB (10 %), 2 MiB/s, 45 s left",
                  "image: compressing: 20 MiB of 100 MiB (20 %), 2 MiB/s, 40 s left"], "the lines")
    with term("dumb"):
        expect(work(Terminal(), Clock(), 22, 5).splitlines(), said, "a dumb terminal")


@test()
def a_terminal_has_a_bar(box):
    with term("xterm"):
        said = work(Terminal(), Clock(), 12).split(progress.WIPE)
    expect(len(said), 4, f"nothing, two bars, and a wiped line: {said}")
    expect((said[0], said[3]), ("", ""), "what is there before and after")
    expect(said[1], "##..................  compressing: 10 MiB of 100 MiB (10 %), 10 MiB/s, 9 s left",
           "the first bar, in 79 columns")


@test(columns=[1, 5, 30, 60, 80, 300])
def a_bar_fits_every_terminal(box, columns):
    line = progress.bar_line("compressing: 2 MiB of 100 MiB (2 %)", 0.5, columns)
    expect_true(len(line) < max(columns, 1), f"{len(line)} columns")


@test()
def what_is_compressed_is_the_same(box):
    """Compression in parts gives the same bytes as at once."""
    need_tools("zstd")
    plain = os.urandom(3 * MIB + 17) + bytes(2 * MIB)
    build.compress(plain, 3, box.path("pieces"))
    at_once = subprocess.run(["zstd", "-q", "-3", "--single-thread", "--no-check"], input=plain,
                             stdout=subprocess.PIPE, check=True).stdout
    with open(box.path("pieces"), "rb") as file:
        expect_true(file.read() == at_once, "the same bytes")


@test()
def a_compressor_that_fails_is_said(box):
    need_tools("zstd")
    try:
        build.compress(bytes(MIB), "no-level", box.path("none"))
    except SystemExit as ended:
        expect_in("image: running zstd", str(ended), "what is said")
    else:
        expect_true(False, "it ends")
