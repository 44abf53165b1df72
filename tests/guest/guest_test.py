#!/usr/bin/python3
"""The tests that need another machine than this one, each in a fresh virtual machine.

    /usr/bin/python3 tests/guest/guest_test.py [PATTERN...] [-PATTERN...]

Debian 12's kernel (6.1) has no mseal, and the guest may have 1 GiB pages and several NUMA nodes.
A PATTERN is a part of a test's name; a PATTERN after a minus excludes tests. The guest's output is
shown if its test fails. The last line is `N passed, N failed, N skipped`; the exit code is 1 if
anything failed. GUEST_MODE=debug makes guests run the programs of build/debug, in this and in
the other guest tests.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from configuration import SERVE, smallest
from machine import MODE, ROOT
from runner import Failure, Late, Skip, limit, run_tests

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
RUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run.sh")

# Starts an appliance, and prints its counters, its exit code and its log, each after a line that
# begins with ==.
APPLIANCE = """
cat > /tmp/guest.toml << 'END'
{configuration}
END
{before}
serve guest
echo == stats
/bedplate stats --json guest
kill -TERM $guest 2> /dev/null
wait $guest
echo == exit $?
cat /tmp/guest.log
"""


class Guest:
    """One run of a guest, with its output and exit code."""

    def __init__(self, *command, memory_mib=1024, nodes=1, cpus=1, append="", seconds=120,
                 modules="", files="", qemu="", mode=MODE):
        with subprocess.Popen(
                [RUN, "--memory", str(memory_mib), "--nodes", str(nodes), "--cpus", str(cpus),
                 "--append", append, "--seconds", str(seconds), "--modules", modules,
                 "--files", files, "--qemu", qemu, "--mode", mode, "--", *command],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                encoding="utf-8", errors="replace") as run:
            try:
                self.output, self.log = run.communicate()
            except BaseException:
                run.terminate()  # a kill would leave its machine behind
                raise
        self.exit_code = run.returncode

    def expect_exit(self, code):
        if self.exit_code != code:
            end = "\n".join(self.output.splitlines()[-3:])
            raise Failure(f"exit code {self.exit_code}; expected {code}; it ended with\n{end}\n"
                          f"{self.output}{self.log}")

    def expect(self, pattern):
        """Returns the match of `pattern` in the output, where ^ and $ match at lines."""
        match = re.search(pattern, self.output, re.MULTILINE)
        if not match:
            raise Failure(f"the output lacks {pattern!r}\n{self.output}{self.log}")
        return match

    def expect_refusals(self, wanted):
        """Checks the text after each line "== look", up to "== exit CODE": one problem, which the
        pattern matches, or (pattern None) no problem."""
        looks = [look.split("\n== exit ") for look in self.output.split("== look ")[1:]]
        if len(looks) != len(wanted):
            raise Failure(f"{len(looks)} looks; expected {len(wanted)}\n{self.output}")
        for (said, rest), pattern in zip(looks, wanted):
            problems = re.findall(r"^bedplate: (.*)$", said, re.MULTILINE)
            good = rest[0] == "0" if pattern is None else (
                rest[0] == "1" and len(problems) == 1 and re.match(pattern, problems[0]))
            if not good:
                raise Failure(f"expected {pattern!r}\n{self.output}")


# A second shard, on the other node, and a volume that it serves.
SECOND_SHARD = """
[[shard]]
name = "volumes"
cpu = 1
[blockd]
listen = ["tcp:127.0.0.1:10809"]
max_connections = 2
[[blockd.volume]]
name = "ram0"
bytes = "{volume}"
"""


def run_appliance(append, pool="64 MiB", pages="2 MiB", sockets="io_uring", more="", before="",
                  **machine):
    script = SERVE + APPLIANCE.format(before=before, configuration=smallest(
        "guest", pool, sockets, in_pool=f'pages = "{pages}"', more=more))
    return Guest("/bin/sh", "-c", script, append=append, **machine)


def expect_served(guest, segments, backend):
    """Checks a whole run: ready, audited, a message about calls that only libc refuses without
    mseal, and a clean end.

    `segments`: owner, page and node of all segments but segment 0.
    """
    guest.expect_exit(0)
    guest.expect(r"^bedplate: ready$")
    guest.expect(r"refused in libc, but not as raw system calls .*: munmap, mremap, mprotect")
    guest.expect(r"^== exit 0$")
    counters = json.loads(guest.expect(r"== stats\n(\{[\s\S]*?^\})").group(1))
    pool = counters["pool"]
    ways_back = {way_back: said["state"] for way_back, said in counters["way_back"].items()}
    seen = (pool["sealed"], pool["enforced_by_kernel"], counters["audit"],
            sorted((owner, segment["page_bytes"], segment["node"])
                   for owner, segment in counters["segment"].items() if owner != "boot"),
            list(counters["shard"].values())[0]["backend"], pool["support_level"],
            ways_back["munmap"], "open" in ways_back.values())
    wanted = (True, False, "ok", sorted(segments), backend, "FREE CHUNK MUNMAP",
              "refused in libc only", False)
    if seen != wanted:
        raise Failure(f"the counters say {seen}; expected {wanted}\n{guest.output}")


# ---- The tests ----


def doctor_names_what_is_missing():
    guest = Guest("/bedplate", "doctor", append="hugepages=64")
    guest.expect_exit(0)
    guest.expect(r"^good +kernel +6\.1\.")
    guest.expect(r"^good +hugepages of 2 MiB +64 free of 64$")
    guest.expect(r"^warning +hugepages of 1 GiB +0 free of 0; reserve some: ")
    guest.expect(r"^good +io_uring +works$")
    guest.expect(r"^warning +mseal +not in this kernel; it needs Linux 6\.10; ")
    guest.expect(r"^warning +ways back +as raw system calls: munmap, ")


# These groups take an emulated processor the longest, and do not test the kernel. JoinMany must
# join a thousand times within a time that such a processor cannot meet.
LEFT_OUT = {"AlignedArena", "BlockServerEpollTwoShards", "BlockServerUringBothShards",
            "Configuration", "ConfigurationFile", "ConfinedHeap", "GroupLayout", "GroupShapes",
            "HeapOwner", "HttpSession", "Interception", "JoinMany", "KvdSession", "NbdRequest",
            "Network", "RbdMapping", "RelayDay", "RelaySenders", "RelayStream", "ShmOrder",
            "SignalHandlers", "SpscFifo", "StoredServerEpollTwoShards",
            "StoredServerUringBothShards", "ThreadHeaps", "TlsMemory", "TlsPeers", "TlsSession",
            "TraceSnapshot", "TsTables"}


def unit_tests_on_this_kernel():
    """Runs the unit tests, above all NoWayBack: here only the runtime, or the filter, refuses a
    program's calls of libc. There is a second node to move pages to, and a page may be lost.

    LEFT_OUT and two tests that fork hundreds of times are left out. There is one core, because two
    emulated cores that spin starve each other. After a crash, the last name in the output is that
    of the test that crashed.
    """
    listing = subprocess.run([os.path.join(ROOT, "build/release/bedplate-tests"), "-lg"],
                             stdout=subprocess.PIPE, encoding="ascii", check=True)
    listed = listing.stdout.splitlines()[0].split()
    if not LEFT_OUT < set(listed):
        raise Failure(f"no group has the name {LEFT_OUT - set(listed)}")
    chosen = " ".join(["-v", "-xsn ParentsTrafficIsWholeThroughoutManyForks",
                       "-xsn ParentsStreamsAreItsOwn",
                       *(f"-sg {group}" for group in listed if group not in LEFT_OUT)])
    users = ("mkdir -p /etc && printf 'root:x:0:0::/:/bin/sh\\nnobody:x:65534:65534::/:/bin/sh\\n' "
             "> /etc/passwd")
    guest = Guest("/bin/sh", "-c", f"{users} && /bedplate-tests {chosen}",
                  append="hugepages=0:64,1:64", nodes=2, memory_mib=2048, modules="loop",
                  seconds=1200)
    guest.expect_exit(0)
    passed = int(guest.expect(r"^(\d+) passed, 0 failed, \d+ skipped$").group(1))
    if passed < 500 or re.search(r"^    NoWayBack\.", guest.output, re.MULTILINE):
        raise Failure(f"too few tests ran\n{guest.output}")


def appliance_on_2_mib_pages_with_io_uring():
    expect_served(run_appliance("hugepages=64"), [("heap", 2 * MIB, 0)], "io_uring")


def appliance_on_2_mib_pages_with_epoll():
    expect_served(run_appliance("hugepages=64", sockets="epoll"), [("heap", 2 * MIB, 0)],
                  "epoll")


def appliance_on_4_kib_pages():
    expect_served(run_appliance("", pages="4 KiB"), [("heap", 4 * KIB, 0)], "io_uring")


def appliance_on_1_gib_pages():
    guest = run_appliance("hugepagesz=1G hugepages=2", pool="2 GiB", pages="1 GiB",
                          memory_mib=3072)
    expect_served(guest, [("heap", GIB, 0)], "io_uring")


def too_few_hugepages_are_counted():
    guest = run_appliance("hugepages=20")
    guest.expect(r"^== exit 1$")
    guest.expect(r"^bedplate: checking hugepages of 2 MiB: 20 are free, 24 are needed; "
                 r"echo 24 > ")


def pages_lie_on_their_node():
    """Pages of all three sizes lie on their node, with two nodes."""
    guest = Guest("/bedplate-tests", "-g", "NodePlacement", nodes=2, cpus=2, memory_mib=6144,
                  append="hugepages=0:20,1:12 hugepagesz=1G hugepages=0:1,1:1", seconds=120)
    guest.expect_exit(0)
    guest.expect(r"^5 passed, 0 failed, 0 skipped$")


def largest_pages_on_the_shards_nodes():
    guest = run_appliance("hugepages=0:20,1:0 hugepagesz=1G hugepages=0:0,1:1", pool="1066 MiB",
                          pages="largest", more=SECOND_SHARD.format(volume="1 GiB"),
                          nodes=2, cpus=2, memory_mib=6144)
    expect_served(guest, [("heap", 2 * MIB, 0), ("blockd", 2 * MIB, 0), ("volume:ram0", GIB, 1)],
                  "io_uring")
    guest.expect(r"^bedplate: volume:ram0: 1 GiB in pages of 1 GiB on node 1$")


def cure_names_the_node_that_lacks_hugepages():
    """The command in the message is run unchanged, and then the appliance boots."""
    cure = ("/bedplate check /tmp/guest.toml > /tmp/missing 2>&1; cat /tmp/missing\n"
            "sed -n 's/.*; \\(echo [0-9]* > [^ ]*\\)$/\\1/p' /tmp/missing | sh")
    guest = run_appliance("hugepages=0:20,1:5", more=SECOND_SHARD.format(volume="20 MiB"),
                          before=cure, nodes=2, cpus=2)
    guest.expect(r"^bedplate: checking hugepages of 2 MiB on node 1: 5 are free, 10 are needed; "
                 r"echo 10 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/"
                 r"nr_hugepages$")
    expect_served(guest, [("heap", 2 * MIB, 0), ("blockd", 2 * MIB, 0),
                          ("volume:ram0", 2 * MIB, 1)], "io_uring")


def memory_limits_as_uid_1000():
    """The limit of locked memory stops a user, and the message has the command that raises it. The
    process that starts the program raises the limit before it drops root; then the program
    serves."""
    script = r"""
mkdir -p /etc && printf 'root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n' > /etc/passwd
cat > /tmp/user.toml << 'END'
[appliance]
name = "user"
runtime_directory = "/tmp/run"
[pool]
bytes = "64 MiB"
pages = "4 KiB"
heap_min_bytes = "16 MiB"
[[shard]]
name = "main"
cpu = 0
END
BEDPLATE_BOOT_BYTES=8MiB su user -c '/bedplate check /tmp/user.toml' 2>&1; echo == check $?
ulimit -l unlimited
su user -c '""" + SERVE + r"""
serve user; cat /tmp/user.log
/bedplate stats --directory /tmp/run | grep -E "sealed|audit"; kill $user
wait $user; echo == run $?' 2>&1
"""
    guest = Guest("/bin/sh", "-c", script)
    guest.expect(r"^bedplate: checking the limit of locked memory: 8192 KiB are allowed, \d+ KiB "
                 r"are needed; run as root, or: ulimit -l \d+$")
    guest.expect(r"^== check 1$")
    guest.expect(r"^bedplate: ready$")
    guest.expect(r"sealed +yes$")
    guest.expect(r"audit +ok$")
    guest.expect(r"^== run 0$")


def single_copy_over_modules_that_are_given():
    modules = os.environ.get("EXTRA_MODULES", "")
    if not modules:
        raise Skip("EXTRA_MODULES names no xpmem.ko or knem.ko")
    guest = Guest("/bedplate-tests", "-g", "SingleCopy", "-g", "GuardedCopy", modules=modules,
                  seconds=600)
    guest.expect_exit(0)
    for name in ("xpmem", "knem"):
        if f"{name}.ko" in modules and f"skipped: the module {name} is not loaded" in guest.output:
            raise Failure(f"{name}.ko is no {name}\n{guest.output}")


VERBS_MODULES = "ib_uverbs rdma_ucm rdma_rxe dummy"


def verbs_over_soft_roce():
    """All tests that use an RDMA device: rxe0 on lo, created by the tests themselves."""
    guest = Guest("/bin/sh", "-c",
                  "/bedplate-tests -g Verbs -g ConnectionManager -g ProviderConformance "
                  "-sg MessagesLaw && "
                  "/bedplate doctor",
                  modules=VERBS_MODULES, seconds=600)
    guest.expect_exit(0)
    passed = int(guest.expect(r"^(\d+) passed, 0 failed, \d+ skipped$").group(1))
    if passed < 40 or "no RDMA device" in guest.output or "    MessagesLaw." in guest.output:
        raise Failure(f"too few tests ran\n{guest.output}")
    promise = guest.expect(r"^promise: 10000 operations, .* (\d+) distinct buffers as RDMA source, "
                           r"(\d+) as target; .* 0 after it")
    if min(int(promise.group(1)), int(promise.group(2))) < 2000:
        raise Failure(f"too few buffers\n{promise.group(0)}")
    guest.expect(r"^good +verbs +rxe0 port 1, ::ffff:127\.0\.0\.1, MTU \d+.*; drivers: bnxt_re,")


def verbs_by_rdma_cm():
    """Connections break, end and come back, with the connection manager instead of sockets."""
    groups = " ".join(f"-sg {group}" for group in ("VerbsProvider", "VerbsEnds", "VerbsBounce",
                                                   "VerbsDatagrams", "VerbsProcesses"))
    guest = Guest("/bin/sh", "-c",
                  f"export BEDPLATE_VERBS_CONNECT=rdma_cm; /bedplate-tests {groups} && "
                  "/bedplate-tests -sg VerbsLinks -sn BothMayDialAtOnce",
                  modules=VERBS_MODULES, seconds=600)
    guest.expect_exit(0)
    passed = int(guest.expect(r"^(\d+) passed, 0 failed, 1 skipped$").group(1))
    if passed < 30 or "at a local socket" in guest.output:
        raise Failure(f"too few tests ran, or over sockets\n{guest.output}")


def verbs_keep_their_invariants():
    """A debug build checks the invariants around each change: is_valid() of connectors, links,
    endpoints and queues. `make MODE=debug tests` builds it."""
    if not os.path.exists(os.path.join(ROOT, "build/debug/bedplate-tests")):
        raise Skip("build/debug has no bedplate-tests")
    guest = Guest("/bedplate-tests", "-g", "Verbs", "-g", "ConnectionManager",
                  modules=VERBS_MODULES, mode="debug", seconds=600)
    guest.expect_exit(0)
    passed = int(guest.expect(r"^(\d+) passed, 0 failed, \d+ skipped$").group(1))
    if passed < 40 or "no RDMA device" in guest.output:
        raise Failure(f"too few tests ran\n{guest.output}")


# Two processes over rxe0 on lo. Each report follows a line that begins with ==.
PERF = SERVE + """
/bedplate perf register; echo == no device $?
rdma link add rxe0 type rxe netdev lo || exit
address=tcp:127.0.0.1:7471
/bedplate perf put $address 2>&1; echo == no server $?
begin perf answering /bedplate perf serve $address
for words in 'send --size 8,4K' 'put --size 8,64K' 'get --size 8,64K' 'send --events --size 8' \\
    'send --bandwidth --size 64' 'put --bandwidth --both --size 64K' \\
    'get --bandwidth --size 64K'; do
  echo == $words
  /bedplate perf $words -n 200 --json $address
done
/bedplate perf put --size 64 -d 1 $address
/bedplate perf send --size 5K $address 2>&1; echo == too long $?
kill $perf; wait $perf; echo == served $?
cat /tmp/perf.log
echo == register; /bedplate perf register -n 20 --json
/bedplate perf register -n 20
"""


def perf_over_soft_roce():
    guest = Guest("/bin/sh", "-c", PERF, append="hugepages=16", modules=VERBS_MODULES,
                  files=shutil.which("rdma"), seconds=600)
    for text in (r"^bedplate: looking for RDMA devices: .+; .+\n== no device 1$",
                 r"^bedplate: connecting to tcp:127\.0\.0\.1:7471: nobody answers within 5 s; "
                 r"start there: bedplate perf serve tcp:127\.0\.0\.1:7471\n== no server 1$",
                 r"^  device    rxe0 port 1, ::ffff:127\.0\.0\.1, MTU 4096$",
                 r"^  mode      polling, yielding the only processor$",
                 r"^bedplate: choosing what to send: 5 KiB are requested, but at most 4128 "
                 r"bytes are possible; .*\n== too long 2$",
                 r"^== served 0\n(?:bedplate: .*\n)*answering at tcp:127\.0\.0\.1:7471\n"
                 r"  provider  verbs$"):
        guest.expect(text)
    reports = {words: json.loads(text) for words, text in
               re.findall(r"^== (.*)\n(?:bedplate: .*\n)*(\{\n[\s\S]*?^\})", guest.output,
                          re.MULTILINE)}
    if len(reports) != 8:
        raise Failure(f"there are not 8 reports\n{guest.output}")
    for words, report in reports.items():
        for result in report["results"]:
            expect_plausible(words, result)
    pages = {report["page_bytes"] for report in reports.values()}
    if pages != {2 * MIB}:
        raise Failure(f"pages of {pages}\n{guest.output}")


def expect_plausible(words, result):
    if words == "register":
        # The pool's key is nearly free compared with a registration, and a cache would have missed
        # every remapping.
        good = (0 < result["pool_key_ns"] < result["register_ns"] / 20 and
                0 < result["cache_hit_ns"] < result["cache_remapped_ns"] and
                result["bounce_copy_ns"] > 0 and result["stale_count"] == 20)
    elif "--bandwidth" in words:
        good = (result["count"] == 200 and result["elapsed_ns"] > 0 and result["verified"] > 0 and
                ("--both" in words) == ("back_count" in result))
    else:
        times = [result[f"{name}_ns"] for name in ("min", "p50", "p90", "p99", "p999", "max")]
        good = (result["count"] == 200 and times == sorted(times) and times[0] > 0 and
                result["verified"] == (200 if words.startswith("get") else 400))
    if not good:
        raise Failure(f"perf {words}: {result}")


def exit_code_and_quoting_survive():
    guest = Guest("/bin/sh", "-c", "printf '%s\\n' \"$1\"; exit 42", "sh", "it's $HOME")
    guest.expect_exit(42)
    guest.expect(r"^it's \$HOME$")


def guest_that_hangs_is_ended_and_shown():
    """A guest that hangs is ended, also after it has printed something. There is no exit code."""
    guest = Guest("/bin/sh", "-c", "echo begun; exec sleep 1000", seconds=60)
    guest.expect_exit(124)
    guest.expect(r"^begun$")
    if "Run /init as init process" not in guest.log or "not done after 60 s" not in guest.log:
        raise Failure(f"the kernel's log is not shown\n{guest.log}")


def guest_that_is_late_is_ended():
    """A limit from outside, like that of all tests, ends the guest's machine, too."""
    mark = f"bedplate_test={os.getpid()}"

    def runs():
        return subprocess.run(["pgrep", "-f", f"qemu-system.*{mark}"], stdout=subprocess.DEVNULL,
                              check=False).returncode == 0

    def end_it():
        while not runs():
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGALRM)

    try:
        with limit(120):
            threading.Thread(target=end_it, daemon=True).start()
            Guest("/bin/sleep", "1000", append=mark)
    except Late:
        for _ in range(600):  # QEMU takes a moment to end after the signal
            if not runs():
                return
            time.sleep(0.1)
        raise Failure("the machine goes on") from None
    raise Failure("it ended by itself")


def panic_is_no_success():
    Guest("/bin/sh", "-c", "echo c > /proc/sysrq-trigger").expect_exit(125)


def module_that_does_not_load_is_an_error():
    with tempfile.NamedTemporaryFile(suffix=".ko") as module:
        module.write(b"no module")
        module.flush()
        guest = Guest("/bin/true", modules=module.name)
    guest.expect_exit(126)
    guest.expect(r"^guest: loading the module \S+\.ko: it must be built for kernel 6\.1\.")
    guest = Guest("/bin/true", modules="/nowhere/xpmem.ko")
    guest.expect_exit(126)
    if "there is no such file" not in guest.log:
        raise Failure(f"no word of the missing file\n{guest.log}")


TESTS = [exit_code_and_quoting_survive, guest_that_hangs_is_ended_and_shown,
         guest_that_is_late_is_ended, panic_is_no_success,
         module_that_does_not_load_is_an_error, doctor_names_what_is_missing,
         unit_tests_on_this_kernel, appliance_on_2_mib_pages_with_io_uring,
         appliance_on_2_mib_pages_with_epoll,
         appliance_on_4_kib_pages, appliance_on_1_gib_pages, too_few_hugepages_are_counted,
         pages_lie_on_their_node, largest_pages_on_the_shards_nodes,
         cure_names_the_node_that_lacks_hugepages, memory_limits_as_uid_1000,
         single_copy_over_modules_that_are_given, verbs_over_soft_roce, verbs_by_rdma_cm,
         verbs_keep_their_invariants, perf_over_soft_roce]


if __name__ == "__main__":
    sys.exit(run_tests(TESTS))
