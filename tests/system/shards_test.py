"""A service on two shards, the echo service of docs/first-service.md: its clients are spread, a
full shard gives them to the other one, and it drains, counts and refuses as one."""

import http.client
import json
import os
import signal
import socket

from harness import (BACKENDS, BEDPLATE, BOUND_SECONDS, Skip, expect, expect_in, expect_true,
                     free_port, need_backend, read_line, test, to_toml, wait_for)

ECHO = os.path.join(os.path.dirname(BEDPLATE), "examples", "echo-11")
SHARDS = ("main", "second")


def configuration(box, listen, name="echo", sockets="io_uring-or-epoll", http_port=None, **keys):
    """Writes the configuration of an appliance `name`; returns the path of the file."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < len(SHARDS):
        raise Skip(f"{len(SHARDS)} shards need as many processors; this machine has {len(cores)}")
    tables = {
        "appliance": {"name": name, "runtime_directory": box.path("runtime")},
        "pool": {"bytes": "128 MiB", "pages": "4 KiB"},
        "event_loop": {"sockets": sockets},
        "shard": [{"name": shard, "cpu": cpu} for shard, cpu in zip(SHARDS, cores)],
        "echo": {"listen": [listen], "journal": box.path(f"{name}.journal"), **keys},
    }
    if http_port:
        tables["http"] = {"listen": [f"tcp:127.0.0.1:{http_port}"]}
    return box.write(f"{name}.toml", to_toml(tables))


def start(box, *arguments, **keys):
    process = box.spawn([ECHO, "run", configuration(box, *arguments, **keys)], "echo.log",
                        stdout=-1)
    expect_in("ready", read_line(process.stdout.fileno()), "the first line")
    return process


def end(process):
    process.send_signal(signal.SIGTERM)
    expect(process.wait(BOUND_SECONDS), 0, "the exit code")


def counted(box):
    text = box.run(ECHO, "stats", "echo", "--directory", box.path("runtime"), "--json").stdout
    return json.loads(text)["services"]["echo"]


def on_each(counters, name="connections_open"):
    return [counters["echo"][shard][name] for shard in SHARDS]


class Client:
    def __init__(self, box, address):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = box.closing.enter_context(socket.socket(family, socket.SOCK_STREAM))
        self.socket.settimeout(BOUND_SECONDS)
        self.socket.connect(address)

    def is_served(self):
        """Tells whether a line comes back; no: the connection was closed."""
        try:
            self.socket.sendall(b"hello\n")
            return self.socket.recv(6) == b"hello\n"
        except ConnectionError:
            return False


@test(sockets=BACKENDS)
def clients_of_a_unix_socket_are_spread(box, sockets):
    need_backend(sockets)
    path = box.path("echo.sock")
    process = start(box, f"unix:{path}", sockets=sockets)
    for _ in range(8):
        expect_true(Client(box, path).is_served(), "each client is served")
    counters = counted(box)
    expect(on_each(counters), [4, 4], "the clients of each shard")
    expect((counters["connections_open"], counters["lines"]), (8, 8), "the whole service")
    expect(on_each(counters, "lines"), [4, 4], "the lines of each shard")
    expect(counters["connections_moved"], 4, "the clients that the first shard gave away")
    wait_for(lambda: counted(box)["connections_moving"] == 0, "all have arrived")
    end(process)


@test(sockets=BACKENDS)
def a_full_shard_gives_its_clients_to_the_other(box, sockets):
    """The kernel spreads clients as it likes; all places of both shards are used nevertheless."""
    need_backend(sockets)
    port = free_port()
    process = start(box, f"tcp:127.0.0.1:{port}", sockets=sockets, max_connections=16)
    clients = [Client(box, ("127.0.0.1", port)) for _ in range(16)]
    for client in clients:
        expect_true(client.is_served(), "each client is served")
    counters = counted(box)
    expect(on_each(counters), [8, 8], "the clients of each shard")
    expect(counters["connections_refused"], 0, "the refused clients")
    expect(Client(box, ("127.0.0.1", port)).is_served(), False, "one more client is served")
    expect(counted(box)["connections_refused"], 1, "the refused clients")
    clients[3].socket.close()
    wait_for(lambda: counted(box)["connections_open"] == 15, "the place is free")
    expect_true(Client(box, ("127.0.0.1", port)).is_served(), "its place serves another one")
    end(process)


@test()
def drains_as_one(box):
    path = box.path("echo.sock")
    process = start(box, f"unix:{path}")
    clients = [Client(box, path) for _ in range(4)]
    for client in clients:
        expect_true(client.is_served(), "each client is served")
    process.send_signal(signal.SIGTERM)
    for client in clients:
        expect(client.socket.recv(1), b"", "the end of the connection")
    expect(process.wait(BOUND_SECONDS), 0, "the exit code")


@test()
def a_second_appliance_is_told_that_the_address_is_in_use(box):
    """The sockets of the shards share their port with one another, and with nobody else."""
    port = free_port()
    address = f"tcp:127.0.0.1:{port}"
    process = start(box, address)
    other = configuration(box, address, name="other")
    for command in ("run", "check"):
        done = box.run(ECHO, command, other, expect_code=None)
        expect_true(done.returncode != 0, f"{command} is refused")
        expect_in(f"listening at {address}: Address already in use", done.stdout + done.stderr,
                  f"what {command} says")
    expect_true(Client(box, ("127.0.0.1", port)).is_served(), "the first one serves")
    end(process)


@test()
def is_placed_where_its_table_says(box):
    path = box.path("echo.sock")
    process = start(box, f"unix:{path}", shards=["second"])
    expect_true(Client(box, path).is_served(), "a client is served")
    counters = counted(box)
    expect(counters["connections_open"], 1, "the clients")
    expect_true("echo" not in counters and "moves" not in counters, "there are no shards to tell")
    end(process)
    for shards, told in ((["third"], 'no shard has the name "third"; expected one of: main, '),
                         (["main", "main"], 'element 2 of "shards" appears twice'),
                         ("every", '"shards" is a string; expected list of shards: "all", or 1'),
                         ([], '"shards" has 0 elements')):
        done = box.run(ECHO, "check", configuration(box, f"unix:{path}", shards=shards),
                       expect_code=2)
        expect_in(told, done.stdout + done.stderr, "what check says")


@test()
def metrics_have_the_sum_and_each_shard(box):
    path, port = box.path("echo.sock"), free_port()
    process = start(box, f"unix:{path}", http_port=port)
    clients = [Client(box, path) for _ in range(4)]
    for client in clients:
        expect_true(client.is_served(), "each client is served")

    def metrics():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=BOUND_SECONDS)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return text

    wait_for(lambda: "\nbedplate_echo_lines_total{} 4\n" in metrics(), "the sum")
    for shard in SHARDS:
        expect_in(f'\nbedplate_echo_echo_lines_total{{shard="{shard}"}} 2\n', metrics(),
                  "the metrics")
    end(process)
