"""The negotiation before the first request: every option, legal and illegal, and bytes that are not
NBD.

After each refusal the connection must stay usable, unless the protocol says that it ends.
"""

import struct

from harness import KIB, MIB, expect, expect_true, test
import raw_nbd as nbd
from raw_nbd import connect, connected, greeted

FLAGS = (nbd.HAS_FLAGS | nbd.SEND_FLUSH | nbd.SEND_FUA | nbd.SEND_TRIM | nbd.SEND_WRITE_ZEROES
         | nbd.CAN_MULTI_CONN | nbd.SEND_FAST_ZERO)
UNKNOWN_EXPORTS = {
    "another": b"no-such-export", "prefix": b"ram", "longer": b"ram0x", "case": b"RAM0",
    "nul": b"ram0\0", "not_utf8": b"\xff\xfe\x80", "newline": b"ram0\n", "4096_bytes": b"n" * 4096,
}
# Options of the specification that the server does not support, and undefined numbers.
UNSUPPORTED = {
    "peek_export": nbd.PEEK_EXPORT, "starttls": nbd.STARTTLS, "zero": 0,
    "extended_headers": nbd.EXTENDED_HEADERS, "12": 12, "255": 255, "65536": 1 << 16,
    "highest": (1 << 32) - 1,
}
NAME = nbd.export_request("ram0")
MALFORMED = {
    "list_with_data": (nbd.LIST, b"x"),
    "structured_reply_with_data": (nbd.STRUCTURED_REPLY, b"x"),
    "empty": (nbd.GO, b""),
    "cut_in_name_length": (nbd.GO, NAME[:3]),
    "cut_in_name": (nbd.GO, NAME[:6]),
    "no_info_count": (nbd.GO, NAME[:-2]),
    "cut_in_info_count": (nbd.GO, NAME[:-1]),
    "name_longer_than_data": (nbd.INFO, struct.pack(">I4sH", 5, b"ram0", 0)),
    "name_length_wraps": (nbd.INFO, struct.pack(">I4sH", (1 << 32) - 1, b"ram0", 0)),
    "name_length_wraps_with_header": (nbd.INFO, struct.pack(">I4sH", (1 << 32) - 6, b"ram0", 0)),
    "too_few_infos": (nbd.INFO, struct.pack(">I4sHH", 4, b"ram0", 2, nbd.INFO_NAME)),
    "too_many_infos": (nbd.INFO, struct.pack(">I4sHHH", 4, b"ram0", 1, nbd.INFO_NAME, 0)),
    "info_count_highest": (nbd.INFO, struct.pack(">I4sH", 4, b"ram0", 0xFFFF)),
    "byte_too_many": (nbd.GO, NAME + b"x"),
    "contexts_empty": (nbd.LIST_META_CONTEXT, b""),
    "contexts_before_structured": (nbd.SET_META_CONTEXT, nbd.contexts_request("ram0", "base:")),
    "contexts_query_longer_than_data": (nbd.SET_META_CONTEXT,
                                        nbd.contexts_request("ram0", "base:")[:-1]),
}


def two_volumes(box):
    configuration = box.configuration()
    configuration["blockd"]["volume"].append(
        {"name": "größe", "bytes": "4 MiB", "read_only": True})
    return box.appliance(configuration)


def expect_still_negotiating(client):
    """Checks that the connection works, and that nothing was negotiated by mistake."""
    client.go()
    client.verify("still negotiating")


@test()
def go_and_info(box):
    appliance = two_volumes(box)
    client = greeted(box, appliance)
    for name, wanted_name, size, read_only in (("ram0", b"ram0", 64 * MIB, 0),
                                               ("", b"ram0", 64 * MIB, 0),
                                               ("größe", "größe".encode(), 4 * MIB,
                                                nbd.IS_READ_ONLY)):
        infos = [nbd.INFO_NAME, nbd.INFO_BLOCK_SIZE, nbd.INFO_DESCRIPTION, 77]
        *replies, last = client.option(nbd.INFO, nbd.export_request(name, infos))
        expect(last.type, nbd.REP_ACK, f"the answer to INFO {name!r}")
        expect_true(all(reply.type == nbd.REP_INFO for reply in replies), "only INFO before ACK")
        told = {struct.unpack(">H", reply.data[:2])[0]: reply.data[2:] for reply in replies}
        expect(len(told), len(replies), "different informations")
        expect(struct.unpack(">QH", told[nbd.INFO_EXPORT]), (size, FLAGS | read_only),
               f"size and flags of {name!r}")
        expect(struct.unpack(">III", told[nbd.INFO_BLOCK_SIZE]), (1, 4096, 32 * MIB),
               "the block sizes")
        expect(bytes(told[nbd.INFO_NAME]), wanted_name, f"the name of {name!r}")
    expect_still_negotiating(client)
    expect((client.size, client.flags), (64 * MIB, FLAGS), "size and flags after GO")


@test()
def unasked_infos_do_not_come(box):
    *replies, last = greeted(box, box.appliance()).option(nbd.INFO, nbd.export_request(""))
    expect(last.type, nbd.REP_ACK, "the answer to INFO")
    expect([reply.data[:2] for reply in replies], [b"\0\0"], "the only information: EXPORT")


@test()
def list_names_every_volume(box):
    client = greeted(box, two_volumes(box))
    *replies, last = client.option(nbd.LIST)
    expect(last, nbd.OptionReply(nbd.LIST, nbd.REP_ACK, b""), "the end of LIST")
    lengths = [struct.unpack(">I", reply.data[:4])[0] for reply in replies]
    names = [reply.data[4:4 + length] for reply, length in zip(replies, lengths)]
    expect(names, [b"ram0", "größe".encode()], "the names of LIST")
    expect_still_negotiating(client)


@test(structured=[False, True])
def structured_reply_brings_df(box, structured):
    client = connect(box, box.appliance(), structured=structured)
    expect(client.flags, FLAGS | (nbd.SEND_DF if structured else 0), "the flags")


@test(flags=[0, nbd.FIXED_NEWSTYLE, nbd.NO_ZEROES, nbd.FIXED_NEWSTYLE | nbd.NO_ZEROES])
def export_name(box, flags):
    """The old option that starts transmission, with and without 124 zero bytes, also with an empty
    name."""
    appliance = box.appliance()
    for name in (b"ram0", b""):
        client = connected(box, appliance).greet(flags)
        client.send(nbd.option_bytes(nbd.EXPORT_NAME, name))
        expect(client.receive_struct(">QH"), (64 * MIB, FLAGS), "size and flags")
        if not flags & nbd.NO_ZEROES:
            expect(client.receive(124), bytes(124), "the padding")
        client.verify("export name")


@test()
def export_name_of_nothing_disconnects(box):
    appliance = box.appliance()
    for name in UNKNOWN_EXPORTS.values():
        client = greeted(box, appliance)
        client.send(nbd.option_bytes(nbd.EXPORT_NAME, name))
        client.expect_disconnect(f"EXPORT_NAME {name[:20]}", 0)
    connect(box, appliance).verify("after")


@test()
def unknown_export(box):
    client = greeted(box, box.appliance())
    for label, name in UNKNOWN_EXPORTS.items():
        for option in (nbd.INFO, nbd.GO):
            expect(client.option_result(option, nbd.export_request(name)), nbd.REP_ERR_UNKNOWN,
                   f"the answer to option {option} with the name {label}")
    expect_still_negotiating(client)


@test()
def unsupported_options(box):
    client = greeted(box, box.appliance())
    for label, number in UNSUPPORTED.items():
        for data in (b"", b"x", bytes(8 * KIB)):
            expect(client.option_result(number, data), nbd.REP_ERR_UNSUP,
                   f"the answer to {label} with {len(data)} bytes")
    expect_still_negotiating(client)


@test()
def malformed_options(box):
    client = greeted(box, box.appliance())
    for label, (number, data) in MALFORMED.items():
        expect(client.option_result(number, data), nbd.REP_ERR_INVALID, f"the answer to {label}")
    expect_still_negotiating(client)


@test()
def oversized_options(box):
    appliance = box.appliance()
    client = greeted(box, appliance)
    for number in (nbd.LIST, nbd.INFO, nbd.GO, nbd.STRUCTURED_REPLY, 12):
        for length in (8 * KIB + 1, 64 * KIB):
            expect(client.option_result(number, bytes(length)), nbd.REP_ERR_TOO_BIG,
                   f"the answer to option {number} of {length} bytes")
    expect_still_negotiating(client)
    for number in (nbd.EXPORT_NAME, nbd.GO, 12):
        for length in (64 * KIB + 1, (1 << 32) - 1):
            client = greeted(box, appliance)
            client.send(nbd.option_bytes(number, b"", length))
            client.expect_disconnect(f"option {number} of {length} bytes")
    connect(box, appliance).verify("after")


@test()
def largest_go(box):
    """A request with as many information items as 8 KiB hold is legal."""
    client = greeted(box, box.appliance())
    infos = [nbd.INFO_BLOCK_SIZE] * ((8 * KIB - 10) // 2)
    expect(client.option_result(nbd.INFO, nbd.export_request("ram0", infos)), nbd.REP_ACK,
           "the answer to INFO of 8 KiB")
    expect_still_negotiating(client)


@test()
def abort_is_acknowledged(box):
    client = greeted(box, box.appliance())
    expect(client.option_result(nbd.ABORT), nbd.REP_ACK, "the answer to ABORT")
    client.expect_disconnect("after ABORT", 0)


@test()
def wrong_magic_disconnects(box):
    appliance = box.appliance()
    for what in (nbd.option_bytes(nbd.LIST, magic=nbd.OPTION_MAGIC + 1),
                 nbd.request_bytes(nbd.READ, 0, 512), b"GET / HTTP/1.1\r\n\r\n"):
        client = greeted(box, appliance)
        client.send(what)
        client.expect_disconnect(f"{what[:20]} in place of an option", 0)
    connect(box, appliance).verify("after")


@test(flags=[1 << 2, 1 << 31, 0xFFFFFFFF])
def unknown_client_flags_disconnect(box, flags):
    appliance = box.appliance()
    client = connected(box, appliance).greet(flags)
    client.expect_disconnect(f"client flags {flags:#x}", 0)


@test(transport=["tcp", "unix"])
def byte_at_a_time(box, transport):
    """The whole conversation is sent byte by byte."""
    client = connected(box, box.appliance(), transport)
    data = nbd.pattern("bytes", 100)
    talk = (struct.pack(">I", 3) + nbd.option_bytes(nbd.LIST) + nbd.option_bytes(12, b"abc")
            + nbd.option_bytes(nbd.GO, NAME)
            + nbd.request_bytes(nbd.WRITE, 4095, len(data), data, cookie=1)
            + nbd.request_bytes(nbd.READ, 4095, len(data), cookie=2))
    for byte in talk:
        client.send(bytes([byte]))
    expect(client.receive(len(nbd.GREETING)), nbd.GREETING, "the greeting")
    kinds = [client.option_reply().type for _ in range(5)]
    expect(kinds, [nbd.REP_SERVER, nbd.REP_ACK, nbd.REP_ERR_UNSUP, nbd.REP_INFO, nbd.REP_ACK],
           "the option replies")
    client.read_lengths[2] = len(data)
    expect([client.reply()[:3] for _ in range(2)], [(1, 0, b""), (2, 0, data)], "the replies")


@test(transport=["tcp", "unix"])
def everything_in_one_piece(box, transport):
    """Handshake and requests come in one send, before the client reads the greeting."""
    client = connected(box, box.appliance(), transport)
    client.send(struct.pack(">I", 3) + nbd.option_bytes(nbd.GO, NAME)
                + nbd.request_bytes(nbd.FLUSH, cookie=9) + nbd.request_bytes(nbd.DISC))
    expect(client.receive(len(nbd.GREETING)), nbd.GREETING, "the greeting")
    expect([client.option_reply().type for _ in range(2)], [nbd.REP_INFO, nbd.REP_ACK],
           "the option replies")
    expect(client.reply(), nbd.Reply(9, 0, b"", 0), "the reply to FLUSH")
    client.expect_disconnect("after DISC", 0)


@test()
def many_options(box):
    """A client may negotiate for a long time."""
    client = greeted(box, box.appliance())
    for number in range(2000):
        expect(client.option_result(nbd.LIST), nbd.REP_ACK, f"LIST number {number}")
    expect_still_negotiating(client)


@test()
def garbage(box):
    """Random bytes at any point of the handshake cause no crash, and other clients are served."""
    appliance = box.appliance()
    dice = box.dice()
    bystander = connect(box, appliance)
    for round_number in range(200):
        noise = dice.randbytes(dice.choice([1, 7, 30, 300, 9000]))
        prefix = dice.choice([b"", struct.pack(">I", 3), nbd.option_bytes(nbd.LIST),
                              nbd.option_bytes(dice.randrange(14), b"", dice.randrange(200)),
                              nbd.option_bytes(nbd.GO, nbd.export_request(dice.randbytes(9)))])
        with nbd.RawClient(appliance.address()) as client:
            try:
                client.send(struct.pack(">I", 3) * dice.randrange(2) + prefix + noise)
            except nbd.Disconnected:
                pass
        bystander.verify(round_number)
    appliance.expect_alive()
    appliance.stop()
