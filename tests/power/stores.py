"""Stores: each makes a disk with a volume for the power cuts, finds the volume on the disk after a
cut, and has its own traffic."""

import os
import subprocess
import tempfile
from typing import NamedTuple

from image import MIB
from runner import Failure

PATH = os.pathsep.join([os.environ["PATH"], "/sbin", "/usr/sbin"])
VOLUME = MIB  # the traffic fills it
# A superblock has two sectors, and a cut may leave only one of them. With a checksum no tool
# repairs that.
MKFS = ("mke2fs", "-q", "-t", "ext4", "-O", "^metadata_csum")


class Traffic(NamedTuple):
    """A script, the line that it ends with, and the programs and modules that it needs."""

    script: str
    done: str
    programs: tuple = ()
    modules: str = ""


class OnDevice:
    """The volume is the beginning of the disk."""

    disk_bytes = 8 * MIB
    modules = ""
    begin = end = ""
    table = 'device = "$device"\nbytes = "1 MiB"'

    def prepare(self, path):
        with open(path, "wb") as file:
            file.truncate(self.disk_bytes)


class WholeDevice(OnDevice):
    """The volume is the whole disk."""

    table = 'device = "$device"'


class InFile:
    """The volume is a file on an ext4. After each cut e2fsck repairs the file system, as at a
    boot."""

    disk_bytes = 16 * MIB
    volume_bytes = VOLUME
    modules = "ext4 crc32c_generic"
    begin = "mkdir /mnt; mount -t ext4 $device /mnt || exit 1\n"
    # A killed appliance holds its file for a moment longer.
    end = "while grep -q ' /mnt ' /proc/mounts; do umount /mnt || sleep 0.1; done\n"
    table = 'file = "/mnt/volume"'

    def prepare(self, path):
        with open(path, "wb") as file:
            file.truncate(self.disk_bytes)
        with tempfile.TemporaryDirectory() as root:
            with open(os.path.join(root, "volume"), "wb") as file:
                file.truncate(self.volume_bytes)
            run((0,), *MKFS, "-b", "4096", "-d", root, path)

    def volume(self, content):
        with tempfile.TemporaryDirectory() as work:
            disk, volume = (os.path.join(work, name) for name in ("disk", "volume"))
            with open(disk, "wb") as file:
                file.write(content)
            run((0, 1), "e2fsck", "-fp", disk)  # the journal was replayed
            run((0,), "debugfs", "-R", f"dump /volume {volume}", disk)
            with open(volume, "rb") as file:
                return file.read()


def run(good, *command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False,
                          env=dict(os.environ, PATH=PATH))
    if done.returncode not in good:
        raise Failure(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
