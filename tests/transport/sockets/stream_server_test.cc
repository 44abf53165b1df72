// A server of lines over real sockets: it has as many connections as planned, closes each when its
// session or its peer has ended it, and drains.
#include "transport/sockets/stream_server.h"

#include <memory>
#include <string>
#include <vector>

#include "tests/transport/sockets/stream_sockets_fixture.h"

using namespace bedplate;

namespace {

// Echoes each line. "bye" ends the session, "foreign" ends it as another protocol, and "lend" is
// answered with more bytes than any socket buffers. The answer to "later" waits in Shared.
class Echo final : public StreamSession {
 public:
  struct Shared {
    std::string large = std::string(16 << 20, 'l');
    uint32_t reset_count = 0;
    uint32_t released_count = 0;
    std::vector<LaterAnswer*> waiting;

    void finish() {
      LaterAnswer& answer = *waiting.front();
      waiting.erase(waiting.begin());
      answer.say("later\n");
      answer.finish(monotonic_ns());
    }
  };
  explicit Echo(Shared& shared) noexcept
      : StreamSession(input_, output_, later_), shared_(shared) {}

 private:
  StreamStep work(uint64_t) noexcept override {
    const std::string_view line = arrived_line();
    if (line.empty()) return StreamStep::kStarved;
    if (line == "later\n") {
      shared_.waiting.push_back(&later());
    } else {
      line == "lend\n" ? lend(shared_.large, &shared_) : say(line);
    }
    if (line == "bye\n") end();
    if (line == "foreign\n") end_foreign("Esperanto");
    take(line.size());
    return StreamStep::kTaken;
  }
  void released(void*) noexcept override { ++shared_.released_count; }
  void left() noexcept override { ++shared_.reset_count; }

  Shared& shared_;
  LaterAnswer later_[2];
  char input_[256];
  char output_[2 * StreamSession::kStepTextBytes];
};

// Stops its loop once a condition holds. Until then it keeps the loop awake.
template <typename Condition>
struct Until final : PollSource {
  Until(EventLoop& of, Condition& asked) noexcept : loop(of), condition(asked) {}
  uint32_t poll(uint32_t) noexcept override {
    is_met = condition();
    if (is_met || monotonic_ns() > end_ns) loop.stop();
    return 1;
  }
  EventLoop& loop;
  Condition& condition;
  bool is_met = false;
  uint64_t end_ns = monotonic_ns() + test::kPatienceNs;
};

}  // namespace

class ServerBodies : public SocketsFixture {
 public:
  static constexpr uint64_t kConnections = 3;
  static constexpr uint64_t kBytes = StreamServer::bytes_for<Echo>(kConnections);

  Echo::Shared shared;
  StreamServerCounters clients;
  std::unique_ptr<StreamServer> server = std::make_unique<StreamServer>();
  std::vector<std::byte> memory = std::vector<std::byte>(kBytes + kCacheLineBytes);
  sockaddr_in address = {};
  Fd listener;

  void serve() {
    void* aligned = memory.data();
    size_t room = memory.size();
    CHECK(std::align(kCacheLineBytes, kBytes, aligned, room) != nullptr);
    listener = listening_socket(&address);
    server->create<Echo>({.loop = loop.get(), .sockets = sockets.get(), .counters = &clients},
                         {static_cast<std::byte*>(aligned), kBytes}, shared);
    server->add_listener(listener.number());
    server->start();
  }
  // Drains the server while the loop runs, as a service does. `peer_is_done` plays the peers
  // meanwhile. The fixture then checks that no descriptor is left open.
  template <typename Condition>
  void drain(Condition peer_is_done) {
    server->request_drain();
    auto is_done = [&] { return peer_is_done() && server->is_drained(); };
    Until until(*loop, is_done);
    loop->add_source(*sockets, 64);
    loop->add_source(until, 1);
    loop->set_sleeper(*sockets);
    loop->run();
    CHECK(until.is_met);
    CHECK_EQUAL(0, clients.connections_open.read());
    listener.close();
  }
  void drain() {
    drain([] { return true; });
  }
  void say(const Fd& client, const std::string& text) {
    LONGS_EQUAL(text.size(), ::send(client.number(), text.data(), text.size(), MSG_NOSIGNAL));
  }
  // Reads until `bytes` bytes have come, or the end.
  std::string hear(const Fd& client, size_t bytes, bool* is_closed = nullptr) {
    std::string heard;
    CHECK(run_until([&] {
      char buffer[64 << 10];
      const ssize_t got = recv(client.number(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (got > 0) heard.append(buffer, static_cast<size_t>(got));
      const bool is_end = got == 0 || (got < 0 && errno != EAGAIN);
      if (is_closed != nullptr) *is_closed = is_end;
      return is_end || heard.size() >= bytes;
    }));
    return heard;
  }
  bool is_closed(const Fd& client) {
    bool is_end = false;
    CHECK(hear(client, 1, &is_end).empty());
    return is_end;
  }
  Fd connect() {
    Fd client = connect_to(address);
    say(client, "hello\n");
    STRCMP_EQUAL("hello\n", hear(client, 6).c_str());
    return client;
  }

  void answers_each() {
    serve();
    const Fd one = connect(), other = connect();
    say(one, "one\n");
    say(other, "other\n");
    STRCMP_EQUAL("other\n", hear(other, 6).c_str());
    STRCMP_EQUAL("one\n", hear(one, 4).c_str());
    CHECK_EQUAL(2, clients.connections_open.read());
    drain();
  }

  void one_too_many_is_closed() {
    serve();
    Fd all[kConnections];
    for (Fd& client : all) client = connect();
    CHECK(is_closed(connect_to(address)));
    CHECK_EQUAL(1, clients.connections_refused.read());
    CHECK_EQUAL(kConnections, clients.connections_total.read());
    all[1].close();
    CHECK(run_until([&] { return clients.connections_open.read() == kConnections - 1; }));
    CHECK_EQUAL(kConnections, clients.connections_peak.read());
    LONGS_EQUAL(1, shared.reset_count);
    const Fd next = connect();  // in the slot that is free again
    CHECK(is_closed(connect_to(address)));
    CHECK_EQUAL(2, clients.connections_refused.read());
    drain();
  }

  void ends_with_its_session() {
    serve();
    const Fd client = connect();
    say(client, "one\nbye\ntwo\n");
    STRCMP_EQUAL("one\nbye\n", hear(client, 1 << 20).c_str());
    shutdown(client.number(), SHUT_WR);
    CHECK(run_until([&] { return clients.connections_open.read() == 0; }));
    LONGS_EQUAL(1, shared.reset_count);
    drain();
  }

  // The peer is still sending. A reset would discard the answer, and fail the peer's send.
  void its_end_reaches_a_peer_that_sends() {
    serve();
    Fd client = connect();
    const std::string more(60'000, 'x');
    say(client, "one\nbye\n" + more);
    std::string heard;
    ssize_t got = -1;
    CHECK(run_until([&] {
      char buffer[1024];
      got = recv(client.number(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (got > 0) heard.append(buffer, static_cast<size_t>(got));
      return got == 0 || (got < 0 && errno != EAGAIN);
    }));
    LONGS_EQUAL(0, got);
    STRCMP_EQUAL("one\nbye\n", heard.c_str());
    for (int i = 0; i < 3; ++i) {
      say(client, more);
      CHECK(run_until([&] { return unsent_bytes(client) == 0; }));
    }
    CHECK_EQUAL(1, clients.connections_open.read());
    client.close();
    CHECK(run_until([&] { return clients.connections_open.read() == 0; }));
    drain();
  }
  static int unsent_bytes(const Fd& client) {
    int bytes = 0;
    ioctl(client.number(), TIOCOUTQ, &bytes);
    return bytes;
  }

  // A peer that does not close has a second. A peer that goes on sending has kLingerBytes.
  void no_peer_lingers_for_ever() {
    serve();
    const Fd idle = connect(), busy = connect();
    say(idle, "bye\n");
    say(busy, "bye\n");
    STRCMP_EQUAL("bye\n", hear(idle, 1 << 20).c_str());
    const std::string more(64 << 10, 'x');
    uint64_t sent_bytes = 0;
    CHECK(run_until([&] {
      const ssize_t sent =
          ::send(busy.number(), more.data(), more.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) sent_bytes += static_cast<uint64_t>(sent);
      return clients.connections_open.read() == 1;
    }));
    CHECK(sent_bytes >= StreamServer::kLingerBytes);
    drain();  // waits for the idle peer
  }

  // Closes at once, without an answer. Earlier answers are lost, too.
  void another_protocol_is_closed_and_counted() {
    serve();
    Fd client = connect();
    say(client, "one\nforeign\ntwo\n");
    CHECK(run_until([&] { return clients.connections_open.read() == 0; }));
    CHECK_EQUAL(1, clients.connections_foreign.read());
    STRCMP_EQUAL("", hear(client, 1 << 20).c_str());
    connect();
    CHECK_EQUAL(1, clients.connections_foreign.read());
    drain();
  }

  // Requests that came before the peer closed its side are answered.
  void ends_with_its_peer() {
    serve();
    const Fd client = connect();
    say(client, "one\nhalf");
    shutdown(client.number(), SHUT_WR);
    STRCMP_EQUAL("one\n", hear(client, 1 << 20).c_str());
    CHECK(run_until([&] { return clients.connections_open.read() == 0; }));
    drain();
  }

  // The peer vanishes in the middle of a reply, and the reply's loans come back.
  void peer_vanishes() {
    serve();
    Fd client = connect();
    say(client, "lend\n");
    CHECK(!hear(client, 1).empty());
    LONGS_EQUAL(0, shared.released_count);
    client.close();
    CHECK(run_until([&] { return clients.connections_open.read() == 0; }));
    LONGS_EQUAL(1, shared.released_count);
    drain();
  }

  void drain_answers_what_has_come() {
    serve();
    const Fd idle = connect(), half = connect(), busy = connect();
    say(half, "one\nha");
    say(busy, "lend\ntwo\n");
    const std::string begin = hear(busy, 1);
    STRCMP_EQUAL("one\n", hear(half, 4).c_str());
    size_t heard_bytes = begin.size();
    std::string end;
    bool is_idle_closed = false, is_half_closed = false, was_drained_early = false;
    drain([&] {
      char buffer[64 << 10];
      const auto is_end = [&](const Fd& client) {
        return recv(client.number(), buffer, sizeof buffer, MSG_DONTWAIT) == 0;
      };
      is_idle_closed = is_idle_closed || is_end(idle);
      is_half_closed = is_half_closed || is_end(half);
      was_drained_early |= end.empty() && server->is_drained();  // one peer has not taken its reply
      if (!is_idle_closed || !is_half_closed) return false;
      const ssize_t got = recv(busy.number(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (got <= 0) return got == 0;
      heard_bytes += static_cast<size_t>(got);
      end.append(buffer, static_cast<size_t>(got));
      end.erase(0, end.size() - std::min<size_t>(end.size(), 5));
      return false;
    });
    CHECK_FALSE(was_drained_early);
    LONGS_EQUAL(shared.large.size() + 4, heard_bytes);
    STRCMP_EQUAL("ltwo\n", end.c_str());
  }

  // A reset would discard the end of the reply.
  void drain_reaches_a_peer_that_sends() {
    serve();
    Fd client = connect();
    say(client, "lend\n");
    size_t heard_bytes = hear(client, 1).size();
    ssize_t got = -1;
    drain([&] {
      if (!client.is_open()) return true;
      ::send(client.number(), "more\n", 5, MSG_NOSIGNAL | MSG_DONTWAIT);
      char buffer[64 << 10];
      got = recv(client.number(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (got > 0) heard_bytes += static_cast<size_t>(got);
      if (got == 0 || (got < 0 && errno != EAGAIN)) client.close();
      return false;
    });
    LONGS_EQUAL(0, got);
    CHECK(heard_bytes >= shared.large.size());
  }

  void answers_later() {
    serve();
    const Fd client = connect();
    say(client, "later\none\n");
    CHECK(run_until([&] { return shared.waiting.size() == 1; }));
    CHECK_EQUAL(1, clients.answers_waiting.read());
    shared.finish();
    STRCMP_EQUAL("later\none\n", hear(client, 10).c_str());
    CHECK_EQUAL(0, clients.answers_waiting.read());
    drain();
  }

  // The peer sends nothing more, but still reads.
  void answers_later_to_a_peer_that_has_closed_its_side() {
    serve();
    const Fd client = connect();
    say(client, "later\n");
    shutdown(client.number(), SHUT_WR);
    CHECK(run_until([&] { return shared.waiting.size() == 1; }));
    CHECK_EQUAL(1, clients.connections_open.read());
    shared.finish();
    STRCMP_EQUAL("later\n", hear(client, 1 << 20).c_str());
    CHECK(run_until([&] { return clients.connections_open.read() == 0; }));
    drain();
  }

  // The connection is nobody else's until the last answer has come.
  void keeps_the_connection_of_a_peer_that_vanishes() {
    serve();
    Fd client = connect();
    say(client, "later\nlater\n");
    CHECK(run_until([&] { return shared.waiting.size() == 2; }));
    const linger at_once = {1, 0};
    setsockopt(client.number(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    client.close();  // a reset
    CHECK(run_until([&] { return shared.reset_count == 1; }));
    CHECK(!shared.waiting[0]->is_wanted());
    CHECK_EQUAL(1, clients.connections_open.read());
    shared.finish();
    CHECK_EQUAL(1, clients.connections_open.read());
    shared.finish();
    CHECK(run_until([&] { return clients.connections_open.read() == 0; }));
    LONGS_EQUAL(1, shared.reset_count);
    drain();
  }

  void an_end_waits_for_answers() {
    serve();
    const Fd client = connect();
    say(client, "later\nbye\n");
    CHECK(run_until([&] { return shared.waiting.size() == 1; }));
    shared.finish();
    STRCMP_EQUAL("later\nbye\n", hear(client, 1 << 20).c_str());
    shutdown(client.number(), SHUT_WR);
    CHECK(run_until([&] { return clients.connections_open.read() == 0; }));
    drain();
  }

  void a_drain_waits_for_answers() {
    serve();
    const Fd client = connect();
    say(client, "later\n");
    CHECK(run_until([&] { return shared.waiting.size() == 1; }));
    uint32_t rounds = 0;
    std::string heard;
    drain([&] {
      if (++rounds == 100) {
        CHECK_FALSE(server->is_drained());
        shared.finish();
      }
      char buffer[64];
      const ssize_t got = recv(client.number(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (got > 0) heard.append(buffer, static_cast<size_t>(got));
      return got == 0;
    });
    STRCMP_EQUAL("later\n", heard.c_str());
  }

  void drain_of_nothing() {
    serve();
    CHECK_FALSE(server->is_drained());
    drain();
  }
};

BP_GROUPS_OF_BOTH_BACKENDS(StreamServer, ServerBodies);

BP_BOTH_BACKENDS(StreamServer, AnswersEachConnection, answers_each())
BP_BOTH_BACKENDS(StreamServer, OneConnectionTooManyIsClosedAtOnce, one_too_many_is_closed())
BP_BOTH_BACKENDS(StreamServer, AConnectionEndsWithItsSession, ends_with_its_session())
BP_BOTH_BACKENDS(StreamServer, TheEndReachesAPeerThatSends, its_end_reaches_a_peer_that_sends())
BP_BOTH_BACKENDS(StreamServer, NoPeerLingersForEver, no_peer_lingers_for_ever())
BP_BOTH_BACKENDS(StreamServer, AnotherProtocolIsClosed, another_protocol_is_closed_and_counted())
BP_BOTH_BACKENDS(StreamServer, AConnectionEndsWithItsPeer, ends_with_its_peer())
BP_BOTH_BACKENDS(StreamServer, WhatWasLentComesBackFromAPeerThatVanishes, peer_vanishes())
BP_BOTH_BACKENDS(StreamServer, DrainingAnswersWhatHasCome, drain_answers_what_has_come())
BP_BOTH_BACKENDS(StreamServer, ADrainReachesAPeerThatSends, drain_reaches_a_peer_that_sends())
BP_BOTH_BACKENDS(StreamServer, DrainsWithoutConnections, drain_of_nothing())
BP_BOTH_BACKENDS(StreamServer, AnswersLater, answers_later())
BP_BOTH_BACKENDS(StreamServer, AnswersLaterToAPeerThatHasClosedItsSide,
                 answers_later_to_a_peer_that_has_closed_its_side())
BP_BOTH_BACKENDS(StreamServer, KeepsTheConnectionOfAPeerThatVanishes,
                 keeps_the_connection_of_a_peer_that_vanishes())
BP_BOTH_BACKENDS(StreamServer, AnEndWaitsForAnswers, an_end_waits_for_answers())
BP_BOTH_BACKENDS(StreamServer, ADrainWaitsForAnswers, a_drain_waits_for_answers())
