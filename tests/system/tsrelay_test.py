"""tsrelay, the relay for transport streams: bit-exact through tools that we did not write, and
everything that goes wrong beside it.

Nothing here is lost for want of time: kernel queues hold all that a test sends (`roomy_sockets`),
or the sender waits for what came out.
"""

import contextlib
import os
import random
import select
import signal
import socket
import struct

from harness import (BACKENDS, BEDPLATE, MIB, Appliance, Skip, expect, expect_in, expect_true,
                     need_backend, need_tools, read_text, test, to_toml, wait_for)
from other_host import OtherHost

EXAMPLES = os.path.join(os.path.dirname(BEDPLATE), "examples")
TSGEN, TSREADER = (os.path.join(EXAMPLES, name) for name in ("tsgen", "tsreader"))
TS_BYTES = 188
PAYLOAD_BYTES = 7 * TS_BYTES
VIDEO_PID = 0x101
IN_FLIGHT = 64  # packets that a sender has out at most, where it waits for what came


@contextlib.contextmanager
def roomy_sockets():
    """Sockets that are made meanwhile hold tens of thousands of packets before they drop any."""
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
    """The first of so many UDP ports in a row that nobody has."""
    while True:
        first = random.randrange(10000, 32768 - count) & ~1
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                one = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                one.bind((address, port))
            return first


def is_bound(port):
    """Whether somebody receives at this UDP port."""
    return any(line.split()[1].endswith(f":{port:04X}")
               for line in read_text("/proc/net/udp").splitlines()[1:])


def generate(box, seconds, rate=8_000_000, name="in.ts"):
    """A stream in a file that fills whole datagrams."""
    box.run(TSGEN, "--file", name, "--seconds", str(seconds), "--rate", str(rate))
    with open(box.path(name), "rb") as file:
        content = file.read()
    expect(len(content) % PAYLOAD_BYTES, 0, "bytes that fill no datagram")
    return content


def payloads_of(content):
    return [content[at:at + PAYLOAD_BYTES] for at in range(0, len(content), PAYLOAD_BYTES)]


def rtp(number, payload, ssrc=7, timestamp=None):
    timestamp = number * 200 if timestamp is None else timestamp
    return struct.pack(">BBHII", 0x80, 33, number & 0xFFFF, timestamp & 0xFFFFFFFF, ssrc) + payload


class Relay(Appliance):
    """An appliance with one stream, "news"."""

    def part(self, kind, name="news"):
        return self.stats()["services"]["tsrelay"][kind][name]

    def stream(self, counter):
        return self.part("streams")[counter]

    def leg(self, counter, index=0):
        return self.part("legs", f"news/{index}")[counter]

    def output(self, counter, name):
        return self.part("outputs", f"news/{name}")[counter]

    def wait_for_stream(self, counter, value):
        wait_for(lambda: self.stream(counter) >= value, f"{value} {counter}")


def start(box, legs, outputs, sockets="io_uring-or-epoll", tables=None, argv_prefix=(), **keys):
    need_backend(sockets)
    relay = Relay(box, {
        "appliance": {"name": "test", "runtime_directory": box.path("runtime"),
                      "drain_timeout_ms": 600_000},
        "pool": {"bytes": "192 MiB", "pages": "4 KiB"},
        "event_loop": {"sockets": sockets},
        "shard": [{"name": "main", "cpu": min(os.sched_getaffinity(0))}],
        "tsrelay": {"stream": [{"name": "news", "window_ms": 10_000, **keys,
                                "leg": legs, "output": outputs}]},
        **(tables or {}),
    }, argv_prefix=argv_prefix)
    box.appliances.append(relay)
    return relay.start()


class Receiver:
    """A socket that keeps what comes, and so lets a sender know how far it is."""

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

    def wait_for(self, count):
        def probe():
            select.select([self.socket], [], [], 0.05)
            self.drain()
            return len(self.datagrams) >= count

        wait_for(probe, f"{count} datagrams at port {self.port}")


def sender(box):
    return box.closing.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))


def send_all(out, datagrams, port, receivers, expected=lambda sent: sent):
    """Sends by `out`, and never has more than IN_FLIGHT on the way to any of the receivers, of which
    each is to have expected(how many were sent)."""
    for sent, datagram in enumerate(datagrams, 1):
        out.sendto(datagram, ("127.0.0.1", port))
        if sent % IN_FLIGHT and sent < len(datagrams):
            continue
        for receiver in receivers:
            receiver.wait_for(expected(sent))


def output(receiver, **keys):
    return {"to": f"127.0.0.1:{receiver.port}", **keys}


def spawn_multicat(box, *argv, log="multicat.log"):
    need_tools("multicat")
    return box.spawn(["multicat", *argv], log)


def finish(process):
    process.send_signal(signal.SIGTERM)
    process.wait()


def wait_for_file(box, name, size):
    wait_for(lambda: os.path.exists(box.path(name)) and os.path.getsize(box.path(name)) >= size,
             f"{size} bytes in {name}")


def expect_same(box, name, content):
    with open(box.path(name), "rb") as file:
        expect_true(file.read() == content, f"{name} is what was sent")


# ---- Bit-exact ----


@test(sockets=BACKENDS, size_mib=[int(os.environ.get("TSRELAY_MIB", "8"))])
def multicat_to_multicat(box, sockets, size_mib):
    """A stream by multicat through the relay to multicat, and into a recording."""
    need_tools("multicat", "ingests")
    with roomy_sockets():
        rate = 80_000_000
        content = generate(box, max(1, size_mib * MIB * 8 // rate), rate)
        box.run("ingests", "-p", str(VIDEO_PID), "in.ts")
        ports = free_ports(8)
        relay = start(box, [{"address": f"127.0.0.1:{ports}"}],
                      [{"to": f"127.0.0.1:{ports + 2}"}], sockets,
                      queue_packets=65536)
        relay.stop()
        relay.configuration["tsrelay"]["stream"][0]["recording"] = [{"path": box.path("rec.ts")}]
        relay = Relay(box, relay.configuration)
        box.appliances.append(relay)
        relay.start()
        receiving = spawn_multicat(box, "-U", f"@127.0.0.1:{ports + 2}", "out.ts")
        wait_for(lambda: is_bound(ports + 2), "multicat to receive")
        box.run("multicat", "-u", "in.ts", f"127.0.0.1:{ports}")
        wait_for_file(box, "out.ts", len(content))
        finish(receiving)
        expect_same(box, "out.ts", content)
        expect(relay.stream("lost"), 0, "packets lost")
        expect(relay.stream("ts_continuity_errors"), 0, "continuity errors")
        relay.stop()
        expect_same(box, "rec.ts", content)


@test(sockets=BACKENDS)
def a_hundred_outputs(box, sockets):
    """Each gets the same, in order, and two have no RTP."""
    receivers = [Receiver(box) for _ in range(100)]
    content = generate(box, 1)
    packets = [rtp(i, payload) for i, payload in enumerate(payloads_of(content))]
    port = free_ports(2)
    out = sender(box)
    relay = start(box, [{"address": f"127.0.0.1:{port}"}],
                  [output(each, plain=i < 2) for i, each in enumerate(receivers)], sockets)
    send_all(out, packets, port, receivers)
    for i, receiver in enumerate(receivers):
        expect_true(receiver.content(0 if i < 2 else 12) == content, f"output {i} is what was sent")
    expect(relay.stream("packets"), len(packets), "packets")
    expect(relay.output("packets", f"127.0.0.1:{receivers[99].port}"), len(packets), "of the last")
    wait_for(lambda: relay.stream("held") == 0, "all buffers to be back")
    relay.stop()


@test()
def gstreamer(box):
    """What GStreamer's jitter buffer and depayloader make of it."""
    need_tools("gst-launch-1.0")
    with roomy_sockets():
        content = generate(box, 2)
        ports = free_ports(4)
        relay = start(box, [{"address": f"127.0.0.1:{ports}"}], [{"to": f"127.0.0.1:{ports + 2}"}])
        caps = "application/x-rtp,media=video,clock-rate=90000,encoding-name=MP2T,payload=33"
        process = box.spawn(
            ["gst-launch-1.0", "udpsrc", f"port={ports + 2}", f"caps={caps}", "!",
             "rtpjitterbuffer", "!", "rtpmp2tdepay", "!", "filesink",
             f"location={box.path('out.ts')}", "buffer-mode=unbuffered"], "gst.log")
        wait_for(lambda: is_bound(ports + 2), "GStreamer to receive")
        box.run(TSGEN, "--to", f"127.0.0.1:{ports}", "--rtp", "--seconds", "2", "--rate", "8000000")
        wait_for_file(box, "out.ts", len(content))
        finish(process)
        expect_same(box, "out.ts", content)
        relay.stop()


@test()
def ffmpeg_reads_it_without_an_error(box):
    need_tools("ffmpeg")
    with roomy_sockets():
        ports = free_ports(4)
        relay = start(box, [{"address": f"127.0.0.1:{ports}"}],
                      [{"to": f"127.0.0.1:{ports + 2}", "plain": True}], pace_ms=50)
        reading = box.spawn(["ffmpeg", "-nostdin", "-v", "warning", "-i",
                             f"udp://127.0.0.1:{ports + 2}", "-frames:v", "100", "-f", "null", "-"],
                            "ffmpeg.txt")
        wait_for(lambda: is_bound(ports + 2), "ffmpeg to receive")
        sending = box.spawn([TSGEN, "--to", f"127.0.0.1:{ports}", "--rtp"], "tsgen.log")
        expect(reading.wait(60), 0, "ffmpeg's exit code")
        expect(read_text(box.path("ffmpeg.txt")), "", "what ffmpeg has to say")
        finish(sending)
        for counter in ("lost", "ts_continuity_errors", "ts_pat_errors", "ts_pmt_errors",
                        "ts_pid_errors", "ts_sync_losses"):
            expect(relay.stream(counter), 0, counter)
        expect_true(relay.stream("pcr_interval_max_ns") < 40_000_000, "PCRs come often enough")
        relay.stop()


# ---- Losses ----


@test(sockets=BACKENDS)
def two_legs_that_lose(box, sockets):
    """Of each leg 2 % are lost: what either brought is there, in order, and nothing else."""
    dice = box.dice()
    receiver = Receiver(box)
    content = generate(box, 4)
    payloads = payloads_of(content)
    ports = free_ports(4)
    relay = start(box, [{"address": f"127.0.0.1:{ports}"}, {"address": f"127.0.0.1:{ports + 2}"}],
                  [output(receiver)], sockets, window_packets=32)
    # The last ones are not lost, so that nothing is waited for in the end.
    lost = [{i for i in range(1, len(payloads) - 100) if dice.random() < 0.02} for _ in range(2)]
    both = lost[0] & lost[1] | {len(payloads) // 2}
    out = [sender(box), sender(box)]
    for i, payload in enumerate(payloads):
        for leg in range(2):
            if i not in lost[leg] and i not in both:
                out[leg].sendto(rtp(65000 + i, payload), ("127.0.0.1", ports + 2 * leg))
        if i % 16 == 15:  # a gap holds what is behind it, until the window has passed
            receiver.wait_for(i - 40 - len(both))
    wanted = [payload for i, payload in enumerate(payloads) if i not in both]
    receiver.wait_for(len(wanted))
    expect_true(receiver.content() == b"".join(wanted), "all but what both have lost")
    expect(relay.stream("lost"), len(both), "packets lost")
    expect(relay.leg("lost", 0), len(lost[0] | both), "of the first leg")
    expect(relay.leg("lost", 1), len(lost[1] | both), "of the second leg")
    expect(relay.stream("duplicates"),
           len(payloads) - len(lost[0] | lost[1] | both), "that came twice")
    relay.stop()


@test()
def fec_of_gstreamer(box):
    """GStreamer makes FEC; one packet of each other matrix is lost on its way to the relay."""
    need_tools("gst-launch-1.0")
    columns = rows = 5
    with roomy_sockets():
        receiver = Receiver(box)
        content = generate(box, 2)
        ports = free_ports(6)
        relay = start(box, [{"address": f"127.0.0.1:{ports}", "fec": True}], [output(receiver)])
        middle = {beside: Receiver(box, port) for beside, port in
                  ((0, free_ports(2)), (2, free_ports(2)), (4, free_ports(2)))}
        sink = "udpsink sync=false async=false host=127.0.0.1 port="
        box.run("gst-launch-1.0", *(
            f"filesrc location={box.path('in.ts')} blocksize={PAYLOAD_BYTES} ! "
            "video/mpegts,systemstream=true,packetsize=188 ! rtpmp2tpay ssrc=0 mtu=1328 ! "
            f"rtpst2022-1-fecenc name=enc columns={columns} rows={rows} ! {sink}{middle[0].port} "
            f"enc.fec_0 ! queue ! {sink}{middle[2].port} "
            f"enc.fec_1 ! queue ! {sink}{middle[4].port}").split())
        for each in middle.values():
            each.wait_for(1)
        media = middle[0].datagrams
        expect(len(media), len(content) // PAYLOAD_BYTES, "packets that GStreamer made")
        lost = {i for i in range(100, len(media) - 100) if i % (2 * columns * rows) == 7}
        out = sender(box)
        fec = sorted((struct.unpack(">H", d[12:14])[0], beside, d) for beside in (2, 4)
                     for d in middle[beside].datagrams)
        first = struct.unpack(">H", media[0][2:4])[0]
        fec = [((base - first) & 0xFFFF, beside, d) for base, beside, d in fec]
        fec.sort()
        for i, datagram in enumerate(media):
            if i not in lost:
                out.sendto(datagram, ("127.0.0.1", ports))
            while fec and fec[0][0] + 2 * columns * rows <= i:
                _, beside, sums = fec.pop(0)
                out.sendto(sums, ("127.0.0.1", ports + beside))
            if i == 99:
                relay.wait_for_stream("fec_packets", 1)  # from now on packets are held for FEC
            if i % 32 == 31:  # a gap holds what is behind it, until its FEC has come
                receiver.wait_for(i - 110)
        receiver.wait_for(len(media) - len(lost))
        relay.wait_for_stream("fec_recovered", len(lost))
        receiver.wait_for(len(media))
        expect_true(receiver.content() == content, "all of it is there")
        expect(relay.stream("lost"), 0, "packets lost")
        expect(relay.stream("fec_malformed"), 0, "FEC packets that made no sense")
        relay.stop()


@test()
def fec_for_gstreamer(box):
    """The relay makes FEC, and GStreamer brings back what is lost behind it."""
    need_tools("gst-launch-1.0")
    with roomy_sockets():
        content = generate(box, 2)
        behind = Receiver(box, free_ports(6))
        column, row = (Receiver(box, behind.port + beside) for beside in (2, 4))
        port = free_ports(2)
        relay = start(box, [{"address": f"127.0.0.1:{port}"}], [output(behind, fec=True)],
                      fec={"columns": 5, "rows": 5})
        out = sender(box)
        packets = [rtp(i, payload, ssrc=0) for i, payload in enumerate(payloads_of(content))]
        send_all(out, packets, port, [behind])
        wait_for(lambda: relay.stream("fec_sent") >= len(packets) // 5, "FEC to be made")
        for each in (behind, column, row):
            each.drain()
        expect(len(row.datagrams), len(packets) // 5, "packets for rows")
        relay.stop()
        media, columns, rows = (free_ports(2) for _ in range(3))
        caps = "caps=application/x-rtp,clock-rate=90000,payload="
        process = box.spawn(["gst-launch-1.0", *(
            f"rtpst2022-1-fecdec name=dec size-time=100000000000 ! rtpmp2tdepay ! filesink "
            f"location={box.path('out.ts')} buffer-mode=unbuffered "
            f"udpsrc port={media} {caps}33,media=video,encoding-name=MP2T ! dec.sink "
            f"udpsrc port={columns} {caps}96 ! queue ! dec.fec_0 "
            f"udpsrc port={rows} {caps}96 ! queue ! dec.fec_1").split()], "gst.log")
        wait_for(lambda: all(map(is_bound, (media, columns, rows))), "GStreamer to receive")
        lost = set(range(107, len(packets) - 100, 50))
        for i, datagram in enumerate(behind.datagrams):
            if i not in lost:
                out.sendto(datagram, ("127.0.0.1", media))
        size = len(content) - len(lost) * PAYLOAD_BYTES
        wait_for_file(box, "out.ts", size)
        for datagram in row.datagrams:
            out.sendto(datagram, ("127.0.0.1", rows))
        wait_for_file(box, "out.ts", len(content))
        finish(process)
        with open(box.path("out.ts"), "rb") as file:
            seen = payloads_of(file.read())
        # It hands on what it brings back when it has it.
        expect_true(sorted(seen) == sorted(payloads_of(content)), "all of it is there")


# ---- What goes wrong ----


@test(sockets=BACKENDS)
def an_output_that_refuses(box, sockets):
    """Nobody receives at two of five ports: the others get all of it."""
    receivers = [Receiver(box) for _ in range(3)]
    nobody = free_ports(4)
    content = generate(box, 2)
    port = free_ports(2)
    outputs = [{"to": f"127.0.0.1:{nobody}"}, output(receivers[0]),
               {"to": f"127.0.0.1:{nobody + 2}"}, output(receivers[1]), output(receivers[2])]
    relay = start(box, [{"address": f"127.0.0.1:{port}"}], outputs, sockets)
    out = sender(box)
    send_all(out, payloads_of(content), port, receivers)
    for receiver in receivers:
        expect_true(receiver.content(0) == content, "all of it")
    for beside in (0, 2):
        wait_for(lambda b=beside: relay.output("unreachable", f"127.0.0.1:{nobody + b}") > 0,
                 "the network to say that nobody is there")
    expect(relay.output("dropped", f"127.0.0.1:{receivers[0].port}"), 0, "dropped for another")
    relay.stop()


@test(sockets=BACKENDS)
def outputs_that_stall(box, sockets):
    """Over a cable, to an address that nobody answers for (its packets wait in the kernel for ARP)
    and to a receiver: that gets all of it."""
    host = OtherHost(box)
    receiver = Receiver(box, address=host.far_address, host=host)
    # A network on the same cable (RFC 5737), in which there is nobody else.
    box.run("ip", "address", "add", "192.0.2.1/24", "dev", host.near)
    nobody = "192.0.2.77"
    content = generate(box, 4)
    payloads = payloads_of(content)
    port = free_ports(2)
    out = sender(box)
    relay = start(box, [{"address": f"127.0.0.1:{port}"}],
                  [{"to": f"{nobody}:5004"}, {"to": f"{host.far_address}:{receiver.port}"}], sockets)
    send_all(out, payloads, port, [receiver])
    expect_true(receiver.content(0) == content, "all of it")
    wait_for(lambda: relay.output("is_aside", f"{nobody}:5004"), "a socket of its own")
    send_all(out, payloads, port, [receiver], expected=lambda sent: len(payloads) + sent)
    expect(relay.output("dropped", f"{host.far_address}:{receiver.port}"), 0, "dropped for another")
    relay.stop()


@test(sockets=BACKENDS)
def readers(box, sockets):
    """Two processes get the stream as loans; one that keeps them all is killed, and nobody else
    notices."""
    receiver = Receiver(box)
    content = generate(box, 2)
    port = free_ports(2)
    names = ("ann", "bob")
    processes = [{"name": name, "user": "root", "group": "main", "heap_bytes": "16 MiB",
                  "read": ["datagrams-0:tsrelay"]} for name in names]
    relay = start(box, [{"address": f"127.0.0.1:{port}"}], [output(receiver)], sockets,
                  {"group": [{"name": "main", "members": 3}], "process": processes}, readers=2)
    join = os.path.join(relay.runtime_directory, "test.join")
    ann = box.spawn([TSREADER, join, "ann", "news", "ann.ts"], "ann.log")
    bob = box.spawn([TSREADER, join, "bob", "news", "bob.ts", "--keep"], "bob.log")
    relay.wait_for_stream("readers", 2)
    half = len(payloads_of(content)) // 2
    packets = [rtp(i, payload) for i, payload in enumerate(payloads_of(content))]
    out = sender(box)
    send_all(out, packets[:half], port, [receiver])
    wait_for_file(box, "ann.ts", half * PAYLOAD_BYTES)
    wait_for(lambda: relay.part("readers")["lent"] == 32, "bob to have all that he may have")
    bob.kill()
    bob.wait()
    relay_readers = lambda counter: relay.part("readers")[counter]
    wait_for(lambda: relay_readers("lent") == 0, "bob's loans to be back")
    send_all(out, packets[half:], port, [receiver], expected=lambda sent: half + sent)
    wait_for_file(box, "ann.ts", len(content))
    expect_same(box, "ann.ts", content)
    expect_true(receiver.content() == content, "the other output has all of it, too")
    wait_for(lambda: relay.stream("held") == 0, "all buffers to be back")
    box.run(TSREADER, join, "bob", "weather", "none.ts", expect_code=1)
    relay.stop()
    expect(ann.wait(60), 0, "ann's exit code")
    expect_in("0 missing", read_text(box.path("ann.log")), "what ann says")


@test(sockets=BACKENDS)
def recordings_rotate(box, sockets):
    """By size, over files that are written in turn; together they are what came."""
    receiver = Receiver(box)
    content = generate(box, 2)
    port = free_ports(2)
    size = 400 * PAYLOAD_BYTES
    relay = start(box, [{"address": f"127.0.0.1:{port}"}], [output(receiver)], sockets,
                  recording=[{"path": box.path("rec"), "files": 4, "rotate_bytes": size}])
    payloads = payloads_of(content)
    recording = lambda counter: relay.part("recordings", "news/0")[counter]
    sent, out = 0, sender(box)
    for part in range(0, len(payloads), 400):
        some = payloads[part:part + 400]
        send_all(out, some, port, [receiver], expected=lambda n, s=sent: s + n)
        sent += len(some)
        wait_for(lambda s=sent: recording("packets") == s, "all of it to be written")
        # It is emptied by the control thread, about twice a second.
        wait_for(lambda: recording("is_next_ready"), "the next file to be empty")
    written = recording("files")
    expect_true(written >= 3, "several files were begun")
    relay.stop()
    # The last of them, in their order, are the end of what came.
    order = [(written - 1 - back) % 4 for back in range(min(written, 3))][::-1]
    seen = b""
    for number in order:
        with open(box.path(f"rec.{number}"), "rb") as file:
            piece = file.read()
        expect_true(len(piece) <= size, "no file is longer than it may be")
        seen += piece
    expect_true(seen and content.endswith(seen), "the files are what came last")


@test(sockets=BACKENDS)
def numbers_restart_and_senders_change(box, sockets):
    receiver = Receiver(box)
    content = generate(box, 1)
    payloads = payloads_of(content)
    third = len(payloads) // 3
    port = free_ports(2)
    relay = start(box, [{"address": f"127.0.0.1:{port}"}], [output(receiver)], sockets,
                  sender_timeout_ms=60_000)
    one, other = sender(box), sender(box)
    to = ("127.0.0.1", port)
    wanted = []
    for i, payload in enumerate(payloads[:2 * third]):
        number = i if i < third else i + 30_000
        one.sendto(rtp(number, payload), to)
        other.sendto(rtp(number + 777, payload, ssrc=8), to)  # a second sender
        other.sendto(rtp(number, payload), to)                # one that says it is the first
        wanted.append(payload)
        receiver.wait_for(len(wanted) - 1)
    receiver.wait_for(len(wanted))
    expect_true(receiver.content() == b"".join(wanted), "the first sender's packets")
    expect(relay.stream("restarts"), 1, "restarts")
    expect(relay.stream("lost"), 0, "packets lost")
    wait_for(lambda: relay.leg("foreign") == 4 * third, "the others to be counted")
    relay.stop()


@test(sockets=BACKENDS)
def malformed_packets(box, sockets):
    """Each is dropped for its cause, and what makes sense goes on."""
    dice = box.dice()
    receiver = Receiver(box)
    payloads = payloads_of(generate(box, 1))
    ports = free_ports(6)
    relay = start(box, [{"address": f"127.0.0.1:{ports}", "fec": True}], [output(receiver)], sockets)
    bad_rtp = [b"\x80", bytes(11), b"\x40" + bytes(50), b"\x8f" + bytes(20),
               b"\x90" + bytes(11) + b"\0\0\xff\xff", b"\xa0" + bytes(12)]
    bad_ts = [rtp(1, b""), rtp(1, bytes(187)), rtp(1, bytes(189)), bytes(12).replace(b"\0", b"\x80", 1)]
    bad_fec = [b"", bytes(28), rtp(0, bytes(40)), rtp(0, b"\0" * 4 + b"\x80" + bytes(100))]
    out = sender(box)
    for i, payload in enumerate(payloads):
        out.sendto(rtp(i, payload), ("127.0.0.1", ports))
        out.sendto(bad_rtp[i % len(bad_rtp)], ("127.0.0.1", ports))
        out.sendto(bad_ts[i % len(bad_ts)], ("127.0.0.1", ports))
        out.sendto(bad_fec[i % len(bad_fec)], ("127.0.0.1", ports + 2))
        out.sendto(dice.randbytes(dice.randrange(1400)), ("127.0.0.1", ports + 4))
        if i % 16 == 15:
            receiver.wait_for(i + 1)
    out.sendto(bytes(5000), ("127.0.0.1", ports))
    receiver.wait_for(len(payloads))
    expect_true(receiver.content() == b"".join(payloads), "what made sense")
    wait_for(lambda: relay.leg("truncated") == 1, "the one that is too long")
    expect(relay.leg("rtp_malformed"), len(payloads), "no RTP")
    expect(relay.leg("ts_malformed"), len(payloads), "no transport stream")
    wait_for(lambda: relay.stream("fec_malformed") == relay.stream("fec_packets") > len(payloads),
             "FEC that makes no sense")
    relay.stop()


@test()
def multicast_by_two_interfaces(box):
    """One group, by two legs that differ in their interface, from one source alone."""
    host = OtherHost(box)
    receiver = Receiver(box)
    port, group = free_ports(2), f"239.255.{random.randrange(256)}.{random.randrange(1, 255)}"
    payloads = payloads_of(generate(box, 1))
    relay = start(box, [{"address": f"{group}:{port}", "interface": "lo"},
                        {"address": f"{group}:{port}", "interface": host.near,
                         "source": host.far_address}],
                  [output(receiver)])

    def make(address):
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
        return made

    near = box.closing.enter_context(make("127.0.0.1"))
    far = box.closing.enter_context(host.run(lambda: make(host.far_address)))
    for i, payload in enumerate(payloads):
        for each in ([near, far], [near], [far])[i % 3 if i else 0]:
            each.sendto(rtp(i, payload), (group, port))
        receiver.wait_for(i + 1)
    expect_true(receiver.content() == b"".join(payloads), "what either leg brought")
    expect_true(relay.leg("packets", 0) > 0 and relay.leg("packets", 1) > 0, "both legs bring some")
    relay.stop()


@test()
def what_makes_no_sense_is_refused(box):
    """Each with its stream, its key and a cure, before anything is taken."""
    base = {"appliance": {"name": "test"}, "pool": {"bytes": "128 MiB", "pages": "4 KiB"},
            "shard": [{"name": "main", "cpu": 0}]}
    leg, out = [{"address": "127.0.0.1:5004"}], [{"to": "127.0.0.1:6004"}]
    for change, wanted in [
            ({"leg": [{"address": "nowhere"}]}, "nowhere"),
            ({"leg": [{"address": "127.0.0.1:0"}]}, "no such port"),
            ({"leg": [{"address": "127.0.0.1:5004", "source": "10.0.0.1"}]}, "no multicast group"),
            ({"leg": [{"address": "127.0.0.1:65533", "fec": True}]}, "no such port"),
            ({"leg": leg * 2, "format": "udp"}, "which packets are the same"),
            ({"output": out * 2}, "called the same"),
            ({"output": [{"to": "127.0.0.1:6004", "fec": True}]}, "no FEC for it"),
            ({"fec": {"columns": 20, "rows": 20}}, "100 packets at most"),
            ({"recording": [{"path": "/tmp/x", "files": 3}]}, "when to go on"),
            ({"output": [{"to": "127.0.0.1:6004", "network": "port9"}]}, "port9")]:
        stream = {"name": "news", "leg": leg, "output": out, **change}
        config = box.write("bad.toml", to_toml({**base, "tsrelay": {"stream": [stream]}}))
        done = box.bedplate("plan", config, expect_code=None)
        expect_true(done.returncode != 0, f"{change} is refused")
        expect_in(wanted, done.stderr, "what is said")
