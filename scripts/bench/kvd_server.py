"""Runs kvd, and next to it a service that answers messages (kvd_messages.cc)."""
import contextlib
import socket
import time

import common
from common import BUILD, BenchError

KVD_MESSAGES = f"{BUILD}/kvd_messages"
START_MAX_S = 20


def kvd_config(directory, name, cpu, port, pool_bytes, sockets, cache_bytes, tables=""):
    """Writes the configuration of an appliance with one shard, `main`; returns its path."""
    return common.service_config(directory, name, [("main", cpu)], pool_bytes, sockets, f"""[kvd]
listen = ["tcp:127.0.0.1:{port}"]
cache_bytes = "{cache_bytes}"
{tables}""")


def asker_tables(answer_bytes):
    """Tables of `kvd_messages serve`, for one joined process and answers of this many bytes."""
    return f"""[echo]
answer_bytes = {answer_bytes}
[[group]]
name = "main"
members = 2
[[process]]
name = "asker"
user = "root"
group = "main"
heap_bytes = "16 MiB"
"""


def said_of(log):
    with open(log, encoding="utf-8", errors="replace") as file:
        return file.read().strip()[-1000:] or "nothing"


def wait_for(port, log):
    """Waits until a server answers at the port."""
    end = time.monotonic() + START_MAX_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)  # between two attempts, bounded by `end`
    raise BenchError(f"waiting for a server at port {port}: there is no answer; it said: "
                     + said_of(log))
