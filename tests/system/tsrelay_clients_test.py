"""tsrelay between third-party tools: multicat, GStreamer, FFmpeg, VLC.

TSRELAY_SECONDS and TSRELAY_MIB extend the long tests (make check-long).
"""

import collections
import contextlib
import os
import re
import select
import struct
import time

from harness import (BACKENDS, BOUND_SECONDS, MIB, expect, expect_true, need_tools, read_text,
                     test, wait_for, wait_for_all)
from relay_rig import (PAYLOAD_BYTES, TSGEN, VIDEO_PID, Chosen, Comparing, FilePayloads, Receiver,
                       Relay, expect_no_drops, expect_same, finish, free_ports, generate,
                       generate_file, gstreamer_packets, is_bound, output, payloads_of,
                       roomy_sockets, rtp, send_all, sender, spawn_multicat, start, start_streams,
                       wait_for_file)


def memory_of(relay):
    """The bytes of the pool, its registrations, and the heap bytes of the relay."""
    stats = relay.stats()
    return (stats["pool"]["total_bytes"], stats["pool"]["registrations"],
            stats["heap_owner"]["heap:tsrelay"]["used_bytes"])


@test(sockets=BACKENDS, size_mib=[int(os.environ.get("TSRELAY_MIB", "8"))])
def multicat_to_multicat(box, sockets, size_mib):
    """multicat sends a stream through the relay to multicat, and into a recording."""
    need_tools("multicat", "ingests")
    with roomy_sockets():
        rate = 16_000_000  # multicat's own socket holds 1 MiB: here, a third of a second
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
        wait_for_all(lambda: relay.stream("packets"), len(content) // PAYLOAD_BYTES,
                     "packets in the relay")
        expect_no_drops(ports + 2, "multicat's")
        wait_for_file(box, "out.ts", len(content))
        finish(receiving)
        expect_same(box, "out.ts", content)
        expect(relay.stream("lost"), 0, "packets lost")
        expect(relay.stream("ts_continuity_errors"), 0, "continuity errors")
        relay.stop()
        expect_same(box, "rec.ts", content)


@test(streams=[24])
def many_streams(box, streams):
    """multicat sends streams of 20 Mbit/s each to receivers that compare them."""
    need_tools("multicat", "ingests")
    seconds = int(os.environ.get("TSRELAY_SECONDS", "3"))
    with roomy_sockets():
        payloads = FilePayloads(generate_file(box, seconds, 20_000_000))
        box.run("ingests", "-p", str(VIDEO_PID), "in.ts", timeout=BOUND_SECONDS + seconds)
        receivers = [Comparing(box, payloads) for _ in range(streams)]
        ports = [free_ports(2) for _ in range(streams)]
        names = [f"s{i}" for i in range(streams)]
        relay = start_streams(box, [
            {"name": name, "leg": [{"address": f"127.0.0.1:{port}"}], "output": [output(receiver)]}
            for name, port, receiver in zip(names, ports, receivers)])
        before = memory_of(relay)
        sending = [spawn_multicat(box, "-u", "in.ts", f"127.0.0.1:{port}") for port in ports]

        def received():
            select.select([each.socket for each in receivers], [], [], 0.05)
            for each in receivers:
                each.drain()
            return sum(each.count() for each in receivers)

        wait_for_all(received, streams * len(payloads), "datagrams at all receivers")
        for process in sending:
            expect(process.wait(), 0, "exit code of a multicat that sends")
        for name, port, receiver in zip(names, ports, receivers):
            for counter in ("lost", "restarts", "ts_continuity_errors"):
                expect(relay.stream(counter, name), 0, f"{counter} of {name}")
            counters = relay.part("outputs", f"{name}/127.0.0.1:{receiver.port}")
            expect((counters["packets"], counters["dropped"]), (len(payloads), 0), f"of {name}")
            expect_no_drops(port, "the relay's")
        expect(memory_of(relay), before, "what the pool and the heap have taken")
        relay.stop()


@test()
def rtp_is_added_for_gstreamer(box):
    """The relay adds RTP to multicat's stream, which has none. GStreamer's jitter buffer uses the
    numbers and times of RTP."""
    need_tools("multicat", "ingests", "gst-launch-1.0")
    with roomy_sockets():
        content = generate(box, 2)
        box.run("ingests", "-p", str(VIDEO_PID), "in.ts")
        ports = free_ports(4)
        relay = start(box, [{"address": f"127.0.0.1:{ports}"}],
                      [{"to": f"127.0.0.1:{ports + 2}", "adds_rtp": True}])
        caps = "application/x-rtp,media=video,clock-rate=90000,encoding-name=MP2T,payload=33"
        process = box.spawn(
            ["gst-launch-1.0", "-v", "udpsrc", f"port={ports + 2}", f"caps={caps}", "!",
             "rtpjitterbuffer", "mode=none", "!", "rtpmp2tdepay", "!", "identity", "name=seen",
             "silent=false", "!", "filesink", f"location={box.path('out.ts')}",
             "buffer-mode=unbuffered"], "gst.log")
        wait_for(lambda: is_bound(ports + 2), "GStreamer to receive")
        began = time.monotonic()
        box.run("multicat", "-u", "-U", "in.ts", f"127.0.0.1:{ports}")
        wait_for_file(box, "out.ts", len(content))
        spent = time.monotonic() - began

        def seen():
            return re.findall(r"seen:sink.*?pts: (\d+):(\d\d):([\d.]+)",
                              read_text(box.path("gst.log")))

        count = len(content) // PAYLOAD_BYTES
        # A separate thread of GStreamer prints the times. At its end, times that it has not printed
        # are lost.
        wait_for(lambda: len(seen()) >= count, "a time of each packet")
        finish(process)
        expect_same(box, "out.ts", content)
        times = [int(h) * 3600 + int(m) * 60 + float(s) for h, m, s in seen()]
        expect(len(times), count, "packets with a time")
        expect_true(times == sorted(times), "times never go back")
        expect_true(0 < times[-1] - times[0] <= spent, f"times pass as they do: {times[0]} to "
                    f"{times[-1]} in {spent} s")
        expect(relay.stream("rtp_added"), count, "packets with RTP that was added")
        relay.stop()


@test()
def gstreamer(box):
    """GStreamer's jitter buffer and depayloader get the whole content from the relay's output."""
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
        # Errors of PAT and PMT are left out: they count late tables, which a busy machine may
        # cause.
        for counter in ("lost", "ts_continuity_errors", "ts_sync_losses"):
            expect(relay.stream(counter), 0, counter)
        expect_true(relay.stream("pcr_interval_max_ns") < 40_000_000, "PCRs come often enough")
        relay.stop()


@test()
def ffprobe_and_vlc_read_it_without_an_error(box):
    need_tools("ffprobe", "cvlc", "setpriv")
    seconds = int(os.environ.get("TSRELAY_SECONDS", "4"))
    with roomy_sockets():
        ports = free_ports(6)
        relay = start(box, [{"address": f"127.0.0.1:{ports}"}],
                      [{"to": f"127.0.0.1:{ports + 2}", "plain": True},
                       {"to": f"127.0.0.1:{ports + 4}"}])
        probing = box.spawn(["ffprobe", "-v", "warning", "-count_packets", "-read_intervals",
                             f"%+{seconds}", "-show_entries", "stream=codec_type,nb_read_packets",
                             "-of", "csv=p=0", f"udp://127.0.0.1:{ports + 2}"], "ffprobe.txt")
        # VLC does not run as root.
        os.chmod(box.directory, 0o777)
        vlc = box.spawn(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                         "cvlc", "-I", "dummy", "-v", "--no-dbus", "--no-color", "--sout",
                         f"#std{{access=file,mux=ts,dst={box.path('vlc.ts')}}}",
                         f"rtp://@127.0.0.1:{ports + 4}"], "vlc.txt",
                        env={**os.environ, "HOME": box.directory})
        wait_for(lambda: is_bound(ports + 2) and is_bound(ports + 4), "both to receive")
        sending = box.spawn([TSGEN, "--to", f"127.0.0.1:{ports}", "--rtp"], "tsgen.log")
        expect(probing.wait(seconds + 60), 0, "ffprobe's exit code")
        # ffprobe prints the stream alone, and as a part of a program, and nothing else.
        said = {line.rstrip(",") for line in read_text(box.path("ffprobe.txt")).split("\n") if line}
        expect(len(said), 1, f"what ffprobe has to say: {said}")
        seen = re.fullmatch(r"video,(\d+),?", min(said))
        expect_true(seen, f"ffprobe has seen a video: {said}")
        expect_true(int(seen[1]) > 20 * seconds, f"{seen[1]} pictures in {seconds} s")
        expect_no_drops(ports + 4, "VLC's")
        wait_for(lambda: os.path.exists(box.path("vlc.ts")) and
                 os.path.getsize(box.path("vlc.ts")) > 100_000, "VLC to write what it has read")
        finish(sending)
        finish(vlc)
        wrong = [line for line in read_text(box.path("vlc.txt")).splitlines()
                 if re.search(r"\bts demux|rtp|discontinu|corrupt|lost|libdvbpsi", line)
                 and re.search("error|warning", line)]
        expect(wrong, [], "what VLC finds wrong")
        expect(relay.stream("ts_continuity_errors"), 0, "continuity errors")
        relay.stop()


# ---- Losses ----


SIZE_MIB = int(os.environ.get("TSRELAY_MIB", "4"))
# GStreamer makes RTP of a file, and writes it to a file instead of the network: so only the
# intended packets are lost, and the test knows which.
GST_SOURCE = (f"filesrc location=in.ts blocksize={PAYLOAD_BYTES} ! "
              "video/mpegts,systemstream=true,packetsize=188 ! rtpmp2tpay ssrc=0 mtu=1328")
GST_SINK = "rtpstreampay ! filesink async=false location="


def generate_size(box, size_mib):
    """Generates a file of `size_mib` MiB. Returns its payloads."""
    bits = size_mib * MIB * 8
    return FilePayloads(generate_file(box, max(1, bits // 80_000_000), min(80_000_000, bits)))


def numbered(packets):
    """Yields each packet with its number in the stream. RTP has only 16 bits of the number, but no
    loss here is that long."""
    last = None
    for packet in packets:
        number = struct.unpack(">H", packet[2:4])[0]
        last = number if last is None else last + ((number - last) & 0xFFFF)
        yield last, packet


@test(size_mib=[SIZE_MIB])
def two_legs_that_lose_by_netsim(box, size_mib):
    """GStreamer's netsim loses 2 % of each leg. The merged stream has all packets that either leg
    has brought."""
    need_tools("gst-launch-1.0")
    with roomy_sockets():
        payloads = generate_size(box, size_mib)
        names = ("all", "leg0", "leg1")
        box.run("gst-launch-1.0", "-q", *(f"{GST_SOURCE} seqnum-offset=60000 ! tee name=both "
                + " ".join(f"both. ! queue ! {'netsim drop-probability=0.02 ! ' * (i > 0)}"
                           f"{GST_SINK}{name}" for i, name in enumerate(names))).split(),
                timeout=BOUND_SECONDS + size_mib)
        packets = [dict(numbered(gstreamer_packets(box.path(name)))) for name in names]
        expect(sorted(packets[0]), list(range(60_000, 60_000 + len(payloads))), "made by GStreamer")
        lost = [packets[0].keys() - leg.keys() for leg in packets[1:]]
        both = lost[0] & lost[1]
        expect_true(all(lost), "each leg has lost some")
        receiver = Comparing(box, Chosen(payloads, [i for i in range(len(payloads))
                                                    if i + 60_000 not in both]))
        ports = free_ports(4)
        relay = start(box, [{"address": f"127.0.0.1:{ports}"},
                            {"address": f"127.0.0.1:{ports + 2}"}],
                      [output(receiver)], window_packets=32)
        out = [sender(box), sender(box)]
        sent = 0
        for i, number in enumerate(packets[0]):
            for leg in range(2):
                if number not in lost[leg]:
                    out[leg].sendto(packets[0][number], ("127.0.0.1", ports + 2 * leg))
            sent += number not in both
            if i % 16 == 15:  # a gap holds later packets until the window has passed
                receiver.wait_for(sent - 60)
        relay_has = lambda: sum(relay.leg("packets", leg) for leg in range(2))
        wait_for(lambda: relay_has() == sum(map(len, packets[1:])), "all to have come")
        relay.stop()  # sends the packets that still wait
        receiver.wait_for(len(receiver.payloads))


@test(size_mib=[SIZE_MIB])
def fec_of_gstreamer(box, size_mib):
    """GStreamer makes FEC. One packet of every second matrix is lost on its way to the relay."""
    need_tools("gst-launch-1.0")
    columns = rows = 5
    with roomy_sockets():
        payloads = generate_size(box, size_mib)
        receiver = Comparing(box, payloads)
        ports = free_ports(6)
        relay = start(box, [{"address": f"127.0.0.1:{ports}", "fec": True}], [output(receiver)])
        box.run("gst-launch-1.0", "-q", *(
            f"{GST_SOURCE} seqnum-offset=60000 ! "
            f"rtpst2022-1-fecenc name=enc columns={columns} rows={rows} ! {GST_SINK}media "
            f"enc.fec_0 ! queue ! {GST_SINK}fec_0 "
            f"enc.fec_1 ! queue ! {GST_SINK}fec_1").split(), timeout=BOUND_SECONDS + size_mib)
        out = sender(box)
        # For each FEC packet, the position in the stream of the first packet that it protects.
        fec = []
        for beside, name in ((2, "fec_0"), (4, "fec_1")):
            last = 0
            for sums in gstreamer_packets(box.path(name)):
                base = struct.unpack(">H", sums[12:14])[0]
                last += (base - 60_000 - last) & 0xFFFF
                fec.append((last, beside, sums))
        fec = collections.deque(sorted(fec))
        lost = {i for i in range(100, len(payloads) - 100) if i % (2 * columns * rows) == 7}
        count = 0
        for i, datagram in enumerate(gstreamer_packets(box.path("media"))):
            count += 1
            if i not in lost:
                out.sendto(datagram, ("127.0.0.1", ports))
            while fec and fec[0][0] + 2 * columns * rows <= i:
                _, beside, sums = fec.popleft()
                out.sendto(sums, ("127.0.0.1", ports + beside))
            if i == 99:
                relay.wait_for_stream("fec_packets", 1)  # from now on packets are held for FEC
            if i % 32 == 31:  # a gap holds later packets until its FEC has come
                receiver.wait_for(i - 110)
        expect(count, len(payloads), "packets that GStreamer made")
        relay.wait_for_stream("fec_recovered", len(lost))
        receiver.wait_for(len(payloads))
        expect(relay.stream("lost"), 0, "packets lost")
        expect(relay.stream("fec_malformed"), 0, "FEC packets that made no sense")
        relay.stop()


@test()
def fec_for_gstreamer(box):
    """The relay makes FEC, and GStreamer recovers packets that are lost after the relay."""
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
        # GStreamer sends a recovered packet when it has it, so the order may differ.
        expect_true(sorted(seen) == sorted(payloads_of(content)), "all of it is there")
