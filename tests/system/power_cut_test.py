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

PLACE = 8 * SECTOR  # always written as a whole
PLACES = 64
SIZE = PLACE * PLACES
CUTS = 150


def made(number):
    """The content of a place after the write of this number."""
    return number.to_bytes(8, "big") * (PLACE // 8)


class Ledger:
    """For each place, the numbers of the writes whose data may be there after a cut. A write is
    durable if it was answered with FUA, or if a later flush, sent after the write's answer, was
    answered."""

    def __init__(self):
        self.lock = threading.Lock()
        self.may_be = [[0] for _ in range(PLACES)]
        self.answered = [0] * PLACES  # the last answered number
        self.next = 1

    def write_begins(self, place):
        with self.lock:
            number, self.next = self.next, self.next + 1
            self.may_be[place].append(number)
        return number

    def write_ends(self, place, number, is_durable):
        with self.lock:
            self.answered[place] = number
            if is_durable:
                self._lasts(place, number)

    def flush_begins(self):
        with self.lock:
            return list(self.answered)

    def flush_ends(self, answered):
        with self.lock:
            for place, number in enumerate(answered):
                self._lasts(place, number)

    def _lasts(self, place, number):
        # The numbers of a place are in the order of the writes: each place has only one writer.
        self.may_be[place] = [each for each in self.may_be[place] if each >= number]

    def losses(self, take):
        """The places whose content in the result of take() is not allowed."""
        with self.lock:
            # The lock stops the ledger, so take() comes first: it sees every write acknowledged by
            # now.
            left = take()
            allowed = [[made(each)[:SECTOR] for each in numbers] for numbers in self.may_be]
        lost = []
        for place, sectors in enumerate(allowed):
            for at in range(place * PLACE, (place + 1) * PLACE, SECTOR):
                if left[at:at + SECTOR] not in sectors:
                    lost.append(place)
                    break
        return lost


class Writer(threading.Thread):
    """A connection that writes only to its own places. Its flushes apply to all places."""

    def __init__(self, client, ledger, places, dice):
        super().__init__(daemon=True)
        self.client, self.ledger, self.places, self.dice = client, ledger, places, dice
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
        place = self.dice.choice(self.places)
        is_durable = self.dice.random() < 0.3
        number = self.ledger.write_begins(place)
        self.client.write(place * PLACE, made(number), nbd.FLAG_FUA if is_durable else 0)
        self.ledger.write_ends(place, number, is_durable)


def cut_again_and_again(box, file, appliance, cuts):
    """Returns the number of cuts that lost data, the ledger, and the dice."""
    dice, ledger, losses = box.dice(), Ledger(), 0
    writers = [Writer(connect(box, appliance, volume="disk"), ledger,
                      range(first, PLACES, 2), type(dice)(dice.random())) for first in (0, 1)]
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
        expect_true(not lost, f"places {lost} are not what was acknowledged")


@test(broken=["flush", "fua", "early"])
def what_promises_too_much_is_found(box, broken):
    with FuseFile(box, bytes(SIZE)) as file:
        appliance = box.appliance(on_store(box, path=file.path))
        file.broken = broken
        losses, _, _ = cut_again_and_again(box, file, appliance, CUTS)
        expect_true(losses > 0, f"{CUTS} cuts have found nothing")
        appliance.stop()
