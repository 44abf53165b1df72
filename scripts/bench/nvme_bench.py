#!/usr/bin/python3
"""Measures a read of an NVMe drive: our driver against the kernel's, by polled io_uring.

Both run in one virtual machine, in turns, each on a QEMU drive of its own behind QEMU's IOMMU,
which the kernel uses lazily, in batches (DMA-FQ), or not at all for its own drive (--passthrough).
QEMU counts the instructions, including the kernel's (nvme_requests.cc), so the figures repeat
whatever else this machine does; work of QEMU's drives costs no instruction. The benchmark exits 0
whatever the figures, unless a program failed to run.
"""
import argparse
import os
import re
import statistics
import subprocess

import common
from common import BUILD, ROOT, BenchError

TARGET = 0.7  # of the kernel's instructions, at most
DEPTHS = (1, 8, 32)
SIDES = {"bedplate": "vfio 0000:00:06.0", "kernel": "uring /dev/nvme0n1"}
SECONDS_MAX = 300
QEMU = ["-icount shift=1,sleep=off", "-machine q35", "-device intel-iommu,aw-bits=48,intremap=on"]
QEMU += [f"-blockdev driver=null-co,read-zeroes=on,size=16777216,node-name={name} "
         f"-device nvme,serial={name},drive={name},addr={slot}"
         for name, slot in (("kernel", 5), ("ours", 6))]

SETUP = """
pci=/sys/bus/pci
echo vfio-pci > $pci/devices/0000:00:06.0/driver_override
rmmod nvme; insmod /modules/nvme.ko poll_queues=1 || exit
echo 0000:00:06.0 > $pci/drivers_probe
grep -qx {type} $pci/devices/0000:00:05.0/iommu_group/type || {{ echo no {type}; exit 1; }}
until [ -b /dev/nvme0n1 ]; do sleep 0.1; done
"""


def run_guest(rounds, batches, passthrough):
    lines = [SETUP.format(type="identity" if passthrough else "DMA-FQ")]
    for _ in range(rounds):
        for depth in DEPTHS:
            lines += [f"echo == {who} {depth}\n/nvme_requests {side} {depth} {batches} || exit"
                      for who, side in SIDES.items()]
    done = subprocess.run(
        [f"{ROOT}/tests/guest/run.sh", "--append",
         f"intel_iommu=on iommu.strict=0 iommu.passthrough={int(passthrough)}",
         "--seconds", str(SECONDS_MAX), "--modules", "vfio_iommu_type1 vfio_pci nvme",
         "--files", f"{BUILD}/nvme_requests=/nvme_requests", "--qemu", " ".join(QEMU),
         "--", "/bin/sh", "-c", "\n".join(lines)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise BenchError(f"measuring in the guest: exit code {done.returncode}\n"
                         f"{done.stdout[-2000:]}{done.stderr[-2000:]}; see tests/guest/run.sh")
    return done.stdout


def read_figures(output):
    figures = {depth: {who: [] for who in SIDES} for depth in DEPTHS}
    for who, depth, number in re.findall(r"^== (\w+) (\d+)\n([\d.]+)$", output, re.MULTILINE):
        figures[int(depth)][who].append(float(number))
    return figures


def main():
    parser = argparse.ArgumentParser(description="Counts what a read of an NVMe drive costs.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=101, help="of each round and depth")
    parser.add_argument("--passthrough", action="store_true",
                        help="no IOMMU in the way of the kernel's driver")
    options = parser.parse_args()
    common.require({f"{BUILD}/nvme_requests": "scripts/bench/run.sh"})
    figures = read_figures(run_guest(options.rounds, options.batches,
                                     options.passthrough))
    rows = []
    print("instructions of a read of 4 KiB by the driver of a drive, median (min..max) of "
          f"{options.rounds} rounds\n{'':10} {'bedplate':>22} {'kernel, io_uring':>22}")
    for depth, sides in figures.items():
        ratios = [ours / theirs for ours, theirs in zip(sides["bedplate"], sides["kernel"])]
        comparison = common.compared("kernel", ratios, TARGET, False)
        rows.append(common.row(f"4k read depth {depth}", "instructions", sides, [comparison],
                               is_rate=False))
        print(f"depth {depth:<4} {common.spread(sides['bedplate']):>22} "
              f"{common.spread(sides['kernel']):>22}  {statistics.median(ratios):.3f} target "
              f"{TARGET} {common.verdict(comparison['reached'])}")
    path = common.write_json("nvme.json", {"options": vars(options), "figures": figures}, rows)
    print(f"every round: {os.path.relpath(path)}")


common.run_main(main)
