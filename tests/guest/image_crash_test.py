#!/usr/bin/python3
"""The ends of an image: on request, by a crash, by a hang; and the record that it stores.

    /usr/bin/python3 tests/guest/image_crash_test.py [PATTERN...]

Usage and output are those of tests/guest/image_test.py.
"""

import re
import struct
import sys
import tempfile
import time

from image import MIB, PROGRAM, VMLINUX, Image, build_module, run
from machine import Machine
from runner import Failure, Late, limit, run_tests

WATCHDOG = '[watchdog]\ntimeout_s = 4\ndriver = "i6300esb"\n'
DUMP = ('[crash]\naction = "power-off"\ndelay_s = 0\ndevice = "/dev/vda"\n'
        'drivers = ["virtio_blk"]\n')
# A region of memory that neither the kernel nor a reset changes. A record fits into one part.
RAMOOPS = ("memmap=1M$0x10000000 ramoops.mem_address=0x10000000 ramoops.mem_size=0x100000 "
           "ramoops.record_size=0x20000 ramoops.max_reason=5")


def expect_record(machine, *lines, function):
    """Expects `lines` and the calls on the console, in this order. One of the calls is from
    `function`, which belongs to the drill."""
    call = r"called from /init (0x[0-9a-f]+)$"
    machine.expect_lines(r"a drill begins, as requested", *lines, call)
    machine.expect(r"crash: (dumping|(reboot|power-off|halt) in)")
    addresses = [match.group(1) for match in (re.search(call, line) for line in machine.lines)
                 if match]
    calls = run("addr2line", "-Cfpe", PROGRAM, *addresses)
    if not re.search(rf"\b{function}\(.*\bapps/init/drill\.cc:\d+", calls):
        raise machine.failure(f"{function} is not among the calls:\n{calls}")


# ---- Ends on request ----


def sigterm_drains_and_ends_as_configured():
    with Image(tables='[init]\non_terminate = "halt"') as image:
        with Machine(image.path, KERNEL=VMLINUX,
                     APPEND="bedplate.drill=terminate ignore_loglevel") as machine:
            machine.expect_lines(r"bedplate: ready$", r"small: signal 15, draining$",
                                 r"the machine ends: halt$", r"System halted")


def hung_machine_ends_at_the_second_ctrl_alt_del():
    """Without a watchdog the machine would wait for its shard for ever. At the second press the
    kernel resets the machine."""
    with Image(tables='[init]\non_ctrl_alt_del = "power-off"') as image:
        with Machine(image.path, KERNEL=VMLINUX, APPEND="bedplate.drill=hang") as machine:
            machine.expect(r"drill: hanging$")
            machine.press_ctrl_alt_delete()
            machine.expect_lines(r"small: signal 2, draining$", r"not drained after 5000 ms")
            machine.press_ctrl_alt_delete()
            machine.expect_end("guest-reset")


def refused_boot_ends_at_ctrl_alt_del():
    """After a refused boot the appliance itself handles the keys."""
    with Image(tables='[crash]\naction = "halt"\ndelay_s = 3600', pool="4 GiB") as image:
        with Machine(image.path, KERNEL=VMLINUX) as machine:
            machine.expect(r"the machine ends: halt in 3600 s$")
            machine.press_ctrl_alt_delete()
            machine.expect_end("guest-reset")


def children_are_reaped():
    with Image() as image:
        with Machine(image.path, KERNEL=VMLINUX, APPEND="bedplate.drill=children") as machine:
            machine.expect(r"drill: 8 children and their children have ended; none is left$")


# ---- Crashed ----


def assertion_is_recorded_and_powers_off():
    """The machine powers off after the delay, although the delay is longer than the watchdog's
    time."""
    tables = '[crash]\naction = "power-off"\ndelay_s = 8\n' + WATCHDOG
    with Image(tables=tables) as image:
        with Machine(image.path, "-device", "i6300esb", KERNEL=VMLINUX,
                     APPEND="bedplate.drill=assertion") as machine:
            machine.expect_ready()
            expect_record(machine,
                          r"apps/init/drill\.cc:\d+: assertion failed: this is a drill",
                          r"crash: signal 6 \(ABRT\) in thread main, shard main, service init, "
                          r"build [0-9a-f]{40}$",
                          function="drill_now")
            machine.expect(r"crash: power-off in 8 s$")
            machine.expect_end("guest-shutdown")


def crash_of_one_thread_stops_the_others():
    """A client of the second shard is served before the first shard crashes, and not after that."""
    shards = '[[shard]]\nname = "other"\ncpu = 1'
    with Image(tables='[crash]\ndelay_s = 3600\n[[network]]\ninterface = "eth0"\n'
                      'address = "10.0.2.15/24"', shards=shards,
               blockd='connections_shard = "other"', listen='"tcp:10.0.2.15:10809"') as image:
        uri = "nbd://127.0.0.1:{}/ram0"
        with Machine(image.path, KERNEL=VMLINUX) as machine:
            machine.expect_ready()
            begin = time.monotonic()
            run("nbdinfo", uri.format(machine.port))
            seconds = time.monotonic() - begin
        with Machine(image.path, KERNEL=VMLINUX, APPEND="bedplate.drill=assertion") as machine:
            machine.expect(r"crash: reboot in 3600 s$")
            try:
                with limit(max(5, 10 * seconds)):
                    run("nbdinfo", uri.format(machine.port))
            except Late:
                return
            raise machine.failure("a request was answered after the crash")


def fault_is_kept_in_pstore_over_a_reboot():
    tables = '[crash]\ndelay_s = 0\ndrivers = ["ramoops"]'
    with Image(tables=tables) as image:
        with Machine(image.path, reboots=True, KERNEL=VMLINUX,
                     APPEND=f"bedplate.drill=fault {RAMOOPS}") as machine:
            machine.expect(r"crash records: on the console, and kept by ramoops$")
            expect_record(machine, r"crash: signal 11 \(SEGV\) at address 0x1000 in thread main, "
                                   r"shard main, service init, build [0-9a-f]{40}$",
                          function="drill_now")
            machine.expect(r"crash: reboot in 0 s$")
            machine.expect_lines(
                r"record of an earlier crash, dmesg-ramoops-0:$",
                r"\| build [0-9a-f]{40} is the first process", r"\| small: pool of 48 MiB sealed",
                r"\| error: crash: signal 11 \(SEGV\)", r"\| error:   called from /init 0x",
                after=len(machine.lines))


def fault_is_kept_in_the_firmwares_variables():
    """Real machines store a record in the firmware's variables. A variable has 1 KiB, so the record
    comes in parts, the last one first. UEFI gives the kernel the command line that is in the
    image."""
    options = ("--cmdline", "console=ttyS0 quiet panic=10 no_timer_check cryptomgr.notests "
                            "efi_pstore.pstore_disable=0 bedplate.drill=fault")
    tables = '[crash]\ndelay_s = 0\ndrivers = ["efi_pstore"]'
    with Image(tables=tables, options=options) as image:
        with Machine(image.path, reboots=True, UEFI="1") as machine:
            machine.expect(r"crash records: on the console, and kept by efi$")
            machine.expect_lines(r"crash: reboot in 0 s$",
                                 r"record of an earlier crash, dmesg-efi-\d+:$",
                                 r"\| error: crash: signal 11 \(SEGV\) at address 0x1000")
            # It crashes again and again. A record that was shown is removed: none is shown twice.
            machine.expect_lines(*[r"bedplate: crash records: "] * 3)
            records = re.findall(r"record of an earlier crash, (\S+):", "\n".join(machine.lines))
            if len(records) != len(set(records)):
                raise machine.failure(f"shown twice: {records}")


def full_stack_is_recorded_and_halts():
    """The handler has its own stack, and the watchdog does not interfere with the delay."""
    with Image(tables='[crash]\naction = "halt"\ndelay_s = 8\n' + WATCHDOG) as image:
        with Machine(image.path, "-device", "i6300esb", KERNEL=VMLINUX,
                     APPEND="bedplate.drill=overflow ignore_loglevel") as machine:
            expect_record(machine, r"crash: signal 11 \(SEGV\) at address 0x\S+ in thread main",
                          function="fill_stack")
            machine.expect(r"crash: halt in 8 s$")
            machine.expect(r"System halted")


def crash_in_the_boot_ends_as_configured():
    """Before memory is taken, nothing can be dumped. The kernel must not decide the end."""
    with Image(tables=DUMP + 'dump = "metadata"\n') as image, \
            tempfile.NamedTemporaryFile() as disk:
        disk.truncate(64 * MIB)
        with Machine(image.path, *disk_options(disk), KERNEL=VMLINUX,
                     APPEND="bedplate.drill=boot") as machine:
            expect_record(machine, r"crash: signal 6 \(ABRT\) in thread ", function="drill_now")
            machine.expect(r"crash: power-off in 0 s$")
            machine.expect_end("guest-shutdown")


# ---- Hung ----


def loop_that_hangs_leaves_a_record():
    """A loop that hangs leaves a record with the loop and its position. It does so before the
    watchdog's reset, which would leave none."""
    with Image(tables=WATCHDOG + '[crash]\ndrivers = ["ramoops"]') as image:
        with Machine(image.path, "-device", "i6300esb", reboots=True, KERNEL=VMLINUX,
                     APPEND=f"bedplate.drill=hang {RAMOOPS}") as machine:
            machine.expect(r"watchdog /dev/watchdog: resets the machine after 4 s$")
            expect_record(
                machine, r"watchdog: no longer fed: the event loop of shard 0 has been stuck",
                r"watchdog: the event loop of shard 0 hangs$",
                r"crash: signal 6 \(ABRT\) in thread main, shard main, service init, "
                r"build [0-9a-f]{40}$",
                function="drill_now")
            machine.expect_lines(
                r"record of an earlier crash, dmesg-ramoops-0:$", r"\| warning: drill: hanging$",
                r"\| error: watchdog: the event loop of shard 0 hangs$",
                r"\| error: crash: signal 6 \(ABRT\) in thread main, shard main, service init, "
                r"build [0-9a-f]{40}$",
                r"\| error:   called from /init 0x", after=len(machine.lines))


def loop_that_hangs_without_a_signal_leaves_a_record():
    """The record is of the thread that noticed the hang, because the hanging thread takes no
    signal."""
    with Image(tables=WATCHDOG + '[crash]\naction = "power-off"\ndelay_s = 0') as image:
        with Machine(image.path, "-device", "i6300esb", KERNEL=VMLINUX,
                     APPEND="bedplate.drill=hang-deaf") as machine:
            machine.expect_lines(
                r"watchdog: the event loop of shard 0 hangs$",
                r"watchdog: the event loop of shard 0 hangs, and its thread handles no signal$",
                r"crash: signal 6 \(ABRT\) in thread init, service init, build ",
                r"crash: power-off in 0 s$")
            machine.expect_end("guest-shutdown")


def control_thread_that_hangs_is_reset_by_the_watchdog():
    with Image(tables=WATCHDOG) as image:
        with Machine(image.path, "-device", "i6300esb", KERNEL=VMLINUX,
                     APPEND="bedplate.drill=hang-control") as machine:
            machine.expect(r"a drill begins, as requested")
            machine.expect_end("guest-reset", by_watchdog=True)


def loop_that_turns_is_left_alone():
    """An idle machine is not reset within three times the watchdog's time. Without a watchdog
    device the machine ends as configured."""
    with Image(tables=WATCHDOG) as image:
        with Machine(image.path, "-device", "i6300esb", KERNEL=VMLINUX) as machine:
            machine.expect_ready()
            time.sleep(12)
            if machine.command("query-status")["status"] != "running":
                raise machine.failure("a machine in good order was reset")
        with Machine(image.path, KERNEL=VMLINUX) as machine:
            machine.expect(r"starting the watchdog /dev/watchdog with 4 s: No such file")
            machine.expect(r"the machine ends: reboot in 5 s$")
            machine.expect_end("guest-reset")


def watchdog_that_is_not_required_may_lack_its_chip():
    """The watchdog's module may be missing, too: this module refuses to load without its chip."""
    tables = '[watchdog]\nrequired = {}\ndriver = "w83627hf_wdt"\n[crash]\ndelay_s = 0'
    message = r"loading the module /modules/w83627hf_wdt\.ko into kernel .*: No such device; this "
    with Image(tables=tables.format("false")) as image:
        with Machine(image.path, KERNEL=VMLINUX) as machine:
            machine.expect_lines(message, r"starting the watchdog /dev/watchdog with 30 s: No such",
                                 r"bedplate: ready$")
    with Image(tables=tables.format("true")) as image:
        with Machine(image.path, KERNEL=VMLINUX) as machine:
            machine.expect_lines(message, r"the machine ends: reboot in 0 s$")


# A minimal watchdog whose time cannot be set.
FIXED_WATCHDOG = """
#include <linux/module.h>
#include <linux/watchdog.h>
static int nothing(struct watchdog_device *watchdog) { return 0; }
static const struct watchdog_info info = {.options = WDIOF_KEEPALIVEPING, .identity = "fixed"};
static const struct watchdog_ops ops = {.owner = THIS_MODULE, .start = nothing, .stop = nothing};
static struct watchdog_device fixed = {.info = &info, .ops = &ops, .timeout = 6};
static int __init begin(void) { return watchdog_register_device(&fixed); }
module_init(begin);
MODULE_LICENSE("GPL");
"""


def watchdog_whose_time_cannot_be_set_is_taken_as_it_is():
    """The watchdog's own time is used, unless it is far from the configured one."""
    with tempfile.TemporaryDirectory() as work:
        given = "--module", build_module(work, "fixed", FIXED_WATCHDOG)
        for tables, lines in [
                ("[watchdog]\ntimeout_s = 10",
                 [r"watchdog /dev/watchdog: resets the machine after 6 s, as its driver chose$",
                  r"bedplate: ready$"]),
                ("[watchdog]\ntimeout_s = 13\n[crash]\ndelay_s = 0",
                 [r"starting the watchdog /dev/watchdog with 13 s: it resets the machine after 6 "
                  r"s, and this cannot be changed; set timeout_s in \[watchdog\] to 6, or "
                  r"required = false$",
                  r"the machine ends: reboot in 0 s$"])]:
            with Image(tables=tables, options=given) as image, \
                    Machine(image.path, KERNEL=VMLINUX) as machine:
                machine.expect_lines(*lines)


# ---- Dumps of memory ----


def disk_options(file):
    return "-drive", f"if=virtio,format=raw,file={file.name}"


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


def dump_keeps_what_it_is_told():
    """A dump has only the configured memory. The order of the plan is that of the addresses: boot,
    heap, blockd, volume:ram0. Private memory, which lies elsewhere, is always dumped: at least the
    stacks of the shard and of main."""
    for tables, wanted in [('dump = "metadata"\n', [16 * MIB, 0, 0, 0]),
                           ('dump = "owners"\nowners = ["boot", "volume:ram0"]\n',
                            [16 * MIB, 0, 0, 8 * MIB])]:
        with Image(tables=DUMP + tables) as image, tempfile.NamedTemporaryFile() as disk:
            disk.truncate(256 * MIB)
            with Machine(image.path, *disk_options(disk), KERNEL=VMLINUX,
                         APPEND="bedplate.drill=fault") as machine:
                machine.expect_lines(r"crash: dumping, then power-off$",
                                     r"crash: a dump of \d+ bytes is on /dev/vda$",
                                     r"crash: power-off in 0 s$")
                machine.expect_end("guest-shutdown")
            parts = loaded_parts(disk)
            pool = 0x1080_0000_0000
            kept = [parts.get(pool + (index << 30)) for index in range(4)]
            if kept != wanted:
                raise Failure(f"of boot, heap, blockd and volume:ram0 the dump has {kept}")
            private = sum(bytes_count for address, bytes_count in parts.items()
                          if not pool <= address < pool + (4 << 30))
            if private < 128 << 10:
                raise Failure(f"of private memory the dump has {private} bytes")


def dump_that_has_no_room_says_so():
    with Image(tables=DUMP + 'dump = "metadata"\n') as image, \
            tempfile.NamedTemporaryFile() as disk:
        disk.truncate(4 * MIB)
        with Machine(image.path, *disk_options(disk), KERNEL=VMLINUX,
                     APPEND="bedplate.drill=fault") as machine:
            machine.expect(rf"crash: writing the dump to /dev/vda, which has {4 * MIB} of "
                           r"\d+ bytes: No space left on device; name a larger device in ")
            machine.expect_end("guest-shutdown")


def device_that_comes_late_is_waited_for():
    """The device for dumps comes late, a moment before it is looked for."""
    with Image(tables=DUMP + 'dump = "metadata"\n') as image, \
            tempfile.NamedTemporaryFile() as disk:
        disk.truncate(64 * MIB)
        with Machine(image.path, "-drive", f"if=none,id=late,format=raw,file={disk.name}",
                     KERNEL=VMLINUX) as machine:
            machine.expect(r"volume:ram0: 8 MiB in pages of ")
            machine.command("device_add", driver="virtio-blk-pci", drive="late", id="disk")
            machine.expect_ready()
        with Machine(image.path, KERNEL=VMLINUX) as machine:
            machine.expect_lines(r"opening /dev/vda for dumps: No such file or directory; name a ",
                                 r"the machine ends: power-off in 0 s$")


# ---- These tests themselves ----


def machine_that_hangs_is_ended_and_shown():
    with Image() as image:
        try:
            with Machine(image.path, KERNEL=VMLINUX) as machine:
                process = machine.process
                machine.expect_ready()
                with limit(2):
                    run("sleep", "1000")
        except Late as late:
            if "bedplate: ready" not in "\n".join(late.__notes__):
                raise Failure("the console was not shown") from late
            if process.poll() is None:
                raise Failure("the machine goes on") from late
            return
    raise Failure("it ended by itself")


TESTS = [sigterm_drains_and_ends_as_configured, hung_machine_ends_at_the_second_ctrl_alt_del,
         refused_boot_ends_at_ctrl_alt_del, children_are_reaped,
         assertion_is_recorded_and_powers_off, crash_of_one_thread_stops_the_others,
         fault_is_kept_in_pstore_over_a_reboot, fault_is_kept_in_the_firmwares_variables,
         full_stack_is_recorded_and_halts, crash_in_the_boot_ends_as_configured,
         loop_that_hangs_leaves_a_record, loop_that_hangs_without_a_signal_leaves_a_record,
         control_thread_that_hangs_is_reset_by_the_watchdog, loop_that_turns_is_left_alone,
         watchdog_that_is_not_required_may_lack_its_chip,
         watchdog_whose_time_cannot_be_set_is_taken_as_it_is, dump_keeps_what_it_is_told,
         dump_that_has_no_room_says_so, device_that_comes_late_is_waited_for,
         machine_that_hangs_is_ended_and_shown]


if __name__ == "__main__":
    sys.exit(run_tests(TESTS))
