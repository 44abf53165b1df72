"""A host at the other end of a cable: a network namespace of the test's own, and a veth pair."""

import concurrent.futures
import ctypes
import ipaddress
import os
import random
import subprocess

from harness import Skip, need_tools

CLONE_NEWNET = 0x40000000


class OtherHost:
    """A host that is one cable away: the namespace `name`, with sockets of its own."""

    def __init__(self, box):
        need_tools("ip")
        if os.geteuid() != 0:
            raise Skip("network namespaces take root")
        number = random.randrange(1 << 16)
        self.name = f"bp-{number:04x}"
        self.near, self.far = f"bpn{number:04x}", f"bpf{number:04x}"
        # A network in 198.18.0.0/15, which is for tests of networks (RFC 2544).
        network = ipaddress.ip_network((0xC6120000 + 4 * (number % 0x8000), 30))
        self.near_address, self.far_address = map(str, network.hosts())
        self._add(box, "netns", self.name)
        box.run("ip", "-n", self.name, "link", "set", "lo", "up")
        self.plug_in(box)

    def plug_in(self, box):
        """Creates interfaces at both ends of the cable, with the same names and addresses as
        before."""
        self._add(box, "link", self.near, "type", "veth", "peer", "name", self.far,
                  "netns", self.name)
        for inside, device, address in (((), self.near, self.near_address),
                                        (("-n", self.name), self.far, self.far_address)):
            box.run("ip", *inside, "address", "add", f"{address}/30", "dev", device)
            box.run("ip", *inside, "link", "set", device, "up")

    @staticmethod
    def _add(box, kind, name, *details):
        done = box.run("ip", kind, "add", name, *details, expect_code=None)
        if done.returncode:
            raise Skip(f"ip {kind} add: {done.stderr.strip()}")
        box.closing.callback(subprocess.run, ["ip", kind, "delete", name], check=False,
                             stderr=subprocess.DEVNULL)  # a link ends with its namespace

    def run(self, function):
        """Calls `function` on a thread within the namespace; sockets made there stay there."""

        def enter():
            with open(f"/run/netns/{self.name}", encoding="ascii") as namespace:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(namespace.fileno(), CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            return function()

        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            return thread.submit(enter).result()

    def pull_out(self, box):
        """Deletes the interfaces at both ends, with everything that the kernel stores for them."""
        box.run("ip", "link", "delete", self.near)

    def vanish(self, box):
        box.run("ip", "-n", self.name, "link", "set", self.far, "down")

    def come_back(self, box):
        box.run("ip", "-n", self.name, "link", "set", self.far, "up")
