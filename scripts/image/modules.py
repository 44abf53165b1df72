#!/usr/bin/python3
"""The files of kernel modules with all their dependencies, in load order.

    /usr/bin/python3 scripts/image/modules.py DIRECTORY [NAME...]

DIRECTORY is lib/modules/RELEASE of a kernel's package. A module's section .modinfo names the
modules that it takes symbols from (`depends=`) and those that should be loaded before it
(`softdep=pre:`). MORE has the modules that a module requests from the kernel at run time.
"""

import os
import re
import sys

# Without these a module finds no device, or no algorithm.
MORE = {
    "virtio_blk": ["virtio_pci"],
    "virtio_console": ["virtio_pci"],
    "virtio_net": ["virtio_pci"],
    "rdma_rxe": ["crc32_generic"],
    "libcrc32c": ["crc32c_generic"],
}


class ModuleError(Exception):
    """One line: the step that failed, the finding, and the cure."""


def canonical(name):
    return name.replace("-", "_")


def module_files(directory):
    """Returns {name: path} of all modules, and the set of modules built into the kernel."""
    files = {}
    for folder, _, names in os.walk(os.path.join(directory, "kernel")):
        for name in names:
            if name.endswith(".ko"):
                files[canonical(name[:-len(".ko")])] = os.path.join(folder, name)
    with open(os.path.join(directory, "modules.builtin"), encoding="ascii") as builtin:
        part = {canonical(os.path.basename(line.strip())[:-len(".ko")]) for line in builtin}
    return files, part


def dependencies(path):
    """Reads .modinfo, a list of NUL-terminated texts: ([required modules], [modules to load
    before it if they exist])."""
    with open(path, "rb") as module:
        data = module.read()

    def values(key):
        return [value.decode("ascii") for value in re.findall(rb"\0" + key + rb"=([^\0]*)", data)]

    needed = [name for value in values(b"depends") for name in value.split(",") if name]
    wished = [name for value in values(b"softdep")
              for part in re.findall(r"pre:([^:]*)(?=\s\w+:|$)", value) for name in part.split()]
    return [canonical(name) for name in needed], [canonical(name) for name in wished]


def load_order(directory, wanted, given=()):
    """Returns the paths of `wanted`, of the files `given`, and of their dependencies, each after
    its own dependencies. A given file takes precedence over the kernel's of the same name."""
    files, part = module_files(directory)
    order = []
    for path in given:
        if not os.path.isfile(path):
            raise ModuleError(f"adding the module {path}: there is no such file; build it")
        files[canonical(os.path.basename(path).removesuffix(".ko"))] = path

    def take(name, asked_by):
        if name in part:
            return
        if name not in files:
            raise ModuleError(f"looking for the module {name}{asked_by}: the kernel's package does "
                              "not have it; correct the configuration's driver")
        if files[name] in order:
            return
        needed, wished = dependencies(files[name])
        for other in needed + MORE.get(name, []) + [each for each in wished if each in files]:
            take(other, f", for {name}")
        order.append(files[name])

    for name in [*wanted, *(os.path.basename(path).removesuffix(".ko") for path in given)]:
        take(canonical(name), "")
    return order


def main():
    try:
        print("\n".join(load_order(sys.argv[1], sys.argv[2:])))
    except ModuleError as error:
        sys.exit(f"modules: {error}")


if __name__ == "__main__":
    main()
