"""The harness of the system tests: registration, a sandbox, an appliance, hugepages, waiting.

A test is a function that takes a Sandbox; `@test(axis=[...])` registers it once for each
combination of its axes. It fails by raising, and skips by raising Skip with the reason. Everything
that a test starts or creates belongs to its sandbox, which ends and removes it. Nothing here
sleeps for a fixed time: wait_for() waits for the thing itself, with a bound.
"""

import collections
import contextlib
import ctypes
import errno
import glob
import itertools
import json
import mmap
import os
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))

import bedplate
from bedplate import counters

BEDPLATE = os.path.abspath(os.environ.get("BEDPLATE", "build/release/bedplate"))
BOUND_SECONDS = 60  # bound of any wait, far above any real duration
RUN_MARK = f"BEDPLATE_SYSTEM_TEST={os.getpid()}.{time.time_ns()}"  # in the environment of all our
                                                                   # processes
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LAYOUTS = {"one_shard": ["main"], "two_shards": ["network", "storage"]}
BACKENDS = ["io_uring", "epoll"]


class Skip(Exception):
    """This machine lacks a feature; the message names it."""


class Failure(Exception):
    """A wrong result, with the expected one."""


# ---- Registration ----

TESTS = []  # (name, function that takes a sandbox)


def test(**axes):
    """Registers a function once for each combination of `axes`, which become its arguments."""

    def register(function):
        theme = function.__module__.removesuffix("_test")
        for values in itertools.product(*axes.values()):
            arguments = dict(zip(axes, values))
            variant = f"[{','.join(map(str, values))}]" if axes else ""
            name = f"{theme}.{function.__name__}{variant}"
            TESTS.append((name, lambda box, f=function, a=arguments: f(box, **a)))
        return function

    return register


# ---- Reporting failures ----


def expect(seen, wanted, what):
    if seen != wanted:
        raise Failure(f"{what}: {shorten(seen)}; expected {shorten(wanted)}")


def expect_true(condition, what):
    if not condition:
        raise Failure(what)


def expect_in(needle, text, what):
    if needle not in text:
        raise Failure(f"{what} lacks {needle!r}: {shorten(text)}")


def shorten(value, limit=1500):
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def wait_for(probe, what, seconds=BOUND_SECONDS):
    """Returns the first true value of probe()."""
    end = time.monotonic() + seconds
    while not (value := probe()):
        if time.monotonic() > end:
            raise Failure(f"waited {seconds} s in vain for {what}")
        time.sleep(0.005)
    return value


def wait_for_all(count, total, what):
    """Waits until count() is at least total. A slow machine never fails: only a count that has not
    changed for BOUND_SECONDS does."""
    seen, end = count(), time.monotonic() + BOUND_SECONDS
    while seen < total:
        if time.monotonic() > end:
            raise Failure(f"waited {BOUND_SECONDS} s in vain after {seen} of {total} {what}")
        time.sleep(0.005)
        if (now := count()) > seen:
            seen, end = now, time.monotonic() + BOUND_SECONDS


# ---- The machine ----


def read_text(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def hugepage_file(page_bytes, name):
    return f"/sys/kernel/mm/hugepages/hugepages-{page_bytes // KIB}kB/{name}"


def hugepage_count(page_bytes, name):
    return int(read_text(hugepage_file(page_bytes, name)))


def has_hugepages(page_bytes):
    """True if the kernel supports pages of this size."""
    return os.path.exists(hugepage_file(page_bytes, "nr_hugepages"))


def free_hugepages(page_bytes=2 * MIB):
    """The number of pages neither taken nor reserved."""
    if not has_hugepages(page_bytes):
        return 0
    count = hugepage_count
    return count(page_bytes, "free_hugepages") - count(page_bytes, "resv_hugepages")


def orphaned_hugepages(page_bytes=2 * MIB):
    """The number of pages taken but mapped by no living process; others may run appliances."""
    used = hugepage_count(page_bytes, "nr_hugepages") - free_hugepages(page_bytes)
    mapped_kib = 0
    for path in glob.glob("/proc/[0-9]*/smaps"):
        with contextlib.suppress(OSError):
            mapped_kib += sum(area.hugetlb_kib for area in memory_areas(path)
                              if area.page_bytes == page_bytes)
    return max(0, used - mapped_kib * KIB // page_bytes)


Area = collections.namedtuple("Area", "begin end rights inode path page_bytes hugetlb_kib flags")


def memory_areas(path):
    """The areas of an smaps file."""
    areas = []
    for line in read_text(path).splitlines():
        fields = line.split(maxsplit=5)
        if fields[0].endswith(":"):
            if fields[0] == "KernelPageSize:":
                areas[-1] = areas[-1]._replace(page_bytes=int(fields[1]) * KIB)
            elif fields[0] == "VmFlags:":
                areas[-1] = areas[-1]._replace(flags=tuple(line.split()[1:]))
            elif fields[0] in ("Shared_Hugetlb:", "Private_Hugetlb:"):
                kib = areas[-1].hugetlb_kib + int(fields[1])
                areas[-1] = areas[-1]._replace(hugetlb_kib=kib)
        else:
            begin, end = (int(text, 16) for text in fields[0].split("-"))
            name = fields[5] if len(fields) > 5 else ""
            areas.append(Area(begin, end, fields[1], int(fields[4]), name, 0, 0, ()))
    return areas


class HugepageLoan:
    """Raises nr_hugepages by the missing number, and lowers it by the same number at the end."""

    def __init__(self):
        self.raised = {}  # page_bytes: pages

    def ensure_free(self, page_bytes, pages):
        missing = pages - free_hugepages(page_bytes)
        if missing <= 0:
            return
        if not has_hugepages(page_bytes):
            raise Skip(f"this kernel has no hugepages of {page_bytes // MIB} MiB")
        available = int(re.search(r"MemAvailable:\s*(\d+)", read_text("/proc/meminfo"))[1]) * KIB
        got = self._change(page_bytes, missing) if missing * page_bytes < available // 2 else 0
        if got < missing:
            self._change(page_bytes, -got)
            raise Skip(f"this machine has no {pages} free hugepages of {page_bytes // MIB} MiB")

    def _change(self, page_bytes, pages):
        before = hugepage_count(page_bytes, "nr_hugepages")
        try:
            with open(hugepage_file(page_bytes, "nr_hugepages"), "w", encoding="ascii") as file:
                file.write(str(before + pages))
        except OSError as error:
            raise Skip(f"the number of hugepages cannot be changed: {error.strerror}") from None
        changed = hugepage_count(page_bytes, "nr_hugepages") - before
        self.raised[page_bytes] = self.raised.get(page_bytes, 0) + changed
        return changed

    def give_back(self):
        for page_bytes, pages in self.raised.copy().items():
            if pages:
                # Pages still in use could not be freed: rings outlast their process for a moment.
                with contextlib.suppress(Failure):
                    wait_for(lambda: free_hugepages(page_bytes) >= pages, "free hugepages")
                self._change(page_bytes, -pages)


HUGEPAGES = HugepageLoan()


@contextlib.contextmanager
def few_hugepages(count):
    """Leaves only `count` hugepages of 2 MiB free: reserves the others without taking them."""
    HUGEPAGES.ensure_free(2 * MIB, count)
    surplus = free_hugepages() - count
    map_hugetlb = 0x40000
    flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | map_hugetlb
    with mmap.mmap(-1, surplus * 2 * MIB, flags) if surplus else contextlib.nullcontext():
        yield


def io_uring_errno():
    """0 if io_uring can be set up, else the errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    setup_number = 425  # the same on every architecture
    fd = libc.syscall(setup_number, 1, ctypes.create_string_buffer(120))
    if fd < 0:
        return ctypes.get_errno()
    os.close(fd)
    return 0


def need_backend(sockets):
    if sockets == "io_uring" and (number := io_uring_errno()):
        raise Skip(f"io_uring cannot be set up here: {os.strerror(number)}")


def need_tools(*names):
    for name in names:
        if shutil.which(name) is None:
            raise Skip(f"{name} is not installed")


def free_port():
    """A port below the kernel's ephemeral range, so that no connection takes it in between."""
    while True:
        port = random.randrange(20000, 32768)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def files_below(*directories):
    return {
        os.path.join(parent, name)
        for directory in directories
        for parent, folders, names in os.walk(directory)
        for name in folders + names
    }


def possible_leftovers():
    """Files in the folders where an appliance could leave something: shared memory, hugetlb,
    /run/bedplate. The benchmark, which may run in parallel, has its own directory."""
    mounts = [line.split() for line in read_text("/proc/mounts").splitlines()]
    hugetlb = [fields[1] for fields in mounts if fields[2] == "hugetlbfs"]
    found = files_below("/dev/shm", "/run/bedplate", "/run/netns", *hugetlb)
    return {path for path in found if not path.startswith("/dev/shm/bedplate-bench-")}


def marked_processes():
    """{pid: command} of the living processes started by this run."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if RUN_MARK in read_text(f"/proc/{pid}/environ"):
                found[int(pid)] = read_text(f"/proc/{pid}/cmdline").replace("\0", " ")
    return found


# ---- The configuration ----


def to_toml(table, path=""):
    """TOML of nested dicts: scalars first, then tables and arrays of tables."""

    def scalar(value):
        if isinstance(value, list):
            return f"[{', '.join(map(scalar, value))}]"
        return json.dumps(value, ensure_ascii=False)

    tables = {}
    lines = []
    for key, value in table.items():
        is_tables = isinstance(value, list) and value and isinstance(value[0], dict)
        if is_tables or isinstance(value, dict):
            tables[key] = value
        else:
            lines.append(f"{key} = {scalar(value)}\n")
    for key, value in tables.items():
        name = f"{path}{key}"
        for part in value if isinstance(value, list) else [value]:
            header = f"[[{name}]]" if isinstance(value, list) else f"[{name}]"
            lines.append(f"\n{header}\n{to_toml(part, name + '.')}")
    return "".join(lines)


# ---- The sandbox of one test ----


class Sandbox:
    """The directory, processes and connections of one test; all end with it."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="bedplate-")
        os.chmod(self.directory, 0o755)
        self.processes = []
        self.appliances = []
        self.closing = contextlib.ExitStack()

    def path(self, name):
        return os.path.join(self.directory, name)

    def tmpfs_path(self, name):
        """A path in a directory on tmpfs. The kernel never writes tmpfs pages back. It
        write-protects pages of files on a disk for write-back, so mapping them costs faults."""
        if [line for line in read_text("/proc/mounts").splitlines()
                if line.split()[1:3] == ["/dev/shm", "tmpfs"]]:
            folder = tempfile.TemporaryDirectory(prefix="bedplate-", dir="/dev/shm")
            return os.path.join(self.closing.enter_context(folder), name)
        raise Skip("/dev/shm is no tmpfs")

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return self.path(name)

    def write_secret(self, name, content):
        """Writes a file that only its owner can read, as required for tokens and keys."""
        path = self.write(name, content)
        os.chmod(path, 0o600)
        return path

    def dice(self):
        """A random generator; the seed is shown if the test fails, and BEDPLATE_SEED repeats it."""
        seed = int(os.environ.get("BEDPLATE_SEED", random.randrange(1 << 32)))
        self.write("seed.log", f"BEDPLATE_SEED={seed}\n")
        return random.Random(seed)

    def configuration(self, layout="one_shard", sockets="io_uring-or-epoll", **blockd):
        """The demo's configuration with a free port and a Unix socket; tests change the dict."""
        names = LAYOUTS[layout]
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) < len(names):
            raise Skip(f"{len(names)} shards need as many processors; this machine has {len(cpus)}")
        need_backend(sockets)
        return {
            "appliance": {"name": "test", "runtime_directory": self.path("runtime")},
            "pool": {"bytes": "256 MiB", "pages": "2 MiB"},
            "event_loop": {"sockets": sockets},
            "shard": [{"name": name, "cpu": cpu} for name, cpu in zip(names, cpus)],
            "blockd": {
                "listen": [f"tcp:127.0.0.1:{free_port()}", f"unix:{self.path('nbd.sock')}"],
                **blockd,
                "volume": [{"name": "ram0", "bytes": "64 MiB"}],
            },
        }

    def spawn(self, argv, log, **options):
        """Starts a process whose standard error (and output, unless in `options`) goes to `log`."""
        with open(self.path(log), "ab") as file:
            options = {"stdout": file, "stderr": file, "cwd": self.directory, **options}
            process = subprocess.Popen(argv, **options)
        self.processes.append(process)
        return process

    def run(self, *argv, expect_code=0, timeout=BOUND_SECONDS, **options):
        """Runs a command to its end and returns it, with its output as text."""
        done = subprocess.run(argv, cwd=self.directory, capture_output=True, text=True,
                              errors="replace", timeout=timeout, check=False, **options)
        if expect_code is not None and done.returncode != expect_code:
            raise Failure(f"{' '.join(argv)}: exit code {done.returncode}, expected {expect_code}\n"
                          f"{done.stdout}{done.stderr}".rstrip())
        return done

    def bedplate(self, *argv, expect_code=0, **options):
        return self.run(BEDPLATE, *argv, expect_code=expect_code, **options)

    def plan(self, config):
        """The plan of the configuration file `config`."""
        return json.loads(self.bedplate("plan", config, "--json").stdout)

    def ensure_hugepages(self, config):
        """Makes exactly as many hugepages free as the plan of the file takes."""
        for page_bytes, pages in hugepages_of(self.plan(config)).items():
            HUGEPAGES.ensure_free(page_bytes, pages)

    def appliance(self, configuration=None, **options):
        """Starts an appliance."""
        appliance = Appliance(self, configuration or self.configuration(), **options)
        self.appliances.append(appliance)
        return appliance.start()

    def logs(self):
        """The output of all servers of the test."""
        texts = [(name, read_text(self.path(name))) for name in sorted(os.listdir(self.directory))
                 if name.endswith(".log")]
        return "".join(f"--- {name}\n{text}" for name, text in texts if text)

    def close(self):
        self.closing.close()
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
        shutil.rmtree(self.directory)


def hugepages_of(plan):
    """{page_bytes: pages} of the segments on hugepages."""
    pages = {}
    for segment in plan["segments"]:
        size = segment["page_bytes"]
        if size > 4 * KIB:
            pages[size] = pages.get(size, 0) + segment["bytes"] // size
    return pages


@contextlib.contextmanager
def stopped(pid):
    """Stops all threads of the process by SIGSTOP in the meantime."""
    def is_stopped():
        states = []
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/stat", encoding="ascii") as stat:
                states.append(stat.read().rsplit(") ", 1)[1][0])
        return all(state == "T" for state in states)
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_for(is_stopped, "the threads to stop")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


# ---- The appliance ----


class Appliance:
    """`bedplate run` with a configuration from a dict. A clean stop leaves nothing behind."""

    def __init__(self, box, configuration, file="bedplate.toml", argv_prefix=(), **options):
        self.box = box
        self.configuration = configuration
        self.config = box.write(file, to_toml(configuration))
        self.log = f"{file}.log"
        self.argv = [*argv_prefix, BEDPLATE, "run", self.config]
        self.options = options
        self.process = None

    def start(self):
        self.box.ensure_hugepages(self.config)
        self.process = self.box.spawn(self.argv, self.log, stdout=subprocess.PIPE, **self.options)
        seen = read_line(self.process.stdout.fileno())
        expect(seen, "bedplate: ready\n", f"the first line of {' '.join(self.argv)}")
        return self

    @property
    def pid(self):
        return self.process.pid

    @property
    def runtime_directory(self):
        return self.configuration["appliance"]["runtime_directory"]

    def _listener(self, kind):
        for text in self.configuration["blockd"]["listen"]:
            if text.startswith(kind):
                return text.removeprefix(kind)
        raise Failure(f"the configuration has no listener {kind}")

    def address(self, transport="unix"):
        """The address for RawClient; `transport` is tcp or unix."""
        if transport == "unix":
            return self._listener("unix:")
        host, _, port = self._listener("tcp:").rpartition(":")
        return (host.strip("[]"), int(port))

    def uri(self, transport="unix", volume="ram0"):
        if transport == "unix":
            return f"nbd+unix:///{volume}?socket={self._listener('unix:')}"
        return f"nbd://{self._listener('tcp:')}/{volume}"

    def log_text(self):
        return read_text(self.box.path(self.log))

    def stats_text(self, *options):
        return self.box.bedplate("stats", self.configuration["appliance"]["name"], *options,
                                 "--directory", self.runtime_directory).stdout

    def stats(self):
        """The same as stats_text("--json"), without the audit."""
        return counters.read(self.configuration["appliance"]["name"],
                             self.runtime_directory).stats()

    def audit(self):
        return json.loads(self.stats_text("--json"))["audit"]

    def ask(self, method, **parameters):
        """The result of a method of the control socket."""
        with bedplate.Control.open(self.configuration["appliance"]["name"],
                                   self.runtime_directory) as control:
            return control.call(method, **parameters)

    def refusal(self, method, **parameters):
        """The code and the message of a refused request."""
        try:
            result = self.ask(method, **parameters)
        except bedplate.Error as error:
            return error.code, error.answer
        raise Failure(f"{method} is not refused: {shorten(result)}")

    def blockd(self, counter):
        return self.stats()["services"]["blockd"][counter]

    def granted(self):
        """The number of writes with a granted destination, over all volumes."""
        return sum(volume["grants"] for volume in self.blockd("volumes").values())

    def open_files(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def expect_alive(self):
        expect(self.process.poll(), None, "the exit code of an appliance that should be running")

    def wait_exit(self):
        try:
            return self.process.wait(BOUND_SECONDS)
        except subprocess.TimeoutExpired:
            raise Failure(f"the appliance did not exit in {BOUND_SECONDS} s") from None

    def stop(self, signal_number=signal.SIGTERM):
        """Stops it cleanly: exit code 0, and nothing is left behind."""
        self.expect_alive()
        self.process.send_signal(signal_number)
        expect(self.wait_exit(), 0, "the exit code after SIGTERM")
        self.expect_nothing_left()

    def expect_nothing_left(self):
        left = [path for path in [self.runtime_directory, *self._socket_files()]
                if os.path.lexists(path)]
        expect(left, [], "left after the appliance's end")

    def _socket_files(self):
        listeners = self.configuration.get("blockd", {}).get("listen", [])
        return [text.removeprefix("unix:") for text in listeners if text.startswith("unix:")]


def read_line(fd):
    """One line, or the rest before the end of the file."""
    line = b""
    end = time.monotonic() + BOUND_SECONDS
    while not line.endswith(b"\n"):
        if not select.select([fd], [], [], max(0, end - time.monotonic()))[0]:
            raise Failure(f"no line in {BOUND_SECONDS} s, only {line!r}")
        byte = os.read(fd, 1)
        if not byte:
            break
        line += byte
    return line.decode(errors="replace")


def is_refused(address):
    """True if no process listens at `address` (a path, or a host and a port)."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as probe:
        probe.settimeout(BOUND_SECONDS)
        return probe.connect_ex(address) in (errno.ECONNREFUSED, errno.ENOENT)
