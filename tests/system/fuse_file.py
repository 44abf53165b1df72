"""A file system of one file, "log", served by a thread of the test over /dev/fuse. Each operation
on the file is executed, fails with an errno, or gets no answer, as if the server hung. A power
cut removes unsynced writes."""

import contextlib
import ctypes
import errno
import os
import select
import stat
import struct
import threading

from harness import BOUND_SECONDS, Failure, Skip

LOOKUP, FORGET, GETATTR, OPEN, READ, WRITE, RELEASE, FSYNC, INIT, BATCH_FORGET = (
    1, 2, 3, 14, 15, 16, 18, 20, 26, 42)
SECTOR = 512
ROOT, FILE = 1, 2  # nodes
DIRECT_IO, NO_FLUSH = 1 << 0, 1 << 5  # of an open file: each read and write reaches this server
IN_HEADER = struct.Struct("=IIQQIIII")
MS_RDONLY, MNT_FORCE, MNT_DETACH = 1, 1, 2


class FuseFile:
    """The file system is mounted inside the `with`; `path` is its file. Requests without an answer
    end with the `with`."""

    def __init__(self, box, content=b"", is_read_only=False):
        self.directory = box.path("fuse")
        self.path = os.path.join(self.directory, "log")
        self.content = bytearray(content)
        self.is_read_only = is_read_only
        self.errors = {}  # action: the errno that it ends with
        self.gates = {}  # action: the event that it waits for
        # Deliberate faults: "flush" and "fua" do not sync; "early" answers a write, but executes it
        # only when the next write comes.
        self.broken = ""
        self.put_off = None
        self.durable = bytes(content)  # the content at the last sync
        self.since = []  # (offset, bytes) of the writes since then
        self.lock = threading.Lock()
        self.must_pause = threading.Event()
        self.has_paused = threading.Event()
        self.libc = ctypes.CDLL(None, use_errno=True)

    def __enter__(self):
        try:
            self.fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise Skip(f"/dev/fuse cannot be opened: {error.strerror}") from None
        os.makedirs(self.directory)
        options = f"fd={self.fd},rootmode=40000,user_id=0,group_id=0,allow_other"
        if self.libc.mount(b"journal", self.directory.encode(), b"fuse",
                           MS_RDONLY if self.is_read_only else 0, options.encode()) != 0:
            os.close(self.fd)
            raise Skip(f"fuse cannot be mounted: {os.strerror(ctypes.get_errno())}")
        self.wake_read, self.wake_write = os.pipe()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.must_pause.set()
        os.write(self.wake_write, b"x")
        # All pending requests end with ECONNABORTED.
        self.libc.umount2(self.directory.encode(), MNT_FORCE | MNT_DETACH)
        self.thread.join(BOUND_SECONDS)
        for fd in (self.fd, self.wake_read, self.wake_write):
            os.close(fd)

    @contextlib.contextmanager
    def held(self, action):
        """Inside the `with`, each such action waits, and so do the requests after it."""
        gate = self.gates[action] = threading.Event()
        try:
            yield
        finally:
            del self.gates[action]
            gate.set()

    def hang(self):
        """Stops answering from now on. The kernel keeps the requests."""
        self.must_pause.set()
        os.write(self.wake_write, b"x")
        if not self.has_paused.wait(BOUND_SECONDS):
            raise Failure("the file system's server does not pause")

    def after_power_cut(self, dice):
        """A content that the file may have after a power cut now: any of the sectors written since
        the last sync may be lost."""
        with self.lock:
            left, since = bytearray(self.durable), list(self.since)
        for offset, data in since:
            for at in range(0, len(data), SECTOR):
                if dice.random() < 0.5:
                    left[offset + at:offset + at + SECTOR] = data[at:at + SECTOR]
        return bytes(left)

    def restore(self, content):
        with self.lock:
            self.content = bytearray(content)
            self.durable, self.since, self.put_off = bytes(content), [], None

    def is_asked(self):
        """Returns whether a request has arrived since the server hangs."""
        return bool(select.select([self.fd], [], [], 0)[0])

    def _serve(self):
        with contextlib.suppress(OSError):  # ENODEV: it is unmounted
            while not self.must_pause.is_set():
                if self.fd in select.select([self.fd, self.wake_read], [], [])[0]:
                    self._answer(os.read(self.fd, 1 << 18))
        self.has_paused.set()

    def _answer(self, request):
        _, opcode, unique, node, *_ = IN_HEADER.unpack_from(request)
        if opcode in (FORGET, BATCH_FORGET):
            return
        body = request[IN_HEADER.size:]
        if gate := self.gates.get(opcode):
            gate.wait(BOUND_SECONDS)
        number = self.errors.get(opcode, 0)
        with self.lock:
            answer = b"" if number else self._act(opcode, node, body)
        if answer is None:
            number, answer = errno.ENOSYS, b""
        os.write(self.fd, struct.pack("=IiQ", 16 + len(answer), -number, unique) + answer)

    def _act(self, opcode, node, body):
        if opcode == INIT:
            return struct.pack("=IIIIHHIIHHI28x", 7, 31, 0, 0, 16, 12, 1 << 17, 1, 0, 0, 0)
        if opcode == LOOKUP:
            if body.rstrip(b"\0") != b"log":
                return struct.pack("=QQQQII88x", 0, 0, 0, 0, 0, 0)  # there is no such file
            return struct.pack("=QQQQII", FILE, 0, 0, 0, 0, 0) + self._attributes(FILE)
        if opcode == GETATTR:
            return struct.pack("=QII", 0, 0, 0) + self._attributes(node)
        if opcode == OPEN:
            return struct.pack("=QII", 0, DIRECT_IO | NO_FLUSH, 0)
        if opcode in (READ, WRITE):
            _, offset, size = struct.unpack_from("=QQI", body)
            if opcode == READ:
                return bytes(self.content[offset:offset + size])
            is_durable = struct.unpack_from("=I", body, 32)[0] & os.O_DSYNC != 0
            write = (offset, bytes(body[40:40 + size]), is_durable)
            if self.broken == "early":
                self.put_off, write = write, self.put_off
            if write:
                self._write(*write)
            return struct.pack("=II", size, 0)
        if opcode == FSYNC and self.broken != "flush":
            self.durable, self.since = bytes(self.content), []
        return b"" if opcode in (RELEASE, FSYNC) else None

    def _write(self, offset, data, is_durable):
        self.content[offset:offset + len(data)] = data
        if is_durable and self.broken != "fua":
            durable = bytearray(self.durable)
            # Overwritten data cannot come back. Only offsets are compared, because a test always
            # writes the same whole blocks.
            self.since = [(at, before) for at, before in self.since
                          if not offset <= at < offset + len(data)]
            durable[offset:offset + len(data)] = data
            self.durable = bytes(durable)
        else:
            self.since.append((offset, data))

    def _attributes(self, node):
        mode, size = ((stat.S_IFDIR | 0o755, 0) if node == ROOT else
                      (stat.S_IFREG | 0o600, len(self.content)))
        return struct.pack("=QQQQQQIIIIIIIIII", node, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0,
                           4096, 0)
