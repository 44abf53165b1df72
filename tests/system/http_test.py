"""[http]: the metrics for Prometheus, the other pages, and bad requests."""

import base64
import hashlib
import html
import http.client
import json
import os
import re
import socket
import threading
import urllib.parse
import urllib.request

from harness import (BOUND_SECONDS, MIB, Skip, expect, expect_in, expect_true, free_port, test,
                     to_toml, wait_for)
from browser import Browser

TOKEN = "0123456789abcdef0123456789abcdef"
OPENMETRICS = "application/openmetrics-text;version=1.0.0"
ALERTS = os.path.abspath("docs/prometheus/alerts.yml")


def start(box, **keys):
    configuration = box.configuration()
    port = free_port()
    configuration["http"] = {"listen": [f"tcp:127.0.0.1:{port}"], **keys}
    return box.appliance(configuration), port


def get(port, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=BOUND_SECONDS)
    connection.request(method, path, headers=headers)
    reply = connection.getresponse()
    body = reply.read().decode()
    connection.close()
    return reply, body


def raw(port, data, stops=True):
    """Sends `data`; returns the bytes that come until the server ends the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=BOUND_SECONDS) as client:
        client.sendall(data)
        if stops:
            client.shutdown(socket.SHUT_WR)
        said = b""
        while more := client.recv(65536):
            said += more
        return said.decode()


def sample(text, line):
    return float(re.search(rf"^{re.escape(line)} (\S+)$", text, re.MULTILINE)[1])


@test()
def metrics_are_those_of_stats(box):
    """Both formats have the numbers of `stats`."""
    appliance, port = start(box)
    reply, text = get(port, "/metrics")
    expect(reply.getheader("Content-Type"), "text/plain; version=0.0.4; charset=utf-8", "its type")
    reply, opened = get(port, "/metrics", Accept=OPENMETRICS)
    expect_in("application/openmetrics-text; version=1.0.0", reply.getheader("Content-Type"), "type")
    stats = appliance.stats()
    for said in (text, opened):
        expect(sample(said, "bedplate_pool_total_bytes{}"), stats["pool"]["total_bytes"], "the pool")
        expect(sample(said, "bedplate_pool_sealed{}"), 1, "sealed")
        expect_in('bedplate_shard_info{shard="', said, "the backend of shards")
        expect_in('bedplate_blockd_read_seconds_bucket{', said, "a histogram")
    box.run(prometheus_tool("promtool"), "check", "metrics", input=text)


def still(told):
    """Returns {path: value} for the values that do not change in an idle appliance."""
    found = {}

    def walk(path, value):
        if isinstance(value, dict):
            for key, part in value.items():
                walk((*path, key), part)
        else:
            found[path] = value
    walk((), told)
    moving = {"shard", "runtime", "http"}
    return {path: value for path, value in found.items() if not moving & set(path)
            and "used_bytes" not in path[-1] and not path[-1].endswith("_ns")}


@test()
def stats_json_is_what_stats_prints(box):
    """/stats.json has the same objects as `stats`, and the values that do not change are equal."""
    appliance, port = start(box)
    reply, body = get(port, "/stats.json")
    expect(reply.getheader("Content-Type"), "application/json", "its type")
    told, printed = json.loads(body), json.loads(appliance.stats_text("--json"))
    expect(told["audit"], "ok", "what the audit from within says")
    expect(set(told["services"]["http"]), set(printed["services"]["http"]), "counters of http")
    expect(still(told), still(printed), "all that stands still")
    expect_true(len(still(told)) > 100, "there is much of it")
    expect(get(port, "/stats.json", method="HEAD")[1], "", "HEAD")


@test()
def the_page_takes_no_program_but_its_own(box):
    """The policy for the browser has the hashes of the page's own script and style."""
    _, port = start(box)
    reply, page = get(port, "/")
    policy = reply.getheader("Content-Security-Policy")
    expect_true("unsafe" not in policy, f"nothing unsafe is allowed: {policy}")
    for tag in ("script", "style"):
        text = re.search(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        expect_in(f"{tag}-src 'sha256-{digest}';", policy, "kStatusPageHeaders")


@test()
def the_log_is_there(box):
    """/log and the page have the lines of standard error, also without JavaScript."""
    appliance, port = start(box)
    log = get(port, "/log")[1]
    written = [line for line in appliance.log_text().splitlines() if line.startswith("bedplate: ")]
    expect_true(len(written) > 3, f"lines of the log: {written}")
    expect(log.splitlines()[:len(written)], written, "/log")
    tail = re.search('<pre id="log"[^>]*>(.*?)</pre>', get(port, "/")[1], re.DOTALL)[1]
    expect(html.unescape(tail).splitlines()[:len(written)], written, "the page")


class Listener:
    """A client of /events. It reads only when a method is called."""

    def __init__(self, box, port):
        self.socket = box.closing.enter_context(socket.socket())
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(BOUND_SECONDS)
        self.socket.connect(("127.0.0.1", port))
        self.socket.sendall(b"GET /events HTTP/1.0\r\n\r\n")
        self.file = self.socket.makefile(encoding="utf-8")
        self.status = int(self.file.readline().split()[1])
        while self.file.readline() != "\n":
            pass

    def event(self):
        """Returns the name and the data of the next event; None: the stream has ended."""
        name = self.file.readline().strip().removeprefix("event:")
        data = []
        while (line := self.file.readline().rstrip("\n")).startswith("data:"):
            data.append(line.removeprefix("data:"))
        return (name, "\n".join(data)) if name else None

    def read_all(self):
        try:
            while self.event():
                pass
        except OSError:  # the appliance has ended
            pass


@test()
def events_come_each_second(box):
    """Events bring the data of the page until the appliance drains. Half of the connections may
    listen."""
    appliance, port = start(box, max_connections=4)
    listener, second = Listener(box, port), Listener(box, port)
    expect([listener.event()[0] for _ in range(3)], ["signs", "log", "metrics"], "the first round")
    box.run("nbdcopy", box.write("image", os.urandom(8 * MIB)), appliance.uri())

    def written():
        name, data = listener.event()
        return name == "metrics" and sample(data, "bedplate_blockd_written_bytes_total{}") == 8 * MIB
    wait_for(written, "what was written, in an event")
    third = Listener(box, port)
    expect((third.status, third.file.read()),
           (503, "Too many clients read /events; the limit is 2, half of max_connections.\n"),
           "one more")
    expect(get(port, "/healthz")[1], "ok\n", "its health")
    second.socket.shutdown(socket.SHUT_RDWR)
    wait_for(lambda: appliance.stats()["services"]["http"]["listeners"] == 1, "the second's end")
    expect(Listener(box, port).status, 200, "one in its place")
    appliance.stop()
    while listener.event():
        pass


@test()
def a_listener_that_does_not_read_is_dropped(box):
    """The memory of a listener's events is bounded, and a listener that does not read loses its
    slot."""
    appliance, port = start(box, max_connections=4)
    before = appliance.stats()["heap_owner"]["heap:http"]["used_bytes"]
    Listener(box, port)
    expect(appliance.stats()["services"]["http"]["listeners"], 1, "listeners")
    wait_for(lambda: appliance.stats()["services"]["http"]["listeners"] == 0, "its end")
    http = appliance.stats()["services"]["http"]
    expect(http["connections_timed_out"], 1, "timeouts")
    after = appliance.stats()["heap_owner"]["heap:http"]["used_bytes"]
    expect_true(after <= before, f"memory of http has grown from {before} to {after}")
    appliance.expect_alive()


@test()
def the_page_shows_what_is_going_on(box):
    """The page shows the pool by owner, the shards, and the counters of any service, live."""
    appliance, port = start(box)
    browser = Browser(box, f"http://127.0.0.1:{port}/")
    browser.wait("isLive && document.getElementById('state').textContent === 'Ready'", "events")
    browser.value("var asked = 0; fetch = new Proxy(fetch, {apply: () => { ++asked; }})")
    box.run("nbdcopy", box.write("image", os.urandom(8 * MIB)), appliance.uri())
    browser.wait("document.body.innerText.includes('blockd_written_bytes_total\\t8 MiB')", "a counter")
    expect(browser.value("asked"), 0, "requests of a page that has events")
    shown = re.sub(r' data-head="[^"]*"|<wbr>', "", browser.shown())
    expect_in("<td>64 MiB</td>", shown, "the volume among the owners")
    expect_true(re.search(r'blockd_write_seconds_count</span></th><td>\d+</td>', shown) is not None,
                f"how many writes there were is a number, not a time:\n{shown}")
    expect_in('id="signs" aria-label="What needs a look"></ul>', shown, "nothing is wrong")
    expect_in("pool of 256 MiB sealed\n", shown, "the log")


@test()
def the_page_asks_where_no_events_come(box):
    """All slots for listeners are taken. The page still has the log and the numbers, and shows the
    refusal."""
    _, port = start(box)
    for _ in range(4):
        listener = Listener(box, port)
        threading.Thread(target=listener.read_all, daemon=True).start()
    browser = Browser(box, f"http://127.0.0.1:{port}/")
    browser.wait("now && before && !isLive && document.getElementById('log').textContent", "numbers")
    browser.wait("document.getElementById('signs').textContent"
                 ".includes('requests were answered with an error')", "what is refused")


@test()
def the_page_asks_for_the_token_and_says_what_is_wrong(box):
    token = box.write_secret("token", TOKEN)
    _, port = start(box, token_file=token)
    browser = Browser(box, f"http://127.0.0.1:{port}/")
    browser.wait("document.getElementById('state').textContent === 'A token is needed'"
                 " && !document.getElementById('ask').hidden", "that")
    page = browser.shown()
    expect_in('<form id="ask">', page, "the question")
    expect_true("MiB" not in page, "no number is shown")
    browser.value(f"document.getElementById('token').value = '{TOKEN}';"
                  "document.getElementById('ask').requestSubmit()")
    browser.wait("now && document.getElementById('log').textContent", "the numbers, with it")


def prometheus_tool(name):
    """The path of a tool that scripts/prometheus.sh has unpacked."""
    path = os.path.abspath(f"build/prometheus/usr/bin/{name}")
    if not os.path.exists(path):
        raise Skip(f"{name} is missing: scripts/prometheus.sh build/prometheus")
    return path


@test()
def alerts_are_raised_for_what_they_are_for(box):
    box.run(prometheus_tool("promtool"), "test", "rules", ALERTS.replace(".yml", "_test.yml"))


@test()
def prometheus_has_the_numbers_that_clients_saw(box):
    """A real Prometheus scrapes. It has the metrics of all alerts, except those of RDMA peers and
    of processes."""
    prometheus = prometheus_tool("prometheus")
    configuration = box.configuration()
    box.write("disk", b"")
    os.truncate(box.path("disk"), 16 * MIB)
    configuration["blockd"]["volume"].append({"name": "disk", "file": box.path("disk")})
    port, own = free_port(), free_port()
    configuration["http"] = {"listen": [f"tcp:127.0.0.1:{port}"]}
    appliance = box.appliance(configuration)
    box.run("nbdcopy", box.write("image", os.urandom(8 * MIB)), appliance.uri())

    box.write("prometheus.yml", json.dumps({
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [ALERTS],
        "scrape_configs": [{"job_name": "bedplate",
                            "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}]}))
    box.spawn([prometheus, f"--config.file={box.path('prometheus.yml')}",
               f"--storage.tsdb.path={box.path('tsdb')}",
               f"--web.listen-address=127.0.0.1:{own}"], "prometheus.log")

    def ask(what, **query):
        url = f"http://127.0.0.1:{own}/api/v1/{what}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=BOUND_SECONDS) as reply:
                return json.load(reply)["data"]
        except OSError:  # not started yet
            return None

    def value(query):
        found = (ask("query", query=query) or {"result": []})["result"]
        return float(found[0]["value"][1]) if found else None

    written = "bedplate_blockd_written_bytes_total"
    wait_for(lambda: value(written) == 8 * MIB, f"{written} of what nbdcopy wrote")
    wait_for(lambda: value("count_over_time(up[1m])") >= 3, "scrapes")
    expect(value("min_over_time(up[1m])"), 1, "each scrape succeeded")
    expect(value('sum(ALERTS{alertstate="firing"})'), None, "alerts of a sound appliance")
    with open(ALERTS, encoding="utf-8") as file:
        expressions = re.sub(r"(?m)^ *#.*|action: .*", "", file.read())
    named = set(re.findall(r"\bbedplate_\w+", expressions))
    missing = named - set(ask("label/__name__/values"))
    expect(missing, {"bedplate_peer_state", "bedplate_process_is_down"},
           "metrics of alerts that this appliance has not")


@test()
def openmetrics_is_parsed(box):
    try:
        from prometheus_client.openmetrics import parser
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        raise Skip("python3-prometheus-client is not installed") from None
    _, port = start(box)
    opened = list(parser.text_string_to_metric_families(get(port, "/metrics",
                                                            Accept=OPENMETRICS)[1]))
    plain = list(text_string_to_metric_families(get(port, "/metrics")[1]))
    expect({family.name for family in opened}, {family.name for family in plain}, "the families")
    expect_true(len(opened) > 50, "many families")


@test()
def health_and_methods(box):
    _, port = start(box)
    expect(get(port, "/healthz")[1], "ok\n", "its health")
    expect(get(port, "/readyz")[1], "ready\n", "its readiness")
    reply, body = get(port, "/metrics", method="HEAD")
    expect((reply.status, body), (200, ""), "HEAD")
    reply, _ = get(port, "/metrics", method="POST")
    expect((reply.status, reply.getheader("Allow")), (405, "GET, HEAD"), "POST")
    expect(get(port, "/metric")[0].status, 404, "another path")
    expect(get(port, "/healthz", Host="evil.example")[0].status, 421, "another site's page")


HOSTILE = {
    "oversized": (b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000, 431),
    "long_path": (b"GET /" + b"x" * 100_000, 414),
    "smuggled": (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n"
                 b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n", 400),
    "body": (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000, 413),
    "tls": (b"\x16\x03\x01\x02\x00\x01\x00", 400),
    "http2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
}


@test(what=HOSTILE)
def hostile(box, what):
    """A bad request gets the right status, once, and then the connection ends. Others are served as
    usual."""
    appliance, port = start(box)
    request, status = HOSTILE[what]
    said = raw(port, request, stops=False)
    expect_true(said.startswith(f"HTTP/1.1 {status} "), f"the status of\n{said}")
    expect(said.count("HTTP/1.1 "), 1, "answers")
    expect(get(port, "/healthz")[1], "ok\n", "its health")
    appliance.expect_alive()


@test()
def slow_and_partial(box):
    """A request that never ends gets an error. A request that is sent byte by byte is answered."""
    appliance, port = start(box)
    expect_in(" 408 ", raw(port, b"GET /heal", stops=False), "the answer to half a request")
    with socket.create_connection(("127.0.0.1", port), timeout=BOUND_SECONDS) as client:
        for byte in b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n":
            client.sendall(bytes([byte]))
        expect_in(b"\r\n\r\nok\n", client.recv(4096), "the answer to a request in pieces")
    expect(appliance.stats()["services"]["http"]["connections_timed_out"], 1, "timeouts")


@test()
def many_idle_connections(box):
    """Idle connections use only the planned slots. A new connection takes the slot of the
    connection that was silent for the longest time."""
    appliance, port = start(box, max_connections=4)
    before = appliance.stats()["heap_owner"]["heap:http"]["used_bytes"]
    idle = [box.closing.enter_context(socket.create_connection(("127.0.0.1", port)))
            for _ in range(1000)]
    expect(get(port, "/healthz")[1], "ok\n", "its health")
    wait_for(lambda: appliance.stats()["services"]["http"]["connections_replaced"] >= 997,
             "replaced")
    expect(appliance.stats()["services"]["http"]["connections_peak"], 4, "the most at once")
    for _ in range(100):
        expect(get(port, "/metrics")[0].status, 200, "a scrape")
    expect(appliance.stats()["heap_owner"]["heap:http"]["used_bytes"], before, "memory of http")
    expect(len(idle), 1000, "clients")


@test()
def token_is_asked_for(box):
    file = box.write_secret("token", TOKEN + "\n")
    _, port = start(box, token_file=file)
    expect(get(port, "/metrics")[0].status, 401, "without")
    expect(get(port, "/metrics", Authorization="Bearer " + TOKEN[:-1])[0].status, 401, "wrong")
    expect(get(port, "/metrics", Authorization="Bearer " + TOKEN)[0].status, 200, "with")


@test(listen=["tcp:0.0.0.0:9464", "tcp:[::]:9464"])
def others_take_a_token(box, listen):
    configuration = box.configuration()
    configuration["http"] = {"listen": [listen]}
    said = box.bedplate("check", box.write("open.toml", to_toml(configuration)), expect_code=2)
    expect_in(f"http: planning to listen at {listen}: other machines can reach it",
              said.stderr, "the message")


@test(token=["short", "", "with blanks in its middle"])
def token_is_none(box, token):
    configuration = box.configuration()
    configuration["http"] = {"listen": [f"tcp:127.0.0.1:{free_port()}"],
                             "token_file": box.write_secret("token", token)}
    config = box.write("token.toml", to_toml(configuration))
    box.ensure_hugepages(config)
    said = box.bedplate("run", config, expect_code=1)
    expect_in("reading the token of [http] from ", said.stderr, "the message")
