"""Images for tests: from a file, or from the smallest configuration with a test's additions."""

import os
import subprocess
import tempfile

from configuration import smallest
from machine import MODE, ROOT
from runner import Failure, Skip

MIB = 1 << 20
BUILD = os.path.join(ROOT, "scripts", "image", "build.py")
PROGRAM = os.path.join(ROOT, "build", MODE, "bedplate")
DEMO = os.path.join(ROOT, "apps", "demo.toml")
# The unpacked kernel boots in half of the time. The image's own kernel is booted once, and by UEFI.
VMLINUX = os.path.join(ROOT, "build", "kernel", "vmlinux")
# The time limit of a command. Most commands take seconds.
RUN_SECONDS = 180

# The tables with which the smallest image serves a volume.
BLOCKD = """
{shards}
[blockd]
listen = [{listen}]
plain_text = "allowed"
max_connections = 2
{blockd}
[[blockd.volume]]
name = "ram0"
bytes = "8 MiB"
{tables}
"""


def small(tables, pool="48 MiB", pages="2 MiB", enforce="kernel", shards="", blockd="",
          listen='"tcp:127.0.0.1:10809"'):
    """The smallest configuration that serves, followed by `tables`."""
    more = BLOCKD.format(shards=shards, listen=listen, blockd=blockd, tables=tables)
    return smallest("small", pool, in_pool=f'pages = "{pages}"\nenforce = "{enforce}"', more=more)



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


def build(config, output, *options, program=PROGRAM):
    return run("/usr/bin/python3", BUILD, program, config, output, *options)


def build_module(directory, name, source):
    """Builds a module for the image's kernel in `directory`, and returns its path."""
    with open(os.path.join(ROOT, "build", "kernel", "package"), encoding="ascii") as file:
        release = file.read().strip().removeprefix("linux-image-")
    headers = f"/usr/src/linux-headers-{release}"
    if not os.path.isdir(headers):
        raise Skip(f"no linux-headers-{release} to build a module with")
    for file_name, text in ((f"{name}.c", source), ("Makefile", f"obj-m := {name}.o\n")):
        with open(os.path.join(directory, file_name), "w", encoding="ascii") as file:
            file.write(text)
    run("make", "-C", headers, f"M={directory}", "modules")
    return os.path.join(directory, f"{name}.ko")


class Image:
    """An image of a configuration, in a directory that is removed with it. `options` are those of
    build.py. `settings` are those of small(), for the smallest configuration."""

    def __init__(self, config=None, tables="", options=(), program=PROGRAM, **settings):
        self._work = tempfile.TemporaryDirectory()
        if config is None:
            config = os.path.join(self._work.name, "image.toml")
            with open(config, "w", encoding="utf-8") as file:
                file.write(small(tables, **settings))
            options = ("--level", "1", *options)
        self.path = os.path.join(self._work.name, "image")
        self.log = build(config, self.path, *options, program=program)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._work.cleanup()
