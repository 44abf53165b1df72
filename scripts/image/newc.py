"""Writes an initramfs in the kernel's format (cpio's newc: buffer-format.rst in the kernel's
Documentation/driver-api/early-userspace). The same contents give the same bytes: it has no times,
owners or inode numbers of the build machine.
"""

import stat

DIRECTORY = stat.S_IFDIR
FILE = stat.S_IFREG
DEVICE = stat.S_IFCHR


def _entry(number, path, mode, data=b"", device=(0, 0)):
    name = path.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, device[0], device[1], len(name), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    head = header + name
    return head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)


class Archive:
    """Collects entries; bytes() puts them in the order of their paths."""

    def __init__(self):
        self._entries = {}

    def directory(self, path, mode=0o755):
        self._entries[path] = (DIRECTORY | mode, b"", (0, 0))

    def file(self, path, data, mode=0o644):
        self._entries[path] = (FILE | mode, data, (0, 0))

    def device(self, path, major, minor, mode=0o600):
        self._entries[path] = (DEVICE | mode, b"", (major, minor))

    def bytes(self):
        # A folder sorts before its contents.
        parts = [_entry(number, path, *self._entries[path])
                 for number, path in enumerate(sorted(self._entries), start=1)]
        parts.append(_entry(0, "TRAILER!!!", 0))
        return b"".join(parts)
