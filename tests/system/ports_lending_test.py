"""What came to a port is read by others, and written, from where it lies: no byte of it is copied.

port-echo's service [lend] (tests/system/port_lender.h) lends each datagram to another shard and to
a process, which say at what address they have read it, and writes it to a file.
"""

import os
import re

from harness import BACKENDS, Skip, expect, expect_true, memory_areas, need_backend, test, wait_for
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
    places = set()
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
        places.add(int(got[2], 16))
    expect_true(len(areas) > 0 and all(any(area.begin <= place < area.end for area in areas)
                                       for place in places), f"{areas} have all of {places}")
    with open(box.path("lent"), "rb") as file:
        expect_true(file.read() == b"".join(sent[i] for i in range(COUNT)), "the file is what came")
    wait_for(lambda: appliance.count("free_buffers") == free, "all buffers to be back")
    expect(appliance.stats()["pool"]["registrations_after_seal"], 0, "registrations after the seal")
    appliance.stop()
