"""The program for users and scripts: commands, exit codes, help, and the contents of JSON."""

import glob
import json
import os
import re
import signal
import subprocess

from harness import (BEDPLATE, GIB, HUGEPAGES, KIB, LAYOUTS, MIB, Skip, expect, expect_in,
                     expect_true, few_hugepages, hugepage_count, need_tools, test, to_toml)
from harness import read_text
import raw_nbd as nbd
from raw_nbd import connect

REPOSITORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
COMMANDS = ["run", "plan", "check", "keys", "counters", "doctor", "stats", "top", "trace",
            "perf"]
# name: arguments that make no sense. CONFIG stands for a good configuration.
BAD_USAGE = {
    "nothing": [], "unknown_command": ["serve"], "unknown_option": ["--verbose"], "empty": [""],
    "run_nothing": ["run"], "plan_nothing": ["plan"], "check_nothing": ["check"],
    "run_two": ["run", "CONFIG", "CONFIG"], "plan_two": ["plan", "CONFIG", "CONFIG"],
    "run_unknown_option": ["run", "CONFIG", "--fast"],
    "plan_unknown_option": ["plan", "--x", "CONFIG"], "doctor_argument": ["doctor", "me"],
    "doctor_for_nothing": ["doctor", "--for"], "doctor_yes": ["doctor", "--yes"],
    "stats_two": ["stats", "a", "b"], "keys_unknown": ["keys", "blok"],
    "stats_directory_of_nothing": ["stats", "--directory"], "json_alone": ["--json"],
    "perf_nothing": ["perf"], "perf_nowhere": ["perf", "put"], "perf_count": ["perf", "put", "-n"],
}


def good_file(box, **blockd):
    return box.write("bedplate.toml", to_toml(box.configuration(**blockd)))


@test(case=BAD_USAGE)
def bad_usage(box, case):
    config = good_file(box)
    arguments = [config if part == "CONFIG" else part for part in BAD_USAGE[case]]
    done = box.bedplate(*arguments, expect_code=2)
    expect(done.stdout, "", "the standard output")
    expect_in("bedplate", done.stderr, "standard error")


@test()
def version_is_that_of_make_install(box):
    """The version is only in the header; make and the program read it there."""
    top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    database = subprocess.run(["make", "-C", top, "-pnq", "help"], capture_output=True, text=True,
                              check=False).stdout
    version = re.search(r"^VERSION := (\d+\.\d+\.\d+)$", database, re.MULTILINE)
    expect_true(version, "make knows the version")
    text = box.bedplate("--version").stdout
    told = rf"bedplate {re.escape(version[1])} \(build \S+, interface \d+\)\n"
    expect_true(re.fullmatch(told, text), text)


@test()
def help_teaches(box):
    text = box.bedplate("--help").stdout
    for command in COMMANDS:
        expect_in(command, text, "bedplate --help")
        done = box.bedplate(command, "--help")
        expect_in(f"usage: bedplate {command}", done.stdout, f"bedplate {command} --help")
        expect(done.stderr, "", f"standard error of {command} --help")
        expect(box.bedplate(command, "-h", expect_code=None).returncode in (0, 2), True, "-h")
    expect_in("Exit codes", text, "bedplate --help")


@test()
def process_one_of_a_container_is_an_ordinary_program(box):
    """Only the first process of an image, which is called init, touches the machine."""
    need_tools("unshare")
    alone = ["unshare", "--pid", "--mount", "--fork"]
    if box.run(*alone, "true", expect_code=None).returncode != 0:
        raise Skip("this user may not make a PID namespace")
    done = box.run(*alone, BEDPLATE, "plan", "--json", good_file(box))
    expect(json.loads(done.stdout)["modules"], [], "the modules of a plan without tables for them")
    expect(done.stderr, "", "standard error")


@test()
def is_static(box):
    need_tools("ldd")
    done = box.run("ldd", BEDPLATE, expect_code=None)
    told = done.stdout + done.stderr
    if "libasan" in told or "libtsan" in told:
        raise Skip("a sanitizer build is dynamic")
    expect_in("not a dynamic executable", told, "ldd")


@test(page=["4 KiB", "2 MiB", "1 GiB"], layout=LAYOUTS)
def plan_adds_up(box, page, layout):
    """Segments are whole pages of the named size and sum up to what is configured."""
    sizes = {"4 KiB": 4 * KIB, "2 MiB": 2 * MIB, "1 GiB": GIB}
    configured = 5 * GIB if page == "1 GiB" else 256 * MIB
    configuration = box.configuration(layout)
    configuration["pool"] = {"bytes": configured, "pages": page}
    config = box.write("bedplate.toml", to_toml(configuration))
    plan = box.plan(config)
    segments = plan["segments"]
    expect(sum(segment["bytes"] for segment in segments), plan["total_bytes"], "the sum")
    if page == "1 GiB":  # the boot segment's 4 KiB pages leave a rest that is no whole page
        expect_true(configured - GIB < plan["total_bytes"] <= configured, "less than a page left")
    else:
        expect(plan["total_bytes"], configured, "total_bytes")
    expect((segments[0]["owner"], segments[0]["page_bytes"]), ("boot", 4 * KIB), "segment 0")
    for segment in segments:
        name = segment["owner"]
        wanted = 4 * KIB if name == "boot" else sizes[page]
        expect(segment["page_bytes"], wanted, f"page_bytes of {name}")
        expect(segment["bytes"] % wanted, 0, f"the rest of {name} by its page")
        expect_true(sum(carve["bytes"] for carve in segment["carves"]) <= segment["bytes"],
                    f"the carves of {name} fit")
    owners = [segment["owner"] for segment in segments]
    expect(len(set(owners)), len(owners), "different owners")
    volumes = [part["bytes"] for segment in segments for part in [segment, *segment["carves"]]
               if part["owner"] == "volume:ram0"]
    expect_true(64 * MIB in volumes, "the volume has its 64 MiB")
    stacks = plan["stacks"]
    expect(stacks["bytes"], stacks["count"] * stacks["bytes_each"], "the stacks")
    text = box.bedplate("plan", config).stdout
    for word in [*owners, str(plan["total_bytes"])]:
        expect_in(word, text, "the plan as text")


@test()
def plan_depends_on_the_file_alone(box):
    """The plan is the same for any order of the arguments, and for a relative path."""
    config = good_file(box)
    plans = {box.bedplate(*arguments).stdout for arguments in (
        ["plan", config, "--json"], ["plan", "--json", config],
        ["plan", os.path.basename(config), "--json"])}
    expect(len(plans), 1, "the number of different plans")


@test()
def plan_grows_with_connections(box):
    """The plan includes the memory of connections: more connections take more memory."""
    used = {}
    for count in (1, 512):
        segments = box.plan(good_file(box, max_connections=count))["segments"]
        used[count] = sum(segment["bytes"] for segment in segments if segment["owner"] != "heap")
    expect_true(used[512] > used[1] + 511 * 128 * KIB, f"each takes its buffer: {used}")


@test()
def check_of_a_good_file(box):
    config = good_file(box)
    box.ensure_hugepages(config)
    expect(box.bedplate("check", config).stderr, "", "standard error of check")
    told = json.loads(box.bedplate("check", config, "--json").stdout)
    expect((told["ok"], told["problems"]), (True, []), "check --json")


@test()
def check_of_a_bad_file_as_json(box):
    """`check --json` prints the same three parts of a message on standard output."""
    configuration = box.configuration()
    configuration["shard"][0]["cpu"] = 1023
    config = box.write("lacking.toml", to_toml(configuration))
    box.ensure_hugepages(config)
    told = json.loads(box.bedplate("check", config, "--json", expect_code=1).stdout)
    expect(told["ok"], False, "ok of check --json")
    [problem] = told["problems"]
    expect_in("1023", problem["answer"], "the answer of the problem")
    config = box.write("broken.toml", "[pool")
    told = json.loads(box.bedplate("check", config, "--json", expect_code=2).stdout)
    expect(told["ok"], False, "ok of check --json")


@test()
def check_tells_every_problem(box):
    config = box.write("broken.toml", """[appliance]
name = "Demo"
[pool]
bytes = "256 MB"
[[shard]]
name = "main"
""")
    done = box.bedplate("check", config, expect_code=2)
    expect([line.split(": ")[1] for line in done.stderr.splitlines()],
           [f"{config}:2:8", f"{config}:4:9", f"{config}:5:1"], "where the problems are")
    expect(box.bedplate("run", config, expect_code=2).stderr, done.stderr, "what run says")
    told = json.loads(box.bedplate("check", config, "--json", expect_code=2).stdout)
    expect(len(told["problems"]), 3, "the problems of check --json")


@test()
def keys_are_those_of_the_documentation(box):
    keys = json.loads(box.bedplate("keys", "--json").stdout)
    rows = box.bedplate("keys", "--markdown").stdout.splitlines()
    expect(len(rows), len(keys), "the rows of keys --markdown")
    expect_in(f"`{keys[0]['key']}` | {keys[0]['type']}", rows[0], "the first row")
    text = box.bedplate("keys", "blockd").stdout
    for word in ("blockd.listen", "blockd.volume.bytes", "list of addresses", "required"):
        expect_in(word, text, "keys blockd")
    expect("pool.bytes" in text, False, "keys blockd has the pool's")


@test()
def doctor(box):
    items = json.loads(box.bedplate("doctor", "--json").stdout)
    names = [item["name"] for item in items]
    text = box.bedplate("doctor").stdout
    for name in names:
        expect_true(re.search(rf"^(good|warning|fault) +{re.escape(name)} ", text, re.MULTILINE),
                    f"a line about {name} in\n{text}")
    for word in ("kernel", "hugepages", "io_uring", "mseal", "locked", "governor", "isolated",
                 "sleep", "NUMA", "IOMMU", "VFIO", "ptrace"):
        expect_true(any(word in name for name in names), f"doctor tells about {word}")
    for item in items:
        expect_true(item["value"] and (item["verdict"] != "good") == bool(item["cure"]),
                    f"what is not good has a cure, and nothing else: {item}")


def doctors_findings(box, *arguments, expect_code=0):
    said = box.bedplate("doctor", *arguments, "--json", expect_code=expect_code).stdout
    return {item["name"]: item for item in json.loads(said)}


@test()
def doctor_for_a_directory(box):
    """A directory that does not exist has no appliance. One that cannot be read is told."""
    found = doctors_findings(box, "--directory", box.path("none"))
    expect("appliances" in found, False, "a finding about no directory")
    found = doctors_findings(box, "--directory", box.write("file", ""))["appliances"]
    expect((found["verdict"], found["value"]), ("warning", "Not a directory"), "what doctor says")


@test()
def doctor_for_a_configuration(box):
    """`doctor --for` prints the problems and cures of `check`. It judges only the cores of the
    shards."""
    config = good_file(box)
    with few_hugepages(0):
        problems = json.loads(box.bedplate("check", config, "--json", expect_code=1).stdout)
        found = doctors_findings(box, "--for", config, expect_code=1)
        text = box.bedplate("doctor", "--for", config, expect_code=1).stdout
    for problem in problems["problems"]:
        expect(found[problem["doing"]], {"name": problem["doing"], "verdict": "fault",
                                         "value": problem["answer"], "cure": problem["cure"]},
               "what doctor says of it")
        expect_in(f"fault   {problem['doing']} {problem['answer']}; ", text, "doctor's text")
    expect("hugepages of 2 MiB" in found, False, "what preflight judges is said once")
    box.ensure_hugepages(config)
    found = doctors_findings(box, "--for", config)
    expect(found[config]["verdict"], "good", "what doctor says of the configuration")
    cpus = found["isolated cores"]
    expect_in("isolcpus=0 nohz_full=0 rcu_nocbs=0" if cpus["cure"] else "", cpus["cure"],
              "the cure of cores that are not isolated")


@test(answer=["--yes", "y", "n", ""])
def doctor_fixes(box, answer):
    """`doctor --fix` reserves hugepages at once. It writes the lasting setting only if the user
    agrees."""
    need_tools("unshare")
    config = good_file(box)
    lasting = box.path("lasting")
    os.mkdir(lasting)
    script = 'mount --bind "$0" /etc/sysctl.d && exec "$@" 2>&1'
    apart = ["unshare", "--mount", "sh", "-c", script, lasting]
    if box.run(*apart, "true", expect_code=None).returncode != 0:
        raise Skip("this user may not mount")
    options = ["--fix"] + (["--yes"] if answer == "--yes" else [])
    for _ in range(10):
        with few_hugepages(0):
            before = hugepage_count(2 * MIB, "nr_hugepages")
            done = box.run(*apart, BEDPLATE, "doctor", "--for", config, *options, expect_code=None,
                           input=answer)
            after = hugepage_count(2 * MIB, "nr_hugepages")
            HUGEPAGES.raised[2 * MIB] = HUGEPAGES.raised.get(2 * MIB, 0) - before + after
        total = re.search(r"^done: echo (\d+) > .*/nr_hugepages$", done.stdout, re.MULTILINE)
        # Hugepages belong to the whole machine. If other processes reserve or take some at that
        # moment, the run proves nothing, and is repeated.
        if total and (done.returncode == 0 or int(total[1]) == after):
            break
        for name in os.listdir(lasting):
            os.unlink(os.path.join(lasting, name))
    expect(done.returncode, 0, f"the exit code after\n{done.stdout}")
    expect_true(total, f"what was done is told:\n{done.stdout}")
    expect_in(f"good    {config} this machine has what it takes", done.stdout, "the judgement")
    expect("not written: the changes" in done.stdout, answer not in ("--yes", "y"),
           "left as it was")
    files = os.listdir(lasting)
    expect(files, ["90-bedplate.conf"] if answer in ("--yes", "y") else [], "the lasting files")
    if files:
        expect_in(f"vm.nr_hugepages = {total[1]}\n", read_text(f"{lasting}/90-bedplate.conf"),
                  "the lasting file")


@test()
def doctor_for_what_is_wrong(box):
    """Problems of a file are those of `check`, and the machine is not judged."""
    for text in ("[nothing]", None):
        config = box.write("bad.toml", text) if text else box.path("missing.toml")
        done = box.bedplate("doctor", "--for", config, expect_code=2)
        expect(done.stdout, "", "standard output")
        expect(done.stderr, box.bedplate("check", config, expect_code=2).stderr, "the problems")


# ---- Counters ----


@test(layout=LAYOUTS)
def stats_count(box, layout):
    """Each counter counts its own events, and no others."""
    appliance = box.appliance(box.configuration(layout))
    before = appliance.stats()
    client = connect(box, appliance)
    client.write(0, bytes(8192))
    client.read(0, 4096)
    client.read(0, 1)
    for command, length in ((nbd.FLUSH, 0), (nbd.TRIM, 512), (nbd.WRITE_ZEROES, 512)):
        client.error(command, 0, length)
    client.error(nbd.READ, 1 << 60, 1)
    after = appliance.stats()
    counted = {name: count - before["services"]["blockd"][name]
               for name, count in after["services"]["blockd"].items() if isinstance(count, int)}
    wanted = {"connections_open": 1, "connections_total": 1, "connections_refused": 0,
              "requests_write": 1, "requests_flush": 1, "requests_trim": 1,
              "requests_write_zeroes": 1, "requests_refused": 1, "read_bytes": 4097,
              "written_bytes": 8192, "protocol_errors": 0}
    expect({name: counted[name] for name in wanted}, wanted, "what was counted")
    expect(after["name"], "test", "name")
    expect(after["pid"], appliance.pid, "pid")
    shards = appliance.configuration["shard"]
    expect({name: shard["cpu"] for name, shard in after["shard"].items()},
           {shard["name"]: str(shard["cpu"]) for shard in shards}, "the shards")
    times = after["services"]["blockd"]
    for name, count in (("read_ns", 3), ("write_ns", 1), ("flush_ns", 1), ("trim_ns", 1),
                        ("write_zeroes_ns", 1)):
        expect(times[name]["count"], count, f"how many {name} has")
        expect_true(0 < times[name]["p50"] <= times[name]["max"] < 60 * 10**9, f"times: {times}")
    rounds = after["source"][f"{shards[0]['name']}.sockets"]["round_ns"]
    expect_true(rounds["count"] > 0, f"rounds of the sockets: {rounds}")
    for shard in after["shard"].values():
        expect_true(shard["iterations"] > 0 and shard["backend"] in ("io_uring", "epoll"),
                    f"the counters of a shard: {shard}")


@test()
def counters_are_documented(box):
    """docs/counters.md has the row of each counter: of the runtime, of the services of the demos,
    of [http], of TLS, and of a volume on a file."""
    page = read_text(os.path.join(REPOSITORY, "docs/counters.md")).splitlines()
    demo = os.path.join(REPOSITORY, "apps/demo.toml")
    box.write("volume", bytes(4096))
    volume = f"[[blockd.volume]]\nname = \"disk\"\nfile = \"{box.path('volume')}\"\n"
    tls = 'tls_certificate = "/certificate"\ntls_key = "/key"\n'
    demo_kvd = os.path.join(REPOSITORY, "apps/demo-kvd.toml")
    kvd_with_tls = read_text(demo_kvd).replace("[kvd]", f"[kvd]\nmax_connections = 16\n{tls}", 1)
    for config in ([], [demo], [box.write("all.toml", f"{read_text(demo)}[http]\n{tls}")],
                   [box.write("file.toml", read_text(demo) + volume)],
                   [demo_kvd], [box.write("kvd.toml", kvd_with_tls)],
                   [os.path.join(REPOSITORY, "apps/demo-relay.toml")]):
        rows = box.bedplate("counters", *config, "--markdown").stdout.splitlines()
        told = json.loads(box.bedplate("counters", *config, "--json").stdout)
        expect(len(rows), len(told), "the rows of counters --markdown")
        expect([row for row in rows if row not in page], [], "rows that docs/counters.md lacks: make tables")
        for counter in told:
            expect_true(counter["unit"] and counter["help"].endswith("."), f"a counter: {counter}")
            if counter["unit"] in ("bytes", "ns"):
                expect_true(counter["counter"].endswith(counter["unit"]), f"the name of {counter}")


@test()
def every_description_of_counters_is_looked_at(box):
    """counter_troubles_test.cc covers all structs of counters in the sources. It requires an alert,
    or a reason for none, for each counter of trouble. `counters` shows both."""
    sources = [path for layer in ("alloc", "transport", "apps")
               for path in glob.glob(os.path.join(REPOSITORY, layer, "**/*.*"), recursive=True)
               if path.endswith((".h", ".cc")) and "/apps/examples/" not in path]
    described = {name for path in sources for name in
                 re.findall(r"^(?:inline )?void describe\(CounterTable& \w+,\s*(?:const )?(\w+)& ",
                            read_text(path), re.MULTILINE)}
    expect_true(len(described) > 30, f"descriptions of counters: {sorted(described)}")
    known = read_text(os.path.join(REPOSITORY, "tests/apps/counters/counter_troubles_test.cc"))
    expect(sorted(name for name in described if not re.search(rf"\b{name}\b", known)), [],
           "descriptions that counter_troubles_test.cc does not look at")
    told = {counter["counter"]: counter
            for counter in json.loads(box.bedplate("counters", "--json").stdout)}
    expect_in("{refused}", told["heap_owner.OWNER.refused"]["sign"], "an alert")
    expect(told["source.SHARD.PART.stalls"]["no_sign"], "the shard's stalls count them",
           "why one is none")
    demo = os.path.join(REPOSITORY, "apps/demo.toml")
    columns = {counter["counter"]: counter.get("column")
               for counter in json.loads(box.bedplate("counters", demo, "--json").stdout)}
    expect([columns[f"blockd.volumes.ram0.{name}"] for name in
            ("requests_trim", "written_bytes", "request_ns", "requests_in_flight", "grants")],
           ["operations", "bytes", "p99", "queue", None], "what is seen of a volume at a glance")


@test()
def stats_describe_what_they_show(box):
    """With --describe each counter has its kind, unit and help; the values are the same."""
    appliance = box.appliance()
    directory = ["--directory", appliance.runtime_directory]
    told = json.loads(box.bedplate("stats", "--json", "--describe", *directory).stdout)
    total = told["pool"]["total_bytes"]
    expect((total["value"], total["kind"], total["unit"]),
           (appliance.stats()["pool"]["total_bytes"], "gauge", "bytes"), "pool.total_bytes")
    expect(told["services"]["blockd"]["read_ns"]["kind"], "histogram", "the kind of read_ns")
    expect_true(told["services"]["blockd"]["requests_read"]["help"], "the help of requests_read")
    appliance.stop()


@test(sockets=["io_uring", "epoll"])
def stats_name_the_backend(box, sockets):
    appliance = box.appliance(box.configuration(sockets=sockets))
    expect([shard["backend"] for shard in appliance.stats()["shard"].values()], [sockets], "the backend")


@test()
def stats_agree_with_the_plan(box):
    appliance = box.appliance()
    stats, plan = appliance.stats(), box.plan(appliance.config)
    expect(stats["pool"]["total_bytes"], plan["total_bytes"], "total_bytes")
    planned = {}
    for segment in plan["segments"]:
        for part in segment["carves"] or [segment]:
            planned[part["owner"]] = part["bytes"]
    expect({name: owner["bytes"] for name, owner in stats["owner"].items()}, planned, "the owners")
    used = {name for name, owner in stats["owner"].items() if owner["used_bytes"] is not None}
    expect_true({"boot", "heap"} <= used, f"the heap says how much of it is used: {used}")
    expect([name for name in used if name.split(":")[0] not in ("boot", "heap")], [],
           "what is in use as a whole has no part that is used")
    for name in used:
        expect_true(0 <= stats["owner"][name]["used_bytes"] <= planned[name], f"used of {name}")


@test()
def stats_find_the_appliance(box):
    """`stats` finds an appliance by name. The name is optional while its directory has one
    appliance."""
    first = box.appliance()
    directory = ["--directory", first.runtime_directory]
    for name in ([], ["test"]):
        told = json.loads(box.bedplate("stats", *name, "--json", *directory).stdout)
        expect(told["pid"], first.pid, "pid")
        expect_in("registrations", box.bedplate("stats", *name, *directory).stdout, "the text")
    box.bedplate("stats", "other", *directory, expect_code=1)
    configuration = box.configuration(listen=[f"unix:{box.path('second.sock')}"])
    configuration["appliance"]["name"] = "second"
    second = box.appliance(configuration, file="second.toml")
    done = box.bedplate("stats", *directory, expect_code=2)
    for name in ("test", "second"):
        expect_in(name, done.stderr, "the message")
    told = json.loads(box.bedplate("stats", "second", "--json", *directory).stdout)
    expect(told["pid"], second.pid, "pid")
    first.process.send_signal(signal.SIGTERM)
    expect(first.wait_exit(), 0, "the exit code after SIGTERM")
    connect(box, second).verify("the other is gone")
    second.stop()


@test()
def stats_of_nothing(box):
    """`stats` fails for a missing directory, an empty directory, and a file without counters."""
    for name in ("none", "empty", "text"):
        if name != "none":
            os.mkdir(box.path(name))
    box.write("text/test.stats", "no counters at all")
    for name, command in (("none", []), ("none", ["test"]), ("empty", []), ("empty", ["test"]),
                          ("text", []), ("text", ["test"])):
        done = box.bedplate("stats", *command, "--directory", box.path(name), expect_code=1)
        expect_in(name, done.stderr, "the message")
        expect(done.stdout, "", "the standard output")
