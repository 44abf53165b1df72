#!/usr/bin/python3
"""A process of another user that joins a pool by docs/join.md alone, and tries on the files that it
receives everything that the kernel allows:

    outsider.py SOCKET NAME ACTION...

Each action prints its result in one line. After the last action it waits until its standard input
ends.
"""

import ctypes
import fcntl
import mmap
import os
import socket
import struct
import sys

NOBODY = 65534
MAGIC, VERSION = 0x316E696F6A706562, 4
REQUEST, ACCEPTED, READY, FAILED = 1, 2, 4, 5
POOL_BASE, POOL_BYTES, REGION_BYTES, LINE_BYTES = 0x108000000000, 512 << 30, 1 << 30, 64
SEGMENTS_AT, SEGMENT_BYTES, OWN_HEAP = 1528, 96, 3
FALLOCATE, KEEP_SIZE, PUNCH_HOLE = 285, 1, 2
F_ADD_SEALS = 1033
SEALS = {"write": 8, "future_write": 16, "seal": 1}
SYSCALL = ctypes.CDLL(None, use_errno=True).syscall


class Segment:
    def __init__(self, packet, fd):
        owner, _, self.bytes, _, writable, _, _, self.role = struct.unpack("64sQQQBBHI", packet)
        self.owner = owner.rstrip(b"\0").decode()
        self.fd = fd
        self.is_writable = writable == 1

    def memory(self, rights=mmap.PROT_READ):
        return mmap.mmap(self.fd, self.bytes, mmap.MAP_SHARED, rights)


class Outsider:
    def __init__(self, path, name):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(path)
        self.socket.send(struct.pack("QIIQQQII32s", MAGIC, VERSION, REQUEST, POOL_BASE, POOL_BYTES,
                                     REGION_BYTES, LINE_BYTES, 1, name.encode()))
        packet, fds, _, _ = socket.recv_fds(self.socket, 1 << 16, 253)
        if struct.unpack_from("QII", packet) != (MAGIC, VERSION, ACCEPTED):
            sys.exit(f"refused: {packet[16:].decode(errors='replace')}")
        count, = struct.unpack_from("I", packet, 108)
        self.quiet_pipe = fds[count]
        self.segments = [Segment(packet[at:at + SEGMENT_BYTES], fd) for at, fd in
                         zip(range(SEGMENTS_AT, len(packet), SEGMENT_BYTES), fds)]
        self.written = [segment for segment in self.segments if segment.is_writable]
        self.heaps = [segment for segment in self.written if segment.role == OWN_HEAP]

    def say(self, kind, bytes_behind=0):
        self.socket.send(struct.pack("QII", MAGIC, VERSION, kind) + bytes(bytes_behind))

    def ready(self):
        self.say(READY)

    def fail(self):
        self.say(FAILED, 192 + 256 + 320)

    def fill(self):
        for segment in self.heaps:
            segment.memory(mmap.PROT_WRITE)[:] = b"\x5a" * segment.bytes

    def punch(self):
        for segment in self.written:
            if SYSCALL(FALLOCATE, segment.fd, PUNCH_HOLE | KEEP_SIZE, ctypes.c_long(0),
                       ctypes.c_long(segment.bytes)) != 0:
                sys.exit(f"punching {segment.owner}: {os.strerror(ctypes.get_errno())}")

    def seal(self):
        return " ".join(f"{segment.owner}:{name}" for segment in self.segments
                        for name, seal in SEALS.items() if self.seals(segment, seal))

    @staticmethod
    def seals(segment, seal):
        try:
            fcntl.fcntl(segment.fd, F_ADD_SEALS, seal)
        except PermissionError:
            return False
        return True

    def look(self):
        """Reports the received heaps that are not zeroed, and the segments with missing pages."""
        dirty = [segment.owner for segment in self.heaps if any(segment.memory()[:])]
        holes = [segment.owner for segment in self.written
                 if os.fstat(segment.fd).st_blocks * 512 < segment.bytes]
        return f"dirty {dirty} holes {holes}"


def main():
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    outsider = Outsider(*sys.argv[1:3])
    for action in sys.argv[3:]:
        print(action, getattr(outsider, action)() or "", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
