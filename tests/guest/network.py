"""The network between virtual machines: an Ethernet switch whose ports connect to `dgram` backends
of QEMU. It can simulate faults of a real switch.
"""

import os
import socket
import struct
import tempfile
import threading

HEADER_BYTES = 14
# A host that takes no frame for so long counts as stopped: frames for it are dropped.
PATIENCE_SECONDS = 0.2


class Switch:
    """`mtu`: larger frames are dropped without notice; None: no frame is too large."""

    def __init__(self):
        self._work = tempfile.TemporaryDirectory()
        self._ports = {}
        self._deaf = set()
        self.mtu = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for port in self._ports.values():
            port.shutdown(socket.SHUT_RDWR)
        self._work.cleanup()

    def card(self, number):
        """QEMU's options for a card at the port `number` (1 to 255). The link of the card is
        `wire`."""
        there, here = (os.path.join(self._work.name, f"{end}{number}") for end in ("guest", "port"))
        if number not in self._ports:
            port = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            port.bind(here)
            # The timeout is the kernel's: with settimeout() Python would spin while a queue is
            # full.
            port.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO,
                            struct.pack("ll", 0, int(PATIENCE_SECONDS * 1e6)))
            self._ports = {**self._ports, number: port}  # threads iterate over the old dictionary
            threading.Thread(target=self._forward, args=(number, port), daemon=True).start()
        if os.path.exists(there):
            os.unlink(there)  # left by an earlier machine
        return ["-netdev", f"dgram,id=wire,local.type=unix,local.path={there},"
                           f"remote.type=unix,remote.path={here}",
                "-device", f"virtio-net-pci,netdev=wire,mac=52:54:00:00:01:{number:02x},romfile="]

    def _forward(self, number, port):
        while True:
            frame = port.recv(1 << 16)
            if not frame:
                return  # it was shut down
            if self.mtu is not None and len(frame) > self.mtu + HEADER_BYTES:
                continue
            is_for_all = frame[0] & 1
            for other in self._ports:
                if other != number and (is_for_all or frame[5] == other):
                    self._send(port, other, frame)

    def _send(self, port, number, frame):
        there = os.path.join(self._work.name, f"guest{number}")
        try:
            port.sendto(frame, socket.MSG_DONTWAIT if number in self._deaf else 0, there)
            self._deaf.discard(number)
        except BlockingIOError:
            self._deaf.add(number)
        except OSError:
            pass  # no machine is there
