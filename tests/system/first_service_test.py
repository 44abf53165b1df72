"""`make` builds the programs of docs/first-service.md. Checks that they do what it says, and that
the page shows the example and a part of its unit test."""

import json
import os
import re
import signal
import socket
import subprocess
import sys

from harness import (BEDPLATE, BOUND_SECONDS, ROOT, Failure, Skip, expect, expect_in, expect_true,
                     free_port, need_tools, read_line, read_text, test)
from tls_test import KEY_LINE, secret

sys.path.insert(0, os.path.join(ROOT, "scripts"))
sys.dont_write_bytecode = True  # nothing is built in the source folders
import first_service  # noqa: E402

PAGE = f"{ROOT}/docs/first-service.md"
PACKAGE = os.path.join(os.path.dirname(BEDPLATE), "python")
LAST = 11
PROGRAMS = [step for step in range(1, LAST + 1) if step != 9]  # step 9 is the unit test
SECOND_SHARD = '[[shard]]\nname = "second"\ncpu = {cpu}\n'


def program(step):
    path = os.path.join(os.path.dirname(BEDPLATE), "examples", f"echo-{step}")
    if not os.path.exists(path):
        raise Failure(f"{path} is not there; `make products` builds it")
    return path


def configuration(box, port, more=""):
    """Writes the document's configuration to a file, with 4 KiB pages, `port`, the directory of
    `box`, and `more` at the end of [echo]. Returns the path of the file."""
    text = re.search(r"```toml\n(.*?)```", read_text(PAGE), re.S)[1]
    text = text.replace("7007", str(port)).replace("[pool]\n", '[pool]\npages = "4 KiB"\n')
    text = text.replace("/var/tmp/echo.journal", box.path("journal"))
    text = text.replace("cpu = 0", f"cpu = {min(os.sched_getaffinity(0))}")
    directory = f'[appliance]\nruntime_directory = "{box.path("runtime")}"\n'
    return box.write("echo.toml", text.replace("[appliance]\n", directory) + more)


def start(box, step, port, more=""):
    process = box.spawn([program(step), "run", configuration(box, port, more)], "echo.log",
                        stdout=-1)
    expect_in("ready", read_line(process.stdout.fileno()), "the first line")
    return process


def end(process):
    process.send_signal(signal.SIGTERM)
    expect(process.wait(BOUND_SECONDS), 0, "the exit code")


def hear(client, size):
    heard = b""
    while len(heard) < size:
        part = client.recv(size - len(heard))
        if not part:
            break
        heard += part
    return heard


@test()
def the_last_step_is_the_example(_):
    expect(first_service.program_of_step(LAST), read_text(f"{ROOT}/apps/examples/echo.cc"),
           "the program of the last step")


@test()
def the_page_shows_a_part_of_the_unit_test(_):
    (shown,) = first_service.blocks(9, "cpp")
    expect_in(shown, read_text(f"{ROOT}/apps/examples/echo_test.cc"), "the unit test")


@test(step=PROGRAMS)
def each_step_is_a_program(box, step):
    expect_in("appliance.name", box.run(program(step), "keys").stdout, "its keys")
    if step > 1:
        expect_in("echo.listen", box.run(program(step), "keys").stdout, "its own keys")
        box.run(program(step), "check", configuration(box, free_port()))
    if step > 2:
        plan = box.run(program(step), "plan", configuration(box, free_port())).stdout
        expect_in("\necho ", plan, "the plan")


@test()
def its_unit_test_passes(box):
    path = os.path.join(os.path.dirname(BEDPLATE), "examples", "echo-test")
    expect(box.run(path).stdout, "0 failed\n", "what the unit test prints")


@test(step=[step for step in PROGRAMS if step >= 5])
def echoes(box, step):
    port = free_port()
    process = start(box, step, port)
    sent = b""
    with socket.create_connection(("127.0.0.1", port), BOUND_SECONDS) as client:
        for size in (1, 100, 2000):
            lines = (b"e" * (size - 1) + b"\n") * 10
            client.sendall(lines)
            expect_true(hear(client, len(lines)) == lines, f"10 lines of {size} bytes come back")
            sent += lines
        if step >= 6:
            stats = box.run(program(step), "stats", "--directory", box.path("runtime"), "--json")
            expect(json.loads(stats.stdout)["services"]["echo"]["lines"], 30, "the counter")
        if step >= 7:
            expect_true(read_text(box.path("journal")).encode() == sent, "the lines are kept")
        process.send_signal(signal.SIGTERM)
        if step >= 6:
            expect(client.recv(1), b"", "the client's connection is closed at the end")
    expect(process.wait(BOUND_SECONDS), 0, "the exit code")


@test(step=[8, LAST])
def a_process_lends_bytes(box, step):
    """The page's program in Python, with the tables that the page names."""
    two = read_text(f"{ROOT}/apps/examples/two.toml")
    process = start(box, step, free_port(), two[two.index("[[group]]"):])
    (text,) = first_service.blocks(8, "python")
    told = box.run("/usr/bin/python3", "-B", "-c",
                   text.replace("/run/bedplate", box.path("runtime")),
                   env={**os.environ, "PYTHONPATH": PACKAGE}).stdout
    expect(told, "b'hello'\n", "what the process prints")
    end(process)


@test(step=[10, LAST])
def speaks_tls(box, step):
    """The page's client gets its lines back."""
    need_tools("openssl")
    (line,) = re.findall(r"^    (openssl .*)$", read_text(PAGE), re.M)
    expect_in(KEY_LINE.strip(), read_text(PAGE), "the page")
    port = free_port()
    process = start(box, step, port, 'plain_text = "refused"\n'
                    f'tls_shared_keys = "{secret(box, "keys.psk", KEY_LINE)}"\n')
    client = box.spawn(line.replace("7007", str(port)).split(), "client.log",
                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    client.stdin.write(b"hello\n")
    client.stdin.flush()
    expect(read_line(client.stdout.fileno()), "hello\n", "what the client hears")
    end(process)
    client.stdin.close()
    client.wait(BOUND_SECONDS)


@test()
def clients_are_on_both_shards(box):
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise Skip("2 shards need as many processors; this machine has 1")
    port = free_port()
    process = start(box, LAST, port, SECOND_SHARD.format(cpu=cores[1]))
    count = 40  # the kernel spreads them
    clients = [box.closing.enter_context(
        socket.create_connection(("127.0.0.1", port), BOUND_SECONDS)) for _ in range(count)]
    for client in clients:
        client.sendall(b"hello\nworld\n")
        expect(hear(client, 12), b"hello\nworld\n", "the lines that come back")
    expect(read_text(box.path("journal")), "hello\nworld\n" * count, "the journal")
    stats = json.loads(box.run(program(LAST), "stats", "--directory", box.path("runtime"),
                               "--json").stdout)["services"]["echo"]
    expect((stats["connections_open"], stats["lines"]), (count, 2 * count), "the whole service")
    each = [stats["echo"][shard]["connections_open"] for shard in ("main", "second")]
    expect(sum(each), count, "the clients of both shards")
    expect_true(min(each) > 0, "each shard has clients")
    end(process)
    for client in clients:
        expect(client.recv(1), b"", "the client's connection is closed at the end")
