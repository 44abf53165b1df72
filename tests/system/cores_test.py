"""A shard stays on its core: if its thread is moved, it is pinned again, or raises an alert."""

import contextlib
import os

from harness import Skip, expect, expect_in, read_text, test, to_toml, wait_for
import raw_nbd as nbd


def shard_thread(appliance, name="main"):
    """The number of the shard's thread, which has the shard's name."""
    folder = f"/proc/{appliance.pid}/task"
    found = [int(task) for task in os.listdir(folder)
             if read_text(f"{folder}/{task}/comm") == f"{name}\n"]
    expect(len(found), 1, f"the threads of the shard {name}")
    return found[0]


def start(box):
    """Returns an appliance, its shard's thread, the shard's core, and the other cores."""
    configuration = box.configuration()
    configuration["pool"]["pages"] = "4 KiB"
    cpu = configuration["shard"][0]["cpu"]
    others = os.sched_getaffinity(0) - {cpu}
    if not others:
        raise Skip("there is one core")
    appliance = box.appliance(configuration)
    thread = shard_thread(appliance)
    expect(os.sched_getaffinity(thread), {cpu}, "where the shard may run")
    return appliance, thread, cpu, others


def counted(appliance):
    shard = appliance.stats()["shard"]["main"]
    return shard["core_moves"], shard["off_core"]


@test()
def a_shard_that_was_moved_is_pinned_again(box):
    appliance, thread, cpu, others = start(box)
    os.sched_setaffinity(thread, others)
    wait_for(lambda: os.sched_getaffinity(thread) == {cpu}, "the shard to be pinned again")
    wait_for(lambda: counted(appliance) == (1, 0), "the move to be counted")
    expect_in(f"keeping shard main on core {cpu}: its thread had been moved away, and was pinned "
              "again; find what changes the cpuset", appliance.log_text(), "the log")
    appliance.stop()


@test()
def shards_share_a_core_if_the_file_says_so(box):
    configuration = box.configuration()
    configuration["pool"]["pages"] = "4 KiB"
    cpu = configuration["shard"][0]["cpu"]
    configuration["shard"].append({"name": "second", "cpu": cpu})
    done = box.bedplate("check", box.write("refused.toml", to_toml(configuration)), expect_code=2)
    expect_in("unless shared_cores is true in [event_loop]", done.stderr, "what check says")
    configuration.setdefault("event_loop", {})["shared_cores"] = True
    appliance = box.appliance(configuration)
    for shard in ("main", "second"):
        expect(os.sched_getaffinity(shard_thread(appliance, shard)), {cpu}, f"where {shard} may run")
    client = nbd.connect(box, appliance)
    client.write(0, b"data")
    expect(client.read(0, 4), b"data", "what is read on two shards")
    appliance.stop()


@contextlib.contextmanager
def cpuset(cpus):
    """Creates a control group of these cores. Yields a function that sets the cores, and a function
    that adds a process."""
    parent = "/sys/fs/cgroup/cpuset"
    if not os.path.exists(f"{parent}/cpuset.cpus"):
        parent = "/sys/fs/cgroup"
        with contextlib.suppress(OSError), \
                open(f"{parent}/cgroup.subtree_control", "w", encoding="ascii") as file:
            file.write("+cpuset")
    group = f"{parent}/bedplate-cores-{os.getpid()}"

    def write(name, value):
        with open(f"{group}/{name}", "w", encoding="ascii") as file:
            file.write(value)

    def give(cores):
        write("cpuset.cpus", ",".join(map(str, sorted(cores))))

    try:
        os.mkdir(group)
    except OSError as error:
        raise Skip(f"no control group can be made: {error.strerror}") from None
    try:
        try:
            write("cpuset.mems", read_text(f"{parent}/cpuset.mems").strip() or "0")
            give(cpus)
        except OSError as error:
            raise Skip(f"no control group of cores can be made: {error.strerror}") from None
        yield give, lambda pid: write("cgroup.procs", str(pid))
    finally:
        for pid in read_text(f"{group}/cgroup.procs").split():  # left by a failed test
            with contextlib.suppress(OSError), \
                    open(f"{parent}/cgroup.procs", "w", encoding="ascii") as file:
                file.write(pid)
        wait_for(lambda: not read_text(f"{group}/cgroup.procs"), "the end of its processes")
        os.rmdir(group)


@test()
def a_cpuset_that_shrinks_raises_an_alert_until_it_grows(box):
    """Like a change of a unit's AllowedCPUs=: the kernel moves the thread without notice."""
    appliance, thread, cpu, others = start(box)
    with cpuset({cpu, *others}) as (give, take_in):
        take_in(appliance.pid)
        give(others)
        wait_for(lambda: counted(appliance) == (1, 1), "the alert")
        expect_in(f"keeping shard main on core {cpu}: its thread was moved away, and cannot go "
                  "back (Invalid argument); return that core to the cpuset",
                  appliance.log_text(), "the log")
        seen = box.bedplate("top", "--once", "--json", "--interval", "0.1", "--directory",
                            appliance.runtime_directory).stdout
        expect_in("its thread may not run on its core: return the core", seen, "what top says")
        give({cpu, *others})
        wait_for(lambda: counted(appliance) == (1, 0), "the end of the alert")
        expect(os.sched_getaffinity(thread), {cpu}, "where the shard may run")
        appliance.stop()
