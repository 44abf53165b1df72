#!/usr/bin/python3
"""Appliances with [verbs] in a guest: soft RoCE on lo, and appliances connected through it.

    /usr/bin/python3 tests/guest/verbs_test.py [PATTERN...]

Patterns and the last line are those of guest_test.py, which also runs all unit tests of verbs.
"""

import json
import os
import re
import sys

from configuration import SERVE, smallest
from guest_test import RUN, VERBS_MODULES, Guest
from runner import Failure, run_tests

# The beginning of every script: functions. make_device creates the device with a unit test, because
# `rdma link add` is missing. `until_state NAME STATE` waits for the state of an appliance's only
# peer.
BEGIN = SERVE + r"""
echo 128 > /proc/sys/vm/nr_hugepages
mkdir -p /etc && printf 'root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n' > /etc/passwd
make_device() { /bedplate-tests -sg VerbsPeers -sn AllThatIsThereIsGood > /dev/null 2>&1; }
configure() {
  cat > /tmp/$1.toml << END
""" + smallest("$1", more="[verbs]\n$2") + r"""END
}
state() { /bedplate stats --json $1 | sed -n '/^  "peer"/,/^  }/s/.*"state": "\(.*\)".*/\1/p'; }
until_state() {
  for i in $(seq 600); do [ "$(state $1)" = "$2" ] && break; sleep 0.1; done
  echo "== $1: $(state $1)"
}
AREA='[[verbs.export]]
name = "area"
bytes = "4 MiB"
rights = ["read", "write"]'
A='listen = "tcp:127.0.0.1:7471"
[[verbs.peer]]
name = "b"'
B='back_off_max_ms = 200
[[verbs.peer]]
name = "a"
address = "tcp:127.0.0.1:7471"'
"""


def run(script, modules=None, **machine):
    guest = Guest("/bin/sh", "-c", BEGIN + script, seconds=180,
                  modules=VERBS_MODULES if modules is None else modules, **machine)
    guest.expect_exit(0)
    return guest


def stats_of(guest, name):
    """The output of `/bedplate stats --json NAME` after a line `== stats NAME`."""
    return json.loads(guest.expect(rf"== stats {name}\n(\{{[\s\S]*?^\}})").group(1))


# ---- The tests ----


def two_appliances_find_one_another():
    """b dials a, is killed and started again. Nothing is registered after the seal."""
    guest = run(r"""
make_device
configure a "$A
$AREA"
configure b "$B"
serve a; serve b
until_state a connected; until_state b connected
kill -9 $b; until_state a waiting
serve b; until_state a connected; until_state b connected
echo == stats a; /bedplate stats --json a
kill -TERM $a; wait $a; echo == exit $?
until_state b dialing
kill -TERM $b; wait $b; echo == exit $?
cat /tmp/a.log /tmp/b.log
""")
    states = re.findall(r"^== (\w: \w+)$", guest.output, re.MULTILINE)
    wanted = ["a: connected", "b: connected", "a: waiting", "a: connected", "b: connected",
              "b: dialing"]
    if states != wanted:
        raise Failure(f"the states were {states}; expected {wanted}\n{guest.output}")
    if len(re.findall(r"^== exit 0$", guest.output, re.MULTILINE)) != 2:
        raise Failure(f"not both ended well\n{guest.output}")
    counters = stats_of(guest, "a")
    pool, verbs = counters["pool"], counters["verbs"]
    seen = (pool["registrations"], pool["registrations_after_seal"], counters["audit"],
            verbs["connected"], verbs["broken"], counters["peer"])
    # The regions: boot, heap, verbs and the export; the export once more, flush word and bounce
    # buffer.
    if seen != (7, 0, "ok", 2, 1, {"b": {"state": "connected"}}):
        raise Failure(f"the counters say {seen}\n{guest.output}")
    guest.expect(r"^bedplate: a: verbs through rxe0 port 1, ::ffff:127\.0\.0\.1, MTU \d+, 1 peer$")


def what_is_missing_is_in_one_report():
    """One report has the missing hugepages and the missing device, with the cures, for each cause
    of a missing device."""
    report = r"""
echo 0 > /proc/sys/vm/nr_hugepages
configure a "$A"
report() { echo == $1; /bedplate check /tmp/a.toml 2>&1; echo == check $?; }
"""
    hugepages = r"bedplate: checking hugepages of 2 MiB: 0 are free, \d+ are needed; echo .*"
    end = r".*\n(bedplate: listening .*\n)?== check 1$"
    run(report + "report without_modules", modules="").expect(
        rf"^== without_modules\n{hugepages}\nbedplate: looking for RDMA devices: the kernel's "
        r"module ib_core is not loaded; load the device's module \(for soft RoCE rdma_rxe, then "
        rf"`rdma link add rxe0 type rxe netdev eth0`\), or do without verbs{end}")
    guest = run(report + r"""
report without_a_device
make_device
ip link set lo down; report without_a_link
ip link set lo up; ip addr flush dev lo; report without_an_address
""")
    guest.expect(rf"^== without_a_device\n{hugepages}\nbedplate: looking for RDMA devices: the "
                 rf"kernel has none; load the device's{end}")
    guest.expect(rf"^== without_a_link\n{hugepages}\nbedplate: using the RDMA device rxe0, port 1: "
                 rf"the port is down; bring the link up{end}")
    guest.expect(rf"^== without_an_address\n{hugepages}\nbedplate: using the RDMA device rxe0, "
                 rf"port 1: it has no address; give its network interface an IP address{end}")


def without_a_device_it_serves_where_none_is_required():
    guest = run(r"""
configure a "required = false
$A
$AREA"
/bedplate check /tmp/a.toml; echo == check $?
serve a
echo == stats a; /bedplate stats --json a
/bedplate stats a
kill -TERM $a; wait $a; echo == exit $?
cat /tmp/a.log
""")
    guest.expect(r"^== check 0$")
    guest.expect(r"^bedplate: looking for RDMA devices: the kernel has none; ")
    guest.expect(r"^bedplate: warning: a: running without peers, as \[verbs\] required = false "
                 r"allows$")
    guest.expect(r"^bedplate: ready$")
    guest.expect(r"^== exit 0$")
    guest.expect(r"^  device +none that could be used$")
    counters = stats_of(guest, "a")
    owners = {name: each["bytes"] for name, each in counters["owner"].items()}
    if owners.get("export:area") != 4 << 20 or counters["audit"] != "ok":
        raise Failure(f"what was planned is not there: {owners}")


def limit_of_locked_memory_is_told_before():
    """If verbs are not required, the limit stops only the pool's registration, and so the verbs."""
    limited = r"""
make_device
chmod 666 /dev/infiniband/*
configure a "required = %s
remote = \"read\"
$A"
sed -i 's|^name = "a"|name = "a"\nruntime_directory = "/tmp/run"|' /tmp/a.toml
export BEDPLATE_BOOT_BYTES=10MiB
ulimit -l 106496
su user -c '/bedplate check /tmp/a.toml'; echo == check $?
su user -c '""" + SERVE + r"""
serve a; kill $a; wait $a; echo == run $?' 2> /dev/null
cat /tmp/a.log
"""
    guest = run(limited % "true")
    guest.expect(r"^bedplate: checking the limit of locked memory: 106496 KiB are allowed, \d+ "
                 r"KiB are needed; run as root, or: ulimit -l \d+$")
    guest.expect(r"^== check 1$")
    guest = run(limited % "false")
    guest.expect(r"^== check 0$")
    guest.expect(r"^bedplate: registering \S+ MiB with rxe0: Cannot allocate memory; raise the "
                 r"limit of locked memory \(ulimit -l unlimited\)")
    guest.expect(r"^bedplate: ready$")
    guest.expect(r"^== run 0$")


def services_converse_by_name_with_another_appliance():
    """Runs tests/places by verbs, the same code as on one machine (tests/system/places_test.py).
    The shard that [verbs] names has the peers, so it sends the requests."""
    places = os.path.join(os.path.dirname(RUN), "..", "..", "build/release/places")
    guest = run(r"""
make_device
configure a "trust_windows = true
$A
[places]"
configure b "trust_windows = true
$B
[places]
ask = [\"main\", \"a\"]"
serve a /places
serve b /places 'a by'
kill -TERM $b; wait $b; echo == exit $?
kill -TERM $a; wait $a
grep ' by ' /tmp/b.log
grep -v ' by ' /tmp/a.log /tmp/b.log
""", files=f"{places}=/places")
    guest.expect(r"^== exit 0\nmain by self: echo 8, lent, put, get, add: good\n"
                 r"a by verbs, since self: this is main: echo 7, lent, put, get, add: good$")


def appliances_that_gave_up_root_converse():
    """Both appliances run as nobody, with each kind of connection. Linux takes soft RoCE's commands
    by write() only from threads with the same credentials that opened the device. A device that the
    user may not open is reported before the boot."""
    places = os.path.join(os.path.dirname(RUN), "..", "..", "build/release/places")
    guest = run(r"""
make_device
echo 'nobody:x:65534:65534::/:/bin/sh' >> /etc/passwd
mkdir /tmp/run && chown nobody /tmp/run
as_nobody() {
  configure $1 "connect = \"$connect\"
trust_windows = true
$2"
  sed -i '/^name = "'$1'"/a user = "nobody"' /tmp/$1.toml
  sed -i '/^user = /a runtime_directory = "/tmp/run"' /tmp/$1.toml
  [ $connect = socket ] && return  # the other one does not work on the loopback interface
  sed -i 's/127[.]0[.]0[.]1/10.77.0.1/; /^connect/a device = "rxe1"' /tmp/$1.toml
}
/bedplate-tests -sg VerbsPeers -sn OfTwoDevicesTheOneThatIsNamedIsTaken > /dev/null 2>&1
for connect in socket rdma_cm; do
  as_nobody a "$A
[places]"
  as_nobody b "$B
[places]
ask = [\"main\", \"a\"]"
  serve a /places
  : > /tmp/b.log
  /places run /tmp/b.toml > /tmp/b.log 2>&1 & b=$!
  for i in $(seq 900); do grep -q 'a by' /tmp/b.log || ! kill -0 $b && break; sleep 0.1; done
  grep -q 'a by' /tmp/b.log || grep -H . /proc/$b/task/*/stack  # where it stands still
  echo == $connect: $(stat -c %u /proc/$a/task/* /proc/$b/task/* | uniq)
  kill -TERM $b; wait $b; echo == exit $?
  kill -TERM $a; wait $a
  grep ' by ' /tmp/b.log
  grep -v ' by ' /tmp/a.log /tmp/b.log
done
chmod 600 /dev/infiniband/*
echo == check; /places check /tmp/a.toml 2>&1; echo == check $?
""", files=f"{places}=/places")
    for connect in ("socket", "rdma_cm"):
        guest.expect(rf"^== {connect}: 65534\n== exit 0\nmain by self: .*: good\n"
                     r"a by verbs, since self: this is main: echo 7, lent, put, get, add: good$")
    refused = ("Permission denied; make it readable and writable for the user that the appliance "
               "runs as")
    guest.expect(r"^== check\nbedplate: opening /dev/infiniband/rdma_cm, which \[verbs\] connect = "
                 rf'"rdma_cm" needs: {refused}\n'
                 rf"bedplate: opening /dev/infiniband/uverbs1: {refused}\n== check 1$")


def an_application_reads_exports_and_loans():
    """Runs apps/examples/remote_read.cc. A loan of malloc'd memory goes through the bounce buffer,
    because soft RoCE does not enforce windows. With remote = "read" the peer reads it in place,
    from a heap that was registered once more, and no window is bound either. A datagram comes
    before."""
    example = os.path.join(os.path.dirname(RUN), "..", "..", "build/release/examples/remote_read")
    guest = run(r"""
make_device
for remote in none read; do
  configure a "remote = \"$remote\"
datagrams = 64
$A
$AREA
[remote-read]"
  configure b "datagrams = 64
$B
[remote-read]"
  serve a /remote_read
  echo == $remote
  /remote_read run /tmp/b.toml > /tmp/b.log 2>&1; echo == exit $?
  grep bytes, /tmp/b.log
  until /bedplate stats --json a | grep -q '"datagrams_sent": 1,' || ! kill -0 $a; do
    sleep 0.1
  done
  /bedplate stats --json a | grep -E '"(bounced_bytes|registrations.*|datagrams_sent)":'
  kill -TERM $a; wait $a; cat /tmp/a.log /tmp/b.log
done
""", files=f"{example}=/remote_read")
    for remote, bounced, registrations in [("none", 100000, 7), ("read", 0, 9)]:
        guest.expect(rf"^== {remote}\n== exit 0\n"
                     r"the export: 64 bytes, done: what the area holds.*\n"
                     r"the loan: 100000 bytes, done: what malloc gave.*\n"
                     rf' +"registrations": {registrations},\n +"registrations_after_seal": 0,\n'
                     rf' +"bounced_bytes": {bounced},\n +"datagrams_sent": 1,\n')


def a_process_registers_what_the_plan_says_before_it_is_ready():
    """A process registers its segment 0, its heap and its FIFOs with the owner's device, the second
    of two. Linux 6.1 cannot pin the segment members, which the process only reads. As a peer of the
    owner, the process sends out of its heap. A process whose device is missing does not join, and
    the owner learns the reason."""
    built = os.path.join(os.path.dirname(RUN), "..", "..", "build", "release")
    guest = run(r"""
configure a "required = false
device = \"rxe1\"
datagrams = 64
$A
[[verbs.peer]]
name = \"dialler\"
[[group]]
name = \"g\"
members = 4
[[process]]
name = \"worker\"
user = \"root\"
group = \"g\"
heap_bytes = \"8 MiB\"
read = [\"verbs\"]
max_count = 3
verbs = true"
join=/run/bedplate/a.join
serve a
/cpp-peer $join worker verbs 2>&1; echo == exit $?
kill -TERM $a; wait $a; cat /tmp/a.log
make_device
/bedplate-tests -sg VerbsPeers -sn OfTwoDevicesTheOneThatIsNamedIsTaken > /dev/null 2>&1
serve a
echo == worker; /cpp-peer $join worker verbs 2>&1; echo == exit $?
echo == peer; /cpp-peer $join worker verbs tcp:127.0.0.1:7471 a 2>&1; echo == exit $?
/c-peer $join worker a verbs 2>&1; echo == c $?
echo == stats a; /bedplate stats --json a
kill -TERM $a; wait $a; cat /tmp/a.log
echo == plan; /bedplate plan /tmp/a.toml
""", files=f"{built}/cpp-peer=/cpp-peer {built}/c-peer=/c-peer")
    refusal = "opening the appliance's RDMA device as worker: the appliance has none, and requires"
    guest.expect(rf"^cpp-peer: {refusal} none; .*\n== exit 1$")
    guest.expect(rf"^bedplate: {refusal} none; ")
    plan = guest.expect(r"^verbs, worker: 3 contexts x (\d+) regions x 26 MiB locked: 78 MiB$")
    planned = int(plan.group(1))
    facts = json.loads(guest.expect(r"^== worker\n(\{.*\})\n== exit 0$").group(1))
    seen = (facts["registrations"], facts["after_seal"], facts["keyed_segments"], facts["audit"],
            facts["device"])
    # The segments members and verbs, and the heaps of the two other processes, are read-only.
    if seen != (planned, 0, planned, "ok", "rxe1") or facts["segments"] != planned + 4:
        raise Failure(f"{planned} regions were planned; the process says {facts}\n{guest.output}")
    facts = json.loads(guest.expect(r"^== peer\n(?:bedplate: .*\n)*(\{.*\})\n== exit 0$").group(1))
    if (facts["registrations"], facts["after_seal"]) != (planned + 2, 0):
        raise Failure(f"with two exports of its own the process says {facts}\n{guest.output}")
    verbs = stats_of(guest, "a")["verbs"]
    if verbs["received"] != 1 or verbs["datagrams_received"] < 1:
        raise Failure(f"the appliance has not got the worker's message: {verbs}\n{guest.output}")
    guest.expect(r"^== c 0$")


TESTS = [two_appliances_find_one_another, what_is_missing_is_in_one_report,
         without_a_device_it_serves_where_none_is_required, limit_of_locked_memory_is_told_before,
         services_converse_by_name_with_another_appliance, appliances_that_gave_up_root_converse,
         an_application_reads_exports_and_loans,
         a_process_registers_what_the_plan_says_before_it_is_ready]


if __name__ == "__main__":
    sys.exit(run_tests(TESTS))
