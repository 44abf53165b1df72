"""Joins the pool of an appliance, and exchanges messages with its other members (docs/join.md).

    from bedplate import joined
    with joined.join("/run/bedplate/two.join", "ann") as process:
        bob = process.connect("bob", timeout=5.0)
        bob.send(1, b"hello")
        for message in process.receive(timeout=1.0):
            print(message.id, message.payload)

The program keeps its malloc; only blocks of JoinedProcess.allocate() lie in the pool. A process
joins one pool, once, with one member.

Threads: join() comes before other threads start. Afterwards any thread may use these objects, but
one at a time receives and takes events.

Signals: a wait ends if the handler of a signal raises. A message that receive() was about to return
is then lost, as data of socket.recv() would be; its loan goes back.

Fork: a forked child cannot use the pool, and each call there raises an Error. The parent is not
affected.
"""

from __future__ import annotations

import contextlib
import enum
import math
import os
import select
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple

from . import _joined
from .error import Error

Payload = bytes | bytearray | memoryview

NUMBER_MAX = 127  # of messages that programs agree on; higher ones belong to names

_BUDGET = 64  # messages for each poll
_PAUSE_MIN, _PAUSE_MAX = 0.001, 0.05  # seconds between attempts to send


class EventKind(enum.Enum):
    """The kind of an event. See PeerEvent."""

    JOINED = _joined.JOINED  # the member takes messages
    LEFT = _joined.LEFT  # it has left or died; all its messages were received before
    POOL_GONE = _joined.POOL_GONE  # the owner has died or stopped, or has cut this process off
    CUT_OFF = _joined.CUT_OFF  # that member ignores this process from now on


class PeerEvent(NamedTuple):
    """An event of another member, or of the pool. `number` means nothing with POOL_GONE."""

    kind: EventKind
    number: int


class Message(NamedTuple):
    """A message of another member."""

    sender: Endpoint
    id: int
    payload: bytes
    loan: Loan | None


class Loan:
    """Memory that another member has lent with a message, to be read without a copy.

        with message.loan as view:  # a memoryview
            digest = hashlib.sha256(view)

    The end of the block, release(), or the end of the object gives the loan back to its lender,
    which may then change or free the memory.
    """

    def __init__(self, loan: _joined.Loan) -> None:
        self._loan = loan
        self._view: memoryview | None = None

    def __len__(self) -> int:
        return len(self._loan)

    @property
    def view(self) -> memoryview:
        """The lent bytes, read-only; always the same view. Errors: BufferError after release()."""
        if self._view is None:
            self._view = self._loan.view()
        return self._view

    def release(self) -> None:
        """Gives the loan back; the second time nothing happens. Errors: other views of the memory
        are in use, such as parts that were cut from `view`, or arrays made of it: the loan is kept.
        """
        _end(self._view, "giving a loan back")
        self._view = None
        self._loan.release()

    def __enter__(self) -> memoryview:
        return self.view

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.release()


class Block:
    """Memory of this process in the pool, made by JoinedProcess.allocate(). It can be lent."""

    def __init__(self, block: _joined.Block) -> None:
        self._block = block
        self._view: memoryview | None = None

    def __len__(self) -> int:
        return len(self._block)

    @property
    def view(self) -> memoryview:
        """The bytes, to read and write. Errors: BufferError while the block is lent."""
        if self._view is None:
            self._view = self._block.view()
        return self._view

    @property
    def is_lent(self) -> bool:
        """True while a member has it. receive() notices that it has come back."""
        return self._block.is_lent()

    def _to_lend(self) -> _joined.Block:
        _end(self._view, "lending a block")
        self._view = None
        return self._block


def _end(view: memoryview | None, doing: str) -> None:
    """Ends the view. Errors: an object that was made of it is in use."""
    try:
        if view is not None:
            view.release()
    except BufferError as error:
        raise Error(doing, "objects made of a view of its memory are in use",
                    "end them first") from error


class Endpoint:
    """The way to one member: send messages, and lend memory. Always the same for one member.

    Messages through one endpoint arrive in order. A message that its receiver has not read when it
    dies is lost. Errors of all functions: the member is gone; the message is too long for it; it
    may not read the memory.
    """

    def __init__(self, process: JoinedProcess, handle: int) -> None:
        self._process = process
        self._handle = handle

    def try_send(self, number: int, payload: Payload = b"") -> bool:
        """Sends a copy of `payload` as message `number`. False: the queue is full, and nothing was
        sent. Waits for nothing."""
        return _is_accepted(_joined.send(self._handle, number, payload), "sending a message")

    def send(self, number: int, payload: Payload = b"", timeout: float = 5.0) -> None:
        """Sends a copy of `payload`. Waits for space in the queue, and keeps messages that arrive
        meanwhile for receive(). Errors: there was no space in `timeout` seconds."""
        self._process._until_accepted(lambda: self.try_send(number, payload), "sending a message",
                                      timeout)

    def try_lend(self, number: int, block: Block, header: Payload = b"") -> bool:
        """Lends `block` to the member, without a copy, with a small `header`. False: there is no
        space, and nothing was lent. The block has no view until it comes back. Errors: other views
        of its memory are in use."""
        lent = block._to_lend()
        return _is_accepted(_joined.lend(self._handle, number, header, lent), "lending a block")

    def lend(self, number: int, block: Block, header: Payload = b"", timeout: float = 5.0) -> None:
        """The same; waits for space as send() does."""
        self._process._until_accepted(lambda: self.try_lend(number, block, header),
                                      "lending a block", timeout)

    def ask_number(self, name: str, timeout: float = 5.0) -> int:
        """The number of the member's message "SERVICE.MESSAGE". Errors: it has no such message, or
        does not answer in `timeout` seconds."""
        return self._process._ask_number(self._handle, name, timeout)


def _is_accepted(status: int, doing: str) -> bool:
    """True: the operation was accepted. False: the queue was full. Errors: all else."""
    if status in (_joined.DONE, _joined.PENDING):
        return True
    if status == _joined.AGAIN:
        return False
    raise Error(doing, *{
        _joined.GONE: ("the member has left or died, or the pool has lost its owner",
                       "connect to its successor"),
        _joined.TOO_LONG: ("it is longer than a message to this member can be",
                           "send it in parts, or lend a block"),
        _joined.REFUSED: ("this member may not read the memory",
                          "set heap_bytes in this process's [[process]] of the owner's "
                          "configuration: blocks must lie in its heap"),
    }[status])


def join(socket: str, process: str, timeout: float = 5.0) -> JoinedProcess:
    """Joins the pool whose owner listens at `socket`, as the [[process]] called `process`.

    Waits at most `timeout` seconds for the owner to start, and for a free place; a signal does not
    end the wait. Errors: the owner's reason, or that of this machine. The process can try again if
    the owner was not there or refused it.
    """
    return JoinedProcess(process, _joined.join(socket, process, _milliseconds(timeout)))


class JoinedProcess:
    """This process as a member of a pool. join() makes the one object.

    A process that ends without leave() counts as dead, and the owner logs it.
    """

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number  # by which others connect to it
        self._endpoints: dict[int, Endpoint] = {}
        # The arrived messages and events, as _joined.poll() appends them.
        self._messages: list[tuple[int, int, bytes, _joined.Loan | None]] = []
        self._events: list[tuple[int, int]] = []
        self._turn = threading.Lock()  # held by the one thread that waits for the descriptor
        # A byte in this pipe wakes that thread.
        self._wake_reader, self._wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def leave(self) -> None:
        """Leaves the pool; the second time nothing happens. Afterwards each other call raises an
        Error. Loans that were not given back go back when the process ends."""
        _joined.leave()

    def __enter__(self) -> JoinedProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.leave()

    # ---- Peers ----

    def find(self, name: str) -> int | None:
        """The number of the first living member that joined as `name`; the owner is number 0, with
        the name of its appliance."""
        return _joined.find_member(name)

    def connect(self, member: str | int, timeout: float = 0.0) -> Endpoint:
        """The endpoint to a member, by its number or its name. Errors: no member with this name
        joins in `timeout` seconds."""
        if isinstance(member, int):
            return self._endpoint(_joined.connect(member))
        deadline = time.monotonic() + timeout
        while (number := self.find(member)) is None:
            if time.monotonic() >= deadline or _joined.owner_is_gone():
                raise Error(f"connecting to {member}", "no living member has this name",
                            "start it, and wait for it")
            self._collect()
            self._wait(min(deadline, time.monotonic() + _PAUSE_MAX))
        return self._endpoint(_joined.connect(number))

    def allocate(self, size: int) -> Block:
        """A block of `size` bytes, zeroed. It is freed with the object, but not while it is lent.
        Errors: the heap of this process is exhausted."""
        return Block(_joined.allocate(size))

    # ---- Receiving ----

    def receive(self, timeout: float | None = 0.0) -> list[Message]:
        """The messages that have arrived, in order. If there are none, it waits for some, at most
        `timeout` seconds (None: without a limit). It returns an empty list when the time is over,
        and earlier if an event arrives after which no more may come: all but JOINED. Errors: the
        owner of the pool is gone, and all messages were received."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            known = len(self._events)
            self._collect()
            if self._messages or any(kind != _joined.JOINED for kind, _ in self._events[known:]):
                messages = [Message(self._endpoint(handle), number, payload,
                                    None if loan is None else Loan(loan))
                            for handle, number, payload, loan in self._messages]
                del self._messages[:len(messages)]  # other threads may append
                return messages
            if _joined.owner_is_gone():
                raise Error(f"receiving messages as {self.name}",
                            "the owner of the pool has died or stopped, or has cut this process "
                            "off", "see its log; start this process again to join again")
            if time.monotonic() >= deadline:
                return []
            self._wait(deadline)

    def take_events(self) -> list[PeerEvent]:
        """The events that came with what was received, in order; each is returned once."""
        events = [PeerEvent(EventKind(kind), number) for kind, number in self._events]
        del self._events[:len(events)]
        return events

    # ---- In another event loop ----

    def fileno(self) -> int:
        """A descriptor for select, poll and asyncio's add_reader(). It becomes readable when
        something arrives, or the owner is gone, if arm() returned True before the wait. The first
        call starts a thread that runs no code of Python's."""
        return _joined.member_fd()

    def arm(self) -> bool:
        """Called before each wait. True: the caller may wait for the descriptor. False: something
        has arrived: call receive(), and arm() again."""
        return _joined.arm() and not self._messages

    # ---- For endpoints ----

    def _endpoint(self, handle: int) -> Endpoint:
        found = self._endpoints.get(handle)
        if found is None:
            found = self._endpoints[handle] = Endpoint(self, handle)
        return found

    def _collect(self) -> None:
        _joined.poll(_BUDGET, self._messages, self._events)
        if self._turn.locked():  # a thread waits for the descriptor, which the poll has cleared
            with contextlib.suppress(BlockingIOError):  # there are enough bytes
                os.write(self._wake_writer, b"\0")

    def _wait(self, deadline: float) -> None:
        """Sleeps until something arrives, or the time is over; for a moment only, if another thread
        waits already. Handlers of signals run meanwhile, and may raise."""
        left = deadline - time.monotonic()
        if not self._turn.acquire(blocking=False):
            time.sleep(max(0, min(left, _PAUSE_MIN)))
            return
        try:
            poller = select.poll()
            poller.register(_joined.member_fd(), select.POLLIN)
            poller.register(self._wake_reader, select.POLLIN)
            if _joined.arm():
                poller.poll(None if left == math.inf else _milliseconds(left))
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_reader, 4096)
        finally:
            self._turn.release()

    def _until_accepted(self, attempt: Callable[[], bool], doing: str, timeout: float) -> None:
        deadline, pause = time.monotonic() + timeout, _PAUSE_MIN
        while not attempt():
            now = time.monotonic()
            if now >= deadline:
                raise Error(doing, f"the member's queue had no space for {timeout:g} s",
                            "wait longer, or see why the member reads nothing")
            self._collect()
            self._wait(min(deadline, now + pause))
            pause = min(2 * pause, _PAUSE_MAX)

    def _ask_number(self, handle: int, name: str, timeout: float) -> int:
        doing = f"asking for the number of {name}"
        deadline = time.monotonic() + timeout
        try:
            self._until_accepted(lambda: _is_accepted(_joined.ask_number(handle, name), doing),
                                 doing, timeout)
            while (number := _joined.told_number()) is None:
                if time.monotonic() >= deadline or _joined.owner_is_gone():
                    raise Error(doing, "the member does not answer", "see whether it still runs")
                self._collect()
                self._wait(min(deadline, time.monotonic() + _PAUSE_MAX))
        finally:
            _joined.take_back_query()
        if number < 0:
            raise Error(doing, "the member has no such message",
                        "see its configuration: the service may not run there")
        return number


def _milliseconds(seconds: float) -> int:
    return min(max(0, math.ceil(seconds * 1000)), (1 << 31) - 1)
