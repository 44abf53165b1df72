"""tsrelay over DPDK ports (af_packet), each connected by a cable to its own host."""

import os
import select
import socket
import time

from harness import MIB, expect, expect_true, test, wait_for
from other_host import OtherHost
from relay_rig import (IN_FLIGHT, Comparing, FilePayloads, Receiver, free_ports, generate,
                       generate_file, payloads_of, roomy_sockets, rtp, start)

DOWN_SECONDS = 5
RATE = 80_000_000


class Cable(OtherHost):
    """A cable whose near end is a port: the kernel has no address there."""

    def __init__(self, box, port):
        super().__init__(box)
        box.run("ip", "address", "flush", "dev", self.near)
        self.port = {"name": port, "device": f"af_packet:{self.near}",
                     "addresses": [f"{self.near_address}/30"]}


@test()
def a_link_that_goes_down_beside_another_port(box):
    """The link is down for five seconds. The other port loses nothing, and the first port continues
    when its link is back."""
    stays, goes = Cable(box, "stays"), Cable(box, "goes")
    receiver, behind = (Receiver(box, address=each.far_address, host=each) for each in (stays, goes))
    port = free_ports(2)
    relay = start(box, [{"address": f"{stays.near_address}:{port}", "network": "stays"}],
                  [{"to": f"{each.far_address}:{it.port}", "network": each.port["name"]}
                   for each, it in ((stays, receiver), (goes, behind))],
                  tables={"port": [stays.port, goes.port]})
    out = box.closing.enter_context(
        stays.run(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
    payloads = payloads_of(generate(box, 2))
    sent = []

    def send(count, *receivers):
        for _ in range(count):
            sent.append(rtp(len(sent), payloads[len(sent) % len(payloads)]))
            out.sendto(sent[-1], (stays.near_address, port))
        for each in receivers:
            each.wait_for(len(sent))

    def counted(which, name):
        return relay.stats()["services"]["port"]["port"][which][name]

    send(1, receiver, behind)  # from here on both know each other's address
    send(32, receiver, behind)
    goes.vanish(box)
    wait_for(lambda: counted("goes", "state") == "down", "the link to be down in stats")
    began = time.monotonic()
    while time.monotonic() < began + DOWN_SECONDS:
        send(16, receiver)
        time.sleep(0.01)
    goes.come_back(box)
    wait_for(lambda: counted("goes", "state") == "up", "the link to be up in stats")

    def goes_on():
        send(1, receiver)
        select.select([behind.socket], [], [], 0.05)
        behind.drain()
        return behind.datagrams[-1] == sent[-1]

    wait_for(goes_on, "the output behind the link to go on")
    expect_true(receiver.datagrams == sent, "the other has all of it, in order")
    expect((relay.stream("lost"), relay.output("dropped", f"{stays.far_address}:{receiver.port}")),
           (0, 0), "packets lost, dropped for another")
    expect([counted(each, "link_downs") for each in ("stays", "goes")], [0, 1], "links that went down")
    relay.stop()


@test(network=["kernel", "port"], size_mib=[int(os.environ.get("TSRELAY_MIB", "2"))])
def a_hundred_outputs_have_all_of_it(box, network, size_mib):
    """The outputs receive everything, bit by bit, over a cable whose near end is the kernel's or a
    port."""
    with roomy_sockets():
        cable = Cable(box, "wire") if network == "port" else OtherHost(box)
        where = {"network": "wire"} if network == "port" else {}
        tables = {"port": [cable.port]} if network == "port" else None
        bits = size_mib * MIB * 8
        payloads = FilePayloads(generate_file(box, max(1, bits // RATE), min(RATE, bits)))
        # A port gives its frames in bursts to the kernel, which queues a thousand for a processor.
        in_flight = 4 if network == "port" else IN_FLIGHT
        # The first packet of all hundred outputs waits for the host's address. A port holds all of
        # these packets; the kernel cannot hold so many.
        receivers = [Comparing(box, payloads, may_lack=int(network == "kernel"),
                               address=cable.far_address, host=cable) for _ in range(100)]
        port = free_ports(2)
        relay = start(box, [{"address": f"{cable.near_address}:{port}", **where}],
                      [{"to": f"{cable.far_address}:{each.port}", **where} for each in receivers],
                      tables=tables)
        out = box.closing.enter_context(
            cable.run(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
        out.sendto(rtp(0, payloads[0]), (cable.near_address, port))
        wait_for(lambda: any(each.drain() or each.count() for each in receivers), "the first packet")
        for sent in range(2, len(payloads) + 1):
            out.sendto(rtp(sent - 1, payloads[sent - 1]), (cable.near_address, port))
            if sent % in_flight == 0 or sent == len(payloads):
                for each in receivers:
                    each.wait_for(sent)
        counters = relay.part("outputs", f"news/{cable.far_address}:{receivers[-1].port}")
        expect((relay.stream("lost"), counters["packets"], counters["dropped"]),
               (0, len(payloads), 0), "packets lost, sent to the last output, dropped for it")
        relay.stop()
