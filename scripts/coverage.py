#!/usr/bin/python3
"""Counts executed lines, and prints one line per layer. Fails if a layer is below the floor.

    scripts/coverage.py unit | unit-report
    scripts/coverage.py [here] [guest] [report]

`unit` runs the unit tests of `make MODE=asan COUNTED=1`, and `unit-report` reports their coverage:
both are part of `make check`. Layers that need more than the unit tests are printed with the tests
that they need; the floor applies to these layers only in the full report.

The full count uses the programs of `make MODE=coverage`, a release with its heap. `here` runs the
unit tests and some of the system tests. `guest` runs tests that need an RDMA device or an IOMMU, in
virtual machines. `report` sums up the counts. Without arguments: here and report; the report then
says that layers which need the guest were not run. FILES=1 lists the files with the most lines
that were not executed.

Counters lie in mapped files, so the counts of killed processes are kept as well.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHON = "/usr/bin/python3"
LEFT_OUT = ["-xsn", "ParentsTrafficIsWholeThroughoutManyForks"]  # takes a minute and covers no
                                                                 # further line
SYSTEM = ["command_line.", "plan.", "configuration.", "environment.", "service_c.", "relay_c.",
          "kvd.", "tsrelay.", "user.", "places.", "perf.", "top.", "http.", "control.", "trace.",
          "seen_at_a_glance.", "ports.", "ports_lending."]
GUEST = {
    "guest_test.py": ["verbs_over_soft_roce", "perf_over_soft_roce"],
    "vfio_test.py": ["unit_tests_behind_an_iommu", "malloc_goes_through_a_device"],
    "nvme_test.py": ["what_is_wrong_is_said"],
    "ports_vfio_test.py": ["virtio_net_in_a_guest", "a_port_that_cannot_be_had"],
}

# Matches the report of a failed test, of the unit tests and of the others.
FAILURE = re.compile(r"^.* error: Failure in .*(?:\n.*){0,6}|^failed .*(?:\n.*){0,6}", re.MULTILINE)

FLOOR = 85  # of all lines of a layer, in percent
# A file that matches two layers belongs to the longer path.
LAYERS = (
    "platform", "pinned_pool", "pinned_pool/join", "alloc", "transport", "transport/self",
    "transport/shm", "transport/single_copy", "transport/udp", "transport/uring",
    "transport/epoll", "transport/tls", "transport/vfio", "transport/nvme", "transport/dpdk",
    "transport/verbs", "apps/boot", "apps/configuration", "apps/counters", "apps/services",
    "apps/peers", "apps/c_interface", "apps/tls", "apps/init", "apps/program",
    "apps/perf", "apps/blockd", "apps/kvd", "apps/tsrelay", "apps/http", "apps/control", "apps/ports",
    "apps/testing",
)
NEEDS_GUEST = ("transport/verbs", "transport/vfio", "transport/nvme", "apps/perf")
# Layers that the unit tests of a sanitizer build cover too little, with the tests that cover them.
NEEDS_MORE_THAN_UNIT = {
    "a release's unit tests": ("pinned_pool", "alloc", "apps/init"),
    "the system's tests": ("apps/boot", "apps/configuration", "apps/counters", "apps/services",
                           "apps/peers", "apps/c_interface", "apps/tls",
                           "apps/program", "apps/perf", "apps/blockd", "apps/kvd",
                           "apps/tsrelay", "apps/http", "apps/control", "apps/ports"),
    "the guest's tests": ("transport/verbs", "transport/vfio", "transport/nvme", "apps/perf"),
}
# Never run here: the modules are missing (tests/guest has EXTRA_MODULES). No floor.
NOT_COUNTED = ("transport/single_copy/xpmem", "transport/single_copy/knem")
# Matches reasons for skips that come from the build, on any machine.
BUILDS_REASON = re.compile(r"\bbuilds?\b|sanitizer|module (?:xpmem|knem)")
NO_LAYER = ("apps/bedplate", "apps/examples", "build", "scripts", "tests")
XPMEM_KNEM = "xpmem, knem"


class Build:
    """Instrumented programs, and the counts of one run, identified by its name."""

    def __init__(self, mode, *programs):
        self.folder = ROOT / "build" / mode
        self.programs = [self.folder / program for program in programs]
        self.counted = self.folder / "counted"

    def forget(self, run):
        shutil.rmtree(self.counted / run, ignore_errors=True)
        (self.counted / run).mkdir(parents=True)

    def counting(self, *names):
        """The environment variable for instrumented programs."""
        folder = self.counted.joinpath(*names)
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)  # some programs change their user
        return {"LLVM_PROFILE_FILE": f"{folder}/%m%c.profraw"}

    def raw(self, runs):
        """The counts since the programs were built: older counts belong to other programs."""
        if not all(program.exists() for program in self.programs):
            return []
        built = self.programs[0].stat().st_mtime
        return [path for run in runs for path in (self.counted / run).rglob("*.profraw")
                if path.stat().st_mtime > built]

    def files(self, *runs):
        """Each source file of the tree: (its lines, the number executed in `runs`)."""
        raw = self.raw(runs)
        if not raw:
            return {}
        merged = self.counted / "merged.profdata"
        subprocess.run(["llvm-profdata-14", "merge", "-o", merged, *raw], check=True)
        first, *others = self.programs
        export = subprocess.run(
            ["llvm-cov-14", "export", "-summary-only", f"-instr-profile={merged}", first,
             *(f"-object={other}" for other in others)],
            check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        files = {}
        for file in json.loads(export)["data"][0]["files"]:
            path = os.path.relpath(file["filename"], ROOT)
            lines = file["summary"]["lines"]
            files[path] = (lines["count"], lines["covered"])
        return files


WHOLE = Build("coverage", "bedplate-tests", "bedplate")
SANITIZED = Build("asan-counted", "bedplate-tests")
UNIT_LOG = SANITIZED.counted / "unit.log"


def run_unit():
    """Runs the unit tests and prints their output. Returns True if all passed."""
    SANITIZED.forget("unit")
    variables = {**os.environ, **SANITIZED.counting("unit")}
    with subprocess.Popen(SANITIZED.programs[:1], cwd=ROOT, env=variables, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as tests, open(UNIT_LOG, "wb") as log:
        for line in tests.stdout:
            log.write(line)
            sys.stdout.buffer.write(line)
    return tests.returncode == 0


def lacks_of_machine():
    """By layer: why this machine skipped unit tests of it; the first reason given."""
    groups = {}
    for path in (ROOT / "tests").rglob("*_test.cc"):
        layer = layer_of(str(path.relative_to(ROOT / "tests")))
        for group in re.findall(r"^TEST_GROUP(?:_BASE)?\((\w+)", path.read_text(), re.MULTILINE):
            groups[group] = layer
    lacks, reason = {}, ""
    if not UNIT_LOG.exists():
        return lacks
    for line in UNIT_LOG.read_text(errors="replace").splitlines():
        if begin := re.match(r"skipped: (.*) \(\d+\)$", line):
            reason = begin[1]
        elif name := re.match(r"    (\w+)\.\w+$", line):
            layer = groups.get(name[1])
            if layer and not BUILDS_REASON.search(reason):
                lacks.setdefault(layer, reason)
    return lacks


def run_here():
    """Returns whether all tests passed. Runs in sequence: both change the number of
    hugepages."""
    WHOLE.forget("here")
    tests, program = WHOLE.programs
    commands = {"unit": [tests, *LEFT_OUT], "system": [PYTHON, "tests/system/run.py", *SYSTEM]}
    return all([run(name, command, BEDPLATE=str(program), **WHOLE.counting("here", name))
                for name, command in commands.items()])


def run_guest():
    WHOLE.forget("guest")
    return all([run(script, [PYTHON, f"tests/guest/{script}", *tests], GUEST_MODE="coverage",
                    COVERAGE_RAW=str(WHOLE.counted / "guest"))
                for script, tests in GUEST.items()])


def run(name, command, **variables):
    path = WHOLE.counted / f"{name}.log"
    with open(path, "wb") as log:
        code = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, check=False,
                              env={**os.environ, **variables}).returncode
    if code != 0:
        said = path.read_text(errors="replace")
        failures = FAILURE.findall(said)
        print(f"failed: {name}, see {path}:\n" +
              "\n".join([*failures, "and at its end:", said[-1500:]]))
    return code == 0


def layer_of(path):
    if path.startswith(NOT_COUNTED):
        return XPMEM_KNEM
    return max((layer for layer in LAYERS if path.startswith(layer + "/")), key=len, default=None)


def by_layer(files):
    sums = {}
    for path, (count, covered) in files.items():
        layer = layer_of(path)
        before = sums.get(layer, (0, 0))
        sums[layer] = (before[0] + count, before[1] + covered)
    return sums


def percent(lines):
    return 100 * lines[1] / lines[0] if lines[0] else 0.0


def print_layers(files, note_of, lacks=None):
    """`note_of` returns a note on a layer, and whether the floor applies to its counts; `lacks` has
    the reasons why tests of a layer were skipped. Returns whether no layer is below the floor
    except for such reasons, and each file belongs to a layer."""
    if not files:
        print("failed: there are no counts of the current programs\n"
              "0 passed, 1 failed, 0 skipped")
        return False
    sums = by_layer(files)
    failures = [f"{path} is in no layer of scripts/coverage.py" for path in sorted(files)
                if layer_of(path) is None and not path.startswith(NO_LAYER)]
    passed = skipped = 0
    for layer in LAYERS:
        lines = sums.get(layer, (0, 0))
        note, has_floor = note_of(layer)
        if has_floor and percent(lines) >= FLOOR:
            passed += 1
        elif has_floor and lacks and layer in lacks:
            skipped += 1
            print(f"skipped: {layer} is below its floor, and tests of it were: {lacks[layer]}")
        elif has_floor:
            failures.append(f"{layer} is below its floor of {FLOOR} % (scripts/coverage.py)")
        print(f"covered: {layer:22} {percent(lines):5.1f} % of {lines[0]:5} lines{note}")
    lines = sums.get(XPMEM_KNEM, (0, 0))
    print(f"covered: {XPMEM_KNEM:22} {percent(lines):5.1f} % of {lines[0]:5} lines  (no floor: "
          "only other machines have the modules)")
    if os.environ.get("FILES"):
        missing = sorted(((count - covered, path) for path, (count, covered) in files.items()
                          if layer_of(path)), reverse=True)
        print("\n".join(f"    {count:4} {path}" for count, path in missing[:60]))
    for failure in failures:
        print(f"failed: {failure}")
    print(f"{passed} passed, {len(failures)} failed, {skipped} skipped")
    return not failures


def report_unit():
    def note_of(layer):
        others = [name for name, layers in NEEDS_MORE_THAN_UNIT.items() if layer in layers]
        if not others:
            return f"  (floor {FLOOR} %)", True
        return f"  (not counted: {', '.join(others)})", False

    return print_layers(SANITIZED.files("unit"), note_of, lacks_of_machine())


def report_whole():
    has_guest = bool(WHOLE.raw(["guest"]))
    here = by_layer(WHOLE.files("here"))

    def note_of(layer):
        if layer not in NEEDS_GUEST:
            return f"  (floor {FLOOR} %)", True
        note = f"{percent(here.get(layer, (0, 0))):.1f} % without the guest's tests"
        if not has_guest:
            return f"  ({note}, which have not run)", False
        return f"  (floor {FLOOR} %; {note})", True

    return print_layers(WHOLE.files("here", "guest"), note_of)


def main():
    words = sys.argv[1:] or ["here", "report"]
    parts = {"unit": run_unit, "unit-report": report_unit, "here": run_here, "guest": run_guest,
             "report": report_whole}
    if not set(words) <= set(parts):
        sys.exit(__doc__)
    return 0 if all([parts[word]() for word in words]) else 1


if __name__ == "__main__":
    sys.exit(main())
