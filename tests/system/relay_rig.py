"""The rig of tsrelay's tests: a relay with one stream, senders and receivers.

No datagram is lost because the machine is slow: kernel queues hold every packet of a test
(`roomy_sockets`), or the sender waits for the output.
"""

import contextlib
import mmap
import os
import random
import select
import signal
import socket
import struct

from harness import (BEDPLATE, BOUND_SECONDS, MIB, Appliance, Skip, expect, expect_true,
                     need_backend, need_tools, read_text, wait_for, wait_for_all)

EXAMPLES = os.path.join(os.path.dirname(BEDPLATE), "examples")
TSGEN, TSREADER = (os.path.join(EXAMPLES, name) for name in ("tsgen", "tsreader"))
TS_BYTES = 188
PAYLOAD_BYTES = 7 * TS_BYTES
VIDEO_PID = 0x101
IN_FLIGHT = 64  # most packets in flight of a sender that waits for arrivals


@contextlib.contextmanager
def roomy_sockets():
    """Sockets made in the meantime hold tens of thousands of packets before they drop any."""
    names = ["/proc/sys/net/core/rmem_max", "/proc/sys/net/core/rmem_default"]
    before = {name: read_text(name) for name in names}
    try:
        try:
            for name in names:
                with open(name, "w", encoding="ascii") as file:
                    file.write(str(128 * MIB))
        except OSError as error:
            raise Skip(f"the kernel's socket queues cannot be made larger: {error.strerror}") \
                from None
        yield
    finally:
        for name, value in before.items():
            with contextlib.suppress(OSError), open(name, "w", encoding="ascii") as file:
                file.write(value)


def free_ports(count, address="127.0.0.1"):
    """The first of this many consecutive free UDP ports."""
    while True:
        first = random.randrange(10000, 32768 - count) & ~1
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                one = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                one.bind((address, port))
            return first


def sockets_at(port):
    """The words of the kernel's line for each socket that receives at this UDP port."""
    lines = [line.split() for line in read_text("/proc/net/udp").splitlines()[1:]]
    return [words for words in lines if words[1].endswith(f":{port:04X}")]


def is_bound(port):
    """True if a socket receives at this UDP port."""
    return bool(sockets_at(port))


def expect_no_drops(port, whose):
    """Fails if a receiver's own socket has dropped datagrams: the relay did not lose them."""
    for words in sockets_at(port):
        expect(int(words[-1]), 0, f"datagrams that {whose} socket at port {port} dropped")


def generate_file(box, seconds, rate=8_000_000, name="in.ts"):
    """Generates a stream file of whole datagrams. Returns its path."""
    box.run(TSGEN, "--file", name, "--seconds", str(seconds), "--rate", str(rate),
            timeout=BOUND_SECONDS + seconds)
    expect(os.path.getsize(box.path(name)) % PAYLOAD_BYTES, 0, "bytes that fill no datagram")
    return box.path(name)


def generate(box, seconds, rate=8_000_000, name="in.ts"):
    """Generates a stream file. Returns its content."""
    with open(generate_file(box, seconds, rate, name), "rb") as file:
        return file.read()


def payloads_of(content):
    return [content[at:at + PAYLOAD_BYTES] for at in range(0, len(content), PAYLOAD_BYTES)]


class FilePayloads:
    """The datagrams of a file, read on demand: a stream of ten minutes has gigabytes."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self._bytes = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def __len__(self):
        return len(self._bytes) // PAYLOAD_BYTES

    def __getitem__(self, index):
        return self._bytes[index * PAYLOAD_BYTES:(index + 1) * PAYLOAD_BYTES]


def rtp(number, payload, ssrc=7, timestamp=None):
    timestamp = number * 200 if timestamp is None else timestamp
    return struct.pack(">BBHII", 0x80, 33, number & 0xFFFF, timestamp & 0xFFFFFFFF, ssrc) + payload


class Relay(Appliance):
    """An appliance with one stream, "news"."""

    def part(self, kind, name="news"):
        return self.stats()["services"]["tsrelay"][kind][name]

    def stream(self, counter, name="news"):
        return self.part("streams", name)[counter]

    def leg(self, counter, index=0):
        return self.part("legs", f"news/{index}")[counter]

    def output(self, counter, name):
        return self.part("outputs", f"news/{name}")[counter]

    def wait_for_stream(self, counter, value):
        wait_for(lambda: self.stream(counter) >= value, f"{value} {counter}")


def start(box, legs, outputs, sockets="io_uring-or-epoll", tables=None, argv_prefix=(), **keys):
    """A relay with one stream, "news"."""
    stream = {"name": "news", "window_ms": 10_000, **keys, "leg": legs, "output": outputs}
    return start_streams(box, [stream], sockets, tables, argv_prefix)


def start_streams(box, streams, sockets="io_uring-or-epoll", tables=None, argv_prefix=()):
    need_backend(sockets)
    relay = Relay(box, {
        "appliance": {"name": "test", "runtime_directory": box.path("runtime"),
                      "drain_timeout_ms": 600_000},
        "pool": {"bytes": "192 MiB", "pages": "4 KiB"},
        "event_loop": {"sockets": sockets},
        "shard": [{"name": "main", "cpu": min(os.sched_getaffinity(0))}],
        "tsrelay": {"stream": streams},
        **(tables or {}),
    }, argv_prefix=argv_prefix)
    box.appliances.append(relay)
    return relay.start()


class Receiver:
    """A socket that stores received datagrams, so that a sender can see its progress."""

    def __init__(self, box, port=0, address="127.0.0.1", host=None):
        def make():
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.bind((address, port))
            return made

        self.socket = box.closing.enter_context(host.run(make) if host else make())
        self.socket.setblocking(False)
        self.port = self.socket.getsockname()[1]
        self.datagrams = []

    def drain(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                self.datagrams.append(self.socket.recv(65536))

    def content(self, header_bytes=12):
        return b"".join(datagram[header_bytes:] for datagram in self.datagrams)

    def count(self):
        return len(self.datagrams)

    def wait_for(self, count):
        def probe():
            select.select([self.socket], [], [], 0.05)
            self.drain()
            return self.count() >= count

        wait_for(probe, f"{count} datagrams at port {self.port}")


class Comparing(Receiver):
    """A receiver that stores nothing: it compares arrivals with the expected datagrams. The first
    `may_lack` datagrams may be missing."""

    def __init__(self, box, payloads, may_lack=0, **options):
        super().__init__(box, **options)
        self.payloads, self.may_lack, self.seen = payloads, may_lack, 0

    def count(self):
        return self.seen

    def drain(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                datagram = self.socket.recv(2048)
                while self.seen < self.may_lack and datagram[12:] != self.payloads[self.seen]:
                    self.seen += 1
                expect_true(datagram[12:] == self.payloads[self.seen],
                            f"packet {self.seen} at port {self.port} is what was sent")
                self.seen += 1


class Chosen:
    """Some of the payloads, in the order of their indices."""

    def __init__(self, payloads, indices):
        self._payloads, self._indices = payloads, indices

    def __len__(self):
        return len(self._indices)

    def __getitem__(self, index):
        return self._payloads[self._indices[index]]


def gstreamer_packets(path):
    """The packets of a file of `rtpstreampay` (RFC 4571): each follows its length."""
    with open(path, "rb") as file:
        while length := file.read(2):
            yield file.read(struct.unpack(">H", length)[0])


def sender(box):
    return box.closing.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))


def send_all(out, datagrams, port, receivers, expected=lambda sent: sent):
    """Sends through `out`, with at most IN_FLIGHT packets in flight to any receiver. A receiver
    should have expected(number sent) packets."""
    for sent, datagram in enumerate(datagrams, 1):
        out.sendto(datagram, ("127.0.0.1", port))
        if sent % IN_FLIGHT and sent < len(datagrams):
            continue
        for receiver in receivers:
            receiver.wait_for(expected(sent))


def output(receiver, **keys):
    return {"to": f"127.0.0.1:{receiver.port}", **keys}


def spawn_multicat(box, *argv, log="multicat.log", **options):
    need_tools("multicat")
    return box.spawn(["multicat", *argv], log, **options)


def finish(process):
    process.send_signal(signal.SIGTERM)
    process.wait()


def wait_for_file(box, name, size):
    path = box.path(name)
    wait_for_all(lambda: os.path.getsize(path) if os.path.exists(path) else 0, size,
                 f"bytes in {name}")


def expect_same(box, name, content):
    with open(box.path(name), "rb") as file:
        expect_true(file.read() == content, f"{name} is what was sent")
