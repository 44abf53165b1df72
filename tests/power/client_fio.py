"""fio on a volume, through the kernel's nbd. fio records completed writes (verify state); after
a power cut, its own check (--verify) looks for them."""

import base64
import os
import tempfile

from image import MIB
from runner import Failure
from stores import InFile, Traffic, run

ROUNDS = 6
ROUND = 2 * MIB
# Each round writes to its own part of the volume, so that writes of a later round that survive a
# cut are not taken for a loss. After a second fio writes a note of its progress, makes a mark of
# that note (just short enough) while its writes are in flight, and ends. If all writes end before,
# the mark comes then. The note has the number of writes, and the last eight that ended. So fio
# submits eight together, and the next eight when all of them have ended.
JOB = ("--name=disk", f"--size={ROUND}", "--rw=randwrite", "--bs=4k", "--rate_iops=200",
       "--ioengine=libaio", "--iodepth=8", "--iodepth_batch=8", "--iodepth_batch_complete_min=8",
       "--direct=1", "--sync=1", "--verify=crc32c")
NOTE = "local-disk-0-verify.state"
FIO_TRAFFIC = Traffic(
    script=f"""/usr/sbin/nbd-client -nonetlink -unix /tmp/socket -name disk -connections 2 /dev/nbd0
cat > /note << 'END'
/usr/sbin/dmsetup message power 0 mark s:$1:$(base64 -w 0 /tmp/{NOTE}) && touch /tmp/noted.$1
END
for i in $(seq {ROUNDS}); do
  /usr/sbin/fio {" ".join(JOB)} --offset=$(((i - 1) * {ROUND})) --filename=/dev/nbd0 \\
    --do_verify=0 --aux-path=/tmp --trigger-timeout=1 --trigger="sh /note $i" > /tmp/fio 2>&1 ||
    {{ cat /tmp/fio; exit 1; }}
  [ -e /tmp/noted.$i ] || sh /note $i || exit 1
done
echo fio: {ROUNDS} rounds
/usr/sbin/nbd-client -nonetlink -d /dev/nbd0""",
    done=f"fio: {ROUNDS} rounds", programs=("nbd-client", "fio"), modules="nbd")


class FioFile(InFile):
    """A volume as large as all rounds together."""

    disk_bytes = 2 * ROUNDS * ROUND
    volume_bytes = ROUNDS * ROUND


class FioLedger:
    """A Ledger of the marks of FIO_TRAFFIC."""

    def __init__(self, entries):
        self.answers, self._notes, self._note = [], {}, None
        for position, entry in enumerate(entries):
            if entry.mark.startswith("s:"):
                _, number, note = entry.mark.split(":")
                self.answers.append(position + 1)
                self._notes[position + 1] = (int(number), base64.b64decode(note))

    def go_to(self, position):
        self._note = self._notes[position]
        if int.from_bytes(self._note[1][24:32], "little") == 0:
            raise Failure("fio's note of what has ended counts no write; is the guest too slow?")

    def losses(self, content, _end):
        """Returns fio's output if it finds a write of the note's round lost; else nothing."""
        number, note = self._note
        with tempfile.TemporaryDirectory() as work:
            for name, data in (("volume", content), (NOTE, note)):
                with open(os.path.join(work, name), "wb") as file:
                    file.write(data)
            try:
                run((0,), "fio", *JOB, "--direct=0", f"--offset={(number - 1) * ROUND}",
                    f"--filename={work}/volume", f"--aux-path={work}", "--rate_iops=0",
                    "--verify_only", "--verify_state_load=1")
            except Failure as failure:
                return [str(failure)]
            return []
