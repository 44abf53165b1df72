"""`bedplate top` on a terminal: the screen of a VT100 of any size, and the state after the exit."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

from harness import (BEDPLATE, BOUND_SECONDS, Failure, expect, expect_in, expect_true, test,
                     wait_for)


class Vt100:
    """The few commands that `top` may use; any other is a failure."""

    COMMANDS = re.compile(rb"\x1b\[(\??)([0-9;]*)([A-Za-z])")

    def __init__(self, columns, rows):
        self.resize(columns, rows)
        self.left = b""

    def resize(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.clear()

    def clear(self):
        self.lines = [[" "] * self.columns for _ in range(self.rows)]
        self.at = (0, 0)

    def feed(self, data):
        data, self.left = self.left + data, b""
        while data:
            if data[0] != 0x1b:
                self.put(chr(data[0]))
                data = data[1:]
                continue
            found = self.COMMANDS.match(data)
            if not found:
                if len(data) > 16:
                    raise Failure(f"no command of a VT100: {data[:16]}")
                self.left = data
                return
            self.command(found[1].decode(), found[2].decode(), found[3].decode())
            data = data[found.end():]

    def put(self, letter):
        row, column = self.at
        if letter in "\r\n":
            self.at = (row + (letter == "\n"), 0 if letter == "\r" else column)
            return
        if not " " <= letter <= "~" or row >= self.rows or column >= self.columns:
            raise Failure(f"{letter!r} at line {row}, column {column} of {self.rows} x {self.columns}")
        self.lines[row][column] = letter
        self.at = (row, column + 1)

    def command(self, private, numbers, letter):
        if letter == "H":
            row, column = (numbers or "1;1").split(";")
            self.at = (int(row) - 1, int(column) - 1)
        elif letter == "J" and numbers == "2":
            at = self.at
            self.clear()
            self.at = at
        elif letter == "K" and not numbers:
            row, column = self.at
            if row < self.rows:
                self.lines[row][column:] = [" "] * (self.columns - column)
        elif not (letter == "m" and numbers in ("", "7")) and not (private and letter in "hl"):
            raise Failure(f"the command {private}{numbers}{letter} of no VT100")

    def text(self):
        return "\n".join("".join(line).rstrip() for line in self.lines)


class Console:
    """`top` with its own terminal. A size of 0 is like a serial line, whose size is unknown."""

    def __init__(self, box, directory, columns=80, rows=24, term="vt100", told=True, options=()):
        self.master, slave = pty.openpty()
        self.screen = Vt100(columns, rows)
        self.raw = b""
        if told:
            self.set_size(columns, rows)
        self.before = termios.tcgetattr(slave)
        environment = {name: value for name, value in os.environ.items()
                       if name not in ("LINES", "COLUMNS")}
        where = ["--directory", directory] if directory else []
        self.process = box.spawn([BEDPLATE, "top", *where, "--interval", "0.1", *options],
                                 "top.log", stdin=slave, stdout=slave, stderr=slave,
                                 start_new_session=True, env={**environment, "TERM": term},
                                 preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.slave = slave
        box.closing.callback(os.close, self.master)
        box.closing.callback(os.close, slave)

    def set_size(self, columns, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns, rows):
        self.wait_for_quiet()
        self.screen.resize(columns, rows)
        self.set_size(columns, rows)

    def read(self, seconds=0.1):
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        data = os.read(self.master, 65536)
        self.raw += data
        self.screen.feed(data)
        return True

    def wait_for_quiet(self):
        while self.read(0.01):
            pass

    def wait_for(self, test_of_text, what):
        end = time.monotonic() + BOUND_SECONDS
        while not test_of_text(self.screen.text()):
            if time.monotonic() > end or self.process.poll() is not None:
                raise Failure(f"{what}: the screen is\n{self.screen.text()}")
            self.read()

    def press(self, keys):
        os.write(self.master, keys.encode())

    def expect_end(self, code=0):
        end = time.monotonic() + BOUND_SECONDS
        while self.process.poll() is None and time.monotonic() < end:
            self.read()
        expect(self.process.poll(), code, "the exit code")
        expect(termios.tcgetattr(self.slave), self.before, "the terminal's settings")


@test(term=["vt100", "xterm-256color", "linux"])
def keys_do_what_they_say(box, term):
    appliance = box.appliance()
    top = Console(box, appliance.runtime_directory, term=term)
    top.wait_for(lambda text: f"test: pid {appliance.pid}, running" in text and "shard" in text,
                 "it shows the appliance")
    top.wait_for(lambda text: "at most" in text, "the graph")
    top.press("g")
    top.wait_for(lambda text: "at most" not in text, "no graph")
    top.press("/heap:\r")
    top.wait_for(lambda text: "shard" not in text and "heap:reserve" in text, "the filter")
    top.press("\x1b")
    top.wait_for(lambda text: "shard" in text, "no filter")
    top.press("\x1b[C\x1b[Cs")
    top.wait_for(lambda text: "shard, most " in text, "it is sorted")
    top.press(" ")
    top.wait_for(lambda text: "FROZEN" in text, "it is frozen")
    appliance.stop()
    top.press(" ")
    top.wait_for(lambda text: "looking for appliances" in text or "none is running" in text
                 or "No such file" in text, "that it has gone")
    top.press("q")
    top.expect_end()


@test(size=["20x5", "40x12", "200x60"])
def any_size_will_do(box, size):
    """Vt100 fails if anything is written beyond its edges."""
    columns, rows = map(int, size.split("x"))
    appliance = box.appliance()
    top = Console(box, appliance.runtime_directory, columns, rows)
    top.wait_for(lambda text: "test: pid" in text and "q:end" in text, "the screen")
    for keys in ("\x1b[B" * 5, "\x1b[6~" * 3, "\x1b[5~", "\x1b[F", "\x1b[H", "/o\r", "s", "\x1b", "g"):
        top.press(keys)
        top.wait_for_quiet()
    top.resize(columns + 7, rows + 3)
    top.wait_for(lambda text: text.splitlines()[-1].startswith("q:end"), "the keys below")
    top.press("q")
    top.expect_end()


@test()
def a_serial_line_is_80_by_24(box):
    appliance = box.appliance()
    top = Console(box, appliance.runtime_directory, told=False)
    top.wait_for(lambda text: len(text.splitlines()) == 24 and "q:end" in text, "the screen")
    top.press("\x03")
    top.expect_end()


@test(number=["SIGTERM", "SIGHUP", "SIGINT"])
def a_signal_leaves_the_terminal_as_it_was(box, number):
    appliance = box.appliance()
    top = Console(box, appliance.runtime_directory)
    top.wait_for(lambda text: "q:end" in text, "the screen")
    top.process.send_signal(getattr(signal, number))
    top.expect_end()


@test()
def a_dumb_terminal_gets_lines(box):
    appliance = box.appliance()
    top = Console(box, appliance.runtime_directory, rows=10000, term="dumb", told=False)
    top.wait_for(lambda text: text.count("test: pid") >= 2, "two looks")
    expect("\x1b" in top.raw.decode(), False, "commands to the terminal")
    appliance.stop()
    top.expect_end()


@test()
def names_of_a_foreign_file_do_not_steer_the_terminal(box):
    appliance = box.appliance()
    with open(os.path.join(appliance.runtime_directory, "test.stats"), "rb") as file:
        data = file.read()
    expect_true(data.count(b"ram0") > 0, "the name of a volume")
    os.mkdir(box.path("alien"))
    with open(box.path("alien/test.stats"), "wb") as file:
        file.write(data.replace(b"volume:ram0", b"volume\x1b[31m"))
    shown = box.bedplate("top", "--once", "--directory", box.path("alien")).stdout
    expect_in("volume?[31m", shown, "the text")
    expect("\x1b" in shown, False, "commands to the terminal")
    top = Console(box, box.path("alien"))
    top.wait_for(lambda text: "q:end" in text, "the screen")
    top.press("/volume\r")
    top.wait_for(lambda text: "volume?[31m" in text, "the name on the screen")
    top.press("q")
    top.expect_end()


@test()
def keys_are_heard_beside_a_line_that_is_silent(box):
    """Queries that take longer than the interval do not delay the keys."""
    master, slave = pty.openpty()
    box.closing.callback(os.close, master)
    box.closing.callback(os.close, slave)
    top = Console(box, None, options=["--serial", os.ttyname(slave)])
    top.wait_for(lambda text: "did not answer in time" in text, "what it says of the line")
    # The first interval begins with the screen. From the second query on, no time of the interval
    # is left.
    asked = bytearray()
    os.set_blocking(master, False)

    def count_of_looks():
        with contextlib.suppress(BlockingIOError):
            asked.extend(os.read(master, 4096))
        return asked.count(b"counters.read")
    wait_for(lambda: count_of_looks() >= 3, "the third look")
    top.press("q")
    top.expect_end()
