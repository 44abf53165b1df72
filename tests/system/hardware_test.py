"""`make check-hardware` before it touches devices: the devices that it finds in a made-up /sys,
the tests that it would run on them, the answers that it accepts as a yes, and its counts. No
hardware is needed."""

import os
import sys
import tempfile

from harness import expect, expect_in, expect_true, test

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
sys.dont_write_bytecode = True  # nothing is built in the source folders
import hardware  # noqa: E402

NODE = "sys/devices/system/node/node{}"
FILES = {
    "sys/class/infiniband/mlx5_10/ports/1/state": "4: ACTIVE\n",
    "sys/class/infiniband/mlx5_2/ports/1/state": "1: DOWN\n",
    "sys/class/infiniband/mlx5_2/ports/2/state": "4: ACTIVE\n",
    "sys/class/infiniband/mlx5_3/ports/1/state": "3: ACTIVE_DEFER\n",
    "sys/class/net/lo/operstate": "unknown\n",
    "sys/class/net/ens1/device/vendor": "0x15b3\n",
    "sys/class/net/ens1/device/device": "0x1017\n",
    "sys/class/net/ens1/device/sriov_totalvfs": "8\n",
    "sys/class/net/ens1/operstate": "up\n",
    "sys/class/nvme/nvme0/model": "Fast Drive   \n",
    f"{NODE.format(0)}/meminfo": "Node 0 MemTotal:  1024 kB\n",
    f"{NODE.format(1)}/meminfo": "Node 1 MemTotal:  1024 kB\n",
    f"{NODE.format(2)}/meminfo": "Node 2 MemTotal:       0 kB\n",
    f"{NODE.format(0)}/hugepages/hugepages-2048kB/free_hugepages": "7\n",
    f"{NODE.format(1)}/hugepages/hugepages-1048576kB/free_hugepages": "2\n",
}
DOWN = {"sys/class/infiniband/mlx5_2/ports/1/state": "1: DOWN\n"}


def machine_of(files):
    with tempfile.TemporaryDirectory() as system:
        for path, text in files.items():
            path = os.path.join(system, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return hardware.find_machine(system)


@test()
def what_is_there_is_found(_):
    told = "\n".join(hardware.describe(machine_of(FILES)))
    expect(told.splitlines(), [
        "RDMA: mlx5_2 port 1, down", "RDMA: mlx5_2 port 2, up", "RDMA: mlx5_3 port 1, down",
        "RDMA: mlx5_10 port 1, up",
        "network card: ens1, PCI 0x15b3:0x1017, up, SR-IOV with 8 functions",
        "NVMe drive: nvme0, Fast Drive", "NUMA node: 0", "NUMA node: 1",
        "hugepages of: 2 MiB on node 0: 7 free", "hugepages of: 1024 MiB on node 1: 2 free"], "told")


@test()
def an_empty_machine_has_a_reason_for_everything(_):
    machine = machine_of({})
    expect(hardware.describe(machine)[0], "RDMA: none", "what it says")
    reasons = {step.reason for step in hardware.plan_steps(machine, "build")}
    expect(reasons, {"no RDMA port that is up", "there is only one NUMA node", "no page of 1 GiB is free"},
           "why nothing runs")
    for step in hardware.plan_steps(machine_of(DOWN), "build"):
        expect_true(step.reason, f"{step.name} is skipped where the port is down")


@test()
def two_ports_send_to_one_another_and_one_to_itself(_):
    def sides(files):
        step = next(step for step in hardware.plan_steps(machine_of(files), "build")
                    if step.name == "perf send latency")
        def device(words):
            return words[words.index("--device") + 1], words[words.index("--port") + 1]
        return device(step.command), device(step.server), step.reason
    expect(sides(FILES), (("mlx5_2", "2"), ("mlx5_10", "1"), ""), "between two")
    alone = {"sys/class/infiniband/rxe0/ports/1/state": "4: ACTIVE"}
    expect(sides(alone), (("rxe0", "1"), ("rxe0", "1"), ""), "in loopback")


@test()
def every_step_says_what_it_touches_and_names_groups_that_exist(_):
    groups = set()
    for parent, _, names in os.walk(os.path.join(ROOT, "tests")):
        for name in names:
            if name.endswith("_test.cc"):
                with open(os.path.join(parent, name), encoding="utf-8") as file:
                    groups.update(line.split("(")[1].split(")")[0].strip()
                                  for line in file if line.startswith("TEST_GROUP("))
    for step in hardware.plan_steps(machine_of(FILES), "build"):
        expect(step.reason, "", f"why {step.name} does not run")
        expect_true(step.touches, f"what {step.name} touches")
        for option, value in zip(step.command, step.command[1:]):
            if option == "-g":
                expect_true(any(value in group for group in groups), f"a group has {value}")


@test()
def only_yes_is_an_agreement(_):
    def never(_):
        raise AssertionError("asked")
    expect(hardware.is_agreed({}, False, never), False, "without a terminal")
    expect(hardware.is_agreed({"YES": "1"}, False, never), True, "YES=1")
    expect(hardware.is_agreed({"YES": "0"}, False, never), False, "YES=0")
    for typed, agreed in (("yes", True), ("Y ", True), ("", False), ("no", False), ("ye", False)):
        expect(hardware.is_agreed({}, True, lambda _, typed=typed: typed), agreed, typed)


@test()
def a_step_counts_by_its_closing_line_or_its_exit_code(_):
    expect(hardware.counts_of("x\n3 passed, 0 failed, 2 skipped\n", 0), (3, 0, 2), "its own")
    expect(hardware.counts_of("3 passed, 0 failed, 2 skipped\n", 1), (3, 1, 2), "died after it")
    expect(hardware.counts_of("", 0), (1, 0, 0), "good")
    expect(hardware.counts_of("", 1), (0, 1, 0), "bad")
    step = hardware.Step("broken", "nothing", ("true",), ("true",))
    counts, output = hardware.run_step(step)
    expect(counts, (0, 1, 0), "a server that ends")
    expect_in("its server ended before it was ready", output, "what it says")
