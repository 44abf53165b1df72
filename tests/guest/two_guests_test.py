#!/usr/bin/python3
"""Two hosts connected by verbs, faults of their network, and a third, hostile host.

    /usr/bin/python3 tests/guest/two_guests_test.py [PATTERN...]

a dials, b listens. Both run self-checking traffic (traffic.h) and print an account of it. All
tests use the same three hosts, in this order; after a failure new hosts are booted. A PATTERN
is a part of a test's name. The last line is `N passed, N failed, N skipped`; the exit code is 1
if anything failed.
"""

import functools
import json
import os
import re
import sys
import tempfile
import time

from hosts import Host, Hosts
from image import VMLINUX, Image
from machine import Machine, ROOT
from runner import Failure, run_tests

PATIENCE_SECONDS = 120  # limit of one wait, which ends a hang; the real time is printed

# The times that docs/verbs.md promises, and a margin for a busy emulated machine. An outage of this
# length is noticed.
STALL_SECONDS = 5 + 1         # soft RoCE may stop without notice (stall_ns_max)
NOTICED_SECONDS = STALL_SECONDS + 2  # by traffic that is not answered
NOTICED_IDLE_SECONDS = 8 + 3  # by the lifeline, without traffic (silence_ns_max and a third)
SILENT_SECONDS = 3  # in which nothing must happen

# On a busy machine Linux 6.1's Soft RoCE stalls by itself, because it loses its timer. The other
# end then sees that its peer begins anew.
STALLED = "its device, or this one, does not complete posted requests"
FOLLOWED = "the peer is gone or restarts"

hosts = None
LISTEN = "tcp:10.0.0.2:7471"
PERF = "tcp:10.0.0.2:7472"


class Appliance:
    """The program of the traffic on one host."""

    def __init__(self, name, host, arguments):
        self.name = name
        self.host = host
        self._arguments = f"name={name} {arguments}"
        self.begin = 0

    def start(self, *more):
        self.begin = self.host.mark()
        self.host.run(f"verbs-traffic talk {self._arguments} {' '.join(more)} &")
        self.host.expect(r"^traffic: begins$", PATIENCE_SECONDS, self.begin)

    def kill(self):
        self.host.run("killall -KILL verbs-traffic 2> /dev/null && sleep 0.1")

    def stop(self):
        self.host.run("killall -USR1 verbs-traffic")

    def go_on(self):
        self.host.run("killall -USR2 verbs-traffic")

    def expect(self, pattern, seconds, after=None):
        return self.host.expect(pattern, seconds, self.begin if after is None else after)

    def expect_heard(self):
        """Waits until this appliance hears from its peer."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.host.count(r"^traffic: [ab] is silent$", self.begin) >= \
                self.host.count(r"^traffic: [ab] is heard", self.begin):
            if time.monotonic() > deadline:
                raise self.host.failure("its peer is silent")
            time.sleep(0.05)

    def expect_flow(self):
        """Waits until traffic of all kinds has flowed twice from now on: the first time may include
        older traffic."""
        mark = self.host.mark()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.host.count(r"^traffic: flows$", mark) < 2:
            if time.monotonic() > deadline:
                raise self.host.failure("not all traffic goes on")
            time.sleep(0.05)

    def account(self, after):
        found = self.expect(r"^traffic: account (\{.*\})$", PATIENCE_SECONDS, after)
        return json.loads(found.group(1))


def appliances():
    a, b, _ = hosts
    return (Appliance("a", a, f"peer=b dial={LISTEN} windows=1 give_up_ms=20000"),
            Appliance("b", b, f"peer=a listen={LISTEN} listed=c give_up_ms=20000"))


def start_both(*more):
    a, b = appliances()
    for one in (a, b):
        one.host.restore()
        one.kill()
    b.start(*more)
    a.start(*more)
    for one in (a, b):
        one.expect(r"verbs: connected to [ab] at ", PATIENCE_SECONDS)
    return a, b


class Stalled(Failure):
    """Soft RoCE lost its timer in a test that must lose no connection."""


def fail(text, *sides, kind=Failure):
    raise kind("\n".join([text, *("\n".join(["----", *side.host.lines[side.begin:]])
                                  for side in sides)]))


def expect_unbroken(accounts, a, b):
    """Checks that none of `accounts` has lost its connection to the other one."""
    if all(account["broken"] == 0 for account in accounts):
        return
    found = [re.search(r"lost the connection to [ab] at .*: (.*)$", line)
             for side in (a, b) for line in side.host.lines[side.begin:]]
    reasons = {each.group(1) for each in found if each is not None}
    is_stall = STALLED in reasons and reasons <= {STALLED, FOLLOWED}
    fail(f"connections were lost: {accounts}", a, b, kind=Stalled if is_stall else Failure)


def expect_flow(a, b):
    for one in (a, b):
        one.expect_flow()


def settle(a, b):
    """Lets both finish their operations, checks their accounts, and returns them."""
    for _ in range(2):  # the first account may miss operations that the other side still ends
        marks = [one.host.mark() for one in (a, b)]
        for one in (a, b):
            one.stop()
        accounts = [one.account(mark) for one, mark in zip((a, b), marks)]
    for account, other in zip(accounts, reversed(accounts)):
        if account["faults"] != 0 or not account["drained"]:
            fail(f"faults, or what has not ended: {account}", a, b)
        if account["sent"] != other["received"]:
            fail(f"{account['sent']} were sent, and {other['received']} received", a, b)
        for kind in ("loans", "puts", "gets", "atomics"):
            ends = account[kind]
            if ends["started"] != ends["done"] + ends["not_done"] + ends["unknown"]:
                fail(f"{kind} without an end: {ends}", a, b)
    return accounts


def check_loans(accounts):
    """Checks the loans of two hosts that ran all the time: each loan that ended as done was
    read."""
    for account, other in zip(accounts, reversed(accounts)):
        loans = account["loans"]
        if not loans["done"] <= other["loans_read"] <= loans["done"] + loans["unknown"]:
            raise Failure(f"{loans}, and {other['loans_read']} were read")


def say(accounts, text):
    def ends(kind):
        sums = {end: sum(account[kind][end] for account in accounts)
                for end in ("done", "not_done", "unknown")}
        return f"{kind} {sums['done']}/{sums['not_done']}/{sums['unknown']}"
    print(f"     {text}: messages {sum(account['sent'] for account in accounts)}, "
          f"{sum(account['resent'] for account in accounts)} sent again, "
          f"{sum(account['lost'] for account in accounts)} lost with their receiver; "
          f"done/not done/unknown: {ends('loans')}, {ends('puts')}, {ends('gets')}, "
          f"{ends('atomics')}; connections lost: {[account['broken'] for account in accounts]}",
          flush=True)


def settle_survivors(a, b):
    """Returns the accounts of a, which was started last, and of b, which has lost its peer once."""
    accounts = settle(a, b)
    if [account["broken"] for account in accounts] != [0, 1]:
        fail(f"connections were lost: {accounts}", a, b)
    return accounts


# ---- The tests ----


def cable_that_is_pulled_under_traffic():
    """After a short outage the queue pair sends again by itself. After a longer one the connection
    is lost and comes back. During an outage longer than give_up_ms, sends return kGone."""
    a, b = start_both()
    expect_flow(a, b)
    times = []
    for seconds, puller in ((1, a), (5, b), (30, a)):
        marks = {one: one.host.mark() for one in (a, b)}
        begin = time.monotonic()
        puller.host.pull_cable()
        for one in (a, b):
            # Soft RoCE retries for longer while its own link is down; there the lifeline notices
            # the outage.
            patience = NOTICED_IDLE_SECONDS if one is puller else NOTICED_SECONDS
            if seconds > patience:
                one.expect(r"verbs: lost the connection to [ab] at ", PATIENCE_SECONDS, marks[one])
        time.sleep(max(0, begin + seconds - time.monotonic()))
        again = {one: one.host.mark() for one in (a, b)}
        begin = time.monotonic()
        puller.host.plug_cable()
        for one in (a, b):
            if one.host.count(r"is silent$", marks[one]) > 0:
                one.expect(r"^traffic: [ab] is heard", PATIENCE_SECONDS, again[one])
        times.append(f"{seconds} s: back after {time.monotonic() - begin:.1f} s")
        expect_flow(a, b)
    accounts = settle(a, b)
    check_loans(accounts)
    if accounts[0]["broken"] < 2 or accounts[1]["broken"] < 2 or accounts[0]["gone"] == 0:
        fail(f"the cable was not missed: {accounts}", a, b)
    if sum(account["lost"] for account in accounts) != 0:
        fail(f"lost: {accounts}", a, b)
    say(accounts, "; ".join(times))


def hosts_that_are_frozen_under_traffic():
    """Hosts are frozen for a moment, which the queue pair bridges, and until the other host has
    noticed. Then the frozen host learns that its connection is gone."""
    a, b = start_both()
    for victim in (a, b, a):
        expect_flow(a, b)
        victim.host.freeze()
        time.sleep(1)  # the queue pair bridges such a moment
        victim.host.thaw()
    times = []
    for victim, other in ((b, a), (a, b)):
        expect_flow(a, b)  # also after soft RoCE has stopped
        mark, mark_other = victim.host.mark(), other.host.mark()
        begin = time.monotonic()
        victim.host.freeze()
        other.expect(r"verbs: lost the connection to [ab] at ", PATIENCE_SECONDS, mark_other)
        frozen = time.monotonic()
        victim.host.thaw()
        for one, since in ((victim, mark), (other, mark_other)):
            one.expect(r"verbs: connected to [ab] at ", PATIENCE_SECONDS, since)
            one.expect_heard()
        times.append(f"{victim.name} for {frozen - begin:.1f} s: back after "
                     f"{time.monotonic() - frozen:.1f} s")
    expect_flow(a, b)
    accounts = settle(a, b)
    check_loans(accounts)
    if min(account["broken"] for account in accounts) < 2:
        fail(f"the frozen host was not missed: {accounts}", a, b)
    if sum(account["lost"] for account in accounts) != 0:
        fail(f"lost: {accounts}", a, b)
    say(accounts, "; ".join(times))


def processes_that_are_killed_and_started_again():
    """Kills the listening process first, then the dialing one. An acknowledged message is not sent
    again to the successor. Messages that the dead process had not consumed are counted."""
    a, b = start_both()
    for victim, survivor in ((b, a), (a, b)):
        expect_flow(a, b)
        mark = survivor.host.mark()
        victim.kill()
        survivor.expect(r"verbs: lost the connection to [ab] at ", PATIENCE_SECONDS, mark)
        victim.start()
        survivor.expect(r"^traffic: [ab] was started anew$", PATIENCE_SECONDS, mark)
    expect_flow(a, b)
    say(settle_survivors(a, b), "killed")


def hosts_that_are_reset_under_traffic():
    """A reset sends no FIN. Traffic without answers, or the successor, reveals it."""
    a, b = start_both()
    for victim, survivor in ((b, a), (a, b)):
        expect_flow(a, b)
        mark = survivor.host.mark()
        victim.host.reset()
        survivor.expect(r"verbs: lost the connection to [ab] at ", PATIENCE_SECONDS, mark)
        victim.start()
        begin = time.monotonic()
        survivor.expect(r"^traffic: [ab] was started anew$", PATIENCE_SECONDS, mark)
        print(f"     {victim.name} rebooted: back {time.monotonic() - begin:.1f} s after its start")
    expect_flow(a, b)
    say(settle_survivors(a, b), "reset")


def host_that_is_reset_while_nobody_sends():
    """The dialing host learns nothing of the listening host's end, and has nothing to send. The
    lifeline notices the end, and the host dials again."""
    a, b = start_both("silent=1")
    time.sleep(SILENT_SECONDS)  # a message without its acknowledgement would show the loss
    mark = a.host.mark()
    b.host.reset()
    b.start("silent=1")
    begin = time.monotonic()
    a.expect(r"verbs: lost the connection to b at ", PATIENCE_SECONDS, mark)
    for one in (a, b):
        one.expect(r"verbs: connected to [ab] at ", PATIENCE_SECONDS, mark if one is a else None)
    print(f"     silent: back {time.monotonic() - begin:.1f} s after its start")
    for one in (a, b):
        one.go_on()
    expect_flow(a, b)
    settle(a, b)


def host_that_loses_power_while_nobody_sends():
    """A host that only listens notices it, too. This is the last test: the host does not come
    back."""
    a, b = start_both("silent=1")
    time.sleep(SILENT_SECONDS)  # as above
    mark = b.host.mark()
    a.host.power_off()
    begin = time.monotonic()
    b.expect(r"verbs: lost the connection to a at ", PATIENCE_SECONDS, mark)
    print(f"     noticed after {time.monotonic() - begin:.1f} s")


# The line in the victim's log for each attack of a kind, with the attacker's address.
REFUSALS = {
    "records": r"refusing a handshake with 10\.0\.0\.3: a malformed record; further ones are ",
    "flood": None,
    # The end of the previous attack may be noticed only here.
    "messages": r"(cutting off|lost the connection to) c at 10\.0\.0\.3: (?!the peer is gone)",
    "window": r"(cutting off|lost the connection to) c at 10\.0\.0\.3: (more than its window|RNR)",
    "memory": r"lost the connection to c at 10\.0\.0\.3: .*asked for memory that it may not access",
}


def hostile_host_beside_honest_ones():
    """The hostile host uses the name of a peer that b knows. b or its device refuses each attack.
    b's log has it once, with the attacker's address. The traffic between a and b is not
    affected."""
    a, b = start_both()
    c = list(hosts)[2]
    export = b.expect(r"^traffic: export (\S+)$", PATIENCE_SECONDS).group(1)
    for kind, refusal in REFUSALS.items():
        mark, mark_b = c.mark(), b.host.mark()
        if c.run(f"verbs-traffic hostile attack={kind} name=c dial={LISTEN} export={export}",
                 60) != 0:
            fail("\n".join(["the hostile host was not refused:", *c.lines[mark:]]), b)
        count = c.count("^hostile: ", mark)
        wanted = 0 if refusal is None else 1 if kind == "records" else count
        if wanted > 0:
            b.host.expect_count(refusal, wanted, 5, mark_b)
        print(f"     {kind}: {count} refused, {wanted} lines in the victim's log", flush=True)
    accounts = settle(a, b)
    expect_unbroken(accounts[:1], a, b)
    if accounts[0]["connected"] != 1:
        fail(f"the honest peer was connected anew: {accounts[0]}", a, b)
    say(accounts[:1], "beside a hostile host")


def mtu_that_differs_between_hosts():
    """Both hosts use packets of the smaller MTU, and log it. Nothing else changes."""
    a, b = appliances()
    a.host.run("ip link set eth1 mtu 9000")
    try:
        a, b = start_both()
        a.expect(r"^traffic: device .* MTU 4096$", PATIENCE_SECONDS)
        b.expect(r"^traffic: device .* MTU 1024$", PATIENCE_SECONDS)
        told = r"verbs: sending to %s at .*: its MTU is %d, that of rxe0 is %d, so packets have "
        a.expect(told % ("b", 1024, 4096) + "1024", PATIENCE_SECONDS)
        b.expect(told % ("a", 4096, 1024) + "1024", PATIENCE_SECONDS)
        expect_flow(a, b)
        accounts = settle(a, b)
    finally:
        a.host.run("ip link set eth1 mtu 1500")
    expect_unbroken(accounts, a, b)


def mtu_that_is_smaller_on_the_path():
    """The switch passes small packets and drops large ones without notice: the log must have the
    cure. When the switch passes packets of the hosts' MTU, traffic flows, and nothing was lost."""
    a, b = appliances()
    for one in (a, b):
        one.host.run("ip link set eth1 mtu 9000")
    hosts.switch.mtu = 1500
    try:
        a, b = start_both()
        cure = (r"verbs: lost the connection to [ab] at .*: it no longer answers .*make the path "
                r"carry UDP port 4791 with 4096 bytes of data in a packet")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not any(one.host.count(cure, one.begin) > 0 for one in (a, b)):
            if time.monotonic() > deadline:
                fail(f"neither has {cure!r}", a, b)
            time.sleep(0.05)
        time.sleep(2 * SILENT_SECONDS)  # it does not come back by itself
        count = a.host.count(r"verbs: lost the connection", a.begin)
        hosts.switch.mtu = None
        expect_flow(a, b)
        accounts = settle(a, b)
    finally:
        hosts.switch.mtu = None
        for one in (a, b):
            one.host.run("ip link set eth1 mtu 1500")
    say(accounts, f"a path that is too narrow: {count} times lost")


def peers_that_do_not_answer():
    """The log has lines for a peer at an unused address, for a peer that is not started, and for a
    host without RDMA."""
    c = list(hosts)[2]
    for dial, line in (("tcp:10.0.0.9:7471", "(no answer in time|No route to host)"),
                       ("tcp:10.0.0.1:9", "Connection refused")):
        mark = c.mark()
        c.run(f"verbs-traffic talk name=c peer=x dial={dial} & sleep 5; kill $!")
        c.expect(rf"verbs: connecting to x.*: {line}; ", PATIENCE_SECONDS, mark)
    c.reset()
    mark = c.mark()
    c.run("verbs-traffic talk name=c peer=x dial=tcp:10.0.0.2:7471 interface=none")
    c.expect(r"looking for RDMA devices: the kernel has none; load the device's module",
             PATIENCE_SECONDS, mark)


# ---- bedplate perf ----


def serve_perf():
    """b answers, a measures. Returns both."""
    a, b, _ = hosts
    for host in (a, b):
        host.restore()
        host.run("killall -KILL verbs-traffic bedplate 2> /dev/null; verbs-traffic device")
    mark = b.mark()
    b.run(f"bedplate perf serve {PERF} &")
    b.expect(rf"^answering at {PERF}$", PATIENCE_SECONDS, mark)
    return a, b


def measure(host, words):
    """Returns the results of `bedplate perf WORDS --json`, after the checks that all need."""
    mark = host.mark()
    if host.run(f"bedplate perf {words} --json {PERF} > /tmp/report && tr -d '\\n' < /tmp/report "
                "&& echo", 60) != 0:
        raise host.failure(f"perf {words} failed")
    report = json.loads(host.expect(r"^(\{.*\})$", PATIENCE_SECONDS, mark).group(1))
    seen = (report["operation"], report["provider"], report["mtu_bytes"], report["address"])
    if seen != (words.split()[0], "verbs", 1024, PERF) or "rxe0" not in report["device"]:
        raise Failure(f"{words}: {report}")
    for result in report["results"]:
        if result["count"] == 0 or result["verified"] == 0:
            raise Failure(f"{words}: {result}")
    return report["results"]


def perf_measures_between_hosts():
    """The figures exist, and agree with one another. Their sizes are not checked."""
    a, b = serve_perf()
    order = ["min_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"]
    for operation in ("send", "put", "get"):
        results = measure(a, f"{operation} -n 50 --size 8,4K")
        for result, size in zip(results, (8, 4096), strict=True):
            times = [result[key] for key in order]
            verified = 200 if operation == "get" else 400  # the warm-up, at each receiving side
            if (result["bytes"], result["count"], result["verified"]) != (size, 50, verified) \
                    or times != sorted(times) or not 0 < times[0] <= result["mean_ns"] <= times[-1]:
                raise Failure(f"{operation}: {result}")
        result, = measure(a, f"{operation} --bandwidth --both -d 1 --size 4K")
        there = result["count"] / result["elapsed_ns"]
        back = result["back_count"] / result["back_elapsed_ns"]
        rate = result["bytes_per_second"] / 4096e9
        if result["elapsed_ns"] < 1e9 or back == 0 or abs(rate / (there + back) - 1) > 1e-6:
            raise Failure(f"{operation}, both ways: {result}")
        print(f"     {operation}: 8 bytes {results[0]['p50_ns'] / 1000:.0f} us, both ways "
              f"{result['bytes_per_second'] / 1e6:.1f} MB/s", flush=True)
    if measure(a, "send --events -d 1 --size 8")[0]["mean_ns"] == 0:
        raise Failure("no time passes")
    mark = a.mark()
    a.run(f"bedplate perf put --bandwidth -n 20 --size 64K {PERF}")
    for line in (rf"^put bandwidth, {PERF}$", "^  provider  verbs$", r"^  device    rxe0 ",
                 r"^ +65536 +20 +\d+\.\d\d +\d+$"):
        a.expect(line, PATIENCE_SECONDS, mark)
    mark = b.mark()
    b.run("killall bedplate")
    mark = a.mark()
    if a.run(f"bedplate perf put {PERF}", 30) != 1:
        raise a.failure("it was served by nobody")
    a.expect(rf"connecting to {PERF}: nobody answers within 5 s; start there: bedplate perf serve "
             rf"{PERF}$", PATIENCE_SECONDS, mark)


def perf_ends_when_its_server_vanishes():
    """perf ends if the server's process is killed, or its host vanishes without notice."""
    for words, vanish, come_back in (
            ("send", lambda b: b.run("killall -KILL bedplate"), lambda _: None),
            ("get", Host.freeze, Host.thaw),
            ("put --bandwidth", Host.freeze, Host.thaw)):
        a, b = serve_perf()
        mark = a.mark()
        a.run(f"(bedplate perf {words} -d 300 --size 4K {PERF}; echo perf exits $?) &")
        a.expect("^ +bytes +count ", PATIENCE_SECONDS, mark)
        time.sleep(1)  # in the middle of it
        begin = time.monotonic()
        vanish(b)
        try:
            a.expect(r"^perf exits 1$", PATIENCE_SECONDS, mark)
        finally:
            come_back(b)
        print(f"     {words}: ended after {time.monotonic() - begin:.1f} s", flush=True)
        a.expect(rf"measuring with {PERF}: the connection to it was lost; check the other side, "
                 "and start this one again$", PATIENCE_SECONDS, mark)


# An image that only reads its peer's memory, or answers a peer that does.
REMOTE_READ = os.path.join(ROOT, "build", "release", "examples", "remote_read")
IMAGE = """
[appliance]
name = "{name}"
[pool]
bytes = "64 MiB"
heap_min_bytes = "16 MiB"
[[shard]]
name = "main"
cpu = 0
[[network]]
interface = "eth1"
address = "10.0.0.{number}/24"
[verbs]
driver = "rdma_rxe"
interface = "eth1"
remote = "read"
{more}
[remote-read]
"""


def image_of(directory, name, number, more):
    path = os.path.join(directory, f"{name}.toml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(IMAGE.format(name=name, number=number, more=more))
    return Image(path, options=("--level", "1", "--init", REMOTE_READ))


def images_with_a_list_of_peers_read_each_others_memory():
    """d reads from e once a second, and again after a reset of e, and after a reset of d. d
    compares every byte."""
    address = "tcp:10.0.0.5:7471"
    dial = f'[[verbs.peer]]\nname = "e"\naddress = "{address}"'
    listen = f'''listen = "{address}"
[[verbs.peer]]
name = "d"
[[verbs.export]]
name = "area"
bytes = "1 MiB"
rights = ["read", "write"]'''
    with tempfile.TemporaryDirectory() as work, \
            image_of(work, "d", 4, dial) as reads, image_of(work, "e", 5, listen) as answers, \
            Machine(answers.path, *hosts.switch.card(5), reboots=True, KERNEL=VMLINUX) as e, \
            Machine(reads.path, *hosts.switch.card(4), reboots=True, KERNEL=VMLINUX) as d:
        marks = {d: 0, e: 0}
        for reset in (None, e, d):
            if reset is not None:
                marks = {one: len(one.lines) for one in (d, e)}
                reset.command("system_reset")
            e.expect(r"verbs: connected to d at 10\.0\.0\.4$", after=marks[e])
            d.expect_lines(r"verbs: connected to e at tcp:10\.0\.0\.5:7471$",
                           r"^the export: 64 bytes, done: what the area holds$",
                           r"^the loan: 100000 bytes, done: what malloc gave$", after=marks[d])
        wrong = [line for one in (d, e) for line in one.lines
                 if "not what was" in line and "done" in line]
        if wrong:
            raise Failure("\n".join(wrong))


TESTS = [cable_that_is_pulled_under_traffic, hosts_that_are_frozen_under_traffic,
         processes_that_are_killed_and_started_again, hosts_that_are_reset_under_traffic,
         host_that_is_reset_while_nobody_sends,
         hostile_host_beside_honest_ones, mtu_that_differs_between_hosts,
         mtu_that_is_smaller_on_the_path, peers_that_do_not_answer,
         perf_measures_between_hosts, perf_ends_when_its_server_vanishes,
         images_with_a_list_of_peers_read_each_others_memory,
         host_that_loses_power_while_nobody_sends]


def boot_anew():
    global hosts
    if hosts is not None:
        hosts.end()
        hosts = None  # there are none if booting fails
    hosts = Hosts(3)


def stopped_card():
    """The address of a host whose emulated card sends no more. None: all cards send, or the hosts
    do not answer."""
    try:
        for host in hosts:
            host.restore()
            if not host.sends():
                return host.address
    except (Failure, OSError):
        pass  # it is down
    return None


def on_hosts_that_work(test):
    """Runs `test` on new hosts after another has failed; and once more if an emulated card or Soft
    RoCE, which carry the traffic, failed by itself."""
    @functools.wraps(test)
    def run():
        for may_run_again in (True, False):
            try:
                test()
                return
            except Exception as failure:
                address = stopped_card()
                boot_anew()
                has_stalled = isinstance(failure, Stalled)
                if not may_run_again or (address is None and not has_stalled):
                    raise
            print("     again: " + (f"the emulated card of {address} had stopped sending"
                                    if address is not None else "Soft RoCE had lost its timer"),
                  flush=True)
    return run


def main():
    boot_anew()
    try:
        return run_tests([on_hosts_that_work(test) for test in TESTS])
    finally:
        if hosts is not None:
            hosts.end()


if __name__ == "__main__":
    sys.exit(main())
