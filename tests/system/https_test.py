"""[http] with a certificate: HTTPS for third-party clients, client certificates instead of a token,
and all other input that such a port receives."""

import json
import os
import re
import socket
import ssl
import struct

from harness import (BOUND_SECONDS, expect, expect_in, expect_true, free_port, need_tools,
                     stopped, test, to_toml, wait_for)
from http_test import TOKEN, prometheus_tool, raw
from tls_test import make_certificates

METRICS = "/metrics"


def start(box, folder=None, address="127.0.0.1", **keys):
    folder = folder or make_certificates(box)
    configuration = box.configuration()
    port = free_port()
    configuration["http"] = {"listen": [f"tcp:{address}:{port}"],
                             "tls_certificate": f"{folder}/server-cert.pem",
                             "tls_key": f"{folder}/server-key.pem", **keys}
    return box.appliance(configuration), port, folder


def curl(box, folder, port, *words, path="/healthz", expect_code=0):
    need_tools("curl")
    return box.run("curl", "--silent", "--show-error", "--cacert", f"{folder}/ca-cert.pem", *words,
                   f"https://localhost:{port}{path}", "--resolve", f"localhost:{port}:127.0.0.1",
                   expect_code=expect_code).stdout


def is_refused(box, folder, port, *words):
    """Returns whether curl is refused, by a TLS alert or by the end of the connection."""
    done = box.run("curl", "--silent", "--cacert", f"{folder}/ca-cert.pem", *words,
                   f"https://127.0.0.1:{port}/healthz", expect_code=None)
    return done.returncode != 0 and done.stdout == ""


def status(box, folder, port, *words, path=METRICS):
    return int(curl(box, folder, port, "--output", "/dev/null", "--write-out", "%{http_code}",
                    *words, path=path))


def by_certificate(folder, name="client"):
    return ("--cert", f"{folder}/{name}-cert.pem", "--key", f"{folder}/{name}-key.pem")


def counted(appliance, counter):
    return appliance.stats()["services"]["http"][counter]


def foreign_client(box, folder, name, *words):
    """Creates a certificate that the authority has not signed."""
    box.run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
            "-nodes", "-keyout", f"{folder}/{name}-key.pem", "-out", f"{folder}/{name}-cert.pem",
            "-subj", "/CN=client", "-days", "30", *words)


def expired_client(box, folder):
    box.run("openssl", "ca", "-config", box.write("ca.cnf", f"""
[ca]
default_ca = own
[own]
database = {box.write("index.txt", "")}
new_certs_dir = {box.directory}
serial = {box.write("serial", "1000")}
default_md = sha256
policy = any
[any]
commonName = supplied
"""), "-batch", "-in", f"{folder}/client.csr", "-cert", f"{folder}/ca-cert.pem", "-keyfile",
            f"{folder}/ca-key.pem", "-startdate", "20200101000000Z", "-enddate", "20210203000000Z",
            "-out", f"{folder}/expired-cert.pem", "-notext")
    os.link(f"{folder}/client-key.pem", f"{folder}/expired-key.pem")


@test(kind=["curve", "rsa"], version=["1.2", "1.3"])
def curl_and_openssl(box, kind, version):
    """TLS 1.2 and 1.3 work; older versions are refused. The metrics have the numbers of `stats`."""
    appliance, port, folder = start(box, make_certificates(box, kind))
    only = (f"--tlsv{version}", "--tls-max", version)
    expect(curl(box, folder, port, *only), "ok\n", "its health")
    text = curl(box, folder, port, *only, path=METRICS)
    found = re.search(r"^bedplate_pool_total_bytes\{\} (\S+)$", text, re.MULTILINE)
    expect(float(found[1]), appliance.stats()["pool"]["total_bytes"], "the pool's size")
    said = box.run("openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile",
                   f"{folder}/ca-cert.pem", "-verify_return_error", "-ign_eof",
                   "-tls" + version.replace(".", "_"),
                   input="GET /readyz HTTP/1.0\r\n\r\n").stdout
    expect_in(f"TLSv{version}", said, "the version")
    expect_in("ready\n", said, "the answer")
    box.run("openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-tls1_1", "-cipher",
            "DEFAULT@SECLEVEL=0", input="", expect_code=1)
    wait_for(lambda: counted(appliance, "tls_failed_protocol") == 1, "the old version")
    expect_true(counted(appliance, "tls_handshakes") >= 3, "handshakes were counted")
    appliance.stop()


def distrust(client):
    """Does a handshake over the socket `client`, and refuses the certificate. Returns the bytes
    that report the refusal."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    while True:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            client.sendall(outgoing.read())
            incoming.write(client.recv(1 << 16))
        except ssl.SSLCertVerificationError:
            return outgoing.read()


@test()
def a_client_that_does_not_trust_it_says_so(box):
    appliance, port, _ = start(box)
    need_tools("curl")
    box.run("curl", "--silent", f"https://127.0.0.1:{port}/", expect_code=60)
    wait_for(lambda: counted(appliance, "tls_failed_refused") == 1, "it to be counted")
    appliance.stop()


@test()
def a_client_that_says_so_and_resets_is_heard(box):
    """The alert and the reset both arrive before the appliance reads: curl closes a connection so,
    with a part of the answer unread."""
    appliance, port, _ = start(box)
    with socket.create_connection(("127.0.0.1", port)) as client:
        words = distrust(client)
        with stopped(appliance.process.pid):
            client.sendall(words)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
    wait_for(lambda: counted(appliance, "tls_failed_refused") == 1, "it to be counted")
    expect(counted(appliance, "tls_failed_gone"), 0, "those gone without a word")
    appliance.stop()


@test()
def certificates_instead_of_a_token(box):
    """With both configured, either one suffices. A wrong certificate is refused, even with the
    token."""
    folder = make_certificates(box)
    token = box.write_secret("token", TOKEN)
    appliance, port, _ = start(box, folder, "0.0.0.0", token_file=token,
                               tls_client_authorities=f"{folder}/ca-cert.pem")
    expect(status(box, folder, port), 401, "without both")
    expect(status(box, folder, port, "--header", f"Authorization: Bearer {TOKEN}"), 200, "a token")
    expect(status(box, folder, port, *by_certificate(folder)), 200, "a certificate")
    foreign_client(box, folder, "foreign")
    expired_client(box, folder)
    refused = 0
    for version in ("1.2", "1.3"):
        for name in ("foreign", "expired"):
            expect_true(is_refused(box, folder, port, f"--tlsv{version}", "--tls-max", version,
                                   *by_certificate(folder, name), "--header",
                                   f"Authorization: Bearer {TOKEN}"), f"{name} is refused")
            refused += 1
            wait_for(lambda: counted(appliance, "tls_failed_credentials") == refused, "its count")
    log = appliance.log_text()
    for why in ("certificate has expired", "unable to get local issuer certificate",
                "self-signed certificate"):
        expect_true(log.count(why) in (0, 2), f"lines of {why!r} in\n{log}")
    expect(log.count("[http]: TLS with the client"), refused, "lines in the log")
    expect(status(box, folder, port, *by_certificate(folder)), 200, "those that may")
    appliance.stop()


@test()
def certificates_alone(box):
    folder = make_certificates(box)
    appliance, port, _ = start(box, folder, "0.0.0.0",
                               tls_client_authorities=f"{folder}/ca-cert.pem")
    expect_true(is_refused(box, folder, port), "it is refused")
    wait_for(lambda: counted(appliance, "tls_failed_credentials") == 1, "it to be counted")
    expect(status(box, folder, port, *by_certificate(folder)), 200, "with one")
    appliance.stop()


@test()
def http_in_clear_is_told_once(box):
    appliance, port, folder = start(box)
    expect(raw(port, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", stops=False), "", "answer")
    expect(counted(appliance, "tls_failed_protocol"), 1, "failures")
    log = appliance.log_text()
    expect(log.count("[http]: TLS with the client 127.0.0.1:"), 1, f"lines in\n{log}")
    expect_in("it is plain HTTP", log, "the line")
    expect(curl(box, folder, port), "ok\n", "its health")
    appliance.stop()


GARBAGE = {"half_a_record": b"\x16\x03\x01\x02\x00", "noise": bytes(range(256)) * 64,
           "a_long_record": b"\x16\x03\x01\xff\xff" + b"x" * 70000}


@test(what=["half_a_record", "noise", "a_long_record"])
def garbage(box, what):
    """A handshake that does not end has a time limit. Bytes that are not TLS end the connection at
    once."""
    appliance, port, folder = start(box)
    raw(port, GARBAGE[what], stops=False)
    expect(curl(box, folder, port), "ok\n", "its health")
    late = 1 if what == "half_a_record" else 0
    expect(counted(appliance, "tls_failed_late"), late, "handshakes that took too long")
    failed = sum(counted(appliance, f"tls_failed_{why}") for why in ("protocol", "gone"))
    expect(failed, 1 - late, "other failures")
    expect(counted(appliance, "connections_timed_out"), 0, "timeouts of requests")
    appliance.stop()


@test()
def many_idle_connections(box):
    """Connections without a handshake, and connections that are idle after it."""
    appliance, port, folder = start(box, max_connections=4)
    context = ssl.create_default_context(cafile=f"{folder}/ca-cert.pem")

    def connect():
        return box.closing.enter_context(socket.create_connection(("127.0.0.1", port),
                                                                  BOUND_SECONDS))

    for _ in range(20):
        box.closing.enter_context(context.wrap_socket(connect(), server_hostname="localhost"))
    for _ in range(1000):
        connect()
    expect(curl(box, folder, port), "ok\n", "its health")
    wait_for(lambda: counted(appliance, "connections_replaced") >= 1017, "replaced")
    for _ in range(20):
        expect(status(box, folder, port), 200, "a scrape")
    after = appliance.stats()["heap_owner"]["heap:http"]
    expect_true(after["used_peak_bytes"] <= after["limit_bytes"], f"its limit: {after}")
    expect(after["refused"], 0, "requests for memory that were refused")
    expect(counted(appliance, "connections_peak"), 4, "the most at once")
    appliance.stop()


@test()
def memory_that_is_used_up_ends_handshakes_alone(box):
    folder = make_certificates(box)
    configuration = box.configuration()
    port = free_port()
    configuration["http"] = {"listen": [f"tcp:127.0.0.1:{port}"],
                             "tls_certificate": f"{folder}/server-cert.pem",
                             "tls_key": f"{folder}/server-key.pem"}
    configuration["limit"] = [{"owner": "heap:http", "bytes": "64 KiB"}]
    appliance = box.appliance(configuration)
    expect_true(is_refused(box, folder, port), "it is refused")
    wait_for(lambda: counted(appliance, "tls_failed_memory") >= 1, "it to be counted")
    expect_in("the memory for TLS is used up (heap:http)", appliance.log_text(), "the log")
    appliance.expect_alive()
    appliance.stop()


@test()
def prometheus_scrapes_with_a_certificate(box):
    """A real Prometheus scrapes with a client certificate."""
    prometheus = prometheus_tool("prometheus")
    folder = make_certificates(box)
    appliance, port, _ = start(box, folder, tls_client_authorities=f"{folder}/ca-cert.pem")
    own = free_port()
    box.write("prometheus.yml", json.dumps({
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{
            "job_name": "bedplate", "scheme": "https",
            "tls_config": {"ca_file": f"{folder}/ca-cert.pem", "server_name": "localhost",
                           "cert_file": f"{folder}/client-cert.pem",
                           "key_file": f"{folder}/client-key.pem"},
            "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}]}))
    box.spawn([prometheus, f"--config.file={box.path('prometheus.yml')}",
               f"--storage.tsdb.path={box.path('tsdb')}",
               f"--web.listen-address=127.0.0.1:{own}"], "prometheus.log")
    wait_for(lambda: counted(appliance, "requests") >= 3, "three scrapes")
    expect((counted(appliance, "unauthorized"), counted(appliance, "refused")), (0, 0), "refused")
    appliance.stop()


@test()
def what_is_wrong_is_told_before_anything_is_served(box):
    folder = make_certificates(box)
    configuration = box.configuration()
    http = {"listen": [f"tcp:127.0.0.1:{free_port()}"],
            "tls_certificate": f"{folder}/server-cert.pem", "tls_key": f"{folder}/client-key.pem"}

    def said(command, code, **keys):
        wanted = {key: value for key, value in {**http, **keys}.items() if value}
        file = box.write("wrong.toml", to_toml({**configuration, "http": wanted}))
        return box.bedplate(command, file, expect_code=code).stderr

    expect_in("it is not the key of the certificate", said("run", 1), "another's key")
    expect_in("its key is missing", said("plan", 2, tls_key=None), "no key")
    expect_in('"tls_key" is only for a server with a certificate',
              said("plan", 2, tls_certificate=None), "no certificate")
    expect_in("other machines can reach it, and it requires no token; set token_file or "
              "tls_client_authorities in [http]", said("plan", 2, listen=["tcp:0.0.0.0:9464"]),
              "an address that others reach")
    said("plan", 0, listen=["tcp:0.0.0.0:9464"], tls_client_authorities=f"{folder}/ca-cert.pem")
    in_clear = {"listen": ["tcp:0.0.0.0:9464"], "token_file": box.write("token", TOKEN),
                "tls_certificate": None, "tls_key": None}
    expect_in("other machines can reach it, and there is no TLS; set tls_certificate and "
              'tls_key in [http]; or, in a trusted network, set plain_text = "allowed" in [http]',
              said("plan", 2, **in_clear), "a token that goes in clear")
    said("plan", 0, plain_text="allowed", **in_clear)
