"""The service of coroutines in docs/services.md (apps/examples/visits.cc) does what the page says: it
counts on another shard, writes each line before it answers, and finishes both when it drains."""

import contextlib
import json
import os
import re
import signal
import socket
import struct

from harness import (BACKENDS, BEDPLATE, BOUND_SECONDS, Skip, expect, expect_in, expect_true,
                     free_port, need_backend, read_line, read_text, test, wait_for)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
VISITS = os.path.join(os.path.dirname(BEDPLATE), "examples", "visits")
PAGE = f"{ROOT}/docs/services.md"


def configuration(box, port, sockets="io_uring-or-epoll"):
    """Writes the page's configuration to a file, with 4 KiB pages, `port`, and the directory of
    `box`. Returns the path of the file."""
    text = re.search(r"```toml\n(.*?)```", read_text(PAGE), re.S)[1]
    text = text.replace("7007", str(port)).replace("[pool]\n", '[pool]\npages = "4 KiB"\n')
    text = text.replace("/var/lib/visits/journal", box.path("journal"))
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise Skip("2 shards need as many processors; this machine has 1")
    text = text.replace("cpu = 0", f"cpu = {cores[0]}").replace("cpu = 1", f"cpu = {cores[1]}")
    head = f'[appliance]\nruntime_directory = "{box.path("runtime")}"\n'
    return box.write("visits.toml", text.replace("[appliance]\n", head) +
                     f'[event_loop]\nsockets = "{sockets}"\n')


class Client:
    def __init__(self, box, port):
        self.socket = box.closing.enter_context(
            socket.create_connection(("127.0.0.1", port), BOUND_SECONDS))

    def say(self, text):
        self.socket.sendall(text.encode())

    def hear(self, line_count):
        """Returns that many lines, or those up to the end."""
        heard = b""
        while heard.count(b"\n") < line_count:
            part = self.socket.recv(4096)
            if not part:
                break
            heard += part
        return heard.decode()


@test()
def the_page_shows_the_example(_):
    (shown,) = re.findall(r"```cpp\n(.*?)```", read_text(PAGE), re.S)
    expect(shown, read_text(f"{ROOT}/apps/examples/visits.cc"), "the program of the page")


@test()
def its_connection_is_short(_):
    """A connection that others write in 40 lines takes at most 60 here."""
    text = read_text(f"{ROOT}/apps/examples/visits.cc")
    connection = re.search(r"^class Connection .*?^};\n", text, re.M | re.S)[0]
    expect_true(len(connection.splitlines()) <= 60, "the connection has at most 60 lines")


@test(sockets=BACKENDS)
def counts_and_keeps_each_line(box, sockets):
    need_backend(sockets)
    port = free_port()
    process = box.spawn([VISITS, "run", configuration(box, port, sockets)], "visits.log", stdout=-1)
    expect_in("ready", read_line(process.stdout.fileno()), "the first line")
    one, other = Client(box, port), Client(box, port)
    one.say("apple\nbanana\navocado\n")
    expect(one.hear(3), "1\n1\n2\n", "the counts of the first client")
    other.say("apricot\nblue")
    expect(other.hear(1), "3\n", "the count of the other client")
    other.say("berry\n")
    expect(other.hear(1), "2\n", "the count of a line that came in two parts")
    expect(sorted(read_text(box.path("journal")).splitlines()),
           ["apple", "apricot", "avocado", "banana", "blueberry"], "the journal")
    process.send_signal(signal.SIGTERM)
    expect(one.hear(1) + other.hear(1), "", "both connections are closed at the end")
    expect(process.wait(BOUND_SECONDS), 0, "the exit code")


@test()
def a_drain_finishes_all_lines_that_have_come(box):
    port = free_port()
    process = box.spawn([VISITS, "run", configuration(box, port)], "visits.log", stdout=-1)
    expect_in("ready", read_line(process.stdout.fileno()), "the first line")
    count = 100
    client = Client(box, port)
    client.say("go\n")
    expect(client.hear(1), "1\n", "the first answer")
    client.say("go\n" * count)
    heard = client.hear(1)  # it works on them
    process.send_signal(signal.SIGTERM)
    heard += client.hear(2 * count)
    expect(process.wait(BOUND_SECONDS), 0, "the exit code")
    kept = read_text(box.path("journal")).splitlines()
    expect(len(heard.splitlines()), len(kept) - 1, "the answers, one for each line that was kept")


@test()
def clients_that_vanish_leave_nothing_behind(box):
    port = free_port()
    process = box.spawn([VISITS, "run", configuration(box, port)], "visits.log", stdout=-1)
    expect_in("ready", read_line(process.stdout.fileno()), "the first line")

    def open_count():
        stats = box.run(VISITS, "stats", "--directory", box.path("runtime"), "--json").stdout
        return json.loads(stats)["services"]["visits"]["connections_open"]

    reset_at_close = struct.pack("ii", 1, 0)
    for _ in range(200):  # more than the 64 connections and their frames
        with contextlib.suppress(ConnectionError), \
                socket.create_connection(("127.0.0.1", port), BOUND_SECONDS) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset_at_close)
            client.sendall(b"gone\n")
    wait_for(lambda: open_count() == 0, "all connections are closed")
    client = Client(box, port)
    client.say("here\n")
    expect(client.hear(1), "1\n", "the answer to the last client")
    process.send_signal(signal.SIGTERM)
    expect(process.wait(BOUND_SECONDS), 0, "the exit code")
