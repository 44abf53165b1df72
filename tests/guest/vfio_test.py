#!/usr/bin/python3
"""PCI devices driven by programs themselves, through VFIO, behind QEMU's IOMMU.

    /usr/bin/python3 tests/guest/vfio_test.py [PATTERN...]

Patterns and the last line are those of guest_test.py. apps/examples/edu.cc drives QEMU's device
`edu`, which copies by DMA.
"""

import json
import os
import re
import sys
import tempfile

from configuration import SERVE, smallest
from guest_test import Guest
from image import VMLINUX, Image, build_module
from machine import MODE, ROOT, Machine
from runner import Failure, run_tests

EDU = os.path.join(ROOT, "build", MODE, "examples", "edu")
MODULES = "vfio_iommu_type1 vfio_pci"
# The IOMMU's default is 39 bits of address; the pool lies above.
IOMMU = "-machine q35 -device intel-iommu,aw-bits={bits},intremap=on,caching-mode=on"
DEVICES = "-device edu,addr=5,dma_mask=0xffffffffffffffff -device e1000e,addr=6,romfile="
EDU_AT, NIC_AT = "0000:00:05.0", "0000:00:06.0"

# `give ADDRESS` binds a device to vfio-pci, like the cures of the preflight. `configure ADDRESS`
# writes the configuration of an appliance that drives it. `look ADDRESS` prints the reasons against
# it.
BEGIN = SERVE + r"""
echo 64 > /proc/sys/vm/nr_hugepages
mkdir -p /etc && printf 'root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n' > /etc/passwd
pci=/sys/bus/pci
give() {
  echo vfio-pci > $pci/devices/$1/driver_override
  [ ! -e $pci/devices/$1/driver ] || echo $1 > $pci/devices/$1/driver/unbind
  echo $1 > $pci/drivers_probe
}
configure() {
  cat > /tmp/a.toml << END
""" + smallest("a", in_pool='pages = "2 MiB"', more='[edu]\ndevice = "$1"') + r"""END
}
look() { configure $1; echo == look $1; /edu check /tmp/a.toml 2>&1; echo == exit $?; }
"""


def run(script, bits=48, modules=MODULES, append="intel_iommu=on", iommu=IOMMU, **machine):
    guest = Guest("/bin/sh", "-c", BEGIN + script, modules=modules, append=append,
                  files=f"{EDU}=/edu", qemu=f"{iommu.format(bits=bits)} {DEVICES}", seconds=180,
                  **machine)
    guest.expect_exit(0)
    return guest


def expect_look(guest, *lines):
    """Checks that the output of `look` is these lines and no others; each is a pattern."""
    seen = re.search(r"^== look \S+\n([\s\S]*?)^== exit 1$", guest.output, re.MULTILINE)
    found = seen.group(1).splitlines() if seen else []
    if len(found) != len(lines) or not all(map(re.search, lines, found)):
        raise Failure(f"expected {lines}\n{guest.output}")


# ---- The tests ----


def unit_tests_behind_an_iommu():
    """The registration device works with the DMA of a real device. Only the tests are skipped that
    need a machine without VFIO, or a device without an IOMMU."""
    guest = run(f"give {EDU_AT}; give {NIC_AT}; /bedplate-tests -g Vfio -g PciDevice; "
                "echo == tests $?", memory_mib=3072)
    guest.expect(r"^== tests 0$")
    passed = int(guest.expect(r"^(\d+) passed, 0 failed, 2 skipped$").group(1))
    if passed < 25:
        raise Failure(f"too few tests ran\n{guest.output}")


def malloc_goes_through_a_device_and_nothing_is_mapped_after_the_seal():
    guest = run(f"""give {EDU_AT}; configure {EDU_AT}
serve a /edu 'through the device'
echo == stats; /edu stats --json a
kill -TERM $a; wait $a; echo == ended $?; cat /tmp/a.log
serve a /edu 'through the device'
kill -KILL $a; wait $a
/edu check /tmp/a.toml; echo == after a kill $?""")
    guest.expect(r"2048 bytes of malloc went through the device into a carve: unchanged$")
    guest.expect(r"^== ended 0$")
    guest.expect(r"^== after a kill 0$")
    counters = json.loads(guest.expect(r"== stats\n(\{[\s\S]*?^\})").group(1))
    segments = len(counters["segment"])
    seen = (counters["vfio"], counters["pool"]["registrations_after_seal"], counters["audit"])
    if seen != ({"groups": 1, "mappings_left": 65535 - segments}, 0, "ok"):
        raise Failure(f"the counters say {seen}\n{guest.output}")


def a_device_that_is_not_there():
    expect_look(run("look 0000:00:09.0"),
                r"^bedplate: looking for the PCI device 0000:00:09\.0: there is none at this "
                rf"address; there are: .*{EDU_AT}, {NIC_AT}.*; correct the address ")


def a_device_that_the_kernel_drives_and_the_commands_that_take_it():
    """The cure is run unchanged, and then the device can be used."""
    guest = run(f"""look {NIC_AT}
/edu check /tmp/a.toml 2>&1 | sed -n 's/.* does; //p' > /tmp/cure; sh /tmp/cure
/edu check /tmp/a.toml; echo == after the cure $?""", modules=f"{MODULES} e1000e")
    expect_look(guest, rf"^bedplate: checking who drives {NIC_AT}: the kernel's e1000e does; ")
    guest.expect(r"^== after the cure 0$")


def an_iommu_of_39_bits():
    expect_look(run(f"give {EDU_AT}; look {EDU_AT}", bits=39),
                r"^bedplate: comparing the pool's addresses, .*: it accepts 39 address bits, 45 "
                r"are needed; give the virtual machine an IOMMU of 48 bits ")


# Debian's kernel is built without no-IOMMU mode. This module simulates it: it gives a device
# without an IOMMU a group of this name.
NO_IOMMU_MODE = r"""
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/pci.h>
static int __init begin(void) {
  struct pci_dev *edu = pci_get_device(0x1234, 0x11e8, NULL);
  struct iommu_group *group = iommu_group_alloc();
  iommu_group_set_name(group, "vfio-noiommu");
  return iommu_group_add_device(group, &edu->dev);
}
module_init(begin);
MODULE_LICENSE("GPL");
"""


def no_iommu_mode_is_refused():
    with tempfile.TemporaryDirectory() as work:
        module = build_module(work, "no_iommu_mode", NO_IOMMU_MODE)
        guest = run(f"cat /sys/bus/pci/devices/{EDU_AT}/iommu_group/name; look {EDU_AT}",
                    modules=f"{MODULES} {module}", iommu="-machine q35")
    guest.expect(r"^vfio-noiommu$")
    expect_look(guest, rf"^bedplate: looking for the IOMMU of {EDU_AT}: vfio-pci has it in no-IOMMU "
                r"mode, .*; turn the IOMMU on in the firmware ")


def a_machine_without_an_iommu():
    guest = run(f"give {EDU_AT}; look {EDU_AT}; "
                "/bedplate-tests -sg VfioPool -sn ADeviceWithoutAnIommuGroupIsRefused",
                iommu="-machine q35")
    expect_look(guest, rf"^bedplate: looking for the IOMMU of {EDU_AT}: it has no IOMMU group: ")
    guest.expect(r"^1 passed, 0 failed, 0 skipped$")


def an_iommu_that_does_not_remap_interrupts():
    expect_look(run(f"give {EDU_AT}; look {EDU_AT}",
                    iommu=IOMMU.replace("intremap=on", "intremap=off")),
                r"^bedplate: turning on translation for IOMMU group \d+: Operation not permitted; "
                r"turn interrupt remapping on ")


def without_the_modules_their_names_are_said():
    """The driver vfio_pci is loaded, so that the device can be bound. The module of type 1 is
    not."""
    expect_look(run(f"give {EDU_AT}; look {EDU_AT}", modules="vfio_pci"),
                r"^bedplate: looking for VFIO's IOMMU of type 1: this kernel has none; load its "
                r"module: modprobe vfio_iommu_type1$")


def a_user_meets_the_rights_and_the_limit_of_locked_memory():
    guest = run(f"""give {EDU_AT}; configure {EDU_AT}; chmod 666 /tmp/a.toml
sed -i 's#^name = "a"#&\\nruntime_directory = "/tmp/run"#; s#2 MiB#4 KiB#' /tmp/a.toml
export BEDPLATE_BOOT_BYTES=8MiB
su user -c 'echo == user; /edu check /tmp/a.toml' 2>&1
chown user /dev/vfio/[0-9]*; ulimit -l 81920
su user -c 'echo == owner; /edu check /tmp/a.toml' 2>&1
ulimit -l 160000
su user -c '/edu check /tmp/a.toml; echo == good $?' 2>&1""")
    guest.expect(r"^== user\n(?:bedplate: .*\n)*bedplate: opening /dev/vfio/\d+, the IOMMU group: "
                 r"Permission denied; chown it to the user that ")
    guest.expect(r"^== owner\nbedplate: checking the limit of locked memory: 81920 KiB are "
                 r"allowed, \d+ KiB are needed; ")
    guest.expect(r"^== good 0$")


IMAGE = smallest("a", in_pool='pages = "2 MiB"', more=f'[edu]\ndevice = "{EDU_AT}"\n'
                 '[[network]]\ninterface = "eth0"\ndriver = "virtio_net"\n')


def an_image_gives_the_device_to_vfio_by_itself():
    """Only the service's own table names the device; the image has the modules because of it."""
    with tempfile.TemporaryDirectory() as work:
        config = os.path.join(work, "a.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(IMAGE)
        with Image(config, options=("--level", "1", "--init", EDU)) as image:
            if "vfio_iommu_type1.ko" not in image.log or "vfio-pci.ko" not in image.log:
                raise Failure(image.log)
            options = f"{IOMMU.format(bits=48)} {DEVICES}".split()
            with Machine(image.path, *options, KERNEL=VMLINUX, APPEND="intel_iommu=on") as machine:
                machine.expect(r"capabilities kept: SYS_BOOT$")
                machine.expect_ready()
                machine.expect(r"2048 bytes of malloc went through the device into a carve: "
                               r"unchanged$")
            with Machine(image.path, *DEVICES.split(), KERNEL=VMLINUX) as machine:
                machine.expect(rf"looking for the IOMMU of {EDU_AT}: it has no IOMMU group: ")
                machine.expect(r"the machine ends: reboot in 5 s$")


TESTS = [unit_tests_behind_an_iommu,
         malloc_goes_through_a_device_and_nothing_is_mapped_after_the_seal,
         a_device_that_is_not_there, a_device_that_the_kernel_drives_and_the_commands_that_take_it,
         an_iommu_of_39_bits, no_iommu_mode_is_refused, a_machine_without_an_iommu,
         an_iommu_that_does_not_remap_interrupts, without_the_modules_their_names_are_said,
         a_user_meets_the_rights_and_the_limit_of_locked_memory,
         an_image_gives_the_device_to_vfio_by_itself]


if __name__ == "__main__":
    sys.exit(run_tests(TESTS))
