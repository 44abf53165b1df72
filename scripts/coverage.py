#!/usr/bin/python3
"""Counts which lines ran, and prints a line a layer. It fails where a layer is below its floor.

    scripts/coverage.py [here] [guest] [report]

`here` runs the unit tests and some of the system's, `guest` those that need an RDMA device, in a
virtual machine; both with the programs of `make MODE=coverage`, whose counters lie in mapped files,
so that those of killed processes count as well. `report` sums up what was counted. Without words:
here and report; what needs the guest is then said not to have been looked at. FILES=1 lists the
files that have most lines that did not run.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "coverage"
COUNTED = BUILD / "counted"
PYTHON = "/usr/bin/python3"
LEFT_OUT = ["-xsn", "ParentsTrafficIsWholeThroughoutManyForks"]  # a minute for no line more
SYSTEM = ["command_line.", "plan.", "configuration.", "environment.", "service_c.", "relay_c.",
          "kvd.", "tsrelay.", "user.", "places.", "perf.", "top.", "http.", "control.", "trace.",
          "seen_at_a_glance."]
GUEST = ["verbs_over_soft_roce", "perf_over_soft_roce"]

# What the unit tests and the others say of one that failed.
FAILURE = re.compile(r"^.* error: Failure in .*(?:\n.*){0,6}|^failed .*(?:\n.*){0,6}", re.MULTILINE)

# Of all lines in percent; where a file is in two, the longer path has it. Those in NEEDS_GUEST have
# it with the guest's runs.
FLOORS = {
    "platform": 85, "pinned_pool": 85, "pinned_pool/join": 85, "alloc": 85, "transport": 85,
    "transport/self": 85, "transport/shm": 85, "transport/single_copy": 85, "transport/udp": 85,
    "transport/uring": 85, "transport/epoll": 85, "transport/verbs": 85, "apps/boot": 85,
    "apps/init": 85, "apps/program": 85, "apps/perf": 85, "apps/blockd": 85, "apps/kvd": 85,
    "apps/tsrelay": 85, "apps/http": 85, "apps/control": 85,
}
NEEDS_GUEST = ("transport/verbs", "apps/perf")
# Runs nowhere here: there is no such module (tests/guest has EXTRA_MODULES). By itself, no floor.
NOT_COUNTED = ("transport/single_copy/xpmem", "transport/single_copy/knem")


def counting_in(folder):
    """The variable of programs that count in `folder`."""
    folder.mkdir(parents=True, mode=0o777)
    folder.chmod(0o777)  # some become another user
    return {"LLVM_PROFILE_FILE": f"{folder}/%m%c.profraw"}


def run_here():
    """Returns whether all tests passed. One after the other: both change how many hugepages there
    are."""
    tests = {"unit": [BUILD / "bedplate-tests", *LEFT_OUT],
             "system": [PYTHON, "tests/system/run.py", *SYSTEM]}
    return all([run(name, command, BEDPLATE=str(BUILD / "bedplate"),
                    **counting_in(COUNTED / "here" / name)) for name, command in tests.items()])


def run_guest():
    (COUNTED / "guest").mkdir(parents=True)
    return run("guest", [PYTHON, "tests/guest/guest_test.py", *GUEST],
               COVERAGE_RAW=str(COUNTED / "guest"))


def run(name, command, **variables):
    path = COUNTED / f"{name}.log"
    with open(path, "wb") as log:
        code = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, check=False,
                              env={**os.environ, **variables}).returncode
    if code != 0:
        said = path.read_text(errors="replace")
        failures = FAILURE.findall(said)
        print(f"failed: {name}, see {path}:\n" + "\n".join([*failures, "and at its end:", said[-1500:]]))
    return code == 0


def files_of(*places):
    """Of each file of ours its lines, and how many ran in what was counted in `places`."""
    raw = [str(path) for place in places for path in (COUNTED / place).rglob("*.profraw")]
    if not raw:
        return {}
    merged = COUNTED / "merged.profdata"
    subprocess.run(["llvm-profdata-14", "merge", "-o", merged, *raw], check=True)
    export = subprocess.run(
        ["llvm-cov-14", "export", "-summary-only", f"-instr-profile={merged}",
         BUILD / "bedplate-tests", "-object", BUILD / "bedplate"],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    files = {}
    for file in json.loads(export)["data"][0]["files"]:
        path = os.path.relpath(file["filename"], ROOT)
        lines = file["summary"]["lines"]
        files[path] = (lines["count"], lines["covered"])
    return files


def layer_of(path):
    if path.startswith(NOT_COUNTED):
        return "xpmem, knem"
    return max((layer for layer in FLOORS if path.startswith(layer + "/")), key=len, default=None)


def by_layer(files):
    sums = {}
    for path, (count, covered) in files.items():
        layer = layer_of(path)
        before = sums.get(layer, (0, 0))
        sums[layer] = (before[0] + count, before[1] + covered)
    return sums


def percent(lines):
    return 100 * lines[1] / lines[0] if lines[0] else 0.0


def report():
    """Returns whether each layer has its floor."""
    built = (BUILD / "bedplate-tests").stat().st_mtime
    guests = ["guest"] if any(path.stat().st_mtime > built
                              for path in (COUNTED / "guest").rglob("*.profraw")) else []
    here, files = by_layer(files_of("here")), files_of("here", *guests)
    everywhere = by_layer(files)
    below = []
    for layer, floor in FLOORS.items():
        lines = everywhere.get(layer, (0, 0))
        note = f"floor {floor} %"
        if layer in NEEDS_GUEST:
            note += f"; {percent(here.get(layer, (0, 0))):.1f} % here, the rest in the guest"
        if layer in NEEDS_GUEST and not guests:
            note += ", which has not run: not looked at"
        elif percent(lines) < floor:
            below.append(layer)
            note += ": BELOW IT"
        print(f"  {layer:22} {percent(lines):5.1f} % of {lines[0]:5} lines  ({note})")
    lines = everywhere["xpmem, knem"]
    print(f"  {'xpmem, knem':22} {percent(lines):5.1f} % of {lines[0]:5} lines  (not counted: "
          "modules that only other machines have)")
    if os.environ.get("FILES"):
        missing = sorted(((count - covered, path) for path, (count, covered) in files.items()
                          if layer_of(path)), reverse=True)
        print("\n".join(f"    {count:4} {path}" for count, path in missing[:40]))
    for layer in below:
        print(f"failed: {layer} is below its floor (scripts/coverage.py)")
    print(f"{len(FLOORS) - len(below)} passed, {len(below)} failed, 0 skipped")
    return not below


def main():
    words = sys.argv[1:] or ["here", "report"]
    parts = {"here": run_here, "guest": run_guest, "report": report}
    if not set(words) <= set(parts):
        sys.exit(__doc__)
    outcomes = []
    for word in words:
        if word != "report":
            shutil.rmtree(COUNTED / word, ignore_errors=True)
        outcomes.append(parts[word]())
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
