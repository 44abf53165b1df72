"""TLS with third-party clients: shared keys and certificates, and refused clients."""

import json
import os
import ssl

from harness import (BACKENDS, LAYOUTS, MIB, expect, expect_in, expect_true, free_port,
                     need_tools, test, to_toml, wait_for)
import raw_nbd as nbd
from raw_nbd import pattern

KEY_LINE = "alice:0123456789abcdef0123456789abcdef\n"
REP_ERR_TLS_REQD = nbd.REP_ERR + 5
DISK_BYTES = 16 * MIB


def secret(box, name, text):
    path = box.write(name, text)
    os.chmod(path, 0o600)
    return path


def with_keys(box, layout="one_shard", sockets="io_uring-or-epoll", **keys):
    """Starts an appliance with shared keys."""
    configuration = box.configuration(layout, sockets)
    configuration["blockd"]["tls_shared_keys"] = secret(box, "keys.psk", KEY_LINE)
    configuration["blockd"].update(keys)
    configuration["blockd"]["volume"] = [{"name": "ram0", "bytes": DISK_BYTES}]
    return box.appliance(configuration)


KEY_KINDS = {"curve": ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"), "rsa": ("rsa:2048",)}


def make_certificates(box, kind="curve"):
    """Creates a directory of certificates for libnbd and QEMU: an authority, a server and a
    client."""
    need_tools("openssl")

    def openssl(*words):
        box.run("openssl", *words)

    folder = box.path("pki")
    os.mkdir(folder)
    key = ["-newkey", *KEY_KINDS[kind], "-nodes", "-days", "30"]
    openssl("req", "-x509", *key, "-keyout", f"{folder}/ca-key.pem", "-out",
            f"{folder}/ca-cert.pem", "-subj", "/CN=authority",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    for name, usage in (("server", "serverAuth"), ("client", "clientAuth")):
        box.write("ext", f"subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage={usage}\n"
                         "keyUsage=critical,digitalSignature\n")
        openssl("req", *key, "-keyout", f"{folder}/{name}-key.pem", "-out", f"{folder}/{name}.csr",
                "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", f"{folder}/{name}.csr", "-CA", f"{folder}/ca-cert.pem",
                "-CAkey", f"{folder}/ca-key.pem", "-CAcreateserial", "-days", "30", "-out",
                f"{folder}/{name}-cert.pem", "-extfile", box.path("ext"))
        os.chmod(f"{folder}/{name}-key.pem", 0o600)
    return folder


def with_certificates(box, folder, **keys):
    configuration = box.configuration()
    configuration["blockd"].update({"tls_certificate": f"{folder}/server-cert.pem",
                                    "tls_key": f"{folder}/server-key.pem", **keys,
                                    "volume": [{"name": "ram0", "bytes": DISK_BYTES}]})
    return box.appliance(configuration)


def key_uri(appliance, name="alice", file="keys.psk", volume="ram0"):
    host = appliance.uri("tcp", volume).removeprefix("nbd://")
    return f"nbds://{name}@{host}?tls-psk-file={appliance.box.path(file)}"


def certificate_uri(appliance, folder, volume="ram0"):
    return f"nbds://{appliance.uri('tcp', volume).removeprefix('nbd://')}?tls-certificates={folder}"


def counted(appliance, counter):
    return appliance.stats()["services"]["blockd"][counter]


def copies_there_and_back(box, appliance, uri):
    image = box.write("disk.img", pattern("disk", DISK_BYTES))
    box.run("nbdcopy", image, uri)
    box.run("nbdcopy", uri, "back.img")
    box.run("cmp", image, "back.img")
    box.run("nbdcopy", appliance.uri("unix"), "plain.img")
    box.run("cmp", image, "plain.img")


@test(layout=LAYOUTS, sockets=BACKENDS)
def shared_keys(box, layout, sockets):
    need_tools("nbdinfo", "nbdcopy")
    appliance = with_keys(box, layout, sockets)
    said = json.loads(box.run("nbdinfo", "--json", key_uri(appliance)).stdout)
    expect(said["TLS"], True, "whether nbdinfo has TLS")
    copies_there_and_back(box, appliance, key_uri(appliance))
    expect_true(counted(appliance, "tls_handshakes") >= 3, "handshakes were counted")
    appliance.stop()


@test(version=["1.2", "1.3"])
def shared_keys_of_qemu(box, version):
    need_tools("qemu-img")
    appliance = with_keys(box)
    host, port = appliance.address("tcp")
    image = box.write("disk.img", pattern("disk", DISK_BYTES))
    tls = ["--object", f"tls-creds-psk,id=t,endpoint=client,username=alice,dir={box.directory},"
           f"priority=NORMAL:-VERS-ALL:+VERS-TLS{version}"]
    there = f"driver=nbd,host={host},port={port},export=ram0,tls-creds=t"
    box.run("qemu-img", "convert", *tls, "-n", "-f", "raw", "--target-image-opts", image, there)
    box.run("qemu-img", "compare", *tls, "--image-opts", f"driver=raw,file.filename={image}",
            f"driver=raw,file.driver=nbd,file.host={host},file.port={port},file.export=ram0,"
            "file.tls-creds=t")
    appliance.stop()


@test()
def many_connections_with_keys(box):
    need_tools("nbdcopy")
    appliance = with_keys(box)
    image = box.write("disk.img", pattern("disk", DISK_BYTES))
    many = ["--connections=8", "--threads=2", "--requests=32", "--request-size=1048576"]
    box.run("nbdcopy", *many, image, key_uri(appliance))
    box.run("nbdcopy", *many, key_uri(appliance), "back.img")
    box.run("cmp", image, "back.img")
    appliance.stop()


@test()
def another_key_is_refused(box):
    need_tools("nbdinfo")
    appliance = with_keys(box)
    secret(box, "wrong.psk", KEY_LINE.replace("0", "1"))
    box.run("nbdinfo", key_uri(appliance, file="wrong.psk"), expect_code=1)
    secret(box, "mallory.psk", KEY_LINE.replace("alice", "mallory"))
    box.run("nbdinfo", key_uri(appliance, "mallory", "mallory.psk"), expect_code=1)
    wait_for(lambda: counted(appliance, "tls_failed_credentials") == 2, "both to be counted")
    expect_in("[blockd]: TLS with the client", appliance.log_text(), "the log")
    box.run("nbdinfo", key_uri(appliance))
    appliance.stop()


@test()
def without_tls_nothing_is_told(box):
    """If plain text is refused, a client without TLS learns of no export."""
    need_tools("nbdinfo")
    appliance = with_keys(box, plain_text="refused")
    box.run("nbdinfo", appliance.uri("tcp"), expect_code=1)
    client = nbd.greeted(box, appliance)
    for option in (nbd.LIST, nbd.INFO, nbd.GO, nbd.STRUCTURED_REPLY, nbd.SET_META_CONTEXT, 99):
        expect(client.option_result(option), REP_ERR_TLS_REQD, f"the answer to option {option}")
    client.send(nbd.option_bytes(nbd.EXPORT_NAME, b"ram0"))
    client.expect_disconnect("EXPORT_NAME without TLS", 0)
    box.run("nbdinfo", key_uri(appliance))
    appliance.stop()


@test(key=["listen", "image_listen"])
def what_others_reach_has_tls_or_says_that_it_has_not(box, key):
    """A listener that others reach without TLS is refused before anything is taken, in a line with
    both cures."""
    configuration = box.configuration()
    blockd = configuration["blockd"]
    blockd[key] = [f"tcp:0.0.0.0:{free_port()}"]
    config = box.write("open.toml", to_toml(configuration))
    for command in ("plan", "check", "run"):
        said = box.bedplate(command, config, expect_code=2).stderr
        expect_in(f"blockd: planning to listen at {blockd[key][0]}: other machines can reach "
                  "it, and there is no TLS; set tls_certificate or tls_shared_keys in [blockd]; "
                  'or, in a trusted network, set plain_text = "allowed" in [blockd]', said,
                  f"what {command} says")
    for cure in ({"plain_text": "allowed"},
                 {"tls_shared_keys": secret(box, "keys.psk", KEY_LINE)}):
        configuration["blockd"] = {**blockd, **cure}
        box.bedplate("plan", box.write("closed.toml", to_toml(configuration)))


@test()
def what_comes_behind_starttls_in_clear_ends_it(box):
    """Plain text after STARTTLS ends the connection, because an attacker may have sent it in the
    client's name."""
    appliance = with_keys(box)
    client = nbd.greeted(box, appliance)
    client.send(nbd.option_bytes(nbd.STARTTLS) + nbd.option_bytes(nbd.STRUCTURED_REPLY))
    expect(client.option_reply().type, nbd.REP_ACK, "the answer to STARTTLS")
    client.expect_disconnect("an option in clear behind STARTTLS", 0)
    wait_for(lambda: counted(appliance, "protocol_errors") == 1, "a protocol error")
    appliance.stop()


@test(sockets=BACKENDS)
def no_handshake_lasts_for_ever(box, sockets):
    """A handshake that does not end times out, and does not delay others."""
    need_tools("nbdinfo")
    appliance = with_keys(box, sockets=sockets, handshake_timeout_ms=5000)
    clients = []
    for sent in (b"", b"\x16\x03\x01\x02\x00", b"\x16\x03\x01\x00\x40\x01\x00\x00\x3c\x03\x03"):
        clients.append(nbd.greeted(box, appliance))
        expect(clients[-1].option_result(nbd.STARTTLS), nbd.REP_ACK, "the answer to STARTTLS")
        clients[-1].send(sent)
    box.run("nbdinfo", key_uri(appliance))
    for client in clients:
        client.expect_disconnect("half a handshake", 64)
    expect(counted(appliance, "handshake_timeouts"), 3, "handshakes that took too long")
    appliance.stop()


@test()
def drains_with_clients_that_have_tls(box):
    """At a drain, clients with TLS get TLS's close alert, and are disconnected."""
    folder = make_certificates(box)
    appliance = with_certificates(box, folder)
    client = tls_client(box, appliance, folder).go()
    client.verify("drained")
    appliance.stop()
    client.expect_disconnect("the end of a drain", 0)


def tls_client(box, appliance, folder, version=ssl.TLSVersion.TLSv1_3):
    """A raw client past STARTTLS, by Python's TLS."""
    client = nbd.greeted(box, appliance)
    expect(client.option_result(nbd.STARTTLS), nbd.REP_ACK, "the answer to STARTTLS")
    context = ssl.create_default_context(cafile=f"{folder}/ca-cert.pem")
    context.minimum_version = context.maximum_version = version
    context.load_cert_chain(f"{folder}/client-cert.pem", f"{folder}/client-key.pem")
    # An end without TLS's close alert would be an error.
    client.socket = context.wrap_socket(client.socket, server_hostname="localhost",
                                        suppress_ragged_eofs=False)
    box.closing.enter_context(client.socket)
    return client


@test()
def the_last_words_of_a_record(box):
    """A disconnect request that was decrypted with other requests ends the connection, like one
    read from the socket, even if the client stays."""
    folder = make_certificates(box)
    appliance = with_certificates(box, folder)
    client = tls_client(box, appliance, folder).go()
    client.write(0, nbd.pattern("long", 40 * nbd.KIB))  # from here on one header is read ahead
    client.send(nbd.request_bytes(nbd.FLUSH, cookie=1 << 40) + nbd.request_bytes(nbd.DISC))
    expect(client.receive_struct(">IIQ")[2], 1 << 40, "the answer to the flush")
    wait_for(lambda: counted(appliance, "connections_open") == 0, "the end of the connection")
    appliance.stop()


@test(kind=KEY_KINDS)
def certificates(box, kind):
    need_tools("nbdinfo", "nbdcopy")
    folder = make_certificates(box, kind)
    appliance = with_certificates(box, folder, tls_client_authorities=f"{folder}/ca-cert.pem")
    uri = certificate_uri(appliance, folder)
    expect(json.loads(box.run("nbdinfo", "--json", uri).stdout)["TLS"], True, "TLS of nbdinfo")
    copies_there_and_back(box, appliance, uri)
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        client = tls_client(box, appliance, folder, version)
        expect(client.socket.version(), version.name.replace("_", "."), "the version")
        client.go(structured=True).verify("by certificate")
    appliance.stop()


@test()
def certificates_of_qemu(box):
    need_tools("qemu-img")
    folder = make_certificates(box)
    appliance = with_certificates(box, folder, tls_client_authorities=f"{folder}/ca-cert.pem")
    host, port = appliance.address("tcp")
    tls = ["--object", f"tls-creds-x509,id=t,endpoint=client,dir={folder}"]
    image = box.write("disk.img", pattern("disk", DISK_BYTES))
    there = f"driver=nbd,host={host},port={port},export=ram0,tls-creds=t"
    box.run("qemu-img", "convert", *tls, "-n", "-f", "raw", "--target-image-opts", image, there)
    box.run("nbdcopy", appliance.uri("unix"), "plain.img")
    box.run("cmp", image, "plain.img")
    appliance.stop()


@test()
def certificates_of_clients(box):
    """A client with a certificate of the authority is served. A client without one is refused."""
    need_tools("nbdinfo")
    folder = make_certificates(box)
    appliance = with_certificates(box, folder, tls_client_authorities=f"{folder}/ca-cert.pem")
    box.run("nbdinfo", certificate_uri(appliance, folder))
    for name in ("client-cert.pem", "client-key.pem"):
        os.remove(f"{folder}/{name}")
    box.run("nbdinfo", certificate_uri(appliance, folder), expect_code=1)
    wait_for(lambda: counted(appliance, "tls_failed_credentials") == 1, "it to be counted")
    appliance.stop()


@test()
def what_is_wrong_is_told_before_anything_is_served(box):
    folder = make_certificates(box)
    configuration = box.configuration()
    keys = box.write("open.psk", KEY_LINE)
    os.chmod(keys, 0o644)
    configuration["blockd"].update({"tls_certificate": f"{folder}/server-cert.pem",
                                    "tls_key": f"{folder}/client-key.pem",
                                    "tls_shared_keys": keys})
    file = box.write("wrong.toml", to_toml(configuration))
    said = box.bedplate("run", file, expect_code=1).stderr
    expect_in("reading the private key", said, "what is said")
    expect_in("it is not the key of the certificate", said, "what is said")
    expect_in("users other than its owner can read or write it (mode 0644); chmod 600", said,
              "what is said")
