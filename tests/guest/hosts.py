"""Hosts on one network: virtual machines with an RDMA stack that execute commands."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

from machine import Machine, ROOT
from network import Switch
from runner import Failure

sys.path.insert(0, os.path.join(ROOT, "scripts", "image"))
import modules  # noqa: E402
import newc  # noqa: E402

KERNEL = os.path.join(ROOT, "build", "kernel")
PROGRAMS = ["verbs-traffic", "bedplate"]  # of build/release
MODULES = ["virtio_net", "ib_uverbs", "rdma_ucm", "rdma_rxe"]


def make_image(directory):
    """An image whose first process is host_init, with PROGRAMS."""
    subprocess.run([os.path.join(ROOT, "scripts", "image", "kernel.sh")], check=True)
    archive = newc.Archive()
    for name in ("bin", "dev", "modules", "proc", "sys"):
        archive.directory(name)
    archive.directory("tmp", 0o1777)
    archive.device("dev/console", 5, 1)
    here = os.path.dirname(os.path.abspath(__file__))
    files = [("init", os.path.join(here, "host_init")), ("bin/busybox", "/bin/busybox"),
             ("bin/sh", "/bin/busybox")]
    for program in PROGRAMS:
        stripped = os.path.join(directory, program)
        subprocess.run(["strip", "-o", stripped, os.path.join(ROOT, "build", "release", program)],
                       check=True)
        files.append((f"bin/{program}", stripped))
    for name, path in files:
        with open(path, "rb") as file:
            archive.file(name, file.read(), 0o755)
    paths = modules.load_order(os.path.join(KERNEL, "modules"), MODULES)
    for path in paths:
        with open(path, "rb") as file:
            archive.file(f"modules/{os.path.basename(path)}", file.read())
    archive.file("modules/order",
                 "".join(f"{os.path.basename(path)}\n" for path in paths).encode())
    with open(os.path.join(directory, "initramfs.cpio.zst"), "wb") as file:
        file.write(archive.bytes())  # the kernel also takes an unpacked archive
    with open(os.path.join(directory, "cmdline"), "w", encoding="ascii") as file:
        file.write("console=ttyS0 quiet panic=10 no_timer_check cryptomgr.notests")
    os.symlink(os.path.join(KERNEL, "vmlinux"), os.path.join(directory, "vmlinuz"))


class Host(Machine):
    """The host `number`, 10.0.0.NUMBER, on `switch`. It has one processor, because two emulated
    processors that poll starve each other."""

    def __init__(self, image, switch, number):
        self.address = f"10.0.0.{number}"
        self._orders_directory = tempfile.TemporaryDirectory()
        orders = os.path.join(self._orders_directory.name, "orders")
        super().__init__(
            image, "-smp", "1", *switch.card(number), "-chardev",
            f"socket,id=orders,path={orders},server=on,wait=off", "-serial", "chardev:orders",
            reboots=True, APPEND=f"host.address={self.address}/24", MEMORY_MIB="384")
        self._orders = socket.socket(socket.AF_UNIX)
        self._orders.connect(orders)

    def __exit__(self, *error):
        super().__exit__(*error)
        self._orders.close()
        self._orders_directory.cleanup()

    def failure(self, text):
        return Failure("\n".join([text, f"{self.address}'s last lines:", *self.lines[-40:]]))

    def mark(self):
        """The number of the console's lines so far, for `after`."""
        return len(self.lines)

    def run(self, command, seconds=120):
        """Runs a line of the shell, and returns its exit code."""
        before = self.mark()
        self._orders.sendall(command.encode() + b"\n")
        return int(self.expect(r"^host: exit (\d+)$", seconds, before).group(1))

    def count(self, pattern, after=0):
        return sum(re.search(pattern, line) is not None for line in self.lines[after:])

    def expect_count(self, pattern, wanted, seconds, after):
        """Waits for `wanted` lines. More lines are a failure, too."""
        deadline = time.monotonic() + seconds
        while self.count(pattern, after) < wanted and time.monotonic() < deadline:
            time.sleep(0.05)
        if self.count(pattern, after) != wanted:
            raise self.failure(f"{self.count(pattern, after)} lines have {pattern!r}; "
                               f"expected {wanted}")

    def pull_cable(self):
        self.command("set_link", name="wire", up=False)

    def plug_cable(self):
        self.command("set_link", name="wire", up=True)

    def sends(self):
        """Returns whether its card still takes frames from its send queue. QEMU 7.2's card may
        stop for good, which is rare; after that, a test's result means nothing."""
        def sent():
            before = self.mark()
            self.run("echo sent $(cat /sys/class/net/eth1/statistics/tx_packets)")
            return int(self.expect(r"^sent (\d+)$", after=before).group(1))

        before = sent()
        self.run("arp -s 10.0.0.250 52:54:00:00:01:fa; ping -q -c 3 -i 0.1 -W 1 10.0.0.250")
        return sent() > before

    def freeze(self):
        """Stops the whole host, while time passes. QEMU's own `stop` is not used: after it, a card
        that was sending may never send again (QEMU 7.2)."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def restore(self):
        """Undoes changes that a failed test may have left."""
        self.thaw()
        self.plug_cable()

    def reset(self):
        """Resets the host as by its button, without notice to its peers. Returns when it is up
        again."""
        before = self.mark()
        self.command("system_reset")
        self.expect(r"^host: up$", after=before)

    def power_off(self):
        """Ends the host as by a power cut."""
        self.process.kill()
        self.process.wait()


class Hosts:
    """`count` hosts, numbered from 1, booted together."""

    def __init__(self, count):
        self._work = tempfile.TemporaryDirectory()
        make_image(self._work.name)
        self.switch = Switch()
        self._hosts = []
        begin = time.monotonic()
        try:
            for number in range(1, count + 1):
                self._hosts.append(Host(self._work.name, self.switch, number))
            for host in self._hosts:
                host.expect(r"^host: up$")
        except BaseException:
            self.end()
            raise
        print(f"     {count} hosts booted in {time.monotonic() - begin:.0f} s", flush=True)

    def __iter__(self):
        return iter(self._hosts)

    def end(self):
        for host in self._hosts:
            host.__exit__(None, None, None)
        self.switch.__exit__(None, None, None)
        self._work.cleanup()
