// A server of lines whose connections are within TLS: all that holds without it, and clients that
// speak none, or have another key.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/sockets/stream_server.h"
#include "transport/tls/tls_streams.h"

#include "tests/transport/sockets/stream_server_bodies.h"
#include "tests/transport/tls/tls_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

class TlsServerClient final : public ServerClient {
 public:
  TlsServerClient(Fd connected, const std::string& key) : ServerClient(std::move(connected)) {
    tls_.share("alice", key);
    tls_.start();
  }
  // Goes on with the handshake. Returns an outcome as TlsClient::handshake().
  int shake_hands() {
    char buffer[4096];
    const ssize_t got = recv(fd.number(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got > 0) tls_.arriving.append(buffer, static_cast<size_t>(got));
    is_at_end = got == 0;
    const int outcome = tls_.handshake();
    send_all(std::exchange(tls_.sent, ""));
    return outcome;
  }

 private:
  std::string encoded(const std::string& text) override {
    tls_.write(text);
    return std::exchange(tls_.sent, "");
  }
  std::string decoded(const std::string& wire) override {
    tls_.arriving += wire;
    const std::string text = tls_.read();
    has_heard_farewell |= tls_.last_read == SSL_ERROR_ZERO_RETURN;
    return text;
  }
  std::string farewell() override {
    tls_.close_notify();
    return std::exchange(tls_.sent, "");
  }

  TlsClient tls_;
};

}  // namespace

class TlsServerBodies : public ServerBodies {
 public:
  TlsFolder folder;
  TlsCredentials credentials;
  TlsCounters tls_counters;
  LogLimit log_limit{1};
  StreamMemory memory_of_streams{TlsStreams::bytes_for(kConnections)};
  std::unique_ptr<TlsStreams> streams;
  LayerUse use = LayerUse::kRequired;
  uint64_t slow_ns_max = 0;

  void adjust(StreamServerOptions* options) override {
    options->patience.slow_ns_max = slow_ns_max;
  }

  StreamLayers* make_layers() override {
    std::vector<Error> problems;
    CHECK(credentials.load({.shared_keys = folder.write("keys.psk", kSharedKeyLine)}, "[server]",
                           &problems));
    log_limit.try_pass("[server]");  // uses up the limit: failures on purpose are not logged
    const TlsEnvironment environment = {.sockets = sockets.get(),
                                        .credentials = &credentials,
                                        .counters = &tls_counters,
                                        .log_limit = &log_limit,
                                        .where = "[server]"};
    streams = std::make_unique<TlsStreams>(environment, memory_of_streams.aligned(), use,
                                           LayerUse::kRequired);
    return streams.get();
  }
  Client make_client(Fd fd) override {
    auto client = std::make_shared<TlsServerClient>(std::move(fd), kSharedKey);
    CHECK(run([&] { return client->shake_hands() == SSL_ERROR_NONE; }));
    return client;
  }

  void counts() {
    serve();
    const Client client = connect();
    CHECK_EQUAL(1, tls_counters.handshakes.read());
    CHECK_EQUAL(6, tls_counters.read_bytes.read());
    CHECK_EQUAL(6, tls_counters.written_bytes.read());
    drain();
  }

  // OpenSSL has no answer to what is no TLS. The client, which goes on sending, sees the end and no
  // reset.
  void in_clear() {
    serve();
    const Client plain = add(std::make_shared<ServerClient>(connect_to(address)));
    const std::string garbage(1000, 'x');
    std::string heard;
    CHECK(run([&] {
      plain->say_now(garbage);
      heard += plain->hear_now();
      return plain->has_ended();
    }));
    CHECK(plain->is_at_end && heard.empty());
    CHECK_EQUAL(1, tls_counters.failed_protocol.read());
    LONGS_EQUAL(0, shared.line_count);
    plain->fd.close();
    CHECK(run([&] { return is_empty(); }));
    drain();
  }

  // The client hears why, by an alert.
  void another_key() {
    serve();
    TlsServerClient client(connect_to(address), "another");
    CHECK(run([&] { return client.shake_hands() == SSL_ERROR_SSL; }));
    CHECK_EQUAL(1, tls_counters.failed_credentials.read());
    client.fd.close();
    CHECK(run([&] { return is_empty(); }));
    connect();
    drain();
  }

  // The client leaves in the middle of the handshake.
  void leaves_in_the_handshake() {
    serve();
    auto client = std::make_unique<TlsServerClient>(connect_to(address), kSharedKey);
    client->shake_hands();
    client->fd.close();
    CHECK(run([&] { return tls_counters.failed_gone.read() == 1 && is_empty(); }));
    drain();
  }

  // A handshake has the time limit of a request, from its first byte.
  void late_in_the_handshake() {
    slow_ns_max = 20 * kNsPerMs;
    serve();
    const Client silent = add(std::make_shared<ServerClient>(connect_to(address)));
    const Client half = add(std::make_shared<ServerClient>(connect_to(address)));
    half->say(std::string("\x16\x03\x01\x02\x00", 5));
    STRCMP_EQUAL("", hear_all(half).c_str());
    CHECK_EQUAL(1, tls_counters.failed_gone.read());
    CHECK_EQUAL(1, clients.connections_timed_out.read());
    CHECK_FALSE(silent->has_ended());
    drain();
  }

  void offered() {
    use = LayerUse::kOffered;
    serve();
    CHECK(streams->use_on(listener.number()) == LayerUse::kOffered);
    const Client secure = connect();
    const Client plain = add(std::make_shared<ServerClient>(connect_to(address)));
    plain->say("plain\n");
    STRCMP_EQUAL("plain\n", hear(plain, 6).c_str());
    secure->say("secure\n");
    STRCMP_EQUAL("secure\n", hear(secure, 7).c_str());
    CHECK_EQUAL(1, tls_counters.handshakes.read());
    drain();
  }
};

BP_GROUPS_OF_BOTH_BACKENDS(TlsServer, TlsServerBodies);

BP_SERVER_TESTS(TlsServer)
BP_BOTH_BACKENDS(TlsServer, CountsHandshakesAndBytes, counts())
BP_BOTH_BACKENDS(TlsServer, RefusesAClientInClear, in_clear())
BP_BOTH_BACKENDS(TlsServer, RefusesAnotherKey, another_key())
BP_BOTH_BACKENDS(TlsServer, CountsAClientThatLeavesInTheHandshake, leaves_in_the_handshake())
BP_BOTH_BACKENDS(TlsServer, EndsAClientThatIsLateInTheHandshake, late_in_the_handshake())
BP_BOTH_BACKENDS(TlsServer, ServesClientsInClearWhereTlsIsOffered, offered())
