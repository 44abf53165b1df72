#!/usr/bin/python3
"""Installs the build, and builds and runs a service and a joiner from installed files only.

    tests/install/run.py [PATTERN]       (the files that `make install` installs of build/release)

Builds with plain make, CMake and Meson; static, static-pie, dynamic and with AddressSanitizer. The
lines for Rust and Go are those of docs/install.md. The last line is `N passed, N failed, N
skipped`; the exit code is 1 if anything failed.
"""

import concurrent.futures
import ctypes
import functools
import glob
import json
import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import documents  # noqa: E402
VERBS_KINDS = ("verbs-static", "verbs-dynamic")
TLS_KINDS = ("tls-static", "tls-dynamic")
KINDS = ("static", "static-pie", "dynamic", "asan", *VERBS_KINDS, *TLS_KINDS)
BOUND_SECONDS = 120  # only a hang reaches it
MODULES = ("bedplate", "bedplate-malloc", "bedplate-verbs", "bedplate-init",
           "bedplate-dpdk", "bedplate-tls", "bedplate-testing")
PYTHON_PARTS = ("__init__.py", "_joined.abi3.so", "_joined.pyi", "control.py", "counters.py",
                "error.py", "joined.py", "libbedplate-join.so.0", "py.typed")
IMAGE_PARTS = ("build.py", "kernel.sh", "modules.py", "newc.py", "progress.py", "run.sh")
SOURCES = ("tests/install/echo_service.cc", "apps/examples/ping.c", "apps/examples/store.c", "tests/install/Makefile",
           "tests/install/CMakeLists.txt", "tests/install/meson.build")
PROCESSES = "".join(f'[[process]]\nname = "{name}"\nuser = "{os.getuid()}"\ngroup = "main"\n'
                    'heap_bytes = "16 MiB"\n' for name in ("ann", "bob"))
CONFIGURATION = """
[appliance]
name = "echo"
runtime_directory = "{folder}/run"
[pool]
bytes = "96 MiB"
pages = "4 KiB"
heap_min_bytes = "16 MiB"
[[shard]]
name = "main"
cpu = {cpu}
[echo]
listen = ["unix:{folder}/echo.sock"]
max_connections = 4
[control]
[[group]]
name = "main"
members = 3
"""


def run(command, cwd=None, environment=None, expect_code=0):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False,
                          cwd=cwd, env={**os.environ, **(environment or {})})
    if done.returncode != expect_code:
        raise AssertionError(f"{shlex.join(command)}\nexit code {done.returncode}, expected "
                             f"{expect_code}:\n{done.stdout}{done.stderr}")
    return done.stdout


def expect(seen, expected, what):
    if seen != expected:
        raise AssertionError(f"{what}: {seen!r} instead of {expected!r}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Installation:
    """The files of `make install`, in a separate folder."""

    def __init__(self, directory):
        self.directory = directory
        self.destdir = os.path.join(directory, "root")
        self.prefix = os.path.join(self.destdir, "usr")
        self.environment = {"PKG_CONFIG_PATH": os.path.join(self.prefix, "lib/pkgconfig")}
        run(["make", "--no-print-directory", "install", "PREFIX=/usr", f"DESTDIR={self.destdir}"],
            cwd=ROOT)
        self.include = os.path.join(self.prefix, "include/bedplate")
        self.program = os.path.join(self.prefix, "bin/bedplate")

    def build(self, tool):
        """Builds the programs of all kinds with `tool`. Returns their folder."""
        folder = os.path.join(self.directory, tool)
        os.mkdir(folder)
        for source in SOURCES:
            shutil.copy(os.path.join(ROOT, source), folder)
        commands = {
            "make": [["make", *KINDS, "image"]],
            "cmake": [["cmake", "-B", "out", f"-DCMAKE_PREFIX_PATH={self.prefix}"],
                      ["cmake", "--build", "out"]],
            "meson": [["meson", "setup", "out"], ["meson", "compile", "-C", "out", "-j", "1"]],
        }
        for command in commands[tool]:
            run(command, folder, self.environment)
        return folder if tool == "make" else os.path.join(folder, "out")


class Service:
    """Runs the built service, with a configuration that has the service's own table."""

    def __init__(self, program, folder, more=""):
        self.program, self.folder = program, folder
        self.config = os.path.join(folder, "echo.toml")
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(CONFIGURATION.format(folder=folder, cpu=min(os.sched_getaffinity(0))))
            file.write(PROCESSES + more)

    def __enter__(self):
        with open(os.path.join(self.folder, "log"), "wb") as log:
            self.process = subprocess.Popen([self.program, "run", self.config], stderr=log,
                                            stdout=subprocess.PIPE, text=True)
        try:
            expect(self.process.stdout.readline(), "bedplate: ready\n", f"told{self.log()}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def log(self):
        with open(os.path.join(self.folder, "log"), encoding="utf-8") as file:
            return f"\n{file.read()}"

    def ask(self, text):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(BOUND_SECONDS)
            client.connect(os.path.join(self.folder, "echo.sock"))
            client.sendall(text)
            answer = b""
            while len(answer) < len(text) and (more := client.recv(65536)):
                answer += more
        return answer

    def is_served(self):
        try:
            return self.ask(b"hello") == b"hello"
        except (BrokenPipeError, ConnectionResetError):
            return False

    def stats(self):
        return json.loads(run([self.program, "stats", "echo", "--json", "--directory",
                               os.path.join(self.folder, "run")]))

    def traced(self):
        """Checks the service's traces. Returns the bytes of all requests."""
        lines = run([self.program, "trace", "echo", "--json", "--service", "echo", "--directory",
                     os.path.join(self.folder, "run")]).splitlines()
        seen = [json.loads(line) for line in lines]
        expect({tuple(one["stations"]) for one in seen}, {("received", "sent")}, "its stations")
        expect([one["handle"] for one in seen], list(range(1, len(seen) + 1)), "in their order")
        return sum(one["bytes"] for one in seen)

    def explain(self):
        """Checks that `plan --explain` lists the key that the service's counter measures."""
        told = json.loads(run([self.program, "plan", "--explain", "--json", self.config]))
        found, = (one for one in told["keys"] if one["key"] == "echo.max_connections")
        expect((found["value"], found["peak"] in (1, 2)), (4, True), f"what is known of it: {found}")
        expect(found["proposed"], found["peak"] + 1, "its proposed value")
        expect(found["risk"], "A client more is turned away.", "the risk")

    def ctl(self, program, *words, expect_code=0):
        return run([program, "ctl", "--directory", os.path.join(self.folder, "run"), *words],
                   expect_code=expect_code)

    def control(self, bedplate):
        """Checks that the service's method is listed and works, with its program and with ours."""
        expect("echo.admit: Turns further clients away" in run([self.program, "ctl", "--list"]),
               True, "its method in its list")
        for program, clients in ((bedplate, 0), (self.program, 4)):
            listed, = (one for one in json.loads(self.ctl(program, "methods"))
                       if one["name"] == "echo.admit")
            expect(listed["parameters"][0]["type"], "number", f"what a client learns: {listed}")
            said = json.loads(self.ctl(program, "echo.admit", f"clients={clients}"))
            expect(said["admitted"], clients, f"its answer: {said}")
            expect(self.is_served(), clients > 0, f"a client is served where {clients} may be")
        self.ctl(bedplate, "echo.admit", "clients=5", expect_code=1)

    def greet(self, ping):
        """Two processes join, and receive three greetings from each other."""
        door = os.path.join(self.folder, "run/echo.join")
        pings = [subprocess.Popen([ping, door, *names], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
                 for names in (("ann", "bob"), ("bob", "ann"))]
        try:
            for one, other in zip(pings, ("bob", "ann")):
                told, _ = one.communicate(timeout=BOUND_SECONDS)
                heard = [f"heard: {other} says hello {i}" for i in range(3)]
                expect([line for line in told.splitlines() if line.startswith("heard")], heard,
                       f"a greeting of {other}, of\n{told}")
                expect(one.returncode, 0, "the exit code of ping")
        finally:
            for one in pings:
                one.kill()
                one.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        expect(self.process.wait(BOUND_SECONDS), 0, f"the exit code after SIGTERM{self.log()}")
        expect(os.path.exists(os.path.join(self.folder, "echo.sock")), False, "a socket is left")


def is_dynamic(program):
    return "Requesting program interpreter" in run(["readelf", "-lW", program])


def needed_libraries(program):
    return re.findall(r"NEEDED.*\[(.*)\]", run(["readelf", "-dW", program]))


def check_verbs(program, has_verbs):
    """A program with bedplate-verbs has peers. A program without it has no part of rdma-core, and
    says so."""
    drivers = "those of the system" if is_dynamic(program) else "mlx5"
    expected = f"drivers: .*{drivers}" if has_verbs else "verbs .*not linked in"
    told = run([program, "doctor"])
    if not re.search(expected, told):
        raise AssertionError(f"{program} doctor does not say {expected}:\n{told}")
    if is_dynamic(program):
        libraries = {"libibverbs.so.1", "librdmacm.so.1"} & set(needed_libraries(program))
        expect(len(libraries), 2 if has_verbs else 0, f"of rdma-core in {program}")
    with tempfile.TemporaryDirectory() as home:
        path = os.path.join(home, "verbs.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(CONFIGURATION.format(folder=home, cpu=min(os.sched_getaffinity(0))) +
                       '[verbs]\nrequired = false\n')
        done = subprocess.run([program, "plan", path], capture_output=True, text=True, check=False)
        line = CONFIGURATION.count("\n") + 1
        refusal = (f"{path}:{line}:1: [verbs] is there, but this program has no verbs linked in; "
                   "link it with bedplate-verbs (pkg-config; CMake: Bedplate::verbs), or leave the "
                   "table out")
        expect(refusal in done.stderr, not has_verbs, f"its refusal of [verbs]:\n{done.stderr}")
        expect(done.returncode, 0 if has_verbs else 2, f"the exit code of plan:\n{done.stderr}")
        done = subprocess.run([program, "perf", "send", "tcp:127.0.0.1:1"], capture_output=True,
                              text=True, check=False)
        expect("this program has no verbs linked in" in done.stderr, not has_verbs,
               f"perf's refusal:\n{done.stderr}")


def check_tls(program, has_tls):
    """A program with bedplate-tls serves HTTPS. A program without it has no part of OpenSSL, and
    refuses a configuration with TLS."""
    if is_dynamic(program):
        libraries = {"libssl.so.3", "libcrypto.so.3"} & set(needed_libraries(program))
        expect(len(libraries), 2 if has_tls else 0, f"of OpenSSL in {program}")
    else:
        with open(program, "rb") as file:
            expect(b"openssl.org" in file.read(), has_tls, f"whether OpenSSL is in {program}")
    with tempfile.TemporaryDirectory() as home:
        names = {name: os.path.join(home, f"{name}.pem") for name in ("cert", "key")}
        run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
             "-nodes", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
             "-keyout", names["key"], "-out", names["cert"]])
        port = free_port()
        table = (f'[http]\nlisten = ["tcp:127.0.0.1:{port}"]\n'
                 f'tls_certificate = "{names["cert"]}"\ntls_key = "{names["key"]}"\n')
        service = Service(program, home, table)
        if has_tls:
            with service:
                context = ssl.create_default_context(cafile=names["cert"])
                with urllib.request.urlopen(f"https://localhost:{port}/healthz", context=context,
                                            timeout=BOUND_SECONDS) as reply:
                    expect(reply.read(), b"ok\n", "its health by HTTPS")
                service.stop()
            return
        done = subprocess.run([program, "plan", service.config], capture_output=True, text=True,
                              check=False)
        expect("this program has no TLS linked in; link it with bedplate-tls (pkg-config; CMake: "
               "Bedplate::tls), or leave the key out" in done.stderr, True,
               f"its refusal of tls_certificate:\n{done.stderr}")
        expect(done.returncode, 2, f"the exit code of plan:\n{done.stderr}")


def check_contradiction(program):
    """Keys of the service's table that contradict one another are refused with their position."""
    with tempfile.TemporaryDirectory() as home:
        path = os.path.join(home, "contradiction.toml")
        text = CONFIGURATION.format(folder=home, cpu=min(os.sched_getaffinity(0)))
        text = text.replace("max_connections = 4", "max_connections = 4\nadmitted = 5")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        done = subprocess.run([program, "check", path], capture_output=True, text=True, check=False)
        line = text.splitlines().index("admitted = 5") + 1
        expect(done.stderr, f'bedplate: {path}:{line}:12: "admitted" is more than max_connections; '
                            "expected at most 4\n", "its refusal of both keys")
        expect(done.returncode, 2, "the exit code of check")


def check_no_init(program):
    """As process 1, which an image starts without arguments, the program says that it lacks
    bedplate-init. As any other process, it refuses the tables of an image's first process."""
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    done = subprocess.run(["unshare", *as_root, "--pid", "--fork", program], capture_output=True,
                          text=True, check=False, timeout=BOUND_SECONDS)
    expect("starting as the first process of a machine" in done.stderr and
           "link it with bedplate-init" in done.stderr, True, f"what it says:\n{done.stderr}")
    expect(done.returncode, 1, "its exit code")
    with tempfile.TemporaryDirectory() as home:
        path = os.path.join(home, "watchdog.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(CONFIGURATION.format(folder=home, cpu=min(os.sched_getaffinity(0))) +
                       "[watchdog]\n")
        done = subprocess.run([program, "plan", path], capture_output=True, text=True, check=False)
        refusal = (f"{path}:{CONFIGURATION.count(chr(10)) + 1}:1: [watchdog] is there, but this "
                   "program has no init linked in; link it with bedplate-init (pkg-config; CMake: "
                   "Bedplate::init), or leave the table out")
        expect(refusal in done.stderr, True, f"its refusal of [watchdog]:\n{done.stderr}")
        expect(done.returncode, 2, f"the exit code of plan:\n{done.stderr}")


def check_programs(installation, builds, tool, kind):
    folder = builds[tool].result()
    program = os.path.join(folder, f"echo-{kind}")
    expect(is_dynamic(program), not kind.endswith(("static", "static-pie")), f"{program} is dynamic")
    check_contradiction(program)
    check_verbs(program, kind in VERBS_KINDS)
    check_no_init(program)
    check_tls(program, kind in TLS_KINDS)
    with tempfile.TemporaryDirectory() as home, Service(program, home) as service:
        text = bytes(range(256)) * 64
        expect(service.ask(text) == text, True, "the echo is what was sent")
        expect(service.ask(b"again"), b"again", "the echo")
        told = service.stats()
        expect(told["services"]["echo"]["echoed_bytes"], len(text) + 5, "its counter")
        expect(service.traced(), len(text) + 5, "what its requests have sent")
        service.explain()
        service.control(installation.program)
        level = "MUNMAP" if kind == "asan" else "FREE CHUNK MUNMAP"
        expect(told["pool"]["support_level"], level, "malloc's support level")
        if kind not in (*VERBS_KINDS, *TLS_KINDS):
            service.greet(os.path.join(folder, f"ping-{kind}"))
        service.stop()


def is_first_of_its_source(header):
    """True if the source of the same name includes the header first: then the build has already
    compiled it alone."""
    source = os.path.join(ROOT, os.path.splitext(header)[0] + ".cc")
    if not os.path.exists(source):
        return False
    with open(source, encoding="utf-8") as file:
        return re.search(r"^#include (.*)$", file.read(), re.M)[1] == f'"{header}"'


def check_headers(installation):
    """Each header compiles alone, in a program's usual mode: with exceptions and RTTI."""
    headers = [os.path.relpath(path, installation.include) for path in
               glob.glob(f"{installation.include}/**/*.h*", recursive=True)]
    headers = [header for header in headers if not is_first_of_its_source(header)]
    flags = shlex.split(run(["pkg-config", "--cflags", "bedplate"],
                            environment=installation.environment))

    def compile_alone(header):
        run(["g++", "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
             *flags, "-x", "c++", "-include", header, "/dev/null"])

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_alone, headers))


def check_needs_no_rdma_core(installation):
    """A program without peers compiles without the headers of rdma-core."""
    headers = run(["g++", "-std=c++20", "-M", f"-I{installation.include}", "-x", "c++", "-include",
                   "bedplate.hpp", "/dev/null"])
    expect([word for word in headers.split() if "/infiniband/" in word or "/rdma/" in word], [],
           "headers of rdma-core in bedplate.hpp")


def check_c_header(installation):
    """C programs find the headers in pkg-config's folder, and as bedplate/NAME in its parent."""
    outside = os.path.dirname(installation.include)
    for folder, name in ((installation.include, "bedplate.h"), (outside, "bedplate/bedplate.h"),
                         (installation.include, "bedplate_service.h"),
                         (outside, "bedplate/bedplate_service.h")):
        run(["gcc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
             "-x", "c", f"-I{folder}", "-include", name, "/dev/null"])


def headers_of_next_interface(installation, home):
    """Copies the installed headers, with the number of the next interface. Returns their folder, and
    the number that is installed."""
    include = os.path.join(home, "include")
    shutil.copytree(installation.include, include)
    path = os.path.join(include, "platform/version.h")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    number = int(re.search(r"^#define BP_INTERFACE (\d+)$", text, re.M)[1])
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace(f"#define BP_INTERFACE {number}\n",
                                f"#define BP_INTERFACE {number + 1}\n"))
    return include, number


def check_other_interface(installation):
    """An object that was compiled against another interface does not link, in C++ and in C, also
    where unused sections are left out: the linker names the object and both numbers. A library with
    such an object is not loaded."""
    asked = {words: run(["pkg-config", *words.split(), "bedplate"],
                        environment=installation.environment).strip()
             for words in ("--static --libs", "--modversion")}
    with tempfile.TemporaryDirectory() as home:
        include, number = headers_of_next_interface(installation, home)
        symbol = f"bedplate_interface_{number + 1}_compile_again_with_the_headers_of_this_archive"
        archive = f"Bedplate {asked['--modversion']} with interface {number}"
        for compiler, source in ((("g++", "-std=c++20"), "apps/examples/echo.cc"),
                                 (("gcc", "-std=c99"), "apps/examples/store.c")):
            made = os.path.join(home, f"service_{compiler[0]}.o")
            run([*compiler, f"-I{include}", "-c", os.path.join(ROOT, source), "-o", made])
            linked = subprocess.run(["g++", "-static", "-Wl,--gc-sections", "-o", f"{made}.program",
                                     made, *shlex.split(asked["--static --libs"])],
                                    capture_output=True, text=True, check=False,
                                    env={**os.environ, "LC_ALL": "C"})
            expect(linked.returncode, 1, f"the exit code of the linker\n{linked.stderr}")
            for word in (f"service_{compiler[0]}.o:", f"undefined reference to `{symbol}'",
                         f"compiled against interface {number + 1} of Bedplate, but the archive is "
                         f"{archive}: compile it again"):
                expect(word in linked.stderr, True, f"whether it says {word!r}:\n{linked.stderr}")
        library = os.path.join(home, "library.so")
        run(["g++", "-std=c++20", "-shared", "-fPIC", f"-I{include}", "-x", "c++", "-include",
             "bedplate.hpp", "/dev/null", "-o", library])
        try:
            ctypes.CDLL(library)
        except OSError as error:
            expect(symbol in str(error), True, f"why the library is not loaded: {error}")
        else:
            raise AssertionError("a library of another interface is loaded")


def check_private(installation):
    """No header is installed that only the runtime or its tests use, and no file that is not listed
    here."""
    for private in ("apps/blockd", "apps/init", "apps/bedplate", "alloc/confined_heap.h",
                    "alloc/child_heap.h", "apps/program/commands.h"):
        if os.path.exists(os.path.join(installation.include, private)):
            raise AssertionError(f"{private} is installed")
    files = {os.path.relpath(os.path.join(parent, name), installation.destdir)
             for parent, _, names in os.walk(installation.destdir) for name in names
             if not parent.startswith((installation.include, f"{installation.prefix}/share/doc"))}
    expect(sorted(files), sorted([
        "usr/bin/bedplate", "usr/bin/bedplate-image",
        *(f"usr/share/bedplate/image/{part}" for part in IMAGE_PARTS),
        *(f"usr/lib/python3/dist-packages/bedplate/{part}" for part in PYTHON_PARTS),
        *(f"usr/lib/lib{module}.a" for module in MODULES),
        *(f"usr/lib/pkgconfig/{module}.pc" for module in MODULES),
        "usr/lib/cmake/Bedplate/BedplateConfig.cmake",
        "usr/lib/cmake/Bedplate/BedplateConfigVersion.cmake",
        "usr/lib/systemd/system/bedplate@.service",
        "usr/share/bash-completion/completions/bedplate",
        "usr/share/bash-completion/completions/bedplate-image",
        "usr/share/man/man1/bedplate.1", "usr/share/man/man1/bedplate-image.1",
        "usr/share/man/man5/bedplate.toml.5"]), "what is installed")


DEBUG_PROJECT = """cmake_minimum_required(VERSION 3.20)
project(echo CXX)
find_package(Bedplate REQUIRED)
add_executable(echo echo_service.cc)
target_link_libraries(echo PRIVATE Bedplate::malloc Bedplate::static)
"""


def check_debug():
    """`make install MODE=debug` adds the archives of a debug build, which pkg-config and CMake find,
    and leaves those of the release alone."""
    with tempfile.TemporaryDirectory(prefix="bedplate-") as home:
        installation = Installation(home)
        archive = os.path.join(installation.prefix, "lib/libbedplate.a")
        before = os.stat(archive).st_ino
        run(["make", "--no-print-directory", "install", "MODE=debug", "PREFIX=/usr",
             f"DESTDIR={installation.destdir}"], cwd=ROOT)
        expect(os.stat(archive).st_ino, before, "the archive of the release")
        source = shutil.copy(os.path.join(ROOT, "tests/install/echo_service.cc"), home)
        words = shlex.split(run(["pkg-config", "--static", "--cflags", "--libs",
                                 "bedplate-debug-malloc"], environment=installation.environment))
        expect("-DBP_DEBUG=1" in words, True, f"the define in {words}")
        run(["g++", "-std=c++20", "-static", "-o", "echo", source, *words], home)
        with open(os.path.join(home, "CMakeLists.txt"), "w", encoding="utf-8") as file:
            file.write(DEBUG_PROJECT)
        programs = {"echo": True}
        for kind in ("Debug", "Release"):
            run(["cmake", "-B", kind, f"-DCMAKE_PREFIX_PATH={installation.prefix}",
                 f"-DCMAKE_BUILD_TYPE={kind}"], home)
            run(["cmake", "--build", kind], home)
            programs[f"{kind}/echo"] = kind == "Debug"
        for program, is_debug in programs.items():
            with open(os.path.join(home, program), "rb") as file:
                expect(b"is_valid() before a change" in file.read(), is_debug,
                       f"the checks of a debug build in {program}")


def check_documents(installation):
    """The page for new users and its service are installed, and its lines build the service."""
    folder = os.path.join(installation.prefix, "share/doc/bedplate")
    with open(os.path.join(folder, "docs/first-service.md"), encoding="utf-8") as file:
        page = file.read()
    lines = re.findall(r"^    (g\+\+ .*)$", page, re.M)
    expect(len(lines), 2, "the lines that build it")
    with tempfile.TemporaryDirectory() as home:
        for example in ("echo", "visits"):  # visits needs an optional header
            shutil.copy(os.path.join(folder, f"apps/examples/{example}.cc"), home)
            for line in lines:
                run(["sh", "-c", line.replace("echo", example)], home, installation.environment)
        run([os.path.join(home, "visits"), "keys", "visits"])
        with open(os.path.join(home, "echo.toml"), "w", encoding="utf-8") as file:
            toml = re.search(r"^```toml\n(.*?)^```", page, re.M | re.S)[1]
            file.write(toml.replace("[pool]", '[pool]\npages = "4 KiB"'))
        run([os.path.join(home, "echo"), "plan", os.path.join(home, "echo.toml")])


def check_links(installation):
    """Each relative link of an installed page leads to an installed document, and to a heading of
    it. The files that users copy from are there."""
    folder = os.path.join(installation.prefix, "share/doc/bedplate")
    for path in ("README.md", "CHANGELOG.md", "docs/services.md", "docs/pictures/boot.svg",
                 "docs/pictures/status-page.png", "docs/prometheus/alerts.yml", "apps/demo.toml",
                 "apps/examples/store.c", "apps/examples/container/Containerfile",
                 "tests/install/echo_service.cc", "tests/install/CMakeLists.txt"):
        expect(os.path.isfile(os.path.join(folder, path)), True, f"{path} is installed")
    dangling, count = [], 0
    for page in glob.glob(f"{folder}/**/*.md", recursive=True):
        with open(page, encoding="utf-8") as file:
            links = documents.LINK.findall(file.read())
        for link in links:
            target, _, heading = link.partition("#")
            if "://" in link or target.startswith("mailto:"):
                continue
            path = os.path.join(os.path.dirname(page), target) if target else page
            count += 1
            if not os.path.exists(path) or not path_is_below(path, folder):
                dangling.append(f"{os.path.relpath(page, folder)}: {link}")
            elif heading and heading not in headings_of(path):
                dangling.append(f"{os.path.relpath(page, folder)}: {link} (the heading)")
    expect(dangling, [], "links that lead nowhere")
    expect(count > 250, True, f"{count} links were followed")


def path_is_below(path, folder):
    """A file outside the folder is missing in a copy of the folder."""
    return os.path.realpath(path).startswith(os.path.realpath(folder) + os.sep)


@functools.cache
def headings_of(page):
    with open(page, encoding="utf-8") as file:
        return documents.heading_names(file.read())


def check_unit_test(installation):
    """The lines of docs/testing.md build the example's unit test, with AddressSanitizer, and run
    it."""
    folder = os.path.join(installation.prefix, "share/doc/bedplate")
    with open(os.path.join(folder, "docs/testing.md"), encoding="utf-8") as file:
        lines = re.findall(r"^    (g\+\+ .*|\./echo_test)$", file.read(), re.M)
    expect(len(lines), 2, "the lines that build and run it")
    with tempfile.TemporaryDirectory() as home:
        for source in ("echo.cc", "echo_test.cc"):
            shutil.copy(os.path.join(folder, "apps/examples", source), home)
        told = [run(["sh", "-c", line], home, installation.environment) for line in lines]
        expect(told[1], "0 failed\n", "what the unit test prints")


def check_language(installation, compiler, source, expected):
    """The lines for `compiler` in docs/install.md, a dynamic and a static one, link `source`."""
    with open(os.path.join(ROOT, "docs/install.md"), encoding="utf-8") as file:
        lines = re.findall(rf"^    (.*\b{compiler} .*)$", file.read(), re.M)
    expect(len(lines), 2, f"the lines for {compiler}")
    name, ending = os.path.splitext(source)
    for line, is_static in zip(lines, (False, True)):
        with tempfile.TemporaryDirectory() as home:
            shutil.copy(os.path.join(HERE, source), os.path.join(home, f"program{ending}"))
            environment = {**installation.environment, "GOCACHE": f"{home}/cache",
                           "PATH": f"/usr/bin:{os.environ['PATH']}"}
            run(["sh", "-c", line], home, environment)
            program = os.path.join(home, "program")
            expect(is_dynamic(program), not is_static, f"{name} by {line} is dynamic")
            expect(run([program]), expected, f"where the memory of {name} is, by {line}")


# Reads a counter, calls a method, and exchanges greetings with ping.
PYTHON = """
import sys
from bedplate import Control, counters, joined
directory = sys.argv[1]
print(counters.read("echo", directory).find("pool")["sealed"].value)
with Control.open("echo", directory) as control:
    print(control.call("echo.admit", clients=4)["admitted"])
with joined.join(f"{directory}/echo.join", "ann") as process:
    bob = process.connect("bob", timeout=60)
    for i in range(3):
        bob.send(1, f"ann says hello {i}".encode())
    heard = []
    while len(heard) < 3:
        heard += process.receive(timeout=60)
    print([message.payload.decode() for message in heard])
"""


def check_python(installation, builds):
    """The installed Python package reads, asks and joins a service that was built by make."""
    folder = builds["make"].result()
    with tempfile.TemporaryDirectory() as home, \
            Service(os.path.join(folder, "echo-dynamic"), home) as service:
        ping = subprocess.Popen([os.path.join(folder, "ping-dynamic"), f"{home}/run/echo.join",
                                 "bob", "ann"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True)
        try:
            told = run(["/usr/bin/python3", "-B", "-c", PYTHON, f"{home}/run"], environment={
                "PYTHONPATH": os.path.join(installation.prefix, "lib/python3/dist-packages")})
            expect(told.splitlines(), ["True", "4", str([f"bob says hello {i}" for i in range(3)])],
                   "what Python prints")
            heard, _ = ping.communicate(timeout=BOUND_SECONDS)
            expect(ping.returncode, 0, f"the exit code of ping, which says\n{heard}")
        finally:
            ping.kill()
            ping.wait()
        service.stop()


def check_manuals(installation):
    """The pages name every command, every option and every key."""
    def words_of(page):
        path = os.path.join(installation.prefix, "share/man", page)
        with open(path, encoding="utf-8") as file:
            return file.read().replace("\\-", "-")
    page = words_of("man1/bedplate.1")
    commands = re.findall(r"^  ([a-z]+) ", run([installation.program, "--help"]), re.M)
    for command in commands:
        told = run([installation.program, command, "--help"])
        for word in (f".SH {command.upper()}\n", *re.findall(r"^  (--[a-z-]+)", told, re.M)):
            if word not in page:
                raise AssertionError(f"bedplate.1 lacks {word} of {command}")
    sections = dict(section.partition("\n")[::2] for section in
                    words_of("man5/bedplate.toml.5").split(".SH "))
    for key in json.loads(run([installation.program, "keys", "--json"])):
        table, _, name = key["key"].rpartition(".")
        if f"\\fB{name}\\fR (" not in sections[f"[{table}]"]:
            raise AssertionError(f"bedplate.toml.5 lacks {key['key']}")


def check_completion(installation):
    folder = os.path.join(installation.prefix, "share/bash-completion/completions")

    def completed(program, *words):
        typed = [os.path.join(installation.prefix, "bin", program), *words]
        line = (f". {shlex.quote(os.path.join(folder, program))}; COMP_WORDS=({shlex.join(typed)}); "
                f"COMP_CWORD={len(words)}; _{program.replace('-', '_')}; "
                'echo "${COMPREPLY[@]}"')
        return run(["bash", "-c", line]).split()
    expect(completed("bedplate", "pl"), ["plan"], "what pl becomes")
    expect(completed("bedplate", "plan", "--fi"), ["--fifo"], "what --fi becomes")
    expect(completed("bedplate", "ctl", "cou"), ["counters", "counters.read"], "what cou becomes")
    expect(completed("bedplate", "ctl", "blockd.hold", ""), ["volume=", "on="],
           "the parameters of a method")
    expect(completed("bedplate-image", "build", "--ke"), ["--kernel-folder"], "what --ke becomes")
    expect(completed("bedplate-image", "run", "--"), ["--forward"], "the options of run")


IMAGE = """
[appliance]
name = "{name}"
[pool]
bytes = "48 MiB"
heap_min_bytes = "16 MiB"
[event_loop]
sockets = "epoll"
[[shard]]
name = "main"
cpu = 0
[[network]]
interface = "eth0"
address = "10.0.2.15/24"
driver = "virtio_net"
[{name}]
listen = ["tcp:10.0.2.15:10809"]
plain_text = "allowed"
{own}
"""
# For each service: a key of its table, a request, and the answer.
IMAGE_SERVICES = {"echo": ("max_connections = 3", b"hello", b"hello"),
                  "store": ("entries = 1", b"set a b\nset c d\nget a\n", b"STORED\nFULL\nVALUE b\n")}


def check_image(installation, builds, name):
    """A service runs as a machine's first process, built from installed files and a kernel only."""
    folder = builds["make"].result()
    command = os.path.join(installation.prefix, "bin/bedplate-image")
    own, question, answer = IMAGE_SERVICES[name]
    with tempfile.TemporaryDirectory() as home:
        config, image = os.path.join(home, f"{name}.toml"), os.path.join(home, "image")
        with open(config, "w", encoding="utf-8") as file:
            file.write(IMAGE.format(name=name, own=own))
        # The tests' kernel, if it is there; else the distribution's kernel is fetched.
        build = [command, "build", "--level", "1", "--kernel-folder",
                 os.path.join(ROOT, "build/kernel")]
        done = subprocess.run([*build, os.path.join(folder, "echo-static"), config, image],
                              capture_output=True, text=True, check=False)
        expect(done.returncode, 1, f"the exit code without bedplate-init\n{done.stderr}")
        if name == "echo" and "link it with bedplate-init" not in done.stderr:
            raise AssertionError(f"no word of bedplate-init: {done.stderr}")
        run([*build, os.path.join(folder, f"{name}-image"), config, image])
        boot_and_ask(command, image, question, answer)


def boot_and_ask(command, image, question, answer):
    port = free_port()
    kernel = os.path.join(ROOT, "build/kernel/vmlinux")  # an unpacked kernel boots in half the time
    machine = subprocess.Popen([command, "run", image, "--forward", f"{port}:10809"],
                               stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, errors="replace",
                               env={**os.environ, "MEMORY_MIB": "512", "KERNEL": kernel})
    hang = threading.Timer(BOUND_SECONDS, machine.terminate)  # ends the loop below
    hang.start()
    try:
        console = []
        for line in machine.stdout:
            console.append(line)
            if line.strip() == "bedplate: ready":
                break
        else:
            raise AssertionError(f"the image does not serve:\n{''.join(console[-60:])}")
        with socket.create_connection(("127.0.0.1", port), BOUND_SECONDS) as client:
            client.sendall(question)
            told = b""
            while len(told) < len(answer) and (more := client.recv(65536)):
                told += more
        expect(told, answer, "what the first process answers")
    finally:
        hang.cancel()
        machine.terminate()
        machine.wait()
        machine.stdout.close()


def check_packages():
    if shutil.which("lintian") is None:
        raise AssertionError("lintian is not installed (scripts/setup.sh check)")
    run(["make", "--no-print-directory", "deb"], cwd=ROOT)
    packages = glob.glob(os.path.join(ROOT, "build/deb/*.deb"))
    expect(len(packages), 3, "the number of packages")
    told = run(["lintian", "--allow-root", "--fail-on", "error,warning", *packages])
    expect(told, "", "what lintian says")


def tests(installation, builds):
    yield "each header alone", lambda: check_headers(installation)
    yield "the C header", lambda: check_c_header(installation)
    yield "another interface", lambda: check_other_interface(installation)
    yield "no header of rdma-core", lambda: check_needs_no_rdma_core(installation)
    yield "nothing private", lambda: check_private(installation)
    yield "the first service", lambda: check_documents(installation)
    yield "links of the pages", lambda: check_links(installation)
    yield "a unit test", lambda: check_unit_test(installation)
    yield "rust", lambda: check_language(
        installation, "rustc", "rust_program.rs",
        "threads: pool\naligned: pool\nstring: pool\nstack: elsewhere\n")
    if shutil.which("go"):
        yield "go", lambda: check_language(installation, "go build", "go_program.go",
                                           "malloc: pool\nmake: elsewhere\n")
    yield "manual pages", lambda: check_manuals(installation)
    yield "completion", lambda: check_completion(installation)
    for tool in builds:
        for kind in KINDS:
            yield f"{tool}, {kind}", functools.partial(check_programs, installation,
                                                           builds, tool, kind)
    yield "python", lambda: check_python(installation, builds)
    for name in IMAGE_SERVICES:
        yield f"image of {name}", functools.partial(check_image, installation, builds, name)
    if os.path.exists(os.path.join(ROOT, "scripts/install/deb.py")):
        yield "packages", check_packages
    if "debug" in os.environ.get("CHECK_MODES", "").split():
        yield "a debug build", check_debug


def main():
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    only = os.environ.get("ONLY_TESTS", "").splitlines()
    failed, passed_count, begin = [], 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bedplate-") as directory:
        installation = Installation(directory)
        print(f"installed in {time.monotonic() - begin:.1f} s", flush=True)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            builds = {tool: pool.submit(installation.build, tool)
                      for tool in ("make", "cmake", "meson")
                      if any(pattern in f"{tool}, {kind}" for kind in KINDS) or
                      (tool == "make" and any(pattern in name for name in (
                          "python", *(f"image of {name}" for name in IMAGE_SERVICES))))}
            for name, test in tests(installation, builds):
                if pattern not in name or only and name not in only:
                    continue
                begin = time.monotonic()
                try:
                    test()
                    passed_count += 1
                    print(f"passed  {name} ({time.monotonic() - begin:.1f} s)", flush=True)
                except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
                    failed.append(name)
                    print(f"failed  {name}\n{error}", flush=True)
    for name in failed:
        print(f"failed: {name}")
    has_go = bool(shutil.which("go"))
    if not has_go:
        print("skipped go: it is not installed (scripts/setup.sh check-long)")
    print(f"{passed_count} passed, {len(failed)} failed, {0 if has_go else 1} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
