#!/usr/bin/python3
"""Ports through DPDK on real drivers, behind QEMU's IOMMU: e1000e, vmxnet3 and virtio-net.

    /usr/bin/python3 tests/guest/ports_vfio_test.py [PATTERN...]

Patterns and the last line are those of guest_test.py. This script is the other end of the wire: it
builds frames itself and exchanges them through a socket of QEMU's.
"""

import contextlib
import hashlib
import json
import os
import re
import socket
import struct
import sys
import tempfile
import threading
import time

from configuration import SERVE, smallest
from guest_test import VERBS_MODULES, Guest
from image import VMLINUX, Image, build_module
from machine import MODE, ROOT, Machine
from runner import Failure, run_tests
from vfio_test import IOMMU, NO_IOMMU_MODE

ECHO = os.path.join(ROOT, "build", MODE, "port-echo")
AT, OTHER_AT = "0000:00:05.0", "0000:00:06.0"
CARDS = {"e1000e": "e1000e", "vmxnet3": "vmxnet3",
         "virtio": "virtio-net-pci,iommu_platform=on,disable-legacy=on"}
PATIENCE_SECONDS = 300

OURS, THEIRS = "10.9.0.1", "10.9.0.2"
OTHER = "10.9.1.1", "10.9.1.2"  # on the second card
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

    def __init__(self, directory, name="wire", ours=OURS, theirs=THEIRS):
        self.name = name
        self._addresses = ours, theirs
        self._theirs = os.path.join(directory, f"{name}-card")
        ours = os.path.join(directory, name)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(ours)
        self._socket.settimeout(0.5)
        self.options = (f"-netdev dgram,id={name},local.type=unix,local.path={self._theirs},"
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
        is_question = kind == 0x806 and payload[6:8] == b"\0\1"
        if is_question and payload[24:28] == socket.inet_aton(self._addresses[0]):
            self.arp(2, payload[8:14], socket.inet_ntoa(payload[14:18]))
            return None
        return kind, payload

    def arp(self, operation, mac, address):
        self.send(0x806, bytes.fromhex("0001080006040000")[:6] + struct.pack("!H", operation) +
                  MAC + socket.inet_aton(self._addresses[0]) + mac + socket.inet_aton(address))

    def find(self):
        """Sends ARP requests for the port's address until the port answers."""
        while True:
            self.arp(1, bytes(6), self._addresses[1])
            while (got := self.receive()) is not None:
                if got[0] == 0x806 and got[1][6:8] == b"\0\2":
                    self._mac = got[1][8:14]
                    return

    def send_ip(self, protocol, payload):
        head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 1, 0, 64, protocol, 0,
                           *map(socket.inet_aton, self._addresses))
        self.send(0x800, head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload)

    def expect_echo(self, protocol, message, answer_protocol, is_answer):
        """Sends `message` until an answer comes back that `is_answer`."""
        while True:
            self.send_ip(protocol, message)
            while (got := self.receive()) is not None:
                if got[0] == 0x800 and got[1][9] == answer_protocol:
                    length = struct.unpack_from("!H", got[1], 2)[0]
                    if is_answer(got[1][20:length]):
                        return

    def ping(self, sequence):
        data = os.urandom(1000)
        message = struct.pack("!BBHHH", 8, 0, 0, 7, sequence) + data
        message = message[:2] + struct.pack("!H", checksum(message)) + message[4:]
        self.expect_echo(1, message, 1, lambda got: got[0] == 0 and got[4:] == message[4:])

    def datagram(self, number):
        data = struct.pack("!I", number) + os.urandom(number % 1400)
        head = struct.pack("!HHHH", 9000, 7000, 8 + len(data), 0)  # without a checksum
        self.expect_echo(17, head + data, 17,
                         lambda got: got[:4] == struct.pack("!HH", 7000, 9000) and got[8:] == data)

    def expect_datagram(self, make, port, answers, is_good):
        """Sends data of `make` repeatedly, until `answers` has a datagram that `is_good`."""
        while True:
            data = make()
            self.send_ip(17, struct.pack("!HHHH", 9000, port, 8 + len(data), 0) + data)
            while (got := answers.receive()) is not None:
                if got[0] == 0x800 and got[1][9] == 17:
                    length = struct.unpack_from("!H", got[1], 2)[0]
                    if is_good(got[1][28:length]):
                        return

    def say_done(self):
        """Sends to an unused UDP port until an ICMP error reports that."""
        self.expect_echo(17, struct.pack("!HHHH", 9000, 9, 8, 0), 1, lambda got: got[0] == 3)

    def use(self):
        self.find()
        for sequence in range(10):
            self.ping(sequence)
        for number in range(DATAGRAMS):
            self.datagram(number)


def run_with_wires(script, cards, use, modules="vfio_iommu_type1 vfio_pci", **machine):
    """Runs the script in a guest whose cards have one wire each, and calls `use` with the wires."""
    with tempfile.TemporaryDirectory() as work, contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(work, name, *addresses))
                 for name, addresses in zip(("wire", "other"), ((OURS, THEIRS), OTHER))]
        failures = []

        def run():
            try:
                use(*wires[:len(cards)])
                wires[0].say_done()
            except BaseException as failure:  # pylint: disable=broad-except
                failures.append(failure)

        user = threading.Thread(target=run)
        user.start()
        options = " ".join(f"{wire.options} -device {card},netdev={wire.name},addr={5 + i},romfile="
                           for i, (card, wire) in enumerate(zip(cards, wires)))
        guest = Guest("/bin/sh", "-c", script, modules=modules, append="intel_iommu=on",
                      files=f"{ECHO}=/echo", seconds=400,
                      qemu=f"{IOMMU.format(bits=48)} {options}", **machine)
        user.join()
    if failures:
        raise Failure(f"{failures[0]}\n{guest.output}")
    guest.expect_exit(0)
    return guest


# `give ADDRESS` binds a device to vfio-pci. `until_done` waits until "a" has received a datagram
# that no socket takes (Wire.say_done).
BEGIN = SERVE + r"""
echo 160 > /proc/sys/vm/nr_hugepages
give() {
  echo vfio-pci > /sys/bus/pci/devices/$1/driver_override
  [ ! -e /sys/bus/pci/devices/$1/driver ] || echo $1 > /sys/bus/pci/devices/$1/driver/unbind
  echo $1 > /sys/bus/pci/drivers_probe
}
until_done() {
  while kill -0 $a 2> /dev/null; do
    /echo stats --json a | grep -q '"drop_no_socket": [1-9]' && break
    sleep 0.5
  done
}
"""


def sum_of(content):
    """FNV-1a, as in tests/system/port_lender.cc."""
    total = 0x811c9dc5
    for byte in content:
        total = (total ^ byte) * 0x01000193 & 0xffffffff
    return f"{total:08x}"


def stats_of(guest, when):
    """The output of `/echo stats --json` after a line `== WHEN`."""
    return json.loads(guest.expect(rf"== {when}\n(\{{[\s\S]*?^\}})").group(1))


def in_a_guest(card):
    """Ping and datagrams work. The number of mappings that are left is the same before and
    after."""
    guest = run_with_wires(BEGIN + f"""
cat > /tmp/a.toml << END
{CONFIGURATION}
END
give {AT}; serve a /echo
echo == before; /echo stats --json a
until_done
echo == after; /echo stats --json a
kill -TERM $a; wait $a; echo == exit $?; cat /tmp/a.log""", [card], Wire.use)
    guest.expect(r"^== exit 0$")
    before, after = stats_of(guest, "before"), stats_of(guest, "after")
    left = 65535 - len(before["segment"])
    seen = [(counters["vfio"], counters["pool"]["registrations_after_seal"], counters["audit"])
            for counters in (before, after)]
    if seen != [({"groups": 1, "mappings_left": left}, 0, "ok")] * 2:
        raise Failure(f"the counters say {seen}\n{guest.output}")


BETWEEN_CARDS = CONFIGURATION + f"""
answer_by = "lan"
answer_to = "{OTHER[0]}:9001"
[[port]]
name = "lan"
device = "{OTHER_AT}"
addresses = ["{OTHER[1]}/24"]
"""


def what_one_card_receives_another_sends_from_where_it_lies():
    """A witness at both drivers compares the addresses (tests/apps/ports/port_witness.h)."""
    def use(wire, other):
        wire.find()
        other.find()
        sent = set()

        def make():
            """Returns a new datagram each time: the witness knows datagrams by their numbers."""
            made = struct.pack("!I", len(sent)) + os.urandom(len(sent) % 1400)
            sent.add(made)
            return made

        for _ in range(DATAGRAMS):
            wire.expect_datagram(make, 7000, other, sent.__contains__)

    guest = run_with_wires(BEGIN + f"""
cat > /tmp/a.toml << END
{BETWEEN_CARDS}
END
give {AT}; give {OTHER_AT}; serve a /echo
until_done
echo == after; /echo stats --json a
kill -TERM $a; wait $a; echo == exit $?; cat /tmp/a.log""", [CARDS["e1000e"]] * 2, use)
    guest.expect(r"^== exit 0$")
    witness = stats_of(guest, "after")["services"]["echo"]
    if witness["sent_elsewhere"] != 0 or witness["sent_in_place"] < DATAGRAMS:
        raise Failure(f"the witness says {witness}\n{guest.output}")


LENT = 300
LENDING = smallest("a", pool="160 MiB", in_pool='pages = "2 MiB"', more=f"""
[verbs]
trust_windows = true
listen = "tcp:127.0.0.1:7471"
[[verbs.peer]]
name = "b"
[[port]]
name = "wan"
device = "{AT}"
addresses = ["{THEIRS}/24"]
[lend]
network = "wan"
local = "0.0.0.0:7000"
to = ["b"]
file = "/tmp/lent"
""")
BORROWING = smallest("b", in_pool='pages = "2 MiB"', more="""
[verbs]
trust_windows = true
back_off_max_ms = 200
[[verbs.peer]]
name = "a"
address = "tcp:127.0.0.1:7471"
[lend]
""")


def datagrams_of_a_card_go_by_verbs_from_where_they_lie():
    """Another appliance reads each datagram by RDMA at its address in the port's buffers. None is
    copied for sending (verbs.bounced_bytes)."""
    sent = []

    def use(wire):
        wire.find()
        for number in range(LENT):
            data = struct.pack("<Q", number) + os.urandom(992)
            sent.append(data)
            wanted = rf"{number} at (\w+); b \1 {sum_of(data)}; file 1000"
            wire.expect_datagram(lambda d=data: d, 7000, wire,
                                 lambda got, w=wanted: re.fullmatch(w, got.decode()))

    guest = run_with_wires(BEGIN + f"""
cat > /tmp/a.toml << END
{LENDING}
END
cat > /tmp/b.toml << END
{BORROWING}
END
/bedplate-tests -sg VerbsPeers -sn AllThatIsThereIsGood > /dev/null 2>&1  # it makes rxe0
give {AT}; serve a /echo; serve b /echo
until_done
echo == after; /echo stats --json a
sha256sum /tmp/lent
kill -TERM $b; wait $b; kill -TERM $a; wait $a; echo == exit $?; cat /tmp/a.log /tmp/b.log
""", [CARDS["e1000e"]], use, modules=f"vfio_iommu_type1 vfio_pci {VERBS_MODULES}")
    guest.expect(r"^== exit 0$")
    guest.expect(rf"^{hashlib.sha256(b''.join(sent)).hexdigest()}  /tmp/lent$")
    counters = stats_of(guest, "after")
    seen = (counters["verbs"]["bounced_bytes"], counters["pool"]["registrations_after_seal"])
    if seen != (0, 0):
        raise Failure(f"bytes bounced, regions registered after the seal: {seen}\n{guest.output}")


# `look ADDRESS NAME` prints the reasons against a port at that address.
LOOK = BEGIN + f"""
cat > /tmp/a.toml << END
{CONFIGURATION}
END
look() {{
  sed "s/{AT}/$1/" /tmp/a.toml > /tmp/b.toml
  echo == look $2; /echo check /tmp/b.toml 2>&1; echo == exit $?
}}
modprobe() {{ insmod /modules/$1.ko; }}
"""
EDU_AT, NOBODY_AT = OTHER_AT, "0000:00:09.0"


def look(script, iommu=IOMMU, modules="vfio_iommu_type1 vfio_pci e1000e", files=""):
    guest = Guest("/bin/sh", "-c", LOOK + script, modules=modules, append="intel_iommu=on",
                  files=f"{ECHO}=/echo {files}", seconds=180,
                  qemu=f"{iommu.format(bits=48)} -device e1000e,addr=5,romfile= -device edu,addr=6")
    guest.expect_exit(0)
    return guest


def expect_line(guest, which, pattern):
    """Checks that the look's output is one line, which matches `pattern`."""
    seen = guest.expect(rf"^== look {which}\n([\s\S]*?)^== exit (\d+)$")
    lines = seen.group(1).splitlines()
    if seen.group(2) != "1" or len(lines) != 1 or not re.search(pattern, lines[0]):
        raise Failure(f"look {which}: expected {pattern}\n{guest.output}")


def a_port_that_cannot_be_had_is_one_line_with_its_cure():
    """The cure for a device of a kernel driver, without vfio-pci, is run unchanged."""
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
    expect_line(guest, "unloaded", rf"^bedplate: checking who drives {AT}: the kernel's e1000e "
                r"does, and the kernel has no vfio-pci yet; modprobe vfio-pci; echo vfio-pci > ")
    guest.expect(r"^== after the cure 0$")
    expect_line(guest, "kernel", rf"^bedplate: checking who drives {AT}: the kernel's e1000e does; "
                r"echo vfio-pci > ")
    expect_line(guest, "driver", rf"^bedplate: looking for the device {EDU_AT} of the port wan: it "
                r"is a 1234:11e8, for which no driver is linked in; linked in are: .* e1000 .*; "
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
    """The same in an image, without a system around it: the configuration only names the device."""
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
         what_one_card_receives_another_sends_from_where_it_lies,
         datagrams_of_a_card_go_by_verbs_from_where_they_lie, e1000e_in_a_guest, vmxnet3_in_a_guest,
         virtio_net_in_a_guest, ports_of_an_image]


if __name__ == "__main__":
    sys.exit(run_tests(TESTS))
