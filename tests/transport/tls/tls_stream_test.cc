// TLS between a socket of each backend and its user: data in both directions, split buffers, back
// pressure, ends, failures, and a client that sends no TLS.
#include "transport/tls/tls_stream.h"

#include <cerrno>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/transport/sockets/stream_memory.h"
#include "tests/transport/sockets/stream_sockets_fixture.h"
#include "tests/transport/tls/tls_rig.h"
#include "transport/tls/tls_streams.h"

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
  StreamMemory memory_of_streams{TlsStreams::bytes_for(1)};
  std::unique_ptr<TlsStreams> streams;
  TlsStream* stream = nullptr;
  std::unique_ptr<TlsClient> client = std::make_unique<TlsClient>();
  uint32_t said_end_count = 0;
  uint64_t handshake_ns_max = 0;

  void begin() {
    client->share("alice", kSharedKey);
    client->start();
    begin_with({});
  }
  // `early`: bytes of the client that its user received before the stream was there.
  void begin_with(std::string_view early) {
    std::vector<Error> problems;
    CHECK(credentials.load({.shared_keys = folder.write("keys.psk", kSharedKeyLine)}, "[server]",
                           &problems));
    const TlsEnvironment environment = {.sockets = sockets.get(),
                                        .credentials = &credentials,
                                        .counters = &tls_counters,
                                        .log_limit = &log_limit,
                                        .where = "[server]",
                                        .handshake_ns_max = handshake_ns_max};
    log_limit.try_pass("[server]");  // uses up the limit: failures on purpose are not logged
    streams = std::make_unique<TlsStreams>(environment, memory_of_streams.aligned(),
                                           LayerUse::kOffered, LayerUse::kRequired);
    stream = &streams->make_stream();
    connect_pair();
    set_blocking(peer.number(), false);
    open(early);
  }
  void open(std::string_view early = {}) {
    stream->open(
        ours.socket, std::as_bytes(std::span(early)),
        [](void* self) noexcept { ++static_cast<TlsStreamBodies*>(self)->said_end_count; }, this);
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

  // Polls the streams after the sockets, as a shard does.
  template <typename Condition>
  bool run(Condition condition) {
    return run_until([&] {
      exchange();
      streams->poll(64);
      CHECK(stream->is_valid() && streams->is_valid());
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

  // A client that shows no certificate; and the state of the handshake, from its first byte on.
  void handshake_and_certificate() {
    begin();
    std::byte memory[16];
    CHECK_FALSE(stream->is_in_handshake());
    client->handshake();
    const std::string hello = std::exchange(client->sent, "");
    client->sent = hello.substr(0, 5);
    receive_by_tls(memory, sizeof memory);
    CHECK(run([&] { return stream->is_in_handshake(); }));
    client->sent += hello.substr(5);
    CHECK(run([&] { return client->handshake() == 0; }));
    CHECK(run([&] { return tls_counters.handshakes.read() == 1; }));
    CHECK_FALSE(stream->is_in_handshake() || stream->is_certified());
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

  // The clock of the timers runs ahead.
  void let_the_handshakes_time_pass() {
    loop->own_timers().expire(loop->look_at_clock() + handshake_ns_max);
  }

  // A part of the client's first message has come; the user receives and sends.
  void handshake_takes_too_long() {
    handshake_ns_max = 3600 * kNsPerSecond;
    begin();
    std::vector<std::byte> memory(1000);
    receive_by_tls(memory.data(), memory.size());
    send_by_tls(memory.data(), 100);
    client->handshake();
    client->sent.resize(10);
    CHECK(run([&] { return client->sent.empty() && unread_bytes(ours_fd.number()) == 0; }));
    let_the_handshakes_time_pass();
    CHECK(run([&] { return ours.receive_count == 1 && ours.send_count == 1; }));
    LONGS_EQUAL(-ETIMEDOUT, ours.received);
    LONGS_EQUAL(-ETIMEDOUT, ours.sent);
    LONGS_EQUAL(1, tls_counters.failed_late.read());
    LONGS_EQUAL(0, tls_counters.failed_gone.read());
    std::byte none;
    LONGS_EQUAL(0, recv(peer.number(), &none, 1, 0));  // the client sees the end
  }

  // The time counts while nothing is in flight, too: the next operation ends.
  void silence_takes_too_long() {
    handshake_ns_max = 3600 * kNsPerSecond;
    begin();
    let_the_handshakes_time_pass();
    LONGS_EQUAL(1, tls_counters.failed_late.read());
    std::vector<std::byte> memory(1000);
    receive_by_tls(memory.data(), memory.size());
    CHECK(run([&] { return ours.receive_count == 1; }));
    LONGS_EQUAL(-ETIMEDOUT, ours.received);
  }

  void handshake_in_time() {
    handshake_ns_max = 3600 * kNsPerSecond;
    begin();
    std::vector<std::byte> memory(1000);
    agree(memory.data(), memory.size());
    let_the_handshakes_time_pass();
    client->write("hello");
    CHECK(run([&] { return ours.receive_count == 1; }));
    LONGS_EQUAL(5, ours.received);
    LONGS_EQUAL(0, tls_counters.failed_late.read());
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

  // The user received the beginning of the handshake before it knew that TLS follows.
  void early_bytes() {
    client->share("alice", kSharedKey);
    client->start();
    client->handshake();
    const std::string early = std::exchange(client->sent, "");
    CHECK(early.size() > 1 && early.size() <= StreamLayer::kEarlyBytesMax);
    begin_with(early);
    CHECK(streams->is_begun_by(static_cast<std::byte>(early[0])));
    CHECK_FALSE(streams->is_begun_by(std::byte{'g'}));
    std::vector<std::byte> memory(1000);
    agree(memory.data(), memory.size());
    client->write("hello");
    CHECK(run([&] { return ours.receive_count == 1; }));
    LONGS_EQUAL(5, ours.received);
  }

  // Bytes that have come are received, then the receive ends, and the next one goes on.
  void ended_receive() {
    begin();
    std::vector<std::byte> memory(1000);
    agree(memory.data(), memory.size());
    client->write("half");
    CHECK(run([&] { return ours.receive_count == 1; }));
    LONGS_EQUAL(4, ours.received);
    receive_by_tls(memory.data(), memory.size());
    client->write("more");
    exchange();  // in the socket, not in the stream
    stream->end_receive();
    LONGS_EQUAL(1, ours.receive_count);
    CHECK(run([&] { return ours.receive_count == 2; }));
    LONGS_EQUAL(4, ours.received);
    receive_by_tls(memory.data(), memory.size());
    for (int i = 0; i < 20; ++i) {  // it waits in the kernel
      streams->poll(64);
      pump();
    }
    LONGS_EQUAL(2, ours.receive_count);
    stream->end_receive();
    CHECK(run([&] { return ours.receive_count == 3; }));
    LONGS_EQUAL(-ECANCELED, ours.received);
    receive_by_tls(memory.data(), memory.size());
    client->write("last");
    CHECK(run([&] { return ours.receive_count == 4; }));
    LONGS_EQUAL(4, ours.received);
  }

  // A part of a record has come, or of the handshake: nothing can be received from it.
  void ended_receive_of_a_part() {
    begin();
    std::vector<std::byte> memory(1000);
    receive_by_tls(memory.data(), memory.size());
    client->handshake();
    const std::string whole = std::exchange(client->sent, "");
    client->sent = whole.substr(0, 10);
    CHECK(run([&] { return client->sent.empty() && unread_bytes(ours_fd.number()) == 0; }));
    stream->end_receive();
    CHECK(run([&] { return ours.receive_count == 1; }));
    LONGS_EQUAL(-ECANCELED, ours.received);
    client->sent = whole.substr(10);
    receive_by_tls(memory.data(), memory.size());
    CHECK(run([&] { return client->handshake() == 0; }));
    client->write("hello");
    std::string rest = client->sent.substr(client->sent.size() - 3);
    client->sent.resize(client->sent.size() - 3);
    CHECK(run([&] { return client->sent.empty() && unread_bytes(ours_fd.number()) == 0; }));
    stream->end_receive();
    CHECK(run([&] { return ours.receive_count == 2; }));
    LONGS_EQUAL(-ECANCELED, ours.received);
    receive_by_tls(memory.data(), memory.size());
    client->sent = rest;
    CHECK(run([&] { return ours.receive_count == 3; }));
    LONGS_EQUAL(5, ours.received);
  }

  // The callee of a completion closes the stream, which serves another socket afterwards.
  void closed_by_its_user() {
    begin();
    std::vector<std::byte> memory(1000);
    agree(memory.data(), memory.size());
    ours.socket.receive.completed = [](void* context, int64_t result) noexcept {
      auto& self = *static_cast<TlsStreamBodies*>(context);
      self.ours.received = result;
      ++self.ours.receive_count;
      self.stream->abort();  // it asks for a run, and is closed before that
      CHECK(self.stream->say_end());
      self.stream->close();
    };
    ours.socket.receive.context = this;
    client->write("bye");
    CHECK(run([&] { return ours.receive_count == 1; }));
    LONGS_EQUAL(3, ours.received);
    CHECK_FALSE(stream->is_open());
    LONGS_EQUAL(0, streams->poll(64));
    ours_fd.close();
    peer.close();
    connect_pair();
    set_blocking(peer.number(), false);
    open();
    CHECK(stream->is_valid());
  }

  // Then the socket goes on without the stream.
  void own_end_is_told() {
    begin();
    std::vector<std::byte> memory(1000);
    agree(memory.data(), memory.size());
    client->write("x");
    CHECK(run([&] { return ours.receive_count == 1; }));
    CHECK_FALSE(stream->say_end());  // it is sent by the next poll at the earliest
    CHECK(run([&] { return said_end_count > 0; }));
    CHECK(stream->say_end());
    stream->close();
    LONGS_EQUAL(0, sockets->attach(ours.socket));
    receive(ours, memory.data(), memory.size());
    client->sent = "not for TLS any more";
    CHECK(run_until([&] {
      exchange();
      return ours.receive_count == 2;
    }));
    LONGS_EQUAL(20, ours.received);
  }

  // The peer takes nothing, and neither direction can go on.
  void aborted() {
    begin();
    std::vector<std::byte> memory(1000);
    agree(memory.data(), memory.size());
    auto much = pattern_bytes(0, 4'000'000);
    send_by_tls(much.data(), much.size());
    for (int i = 0; i < 20; ++i) {
      streams->poll(64);
      pump();
    }
    LONGS_EQUAL(0, ours.send_count);
    stream->abort();
    LONGS_EQUAL(0, ours.send_count);
    CHECK(run_until([&] {
      streams->poll(64);
      return ours.send_count == 1 && ours.receive_count == 1;
    }));
    CHECK(ours.sent < 0 && ours.received < 0);
  }
};

}  // namespace

BP_GROUPS_OF_BOTH_BACKENDS(TlsStream, TlsStreamBodies);
BP_BOTH_BACKENDS(TlsStream, MovesBytesInBothDirections, both_directions())
BP_BOTH_BACKENDS(TlsStream, KnowsItsHandshake, handshake_and_certificate())
BP_BOTH_BACKENDS(TlsStream, LeavesWithThePeerWhatIsNotWanted, back_pressure())
BP_BOTH_BACKENDS(TlsStream, SaysThatThePeerHasEnded, end_of_the_peer())
BP_BOTH_BACKENDS(TlsStream, SaysItsOwnEnd, own_end())
BP_BOTH_BACKENDS(TlsStream, RefusesAClientThatSpeaksNoTls, no_tls())
BP_BOTH_BACKENDS(TlsStream, RefusesAnotherKey, another_key())
BP_BOTH_BACKENDS(TlsStream, CountsAPeerThatLeavesInTheHandshake, leaves_in_the_handshake())
BP_BOTH_BACKENDS(TlsStream, GivesUpAHandshakeThatTakesTooLong, handshake_takes_too_long())
BP_BOTH_BACKENDS(TlsStream, GivesUpAPeerThatIsSilentForTooLong, silence_takes_too_long())
BP_BOTH_BACKENDS(TlsStream, LimitsNothingBehindTheHandshake, handshake_in_time())
BP_BOTH_BACKENDS(TlsStream, SendsAfterAChangeOfKeysThatCameInTwo, split_change_of_keys())
BP_BOTH_BACKENDS(TlsStream, EndsAfterARecordThatWasChanged, changed_record())
BP_BOTH_BACKENDS(TlsStream, TakesOverWhatCameBeforeIt, early_bytes())
BP_BOTH_BACKENDS(TlsStream, EndsAReceiveOnceItHasAllThatHasCome, ended_receive())
BP_BOTH_BACKENDS(TlsStream, EndsAReceiveInTheMiddleOfARecord, ended_receive_of_a_part())
BP_BOTH_BACKENDS(TlsStream, MayBeClosedByTheCalleeOfACompletion, closed_by_its_user())
BP_BOTH_BACKENDS(TlsStream, TellsWhenItHasSaidItsEnd, own_end_is_told())
BP_BOTH_BACKENDS(TlsStream, EndsWhatIsInFlightWhenItIsAborted, aborted())
