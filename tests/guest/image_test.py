#!/usr/bin/python3
"""The image's tests: built, booted in QEMU, driven from outside, crashed and hung on purpose.

    /usr/bin/python3 tests/guest/image_test.py [PATTERN...]

A PATTERN is a part of a test's name. The console of a machine is shown when its test fails. The
last line is `N passed, N failed, N skipped`; the exit code is 1 when anything failed.
"""

import filecmp
import os
import struct
import subprocess
import sys
import tempfile
import time

from machine import Machine, ROOT
from runner import Failure, run_tests

MIB = 1 << 20
BUILD = os.path.join(ROOT, "scripts", "image", "build.py")
PROGRAM = os.path.join(ROOT, "build", "release", "bedplate")
DEMO = os.path.join(ROOT, "apps", "demo.toml")
# Unpacked, the kernel boots in half of the time; what the image has is booted once, and by UEFI.
VMLINUX = os.path.join(ROOT, "build", "kernel", "vmlinux")
# Of the appliance, how much longer than an init that does nothing (apps/demo.toml, 256 MiB).
BOOT_SECONDS_MAX = 1.5
BOOT_TRIES_MAX = 6
# A backstop for what is run to its end: most takes seconds.
RUN_SECONDS = 180

# The smallest that serves.
SMALL = """
[appliance]
name = "small"
[pool]
bytes = "{pool}"
enforce = "{enforce}"
heap_min_bytes = "16 MiB"
[event_loop]
sockets = "epoll"
[[shard]]
name = "main"
cpu = 0
[blockd]
listen = [{listen}]
max_connections = 2
[[blockd.volume]]
name = "ram0"
bytes = "8 MiB"
{tables}
"""


def run(*command):
    try:
        finished = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, encoding="utf-8", check=False,
                                  timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired as late:
        raise Failure(f"{' '.join(command)}: no end after {RUN_SECONDS} s\n{late.stdout}") from late
    if finished.returncode != 0:
        raise Failure(f"{' '.join(command)}: exit code {finished.returncode}\n{finished.stdout}")
    return finished.stdout


def build(config, output):
    return run("/usr/bin/python3", BUILD, PROGRAM, config, output)


class Image:
    """An image of a configuration, in a directory that goes with it."""

    def __init__(self, config=None, tables="", **settings):
        self._work = tempfile.TemporaryDirectory()
        if config is None:
            config = os.path.join(self._work.name, "image.toml")
            with open(config, "w", encoding="utf-8") as file:
                file.write(SMALL.format(tables=tables, **{"pool": "48 MiB", "enforce": "kernel",
                                        "listen": '"tcp:127.0.0.1:10809"', **settings}))
        self.path = os.path.join(self._work.name, "image")
        self.log = build(config, self.path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._work.cleanup()


# ---- The tests ----


def two_builds_are_equal():
    with Image(DEMO) as one:
        time.sleep(1.1)  # a second in a header would show
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
    """No module without a table that asks for one; with one, what it depends on, and no more."""
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


def a_wrong_configuration_makes_no_image():
    for tables, message in [
            ("[watchdog]\ndevise = 1", 'unknown key "devise"; did you mean "device"?'),
            ("[watchdog]\ndriver = \"no_such\"",
             "image: looking for the module no_such: the kernel's package has none")]:
        try:
            with Image(tables=tables):
                pass
        except Failure as failure:
            if message in str(failure):
                continue
            raise
        raise Failure(f"built with {tables}")


def clients_write_and_read_and_ctrl_alt_del_drains():
    """What the README shows, against `make image-run`."""
    with Image(DEMO) as image, tempfile.TemporaryDirectory() as work:
        with Machine(image.path) as machine:
            machine.expect(r"first process of Linux 6\.1\.")
            machine.expect(r"eth0: up, 10\.0\.2\.15/24 by way of 10\.0\.2\.2$")
            machine.expect(r"capabilities kept: 0x400000$")
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
            machine.press_ctrl_alt_delete()
            machine.expect(r"demo: signal 2, draining$")
            machine.expect(r"the machine ends: reboot$")
            machine.expect_end("guest-reset")


def uefi_boots_the_one_file():
    with Image(DEMO) as image, Machine(image.path, UEFI="1") as machine:
        machine.expect_ready()
        if "export-size: 67108864" not in run("nbdinfo", f"nbd://127.0.0.1:{machine.port}/ram0"):
            raise machine.failure("nbdinfo sees another size")


def processes_seccomp_and_ipv6_have_the_rights_they_need():
    """What is made after capabilities were dropped: sockets, threads, the filter. An address of
    IPv6 can be listened at as soon as it is set."""
    tables = ('[[network]]\ninterface = "eth1"\naddress = "fd00::7/64"\ngateway = "fd00::1"\n'
              'mtu = 1400\n[[group]]\nname = "main"\nmembers = 2\n'
              '[[process]]\nname = "worker"\nuser = "1000"\ngroup = "main"')
    with Image(tables=tables, enforce="seccomp", listen='"tcp:[fd00::7]:10809"') as image:
        with Machine(image.path, "-netdev", "user,id=two", "-device",
                     "virtio-net-pci,netdev=two,romfile=", KERNEL=VMLINUX) as machine:
            machine.expect(r"eth1: up, fd00::7/64 by way of fd00::1$")
            machine.expect(r"capabilities kept: 0x480000$")
            machine.expect_ready()


def booting_takes_little_longer_than_doing_nothing():
    """From the kernel's entry to `ready`. The guest's memory is there beforehand, as a machine's
    is: else the host's page faults are what is measured. What else runs here only makes it longer:
    the best of some tries counts."""
    with Image(DEMO) as image, tempfile.TemporaryDirectory() as nothing:
        nothing_image(nothing)
        seconds = {"nothing": [], "bedplate": []}
        for _ in range(BOOT_TRIES_MAX):
            for name, path in (("nothing", nothing), ("bedplate", image.path)):
                with Machine(path, "-mem-prealloc", KERNEL=VMLINUX) as machine:
                    match = machine.expect(r"(\d+\.\d+) s after the kernel began")
                    seconds[name].append(float(match.group(1)))
            best = {name: min(each) for name, each in seconds.items()}
            if best["bedplate"] <= best["nothing"] + BOOT_SECONDS_MAX:
                break
        print(f"     kernel entry to ready: {best['bedplate']:.2f} s; an init that does nothing: "
              f"{best['nothing']:.2f} s; all: {seconds}")
        if best["bedplate"] > best["nothing"] + BOOT_SECONDS_MAX:
            raise Failure(f"the best of each, in seconds: {best}")


def nothing_image(directory):
    source = os.path.join(directory, "init.c")
    with open(source, "w", encoding="ascii") as file:
        file.write('#include <stdio.h>\n#include <time.h>\n#include <unistd.h>\n'
                   "int main(void) {\n  struct timespec now;\n"
                   "  clock_gettime(CLOCK_MONOTONIC, &now);\n"
                   '  printf("%ld.%03ld s after the kernel began\\n", (long)now.tv_sec,\n'
                   "         now.tv_nsec / 1000000);\n  fflush(stdout);\n"
                   "  for (;;) pause();\n}\n")
    program = os.path.join(directory, "init")
    run("gcc", "-O2", "-static", "-s", "-o", program, source)
    sys.path.insert(0, os.path.dirname(BUILD))
    import newc  # pylint: disable=import-outside-toplevel
    archive = newc.Archive()
    archive.directory("dev")
    archive.device("dev/console", 5, 1)
    with open(program, "rb") as file:
        archive.file("init", file.read(), 0o755)
    with open(os.path.join(directory, "initramfs.cpio.zst"), "wb") as file:
        file.write(archive.bytes())  # the kernel takes it unpacked as well
    with open(os.path.join(directory, "cmdline"), "w", encoding="ascii") as file:
        file.write("console=tty0 console=ttyS0 quiet panic=10")
    os.symlink(VMLINUX, os.path.join(directory, "vmlinuz"))


def expect_record(machine, what):
    """On the console: what happened, in which build, and where in the program."""
    machine.expect(r"a drill is about to begin")
    for line in what:
        machine.expect(line)
    machine.expect(r"called from /init 0x[0-9a-f]+$")


def assertion_is_recorded_and_powers_off():
    """After the delay, although that is longer than the watchdog's patience."""
    tables = ('[crash]\naction = "power-off"\ndelay_s = 8\n'
              '[watchdog]\ntimeout_s = 4\ndriver = "i6300esb"')
    with Image(tables=tables) as image:
        with Machine(image.path, "-device", "i6300esb", KERNEL=VMLINUX,
                     APPEND="bedplate.drill=assertion") as machine:
            machine.expect_ready()
            expect_record(machine, [
                r"apps/init/drill\.cc:\d+: assertion failed: this is a drill",
                r"crash: signal 6 \(ABRT\) in thread main, build [0-9a-f]{40}$"])
            machine.expect(r"crash: power-off in 8 s$")
            machine.expect_end("guest-shutdown")


def fault_is_kept_in_pstore_over_a_reboot():
    """The store is a piece of memory that the kernel leaves alone, and a reset, too."""
    tables = '[crash]\ndelay_s = 0\ndrivers = ["ramoops"]'
    store = ("bedplate.drill=fault memmap=1M$0x10000000 ramoops.mem_address=0x10000000 "
             "ramoops.mem_size=0x100000 ramoops.record_size=0x20000 ramoops.max_reason=5")
    with Image(tables=tables) as image:
        with Machine(image.path, reboots=True, KERNEL=VMLINUX, APPEND=store) as machine:
            expect_record(machine, [
                r"crash: signal 11 \(SEGV\) at address 0x1000 in thread main, build [0-9a-f]{40}$"])
            machine.expect(r"crash: reboot in 0 s$")
            booted = len(machine.lines)
            machine.expect(r"record of an earlier crash, dmesg-ramoops-0:$", after=booted)
            for line in (r"\| small: pool of 48 MiB sealed", r"\| error: crash: signal 11 \(SEGV\)",
                         r"\| error:   called from /init 0x"):
                machine.expect(line, after=booted)


def full_stack_is_recorded_and_halts():
    """The handler has a stack of its own, and the watchdog does not interfere with the delay."""
    tables = ('[crash]\naction = "halt"\ndelay_s = 8\n'
              '[watchdog]\ntimeout_s = 4\ndriver = "i6300esb"')
    with Image(tables=tables) as image:
        with Machine(image.path, "-device", "i6300esb", KERNEL=VMLINUX,
                     APPEND="bedplate.drill=overflow ignore_loglevel") as machine:
            expect_record(machine, [r"crash: signal 11 \(SEGV\) at address 0x\S+ in thread main"])
            machine.expect(r"crash: halt in 8 s$")
            machine.expect(r"System halted")


def loop_that_hangs_is_reset_by_the_watchdog():
    with Image(tables='[watchdog]\ntimeout_s = 4\ndriver = "i6300esb"') as image:
        with Machine(image.path, "-device", "i6300esb", KERNEL=VMLINUX,
                     APPEND="bedplate.drill=hang") as machine:
            machine.expect(r"watchdog /dev/watchdog: resets the machine after 4 s$")
            machine.expect(r"a drill is about to begin")
            machine.expect(r"watchdog: not fed any more: the event loop of shard 0 has not turned")
            machine.expect_end("guest-reset")


def loop_that_turns_is_left_alone():
    """Idle, for three times the watchdog's time; and where there is no device, as configured."""
    with Image(tables='[watchdog]\ntimeout_s = 4\ndriver = "i6300esb"') as image:
        with Machine(image.path, "-device", "i6300esb", KERNEL=VMLINUX) as machine:
            machine.expect_ready()
            time.sleep(12)
            if machine.command("query-status")["status"] != "running":
                raise machine.failure("a machine in good order was reset")
        with Machine(image.path, KERNEL=VMLINUX) as machine:
            machine.expect(r"starting the watchdog /dev/watchdog with 4 s: No such file")
            machine.expect(r"the machine ends: reboot in 5 s$")
            machine.expect_end("guest-reset")


def loaded_parts(core):
    """{address: bytes in the file} of an ELF core's memory."""
    header = core.read(64)
    if header[:5] != b"\x7fELF\x02" or struct.unpack_from("<H", header, 16)[0] != 4:
        raise Failure("the device holds no core file")
    at, count = struct.unpack_from("<Q", header, 32)[0], struct.unpack_from("<H", header, 56)[0]
    core.seek(at)
    parts = {}
    for _ in range(count):
        kind, _, _, address, _, in_file, _, _ = struct.unpack("<IIQQQQQQ", core.read(56))
        if kind == 1:
            parts[address] = in_file
    return parts


def dump_keeps_the_owners_that_it_is_told():
    """The order of the plan is that of the addresses: boot, heap, blockd, volume:ram0."""
    tables = ('[crash]\naction = "power-off"\ndelay_s = 0\ndump = "owners"\n'
              'owners = ["boot", "volume:ram0"]\ndevice = "/dev/vda"\ndrivers = ["virtio_blk"]')
    with Image(tables=tables) as image, tempfile.NamedTemporaryFile() as disk:
        disk.truncate(256 * MIB)
        with Machine(image.path, "-drive", f"if=virtio,format=raw,file={disk.name}",
                     KERNEL=VMLINUX, APPEND="bedplate.drill=fault") as machine:
            machine.expect(r"crash: dumping, then power-off$")
            machine.expect(r"crash: a dump of \d+ bytes is on /dev/vda; power-off in 0 s$")
            machine.expect_end("guest-shutdown")
        parts = loaded_parts(disk)
        pool = 0x1080_0000_0000
        kept = [parts.get(pool + (index << 30)) for index in range(4)]
        if kept != [16 * MIB, 0, 0, 8 * MIB]:
            raise Failure(f"of boot, heap, blockd and volume:ram0 the dump has {kept}")


def crash_in_the_boot_ends_as_configured():
    """Before memory is taken nothing can be dumped yet, and the kernel must not decide the end."""
    tables = ('[crash]\naction = "power-off"\ndelay_s = 0\ndump = "metadata"\n'
              'device = "/dev/vda"\ndrivers = ["virtio_blk"]')
    with Image(tables=tables) as image, tempfile.NamedTemporaryFile() as disk:
        disk.truncate(64 * MIB)
        with Machine(image.path, "-drive", f"if=virtio,format=raw,file={disk.name}",
                     KERNEL=VMLINUX, APPEND="bedplate.drill=boot") as machine:
            expect_record(machine, [r"crash: signal 6 \(ABRT\) in thread "])
            machine.expect(r"crash: power-off in 0 s$")
            machine.expect_end("guest-shutdown")


def what_stops_a_boot_is_said_and_the_machine_ends():
    tables = ('[crash]\naction = "power-off"\ndelay_s = 0\n'
              '[[network]]\ninterface = "eth7"\naddress = "10.0.2.15/24"')
    with Image(tables=tables) as image, Machine(image.path, KERNEL=VMLINUX) as machine:
        machine.expect(r"looking for the interface eth7: there is none of this name; there are: "
                       r"lo, eth0; correct interface or driver \(now virtio_net\) in ")
        machine.expect(r"the machine ends: power-off in 0 s$")
        machine.expect_end("guest-shutdown")


def a_pool_that_is_too_large_leaves_the_kernel_its_memory():
    tables = '[crash]\naction = "power-off"\ndelay_s = 0'
    with Image(tables=tables, pool="4 GiB") as image:
        with Machine(image.path, KERNEL=VMLINUX) as machine:
            machine.expect(r"reserving 2040 hugepages of 2 MiB: \d+ MiB of memory are free, and "
                           r"64 MiB stay the kernel's; make \[pool\] bytes smaller, or add memory$")
            machine.expect(r"looking for hugepages of 2 MiB: 0 are free, 2040 are needed; ")
            machine.expect(r"the machine ends: power-off in 0 s$")
            machine.expect_end("guest-shutdown")


TESTS = [two_builds_are_equal, image_holds_what_is_needed_and_no_more,
         a_wrong_configuration_makes_no_image, clients_write_and_read_and_ctrl_alt_del_drains,
         uefi_boots_the_one_file, processes_seccomp_and_ipv6_have_the_rights_they_need,
         booting_takes_little_longer_than_doing_nothing,
         assertion_is_recorded_and_powers_off, fault_is_kept_in_pstore_over_a_reboot,
         full_stack_is_recorded_and_halts, loop_that_hangs_is_reset_by_the_watchdog,
         loop_that_turns_is_left_alone, dump_keeps_the_owners_that_it_is_told,
         crash_in_the_boot_ends_as_configured,
         what_stops_a_boot_is_said_and_the_machine_ends,
         a_pool_that_is_too_large_leaves_the_kernel_its_memory]


if __name__ == "__main__":
    sys.exit(run_tests(TESTS))
