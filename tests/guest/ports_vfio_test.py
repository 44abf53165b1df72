#!/usr/bin/python3
"""Ports through DPDK on real drivers, behind QEMU's IOMMU: e1000e, vmxnet3 and virtio-net.

    /usr/bin/python3 tests/guest/ports_vfio_test.py [PATTERN...]

Patterns and the last line are those of guest_test.py. The other end of the wire is here: frames are
put together by hand, and go through a socket of QEMU's.
"""

import json
import os
import re
import socket
import struct
import sys
import tempfile
import threading
import time

from configuration import smallest
from guest_test import Guest
from image import VMLINUX, Image, build_module
from machine import ROOT, Machine
from runner import Failure, run_tests
from vfio_test import IOMMU, NO_IOMMU_MODE

ECHO = os.path.join(ROOT, "build", "release", "port-echo")
AT = "0000:00:05.0"
CARDS = {"e1000e": "e1000e", "vmxnet3": "vmxnet3",
         "virtio": "virtio-net-pci,iommu_platform=on,disable-legacy=on"}
PATIENCE_SECONDS = 120

OURS, THEIRS = "10.9.0.1", "10.9.0.2"
MAC = bytes.fromhex("020000000901")
DATAGRAMS = 2000

CONFIGURATION = smallest("a", pool="160 MiB", in_pool='pages = "2 MiB"', more=f"""
[[port]]
name = "wan"
device = "{AT}"
addresses = ["{THEIRS}/24"]
[echo]
network = "wan"
local = "0.0.0.0:7000"
""")


def checksum(data):
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


class Wire:
    """The other end of a card's wire, which answers ARP, too."""

    def __init__(self, directory):
        self._theirs = os.path.join(directory, "card")
        ours = os.path.join(directory, "wire")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(ours)
        self._socket.settimeout(0.5)
        self.options = (f"-netdev dgram,id=wire,local.type=unix,local.path={self._theirs},"
                        f"remote.type=unix,remote.path={ours}")
        self._mac = b"\xff" * 6
        self._deadline = time.monotonic() + PATIENCE_SECONDS

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()

    def send(self, kind, payload):
        try:
            self._socket.sendto(self._mac + MAC + struct.pack("!H", kind) + payload, self._theirs)
        except OSError:
            time.sleep(0.1)  # the machine is not there yet

    def receive(self):
        """The next frame's type and payload; None when none has come for a while."""
        if time.monotonic() > self._deadline:
            raise Failure("the port does not answer")
        try:
            frame = self._socket.recv(65536)
        except socket.timeout:
            return None
        kind, payload = struct.unpack_from("!H", frame, 12)[0], frame[14:]
        if kind == 0x806 and payload[6:8] == b"\0\1" and payload[24:28] == socket.inet_aton(OURS):
            self.arp(2, payload[8:14], socket.inet_ntoa(payload[14:18]))
            return None
        return kind, payload

    def arp(self, operation, mac, address):
        self.send(0x806, bytes.fromhex("0001080006040000")[:6] + struct.pack("!H", operation) +
                  MAC + socket.inet_aton(OURS) + mac + socket.inet_aton(address))

    def find(self):
        """Asks for the port's address until it answers."""
        while True:
            self.arp(1, bytes(6), THEIRS)
            while (got := self.receive()) is not None:
                if got[0] == 0x806 and got[1][6:8] == b"\0\2":
                    self._mac = got[1][8:14]
                    return

    def send_ip(self, protocol, payload):
        head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 1, 0, 64, protocol, 0,
                           socket.inet_aton(OURS), socket.inet_aton(THEIRS))
        self.send(0x800, head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload)

    def expect_echo(self, protocol, message, is_answer):
        """Sends `message` until an answer comes back that `is_answer`."""
        while True:
            self.send_ip(protocol, message)
            while (got := self.receive()) is not None:
                if got[0] == 0x800 and got[1][9] == protocol:
                    length = struct.unpack_from("!H", got[1], 2)[0]
                    if is_answer(got[1][20:length]):
                        return

    def ping(self, sequence):
        data = os.urandom(1000)
        message = struct.pack("!BBHHH", 8, 0, 0, 7, sequence) + data
        message = message[:2] + struct.pack("!H", checksum(message)) + message[4:]
        self.expect_echo(1, message, lambda got: got[0] == 0 and got[4:] == message[4:])

    def datagram(self, number):
        data = struct.pack("!I", number) + os.urandom(number % 1400)
        head = struct.pack("!HHHH", 9000, 7000, 8 + len(data), 0)  # without a checksum
        self.expect_echo(17, head + data,
                         lambda got: got[:4] == struct.pack("!HH", 7000, 9000) and got[8:] == data)

    def use(self):
        self.find()
        for sequence in range(10):
            self.ping(sequence)
        for number in range(DATAGRAMS):
            self.datagram(number)


def in_a_guest(card):
    """Ping and datagrams; the mappings that are left are the same before and after."""
    script = f"""
echo 128 > /proc/sys/vm/nr_hugepages
cat > /tmp/a.toml << END
{CONFIGURATION}
END
echo vfio-pci > /sys/bus/pci/devices/{AT}/driver_override
[ ! -e /sys/bus/pci/devices/{AT}/driver ] || echo {AT} > /sys/bus/pci/devices/{AT}/driver/unbind
echo {AT} > /sys/bus/pci/drivers_probe
/echo run /tmp/a.toml > /tmp/log 2>&1 & echo=$!
until grep -q 'bedplate: ready' /tmp/log || ! kill -0 $echo 2> /dev/null; do sleep 0.1; done
echo == before; /echo stats --json a
while kill -0 $echo 2> /dev/null; do
  count=$(/echo stats --json a | sed -n 's/.*"received_frames": \\([0-9]*\\).*/\\1/p' |
      sort -n | tail -n 1)
  [ ${{count:-0}} -lt {DATAGRAMS + 10} ] || break
  sleep 0.5
done
echo == after; /echo stats --json a
kill -TERM $echo; wait $echo; echo == exit $?; cat /tmp/log"""
    with tempfile.TemporaryDirectory() as work, Wire(work) as wire:
        failures = []

        def use():
            try:
                wire.use()
            except BaseException as failure:  # pylint: disable=broad-except
                failures.append(failure)

        user = threading.Thread(target=use)
        user.start()
        guest = Guest("/bin/sh", "-c", script, modules="vfio_iommu_type1 vfio_pci",
                      append="intel_iommu=on", files=f"{ECHO}=/echo", seconds=200,
                      qemu=f"{IOMMU.format(bits=48)} {wire.options} "
                           f"-device {card},netdev=wire,addr=5,romfile=")
        user.join()
    if failures:
        raise Failure(f"{failures[0]}\n{guest.output}")
    guest.expect_exit(0)
    guest.expect(r"^== exit 0$")
    before, after = (json.loads(guest.expect(rf"== {when}\n(\{{[\s\S]*?^\}})").group(1))
                     for when in ("before", "after"))
    left = 65535 - len(before["segment"])
    seen = [(counters["vfio"], counters["pool"]["registrations_after_seal"], counters["audit"])
            for counters in (before, after)]
    if seen != [({"groups": 1, "mappings_left": left}, 0, "ok")] * 2:
        raise Failure(f"the counters say {seen}\n{guest.output}")


# `look ADDRESS` looks what stands against a port there; `give ADDRESS` has vfio-pci take the device.
LOOK = f"""
echo 128 > /proc/sys/vm/nr_hugepages
cat > /tmp/a.toml << END
{CONFIGURATION}
END
look() {{
  sed "s/{AT}/$1/" /tmp/a.toml > /tmp/b.toml
  echo == look $2; /echo check /tmp/b.toml 2>&1; echo == exit $?
}}
give() {{
  echo vfio-pci > /sys/bus/pci/devices/$1/driver_override
  echo $1 > /sys/bus/pci/drivers_probe
}}
modprobe() {{ insmod /modules/$1.ko; }}
"""
EDU_AT, NOBODY_AT = "0000:00:06.0", "0000:00:09.0"


def look(script, iommu=IOMMU, modules="vfio_iommu_type1 vfio_pci e1000e", files=""):
    guest = Guest("/bin/sh", "-c", LOOK + script, modules=modules, append="intel_iommu=on",
                  files=f"{ECHO}=/echo {files}", seconds=180,
                  qemu=f"{iommu.format(bits=48)} -device e1000e,addr=5,romfile= -device edu,addr=6")
    guest.expect_exit(0)
    return guest


def expect_line(guest, which, pattern):
    """What that look printed is one line."""
    seen = guest.expect(rf"^== look {which}\n([\s\S]*?)^== exit (\d+)$")
    lines = seen.group(1).splitlines()
    if seen.group(2) != "1" or len(lines) != 1 or not re.search(pattern, lines[0]):
        raise Failure(f"look {which}: expected {pattern}\n{guest.output}")


def a_port_that_cannot_be_had_is_one_line_with_its_cure():
    """The cure of a device that the kernel drives, without vfio-pci, is run as it is."""
    guest = look(f"""
look {NOBODY_AT} nobody
rmmod vfio_pci
look {AT} unloaded
/echo check /tmp/b.toml 2>&1 | sed -n 's/.* yet; //p' > /tmp/cure; . /tmp/cure
/echo check /tmp/b.toml; echo == after the cure $?
echo > /sys/bus/pci/devices/{AT}/driver_override
echo {AT} > /sys/bus/pci/drivers/vfio-pci/unbind; echo {AT} > /sys/bus/pci/drivers/e1000e/bind
look {AT} kernel
give {EDU_AT}; look {EDU_AT} driver""")
    expect_line(guest, "nobody", rf"^bedplate: looking for the PCI device {NOBODY_AT}: there is none "
                rf"at this address; there are: .*{AT}.*; correct the address ")
    expect_line(guest, "unloaded", rf"^bedplate: looking at who drives {AT}: the kernel's e1000e "
                r"does, and the kernel has no vfio-pci yet; modprobe vfio-pci; echo vfio-pci > ")
    guest.expect(r"^== after the cure 0$")
    expect_line(guest, "kernel", rf"^bedplate: looking at who drives {AT}: the kernel's e1000e does; "
                r"echo vfio-pci > ")
    expect_line(guest, "driver", rf"^bedplate: looking for the device {EDU_AT} of the port wan: it "
                r"is a 1234:11e8, which no driver that is linked in is for; these are: .* e1000 .*; "
                r"build with its driver in DRIVERS")


def a_port_without_an_iommu_is_refused():
    with tempfile.TemporaryDirectory() as work:
        module = build_module(work, "no_iommu_mode",
                              NO_IOMMU_MODE.replace("0x1234, 0x11e8", "0x8086, 0x10d3"))
        guest = look(f"look {AT} none; insmod /no_iommu_mode.ko; look {AT} unsafe",
                     iommu="-machine q35", files=f"{module}=/no_iommu_mode.ko")
    expect_line(guest, "none", rf"^bedplate: looking for the IOMMU of {AT}: it has no IOMMU group: "
                r".*; turn the IOMMU on in the firmware ")
    expect_line(guest, "unsafe", rf"^bedplate: looking for the IOMMU of {AT}: vfio-pci has it in "
                r"no-IOMMU mode, .*; turn the IOMMU on in the firmware ")


def e1000e_in_a_guest():
    in_a_guest(CARDS["e1000e"])


def vmxnet3_in_a_guest():
    in_a_guest(CARDS["vmxnet3"])


def virtio_net_in_a_guest():
    in_a_guest(CARDS["virtio"])


def ports_of_an_image():
    """The same without a system around it: the configuration names the device, and no more."""
    with tempfile.TemporaryDirectory() as work:
        config = os.path.join(work, "a.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIGURATION)
        with Image(config, options=("--level", "1", "--init", ECHO)) as image:
            for card in CARDS.values():
                with tempfile.TemporaryDirectory() as ends, Wire(ends) as wire:
                    options = (f"{IOMMU.format(bits=48)} {wire.options} "
                               f"-device {card},netdev=wire,addr=5,romfile=").split()
                    with Machine(image.path, *options, KERNEL=VMLINUX,
                                 APPEND="intel_iommu=on") as machine:
                        machine.expect_ready()
                        wire.use()


TESTS = [a_port_that_cannot_be_had_is_one_line_with_its_cure, a_port_without_an_iommu_is_refused,
         e1000e_in_a_guest, vmxnet3_in_a_guest, virtio_net_in_a_guest, ports_of_an_image]


if __name__ == "__main__":
    sys.exit(run_tests(TESTS))
