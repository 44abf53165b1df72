#!/usr/bin/python3
"""Builds the image of an appliance: kernel, initramfs, and both as one file that UEFI starts.

    /usr/bin/python3 scripts/image/build.py PROGRAM CONFIG OUTPUT [--cmdline TEXT]
        [--module FILE]... [--sign-key FILE --sign-cert FILE] [--level 1..19]
        [--kernel-folder FOLDER] [--init FILE]

`make install` installs it as `bedplate-image build`.

OUTPUT gets vmlinuz, cmdline, initramfs.cpio.zst and bedplate.efi (with a copy in esp/ at the path
that UEFI expects), signed if there is a key. The same input gives the same bytes. The initramfs has
only the program as /init (PROGRAM itself, unless --init names another FILE), the configuration, the
kernel modules and files that it needs (`plan --json` of that program names them), and the modules
given as files.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # an installed folder belongs to root
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import modules  # noqa: E402
import newc  # noqa: E402
from progress import Progress, run_beside  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
KERNEL = os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", "kernel")
# With the packages that have them.
TOOLS = {"readelf": "binutils", "zstd": "zstd", "xz": "xz-utils", "dpkg-deb": "dpkg",
         "apt-get": "apt"}
STUB = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub"
MOUNTED = ("dev", "proc", "sys", "run", "tmp")
MIB = 1 << 20
LIMIT_BYTES = 17 * MIB
PIECE_BYTES = 64 << 10  # takes the compressor at most a tenth of a second

# For a kernel panic: reboots after time to read it. After a crash the program itself ends the
# machine.
DEFAULT_COMMAND_LINE = "console=tty0 console=ttyS0 quiet panic=10"


def fail(text):
    sys.exit(f"image: {text}")


def run(*command, **options):
    finished = subprocess.run(command, check=False, **options)
    if finished.returncode != 0:
        fail(f"running {' '.join(command)}: exit code {finished.returncode}; see above")
    return finished


def get_kernel(folder):
    """Downloads and unpacks the kernel if it is missing."""
    with Progress("getting Debian's kernel") as progress:
        run_beside(progress.look, lambda: run(os.path.join(HERE, "kernel.sh"), folder))


def compress(plain, level, path):
    # A single thread: several would split the input at points that depend on their number.
    command = ["zstd", "-q", f"-{level}", "--single-thread", "--no-check", "-f", "-o", path]
    with (Progress("compressing the initramfs", len(plain)) as progress,
          subprocess.Popen(command, stdin=subprocess.PIPE) as compressor):
        # If it stops reading, its exit code tells the reason.
        with contextlib.suppress(BrokenPipeError), compressor.stdin:
            for begin in range(0, len(plain), PIECE_BYTES):
                piece = plain[begin:begin + PIECE_BYTES]
                compressor.stdin.write(piece)
                progress.add(len(piece))
    if compressor.returncode != 0:
        fail(f"running {' '.join(command)}: exit code {compressor.returncode}; see above")


def checked_size(what, bytes_count):
    print(f"image: {what}: {bytes_count} bytes ({bytes_count / MIB:.1f} MiB)")
    if bytes_count > LIMIT_BYTES:
        fail(f"checking the size of {what}: {bytes_count} bytes, at most {LIMIT_BYTES} are "
             "allowed; leave out modules, or find what has grown")


def stripped(program, work):
    if " INTERP " in run("readelf", "-lW", program, stdout=subprocess.PIPE, text=True).stdout:
        fail(f"checking {program}: it needs shared libraries, but an image has none; build it "
             "with MODE=release, hardened or debug")
    path = os.path.join(work, "init")
    run("strip", "-o", path, program)
    with open(path, "rb") as file:
        data = file.read()
    checked_size("the program, stripped", len(data))
    return data


def needed_parts(program, config, given, kernel):
    """The paths of modules, and of files, which have the same path in the image. Also checks the
    configuration as strictly as the program does, so that no image boots with a wrong
    one."""
    plan = json.loads(run(program, "plan", "--json", config, stdout=subprocess.PIPE).stdout)
    if "modules" not in plan:
        fail(f"checking {program}: it was linked without the code that starts a machine; link it "
             "with bedplate-init (pkg-config; CMake: Bedplate::init)")
    try:
        order = modules.load_order(os.path.join(kernel, "modules"), plan["modules"], given)
        return order, plan["files"]
    except modules.ModuleError as error:
        fail(str(error))


def add_file(archive, path):
    """Only root may read it, as for keys."""
    parts = path.strip("/").split("/")
    if parts[0] in MOUNTED:
        fail(f"adding {path}, which the configuration names: in an image, /{parts[0]} is a mount "
             "point; put it elsewhere, for example below /etc")
    for count in range(1, len(parts)):
        archive.directory("/".join(parts[:count]))
    try:
        with open(path, "rb") as file:
            archive.file("/".join(parts), file.read(), 0o600)
    except OSError as error:
        fail(f"adding {path}, which the configuration names: {error.strerror}; create it there: "
             "the image has it at the same path")


def initramfs(program, config, module_paths, files):
    archive = newc.Archive()
    for directory in (*MOUNTED, "modules"):
        archive.directory(directory, 0o1777 if directory == "tmp" else 0o755)
    # For the first process's standard streams, before it mounts /dev.
    archive.device("dev/console", 5, 1)
    archive.file("init", program, 0o755)
    with open(config, "rb") as file:
        archive.file("bedplate.toml", file.read())
    names = [os.path.basename(path) for path in module_paths]
    for name, path in zip(names, module_paths):
        with open(path, "rb") as file:
            archive.file(f"modules/{name}", file.read())
    for path in files:
        add_file(archive, path)
    archive.file("modules/order", "".join(f"{name}\n" for name in names).encode())
    return archive.bytes()


def sections_of(image):
    """The sections of a PE file: [(name, address, bytes)]."""
    listing = run("objdump", "-h", "-w", image, stdout=subprocess.PIPE, text=True).stdout
    rows = [line.split() for line in listing.splitlines() if line.split()[:1] and
            line.split()[0].isdigit()]
    return [(row[1], int(row[3], 16), int(row[2], 16)) for row in rows]


def product_of(program):
    """Its name, and its name with its version: "logd", "logd 2.1"."""
    said = run(program, "--version", stdout=subprocess.PIPE, text=True).stdout
    product = said.partition(" (")[0]
    return product.split()[0], product


def unified_kernel(output, work, release, program):
    """The stub with four more sections, each at the next free page (as systemd's ukify does)."""
    os_release = os.path.join(work, "osrel")
    name, product = product_of(program)
    with open(os_release, "w", encoding="utf-8") as file:
        file.write(f'ID={name}\nNAME="{name}"\nPRETTY_NAME="{product} on Linux {release}"\n'
                   f"VERSION_ID={release}\n")
    parts = [(".osrel", os_release), (".cmdline", os.path.join(output, "cmdline")),
             (".initrd", os.path.join(output, "initramfs.cpio.zst")),
             (".linux", os.path.join(output, "vmlinuz"))]
    address = max(at + count for _, at, count in sections_of(STUB))
    command = ["objcopy", "--enable-deterministic-archives", "--preserve-dates"]
    for name, path in parts:
        address = (address + 4095) & ~4095
        command += ["--add-section", f"{name}={path}", "--set-section-flags",
                    f"{name}=contents,alloc,load,readonly,data", "--change-section-vma",
                    f"{name}={address:#x}"]
        address += os.path.getsize(path)
    run(*command, STUB, os.path.join(output, "bedplate.efi"))


def signed(path, key, certificate):
    """Signs the whole file."""
    for command in (("sbsign", "--key", key, "--cert", certificate, "--output", path, path),
                    ("sbverify", "--cert", certificate, path)):
        # Hides its warnings of gaps between sections, which are page-aligned.
        finished = subprocess.run(command, check=False, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if finished.returncode != 0:
            fail(f"signing bedplate.efi with {key}: {finished.stdout.strip()}; give a key without "
                 "a password, and its certificate")
    print(f"image: bedplate.efi is signed by {certificate}")


def main():
    parser = argparse.ArgumentParser(prog="build")
    parser.add_argument("program")
    parser.add_argument("config")
    parser.add_argument("output")
    parser.add_argument("--cmdline", default=DEFAULT_COMMAND_LINE)
    parser.add_argument("--module", action="append", default=[], metavar="FILE")
    parser.add_argument("--level", type=int, default=19,
                        help="1 is fastest, 19 makes the smallest file")
    parser.add_argument("--init", metavar="FILE")
    parser.add_argument("--kernel-folder", metavar="FOLDER", default=KERNEL)
    parser.add_argument("--sign-key")
    parser.add_argument("--sign-cert")
    options = parser.parse_args()
    if bool(options.sign_key) != bool(options.sign_cert):
        fail("checking --sign-key and --sign-cert: each needs the other; give both, or neither")

    missing = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    missing += [] if os.path.exists(STUB) else ["systemd-boot-efi"]
    missing += ["sbsigntool"] if options.sign_key and shutil.which("sbsign") is None else []
    if missing:
        fail(f"looking for the tools: some are missing; run: apt-get install {' '.join(missing)}")
    kernel = os.path.abspath(options.kernel_folder)
    get_kernel(kernel)
    os.makedirs(options.output, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        # The program that will run knows the tables of its services.
        path = os.path.abspath(options.init or options.program)
        module_paths, files = needed_parts(path, options.config, options.module, kernel)
        program = stripped(path, work)
        plain = initramfs(program, options.config, module_paths, files)
        compressed = os.path.join(options.output, "initramfs.cpio.zst")
        compress(plain, options.level, compressed)
        checked_size("initramfs.cpio.zst", os.path.getsize(compressed))
        shutil.copyfile(os.path.join(kernel, "vmlinuz"), os.path.join(options.output, "vmlinuz"))
        with open(os.path.join(options.output, "cmdline"), "w", encoding="ascii") as file:
            file.write(options.cmdline)
        with open(os.path.join(kernel, "package"), encoding="ascii") as file:
            release = file.read().strip().removeprefix("linux-image-")
        unified_kernel(options.output, work, release, path)
    if options.sign_key:
        signed(os.path.join(options.output, "bedplate.efi"), options.sign_key, options.sign_cert)
    # The path on a system partition that the firmware expects.
    boot = os.path.join(options.output, "esp", "EFI", "BOOT")
    os.makedirs(boot, exist_ok=True)
    shutil.copyfile(os.path.join(options.output, "bedplate.efi"),
                    os.path.join(boot, "BOOTX64.EFI"))
    print(f"image: Linux {release}, modules: "
          f"{' '.join(os.path.basename(path) for path in module_paths) or 'none'}")
    print(f"image: {options.output}/bedplate.efi, or vmlinuz with initramfs.cpio.zst and cmdline")


if __name__ == "__main__":
    main()
