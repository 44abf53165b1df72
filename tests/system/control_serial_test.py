"""[control] serial: requests to an appliance over a serial line, simulated by pseudoterminals,
and the answers that clients of such a line get."""

import contextlib
import fcntl
import json
import os
import pty
import select
import socket
import threading
import time
import tty

from control_test import stopped_thread
from harness import BOUND_SECONDS, KIB, Failure, expect, expect_in, test, to_toml, wait_for


class Line:
    """The other end of the appliance's line, which can be unplugged and plugged in again."""

    def __init__(self, box):
        self.path = box.path("near")
        self.received = b""
        self.plug()
        box.closing.callback(self.pull)

    def plug(self):
        self.master, self.held = pty.openpty()  # a terminal that nobody has open is an error
        tty.setraw(self.held)
        os.set_blocking(self.master, False)
        os.symlink(os.ttyname(self.held), self.path)

    def pull(self):
        if self.master is not None:
            os.close(self.master)
            os.close(self.held)
            os.unlink(self.path)
        self.master, self.received = None, b""

    def say(self, said):
        deadline = time.monotonic() + BOUND_SECONDS
        while said:
            with contextlib.suppress(BlockingIOError):
                said = said[os.write(self.master, said):]
            if said and not select.select([], [self.master], [], deadline - time.monotonic())[1]:
                raise Failure("the line takes nothing more")

    def line(self):
        deadline = time.monotonic() + BOUND_SECONDS
        while b"\n" not in self.received:
            if not select.select([self.master], [], [], max(0, deadline - time.monotonic()))[0]:
                raise Failure(f"no line comes, but {self.received[:200]}")
            with contextlib.suppress(BlockingIOError):
                self.received += os.read(self.master, 65536)
        line, self.received = self.received.split(b"\n", 1)
        return line

    def ask(self, method, others=None, **parameters):
        """Returns the answer to one request; earlier answers to others go to `others`."""
        own_id = os.urandom(8).hex()
        request = {"jsonrpc": "2.0", "id": own_id, "method": method, "params": parameters}
        self.say(b"\n" + json.dumps(request).encode() + b"\n")
        while True:
            line = self.line()
            with contextlib.suppress(ValueError):
                said = json.loads(line)
                if said["id"] == own_id:
                    return said
            if others is not None and line:
                others.append(line)


def configure(box, path, **keys):
    configuration = box.configuration("two_shards")
    configuration["control"] = {"serial": path, **keys}
    return configuration


def start(box):
    line = Line(box)
    return line, box.appliance(configure(box, line.path))


@contextlib.contextmanager
def bridged(line, other):
    """Copies bytes between the line and the descriptor `other` in the meantime."""
    stop_reader, stop_writer = os.pipe()
    os.set_blocking(other, False)

    def pump():
        ends = {line.master: other, other: line.master}
        while True:
            ready = select.select([stop_reader, *ends], [], [])[0]
            if stop_reader in ready:
                return
            for one in ready:
                with contextlib.suppress(BlockingIOError):
                    piece = os.read(one, 4096)
                    if not piece:
                        return
                    while piece:
                        select.select([], [ends[one]], [], BOUND_SECONDS)
                        piece = piece[os.write(ends[one], piece):]

    thread = threading.Thread(target=pump)
    thread.start()
    try:
        yield
    finally:
        os.close(stop_writer)
        thread.join(BOUND_SECONDS)
        os.close(stop_reader)


def open_line(path):
    """Opens a line that does not become the terminal of a runner that leads a session."""
    return open(os.open(path, os.O_RDWR | os.O_NOCTTY), "rb+", buffering=0)


@contextlib.contextmanager
def far_end(line):
    """The path of a serial device at the other end of the cable."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    try:
        with bridged(line, master):
            yield os.ttyname(slave)
    finally:
        os.close(slave)
        os.close(master)


@contextlib.contextmanager
def line_socket(box, line):
    """The path of a Unix socket at the other end, as QEMU makes one; it takes one client."""
    path = box.path("line.sock")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(path)
        listener.listen()
        listener.settimeout(BOUND_SECONDS)

        def serve():
            client, _ = listener.accept()
            with contextlib.closing(client), bridged(line, client.fileno()):
                gone.wait(BOUND_SECONDS)

        gone = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield path
        finally:
            gone.set()
            thread.join(BOUND_SECONDS)


def control_counters(appliance):
    return appliance.stats()["services"]["control"]


@test()
def answers_over_the_line(box):
    """The line answers like the socket, while both are in use. Long answers arrive complete."""
    line, appliance = start(box)
    said = line.ask("ping")["result"]
    expect((said["appliance"], said["pid"]), ("test", appliance.pid), "which appliance it is")
    for method in ("plan", "methods"):
        expect(line.ask(method)["result"], appliance.ask(method), method)
    expect(line.ask("blockd.hold", volume="ram0", on=True)["result"]["held"], True, "at a shard")
    said = appliance.ask("blockd.hold", volume="ram0", on=False)
    expect(said["held"], False, "it")
    expect(line.ask("pang")["error"]["code"], -32601, "the code of an unknown method")
    wait_for(lambda: control_counters(appliance)["connections_open"] == 0,
             "the last connection closes, and the line is none")
    expect(control_counters(appliance)["line_losses"], 0, "losses")


HOSTILE = {  # the bytes sent before a request, and the codes of the answers
    "nothing": (b"", []),
    "empty_lines": (b"\n\r\n \n", []),
    "noise": (b"\x00\xff\x80 login: \x03\x04\x11\x13", [-32700]),
    "half_a_request": (b'{"jsonrpc":"2.0","id":1,"met', [-32700]),
    "whole_requests": (b'{"jsonrpc":"2.0","id":1,"method":"pang"}\n' * 3, [-32601] * 3),
    "an_answer": (b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"an echo"}}\n', []),
    "oversized": (b"x" * 100 * KIB, [-32600]),
    "oversized_often": ((b"x" * 9000 + b"\n") * 5, [-32600] * 5),
    "deep": (b"[" * 8000, [-32700]),
}


@test(what=list(HOSTILE))
def hostile(box, what):
    """Each invalid line gets an error line, and then the line still works."""
    line, appliance = start(box)
    sent, codes = HOSTILE[what]
    # The answers are not read yet, so they must fit: the appliance reads no more from a full line.
    line.say(sent)
    others = []
    expect(line.ask("ping", others)["result"]["appliance"], "test", "what is answered then")
    expect([json.loads(one)["error"]["code"] for one in others], codes, "the codes")
    appliance.expect_alive()


@test()
def the_next_client_is_not_confused(box):
    """A partial request, or an answer that nobody read, does not confuse the next client."""
    line, appliance = start(box)
    line.say(b'{"jsonrpc":"2.0","id":1,"method":"methods"}\n{"jsonrpc":"2.0","id":1,"method":"pl')
    with far_end(line) as path:
        said = json.loads(box.bedplate("ctl", "--serial", path, "ping").stdout)
    expect(said, appliance.ask("ping"), "what ctl prints")
    line.say(b'{"jsonrpc":"2.0","id":1,"method":"methods"}\n{"jsonrpc":"2.0","id":1,"method":"pl')
    with line_socket(box, line) as path:
        said = json.loads(box.bedplate("ctl", "--socket", path, "plan").stdout)
    expect(said, appliance.ask("plan"), "what ctl prints")


@test()
def top_shows_what_the_line_says(box):
    line, appliance = start(box)
    shapes = []
    for option, opener in (("--serial", far_end), ("--socket", None)):
        with (opener(line) if opener else line_socket(box, line)) as path:
            line.say(b'{"left in the middle')
            told = box.bedplate("top", "--once", "--json", "--interval", "0.1", option, path).stdout
            seen, = json.loads(told)["appliances"]
            expect((seen["name"], seen["pid"], seen["running"]), ("test", appliance.pid, True), "whose")
            shapes.append(set(seen))
    expect_in("shard", shapes[0], "what there is")
    expect(shapes[0], shapes[1], "what both options show")
    for words in (["--serial", "x", "--socket", "y"], ["--serial", "x", "--from", "y"], ["--baud", "9600"],
                  ["--serial", "x", "--baud", "7"], ["--serial", "x", "test"]):
        box.bedplate("top", *words, expect_code=2)


@test()
def one_client_has_the_line(box):
    """A second client gets an error. The refusal of a method is reported as usual."""
    line, _ = start(box)
    with far_end(line) as path:
        said = box.bedplate("ctl", "--serial", path, "pang", expect_code=1).stderr
        expect_in(f"asking {path} for pang: there is no such method", said, "the refusal")
        with open_line(path) as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            said = box.bedplate("ctl", "--serial", path, "ping", expect_code=1).stderr
        expect_in(f"opening the serial line {path}: another process uses it; end that process: "
                  f"fuser -v {path}", said, "what the second one is told")
        box.bedplate("ctl", "--serial", path, "--baud", "9600", "ping")
    said = box.bedplate("ctl", "--serial", line.path, "ping", expect_code=1).stderr
    expect_in("another process uses it", said, "of the appliance's own end")


@test()
def what_ctl_does_not_take(box):
    for words, text in ((("--serial", "/dev/null", "--baud", "300"), "--baud takes 9600, 19200"),
                        (("--baud", "9600"), "--baud needs a serial line: name it with --serial"),
                        (("--serial", "/d", "--socket", "/s"),
                         "--serial cannot be combined with --sock"),
                        (("--socket", "/s", "--name", "n"),
                         "--socket cannot be combined with --name")):
        expect_in(text, box.bedplate("ctl", *words, "ping", expect_code=2).stderr, "the refusal")
    for words, text in ((("--serial", "/dev/null"), "/dev/null: it is not a serial line; name one"),
                        (("--serial", box.path("n")), "No such file or directory; name one"),
                        (("--socket", box.path("n")), "No such file or directory; check that")):
        expect_in(text, box.bedplate("ctl", *words, "ping", expect_code=1).stderr, "the failure")


@test()
def a_line_that_was_pulled_comes_back(box):
    line, appliance = start(box)
    for count in (1, 2):
        expect(line.ask("ping")["result"]["pid"], appliance.pid, "what is answered")
        line.pull()
        wait_for(lambda: control_counters(appliance)["line_losses"] == count, "the loss")
        expect(appliance.ask("ping")["pid"], appliance.pid, "over the socket")
        line.plug()
        expect(line.line(), b"", "what it begins with")
    expect(line.ask("ping")["result"]["pid"], appliance.pid, "what is answered then")
    expect(appliance.log_text().count("using the serial line"), 2, "lines, one for each")


@test()
def a_line_that_nobody_reads(box):
    """Unread answers are discarded after a while, and the next client is answered."""
    line, appliance = start(box)
    line.say(b'{"jsonrpc":"2.0","id":1,"method":"methods"}\n' * 60)
    wait_for(lambda: control_counters(appliance)["connections_timed_out"] >= 1, "the end of patience")
    expect(appliance.ask("ping")["pid"], appliance.pid, "over the socket")
    expect(line.ask("ping")["result"]["pid"], appliance.pid, "what is answered then")
    expect(control_counters(appliance)["line_losses"], 0, "losses")


@test()
def half_a_line_is_forgotten(box):
    line, appliance = start(box)
    expect(line.line(), b"", "what it begins with")
    line.say(b'{"jsonrpc":"2.0","id":1,')
    said = json.loads(line.line())
    expect((said["id"], said["error"]["message"]), (None, "the line did not end in 10 s"),
           "the answer")
    line.say(b'"method":"ping"}')
    expect(line.ask("ping")["result"]["pid"], appliance.pid, "what is answered then")


@test()
def a_shard_that_is_stuck(box):
    """The line still works, and requests that do not need that shard are answered."""
    line, appliance = start(box)
    with stopped_thread(appliance.pid, "storage"):
        said = line.ask("blockd.hold", volume="ram0", on=True)["error"]
        expect(said["code"], -32002, "the first answer")
        for _ in range(3):
            said = line.ask("blockd.hold", volume="ram0", on=True)["error"]
            expect(said["code"], -32000, "the next answers")
            expect(line.ask("ping")["result"]["pid"], appliance.pid, "another")
    wait_for(lambda: "result" in line.ask("blockd.hold", volume="ram0", on=False), "its turn")
    expect(control_counters(appliance)["line_losses"], 0, "losses")


@test()
def the_line_must_be_there(box):
    """A bad line is refused before anything is taken, with the cure."""
    line = Line(box)
    with open(box.path("file"), "w", encoding="utf-8"):
        pass
    taken = open_line(line.path)
    fcntl.flock(taken, fcntl.LOCK_EX)
    with contextlib.closing(taken):
        for path, text in ((box.path("none"), "No such file or directory; name one that exists"),
                           (box.path("file"), "it is not a serial line; name one that is: ls "),
                           ("/dev/null", "it is not a serial line; name one that is: ls "),
                           (line.path, "another process uses it; end that process: fuser -v "
                                       f"{line.path}")):
            config = box.write("bad.toml", to_toml(configure(box, path)))
            box.ensure_hugepages(config)
            for command in ("check", "run"):
                said = box.bedplate(command, config, expect_code=1).stderr
                expect_in(f"opening the serial line {path}: {text}", said, command)
    for keys, text in (({"serial_baud": 12345}, "write 9600, 19200, 38400"),
                       ({"serial_baud": 300}, "serial_baud")):
        config = box.write("bad.toml", to_toml(configure(box, line.path, **keys)))
        expect_in(text, box.bedplate("check", config, expect_code=2).stderr, "the refusal")
