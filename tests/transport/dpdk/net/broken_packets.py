#!/usr/bin/python3
"""Writes a capture of broken packets in libpcap's format, and the number of packets to be dropped
for each cause: `broken_packets.py CAPTURE CAUSES`. Each line of CAUSES is "NAME COUNT", with the
names that `bedplate stats` has; "none" counts the valid packets.
tests/transport/dpdk/net/broken_packets_test.cc runs this script and replays the capture.

The frames go to 02:00:00:00:00:01, 192.0.2.1 and 2001:db8::1, UDP port 5004.
"""

import collections
import ipaddress
import struct
import sys

OWN = bytes.fromhex("020000000001")
PEER = bytes.fromhex("020000000002")
US, THEM = "192.0.2.1", "192.0.2.9"
US6, THEM6 = "2001:db8::1", "2001:db8::9"


def packed(address):
    return ipaddress.ip_address(address).packed


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ethernet(rest, kind, to=OWN, source=PEER):
    return to + source + struct.pack(">H", kind) + rest


def ipv4(rest, source=THEM, to=US, protocol=17, fragment=0x4000, options=b"", length=None, version=4,
         header_words=None, broken_sum=False):
    words = header_words if header_words is not None else 5 + len(options) // 4
    head = struct.pack(">BBHHHBBH", version << 4 | words, 0,
                       length if length is not None else 20 + len(options) + len(rest), 0,
                       fragment, 64, protocol, 0) + packed(source) + packed(to) + options
    total = checksum(head) ^ (0x1111 if broken_sum else 0)
    return ethernet(head[:10] + struct.pack(">H", total) + head[12:] + rest, 0x0800)


def ipv6(rest, source=THEM6, to=US6, following=17, hops=64, length=None, version=6, group_mac=None):
    head = struct.pack(">IHBB", version << 28, length if length is not None else len(rest), following,
                       hops) + packed(source) + packed(to)
    return ethernet(head + rest, 0x86DD, to=group_mac or OWN)


def udp(payload=b"payload", source=THEM, to=US, port=5004, length=None, broken_sum=False, no_sum=False):
    size = length if length is not None else 8 + len(payload)
    head = struct.pack(">HHHH", 7000, port, size, 0)
    pseudo = packed(source) + packed(to) + struct.pack(">II", 8 + len(payload), 17)
    total = checksum(pseudo + head + payload) or 0xFFFF
    if broken_sum:
        total ^= 0x0101
    return head[:6] + struct.pack(">H", 0 if no_sum else total) + payload


def with_sum(message, pseudo=b""):
    message = message[:2] + b"\0\0" + message[4:]
    return message[:2] + struct.pack(">H", checksum(pseudo + message)) + message[4:]


def icmp6(message, source=THEM6, to=US6, hops=255):
    pseudo = packed(source) + packed(to) + struct.pack(">II", len(message), 58)
    return ipv6(with_sum(message, pseudo), source, to, 58, hops)


def arp(operation=1, hardware=1, kind=0x0800, sizes=b"\6\4", station=PEER, source=THEM, to=US):
    return ethernet(struct.pack(">HH", hardware, kind) + sizes + struct.pack(">H", operation) + station +
                    packed(source) + bytes(6) + packed(to), 0x0806)


def extension(following, units=0, option=b"\1\4\0\0\0\0"):
    return bytes((following, units)) + option


def frames():
    """Yields each frame with the cause for which it is dropped."""
    good, good6 = ipv4(udp()), ipv6(udp(source=THEM6, to=US6))
    yield "none", good
    yield "none", good6
    yield "none", good + bytes(30)  # padding
    yield "none", ipv4(udp(no_sum=True))
    yield "none", ipv6(extension(60) + extension(17) + udp(source=THEM6, to=US6), following=0)
    for count in (0, 1, 13, 14, 20, 33):
        yield "too-short", good[:count]
    for count in (15, 40, 53):
        yield "too-short", good6[:count]
    yield "too-short", arp()[:41]
    yield "too-short", ethernet(b"\0\5", 0x8100)
    yield "other-vlan", ethernet(b"\0\5\x08\0" + good[14:], 0x8100)
    yield "other-mac", ethernet(good[14:], 0x0800, to=bytes.fromhex("020000000099"))
    yield "other-mac", ethernet(good[14:], 0x0800, source=bytes.fromhex("030000000099"))
    yield "other-mac", ethernet(good[14:], 0x0800, to=b"\xff" * 6, source=OWN)
    for kind in (0, 0x88CC, 0x88A8, 0x8847, 0xFFFF):
        yield "ether-type", ethernet(good[14:], kind)
    yield "ip-header", ipv4(udp(), version=5)
    yield "ip-header", ipv4(udp(), header_words=4)
    yield "ip-header", ipv4(udp(), length=19)
    yield "ip-header", ipv4(udp(), length=1000)
    yield "ip-header", ipv4(udp(), options=b"\x44\1\0\0")
    yield "ip-header", ipv4(udp(), options=b"\x44\x09\0\0")
    yield "ip-header", ipv6(udp(source=THEM6, to=US6), version=4)
    yield "ip-header", ipv6(udp(source=THEM6, to=US6), length=2000)
    yield "ip-header", ipv6(extension(17, 200) + udp(source=THEM6, to=US6), following=60)
    yield "ip-checksum", ipv4(udp(), broken_sum=True)
    for source in ("224.0.0.1", "127.0.0.1", "255.255.255.255", "0.0.0.0", "192.0.2.255", US):
        yield "ip-source", ipv4(udp(source=source), source=source)
    for source in ("ff02::1", "::1", "::", "::ffff:192.0.2.9", US6):
        yield "ip-source", ipv6(udp(source=source, to=US6), source=source)
    for to in ("192.0.2.77", "127.0.0.1", "0.0.0.0", "198.51.100.1"):
        yield "ip-destination", ipv4(udp(to=to), to=to)
    yield "ip-destination", ipv6(udp(source=THEM6, to="2001:db8::77"), to="2001:db8::77")
    yield "ip-destination", ipv4(udp(to="239.9.9.9"), to="239.9.9.9")
    for fragment in (0x2000, 1, 0x1FFF, 0x2001):
        yield "fragment", ipv4(udp(), fragment=fragment)
    yield "fragment", ipv6(extension(17) + udp(source=THEM6, to=US6), following=44)
    yield "extension-headers", ipv6(extension(60) * 4 + extension(17) + udp(source=THEM6, to=US6),
                                    following=60)
    yield "extension-headers", ipv6(extension(0) + extension(17) + udp(source=THEM6, to=US6),
                                    following=60)
    yield "extension-headers", ipv6(extension(17, option=b"\xc2\4\0\0\0\1") +
                                    udp(source=THEM6, to=US6), following=0)
    yield "extension-headers", ipv6(extension(17, option=b"\1\x20\0\0\0\0") +
                                    udp(source=THEM6, to=US6), following=0)
    yield "routing-header", ipv6(extension(17) + udp(source=THEM6, to=US6), following=43)
    yield "routing-header", ipv4(udp(), options=b"\x83\3\4\0")
    yield "routing-header", ipv4(udp(), options=b"\x89\3\4\0")
    for protocol in (6, 41, 58, 132, 255):
        yield "protocol", ipv4(udp(), protocol=protocol)
    for protocol in (1, 2, 6, 50, 59):
        yield "protocol", ipv6(udp(source=THEM6, to=US6), following=protocol)
    yield "udp-length", ipv4(udp(length=7))
    yield "udp-length", ipv4(udp(length=99))
    yield "udp-length", ipv4(b"\0\1\2")
    yield "udp-length", ipv6(udp(source=THEM6, to=US6, length=0))
    yield "udp-checksum", ipv4(udp(broken_sum=True))
    yield "udp-checksum", ipv6(udp(source=THEM6, to=US6, broken_sum=True))
    yield "udp-checksum", ipv6(udp(source=THEM6, to=US6, no_sum=True))
    yield "no-socket", ipv4(udp(port=9))
    yield "no-socket", ipv4(udp(port=0))
    for broken in (arp(3), arp(hardware=2), arp(kind=0x86DD), arp(sizes=b"\6\6"), arp(sizes=b"\5\4"),
                   arp(station=b"\xff" * 6), arp(station=bytes(6)), arp(source="224.0.0.1"),
                   arp(source="127.0.0.1"), arp(source="255.255.255.255")):
        yield "arp", broken
    yield "icmp", ipv4(with_sum(b"\x08\0\0\0\0\1\0\1")[:-1] + b"\2", protocol=1)
    yield "icmp", ipv4(b"\x08\0\0", protocol=1)
    yield "icmp", ipv4(with_sum(b"\3\3" + bytes(6) + good[14:30]), protocol=1)
    yield "icmp", ipv4(with_sum(b"\3\3" + bytes(6) + good[14:]), protocol=1)  # never sent
    yield "icmp", ipv6(b"\x80\0\1\2\0\1\0\1", following=58)
    yield "icmp", icmp6(b"\2\0" + bytes(6) + good6[14:], hops=64)
    solicitation = b"\x87\0\0\0" + bytes(4) + packed(US6)
    yield "neighbour", icmp6(solicitation, hops=64)
    yield "neighbour", icmp6(solicitation[:-1])
    yield "neighbour", icmp6(solicitation + b"\1\0" + PEER)
    yield "neighbour", icmp6(solicitation + b"\1\2" + PEER)
    yield "neighbour", icmp6(solicitation + b"\1\1\0")
    yield "neighbour", icmp6(solicitation + b"\1\1" + b"\xff" * 6)
    yield "neighbour", icmp6(b"\x87\0\0\0" + bytes(4) + packed("ff02::9"))
    yield "neighbour", icmp6(b"\x88\0\0\0" + bytes(4) + packed("ff02::9"))
    yield "neighbour", icmp6(b"\x86\0\0\0" + bytes(12))  # a router that is not link-local
    yield "groups", ipv4(b"\x11\0\1\2\0\0\0\0", to="192.0.2.1", protocol=2)
    yield "groups", ipv4(with_sum(b"\x11\x0a\0\0\0\0\0\0\2"), protocol=2)
    yield "groups", ipv4(with_sum(b"\x11\x0a\0\0\0\0\0\0\2\x7d\0\x09"), protocol=2)
    yield "groups", ipv4(with_sum(b"\x11\x0a\0\0\xc0\0\2\1"), protocol=2)
    yield "groups", icmp6(b"\x82\0\0\0" + bytes(20), hops=1)
    yield "groups", icmp6(b"\x82\0\0\0" + bytes(20), source="fe80::9", hops=255)


def main(capture, causes):
    counts = collections.Counter()
    with open(capture, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for index, (cause, frame) in enumerate(frames()):
            counts[cause] += 1
            file.write(struct.pack("<IIII", index, 0, len(frame), len(frame)) + frame)
    with open(causes, "w", encoding="ascii") as file:
        file.writelines(f"{cause} {count}\n" for cause, count in sorted(counts.items()))


if __name__ == "__main__":
    main(*sys.argv[1:])
