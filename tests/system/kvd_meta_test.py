"""kvd's meta commands by a client of them: flags, opaque tokens, binary keys, quiet pipelines, who
may recache an item; and clients of the binary protocol."""

import base64
import os
import struct

from harness import BACKENDS, KIB, MIB, expect, expect_true, test
from kvd_test import Client, start


class MetaClient(Client):
    """A client of the meta commands alone, as those of caches with many readers are."""

    def reply(self):
        """The code, the flags by their letters, and the value or None."""
        words = self.line().split()
        code, value = words.pop(0), None
        if code == b"VA":
            value = self.input.read(int(words.pop(0)) + 2)
            expect(value[-2:], b"\r\n", "the end of a value")
            value = value[:-2]
        return code, {chr(word[0]): word[1:] for word in words}, value

    def meta(self, command, key, *flags, value=None):
        self.send(request(command, key, *flags, value=value))
        return self.reply()


def request(command, key, *flags, value=None):
    length = [] if value is None else [b"%d" % len(value)]
    line = b" ".join([command.encode(), key, *length, *(flag.encode() for flag in flags)])
    return line + b"\r\n" + (b"" if value is None else value + b"\r\n")


@test(sockets=BACKENDS, transport=["tcp", "unix"])
def values_of_all_sizes(box, sockets, transport):
    appliance = start(box, sockets)
    client = MetaClient(box, appliance, transport)
    for size in (0, 1, 1023, 1024, 4096, 4097, 16 * KIB, 100_000, MIB):
        value = os.urandom(size)
        expect(client.meta("ms", b"key", "F7", "T100", "Oset", "s", "k", value=value),
               (b"HD", {"O": b"set", "s": b"%d" % size, "k": b"key"}, None), f"a set of {size}")
        code, flags, got = client.meta("mg", b"key", "v", "f", "s", "t", "Oget", "k")
        expect((code, flags.pop("t") in (b"99", b"100")), (b"VA", True), "a get")
        expect(flags, {"f": b"7", "s": b"%d" % size, "O": b"get", "k": b"key"}, "its flags")
        expect_true(got == value, f"a get of {size} bytes is what was set")
        expect_true(client.get(b"key") == value, "the same by get")
    expect(client.meta("ms", b"key", "q", value=bytes(MIB + 1))[0], b"SERVER_ERROR",
           "a value larger than value_max_bytes, even if quiet")
    expect(client.meta("mg", b"key", "v", "k"), (b"EN", {"k": b"key"}, None), "it is gone")
    appliance.stop()


@test(sockets=BACKENDS)
def quiet_pipelines_in_any_pieces(box, sockets):
    """Quiet requests are answered in order where there is something to say; mn ends them."""
    appliance = start(box, sockets)
    client = MetaClient(box, appliance)
    keys = [b"key%d" % i for i in range(300)]
    sets = b"".join(request("ms", key, "q", value=key * 30) for key in keys[::3])
    gets = b"".join(request("mg", key, "q", "v", f"O{i}") for i, key in enumerate(keys))
    everything = sets + gets + request("ms", b"a", "q", "E1", value=b"mn\r\n") + b"mn\r\n"
    for piece in (1, 7, 1000, len(everything)):
        for at in range(0, len(everything), piece):
            client.send(everything[at:at + piece])
        for i in range(0, 300, 3):
            expect(client.reply(), (b"VA", {"O": b"%d" % i}, keys[i] * 30), f"reply {i}")
        expect(client.line(), b"CLIENT_ERROR invalid flag\r\n", "an error is never quiet")
        expect(client.line(), b"MN\r\n", "the end")
    appliance.stop()


@test(sockets=BACKENDS)
def one_client_recaches_an_item(box, sockets):
    """Many clients miss an item, or find it stale: one of them is told to make it anew."""
    appliance = start(box, sockets)
    clients = [MetaClient(box, appliance) for _ in range(5)]
    seen = [client.meta("mg", b"page", "v", "c", "N30", "t") for client in clients]
    expect(["".join(sorted(flags)) for _, flags, _ in seen], ["Wct"] + ["Zct"] * 4, "of a miss")
    version = seen[0][1]["c"].decode()
    expect(clients[0].meta("ms", b"page", f"C{version}", "T1000", value=b"old")[0], b"HD", "a set")
    expect(clients[1].meta("ms", b"page", f"C{version}", value=b"late")[0], b"EX", "a late set")
    expect(clients[2].meta("mg", b"page", "v", "R30"), (b"VA", {}, b"old"), "the page")
    expect(clients[0].meta("md", b"page", "I", "T60", "q", "C0")[0], b"EX", "of another version")
    expect(clients[0].meta("md", b"page", "I", "T60")[0], b"HD", "an invalidation")
    seen = [client.meta("mg", b"page", "v") for client in clients]
    expect([("".join(sorted(flags)), value) for _, flags, value in seen],
           [("WX", b"old")] + [("XZ", b"old")] * 4, "the stale page")
    expect(clients[0].meta("ms", b"page", value=b"new")[0], b"HD", "a new page")
    expect(clients[4].meta("mg", b"page", "v"), (b"VA", {}, b"new"), "the new page")
    appliance.stop()


@test(sockets=BACKENDS)
def counts_and_binary_keys(box, sockets):
    appliance = start(box, sockets)
    client = MetaClient(box, appliance)
    key = base64.b64encode(b"\0 \r\n\xff key")
    expect(client.meta("ma", key, "b", "N0", "J41", "v"), (b"VA", {}, b"41"), "the first count")
    expect(client.meta("ma", key, "b", "v", "k"), (b"VA", {"k": key, "b": b""}, b"42"), "the next")
    expect(client.meta("ma", key, "b", "MD", "D50", "v"), (b"VA", {}, b"0"), "down to 0")
    expect(client.meta("mg", key, "b", "k"), (b"HD", {"k": key, "b": b""}, None), "a get")
    expect(client.meta("md", key, "b"), (b"HD", {}, None), "a deletion")
    expect(client.meta("ma", key, "b"), (b"NF", {}, None), "a count of nothing")
    appliance.stop()


@test(sockets=BACKENDS, transport=["tcp", "unix"])
def a_binary_client_is_told(box, sockets, transport):
    """A client of the binary protocol hears why it is closed, and does not wait for an answer.
    Nothing behind its first byte is executed."""
    appliance = start(box, sockets)
    binary = Client(box, appliance, transport)
    binary.send(struct.pack(">BBHBBHIIQ", 0x80, 0x0a, 0, 0, 0, 0, 0, 0, 0) +
                b"\r\nset a 0 0 1\r\nx\r\n")
    expect(binary.line(), b"CLIENT_ERROR the binary protocol is not supported: use the text "
                          b"protocol\r\n", "the line that it hears")
    expect(binary.line(), b"", "then the end")
    expect(Client(box, appliance).get(b"a"), None, "the item of its second line")
    expect(appliance.counter("binary_refused"), 1, "the count")
    expect(appliance.counter("connections_foreign"), 0, "it is no attack")
    appliance.stop()


@test()
def statistics_of_the_slab_class(box):
    """memcached-tool and memcached_exporter divide names at colons, and read numbers."""
    appliance = start(box, "epoll")
    client = Client(box, appliance)
    client.store(b"a", bytes(100_000))
    client.get(b"a")

    def section(name):
        client.send(b"stats %s\r\n" % name)
        lines = iter(client.line, b"END\r\n")
        return dict(line.decode().removeprefix("STAT ").split() for line in lines)

    slabs, items = section(b"slabs"), section(b"items")
    expect(items["items:1:number"], "1", "items")
    expect(int(slabs["1:used_chunks"]) * int(slabs["1:chunk_size"]), int(slabs["1:mem_requested"]),
           "memory in use")
    expect(int(slabs["1:total_chunks"]) - int(slabs["1:free_chunks"]), int(slabs["1:used_chunks"]),
           "chunks")
    expect((slabs["1:get_hits"], slabs["1:cmd_set"]), ("1", "1"), "commands")
    expect(section(b"settings")["item_size_max"], str(MIB), "a setting")
    appliance.stop()
