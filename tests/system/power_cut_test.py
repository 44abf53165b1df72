"""Writes acknowledged as durable are present after a power cut: a volume on a file system that
loses unsynced writes (fuse_file.py). Two clients write, flush and use FUA in parallel. A
checker, which knows their answers, repeatedly examines the file that a cut would leave. Then
the appliance is killed, and the next one gets that file. The test also detects a file system that
syncs less than requested, which looks the same as a server that passes on too few syncs."""

import threading

from fuse_file import SECTOR, FuseFile
from harness import BACKENDS, Failure, expect_true, test, wait_for
import raw_nbd as nbd
from raw_nbd import connect
from stores_test import on_store

SLOT = 8 * SECTOR  # always written as a whole
SLOTS = 64
SIZE = SLOT * SLOTS
CUTS = 150


def made(number):
    """The content of a slot after the write of this number."""
    return number.to_bytes(8, "big") * (SLOT // 8)


class Ledger:
    """For each slot, the numbers of the writes whose data may be there after a cut. A write is
    durable if it was answered with FUA, or if a later flush, sent after the write's answer, was
    answered."""

    def __init__(self):
        self.lock = threading.Lock()
        self.may_be = [[0] for _ in range(SLOTS)]
        self.answered = [0] * SLOTS  # the last answered number
        self.next = 1

    def write_begins(self, slot):
        with self.lock:
            number, self.next = self.next, self.next + 1
            self.may_be[slot].append(number)
        return number

    def write_ends(self, slot, number, is_durable):
        with self.lock:
            self.answered[slot] = number
            if is_durable:
                self._lasts(slot, number)

    def flush_begins(self):
        with self.lock:
            return list(self.answered)

    def flush_ends(self, answered):
        with self.lock:
            for slot, number in enumerate(answered):
                self._lasts(slot, number)

    def _lasts(self, slot, number):
        # The numbers of a slot are in the order of the writes: each slot has only one writer.
        self.may_be[slot] = [each for each in self.may_be[slot] if each >= number]

    def losses(self, take):
        """The slots whose content in the result of take() is not allowed."""
        with self.lock:
            # The lock stops the ledger, so take() comes first: it sees every write acknowledged by
            # now.
            left = take()
            allowed = [[made(each)[:SECTOR] for each in numbers] for numbers in self.may_be]
        lost = []
        for slot, sectors in enumerate(allowed):
            for at in range(slot * SLOT, (slot + 1) * SLOT, SECTOR):
                if left[at:at + SECTOR] not in sectors:
                    lost.append(slot)
                    break
        return lost


class Writer(threading.Thread):
    """A connection that writes only to its own slots. Its flushes apply to all slots."""

    def __init__(self, client, ledger, slots, dice):
        super().__init__(daemon=True)
        self.client, self.ledger, self.slots, self.dice = client, ledger, slots, dice
        self.must_stop = threading.Event()
        self.failure = None
        self.count = 0

    def run(self):
        try:
            while not self.must_stop.is_set():
                self.step()
                self.count += 1
        except (nbd.Disconnected, Failure) as failure:
            self.failure = failure

    def step(self):
        if self.dice.random() < 0.15:
            answered = self.ledger.flush_begins()
            expect_true(self.client.error(nbd.FLUSH) == 0, "a flush without an error")
            self.ledger.flush_ends(answered)
            return
        slot = self.dice.choice(self.slots)
        is_durable = self.dice.random() < 0.3
        number = self.ledger.write_begins(slot)
        self.client.write(slot * SLOT, made(number), nbd.FLAG_FUA if is_durable else 0)
        self.ledger.write_ends(slot, number, is_durable)


def cut_again_and_again(box, file, appliance, cuts):
    """Returns the number of cuts that lost data, the ledger, and the dice."""
    dice, ledger, losses = box.dice(), Ledger(), 0
    writers = [Writer(connect(box, appliance, volume="disk"), ledger,
                      range(first, SLOTS, 2), type(dice)(dice.random())) for first in (0, 1)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(cuts):
            before = [writer.count for writer in writers]
            wait_for(lambda: failure(writers) or
                     any(writer.count != count for writer, count in zip(writers, before)),
                     "a step of the writers")
            losses += bool(ledger.losses(lambda: file.after_power_cut(dice)))
            if failure(writers):
                raise failure(writers)
    finally:
        for writer in writers:
            writer.must_stop.set()
        for writer in writers:
            writer.join()
    return losses, ledger, dice


def failure(writers):
    return next((writer.failure for writer in writers if writer.failure), None)


@test(sockets=BACKENDS)
def what_was_acknowledged_is_there(box, sockets):
    with FuseFile(box, bytes(SIZE)) as file:
        configuration = on_store(box, sockets=sockets, path=file.path)
        appliance = box.appliance(configuration)
        losses, ledger, dice = cut_again_and_again(box, file, appliance, CUTS)
        expect_true(losses == 0, f"{losses} of {CUTS} cuts lost what was acknowledged")
        appliance.process.kill()
        appliance.process.wait()
        file.restore(file.after_power_cut(dice))
        client = connect(box, box.appliance(configuration, file="again.toml"), volume="disk")
        lost = ledger.losses(lambda: client.read(0, SIZE))
        expect_true(not lost, f"slots {lost} are not what was acknowledged")


@test(broken=["flush", "fua", "early"])
def what_promises_too_much_is_found(box, broken):
    with FuseFile(box, bytes(SIZE)) as file:
        appliance = box.appliance(on_store(box, path=file.path))
        file.broken = broken
        losses, _, _ = cut_again_and_again(box, file, appliance, CUTS)
        expect_true(losses > 0, f"{CUTS} cuts have found nothing")
        appliance.stop()
