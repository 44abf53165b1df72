"""Datagrams of a port are read by other members, and written to a file, in place, without a copy.

port-echo's service [lend] (tests/system/port_lender.h) lends each datagram to another shard and to
a process, which report the address at which they have read it, and writes it to a file.
"""

import collections
import os
import re
import subprocess

from harness import (BACKENDS, Skip, expect, expect_true, memory_areas, need_backend, read_text,
                     test, wait_for)
from ports_test import OURS, PORT_ECHO, EchoAppliance, Wire, configuration

PORT, SIZE, COUNT, IN_FLIGHT = 7008, 1200, 2000, 16


def sum_of(content):
    total = 0x811c9dc5
    for byte in content:
        total = (total ^ byte) * 0x01000193 & 0xffffffff
    return f"{total:08x}"


def datagram(dice, number):
    return number.to_bytes(8, "little") + dice.randbytes(SIZE - 8)


def settings_of(box, wire, sockets):
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise Skip("there is one core only")
    settings = configuration(box, f"af_packet:{wire.near}", shards=["main"])
    del settings["echo"]
    settings["shard"].append({"name": "side", "cpu": cpus[1]})
    settings["event_loop"] = {"sockets": sockets}
    settings["group"] = [{"name": "all", "members": 2}]
    settings["process"] = [{"name": "reader", "user": "root", "group": "all",
                            "heap_bytes": "16 MiB", "read": ["buffers:wan"]}]
    settings["lend"] = {"network": "wan", "local": f"0.0.0.0:{PORT}", "to": ["side", "reader"],
                        "file": box.path("lent")}
    return settings


class Writes:
    """Counts the writes that a process submits by its rings, as the kernel sees them (tracefs)."""

    OPCODES = {"WRITEV": 2, "WRITE_FIXED": 5, "WRITE": 23}

    def __init__(self, box):
        tracing = "/sys/kernel/tracing"
        if not os.path.isdir(f"{tracing}/instances"):
            tracing = box.path("tracing")
            os.mkdir(tracing)
            if box.run("mount", "-t", "tracefs", "none", tracing, expect_code=None).returncode:
                raise Skip("the kernel has no tracefs, or root may not mount it")
            box.closing.callback(subprocess.run, ["umount", tracing], check=False)
        self._own = f"{tracing}/instances/bedplate-{os.getpid()}"
        event = f"{self._own}/events/io_uring/io_uring_submit_req"
        os.mkdir(self._own)
        box.closing.callback(os.rmdir, self._own)
        if not os.path.isdir(event):
            raise Skip("the kernel has no event of io_uring's requests")
        for name, value in (("filter", " || ".join(f"opcode == {one}" for one in
                                                   self.OPCODES.values())), ("enable", "1")):
            with open(f"{event}/{name}", "w", encoding="ascii") as file:
                file.write(value)

    def count(self, pid):
        """The number of writes of each kind that the threads of `pid` have submitted."""
        threads = set(os.listdir(f"/proc/{pid}/task"))
        seen = re.findall(r"-(\d+) .*opcode (\w+),", read_text(f"{self._own}/trace"))
        return collections.Counter(opcode for thread, opcode in seen if thread in threads)


def registered_buffers(pid):
    """Yields begin and end of each buffer that the rings of a process have registered."""
    for fd in os.listdir(f"/proc/{pid}/fd"):
        if os.readlink(f"/proc/{pid}/fd/{fd}") == "anon_inode:[io_uring]":
            text = read_text(f"/proc/{pid}/fdinfo/{fd}").partition("UserBufs:")[2]
            for begin, size in re.findall(r"\d+: 0x([0-9a-f]+)/(\d+)", text):
                yield int(begin, 16), int(begin, 16) + int(size)


@test(sockets=["io_uring"])
def the_kernel_writes_a_datagram_from_a_registered_buffer(box, sockets):
    """Each datagram in a buffer of the port lies in a registered buffer of io_uring: no call looks
    up its pages."""
    need_backend(sockets)
    wire = Wire(box)
    writes = Writes(box)
    appliance = EchoAppliance(box, settings_of(box, wire, sockets)).start()
    client, dice = wire.socket(), box.dice()
    for number in range(100):
        client.sendto(datagram(dice, number), (OURS, PORT))
        got = re.fullmatch(r"\d+ at (\w+); .*; file (-?\d+)", client.recv(65536).decode())
        expect(int(got[2]), SIZE, "bytes in the file")
        address = int(got[1], 16)
        expect_true(any(begin <= address and address + SIZE <= end
                        for begin, end in registered_buffers(appliance.pid)),
                    f"{address:#x} lies in what is registered")
    expect(dict(writes.count(appliance.pid)), {"WRITE_FIXED": 100}, "writes by their kind")
    appliance.stop()


@test(sockets=BACKENDS)
def a_datagram_of_a_port_is_lent_and_written_where_it_lies(box, sockets):
    need_backend(sockets)
    wire = Wire(box)
    appliance = EchoAppliance(box, settings_of(box, wire, sockets)).start()
    box.spawn([PORT_ECHO, "read", os.path.join(appliance.runtime_directory, "ports.join"), "reader"],
              "reader.log")
    client, dice = wire.socket(), box.dice()
    sent = {}

    def answer():
        said = client.recv(65536).decode()
        got = re.fullmatch(r"(\d+) at (\w+); side (.*); reader (.*); file (-?\d+)", said)
        expect_true(got is not None, said)
        return got

    def reader_is_there():
        sent[0] = datagram(dice, 0)
        client.sendto(sent[0], (OURS, PORT))
        return "not lent" not in answer()[0]

    wait_for(reader_is_there, "the reader to have joined")
    free = appliance.count("free_buffers")
    areas = [area for area in memory_areas(f"/proc/{appliance.pid}/smaps")
             if "buffers:wan" in area.path]
    addresses = set()
    for number in range(1, COUNT + IN_FLIGHT - 1):
        if number < COUNT:
            sent[number] = datagram(dice, number)
            client.sendto(sent[number], (OURS, PORT))
        if number < IN_FLIGHT:
            continue
        got = answer()
        content = sent[int(got[1])]
        for peer in (3, 4):
            expect(got[peer], f"{got[2]} {sum_of(content)}", "where a peer read it, and what")
        expect(int(got[5]), SIZE, "bytes in the file")
        addresses.add(int(got[2], 16))
    expect_true(len(areas) > 0 and all(any(area.begin <= address < area.end for area in areas)
                                       for address in addresses),
                f"{areas} have all of {addresses}")
    with open(box.path("lent"), "rb") as file:
        expect_true(file.read() == b"".join(sent[i] for i in range(COUNT)), "the file is what came")
    wait_for(lambda: appliance.count("free_buffers") == free, "all buffers to be back")
    expect(appliance.stats()["pool"]["registrations_after_seal"], 0, "registrations after the seal")
    appliance.stop()
