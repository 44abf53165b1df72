#!/usr/bin/python3
"""PCI devices that programs drive themselves, by VFIO, behind QEMU's IOMMU.

    /usr/bin/python3 tests/guest/vfio_test.py [PATTERN...]

Patterns and the last line are those of guest_test.py. QEMU's device `edu` copies by DMA.
"""

import sys

from guest_test import Guest
from runner import Failure, run_tests

MODULES = "vfio_iommu_type1 vfio_pci"
# 39 bits of address are its default, and the pool lies above.
IOMMU = "-machine q35 -device intel-iommu,aw-bits={bits},intremap=on,caching-mode=on"
DEVICES = "-device edu,addr=5,dma_mask=0xffffffffffffffff -device e1000e,addr=6,romfile="
EDU_AT, NIC_AT = "0000:00:05.0", "0000:00:06.0"

# `give ADDRESS` has vfio-pci take a device, as the preflight's cures say.
BEGIN = r"""
pci=/sys/bus/pci
give() {
  echo vfio-pci > $pci/devices/$1/driver_override
  [ ! -e $pci/devices/$1/driver ] || echo $1 > $pci/devices/$1/driver/unbind
  echo $1 > $pci/drivers_probe
}
"""


def run(script, bits=48, modules=MODULES, append="intel_iommu=on", iommu=IOMMU, **machine):
    guest = Guest("/bin/sh", "-c", BEGIN + script, modules=modules, append=append,
                  qemu=f"{iommu.format(bits=bits)} {DEVICES}", seconds=180,
                  **machine)
    guest.expect_exit(0)
    return guest


# ---- The tests ----


def unit_tests_behind_an_iommu():
    """The registration device with a real device's DMA; only what needs a machine without VFIO is
    skipped."""
    guest = run(f"give {EDU_AT}; give {NIC_AT}; /bedplate-tests -g Vfio -g PciDevice; "
                "echo == tests $?", memory_mib=3072)
    guest.expect(r"^== tests 0$")
    passed = int(guest.expect(r"^(\d+) passed, 0 failed, 1 skipped$").group(1))
    if passed < 25:
        raise Failure(f"too few tests ran\n{guest.output}")


TESTS = [unit_tests_behind_an_iommu]


if __name__ == "__main__":
    sys.exit(run_tests(TESTS))
