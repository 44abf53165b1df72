#!/usr/bin/python3
"""Links small programs as docs/allocator.md says, and checks which malloc they have.

    tests/link/run.py [BUILD]       (build/release)

The last line is `N passed, N failed, N skipped`; the exit code is 1 if anything failed.
"""

import functools
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/system"))
from harness import HUGEPAGES, MIB, Skip  # noqa: E402
BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build/release"))
HERE = os.path.join(ROOT, "tests/link")
COMPILE = ["g++", "-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}"]
COMPILE_C = ["gcc", "-std=c99", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{ROOT}"]
KINDS = {"static": ["-static"], "static-pie": ["-static-pie"], "pie": ["-pie"],
         "no-pie": ["-no-pie"]}
DYNAMIC_KINDS = ("pie", "no-pie")
OBJECTS = ("program", "quiet_program", "dlopen_program", "level_program", "constant", "own_new",
           "c_program", "explicit_program", "streams_program", "small_boot", "huge_boot",
           "odd_pages", "heap_program", "fork_program", "sharing", "fork_share", "python_program")
ALLOCATORS = ("libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2.0")
BOOT_BYTES = "24 MiB"
NOBODY = 65534
ALLOCATIONS = ("before main", "malloc", "calloc", "realloc", "reallocarray", "memalign",
               "aligned_alloc", "posix_memalign", "valloc", "pvalloc", "large malloc", "strdup",
               "new", "aligned new", "string", "thread", "fopen")


def documented_lines():
    """The two link lines of docs/allocator.md: {"own": [...], "pool": [...]}."""
    with open(os.path.join(ROOT, "docs/allocator.md"), encoding="utf-8") as file:
        lines = [shlex.split(line) for line in re.findall(r"^ {4}(g\+\+ .*)$", file.read(), re.M)]
    own, pool = (line for line in lines if "program.o" in line)
    return {"own": own, "pool": pool}


def run(command, environment=None, expect_code=0, user=None):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, **(environment or {})}, user=user)
    if done.returncode != expect_code:
        raise AssertionError(f"{shlex.join(command)}\nexit code {done.returncode}, expected "
                             f"{expect_code}:\n{done.stdout}{done.stderr}")
    return done.stdout


def expect_refusal(command, code, line):
    """Checks that the program ends with `code`, and prints only `line`, to standard error."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if (done.returncode, done.stdout, done.stderr) != (code, "", line):
        raise AssertionError(f"{shlex.join(command)}\nexit code {done.returncode}, expected "
                             f"{code}:\n{done.stdout}{done.stderr}instead of\n{line}")


class Workshop:
    """Compiles and links into `directory`."""

    def __init__(self, directory):
        self.directory = directory
        self.lines = documented_lines()

    def path(self, name):
        return os.path.join(self.directory, name)

    def compile(self, name):
        source = os.path.join(HERE, f"{name}.cc")
        command = COMPILE
        if not os.path.exists(source):
            source, command = source.removesuffix("c"), COMPILE_C
        run([*command, "-c", source, "-o", self.path(f"{name}.o")])

    def library(self):
        run([*COMPILE, "-shared", "-fPIC", os.path.join(HERE, "library.cc"), "-o",
             self.path("library.so")])
        return self.path("library.so")

    def link(self, name, whose, kind, *before, after=()):
        """Links NAME.o by the documented line, with objects, libraries and options `before` the
        archives or `after` them."""
        output = self.path(f"{name}-{whose}-{kind}")
        line = [os.path.join(BUILD, word) if word.endswith(".a") else word
                for word in self.lines[whose]]
        at = line.index("program.o")
        line[at:at + 1] = [part if part.startswith(("/", "-")) else self.path(f"{part}.o")
                           for part in (name, *before)]
        line += after
        line[line.index("program")] = output
        run([*line[:1], *KINDS[kind], *line[1:]])
        return output


def facts(program, environment=None):
    environment = {"BEDPLATE_BOOT_BYTES": BOOT_BYTES, **(environment or {})}
    return dict(line.split(": ", 1) for line in run([program], environment).splitlines())


def expected_facts(whose):
    segments = {"pool": {"segments": "1", "segment 0": BOOT_BYTES}, "own": {"segments": "0"}}
    return {**dict.fromkeys(ALLOCATIONS, whose), **segments[whose], "explicit": "pool"}


def compare(told, expected):
    wrong = {what: (told.get(what), expected.get(what)) for what in {*told, *expected}
             if told.get(what) != expected.get(what)}
    if wrong:
        raise AssertionError(f"told and expected: {wrong}")


def expected_level(program, whose, kind, provider=None):
    """The facts that level_program prints when nothing is wrong."""
    if whose == "pool":
        return {"level": "FREE CHUNK", "failure": "none: none",
                "provider": os.path.basename(program)}
    libc = "libc.so.6" if kind in DYNAMIC_KINDS else os.path.basename(program)
    return {"level": "none", "failure": "malloc: its block does not lie in the pool",
            "provider": provider or libc}


def check_level(workshop, whose, kind):
    program = workshop.link("level_program", whose, kind)
    compare(facts(program), expected_level(program, whose, kind))


def check_c(workshop, whose, kind):
    """The C interface hands out memory of the pool, and does not change malloc."""
    compare(facts(workshop.link("c_program", whose, kind)),
            {"malloc": whose, "explicit": "pool", "malloc beside it": whose, "audit": "ok",
             "level": "FREE CHUNK" if whose == "pool" else "none"})


def check_explicit(workshop, whose, kind):
    """The interfaces for C++ hand out memory of the pool, and do not change malloc."""
    told = facts(workshop.link("explicit_program", whose, kind))
    compare(told, {**{f"{allocation} {when}": whose for allocation in ("malloc", "vector")
                      for when in ("before", "after")},
                   **{allocation: "pool" for allocation in ("pool_resource", "pool_resource, inner",
                                              "PoolAllocator", "PoolAllocator, rebound",
                                              "BufferPool")}})


def check_streams(workshop, whose, kind):
    """Starts the program with each of descriptors 0 to 2 closed, and with all closed: they are open
    in main, and the pool's descriptors have higher numbers."""
    program = workshop.link("streams_program", whose, kind)
    for closed in ("0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"):
        run(["sh", "-c", f'exec "$0" {closed}', program])


def check_small_boot(workshop, kind):
    """Constants that are no valid sizes: the program prints one line before main, with the valid
    sizes."""
    expect_refusal([workshop.link("program", "pool", kind, "small_boot")], 2,
                   "bedplate: reading the program's constant bedplate_boot_bytes: 1000 is not a "
                   "size of segment 0; define it from 8388608 (8 MiB) to 137438953472 (128 GiB) "
                   "and link again, or set BEDPLATE_BOOT_BYTES\n")
    expect_refusal([workshop.link("program", "pool", kind, "odd_pages")], 2,
                   "bedplate: reading the program's constant bedplate_boot_page_bytes: 5000 is not "
                   "a page size; define it as 4096, 2097152 (2 MiB) or 1073741824 (1 GiB) and "
                   "link again, or set BEDPLATE_BOOT_PAGE_BYTES\n")


def setuid_copy(program):
    """The path of a copy of `program` that runs as root, whoever starts it."""
    if os.geteuid() != 0:
        raise Skip("only root makes a program that runs as root")
    if os.statvfs(os.path.dirname(program)).f_flag & os.ST_NOSUID:
        raise Skip(f"{os.path.dirname(program)} is mounted with nosuid")
    with open("/proc/self/status", encoding="ascii") as file:
        if re.search(r"^NoNewPrivs:\t1$", file.read(), re.M):
            raise Skip("this process has no_new_privs, so setuid programs gain nothing")
    copy = f"{program}-setuid"
    shutil.copy(program, copy)
    os.chmod(copy, 0o4755)
    os.chmod(os.path.dirname(program), 0o755)
    return copy


STRANGERS = [{"BEDPLATE_BOOT_BYTES": "1 byte"}, {"BEDPLATE_BOOT_BYTES": BOOT_BYTES},
             {"BEDPLATE_BOOT_PAGE_BYTES": "odd"}, {"BEDPLATE_LEAVE_PINNED": "maybe"},
             {"BEDPLATE_LEAVE_PINNED": "no"}, {"BEDPLATE_LEAVE_PINNED_PIPELINE": "maybe"},
             {"BEDPLATE_ALLOC_DISABLE": "1"}, {"FAKEROOTKEY": "1"}, {"BEDPLATE_FORK": "maybe"}]


def check_setuid(workshop, kind):
    """A program with more rights than its caller ignores that user's variables, and does not report
    wrong ones. Without these rights, each variable has an effect."""
    program = workshop.link("program", "pool", kind)
    copy = setuid_copy(program)
    expected = {**expected_facts("pool"), "segment 0": "16 MiB"}
    for environment in STRANGERS:
        compare(dict(line.split(": ", 1) for line in
                     run([copy], environment, user=NOBODY).splitlines()), expected)
        done = subprocess.run([program], env={**os.environ, **environment}, capture_output=True,
                              text=True, timeout=120, check=False, user=NOBODY)
        told = dict(line.split(": ", 1) for line in done.stdout.splitlines())
        if (done.returncode, told) == (0, expected):
            raise AssertionError(f"without setuid {environment} changes nothing")


EXHAUSTED = ("bedplate: allocating 1 MiB: {part} is exhausted; the pool's biggest owners: boot "
             "{boot}; free memory, or give the heap more: BEDPLATE_BOOT_BYTES, or "
             "bedplate_boot_bytes at link time, or bp_add_heap (C++: add_heap)")


def heap_facts(program, *parts, **environment):
    """Returns heap_program's facts. Checks that it reports the exhausted heap, with the cure."""
    command = [program, *(str(number) for part in parts for number in part)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, **environment})
    told = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    line = EXHAUSTED.format(part="boot", boot=told.get("segment 0", "").split(" in ")[0])
    if done.returncode != 0 or done.stderr.splitlines()[:1] != [line]:
        raise AssertionError(f"{shlex.join(command)}\nexit code {done.returncode}\n"
                             f"{done.stdout}{done.stderr}instead of\n{line}")
    return told


JOINS = {"joins": "joining a pool: this program has added memory to its heap (add_heap, "
                  "bp_add_heap), at the addresses of the pool's other segments; raise heap_bytes "
                  "in its [[process]] of the owner's configuration instead"}


def check_added_heap(workshop, whose, kind):
    """A program without an appliance adds to its heap while it runs."""
    program = workshop.link("heap_program", whose, kind)
    compare(heap_facts(program, (64 * MIB, 4096), (30 * MIB, 4096), (MIB, 5000)),
            {**JOINS, "at first": "some", "then": "less", "audit": "ok",
             f"{64 * MIB} of 4096": "added", f"{30 * MIB} of 4096": "added",
             f"{MIB} of 5000": "adding 1 MiB to the heap: 5000 is not a page size; use 4096, "
                             "2097152 (2 MiB) or 1073741824 (1 GiB)",
             "segment 0": "16 MiB in pages of 4 KiB", "segment 1": "64 MiB in pages of 4 KiB",
             "segment 2": "32 MiB in pages of 4 KiB"})


def check_hugepage_heap(workshop, whose, kind):
    """A heap on hugepages: before main, by the environment or by constants, and while the program
    runs."""
    HUGEPAGES.ensure_free(2 * MIB, 12 + 32)
    added = {**JOINS, "at first": "some", "then": "as much", "audit": "ok",
             f"{64 * MIB} of {2 * MIB}": "added", "segment 1": "64 MiB in pages of 2 MiB"}
    part = (64 * MIB, 2 * MIB)
    in_environment = {"BEDPLATE_BOOT_BYTES": "24 MiB", "BEDPLATE_BOOT_PAGE_BYTES": "2 MiB"}
    huge = {**added, "segment 0": "24 MiB in pages of 2 MiB"}
    program = workshop.link("heap_program", whose, kind)
    compare(heap_facts(program, part), {**added, "segment 0": "16 MiB in pages of 4 KiB"})
    compare(heap_facts(program, part, **in_environment), huge)
    program = workshop.link("heap_program", whose, kind, "huge_boot")
    compare(heap_facts(program, part), huge)
    compare(heap_facts(program, BEDPLATE_BOOT_PAGE_BYTES="4 KiB"),
            {"at first": "some", "audit": "ok", "segment 0": "24 MiB in pages of 4 KiB"})


COPIED = {"heap": "private", "audit": "ok", "parent": "as it left it", "child": "as it was"}
SHARED = {"heap": "shared", "audit": "ok", "child sees": "what is", "parent sees": "its child's"}
FORK_HEAP = {"BEDPLATE_BOOT_BYTES": "32 MiB"}
STAYS = ("bedplate: continuing in a forked child (process {pid}): the heap is shared with its "
         "parent, not copied: what one of them changes there changes for both, at any time; call "
         "exec or _exit, start it by posix_spawn(), or {cure}; BEDPLATE_FORK=refuse makes fork() "
         "fail\n")


def fork_facts(program, what, code=0, **environment):
    """Returns fork_program's facts and its standard error, without process IDs."""
    done = subprocess.run([program, what], capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, **FORK_HEAP, **environment})
    if done.returncode != code:
        raise AssertionError(f"{program} {what}\nexit code {done.returncode}\n{done.stdout}"
                             f"{done.stderr}")
    said = re.sub(r"process \d+", "process {pid}", done.stderr)
    return dict(line.split(": ", 1) for line in done.stdout.splitlines()), said


def check_copied_heap(workshop, whose, kind):
    """Without an appliance, a fork copies the heap: parent and child do not see each other's
    changes, also in memory that the program added."""
    program = workshop.link("fork_program", whose, kind)
    compare(fork_facts(program, "snapshot")[0], COPIED)
    compare(fork_facts(program, "add", BEDPLATE_BOOT_BYTES="16 MiB")[0],
            {**COPIED, "small": "added",
             "huge": "adding 4 MiB to the heap: a fork copies this program's heap, and the copy of "
                     "a page of 2 MiB needs another free page; ask for pages of 4 KiB, or share "
                     "the heap with forked children: BEDPLATE_FORK=share, or bedplate_fork at "
                     "link time"})


def check_fork_of_threads(workshop, whose, kind):
    """A child's copy of the heap is consistent and usable, although the fork interrupts threads of
    the parent (alloc/copied_heap)."""
    told, said = fork_facts(workshop.link("fork_program", whose, kind), "threads")
    compare(told, {"heap": "private", "audit": "ok", "children": "0", "parent": "as it left it"})
    # Children that exhaust the heap log only that.
    if any("is exhausted" not in line for line in said.splitlines()):
        raise AssertionError(said)


def check_fork_of_ordinary_memory(workshop, kind):
    told, _ = fork_facts(workshop.link("fork_program", "pool", kind), "snapshot",
                         BEDPLATE_LEAVE_PINNED="no")
    compare(told, {**COPIED, "heap": "ordinary"})


def expect_no_fork_rule(program, answer, **environment):
    told, said = fork_facts(program, "sight", 2, **environment)
    compare({**told, "said": said}, {"said": f"bedplate: {answer}\n"})


def check_shared_heap(workshop, whose, kind):
    """Children share the heap because of a linked library (pinned_pool/shared_segments), or if the
    program or the user says so (pinned_pool/fork_rule)."""
    making = "making a heap that a fork copies: "
    program = workshop.link("fork_program", whose, kind, "sharing")
    compare(fork_facts(program, "sight")[0], SHARED)
    expect_no_fork_rule(program, making + "this program has code for devices or processes that use "
                        "its heap; make malloc use ordinary memory: BEDPLATE_LEAVE_PINNED=no",
                        BEDPLATE_FORK="copy")
    program = workshop.link("fork_program", whose, kind, "fork_share")
    compare(fork_facts(program, "sight")[0], SHARED)
    compare(fork_facts(program, "snapshot", BEDPLATE_FORK="copy")[0], COPIED)
    expect_no_fork_rule(program, making + "the copy of a hugepage needs another free hugepage; "
                        "use pages of 4 KiB: unset BEDPLATE_BOOT_PAGE_BYTES",
                        BEDPLATE_FORK="copy", BEDPLATE_BOOT_PAGE_BYTES="2 MiB")
    expect_no_fork_rule(program, "deciding what a fork means for the heap: BEDPLATE_FORK is "
                        '"maybe"; set it to copy, share or refuse, or unset it',
                        BEDPLATE_FORK="maybe")


def check_hugepages_are_shared(workshop, whose, kind):
    HUGEPAGES.ensure_free(2 * MIB, 16)
    program = workshop.link("fork_program", whose, kind)
    compare(fork_facts(program, "sight", BEDPLATE_BOOT_PAGE_BYTES="2 MiB")[0], SHARED)


def check_staying_child(workshop, whose, kind):
    """The first child that goes on logs a notice, once. A child that calls exec logs nothing."""
    program = workshop.link("fork_program", whose, kind, "sharing")
    children = {f"child {i}": "0" for i in range(3)}

    def expected(notice):
        return f"child 0 ended\n{notice}child 1 ended\nchild 2 ended\n"

    told, said = fork_facts(program, "stays")
    compare({**told, "said": said},
            {**children, "heap": "shared", "audit": "ok",
             "said": expected(STAYS.format(pid="{pid}", cure="make malloc use ordinary memory: "
                                                             "BEDPLATE_LEAVE_PINNED=no"))})
    told, said = fork_facts(workshop.link("fork_program", whose, kind), "stays",
                            BEDPLATE_FORK="share")
    compare({**told, "said": said},
            {**children, "heap": "shared", "audit": "ok",
             "said": expected(STAYS.format(pid="{pid}",
                                           cure="copy the heap: BEDPLATE_FORK=copy"))})
    told, said = fork_facts(workshop.link("fork_program", whose, kind), "stays")
    compare({**told, "said": said}, {**children, "heap": "private", "audit": "ok", "said": expected("")})


def check_refused_fork(workshop, kind):
    """alloc/fork_calls: fork() fails, and functions that call exec at once still work."""
    program = workshop.link("fork_program", "pool", kind)
    others = {"audit": "ok", "spawned": "0", "system": "0"}
    told, said = fork_facts(program, "refused", BEDPLATE_FORK="refuse")
    compare({**told, "said": said},
            {**others, "heap": "shared", "fork 0": "ENOSYS", "fork 1": "ENOSYS",
             "said": "bedplate: forking: BEDPLATE_FORK, or bedplate_fork at link time, is set to "
                     "refuse; start programs by posix_spawn() or vfork(), or copy the heap: "
                     "BEDPLATE_FORK=copy\n"})
    told, said = fork_facts(program, "refused")
    compare({**told, "said": said},
            {**others, "heap": "private", "fork 0": "forked", "fork 1": "forked", "said": ""})


PYTHON = """
import multiprocessing
forks = multiprocessing.get_context("fork")
data = {i: [i] * 10 for i in range(20000)}
def look(end):
    end.recv()
    is_whole = all(found == [i] * 10 for i, found in data.items()) and len(data) == 20000
    data.clear()
    end.send(is_whole)
ours, theirs = forks.Pipe()
child = forks.Process(target=look, args=(theirs,))
child.start()
for i in list(data):
    data[i] = data[i][:5] + [str(i)] * 7
ours.send(None)
print("child:", "as it was" if ours.recv() else "torn")
child.join()
print("exit:", child.exitcode)
print("parent:", all(len(found) == 12 for found in data.values()))
with forks.Pool(3) as pool:
    print("pool:", sum(pool.map(len, [[0] * i for i in range(500)])))
"""


def check_multiprocessing(workshop, kind):
    """Python's multiprocessing forks children that never call exec."""
    libraries = glob.glob("/usr/lib/*/libpython3.*[0-9].so")
    if not libraries:
        raise Skip("libpython3-dev is not installed")
    program = workshop.link("python_program", "pool", kind, after=(libraries[0],))
    for allocator in ("malloc", "pymalloc"):
        done = subprocess.run([program, "-E", "-c", PYTHON], capture_output=True, text=True,
                              timeout=120, check=False,
                              env={**os.environ, "BEDPLATE_BOOT_BYTES": "64 MiB",
                                   "PYTHONMALLOC": allocator})
        compare({"code": done.returncode, "out": done.stdout, "said": done.stderr},
                {"code": 0, "said": "",
                 "out": "child: as it was\nexit: 0\nparent: True\npool: 124750\n"})


SANITIZERS = {"address": "AddressSanitizer", "thread": "ThreadSanitizer"}


def sanitized(workshop, whose, sanitizer):
    """Links c_program with a sanitizer; for "pool", with all objects of libbedplate-malloc.a."""
    archives = ["libbedplate.a"]
    if whose == "pool":
        archives[:0] = ["-Wl,--whole-archive", "libbedplate-malloc.a", "-Wl,--no-whole-archive"]
    output = workshop.path(f"c_program-{whose}-{sanitizer}")
    command = ["g++", f"-fsanitize={sanitizer}", workshop.path("c_program.o"),
               *[os.path.join(BUILD, word) if word.endswith(".a") else word for word in archives],
               "-luring", "-lpthread", "-o", output]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if "cannot find" in done.stderr:
        raise Skip(f"the library of -fsanitize={sanitizer} is not installed")
    if done.returncode != 0:
        raise AssertionError(f"{shlex.join(command)}\n{done.stderr}")
    return output


def check_sanitized_malloc(workshop, sanitizer):
    """A program with the pool's malloc and a sanitizer is refused before main, without a crash."""
    expect_refusal([sanitized(workshop, "pool", sanitizer)], 1,
                   "bedplate: making the first block of malloc: this program has "
                   f"{SANITIZERS[sanitizer]}, which needs malloc for itself; link libbedplate.a "
                   "without libbedplate-malloc.a (docs/debugging.md)\n")


def check_address_sanitizer(workshop):
    """With libbedplate.a alone, the sanitizer changes nothing. The pages are locked: the audit is
    ok."""
    compare(facts(sanitized(workshop, "own", "address")),
            {"malloc": "own", "explicit": "pool", "malloc beside it": "own", "level": "none",
             "audit": "ok"})


def check_thread_sanitizer(workshop):
    """ThreadSanitizer uses the pool's addresses itself, so the program is refused."""
    expect_refusal([sanitized(workshop, "own", "thread")], 1,
                   "bedplate: making segment 0: ThreadSanitizer uses the pool's addresses itself; "
                   "link it with AddressSanitizer instead, or with the libraries of `make "
                   "MODE=tsan` for ThreadSanitizer (docs/debugging.md)\n")


def check_valgrind(workshop, whose, kind):
    """Under valgrind, a dynamic program's malloc is valgrind's, and valgrind finds no error."""
    if shutil.which("valgrind") is None:
        raise Skip("valgrind is not installed")
    told = dict(line.split(": ", 1) for line in run(
        ["valgrind", "-q", "--error-exitcode=9", workshop.link("c_program", whose, kind)]
    ).splitlines())
    compare(told, {"malloc": "own", "explicit": "pool", "malloc beside it": "own", "level": "none",
                   "audit": "ok"})


def check_header_alone():
    """The header needs no other header, in C99 and in C++20."""
    header = os.path.join(ROOT, "apps/c_interface/bedplate.h")
    for compiler, language in ((COMPILE_C, "c"), (COMPILE, "c++")):
        run([*compiler, "-Wpedantic", "-fsyntax-only", "-x", language, "-include", header,
             "/dev/null"])


def check_typeinfo():
    """An archive with the vtable of a public class also has its typeinfo, so that programs with
    RTTI can derive from the class, and sanitizers can inspect it."""
    with open(os.path.join(ROOT, "scripts/install/public_headers.txt"), encoding="utf-8") as file:
        headers = [line for line in file.read().splitlines() if line and not line.startswith("#")]
    public = set()
    for header in headers:
        with open(os.path.join(ROOT, header), encoding="utf-8") as file:
            public.update(re.findall(r"^class (\w+)[^;\n]*{", file.read(), re.M))
    seen = {"vtable": set(), "typeinfo": set()}
    for archive in glob.glob(os.path.join(BUILD, "libbedplate*.a")):
        for what, name in re.findall(r"^[0-9a-f]+ \w (vtable|typeinfo) for bedplate::(\w+)$",
                                     run(["nm", "-C", archive]), re.M):
            seen[what].add(name)
    with_vtable = seen["vtable"] & public
    if "Messenger" not in with_vtable:
        raise AssertionError(f"vtables of public classes: {sorted(with_vtable)}")
    # A class without a function in a .cc has both in each file that uses it.
    missing = with_vtable - seen["typeinfo"] - {"StreamSockets", "LayeredSocket"}
    if missing:
        raise AssertionError(f"{sorted(missing)}: compiled without RTTI; see WITH_TYPEINFO in "
                             "scripts/mk/flags.mk")


def check_own_new(workshop, kind):
    program = workshop.link("level_program", "pool", kind, "own_new")
    compare(facts(program), {**expected_level(program, "pool", kind), "level": "none",
                             "failure": "new: its block does not lie in the pool"})


def find_allocator(name):
    """The path of an allocator's shared library, without symbolic links."""
    found = glob.glob(f"/usr/lib/*/{name}")
    if not found:
        raise Skip(f"{name} is not installed")
    return os.path.realpath(found[0])


def check_preloaded(workshop, whose, kind, name):
    """Another allocator is preloaded. A program with libbedplate.a alone uses that allocator; the
    pool's malloc takes precedence over it."""
    library = find_allocator(name)
    environment = {"LD_PRELOAD": library}
    program = workshop.link("program", whose, kind)
    compare(facts(program, environment), expected_facts(whose))
    level_program = workshop.link("level_program", whose, kind)
    compare(facts(level_program, environment),
            expected_level(level_program, whose, kind, os.path.basename(library)))
    run([workshop.link("dlopen_program", whose, kind), whose, workshop.library()], environment)


def check_linked(workshop, kind, name):
    """Another allocator is linked beside libbedplate.a."""
    library = find_allocator(name)
    linked = ("-Wl,--no-as-needed", library)  # also if no object file references malloc
    compare(facts(workshop.link("program", "own", kind, *linked)), expected_facts("own"))
    program = workshop.link("level_program", "own", kind, *linked)
    compare(facts(program), expected_level(program, "own", kind, os.path.basename(library)))


def check_mixed(workshop, kind, name, where):
    """Another allocator's library is linked before or after libbedplate-malloc.a. Whichever malloc
    the program has, it runs, and its support level is right."""
    library = find_allocator(name)
    linked = ("-Wl,--no-as-needed", library)
    program = (workshop.link("level_program", "pool", kind, *linked) if where == "before" else
               workshop.link("level_program", "pool", kind, after=linked))
    told = facts(program)
    level = "FREE CHUNK" if told["failure"] == "none: none" else "none"
    compare({"level": told["level"]}, {"level": level})
    if where == "after":
        compare(told, expected_level(program, "pool", kind))
    elif told["provider"] not in (os.path.basename(library), os.path.basename(program)):
        raise AssertionError(f"malloc is from {told['provider']}")


def tests(workshop):
    """Pairs of a name and a function that raises when the test fails, or Skip."""
    yield "bedplate.h alone", check_header_alone
    yield "typeinfo of public classes", check_typeinfo
    for kind in KINDS:
        for whose in ("own", "pool"):
            yield f"C program, {whose} malloc, {kind}", functools.partial(
                check_c, workshop, whose, kind)
            yield f"explicit C++ program, {whose} malloc, {kind}", functools.partial(
                check_explicit, workshop, whose, kind)
            yield f"closed streams, {whose} malloc, {kind}", functools.partial(
                check_streams, workshop, whose, kind)
            yield f"level, {whose} malloc, {kind}", functools.partial(
                check_level, workshop, whose, kind)
            yield f"added heap, {whose} malloc, {kind}", functools.partial(
                check_added_heap, workshop, whose, kind)
            yield f"heap of hugepages, {whose} malloc, {kind}", functools.partial(
                check_hugepage_heap, workshop, whose, kind)
            yield f"heap that a fork copies, {whose} malloc, {kind}", functools.partial(
                check_copied_heap, workshop, whose, kind)
            yield f"heap that a fork shares, {whose} malloc, {kind}", functools.partial(
                check_shared_heap, workshop, whose, kind)
            yield f"child that stays, {whose} malloc, {kind}", functools.partial(
                check_staying_child, workshop, whose, kind)
        yield f"fork of ordinary memory, {kind}", functools.partial(
            check_fork_of_ordinary_memory, workshop, kind)
        yield f"fork refused, {kind}", functools.partial(check_refused_fork, workshop, kind)
        yield f"setuid, {kind}", functools.partial(check_setuid, workshop, kind)
        yield f"small segment 0, {kind}", functools.partial(check_small_boot, workshop, kind)
        yield f"level, own operator new, {kind}", functools.partial(check_own_new, workshop, kind)
    for whose in ("own", "pool"):
        yield f"fork beside threads, {whose} malloc", functools.partial(
            check_fork_of_threads, workshop, whose, "pie" if whose == "own" else "static")
        yield f"fork of a heap of hugepages, {whose} malloc", functools.partial(
            check_hugepages_are_shared, workshop, whose, "pie")
    for kind in DYNAMIC_KINDS:
        yield f"multiprocessing, {kind}", functools.partial(check_multiprocessing, workshop, kind)
    for sanitizer in SANITIZERS:
        yield f"pool malloc and -fsanitize={sanitizer}", functools.partial(
            check_sanitized_malloc, workshop, sanitizer)
    yield "own malloc, AddressSanitizer", functools.partial(check_address_sanitizer, workshop)
    yield "own malloc, ThreadSanitizer", functools.partial(check_thread_sanitizer, workshop)
    for kind in DYNAMIC_KINDS:
        for whose in ("own", "pool"):
            yield f"valgrind, {whose} malloc, {kind}", functools.partial(
                check_valgrind, workshop, whose, kind)
    for name in ALLOCATORS:
        for kind in DYNAMIC_KINDS:
            for whose in ("own", "pool"):
                yield f"{whose} malloc, {kind}, {name} preloaded", functools.partial(
                    check_preloaded, workshop, whose, kind, name)
            yield f"own malloc, {kind}, {name} linked", functools.partial(
                check_linked, workshop, kind, name)
            for where in ("before", "after"):
                yield f"pool malloc, {kind}, {name} linked {where} it", functools.partial(
                    check_mixed, workshop, kind, name, where)
    for whose in ("own", "pool"):
        for kind in KINDS:
            yield f"{whose} malloc, {kind}", lambda whose=whose, kind=kind: compare(
                facts(workshop.link("program", whose, kind)), expected_facts(whose))
            yield f"{whose} malloc, {kind}, unnamed", lambda whose=whose, kind=kind: compare(
                facts(workshop.link("quiet_program", whose, kind)), {"strdup": whose})
        for kind in DYNAMIC_KINDS:
            yield f"{whose} malloc, {kind}, opens a library", lambda whose=whose, kind=kind: run(
                [workshop.link("dlopen_program", whose, kind), whose, workshop.library()])
    for kind in KINDS:
        # The first malloc makes the decision: early, while the loader still runs.
        yield f"ordinary memory by the environment, {kind}", lambda kind=kind: compare(
            facts(workshop.link("program", "pool", kind), {"BEDPLATE_LEAVE_PINNED": "no"}),
            expected_facts("own"))
        yield f"ordinary memory by a constant, {kind}", lambda kind=kind: compare(
            facts(workshop.link("program", "pool", kind, "constant")), expected_facts("own"))
        yield f"the environment before the constant, {kind}", lambda kind=kind: compare(
            facts(workshop.link("program", "pool", kind, "constant"),
                  {"BEDPLATE_LEAVE_PINNED": "yes"}), expected_facts("pool"))


def run_all(pairs):
    """Runs the tests, each a name and a function; if ONLY_TESTS has names, only these. Prints a
    line for each test, and the sums. Returns the exit code: 1 if a test failed."""
    only = os.environ.get("ONLY_TESTS", "").splitlines()
    failed, passed_count, skips = [], 0, []
    for name, test in pairs:
        if only and name not in only:
            continue
        try:
            test()
            passed_count += 1
            print(f"passed  {name}", flush=True)
        except Skip as reason:
            skips.append(str(reason))
        except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
            failed.append(name)
            print(f"failed  {name}\n{error}", flush=True)
    for reason in skips:
        print(f"skipped: {reason}")
    for name in failed:
        print(f"failed: {name}")
    print(f"{passed_count} passed, {len(failed)} failed, {len(skips)} skipped")
    return 1 if failed else 0


def main():
    with tempfile.TemporaryDirectory() as directory:
        workshop = Workshop(directory)
        for name in OBJECTS:
            workshop.compile(name)
        try:
            return run_all(tests(workshop))
        finally:
            HUGEPAGES.give_back()


if __name__ == "__main__":
    sys.exit(main())
