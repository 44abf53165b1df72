#!/usr/bin/env python3
"""Installs the build: `make install` calls it, with the link lines of scripts/mk/flags.mk.

It installs the program, the archives, the public headers, pkg-config files and the CMake package,
the Python package, manual pages, completion, a systemd unit, documents with examples, and licences,
and nothing outside DESTDIR. A debug build is installed beside a release: its archives alone, in a
folder of their own, with pkg-config files for them.
"""

import argparse
import glob
import os
import shutil
import sys

sys.dont_write_bytecode = True  # writes no files into the source folders, above all not as root

import headers
import manuals
import pages

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
DOCS = "/usr/share/doc"
# The folder of a debug build's archives, below that of a release's, and its name for pkg-config.
DEBUG = "bedplate-debug"
# One archive and one .pc file each.
MODULES = ("bedplate", "bedplate-malloc", "bedplate-verbs", "bedplate-init",
           "bedplate-dpdk", "bedplate-tls", "bedplate-testing")


def arguments():
    parser = argparse.ArgumentParser()
    for name in ("build", "mimalloc", "version", "destdir", "prefix", "libdir", "unitdir",
                 "pythondir", "libraries", "malloc-link", "init-link", "verbs-link", "verbs-libraries",
                 "static-verbs", "dpdk-link", "dpdk-libraries", "tls-link", "tls-libraries"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--debug", action="store_true", help="the build is a debug build")
    return parser.parse_args()


class Installer:
    def __init__(self, options):
        self.options = options
        self.prefix = os.path.normpath(options.prefix)
        self.libdir = os.path.normpath(options.libdir)

    def stage(self, path):
        """The staged path of the installed `path`."""
        staged = self.options.destdir + path
        os.makedirs(os.path.dirname(staged), mode=0o755, exist_ok=True)
        return staged

    def copy(self, source, path, mode=0o644):
        staged = self.stage(path)
        shutil.copyfile(source, staged + ".new")
        os.chmod(staged + ".new", mode)
        os.replace(staged + ".new", staged)  # a running program keeps its file

    def write(self, path, text):
        staged = self.stage(path)
        with open(staged, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(staged, 0o644)

    def fill(self, template, path, **values):
        """Writes scripts/install/TEMPLATE.in with each @name@ replaced."""
        with open(os.path.join(HERE, f"{template}.in"), encoding="utf-8") as file:
            text = file.read()
        for name, value in values.items():
            text = text.replace(f"@{name}@", value)
        self.write(path, text)

    def relative_libdir(self, variable):
        """The folder of the archives, relative to `variable` if it lies below the prefix."""
        below = os.path.relpath(self.libdir, self.prefix)
        return self.libdir if below.startswith("..") else f"{variable}/{below}"

    def development(self):
        options = self.options
        folder = f"{self.libdir}/{DEBUG}" if options.debug else self.libdir
        for module in MODULES:
            archive = f"lib{module}.a"
            self.copy(os.path.join(options.build, archive), f"{folder}/{archive}")
        folder = f"{self.options.destdir}{self.prefix}/include/bedplate"
        shutil.rmtree(folder, ignore_errors=True)  # removes headers that are no longer public
        for path, text in headers.installed().items():
            self.write(f"{self.prefix}/include/bedplate/{path}", text)
        self.package_files()

    def package_files(self):
        options = self.options
        # Relative to the file itself, so that a tree may be moved.
        up = os.path.relpath(self.prefix, f"{self.libdir}/pkgconfig")
        libdir = self.relative_libdir("${prefix}")
        values = {"prefix": "${pcfiledir}/" + up,
                  "libdir": f"{libdir}/{DEBUG}" if options.debug else libdir,
                  "bedplate": DEBUG if options.debug else "bedplate",
                  "defines": " -DBP_DEBUG=1" if options.debug else "",
                  "version": options.version, "libraries": options.libraries,
                  "malloc_link": options.malloc_link, "init_link": options.init_link,
                  "verbs_link": options.verbs_link, "verbs_libraries": options.verbs_libraries,
                  "static_verbs": options.static_verbs,
                  "dpdk_link": options.dpdk_link, "dpdk_libraries": options.dpdk_libraries,
                  "tls_link": options.tls_link, "tls_libraries": options.tls_libraries}
        for module in MODULES:
            name = module.replace("bedplate", values["bedplate"], 1)
            self.fill(f"{module}.pc", f"{self.libdir}/pkgconfig/{name}.pc", **values)
        static = options.static_verbs.split()
        archives = [f"-Wl,{word}" for word in static if word.startswith("-l")]
        folder = f"{self.libdir}/cmake/Bedplate"
        self.fill("BedplateConfig.cmake", f"{folder}/BedplateConfig.cmake",
                  up=os.path.relpath(self.prefix, folder), debug=DEBUG,
                  **{name: ";".join(values[name].split()) for name in
                     ("libraries", "malloc_link", "init_link", "verbs_link", "verbs_libraries",
                      "dpdk_link", "tls_link", "tls_libraries")},
                  dpdk_archives="-Wl," + ",".join(
                      word.removeprefix("-Wl,") for word in options.dpdk_libraries.split()),
                  static_options=";".join(word for word in static if not word.startswith("-l")),
                  static_archives=",".join([archives[0], *(a[4:] for a in archives[1:])]))
        self.fill("BedplateConfigVersion.cmake", f"{folder}/BedplateConfigVersion.cmake",
                  version=options.version)

    def image(self):
        """Installs the image tools for other programs: the tree's scripts and their command."""
        share = f"{self.prefix}/share"
        command = os.path.join(HERE, "bedplate-image")
        self.copy(command, f"{self.prefix}/bin/bedplate-image", 0o755)
        for part in ("build.py", "kernel.sh", "modules.py", "newc.py", "progress.py",
                     "run.sh"):
            source = os.path.join(ROOT, "scripts/image", part)
            self.copy(source, f"{share}/bedplate/image/{part}", os.stat(source).st_mode & 0o777)
        self.write(f"{share}/man/man1/bedplate-image.1",
                   manuals.image_page(command, self.options.version))
        self.copy(os.path.join(HERE, "bedplate-image.bash"),
                  f"{share}/bash-completion/completions/bedplate-image")

    def program(self):
        options, share = self.options, f"{self.prefix}/share"
        program = os.path.join(options.build, "bedplate")
        self.copy(program, f"{self.prefix}/bin/bedplate", 0o755)
        for path, text in manuals.pages(program).items():
            self.write(f"{share}/man/{path}", text)
        self.copy(os.path.join(HERE, "bedplate.bash"),
                  f"{share}/bash-completion/completions/bedplate")
        self.write(f"{options.unitdir}/bedplate@.service",
                   manuals.said(program, "--unit", f"{self.prefix}/bin/bedplate"))

    def python(self):
        source = os.path.join(self.options.build, "python/bedplate")
        folder = f"{self.options.pythondir}/bedplate"
        shutil.rmtree(self.options.destdir + folder, ignore_errors=True)
        for name in glob.glob("*.*", root_dir=source):  # __pycache__ may be there
            self.copy(os.path.join(source, name), f"{folder}/{name}")

    def licences(self):
        folder = f"{self.prefix}/share/doc/bedplate"
        self.copy(os.path.join(self.options.mimalloc, "LICENSE"), f"{folder}/LICENSE.mimalloc")
        # Header libraries, compiled into the archives.
        for package in ("libtomlplusplus-dev", "nlohmann-json3-dev"):
            source = os.path.join(DOCS, package, "copyright")
            if os.path.exists(source):
                self.copy(source, f"{folder}/LICENSE.{package}")

    def documents(self):
        """The pages, which headers and errors refer to as docs/FILE, and what they link to."""
        folder = f"{self.prefix}/share/doc/bedplate"
        for path in pages.installed():
            self.copy(os.path.join(ROOT, path), f"{folder}/{path}")


def main():
    os.umask(0o022)
    options = arguments()
    installer = Installer(options)
    installer.development()
    if not options.debug:
        installer.program()
        installer.python()
        installer.image()
        installer.licences()
        installer.documents()
    print(f"installed below {options.destdir}{options.prefix}")


if __name__ == "__main__":
    main()
