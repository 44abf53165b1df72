"""A Ceph cluster of local processes, in a network of the test's own with an interface for a virtual
machine: one monitor, one manager, and OSDs that store everything in files.
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid

from runner import Failure, Skip

CLUSTER_AT, GUEST_AT = "10.77.0.1", "10.77.0.2"
OSD_COUNT = 3
TAP = "tap0"
START_SECONDS = 180
CLONE_NEWNET = 0x40000000
PROGRAMS = ("ceph", "ceph-mon", "ceph-mgr", "ceph-osd", "ceph-authtool", "monmaptool", "rbd")

# Two of three copies suffice for the service, and one OSD may fail without notice.
CEPH_CONF = """
[global]
fsid = {fsid}
mon host = [v2:{at}:3300,v1:{at}:6789]
mon initial members = a
public addr = {at}
keyring = {work}/keyring
run dir = {work}
admin socket = {work}/$name.asok
pid file = {work}/$name.pid
log file = {work}/$name.log
mon data = {work}/mon
mgr data = {work}/mgr
osd data = {work}/osd.$id
osd objectstore = bluestore
bluestore block size = 1073741824
bluestore cache size = 33554432
osd pool default size = 3
osd pool default min size = 2
osd crush chooseleaf type = 0
osd crush update on start = true
osd pool default pg autoscale mode = off
osd pool default pg num = 8
mon data avail crit = 0
mon warn on pool no redundancy = false
mgr initial modules =
osd heartbeat interval = 1
mon osd min down reporters = 1
"""

CAPS = {
    "mon.": {"mon": "allow *"},
    "client.admin": {"mon": "allow *", "osd": "allow *", "mgr": "allow *", "mds": "allow *"},
    "mgr.x": {"mon": "allow profile mgr", "osd": "allow *", "mds": "allow *"},
    "client.appliance": {"mon": "profile rbd", "osd": "profile rbd pool=rbd"},
    **{f"osd.{i}": {"mon": "allow profile osd", "mgr": "allow profile osd", "osd": "allow *"}
       for i in range(OSD_COUNT)},
}


# QEMU's options for a card in the cluster's network, after all other cards of the machine.
CARD = ["-netdev", f"tap,id=wire,ifname={TAP},script=no,downscript=no",
        "-device", "virtio-net-pci,netdev=wire,romfile=,addr=10"]


@contextlib.contextmanager
def own_network():
    """Inside the `with`, this thread and everything that it starts have a network of their own,
    with TAP."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.unshare(CLONE_NEWNET) != 0:
            raise Skip(f"no network namespace: {os.strerror(ctypes.get_errno())}")
        try:
            yield
        finally:
            if libc.setns(before, CLONE_NEWNET) != 0:
                raise Failure(f"setns: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(before)


class Cluster:
    """The cluster runs inside the `with`. `keyrings`: a directory for the keyring of
    client.appliance."""

    def __init__(self, keyrings):
        missing = [name for name in PROGRAMS if shutil.which(name) is None]
        if missing:
            raise Skip(f"no {' '.join(missing)} here")
        self._closing = contextlib.ExitStack()
        self.keyring = os.path.join(keyrings, "ceph.client.appliance.keyring")
        self.daemons = {}

    def __enter__(self):
        try:
            self._work = self._closing.enter_context(tempfile.TemporaryDirectory())
            self._closing.enter_context(own_network())
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.daemons.values():
            process.kill()
            process.wait()
        self._closing.close()

    def run(self, *command, seconds=START_SECONDS):
        finished = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, encoding="utf-8", errors="replace",
                                  check=False, timeout=seconds)
        if finished.returncode != 0:
            raise Failure(f"{' '.join(command)}: exit code {finished.returncode}\n"
                          f"{finished.stdout}{finished.stderr}")
        return finished.stdout

    def ceph(self, *words):
        return self.run("ceph", "--conf", self._conf, "--connect-timeout", "60", *words)

    def rbd(self, *words):
        return self.run("rbd", "--conf", self._conf, *words)

    # ---- Processes ----

    def _start(self):
        for words in ("ip link set lo up", f"ip tuntap add dev {TAP} mode tap",
                      f"ip addr add {CLUSTER_AT}/24 dev {TAP}", f"ip link set {TAP} up"):
            self.run(*words.split())
        fsid = str(uuid.uuid4())
        self._conf = os.path.join(self._work, "ceph.conf")
        with open(self._conf, "w", encoding="ascii") as file:
            file.write(CEPH_CONF.format(fsid=fsid, at=CLUSTER_AT, work=self._work))
        keys = os.path.join(self._work, "keyring")
        for name, caps in CAPS.items():
            words = [word for of, what in caps.items() for word in ("--cap", of, what)]
            self.run("ceph-authtool", *(() if os.path.exists(keys) else ("--create-keyring",)),
                     keys, "--gen-key", "--name", name, *words)
        self._write_keyring(keys)
        monmap = os.path.join(self._work, "monmap")
        self.run("monmaptool", "--create", "--fsid", fsid, "--addv", "a",
                 f"[v2:{CLUSTER_AT}:3300,v1:{CLUSTER_AT}:6789]", monmap)
        self.run("ceph-mon", "--conf", self._conf, "--mkfs", "-i", "a", "--monmap", monmap,
                 "--keyring", keys)
        self.start("ceph-mon", "a")
        os.mkdir(os.path.join(self._work, "mgr"))
        self.start("ceph-mgr", "x")
        for number in range(OSD_COUNT):
            identity = str(uuid.uuid4())
            self.ceph("osd", "new", identity, str(number))
            os.mkdir(os.path.join(self._work, f"osd.{number}"))
            self.run("ceph-osd", "--conf", self._conf, "-i", str(number), "--mkfs", "--osd-uuid",
                     identity)
            self.start("ceph-osd", str(number))
        self.wait_for(lambda: self.osds_up() == OSD_COUNT, "all OSDs up")
        self.ceph("osd", "pool", "create", "rbd", "8")
        self.rbd("pool", "init", "rbd")

    def _write_keyring(self, keys):
        """Writes the keyring like `ceph auth get-or-create ... -o`, readable only by its owner."""
        key = self.run("ceph-authtool", keys, "--name", "client.appliance", "--print-key").strip()
        with open(self.keyring, "w", encoding="ascii",
                  opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(f"[client.appliance]\n\tkey = {key}\n")

    def start(self, program, name):
        log = open(os.path.join(self._work, f"{program}.{name}.out"), "wb")
        with log:
            self.daemons[f"{program}.{name}"] = subprocess.Popen(
                [program, "--conf", self._conf, "-i", name, "-f"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def kill_osd(self, number):
        victim = self.daemons.pop(f"ceph-osd.{number}")
        victim.kill()
        victim.wait()

    def start_osd(self, number):
        """Starts the OSD with the data that it had when it was killed."""
        self.start("ceph-osd", str(number))

    def is_clean(self):
        """Returns whether every OSD is up and has all of its data."""
        seen = json.loads(self.ceph("status", "--format", "json"))
        states = {each["state_name"]: each["count"] for each in seen["pgmap"]["pgs_by_state"]}
        return (seen["osdmap"]["num_up_osds"] == OSD_COUNT and
                states == {"active+clean": seen["pgmap"]["num_pgs"]})

    def osds_up(self):
        return json.loads(self.ceph("osd", "stat", "--format", "json"))["num_up_osds"]

    def osds(self):
        return [process for name, process in self.daemons.items() if name.startswith("ceph-osd")]

    @contextlib.contextmanager
    def stopped(self, processes):
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                process.send_signal(signal.SIGCONT)

    @staticmethod
    def wait_for(condition, what, seconds=START_SECONDS):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise Failure(f"no {what} after {seconds} s")
            time.sleep(0.2)
