"""Clients whose host vanishes: no connection is closed, no packet comes back, and others need their
slots.

The test takes down the far end of its own network (a namespace and a veth pair). From then on all
packets of the server are lost silently, as when a host loses power.
"""

import contextlib
import ctypes
import os
import signal

from harness import BACKENDS, KIB, MIB, expect, expect_true, test, wait_for
from other_host import OtherHost
import raw_nbd as nbd
from raw_nbd import connect

TIMEOUT_SECONDS = 2


def appliance_for(box, host, sockets, **blockd):
    configuration = box.configuration(sockets=sockets, **blockd)
    port = configuration["blockd"]["listen"][0].rpartition(":")[2]
    configuration["blockd"]["listen"].append(f"tcp:{host.near_address}:{port}")
    configuration["blockd"]["plain_text"] = "allowed"
    appliance = box.appliance(configuration)
    remote = (host.near_address, int(port))
    return appliance, lambda **options: box.closing.enter_context(
        host.run(lambda: nbd.RawClient(remote, **options))).greet().go()


def is_served(box, appliance):
    with contextlib.suppress(nbd.Disconnected):
        connect(box, appliance, "tcp").close()
        return True
    return False


@test(sockets=BACKENDS)
def slots_become_free(box, sockets):
    """Three clients vanish: one is idle, one reads none of its replies, and one waits for a reply.
    The slots of all three become free. Clients that live may be idle without a limit."""
    host = OtherHost(box)
    appliance, arrive = appliance_for(box, host, sockets, max_connections=5,
                                      client_timeout_s=TIMEOUT_SECONDS)
    bystanders = [connect(box, appliance, transport) for transport in ("tcp", "unix")]
    idle = arrive()
    deaf = arrive(receive_buffer_bytes=16 * KIB)
    for _ in range(64):
        deaf.request(nbd.READ, 0, 1 * MIB)
    owed = arrive()
    wait_for(lambda: appliance.blockd("requests_read") == 64, "the server to have the requests")
    expect_true(not is_served(box, appliance), "all slots are taken before the host vanishes")
    # The request arrives, but the cable is gone before its answer.
    os.kill(appliance.pid, signal.SIGSTOP)
    owed.request(nbd.READ, 0, 4 * KIB)
    wait_for(lambda: unacknowledged(owed.socket) == 0, "the kernel there to have the request")
    host.vanish(box)
    os.kill(appliance.pid, signal.SIGCONT)
    wait_for(lambda: appliance.blockd("connections_open") == len(bystanders),
             "the slots of clients whose host is gone")
    expect_true(is_served(box, appliance), "a newcomer is served")
    for client in bystanders:
        client.verify("a bystander that said nothing meanwhile")
    expect(appliance.blockd("broken_connections"), 3, "broken_connections")
    appliance.stop()


def unacknowledged(sock):
    siocoutq = 0x5411
    count = ctypes.c_int(-1)
    ctypes.CDLL(None).ioctl(sock.fileno(), siocoutq, ctypes.byref(count))
    return count.value



@test(sockets=BACKENDS)
def takes_nothing(box, sockets):
    """A client that lives but reads none of its replies for that long loses its slot. A client that
    has read all replies may be silent."""
    appliance = box.appliance(box.configuration(sockets=sockets, client_timeout_s=1))
    silent = connect(box, appliance, "tcp")
    silent.verify("silent")
    deaf = connect(box, appliance, "tcp", receive_buffer_bytes=16 * KIB)
    for _ in range(64):
        deaf.request(nbd.READ, 0, 1 * MIB)
    wait_for(lambda: appliance.blockd("connections_open") == 1, "the slot of the deaf client")
    silent.verify("silent")
    appliance.stop()
