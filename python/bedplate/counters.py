"""Reads the counters of an appliance from its file NAME.stats (docs/counters.md).

    from bedplate import counters
    print(counters.read("demo").stats()["services"]["blockd"]["requests_read"])

The file describes itself (apps/counters/counters_format.h), so this module knows no counter. Any
program that may write the file can cut or change it at any time, and a file may come from another
build or be nonsense. So read(2) copies the file first, and only the copy is checked: each offset in
it is compared with its length before it is used.

Threads: a CountersFile one at a time; all other objects never change.
"""

from __future__ import annotations

import dataclasses
import fcntl
import functools
import os
import re
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from .error import Error

RUNTIME_DIRECTORY = "/run/bedplate"
SUFFIX = ".stats"

_MAGIC = 0x32_73_74_61_74_73_70_62  # "bpstats2"
_FORMAT = 2
_BYTES_MAX = 64 << 20  # of a file without its traces
_COUNTER_COUNT_MAX = 1 << 20  # counters and labels of all sets
_LINE_BYTES = 64
_NO_VALUE = (1 << 64) - 1
_TEXT_BYTES_MAX = 96
_HISTOGRAM_STEP_BITS = 4

# In the machine's byte order; the records have no padding.
_HEADER = struct.Struct("=QIi64sQ" + "QII" * 6 + "IIQQ")
_SET = struct.Struct("=64s64s64sIIIIQII")
_LABEL = struct.Struct("=32s160s")
_COUNTER = struct.Struct("=48s16s16s160s160sIIII")
_COLUMN = struct.Struct("=16s")  # behind _COUNTER; records of older builds end before it
_ALERT = struct.Struct("=II160sQ")

_SPOILED = "copy the whole file; otherwise it is damaged, or not a counters file"
_START_ONE = "start one (`bedplate run CONFIG`), or name its runtime directory"
_LEADS_OUT = "its records point outside the file"


def list_appliances(directory: str = RUNTIME_DIRECTORY) -> list[str]:
    """The names of all appliances with a counters file in `directory`, sorted."""
    try:
        names = os.listdir(directory)
    except OSError as error:
        raise Error.of(f"looking for appliances in {directory}", error, _START_ONE) from error
    return sorted(name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))


def path_of(appliance: str | None, directory: str, suffix: str) -> str:
    """The path of the appliance's file in `directory`; without a name, the only such file's."""
    if appliance:
        return os.path.join(directory, appliance + suffix)
    names = list_appliances(directory)
    if len(names) == 1:
        return os.path.join(directory, names[0] + suffix)
    if not names:
        raise Error(f"looking for appliances in {directory}", "none is running", _START_ONE)
    raise Error(f"choosing an appliance in {directory}",
                f"there are {len(names)}: {', '.join(names)}", "name one")


def read(appliance: str | None = None, directory: str = RUNTIME_DIRECTORY) -> Snapshot:
    """The present counters of an appliance. The name is optional if `directory` has only one."""
    with CountersFile.open(appliance, directory) as file:
        return file.snapshot()


def read_file(path: str) -> Snapshot:
    """The counters in any counters file, such as one that a crash left."""
    with CountersFile(path) as file:
        return file.snapshot()


def _open_at_once(path: str, flags: int) -> int:
    """Opens the file; a FIFO does not wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


class CountersFile:
    """An open counters file. It stays readable after its appliance has removed it."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._file = open(path, "rb", buffering=0, opener=_open_at_once)
        except OSError as error:
            raise Error.of(f"reading counters: opening {path}", error,
                           "start the appliance (`bedplate run CONFIG`), or name its runtime "
                           "directory, or the file itself") from error

    @classmethod
    def open(cls, appliance: str | None = None, directory: str = RUNTIME_DIRECTORY) -> CountersFile:
        """The file of an appliance. The name is optional if `directory` has only one."""
        return cls(path_of(appliance, directory, SUFFIX))

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> CountersFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def is_running(self) -> bool:
        """True while the appliance runs: it holds the file's lock. A copy is never locked."""
        lock = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        try:
            found = fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, lock)
        except OSError:
            return False
        return bool(struct.unpack_from("h", found)[0] != fcntl.F_UNLCK)

    def snapshot(self) -> Snapshot:
        """A copy of the present contents."""
        is_running = self.is_running()
        try:
            copy = self._copy()
        except OSError as error:
            raise Error.of(f"reading counters from {self.path}", error) from error
        return Snapshot(copy, self.path, is_running, time.monotonic_ns())

    def _copy(self) -> bytes:
        file_bytes = os.fstat(self._file.fileno()).st_size
        if file_bytes < _HEADER.size:
            raise self._unusable("the file is shorter than the header of a counters file",
                                 "name the counters file of an appliance, or wait until it has "
                                 "booted")
        # The header alone comes first: a foreign file may be of any length.
        header = _Header(self._read(_HEADER.size), self.path)
        if file_bytes < header.file_bytes:
            raise self._unusable(f"it was truncated: {file_bytes} of its {header.file_bytes} bytes "
                                 "are left", "copy the whole file; if it is the appliance's own, "
                                 "restart the appliance")
        wanted = header.counters_end(file_bytes)
        if wanted > _BYTES_MAX:
            raise self._unusable("it is larger than a counters file can be", _SPOILED)
        # The copy runs forward: the values of a set come after its record, so if the copied record
        # is in use, the copied values are at least as recent.
        copy = self._read(wanted)
        if len(copy) < wanted:
            raise self._unusable("it was truncated while it was read",
                                 "read it again; if it is the appliance's own, restart the "
                                 "appliance")
        if len(copy) < _HEADER.size or _Header(copy, self.path).file_bytes != file_bytes:
            raise self._unusable(_LEADS_OUT, _SPOILED)
        return copy

    def _read(self, wanted: int) -> bytes:
        pieces: list[bytes] = []
        done = 0
        while done < wanted and (piece := os.pread(self._file.fileno(), wanted - done, done)):
            pieces.append(piece)
            done += len(piece)
        return b"".join(pieces)

    def _unusable(self, answer: str, cure: str) -> Error:
        return Error(f"reading counters from {self.path}", answer, cure)


@dataclasses.dataclass(frozen=True)
class _Records:
    """A table of the file: records of one kind in a row."""

    offset: int
    count: int
    record_bytes: int

    def lie_in(self, file_bytes: int, known_bytes: int) -> bool:
        return (self.offset % 8 == 0 and self.record_bytes % 8 == 0 and
                self.record_bytes >= known_bytes and
                self.offset + self.count * self.record_bytes <= file_bytes)

    def at(self, index: int) -> int:
        return self.offset + index * self.record_bytes


class _Header:
    def __init__(self, copy: bytes, path: str) -> None:
        doing = f"reading counters from {path}"
        if len(copy) < _HEADER.size or struct.unpack_from("=Q", copy)[0] != _MAGIC:
            raise Error(doing, "the file is incomplete, or not a counters file",
                        "wait until the appliance has booted; for an older release use its own "
                        "`bedplate`")
        (_, form, self.pid, name, self.file_bytes, *tables, alert_count, alert_bytes,
         self.created_ns, self.begun_ns) = _HEADER.unpack_from(copy)
        if form != _FORMAT:
            raise Error(doing, f"it has format {form}, but this package reads {_FORMAT}",
                        "use the package of the release that the appliance runs")
        self.appliance = _text(name)
        self.sets, self.labels, self.counters, self.rings = (
            _Records(*tables[at:at + 3]) for at in range(0, 12, 3))
        end = self.counters.at(self.counters.count)
        self.alerts = _Records((end + _LINE_BYTES - 1) // _LINE_BYTES * _LINE_BYTES, alert_count,
                               alert_bytes)

    def counters_end(self, file_bytes: int) -> int:
        """The bytes of the file that hold counters: the traces follow."""
        return min(self.rings.offset, file_bytes) if self.rings.count else file_bytes


def _text(field: bytes) -> str:
    """The text ends at its NUL, or with the field."""
    return field.partition(b"\0")[0].decode(errors="replace")


@dataclasses.dataclass(frozen=True)
class Histogram:
    """A distribution. The error of a value is at most a sixteenth of it."""

    buckets: tuple[int, ...]

    @functools.cached_property
    def count(self) -> int:
        """The number of values."""
        return sum(self.buckets)

    def percentile(self, share: float) -> int:
        """The value that `share` (0 to 1) of all values do not exceed; 0 if there are none."""
        wanted = int(share * self.count + 0.5)
        seen = last = 0
        for index, here in enumerate(self.buckets):
            if here == 0:
                continue
            seen += here
            last = self._last_of(index)
            if seen >= wanted:
                break
        return last

    def summary(self) -> dict[str, int]:
        """The count and the percentiles that `bedplate stats --json` prints."""
        return {"count": self.count, "p50": self.percentile(0.5), "p90": self.percentile(0.9),
                "p99": self.percentile(0.99), "p999": self.percentile(0.999),
                "max": self.percentile(1.0)}

    @staticmethod
    def _last_of(bucket: int) -> int:
        """The largest value that a bucket counts."""
        step_count = 1 << _HISTOGRAM_STEP_BITS
        if bucket < 2 * step_count:
            return bucket
        shift = bucket // step_count - 1
        return ((bucket - shift * step_count + 1) << shift) - 1


# A gauge may have no value (None). A kind of a newer build is its words.
Value = int | bool | str | Histogram | tuple[int, ...] | None


@dataclasses.dataclass(frozen=True)
class Counter:
    """One counter, with its description and its value."""

    name: str
    kind: str
    unit: str
    help: str
    words: str  # the names of a state's values or of flags: "stopped|open"
    column: str  # the heading of its column in `bedplate top`; "": it has none
    step_bits: int
    data: memoryview = dataclasses.field(repr=False)  # its 64-bit words, at least one

    @functools.cached_property
    def value(self) -> Value:
        """int: a counter or gauge; bool: a gauge with the unit `boolean`; None: a gauge without a
        value; str: a state's word, the flags that are set ("none"), or a text; Histogram; a tuple
        of its words: a kind that this package does not know."""
        first = struct.unpack_from("=Q", self.data)[0]
        if self.kind == "histogram" and self.step_bits == _HISTOGRAM_STEP_BITS:
            return Histogram(self._all_words())
        if self.kind == "text":
            return _text(bytes(self.data[:_TEXT_BYTES_MAX]))
        if self.kind == "state":
            words = self.words.split("|", 64)[:64] if self.words else []
            return words[first] if first < len(words) else str(first)
        if self.kind == "flags":
            return self._flags(first)
        if self.kind not in ("counter", "gauge"):
            return self._all_words()
        if self.kind == "gauge" and first == _NO_VALUE:
            return None
        return first == 1 if self.unit == "boolean" and first <= 1 else int(first)

    def _all_words(self) -> tuple[int, ...]:
        return struct.unpack(f"={len(self.data) // 8}Q", self.data)

    def _flags(self, value: int) -> str:
        seen = []
        for bit, word in enumerate(self.words.split("|", 64)[:64] if self.words else []):
            if value >> bit & 1:
                seen.append(word)
                value &= ~(1 << bit)
        if value:
            seen.append(str(value))  # flags without a word
        return " ".join(seen) or "none"

    def as_json(self) -> Any:
        """The value as `bedplate stats --json` prints it."""
        value = self.value
        if isinstance(value, Histogram):
            return value.summary()
        if isinstance(value, tuple):
            return {"kind": self.kind, "unit": self.unit, "values": list(value)}
        return value

    def as_text(self) -> str:
        """The value as it stands in an alert."""
        value = self.value
        if isinstance(value, str):
            return value
        if value is None:
            return "unknown"
        number = struct.unpack_from("=Q", self.data)[0]
        return _rounded(number, _SCALES[self.unit]) if self.unit in _SCALES else str(number)


_SCALES: dict[str, Sequence[tuple[int, str]]] = {
    "bytes": ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes")),
    "ns": ((10**9, "s"), (10**6, "ms"), (10**3, "us"), (1, "ns")),
}


def _rounded(value: int, units: Sequence[tuple[int, str]]) -> str:
    """In the largest unit that gives 1 or more; below 100 with a digit behind the point."""
    at = 0
    while at + 1 < len(units) and value < units[at][0] - units[at + 1][0] // 2:
        at += 1
    one, name = units[at]
    whole, rest = divmod(value, one)
    if rest == 0:
        return f"{whole} {name}"
    tenths = whole * 10 + (rest * 10 + one // 2) // one
    if tenths >= 1000:
        return f"{whole + rest * 2 // one} {name}"
    return f"{tenths // 10}.{tenths % 10} {name}"


class CounterSet(Mapping[str, Counter]):
    """One struct of counters, by their names. `owner` is a service, or "" for the runtime;
    `instance` is "" for the only set of its name."""

    def __init__(self, owner: str, name: str, instance: str, labels: dict[str, str],
                 counters: dict[str, Counter]) -> None:
        self.owner = owner
        self.name = name
        self.instance = instance
        self.labels = labels  # facts that are no numbers, such as "backend"
        self._counters = counters

    def __getitem__(self, name: str) -> Counter:
        return self._counters[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._counters)

    def __len__(self) -> int:
        return len(self._counters)

    def __repr__(self) -> str:
        return f"<CounterSet {'.'.join(self.path())}: {len(self)} counters>"

    def path(self) -> list[str]:
        """The keys that lead to it in `bedplate stats --json`. All sets of a service that have no
        instance share the path of the service."""
        keys = ["services", self.owner] if self.owner else []
        if not self.owner or self.instance:
            keys.append(self.name)
        return [*keys, self.instance] if self.instance else keys


@dataclasses.dataclass(frozen=True)
class Alert:
    """A rule over a counter that holds now, as the appliance has found."""

    subject: str  # "shard main"
    counter: str
    says: str
    since_ns: int  # CLOCK_MONOTONIC of the appliance's machine


class Snapshot:
    """All counters of an appliance at one moment.

    Errors: the copy is no counters file, has another format, or points outside itself.
    """

    def __init__(self, copy: bytes, path: str, is_running: bool, taken_ns: int) -> None:
        self._copy = copy
        self._data = memoryview(copy)
        self._data_bytes = 0  # of all counters: their values do not overlap
        self._path = path
        header = self._header = _Header(copy, path)
        self.appliance = header.appliance
        self.pid = header.pid
        self.created_ns = header.created_ns  # CLOCK_REALTIME when the file was made
        self.is_running = is_running
        self.taken_ns = taken_ns  # CLOCK_MONOTONIC of this machine
        self._check_tables()
        self._described: dict[int, tuple[dict[str, Any], int, int]] = {}
        self._sets: dict[int, CounterSet] = {}
        counted = 0
        for index in range(header.sets.count):
            fields = _SET.unpack_from(copy, header.sets.at(index))
            counted += fields[4] + fields[6]
            if counted > _COUNTER_COUNT_MAX:
                raise self._damaged()
            found = self._read_set(fields)
            if fields[8]:  # else it is a spare set, not in use yet
                self._sets[index] = found
        self.sets = list(self._sets.values())  # in file order
        self.alerts = self._read_alerts()

    def find(self, name: str, instance: str = "", owner: str = "") -> CounterSet:
        """The set of this name. Errors: KeyError."""
        for one in self.sets:
            if (one.owner, one.name, one.instance) == (owner, name, instance):
                return one
        raise KeyError(".".join(filter(None, ("services" * bool(owner), owner, name, instance))))

    def is_of_run(self, other: Snapshot) -> bool:
        """True if both are of the same run of an appliance: then their difference is growth."""
        return (self.pid, self.created_ns) == (other.pid, other.created_ns)

    def stats(self) -> dict[str, Any]:
        """The values as nested dicts, as `bedplate stats --json` prints them, without its audit."""
        tree: dict[str, Any] = {
            "name": self.appliance, "pid": max(self.pid, 0), "running": self.is_running,
            "signs": [{"of": alert.subject, "counter": alert.counter, "says": alert.says}
                      for alert in self.alerts]}
        for one in sorted(self.sets, key=CounterSet.path):
            place = tree
            for key in one.path():
                place = place.setdefault(key, {})
            place.update(one.labels)
            place.update((name, counter.as_json()) for name, counter in one.items())
        return tree

    def _damaged(self) -> Error:
        return Error(f"reading counters from {self._path}", _LEADS_OUT, _SPOILED)

    def _check_tables(self) -> None:
        header, end = self._header, len(self._copy)
        if (header.counters_end(header.file_bytes) != end or
                (header.rings.count and header.rings.offset != end) or
                not header.sets.lie_in(end, _SET.size) or
                not header.labels.lie_in(end, _LABEL.size) or
                not header.counters.lie_in(end, _COUNTER.size) or
                (header.alerts.count and not header.alerts.lie_in(end, _ALERT.size))):
            raise self._damaged()

    def _read_set(self, fields: tuple[Any, ...]) -> CounterSet:
        owner, name, instance, first, count, first_label, label_count, values, _, _ = fields
        header, end = self._header, len(self._copy)
        if (first + count > header.counters.count or values % 8 or values > end or
                first_label + label_count > header.labels.count):
            raise self._damaged()
        counters = {}
        for index in range(first, first + count):
            described, offset, data_bytes = self._describe(index)
            at = values + offset
            self._data_bytes += data_bytes
            if (offset % 8 or data_bytes % 8 or data_bytes == 0 or at + data_bytes > end or
                    self._data_bytes > end):
                raise self._damaged()
            counters[described["name"]] = Counter(**described, data=self._data[at:at + data_bytes])
        labels = {}
        for index in range(first_label, first_label + label_count):
            label = _LABEL.unpack_from(self._copy, header.labels.at(index))
            labels[_text(label[0])] = _text(label[1])
        return CounterSet(_text(owner), _text(name), _text(instance), labels, counters)

    def _describe(self, index: int) -> tuple[dict[str, Any], int, int]:
        """The fields of a Counter before its data, the offset of the data, and its bytes. Sets with
        the same counters share the records."""
        found = self._described.get(index)
        if found is None:
            table = self._header.counters
            at = table.at(index)
            *texts, offset, data_bytes, step_bits, _ = _COUNTER.unpack_from(self._copy, at)
            column = b""
            if table.record_bytes >= _COUNTER.size + _COLUMN.size:
                column, = _COLUMN.unpack_from(self._copy, at + _COUNTER.size)
            names = ("name", "kind", "unit", "help", "words", "column")
            fields = dict(zip(names, map(_text, (*texts, column))), step_bits=step_bits)
            found = self._described[index] = fields, offset, data_bytes
        return found

    def _read_alerts(self) -> list[Alert]:
        alerts, header = [], self._header
        for index in range(header.alerts.count):
            of, counter, says, since_ns = _ALERT.unpack_from(self._copy, header.alerts.at(index))
            if of >= header.sets.count:
                raise self._damaged()
            fields = _SET.unpack_from(self._copy, header.sets.at(of))
            if counter >= fields[4]:
                raise self._damaged()
            if since_ns and of in self._sets:
                name = self._describe(fields[3] + counter)[0]["name"]
                alerts.append(self._alert(self._sets[of], name, _text(says), since_ns))
        return alerts

    @staticmethod
    def _alert(of: CounterSet, counter: str, says: str, since_ns: int) -> Alert:
        def named(found: re.Match[str]) -> str:
            name = found[1]
            return of[name].as_text() if name in of else of.labels.get(name, "")
        path = of.path()
        return Alert(" ".join(path[1:] if of.owner else path), counter,
                     re.sub(r"\{([^}]*)\}", named, says), since_ns)
