#!/usr/bin/env python3
"""Builds the Debian packages bedplate, libbedplate-dev and python3-bedplate.

    deb.py VERSION FOLDER

They are parts of one `make install`; dpkg-deb packs them. Lintian reports nothing beyond the
overrides below, each of which has its reason.
"""

import glob
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
MAINTAINER = "Bedplate developers <bedplate@packages.invalid>"
# The packages whose archives the program contains.
BUILT_FROM = ("libc6-dev", "libstdc++-12-dev", "liburing-dev", "libibverbs-dev", "libnl-3-dev",
              "libdpdk-dev", "libxdp-dev", "libbpf-dev", "libelf-dev", "zlib1g-dev", "libnuma-dev",
              "libbsd-dev", "libmd-dev", "libssl-dev")
PACKAGES = {
    "bedplate": {
        "section": "net", "depends": "python3",
        # Tools that build and boot images.
        "recommends": "binutils, systemd-boot-efi, xz-utils, zstd, qemu-system-x86",
        "parts": ("bin", "share/man", "share/bash-completion", "share/bedplate",
                  "share/doc/bedplate", "lib/systemd"),
        "description": "appliances in a pool of pinned memory\n"
                       " A kernel-bypass runtime for storage and streaming appliances. It takes\n"
                       " one pool of memory on hugepages at boot, pins it, and registers it once\n"
                       " with every device. This package has the program, with a block server\n"
                       " over NBD, tools that make bootable images of such programs, and the\n"
                       " documents, with examples.",
        "overrides": {"statically-linked-binary":
                      "As the first process of an image it has no shared libraries.",
                      "embedded-library zlib [usr/bin/bedplate]":
                          "Linked statically, like all else in it: libelf uses it, for AF_XDP."},
    },
    "libbedplate-dev": {
        "section": "libdevel",
        "depends": "liburing-dev, libibverbs-dev, librdmacm-dev, libnl-3-dev, libnl-route-3-dev",
        "recommends": "g++, pkg-config, libdpdk-dev, libssl-dev",
        "parts": ("include", "lib/{triplet}"),
        "description": "archives and headers of bedplate\n"
                       " For programs that run services of their own in a pool of pinned memory,\n"
                       " or join such a pool: archives, headers for C++ and C, pkg-config files\n"
                       " and a CMake package.",
        "overrides": {},
    },
    "python3-bedplate": {
        "section": "python", "depends": "python3 (>= 3.11)",
        "recommends": "bedplate",
        "parts": ("lib/python3",),
        "description": "counters, control and messages of bedplate's appliances for Python\n"
                       " For operators and tests of bedplate's appliances: reads their counters,\n"
                       " asks them over their control socket, joins their pool of memory, and\n"
                       " exchanges messages there; lent memory is read without a copy.",
        "overrides": {},
        # The interpreter's files are compiled where they are installed, for its version there.
        "scripts": {"postinst": "py3compile -p python3-bedplate",
                    "prerm": "py3clean -p python3-bedplate"},
    },
}
COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: bedplate

Files: *
Copyright: the authors of bedplate
License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.

Files: alloc/confined_mimalloc.cc
Comment: contains the sources of mimalloc
{mimalloc}"""


def said(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    os.chmod(path, mode)


def compress(path):
    """Without file name and time, so that builds are reproducible."""
    with open(path, "rb") as file:
        write(f"{path}.gz", gzip.compress(file.read(), 9, mtime=0))
    os.remove(path)


def files_below(folder):
    return sorted(os.path.join(parent, name) for parent, _, names in os.walk(folder)
                  for name in names)


def mimalloc_licence():
    """The licence of mimalloc as a paragraph of the copyright file."""
    with open(os.path.join(ROOT, "build/mimalloc/LICENSE"), encoding="utf-8") as file:
        lines = file.read().strip().splitlines()
    owner = next(line for line in lines if line.startswith("Copyright"))
    body = "\n".join(f" {line}" if line else " ." for line in lines[lines.index(owner) + 2:])
    return f"Copyright: {owner.removeprefix('Copyright (c) ')}\nLicense: Expat\n{body}\n"


def is_shared_object(path):
    return ".so" in os.path.basename(path)


def strip(folder):
    for path in files_below(folder):
        if path.endswith(".a"):
            subprocess.run(["strip", "--strip-debug", "--enable-deterministic-archives", path],
                           check=True)
        elif path.endswith("/bin/bedplate"):
            subprocess.run(["strip", "--remove-section=.comment", path], check=True)
        elif is_shared_object(path):
            subprocess.run(["strip", "--strip-unneeded", "--remove-section=.comment", path],
                           check=True)


def documents(root, name, package, version):
    folder = f"{root}/usr/share/doc/{name}"
    write(f"{folder}/copyright", COPYRIGHT.format(mimalloc=mimalloc_licence()))
    date = said("git", "-C", ROOT, "log", "-1", "--format=%aD")
    write(f"{folder}/changelog", f"bedplate ({version}) unstable; urgency=medium\n\n"
          f"  * Built from its sources.\n\n -- {MAINTAINER}  {date}\n")
    compress(f"{folder}/changelog")
    if package["overrides"]:
        write(f"{root}/usr/share/lintian/overrides/{name}",
              "".join(f"# {why}\n{name}: {tag}\n" for tag, why in package["overrides"].items()))


def built_using():
    sources = {said("dpkg-query", "-W", "-f", "${source:Package} (= ${source:Version})", package)
               for package in BUILT_FROM}
    return ", ".join(sorted(sources))


def shared_libraries(root):
    """The packages with the libraries that the shared objects below `root` need."""
    objects = [path for path in files_below(root) if is_shared_object(path)]
    if not objects:
        return ""
    os.makedirs(f"{root}/DEBIAN", exist_ok=True)  # the tool recognises a package's root by it
    with tempfile.TemporaryDirectory() as folder:  # and looks for the source of a package
        write(f"{folder}/debian/control", "Source: bedplate\n\nPackage: bedplate\n"
              "Architecture: any\n")
        found = subprocess.run(["dpkg-shlibdeps", "-O", "--ignore-missing-info", *objects],
                               capture_output=True, text=True, check=True, cwd=folder).stdout
    return f", {found.strip().removeprefix('shlibs:Depends=')}"


def control(root, name, package, version):
    files = files_below(root)
    kib = sum(os.path.getsize(path) for path in files) // 1024
    fields = {"Package": name, "Version": version, "Architecture": said("dpkg",
              "--print-architecture"), "Maintainer": MAINTAINER, "Installed-Size": kib,
              "Section": package["section"], "Priority": "optional",
              "Depends": package["depends"] + shared_libraries(root), "Recommends": package["recommends"],
              "Built-Using": built_using() if name == "bedplate" else "",
              "Description": package["description"]}
    sums = []
    for path in files:
        with open(path, "rb") as file:
            sums.append(f"{hashlib.md5(file.read()).hexdigest()}  {os.path.relpath(path, root)}\n")
    write(f"{root}/DEBIAN/control", "".join(f"{field}: {value}\n" for field, value in
                                            fields.items() if value != ""))
    write(f"{root}/DEBIAN/md5sums", "".join(sums))
    for script, command in package.get("scripts", {}).items():
        write(f"{root}/DEBIAN/{script}", f"#!/bin/sh\nset -e\n{command}\n", 0o755)


def main():
    os.umask(0o022)
    version, folder = sys.argv[1], os.path.abspath(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    triplet = said("dpkg-architecture", "-qDEB_HOST_MULTIARCH")
    stage = f"{folder}/stage"
    subprocess.run(["make", "--no-print-directory", "-C", ROOT, "install", "MODE=release",
                    f"DESTDIR={stage}", "PREFIX=/usr", f"LIBDIR=/usr/lib/{triplet}",
                    "UNITDIR=/lib/systemd/system"], check=True, stdout=subprocess.DEVNULL)
    strip(stage)
    for path in files_below(f"{stage}/usr/share/man"):
        compress(path)
    for path in glob.glob(f"{stage}/usr/share/doc/bedplate/LICENSE.*"):
        os.remove(path)  # the copyright file has them
    for name, package in PACKAGES.items():
        root = f"{folder}/{name}"
        for part in package["parts"]:
            part = part.format(triplet=triplet)
            part = part if part == "lib/systemd" else f"usr/{part}"
            shutil.copytree(f"{stage}/{part}", f"{root}/{part}")
        documents(root, name, package, version)
        control(root, name, package, version)
        subprocess.run(["dpkg-deb", "--root-owner-group", "--build", root, folder], check=True)
        shutil.rmtree(root)
    shutil.rmtree(stage)


if __name__ == "__main__":
    main()
