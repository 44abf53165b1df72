#!/usr/bin/python3
"""Volumes whose drive is polled by io_uring: QEMU's `nvme` with the kernel's driver.

    /usr/bin/python3 tests/guest/polled_test.py [PATTERN...]

Patterns, GUEST_MODE and the last line are those of guest_test.py. One volume is a drive, another a
file on an ext4 partition of a second drive. On Debian 12's kernel, a polled request hangs if the
kernel has to split it, so a real client sends requests of all sizes.
"""

import json
import re
import shutil
import struct
import subprocess
import sys
import tempfile

from configuration import ONE_VOLUME, SERVE, smallest
from guest_test import KIB, MIB, Guest
from runner import Failure, run_tests

SIZE, BYTES = 16 * MIB, 2 * MIB
PARTITION_AT = MIB
VOLUME = '[[blockd.volume]]\nname = "{name}"\nbuffer_bytes = "33 MiB"\n{more}\n'
VOLUMES = {"disk": 'device = "/dev/nvme0n1"\nbytes = "2 MiB"\npolled = true',
           "file": 'file = "/mnt/disk"\npolled = true',
           "idle": 'device = "/dev/nvme1n2"'}
# Sizes of nbdcopy's requests. On 6.1 the drive takes at most 512 KiB, in at most 127 segments of a
# page: a request of 512 KiB meets the first limit, but not the second.
SMALL, SPLIT, LARGE = 4 * KIB, 512 * KIB, MIB

BEGIN = SERVE + r"""
echo 160 > /proc/sys/vm/nr_hugepages
configure() {
  cat > /tmp/a.toml << END
""" + smallest("a", pool="224 MiB", sockets="io_uring", in_pool='pages = "2 MiB"',
               more=ONE_VOLUME.format(store="$1")) + r"""
$2
END
}
look() { configure "$1"; echo "== look $1"; /bedplate check /tmp/a.toml 2>&1; echo == exit $?; }
load() {
  rmmod nvme; insmod /modules/nvme.ko $1 || exit
  until [ -b /dev/nvme0n1 ] && [ -b /dev/nvme1n1p1 ]; do sleep 0.05; done
}
stats() { echo "== stats $1"; /bedplate stats --json a; echo == end; }
"""


def make_partitioned(path):
    """Creates a drive with one partition, which has an ext4."""
    with open(path, "wb") as file:
        file.truncate(SIZE)
        file.seek(446)
        file.write(struct.pack("<8B2I", 0, 0, 0, 0, 0x83, 0, 0, 0, PARTITION_AT // 512,
                               (SIZE - PARTITION_AT) // 512))
        file.seek(510)
        file.write(b"\x55\xaa")
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-E", f"offset={PARTITION_AT}", path,
                    f"{(SIZE - PARTITION_AT) // KIB}k"], check=True)


def files_in(counters):
    """The counters of the files, by their volumes."""
    files = counters["services"]["blockd"]["files"]
    return {name: files[f"volume{number}"] for number, name in enumerate(VOLUMES)}


def requests_of_all_sizes_and_refusals():
    """Each size is written and read by two connections, with a flush, and compared."""
    copies = "".join(f"""
copy {name} {size}
stats {name}-{size}
""" for name in ("disk", "file") for size in (SMALL, SPLIT, LARGE))
    volumes = "".join(VOLUME.format(name=name, more=more) for name, more in VOLUMES.items()
                      if name != "disk")
    script = BEGIN + f"""
load poll_queues=0
look 'device = "/dev/nvme0n1"
polled = true'
load poll_queues=1
mkdir -p /mnt; mount -t ext4 /dev/nvme1n1p1 /mnt || exit; truncate -s {BYTES} /mnt/disk
truncate -s {BYTES} /tmp/disk
look 'file = "/tmp/disk"
polled = true'
look 'file = "/mnt/disk"
polled = true'
head -c {BYTES} /dev/urandom > /tmp/random
configure '{VOLUMES["disk"]}' '{volumes}'
copy() {{
  uri="nbd+unix:///$1?socket=/tmp/socket"
  echo "== copy $1 $2"
  /usr/bin/nbdcopy --flush -C 2 --request-size=$2 /tmp/random $uri
  /usr/bin/nbdcopy -C 2 --request-size=$2 $uri /tmp/back
  cmp /tmp/back /tmp/random; echo == same $?
  head -c {BYTES} /dev/urandom > /tmp/random
}}
serve a; kill -0 $a || {{ cat /tmp/a.log; exit 1; }}
stats before
{copies}
until /bedplate stats --json a | grep -q '"asleep": true'; do sleep 0.05; done; echo == asleep
kill -TERM $a; wait $a; echo == ended $?; cat /tmp/a.log
cmp -n {MIB} /dev/zero /dev/nvme1n2; echo == idle $?; umount /mnt; e2fsck -fn /dev/nvme1n1p1; echo == clean $?
"""
    with tempfile.NamedTemporaryFile() as whole, tempfile.NamedTemporaryFile() as parted, \
            tempfile.NamedTemporaryFile() as other:
        for file in (whole, other):
            file.truncate(SIZE)
        make_partitioned(parted.name)
        drives = " ".join(
            f"-blockdev driver=raw,file.driver=file,file.filename={file.name},node-name={name}"
            for name, file in (("whole", whole), ("parted", parted), ("other", other)))
        guest = Guest("/bin/sh", "-c", script, modules="nvme crc32c_generic ext4", seconds=120,
                      files=f"{shutil.which('nbdcopy')} {shutil.which('e2fsck')}=/bin/e2fsck",
                      qemu=f"{drives} -device nvme,serial=first,drive=whole,addr=5 "
                           "-device nvme,id=second,serial=second,addr=6 "
                           "-device nvme-ns,drive=parted,bus=second,nsid=1 "
                           "-device nvme-ns,drive=other,bus=second,nsid=2")
    guest.expect_exit(0)
    cure = r"; .*nvme\.poll_queues=N on the kernel's command line"
    guest.expect_refusals([
        r"opening /dev/nvme0n1 for device of volume disk in \[blockd\]: its drive cannot be "
        rf"polled: the driver has no poll queues{cure}",
        r"opening /tmp/disk for file of volume disk in \[blockd\]: .*; ", None])
    if len(re.findall(r"^== same 0$", guest.output, re.MULTILINE)) != 6:
        raise Failure(f"what was read is not what was written\n{guest.output}")
    guest.expect(r"^== asleep$")  # a shard that polls would not be asleep
    guest.expect(r"^== ended 0$")
    guest.expect(r"^== idle 0$")  # no request went to the wrong drive
    guest.expect(r"^== clean 0$")
    expect_counted(guest)


def expect_counted(guest):
    """Checks that the requests that the drive takes unsplit were polled, and no others."""
    stats = {when: json.loads(text) for when, text in
             re.findall(r"^== stats (\S+)\n(\{[\s\S]*?^\})", guest.output, re.MULTILINE)}
    before = files_in(stats["before"])
    for name in ("disk", "file"):
        for size in (SMALL, SPLIT, LARGE):
            now = files_in(stats[f"{name}-{size}"])
            polled, operations, errors = (
                now[name][key] - before[name][key]
                for key in ("file_polled", "file_operations", "file_errors"))
            if errors or not (polled >= 2 * BYTES // SMALL if size == SMALL else polled == 0):
                raise Failure(f"{name}: of {operations} operations of {size} bytes {polled} were "
                              f"polled, {errors} failed\n{guest.output}")
            before = now
    if before["idle"]["file_polled"] != 0:
        raise Failure(f"what is not to be polled was\n{guest.output}")


TESTS = [requests_of_all_sizes_and_refusals]


if __name__ == "__main__":
    sys.exit(run_tests(TESTS))
