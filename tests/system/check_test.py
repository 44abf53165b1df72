"""`check` refuses everything that `run` refuses for causes that exist beforehand, with the same
words and exit code. `run` refuses it before it takes memory. The printed cures work."""

import contextlib
import os
import pwd
import re
import resource
import signal
import socket
import subprocess

from harness import (BEDPLATE, KIB, MIB, Skip, expect, expect_in, expect_true, few_hugepages,
                     free_hugepages, free_port, hugepage_file, read_text, test, to_toml, wait_for)

NOBODY = pwd.getpwnam("nobody")


def small(box, **tables):
    cpu = min(os.sched_getaffinity(0))
    return {
        "appliance": {"name": "small", "runtime_directory": box.path("runtime")},
        "pool": {"bytes": "160 MiB", "pages": "4 KiB"},
        "shard": [{"name": "main", "cpu": cpu}],
        **tables,
    }


def stream(name, *legs, outputs=()):
    return {"name": name, "leg": list(legs), **({"output": list(outputs)} if outputs else {})}


def leg(port, address="127.0.0.1", **keys):
    return {"address": f"{address}:{port}", **keys}


def relay(box, *streams):
    return small(box, tsrelay={"stream": list(streams)})


def udp_port(box):
    """A free UDP port. FEC uses ports after it."""
    return free_port()


def taken_port(box):
    taken = box.closing.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    taken.bind(("127.0.0.1", 0))
    return taken.getsockname()[1]


def taken_tcp_port(box):
    taken = box.closing.enter_context(socket.socket())
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    return taken.getsockname()[1]


def secret(box, name, content, mode=0o600):
    path = box.write(name, content)
    os.chmod(path, mode)
    return path


def http(box, **keys):
    return small(box, http={"listen": [f"unix:{box.path('http')}"], **keys})


def token(box, path):
    return http(box, token_file=path)


def fifo(box):
    os.mkfifo(box.path("fifo"), 0o600)
    return box.path("fifo")


def others_file(box):
    path = secret(box, "others", "0123456789abcdef")
    os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
    return path


def socket_in_use(box):
    taken = box.closing.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    taken.bind(box.path("join"))
    taken.listen()
    return box.path("join")


def process(user="root"):
    return [{"name": "p", "user": user, "trusted": False}]


def volume(box, path):
    return small(box, blockd={"listen": [f"unix:{box.path('nbd')}"],
                              "volume": [{"name": "v", "file": path}]})


def many_processes(box):
    config = small(box, process=[{**process()[0], "max_count": 40}])
    config["pool"]["bytes"] = "600 MiB"
    return config


# The refused cases: (exit code, words of the message, the configuration, limits of its process).
CASES = {
    "udp_port_of_another_program": lambda box: (
        1, "Address already in use", relay(box, stream("s", leg(taken_port(box))))),
    "udp_port_twice": lambda box: (
        1, "this configuration already uses it for leg 0 of the stream s",
        relay(box, stream("s", leg(port := udp_port(box))), stream("t", leg(port)))),
    "leg_at_anothers_fec_port": lambda box: (
        1, "this configuration already uses it for FEC of leg 0 of the stream s",
        relay(box, stream("s", leg(port := udp_port(box), fec=True), leg(port + 2)))),
    "leg_at_an_address_of_no_interface": lambda box: (
        1, "Cannot assign requested address",
        relay(box, stream("s", leg(udp_port(box), "192.0.2.77")))),
    "leg_over_an_interface_that_is_not_there": lambda box: (
        1, "joining the group 239.1.1.1:0 over nope0",
        relay(box, stream("s", leg(udp_port(box), "239.1.1.1", interface="nope0")))),
    "output_over_an_interface_that_is_not_there": lambda box: (
        1, "sending multicast over nope0",
        relay(box, stream("s", leg(udp_port(box)),
                          outputs=[{"to": "239.1.1.1:5000", "interface": "nope0"}]))),
    "control_group_that_is_not_there": lambda box: (
        2, "no-such-group", small(box, control={"group": "no-such-group"})),
    "token_that_is_not_there": lambda box: (
        1, "No such file or directory; create it", token(box, box.path("nothing"))),
    "token_that_is_short": lambda box: (
        1, "it has 3 bytes", token(box, secret(box, "short", "abc\n"))),
    "token_that_is_a_fifo": lambda box: (1, "it is not a regular file", token(box, fifo(box))),
    "token_that_is_a_directory": lambda box: (
        1, "it is not a regular file", token(box, box.directory)),
    "token_that_others_read": lambda box: (
        1, "users other than its owner can read or write it (mode 0644); chmod 600",
        token(box, secret(box, "open", "0123456789abcdef", 0o644))),
    "token_of_another_user": lambda box: (
        1, f"it belongs to user {NOBODY.pw_uid}", token(box, others_file(box))),
    "http_port_of_another_program": lambda box: (
        1, "Address already in use",
        small(box, http={"listen": [f"tcp:127.0.0.1:{taken_tcp_port(box)}"]})),
    "certificate_that_is_not_there": lambda box: (
        1, "reading the certificate",
        http(box, tls_certificate=box.path("none"), tls_key=box.path("none"))),
    "join_socket_in_no_directory": lambda box: (
        1, "opening the socket for processes that join",
        small(box, messages={"socket": box.path("none/x")}, process=process())),
    "join_socket_of_another_program": lambda box: (
        1, "Address already in use",
        small(box, messages={"socket": socket_in_use(box)}, process=process())),
    "process_of_a_user_that_is_not_there": lambda box: (
        2, "no-such-user", small(box, process=process("no-such-user"))),
    "user_that_is_not_there": lambda box: (
        2, "no-such-user", {**(config := small(box)),
                            "appliance": {**config["appliance"], "user": "no-such-user"}}),
    "core_that_is_not_there": lambda box: (
        1, "core 1023 does not exist", {**small(box), "shard": [{"name": "main", "cpu": 1023}]}),
    "file_that_is_not_there": lambda box: (
        1, "No such file or directory", volume(box, box.path("none"))),
    "file_that_is_empty": lambda box: (1, "it is empty", volume(box, box.write("empty", ""))),
    "serial_line_that_is_none": lambda box: (
        1, "/dev/null", small(box, control={"serial": "/dev/null"})),
    "more_memory_than_there_is": lambda box: (
        1, "checking memory in pages of 4 KiB",
        {**small(box), "pool": {"bytes": "400 GiB", "pages": "4 KiB"}}),
    "too_few_descriptors": lambda box: (
        1, "checking the limit of open files", small(box), {resource.RLIMIT_NOFILE: 60}),
    "too_few_descriptors_for_those_who_join": lambda box: (
        1, "checking the limit of open files", many_processes(box),
        {resource.RLIMIT_NOFILE: 3 * (40 + 129) + 200}),
    "too_small_files": lambda box: (
        1, "checking the limit of file sizes", small(box),
        {resource.RLIMIT_FSIZE: 64 * MIB}),
    "too_little_address_space": lambda box: (
        1, "checking the limit of address space", small(box), {resource.RLIMIT_AS: 150 * MIB}),
    "too_little_data": lambda box: (
        1, "checking the limit of data", small(box), {resource.RLIMIT_DATA: 4 * MIB}),
}


def limited(limits):
    def apply():
        for which, value in limits.items():
            resource.setrlimit(which, (value, value))
    return apply if limits else None


def problems(text):
    """The messages, without the amount of memory that was free at that moment."""
    return sorted(re.sub(r"\d+ MiB are free", "", line) for line in text.splitlines())


@test(case=list(CASES))
def what_run_refuses_check_refuses(box, case):
    if os.geteuid() != 0:
        raise Skip("not root")
    code, answer, configuration, *limits = CASES[case](box)
    file = box.write("refused.toml", to_toml(configuration))
    options = {"preexec_fn": limited(limits[0] if limits else {})}
    checked = box.run(BEDPLATE, "check", file, expect_code=None, **options)
    expect(checked.returncode, code, f"check's exit code; it said {checked.stdout}{checked.stderr}")
    expect_in(answer, checked.stderr, "what check says")
    ran = box.run(BEDPLATE, "run", file, expect_code=None, **options)
    expect(ran.returncode, code, f"run's exit code; it said {ran.stdout}{ran.stderr}")
    expect(problems(ran.stderr), problems(checked.stderr), "what run says")
    expect_true("in pages of 4 KiB on" not in ran.stderr, f"no memory was taken: {ran.stderr}")
    expect(os.path.exists(configuration["appliance"]["runtime_directory"]), False,
           "whether something is left")


@test()
def what_is_left_open_is_handed_on(box):
    """`run` boots with the sockets that preflight opened."""
    port = udp_port(box)
    configuration = relay(box, stream("s", leg(port)))
    file = box.write("relay.toml", to_toml(configuration))
    box.bedplate("check", file)
    appliance = box.spawn([BEDPLATE, "run", file], "run.log", stdout=subprocess.PIPE)
    expect(appliance.stdout.readline(), b"bedplate: ready\n", "what it prints")
    appliance.send_signal(signal.SIGTERM)
    expect(appliance.wait(), 0, "its exit code")


@test()
def a_signal_ends_boot(box):
    """A signal ends boot at the current step. Here the signal is pending before the program
    starts."""
    file = box.write("boot.toml", to_toml(small(box)))

    def pending():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        os.kill(os.getpid(), signal.SIGTERM)

    done = box.run(BEDPLATE, "run", file, preexec_fn=pending)
    expect_in("booting small: stopped by signal 15", done.stderr, "what it says")
    expect_true("ready" not in done.stdout and "in pages of 4 KiB on" not in done.stderr,
                f"it takes no memory: {done.stderr}")
    expect(os.path.exists(box.path("runtime")), False, "whether something is left")


# ---- Cures ----


def boots(box, file, **options):
    """Returns the exit code of `run`. None: it became ready, and was stopped."""
    process = box.spawn([BEDPLATE, "run", file], "cured.log", stdout=subprocess.PIPE, **options)
    ready = process.stdout.readline()
    if ready != b"bedplate: ready\n":
        return process.wait()
    process.send_signal(signal.SIGTERM)
    expect(process.wait(), 0, "the exit code of what was cured")
    return None


def cure_of(box, file, pattern, **options):
    said = box.run(BEDPLATE, "check", file, expect_code=1, **options).stderr
    found = re.search(pattern, said)
    expect_true(found, f"a cure like {pattern} in {said}")
    return found


def as_nobody(limits):
    def apply():
        limited(limits)()
        os.setgroups([])
        os.setresgid(NOBODY.pw_gid, NOBODY.pw_gid, NOBODY.pw_gid)
        os.setresuid(NOBODY.pw_uid, NOBODY.pw_uid, NOBODY.pw_uid)
    return apply


LIMITS = {
    "locked memory": (resource.RLIMIT_MEMLOCK, "l", 64 * KIB, KIB),
    "address space": (resource.RLIMIT_AS, "v", 150 * MIB, KIB),
    "data": (resource.RLIMIT_DATA, "d", 4 * MIB, KIB),
    "open files": (resource.RLIMIT_NOFILE, "n", 60, 1),
}


@test(limit=list(LIMITS), sockets=["io_uring-or-epoll", "epoll"])
def the_cure_of_a_limit_cures(box, limit, sockets):
    """The appliance boots with exactly the printed limit. Locked memory is tested as an ordinary
    user, because its limit does not apply to root."""
    if os.geteuid() != 0:
        raise Skip("not root")
    which, option, little, unit = LIMITS[limit]
    configuration = small(box, event_loop={"sockets": sockets}, control={},
                          http={"listen": [f"unix:{box.path('http')}"]})
    os.chown(box.directory, NOBODY.pw_uid, NOBODY.pw_gid)
    file = box.write("limit.toml", to_toml(configuration))
    run_with = as_nobody if which == resource.RLIMIT_MEMLOCK else limited
    cure = cure_of(box, file, rf"checking the limit of {limit}: .*ulimit -{option} (\d+)",
                   preexec_fn=run_with({which: little}))
    enough, highest = int(cure[1]) * unit, resource.getrlimit(which)[1]
    if highest != resource.RLIM_INFINITY and enough > highest:
        raise Skip(f"the limit of {limit} cannot be raised to {enough} here")
    expect(boots(box, file, preexec_fn=run_with({which: enough})), None, f"booting with {cure[0]}")


@contextlib.contextmanager
def memory_group():
    """Creates a control group. Yields the file of its memory limit, and the file of its
    processes."""
    first = "/sys/fs/cgroup/memory"
    root, name = (first, "memory.limit_in_bytes") if os.path.isdir(first) else (
        "/sys/fs/cgroup", "memory.max")
    group = f"{root}/bedplate-{os.getpid()}"
    try:
        os.mkdir(group)
    except OSError as error:
        raise Skip(f"no control group can be made here: {error}") from None
    try:
        if not os.path.exists(f"{group}/{name}"):
            raise Skip("control groups limit no memory here")
        yield f"{group}/{name}", f"{group}/cgroup.procs"
    finally:
        wait_for(lambda: not read_text(f"{group}/cgroup.procs"), "the end of its processes")
        os.rmdir(group)


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(str(text))


@test(sockets=["io_uring-or-epoll", "epoll"])
def the_cure_of_a_control_groups_memory_cures(box, sockets):
    if os.geteuid() != 0:
        raise Skip("not root")
    configuration = small(
        box, event_loop={"sockets": sockets}, control={},
        http={"listen": [f"unix:{box.path('http')}"]},
        blockd={"listen": [f"unix:{box.path('nbd')}"], "max_connections": 2,
                "volume": [{"name": "r", "bytes": "16 MiB"}]})
    file = box.write("group.toml", to_toml(configuration))
    with memory_group() as (limit, members):
        def join():
            write(members, os.getpid())

        write(limit, 100 * MIB)
        cure = cure_of(box, file, r"control group's limit of memory: .*; echo (\d+) > (\S+),",
                       preexec_fn=join)
        expect(cure[2], limit, "the file that is named")
        write(limit, cure[1])
        expect(boots(box, file, preexec_fn=join), None, f"booting with {cure[0]}")


@test()
def the_cure_of_hugepages_cures(box):
    """Other processes may take hugepages in the meantime. Then the report comes again, with another
    cure."""
    if os.geteuid() != 0:
        raise Skip("not root")
    count_file = hugepage_file(2 * MIB, "nr_hugepages")
    if not os.access(count_file, os.W_OK):
        raise Skip("the number of hugepages cannot be changed here")
    configuration = small(box)
    configuration["pool"] = {"bytes": "4 GiB", "pages": "2 MiB"}
    file = box.write("huge.toml", to_toml(configuration))
    said = box.run(BEDPLATE, "check", file, expect_code=None)
    if said.returncode == 0:
        raise Skip("this machine has 4 GiB of hugepages")
    found = re.search(r"hugepages of 2 MiB: (\d+) are free, (\d+) are needed; echo (\d+) > (\S+)",
                      said.stderr)
    expect_true(found, f"a cure in {said.stderr}")
    expect(found[4], count_file, "the file that is named")
    total = int(read_text(count_file))
    expect_true(int(found[3]) - int(found[2]) + int(found[1]) >= 0, "what is there already counts")
    expect_true(int(found[3]) > total - int(found[1]), "it asks for more than there are")


@test()
def hugepages_that_are_made_when_asked_for_are_taken(box):
    """The kernel creates the pages on demand (vm.nr_overcommit_hugepages), without reserved
    pages."""
    count_file = hugepage_file(2 * MIB, "nr_overcommit_hugepages")
    if not os.access(count_file, os.W_OK):
        raise Skip("the number of hugepages cannot be changed here")
    configuration = small(box)
    configuration["pool"] = {"bytes": "80 MiB", "pages": "2 MiB"}
    file = box.write("surplus.toml", to_toml(configuration))
    before = int(read_text(count_file))
    try:
        write(count_file, before + 64)
    except OSError as error:
        raise Skip(f"the number of hugepages cannot be changed here: {error}") from None
    box.closing.callback(write, count_file, before)
    with few_hugepages(0):
        expect(boots(box, file), None, "booting with pages that are made for it")
        said = read_text(box.path("cured.log"))
        if free_hugepages() > 0:
            raise Skip("others have given hugepages back meanwhile")
    expect_in("32 of these pages of 2 MiB are surplus", said, "what it says")
