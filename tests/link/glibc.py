#!/usr/bin/python3
"""Runs glibc's own tests of malloc (malloc/tst-*.c) on the pool's malloc.

    tests/link/glibc.py [BUILD]       (build/release)

The tests' sources are fetched from the distribution's source package into build/glibc, and never
committed. Each is linked as docs/allocator.md says. The last line is `N passed, N failed, N
skipped`; the exit code is 1 if a test failed that is not in NOT_OURS.
"""

import concurrent.futures
import glob
import os
import subprocess
import sys
import tarfile

import run as link

SOURCES = os.path.join(link.ROOT, "build/glibc")
WANTED = ("malloc/", "support/", "include/array_length.h", "include/libc-diag.h",
          "include/libc-pointer-arith.h", "include/intprops.h", "sysdeps/generic/malloc-",
          "test-skeleton.c")
# Tests of internal parts of glibc, and files that contain a malloc.
INTERNAL = ("alloc_buffer", "compathooks-off", "compathooks-on", "dynarray", "dynarray-at-fail",
            "dynarray-fail", "interpose-aux", "interpose-aux-nothread", "interpose-aux-thread",
            "interpose-skeleton", "mallocstate", "scratch_buffer")
# Tests that need not pass, with the reason.
NOT_OURS = {
    "malloc-usable": "with MALLOC_CHECK_ glibc tells a block's size to the byte",
    "malloc-usable-tunables": "with glibc.malloc.check it tells a block's size to the byte",
    "safe-linking": "writes over the links of glibc's free blocks",
    "tcfree1": "glibc sees some second frees; a hardened build refuses each",
    "tcfree2": "glibc sees some second frees; a hardened build refuses each",
}
# Tests that do not run in a forked child: a child has a simple heap, which these do not test.
NOT_IN_A_CHILD = {"mallinfo2", "malloc_info", "malloc-backtrace", "malloc-thread-fail"}
# Tests that have their own malloc, and so are linked with libbedplate.a alone.
OWN_MALLOC = {"interpose-nothread": ("interpose-aux-nothread",),
              "interpose-thread": ("interpose-aux-thread",),
              "interpose-static-nothread": ("interpose-aux-nothread", "-static"),
              "interpose-static-thread": ("interpose-aux-thread", "-static")}
HEAP_BYTES = {"malloc_info": "1 GiB"}  # the others: HEAP_BYTES_OF_MOST
HEAP_BYTES_OF_MOST = "64 MiB"
SECONDS = 300  # one test forks thousands of times, and each fork copies its heap
PATHS = ("SRCDIR", "OBJDIR", "OBJDIR_ELF_LDSO", "INSTDIR", "LIBDIR", "BINDIR", "SBINDIR",
         "ROOTSBINDIR", "SLIBDIR", "COMPLOCALEDIR")  # of glibc's build: none is used here
COMPILE = ["gcc", "-std=gnu11", "-w", "-O1", "-fno-builtin", "-D_GNU_SOURCE", "-DTIMEOUTFACTOR=1",
           "-include", "limits.h", *(f'-D{name}_PATH="/"' for name in PATHS), "-I.", "-Isupport", "-Imalloc", "-Ishim"]


def fetch():
    """Fetches the sources into SOURCES, once."""
    if os.path.exists(os.path.join(SOURCES, "test-skeleton.c")):
        return
    subprocess.run([os.path.join(link.ROOT, "scripts/debian_source.sh"), "--packed", "glibc",
                    SOURCES], check=True)
    [packed] = glob.glob(os.path.join(SOURCES, "*.orig.tar.xz"))
    with tarfile.open(packed) as archive:
        for member in archive:
            name = member.name.partition("/")[2]
            if not member.isfile() or not name.startswith(WANTED):
                continue
            # glibc's include/ comes before the system's headers, so only these few of its files
            # are unpacked.
            folder, base = os.path.split(name)
            shim = folder.startswith(("include", "sysdeps"))
            path = os.path.join(SOURCES, "shim" if shim else folder, base)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(archive.extractfile(member).read())
    os.unlink(packed)


def compile_to(source, output):
    return subprocess.run([*COMPILE, "-c", source, "-o", output], cwd=SOURCES, check=False,
                          capture_output=True, text=True)


def support_library(pool):
    """The library that the tests link, without the parts that need glibc's build."""
    objects = os.path.join(SOURCES, "objects")
    os.makedirs(objects, exist_ok=True)
    sources = sorted(source for source in os.listdir(os.path.join(SOURCES, "support"))
                     if source.endswith(".c") and not source.startswith(("tst-", "links-dso")) and
                     "container" not in source and source != "test-driver.c" and
                     not source.endswith("_main.c") or source == "support_test_main.c")
    outputs = [os.path.join(objects, source[:-1] + "o") for source in sources]
    done = pool.map(compile_to, [f"support/{source}" for source in sources], outputs)
    made = [output for output, result in zip(outputs, done) if result.returncode == 0]
    library = os.path.join(SOURCES, "libsupport.a")
    if os.path.exists(library):
        os.unlink(library)
    subprocess.run(["ar", "rc", library, *made], check=True)
    return library


def run_one(name, library):
    """Returns None, or the error's text."""
    parts = []
    options = [word for word in OWN_MALLOC.get(name, ()) if word.startswith("-")]
    for part in (name, *(word for word in OWN_MALLOC.get(name, ()) if word not in options)):
        parts.append(os.path.join(SOURCES, "objects", f"tst-{name}-{part}.o"))
        done = compile_to(f"malloc/tst-{part}.c", parts[-1])
        if done.returncode != 0:
            return done.stderr
    program = os.path.join(SOURCES, "objects", f"tst-{name}")
    line = link.documented_lines()["own" if name in OWN_MALLOC else "pool"]
    words = [os.path.join(link.BUILD, word) if word.endswith(".a") else word for word in line]
    at = words.index("program.o")
    words[at:at + 1] = [*parts, library]
    words[1:1] = options
    words[words.index("program")] = program
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return done.stderr
    environment = {**os.environ,
                   "BEDPLATE_BOOT_BYTES": HEAP_BYTES.get(name, HEAP_BYTES_OF_MOST)}
    # First in the process itself, then in a child that it forks, which is these tests' default.
    for option in (["--direct"], []):
        if not option and name in (*NOT_IN_A_CHILD, *NOT_OURS):
            break
        try:
            done = subprocess.run([program, *option], capture_output=True, text=True, check=False,
                                  env=environment, timeout=SECONDS, cwd=SOURCES, errors="replace")
        except subprocess.TimeoutExpired:
            return f"it did not end within {SECONDS} seconds"
        if done.returncode == 77:
            return link.Skip(f"tst-{name}: {done.stdout.strip()}")
        if done.returncode != 0:
            return (f"{'by itself' if option else 'in a child'}: exit code {done.returncode}\n"
                    f"{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return None


def main():
    fetch()
    names = sorted(os.path.basename(path)[4:-2]
                   for path in glob.glob(os.path.join(SOURCES, "malloc/tst-*.c")))
    names = [name for name in names if name not in INTERNAL]
    passed, failed, skipped = 0, 0, 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        library = support_library(pool)
        outcomes = pool.map(lambda name: run_one(name, library), names)
        for name, outcome in zip(names, outcomes):
            if isinstance(outcome, link.Skip):
                skipped += 1
                print(f"skipped: {outcome}")
            elif outcome is None and name not in NOT_OURS:
                passed += 1
                print(f"passed  tst-{name}")
            elif name in NOT_OURS:
                print(f"{'passed' if outcome is None else 'failed'}, and need not pass  "
                      f"tst-{name}: {NOT_OURS[name]}")
            else:
                failed += 1
                print(f"failed  tst-{name}\n{outcome}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
