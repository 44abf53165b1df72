"""tsrelay, the relay for transport streams: its error cases, and faults around it.

No datagram is lost because the machine is slow: see relay_rig.py.
"""

import json
import os
import random
import select
import socket
import struct

from harness import (BACKENDS, Skip, expect, expect_in, expect_true, read_text, test, to_toml,
                     wait_for)
from other_host import OtherHost
from relay_rig import (PAYLOAD_BYTES, TS_BYTES, TSREADER, Receiver, expect_same, free_ports,
                       generate, output, payloads_of, rtp, send_all, sender, start, wait_for_file)


@test(sockets=BACKENDS)
def a_hundred_outputs(box, sockets):
    """Each output gets the same packets, in order; two outputs have no RTP."""
    receivers = [Receiver(box) for _ in range(100)]
    content = generate(box, 1)
    packets = [rtp(i, payload) for i, payload in enumerate(payloads_of(content))]
    port = free_ports(2)
    out = sender(box)
    relay = start(box, [{"address": f"127.0.0.1:{port}"}],
                  [output(each, plain=i < 2) for i, each in enumerate(receivers)], sockets)
    send_all(out, packets, port, receivers)
    for i, receiver in enumerate(receivers):
        expect_true(receiver.content(0 if i < 2 else 12) == content, f"output {i} is what was sent")
    expect(relay.stream("packets"), len(packets), "packets")
    expect(relay.output("packets", f"127.0.0.1:{receivers[99].port}"), len(packets), "of the last")
    wait_for(lambda: relay.stream("held") == 0, "all buffers to be back")
    relay.stop()


@test()
def outputs_are_muted(box):
    """One output is muted, and then all outputs of the stream. They never get packets that arrive
    in the meantime."""
    receivers = [Receiver(box) for _ in range(2)]
    port = free_ports(2)
    packets = [rtp(i, payload) for i, payload in enumerate(payloads_of(generate(box, 1))[:400])]
    out = sender(box)
    relay = start(box, [{"address": f"127.0.0.1:{port}"}],
                  [output(receivers[0], name="first"), output(receivers[1])],
                  tables={"control": {}})

    def ctl(*words, expect_code=0):
        said = box.bedplate("ctl", "--directory", relay.runtime_directory, *words,
                            expect_code=expect_code)
        return said.stderr if expect_code else json.loads(said.stdout)

    def send(begin, end):
        for first in range(begin, end, 50):
            for packet in packets[first:first + 50]:
                out.sendto(packet, ("127.0.0.1", port))
            relay.wait_for_stream("packets", first + 50)
            wait_for(lambda: relay.stream("held") == 0, "all to be sent")
            for receiver in receivers:  # so that their queues do not overflow
                receiver.drain()

    expect(ctl("tsrelay.streams"),
           [{"stream": "news", "shard": "main", "drained": False, "outputs": 2, "muted": 0,
             "legs": [{"address": f"127.0.0.1:{port}", "silent": False}]}], "the streams")
    send(0, 100)
    expect(ctl("tsrelay.mute", "stream=news", "output=first", "on=true"),
           {"stream": "news", "muted": 1, "outputs": 2}, "what is muted")
    expect([one["muted"] for one in ctl("tsrelay.outputs", "stream=news")], [True, False], "which")
    send(100, 200)
    ctl("tsrelay.mute", "stream=news", "on=true")
    send(200, 300)
    expect(relay.output("is_muted", f"127.0.0.1:{receivers[1].port}"), True, "the counter")
    ctl("tsrelay.mute", "stream=news", "on=false")
    send(300, 400)
    for receiver, spans in zip(receivers, ((0, 100, 300, 400), (0, 200, 300, 400))):
        wanted = packets[spans[0]:spans[1]] + packets[spans[2]:spans[3]]
        receiver.wait_for(len(wanted))
        expect_true(receiver.datagrams == wanted, "it got just that")
    expect(relay.output("dropped", "first"), 0, "packets that were dropped")
    expect_in("tsrelay has none with this name; see: bedplate ctl tsrelay.outputs stream=NAME",
              ctl("tsrelay.mute", "stream=news", "output=none", "on=true", expect_code=1), "of none")
    expect_in("looking for the stream none", ctl("tsrelay.outputs", "stream=none", expect_code=1),
              "of no stream")
    relay.stop()


# ---- Losses ----


@test(sockets=BACKENDS)
def two_legs_that_lose(box, sockets):
    """Each leg loses 2 %: all packets that either brought come out, in order, and no others."""
    dice = box.dice()
    receiver = Receiver(box)
    content = generate(box, 4)
    payloads = payloads_of(content)
    ports = free_ports(4)
    relay = start(box, [{"address": f"127.0.0.1:{ports}"}, {"address": f"127.0.0.1:{ports + 2}"}],
                  [output(receiver)], sockets, window_packets=32)
    # The last packets are not lost, so that nothing waits for them in the end.
    lost = [{i for i in range(1, len(payloads) - 100) if dice.random() < 0.02} for _ in range(2)]
    both = lost[0] & lost[1] | {len(payloads) // 2}
    out = [sender(box), sender(box)]
    for i, payload in enumerate(payloads):
        for leg in range(2):
            if i not in lost[leg] and i not in both:
                out[leg].sendto(rtp(65000 + i, payload), ("127.0.0.1", ports + 2 * leg))
        if i % 16 == 15:  # a gap holds later packets until the window has passed
            receiver.wait_for(i - 40 - len(both))
    wanted = [payload for i, payload in enumerate(payloads) if i not in both]
    receiver.wait_for(len(wanted))
    expect_true(receiver.content() == b"".join(wanted), "all but what both have lost")
    expect(relay.stream("lost"), len(both), "packets lost")
    expect(relay.leg("lost", 0), len(lost[0] | both), "of the first leg")
    expect(relay.leg("lost", 1), len(lost[1] | both), "of the second leg")
    expect(relay.stream("duplicates"),
           len(payloads) - len(lost[0] | lost[1] | both), "that came twice")
    relay.stop()


# ---- Failures ----


@test(sockets=BACKENDS)
def an_output_that_refuses(box, sockets):
    """No process receives at two of five ports. The other outputs get everything."""
    receivers = [Receiver(box) for _ in range(3)]
    nobody = free_ports(4)
    content = generate(box, 2)
    port = free_ports(2)
    outputs = [{"to": f"127.0.0.1:{nobody}"}, output(receivers[0]),
               {"to": f"127.0.0.1:{nobody + 2}"}, output(receivers[1]), output(receivers[2])]
    relay = start(box, [{"address": f"127.0.0.1:{port}"}], outputs, sockets)
    out = sender(box)
    send_all(out, payloads_of(content), port, receivers)
    for receiver in receivers:
        expect_true(receiver.content(0) == content, "all of it")
    for beside in (0, 2):
        wait_for(lambda b=beside: relay.output("unreachable", f"127.0.0.1:{nobody + b}") > 0,
                 "the network to say that nobody is there")
    expect(relay.output("dropped", f"127.0.0.1:{receivers[0].port}"), 0, "dropped for another")
    relay.stop()


@test(sockets=BACKENDS)
def outputs_that_stall(box, sockets):
    """One output goes over a cable to an address without a host, so its packets wait for ARP in the
    kernel. Another output over the same cable gets everything."""
    host = OtherHost(box)
    receiver = Receiver(box, address=host.far_address, host=host)
    # A network on the same cable (RFC 5737) without other hosts.
    box.run("ip", "address", "add", "192.0.2.1/24", "dev", host.near)
    nobody = "192.0.2.77"
    content = generate(box, 4)
    payloads = payloads_of(content)
    port = free_ports(2)
    out = sender(box)
    relay = start(box, [{"address": f"127.0.0.1:{port}"}],
                  [{"to": f"{nobody}:5004"}, {"to": f"{host.far_address}:{receiver.port}"}], sockets)
    send_all(out, payloads, port, [receiver])
    expect_true(receiver.content(0) == content, "all of it")
    wait_for(lambda: relay.output("is_aside", f"{nobody}:5004"), "a socket of its own")
    send_all(out, payloads, port, [receiver], expected=lambda sent: len(payloads) + sent)
    expect(relay.output("dropped", f"{host.far_address}:{receiver.port}"), 0, "dropped for another")
    relay.stop()


@test(sockets=BACKENDS)
def a_link_that_goes_down(box, sockets):
    """A link goes down and comes back. The output behind it continues, and the others are not
    affected."""
    host = OtherHost(box)
    behind, receiver = Receiver(box, address=host.far_address, host=host), Receiver(box)
    payloads = payloads_of(generate(box, 2))
    half = len(payloads) // 2
    port = free_ports(2)
    out = sender(box)
    relay = start(box, [{"address": f"127.0.0.1:{port}"}],
                  [{"to": f"{host.far_address}:{behind.port}"}, output(receiver)], sockets)
    send_all(out, payloads[:100], port, [receiver, behind])
    host.vanish(box)
    send_all(out, payloads[100:half], port, [receiver], expected=lambda sent: 100 + sent)
    host.come_back(box)
    sent = half
    while behind.datagrams[-1] != payloads[sent - 1]:
        expect_true(sent < len(payloads), "it goes on before the stream ends")
        send_all(out, payloads[sent:sent + 1], port, [receiver],
                 expected=lambda n, s=sent: s + n)
        sent += 1
        select.select([behind.socket], [], [], 0.05)
        behind.drain()
    expect_true(receiver.content(0) == b"".join(payloads[:sent]), "the other has all of it")
    near = relay.part("outputs", f"news/127.0.0.1:{receiver.port}")
    expect((near["dropped"], near["refused"]), (0, 0), "dropped for another")
    relay.stop()


@test(sockets=BACKENDS)
def longer_than_the_link(box, sockets):
    """Datagrams longer than the link's MTU are sent as fragments. The relay cannot join several
    into one send, and none is lost."""
    host = OtherHost(box)
    receiver = Receiver(box, address=host.far_address, host=host)
    content = generate(box, 2)
    payloads = [content[at:at + 8 * TS_BYTES] for at in range(0, len(content), 8 * TS_BYTES)]
    port = free_ports(2)
    relay = start(box, [{"address": f"127.0.0.1:{port}"}],
                  [{"to": f"{host.far_address}:{receiver.port}"}], sockets)
    send_all(sender(box), payloads, port, [receiver])
    expect_true(receiver.content(0) == content, "all of it")
    expect(relay.stats()["shard"]["main"]["cutting_refusals"], 0, "refusals that are said")
    relay.stop()


@test(sockets=BACKENDS)
def readers(box, sockets):
    """Two processes get the stream as loans. One that holds all of its loans is killed, and the
    others are not affected."""
    receiver = Receiver(box)
    content = generate(box, 2)
    port = free_ports(2)
    names = ("ann", "bob")
    processes = [{"name": name, "user": "root", "group": "main", "heap_bytes": "16 MiB",
                  "read": ["datagrams-0:tsrelay"]} for name in names]
    relay = start(box, [{"address": f"127.0.0.1:{port}"}], [output(receiver)], sockets,
                  {"group": [{"name": "main", "members": 3}], "process": processes}, readers=2)
    join = os.path.join(relay.runtime_directory, "test.join")
    ann = box.spawn([TSREADER, join, "ann", "news", "ann.ts"], "ann.log")
    bob = box.spawn([TSREADER, join, "bob", "news", "bob.ts", "--keep"], "bob.log")
    relay.wait_for_stream("readers", 2)
    half = len(payloads_of(content)) // 2
    packets = [rtp(i, payload) for i, payload in enumerate(payloads_of(content))]
    out = sender(box)
    send_all(out, packets[:half], port, [receiver])
    wait_for_file(box, "ann.ts", half * PAYLOAD_BYTES)
    wait_for(lambda: relay.part("readers")["lent"] == 32, "bob to have all that he may have")
    bob.kill()
    bob.wait()
    relay_readers = lambda counter: relay.part("readers")[counter]
    wait_for(lambda: relay_readers("lent") == 0, "bob's loans to be back")
    send_all(out, packets[half:], port, [receiver], expected=lambda sent: half + sent)
    wait_for_file(box, "ann.ts", len(content))
    expect_same(box, "ann.ts", content)
    expect_true(receiver.content() == content, "the other output has all of it, too")
    wait_for(lambda: relay.stream("held") == 0, "all buffers to be back")
    for unknown in ("weather", ""):
        box.run(TSREADER, join, "bob", unknown, "none.ts", expect_code=1)
    relay.stop()
    expect(ann.wait(60), 0, "ann's exit code")
    expect_in("0 missing", read_text(box.path("ann.log")), "what ann says")


@test(sockets=BACKENDS)
def numbers_restart_and_senders_change(box, sockets):
    receiver = Receiver(box)
    content = generate(box, 1)
    payloads = payloads_of(content)
    third = len(payloads) // 3
    port = free_ports(2)
    relay = start(box, [{"address": f"127.0.0.1:{port}"}], [output(receiver)], sockets,
                  sender_timeout_ms=60_000)
    one, other = sender(box), sender(box)
    to = ("127.0.0.1", port)
    wanted = []
    for i, payload in enumerate(payloads[:2 * third]):
        number = i if i < third else i + 30_000
        one.sendto(rtp(number, payload), to)
        other.sendto(rtp(number + 777, payload, ssrc=8), to)  # a second sender
        other.sendto(rtp(number, payload), to)                # one with the first sender's SSRC
        wanted.append(payload)
        receiver.wait_for(len(wanted) - 1)
    receiver.wait_for(len(wanted))
    expect_true(receiver.content() == b"".join(wanted), "the first sender's packets")
    expect(relay.stream("restarts"), 1, "restarts")
    expect(relay.stream("lost"), 0, "packets lost")
    wait_for(lambda: relay.leg("foreign") == 4 * third, "the others to be counted")
    relay.stop()


@test(sockets=BACKENDS)
def malformed_packets(box, sockets):
    """Each malformed packet is dropped and counted by its cause. Good packets are relayed."""
    dice = box.dice()
    receiver = Receiver(box)
    payloads = payloads_of(generate(box, 1))
    ports = free_ports(6)
    relay = start(box, [{"address": f"127.0.0.1:{ports}", "fec": True}], [output(receiver)], sockets)
    bad_rtp = [b"\x80", bytes(11), b"\x40" + bytes(50), b"\x8f" + bytes(20),
               b"\x90" + bytes(11) + b"\0\0\xff\xff", b"\xa0" + bytes(12)]
    bad_ts = [bytes(187), bytes(189), bytes(376)]
    bad_fec = [b"", bytes(28), rtp(0, bytes(40)), rtp(0, b"\0" * 4 + b"\x80" + bytes(100))]
    out = sender(box)
    for i, payload in enumerate(payloads):
        out.sendto(rtp(2 * i, payload), ("127.0.0.1", ports))
        out.sendto(bad_rtp[i % len(bad_rtp)], ("127.0.0.1", ports))
        out.sendto(rtp(2 * i + 1, bad_ts[i % len(bad_ts)]), ("127.0.0.1", ports))
        out.sendto(bad_fec[i % len(bad_fec)], ("127.0.0.1", ports + 2))
        out.sendto(dice.randbytes(dice.randrange(1400)), ("127.0.0.1", ports + 4))
        if i % 16 == 15:
            receiver.wait_for(i + 1)
    out.sendto(bytes(5000), ("127.0.0.1", ports))
    receiver.wait_for(len(payloads))
    expect_true(receiver.content() == b"".join(payloads), "what made sense")
    wait_for(lambda: relay.leg("truncated") == 1, "the one that is too long")
    expect(relay.leg("rtp_malformed"), len(payloads), "no RTP")
    expect(relay.leg("ts_malformed") + relay.leg("no_sync"), len(payloads), "no transport stream")
    expect(relay.leg("no_sync"), len(payloads) // 3, "what is one by its length alone")
    expect(relay.stream("lost"), 0, "numbers that did not come")
    wait_for(lambda: relay.stream("fec_malformed") == relay.stream("fec_packets") > len(payloads),
             "FEC that makes no sense")
    relay.stop()


@test()
def multicast_by_two_interfaces(box):
    """Two legs receive one group by different interfaces, the second leg from one source only."""
    host = OtherHost(box)
    receiver = Receiver(box)
    port, group = free_ports(2), f"239.255.{random.randrange(256)}.{random.randrange(1, 255)}"
    payloads = payloads_of(generate(box, 1))
    relay = start(box, [{"address": f"{group}:{port}", "interface": "lo"},
                        {"address": f"{group}:{port}", "interface": host.near,
                         "source": host.far_address}],
                  [output(receiver)])

    def make(address):
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
        return made

    near = box.closing.enter_context(make("127.0.0.1"))
    far = box.closing.enter_context(host.run(lambda: make(host.far_address)))
    for i, payload in enumerate(payloads):
        for each in ([near, far], [near], [far])[i % 3 if i else 0]:
            each.sendto(rtp(i, payload), (group, port))
        receiver.wait_for(i + 1)
    expect_true(receiver.content() == b"".join(payloads), "what either leg brought")
    expect_true(relay.leg("packets", 0) > 0 and relay.leg("packets", 1) > 0, "both legs bring some")
    relay.stop()


@test()
def a_join_that_gets_no_stream(box):
    """A silent leg is named, counted and logged. A stream that comes later is logged, too."""
    receiver = Receiver(box)
    port, group = free_ports(2), f"239.255.{random.randrange(256)}.{random.randrange(1, 255)}"
    relay = start(box, [{"address": f"{group}:{port}", "interface": "lo"},
                        {"address": f"127.0.0.1:{port}"}], [output(receiver)],
                  sender_timeout_ms=300)
    out = sender(box)
    silent = f"tsrelay: news: nothing has arrived at {group}:{port} for 300 ms; "
    wait_for(lambda: silent in relay.log_text(), "the silent leg to be named")
    expect((relay.leg("is_silent", 0), relay.leg("silences", 0)), (True, 1), "of the first leg")
    out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))

    def is_heard():
        out.sendto(rtp(is_heard.number, bytes([0x47]) * TS_BYTES), (group, port))
        is_heard.number += 1
        return not relay.leg("is_silent", 0)

    is_heard.number = 0
    wait_for(is_heard, "packets of the group")
    expect_true(relay.leg("is_silent", 1), "nothing comes by the other leg")
    again = f"tsrelay: news: packets arrive at {group}:{port} again"
    wait_for(lambda: is_heard() and again in relay.log_text(), "what the log says then")
    # It may be the third silence: this program may have had no core for that long.
    wait_for(lambda: relay.leg("silences", 0) >= 2, "the second silence to be counted")
    relay.stop()


@test()
def what_makes_no_sense_is_refused(box):
    """Each is refused before anything is taken, with its stream, its key and a cure."""
    base = {"appliance": {"name": "test"}, "pool": {"bytes": "128 MiB", "pages": "4 KiB"},
            "shard": [{"name": "main", "cpu": 0}]}
    leg, out = [{"address": "127.0.0.1:5004"}], [{"to": "127.0.0.1:6004"}]
    for change, wanted in [
            ({"leg": [{"address": "nowhere"}]}, "nowhere"),
            ({"leg": [{"address": "127.0.0.1:0"}]}, "port is not valid"),
            ({"leg": [{"address": "127.0.0.1:5004", "source": "10.0.0.1"}]},
             "not a multicast group"),
            ({"leg": [{"address": "127.0.0.1:65533", "fec": True}]}, "port is not valid"),
            ({"leg": leg * 2, "format": "udp"}, "cannot be recognised"),
            ({"output": out * 2}, "the same name"),
            ({"output": [{"to": "127.0.0.1:6004", "fec": True}]}, "no FEC for it"),
            ({"fec": {"columns": 20, "rows": 20}}, "100 packets at most"),
            ({"recording": [{"path": "/tmp/x", "files": 3}]}, "does not rotate"),
            ({"recording": [{"path": "/tmp/x", "files": 3, "rotate_bytes": 2047}]},
             "would not fit into a file"),
            ({"output": [{"to": "127.0.0.1:6004", "network": "port9"}]}, "port9")]:
        stream = {"name": "news", "leg": leg, "output": out, **change}
        config = box.write("bad.toml", to_toml({**base, "tsrelay": {"stream": [stream]}}))
        done = box.bedplate("plan", config, expect_code=None)
        expect_true(done.returncode != 0, f"{change} is refused")
        expect_in(wanted, done.stderr, "what is said")
