"""Recordings of the relay: the set of files, their size limit, and that no start and no other
recording removes anything."""

import os
import resource
import signal

from harness import BACKENDS, BEDPLATE, expect, expect_in, expect_true, test, to_toml, wait_for
from relay_rig import (PAYLOAD_BYTES, Receiver, expect_same, free_ports, generate, output,
                       payloads_of, send_all, sender, start)


def files_of(box, name="rec"):
    """{number: size}, in the order of their names."""
    return {file.removeprefix(name + "."): os.path.getsize(box.path(file))
            for file in sorted(os.listdir(box.path("."))) if file.startswith(name + ".")}


def recorded(box, name="rec"):
    content = b""
    for number in files_of(box, name):
        with open(box.path(f"{name}.{number}"), "rb") as file:
            content += file.read()
    return content


def counter(relay, name, recording="news/0"):
    return relay.part("recordings", recording)[name]


def alerts(box, relay):
    return box.bedplate("top", "--once", "--json", "--interval", "0.1", "--directory",
                        relay.runtime_directory).stdout


def relay_toml(box, *recordings, name="recorder", tables=None):
    return to_toml({
        "appliance": {"name": name, "runtime_directory": box.path("runtime")},
        "pool": {"bytes": "192 MiB", "pages": "4 KiB"},
        "shard": [{"name": "main", "cpu": min(os.sched_getaffinity(0))}],
        "tsrelay": {"stream": [{"name": "news",
                                "leg": [{"address": f"127.0.0.1:{free_ports(1)}"}],
                                "recording": list(recordings)}]},
        **(tables or {})})


@test(sockets=BACKENDS)
def files_are_written_in_turn(box, sockets):
    """Files rotate by size. Together, in the order of their names, they have the last packets."""
    receiver = Receiver(box)
    content = generate(box, 2)
    port = free_ports(2)
    size = 400 * PAYLOAD_BYTES
    relay = start(box, [{"address": f"127.0.0.1:{port}"}], [output(receiver)], sockets,
                  recording=[{"path": box.path("rec"), "files": 4, "rotate_bytes": size}])
    payloads = payloads_of(content)
    send_all(sender(box), payloads, port, [receiver])
    wait_for(lambda: counter(relay, "packets") == len(payloads), "all of it to be written")
    relay.stop()
    files = files_of(box)
    expect(len(files), 4, "files")
    expect_true(max(files.values()) <= size, f"no file is longer than it may be: {files}")
    seen = recorded(box)
    expect_true(len(seen) >= 2 * size and content.endswith(seen), "they are what came last")


@test(sockets=BACKENDS)
def no_file_is_longer_than_it_may_be(box, sockets):
    """However fast packets come, each is in a file, or is counted as dropped."""
    receiver = Receiver(box)
    payloads = payloads_of(generate(box, 2))
    port = free_ports(2)
    relay = start(box, [{"address": f"127.0.0.1:{port}"}], [output(receiver)], sockets,
                  recording=[{"path": box.path("rec"), "files": 3,
                              "rotate_bytes": 5 * PAYLOAD_BYTES + 1}])
    send_all(sender(box), payloads, port, [receiver])
    wait_for(lambda: counter(relay, "packets") + counter(relay, "dropped") == len(payloads),
             "each to be written or dropped")
    expect(counter(relay, "errors"), 0, "errors")
    relay.stop()
    files = files_of(box)
    expect(len(files), 3, "files")
    expect_true(max(files.values()) <= 5 * PAYLOAD_BYTES, f"none is longer: {files}")


@test(files=[1, 4])
def a_start_takes_nothing_away(box, files):
    """After a crash, and in a loop of starts, the recording continues, and nothing is removed."""
    receiver = Receiver(box)
    payloads = payloads_of(generate(box, 1))[:300]
    port = free_ports(2)
    out = sender(box)
    keys = {} if files == 1 else {"files": files, "rotate_bytes": 100 * PAYLOAD_BYTES}
    sent = 0
    for count in (250, 1, 1, 1):
        relay = start(box, [{"address": f"127.0.0.1:{port}"}], [output(receiver)],
                      recording=[{"path": box.path("rec"), **keys}])
        send_all(out, payloads[sent:sent + count], port, [receiver],
                 expected=lambda n, s=sent: s + n)
        sent += count
        wait_for(lambda c=count: counter(relay, "packets") == c, "all of it to be written")
        relay.process.send_signal(signal.SIGKILL)
        relay.process.wait()
        box.appliances.remove(relay)
    content = b"".join(payloads[:sent])
    if files == 1:
        expect_same(box, "rec", content)
    else:
        expect_true(recorded(box) == content, f"all of it is there: {files_of(box)}")
        expect(list(files_of(box)), ["000000", "000001", "000002", "000003"], "the names")


@test()
def a_file_that_is_moved_away_is_left_alone(box):
    """The other files do not grow: packets that do not fit are dropped, and an alert says so."""
    receiver = Receiver(box)
    payloads = payloads_of(generate(box, 1))
    port = free_ports(2)
    out = sender(box)
    size = 20 * PAYLOAD_BYTES
    relay = start(box, [{"address": f"127.0.0.1:{port}"}], [output(receiver)],
                  recording=[{"path": box.path("rec"), "files": 2, "rotate_bytes": size}])
    send_all(out, payloads[:20], port, [receiver])
    wait_for(lambda: counter(relay, "packets") == 20, "the first file to be full")
    kept = box.path("kept.ts")
    os.rename(box.path("rec.000000"), kept)
    send_all(out, payloads[20:100], port, [receiver], expected=lambda n: 20 + n)
    wait_for(lambda: counter(relay, "dropped") == 60, "what does not fit to be dropped")
    wait_for(lambda: counter(relay, "is_stuck"), "that it is told")
    wait_for(lambda: "its next file cannot be emptied" in alerts(box, relay), "an alert")
    expect_in("it was moved away or removed, and is left alone", relay.log_text(), "the log")
    relay.stop()
    with open(kept, "rb") as file:
        expect_true(file.read() == b"".join(payloads[:20]), "what was moved away is as it was")
    expect(files_of(box), {"000001": size}, "what is there")


@test(command=["check", "run"])
def what_is_no_recording_is_not_emptied(box, command):
    """A file of other content, a file of a volume of this appliance, and one file for two
    recordings are refused."""
    disk = box.write("disk", "x" * (1 << 20))
    volume = {"name": "a", "file": disk, "buffer_bytes": "33 MiB"}
    blockd = {"blockd": {"listen": [f"unix:{box.path('nbd.sock')}"], "volume": [volume]}}
    news = lambda index: f"for path of recording news/{index} in [tsrelay]"
    once, again = box.path("r"), box.path("./r")
    for recordings, tables, wanted in [
            ([{"path": disk}], None,
             f"opening {disk} {news(0)}: it has 1048576 bytes that are not a transport stream; "
             f"name another file; or, if nobody needs it: rm {disk}\n"),
            ([{"path": disk}], blockd,
             f"opening {disk} {news(0)}: it is the same file as {disk} for file of volume a in "
             "[blockd]; name another file: a file has only one writer\n"),
            ([{"path": once}, {"path": again}], None,
             f"opening {again} {news(1)}: it is the same file as {once} {news(0)}; name another "
             "file")]:
        config = box.write("c.toml", relay_toml(box, *recordings, tables=tables))
        refused = box.bedplate(command, config, expect_code=1)
        expect_in(wanted, refused.stderr, f"what {command} says")
        expect(os.path.getsize(disk), 1 << 20, "bytes of another's file")


@test()
def a_file_that_another_appliance_has_locked_is_not_touched(box):
    """`run` and `check` name the process that has locked the file."""
    first = box.write("first.toml", relay_toml(box, {"path": box.path("r")}, name="first"))
    second = box.write("second.toml", relay_toml(box, {"path": box.path("r")}, name="second"))
    process = box.spawn([BEDPLATE, "run", first], "first.log")
    wait_for(lambda: os.path.exists(box.path("r")), "the first to have it")
    for command in ("check", "run"):
        refused = box.bedplate(command, second, expect_code=1)
        expect_in(f"process {process.pid} has locked it; stop that process first", refused.stderr,
                  f"what {command} says")
    process.terminate()
    process.wait()


@test()
def one_that_may_not_grow_so_long_is_refused(box):
    config = box.write("c.toml", relay_toml(box, {"path": box.path("r"), "files": 2,
                                                  "rotate_bytes": "1 GiB"}))

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (512 << 20, 512 << 20))

    for command in ("check", "run"):
        refused = box.bedplate(command, config, expect_code=1, preexec_fn=limit)
        expect_in("it may grow to 1073741824 bytes, but this process may not write files beyond "
                  "536870912; ulimit -f unlimited, or LimitFSIZE=infinity in its unit",
                  refused.stderr, f"what {command} says")
