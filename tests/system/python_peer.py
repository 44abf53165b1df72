"""A process in Python that joins a pool, for python_test.py:

    python_peer.py SOCKET NAME ACTION [PEER]

Exit code 0: all checks of the action have passed. Otherwise the failed check is on standard error.
"""

import asyncio
import ctypes
import gc
import os
import signal
import sys
import threading
import time

from bedplate import Error, joined
from bedplate.joined import EventKind

BOUND = 60.0  # seconds; only a hang reaches it
HELLO, LENT, END = 1, 2, 3
LENT_BYTES = 1 << 20
POOL = range(0x108000000000, 0x108000000000 + (512 << 30))


def check(condition, what):
    if not condition:
        sys.exit(f"python_peer: {what}")


def refused(function, *arguments, kind=Error):
    """The text of the exception."""
    try:
        result = function(*arguments)
    except kind as error:
        return str(error)
    sys.exit(f"python_peer: not refused: {result}")


class Messages:
    """The messages that come, one by one."""

    def __init__(self, process):
        self._process = process
        self._waiting = []

    def next(self):
        end = time.monotonic() + BOUND
        while not self._waiting:
            check(time.monotonic() < end, "no message comes")
            self._waiting = self._process.receive(timeout=BOUND)
        return self._waiting.pop(0)


def wait_until(process, condition, what):
    """Receives until the condition holds; no message may come."""
    end = time.monotonic() + BOUND
    while not condition():
        check(time.monotonic() < end, f"waited in vain for {what}")
        check(process.receive(timeout=0.05) == [], "a message that nobody expects")


class Buffer(ctypes.Structure):
    """Py_buffer, as far as it is needed."""
    _fields_ = [("address", ctypes.c_void_p), ("rest", ctypes.c_char * 128)]


def address_of(view):
    buffer = Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), 0)
    address = buffer.address
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return address


# ---- Actions ----


def greet(process, peer):
    """The same as apps/examples/ping.c."""
    for i in range(3):
        peer.send(HELLO, f"{process.name} says hello {i}".encode())
    messages = Messages(process)
    for _ in range(3):
        message = messages.next()
        check((message.id, message.sender) == (HELLO, peer), "a message of the peer")
        print(f"heard: {message.payload.decode()}", flush=True)


def lend(process, peer):
    """Lends a block, which the peer reads at the same address, and gets it back."""
    block = process.allocate(LENT_BYTES)
    check(len(block) == LENT_BYTES and bytes(block.view[:9]) == bytes(9), "a block is zeroed")
    address = address_of(block.view)
    check(address in POOL and address + LENT_BYTES - 1 in POOL, "the block lies in the pool")
    block.view[:5] = b"first"
    block.view[-4:] = b"last"
    part = block.view[:5]
    check("views of its memory are in use" in refused(peer.lend, LENT, block), "a part of a view")
    part.release()
    header = address.to_bytes(8, "little")
    peer.lend(LENT, block, header)
    check(block.is_lent, "it is lent")
    check("the block is lent" in refused(lambda: block.view, kind=BufferError), "it has no view")
    check("a peer has it" in refused(peer.lend, LENT, block), "it is not lent twice")
    wait_until(process, lambda: not block.is_lent, "the block")
    check(bytes(block.view[:5]) == b"first", "it is as it was")
    # A block that is lent outlives its object.
    forgotten = process.allocate(LENT_BYTES)
    forgotten.view[:5] = b"later"
    peer.lend(LENT, forgotten, b"forgotten")
    del forgotten
    check(Messages(process).next().id == END, "the peer has read both")
    check("longer than" in refused(peer.send, HELLO, bytes(4 << 20)), "a message that is too long")
    check("longer than" in refused(peer.lend, LENT, block, bytes(4096)), "a long header")
    peer.send(END)


def borrow(process, peer):
    messages = Messages(process)
    message = messages.next()
    loan, view = message.loan, message.loan.view
    check((message.id, len(loan), view.nbytes) == (LENT, LENT_BYTES, LENT_BYTES), "a loan")
    check(address_of(view) == int.from_bytes(message.payload, "little"), "it was not copied")
    check((bytes(view[:5]), bytes(view[-4:])) == (b"first", b"last"), "its bytes")
    check(view.readonly, "it can only be read")
    check(view is loan.view, "it is the same view each time")
    part = view[:5]
    check("views of its memory are in use" in refused(loan.release), "a part of it is in use")
    check(bytes(part) == b"first", "the part can still be read")
    # A child leaves the loan to its parent, even if it ends as Python ends.
    if (child := os.fork()) == 0:
        check("was forked" in refused(process.receive), "a child may not receive")
        check("was forked" in refused(peer.send, HELLO), "a child may not send")
        check("was forked" in refused(process.allocate, 1), "a child may not allocate")
        part.release()
        loan.release()
        process.leave()
        sys.exit(0)
    check(os.waitpid(child, 0)[1] == 0, "the child has passed its checks")
    part.release()
    with loan as again:
        check(bytes(again[:5]) == b"first", "after the child")
    loan.release()
    for gone in (view, part, again):
        check("released" in refused(lambda seen=gone: seen[0], kind=ValueError), "no view is left")
    check("given back" in refused(lambda: loan.view, kind=BufferError), "nor is there a new one")
    check("given back" in refused(loan.__enter__, kind=BufferError), "nor by with")
    message = messages.next()
    check(message.payload == b"forgotten" and bytes(message.loan.view[:5]) == b"later", "another")
    del message  # gives it back
    gc.collect()
    peer.send(END)
    check(messages.next().id == END, "the end")


def hold(process, peer):
    """Holds a loan, and whatever else comes, until the process is killed."""
    message = Messages(process).next()
    print("has it", flush=True)
    while True:
        process.receive(timeout=None)  # the end of the lender, too
        check(bytes(message.loan.view[:4]) == b"mine", "its bytes")
        print("still has it", flush=True)


def lend_to_one_who_dies(process, peer):
    block = process.allocate(LENT_BYTES)
    block.view[:4] = b"mine"
    peer.lend(LENT, block)
    print("lent", flush=True)
    wait_until(process, lambda: not block.is_lent, "the block of one who is dead")
    events = process.take_events()
    check(EventKind.LEFT in [event.kind for event in events], f"its end, among {events}")
    check("left or died" in refused(peer.send, HELLO), "nothing more is sent to it")
    check(bytes(block.view[:4]) == b"mine", "it is as it was")


def wait(process, peer):
    """Waits for messages until the owner of the pool is gone."""
    print("waits", flush=True)
    while True:
        try:
            check(process.receive(timeout=BOUND) == [], "no message comes")
        except Error as error:
            check("the owner of the pool has died or stopped" in str(error), error)
            break
    check(process.take_events()[-1].kind is EventKind.POOL_GONE, "the last event")
    check("has lost its owner" in refused(peer.send, HELLO), "nothing is sent")
    check("no living member" in refused(process.connect, "nobody", BOUND), "nobody joins")


class Interrupted(Exception):
    pass


def be_interrupted(process, peer):
    """A handler that raises ends a wait, and the process goes on. One that returns ends none."""
    def interrupt(*_):
        raise Interrupted
    def wait_for_signal():
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        process.receive(timeout=BOUND)
    signal.signal(signal.SIGALRM, interrupt)
    begin = time.monotonic()
    refused(wait_for_signal, kind=Interrupted)
    check(time.monotonic() - begin < BOUND / 2, "the signal ended the wait")
    seen = []
    signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    peer.send(HELLO)
    messages = Messages(process)
    for i in range(20000):
        check(messages.next().payload == b"%d" % i, f"message {i}")
    signal.setitimer(signal.ITIMER_REAL, 0)
    check(len(seen) > 0, "there were signals")


def send_many(process, peer):
    check(Messages(process).next().id == HELLO, "the start")
    for i in range(20000):
        peer.send(HELLO, b"%d" % i, timeout=BOUND)


THREADS, EACH = 4, 2000


def send_from_threads(process, peer):
    def send(thread):
        for i in range(EACH):
            peer.send(HELLO, b"%d %d" % (thread, i), timeout=BOUND)
    received = []
    threads = [threading.Thread(target=send, args=(thread,)) for thread in range(THREADS)]
    # It waits without a limit while the others send, and wait for space.
    threads.append(threading.Thread(target=lambda: received.extend(process.receive(timeout=None))))
    for one in threads:
        one.start()
    for one in threads:
        one.join(BOUND)
    check([message.id for message in received] == [END], "the peer has all")


def receive_in_a_loop(process, peer):
    """In asyncio's loop, by the descriptor."""
    seen = {thread: 0 for thread in range(THREADS)}

    async def run():
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def receive():
            while True:
                for message in process.receive():
                    thread, number = map(int, message.payload.split())
                    check(seen[thread] == number, f"the order of thread {thread}")
                    seen[thread] += 1
                if process.arm():
                    break
            if sum(seen.values()) == THREADS * EACH:
                done.set()

        loop.add_reader(process.fileno(), receive)
        receive()
        await asyncio.wait_for(done.wait(), BOUND)
        loop.remove_reader(process.fileno())

    asyncio.run(run())
    peer.send(END)


def misuse(process, peer):
    """Mistakes are exceptions."""
    socket = sys.argv[1]
    check("has joined one" in refused(joined.join, socket, process.name), "a second join")
    check("no living member" in refused(process.connect, "nobody"), "a name that nobody has")
    check("members are 0.." in refused(process.connect, 99), "a number that nobody has")
    refused(peer.send, 256, b"", kind=OverflowError)
    refused(peer.send, HELLO, "text", kind=TypeError)
    refused(process.allocate, -1, kind=ValueError)
    check("heap of this process is exhausted" in refused(process.allocate, 1 << 30), "a huge block")
    check("no such message" in refused(peer.ask_number, "kvd.none", BOUND), "a name of no message")
    empty = process.allocate(0)
    check(len(empty.view) == 0, "an empty block")
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    check(libc.malloc(ctypes.c_size_t(100)) not in POOL, "malloc is the program's own")
    block = process.allocate(100)
    process.leave()
    process.leave()
    for call in (process.receive, process.arm, process.fileno, lambda: peer.send(HELLO),
                 lambda: peer.lend(LENT, block), lambda: process.allocate(1)):
        check("has left the pool" in refused(call), "each call after the end is refused")
    check("does not use the pool" in refused(lambda: block.view, kind=BufferError), "and a view")


def get_values(process, peer):
    """Asks a key-value service by messages (docs/kvd.md). It lends long values."""
    number = peer.ask_number("kvd.get", BOUND)
    check(number > joined.NUMBER_MAX, "a number that belongs to a name")
    messages = Messages(process)
    for key, value in ((b"short", b"value"), (b"long", b"v" * 100_000), (b"none", None)):
        peer.send(number, bytes([HELLO]) + bytes(4) + key)
        message = messages.next()
        check((message.id, message.sender) == (HELLO, peer), "the answer")
        check(message.payload[4] == (1 if value is None else 0), f"whether {key} is there")
        if message.loan is None:
            check(message.payload[5:] == (value or b""), f"the value of {key}")
            continue
        with message.loan as view:
            check(view == value, f"the value of {key}")
        print("lent", flush=True)


ACTIONS = {function.__name__: function for function in (
    greet, lend, borrow, hold, lend_to_one_who_dies, wait, be_interrupted, send_many,
    send_from_threads, receive_in_a_loop, misuse, get_values)}


def main():
    socket, name, action, peer = sys.argv[1:]
    try:
        process = joined.join(socket, name, timeout=BOUND)
    except Error as error:
        sys.exit(f"python_peer: {error}")
    with process:
        ACTIONS[action](process, process.connect(peer, timeout=BOUND))


if __name__ == "__main__":
    main()
