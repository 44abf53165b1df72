"""Volumes on files and block devices, with third-party clients: contents, holes, failures, and the
messages before they are opened."""

import contextlib
import errno
import json
import os
import subprocess

from clients_test import copy_there_and_back, disk_image
from fuse_file import FSYNC, READ, WRITE, FuseFile
from harness import (BACKENDS, KIB, LAYOUTS, MIB, Skip, expect, expect_in, expect_true, need_tools,
                     test, to_toml, wait_for)
import raw_nbd as nbd
from raw_nbd import EIO, ENOSPC, EPERM, connect, pattern

SIZE = 64 * MIB
EVERY_VARIANT = {"layout": LAYOUTS, "sockets": BACKENDS}


def make_file(box, name="disk", size=SIZE):
    """Creates a sparse file."""
    with open(box.path(name), "wb") as file:
        file.truncate(size)
    return box.path(name)


def on_store(box, layout="one_shard", sockets="io_uring-or-epoll", key="file", path=None, **volume):
    configuration = box.configuration(layout, sockets)
    path = path or make_file(box)
    configuration["blockd"]["volume"] = [{"name": "disk", key: path, **volume}]
    return configuration


def uri(appliance):
    return appliance.uri(volume="disk")


def client_of(box, appliance, **options):
    return connect(box, appliance, volume="disk", **options)


def content(path):
    with open(path, "rb") as file:
        return file.read()


def extents(path):
    """[(offset, bytes, is data)] as the file system reports them."""
    found, at = [], 0
    fd = os.open(path, os.O_RDONLY)
    size = os.fstat(fd).st_size
    while at < size:
        try:
            data = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            expect(error.errno, errno.ENXIO, "the error of SEEK_DATA")
            data = size
        end = os.lseek(fd, at, os.SEEK_HOLE) if data == at else data
        found.append((at, end - at, data == at))
        at = end
    os.close(fd)
    return found


def stored(appliance, counter, name="disk"):
    return appliance.stats()["services"]["blockd"]["stores"][name][counter]


# ---- Content ----


@test(**EVERY_VARIANT)
def clients_find_what_they_wrote_and_so_does_the_file(box, layout, sockets):
    need_tools("nbdcopy", "qemu-img", "qemu-io", "nbdinfo")
    path = make_file(box)
    appliance = box.appliance(on_store(box, layout, sockets, path=path))
    [export] = json.loads(box.run("nbdinfo", "--json", uri(appliance)).stdout)["exports"]
    expect((export["export-size"], export["can_multi_conn"], export["can_fua"]),
           (SIZE, True, True), "what nbdinfo sees")
    image = disk_image(box)
    copy_there_and_back(box, uri(appliance), image)
    box.run("cmp", image, path)
    odd = ["-c", "write -P 0xab 1000 70001", "-c", "read -P 0xab 1000 70001",
           "-c", "write -z 3000000 1000001", "-c", "write -z -u 5000000 1000001",
           "-c", "discard 8M 1M", "-c", "write -f -P 0xcd 9999999 3", "-c", "flush"]
    done = box.run("qemu-io", "-f", "raw", *odd, uri(appliance))
    expect_true("failed" not in done.stdout + done.stderr, f"qemu-io is content: {done.stdout}")
    wanted = bytearray(content(image))
    wanted[1000:71001] = b"\xab" * 70001
    wanted[3000000:4000001] = bytes(1000001)
    wanted[5000000:6000001] = bytes(1000001)
    wanted[9999999:10000002] = b"\xcd" * 3
    wanted[8 * MIB:9 * MIB] = bytes(MIB)
    expect_true(content(path) == wanted, "the file is as the clients were told")
    appliance.stop()
    box.appliance(on_store(box, layout, sockets, path=path))
    expect_true(client_of(box, box.appliances[-1]).read(0, 32 * MIB) == wanted[:32 * MIB],
                "the next appliance finds it")


@test(**EVERY_VARIANT, bs=["1k", "4k", "68k"])
def fio_verifies(box, layout, sockets, bs):
    need_tools("fio")
    appliance = box.appliance(on_store(box, layout, sockets))
    box.run("fio", "--name=v", "--output=f.txt", "--ioengine=nbd", f"--uri={uri(appliance)}",
            "--rw=randwrite", f"--bs={bs}", "--iodepth=16", "--size=16M", "--verify=crc32c",
            "--do_verify=1", "--verify_fatal=1", "--verify_state_save=0")
    appliance.stop()


@test(**EVERY_VARIANT)
def nbdinfo_maps_what_the_file_has(box, layout, sockets):
    need_tools("nbdinfo")
    path = make_file(box)
    with open(path, "r+b") as file:
        for at in (0, 1 * MIB, 5 * MIB, 6 * MIB, 63 * MIB):
            file.seek(at)
            file.write(pattern(at, 300 * KIB))
        os.fsync(file.fileno())
    appliance = box.appliance(on_store(box, layout, sockets, path=path))
    for _ in range(2):
        parts = json.loads(box.run("nbdinfo", "--map", "--json", uri(appliance)).stdout)
        seen = [(part["offset"], part["length"], part["type"] == 0) for part in parts]
        expect(seen, extents(path), "the map of the volume")
        expect(len({part["type"] for part in parts}), 2, "kinds of extents")
        expect({part["type"] for part in parts}, {0, 3}, "kinds of extents")
        client_of(box, appliance).write(20 * MIB, pattern("more", 1 * MIB), nbd.FLAG_FUA)
        expect(client_of(box, appliance).error(nbd.TRIM, 5 * MIB, MIB), 0, "a trim")


@test(sockets=BACKENDS)
def largest_and_odd_requests(box, sockets):
    client = client_of(box, box.appliance(on_store(box, sockets=sockets)))
    data = pattern("largest", 32 * MIB)
    client.write(4095, data)
    expect_true(client.read(4095, 32 * MIB) == data, "32 MiB at an odd offset")
    for offset in (1, 511, 512, 4097):
        client.verify(offset, offset, 100_001)


@test()
def many_connections(box):
    need_tools("nbdcopy")
    appliance = box.appliance(on_store(box, "one_shard", operations=3))
    image = disk_image(box)
    many = ["--connections=16", "--threads=2", "--requests=64"]
    box.run("nbdcopy", *many, image, uri(appliance))
    box.run("nbdcopy", *many, uri(appliance), "back.img")
    box.run("cmp", image, "back.img")
    expect((stored(appliance, "operations"), stored(appliance, "buffer_bytes")), (0, 0),
           "operations and bytes of buffers in the end")
    appliance.stop()


@test()
def a_client_that_leaves_keeps_no_buffer(box):
    appliance = box.appliance(on_store(box))
    for _ in range(3):
        client = client_of(box, appliance)
        client.send(nbd.request_bytes(nbd.READ, 0, 16 * MIB) * 2)
        client.send(nbd.request_bytes(nbd.WRITE, 0, 16 * MIB) + bytes(100))
        client.close()
        wait_for(lambda: appliance.blockd("connections_open") == 0, "the end of its connection")
    expect(stored(appliance, "buffer_bytes"), 0, "bytes of buffers in the end")
    client_of(box, appliance).verify("after")


@test()
def a_read_only_store(box):
    path = make_file(box)
    appliance = box.appliance(on_store(box, path=path, read_only=True))
    client = client_of(box, appliance)
    expect_true(client.flags & nbd.IS_READ_ONLY, "the flag READ_ONLY")
    expect(client.error(nbd.WRITE, 0, payload=bytes(512)), EPERM, "the error of a write")
    expect(client.read(0, 4096), bytes(4096), "a read")
    configuration = on_store(box, path=path, read_only=True)
    configuration["appliance"]["runtime_directory"] = box.path("second")
    configuration["blockd"]["listen"] = [f"unix:{box.path('second.sock')}"]
    second = box.appliance(configuration, file="second.toml")
    expect(client_of(box, second).read(0, 4096), bytes(4096), "a read beside it")


@test()
def what_grows_is_seen_by_new_connections(box):
    path = make_file(box, size=MIB)
    appliance = box.appliance(on_store(box, path=path))
    before = client_of(box, appliance)
    expect(before.size, MIB, "the size")
    os.truncate(path, 2 * MIB + 100)

    def size():
        with nbd.RawClient(appliance.address()) as client:
            return client.greet().go("disk").size

    wait_for(lambda: size() == 2 * MIB, "the new size, in whole blocks")
    after = client_of(box, appliance)
    after.verify("grown", 2 * MIB - 64 * KIB)
    expect(before.error(nbd.WRITE, MIB, payload=bytes(512)), ENOSPC, "beyond what it was told")
    expect(before.read(0, 512), bytes(512), "a read of the old connection")


# ---- Block devices ----


@contextlib.contextmanager
def loop_device(box, size=SIZE):
    need_tools("losetup")
    made = subprocess.run(["losetup", "--find", "--show", "--direct-io=on",
                           make_file(box, "behind", size)],
                          capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise Skip(f"no loop device can be had here: {made.stderr.strip()}")
    device = made.stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=False)


@test(**EVERY_VARIANT)
def a_block_device(box, layout, sockets):
    need_tools("nbdcopy", "nbdinfo")
    device = box.closing.enter_context(loop_device(box))
    appliance = box.appliance(on_store(box, layout, sockets, "device", device))
    image = disk_image(box)
    copy_there_and_back(box, uri(appliance), image)
    client = client_of(box, appliance)
    client.verify("odd", 1001, 100_001)
    expect(client.error(nbd.TRIM, 4 * MIB, MIB, flags=nbd.FLAG_FUA), 0, "a trim")
    for flags in (0, nbd.FLAG_NO_HOLE, nbd.FLAG_FUA):
        client.write(8 * MIB, pattern("zero", MIB))
        expect(client.error(nbd.WRITE_ZEROES, 8 * MIB + 1, MIB - 2, flags=flags), 0, "zeroes")
        seen = client.read(8 * MIB, MIB)
        expect_true(seen[1:-1] == bytes(MIB - 2) and seen[:1] + seen[-1:] ==
                    pattern("zero", MIB)[:1] + pattern("zero", MIB)[-1:], "zeroes and their edges")
    [part] = json.loads(box.run("nbdinfo", "--map", "--json", uri(appliance)).stdout)
    expect((part["offset"], part["length"], part["type"]), (0, SIZE, 0), "the map of a device")
    appliance.stop()


@test()
def a_device_that_is_mounted_is_refused(box):
    need_tools("mkfs.ext4")
    device = box.closing.enter_context(loop_device(box))
    box.run("mkfs.ext4", "-q", device)
    os.mkdir(box.path("mount"))
    if subprocess.run(["mount", device, box.path("mount")], check=False).returncode != 0:
        raise Skip("a loop device cannot be mounted here")
    box.closing.callback(subprocess.run, ["umount", box.path("mount")], check=True)
    expect_refused(box, on_store(box, key="device", path=device),
                   f"opening {device} for device of volume disk in [blockd]: Device or resource "
                   "busy; unmount it, and stop what else uses it (lsblk, fuser)")


# ---- Messages before they are opened ----


def expect_refused(box, configuration, *texts):
    config = box.write("refused.toml", to_toml(configuration))
    for command in ("check", "run"):
        box.ensure_hugepages(config)
        refused = box.bedplate(command, config, expect_code=None)
        expect_true(refused.returncode != 0, f"{command} refuses")
        for text in texts:
            expect_in(text, refused.stderr, f"what {command} says")


@test()
def all_that_is_wrong_is_told_at_once(box):
    box.write("odd", bytes(1000))
    box.write("empty", b"")
    make_file(box, "short", MIB)
    os.mkdir(box.path("directory"))
    configuration = box.configuration()
    configuration["blockd"]["volume"] = [
        {"name": name, "file": box.path(name), **more} for name, more in [
            ("odd", {}), ("empty", {}), ("short", {"bytes": 2 * MIB}), ("directory", {}),
            ("missing", {})]]
    configuration["blockd"]["volume"] += [
        {"name": "swapped", "device": box.path("short")},
        {"name": "proc", "file": "/proc/version", "read_only": True}]
    configuration["pool"]["bytes"] = "1 GiB"
    for each in configuration["blockd"]["volume"]:
        each["buffer_bytes"] = "33 MiB"

    def says(name, what, key="file"):
        return f"opening {box.path(name)} for {key} of volume {name} in [blockd]: {what}"

    expect_refused(
        box, configuration,
        says("odd", "it has 1000 bytes, not a multiple of its block size of 512; extend the last "
             f"block: truncate -s %512 {box.path('odd')}"),
        says("empty", "it is empty; give it its full size"),
        says("short", f"it has {MIB} bytes, but {2 * MIB} are needed; make it longer "
                      f"(truncate -s {2 * MIB} {box.path('short')}), or configure less"),
        says("directory", "Is a directory; name a file, or a block device"),
        says("missing", "No such file or directory; create it, or name another file"),
        f"checking {box.path('short')} for device of volume swapped in [blockd]: it is a file; "
        "set \"file\" instead",
        "opening /proc/version for file of volume proc in [blockd]: its file system does not "
        "support direct access (O_DIRECT); move it to one that does (ext4, xfs)")


@test(read_only=[False, True])
def another_appliance_has_it(box, read_only):
    path = make_file(box)
    first = box.appliance(on_store(box, path=path))
    configuration = on_store(box, path=path, read_only=read_only)
    configuration["appliance"]["name"] = "second"
    configuration["blockd"]["listen"] = [f"unix:{box.path('second.sock')}"]
    expect_refused(box, configuration,
                   f"opening {path} for file of volume disk in [blockd]: process {first.pid} has "
                   "locked it; stop that process first, or name another file")
    client_of(box, first).verify("still served")


# ---- Failures ----


@contextlib.contextmanager
def small_file_system(box, size):
    os.mkdir(box.path("small"))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "small",
                              box.path("small")], capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        raise Skip(f"a tmpfs cannot be mounted: {mounted.stderr.strip()}")
    try:
        try:
            os.close(os.open(box.path("small/probe"), os.O_CREAT | os.O_RDWR | os.O_DIRECT))
        except OSError as error:
            raise Skip(f"tmpfs has no direct access here: {error.strerror}") from None
        yield box.path("small")
    finally:
        subprocess.run(["umount", "--lazy", box.path("small")], check=True)


@test(sockets=BACKENDS)
def a_full_file_system_is_told_to_the_client_and_it_goes_on(box, sockets):
    folder = box.closing.enter_context(small_file_system(box, 4 * MIB))
    path = os.path.join(folder, "disk")
    with open(path, "wb") as file:
        file.truncate(8 * MIB)
    with open(os.path.join(folder, "ballast"), "wb") as file:
        file.write(bytes(2 * MIB))
    appliance = box.appliance(on_store(box, sockets=sockets, path=path))
    client = client_of(box, appliance)
    kept = pattern("kept", MIB)
    client.write(0, kept)
    expect(client.error(nbd.WRITE, 4 * MIB, payload=pattern("lost", 3 * MIB)), ENOSPC, "too much")
    expect_true(client.read(0, MIB) == kept, "nothing is corrupted")
    expect(client.error(nbd.FLUSH), 0, "a flush after it")
    expect_true(stored(appliance, "errors") > 0, "it is counted")
    os.remove(os.path.join(folder, "ballast"))
    expect(client.error(nbd.TRIM, 4 * MIB, 4 * MIB), 0, "a trim")
    client.verify("space again", 2 * MIB, MIB)
    appliance.stop()
    with contextlib.suppress(OSError), open(os.path.join(folder, "ballast"), "wb") as file:
        while file.write(bytes(4096)):
            file.flush()
    expect_refused(box, on_store(box, path=path),
                   f"checking {path} for file of volume disk in [blockd]: it has holes, and its "
                   "file system is full; free space on it")
    os.remove(os.path.join(folder, "ballast"))


@test(sockets=BACKENDS)
def an_error_goes_to_the_client_that_asked(box, sockets):
    with FuseFile(box, bytes(MIB)) as file:
        appliance = box.appliance(on_store(box, sockets=sockets, path=file.path))
        client, other = client_of(box, appliance), client_of(box, appliance)
        data = pattern("error", 4096)
        client.write(0, data)
        file.errors = {READ: errno.EIO, WRITE: errno.EIO}
        expect(client.error(nbd.READ, 0, 4096), EIO, "a read that fails")
        expect(client.error(nbd.WRITE, 0, payload=data), EIO, "a write that fails")
        expect(client.error(nbd.WRITE, 100, payload=data), EIO, "one that is not aligned")
        file.errors = {WRITE: errno.ENOSPC}
        expect(client.error(nbd.WRITE, 0, payload=data), ENOSPC, "one without room")
        file.errors = {}
        expect(stored(appliance, "errors"), 4, "errors counted")
        expect(other.read(0, 4096), data, "a read of another client")
        client.write(0, data[::-1], nbd.FLAG_FUA)
        expect(other.error(nbd.FLUSH), 0, "a flush")
        appliance.stop()


@test(sockets=BACKENDS)
def after_a_failed_flush_nothing_is_promised_until_it_is_opened_anew(box, sockets):
    with FuseFile(box, bytes(MIB)) as file:
        configuration = on_store(box, sockets=sockets, path=file.path)
        appliance = box.appliance(configuration)
        client, other = client_of(box, appliance), client_of(box, appliance)
        file.errors = {FSYNC: errno.EIO}
        expect(client.error(nbd.FLUSH), EIO, "the flush that fails")
        file.errors = {}
        expect(client.error(nbd.FLUSH), EIO, "the next one")
        expect(other.error(nbd.FLUSH), EIO, "one of another connection")
        expect(other.error(nbd.WRITE, 0, payload=bytes(512), flags=nbd.FLAG_FUA), EIO, "FUA")
        client.verify("reads and writes go on")
        expect(stored(appliance, "has_failed_flush"), 1, "it is shown")
        wait_for(lambda: "a flush has failed" in appliance.log_text(), "the log's line")
        appliance.stop()
        again = box.appliance(configuration)
        client = client_of(box, again)
        client.write(0, bytes(512), nbd.FLAG_FUA)
        expect(client.error(nbd.FLUSH), 0, "a flush once it was opened anew")
        again.stop()


@test(**EVERY_VARIANT)
def what_hangs_holds_up_no_other_volume(box, layout, sockets):
    with FuseFile(box, bytes(MIB)) as file:
        configuration = on_store(box, layout, sockets, path=file.path, operations=2)
        configuration["appliance"]["drain_timeout_ms"] = 1000
        configuration["blockd"]["volume"].append({"name": "ram0", "bytes": MIB})
        configuration["blockd"]["volume"].append({"name": "good", "file": make_file(box)})
        configuration["blockd"]["volume"][0]["buffer_bytes"] = "33 MiB"
        configuration["blockd"]["volume"][2]["buffer_bytes"] = "33 MiB"
        appliance = box.appliance(configuration)
        client = client_of(box, appliance)
        expect(client.read(0, 512), bytes(512), "a read before that")
        file.hang()
        for _ in range(5):
            client.request(nbd.READ, 0, 4096)
        wait_for(lambda: stored(appliance, "requests_waiting") == 3, "those that wait")
        for counter in ("operations", "operations_max"):
            expect(stored(appliance, counter), 2, counter)
        expect(stored(appliance, "buffer_max_bytes"), 33 * MIB, "all of its buffers")
        connect(box, appliance, volume="ram0").verify("another")
        # With the thread of epoll, files of one shard wait for each other (docs/nbd.md).
        if sockets == "io_uring":
            connect(box, appliance, volume="good").verify("another")
            expect(stored(appliance, "requests_waiting", "good"), 0, "its waiting requests")
        appliance.process.kill()
