#!/usr/bin/python3
"""Power cuts at any write of a disk: data acknowledged as durable are present afterwards.

    /usr/bin/python3 tests/power/power_test.py [PATTERN...]

Patterns and the last line are those of guest_test.py. Two connections send random writes, zeroes,
trims and flushes (traffic.cc), and mark their answers in the log of all writes (write_log.py).
Then the log is cut at marks: data not flushed at the cut are lost or torn by sectors. A checker
(ledger.py) looks for the acknowledged data: on the disk, in a file on it (stores.py), or on an NVMe
drive without the kernel (drive.py). Other checkers look for files synced by a client's file system
through the kernel's nbd (client_files.py), and for fio's writes (client_fio.py). The checkers must
detect stores that promise too much (broken.cc): on a device in every run, elsewhere with
POWER_BROKEN=1, since each needs its own machine. A log is cut POWER_CUTS (1000) times; if a foreign
tool checks each cut, POWER_FILE_CUTS (60) times.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "guest"))

from client_files import FILES_TRAFFIC, FileLedger  # noqa: E402
from client_fio import FIO_TRAFFIC, FioLedger, FioFile  # noqa: E402
from configuration import ONE_VOLUME, SERVE, smallest  # noqa: E402
from drive import BYTES, Drives  # noqa: E402
from guest_test import Guest  # noqa: E402
from image import MIB, PROGRAM  # noqa: E402
from ledger import Ledger  # noqa: E402
from machine import ROOT  # noqa: E402
from runner import Failure, run_tests  # noqa: E402
from stores import PATH, VOLUME, InFile, OnDevice, Traffic, WholeDevice  # noqa: E402
from write_log import Disk, WriteLog  # noqa: E402

CUTS = int(os.environ.get("POWER_CUTS", "1000"))
FILE_CUTS = int(os.environ.get("POWER_FILE_CUTS", "60"))
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
REQUESTS = 1500
LOG = 512 * MIB  # sparse
TRAFFIC, BROKEN = (os.path.join(ROOT, "build", "release", name)
                   for name in ("power-traffic", "power-broken"))

# ---- A kernel that logs writes ----

REQUESTS_TRAFFIC = Traffic(
    script=f"/power-traffic unix:/tmp/socket disk dm:power {SEED} {REQUESTS}",
    done=f"power-traffic: {REQUESTS} requests")
SCRIPT = """
sectors=$(cat /sys/block/vda/size)
/usr/sbin/dmsetup create power --noudevsync --table "0 $sectors log-writes /dev/vda /dev/vdb"
device=/dev/$(ls /sys/block | grep dm-)
{begin}cat > /tmp/a.toml << END
""" + smallest("a", pool="128 MiB", sockets="io_uring", in_pool='pages = "4 KiB"',
             more=ONE_VOLUME.format(store="{table}")) + """END
export BROKEN={broken}
serve a {program}
({traffic})
status=$?
kill -KILL $a
wait $a
cat /tmp/a.log
{end}until [ $(/usr/sbin/dmsetup info -c --noheadings -o open power) = 0 ]; do sleep 0.1; done
dd if=/dev/null of=$device conv=notrunc,fsync && /usr/sbin/dmsetup remove --noudevsync power || exit
exit $status
"""


class Kernel:
    """A guest with a disk behind dm-log-writes, and a volume at `store` for `traffic`. Afterwards
    `log` is the log, and `begin` the disk's content before the traffic."""

    def __init__(self, store, broken="", traffic=REQUESTS_TRAFFIC):
        self._work = tempfile.TemporaryDirectory()
        disk, log = (os.path.join(self._work.name, name) for name in ("disk", "log"))
        store.prepare(disk)
        with open(disk, "rb") as file:
            self.begin = file.read()
        with open(log, "wb") as file:
            file.truncate(LOG)
        files = [f"{shutil.which(name, path=PATH)}=/usr/sbin/{name}"
                 for name in ("dmsetup", *traffic.programs)]
        files += [f"{TRAFFIC}=/power-traffic", f"{BROKEN}=/power-broken"]
        script = SERVE + SCRIPT.format(begin=store.begin, end=store.end, table=store.table,
                                       broken=broken, traffic=traffic.script,
                                       program="/power-broken" if broken else "/bedplate")
        guest = Guest("/bin/sh", "-c", script, files=" ".join(files), seconds=300,
                      modules=f"virtio_blk dm_log_writes {store.modules} {traffic.modules}",
                      # A thread whose flush carries writes for dm-log-writes must not wait for the
                      # processor: another thread's flush, which covers them, would be in the log
                      # first.
                      append="preempt=none",
                      qemu=" ".join(f"-drive file={each},if=virtio,format=raw,cache=unsafe"
                                    for each in (disk, log)))
        guest.expect_exit(0)
        guest.expect(f"^{traffic.done}$")
        self.log = WriteLog(log)
        if not self.log.is_in_order():
            raise Failure("the log ends without a flush: what it has of the last writes may be at "
                          "any earlier position (write_log.py)")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.log.close()
        self._work.cleanup()


def client_kernel(broken=""):
    return Kernel(WholeDevice(), broken, FILES_TRAFFIC)


# ---- A drive whose writes QEMU logs ----


def nvme(broken=""):
    """Traffic on drives with and without a cache. QEMU's drives ignore FUA of a write, so the
    traffic has no FUA where there is a cache. NvmeIo's tests check that the command has FUA."""

    def traffic(address, volume, marks):
        done = subprocess.run([TRAFFIC, address, volume, marks, str(SEED), str(REQUESTS),
                               *(["without-fua"] if volume == "on" else [])],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False, timeout=300)
        if done.returncode != 0:
            raise Failure(f"the traffic ended with {done.returncode}:\n{done.stdout}")

    return Drives(BROKEN if broken else PROGRAM, traffic, broken)


# ---- The checker ----


def requests(log, has_cache=True):
    ledger = Ledger(log.entries, VOLUME, has_cache)
    if len(ledger.answers) != REQUESTS:
        raise Failure(f"{len(ledger.answers)} answers are marked; expected {REQUESTS}")
    return ledger


def lost_in_cuts(ledger, log, begin, cuts, volume_of=lambda content: content):
    """Cuts the log `cuts` times, and yields (position, losses) of each cut that lost something.
    `begin`: the disk's content before; `volume_of`: returns the volume of a disk's content."""
    disk, dice = Disk(log, begin), random.Random(SEED)
    for at in sorted(dice.choice(ledger.answers) for _ in range(cuts)):
        ledger.go_to(at)
        content, end = disk.cut(at, dice)
        lost = ledger.losses(volume_of(content), end)
        if lost:
            yield at, lost


def expect_all(ledger, log, begin, cuts, *volume_of):
    for at, lost in lost_in_cuts(ledger, log, begin, cuts, *volume_of):
        raise Failure(f"a cut lost something (SEED={SEED}), at entry {at} of the log:\n" +
                      "\n".join(lost[:20]))


def expect_loss(broken, ledger, log, begin, cuts, *volume_of):
    cuts *= 10  # the first cut that loses something ends it
    if not any(lost_in_cuts(ledger, log, begin, cuts, *volume_of)):
        raise Failure(f"{cuts} cuts of a log with a broken {broken} found nothing (SEED={SEED})")


# ---- The tests ----


def what_was_acknowledged_is_on_a_device():
    with Kernel(OnDevice()) as kernel:
        expect_all(requests(kernel.log), kernel.log, kernel.begin, CUTS)


def what_was_acknowledged_is_in_a_file():
    store = InFile()
    with Kernel(store) as kernel:
        expect_all(requests(kernel.log), kernel.log, kernel.begin, FILE_CUTS, store.volume)


def what_was_acknowledged_is_on_nvme():
    with nvme() as drives:
        for cache, log in drives.logs.items():
            expect_all(requests(log, cache == "on"), log, bytes(BYTES), CUTS)


def what_fio_was_told_is_in_a_file():
    store = FioFile()
    with Kernel(store, traffic=FIO_TRAFFIC) as kernel:
        expect_all(FioLedger(kernel.log.entries), kernel.log, kernel.begin, FILE_CUTS, store.volume)


def what_promises_too_much_is_found_on_a_device():
    for broken in ("flush", "fua", "early"):
        with Kernel(OnDevice(), broken) as kernel:
            expect_loss(broken, requests(kernel.log), kernel.log, kernel.begin, CUTS)


def what_promises_too_much_is_found_in_a_file():
    store = InFile()
    for broken in ("flush", "fua", "early"):
        with Kernel(store, broken) as kernel:
            expect_loss(broken, requests(kernel.log), kernel.log, kernel.begin, FILE_CUTS,
                        store.volume)


def what_promises_too_much_is_found_on_nvme():
    for broken in ("flush", "early"):
        with nvme(broken) as drives:
            expect_loss(broken, requests(drives.logs["on"]), drives.logs["on"], bytes(BYTES), CUTS)


def what_a_client_has_synced_is_in_its_file_system():
    with client_kernel() as kernel:
        expect_all(FileLedger(kernel.log.entries), kernel.log, kernel.begin, FILE_CUTS)


def what_promises_too_much_is_found_in_a_client_s_file_system():
    for broken in ("flush", "fua"):  # with "early", the client itself would read old data
        with client_kernel(broken) as kernel:
            expect_loss(broken, FileLedger(kernel.log.entries), kernel.log, kernel.begin, FILE_CUTS)


def what_promises_too_much_is_found_by_fio():
    store = FioFile()
    # The kernel writes fio's data with FUA, and flushes after it: one of the two is enough.
    for broken in ("flush+fua", "early"):
        with Kernel(store, broken, FIO_TRAFFIC) as kernel:
            expect_loss(broken, FioLedger(kernel.log.entries), kernel.log, kernel.begin, FILE_CUTS,
                        store.volume)


TESTS = [what_was_acknowledged_is_on_a_device, what_promises_too_much_is_found_on_a_device,
         what_was_acknowledged_is_in_a_file, what_was_acknowledged_is_on_nvme,
         what_a_client_has_synced_is_in_its_file_system, what_fio_was_told_is_in_a_file]
if os.environ.get("POWER_BROKEN"):
    TESTS += [what_promises_too_much_is_found_in_a_file, what_promises_too_much_is_found_on_nvme,
              what_promises_too_much_is_found_in_a_client_s_file_system,
              what_promises_too_much_is_found_by_fio]


if __name__ == "__main__":
    sys.exit(run_tests(TESTS))
