"""The end: a clean stop answers begun requests and leaves nothing behind; a crash leaves its
counters."""

import os
import select
import signal

from harness import (BACKENDS, KIB, LAYOUTS, MIB, Appliance, expect, expect_true, is_refused, test,
                     wait_for)
import raw_nbd as nbd
from raw_nbd import connect, connected, greeted, pattern

ESHUTDOWN = 108
NEVER_MS = 600_000  # a drain that only ends because nothing is left to wait for


def start(box, layout="one_shard", sockets="io_uring-or-epoll", drain_timeout_ms=NEVER_MS):
    configuration = box.configuration(layout, sockets)
    configuration["appliance"]["drain_timeout_ms"] = drain_timeout_ms
    return box.appliance(configuration)


def begin_drain(appliance):
    """Sends SIGTERM and returns when the appliance has seen it."""
    appliance.process.send_signal(signal.SIGTERM)
    wait_for(lambda: "draining" in appliance.log_text(), "the log's line about the drain")


def stuck_client(box, appliance, transport="unix", count=16):
    """Returns a client with `count` unread replies of 1 MiB on their way, and their cookies."""
    client = connect(box, appliance, transport, receive_buffer_bytes=16 * KIB)
    client.write(0, pattern("stuck", MIB))
    cookies = range(100, 100 + count)
    client.read_lengths.update(dict.fromkeys(cookies, MIB))
    client.send(b"".join(nbd.request_bytes(nbd.READ, 0, MIB, cookie=cookie) for cookie in cookies))
    # The requests arrived in one send, so the first reply shows that all are in flight.
    expect_true(select.select([client.socket], [], [], nbd.BOUND_SECONDS)[0], "the first reply")
    return client, set(cookies)


@test(transport=["tcp", "unix"], layout=LAYOUTS, sockets=BACKENDS)
def requests_in_flight_are_answered(box, transport, layout, sockets):
    """Every reply arrives, complete and right, before the close. New clients are not served in the
    meantime."""
    appliance = start(box, layout, sockets)
    client, cookies = stuck_client(box, appliance, transport)
    begin_drain(appliance)
    newcomers = [connected(box, appliance, transport) for transport in ("tcp", "unix")
                 if not is_refused(appliance.address(transport))]
    appliance.expect_alive()
    while cookies:
        reply = client.reply()
        cookies.remove(reply.cookie)
        expect_true(not reply.error and reply.data == pattern("stuck", MIB), "a reply is right")
    client.expect_disconnect("after the last reply", 0)
    expect(appliance.wait_exit(), 0, "the exit code after SIGTERM")
    appliance.expect_nothing_left()
    for newcomer in newcomers:
        newcomer.expect_disconnect("a newcomer in the drain", len(nbd.GREETING))


@test(layout=LAYOUTS, sockets=BACKENDS)
def begun_write_is_finished(box, layout, sockets):
    """A payload that is half sent at SIGTERM is received to its end and acknowledged."""
    appliance = start(box, layout, sockets)
    client = connect(box, appliance)
    stuck, _ = stuck_client(box, appliance)  # keeps the drain going
    client.send(nbd.request_bytes(nbd.WRITE, 4 * MIB, MIB, cookie=5) + bytes(MIB // 2))
    wait_for(lambda: appliance.granted() == 2, "the grant of the half-sent write")
    begin_drain(appliance)
    client.send(bytes(MIB // 2))
    expect(client.reply(), nbd.Reply(5, 0, b"", 0), "the acknowledgement")
    stuck.close()
    client.expect_disconnect("after the last reply", 0)
    expect(appliance.wait_exit(), 0, "the exit code after SIGTERM")
    appliance.expect_nothing_left()


@test(layout=LAYOUTS, sockets=BACKENDS)
def writes_in_flight(box, layout, sockets):
    """A stream of writes is cut off between replies: each is acknowledged, refused, or never
    answered, and no reply is torn."""
    appliance = start(box, layout, sockets)
    client = connect(box, appliance)
    for index in range(32):
        client.request(nbd.WRITE, index * MIB, payload=bytes(64 * KIB))
    appliance.process.send_signal(signal.SIGTERM)
    try:
        for index in range(100_000):
            expect_true(client.reply().error in (0, ESHUTDOWN), "a reply is good or a shutdown")
            client.request(nbd.WRITE, index % 60 * MIB, payload=bytes(64 * KIB))
    except nbd.Disconnected:
        pass
    client.close()
    expect(appliance.wait_exit(), 0, "the exit code after SIGTERM")
    appliance.expect_nothing_left()


@test(sockets=BACKENDS, behaviour=["reads_nothing", "half_a_payload", "half_a_header"])
def drain_ends_in_time(box, sockets, behaviour):
    """A client that neither reads nor completes its request is cut off when the drain's time is
    over."""
    appliance = start(box, sockets=sockets, drain_timeout_ms=300)
    if behaviour == "reads_nothing":
        stuck_client(box, appliance)
    else:
        request = nbd.request_bytes(nbd.WRITE, 0, MIB, bytes(MIB))
        connect(box, appliance).send(request[:MIB // 2 if behaviour == "half_a_payload" else 20])
    appliance.stop()


@test(layout=LAYOUTS, sockets=BACKENDS, number=["SIGTERM", "SIGINT", "SIGHUP"])
def idle_clients_do_not_delay(box, layout, sockets, number):
    """With nothing in flight, the stop waits for no client, in any state of its connection."""
    appliance = start(box, layout, sockets)
    clients = [connected(box, appliance), connected(box, appliance, "tcp"), greeted(box, appliance),
               connect(box, appliance), connect(box, appliance, "tcp", structured=True)]
    clients[-1].verify("before the end")
    appliance.stop(getattr(signal, number))
    for client in clients:
        client.expect_disconnect("after the appliance's end", len(nbd.GREETING))


@test()
def signals_that_mean_nothing_are_counted(box):
    """Signals without a meaning are only counted. They would end any other program, and each
    client's work with it."""
    appliance = start(box)
    client = connect(box, appliance)
    numbers = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM, signal.SIGIO,
               signal.SIGPWR)
    for count, number in enumerate(numbers, 1):
        appliance.process.send_signal(number)
        wait_for(lambda: appliance.stats()["signals"]["ignored"] == count, f"signal {number}")
    client.verify("after all of them")
    log = appliance.log_text()
    for name in ("USR1", "ALRM", "PWR"):
        expect_true(f"({name}) of process {os.getpid()} is ignored" in log, f"{name} in\n{log}")
    appliance.stop()


@test()
def a_hangup_that_was_ignored_stays_so(box):
    """As under nohup, a SIGHUP that was ignored at start stays ignored."""
    configuration = box.configuration()
    appliance = box.appliance(configuration, argv_prefix=["nohup"])
    client = connect(box, appliance)
    appliance.process.send_signal(signal.SIGHUP)
    appliance.process.send_signal(signal.SIGUSR1)  # comes after it
    wait_for(lambda: appliance.stats()["signals"]["ignored"] == 1, "the other signal")
    client.verify("after it")
    appliance.stop()


@test(sockets=BACKENDS)
def restarts_at_once(box, sockets):
    """A restart uses the same port and path at once, while the kernel still has connections of the
    last run."""
    configuration = box.configuration(sockets=sockets)
    for round_number in range(3):
        appliance = box.appliance(configuration)
        clients = [connect(box, appliance, transport) for transport in ("tcp", "unix")]
        expect(clients[0].read(0, 4096), bytes(4096), "a new run's volume is zeroed")
        for client in clients:
            client.verify(round_number)
        appliance.stop()


@test(sockets=BACKENDS)
def crash_keeps_the_counters(box, sockets):
    """After a SIGKILL the counters can be read, the pages are free, and a restart works."""
    configuration = box.configuration(sockets=sockets)
    appliance = box.appliance(configuration)
    client = connect(box, appliance)
    client.verify("before the crash")
    appliance.process.kill()
    appliance.wait_exit()
    client.expect_disconnect("after the crash", 0)
    stats = appliance.stats()
    expect((stats["pid"], stats["services"]["blockd"]["requests_write"]), (appliance.pid, 1), "the counters")
    appliance = box.appliance(configuration)
    for transport in ("tcp", "unix"):
        connect(box, appliance, transport).verify(transport)
    expect(appliance.stats()["pid"], appliance.pid, "the pid in the new counters")
    appliance.stop()


@test()
def runtime_directory_of_others(box):
    """Files of others in the runtime directory stay, and so does the directory."""
    configuration = box.configuration()
    os.mkdir(box.path("runtime"))
    note = box.write("runtime/note", "keep me")
    appliance = box.appliance(configuration)
    appliance.process.send_signal(signal.SIGTERM)
    expect(appliance.wait_exit(), 0, "the exit code after SIGTERM")
    expect(os.listdir(box.path("runtime")), ["note"], "what the runtime directory holds")
    with open(note, encoding="ascii") as file:
        expect(file.read(), "keep me", "the note")


@test()
def signal_while_booting(box):
    """SIGTERM at any moment of the boot removes everything that was created so far."""
    configuration = box.configuration()
    appliance = Appliance(box, configuration)
    box.ensure_hugepages(appliance.config)
    moments = {
        "exec": lambda: True,
        "counters": lambda: os.path.exists(box.path("runtime")),
        "listening": lambda: os.path.exists(box.path("nbd.sock")),
        "ready": lambda: "core" in appliance.log_text(),
    }
    for what, has_come in moments.items():
        for _ in range(5):
            process = appliance.process = box.spawn(appliance.argv, appliance.log)
            wait_for(has_come, what)
            process.send_signal(signal.SIGTERM)
            # Before the program catches signals it has created nothing, and the kernel ends it.
            expect_true(appliance.wait_exit() in (0, -signal.SIGTERM), "the exit code")
            appliance.expect_nothing_left()
            box.write(appliance.log, "")


@test(stream=["stdout", "stderr"])
def broken_standard_streams(box, stream):
    """If the reader of the output has gone, the appliance still serves and stops cleanly."""
    appliance = Appliance(box, box.configuration())
    box.ensure_hugepages(appliance.config)
    read_end, write_end = os.pipe()
    os.close(read_end)
    appliance.process = box.spawn(appliance.argv, appliance.log, **{stream: write_end})
    os.close(write_end)
    wait_for(lambda: not is_refused(appliance.address()), "the server")
    connect(box, appliance).verify("nobody reads the output")
    appliance.stop()
