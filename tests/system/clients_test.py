"""Third-party clients, used as their users call them, on every setup of the server.

Setups: TCP and Unix sockets; connections and volumes on one shard and on two; sockets through
io_uring and through epoll. Also pages of other sizes, and sockets passed in by a service manager.
"""

import json
import os
import socket
import sys

from harness import (BACKENDS, BEDPLATE, GIB, LAYOUTS, MIB, Skip, expect, expect_in, expect_true,
                     free_port, need_tools, test, to_toml)
import raw_nbd as nbd
from raw_nbd import pattern

EVERY_VARIANT = {"transport": ["tcp", "unix"], "layout": LAYOUTS, "sockets": BACKENDS}
QEMU_IO = ["-c", "write -P 0xab 4k 64k", "-c", "read -P 0xab 4k 64k", "-c", "discard 1M 1M",
           "-c", "write -z 2M 1M", "-c", "flush"]


def disk_image(box, name="disk.img", byte_count=64 * MIB):
    return box.write(name, pattern(name, byte_count))


def copy_there_and_back(box, uri, image):
    box.run("nbdcopy", image, uri)
    box.run("nbdcopy", uri, "back.img")
    box.run("cmp", image, "back.img")


@test(**EVERY_VARIANT)
def nbdinfo(box, transport, layout, sockets):
    need_tools("nbdinfo")
    uri = box.appliance(box.configuration(layout, sockets)).uri(transport)
    [export] = json.loads(box.run("nbdinfo", "--json", uri).stdout)["exports"]
    wanted = {
        "export-name": "ram0", "export-size": 64 * MIB, "is_read_only": False, "can_flush": True,
        "can_fua": True, "can_trim": True, "can_zero": True, "can_df": True,
        "can_multi_conn": True, "can_cache": False, "can_fast_zero": True, "is_rotational": False,
        "block_size_minimum": 1, "block_size_preferred": 4096, "block_size_maximum": 32 * MIB,
    }
    expect({key: export.get(key) for key in wanted}, wanted, "what nbdinfo sees")
    expect_in("export=\"ram0\"", box.run("nbdinfo", uri).stdout, "nbdinfo's text")
    expect_in("export=\"ram0\"", box.run("nbdinfo", "--list", uri).stdout, "nbdinfo --list")


@test(**EVERY_VARIANT)
def nbdcopy_and_qemu_img(box, transport, layout, sockets):
    need_tools("nbdcopy", "qemu-img")
    appliance = box.appliance(box.configuration(layout, sockets))
    image = disk_image(box)
    copy_there_and_back(box, appliance.uri(transport), image)
    same = box.run("qemu-img", "compare", "-f", "raw", "-F", "raw", image, appliance.uri(transport))
    expect_in("Images are identical.", same.stdout, "qemu-img compare")
    appliance.stop()


@test(**EVERY_VARIANT)
def qemu_io(box, transport, layout, sockets):
    need_tools("qemu-io")
    appliance = box.appliance(box.configuration(layout, sockets))
    done = box.run("qemu-io", "-f", "raw", *QEMU_IO, appliance.uri(transport))
    expect_true("failed" not in done.stdout + done.stderr, f"qemu-io is content: {done.stdout}")
    zeroes = ["-c", "read -P 0xab 4k 64k", "-c", "read -P 0 2M 1M", "-c", "read -P 0 0 4k"]
    done = box.run("qemu-io", "-f", "raw", *zeroes, appliance.uri(transport))
    expect_true("failed" not in done.stdout + done.stderr, f"the data are right: {done.stdout}")


@test(**EVERY_VARIANT)
def fio_verify(box, transport, layout, sockets):
    need_tools("fio")
    appliance = box.appliance(box.configuration(layout, sockets))
    box.run("fio", "--name=v", "--output=f.txt", "--ioengine=nbd",
            f"--uri={appliance.uri(transport)}", "--rw=randwrite", "--bs=4k", "--iodepth=16",
            "--size=64M", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1",
            "--verify_state_save=0")
    expect_true(appliance.blockd("requests_write") >= 16384, "fio's writes were counted")
    appliance.stop()


@test(layout=LAYOUTS)
def nbdcopy_with_many_connections(box, layout):
    need_tools("nbdcopy")
    appliance = box.appliance(box.configuration(layout))
    image = disk_image(box)
    many = ["--connections=16", "--threads=2", "--requests=64"]
    box.run("nbdcopy", *many, image, appliance.uri())
    box.run("nbdcopy", *many, appliance.uri(), "back.img")
    box.run("cmp", image, "back.img")
    appliance.stop()


@test()
def qemu_converts_qcow2(box):
    """A guest's disk in another format, written through the server and read back."""
    need_tools("qemu-img")
    uri = box.appliance().uri()
    image = disk_image(box)
    box.run("qemu-img", "convert", "-O", "qcow2", image, "disk.qcow2")
    box.run("qemu-img", "convert", "-n", "-f", "qcow2", "-O", "raw", "disk.qcow2", uri)
    box.run("qemu-img", "compare", "-f", "qcow2", "-F", "raw", "disk.qcow2", uri)


@test()
def several_volumes(box):
    """Volumes do not mix, and a read-only volume is listed as read-only."""
    need_tools("nbdcopy", "nbdinfo")
    configuration = box.configuration()
    names = ["ram0", "second disk/é", "small"]
    configuration["blockd"]["volume"] = [
        {"name": name, "bytes": 16 * MIB} for name in names]
    configuration["blockd"]["volume"].append({"name": "golden", "bytes": 4096, "read_only": True})
    appliance = box.appliance(configuration)
    clients = [nbd.connect(box, appliance, volume=name) for name in names]
    for name, client in zip(names, clients):
        client.write(0, pattern(name, 16 * MIB))
    for name, client in zip(names, clients):
        expect_true(client.read(0, 16 * MIB) == pattern(name, 16 * MIB), f"{name} kept its data")
    listed = json.loads(box.run("nbdinfo", "--list", "--json", appliance.uri()).stdout)["exports"]
    seen = [(export["export-name"], export["is_read_only"]) for export in listed]
    expect(seen, [*[(name, False) for name in names], ("golden", True)], "nbdinfo --list")


@test()
def ipv6(box):
    need_tools("nbdinfo")
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        raise Skip(f"this machine has no ::1: {error.strerror}") from None
    appliance = box.appliance(box.configuration(listen=[f"tcp:[::1]:{free_port()}"]))
    expect(box.run("nbdinfo", "--size", appliance.uri("tcp")).stdout, f"{64 * MIB}\n", "the size")
    appliance.stop()


@test(page=["4 KiB", "1 GiB"])
def other_pages(box, page):
    """The pool is made of exactly the pages that the configuration names."""
    need_tools("nbdcopy")
    configuration = box.configuration()
    configuration["pool"] = {"bytes": "4 GiB" if page == "1 GiB" else "256 MiB", "pages": page}
    appliance = box.appliance(configuration)
    sizes = {"4 KiB": 4096, "1 GiB": GIB}
    expect({segment["page_bytes"] for owner, segment in appliance.stats()["segment"].items()
            if owner != "boot"}, {sizes[page]},
           "the page_bytes of all segments but segment 0")
    copy_there_and_back(box, appliance.uri(), disk_image(box))
    appliance.stop()


# ---- Sockets passed in ----

# Executes its arguments, with the sockets of argv[1] ("7,9") as descriptors 3 and up. The sockets
# first move to high numbers, so that none is overwritten before its turn.
LAUNCH = """if True:
    import fcntl, os, sys
    sockets = [fcntl.fcntl(int(text), fcntl.F_DUPFD, 100) for text in sys.argv[1].split(",")]
    for index, number in enumerate(sockets):
        os.dup2(number, 3 + index)
        os.close(number)
    os.environ.update(LISTEN_FDS=str(len(sockets)), LISTEN_PID=sys.argv[2] or str(os.getpid()))
    os.execv(sys.argv[3], sys.argv[3:])
    """


def passing(sockets, listen_pid=""):
    """Options with which an Appliance gets `sockets` as a service manager passes them."""
    numbers = [sock.fileno() for sock in sockets]
    prefix = [sys.executable, "-c", LAUNCH, ",".join(map(str, numbers)), listen_pid]
    return {"argv_prefix": prefix, "pass_fds": numbers}


def activated(box):
    """Returns a configuration whose only listeners are passed in by a service manager, and its
    file."""
    configuration = box.configuration(listen=["activation:"])
    config = box.write("activated.toml", to_toml(configuration))
    box.ensure_hugepages(config)
    return configuration, config


@test()
def activated_by_nbdinfo(box):
    need_tools("nbdinfo", "nbdcopy")
    command = ["[", BEDPLATE, "run", activated(box)[1], "]"]
    told = box.run("nbdinfo", "--json", *command).stdout.replace("bedplate: ready\n", "")
    [export] = json.loads(told)["exports"]
    expect(export["export-size"], 64 * MIB, "the size of the first volume")
    box.run("nbdcopy", disk_image(box), *command)


@test()
def activated_by_libnbd(box):
    script = """if True:
        import nbd, sys
        handle = nbd.NBD()
        handle.set_export_name("ram0")
        handle.connect_systemd_socket_activation(sys.argv[1:])
        handle.pwrite(b"activated" * 1000, 12345)
        assert handle.pread(9000, 12345) == b"activated" * 1000
        handle.shutdown()
        """
    if box.run(sys.executable, "-c", "import nbd", expect_code=None).returncode:
        raise Skip("python3-libnbd is not installed")
    box.run(sys.executable, "-c", script, BEDPLATE, "run", activated(box)[1])


@test(layout=LAYOUTS, sockets=BACKENDS)
def activated_with_two_sockets(box, layout, sockets):
    """TCP and Unix sockets together. The Unix socket's file belongs to its creator, and stays."""
    configuration = box.configuration(layout, sockets, listen=["activation:"])
    tcp = box.closing.enter_context(socket.create_server(("127.0.0.1", 0)))
    unix = box.closing.enter_context(socket.socket(socket.AF_UNIX))
    unix.bind(box.path("passed.sock"))
    unix.listen()
    appliance = box.appliance(configuration, **passing([tcp, unix]))
    for address in (tcp.getsockname(), unix.getsockname()):
        with nbd.RawClient(address) as client:
            client.greet().go().verify(str(address))
    appliance.stop()
    expect_true(os.path.exists(box.path("passed.sock")), "the passed socket's file is still there")


@test()
def activation_without_sockets(box):
    """If no sockets were passed, or for another process, `run` fails with a message."""
    configuration, config = activated(box)
    done = box.bedplate("run", config, expect_code=1)
    expect_in("LISTEN_PID", done.stderr, "the message")
    with socket.create_server(("127.0.0.1", 0)) as other:
        options = passing([other], listen_pid="1")
        argv = [*options["argv_prefix"], BEDPLATE, "run", config]
        done = box.run(*argv, expect_code=1, pass_fds=options["pass_fds"])
    expect_in("LISTEN_PID", done.stderr, "the message")
    expect_true(not os.path.exists(configuration["appliance"]["runtime_directory"]),
                "the runtime directory is not left behind")


@test()
def activated_where_others_reach_it(box):
    """Passed sockets serve plain text to other machines only if the configuration allows it."""
    need_tools("nbdinfo")
    configuration, config = activated(box)
    passed = box.closing.enter_context(socket.create_server(("0.0.0.0", 0)))
    options = passing([passed])
    said = box.run(*options["argv_prefix"], BEDPLATE, "run", config, expect_code=1,
                   pass_fds=options["pass_fds"]).stderr
    expect_in("descriptor 3: other machines can reach it, and there is no TLS; set "
              "tls_certificate or", said, "the message")
    configuration["blockd"]["plain_text"] = "allowed"
    appliance = box.appliance(configuration, **options)
    box.run("nbdinfo", f"nbd://127.0.0.1:{passed.getsockname()[1]}/ram0")
    appliance.stop()
