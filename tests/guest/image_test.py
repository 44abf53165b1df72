#!/usr/bin/python3
"""Tests of the image: built, booted in QEMU, driven from outside. Its ends: image_crash_test.py.

    /usr/bin/python3 tests/guest/image_test.py [PATTERN...]

A PATTERN is a part of a test's name. A machine's console is shown if its test fails. The
last line is `N passed, N failed, N skipped`; the exit code is 1 if anything failed.
"""

import contextlib
import filecmp
import json
import os
import socket
import stat
import sys
import tempfile
import time

from image import BUILD, DEMO, MIB, PROGRAM, ROOT, VMLINUX, Image, build_module, run
from machine import Machine
from runner import Failure, run_tests

sys.path[1:1] = [os.path.dirname(BUILD), os.path.join(ROOT, "tests", "system")]
import modules  # noqa: E402
import raw_nbd as nbd  # noqa: E402

# The test key that Debian's firmware trusts in its variables, and the key's password.
SNAKEOIL = "/usr/share/ovmf/PkKek-1-snakeoil"


# ---- The tests ----


def two_builds_are_equal():
    with Image(DEMO) as one:
        time.sleep(1.1)  # a time of the build would differ by a second
        with Image(DEMO) as two:
            names = sorted(os.listdir(one.path))
            if names != ["bedplate.efi", "cmdline", "esp", "initramfs.cpio.zst", "vmlinuz"]:
                raise Failure(f"the image consists of {names}")
            names[names.index("esp")] = "esp/EFI/BOOT/BOOTX64.EFI"
            for name in names:
                if not filecmp.cmp(os.path.join(one.path, name), os.path.join(two.path, name),
                                   shallow=False):
                    raise Failure(f"{name} differs")


def image_holds_what_is_needed_and_no_more():
    """A module is in the image only if a table needs it, together with the modules that it depends
    on."""
    with Image() as image:
        if "modules: none" not in image.log:
            raise Failure(image.log)
    with Image(DEMO) as image:
        wanted = ("virtio_ring.ko virtio.ko failover.ko net_failover.ko virtio_pci_modern_dev.ko "
                  "virtio_pci_legacy_dev.ko virtio_pci.ko virtio_net.ko")
        if f"modules: {wanted}\n" not in image.log:
            raise Failure(f"{image.log}\nexpected {wanted}")
        archive = os.path.join(image.path, "initramfs.cpio.zst")
        listing = run("sh", "-c", f"zstd -dc {archive} | cpio -itv --quiet")
        paths = [line.split()[-1] for line in listing.splitlines()]
        expected = sorted(["bedplate.toml", "dev", "dev/console", "init", "modules",
                           "modules/order", "proc", "run", "sys", "tmp"] +
                          [f"modules/{name}" for name in wanted.split()])
        if paths != expected:
            raise Failure(f"the initramfs holds {paths}; expected {expected}")


def what_a_driver_would_like_to_have_is_in_the_image():
    """r8169 finds no network without the driver of its transceiver, which it names as a soft
    dependency."""
    kernel = os.path.join(ROOT, "build", "kernel", "modules")
    names = [os.path.basename(path) for path in modules.load_order(kernel, ["r8169"])]
    if names[-2:] != ["realtek.ko", "r8169.ko"]:
        raise Failure(f"r8169 comes as {names}")


def a_wrong_configuration_makes_no_image():
    for tables, message in [
            ("[watchdog]\ndevise = 1", 'unknown key "devise"; did you mean "device"?'),
            ("[watchdog]\ndriver = \"no_such\"",
             "image: looking for the module no_such: the kernel's package does not have it")]:
        try:
            with Image(tables=tables):
                pass
        except Failure as failure:
            if message in str(failure):
                continue
            raise
        raise Failure(f"built with {tables}")


def what_is_too_large_makes_no_image():
    with tempfile.TemporaryDirectory() as work:
        large = os.path.join(work, "large.ko")
        with open(large, "wb") as file:
            file.write(os.urandom(16 * MIB))
        program = os.path.join(work, "program")
        run("objcopy", "--add-section", f".large={large}", PROGRAM, program)
        for what, arguments in (("initramfs.cpio.zst", (PROGRAM, DEMO, work, "--module", large)),
                                ("the program, stripped", (program, DEMO, work))):
            try:
                run("/usr/bin/python3", BUILD, *arguments, "--level", "1")
            except Failure as failure:
                if f"checking the size of {what}: " in str(failure):
                    continue
                raise
            raise Failure(f"built, although {what} is too large")


def clients_write_and_read_and_ctrl_alt_del_drains():
    """The README's commands work against `make image-run`, here with a long time to drain."""
    with tempfile.TemporaryDirectory() as work:
        config = os.path.join(work, "demo.toml")
        with open(DEMO, encoding="utf-8") as demo, open(config, "w", encoding="utf-8") as file:
            file.write(demo.read().replace("[appliance]", "[appliance]\ndrain_timeout_ms = 60000"))
        # QEMU continues after the guest's end, because its network still holds some of the sent
        # data.
        with Image(config) as image, Machine(image.path, "-action", "shutdown=pause") as machine:
            machine.expect(r"first process of Linux 6\.1\.")
            machine.expect(r"eth0: up, 10\.0\.2\.15/24, gateway 10\.0\.2\.2$")
            machine.expect(r"capabilities kept: SYS_BOOT$")
            machine.expect_ready()
            uri = f"nbd://127.0.0.1:{machine.port}/ram0"
            if "export-size: 67108864" not in run("nbdinfo", uri):
                raise machine.failure("nbdinfo sees another size")
            there, back = os.path.join(work, "there"), os.path.join(work, "back")
            with open(there, "wb") as file:
                file.write(os.urandom(64 * MIB))
            run("nbdcopy", there, uri)
            run("nbdcopy", uri, back)
            if not filecmp.cmp(there, back, shallow=False):
                raise machine.failure("what was read is not what was written")
            press_with_requests_in_flight(machine)
            machine.expect_lines(r"the machine ends: reboot$", r"reboot: Restarting system")
            machine.expect_status("shutdown")
            if any("not drained" in line or "are lost" in line for line in machine.lines):
                raise Failure("it did not drain")


def press_with_requests_in_flight(machine, count=16):
    """Replies of 1 MiB each wait for a client that has not read them. They still arrive, complete
    and right, and then the connection ends. Only the guest's kernel holds the last replies, and the
    machine waits for them."""
    with nbd.RawClient(("127.0.0.1", machine.port), receive_buffer_bytes=16 << 10) as client:
        client.greet().go("ram0")
        client.write(0, nbd.pattern("stuck", MIB))
        cookies = set(range(100, 100 + count))
        client.read_lengths.update(dict.fromkeys(cookies, MIB))
        client.send(b"".join(nbd.request_bytes(nbd.READ, 0, MIB, cookie=cookie)
                             for cookie in cookies))

        def expect_reply():
            reply = client.reply()
            cookies.remove(reply.cookie)
            if reply.error or reply.data != nbd.pattern("stuck", MIB):
                raise Failure(f"the reply to {reply.cookie} is wrong: error {reply.error}")

        expect_reply()  # all have arrived, because they were sent together
        machine.press_ctrl_alt_delete()
        machine.expect(r"demo: signal 2, draining$")
        while cookies:
            time.sleep(0.2)  # replies pile up again, up to the guest's kernel
            expect_reply()
        client.expect_disconnect("after the last reply", 0)


def an_image_with_verbs_has_its_device():
    """The first process puts soft RoCE on eth0, before it drops its rights."""
    tables = """
[[network]]
interface = "eth0"
address = "10.0.2.15/24"
[verbs]
driver = "rdma_rxe"
interface = "eth0"
listen = "tcp:10.0.2.15:7471"
[[verbs.peer]]
name = "other"
"""
    with Image(tables=tables, pool="64 MiB") as image:
        wanted = "ib_core.ko ib_uverbs.ko"
        if wanted not in image.log or "rdma_rxe.ko\n" not in image.log:
            raise Failure(image.log)
        with Machine(image.path) as machine:
            machine.expect(r"small: verbs through rxe0 port 1, ::ffff:10\.0\.2\.15, MTU 1024, 1 "
                           r"peer$")
            machine.expect(r"capabilities kept: SYS_BOOT$")
            machine.expect_ready()
    # The appliance dials itself, so it is refused by a peer list without its name: dialing and
    # listening both work.
    by_manager = tables.replace("listen =", 'connect = "rdma_cm"\nlisten =')
    with Image(tables=f'{by_manager}address = "tcp:10.0.2.15:7471"\n', pool="64 MiB") as image:
        if "rdma_ucm.ko" not in image.log:
            raise Failure(image.log)
        with Machine(image.path) as machine:
            machine.expect_ready()
            machine.expect(r"verbs: refusing a handshake with 10\.0\.2\.15: its list of peers "
                           r"does not contain this name; ")
            machine.expect(r"verbs: connecting to other at tcp:10\.0\.2\.15:7471: it refuses: its "
                           r"list of peers does not contain this name; ")
    with Image(tables=tables.replace('interface = "eth0"\nlisten', 'interface = "eth7"\nlisten'),
               pool="64 MiB") as image, Machine(image.path) as machine:
        machine.expect(r"creating the RDMA device rxe0 on eth7: No such device; name an interface "
                       r"of this machine in \[verbs\]$")
        machine.expect(r"the machine ends: reboot in 5 s$")


def uefi_boots_the_one_file():
    with Image(DEMO) as image, Machine(image.path, UEFI="1") as machine:
        machine.expect_ready()
        if "export-size: 67108864" not in run("nbdinfo", f"nbd://127.0.0.1:{machine.port}/ram0"):
            raise machine.failure("nbdinfo sees another size")


def secure_boot_takes_the_signed_file_and_no_other():
    """The firmware's variables have Debian's key for tests."""
    with tempfile.TemporaryDirectory() as work:
        key = os.path.join(work, "key")
        run("openssl", "rsa", "-in", f"{SNAKEOIL}.key", "-passin", "pass:snakeoil", "-out", key)
        signing = ("--sign-key", key, "--sign-cert", f"{SNAKEOIL}.pem")
        # The demo's modules have Debian's signature, and need it here.
        with Image(DEMO, options=signing) as image, Machine(image.path, UEFI="secure") as machine:
            machine.expect_ready()
        with Image() as image, Machine(image.path, UEFI="secure") as machine:
            machine.expect(r"BdsDxe: failed to load Boot\d+ .*: Access Denied")
            if any("bedplate" in line for line in machine.lines):
                raise Failure("an unsigned file was started")


GIVEN_MODULE = r"""
#include <linux/module.h>
static int number;
module_param(number, int, 0444);
static int __init begin(void) {
  pr_crit("given: number %d\n", number);
  return 0;
}
module_init(begin);
MODULE_LICENSE("GPL");
"""


def modules_that_are_given_are_loaded():
    """A third-party module, built against the kernel's headers, is loaded with a parameter."""
    with tempfile.TemporaryDirectory() as work:
        module = build_module(work, "given", GIVEN_MODULE)
        with Image(options=("--module", module)) as image:
            if "modules: given.ko\n" not in image.log:
                raise Failure(image.log)
            with Machine(image.path, KERNEL=VMLINUX, APPEND="given.number=42") as machine:
                machine.expect_lines(r"given: number 42$", r"bedplate: ready$")


def hugepages_of_the_command_line_are_taken():
    """Each node has some hugepages. Boot reserves only the missing pages there. Pages of 1 GiB can
    hardly be reserved later."""
    nodes = [option for node in range(2) for option in
             ("-object", f"memory-backend-ram,id=memory{node},size=256M",
              "-numa", f"node,nodeid={node},memdev=memory{node},cpus={node}")]
    with Image(shards='[[shard]]\nname = "other"\ncpu = 1') as image:
        with Machine(image.path, *nodes, KERNEL=VMLINUX, APPEND="hugepages=0:10,1:0") as machine:
            machine.expect_lines(
                r"hugepages of 2 MiB on node 0: 12 needed, 10 free, reserving 2$",
                r"hugepages of 2 MiB on node 1: 4 needed, 0 free, reserving 4$",
                r"volume:ram0: 8 MiB in pages of 2 MiB on node 1$", r"bedplate: ready$")
    with Image(pool="1072 MiB", pages='2 MiB"\nheap_pages = "1 GiB') as image:
        with Machine(image.path, MEMORY_MIB="2560", KERNEL=VMLINUX,
                     APPEND="hugepagesz=1G hugepages=1") as machine:
            machine.expect_lines(r"hugepages of 2 MiB on \S.*: 5 needed, 0 free, reserving 5$",
                                 r"heap: 1 GiB in pages of 1 GiB", r"bedplate: ready$")


def a_machine_without_a_console_serves():
    """Without a console, the appliance logs to the kernel's log. The test reads it on an early
    console, which programs cannot open."""
    options = ("--cmdline", "console=none earlyprintk=serial,ttyS0,115200,keep panic=10")
    with Image(DEMO, options=options) as image, Machine(image.path) as machine:
        machine.expect_lines(r"unable to open an initial console",
                             r"bedplate: demo: pool of 256 MiB sealed", r"bedplate: ready$")
        if "export-size: 67108864" not in run("nbdinfo", f"nbd://127.0.0.1:{machine.port}/ram0"):
            raise Failure("nbdinfo sees another size")


def processes_seccomp_and_ipv6_have_the_rights_they_need():
    """Sockets, threads and the filter are made after capabilities were dropped. The appliance can
    listen at an IPv6 address as soon as it is set."""
    tables = ('[[network]]\ninterface = "eth1"\naddress = "fd00::7/64"\ngateway = "fd00::1"\n'
              'mtu = 1400\n[[group]]\nname = "main"\nmembers = 2\n'
              '[[process]]\nname = "worker"\nuser = "1000"\ngroup = "main"')
    with Image(tables=tables, enforce="seccomp", listen='"tcp:[fd00::7]:10809"') as image:
        with Machine(image.path, "-netdev", "user,id=two", "-device",
                     "virtio-net-pci,netdev=two,romfile=", KERNEL=VMLINUX) as machine:
            machine.expect(r"eth1: up, fd00::7/64, gateway fd00::1$")
            machine.expect(r"capabilities kept: SYS_BOOT, SYS_PTRACE$")
            machine.expect_ready()


def it_is_asked_over_its_second_serial_port():
    """A client's partial request does not disturb the next client, and the console has only the
    log."""
    tables = '[control]\nserial = "/dev/ttyS1"'
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "control")
        with Image(tables=tables, pool="64 MiB") as image:
            with Machine(image.path, KERNEL=VMLINUX, CONTROL=path) as machine:
                machine.expect_ready()
                if stat.S_IMODE(os.stat(path).st_mode) & 0o077:
                    raise Failure("others than this user may connect")

                def ask(*words):
                    return json.loads(run(PROGRAM, "ctl", "--socket", path, *words))

                said = ask("ping")
                if (said["appliance"], said["pid"]) != ("small", 1):
                    raise Failure(f"it answers {said}")
                with contextlib.closing(socket.socket(socket.AF_UNIX)) as client:
                    client.connect(path)
                    client.sendall(b'\n{"jsonrpc":"2.0","id":1,"method":"methods"}\n{"jsonrpc":')
                plan = ask("plan")
                if not any(one["owner"] == "volume:ram0" for one in plan["segments"]):
                    raise Failure(f"the plan is {plan}")
                owners = {one["owner"] for one in ask("counters", "owner=blockd")}
                if owners != {"blockd"}:
                    raise Failure(f"counters are of {owners}")
                shown = run(PROGRAM, "top", "--once", "--socket", path)
                if not shown.startswith("small") or "ram0" not in shown:
                    raise Failure(f"top shows {shown}")
                ask("blockd.hold", "volume=ram0", "on=true")
                if not ask("blockd.volumes")[0]["held"]:
                    raise Failure("the volume is not held")


def a_serial_port_that_is_not_there_stops_the_boot():
    tables = ('[crash]\naction = "power-off"\ndelay_s = 0\n'
              '[control]\nserial = "/dev/ttyS1"')
    with Image(tables=tables, pool="64 MiB") as image:
        with Machine(image.path, KERNEL=VMLINUX) as machine:
            machine.expect(r"opening the serial line /dev/ttyS1: Input/output error; name one "
                           r"that has a port: `dmesg \| grep tty` lists them$")
            machine.expect_end("guest-shutdown")


def what_stops_a_boot_is_said_and_the_machine_ends():
    tables = ('[crash]\naction = "power-off"\ndelay_s = 0\n'
              '[[network]]\ninterface = "eth7"\naddress = "10.0.2.15/24"')
    with Image(tables=tables) as image, Machine(image.path, KERNEL=VMLINUX) as machine:
        machine.expect(r"looking for the interface eth7: it does not exist; there are: "
                       r"lo, eth0; correct interface or driver \(now virtio_net\) in ")
        machine.expect(r"the machine ends: power-off in 0 s$")
        machine.expect_end("guest-shutdown")


def a_pool_that_is_too_large_leaves_the_kernel_its_memory():
    tables = '[crash]\naction = "power-off"\ndelay_s = 0'
    with Image(tables=tables, pool="4 GiB") as image:
        with Machine(image.path, KERNEL=VMLINUX) as machine:
            machine.expect(r"reserving 2040 hugepages of 2 MiB: \d+ MiB of memory are free, and "
                           r"64 MiB are left to the kernel; make \[pool\] bytes smaller, or add "
                           r"memory$")
            machine.expect(r"checking hugepages of 2 MiB: 0 are free, 2040 are needed; ")
            machine.expect(r"the machine ends: power-off in 0 s$")
            machine.expect_end("guest-shutdown")


TESTS = [two_builds_are_equal, image_holds_what_is_needed_and_no_more,
         what_a_driver_would_like_to_have_is_in_the_image,
         a_wrong_configuration_makes_no_image, what_is_too_large_makes_no_image,
         clients_write_and_read_and_ctrl_alt_del_drains,
         an_image_with_verbs_has_its_device,
         uefi_boots_the_one_file, secure_boot_takes_the_signed_file_and_no_other,
         modules_that_are_given_are_loaded, hugepages_of_the_command_line_are_taken,
         a_machine_without_a_console_serves,
         processes_seccomp_and_ipv6_have_the_rights_they_need,
         it_is_asked_over_its_second_serial_port, a_serial_port_that_is_not_there_stops_the_boot,
         what_stops_a_boot_is_said_and_the_machine_ends,
         a_pool_that_is_too_large_leaves_the_kernel_its_memory]


if __name__ == "__main__":
    sys.exit(run_tests(TESTS))
