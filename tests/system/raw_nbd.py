"""An NBD client that sends exactly the bytes of a test, legal or not.

It has one socket, blocking with a bound. Requests are not checked, so that a test can send wrong
ones; the server's answers are parsed strictly. The numbers are those of the NBD protocol's
specification (github.com/NetworkBlockDevice/nbd, doc/proto.md).
"""

import collections
import concurrent.futures
import contextlib
import random
import socket
import struct

from harness import BOUND_SECONDS, KIB, Failure, expect

GREETING = struct.pack(">QQH", 0x4E42444D41474943, 0x49484156454F5054, 3)
FIXED_NEWSTYLE, NO_ZEROES = 1, 2

OPTION_MAGIC, OPTION_REPLY_MAGIC = 0x49484156454F5054, 0x3E889045565A9
EXPORT_NAME, ABORT, LIST, PEEK_EXPORT, STARTTLS, INFO, GO, STRUCTURED_REPLY = range(1, 9)
LIST_META_CONTEXT, SET_META_CONTEXT, EXTENDED_HEADERS = 9, 10, 11
REP_ACK, REP_SERVER, REP_INFO, REP_META_CONTEXT = 1, 2, 3, 4
REP_ERR = 1 << 31
REP_ERR_UNSUP, REP_ERR_INVALID, REP_ERR_UNKNOWN, REP_ERR_TOO_BIG = (
    REP_ERR + 1, REP_ERR + 3, REP_ERR + 6, REP_ERR + 9)
INFO_EXPORT, INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE = range(4)

(HAS_FLAGS, IS_READ_ONLY, SEND_FLUSH, SEND_FUA, ROTATIONAL, SEND_TRIM, SEND_WRITE_ZEROES, SEND_DF,
 CAN_MULTI_CONN) = (1 << bit for bit in range(9))
SEND_FAST_ZERO = 1 << 11

REQUEST_MAGIC, SIMPLE_MAGIC, STRUCTURED_MAGIC = 0x25609513, 0x67446698, 0x668E33EF
READ, WRITE, DISC, FLUSH, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS = range(8)
FLAG_FUA, FLAG_NO_HOLE, FLAG_DF, FLAG_REQ_ONE, FLAG_FAST_ZERO = (1 << bit for bit in range(5))
CHUNK_DONE = 1
CHUNK_NONE, CHUNK_DATA, CHUNK_HOLE, CHUNK_BLOCK_STATUS = 0, 1, 2, 5
CHUNK_ERROR, CHUNK_ERROR_OFFSET = (1 << 15) + 1, (1 << 15) + 2
EPERM, EIO, EINVAL, ENOSPC, ENOTSUP = 1, 5, 22, 28, 95

OptionReply = collections.namedtuple("OptionReply", "option type data")
Reply = collections.namedtuple("Reply", "cookie error data chunk_count")


class Disconnected(Exception):
    """The server closed the connection."""


def pattern(seed, byte_count):
    """Bytes that depend on the seed and never repeat a block."""
    return random.Random(repr(seed)).randbytes(byte_count)


def option_bytes(number, data=b"", length=None, magic=OPTION_MAGIC):
    length = len(data) if length is None else length
    return struct.pack(">QII", magic, number, length) + data


def export_request(name, infos=()):
    """The data of INFO and GO."""
    name = name.encode() if isinstance(name, str) else name
    return struct.pack(f">I{len(name)}sH{len(infos)}H", len(name), name, len(infos), *infos)


def contexts_request(name, *queries):
    """The data of LIST_META_CONTEXT and SET_META_CONTEXT."""
    data = struct.pack(">I", len(name)) + name.encode() + struct.pack(">I", len(queries))
    return data + b"".join(struct.pack(">I", len(each)) + each.encode() for each in queries)


def request_bytes(command, offset=0, length=0, payload=b"", flags=0, cookie=0,
                  magic=REQUEST_MAGIC):
    header = struct.pack(">IHHQQI", magic, flags, command, cookie, offset, length)
    return header + payload


class RawClient:
    """One connection. `address` is a path or a (host, port)."""

    def __init__(self, address, receive_buffer_bytes=None):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family)
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(BOUND_SECONDS)
        self.is_structured = False
        self.read_lengths = {}  # cookie: bytes, for reads without a reply so far
        self.next_cookie = 1
        self.size = self.flags = None
        self.socket.connect(address)

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- Bytes ----

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            raise Disconnected from None
        except TimeoutError:
            raise Failure(f"the server took no bytes in {BOUND_SECONDS} s") from None

    @contextlib.contextmanager
    def sending(self, data):
        """Sends `data` in parallel with the caller's code: a server may wait until its replies are
        read before it takes the next request."""
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            sent = executor.submit(self.send, data)
            yield
            sent.result()

    def receive(self, byte_count):
        data = bytearray()
        while len(data) < byte_count:
            data += self._receive_some(byte_count - len(data))
        return bytes(data)

    def _receive_some(self, byte_count):
        try:
            part = self.socket.recv(min(byte_count, 1 << 20))
        except ConnectionResetError:
            part = b""
        except TimeoutError:
            raise Failure(f"the server said nothing in {BOUND_SECONDS} s") from None
        if not part:
            raise Disconnected
        return part

    def receive_struct(self, layout):
        return struct.unpack(layout, self.receive(struct.calcsize(layout)))

    def expect_disconnect(self, what, most_bytes=64 * KIB):
        """Checks that the server closes the connection after at most `most_bytes`."""
        try:
            self.receive(most_bytes + 1)
        except Disconnected:
            return
        raise Failure(f"{what}: the connection lives on; expected a disconnect")

    # ---- The handshake ----

    def greet(self, flags=FIXED_NEWSTYLE | NO_ZEROES):
        expect(self.receive(len(GREETING)), GREETING, "the greeting")
        self.send(struct.pack(">I", flags))
        return self

    def option_reply(self):
        magic, option, kind, length = self.receive_struct(">QIII")
        expect(hex(magic), hex(OPTION_REPLY_MAGIC), "the magic of an option reply")
        return OptionReply(option, kind, self.receive(length))

    def option(self, number, data=b"", length=None):
        """Sends an option and returns its replies, up to the acknowledgement or the error."""
        self.send(option_bytes(number, data, length))
        replies = []
        while not replies or replies[-1].type in (REP_SERVER, REP_INFO, REP_META_CONTEXT):
            replies.append(self.option_reply())
            expect(replies[-1].option, number, "the option that is replied to")
        return replies

    def option_result(self, number, data=b"", length=None):
        return self.option(number, data, length)[-1].type

    def go(self, name="ram0", structured=False):
        if structured:
            expect(self.option_result(STRUCTURED_REPLY), REP_ACK, "the answer to STRUCTURED_REPLY")
            self.is_structured = True
        replies = self.option(GO, export_request(name))
        expect(replies[-1].type, REP_ACK, f"the answer to GO {name!r}")
        [export] = [reply.data for reply in replies if reply.data[:2] == b"\0\0"]
        _, self.size, self.flags = struct.unpack(">HQH", export)
        return self

    # ---- Transmission ----

    def request(self, command, offset=0, length=0, payload=b"", flags=0):
        """Sends a request and returns its cookie. A write's length is that of its payload."""
        cookie = self.next_cookie
        self.next_cookie += 1
        if command == READ:
            self.read_lengths[cookie] = length
        self.send(request_bytes(command, offset, length or len(payload), payload, flags, cookie))
        return cookie

    def reply(self):
        """Returns the next complete reply. Chunks of other structured replies must not come in
        between: a test has one read at a time, or reads of one chunk."""
        magic = self.receive_struct(">I")[0]
        if magic == SIMPLE_MAGIC:
            reply = self._simple_reply()
        else:
            expect(hex(magic), hex(STRUCTURED_MAGIC), "the magic of a reply")
            reply = self._structured_reply()
        self.read_lengths.pop(reply.cookie, None)
        return reply

    def _simple_reply(self):
        error, cookie = self.receive_struct(">IQ")
        read_bytes = self.read_lengths.get(cookie, 0)
        if self.is_structured and read_bytes:
            raise Failure("a simple reply to a READ after STRUCTURED_REPLY")
        return Reply(cookie, error, b"" if error else self.receive(read_bytes), 0)

    def _structured_reply(self):
        if not self.is_structured:
            raise Failure("a structured reply without STRUCTURED_REPLY")
        error, first_cookie, parts, count, flags = 0, None, {}, 0, 0
        while flags != CHUNK_DONE:
            if count:
                expect(hex(self.receive_struct(">I")[0]), hex(STRUCTURED_MAGIC),
                       "the magic of a chunk")
            flags, kind, cookie, length = self.receive_struct(">HHQI")
            first_cookie = cookie if first_cookie is None else first_cookie
            expect(flags & ~CHUNK_DONE, 0, "unknown flags of a chunk")
            expect(cookie, first_cookie, "the cookie of a chunk")
            count += 1
            content = self.receive(length)
            if kind == CHUNK_DATA:
                parts[struct.unpack_from(">Q", content)[0]] = content[8:]
            elif kind == CHUNK_HOLE:
                offset, hole_bytes = struct.unpack(">QI", content)
                parts[offset] = bytes(hole_bytes)
            elif kind in (CHUNK_ERROR, CHUNK_ERROR_OFFSET):
                error = struct.unpack_from(">I", content)[0]
            else:
                expect(kind, CHUNK_NONE, "the type of a chunk")
        data = b"" if error else b"".join(parts[offset] for offset in sorted(parts))
        expect(len(data), 0 if error else self.read_lengths.get(first_cookie, 0),
               "the bytes of a reply")
        return Reply(first_cookie, error, data, count)

    def call(self, command, offset=0, length=0, payload=b"", flags=0):
        """One request and its reply."""
        cookie = self.request(command, offset, length, payload, flags)
        reply = self.reply()
        expect(reply.cookie, cookie, "the cookie of the reply")
        return reply

    def error(self, *request, **options):
        return self.call(*request, **options).error

    def read(self, offset, length):
        reply = self.call(READ, offset, length)
        expect(reply.error, 0, f"the error of a read of {length} bytes at {offset}")
        return reply.data

    def write(self, offset, payload, flags=0):
        expect(self.error(WRITE, offset, payload=payload, flags=flags), 0,
               f"the error of a write of {len(payload)} bytes at {offset}")

    def verify(self, seed, offset=0, byte_count=64 * KIB):
        """Writes and reads back: checks that this connection works and returns correct data."""
        data = pattern(seed, byte_count)
        self.write(offset, data)
        if self.read(offset, byte_count) != data:
            raise Failure(f"{byte_count} bytes at {offset} are not those that were written")


def connect(box, appliance, transport="unix", volume="ram0", structured=False, **options):
    """A client in transmission that ends with the test."""
    client = greeted(box, appliance, transport, **options)
    return client.go(volume, structured)


def greeted(box, appliance, transport="unix", **options):
    """A client in the handshake, past the greeting."""
    return connected(box, appliance, transport, **options).greet()


def connected(box, appliance, transport="unix", **options):
    """A client that has only connected."""
    return box.closing.enter_context(RawClient(appliance.address(transport), **options))
