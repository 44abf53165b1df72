"""The messages to a supervisor (systemd), over a notify socket of the test's own, and the progress
of long work on a terminal."""

import contextlib
import os
import pty
import queue
import re
import shutil
import signal
import socket
import subprocess
import threading

from control_test import stopped_thread
from harness import (BEDPLATE, BOUND_SECONDS, Appliance, Failure, Skip, expect, expect_in, expect_true,
                     free_port, read_line, stopped, test, to_toml, wait_for)
from raw_nbd import connect
from shutdown_test import stuck_client


class Supervisor:
    """Receives all messages to its socket at once, because the kernel queues only a few."""

    def __init__(self, box, kind="path"):
        self.name = box.path("notify.sock") if kind == "path" else f"@bedplate-test-{os.getpid()}"
        self.address = self.name.replace("@", "\0")
        self.socket = box.closing.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        self.socket.bind(self.address)
        self.messages = queue.Queue()
        self.thread = threading.Thread(target=self._listen)
        self.thread.start()
        box.closing.callback(self._end)

    def _listen(self):
        while text := self.socket.recv(4096).decode():
            self.messages.put(dict(line.split("=", 1) for line in text.splitlines()))

    def _say(self, text):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
            own.sendto(text, self.address)

    def _end(self):
        self._say(b"")
        self.thread.join()

    def environment(self, watchdog_us=0):
        more = {"WATCHDOG_USEC": str(watchdog_us)} if watchdog_us else {}
        return {**os.environ, "NOTIFY_SOCKET": self.name, **more}

    def hear(self):
        """Returns the next message, as {name: value}."""
        try:
            return self.messages.get(timeout=BOUND_SECONDS)
        except queue.Empty:
            raise Failure(f"nothing was said for {BOUND_SECONDS} s") from None

    def hear_until(self, name, begin=""):
        """Returns all messages up to the first one whose `name` begins with `begin`."""
        heard = [self.hear()]
        while name not in heard[-1] or not heard[-1][name].startswith(begin):
            heard.append(self.hear())
        return heard

    def heard(self):
        """Returns the messages until now."""
        self._say(b"END=1")
        return self.hear_until("END")[:-1]


def of_ordinary_pages(box, layout="one_shard", **appliance):
    configuration = box.configuration(layout)
    configuration["pool"] = {"bytes": "160 MiB", "pages": "4 KiB"}
    configuration["blockd"]["volume"][0]["bytes"] = "16 MiB"
    configuration["appliance"] |= appliance
    return configuration


@test(kind=["path", "abstract"])
def is_told_each_step_from_the_boot_to_the_end(box, kind):
    supervisor = Supervisor(box, kind)
    configuration = of_ordinary_pages(box, "two_shards", drain_timeout_ms=7000)
    appliance = box.appliance(configuration, env=supervisor.environment(200_000))
    booting = supervisor.hear_until("READY")
    steps = [each["STATUS"].removeprefix("booting: ") for each in booting[:-1]]
    wanted = ["checking the machine", "taking memory", "blockd: preparing", "changing user",
              "starting shards", "network: starting the shard", "storage: starting the shard",
              "creating messengers", "creating peers", "creating groups", "blockd: creating",
              "sealing the pool", "notifying services"]
    # Steps of more than a second send more messages in between.
    expect([step for step in steps if step in wanted], wanted, "the steps of the boot")
    expect_true(all(int(each["EXTEND_TIMEOUT_USEC"]) >= 60_000_000 for each in booting
                    if each.get("STATUS", "").startswith("booting: ")), "each has its time")
    expect(booting[-1], {"READY": "1"}, "what says that it is ready")
    expect(supervisor.hear(), {"STATUS": "ready"}, "its status")
    serving = [each for _ in range(3) for each in supervisor.hear_until("WATCHDOG")]
    appliance.stop()
    *more, ending = supervisor.hear_until("STOPPING")
    # A busy machine may raise an alert, which changes the status.
    expect([each for each in serving + more if each != {"WATCHDOG": "1"} and
            not each.get("STATUS", "").startswith("ready")], [], "what else comes before the end")
    expect(ending, {"STOPPING": "1", "STATUS": "draining", "EXTEND_TIMEOUT_USEC": "44000000"},
           "the end: clients and files have 7 s each, the rest 30 s")
    expect_true(not any("READY" in each for each in supervisor.heard()), "nothing is ready any more")


@test()
def a_stuck_shard_is_not_answered_for(box):
    """While one shard is stuck, the control thread runs, but sends nothing to the watchdog."""
    supervisor = Supervisor(box)
    appliance = box.appliance(of_ordinary_pages(box, "two_shards"),
                              env=supervisor.environment(16_000))
    supervisor.hear_until("WATCHDOG")
    turns = 0

    def make_turns(count):
        nonlocal turns
        for _ in range(count):
            os.kill(appliance.pid, signal.SIGUSR1)
            turns += 1
            wait_for(lambda: appliance.stats()["signals"]["ignored"] == turns, "a turn")

    with stopped_thread(appliance.pid, "storage"):
        make_turns(2)  # the shard may have run until just now
        supervisor.heard()
        make_turns(10)
        expect([each for each in supervisor.heard() if "WATCHDOG" in each], [],
               "what the watchdog is told while a shard is stuck")
    supervisor.hear_until("WATCHDOG")
    appliance.stop()


@test()
def a_process_that_was_stopped_goes_on(box):
    supervisor = Supervisor(box)
    appliance = box.appliance(of_ordinary_pages(box), env=supervisor.environment(100_000))
    supervisor.hear_until("WATCHDOG")
    with stopped(appliance.pid):
        supervisor.heard()
    supervisor.hear_until("WATCHDOG")
    appliance.stop()


@test()
def what_needs_a_look_is_counted(box):
    configuration = of_ordinary_pages(box)
    del configuration["blockd"]
    # The pool has little more than the threads need: the heap is nearly exhausted.
    configuration["pool"] = {"bytes": "33 MiB", "pages": "4 KiB", "heap_min_bytes": "8 MiB"}
    configuration["http"] = {"listen": [f"tcp:127.0.0.1:{free_port()}"]}
    supervisor = Supervisor(box)
    appliance = box.appliance(configuration, env=supervisor.environment())
    heard = supervisor.hear_until("STATUS", "ready; ")
    expect_true(re.fullmatch(r"ready; (1 needs|\d+ need) a look: bedplate top", heard[-1]["STATUS"]),
                f"how many: {heard[-1]}")
    expect(sum("WATCHDOG" in each for each in heard), 0, "what a watchdog that is not there is told")
    appliance.stop()


@test(name=["/nowhere/notify.sock", "vsock:2:1", "@nobody-listens-here"])
def without_its_socket_it_serves_all_the_same(box, name):
    appliance = box.appliance(of_ordinary_pages(box),
                              env={**os.environ, "NOTIFY_SOCKET": name, "WATCHDOG_USEC": "1000"})
    connect(box, appliance).verify("nobody supervises it")
    expect_in(f"bedplate: warning: looking for the supervisor at NOTIFY_SOCKET={name}: ",
              appliance.log_text(), "its log")
    appliance.stop()


@test()
def a_configuration_that_is_refused_is_never_ready(box):
    supervisor = Supervisor(box)
    configuration = of_ordinary_pages(box)
    configuration["shard"][0]["cpu"] = 1023
    box.bedplate("run", box.write("bedplate.toml", to_toml(configuration)), expect_code=1,
                 env=supervisor.environment())
    expect([each for each in supervisor.heard() if "READY" in each], [], "what is said of it")


@test()
def the_unit_has_it_watched(box):
    """In the installed unit, systemd waits for READY=1, and ends an appliance that does not
    answer."""
    unit = box.bedplate("--unit").stdout
    keys = dict(re.findall(r"^(\w+)=(.*)$", unit, re.MULTILINE))
    expect({key: keys.get(key) for key in ("Type", "NotifyAccess", "WatchdogSec")},
           {"Type": "notify", "NotifyAccess": "main", "WatchdogSec": "30"}, "keys of the unit")
    expect(keys["ExecStart"], f"{os.path.realpath(BEDPLATE)} run /etc/bedplate/%i.toml",
           "the program of the unit")
    if shutil.which("systemd-analyze") is None:
        raise Skip("systemd-analyze is not installed")
    said = box.run("systemd-analyze", "verify", "--man=no", box.write("bedplate@.service", unit),
                   expect_code=None)
    expect(re.findall(r".*bedplate@.*", said.stderr), [], "what systemd says of the unit")


# ---- A terminal ----


@contextlib.contextmanager
def on_terminal(box, configuration, kind):
    """Starts an appliance whose standard error is a terminal. Yields it, and a function that
    returns all text of the terminal so far."""
    reader, writer = pty.openpty()
    os.set_blocking(reader, False)
    appliance = Appliance(box, configuration, env={**os.environ, "TERM": kind})
    appliance.process = box.spawn(appliance.argv, appliance.log, stdout=subprocess.PIPE,
                                  stderr=writer, **appliance.options)
    os.close(writer)
    seen = bytearray()

    def text():
        with contextlib.suppress(BlockingIOError, OSError):
            while part := os.read(reader, 65536):
                seen.extend(part)
        return seen.decode()

    try:
        expect(read_line(appliance.process.stdout.fileno()), "bedplate: ready\n", "its first line")
        yield appliance, text
    finally:
        os.close(reader)


def lines_of(text):
    """The lines that the terminal shows in the end, without wiped text."""
    return [line.rpartition("\r\x1b[K")[2].rstrip("\r") for line in text.split("\n")]


def begin_long_drain(box, appliance, text):
    client, _ = stuck_client(box, appliance)
    appliance.process.send_signal(signal.SIGTERM)
    wait_for(lambda: "signal 15, draining" in text(), "the drain")
    return client


@test()
def a_terminal_shows_a_bar(box):
    """A drain that waits for a client shows a bar; the log's lines continue above it."""
    with on_terminal(box, of_ordinary_pages(box, drain_timeout_ms=600_000), "xterm") as (appliance, text):
        client = begin_long_drain(box, appliance, text)
        wait_for(lambda: re.search(r"\r\x1b\[Kdraining: for \d+ s now, 10 min at most", text()),
                 "the bar")
        client.close()
        expect(appliance.wait_exit(), 0, "the exit code")
        lines = lines_of(text())
        expect([line for line in lines if line and not line.startswith("bedplate: ")], [],
               "lines that are none of the log")
        expect([line for line in lines if " s now" in line], [], "what is left of the bar")


@test()
def a_dumb_terminal_has_lines(box):
    with on_terminal(box, of_ordinary_pages(box, drain_timeout_ms=600_000), "dumb") as (appliance, text):
        client = begin_long_drain(box, appliance, text)
        wait_for(lambda: re.search(r"\nbedplate: draining: for \d+ s now, 10 min at most\r?\n",
                                   text()), "the line")
        client.close()
        expect(appliance.wait_exit(), 0, "the exit code")
        expect_true("\x1b" not in text(), f"no escape codes: {text()!r}")
