"""Reports the progress of long work, as platform/progress.h does: a bar on a terminal, elsewhere a
line every five seconds. Work of less than a second reports nothing.

    with Progress("compressing", total_bytes) as progress:
        progress.add(piece)          # work in parts
    run_beside(progress.look, work)  # work in one long call
"""

import os
import sys
import threading
import time

BAR_FIRST_S, BAR_PERIOD_S, LINE_PERIOD_S = 1, 0.2, 5
CELLS_MAX, CELLS_MIN = 24, 8
WIPE = "\r\x1b[K"
UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes"))


def amount_text(count):
    """7.5 GiB, as format_rounded_bytes() of platform/units.h writes it."""
    count = int(count + 0.5)
    index = 0
    while index + 1 < len(UNITS) and count < UNITS[index][0] - UNITS[index + 1][0] // 2:
        index += 1
    one, unit = UNITS[index]
    tenths = (count * 10 + one // 2) // one
    if count % one == 0 or tenths >= 1000:
        return f"{(count + one // 2) // one} {unit}"
    return f"{tenths // 10}.{tenths % 10} {unit}"


def time_text(seconds):
    whole = int(seconds + 0.5)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60} min"


def bar_line(text, share, columns):
    """`share` of the work is done; None: unknown."""
    text = text[:columns - 1]
    spare = columns - 1 - len(text)
    if share is None or spare < CELLS_MIN + 2:
        return text
    cells = min(CELLS_MAX, spare - 2)
    full = int(share * cells)
    return "#" * full + "." * (cells - full) + "  " + text


class Progress:
    """`total` 0: the length is unknown. `output` and `clock` are for tests."""

    def __init__(self, doing, total=0, output=None, clock=time.monotonic):
        self.doing, self.total, self.done = doing, total, 0
        self.output = output or sys.stderr
        self.clock = clock
        self.has_bar = self.output.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb")
        self.begun = clock()
        self.due = self.begun + (BAR_FIRST_S if self.has_bar else LINE_PERIOD_S)
        self.is_drawn = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.is_drawn:
            self._write(WIPE)

    def add(self, count):
        self.done += count
        self.look()

    def look(self):
        """No further work is done, but a report may be due."""
        now = self.clock()
        if now < self.due:
            return
        self.due = now + (BAR_PERIOD_S if self.has_bar else LINE_PERIOD_S)
        if not self.has_bar:
            self._write(f"image: {self.text(now)}\n")
            return
        self.is_drawn = True
        share = min(self.done / self.total, 1) if self.total else None
        self._write(WIPE + bar_line(self.text(now), share, self._columns()))

    def text(self, now):
        passed = max(now - self.begun, 0.001)
        if not self.total:
            return f"{self.doing}: for {time_text(passed)} now"
        done = min(self.done, self.total)
        text = (f"{self.doing}: {amount_text(done)} of {amount_text(self.total)} "
                f"({done * 100 // self.total} %), {amount_text(done / passed)}/s")
        return text + (f", {time_text((self.total - done) / done * passed)} left" if done else "")

    def _columns(self):
        try:
            return os.get_terminal_size(self.output.fileno()).columns or 80
        except OSError:
            return 80

    def _write(self, text):
        self.output.write(text)
        self.output.flush()


def run_beside(look, work):
    """Returns the result of work(), and calls look() periodically until work() returns."""
    is_done = threading.Event()

    def look_on():
        while not is_done.wait(BAR_PERIOD_S):
            look()

    thread = threading.Thread(target=look_on)
    thread.start()
    try:
        return work()
    finally:
        is_done.set()
        thread.join()
