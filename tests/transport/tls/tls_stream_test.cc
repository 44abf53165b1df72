// TLS between a socket of each backend and its user: data in both directions, split buffers, back
// pressure, ends, failures, and a client that sends no TLS.
#include "transport/tls/tls_stream.h"

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "tests/transport/sockets/stream_sockets_fixture.h"
#include "tests/transport/tls/tls_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

class TlsStreamBodies : public SocketsFixture {
 public:
  TlsFolder folder;
  TlsCredentials credentials;
  TlsCounters tls_counters;
  LogLimit log_limit{1};
  TlsEnvironment environment;
  std::unique_ptr<TlsStream> stream;
  std::unique_ptr<TlsClient> client = std::make_unique<TlsClient>();
  uint32_t wake_count = 0;

  void begin() {
    std::vector<Error> problems;
    CHECK(credentials.load({.shared_keys = folder.write("keys.psk", kSharedKeyLine)}, "[server]",
                           &problems));
    environment = {.sockets = sockets.get(),
                   .credentials = &credentials,
                   .counters = &tls_counters,
                   .log_limit = &log_limit,
                   .where = "[server]"};
    log_limit.try_pass("[server]");  // uses up the limit: failures on purpose are not logged
    stream = std::make_unique<TlsStream>(environment);
    connect_pair();
    set_blocking(peer.number(), false);
    stream->open(
        ours.socket, [](void* self) noexcept { ++static_cast<TlsStreamBodies*>(self)->wake_count; },
        this);
    client->share("alice", kSharedKey);
    client->start();
  }
  void teardown() override {
    // The stream has the socket now.
    if (stream != nullptr && stream->is_open()) {
      end_stream();
      ours_fd.close();
    }
    SocketsFixture::teardown();
  }
  void end_stream() {
    if (ours.socket.receive.is_in_flight || ours.socket.send.is_in_flight) stream->abort();
    CHECK(run([&] {
      return !ours.socket.receive.is_in_flight && !ours.socket.send.is_in_flight &&
             stream->say_end();
    }));
    stream->close();
    ours_fd.close();
  }

  // Runs the stream after it was woken, as a shard does.
  template <typename Condition>
  bool run(Condition condition) {
    return run_until([&] {
      exchange();
      if (std::exchange(wake_count, 0) > 0) stream->run();
      CHECK(stream->is_valid());
      return condition();
    });
  }
  // Moves the client's bytes, out and in.
  void exchange() {
    if (!peer.is_open()) return;
    const size_t wrote =
        write_now(peer.number(), reinterpret_cast<const std::byte*>(client->sent.data()),
                  client->sent.size());
    client->sent.erase(0, wrote);
    std::byte part[4096];
    while (const size_t got = read_now(peer.number(), part, sizeof part)) {
      client->arriving.append(reinterpret_cast<const char*>(part), got);
    }
  }
  void receive_by_tls(std::byte* to, size_t bytes, uint64_t min_bytes = 1) {
    ours.receive_pieces = {{to, bytes / 3}, {to + bytes / 3, bytes - bytes / 3}};
    ours.socket.receive.pieces = ours.receive_pieces.data();
    ours.socket.receive.piece_count = 2;
    ours.socket.receive.min_bytes = min_bytes;
    const uint32_t before = ours.receive_count;
    stream->receive();
    LONGS_EQUAL(before, ours.receive_count);  // never from within receive()
  }
  void send_by_tls(std::byte* from, size_t bytes) {
    ours.send_pieces = {{from, bytes / 2}, {from + bytes / 2, bytes - bytes / 2}};
    ours.socket.send.pieces = ours.send_pieces.data();
    ours.socket.send.piece_count = 2;
    stream->send();
  }
  // The handshake makes progress during a receive.
  void agree(std::byte* to, size_t bytes, uint64_t min_bytes = 1) {
    receive_by_tls(to, bytes, min_bytes);
    CHECK(run([&] { return client->handshake() == 0; }));
    CHECK(run([&] { return tls_counters.handshakes.read() == 1; }));
  }

  void both_directions() {
    begin();
    std::vector<std::byte> memory(200'000);
    agree(memory.data(), memory.size(), 100'000);
    const auto said = pattern_bytes(0, 150'000);
    client->write({reinterpret_cast<const char*>(said.data()), said.size()});
    CHECK(run([&] { return ours.receive_count == 1; }));
    CHECK(ours.received >= 100'000);
    auto got = static_cast<uint64_t>(ours.received);
    while (got < said.size()) {
      const uint32_t before = ours.receive_count;
      receive_by_tls(memory.data() + got, memory.size() - got);
      CHECK(run([&] { return ours.receive_count > before; }));
      got += static_cast<uint64_t>(ours.received);
    }
    LONGS_EQUAL(150'000, got);
    CHECK(is_pattern(memory.data(), got, 0));
    CHECK_EQUAL(got, tls_counters.read_bytes.read());

    auto back = pattern_bytes(0, 1'000'000);
    send_by_tls(back.data(), back.size());
    std::string heard;
    CHECK(run([&] {
      heard += client->read();
      return heard.size() == back.size() && ours.send_count == 1;
    }));
    LONGS_EQUAL(1'000'000, ours.sent);
    CHECK(is_pattern(reinterpret_cast<const std::byte*>(heard.data()), heard.size(), 0));
    CHECK_EQUAL(uint64_t{1'000'000}, tls_counters.written_bytes.read());
    CHECK(heap_owner_use(credentials.owner()).name == OwnerName("heap:tls"));
  }

  // Bytes that no receive takes wait in the client.
  void back_pressure() {
    begin();
    std::vector<std::byte> memory(1000);
    agree(memory.data(), memory.size());
    const std::string much(16'000, 'm');
    for (int i = 0; i < 1000; ++i) client->write(much);
    CHECK(run([&] { return ours.receive_count == 1; }));
    const size_t before = client->sent.size();
    size_t still = 0;
    CHECK(run([&] {
      still = client->sent.size() == before ? still + 1 : 0;
      return still > 20 || client->sent.size() < before / 2;
    }));
    CHECK(client->sent.size() > before / 2);
  }

  void end_of_the_peer() {
    begin();
    std::vector<std::byte> memory(1000);
    agree(memory.data(), memory.size());
    client->write("last");
    client->close_notify();
    CHECK(run([&] { return ours.receive_count == 1; }));
    LONGS_EQUAL(4, ours.received);
    receive_by_tls(memory.data(), memory.size());
    CHECK(run([&] { return ours.receive_count == 2; }));
    LONGS_EQUAL(0, ours.received);
    // The peer may still read the answers to its requests.
    send_by_tls(memory.data(), 100);
    CHECK(run([&] { return ours.send_count == 1; }));
    LONGS_EQUAL(100, ours.sent);
  }

  void own_end() {
    begin();
    std::vector<std::byte> memory(1000);
    agree(memory.data(), memory.size());
    client->write("x");
    CHECK(run([&] { return ours.receive_count == 1; }));
    end_stream();
    CHECK(run_until([&] {
      exchange();
      client->read();
      return client->last_read != SSL_ERROR_WANT_READ;
    }));
    LONGS_EQUAL(SSL_ERROR_ZERO_RETURN, client->last_read);
  }

  void no_tls() {
    begin();
    std::vector<std::byte> memory(1000);
    receive_by_tls(memory.data(), memory.size());
    client->sent = "IHAVEOPT and so on, in clear";
    CHECK(run([&] { return ours.receive_count == 1; }));
    LONGS_EQUAL(-EPROTO, ours.received);
    LONGS_EQUAL(1, tls_counters.failed_protocol.read());
  }

  void another_key() {
    begin();
    client = std::make_unique<TlsClient>();
    client->share("alice", "another");
    client->start();
    std::vector<std::byte> memory(1000);
    receive_by_tls(memory.data(), memory.size());
    bool is_told = false;  // the client learns the reason before the end
    CHECK(run([&] {
      is_told |= client->handshake() == SSL_ERROR_SSL;
      return ours.receive_count == 1 && is_told;
    }));
    LONGS_EQUAL(-EPROTO, ours.received);
    LONGS_EQUAL(1, tls_counters.failed_credentials.read());
  }

  void leaves_in_the_handshake() {
    begin();
    std::vector<std::byte> memory(1000);
    receive_by_tls(memory.data(), memory.size());
    client->handshake();
    CHECK(run([&] { return client->sent.empty(); }));
    peer.close();
    CHECK(run([&] { return ours.receive_count == 1; }));
    CHECK(ours.received < 0);
    LONGS_EQUAL(1, tls_counters.failed_gone.read());
  }

  void changed_record() {
    begin();
    std::vector<std::byte> memory(1000);
    agree(memory.data(), memory.size());
    client->write("hello");
    client->sent.back() = static_cast<char>(client->sent.back() ^ 1);
    CHECK(run([&] { return ours.receive_count == 1; }));
    LONGS_EQUAL(-EPROTO, ours.received);
    LONGS_EQUAL(1, tls_counters.broken_records.read());
    send_by_tls(memory.data(), 10);
    CHECK(run([&] { return ours.send_count == 1; }));
    LONGS_EQUAL(-EPROTO, ours.sent);
  }

  // Half of a key change has come, and no receive is under way. The stream receives the other half
  // all the same, because the send waits for it.
  void split_change_of_keys() {
    constexpr uint8_t kHandshake = 22;
    LONGS_EQUAL(1, client->offer_13("TLS_AES_128_GCM_SHA256"));
    begin();
    std::vector<std::byte> memory(1000);
    agree(memory.data(), memory.size());
    const std::string update = {SSL3_MT_KEY_UPDATE, 0, 0, 1, SSL_KEY_UPDATE_NOT_REQUESTED};
    client->write("x");
    client->sent += client->record(1, update.substr(0, 4), kHandshake);
    CHECK(run([&] { return ours.receive_count == 1; }));
    LONGS_EQUAL(1, ours.received);
    CHECK(run([&] { return client->sent.empty(); }));
    auto back = pattern_bytes(0, 100'000);
    send_by_tls(back.data(), back.size());
    client->sent = client->record(2, update.substr(4), kHandshake);
    std::string heard;
    CHECK(run([&] {
      heard += client->read();
      return ours.send_count == 1 && heard.size() == back.size();
    }));
    LONGS_EQUAL(100'000, ours.sent);
    CHECK(is_pattern(reinterpret_cast<const std::byte*>(heard.data()), heard.size(), 0));
  }

  // The peer takes nothing, and neither direction can go on.
  void aborted() {
    begin();
    std::vector<std::byte> memory(1000);
    agree(memory.data(), memory.size());
    auto much = pattern_bytes(0, 4'000'000);
    send_by_tls(much.data(), much.size());
    for (int i = 0; i < 20; ++i) {
      if (std::exchange(wake_count, 0) > 0) stream->run();
      pump();
    }
    LONGS_EQUAL(0, ours.send_count);
    stream->abort();
    LONGS_EQUAL(0, ours.send_count);
    CHECK(run_until([&] {
      if (std::exchange(wake_count, 0) > 0) stream->run();
      return ours.send_count == 1 && ours.receive_count == 1;
    }));
    CHECK(ours.sent < 0 && ours.received < 0);
  }
};

}  // namespace

BP_GROUPS_OF_BOTH_BACKENDS(TlsStream, TlsStreamBodies);
BP_BOTH_BACKENDS(TlsStream, MovesBytesInBothDirections, both_directions())
BP_BOTH_BACKENDS(TlsStream, LeavesWithThePeerWhatIsNotWanted, back_pressure())
BP_BOTH_BACKENDS(TlsStream, SaysThatThePeerHasEnded, end_of_the_peer())
BP_BOTH_BACKENDS(TlsStream, SaysItsOwnEnd, own_end())
BP_BOTH_BACKENDS(TlsStream, RefusesAClientThatSpeaksNoTls, no_tls())
BP_BOTH_BACKENDS(TlsStream, RefusesAnotherKey, another_key())
BP_BOTH_BACKENDS(TlsStream, CountsAPeerThatLeavesInTheHandshake, leaves_in_the_handshake())
BP_BOTH_BACKENDS(TlsStream, SendsAfterAChangeOfKeysThatCameInTwo, split_change_of_keys())
BP_BOTH_BACKENDS(TlsStream, EndsAfterARecordThatWasChanged, changed_record())
BP_BOTH_BACKENDS(TlsStream, EndsWhatIsInFlightWhenItIsAborted, aborted())
