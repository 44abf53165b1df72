"""[control]: requests to an appliance over its control socket, and bytes that are not requests."""

import contextlib
import ctypes
import json
import os
import re
import select
import socket
import stat
import subprocess
import tomllib

import raw_nbd
from bedplate import Error
from harness import (BOUND_SECONDS, KIB, LAYOUTS, MIB, Skip, expect, expect_in,
                     expect_true, read_text, test, to_toml, wait_for)
from raw_nbd import RawClient

IDLE_COUNT = 1000


def start(box, **keys):
    configuration = box.configuration()
    configuration["control"] = keys
    return box.appliance(configuration)


def path_of(appliance):
    return os.path.join(appliance.runtime_directory, "test.control")


def connect(appliance):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(BOUND_SECONDS)
    client.connect(path_of(appliance))
    return client


def line_of(client):
    said = b""
    while not said.endswith(b"\n"):
        more = client.recv(65536)
        if not more:
            break
        said += more
    return said.decode()


def ctl(box, appliance, *words, expect_code=0):
    return box.bedplate("ctl", *words, "--directory", appliance.runtime_directory,
                        expect_code=expect_code)


def as_written(counters):
    """The form of each counter: the type of a value, or the names in a histogram."""
    return {name: list(value) if isinstance(value, dict) else type(value)
            for name, value in counters.items()}


@test()
def answers_what_it_is(box):
    """The socket and `ctl` answer, with the numbers of `stats` and `plan`."""
    appliance = start(box)
    said = appliance.ask("ping")
    expect((said["appliance"], said["pid"]), ("test", appliance.pid), "which appliance it is")
    expect(json.loads(ctl(box, appliance, "ping").stdout), said, "what ctl prints")
    expect(json.loads(ctl(box, appliance, "plan").stdout),
           json.loads(box.bedplate("plan", appliance.config, "--json").stdout), "the plan")
    sets = {(one["owner"], one["name"], one["instance"]): one
            for one in appliance.ask("counters")}
    stats = appliance.stats()
    expect(sets["", "pool", ""]["counters"]["total_bytes"], stats["pool"]["total_bytes"], "the pool")
    for name in ("pool", "heap"):
        expect(as_written(sets["", name, ""]["counters"]), as_written(stats[name]),
               f"how the values of {name} are written")
    latencies = sets["blockd", "connections", ""]["counters"]
    expect(as_written(latencies), as_written({name: stats["services"]["blockd"][name]
                                              for name in latencies}), "those of a service")
    expect_in("backend", sets["", "shard", "main"]["labels"], "labels of a shard")
    expect(set(sets["blockd", "connections", ""]["counters"]) - set(stats["services"]["blockd"]),
           set(), "counters of a service")
    owners = {one["owner"] for one in appliance.ask("counters", owner="blockd")}
    expect(owners, {"blockd"}, "the owners of one service's counters")


@test()
def the_demo_answers(box):
    """`ctl blockd.volumes` prints the answer in docs/index.md. Only the demo's listen addresses are
    replaced."""
    with open("apps/demo.toml", "rb") as file:
        demo = tomllib.load(file)
    demo["appliance"].update(name="test", runtime_directory=box.path("runtime"))
    demo["blockd"]["listen"] = [f"unix:{box.path('nbd.sock')}"]
    demo["shard"][0]["cpu"] = min(os.sched_getaffinity(0))
    said = json.loads(ctl(box, box.appliance(demo), "blockd.volumes").stdout)
    expect(said, [{"volume": "ram0", "shard": "main", "bytes": 64 * MIB, "read_only": False,
                   "held": False}], "its volumes")
    expect_in("bedplate ctl blockd.volumes", read_text("docs/index.md"), "the document")


@test()
def the_table_is_one(box):
    """The socket, `ctl --list` (without an appliance) and docs/control.md list the same methods."""
    appliance = start(box)
    listed = {method["name"]: method for method in appliance.ask("methods")}
    text = box.bedplate("ctl", "--list").stdout
    for name, method in listed.items():
        expect_in(f"{name}: {method['help']}\n", text, "ctl --list")
    with open("docs/control.md", encoding="utf-8") as file:
        document = file.read()
    for line in box.bedplate("ctl", "--list", "--markdown").stdout.splitlines():
        expect_in(line + "\n", document, "docs/control.md")


@test()
def says_what_is_wrong(box):
    appliance = start(box)
    for method, parameters, code, text in (
            ("pang", {}, -32601, "there is no such method; \"methods\" lists them: pang"),
            ("ping", {"a": 1}, -32602, "the method has no parameter a"),
            ("counters", {"owner": 1}, -32602, "this parameter must be a text: owner")):
        expect(appliance.refusal(method, **parameters), (code, text), method)
    said = ctl(box, appliance, "pang", expect_code=1)
    expect_in("there is no such method", said.stderr, "what ctl says")
    expect_in("a parameter is KEY=VALUE, not owner", ctl(box, appliance, "counters", "owner",
                                                         expect_code=2).stderr, "of its usage")
    expect_in("start it with [control] in its configuration",
              ctl(box, appliance, "ping", "--name", "none", expect_code=1).stderr, "without a socket")


@test()
def the_log_has_levels(box):
    """Each part of the program has a log level, which can be set. Unknown parts and levels are
    refused."""
    appliance = start(box)
    parts = {one["component"]: one["level"] for one in appliance.ask("log.show")}
    expect((parts["apps/control"], set(parts.values())), ("info", {"info"}), "levels at first")
    for part, level, is_said in (("apps/control", "debug", True), ("apps", "warning", False)):
        expect(appliance.ask("log.set", component=part, level=level)["level"], level, "it")
        before = appliance.log_text().count("control: request for ping")
        appliance.ask("ping")
        expect(appliance.log_text().count("control: request for ping") - before, int(is_said),
               f"lines of {part} on {level}")
    said = appliance.ask("log.set", level="error")
    expect((said, {one["level"] for one in appliance.ask("log.show")}),
           ({"level": "error", "components": len(parts)}, {"error"}), "of all parts")
    for parameters, text in (({"level": "loud"}, "there is no level \"loud\"; write debug"),
                             ({"level": "info", "component": "app"}, "is called \"app\"; see")):
        code, message = appliance.refusal("log.set", **parameters)
        expect(code, -32000, "the code")
        expect_in(text, message, "the refusal")


HOSTILE = {  # the bytes sent, the codes of the answers, whether the connection stays open
    "no_json": (b"{]\n", [-32700], True),
    "no_object": (b"17\n", [-32600], True),
    "batch": (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]\n', [-32600], True),
    "deep": (b"[" * 8000 + b"\n", [-32700], True),
    "deep_parameter": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":' + b"[" * 2000 +
                       b"]" * 2000 + b"}}\n", [-32602], True),
    "twice": (b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"plan"}\n', [-32600], True),
    "no_version": (b'{"id":1,"method":"ping"}\n', [-32600], True),
    "no_utf8": (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}\n', [-32700], True),
    "many_parameters": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{' + b",".join(
        b'"%d":1' % i for i in range(100)) + b"}}\n", [-32602], True),
    "oversized": (b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * 100000 + b'"}\n', [-32600], False),
    "endless": (b"\0" * 100000, [-32600], False),
    "pipelined": (b'{]\n\n \n{"jsonrpc":"2.0","id":1,"method":"pang"}\n', [-32700, -32601], True),
    "notification": (b'{"jsonrpc":"2.0","method":"pang"}\n', [], True),
}


@test(what=list(HOSTILE))
def hostile(box, what):
    """A bad request gets the right codes, and the connection stays open or ends. Others are served
    as usual."""
    appliance = start(box)
    sent, codes, goes_on = HOSTILE[what]
    with contextlib.closing(connect(appliance)) as client:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(sent)
        if goes_on:
            client.sendall(b'{"jsonrpc":"2.0","id":"end","method":"ping"}\n')
        client.shutdown(socket.SHUT_WR)
        said = b""
        with contextlib.suppress(ConnectionResetError):
            while more := client.recv(65536):
                said += more
    answers = [json.loads(line) for line in said.decode().splitlines()]
    if goes_on:
        expect(answers.pop()["id"], "end", "what comes last")
    expect([answer["error"]["code"] for answer in answers], codes, "the codes")
    expect(appliance.ask("ping")["appliance"], "test", "what others are answered")
    appliance.expect_alive()


@test()
def slow_and_partial(box):
    """A line that never ends gets an error. A line that is sent byte by byte is answered."""
    appliance = start(box)
    with contextlib.closing(connect(appliance)) as client:
        client.sendall(b'{"jsonrpc"')
        expect_in("the line did not end in 10 s", line_of(client), "the answer to half a line")
    with contextlib.closing(connect(appliance)) as client:
        for byte in b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n':
            client.sendall(bytes([byte]))
        expect_in('"appliance":"test"', line_of(client), "the answer to one in pieces")


@test()
def many_idle_connections(box):
    """Idle connections use only the planned slots. A new connection takes the slot of the
    connection that was silent for the longest time."""
    appliance = start(box, max_connections=4)
    appliance.ask("counters", owner="blockd")
    before = appliance.stats()["heap_owner"]["heap:control"]["used_bytes"]
    idle = [box.closing.enter_context(contextlib.closing(connect(appliance)))
            for _ in range(IDLE_COUNT)]
    for _ in range(100):
        expect(len(appliance.ask("counters", owner="blockd")) > 0, True, "an answer")
    wait_for(lambda: appliance.stats()["services"]["control"]["connections_replaced"] >= IDLE_COUNT - 4,
             "replaced")
    more = appliance.stats()["heap_owner"]["heap:control"]["used_bytes"] - before
    expect_true(more <= 256 * KIB, f"its memory grows by what one line takes at most, not by {more}")
    expect(len(idle), IDLE_COUNT, "clients")


def ask_as(appliance, user, groups=(), asks=True):
    """Returns the answer to a process of `user` and `groups`. None: it could not connect. A refusal
    also comes without a request (`asks` is False)."""
    client = ("import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
              "s.send(b'{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\\n') if len(sys.argv) > 2 else 0; "
              "print(s.makefile().readline())")
    done = subprocess.run(["/usr/bin/python3", "-c", client, path_of(appliance),
                           *["asks"][:asks]], user=user,
                          group=user, extra_groups=list(groups), capture_output=True, text=True,
                          check=False, timeout=BOUND_SECONDS)
    if done.returncode != 0:
        expect_in("PermissionError", done.stderr, "what keeps it from connecting")
        return None
    return json.loads(done.stdout)


@test()
def others_may_not_ask(box):
    """The socket's mode keeps other users out. If the mode lets them in, their user ID keeps them
    out."""
    if os.geteuid() != 0:
        raise Skip("needs root, to be others")
    appliance = start(box)
    os.chmod(box.directory, 0o755)
    os.chmod(appliance.runtime_directory, 0o755)
    expect(stat.S_IMODE(os.stat(path_of(appliance)).st_mode), 0o600, "the socket's mode")
    expect(ask_as(appliance, 4711), None, "what another user is answered")
    os.chmod(path_of(appliance), 0o666)
    said = ask_as(appliance, 4711, asks=False)
    expect((said["id"], said["error"]["code"]), (None, -32001), "the refusal")
    expect_in("the user 4711 may not send requests", said["error"]["message"], "what it says")
    expect(appliance.stats()["services"]["control"]["not_allowed"], 1, "those that may not")
    expect(appliance.ask("ping")["appliance"], "test", "what root is answered")


@test()
def a_group_may_ask(box):
    if os.geteuid() != 0:
        raise Skip("needs root, to be others")
    appliance = start(box, group="4712")
    os.chmod(box.directory, 0o755)
    os.chmod(appliance.runtime_directory, 0o755)
    expect(stat.S_IMODE(os.stat(path_of(appliance)).st_mode), 0o660, "the socket's mode")
    expect(ask_as(appliance, 4711), None, "what another user is answered")
    expect(ask_as(appliance, 4711, [4712])["result"]["appliance"], "test", "one of the group")
    expect(ask_as(appliance, 4712)["result"]["appliance"], "test", "one whose own group it is")
    os.chmod(path_of(appliance), 0o666)
    expect(ask_as(appliance, 4711, [4713], asks=False)["error"]["code"], -32001, "one of another group")


@test()
def no_such_group(box):
    configuration = box.configuration()
    configuration["control"] = {"group": "no-such-group"}
    config = box.write("group.toml", to_toml(configuration))
    box.ensure_hugepages(config)
    said = box.bedplate("run", config, expect_code=2)
    expect_in("no such group in /etc/group", said.stderr, "the message")


# ---- A shard that is stuck ----

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 17, 0x4206, 0x4207, 0x40000000


@contextlib.contextmanager
def stopped_thread(pid, name):
    """Stops one thread of a process in the meantime; the other threads continue."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    libc.ptrace.restype = ctypes.c_long
    thread, = (int(one) for one in os.listdir(f"/proc/{pid}/task")
               if read_file(f"/proc/{pid}/task/{one}/comm").strip() == name)
    if libc.ptrace(PTRACE_SEIZE, thread, None, None) != 0:
        raise Skip(f"may not trace a thread: {os.strerror(ctypes.get_errno())}")
    libc.ptrace(PTRACE_INTERRUPT, thread, None, None)
    os.waitpid(thread, WALL)
    try:
        yield
    finally:
        libc.ptrace(PTRACE_DETACH, thread, None, None)


def read_file(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def with_a_storage_shard(box, **keys):
    configuration = box.configuration("two_shards")
    configuration["control"] = keys
    return box.appliance(configuration)


@test()
def a_shard_that_is_stuck(box):
    """The error names the stuck shard, which gets no second call. Requests that do not need the
    shard are answered."""
    appliance = with_a_storage_shard(box, max_connections=2)
    with stopped_thread(appliance.pid, "storage"):
        expect(appliance.refusal("blockd.hold", volume="ram0", on=True),
               (-32002, "the shard storage has not handled it in 2 s, and may still do so: see "
                        "`bedplate top`"), "the first answer")
        for _ in range(10):
            expect(appliance.refusal("blockd.hold", volume="ram0", on=True),
                   (-32000, "the shard storage is stuck: it has not handled an earlier call, so "
                            "this one was not sent: see `bedplate top`"), "the next answers")
            expect(appliance.ask("blockd.listen", on=True)["listening"], True, "another")

    def held():
        with contextlib.suppress(Error):
            return appliance.ask("blockd.hold", volume="ram0", on=False)

    wait_for(held, "its turn")
    counters = appliance.stats()["services"]["control"]
    expect(counters["stuck"] >= 11, True, f"those that were stuck: {counters}")
    expect(counters["refused"], counters["stuck"], "those that were refused")
    expect(counters["requests"], counters["refused"] + 11, "all together")


@test()
def all_slots_wait_for_one_shard(box):
    """A new client gets an error that names the stuck shard, and no advice to allow more
    connections."""
    appliance = with_a_storage_shard(box, max_connections=1)
    with stopped_thread(appliance.pid, "storage"):
        expect(appliance.refusal("blockd.hold", volume="ram0", on=True)[0], -32002, "it")
        with contextlib.closing(connect(appliance)) as client:
            said = json.loads(line_of(client))["error"]
            expect((said["code"], said["message"]),
                   (-32000, "1 of 1 connections wait for stuck shards, and keep their slots: see "
                            "`bedplate top`, and find what blocks the shard storage"),
                   "what a newcomer hears")
    wait_for(lambda: ask_or_nothing(appliance) != "", "a slot")


def ask_or_nothing(appliance):
    """Returns the result of ping, or "" if there was no free slot."""
    with contextlib.closing(connect(appliance)) as client:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
            return json.loads(line_of(client)).get("result", "")
    return ""


@test()
def a_record_on_demand(box):
    """`record` logs the position of each thread, and counts a stopped thread as silent. The
    services continue."""
    appliance = with_a_storage_shard(box)
    wait_for(lambda: appliance.ask("record")["silent"] == 0, "all threads to answer")
    log = appliance.log_text()
    build = appliance.ask("ping")["build"]
    expect_in(f"record of test, on request: build {build}\n", log, "the log")
    for name in ("storage", "network", "control"):
        expect_true(re.search(rf"thread {name} \(\d+\):\n.*  called from ", log),
                    f"the log says where {name} is")
    with stopped_thread(appliance.pid, "storage"):
        before = len(appliance.log_text())
        said = appliance.ask("record")
        expect_true(1 <= said["silent"] < said["threads"], f"who is silent: {said}")
        expect_true("thread storage (" not in appliance.log_text()[before:], "it says nothing")
    expect(appliance.ask("blockd.hold", volume="ram0", on=False)["held"], False, "then")
    appliance.expect_alive()


# ---- Draining one service ----


def state_of(appliance, service):
    return {one["service"]: one["state"] for one in appliance.ask("services")}[service]


@test()
def one_service_drains(box):
    """A drained service answers the requests that were begun, and takes no new ones. Another
    service continues."""
    configuration = box.configuration()
    configuration["control"] = {}
    configuration["kvd"] = {"listen": [f"unix:{box.path('kvd.sock')}"], "cache_bytes": 8 * MIB}
    appliance = box.appliance(configuration)
    expect({state_of(appliance, one) for one in ("blockd", "kvd", "control")}, {"serving"}, "at first")
    appliance.ask("blockd.hold", volume="ram0", on=True)
    with RawClient(appliance.address()) as client:
        client.greet().go()
        client.request(raw_nbd.READ, 0, 4096)
        wait_for(lambda: appliance.blockd("requests_read") == 1, "the request")
        said = appliance.ask("drain", service="blockd")
        expect_in(said["state"], ("wished", "draining", "drained"), "the answer")
        expect(client.reply().error, 0, "what was begun")
    wait_for(lambda: state_of(appliance, "blockd") == "drained", "its drain")
    expect(appliance.ask("drain", service="blockd"),
           {"service": "blockd", "state": "drained"}, "what is answered to one who wishes it again")
    _, refusal = appliance.refusal("blockd.hold", volume="ram0", on=True)
    expect_in("blockd is draining", refusal, "the refusal of what would never be answered")
    expect(appliance.ask("blockd.listen", on=True), {"listening": False}, "new clients")
    expect(appliance.log_text().count("blockd: draining on request"), 1, "lines of the log")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as client:
        client.settimeout(BOUND_SECONDS)
        client.connect(box.path("kvd.sock"))
        client.sendall(b"set a 0 0 1\r\nb\r\nget a\r\nquit\r\n")
        said = b""
        while more := client.recv(65536):
            said += more
        expect(said, b"STORED\r\nVALUE a 0 1\r\nb\r\nEND\r\n", "what kvd answers")
    expect(state_of(appliance, "kvd"), "serving", "the other")
    expect(appliance.refusal("drain", service="none"),
           (-32000, "draining none: no service of this name runs; see: bedplate ctl services"),
           "the refusal")
    appliance.process.terminate()
    expect(appliance.wait_exit(), 0, "its exit code")


@test()
def services_are_told_while_it_ends(box):
    """While the appliance ends, `services` shows the service that hangs."""
    configuration = box.configuration()
    configuration["control"] = {}
    configuration["appliance"]["drain_timeout_ms"] = 600_000
    configuration["kvd"] = {"listen": [f"unix:{box.path('kvd.sock')}"], "cache_bytes": 8 * MIB}
    appliance = box.appliance(configuration)
    with RawClient(appliance.address()) as client:
        client.greet().go()
        client.send(raw_nbd.request_bytes(raw_nbd.WRITE, 0, MIB, bytes(MIB))[:MIB // 2])
        appliance.process.terminate()
        wait_for(lambda: state_of(appliance, "kvd") == "drained", "the drain of the other")
        expect(state_of(appliance, "blockd"), "draining", "the one that has a write to wait for")
    expect(appliance.wait_exit(), 0, "its exit code")


# ---- Methods of blockd ----


@test(layout=list(LAYOUTS))
def a_volume_is_held(box, layout):
    """Requests to a held volume wait until it is released. Other volumes are not affected."""
    configuration = box.configuration(layout)
    configuration["control"] = {}
    configuration["blockd"]["volume"].append({"name": "other", "bytes": 1 * MIB})
    appliance = box.appliance(configuration)
    expect(appliance.ask("blockd.hold", volume="ram0", on=True),
           {"volume": "ram0", "held": True, "released": 0}, "the answer")
    with RawClient(appliance.address()) as held, RawClient(appliance.address()) as free:
        held.greet().go("ram0")
        free.greet().go("other")
        for payload in (b"a" * 4096, b"b" * 16384):  # one whole, one granted a destination
            held.request(raw_nbd.WRITE, 0, payload=payload)
        held.request(raw_nbd.READ, 0, 4096)
        free.request(raw_nbd.READ, 0, 4096)
        expect(free.reply().error, 0, "a read of another volume")
        expect(select.select([held.socket], [], [], 0.2)[0], [], "what comes of the held one")
        expect([one["held"] for one in appliance.ask("blockd.volumes")], [True, False],
               "volumes that are held")
        expect(appliance.ask("blockd.hold", volume="ram0", on=False)["held"], False, "it")
        expect([held.reply().error for _ in range(3)], [0, 0, 0], "what waited")


@test()
def a_drain_lets_go_what_is_held(box):
    appliance = start(box)
    appliance.ask("blockd.hold", volume="ram0", on=True)
    with RawClient(appliance.address()) as client:
        client.greet().go()
        client.request(raw_nbd.READ, 0, 4096)
        wait_for(lambda: appliance.blockd("requests_read") == 1, "the request")
        appliance.process.terminate()
        expect(client.reply().error, 0, "what waited")
    expect(appliance.wait_exit(), 0, "its exit code")
    expect_true("not drained" not in appliance.log_text(), "it is drained in time")


@test()
def a_volume_takes_no_writes(box):
    """A read-only volume takes no writes from connected or new clients. Later it takes them
    again."""
    appliance = start(box)
    with RawClient(appliance.address()) as client:
        client.greet().go()
        for is_on, error in ((True, 1), (False, 0)):  # EPERM
            said = appliance.ask("blockd.read_only", volume="ram0", on=is_on)
            expect(said, {"volume": "ram0", "read_only": is_on}, "the answer")
            client.request(raw_nbd.WRITE, 0, payload=b"x" * 512)
            expect(client.reply().error, error, "a write")
            with RawClient(appliance.address()) as other:
                other.greet().go()
                expect(other.flags >> 1 & 1, error, "the flag READ_ONLY of a new client")


@test()
def what_would_break_a_promise_is_refused(box):
    configuration = box.configuration()
    configuration["control"] = {}
    configuration["blockd"]["volume"][0]["read_only"] = True
    appliance = box.appliance(configuration)
    expect(appliance.refusal("blockd.read_only", volume="ram0", on=False),
           (-32000, "letting the volume ram0 accept writes: it was opened read-only; set "
                    "read_only = false in its [[blockd.volume]], and start again"), "the refusal")
    _, said = appliance.refusal("blockd.hold", volume="\x00none", on=True)
    expect_in("blockd has no volume of this name", said, "of a volume that is not there")
    for method, parameter in (("blockd.hold", "volume"), ("drain", "service"), ("log.set", "level")):
        more = {"on": True} if parameter == "volume" else {}
        _, said = appliance.refusal(method, **{parameter: "ram0\0\x1b[2J", **more})
        expect_in("ram0??[2J", said, f"what {method} calls what is not there")
        expect_true(said.count("; ") == 1, "the message is whole")


@test()
def no_new_clients(box):
    """Connected clients stay; new clients are turned away."""
    appliance = start(box)
    with RawClient(appliance.address()) as client:
        client.greet().go()
        expect(appliance.ask("blockd.listen", on=False), {"listening": False}, "it")
        with RawClient(appliance.address()) as other:
            other.expect_disconnect("a new client", most_bytes=0)
        expect(appliance.blockd("connections_turned_away"), 1, "those that were turned away")
        expect(appliance.blockd("connections_refused"), 0, "those that found no slot")
        client.request(raw_nbd.READ, 0, 512)
        expect(client.reply().error, 0, "a read of the one that is connected")
        appliance.ask("blockd.listen", on=True)
        with RawClient(appliance.address()) as other:
            other.greet().go()
