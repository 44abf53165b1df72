"""`make` builds six programs from docs/first-service.md. Checks that they do what it says."""

import os
import re
import signal
import socket

from harness import (BEDPLATE, BOUND_SECONDS, Failure, expect, expect_in, free_port, read_line,
                     read_text, test)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
STEPS = range(1, 7)


def program(step):
    path = os.path.join(os.path.dirname(BEDPLATE), "examples", f"echo-{step}")
    if not os.path.exists(path):
        raise Failure(f"{path} is not there; `make products` builds it")
    return path


def configuration(box, port):
    """Writes the document's configuration to a file, with 4 KiB pages, `port` and the directory of
    `box`. Returns the path of the file."""
    text = re.search(r"```toml\n(.*?)```", read_text(f"{ROOT}/docs/first-service.md"), re.S)[1]
    text = text.replace("7007", str(port)).replace("[pool]\n", '[pool]\npages = "4 KiB"\n')
    directory = f'[appliance]\nruntime_directory = "{box.path("runtime")}"\n'
    return box.write("echo.toml", text.replace("[appliance]\n", directory))


@test()
def the_last_step_is_the_example(box):
    last = box.run(f"{ROOT}/scripts/first_service.py", str(STEPS[-1])).stdout
    expect(last, read_text(f"{ROOT}/apps/examples/echo.cc"), "the program of the last step")


@test(step=STEPS)
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


@test(step=[5, 6])
def echoes(box, step):
    port = free_port()
    config = configuration(box, port)
    process = box.spawn([program(step), "run", config], "echo.log", stdout=-1)
    expect_in("ready", read_line(process.stdout.fileno()), "the first line")
    with socket.create_connection(("127.0.0.1", port), BOUND_SECONDS) as client:
        for size in (1, 100, 100_000):
            text = os.urandom(size)
            seen = b""
            for at in range(0, size, 4000):
                client.sendall(text[at:at + 4000])
                while len(seen) < min(size, at + 4000):
                    seen += client.recv(4096)
            expect(seen == text, True, f"{size} bytes come back")
        if step == 6:
            stats = box.run(program(step), "stats", "echo", "--directory", box.path("runtime"))
            expect_in("97.8 KiB", stats.stdout, "the counter of bytes: 100101")
        process.send_signal(signal.SIGTERM)
        if step == 6:
            expect(client.recv(1), b"", "the client's connection is closed at the end")
    expect(process.wait(BOUND_SECONDS), 0, "the exit code")
