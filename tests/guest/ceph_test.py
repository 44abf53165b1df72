#!/usr/bin/python3
"""Volumes on images of a Ceph cluster: a real cluster of local processes.

    /usr/bin/python3 tests/guest/ceph_test.py [PATTERN...]

Patterns and the last line are those of guest_test.py. In one virtual machine, which boots an image,
there are one writable volume and two that read one image. Local clients use them while OSDs are
killed, restarted with their data, and stopped.
Another machine checks the messages of the preflight, before memory is taken.
"""

import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from ceph_cluster import CARD, CLUSTER_AT, GUEST_AT, OSD_COUNT, Cluster
from configuration import ONE_VOLUME, SERVE, smallest
from guest_test import Guest
from image import VMLINUX, Image
from machine import ROOT, Machine
from nvme_test import SIZE, client_of, copies_and_odd_requests
from runner import Failure, run_tests

sys.path.insert(0, os.path.join(ROOT, "tests", "system"))
import raw_nbd as nbd  # noqa: E402

CEPH = """
[blockd.ceph]
monitors = ["tcp:{at}:{port}"]
user = "{user}"
keyring = "{keyring}"
timeout_s = {timeout}
"""
CONFIGURATION = """
[blockd]
listen = ["tcp:127.0.0.1:10809"]
image_listen = ["tcp:10.0.2.15:10809"]
plain_text = "allowed"
max_connections = 4
{ceph}
[[blockd.volume]]
name = "disk"
rbd = "rbd/disk"
buffer_bytes = "33 MiB"
[[blockd.volume]]
name = "reader"
rbd = "rbd/reader"
read_only = true
buffer_bytes = "33 MiB"
[[blockd.volume]]
name = "second"
rbd = "rbd/reader"
rbd_timeout_s = 60
read_only = true
buffer_bytes = "33 MiB"
[[blockd.volume]]
name = "ram0"
bytes = "8 MiB"
[http]
listen = ["tcp:127.0.0.1:9464"]
image_listen = ["tcp:{guest}:9464"]
token_file = "{token}"
plain_text = "allowed"
[[network]]
interface = "eth0"
driver = "virtio_net"
address = "10.0.2.15/24"
gateway = "10.0.2.2"
[[network]]
interface = "eth1"
driver = "virtio_net"
address = "{guest}/24"
"""
BLOCK = 4096
TOKEN = "0123456789abcdef" * 4
# How long all OSDs are stopped.
STOP_SECONDS = int(os.environ.get("CEPH_STOP_SECONDS", "30"))


@contextlib.contextmanager
def a_cluster():
    """Yields a cluster, and a directory for files that an image includes. An image must not mount
    anything on that directory, so it is not below /tmp."""
    # Called before the cluster's network replaces this one, because it may download.
    subprocess.run([os.path.join(ROOT, "scripts", "image", "kernel.sh")], check=True)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as work, Cluster(work) as cluster:
        yield cluster, work


def write(path, text, mode=0o600):
    with open(path, "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)


def create_image(cluster, name, features="layering,exclusive-lock"):
    cluster.rbd("create", "--size", f"{SIZE >> 20}M", "--image-feature", features, f"rbd/{name}")


def content_of_image(cluster, work, name):
    path = os.path.join(work, f"{name}.export")
    cluster.rbd("export", "--no-progress", f"rbd/{name}", path)
    with open(path, "rb") as file:
        data = file.read()
    os.unlink(path)
    return data


class Traffic:
    """A client that writes its own blocks and knows the acknowledged ones."""

    def __init__(self, machine):
        self._machine = machine
        self._wanted = {}
        self.acknowledged = 0
        self._failure = None
        self._ends = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ends = True
        self._thread.join(120)

    def _run(self):
        try:
            with client_of(self._machine, "disk") as client:
                while not self._ends:
                    number = self.acknowledged
                    at = (number * 37 % (SIZE // BLOCK)) * BLOCK
                    payload = nbd.pattern(f"block {number}", BLOCK)
                    self._wanted[at] = payload
                    client.write(at, payload, nbd.FLAG_FUA if number % 4 == 0 else 0)
                    if client.read(at, BLOCK) != payload:
                        raise Failure(f"block {number} reads as something else")
                    self.acknowledged += 1
        except BaseException as error:  # reported by the test's own thread
            self._failure = error

    def expect_more(self, count):
        """Waits until `count` more writes are acknowledged."""
        wanted = self.acknowledged + count
        Cluster.wait_for(lambda: self._failure or self.acknowledged >= wanted, "more writes")
        if self._failure:
            raise Failure("the client failed") from self._failure

    def expect_all(self, data):
        for at, payload in self._wanted.items():
            if data[at:at + BLOCK] != payload:
                raise Failure(f"the block at {at} is lost")


def osds_are_killed_and_come_back(cluster, machine, work):
    """OSDs are killed one after the other, then all at once, so that no other OSD has their data.
    Nothing is lost, and service continues."""
    with Traffic(machine) as traffic:
        traffic.expect_more(20)
        for number in (0, 1):
            cluster.kill_osd(number)
            cluster.wait_for(lambda: cluster.osds_up() == OSD_COUNT - 1, "OSD that is seen down")
            traffic.expect_more(100)
            cluster.start_osd(number)
            cluster.wait_for(cluster.is_clean, "cluster that is clean under traffic")
            traffic.expect_more(20)
        for number in range(OSD_COUNT):
            cluster.kill_osd(number)
        for number in range(OSD_COUNT):
            cluster.start_osd(number)
        cluster.wait_for(cluster.is_clean, "cluster that is clean after all were killed")
        traffic.expect_more(20)
        cluster.kill_osd(2)
        traffic.expect_more(100)
    with client_of(machine, "disk") as client:
        if client.error(nbd.FLUSH) != 0:
            raise Failure("FLUSH fails")
    traffic.expect_all(content_of_image(cluster, work, "disk"))


def readers_share_an_image(machine):
    for name in ("reader", "second"):
        with client_of(machine, name) as client:
            if client.read(0, BLOCK) != b"R" * BLOCK:
                raise Failure(f"{name} has other bytes")
            if client.error(nbd.WRITE, 0, payload=bytes(BLOCK)) != nbd.EPERM:
                raise Failure(f"{name}, which is read only, was written to")


def silent_seconds(volume):
    """The silent seconds of the volume's store, from the appliance's metrics."""
    asked = urllib.request.Request(f"http://{GUEST_AT}:9464/metrics",
                                   headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        text = answer.read().decode()
    seen = re.search(rf'^bedplate_blockd_stores_silent_seconds{{stores="{volume}"}} (\S+)$', text,
                     re.MULTILINE)
    if seen is None:
        raise Failure(f"{volume} has no such metric")
    return float(seen.group(1))


def all_osds_are_stopped(cluster, machine, work):
    """While all OSDs are stopped, requests wait, the counters show it, and other volumes continue.
    Then all requests continue."""
    seen = len(machine.lines)
    with Traffic(machine) as traffic, client_of(machine, "ram0") as other:
        traffic.expect_more(5)
        with cluster.stopped(cluster.osds()):
            cluster.wait_for(lambda: silent_seconds("disk") > 3, "silence")
            before = traffic.acknowledged
            machine.expect(r"the Ceph image rbd/disk has completed none of [1-9]\d* operations for "
                           "5 s: clients of volume disk are waiting$", after=seen)
            while silent_seconds("disk") < STOP_SECONDS:
                other.verify("meanwhile")
                time.sleep(0.5)
            if traffic.acknowledged != before:
                raise Failure("writes were acknowledged that no OSD can have")
        traffic.expect_more(50)
        machine.expect("the Ceph image rbd/disk answers again$", after=seen)
    traffic.expect_all(content_of_image(cluster, work, "disk"))


def a_cluster_serves_an_image():
    """Conformance, OSDs that are killed and come back, all of them stopped, and an end that leaves
    nothing mapped."""
    with a_cluster() as (cluster, work):
        create_image(cluster, "disk")
        content = os.path.join(work, "content")
        write(content, "R" * BLOCK)
        os.truncate(content, SIZE)
        cluster.rbd("import", "--no-progress", content, "rbd/reader")
        config, token = os.path.join(work, "a.toml"), os.path.join(work, "token")
        write(token, TOKEN + "\n")
        os.chmod(token, 0o600)
        write(config, smallest(
            "a", pool="256 MiB", sockets="io_uring", in_pool='pages = "2 MiB"',
            more=CONFIGURATION.format(guest=GUEST_AT, token=token, ceph=CEPH.format(
                at=CLUSTER_AT, port=6789, user="appliance", keyring=cluster.keyring, timeout=60))))
        with Image(config, options=("--level", "1")) as image, \
                Machine(image.path, *CARD, KERNEL=VMLINUX, MEMORY_MIB="1024") as machine:
            machine.expect_ready()
            copies_and_odd_requests(machine, "disk", work,
                                    lambda: content_of_image(cluster, work, "disk"))
            readers_share_an_image(machine)
            osds_are_killed_and_come_back(cluster, machine, work)
            all_osds_are_stopped(cluster, machine, work)
            machine.press_ctrl_alt_delete()
            machine.expect_lines(r"the machine ends: reboot$", r"reboot: Restarting system")
            if any("not drained" in line or "unmapping" in line for line in machine.lines):
                raise Failure("it did not drain")
        for name in ("disk", "reader"):
            status = cluster.rbd("status", f"rbd/{name}")
            if "Watchers: none" not in status:
                raise Failure(f"it is still mapped: {status}")


# ---- Messages before anything is taken ----

SILENT_PORT = 6799
BEGIN = SERVE + r"""
ip link set lo up; ip addr add """ + GUEST_AT + r"""/24 dev eth0; ip link set eth0 up
echo 160 > /proc/sys/vm/nr_hugepages
configure() {  # IMAGE USER KEYRING ADDRESS PORT
  cat > /tmp/a.toml << END
""" + smallest("a", pool="160 MiB", sockets="io_uring", in_pool='pages = "2 MiB"',
               more=ONE_VOLUME.format(store='rbd = "$1"') + CEPH.format(
                   at="$4", port="$5", user="$2", keyring="$3", timeout="$6")) + r"""END
}
look() { configure "$@"; echo "== look $*"; /bedplate check /tmp/a.toml 2>&1; echo == exit $?; }
mapped() { ls /sys/bus/rbd/devices | wc -l; }
"""
MAPPING = "mapping the Ceph image {} as client.appliance: "
READING, ASKING = "reading the key of client.{} in {}: ", "asking the Ceph monitors .*: "
# Each look: the arguments that differ from the good ones, and the problem reported (None: none).
LOOKS = [
    ({}, None),
    ({"image": "rbd/none"}, MAPPING.format("rbd/none") + "there is no such pool, or no such image"),
    ({"image": "none/disk"}, MAPPING.format("none/disk") + "there is no such pool, or no such"),
    ({"keyring": "/keys/wrong"}, MAPPING.format("rbd/disk") + "the cluster refuses the key"),
    ({"user": "other"}, READING.format("other", "/keys/good") + r"it has no \[client.other\]"),
    ({"keyring": "/keys/open"}, READING.format("appliance", "/keys/open") +
     "users other than its owner can read or write it .mode 0644.; chmod 600 /keys/open"),
    ({"port": 6790}, ASKING + "Connection refused; check that they run"),
    ({"port": SILENT_PORT, "timeout": 3}, ASKING + "none answered within 3 s"),
    ({"port": 3300}, ASKING +
     "a monitor speaks protocol v2 there, but the kernel's client needs v1; "),
    ({"image": "rbd/locked"}, MAPPING.format("rbd/locked") + "another client has locked it"),
    ({"image": "rbd/without", "timeout": 10}, MAPPING.format("rbd/without") +
     "Invalid argument; enable the lock that a writable image needs"),
    ({"image": "rbd/journal"}, MAPPING.format("rbd/journal") + "the image has features that this"),
    ({"before": "rmmod rbd"}, MAPPING.format("rbd/disk") + "the kernel's module rbd is not loaded"),
]


def look(image="rbd/disk", user="appliance", keyring="/keys/good", at=CLUSTER_AT, port=6789,
         timeout=60, before=":"):
    return f"{before}\nlook {image} {user} {keyring} {at} {port} {timeout}\n"


def what_is_wrong_is_said_in_one_line():
    """Each refusal by the real kernel and cluster, runs that end cleanly and by a kill, and two
    appliances that read one image."""
    script = BEGIN + "".join(look(**each) for each, _ in LOOKS[:-1]) + """
echo == mapped $(mapped)
configure rbd/disk appliance /keys/good """ + f"{CLUSTER_AT}" + """ 6789 60
serve a; echo == mapped $(mapped); kill -TERM $a; wait $a; echo == ended $?
echo == mapped $(mapped); cat /tmp/a.log
serve a; kill -KILL $a; wait $a
until [ $(mapped) -eq 0 ]; do sleep 0.1; done; echo == nothing is left
sed -i 's/^rbd = /read_only = true\\n&/' /tmp/a.toml
sed 's/"a"/"b"/; s,/tmp/socket,/tmp/other,' /tmp/a.toml > /tmp/b.toml
serve a; /bedplate check /tmp/b.toml 2>&1; echo == beside $?; echo == mapped $(mapped)
serve b
cat /tmp/b.log; echo == mapped $(mapped); kill -TERM $a; wait $a
echo == mapped $(mapped); kill -TERM $b; wait $b; echo == ended $?; echo == mapped $(mapped)
""" + look(**LOOKS[-1][0])
    with a_cluster() as (cluster, work), socket.create_server((CLUSTER_AT, SILENT_PORT)):
        for name in ("disk", "locked"):
            create_image(cluster, name)
        create_image(cluster, "without", "layering")
        create_image(cluster, "journal", "layering,exclusive-lock,journaling")
        cluster.rbd("lock", "add", "rbd/locked", "somebody")
        with open(cluster.keyring, encoding="ascii") as file:
            good = file.read()
        key = good.split()[-1]
        wrong, is_open = os.path.join(work, "wrong"), os.path.join(work, "open")
        write(wrong, good.replace(key, cluster.run("ceph-authtool", "--gen-print-key").strip()))
        write(is_open, good)
        files = f"{cluster.keyring}=/keys/good {wrong}=/keys/wrong {is_open}=/keys/open"
        guest = Guest("/bin/sh", "-c", "chmod 600 /keys/*; chmod 644 /keys/open\n" + script,
                      modules="rbd virtio_net", files=files, seconds=240, qemu=" ".join(CARD))
    guest.expect_exit(0)
    looks = [each.split("\n== exit ") for each in guest.output.split("== look ")[1:]]
    if len(looks) != len(LOOKS):
        raise Failure(f"{len(looks)} looks; expected {len(LOOKS)}\n{guest.output}")
    for (said, rest), (asked, pattern) in zip(looks, LOOKS):
        problems = re.findall(r"^bedplate: (.*)$", said, re.MULTILINE)
        good = rest[0] == "0" if pattern is None else (
            rest[0] == "1" and len(problems) == 1 and re.match(pattern, problems[0]))
        if not good:
            raise Failure(f"{asked}: expected {pattern!r}\n{guest.output}")
    if re.findall(r"^== mapped (\d)$", guest.output, re.MULTILINE) != list("0101210"):
        raise Failure(f"it is mapped at another time\n{guest.output}")
    if re.findall(r"^== ended (\d+)$", guest.output, re.MULTILINE) != ["0", "0"]:
        raise Failure(f"not both ended well\n{guest.output}")
    guest.expect(r"^== nothing is left$")
    guest.expect(r"^== beside 0$")


TESTS = [a_cluster_serves_an_image, what_is_wrong_is_said_in_one_line]


if __name__ == "__main__":
    sys.exit(run_tests(TESTS))
