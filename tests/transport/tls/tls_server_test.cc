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
  // Reads, and does not go on with the handshake.
  void hear_what_comes() {
    char buffer[4096];
    has_heard_something |= recv(fd.number(), buffer, sizeof buffer, MSG_DONTWAIT) > 0;
  }
  bool has_heard_something = false;
  bool is_in_clear = false;

 private:
  std::string encoded(const std::string& text) override {
    if (is_in_clear) return text;
    tls_.write(text);
    return std::exchange(tls_.sent, "");
  }
  std::string decoded(const std::string& wire) override {
    if (is_in_clear) return wire;
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
  uint64_t handshake_ns_max = 0;

  StreamLayers* make_layers() override {
    std::vector<Error> problems;
    CHECK(credentials.load({.shared_keys = folder.write("keys.psk", kSharedKeyLine)}, "[server]",
                           &problems));
    log_limit.try_pass("[server]");  // uses up the limit: failures on purpose are not logged
    const TlsEnvironment environment = {.sockets = sockets.get(),
                                        .credentials = &credentials,
                                        .counters = &tls_counters,
                                        .log_limit = &log_limit,
                                        .where = "[server]",
                                        .handshake_ns_max = handshake_ns_max};
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

  Fd make_listener(sockaddr_in* where) override {
    return listening_socket(where, at_all_addresses ? INADDR_ANY : INADDR_LOOPBACK);
  }
  bool at_all_addresses = false;

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

  // A client has said nothing, another one waits in mid-handshake; a third one is served.
  void handshakes_take_too_long() {
    handshake_ns_max = 3600 * kNsPerSecond;
    serve();
    const Client served = connect();
    const Client silent = add(std::make_shared<ServerClient>(connect_to(address)));
    auto begun = std::make_shared<TlsServerClient>(connect_to(address), kSharedKey);
    add(begun);
    begun->shake_hands();
    CHECK(run([&] { return clients.connections_open.read() == 3; }));
    loop->own_timers().expire(monotonic_ns() + 2 * handshake_ns_max);
    CHECK(run([&] { return clients.connections_open.read() == 1; }));
    CHECK_EQUAL(2, tls_counters.failed_late.read());
    CHECK_EQUAL(0, tls_counters.failed_gone.read());
    served->say("still\n");
    STRCMP_EQUAL("still\n", hear(served, 6).c_str());
    for (const Client& client : {silent, Client(begun)}) client->fd.close();
    drain();
  }

  // One that has not said if it speaks TLS may be silent: it is a client in clear so far.
  void handshakes_take_too_long_where_tls_is_offered() {
    use = LayerUse::kOffered;
    handshake_ns_max = 3600 * kNsPerSecond;
    serve();
    const Client plain = add(std::make_shared<ServerClient>(connect_to(address)));
    auto begun = std::make_shared<TlsServerClient>(connect_to(address), kSharedKey);
    add(begun);
    begun->shake_hands();
    CHECK(run([&] {
      begun->hear_what_comes();
      return begun->has_heard_something;
    }));
    loop->own_timers().expire(monotonic_ns() + 2 * handshake_ns_max);
    CHECK(run([&] { return clients.connections_open.read() == 1; }));
    CHECK_EQUAL(1, tls_counters.failed_late.read());
    begun->fd.close();
    plain->say("plain\n");
    STRCMP_EQUAL("plain\n", hear(plain, 6).c_str());
    drain();
  }

  // Another machine could reach this listener.
  void in_clear_from_elsewhere() {
    use = LayerUse::kOffered;
    at_all_addresses = true;
    serve();
    CHECK(streams->use_on(listener.number()) == LayerUse::kRequired);
    const Client plain = add(std::make_shared<ServerClient>(connect_to(address)));
    plain->say("plain\n");
    STRCMP_EQUAL("", hear_all(plain).c_str());
    LONGS_EQUAL(0, shared.line_count);
    CHECK_EQUAL(1, tls_counters.failed_protocol.read());
    plain->fd.close();
    CHECK(run([&] { return is_empty(); }));
    connect();
    drain();
  }

  // A record of a handshake, by its first byte, and then anything.
  void garbage_like_a_handshake() {
    use = LayerUse::kOffered;
    serve();
    const Client client = add(std::make_shared<ServerClient>(connect_to(address)));
    client->say("\x16garbage\n");
    CHECK(run([&] {
      client->hear_now();
      return client->has_ended();
    }));
    CHECK_EQUAL(1, tls_counters.failed_protocol.read());
    LONGS_EQUAL(0, shared.line_count);
    client->fd.close();
    CHECK(run([&] { return is_empty(); }));
    connect();
    drain();
  }

  // Requests that came before are answered; nothing is counted as broken.
  void ends_without_close_notify() {
    serve();
    const Client client = connect();
    client->say("one\nhalf");
    shutdown(client->fd.number(), SHUT_WR);
    STRCMP_EQUAL("one\n", hear_all(client).c_str());
    check_farewell(*client);
    CHECK(run([&] { return is_empty(); }));
    CHECK_EQUAL(0, tls_counters.broken_records.read());
    LONGS_EQUAL(2, shared.line_count);  // "hello" and "one"
    drain();
  }

  std::shared_ptr<TlsServerClient> in_clear_at_first() {
    auto client = std::make_shared<TlsServerClient>(connect_to(address), kSharedKey);
    client->is_in_clear = true;
    add(client);
    return client;
  }

  // STARTTLS: the session asks clients that must have TLS to begin it.
  void begins_on_request() {
    has_layer_on_request = true;
    serve();
    const auto client = in_clear_at_first();
    client->say("starttls\n");
    STRCMP_EQUAL("starttls\n", hear(client, 9).c_str());
    CHECK_EQUAL(0, tls_counters.handshakes.read());
    client->is_in_clear = false;
    CHECK(run([&] { return client->shake_hands() == SSL_ERROR_NONE; }));
    client->say("inside\nbye\n");
    STRCMP_EQUAL("inside\nbye\n", hear_all(client).c_str());
    check_farewell(*client);
    CHECK_EQUAL(1, tls_counters.handshakes.read());
    client->fd.close();
    CHECK(run([&] { return is_empty(); }));
    drain();
  }

  // Nothing of it is executed, neither if it comes with the request nor behind it.
  void refuses_text_in_clear_behind_the_request() {
    has_layer_on_request = true;
    serve();
    const auto at_once = in_clear_at_first();
    at_once->say("starttls\ninjected\n");
    STRCMP_EQUAL("", hear_all(at_once).c_str());
    CHECK_EQUAL(1, clients.connections_foreign.read());
    const auto behind = in_clear_at_first();
    behind->say("later\nstarttls\n");
    CHECK(run([&] { return shared.line_count == 3; }));
    behind->say("injected\n");
    shared.finish();
    STRCMP_EQUAL("later\nstarttls\n", hear_all(behind).substr(0, 15).c_str());
    CHECK_EQUAL(1, tls_counters.failed_protocol.read());
    LONGS_EQUAL(3, shared.line_count);
    behind->fd.close();
    CHECK(run([&] { return is_empty(); }));
    drain();
  }

  // The time of the handshake counts from the request.
  void handshakes_on_request_take_too_long() {
    has_layer_on_request = true;
    handshake_ns_max = 3600 * kNsPerSecond;
    serve();
    const auto client = in_clear_at_first();
    client->say("one\n");
    STRCMP_EQUAL("one\n", hear(client, 4).c_str());
    loop->own_timers().expire(monotonic_ns() + 2 * handshake_ns_max);
    client->say("starttls\n");
    STRCMP_EQUAL("starttls\n", hear(client, 9).c_str());
    client->shake_hands();
    CHECK(run([&] {
      client->hear_what_comes();
      return client->has_heard_something;
    }));
    CHECK_EQUAL(1, clients.connections_open.read());
    loop->own_timers().expire(monotonic_ns() + 2 * handshake_ns_max);
    CHECK(run([&] { return is_empty(); }));
    CHECK_EQUAL(1, tls_counters.failed_late.read());
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
BP_BOTH_BACKENDS(TlsServer, ServesClientsInClearWhereTlsIsOffered, offered())
BP_BOTH_BACKENDS(TlsServer, BeginsTlsInMidConnection, begins_on_request())
BP_BOTH_BACKENDS(TlsServer, RefusesTextInClearBehindTheRequestForTls,
                 refuses_text_in_clear_behind_the_request())
BP_BOTH_BACKENDS(TlsServer, ClosesHandshakesOnRequestThatTakeTooLong,
                 handshakes_on_request_take_too_long())
BP_BOTH_BACKENDS(TlsServer, ClosesHandshakesThatTakeTooLong, handshakes_take_too_long())
BP_BOTH_BACKENDS(TlsServer, LimitsOnlyHandshakesWhereTlsIsOffered,
                 handshakes_take_too_long_where_tls_is_offered())
BP_BOTH_BACKENDS(TlsServer, RefusesAClientInClearFromElsewhere, in_clear_from_elsewhere())
BP_BOTH_BACKENDS(TlsServer, RefusesGarbageThatBeginsAsAHandshake, garbage_like_a_handshake())
BP_BOTH_BACKENDS(TlsServer, AnswersAClientThatEndsWithoutCloseNotify, ends_without_close_notify())
