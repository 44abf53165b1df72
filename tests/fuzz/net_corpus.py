#!/usr/bin/python3
"""Writes the corpus of the packet layer's fuzz target: `net_corpus.py FOLDER`. There is a file for
each fault that tests/transport/dpdk/net/broken_packets.py knows, with a frame that has the fault,
and a file for each of several kinds of valid frames, some with socket calls.
"""

import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "transport/dpdk/net"))
import broken_packets as made  # noqa: E402


def step(frame, mends=0):
    return bytes((mends, 0)) + struct.pack(">H", len(frame)) + frame


def inputs():
    first = {}
    for cause, frame in made.frames():
        first.setdefault(cause, frame)
    for cause, frame in first.items():
        yield cause, step(frame)
    yield "arp-answer", b"\3\0" + step(made.arp(2)) + b"\3\x10\2\xff\3\x10\2\xff"
    yield "echo", step(made.ipv4(b"\x08\0\0\0\0\1\0\1abc", protocol=1), 1)
    yield "echo6", step(made.icmp6(b"\x80\0\0\0\0\1\0\1abc"))
    yield "solicitation", step(made.icmp6(b"\x87\0\0\0" + bytes(4) + made.packed(made.US6) +
                                          b"\1\1" + made.PEER))
    yield "advertisement", b"\3\1" + step(made.icmp6(
        b"\x88\0\0\0\x60\0\0\0" + made.packed(made.THEM6) + b"\2\1" + made.PEER)) + b"\3\1"
    yield "router", step(made.icmp6(b"\x86\0\0\0\x40\0\0\x09" + bytes(8) + b"\1\1" + made.PEER,
                                    source="fe80::9"))
    yield "query", b"\4\0\4\x48\2\x40" + step(made.ipv4(b"\x11\x0a\0\0\0\0\0\0\2\x7d\0\0",
                                                        protocol=2, to="224.0.0.1"), 1) + b"\2\x20\2\x20"
    yield "mld-query", b"\4\1" + step(made.ipv6(
        bytes((58, 0, 5, 2, 0, 0, 1, 0)) + b"\x82\0\0\0\3\xe8\0\0" + bytes(16) + b"\2\x7d\0\0",
        source="fe80::9", to="ff02::1", following=0, hops=1), 1) + b"\2\x20"
    quote = made.ipv4(made.udp(source=made.US, to="203.0.113.5"), made.US, "203.0.113.5")[14:]
    quote = quote[:20] + struct.pack(">HH", 5004, 7002) + quote[24:]
    yield "too-big", b"\3\x08" + step(made.ipv4(b"\3\4\0\0\0\0\5\x78" + quote, protocol=1), 1)
    yield "multicast", b"\4\0" + step(made.ethernet(made.ipv4(
        made.udp(to="239.1.1.1"), to="239.1.1.1")[14:], 0x0800, to=bytes.fromhex("01005e010101")))


def main(folder):
    for name, content in inputs():
        (pathlib.Path(folder) / name).write_bytes(content)


if __name__ == "__main__":
    main(*sys.argv[1:])
