"""Four faults, and the tools that show them: `top`, the status page without JavaScript, /metrics
(for the rules of docs/prometheus/alerts.yml), and `doctor`. Each names the appliance."""

import json
import re
import signal

from harness import (BACKENDS, BOUND_SECONDS, KIB, MIB, expect, expect_in, expect_true,
                     free_port, need_backend, test, wait_for)
from browser import Browser
from fuse_file import FuseFile
from http_test import get, sample
import messages_test
import raw_nbd as nbd
from raw_nbd import connect
from top_screen_test import Console

SECONDS = 5  # after which a slow client or store raises an alert


class Views:
    """An appliance, and all tools that show its alerts."""

    def __init__(self, box, configuration):
        self.box = box
        self.port = free_port()
        configuration.setdefault("http", {})["listen"] = [f"tcp:127.0.0.1:{self.port}"]
        self.appliance = box.appliance(configuration)

    def named(self, *command):
        return self.box.bedplate(*command, "--directory", self.appliance.runtime_directory).stdout

    def top(self):
        return " ".join(self.named("top", "--once", "--interval", "0.1").split())

    def page(self):
        return get(self.port, "/")[1].split("<script>")[0]

    def metrics(self):
        return get(self.port, "/metrics")[1]

    def doctor(self):
        return [line for line in self.named("doctor").splitlines() if " appliance " in line]

    def expect_quiet(self):
        """Checks that there is no alert, and that all tools say so."""
        wait_for(lambda: "} 1\n" not in self.alerts(), "no alert in /metrics")
        expect_true("needs a look" not in self.top(), "nothing in top")
        expect_true('What needs a look"></ul>' in self.page(), "nothing on the page")
        name = self.appliance.configuration["appliance"]["name"]
        expect([line.split() for line in self.doctor()],
               [["good", "appliance", name, *"runs; nothing needs a look".split()]], "doctor")

    def alerts(self):
        return "".join(line + "\n" for line in self.metrics().splitlines()
                       if line.startswith("bedplate_sign{"))

    def expect_seen(self, alert, *words):
        """Checks that the alert is in /metrics, and that all tools show the words, which name the
        culprit."""
        wait_for(lambda: f"bedplate_sign{{{alert}}} 1\n" in self.alerts(), f"the alert of {alert}")
        shown = {"top": self.top(), "the page": self.page(), "doctor": "\n".join(self.doctor()),
                 "/signs": get(self.port, "/signs")[1]}
        for view, text in shown.items():
            for word in words:
                expect_in(word, text, f"what {view} says")
        said = json.loads(self.named("top", "--once", "--json", "--interval", "0.1"))
        told = " ".join(f"{one['of']}: {one['says']}" for one in said["appliances"][0]["signs"])
        for word in words:
            expect_in(word, told, "what top --json says")
        expect_true(all(line.startswith("warning") for line in self.doctor()), "doctor warns")


@test(sockets=BACKENDS)
def a_client_that_is_slow(box, sockets):
    need_backend(sockets)
    views = Views(box, box.configuration(sockets=sockets))
    shard = views.appliance.configuration["shard"][0]["name"]
    client = connect(box, views.appliance, "tcp", receive_buffer_bytes=16 * KIB)
    client.verify("while it reads")
    views.expect_quiet()
    for _ in range(32):
        client.request(nbd.READ, 0, MIB)
    host, port = client.socket.getsockname()
    views.expect_seen(f'of="shard {shard}",counter="slow_client_ns"', f"shard {shard}: ",
                       f"the client {host}:{port} at {host}:", "has read nothing of its answer")
    label = f'bedplate_shard_slow_client_seconds{{shard="{shard}"}}'
    expect_true(sample(views.metrics(), label) >= SECONDS, "the value of the alert")
    for _ in range(32):
        client.reply()
    views.expect_quiet()
    views.appliance.stop()


@test()
def a_heap_that_is_nearly_exhausted(box):
    configuration = box.configuration()
    del configuration["blockd"]
    configuration["pool"] = {"bytes": "40 MiB", "pages": "4 KiB", "heap_min_bytes": "8 MiB"}
    roomy = Views(box, configuration)
    roomy.expect_quiet()
    roomy.appliance.stop()
    configuration["pool"]["bytes"] = "33 MiB"  # little more than its threads need
    # The heap has two chunks of 4 MiB. A thread of boot that ended early leaves one of them free.
    for _ in range(8):
        views = Views(box, configuration)
        if views.appliance.stats()["heap"]["free_bytes"] == 0:
            break
        views.appliance.stop()
    owners = views.appliance.stats()["heap_owner"]
    owner = max(owners, key=lambda name: owners[name]["used_bytes"])
    views.expect_seen('of="heap",counter="free_bytes"', "heap: it is nearly exhausted: ",
                       f"are free, and {owner} (", "has the most")
    text = views.metrics()
    free = sample(text, "bedplate_heap_free_bytes{}")
    expect_true(free < 0.1 * sample(text, 'bedplate_owner_bytes{owner="heap"}'), "the alert's value")
    views.appliance.stop()


@test()
def a_peer_process_that_is_down(box):
    views = Views(box, messages_test.two(box))

    def start():
        log = box.path("ann.log")
        process = messages_test.start(box, views.appliance, "c++", "ann", "bob")
        wait_for(lambda: 'bedplate_process_state{process="ann",is="there"} 1' in views.metrics(),
                 f"ann in /metrics; {log}")
        return process

    ann = start()
    views.expect_quiet()
    ann.send_signal(signal.SIGKILL)
    ann.wait(BOUND_SECONDS)
    views.expect_seen('of="process ann",counter="is_down"',
                       f"process ann: its process {ann.pid} has died, and no other has joined")
    expect(sample(views.metrics(), 'bedplate_process_is_down{process="ann"}'), 1, "the alert's value")
    start()
    views.expect_quiet()


@test()
def a_process_that_leaves_hides_no_death(box):
    """One of the two processes of a [[process]] dies, and the other one leaves after it."""
    configuration = messages_test.two(box)
    configuration["pool"]["bytes"] = "128 MiB"
    configuration["group"][0]["members"] = 4
    configuration["process"][0]["max_count"] = 2
    views = Views(box, configuration)

    def start(name, peer, count):
        process = messages_test.start(box, views.appliance, "c++", name, peer, f"{name}.{count}")
        wait_for(lambda: sample(views.metrics(), f'bedplate_process_joined_total{{process="{name}"}}')
                 == count, f"{count} times {name}")
        return process

    dies = start("ann", "bob", 1)
    leaves = start("ann", "bob", 2)
    views.expect_quiet()
    dies.kill()
    dies.wait(BOUND_SECONDS)
    said = f"process ann: its process {dies.pid} has died, and no other has joined"
    views.expect_seen('of="process ann",counter="is_down"', said)
    start("bob", "ann", 1)
    expect(leaves.wait(BOUND_SECONDS), 0, "the exit code of the one that leaves")
    wait_for(lambda: 'bedplate_process_state{process="ann",is="left"} 1' in views.metrics(),
             "the end of the other one")
    views.expect_seen('of="process ann",counter="is_down"', said)
    start("ann", "bob", 3)
    views.expect_quiet()


@test(sockets=BACKENDS)
def a_store_that_hangs(box, sockets):
    need_backend(sockets)
    with FuseFile(box, bytes(MIB)) as file:
        configuration = box.configuration(sockets=sockets)
        configuration["appliance"]["drain_timeout_ms"] = 1000
        configuration["blockd"]["volume"].append({"name": "disk", "file": file.path})
        views = Views(box, configuration)
        client = connect(box, views.appliance, volume="disk")
        expect(client.read(0, 512), bytes(512), "a read before that")
        views.expect_quiet()
        file.hang()
        client.request(nbd.READ, 0, 4096)
        views.expect_seen('of="blockd stores disk",counter="silent_ns"', "blockd stores disk: ",
                           f"its store {file.path} has completed nothing for ",
                           "(operations in flight: 1)")
        label = 'bedplate_blockd_stores_silent_seconds{stores="disk"}'
        expect_true(sample(views.metrics(), label) >= SECONDS, "the value of the alert")
        views.appliance.process.kill()
        views.appliance.process.wait(BOUND_SECONDS)
    crashed = views.doctor()
    expect(len(crashed), 1, "lines of doctor")
    expect_in("it has ended without the record of a crash: it was killed", crashed[0],
              "what doctor says of the one that was killed")


def with_little_heap(box, configuration):
    """Sets a pool that leaves a sixteenth of the heap free once the appliance runs."""
    configuration["pool"] = {"bytes": "256 MiB", "pages": "4 KiB", "heap_min_bytes": "1 MiB"}
    roomy = box.appliance(configuration)
    heap = roomy.stats()["heap"]
    roomy.stop()
    less = heap["bytes"] - (heap["bytes"] - heap["free_bytes"]) * 16 // 15
    configuration["pool"]["bytes"] = f"{256 * KIB - less // KIB // 4 * 4} KiB"
    return configuration


def go_wrong(box, views, file):
    """A client is slow, the heap is nearly exhausted, a process has died, and a store hangs."""
    slow = connect(box, views.appliance, "tcp", receive_buffer_bytes=16 * KIB)
    slow.verify("while it reads")
    disk = connect(box, views.appliance, volume="disk")
    expect(disk.read(0, 512), bytes(512), "a read before that")
    ann = messages_test.start(box, views.appliance, "c++", "ann", "bob")
    wait_for(lambda: 'bedplate_process_state{process="ann",is="there"} 1' in views.metrics(), "ann")
    ann.kill()
    ann.wait(BOUND_SECONDS)
    file.hang()
    disk.request(nbd.READ, 0, 4096)
    for _ in range(32):
        slow.request(nbd.READ, 0, MIB)
    wait_for(lambda: views.alerts().count("} 1\n") == 4, f"four alerts: {views.alerts()}")
    return slow, disk


def four_at_once(box, file):
    configuration = messages_test.two(box)
    configuration["blockd"] = box.configuration()["blockd"]
    configuration["blockd"]["volume"].append({"name": "disk", "file": file.path})
    configuration["http"] = {"listen": [f"tcp:127.0.0.1:{free_port()}"],
                             "max_connections": 1000}  # which take much of the heap
    return Views(box, with_little_heap(box, configuration))


@test()
def all_four_at_once(box):
    """The first screen shows the number of alerts and each alert, also while other rows are
    selected."""
    with FuseFile(box, bytes(MIB)) as file:
        views = four_at_once(box, file)
        clients = go_wrong(box, views, file)
        culprits = ("shard main: the client 127.0.0.1:", "heap: it is nearly exhausted: ",
                    "process ann: its process ", f"blockd stores disk: its store {file.path}")
        top = Console(box, views.appliance.runtime_directory, options=["--interval", "0.2"])

        def shows_all(text):
            head, *rest = text.splitlines()
            first_rows = "\n".join(rest[:8])
            return (head.startswith(f"! 4 need a look  two: pid {views.appliance.pid}, running")
                    and all(f"! {culprit[:50]}" in first_rows for culprit in culprits))
        top.wait_for(lambda text: "q:end n:alerts" in text and shows_all(text),
                     "all on the first screen")
        for keys, seen in (("\x1b[F", "heap"), ("/volume\r", "volume:ram0"), ("\x1b ", "FROZEN")):
            top.press(keys)
            top.wait_for(lambda text, seen=seen: seen in text and shows_all(text), f"all beside {seen}")
        top.press("n")
        top.wait_for(lambda text: "(operations in flight: 1)" in text, "the last one in full")
        top.press("q")
        top.expect_end()

        page = views.page()
        expect_in('class="bad">4 need a look</span>', page, "the page without JavaScript")
        for culprit in culprits:
            expect_in(f'<li class="bad">{culprit}', page, "the page without JavaScript")
            expect(sum(culprit in line for line in views.doctor()), 1, f"{culprit} in doctor")
        expect([line.split()[0] for line in views.doctor()], 4 * ["warning"], "doctor")
        expect(get(views.port, "/readyz")[0].status, 200, "it serves all the same")
        expect(len(clients), 2, "clients that stay until here")
        views.appliance.process.kill()
        views.appliance.process.wait(BOUND_SECONDS)


@test()
def the_page_is_not_green(box):
    """With an alert, the page is green neither in words nor in colours. The page uses
    JavaScript."""
    views = Views(box, messages_test.two(box))
    browser = Browser(box, f"http://127.0.0.1:{views.port}/")
    state = "document.getElementById('state')"
    browser.wait(f"isLive && {state}.textContent === 'Ready' && document.title === 'two'", "ready")

    def red_and_green(scheme):
        browser.ask("Emulation.setEmulatedMedia",
                    features=[{"name": "prefers-color-scheme", "value": scheme}])
        color = browser.value(f"getComputedStyle({state}).color")
        return [int(part) for part in re.findall(r"\d+", color)[:2]]
    for scheme in ("light", "dark"):
        red, green = red_and_green(scheme)
        expect_true(green > red, f"ready is green: {red}, {green}")
    ann = messages_test.start(box, views.appliance, "c++", "ann", "bob")
    wait_for(lambda: 'bedplate_process_state{process="ann",is="there"} 1' in views.metrics(), "ann")
    ann.kill()
    ann.wait(BOUND_SECONDS)
    for before in ("", "listen = () => {}; quiet()"):  # by events, and by its own requests
        browser.value(f"{before}; {state}.textContent = document.title = ''")
        browser.wait(f"isLive === {str(not before).lower()} && {state}.textContent === '1 needs a look'",
                     "its state")
        expect(browser.value("document.title"), "! 1 needs a look - two", "its title")
        for scheme in ("light", "dark"):
            red, green = red_and_green(scheme)
            expect_true(red > green, f"it is not green: {red}, {green}")
    views.appliance.stop()
