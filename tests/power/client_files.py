"""A client's file system on a volume, through the kernel's nbd: after power cuts all synced data
are present, and nothing else is damaged."""

import os
import tempfile

from runner import Failure
from stores import MKFS, Traffic, run

FILES, KEPT = 120, 30
# Writes files one after the other and syncs them; the content of each is its number. Removes old
# files. Makes a mark after each file that is durable.
FILES_TRAFFIC = Traffic(
    script=f"""/usr/sbin/nbd-client -nonetlink -unix /tmp/socket -name disk -connections 2 /dev/nbd0
/usr/sbin/{" ".join(MKFS)} /dev/nbd0 && mkdir /client && mount -t ext4 /dev/nbd0 /client || exit 1
for i in $(seq {FILES}); do
  yes $i | head -c $((i * 97 % 20000 + 1)) > /tmp/content
  dd if=/tmp/content of=/client/$i conv=fsync 2> /dev/null || exit 1
  /usr/sbin/dmsetup message power 0 mark s:$i || exit 1
  rm -f /client/$((i - {KEPT}))
done
echo client: {FILES} files
umount /client && /usr/sbin/nbd-client -nonetlink -d /dev/nbd0""",
    done=f"client: {FILES} files", programs=("nbd-client", "mke2fs"),
    modules="nbd ext4 crc32c_generic")


def content_of(number):
    count = number * 97 % 20000 + 1
    line = f"{number}\n".encode()
    return (line * (count // len(line) + 1))[:count]


class FileLedger:
    """A Ledger of the marks of FILES_TRAFFIC."""

    def __init__(self, entries):
        marks = [(position, int(entry.mark[2:])) for position, entry in enumerate(entries)
                 if entry.mark.startswith("s:")]
        self.answers = [position + 1 for position, _ in marks]
        self._number_at = {position + 1: number for position, number in marks}
        self._synced = 0

    def go_to(self, position):
        self._synced = self._number_at[position]

    def losses(self, content, _end):
        """Returns a line for each synced file that is missing or wrong, or for a file system that
        e2fsck does not repair by itself."""
        with tempfile.TemporaryDirectory() as work:
            disk, root = (os.path.join(work, name) for name in ("disk", "root"))
            with open(disk, "wb") as file:
                file.write(content)
            try:
                run((0, 1), "e2fsck", "-fp", disk)
            except Failure as failure:
                return [str(failure)]
            os.mkdir(root)
            run((0,), "debugfs", "-R", f"rdump / {root}", disk)
            # The next file may remove one more.
            wanted = range(max(self._synced - KEPT + 1, 1), self._synced + 1)
            lost = []
            for number in wanted:
                path = os.path.join(root, str(number))
                if not os.path.exists(path):
                    lost.append(f"file {number}: it is not there")
                    continue
                with open(path, "rb") as file:
                    if file.read() != content_of(number):
                        lost.append(f"file {number}: it has something else in it")
            return lost
