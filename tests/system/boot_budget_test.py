"""The memory before the heap. The plan of a configuration and of an appliance is exact to the byte.
If the memory runs out, one line says so and names the cure."""

import http.client
import json
import os
import re
import resource

from harness import (BEDPLATE, BOUND_SECONDS, MIB, Skip, expect, expect_in, expect_true, free_port,
                     test, to_toml)

DISASTERS = ("terminate called", "bad_alloc", "is a defect", "threw an exception", "assert")


def configure(box, streams=1, outputs=0, recordings=0, files=1, **other):
    """Returns the configuration of a relay. Only this process uses its addresses."""
    own = f"127.{os.getpid() % 250 + 1}"
    return {
        "appliance": {"name": "large", "runtime_directory": box.path("runtime")},
        "pool": {"bytes": "1 GiB", "pages": "4 KiB"},
        "shard": [{"name": "main", "cpu": min(os.sched_getaffinity(0))}],
        "tsrelay": {"stream": [{
            "name": f"s{k}",
            "leg": [{"address": f"{own}.{k // 200 + 1}.{k % 200 + 1}:5000"}],
            **({"output": [{"to": f"{own}.250.1:{6000 + j}"} for j in range(outputs)]}
               if outputs else {}),
            **({"recording": [{"path": box.path(f"r{k}-{j}"), "files": files, "rotate_s": 60}
                              for j in range(recordings)]} if recordings else {})}
            for k in range(streams)]},
        **other}


def ask(box, *words, **options):
    """Returns the exit code and the output. Fails if the program crashed."""
    done = box.run(BEDPLATE, *words, expect_code=None, **options)
    said = done.stdout + done.stderr
    for words_of in DISASTERS:
        expect_true(words_of not in done.stderr, f"{words}: {done.stderr[-600:]}")
    expect_true(done.returncode in (0, 1, 2), f"{words}: exit {done.returncode}")
    return done.returncode, said


# The largest configurations that one file, or one key, allows.
LARGE = {"streams": dict(streams=256),
         "outputs": dict(streams=2, outputs=500),
         "files": dict(recordings=4, files=1000)}


@test(case=LARGE)
def as_much_as_there_may_be_is_planned_and_runs(box, case):
    """Every command handles the largest configurations, and segment 0 has the size that `plan`
    prints."""
    need = 6000
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < need:
        raise Skip(f"fewer than {need} descriptors are allowed")
    web = free_port()
    configuration = configure(box, **LARGE[case], control={},
                              http={"listen": [f"tcp:127.0.0.1:{web}"]})
    for stream in configuration["tsrelay"]["stream"]:
        stream["window_packets"] = 64
    config = box.write("bedplate.toml", to_toml(configuration))
    code, said = ask(box, "check", config)
    expect(code, 0, f"the exit code of check ({said[-600:]})")
    planned = {each["owner"]: each["bytes"] for each in box.plan(config)["segments"]}
    appliance = box.appliance(configuration)
    directory = box.path("runtime")
    taken = {name: each["bytes"] for name, each in appliance.stats()["segment"].items()}
    expect(taken, planned, "what run has taken, as plan has it")
    for words in (["stats"], ["top", "--once", "--interval", "0.1"], ["trace"]):
        expect(ask(box, *words, "--directory", directory)[0], 0, f"the exit code of {words}")
    expect(ask(box, "plan", "--explain", config)[0], 0, "the exit code of plan --explain")
    for method in ("counters", "plan"):
        expect(ask(box, "ctl", "--directory", directory, method)[0], 0, f"of ctl {method}")
    for target in ("/metrics", "/stats.json", "/"):
        connection = http.client.HTTPConnection("127.0.0.1", web, timeout=BOUND_SECONDS)
        connection.request("GET", target)
        answer = connection.getresponse()
        expect((answer.status, bool(answer.read())), (200, True), target)
    appliance.stop()


@test()
def more_files_than_there_may_be_are_refused(box):
    """16 recordings of 1,000 files in each of five streams need 80,000 descriptors."""
    config = box.write("bedplate.toml",
                       to_toml(configure(box, streams=5, recordings=16, files=1000)))
    for command in ("plan", "check", "run"):
        code, said = ask(box, command, config)
        expect(code, 2, f"the exit code of {command}")
        expect_in("there are more than 65536; use fewer of those that path of recording s4/1 "
                  "names in [tsrelay]", said, f"what {command} says")


@test()
def no_number_at_its_maximum_ends_in_an_abort(box):
    """`plan` accepts or refuses the maximum of each integer key, one key after the other."""
    base = configure(box, outputs=1, recordings=1, control={},
                     http={"listen": [f"tcp:127.0.0.1:{free_port()}"]},
                     group=[{"name": "main", "members": 2}], event_loop={}, messages={},
                     process=[{"name": "ann", "user": "root", "group": "main"}],
                     kvd={"listen": [f"tcp:127.0.0.1:{free_port()}"]},
                     blockd={"listen": [f"tcp:127.0.0.1:{free_port()}"],
                             "volume": [{"name": "ram0", "bytes": "16 MiB"}]})
    base["pool"]["bytes"] = "64 GiB"
    keys = json.loads(box.bedplate("keys", "--json").stdout)
    tried = 0
    for key in keys:
        bounds = re.match(r"(\d+)\.\.(\d+)\b", key["range"])
        if key["type"] != "integer" or bounds is None:
            continue
        configuration = json.loads(json.dumps(base))
        *path, name = key["key"].split(".")
        table = configuration
        for part in path:
            table = table.get(part) if isinstance(table, dict) else None
            table = table[0] if isinstance(table, list) else table
            if table is None:
                break
        if table is None:
            continue
        table[name] = int(bounds[2])
        ask(box, "plan", box.write("bedplate.toml", to_toml(configuration)))
        tried += 1
    expect_true(tried >= 30, f"{tried} keys were tried")


@test()
def what_cannot_be_had_is_one_line_with_the_cure(box):
    """A file size limit keeps segment 0 from growing."""
    config = box.write("bedplate.toml", to_toml(configure(box, streams=256)))
    code, said = ask(box, "plan", config,
                     env={**os.environ, "BEDPLATE_BOOT_BYTES": "8 MiB"},
                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE,
                                                           (8 * MIB, 8 * MIB)))
    expect(code, 1, "the exit code")
    expect(said.count("\n"), 1, "the lines that are said")
    expect_in("boot is exhausted", said, "what is said")
    expect_in("BEDPLATE_BOOT_BYTES", said, "the cure")
