#!/usr/bin/python3
"""Volumes on NVMe drives without the kernel's driver: QEMU's `nvme` behind its IOMMU.

    /usr/bin/python3 tests/guest/nvme_test.py [PATTERN...]

Patterns, GUEST_MODE and the last line are those of guest_test.py. In one virtual machine, which
boots an image, local clients use drives of both formats, a drive that fails some requests, one that
answers after its time limit, and one that is unplugged. In another, drives have volumes on two
shards. A third checks the messages before memory is taken, and the counters.
"""

import concurrent.futures
import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
import time

from configuration import ONE_VOLUME, SERVE, smallest
from guest_test import Guest
from image import MIB, VMLINUX, Image, run
from machine import ROOT, Machine
from runner import Failure, run_tests
from vfio_test import IOMMU

sys.path.insert(0, os.path.join(ROOT, "tests", "system"))
import raw_nbd as nbd  # noqa: E402

SIZE = 16 * MIB
AT = {"small": "0000:00:05.0", "large": "0000:00:06.0", "broken": "0000:00:07.0",
      "slow": "0000:00:08.0", "unplugged": "0000:01:00.0"}
# The drive "broken" fails reads and writes of these blocks of 512 bytes.
BAD_READ, BAD_WRITE = 2048, 4096

VOLUME = """
[[blockd.volume]]
name = "{name}"
nvme = "{at}"
buffer_bytes = "33 MiB"
{more}
"""
MORE = {"slow": "nvme_timeout_ms = 500", "small": 'nvme_write_cache = "on"',
        "large": 'nvme_write_cache = "off"\nnvme_queue_depth = 7'}
CONFIGURATION = smallest("a", pool="256 MiB", sockets="io_uring", in_pool='pages = "2 MiB"', more="""
[blockd]
listen = ["tcp:127.0.0.1:10809"]
image_listen = ["tcp:10.0.2.15:10809"]
plain_text = "allowed"
max_connections = 4
""" + "".join(VOLUME.format(name=name, at=at, more=MORE.get(name, "")) for name, at in AT.items())
                         + """
[[network]]
interface = "eth0"
driver = "virtio_net"
address = "10.0.2.15/24"
gateway = "10.0.2.2"
""")


def drives(work):
    """QEMU's options for all of AT, on files of `work`."""
    options = f"{IOMMU.format(bits=48)} -device pcie-root-port,id=plug,addr=9,chassis=1".split()

    def file_of(name):
        path = os.path.join(work, name)
        with open(path, "wb") as file:
            file.truncate(SIZE)
        return {"driver": "file", "filename": path}

    nodes = {
        "small": {"driver": "raw", "file": file_of("small")},
        "large": {"driver": "raw", "file": file_of("large")},
        "broken": {"driver": "blkdebug", "image": file_of("broken"), "inject-error": [
            {"event": "none", "iotype": "read", "sector": BAD_READ, "errno": 5},
            {"event": "none", "iotype": "write", "sector": BAD_WRITE, "errno": 5}]},
        "slow": {"driver": "throttle", "throttle-group": "limits", "file": file_of("slow")},
        "unplugged": {"driver": "raw", "file": file_of("unplugged")},
    }
    options += ["-object", "throttle-group,id=limits"]
    for name, node in nodes.items():
        slot = "bus=plug" if name == "unplugged" else f"addr={AT[name][8:10]}"
        blocks = ",logical_block_size=4096,physical_block_size=4096" if name == "large" else ""
        options += ["-blockdev", json.dumps({**node, "node-name": name}),
                    "-device", f"nvme,id={name},serial={name},drive={name},{slot}{blocks}"]
    return options


def wait_for(condition, what, seconds=90):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(f"no {what} after {seconds} s")
        time.sleep(0.05)


# ---- In an image ----


def content(path):
    with open(path, "rb") as file:
        return file.read()


def copies_and_odd_requests(machine, name, work, look):
    """The requests that the conformance clients send to every store; `look` returns its content."""
    uri = f"nbd://127.0.0.1:{machine.port}/{name}"
    export = json.loads(run("nbdinfo", "--json", uri))["exports"][0]
    if (export["export-size"], export["can_multi_conn"], export["can_fua"]) != (SIZE, True, True):
        raise Failure(f"nbdinfo sees {export}")
    there, back = (os.path.join(work, f"{name}.{end}") for end in ("there", "back"))
    with open(there, "wb") as file:
        file.write(os.urandom(SIZE))
    run("nbdcopy", "--flush", there, uri)
    run("nbdcopy", uri, back)
    wanted = bytearray(content(there))
    if content(back) != wanted:
        raise Failure(f"{name}: what was read is not what was written")
    odd = ["write -P 0xab 1000 70001", "read -P 0xab 1000 70001", "write -z 3000000 1000001",
           "write -z -u 5000000 1000001", "discard 8M 1M", "write -f -P 0xcd 9999999 3",
           "read -P 0xcd 9999999 3", "flush"]
    done = run("qemu-io", "-f", "raw", *(word for each in odd for word in ("-c", each)), uri)
    if "failed" in done:
        raise Failure(f"{name}: {done}")
    wanted[1000:71001] = b"\xab" * 70001
    wanted[3000000:4000001] = bytes(1000001)
    wanted[5000000:6000001] = bytes(1000001)
    wanted[9999999:10000002] = b"\xcd" * 3
    seen = bytearray(look())
    for each in (seen, wanted):
        each[8 * MIB:9 * MIB] = bytes(MIB)  # the drive decides the content after a trim
    if seen != wanted:
        raise Failure(f"{name}: the store has something else")
    run("fio", "--name=v", f"--output={work}/f.txt", "--ioengine=nbd", f"--uri={uri}",
        "--rw=randwrite", "--bs=5k", "--iodepth=16", "--size=2M", "--verify=crc32c",
        "--do_verify=1", "--verify_fatal=1", "--verify_state_save=0")


def client_of(machine, name):
    return nbd.RawClient(("127.0.0.1", machine.port)).greet().go(name)


def expect_error(client, error, *request, **options):
    seen = client.error(*request, **options)
    if seen != error:
        raise Failure(f"the error of {request} is {seen}; expected {error}")


def errors_of_one_request(machine):
    with client_of(machine, "broken") as client:
        client.verify("before")
        expect_error(client, nbd.EIO, nbd.READ, BAD_READ * 512, 512)
        expect_error(client, nbd.EIO, nbd.READ, BAD_READ * 512 - 4096, MIB)
        expect_error(client, nbd.EIO, nbd.WRITE, BAD_WRITE * 512, payload=bytes(512))
        client.write((BAD_WRITE + 1) * 512, nbd.pattern("beside", 4096), nbd.FLAG_FUA)
        expect_error(client, 0, nbd.FLUSH)
        client.verify("after")


def limit_slow(machine, per_second):
    limits = {f"{kind}-{what}": 0 for kind in ("iops", "bps") for what in ("read", "write")}
    machine.command("qom-set", path="/objects/limits", property="limits",
                    value={**limits, "iops-total": per_second})


def answers_that_come_too_late(machine):
    """Answers are delayed, not withheld: QEMU's Abort aborts nothing, and its reset lets them
    through."""
    with client_of(machine, "slow") as client, client_of(machine, "small") as other:
        client.verify("before")
        limit_slow(machine, 1)
        seen = len(machine.lines)
        cookies = {client.request(nbd.READ, 4096 * i, 512) for i in range(20)}
        machine.expect(rf"the NVMe drive {AT['slow']} neither answers a command nor aborts it: it "
                       r"is being reset, ", after=seen)
        other.verify("meanwhile")
        errors = {client.reply().error for _ in cookies}  # some answers pass the reset
        if not errors <= {0, nbd.EIO}:
            raise Failure(f"the errors of requests are {errors}")
        limit_slow(machine, 0)
        machine.expect(rf"the NVMe drive {AT['slow']} is ready again$", after=seen)
        client.verify("after")
        expect_error(client, 0, nbd.FLUSH)


def one_that_is_unplugged(machine):
    with client_of(machine, "unplugged") as client, client_of(machine, "small") as other:
        client.verify("before")
        machine.command("device_del", id="unplugged")
        machine.expect(rf"the NVMe drive {AT['unplugged']} was taken back by the kernel: its volumes "
                       r"answer EIO$")
        for request in ((nbd.READ, 0, 4096), (nbd.FLUSH,)):
            expect_error(client, nbd.EIO, *request)
        expect_error(client, nbd.EIO, nbd.WRITE, 0, payload=bytes(4096))
        other.verify("meanwhile")
        wait_for(lambda: machine.has_event("DEVICE_DELETED"), "end of the device in QEMU")
        expect_error(client, nbd.EIO, nbd.READ, 0, 4096)


@contextlib.contextmanager
def ready_machine(work, configuration, devices):
    """An image of `configuration`, ready on a machine with these devices; drains at the end."""
    config = os.path.join(work, "a.toml")
    with open(config, "w", encoding="utf-8") as file:
        file.write(configuration)
    with Image(config, options=("--level", "1")) as image, \
            Machine(image.path, *devices, KERNEL=VMLINUX, APPEND="intel_iommu=on",
                    MEMORY_MIB="1024") as machine:
        machine.expect_ready()
        yield machine
        machine.press_ctrl_alt_delete()
        machine.expect_lines(r"the machine ends: reboot$", r"reboot: Restarting system")
        if any("not drained" in line for line in machine.lines):
            raise Failure("it did not drain")


def drives_in_an_image():
    """The first process binds the drives to vfio-pci. Clients use good and bad drives."""
    with tempfile.TemporaryDirectory() as work:
        with ready_machine(work, CONFIGURATION, drives(work)) as machine:
            for name in ("small", "large"):
                copies_and_odd_requests(machine, name, work,
                                        lambda path=os.path.join(work, name): content(path))
            errors_of_one_request(machine)
            answers_that_come_too_late(machine)
            one_that_is_unplugged(machine)


TWO_SHARDS = """
[[shard]]
name = "other"
cpu = 1

[blockd]
listen = ["tcp:127.0.0.1:10809"]
image_listen = ["tcp:10.0.2.15:10809"]
plain_text = "allowed"
max_connections = 16
volumes_shards = ["main", "other"]
{volumes}
[[network]]
interface = "eth0"
driver = "virtio_net"
address = "10.0.2.15/24"
gateway = "10.0.2.2"
"""


def on_two_shards(pool, *volumes):
    """An appliance with `volumes`: a name, the address of a drive, more keys."""
    text = "".join(VOLUME.format(name=name, at=at, more=more) for name, at, more in volumes)
    return smallest("a", pool=pool, sockets="io_uring", in_pool='pages = "2 MiB"',
                    more=TWO_SHARDS.format(volumes=text))


FAR, NEAR = "0000:81:00.0", "0000:00:05.0"
TWO_NODES = on_two_shards("256 MiB", ("far", FAR, ""), ("near", NEAR, ""))


def a_volume_lives_on_the_node_of_its_drive():
    """The first drive is at the second node, where the second shard is. The machine does not report
    the node of the other drive."""
    nodes = [option for node in range(2) for option in
             ("-object", f"memory-backend-ram,id=memory{node},size=512M",
              "-numa", f"node,nodeid={node},memdev=memory{node},cpus={node}")]
    with tempfile.TemporaryDirectory() as work:
        options = IOMMU.format(bits=48).split()
        options += ["-device", "pxb-pcie,id=second,bus_nr=128,numa_node=1",
                    "-device", "pcie-root-port,id=plug,bus=second,chassis=2"]
        for name, slot in (("far", "bus=plug"), ("near", "bus=pcie.0,addr=5")):
            path = os.path.join(work, name)
            with open(path, "wb") as file:
                file.truncate(SIZE)
            options += ["-blockdev", json.dumps({"driver": "raw", "node-name": name, "file": {
                            "driver": "file", "filename": path}}),
                        "-device", f"nvme,id={name},serial={name},drive={name},{slot}"]
        with ready_machine(work, TWO_NODES, nodes + options) as machine:
            for name, node in (("far", 1), ("near", 0)):
                machine.expect(rf"volume:{name}: \S+ \S+ in pages of 2 MiB on node {node}$")
            machine.expect(r"nvme:shard-1: .* on node 1$")
            for name in ("far", "near"):
                copies_and_odd_requests(machine, name, work,
                                        lambda path=os.path.join(work, name): content(path))


# Drives with two namespaces each, and the tables of the volumes on them.
SHARED = {"pair": "0000:00:05.0", "few": "0000:00:06.0", "gone": "0000:01:00.0"}
SHARDS = ("main", "other")
PAIRS = on_two_shards("448 MiB", *(
    (f"{name}{number}", at, f'nvme_namespace = {number}\nshard = "{shard}"\n'
     + ("nvme_timeout_ms = 500" if name == "pair" else ""))
    for name, at in SHARED.items() for number, shard in enumerate(SHARDS, 1)))


def shared_drives(work):
    """QEMU's options for all drives of SHARED. "few" has one queue pair; "pair" can be slowed
    down."""
    options = f"{IOMMU.format(bits=48)} -device pcie-root-port,id=plug,addr=9,chassis=1".split()
    options += ["-object", "throttle-group,id=limits"]
    for name, at in SHARED.items():
        slot = "bus=plug" if name == "gone" else f"addr={at[8:10]}"
        few = ",max_ioqpairs=1,msix_qsize=2" if name == "few" else ""
        options += ["-device", f"nvme,id={name},serial={name},{slot}{few}"]
        for number in (1, 2):
            volume = f"{name}{number}"
            path = os.path.join(work, volume)
            with open(path, "wb") as file:
                file.truncate(SIZE)
            options += ["-blockdev", json.dumps({
                "driver": "throttle", "throttle-group": "limits", "node-name": volume,
                "file": {"driver": "file", "filename": path}} if name == "pair" else {
                "driver": "raw", "node-name": volume,
                "file": {"driver": "file", "filename": path}}),
                        "-device", f"nvme-ns,bus={name},drive={volume},nsid={number}"]
    return options


def copies_at_once(machine, name, work):
    """The clients of both volumes of a drive, each on its shard, run together."""
    with concurrent.futures.ThreadPoolExecutor(2) as both:
        for done in [both.submit(copies_and_odd_requests, machine, volume, work,
                                 lambda path=os.path.join(work, volume): content(path))
                     for volume in (f"{name}1", f"{name}2")]:
            done.result()


def a_reset_with_requests_of_two_shards(machine):
    """A drive is late with the commands of both shards. It is reset, and each request ends once."""
    with client_of(machine, "pair1") as first, client_of(machine, "pair2") as second, \
            client_of(machine, "few2") as other:
        both = (first, second)
        for client in both:
            client.verify("before")
        limit_slow(machine, 1)
        seen = len(machine.lines)
        cookies = [{client.request(nbd.READ, 4096 * i, 512) for i in range(20)} for client in both]
        machine.expect(rf"the NVMe drive {SHARED['pair']} neither answers a command nor aborts it: "
                       r"it is being reset, ", after=seen)
        other.verify("meanwhile")
        for client, wanted in zip(both, cookies):
            replies = [client.reply() for _ in wanted]
            if {reply.cookie for reply in replies} != wanted:
                raise Failure("a request was answered twice, or not at all")
            if not {reply.error for reply in replies} <= {0, nbd.EIO}:
                raise Failure(f"the errors of requests are {[reply.error for reply in replies]}")
        limit_slow(machine, 0)
        machine.expect(rf"the NVMe drive {SHARED['pair']} is ready again$", after=seen)
        for client in both:
            client.verify("after")
            expect_error(client, 0, nbd.FLUSH)


def volumes_of_one_drive_on_two_shards():
    """Each shard has a queue pair of a drive. One drive grants fewer, one is reset, and one is
    unplugged."""
    with tempfile.TemporaryDirectory() as work:
        with ready_machine(work, PAIRS, shared_drives(work)) as machine:
            machine.expect(rf"the NVMe drive {SHARED['few']} grants queues for 1 of 2 shards: its "
                           r"volumes are on main$")
            if any("grants" in line and SHARED["few"] not in line for line in machine.lines):
                raise Failure("another drive is said to grant fewer")
            for name in SHARED:
                copies_at_once(machine, name, work)
            a_reset_with_requests_of_two_shards(machine)
            with client_of(machine, "gone1") as first, client_of(machine, "gone2") as second:
                first.verify("before")
                machine.command("device_del", id="gone")
                machine.expect(rf"the NVMe drive {SHARED['gone']} was taken back by the kernel: its "
                               r"volumes answer EIO$")
                for client in (first, second):
                    expect_error(client, nbd.EIO, nbd.READ, 0, 4096)
                    expect_error(client, nbd.EIO, nbd.WRITE, 0, payload=bytes(4096))
                wait_for(lambda: machine.has_event("DEVICE_DELETED"), "end of the device in QEMU")
                expect_error(second, nbd.EIO, nbd.READ, 0, 4096)


# ---- Messages before the boot, and counters ----

BEGIN = SERVE + r"""
echo 160 > /proc/sys/vm/nr_hugepages
pci=/sys/bus/pci
configure() {
  cat > /tmp/a.toml << END
""" + smallest("a", pool="160 MiB", sockets="io_uring", in_pool='pages = "2 MiB"',
             more=ONE_VOLUME.format(store="$1")) + r"""END
}
look() { configure "$1"; echo "== look $1"; /bedplate check /tmp/a.toml 2>&1; echo == exit $?; }
"""
# Two namespaces on one controller, the second with metadata.
GUEST_DRIVES = (
    "-blockdev driver=null-co,read-zeroes=on,size=16777216,node-name=one "
    "-blockdev driver=null-co,read-zeroes=on,size=16777216,node-name=two "
    "-blockdev driver=raw,file.driver=file,file.filename={file},node-name=three "
    "-device nvme,id=first,serial=first,addr=5 -device nvme-ns,drive=one,bus=first,nsid=1 "
    "-device nvme-ns,drive=two,bus=first,nsid=2,ms=8 "
    "-device nvme,serial=second,drive=three,addr=6")
FIRST, SECOND = "0000:00:05.0", "0000:00:06.0"


def what_is_wrong_is_said_and_what_is_done_is_counted():
    """Runs the printed cure, then each refusal, then an appliance under load with its counters, a
    kill, and another appliance."""
    script = BEGIN + f"""
look 'nvme = "{SECOND}"'
/bedplate check /tmp/a.toml 2>&1 | sed -n 's/.* does; //p' > /tmp/cure; sh /tmp/cure
echo vfio-pci > $pci/devices/{FIRST}/driver_override
echo {FIRST} > $pci/devices/{FIRST}/driver/unbind; echo {FIRST} > $pci/drivers_probe
look 'nvme = "0000:00:1e.0"'
look 'nvme = "{FIRST}"
nvme_namespace = 3'
look 'nvme = "{FIRST}"
nvme_namespace = 2'
look 'nvme = "{FIRST}"
bytes = "17 MiB"'
look 'nvme = "{SECOND}"'
head -c 4194304 /dev/urandom > /tmp/random
left() {{ /bedplate stats --json a | sed -n 's/.*"mappings_left": //p'; }}
serve a
echo == before $(left)
/usr/bin/nbdcopy --flush /tmp/random 'nbd+unix:///disk?socket=/tmp/socket'
/usr/bin/nbdcopy 'nbd+unix:///disk?socket=/tmp/socket' /tmp/back
head -c 4194304 /tmp/back | cmp - /tmp/random; echo == same $?
echo == after $(left)
echo == stats; /bedplate stats --json a
/bedplate plan /tmp/a.toml | grep nvme
kill -KILL $a; wait $a
/bedplate check /tmp/a.toml; echo == after a kill $?
serve a
kill -TERM $a; wait $a; echo == ended $?; cat /tmp/a.log
"""
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(SIZE)
        guest = Guest("/bin/sh", "-c", script, modules="vfio_iommu_type1 vfio_pci nvme",
                      append="intel_iommu=on", files=shutil.which("nbdcopy"), seconds=180,
                      qemu=f"{IOMMU.format(bits=48)} {GUEST_DRIVES.format(file=file.name)}")
    guest.expect_exit(0)
    wanted = [rf"checking who drives {SECOND}: the kernel's nvme does; echo vfio-pci > ",
              r"looking for the PCI device 0000:00:1e\.0: there is none at this address; ",
              rf"checking namespace 3 of the NVMe drive {FIRST}: it has no such namespace; ",
              rf"checking namespace 2 of the NVMe drive {FIRST}: it has its blocks formatted with "
              r"metadata; format it without",
              rf"checking namespace 1 of the NVMe drive {FIRST} for volume disk: it has 16777216 "
              r'bytes, fewer than "bytes"; lower',
              None]
    guest.expect_refusals(wanted)
    guest.expect(r"^== same 0$")
    before, after = (guest.expect(rf"^== {when} (\d+),?$").group(1) for when in ("before", "after"))
    if before != after:
        raise Failure(f"{before} mappings are left before the load, {after} after it")
    counters = json.loads(guest.expect(r"== stats\n(\{[\s\S]*?^\})").group(1))
    drive = counters["services"]["blockd"]["nvme"][SECOND]
    queue = counters["services"]["blockd"]["nvme_queues"][f"{SECOND}/1"]
    seen = {key: drive[key] for key in ("state", "resets", "media_errors")}
    seen |= {key: queue[key] for key in ("errors", "timeouts", "bad_completions",
                                         "commands_outstanding")}
    if seen != {"state": "ready", "errors": 0, "timeouts": 0, "resets": 0, "bad_completions": 0,
                "commands_outstanding": 0, "media_errors": 0}:
        raise Failure(f"the counters say {seen}\n{guest.output}")
    if queue["commands"] < 16 or not 250 < drive["temperature_kelvin"] < 400:
        raise Failure(f"the counters say {drive} and {queue}")
    if counters["pool"]["registrations_after_seal"] != 0:
        raise Failure("something was registered after the seal")
    guest.expect(rf"nvme:{SECOND}")
    guest.expect(r"^== after a kill 0$")
    guest.expect(r"^== ended 0$")


TESTS = [drives_in_an_image, a_volume_lives_on_the_node_of_its_drive,
         volumes_of_one_drive_on_two_shards,
         what_is_wrong_is_said_and_what_is_done_is_counted]


if __name__ == "__main__":
    sys.exit(run_tests(TESTS))
