"""Bad configurations and unsuitable machines: one clear message, and nothing is started.

A bad file gives exit code 2 with FILE:LINE:COLUMN, the same from `run`, `plan` and `check`. An
unsuitable machine gives exit code 1, and lists everything missing at once, each with its cure.
"""

import os
import re
import socket

from harness import (BEDPLATE, GIB, KIB, MIB, Failure, Skip, expect, expect_in, expect_true,
                     few_hugepages, free_hugepages, has_hugepages, hugepage_count, hugepage_file,
                     hugepages_of, need_tools, possible_leftovers, shorten, test, to_toml)
import raw_nbd as nbd

MESSAGE = re.compile(r"bedplate: [^\n]+: [^\n]+; [^\n]+\n")  # doing: answer; cure

# name: (text of the good file, its replacement, the text at the position in the message (None:
# any), words of the message).
# PORT, CPU and DIRECTORY stand for the values of the test.
BAD_FILES = {
    "unknown_key": ('pages = "2 MiB"', 'pgaes = "2 MiB"', "pgaes", ["pgaes"]),
    "unknown_key_in_volume": ('name = "ram0"', 'name = "ram0"\nsize = 1', "size", ["size"]),
    "unknown_table": ("[pool]", "[poool]\n[pool]", "poool]", ["poool"]),
    "unknown_top_level_key": ("[appliance]", "colour = 1\n[appliance]", "colour", ["colour"]),
    "key_twice": ('pages = "2 MiB"', 'pages = "2 MiB"\npages = "2 MiB"', None, ["pages"]),
    "integer_for_text": ('name = "test"', "name = 7", "7", ["name", "integer"]),
    "text_for_cpu": ("cpu = CPU", 'cpu = "zero"', '"zero"', ["cpu", "string"]),
    "text_for_boolean": ('name = "ram0"', 'name = "ram0"\nread_only = "no"', '"no"', ["read_only"]),
    "text_for_list": ("listen = [", 'listen = "x" #[', '"x"', ["listen"]),
    "integer_in_list": ("listen = [", "listen = [7, ", "7, ", ["listen"]),
    "table_for_text": ('name = "test"', "name = {}", "{}", ["name"]),
    "float_for_size": ('bytes = "256 MiB"', "bytes = 256e6", "256e6", ["bytes"]),
    "size_off_by_one": ('bytes = "256 MiB"', "bytes = 268435457", "268435457",
                        ["bytes", "2 MiB"]),
    "size_no_multiple_of_page": ('bytes = "256 MiB"', 'bytes = "255 MiB"', '"255 MiB"',
                                 ["bytes", "2 MiB"]),
    "size_unknown_unit": ('bytes = "256 MiB"', 'bytes = "256 MB"', '"256 MB"', ["bytes"]),
    "size_negative": ('bytes = "256 MiB"', "bytes = -1", "-1", ["bytes"]),
    "size_zero": ('bytes = "256 MiB"', "bytes = 0", "0\n", ["bytes"]),
    "size_over_64_bits": ('bytes = "256 MiB"', 'bytes = "17179869184 TiB"', '"1717', ["bytes"]),
    "volume_no_multiple_of_4k": ('bytes = "64 MiB"', "bytes = 67108865", "67108865", ["4 KiB"]),
    "volume_empty": ('bytes = "64 MiB"', "bytes = 0", "0\n", ["bytes"]),
    "unknown_page": ('pages = "2 MiB"', 'pages = "4 MiB"', '"4 MiB"', ["pages", "2 MiB"]),
    "unknown_sockets": ('sockets = "', 'sockets = "kqueue-', '"kqueue', ["sockets", "epoll"]),
    "unknown_shard": ("[blockd]", '[blockd]\nvolumes_shards = ["other"]', '"other"', ["other"]),
    "shard_twice": ("[[shard]]", '[[shard]]\nname = "main"\ncpu = 1\n[[shard]]', None, ["main"]),
    "cpu_twice": ("[[shard]]", '[[shard]]\nname = "two"\ncpu = CPU\n[[shard]]', None, ["cpu"]),
    "no_shard": ("[[shard]]", "[shard]", "[shard]", ["shard"]),
    "name_with_slash": ('name = "test"', 'name = "../x"', '"../x"', ["name"]),
    "name_empty": ('name = "test"', 'name = ""', '""', ["name"]),
    "name_too_long": ('name = "test"', f'name = "{"n" * 33}"', '"nnn', ["name", "32"]),
    "name_missing": ('name = "test"', "", None, ["name"]),
    "relative_runtime_directory": ('runtime_directory = "', 'runtime_directory = "x', '"x',
                                   ["runtime_directory"]),
    "over_the_range": ("[blockd]", "[blockd]\nmax_connections = 4097", "4097", ["4096"]),
    "under_the_range": ("[blockd]", "[blockd]\nhandshake_timeout_ms = 99", "99", ["100"]),
    "integer_over_64_bits": ("[blockd]", "[blockd]\nmax_connections = 99999999999999999999",
                             None, ["99999999999999999999"]),
    "limit_of_0": ('name = "ram0"', 'name = "ram0"\nlimits = { read_rate = 0 }', "0 }",
                   ["read_rate", "1..1000000000"]),
    "limit_below_a_block": ('name = "ram0"', 'name = "ram0"\nlimits = { write_rate_bytes = 4095 }',
                            "4095", ["write_rate_bytes", "4 KiB"]),
    "tenant_unknown": ('name = "ram0"', 'name = "ram0"\ntenant = "acme"', '"acme"',
                       ["[[blockd.tenant]]"]),
    "limit_of_no_listener": ("[[blockd.volume]]", '[[blockd.listener]]\naddress = "unix:/other"\n'
                             "[[blockd.volume]]", '"unix:/other"', ["listen"]),
    "no_listener": ("listen = [", "listen = [] #[", "[] #", ["listen"]),
    "listener_of_no_kind": ('"tcp:', '"udp:', '"udp:', ["udp:"]),
    "listener_by_name": ('"tcp:127.0.0.1', '"tcp:localhost', '"tcp:localhost', ["localhost"]),
    "listener_without_port": ('"tcp:127.0.0.1:PORT"', '"tcp:127.0.0.1"', '"tcp:', ["tcp:"]),
    "listener_port_too_high": ('"tcp:127.0.0.1:PORT"', '"tcp:127.0.0.1:65536"', '"tcp:', ["65536"]),
    "listener_port_0": ('"tcp:127.0.0.1:PORT"', '"tcp:127.0.0.1:0"', '"tcp:', ["tcp:"]),
    "listener_relative_path": ('"unix:/', '"unix:x/', '"unix:x', ["unix:"]),
    "listener_path_too_long": ('"unix:/', f'"unix:/{"p" * 108}/', '"unix:/p', ["107"]),
    "one_port_twice": ("listen = [", 'listen = ["tcp:127.0.0.1:PORT", ', None, ["PORT"]),
    "one_port_twice_by_any": ("listen = [", 'listen = ["tcp:0.0.0.0:PORT", ', None, ["PORT"]),
    "one_path_twice": ("listen = [", 'listen = ["unix:DIRECTORY/nbd.sock", ', None, ["nbd.sock"]),
    "volume_twice": ("[[blockd.volume]]", '[[blockd.volume]]\nname = "ram0"\nbytes = "4 MiB"\n\n'
                     "[[blockd.volume]]", None, ["ram0"]),
    "no_volume": ('[[blockd.volume]]\nname = "ram0"\nbytes = "64 MiB"', "", None,
                  ["[[blockd.volume]] is missing"]),
    "volume_name_empty": ('name = "ram0"', 'name = ""', '""\nbytes', ["name"]),
    "volume_name_too_long": ('name = "ram0"', f'name = "{"v" * 256}"', '"vvv', ["255"]),
    "volume_name_with_newline": ('name = "ram0"', r'name = "ram\n0"', r'"ram\n0', ["name"]),
    "unclosed_text": ('name = "test"', 'name = "test', None, []),
    "unclosed_table": ("[pool]", "[pool", None, []),
    "no_value": ('name = "test"', "name =", None, []),
    "only_words": ("[appliance]", "please serve a disk\n[appliance]", None, []),
}

# name: content of the file, which is not TOML at all.
NO_TOML = {
    "empty": b"", "nul": b"\0", "binary": bytes(range(256)) * 16, "elf": b"\x7fELF\x02\x01" * 99,
    "not_utf8": b'[appliance]\nname = "\xff\xfe"\n', "utf16": "[appliance]".encode("utf-16"),
    "one_long_line": b"x" * 100_000, "deeply_nested": b"a = " + b"[" * 100_000,
    "dotted_deeply": b"a" + b".a" * 50_000 + b" = 1\n", "over_1_mib": b"# comment\n" * 200_000,
}


def good_text(box):
    configuration = box.configuration()
    port = configuration["blockd"]["listen"][0].rpartition(":")[2]
    return configuration, to_toml(configuration), port


def expect_nothing_started(box, configuration, before):
    expect_true(not os.path.exists(configuration["appliance"]["runtime_directory"]),
                "no runtime directory is left behind")
    expect_true(not os.path.exists(box.path("nbd.sock")), "no socket is left behind")
    expect(sorted(possible_leftovers() - before), [], "files left behind")


def refuse(box, configuration, config, code, **options):
    """Checks that every command refuses the file with the same message. Returns the message."""
    before = possible_leftovers()
    messages = set()
    for command in ("plan", "check", "run"):
        done = box.bedplate(command, config, expect_code=code, **options)
        expect(done.stdout, "", f"the standard output of {command}")
        messages.add(done.stderr)
    expect(len(messages), 1, f"the number of different messages {messages}")
    [message] = messages
    expect_true(MESSAGE.fullmatch(message), f"one message in three parts: {shorten(message)}")
    expect_nothing_started(box, configuration, before)
    return message


@test(case=BAD_FILES)
def bad_file(box, case):
    configuration, text, port = good_text(box)
    cpu = str(configuration["shard"][0]["cpu"])
    stand_ins = {"PORT": port, "DIRECTORY": box.directory, "CPU": cpu}

    def fill_in(part):
        for name, value in stand_ins.items():
            part = part.replace(name, value)
        return part

    good, bad, culprit, words = BAD_FILES[case]
    expect(text.count(fill_in(good)), 1, f"how often the good file has {good!r}")
    text = text.replace(fill_in(good), fill_in(bad))
    config = box.write("bad.toml", text)
    message = refuse(box, configuration, config, 2)
    position = re.match(rf"bedplate: {re.escape(config)}:(\d+):(\d+): ", message)
    expect_true(position, f"the message begins with file, line and column: {message}")
    seen = tuple(map(int, position.groups()))
    if culprit:
        head = text[:text.index(fill_in(culprit), text.index(fill_in(bad)))]
        wanted = (head.count("\n") + 1, len(head) - (head.rfind("\n") + 1) + 1)
        expect(seen, wanted, f"line and column in: {message}")
    else:
        expect_true(1 <= seen[0] <= text.count("\n") + 1, f"the line exists: {message}")
    for word in words:
        expect_in(fill_in(word), message, "the message")


@test(case=NO_TOML)
def no_toml(box, case):
    config = box.write("bad.toml", NO_TOML[case])
    message = refuse(box, box.configuration(), config, 2)
    expect_in(config, message, "the message")
    expect_true(message.isprintable() or message.rstrip("\n").isprintable(),
                f"no control characters in the message: {message!r}")


@test(case=["missing", "directory", "dangling_link", "file_as_directory", "device"])
def no_file(box, case):
    config = {"missing": "none.toml", "directory": "folder", "dangling_link": "link",
              "file_as_directory": "plain/x.toml", "device": "/dev/null"}[case]
    os.mkdir(box.path("folder"))
    os.symlink("nowhere", box.path("link"))
    box.write("plain", "")
    message = refuse(box, box.configuration(), box.path(config), 2)
    expect_in(config, message, "the message")


def as_nobody(box):
    """Options of a command that runs without privileges."""
    if os.geteuid() != 0:
        return {}
    options = {"user": "nobody", "group": "nogroup", "extra_groups": []}
    try:
        box.bedplate("--help", **options)
    except PermissionError:
        raise Skip(f"nobody else may execute {BEDPLATE}") from None
    return options


@test()
def unreadable_file(box):
    options = as_nobody(box)
    config = box.write("bedplate.toml", good_text(box)[1])
    os.chmod(config, 0)
    message = refuse(box, box.configuration(), config, 2, **options)
    expect_in("Permission denied", message, "the message")


@test(owner=["volume:big", "heap", "blockd"])
def pool_too_small(box, owner):
    """The message names the owner that does not fit and the missing bytes, and the cure works."""
    configuration = box.configuration()
    if owner == "heap":
        configuration["pool"]["heap_min_bytes"] = "1 GiB"
    elif owner == "blockd":
        configuration["pool"] = {"bytes": "32 MiB", "heap_min_bytes": 0}
        configuration["blockd"] |= {"max_connections": 4096, "requests_per_connection": 1024}
    else:
        configuration["blockd"]["volume"].append({"name": "big", "bytes": "1 GiB"})
    message = refuse(box, configuration, box.write("small.toml", to_toml(configuration)), 2)
    expect_in(owner, message, "the message")
    parts = re.search(r"needs (\d+) bytes, (\d+) are left: short by (\d+) bytes", message)
    expect_true(parts, f"the message says how many bytes are needed, left and missing: {message}")
    needed, left, short = map(int, parts.groups())
    expect(needed - left, short, "needed less left")
    advice = re.search(r'"(\d+ [KMG]iB)"', message.split(";")[1])
    expect_true(advice, f"the cure names a size: {message}")
    configuration["pool"]["bytes"] = advice[1]
    plan = box.plan(box.write("enough.toml", to_toml(configuration)))
    expect_true(owner in [segment["owner"] for segment in plan["segments"]], "now it fits")


@test()
def exactly_enough(box):
    """A pool that just fits is planned. A pool with one page less is refused, short by one page."""
    configuration = box.configuration()
    segments = box.plan(box.write("probe.toml", to_toml(configuration)))["segments"]
    heap_min_bytes = 32 * MIB  # the heap takes the rest
    least = sum(one["bytes"] for one in segments if one["owner"] != "heap") + heap_min_bytes
    configuration["pool"]["bytes"] = least
    expect(box.plan(box.write("enough.toml", to_toml(configuration)))["total_bytes"], least,
           "total_bytes")
    configuration["pool"]["bytes"] = least - 2 * MIB
    message = refuse(box, configuration, box.write("less.toml", to_toml(configuration)), 2)
    expect_in(f"short by {2 * MIB} bytes", message, "the message")


# ---- A machine that lacks something ----


def preflight_report(box, config):
    """Returns the report of `check` on a machine that lacks something; `run` must say the same."""
    before = possible_leftovers()
    reports = [box.bedplate(command, config, expect_code=1) for command in ("check", "run")]
    expect(reports[1].stdout, "", "the standard output of run")
    expect(*[report.stderr for report in reports], "what run and check say")
    expect(sorted(possible_leftovers() - before), [], "files left behind")
    for line in reports[0].stderr.splitlines(keepends=True):
        expect_true(MESSAGE.fullmatch(line), f"a message in three parts: {line!r}")
    return reports[0].stderr


@test()
def not_enough_hugepages(box):
    """The report has the numbers of free and needed pages, and a command that cures the lack."""
    if os.path.exists("/sys/devices/system/node/node1"):
        raise Skip("each of several nodes has pages of its own here")
    configuration = box.configuration()
    configuration["pool"]["bytes"] = 8 * GIB
    config = box.write("bedplate.toml", to_toml(configuration))
    needed = hugepages_of(box.plan(config))[2 * MIB]
    free = 10
    with few_hugepages(free):
        report = preflight_report(box, config)
        count = hugepage_count(2 * MIB, "nr_hugepages")
    expect(report.count("\n"), 1, f"the number of messages in {report}")
    expect_in(f"{free} are free", report, "the report")
    expect_in(f"{needed} are needed", report, "the report")
    expect(report.strip().partition("; ")[2],
           f"echo {count + needed - free} > {hugepage_file(2 * MIB, 'nr_hugepages')}", "the cure")


@test()
def no_gigantic_pages(box):
    """The same report for 1 GiB pages. Smaller pages are never taken instead."""
    configuration = box.configuration()
    free = free_hugepages(GIB)
    configuration["pool"] = {"bytes": f"{free + 100} GiB", "pages": "1 GiB"}
    report = preflight_report(box, box.write("bedplate.toml", to_toml(configuration)))
    expect_in("1 GiB", report, "the report")
    answer = f"{free} are free" if has_hugepages(GIB) else "this kernel does not support this size"
    expect_in(answer, report, "the report")


@test()
def no_such_node(box):
    """The report names the missing NUMA node, the owner that needs it, and the existing nodes."""
    configuration = box.configuration()
    configuration["pool"]["heap_node"] = 1023
    report = preflight_report(box, box.write("bedplate.toml", to_toml(configuration)))
    expect_in("checking NUMA node 1023 for heap: this machine has memory on node ", report,
              "the report")


# name: (the option of prlimit, the words of the message)
LIMITS = {
    "locked_memory": (f"--memlock={64 * KIB}:{64 * KIB}", "locked memory"),
    "open_files": ("--nofile=50:50", "open files"),
}


@test(limit=LIMITS)
def limit_too_low(box, limit):
    """Without privileges and with a small limit, `run` does not start, and reports how much is
    needed."""
    need_tools("prlimit")
    option, words = LIMITS[limit]
    configuration = box.configuration()
    configuration["pool"]["pages"] = "4 KiB"
    os.chmod(box.directory, 0o777)
    config = box.write("bedplate.toml", to_toml(configuration))
    done = box.run("prlimit", option, BEDPLATE, "run", config, expect_code=1, **as_nobody(box))
    expect(done.stdout, "", "the standard output of run")
    for line in done.stderr.splitlines(keepends=True):
        expect_true(MESSAGE.fullmatch(line), f"a message in three parts: {line!r}")
    expect_true(re.search(rf"{words}: \d+( KiB)? are allowed, \d+( KiB)? are needed; .*ulimit",
                          done.stderr), f"the message about {words}: {done.stderr}")


@test(listener=["tcp", "unix", "tcp_any"])
def listener_in_use(box, listener):
    """A port or socket of another program is refused with exit code 1; that program continues."""
    owner = box.appliance()
    configuration = box.configuration()
    taken = {"tcp": owner.configuration["blockd"]["listen"][0],
             "unix": owner.configuration["blockd"]["listen"][1],
             "tcp_any": f"tcp:0.0.0.0:{owner.address('tcp')[1]}"}[listener]
    configuration["appliance"] |= {"name": "second", "runtime_directory": box.path("other")}
    configuration["blockd"] |= {"listen": [f"unix:{box.path('second.sock')}", taken],
                                "plain_text": "allowed"}
    config = box.write("second.toml", to_toml(configuration))
    box.ensure_hugepages(config)
    report = preflight_report(box, config)
    expect_in(taken.partition(":")[2], report, "the report")
    for name in ("other", "second.sock"):
        expect_true(not os.path.lexists(box.path(name)), f"{name} is not left behind")
    for address in ("tcp", "unix"):
        nbd.connect(box, owner, address).verify(address)
    owner.stop()


@test()
def everything_in_one_report(box):
    """One report lists everything that is missing: pages, a processor, a port, directories."""
    configuration = box.configuration()
    configuration["pool"]["bytes"] = 64 * GIB + 2 * MIB * free_hugepages()
    box.write("plain", "")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        configuration["appliance"]["runtime_directory"] = box.path("plain/runtime")
        configuration["shard"][0]["cpu"] = 1023
        configuration["blockd"]["listen"] = [f"tcp:127.0.0.1:{port}",
                                             f"unix:{box.path('nowhere/nbd.sock')}"]
        report = preflight_report(box, box.write("bedplate.toml", to_toml(configuration)))
    for what in ("are needed; echo ", "1023", f":{port}", "nowhere/nbd.sock", "plain/runtime"):
        expect_in(what, report, "the report")
    expect(report.count("\n"), 5, f"the number of messages in {report}")


@test()
def foreign_address(box):
    """An address that this machine does not have is refused."""
    configuration = box.configuration(listen=["tcp:192.0.2.1:10809"])
    configuration["blockd"]["plain_text"] = "allowed"
    config = box.write("bedplate.toml", to_toml(configuration))
    box.ensure_hugepages(config)
    expect_in("192.0.2.1", preflight_report(box, config), "the report")


@test()
def one_name_twice(box):
    """A second appliance of the same name, which would write into the first one's counters, is
    refused."""
    owner = box.appliance()
    configuration = box.configuration(listen=[f"unix:{box.path('second.sock')}"])
    config = box.write("second.toml", to_toml(configuration))
    box.ensure_hugepages(config)
    done = box.bedplate("run", config, expect_code=1)
    expect_true(MESSAGE.fullmatch(done.stderr), f"one message in three parts: {done.stderr}")
    expect_in("test", done.stderr, "the message")
    expect(owner.stats()["pid"], owner.pid, "the pid in the first one's counters")
    if os.path.lexists(box.path("second.sock")):
        raise Failure("second.sock is left behind")
    owner.stop()
