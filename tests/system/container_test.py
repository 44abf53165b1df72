"""The example of docs/operations.md: a container with nothing but an appliance."""

import contextlib
import json
import os
import re
import shutil
import subprocess

from harness import (BEDPLATE, Skip, expect, expect_in, free_port, need_tools, read_text, test,
                     wait_for)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLE = os.path.join(ROOT, "apps/examples/container")
# A container in a container may not raise these limits, and podman's own defaults do.
LIMITS = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]


class Podman:
    """Podman with its images and containers in the test's folder, which is removed with the test.
    Podman's global files (/sys/fs/cgroup/*/libpod_parent, /etc/cni/net.d, a cache in
    /var/lib/containers) stay."""

    def __init__(self, box):
        need_tools("podman", "runc")
        if os.geteuid() != 0:
            raise Skip("a pool is locked by root's right, which a user's container has not")
        self.box = box
        state = box.path("state")
        config = box.write("containers.conf", f'[engine]\nlock_type = "file"\ntmp_dir = "{state}"\n')
        self.environment = {**os.environ, "CONTAINERS_CONF": config}
        self.argv = ["podman", "--root", box.path("images"), "--runroot", box.path("containers"),
                     "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--runtime", "runc"]
        box.closing.callback(self.end)

    def end(self):
        """Removes the containers. A container that remains is no failure: the test has its result
        already."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self("rm", "--all", "--force", expect_code=None)

    def __call__(self, *words, **options):
        return self.box.run(*self.argv, *words, env=self.environment, **options)


def built(box, podman, port):
    """Builds the example's image, with a port of the test."""
    os.mkdir(box.path("context"))
    for name in ("Containerfile", "appliance.toml"):
        shutil.copy(os.path.join(EXAMPLE, name), box.path("context"))
    shutil.copy(BEDPLATE, box.path("context/bedplate"))
    config = box.path("context/appliance.toml")
    text = read_text(config).replace(":10809", f":{port}").replace(":9464", f":{free_port()}")
    cpu = min(os.sched_getaffinity(0))
    box.write("context/appliance.toml", text.replace("cpu = 0", f"cpu = {cpu}"))
    for words in (["build", "--quiet", "--tag", "bedplate", box.path("context")],
                  ["run", "--rm", "--network", "host", *LIMITS, "bedplate", "--version"]):
        done = podman(*words, expect_code=None)
        if done.returncode != 0:
            raise Skip(f"podman {words[0]} does not work here: {done.stderr.strip()[-200:]}")
    box.ensure_hugepages(config)


def is_ready(podman):
    said = podman("logs", "box")
    state = podman("inspect", "--format", "{{.State.Status}}", "box").stdout.strip()
    expect(state, "running", f"the state of what said {said.stdout}{said.stderr}")
    return "bedplate: ready" in said.stdout


@test()
def from_scratch(box):
    """Started as in the document: the only capability is to lock memory, and the file system is
    read-only."""
    podman, port = Podman(box), free_port()
    built(box, podman, port)
    podman("run", "--detach", "--name", "box", "--network", "host", "--read-only",
           "--cap-drop", "all", "--cap-add", "ipc_lock", *LIMITS, "bedplate")
    wait_for(lambda: is_ready(podman), "the appliance")
    told = box.run("nbdinfo", "--json", f"nbd://127.0.0.1:{port}/ram0").stdout
    expect(json.loads(told)["exports"][0]["export-size"], 16 << 20, "the volume's size")
    expect_in("audit                      ok", podman("exec", "box", "/bedplate", "stats").stdout,
              "what its counters say")
    podman("stop", "--time", "20", "box")
    expect(podman("wait", "box").stdout, "0\n", "its exit code")


@test()
def pod_asks_for_what_is_planned(box):
    """The pod's limit of hugepages is exactly the planned number; the rest fits into the pod's
    memory."""
    plan = box.plan(os.path.join(EXAMPLE, "appliance.toml"))
    pages = {2 << 20: 0, 4096: 0}
    for segment in plan["segments"]:
        pages[segment["page_bytes"]] += segment["bytes"]
    pod = read_text(os.path.join(EXAMPLE, "pod.yaml"))
    expect(re.findall(r"hugepages-2Mi: (\d+)Mi", pod), [str(pages[2 << 20] >> 20)] * 2,
           "hugepages of request and limit")
    expect(pages[4096] + (32 << 20) <= 64 << 20, True, "whether the rest fits")
    expect(re.findall(r" memory: (\d+)Mi", pod), ["64", "64"], "memory of request and limit")
