"""A running NBD server and its clients, each on a core of its own."""
import collections
import json
import os
import socket
import subprocess
import time

import common
from common import BenchError

GREETING_MAX_S = 60
CLIENT_MAX_S = 120

# A server's address, the size of its volume, and the cores of the server and its clients.
# transport: "unix", "tcp", or "tls", which is TCP with a shared key.
Setup = collections.namedtuple(
    "Setup", "directory name transport path port volume_bytes server_cpu client_cpu")


def listen_address(setup):
    """The address of `setup`, in the syntax of Bedplate's configuration."""
    return f"unix:{setup.path}" if setup.transport == "unix" else f"tcp:127.0.0.1:{setup.port}"


def keys_of(setup):
    """The shared keys of server and client for TLS, in a folder in QEMU's format."""
    folder = os.path.join(setup.directory, "keys")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "keys.psk")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w",
              encoding="ascii") as file:
        file.write(f"alice:{'0123456789abcdef' * 4}\n")
    return path


def uri_of(setup):
    if setup.transport == "unix":
        return f"nbd+unix:///?socket={setup.path}"
    if setup.transport == "tls":
        return f"nbds://alice@127.0.0.1:{setup.port}?tls-psk-file={keys_of(setup)}"
    return f"nbd://127.0.0.1:{setup.port}"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_greeting(setup):
    """Returns whether the server sends an NBD greeting."""
    family, address = ((socket.AF_UNIX, setup.path) if setup.transport == "unix"
                       else (socket.AF_INET, ("127.0.0.1", setup.port)))
    with socket.socket(family) as client:
        client.settimeout(GREETING_MAX_S)
        try:
            client.connect(address)
            return client.recv(8) == b"NBDMAGIC"
        except OSError:
            return False


class NbdServer:
    """One running server. `command` makes its command line from a Setup."""

    def __init__(self, name, setup, command, cores=1):
        self.name, self.setup, self.command, self.cores = name, setup, command, cores
        self.uri = uri_of(setup)
        self.log = os.path.join(setup.directory, f"{setup.name}.log")

    def __enter__(self):
        cpus = [str(self.setup.server_cpu), str(self.setup.client_cpu)][:self.cores]
        argv = ["taskset", "-c", ",".join(cpus), *self.command(self.setup)]
        with open(self.log, "wb") as log:
            self.process = common.start(argv, stdout=log, stderr=log)
        try:
            self.wait_for_greeting(argv)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        common.stop(self.process)
        if os.path.exists(self.setup.path):
            os.unlink(self.setup.path)

    def state(self):
        """The server's state, for a message about a failure."""
        code = self.process.poll()
        with open(self.log, encoding="utf-8", errors="replace") as log:
            said = log.read().strip()[-500:] or "nothing"
        return (f"the server {self.name} {'runs' if code is None else f'ended with {code}'} and "
                f"said: {said}")

    def wait_for_greeting(self, argv):
        deadline = time.monotonic() + GREETING_MAX_S
        while not is_greeting(self.setup):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"starting {' '.join(argv)}: no greeting; {self.state()}")
            time.sleep(0.02)  # between two attempts, bounded by the deadline

    def run_client(self, argv):
        """Runs a client on its core, and removes all its files. Returns its output, and the
        seconds that it took."""
        began = time.perf_counter()
        process = common.start(["taskset", "-c", str(self.setup.client_cpu), *argv],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            said, errors = process.communicate(timeout=CLIENT_MAX_S)
        except subprocess.TimeoutExpired:
            raise BenchError(f"running {' '.join(argv)}: no end after {CLIENT_MAX_S} s; "
                             f"{self.state()}")
        finally:
            common.stop(process)
        if process.returncode != 0:
            raise BenchError(f"running {' '.join(argv)}: exit code {process.returncode}, "
                             f"{errors.strip()[-500:]}; {self.state()}")
        return said, time.perf_counter() - began

    def fio(self, mode, block, depth, connections, seconds):
        """Returns fio's result for reads, or for writes."""
        output = os.path.join(self.setup.directory, "fio.json")
        self.run_client(["fio", "--ioengine=nbd", f"--uri={self.uri}", f"--numjobs={connections}",
                         *fio_options(mode, block, depth, seconds, output)])
        return fio_figures(mode, output, self.name)


def fio_options(mode, block, depth, seconds, output):
    # norandommap: fio's record of finished blocks is the client's work, not the server's.
    return ["--name=bench", f"--rw={mode}", f"--bs={block}", f"--iodepth={depth}",
            "--group_reporting", "--norandommap", "--time_based", f"--runtime={seconds}",
            f"--output={output}", "--output-format=json"]


def fio_figures(mode, output, name):
    with open(output, encoding="utf-8") as file:
        job = json.load(file)["jobs"][0]
    figures = job["read" if mode.endswith("read") else "write"]
    if job["error"] or not figures["total_ios"]:
        raise BenchError(f"measuring {name}: fio reports error {job['error']} and "
                         f"{figures['total_ios']} requests; run fio by hand")
    return figures
