"""Drives with power cuts: QEMU's `nvme` in an image, whose writes QEMU's filter blklogwrites logs.
QEMU itself does not model a drive's cache: killing QEMU loses nothing."""

import json
import os
import tempfile

from configuration import smallest
from image import MIB, VMLINUX, Image
from machine import Machine
from vfio_test import IOMMU
from write_log import WriteLog

BYTES = 8 * MIB
# Volumes, each on a drive whose write cache is on or off like the volume's name.
AT = {"on": "0000:00:05.0", "off": "0000:00:06.0"}
VOLUME = """
[[blockd.volume]]
name = "{name}"
nvme = "{at}"
nvme_write_cache = "{name}"
bytes = "1 MiB"
buffer_bytes = "33 MiB"
"""
MORE = """
[blockd]
listen = ["tcp:127.0.0.1:10809"]
image_listen = ["tcp:10.0.2.15:10809"]
plain_text = "allowed"
max_connections = 4
""" + "".join(VOLUME.format(name=name, at=at) for name, at in AT.items()) + """
[[network]]
interface = "eth0"
driver = "virtio_net"
address = "10.0.2.15/24"
gateway = "10.0.2.2"
"""
CONFIGURATION = smallest("a", pool="192 MiB", sockets="io_uring", in_pool='pages = "2 MiB"',
                         more=MORE)


class Drives:
    """Runs an image of `program`, with the faults `broken`, and traffic on each volume: calls
    `traffic` with an address, a volume and the destination of the marks. Afterwards `logs` has a
    log for each volume."""

    def __init__(self, program, traffic, broken=""):
        self._work = tempfile.TemporaryDirectory()
        with open(self._path("a.toml"), "w", encoding="utf-8") as file:
            file.write(CONFIGURATION)
        with Image(self._path("a.toml"), options=("--level", "1"), program=program) as image, \
                Machine(image.path, *self._options(), KERNEL=VMLINUX, MEMORY_MIB="1024",
                        APPEND=f"intel_iommu=on BROKEN={broken}") as machine:
            machine.expect_ready()
            for name in AT:
                traffic(f"tcp:127.0.0.1:{machine.port}", name,
                        f"file:{self._path(name)}.log:{self._path(name)}.marks")
        self.logs = {name: WriteLog(f"{self._path(name)}.log", f"{self._path(name)}.marks")
                     for name in AT}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for log in self.logs.values():
            log.close()
        self._work.cleanup()

    def _path(self, name):
        return os.path.join(self._work.name, name)

    def _options(self):
        """QEMU's options for the drives AT."""
        options = IOMMU.format(bits=48).split()
        for name, at in AT.items():
            for kind, length in (("disk", BYTES), ("log", 0)):
                with open(f"{self._path(name)}.{kind}", "wb") as file:
                    file.truncate(length)
            log = {"driver": "blklogwrites",
                   **{kind: {"driver": "file", "filename": f"{self._path(name)}.{end}"}
                      for kind, end in (("file", "disk"), ("log", "log"))}}
            # QEMU flushes a write without a cache only in the nodes below the one that receives the
            # write.
            node = {"driver": "raw", "node-name": name, "file": log}
            options += ["-blockdev", json.dumps(node),
                        "-device", f"nvme,serial={name},drive={name},addr={at[8:10]}"]
        return options
