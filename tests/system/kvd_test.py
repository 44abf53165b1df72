"""kvd, the key-value service, with a third-party client, and all its error cases."""

import os
import signal
import socket

from harness import (BACKENDS, BEDPLATE, BOUND_SECONDS, KIB, MIB, Appliance, expect, expect_in,
                     expect_true, free_port, need_backend, need_tools, test, to_toml,
                     wait_for)


KVGET = os.path.join(os.path.dirname(BEDPLATE), "examples", "kvget")


class KvdAppliance(Appliance):
    def _listener(self, kind):
        for text in self.configuration["kvd"]["listen"]:
            if text.startswith(kind):
                return text.removeprefix(kind)
        raise AssertionError(kind)

    def _socket_files(self):
        return [self._listener("unix:")]

    def counter(self, name):
        return self.stats()["services"]["kvd"][name]


def start(box, sockets, tables=None, **keys):
    need_backend(sockets)
    appliance = KvdAppliance(box, {
        "appliance": {"name": "test", "runtime_directory": box.path("runtime"),
                      "drain_timeout_ms": 600_000},  # long, so that it does not end the drain
        "pool": {"bytes": "128 MiB", "pages": "2 MiB"},
        "event_loop": {"sockets": sockets},
        "shard": [{"name": "main", "cpu": min(os.sched_getaffinity(0))}],
        "kvd": {"listen": [f"tcp:127.0.0.1:{free_port()}", f"unix:{box.path('kvd.sock')}"],
                "cache_bytes": "16 MiB", **keys},
        **(tables or {}),
    })
    box.appliances.append(appliance)
    return appliance.start()


class Client:
    def __init__(self, box, appliance, transport="tcp", receive_buffer_bytes=None):
        family = socket.AF_UNIX if transport == "unix" else socket.AF_INET
        self.socket = box.closing.enter_context(socket.socket(family))
        self.socket.settimeout(BOUND_SECONDS)
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.connect(appliance.address(transport))
        self.input = self.socket.makefile("rb")

    def send(self, data):
        self.socket.sendall(data)

    def line(self):
        return self.input.readline()

    def ask(self, data):
        self.send(data)
        return self.line()

    def store(self, key, value, command="set"):
        return self.ask(b"%s %s 0 0 %d\r\n%s\r\n" % (command.encode(), key, len(value), value))

    def get(self, key):
        """The value, or None."""
        head = self.ask(b"get %s\r\n" % key).split()
        if head == [b"END"]:
            return None
        value = self.input.read(int(head[3]) + 2)[:-2]
        expect(self.line(), b"END\r\n", "the end of a get")
        return value


@test(sockets=BACKENDS)
def memccapable(box, sockets):
    """Passes libmemcached's own test of the ASCII protocol."""
    need_tools("memccapable")
    appliance = start(box, sockets)
    host, port = appliance.address("tcp")
    seen = box.run("memccapable", "-a", "-h", host, "-p", str(port)).stdout
    expect_in("All tests passed", seen, "what memccapable says")
    expect_true("[FAIL]" not in seen, "no check fails")
    expect_true(seen.count("[pass]") >= 27, "all checks are run")
    appliance.stop()


@test(sockets=BACKENDS, transport=["tcp", "unix"])
def values_of_all_sizes(box, sockets, transport):
    """Values up to value_max_bytes are stored. Small values are copied; large values are received
    directly into their item."""
    appliance = start(box, sockets)
    client = Client(box, appliance, transport)
    for size in (0, 1, 100, 1023, 1024, 4096, 4097, 16 * KIB, 100_000, MIB):
        value = os.urandom(size)
        expect(client.store(b"key", value), b"STORED\r\n", f"a set of {size} bytes")
        expect_true(client.get(b"key") == value, f"a get of {size} bytes is what was set")
    expect(client.store(b"key", bytes(MIB + 1)), b"SERVER_ERROR object too large for cache\r\n",
           "a value larger than value_max_bytes")
    expect(client.get(b"key"), None, "what the client wanted gone")
    appliance.stop()


@test(sockets=BACKENDS)
def pipelines_in_any_pieces(box, sockets):
    """Requests that arrive in parts of any size are answered in order."""
    appliance = start(box, sockets)
    client = Client(box, appliance)
    requests = b"".join(b"set k%d 0 0 3\r\n%03d\r\nget k%d\r\n" % (i, i, i) for i in range(100))
    wanted = b"".join(b"STORED\r\nVALUE k%d 0 3\r\n%03d\r\nEND\r\n" % (i, i) for i in range(100))
    for piece in (1, 7, 1000, len(requests)):
        for at in range(0, len(requests), piece):
            client.send(requests[at:at + piece])
        expect(client.input.read(len(wanted)), wanted, f"answers to pieces of {piece}")
    appliance.stop()


@test(sockets=BACKENDS)
def full_memory_evicts(box, sockets):
    """Every set succeeds, items in use stay, and the counters have the evictions."""
    appliance = start(box, sockets)
    client = Client(box, appliance)
    client.store(b"wanted", b"kept")
    for i in range(400):
        expect(client.store(b"filler%d" % i, bytes(100_000)), b"STORED\r\n", "a set")
        expect(client.get(b"wanted"), b"kept", "what is asked for all the time")
    expect_true(appliance.counter("evictions") > 200, "evictions")
    expect_true(appliance.counter("bytes") <= 16 * MIB, "items lie in what was planned")
    expect(client.get(b"filler399") is None, False, "the latest is there")
    expect(client.get(b"filler0"), None, "the first filler")
    appliance.stop()


@test(sockets=BACKENDS)
def slow_reader(box, sockets):
    """The server stops reading from a client that reads nothing. Others are served, and the
    client's replies are right once it reads."""
    appliance = start(box, sockets)
    slow, other = Client(box, appliance, "unix"), Client(box, appliance)
    value = os.urandom(500_000)
    other.store(b"big", value)
    slow.socket.setblocking(False)
    sent = 0
    request = b"get big\r\n"

    def is_stuck():
        nonlocal sent
        try:
            while sent < 100 * MIB:
                sent += slow.socket.send(request * 1000)
        except BlockingIOError:
            pass
        before = appliance.counter("gets")
        expect(other.get(b"missing"), None, "another client's get")
        return appliance.counter("gets") == before + 1

    wait_for(is_stuck, "the slow client to be left alone")
    expect_true(sent < 4 * MIB, "what a client that reads nothing gets rid of")
    for i in range(100):
        expect(other.store(b"filler%d" % i, bytes(300_000)), b"STORED\r\n", "a set beside it")
    slow.socket.settimeout(BOUND_SECONDS)
    reply = b"VALUE big 0 500000\r\n" + value + b"\r\nEND\r\n"
    expect_true(slow.input.read(len(reply)) == reply, "the first reply")
    slow.socket.close()
    slow.input.close()
    wait_for(lambda: appliance.counter("connections_open") == 1, "the slow client's end")
    appliance.stop()


@test(sockets=BACKENDS)
def a_value_behind_a_reply_that_waits(box, sockets):
    """A set comes while a long reply is being sent, and the rest of its value comes afterwards."""
    appliance = start(box, sockets)
    client = Client(box, appliance, receive_buffer_bytes=4096)
    big, value = os.urandom(MIB), os.urandom(100_000)
    expect(client.store(b"big", big), b"STORED\r\n", "a set")
    for part in (0, 1, 1000):
        requests = b"get big\r\n" * 8 + b"set key 0 0 %d\r\n" % len(value) + value[:part]
        wanted = appliance.counter("received_bytes") + len(requests)
        client.send(requests)
        wait_for(lambda wanted=wanted: appliance.counter("received_bytes") == wanted, "all of it")
        reply = b"VALUE big 0 %d\r\n" % MIB + big + b"\r\nEND\r\n"
        expect_true(client.input.read(8 * len(reply)) == reply * 8, "eight replies")
        client.send(value[part:] + b"\r\n")
        expect(client.line(), b"STORED\r\n", f"a set whose value came after {part} bytes")
        expect_true(client.get(b"key") == value, "a get is what was set")
    appliance.stop()


@test(sockets=BACKENDS)
def malformed_lines(box, sockets):
    """Each malformed line is answered as in memcached, and the connection continues, except after
    an endless line."""
    appliance = start(box, sockets)
    client = Client(box, appliance)
    for line, answer in ((b"bogus", b"ERROR"), (b"get", b"ERROR"), (b"set a 0 0", b"ERROR"),
                         (b"get " + b"k" * 251, b"CLIENT_ERROR bad command line format"),
                         (b"set a 0 0 x", b"CLIENT_ERROR bad command line format"),
                         (b"incr a x", b"CLIENT_ERROR invalid numeric delta argument"),
                         (b"touch a x", b"CLIENT_ERROR invalid exptime argument")):
        expect(client.ask(line + b"\r\n"), answer + b"\r\n", f"the answer to {line[:20]}")
    expect(client.store(b"a", b"fine"), b"STORED\r\n", "a set after all that")
    expect(client.ask(b"x" * 20_000), b"CLIENT_ERROR line too long\r\n", "an endless line")
    wait_for(lambda: appliance.counter("connections_open") == 0, "its connection's end")
    appliance.stop()


@test(sockets=BACKENDS, transport=["tcp", "unix"])
def what_speaks_http_is_closed(box, sockets, transport):
    """No command in the body of an HTTP request is executed. The request is counted, and logged in
    one line."""
    appliance = start(box, sockets)
    body = b"\r\nset fromweb 0 0 5\r\npwned\r\n"
    page = Client(box, appliance, transport)
    page.send(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example\r\n"
              b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    try:
        expect(page.line(), b"", "what it hears")
    except ConnectionResetError:
        pass
    expect(Client(box, appliance).get(b"fromweb"), None, "what its body wanted to store")
    expect(appliance.counter("connections_foreign"), 1, "the count")
    log = appliance.log_text()
    expect_in("was disconnected: it speaks HTTP, and nothing of it was executed", log, "the log")
    expect(log.count("it speaks HTTP"), 1, "lines in it")
    appliance.stop()


@test(service=["kvd", "store"])
def in_clear_to_this_machine_alone(box, service):
    """A service of this program and an example service serve plain text to other machines only if
    the configuration allows it."""
    configuration = box.configuration()
    folder = os.path.dirname(BEDPLATE)
    program = {"kvd": BEDPLATE, "store": os.path.join(folder, "examples", "store")}[service]
    tables = {name: configuration[name] for name in ("appliance", "pool", "shard")}

    def planned(code=0, **keys):
        tables[service] = {"listen": ["tcp:127.0.0.1:11211"], **keys}
        return box.run(program, "plan", box.write("open.toml", to_toml(tables)),
                       expect_code=code).stderr

    address = "tcp:0.0.0.0:11211"
    cure = {"kvd": "set tls_certificate or tls_shared_keys in [kvd]",
            "store": "listen at tcp:127.0.0.1:PORT or unix:PATH"}[service]
    planned()
    for key in ("listen", "image_listen")[:2 if service == "kvd" else 1]:
        expect_in(f"{service}: planning to listen at {address}: other machines can reach it, "
                  f"and there is no TLS; {cure}; or, in a trusted network, set plain_text = "
                  f'"allowed" in [{service}]',
                  planned(2, **{key: [address]}), "what plan says")
        planned(**{key: [address], "plain_text": "allowed"})
    expect_in("no client could be served: there is no TLS", planned(2, plain_text="refused"),
              "what plan says where nobody could be served")


@test(sockets=BACKENDS, transport=["tcp", "unix"])
def a_thousand_keys_in_a_line(box, sockets, transport):
    """A client requests many keys in one line. An error reaches a client that is still sending."""
    appliance = start(box, sockets)
    client = Client(box, appliance, transport)
    keys = [b"session:%08d:user-profile-cache" % i for i in range(1000)]
    client.send(b"".join(b"set %s 0 0 1 noreply\r\nx\r\n" % key for key in keys))
    client.send(b"get " + b" ".join(keys) + b"\r\n")
    for key in keys:
        expect(client.line(), b"VALUE %s 0 1\r\n" % key, "a head")
        expect(client.line(), b"x\r\n", "a value")
    expect(client.line(), b"END\r\n", "the end")
    client.send(b"delete " + b" ".join(keys) + b"\r\n")
    expect(client.line(), b"CLIENT_ERROR line too long\r\n", "a line that is no get")
    expect(client.line(), b"", "then the end, and no reset")
    appliance.stop()


@test(sockets=BACKENDS)
def more_clients_than_planned(box, sockets):
    """One client too many is closed at once. A slot that becomes free is used again."""
    appliance = start(box, sockets, max_connections=2)
    first, second = Client(box, appliance), Client(box, appliance)
    expect(first.get(b"a"), None, "the first client")
    expect(second.get(b"a"), None, "the second client")
    expect(Client(box, appliance).line(), b"", "what the third one hears")
    expect(appliance.counter("connections_refused"), 1, "refused connections")
    second.send(b"quit\r\n")
    expect(second.line(), b"", "the answer to quit")
    wait_for(lambda: appliance.counter("connections_open") == 1, "the second client's end")
    expect(Client(box, appliance).get(b"a"), None, "its successor")
    appliance.stop()


@test(sockets=BACKENDS)
def drain(box, sockets):
    """Requests received whole are answered; the drain does not wait for half a request."""
    appliance = start(box, sockets)
    stuck = Client(box, appliance, "unix")
    idle, half = Client(box, appliance), Client(box, appliance)
    value = os.urandom(MIB)
    idle.store(b"big", value)
    stuck.send(b"get big\r\n" * 8)  # one send: the first reply shows that all arrived
    first = stuck.input.read(1)
    half.send(b"set a 0 0 100000\r\nnot all of it")
    wait_for(lambda: appliance.counter("connections_open") == 3, "all clients")
    appliance.process.send_signal(signal.SIGTERM)
    expect(idle.line(), b"", "what an idle client hears")
    expect(half.line(), b"", "what one hears whose request was half sent")
    appliance.expect_alive()
    reply = b"VALUE big 0 %d\r\n" % MIB + value + b"\r\nEND\r\n"
    expect_true(first + stuck.input.read(8 * len(reply) - 1) == reply * 8, "eight replies")
    expect(stuck.line(), b"", "then the end")
    expect(appliance.wait_exit(), 0, "the exit code after SIGTERM")
    appliance.expect_nothing_left()


@test()
def values_by_message(box):
    processes = [{"name": name, "user": "root", "group": "main", "heap_bytes": "16 MiB", **may}
                 for name, may in (("reader", {"read": ["kvd"]}), ("other", {}))]
    appliance = start(box, "epoll", {"group": [{"name": "main", "members": 3}],
                                     "process": processes})
    client = Client(box, appliance)
    short, long = b"s" * 1024, bytes(33 + i % 90 for i in range(200_000))
    client.store(b"short", short)
    client.store(b"long", long)
    join = [KVGET, box.path("runtime/test.join")]
    seen = box.run(*join, "reader", "short", "long", "none", expect_code=1).stdout
    expect(seen, f"{short.decode()}\n{long.decode()}\n(none)\n", "what one gets that may read")
    expect(box.run(*join, "reader", "long").stdout, f"{long.decode()}\n", "the loan came back")
    seen = box.run(*join, "other", "short", "long", expect_code=1).stdout
    expect(seen, f"{short.decode()}\n(not accessible)\n", "what one gets that may not")
    expect(appliance.counter("gets"), 6, "gets that were counted")


@test()
def counters_have_units_and_help(box):
    appliance = start(box, "epoll")
    client = Client(box, appliance)
    client.store(b"a", b"x")
    client.get(b"a")
    client.get(b"b")
    for name, value in (("gets", 2), ("hits", 1), ("misses", 1), ("sets", 1), ("items", 1)):
        expect(appliance.counter(name), value, f"the counter {name}")
    expect_true(0 < appliance.counter("bytes") <= 128, "the bytes of one small item")
    text = appliance.stats_text()
    for name in ("evictions", "connections_open"):
        expect_in(name, text, "stats")
    appliance.stop()
