#!/usr/bin/python3
"""Power cuts at any write: what was acknowledged as lasting is there, on each kind of store.

    /usr/bin/python3 tests/power/power_test.py [PATTERN...]

Patterns and the last line are those of guest_test.py. Two connections ask for writes, zeroes, trims
and flushes at random (traffic.cc), and mark in the log of all writes (write_log.py) what they were
told. Then that log is cut at marks, what had not been flushed there is lost or torn by sectors, and
a checker (ledger.py) looks for what was acknowledged. Stores that promise too much (broken.cc) are
found by it. POWER_CUTS (500) is how often each log is cut.
"""

import os
import random
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "guest"))

from configuration import smallest  # noqa: E402
from guest_test import Guest  # noqa: E402
from image import MIB, run  # noqa: E402
from ledger import Ledger  # noqa: E402
from machine import ROOT  # noqa: E402
from runner import Failure, run_tests  # noqa: E402
from write_log import Disk, WriteLog  # noqa: E402

CUTS = int(os.environ.get("POWER_CUTS", "500"))
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
REQUESTS = 1500
VOLUME = MIB  # what the traffic fills
DISK = 8 * MIB
LOG = 512 * MIB  # sparse
RELEASE = os.path.join(ROOT, "build", "release")

# ---- A kernel that logs writes ----

SCRIPT = """
mkdir -p /mnt
sectors=$(cat /sys/block/vda/size)
/usr/sbin/dmsetup create power --noudevsync --table "0 $sectors log-writes /dev/vda /dev/vdb"
device=/dev/$(ls /sys/block | grep dm-)
{mount}
cat > /tmp/a.toml << END
""" + smallest("a", pool="128 MiB", in_pool='pages = "4 KiB"', sockets="{sockets}", more="""
[blockd]
listen = ["unix:/tmp/socket"]
max_connections = 4
[[blockd.volume]]
name = "disk"
{store}
bytes = "1 MiB"
buffer_bytes = "33 MiB"
""") + """END
BROKEN={broken} {program} run /tmp/a.toml > /tmp/log 2>&1 & appliance=$!
until grep -q 'bedplate: ready' /tmp/log || ! kill -0 $appliance 2> /dev/null; do sleep 0.1; done
/power-traffic unix:/tmp/socket disk dm:power {seed} {requests}
status=$?
kill -KILL $appliance
wait $appliance
cat /tmp/log
umount /mnt 2> /dev/null
/usr/sbin/dmsetup remove --noudevsync power || status=1
exit $status
"""
MODULES = "virtio_blk dm_log_writes"


class Kernel:
    """A guest whose disk is behind dm-log-writes. `log` is the log afterwards; `before`: the disk."""

    def __init__(self, store, mount="", modules="", before=None, broken="", sockets="io_uring"):
        self._work = tempfile.TemporaryDirectory()
        disk, log = (os.path.join(self._work.name, name) for name in ("disk", "log"))
        self.before = before or bytes(DISK)
        with open(disk, "wb") as file:
            file.write(self.before)
        with open(log, "wb") as file:
            file.truncate(LOG)
        files = [shutil.which("dmsetup"), *(f"{os.path.join(RELEASE, name)}=/{name}"
                                            for name in ("power-traffic", "power-broken"))]
        script = SCRIPT.format(store=store, mount=mount, broken=broken, sockets=sockets, seed=SEED,
                               program="/power-broken" if broken else "/bedplate",
                               requests=REQUESTS)
        guest = Guest("/bin/sh", "-c", script, modules=f"{MODULES} {modules}",
                      files=" ".join(files), seconds=300,
                      qemu=" ".join(f"-drive file={each},if=virtio,format=raw,cache=unsafe"
                                    for each in (disk, log)))
        guest.expect_exit(0)
        guest.expect(rf"^power-traffic: {REQUESTS} requests$")
        self.log = WriteLog(log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.log.close()
        self._work.cleanup()


# ---- The checker ----


def lost_in_cuts(log, before, cuts, volume_of=lambda content: content):
    """Cuts the log so often, and returns [(where, what is lost)] of the cuts that lost something.
    `volume_of`: the volume, out of what is on the disk."""
    ledger, disk, dice = Ledger(log.entries, VOLUME), Disk(log, before), random.Random(SEED)
    if len(ledger.answers) != REQUESTS:
        raise Failure(f"{len(ledger.answers)} answers are marked; expected {REQUESTS}")
    found = []
    for place in sorted(dice.choice(ledger.answers) for _ in range(cuts)):
        ledger.go_to(place)
        content, end = disk.cut(place, dice)
        lost = ledger.losses(volume_of(content), end)
        if lost:
            found.append((place, lost))
    return found


def expect_nothing_lost(log, before, cuts, **options):
    found = lost_in_cuts(log, before, cuts, **options)
    if found:
        place, lost = found[0]
        lines = [f"sector {sector}: none of the requests {numbers}" for sector, numbers in lost]
        raise Failure(f"{len(found)} of {cuts} cuts lost something (SEED={SEED}); the first, at "
                      f"entry {place} of the log:\n" + "\n".join(lines[:20]))


def expect_found(log, before, broken):
    if not lost_in_cuts(log, before, CUTS):
        raise Failure(f"{CUTS} cuts of a log without {broken} found nothing (SEED={SEED})")


# ---- The tests ----

DEVICE = 'device = "$device"'


def what_was_acknowledged_is_on_a_device():
    with Kernel(DEVICE) as kernel:
        expect_nothing_lost(kernel.log, kernel.before, CUTS)


def what_promises_too_much_is_found_on_a_device():
    for broken in ("flush", "fua", "early"):
        with Kernel(DEVICE, broken=broken) as kernel:
            expect_found(kernel.log, kernel.before, broken)


TESTS = [what_was_acknowledged_is_on_a_device, what_promises_too_much_is_found_on_a_device]


if __name__ == "__main__":
    sys.exit(run_tests(TESTS))
