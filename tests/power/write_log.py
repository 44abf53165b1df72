"""A log of writes, as the kernel's dm-log-writes and QEMU's blklogwrites make it, and the possible
disk contents after a power cut at any point of it.

The format: a sector with (magic, version, count, bytes of a sector), then for each entry a sector
with (sector, sectors, flags, bytes of a mark) and the data. The kernel logs a write when it is
flushed, or had FUA, and a mark when it comes. QEMU logs a write when it completes; a write that
completes during a flush counts as flushed.

A thread writes the kernel's log. On a busy machine it is thousands of entries behind, as it
waits for the disk after each mark. When the device is removed (log_writes_dtr in the kernel's
drivers/md/dm-log-writes.c), the kernel puts unflushed writes ahead of those entries instead of
behind them (list_splice_init, while normal_end_io has list_splice_tail_init). So the very last
writes appear among much earlier ones in the log, before writes that were flushed earlier. For this
reason the last request to the device must be a flush.
"""

import bisect
import mmap
import struct

MAGIC = 0x6a736677736872
SUPER = struct.Struct("<QQQI")
ENTRY = struct.Struct("<QQQQ")
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8
SECTOR = 512  # a disk writes a sector as a whole


class Entry:
    """`begin`, `count`: bytes on the disk; `data`: their position in the log, None: zeros."""

    __slots__ = ("flags", "begin", "count", "data", "mark")

    def __init__(self, flags, begin=0, count=0, data=None, mark=""):
        self.flags, self.begin, self.count, self.data, self.mark = flags, begin, count, data, mark


class WriteLog:
    """`entries`: all entries of the log at `path`; `flushes`: the positions of those that flush.
    `marks`, for QEMU's log: a file of lines "LENGTH TEXT", each a mark at that length of the
    log."""

    def __init__(self, path, marks=None):
        with open(path, "rb") as file:
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.entries = []
        lines = []
        if marks is not None:
            with open(marks, encoding="ascii") as file:
                lines = [line.split() for line in file]
        self._read([(int(length), Entry(MARK, mark=text)) for length, text in lines])
        self.flushes = [at for at, entry in enumerate(self.entries) if entry.flags & FLUSH]

    def is_in_order(self):
        """Returns whether the kernel's device was flushed before it was removed. Then no write was
        left that the kernel could put ahead of others."""
        *_, flush, end = self.entries
        return flush.flags & FLUSH and end.mark == "dm-log-writes-end"

    def close(self):
        self.bytes.close()

    def _read(self, marks):
        magic, version, count, sector = SUPER.unpack_from(self.bytes)
        if (magic, version) != (MAGIC, 1):
            raise ValueError(f"no log of writes: it begins with {magic:#x}, {version}")
        at, marked, entries = sector, 0, self.entries
        for _ in range(count):
            while marked < len(marks) and marks[marked][0] <= at:
                entries.append(marks[marked][1])
                marked += 1
            first, sectors, flags, mark_bytes = ENTRY.unpack_from(self.bytes, at)
            begin = at + ENTRY.size
            at += sector
            if flags & MARK:
                mark = self.bytes[begin:begin + mark_bytes].decode("ascii")
                entries.append(Entry(MARK, mark=mark))
            elif flags & DISCARD:
                entries.append(Entry(flags, first * sector, sectors * sector))
            else:
                entries.append(Entry(flags, first * sector, sectors * sector, at))
                at += sectors * sector
        entries += [mark for _, mark in marks[marked:]]

    def data(self, entry, begin, count):
        """`count` bytes of the entry's data, from its byte `begin` on."""
        return (bytes(count) if entry.data is None else
                self.bytes[entry.data + begin:entry.data + begin + count])


class Disk:
    """The disk at a position of the log, which only advances. `base`: the content that is
    certain."""

    def __init__(self, log, content):
        self.log, self.base, self.done = log, bytearray(content), 0

    def cut(self, position, dice):
        """Returns a content that the disk may have if the power is cut while the log's entries from
        `position` on are not acknowledged yet, and the end of the entries that may be in it."""
        entries, flushes = self.log.entries, self.log.flushes
        behind = bisect.bisect_left(flushes, position)
        flush = flushes[behind - 1] + 1 if behind else 0  # everything before it is durable
        while self.done < flush:
            self._write(self.base, entries[self.done])
            self.done += 1
        left = bytearray(self.base)
        # The cached writes, and some writes that come before the cache is flushed.
        end = dice.randint(position, (*flushes, len(entries))[behind])
        for at in range(flush, end):
            is_certain = at < position and entries[at].flags & FUA
            self._write(left, entries[at], None if is_certain else dice)
        return left, end

    def _write(self, content, entry, dice=None):
        """Writes the entry into `content`. With dice, any of its sectors may be lost; some writes
        lose none or all."""
        if entry.count == 0:
            return
        chance = 1 if dice is None else dice.choice((0, 0.5, 0.5, 1))
        if chance == 1:
            content[entry.begin:entry.begin + entry.count] = self.log.data(entry, 0, entry.count)
        elif chance:
            for at in range(0, entry.count, SECTOR):
                if dice.random() < chance:
                    begin = entry.begin + at
                    content[begin:begin + SECTOR] = self.log.data(entry, at, SECTOR)
