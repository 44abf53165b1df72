"""kvd within TLS: Python's TLS and openssl s_client are served, others are refused, and each end is
told."""

import os
import signal
import ssl

from harness import (BACKENDS, KIB, MIB, Failure, expect, expect_in, expect_true, free_port,
                     need_tools, test, to_toml, wait_for)
from kvd_test import Client, start
from tls_test import KEY_LINE, make_certificates, secret

VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


def start_secure(box, sockets="io_uring-or-epoll", folder=None, **keys):
    """Starts an appliance with a certificate. Returns it, and the folder of the certificates."""
    folder = folder or make_certificates(box)
    keys = {"tls_certificate": f"{folder}/server-cert.pem", "tls_key": f"{folder}/server-key.pem",
            "max_connections": 16, **keys}
    return start(box, sockets, **keys), folder


class SecureClient(Client):
    """A client by Python's TLS. An end without TLS's close alert is an error."""

    def __init__(self, box, appliance, folder, transport="tcp", version=None, has_certificate=True):
        super().__init__(box, appliance, transport)
        context = ssl.create_default_context(cafile=f"{folder}/ca-cert.pem")
        if version is not None:
            context.minimum_version = context.maximum_version = version
        if has_certificate:
            context.load_cert_chain(f"{folder}/client-cert.pem", f"{folder}/client-key.pem")
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost",
                                          suppress_ragged_eofs=False)
        box.closing.enter_context(self.socket)
        self.input = self.socket.makefile("rb")


@test(sockets=BACKENDS, version=VERSIONS, plain_text=["local", "refused"])
def values_of_all_sizes(box, sockets, version, plain_text):
    appliance, folder = start_secure(box, sockets, plain_text=plain_text)
    for transport in ("tcp", "unix"):
        client = SecureClient(box, appliance, folder, transport, VERSIONS[version])
        expect(client.socket.version(), f"TLSv{version}", "the version")
        for size in (0, 1, 1023, 4097, 16 * KIB, 100_000, MIB):
            value = os.urandom(size)
            expect(client.store(b"key", value), b"STORED\r\n", f"a set of {size} bytes")
            expect_true(client.get(b"key") == value, f"a get of {size} bytes is what was set")
    expect(appliance.counter("tls_handshakes"), 2, "handshakes that were counted")
    expect_true(appliance.counter("tls_read_bytes") > 2 * MIB, "bytes that were counted")
    appliance.stop()


@test(sockets=BACKENDS)
def pipelines_in_any_pieces(box, sockets):
    """Requests are answered in order, whatever the borders of the records."""
    appliance, folder = start_secure(box, sockets)
    client = SecureClient(box, appliance, folder)
    requests = b"".join(b"set k%d 0 0 3\r\n%03d\r\nget k%d\r\n" % (i, i, i) for i in range(100))
    wanted = b"".join(b"STORED\r\nVALUE k%d 0 3\r\n%03d\r\nEND\r\n" % (i, i) for i in range(100))
    for piece in (7, 1000, len(requests)):
        for at in range(0, len(requests), piece):
            client.send(requests[at:at + piece])
        expect(client.input.read(len(wanted)), wanted, f"answers to pieces of {piece}")
    appliance.stop()


def by_openssl(box, appliance, *words):
    """The answers that openssl s_client gets to some requests, until the server has closed."""
    need_tools("openssl")
    host, port = appliance.address("tcp")
    return box.run("openssl", "s_client", "-quiet", "-connect", f"{host}:{port}", *words,
                   input="set a 0 0 5\r\nhello\r\nget a\r\nquit\r\n", expect_code=None).stdout


@test()
def s_client(box):
    appliance, folder = start_secure(box, plain_text="refused")
    heard = by_openssl(box, appliance, "-CAfile", f"{folder}/ca-cert.pem", "-verify_return_error",
                       "-verify_hostname", "localhost")
    expect_in("STORED\nVALUE a 0 5\nhello\nEND\n", heard, "what s_client hears")
    appliance.stop()


@test()
def shared_keys(box):
    """Clients with a shared key are served. A client with another key is refused."""
    appliance = start(box, "io_uring-or-epoll", max_connections=16, plain_text="refused",
                      tls_shared_keys=secret(box, "keys.psk", KEY_LINE))
    name, key = KEY_LINE.strip().split(":")
    heard = by_openssl(box, appliance, "-psk_identity", name, "-psk", key)
    expect_in("STORED\nVALUE a 0 5\nhello\nEND\n", heard, "what s_client hears")
    expect(by_openssl(box, appliance, "-psk_identity", name, "-psk", key.replace("0", "1")), "",
           "what one with another key hears")
    wait_for(lambda: appliance.counter("tls_failed_credentials") == 1, "it to be counted")
    expect_in("[kvd]: TLS with the client", appliance.log_text(), "the log")
    appliance.stop()


@test(sockets=BACKENDS)
def an_error_arrives_before_the_end(box, sockets):
    """An error reaches a client that is still sending, and TLS's close alert follows."""
    appliance, folder = start_secure(box, sockets)
    client = SecureClient(box, appliance, folder)
    keys = [b"session:%08d:user-profile-cache" % i for i in range(1000)]
    client.send(b"delete " + b" ".join(keys) + b"\r\n")
    expect(client.line(), b"CLIENT_ERROR line too long\r\n", "a line that is no get")
    expect(client.line(), b"", "then the end")
    client.socket.close()
    client.input.close()
    wait_for(lambda: appliance.counter("connections_open") == 0, "its connection's end")
    appliance.stop()


@test(sockets=BACKENDS)
def in_clear_beside_tls(box, sockets):
    """A local listener serves clients with and without TLS."""
    appliance, folder = start_secure(box, sockets)
    for transport in ("tcp", "unix"):
        plain = Client(box, appliance, transport)
        expect(plain.store(b"key", b"in clear"), b"STORED\r\n", "a set in clear")
        client = SecureClient(box, appliance, folder, transport)
        expect(client.get(b"key"), b"in clear", "a get within TLS")
    expect(appliance.counter("connections_foreign"), 0, "clients taken for those of TLS")
    appliance.stop()


@test(sockets=BACKENDS, transport=["tcp", "unix"])
def in_clear_where_it_is_refused(box, sockets, transport):
    """Nothing that comes in clear is executed or answered."""
    appliance, folder = start_secure(box, sockets, plain_text="refused")
    plain = Client(box, appliance, transport)
    expect(plain.store(b"key", bytes(10_000)), b"", "what one hears that has no TLS")
    expect(SecureClient(box, appliance, folder, transport).get(b"key"), None, "what it stored")
    wait_for(lambda: appliance.counter("tls_failed_protocol") == 1, "it to be counted")
    appliance.stop()


@test(sockets=BACKENDS)
def handshakes_that_take_too_long(box, sockets):
    """Clients that do not end their handshake are disconnected after ten seconds, no others."""
    appliance, folder = start_secure(box, sockets, plain_text="refused")
    client = SecureClient(box, appliance, folder)
    silent, begun = Client(box, appliance), Client(box, appliance, "unix")
    begun.send(b"\x16\x03\x01\x02\x00\x01")  # a record of 512 bytes, which do not follow
    expect(silent.line(), b"", "what a client hears that says nothing")
    expect(begun.line(), b"", "what one hears that has begun")
    expect(appliance.counter("tls_failed_late"), 2, "handshakes that took too long")
    expect_in("took too long for the handshake", appliance.log_text(), "the log")
    expect(client.store(b"key", b"x"), b"STORED\r\n", "a set of a client that was silent since")
    appliance.stop()


@test(sockets=BACKENDS)
def certificates_of_clients(box, sockets):
    """A client without a certificate is refused, and hears why, though it is already sending."""
    folder = make_certificates(box)
    appliance, _ = start_secure(box, sockets, folder,
                                tls_client_authorities=f"{folder}/ca-cert.pem")
    expect(SecureClient(box, appliance, folder).store(b"key", b"x"), b"STORED\r\n", "a set")
    client = SecureClient(box, appliance, folder, version=ssl.TLSVersion.TLSv1_3,
                          has_certificate=False)
    try:
        raise Failure(f"a client without a certificate hears {client.store(b'key', bytes(MIB))}")
    except ssl.SSLError as error:
        expect_in("CERTIFICATE_REQUIRED", str(error), "what it hears")
    wait_for(lambda: appliance.counter("tls_failed_credentials") == 1, "it to be counted")
    appliance.stop()


@test(sockets=BACKENDS)
def drain(box, sockets):
    """A drain answers what has come, and tells each client the end, whatever it was doing."""
    appliance, folder = start_secure(box, sockets)
    stuck = SecureClient(box, appliance, folder, "unix")
    idle, half = (SecureClient(box, appliance, folder) for _ in range(2))
    silent = Client(box, appliance)
    value = os.urandom(MIB)
    expect(idle.store(b"big", value), b"STORED\r\n", "a set")
    stuck.send(b"get big\r\n" * 8)  # one send: the first reply shows that all arrived
    first = stuck.input.read(1)
    half.send(b"set a 0 0 100000\r\nnot all of it")
    wait_for(lambda: appliance.counter("connections_open") == 4, "all clients")
    appliance.process.send_signal(signal.SIGTERM)
    expect(idle.line(), b"", "what an idle client hears")
    expect(half.line(), b"", "what one hears whose request was half sent")
    expect(silent.line(), b"", "what one hears that has said nothing")
    appliance.expect_alive()
    reply = b"VALUE big 0 %d\r\n" % MIB + value + b"\r\nEND\r\n"
    expect_true(first + stuck.input.read(8 * len(reply) - 1) == reply * 8, "eight replies")
    expect(stuck.line(), b"", "then the end")
    expect(appliance.wait_exit(), 0, "the exit code after SIGTERM")
    appliance.expect_nothing_left()


@test()
def others_may_reach_it(box):
    """With keys for TLS kvd may listen to other machines, which must use it."""
    port = free_port()
    appliance, folder = start_secure(box, listen=[f"tcp:0.0.0.0:{port}",
                                                  f"unix:{box.path('kvd.sock')}"])
    expect(SecureClient(box, appliance, folder).store(b"key", b"x"), b"STORED\r\n", "a set")
    expect(Client(box, appliance).ask(b"get key\r\n"), b"", "what one hears that has no TLS")
    expect(Client(box, appliance, "unix").get(b"key"), b"x", "a get in clear on this machine")
    appliance.stop()


@test()
def what_is_wrong_is_told_before_anything_is_served(box):
    folder = make_certificates(box)
    configuration = box.configuration()
    tables = {name: configuration[name] for name in ("appliance", "pool", "shard")}

    def said(command, code, **keys):
        tables["kvd"] = {"listen": [f"tcp:127.0.0.1:{free_port()}"], "max_connections": 16, **keys}
        return box.bedplate(command, box.write("kvd.toml", to_toml(tables)),
                            expect_code=code).stderr

    certificate = {"tls_certificate": f"{folder}/server-cert.pem"}
    expect_in("its key is missing", said("plan", 2, **certificate), "what plan says")
    for command in ("check", "run"):
        wrong = said(command, 1, **certificate, tls_key=f"{folder}/client-key.pem",
                     tls_shared_keys=f"{folder}/none.psk")
        expect_in("it is not the key of the certificate", wrong, f"what {command} says")
        expect_in(f"reading the shared keys {folder}/none.psk for [kvd]", wrong,
                  f"what {command} says")
