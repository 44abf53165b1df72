"""[appliance] user: root is given up for ever once all memory is taken, in every thread."""

import os
import pwd
import re
import resource
import signal

from harness import (BACKENDS, BEDPLATE, MIB, Skip, expect, expect_in, expect_true, read_text, test,
                     to_toml, wait_for)
from messages_test import facts, two
from names_test import with_group
from raw_nbd import connect

NOBODY = pwd.getpwnam("nobody")
CAP_IPC_LOCK, CAP_SYS_RESOURCE = 1 << 14, 1 << 24


def need_root():
    if os.geteuid() != 0:
        raise Skip("only root can give up root")


def status_lines(pid, names):
    """{thread: {name: value}} of /proc/PID/task/*/status."""
    found = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        text = read_text(f"/proc/{pid}/task/{thread}/status")
        lines = dict(line.split(":", 1) for line in text.splitlines())
        found[thread] = {name: lines[name].split() for name in names}
    return found


def may_lift_the_limit():
    """True if we may lift the limit of locked memory; if not, the user needs a right to pass it."""
    with open("/proc/self/status", encoding="ascii") as file:
        effective = int(re.search(r"^CapEff:\s*(\w+)$", file.read(), re.M).group(1), 16)
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    return hard == resource.RLIM_INFINITY or effective & CAP_SYS_RESOURCE != 0


def for_nobody(box, configuration):
    """Sets the user `nobody`. The sockets and the runtime directory lie where `nobody` may remove
    them."""
    os.chown(box.directory, NOBODY.pw_uid, NOBODY.pw_gid)
    configuration["appliance"]["user"] = "nobody"
    return configuration


@test(sockets=BACKENDS)
def every_thread_gives_up_root(box, sockets):
    """The appliance serves as the user, with no capability except the one that the limit of locked
    memory requires. It leaves nothing behind at the end."""
    need_root()
    configuration = for_nobody(box, with_group(box))
    configuration["event_loop"] = {"sockets": sockets}
    appliance = box.appliance(configuration)
    names = ["Uid", "Gid", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Groups"]
    threads = status_lines(appliance.process.pid, names)
    kept = 0 if may_lift_the_limit() else CAP_IPC_LOCK
    expect_true(len(threads) > 2, f"there are other threads than the main one: {threads}")
    for thread, lines in threads.items():
        what = f"of thread {thread}"
        expect(lines["Uid"], [str(NOBODY.pw_uid)] * 4, f"the user {what}")
        expect(lines["Gid"], [str(NOBODY.pw_gid)] * 4, f"the group {what}")
        expect(lines["Groups"], [str(NOBODY.pw_gid)], f"other groups {what}")
        expect(lines["NoNewPrivs"], ["1"], f"no new privileges {what}")
        for name in ("CapPrm", "CapEff", "CapBnd"):
            expect(int(lines[name][0], 16), kept, f"{name} {what}")
        expect(int(lines["CapAmb"][0], 16), 0, f"CapAmb {what}")
    expect_in("gave up root: user", appliance.log_text(), "the log")
    connect(box, appliance).verify("as another user")
    expect(os.stat(appliance.runtime_directory).st_uid, NOBODY.pw_uid, "whose its directory is")
    appliance.stop()


def refusal(box, configuration, **options):
    path = box.write("refused.toml", to_toml(configuration))
    done = box.run(BEDPLATE, "check", path, expect_code=None, **options)
    expect_true(done.returncode != 0, f"check refuses: {done.stdout}")
    return done.stdout + done.stderr


@test(user=["nobody-of-this-name", "4000000000", "root", "0"])
def users_that_cannot_be_are_refused(box, user):
    configuration = box.configuration()
    configuration["appliance"]["user"] = user
    wanted = "this user is root" if user in ("root", "0") else "no such user in /etc/passwd"
    expect_in(wanted, refusal(box, configuration), "what check says")


@test()
def only_root_can_become_another(box):
    need_root()
    configuration = box.configuration()
    configuration["appliance"]["user"] = "daemon"
    text = refusal(box, configuration, user=NOBODY.pw_uid, group=NOBODY.pw_gid, extra_groups=[])
    expect_in("only root can become another", text, "what check says")


@test()
def directory_that_the_user_could_not_clean_is_refused(box):
    """Root's own directory is refused: the socket and the counters would stay there."""
    need_root()
    configuration = box.configuration()
    configuration["appliance"]["user"] = "nobody"
    text = refusal(box, configuration)
    expect_in("could not remove the appliance's files there", text, "what check says")
    expect_in("chown nobody", text, "the cure")


@test()
def processes_join_one_that_gave_up_root(box):
    """Processes get memory that root has taken. Processes of the appliance's user are no outsiders:
    the memory that they write lies on hugepages, as if that user had started the appliance."""
    need_root()
    configuration = for_nobody(box, two(box))
    configuration["pool"] = {"bytes": "160 MiB", "pages": "2 MiB"}
    configuration["process"][1]["user"] = "nobody"
    appliance = box.appliance(configuration)
    segments = appliance.stats()["segment"]
    for name, options in [("ann", {}), ("bob", {"user": NOBODY.pw_uid, "group": NOBODY.pw_gid})]:
        seen = facts(box, appliance, name=name, **options)
        expect((seen["sealed"], seen["audit"]), (True, "ok"), f"the pool of {name}")
        expect(segments[f"heap:{name}.0"]["page_bytes"], 2 * MIB, f"the pages of {name}'s heap")
    expect(os.stat(os.path.join(appliance.runtime_directory, "two.join")).st_uid, NOBODY.pw_uid,
           "whose the socket is")
    appliance.stop()


@test()
def goes_with_verbs(box):
    """The user works with [verbs], here without a device. tests/guest/verbs_test.py has a
    device."""
    need_root()
    configuration = for_nobody(box, box.configuration())
    configuration["verbs"] = {"required": False, "device": "none"}
    appliance = box.appliance(configuration)
    expect_in("gave up root", appliance.log_text(), "the log")
    appliance.stop()


@test()
def crashed_one_is_followed(box):
    """Files that a crashed appliance leaves as another user do not prevent root's next start."""
    need_root()
    configuration = for_nobody(box, box.configuration())
    crashed = box.appliance(configuration)
    crashed.process.send_signal(signal.SIGKILL)
    crashed.wait_exit()
    appliance = box.appliance(configuration)
    wait_for(lambda: "gave up root" in appliance.log_text(), "the user")
    connect(box, appliance).verify("after the crash")
    appliance.stop()
