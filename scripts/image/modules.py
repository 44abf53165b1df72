#!/usr/bin/python3
"""The files of kernel modules, with all that they depend on, in the order in which they load.

    /usr/bin/python3 scripts/image/modules.py DIRECTORY [NAME...]

DIRECTORY is lib/modules/RELEASE of a kernel's package. A module says itself what it takes symbols
from (`depends=` in its section .modinfo); what it asks the kernel for by name at run time, it does
not say: that is MORE.
"""

import os
import sys

# What a module finds no device, or no algorithm, without.
MORE = {
    "virtio_blk": ["virtio_pci"],
    "virtio_console": ["virtio_pci"],
    "virtio_net": ["virtio_pci"],
    "rdma_rxe": ["crc32_generic"],
}


class ModuleError(Exception):
    """What was being done, what was found, and what to do about it, in one line."""


def canonical(name):
    return name.replace("-", "_")


def module_files(directory):
    """Returns {name: path} of all modules, and the set of those that are part of the kernel."""
    files = {}
    for folder, _, names in os.walk(os.path.join(directory, "kernel")):
        for name in names:
            if name.endswith(".ko"):
                files[canonical(name[:-len(".ko")])] = os.path.join(folder, name)
    with open(os.path.join(directory, "modules.builtin"), encoding="ascii") as builtin:
        part = {canonical(os.path.basename(line.strip())[:-len(".ko")]) for line in builtin}
    return files, part


def dependencies(path):
    """What the module says in .modinfo, where texts end with NULs."""
    with open(path, "rb") as module:
        data = module.read()
    at = data.find(b"\0depends=")
    if at < 0:
        return []
    value = data[at + len(b"\0depends="):data.index(b"\0", at + 1)].decode("ascii")
    return [canonical(name) for name in value.split(",") if name]


def load_order(directory, wanted):
    """Returns the paths of `wanted` and of what they need, each after what it needs itself."""
    files, part = module_files(directory)
    order = []

    def take(name, asked_by):
        if name in part:
            return
        if name not in files:
            raise ModuleError(f"looking for the module {name}{asked_by}: the kernel's package has "
                              "none of that name; correct the configuration's driver")
        if files[name] in order:
            return
        for needed in dependencies(files[name]) + MORE.get(name, []):
            take(needed, f", for {name}")
        order.append(files[name])

    for name in wanted:
        take(canonical(name), "")
    return order


def main():
    try:
        print("\n".join(load_order(sys.argv[1], sys.argv[2:])))
    except ModuleError as error:
        sys.exit(f"modules: {error}")


if __name__ == "__main__":
    main()
