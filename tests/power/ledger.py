"""The ledger of the requests and answers in the traffic's marks (traffic.cc): it computes which
contents a volume may have after a power cut."""

import bisect

SECTOR = 512
ZEROS = bytes(SECTOR)
GOLDEN = 0x9e3779b97f4a7c15


def value_of(number):
    """The eight bytes that a write of this number repeats, aligned to the offsets of the volume."""
    return (number * GOLDEN % (1 << 64)).to_bytes(8, "big")


class Request:
    def __init__(self, position, text):
        _, number, self.command, offset, count, flags = text.split(":")
        self.position = position  # the position of the request in the log
        self.number, self.begin = int(number), int(offset)
        self.end = self.begin + int(count)
        self.is_durable = "u" in flags
        self.flushes = self.is_durable or self.command == "f"
        self.covered = 0  # of a flush: how many requests had been answered before it
        self.sectors = range(self.begin // SECTOR, -(-self.end // SECTOR))


class Ledger:
    """Reads the entries of a log in order. `versions` has, for each sector, (position in the log,
    number of the request, content), in the order of its only writer; a trim has no content.
    `lowest`: the last version that must be durable. `has_cache`: an answered write need not be
    durable.

    dm-log-writes attaches finished writes to the next flush that passes, and logs them when that
    flush ends. If another flush, which covers the same writes, ends first, its promise comes before
    these writes in the log. So a promise counts only when all flushes that were in flight at that
    time are answered."""

    def __init__(self, entries, count, has_cache=True):
        self.entries, self.done, self.has_cache = entries, 0, has_cache
        self.answered, self.lasting = [], 0  # numbers, and how many of them were flushed
        self.lowest = [0] * (count // SECTOR)
        self.versions = [[(-1, 0, ZEROS)] for _ in self.lowest]
        self.requests = {}
        self.flushing = set()  # numbers of requests that flush and are not answered
        self.promises = []  # (flushes in flight then, numbers that must be durable)
        self.answers = []  # positions in the log, each after an answer
        for position, entry in enumerate(entries):
            if entry.mark.startswith("b:"):
                self._ask(Request(position, entry.mark))
            elif entry.mark.startswith("a:"):
                self.answers.append(position + 1)

    def _ask(self, request):
        self.requests[request.number] = request
        if request.command == "f":
            return
        for sector in request.sectors:
            versions = self.versions[sector]
            begin = max(request.begin - sector * SECTOR, 0)
            end = min(request.end - sector * SECTOR, SECTOR)
            before = versions[-1][2]
            if request.command == "t":
                content = None
            else:
                new = ZEROS if request.command == "z" else value_of(request.number) * (SECTOR // 8)
                # A write of part of a sector never follows a trim, so `before` is known.
                content = (new if end - begin == SECTOR else
                           before[:begin] + new[begin:end] + before[end:])
            versions.append((request.position, request.number, content))

    def go_to(self, position):
        """Processes all answers before this position of the log."""
        while self.done < position:
            kind, _, number = self.entries[self.done].mark.partition(":")
            if kind == "b":
                request = self.requests[int(number.split(":")[0])]
                request.covered = len(self.answered)
                if request.flushes:
                    self.flushing.add(request.number)
            elif kind == "a":
                self._answer(self.requests[int(number)])
            self.done += 1

    def _answer(self, request):
        promised = []
        if request.command == "f":
            promised = self.answered[self.lasting:request.covered]
            self.lasting = max(self.lasting, request.covered)
        else:
            self.answered.append(request.number)
            if request.is_durable or not self.has_cache:
                promised = [request.number]
        self.flushing.discard(request.number)
        if promised:
            self.promises.append((set(self.flushing) if self.has_cache else set(), promised))
        open_promises = []
        for flushing, numbers in self.promises:
            flushing.discard(request.number)
            if flushing:
                open_promises.append((flushing, numbers))
                continue
            for number in numbers:
                self._last(self.requests[number])
        self.promises = open_promises

    def _last(self, request):
        for sector in request.sectors:
            versions = self.versions[sector]
            at = bisect.bisect_left(versions, request.number, key=lambda each: each[1])
            self.lowest[sector] = max(self.lowest[sector], at)

    def losses(self, content, end):
        """Returns a line for each sector of `content` that has no allowed version. Only requests
        that were sent before the log's entry `end` are allowed."""
        lost = []
        for sector, versions in enumerate(self.versions):
            found = content[sector * SECTOR:(sector + 1) * SECTOR]
            at = self.lowest[sector]
            # After a trim the sector has zeros, or its earlier content.
            while at > 0 and versions[at][2] is None:
                at -= 1
            allowed = [version for version in versions[at:] if version[0] < end]
            if not any(found == (ZEROS if each[2] is None else each[2]) for each in allowed):
                numbers = [number for _, number, _ in allowed]
                lost.append(f"sector {sector}: none of the requests {numbers}")
        return lost
