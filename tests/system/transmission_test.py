"""Legal and illegal requests, and their replies. The data survive all of them.

Every refusal leaves the connection usable: its next request is answered, with verified data.
"""

import struct

from harness import (BACKENDS, KIB, LAYOUTS, MIB, Failure, expect, expect_true, test, wait_for)
import raw_nbd as nbd
from raw_nbd import EINVAL, ENOSPC, EPERM, connect, pattern

SIZE = 64 * MIB  # of the volume
LARGEST = 32 * MIB  # of a read or write
TOP = (1 << 64) - 1
BEYOND_ERRORS = {nbd.READ: EINVAL, nbd.WRITE: ENOSPC, nbd.TRIM: EINVAL, nbd.WRITE_ZEROES: ENOSPC}
# The legal flags of each command. FUA is legal for all (specification, "Command flags").
LEGAL_FLAGS = {
    nbd.READ: nbd.FLAG_FUA | nbd.FLAG_DF, nbd.WRITE: nbd.FLAG_FUA, nbd.FLUSH: nbd.FLAG_FUA,
    nbd.TRIM: nbd.FLAG_FUA,
    nbd.WRITE_ZEROES: nbd.FLAG_FUA | nbd.FLAG_NO_HOLE | nbd.FLAG_FAST_ZERO,
}
UNKNOWN_COMMANDS = [nbd.CACHE, nbd.BLOCK_STATUS, 8, 9, 255, 256, 32768, 65535]


def beyond(size):
    """Ranges past the end of `size` bytes, and ranges whose end wraps around."""
    return {
        "last_byte_and_one": (size - 1, 2), "at_end": (size, 1), "page_at_end": (size, 4096),
        "far": (size * 1000, 4096), "negative": (1 << 63, 512), "top": (TOP, 1),
        "wraps_to_0": (TOP, 2), "wraps": (TOP - 4095, 8192),
        "wraps_into_volume": (TOP - 4095, 1 * MIB),
        "largest_over_end": (size - LARGEST + 1, LARGEST),
    }


def payload_of(command, length):
    return pattern("refused", length) if command == nbd.WRITE else b""


@test(structured=[False, True], size=[SIZE, 33 * MIB + 4 * KIB])
def past_the_end(box, structured, size):
    """Also tested with a volume that ends within a page, with another volume behind it in the
    pool."""
    configuration = box.configuration()
    configuration["blockd"]["volume"] = [{"name": "ram0", "bytes": size},
                                         {"name": "behind", "bytes": MIB}]
    client = connect(box, box.appliance(configuration), structured=structured)
    for label, (offset, length) in beyond(size).items():
        for command, wanted in BEYOND_ERRORS.items():
            error = client.error(command, offset, length, payload_of(command, length))
            expect(error, wanted, f"the error of command {command}, {label}")
    client.verify("after", size - 64 * KIB)


@test(structured=[False, True])
def zero_length(box, structured):
    client = connect(box, box.appliance(), structured=structured)
    for command in BEYOND_ERRORS:
        for offset in (0, 4096, SIZE):
            expect(client.error(command, offset, 0), EINVAL,
                   f"the error of command {command} with length 0 at {offset}")
    client.verify("after")


@test(structured=[False, True])
def unknown_commands(box, structured):
    client = connect(box, box.appliance(), structured=structured)
    for command in UNKNOWN_COMMANDS:
        for offset, length in ((0, 0), (0, 4096), (TOP, (1 << 32) - 1)):
            expect(client.error(command, offset, length), EINVAL, f"the error of {command}")
    client.verify("after")


@test(structured=[False, True])
def unknown_flags(box, structured):
    """Each flag that a command does not know is refused, and so are all of them at once."""
    client = connect(box, box.appliance(), structured=structured)
    client.write(0, pattern("flags", 4096))
    for command, legal in LEGAL_FLAGS.items():
        unknown = [1 << bit for bit in range(16) if not legal & 1 << bit]
        for flags in [*unknown, sum(unknown), sum(unknown) | nbd.FLAG_FUA]:
            length = 0 if command == nbd.FLUSH else 512
            error = client.error(command, 0, length, payload_of(command, length), flags=flags)
            expect(error, EINVAL, f"the error of command {command} with flags {flags:#x}")
    expect(client.read(0, 4096), pattern("flags", 4096), "the data after refused requests")


@test(structured=[False, True])
def legal_flags(box, structured):
    client = connect(box, box.appliance(), structured=structured)
    data = pattern("legal", 8192)
    client.write(0, data, nbd.FLAG_FUA)
    expect(client.error(nbd.FLUSH), 0, "the error of FLUSH")
    expect(client.error(nbd.TRIM, 4096, 1024, flags=nbd.FLAG_FUA), 0, "the error of TRIM")
    for flags in (0, nbd.FLAG_FUA, nbd.FLAG_NO_HOLE, nbd.FLAG_FUA | nbd.FLAG_NO_HOLE):
        expect(client.error(nbd.WRITE_ZEROES, 2048, 1024, flags=flags), 0,
               f"the error of WRITE_ZEROES with flags {flags}")
    seen = client.read(0, 8192)
    wanted = data[:2048] + bytes(1024) + data[3072:4096] + seen[4096:5120] + data[5120:]
    expect(seen, wanted, "the data around the zeroes and the trim")


@test(structured=[False, True])
def read_only_volume(box, structured):
    configuration = box.configuration()
    configuration["blockd"]["volume"].append(
        {"name": "golden", "bytes": "4 MiB", "read_only": True})
    client = connect(box, box.appliance(configuration), volume="golden", structured=structured)
    expect_true(client.flags & nbd.IS_READ_ONLY, "the flag READ_ONLY")
    for length in (1, 4096, 1 * MIB):
        for command in (nbd.WRITE, nbd.TRIM, nbd.WRITE_ZEROES):
            error = client.error(command, 0, length, payload_of(command, length))
            expect(error, EPERM, f"the error of command {command} on a read-only volume")
        expect(client.read(0, length), bytes(length), "the untouched volume")
    expect(client.error(nbd.FLUSH), 0, "the error of FLUSH")


@test(layout=LAYOUTS, sockets=BACKENDS)
def largest_requests(box, layout, sockets):
    """A request of 32 MiB is served. One byte more is refused, and its payload dropped. A write
    beyond 64 MiB ends the connection."""
    appliance = box.appliance(box.configuration(layout, sockets))
    client = connect(box, appliance)
    data = pattern("largest", LARGEST)
    client.write(1, data)
    expect_true(client.read(1, LARGEST) == data, "32 MiB at byte 1 are those that were written")
    expect(client.error(nbd.READ, 0, LARGEST + 1), EINVAL, "the error of a read over 32 MiB")
    expect(client.error(nbd.READ, 0, (1 << 32) - 1), EINVAL, "the error of a read of 4 GiB")
    for length in (LARGEST + 1, 64 * MIB):
        expect(client.error(nbd.WRITE, 0, payload=bytes(length)), EINVAL,
               f"the error of a write of {length} bytes")
    expect_true(client.read(1, LARGEST) == data, "the data after refused writes")
    for command in (nbd.TRIM, nbd.WRITE_ZEROES):
        expect(client.error(command, 0, SIZE), 0, f"the error of command {command} on everything")
    expect_true(client.read(0, LARGEST) == bytes(LARGEST), "zeroes everywhere")
    client.send(nbd.request_bytes(nbd.WRITE, 0, 64 * MIB + 1))
    client.expect_disconnect("a write over 64 MiB")
    connect(box, appliance).verify("after")


@test()
def refused_payload_is_drained(box):
    """The payload of a refused write is not taken for a request, even if it looks like one."""
    client = connect(box, box.appliance())
    trap = nbd.request_bytes(nbd.WRITE_ZEROES, 0, 4096, cookie=666)
    client.write(0, pattern("drained", 4096))
    for length in (len(trap), 100 * len(trap), 40_000 * len(trap)):
        payload = trap * (length // len(trap))
        expect(client.error(nbd.WRITE, SIZE, payload=payload), ENOSPC, "the error of the write")
        expect(client.read(0, 4096), pattern("drained", 4096), "the data after it")


@test()
def wrong_magic_disconnects(box):
    appliance = box.appliance()
    for what in (nbd.request_bytes(nbd.READ, 0, 512, magic=nbd.SIMPLE_MAGIC), bytes(28),
                 nbd.option_bytes(nbd.LIST) * 2):
        client = connect(box, appliance)
        client.send(what)
        client.expect_disconnect(f"{what[:20]} in place of a request", 0)
    connect(box, appliance).verify("after")


@test(transport=["tcp", "unix"])
def disconnect_after_pending_replies(box, transport):
    """After DISC or a half-close, earlier requests are still answered; then the connection ends."""
    appliance = box.appliance()
    for ending in (nbd.request_bytes(nbd.DISC), None):
        client = connect(box, appliance, transport)
        data = pattern("pending", 8 * MIB)
        client.write(0, data)
        cookies = {client.request(nbd.READ, index * MIB, MIB): index for index in range(8)}
        if ending:
            client.send(ending)
        else:
            client.socket.shutdown(nbd.socket.SHUT_WR)
        for _ in range(8):
            reply = client.reply()
            start = cookies.pop(reply.cookie) * MIB
            expect_true(reply.data == data[start:start + MIB], "the data of a pending read")
        client.expect_disconnect("after the last reply", 0)


@test(layout=LAYOUTS, sockets=BACKENDS, structured=[False, True])
def many_requests_in_one_piece(box, layout, sockets, structured):
    """More requests than may be in flight, mixed, in one send: each reply comes once and is
    right."""
    configuration = box.configuration(layout, sockets, requests_per_connection=8)
    client = connect(box, box.appliance(configuration), structured=structured)
    count, block = 500, 8 * KIB
    parts, wanted = [], {}
    for index in range(count):
        data = pattern(index, block)
        parts.append(nbd.request_bytes(nbd.WRITE, index * block, block, data, 0, 1000 + index))
        wanted[1000 + index] = b""
    with client.sending(b"".join(parts)):
        expect_replies(client, wanted)
    parts = []
    for index in range(count):
        parts.append(nbd.request_bytes(nbd.READ, index * block, block, cookie=5000 + index))
        wanted[5000 + index] = pattern(index, block)
        client.read_lengths[5000 + index] = block
        if index % 10 == 0:
            parts.append(nbd.request_bytes(nbd.FLUSH, cookie=9000 + index))
            wanted[9000 + index] = b""
    with client.sending(b"".join(parts)):
        expect_replies(client, wanted)


def expect_replies(client, wanted):
    """Receives one reply for each cookie of `wanted`, in any order, and empties it."""
    while wanted:
        reply = client.reply()
        if reply.cookie not in wanted:
            raise Failure(f"a reply to {reply.cookie}, which nobody waits for")
        expect(reply.error, 0, f"the error of request {reply.cookie}")
        expect_true(reply.data == wanted.pop(reply.cookie), f"the data of {reply.cookie} are right")


@test()
def structured_reads(box):
    """A read may be answered in any chunks; with DF, in one."""
    client = connect(box, box.appliance(), structured=True)
    data = pattern("chunks", MIB)
    client.write(512, data)
    for flags in (0, nbd.FLAG_DF):
        for offset, length in ((512, MIB), (0, 2 * MIB), (513, 1), (8 * MIB, 8 * MIB)):
            reply = client.call(nbd.READ, offset, length, flags=flags)
            wanted = (bytes(512) + data + bytes(16 * MIB))[offset:offset + length]
            expect(reply.error, 0, f"the error of a read of {length} bytes at {offset}")
            expect_true(reply.data == wanted, f"{length} bytes at {offset} are right")
            if flags:
                expect(reply.chunk_count, 1, f"the chunks of {length} bytes with DF")


@test(layout=LAYOUTS)
def multiple_connections_agree(box, layout):
    """CAN_MULTI_CONN: all clients read data that one wrote and flushed, over TCP and Unix at
    once."""
    appliance = box.appliance(box.configuration(layout))
    clients = [connect(box, appliance, transport) for transport in ("tcp", "unix", "tcp", "unix")]
    dice = box.dice()
    model = bytearray(MIB)
    for round_number in range(300):
        writer, reader = dice.sample(clients, 2)
        offset = dice.randrange(MIB - 1)
        length = dice.randrange(1, min(64 * KIB, MIB - offset) + 1)
        data = pattern(round_number, length)
        if dice.randrange(4):
            writer.write(offset, data)
        else:
            data = bytes(length)
            expect(writer.error(nbd.WRITE_ZEROES, offset, length), 0, "the error of WRITE_ZEROES")
        model[offset:offset + length] = data
        expect(writer.error(nbd.FLUSH), 0, "the error of FLUSH")
        offset = dice.randrange(MIB // 2)
        expect_true(reader.read(offset, MIB // 2) == model[offset:offset + MIB // 2],
                    f"round {round_number}: half a MiB at {offset} is right")


@test(layout=LAYOUTS, sockets=BACKENDS, ending=["close", "reset", "half_close"])
def vanishes_in_a_payload(box, layout, sockets, ending):
    """A client that vanishes in a payload changes only the bytes of that write that have
    arrived."""
    appliance = box.appliance(box.configuration(layout, sockets))
    client = connect(box, appliance)
    connections = appliance.blockd("connections_open")
    begin, length = 3 * MIB + 1, 1 * MIB
    for sent_bytes in (0, 1, 4096, length // 2, length - 1):
        old = pattern(("old", sent_bytes), length + 2 * MIB)
        new = pattern(("new", sent_bytes), length)
        client.write(begin - MIB, old)
        with nbd.RawClient(appliance.address("tcp")) as victim:
            victim.greet().go()
            victim.send(nbd.request_bytes(nbd.WRITE, begin, length) + new[:sent_bytes])
            leave(victim, ending)
        wait_for(lambda: appliance.blockd("connections_open") == connections,
                 "the end of the vanished connection")
        seen = client.read(begin - MIB, len(old))
        expect_true(seen[:MIB] == old[:MIB], f"{sent_bytes} bytes sent: what lies before is intact")
        expect_true(seen[MIB + length:] == old[MIB + length:],
                    f"{sent_bytes} bytes sent: what lies behind is intact")
        expect_true(seen[MIB + sent_bytes:MIB + length] == old[MIB + sent_bytes:MIB + length],
                    f"{sent_bytes} bytes sent: what was not sent is not changed")
        client.verify("the same range", begin, length)
    expect(appliance.blockd("connections_open"), connections, "connections_open")
    appliance.stop()


def leave(client, ending):
    """Ends the connection without DISC: by FIN, by RST, or by FIN of one direction."""
    if ending == "reset":
        client.socket.setsockopt(nbd.socket.SOL_SOCKET, nbd.socket.SO_LINGER,
                                 struct.pack("ii", 1, 0))
        client.socket.close()
    elif ending == "half_close":
        client.socket.shutdown(nbd.socket.SHUT_WR)
        client.expect_disconnect("half a payload, then the end of the client's direction")
    else:
        client.socket.close()


@test()
def vanishes_in_a_header(box):
    appliance = box.appliance()
    client = connect(box, appliance)
    header = nbd.request_bytes(nbd.READ, 0, 512)
    for sent_bytes in range(1, len(header)):
        with nbd.RawClient(appliance.address()) as victim:
            victim.greet().go().send(header[:sent_bytes])
    wait_for(lambda: appliance.blockd("connections_open") == 1, "the end of the others")
    client.verify("after")


@test()
def garbage(box):
    """Random bytes in place of requests, some with the right magic, cause no crash, and others are
    served."""
    appliance = box.appliance()
    dice = box.dice()
    bystander = connect(box, appliance)
    for round_number in range(200):
        with nbd.RawClient(appliance.address()) as client:
            client.greet().go()
            magic = struct.pack(">I", nbd.REQUEST_MAGIC)
            noise = b"".join(magic + dice.randbytes(1) * 2 + bytes(dice.choice([0, 1]))
                             + bytes([dice.randrange(10)]) + dice.randbytes(dice.randrange(60))
                             for _ in range(dice.randrange(1, 20)))
            try:
                client.send(dice.choice([noise, dice.randbytes(len(noise))]))
            except nbd.Disconnected:
                pass
        bystander.verify(round_number, SIZE - 64 * KIB)
    appliance.stop()
