"""An image in QEMU, watched from outside: its console line by line, its monitor, its end."""

import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

from runner import Crashed, Failure

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RUN = os.path.join(ROOT, "scripts", "image", "run.sh")
BOOT_SECONDS = 90
# Guests run the programs of build/MODE. Those of a debug build check their invariants.
MODE = os.environ.get("GUEST_MODE", "release")


def free_port():
    """Returns a port below the kernel's ephemeral range, so that no connection takes it in the
    meantime."""
    while True:
        port = random.randrange(20000, 32768)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Machine:
    """Runs scripts/image/run.sh with `image`, the options `options` of QEMU, and `settings` in its
    environment.

    `reboots`: a reset restarts the machine; otherwise it ends QEMU.
    """

    def __init__(self, image, *options, reboots=False, **settings):
        self.lines = []
        self._changed = threading.Condition()
        self._ended = False
        self._work = tempfile.TemporaryDirectory()
        self.port = free_port()
        self._events = []
        monitor = os.path.join(self._work.name, "qmp")
        # QEMU takes the last of two settings of one action.
        command = [RUN, image, "-qmp", f"unix:{monitor},server,nowait", *options]
        command += ["-action", "reboot=reset"] if reboots else []
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            encoding="utf-8", errors="replace",
            env=dict(os.environ, PORT=str(self.port), **{"MEMORY_MIB": "512", **settings}))
        self._reader = threading.Thread(target=self._read_console, daemon=True)
        self._reader.start()
        try:
            self._connect_monitor(monitor)
        except BaseException as error:
            Machine.__exit__(self, type(error), error, None)  # the subclass is not constructed yet
            raise

    def __enter__(self):
        return self

    def __exit__(self, _kind, error, _trace):
        if error is not None:
            error.add_note("the console's last lines:\n" + "\n".join(self.lines[-60:]))
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        self._work.cleanup()

    def _read_console(self):
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\r\n"))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    # ---- The monitor ----

    def _connect_monitor(self, path):
        deadline = time.monotonic() + 20
        self._monitor = socket.socket(socket.AF_UNIX)
        while True:
            try:
                self._monitor.connect(path)
                break
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise self.failure("QEMU's monitor is not there") from None
                time.sleep(0.02)
        self._answers = self._monitor.makefile("r", encoding="utf-8")
        self._answers.readline()
        self.command("qmp_capabilities")

    def command(self, name, /, **arguments):
        self._monitor.settimeout(60)
        request = {"execute": name, "arguments": arguments}
        self._monitor.sendall(json.dumps(request).encode() + b"\n")
        while True:
            line = self._answers.readline()
            if not line:
                raise self.failure(f"QEMU ended, and did not answer {name}")
            message = json.loads(line)
            if "event" in message:
                self._events.append(message)
            else:
                return message.get("return")

    def has_event(self, name):
        """True if the monitor has reported the event."""
        self.command("query-status")  # reads the events before its answer
        return any(event["event"] == name for event in self._events)

    def press_ctrl_alt_delete(self):
        self.command("send-key", keys=[{"type": "qcode", "data": key}
                                       for key in ("ctrl", "alt", "delete")])

    # ---- Waiting ----

    def failure(self, text):
        """The failure to raise. __exit__ adds the console's last lines to it."""
        if self._ended:
            self.process.wait(20)
        code = self.process.poll()
        if code in (-signal.SIGSEGV, -signal.SIGABRT):  # not a kill by a test
            return Crashed(f"{text}; QEMU was ended by signal {-code}")
        return Failure(text)

    def expect(self, pattern, seconds=BOOT_SECONDS, after=0):
        """Waits for a line of the console, from line number `after` on, and returns its match."""
        deadline = time.monotonic() + seconds
        seen = after
        with self._changed:
            while True:
                for line in self.lines[seen:]:
                    seen += 1
                    match = re.search(pattern, line)
                    if match:
                        return match
                if self._ended or not self._changed.wait(deadline - time.monotonic()):
                    raise self.failure(f"the console lacks {pattern!r}")

    def expect_ready(self):
        self.expect(r"bedplate: ready$")

    def expect_lines(self, *patterns, after=0):
        """As expect(), for lines in this order, with any others between them."""
        for pattern in patterns:
            self.expect(pattern, after=after)
            with self._changed:
                after = next(at for at in range(after, len(self.lines))
                             if re.search(pattern, self.lines[at])) + 1

    def expect_status(self, status, seconds=60):
        """Waits until the monitor says that the machine is `running`, `shutdown`, ..."""
        deadline = time.monotonic() + seconds
        while (seen := self.command("query-status")["status"]) != status:
            if time.monotonic() > deadline:
                raise self.failure(f"the machine's status is {seen}; expected {status}")
            time.sleep(0.05)

    def expect_end(self, reason, seconds=60, by_watchdog=False):
        """Waits until QEMU ends, and checks the reason (guest-shutdown, guest-reset, ...), and
        whether the watchdog caused it."""
        self._monitor.settimeout(seconds)
        try:
            for line in self._answers:
                self._events.append(json.loads(line))
            self.process.wait(seconds)
        except (OSError, subprocess.TimeoutExpired):
            raise self.failure("the machine did not end") from None
        self._reader.join()
        reasons = [event["data"]["reason"] for event in self._events
                   if event.get("event") == "SHUTDOWN"]
        if reasons != [reason]:
            raise self.failure(f"the machine ended by {reasons}; expected {reason}")
        if by_watchdog != any(event.get("event") == "WATCHDOG" for event in self._events):
            raise self.failure(f"the watchdog's part in it: {not by_watchdog}; expected "
                               f"{by_watchdog}")
