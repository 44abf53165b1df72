// Tests of a server of lines over real sockets: it has as many connections as planned, closes each
// when its session or its peer has ended it, and drains. They run without a layer, and with any
// layer: a fixture derives from ServerBodies, and makes layers and clients that speak through them.
#pragma once

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/ioctl.h>
#include <sys/socket.h>

#include "tests/transport/sockets/stream_memory.h"
#include "tests/transport/sockets/stream_sockets_fixture.h"
#include "transport/sockets/stream_layer.h"
#include "transport/sockets/stream_linger.h"
#include "transport/sockets/stream_server.h"

namespace bedplate {

// Echoes each line. "bye" ends the session, "foreign" ends it as another protocol, and "lend" is
// answered with more bytes than any socket buffers. The answer to "later" waits in Shared. Behind
// the echo of "starttls" the layer begins, if there is one.
class EchoLines final : public StreamSession {
 public:
  struct Shared {
    std::string large = std::string(16 << 20, 'l');
    uint32_t reset_count = 0;
    uint32_t released_count = 0;
    uint32_t line_count = 0;
    std::vector<LaterAnswer*> waiting;
    bool are_finished_by_left = false;  // the waiting ones
    bool waits_as_left = false;
    EchoLines* left = nullptr;  // the last one that waits so

    void finish() {
      LaterAnswer& answer = *waiting.front();
      waiting.erase(waiting.begin());
      answer.say("later\n");
      answer.finish(monotonic_ns());
    }
  };
  explicit EchoLines(Shared& shared) noexcept
      : StreamSession(input_, output_, later_), shared_(shared) {}

  void go_on() noexcept { resume(monotonic_ns()); }

 private:
  StreamStep work(uint64_t) noexcept override {
    const std::string_view line = arrived_line();
    if (line.empty()) return StreamStep::kStarved;
    ++shared_.line_count;
    const bool starts_layer = line == "starttls\n" && layer().may_start();
    if (line == "later\n") {
      shared_.waiting.push_back(&later());
    } else {
      line == "lend\n" ? lend(shared_.large, &shared_) : say(line);
    }
    if (line == "bye\n") end();
    if (line == "foreign\n") end_foreign("Esperanto");
    take(line.size());
    if (starts_layer) start_layer();
    return StreamStep::kTaken;
  }
  void released(void*) noexcept override { ++shared_.released_count; }
  void late() noexcept override {
    say("late\n");
    end();
  }
  void left() noexcept override {
    ++shared_.reset_count;
    while (shared_.are_finished_by_left && !shared_.waiting.empty()) shared_.finish();
    if (!shared_.waits_as_left) return;
    shared_.left = this;
    wait();
  }

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

// A client. One that speaks through a layer encodes and decodes.
class ServerClient {
 public:
  explicit ServerClient(Fd connected) : fd(std::move(connected)) {}
  virtual ~ServerClient() = default;

  void say(const std::string& text) { send_all(encoded(text)); }
  // The same, as far as the socket takes it; the rest is sent by the next calls, before their text.
  // Returns the number of sent bytes.
  size_t say_now(const std::string& text) {
    if (unsent_.empty()) unsent_ = encoded(text);
    const ssize_t sent =
        ::send(fd.number(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) unsent_.erase(0, static_cast<size_t>(sent));
    return sent > 0 ? static_cast<size_t>(sent) : 0;
  }
  // Returns the text that has come.
  std::string hear_now() {
    char buffer[64 << 10];
    const ssize_t got = recv(fd.number(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got > 0) return decoded({buffer, static_cast<size_t>(got)});
    is_at_end = got == 0;
    is_reset = got < 0 && errno != EAGAIN;
    return {};
  }
  bool has_ended() const { return is_at_end || is_reset; }
  // It sends nothing more, but still reads.
  void close_its_side() {
    send_all(farewell());
    shutdown(fd.number(), SHUT_WR);
  }

  Fd fd;
  bool is_at_end = false;
  bool is_reset = false;
  bool has_heard_farewell = false;  // the layer's end

 protected:
  void send_all(const std::string& wire) {
    if (wire.empty()) return;
    LONGS_EQUAL(wire.size(), ::send(fd.number(), wire.data(), wire.size(), MSG_NOSIGNAL));
  }
  virtual std::string encoded(const std::string& text) { return text; }
  virtual std::string decoded(const std::string& wire) { return wire; }
  virtual std::string farewell() { return {}; }

 private:
  std::string unsent_;
};

class ServerBodies : public SocketsFixture {
 public:
  using Client = std::shared_ptr<ServerClient>;
  static constexpr uint64_t kConnections = 3;

  EchoLines::Shared shared;
  StreamServerCounters clients;
  std::unique_ptr<StreamServer> server = std::make_unique<StreamServer>();
  StreamMemory memory{StreamServer::bytes_for<EchoLines>(kConnections)};
  StreamLayers* layers = nullptr;
  bool has_layer_on_request = false;
  sockaddr_in address = {};
  Fd listener;
  std::vector<std::weak_ptr<ServerClient>> all_clients;

  // The layers of kConnections connections; nullptr: none. They live as long as the fixture.
  virtual StreamLayers* make_layers() { return nullptr; }
  virtual void adjust(StreamServerOptions* /*options*/) {}
  virtual Client make_client(Fd fd) { return std::make_shared<ServerClient>(std::move(fd)); }
  // Stores where it listens.
  virtual Fd make_listener(sockaddr_in* where) { return listening_socket(where); }

  void serve() {
    layers = make_layers();
    listener = make_listener(&address);
    StreamServerOptions options = {.loop = loop.get(),
                                   .sockets = sockets.get(),
                                   .counters = &clients,
                                   .layers = layers,
                                   .has_layer_on_request = has_layer_on_request};
    adjust(&options);
    // In two pieces, as a service may have it.
    constexpr uint64_t kFirstBytes = StreamServer::bytes_for<EchoLines>(1);
    server->create<EchoLines>(options, memory.aligned().first(kFirstBytes), shared);
    server->add<EchoLines>(memory.aligned().subspan(kFirstBytes), shared);
    server->add_listener(listener.number());
    server->start();
  }
  // Polls sockets and layers.
  template <typename Condition>
  bool run(Condition condition) {
    return run_until([&] {
      if (layers != nullptr) layers->poll(64);
      return condition();
    });
  }
  // Drains the server while the loop runs, as a service does. `peer_is_done` plays the peers
  // meanwhile. The fixture then checks that no descriptor is left open.
  template <typename Condition>
  void drain_alone(Condition peer_is_done) {
    server->request_drain();
    auto is_done = [&] { return peer_is_done() && server->is_drained(); };
    Until until(*loop, is_done);
    loop->add_source(*sockets, 64);
    if (layers != nullptr) loop->add_source(*layers, 64);
    loop->add_source(until, 1);
    loop->set_sleeper(*sockets);
    loop->run();
    CHECK(until.is_met);
    CHECK_EQUAL(0, clients.connections_open.read());
    listener.close();
  }
  // The same; clients close when they have heard the end.
  template <typename Condition>
  void drain(Condition peer_is_done) {
    drain_alone([&] {
      const bool is_done = peer_is_done();
      for_each_client([](ServerClient& client) {
        if (client.has_ended()) client.fd.close();
      });
      return is_done;
    });
  }
  void drain() {
    drain([this] {
      for_each_client([](ServerClient& client) { client.hear_now(); });
      return true;
    });
  }
  template <typename Function>
  void for_each_client(Function function) {
    for (const std::weak_ptr<ServerClient>& each : all_clients) {
      if (const Client client = each.lock(); client != nullptr && client->fd.is_open()) {
        function(*client);
      }
    }
  }
  Client add(Client client) {
    all_clients.push_back(client);
    return client;
  }
  bool is_empty() const { return clients.connections_open.read() == 0; }

  // Reads until `bytes` bytes have come, or the end.
  std::string hear(const Client& client, size_t bytes) {
    std::string heard;
    CHECK(run([&] {
      heard += client->hear_now();
      return client->has_ended() || heard.size() >= bytes;
    }));
    return heard;
  }
  std::string hear_all(const Client& client) { return hear(client, ~size_t{0}); }
  // A client that is refused hears no layer, either.
  bool is_refused() {
    const Client client = std::make_shared<ServerClient>(connect_to(address));
    return hear_all(client).empty();
  }
  Client connect() {
    Client client = add(make_client(connect_to(address)));
    client->say("hello\n");
    STRCMP_EQUAL("hello\n", hear(client, 6).c_str());
    return client;
  }
  void check_farewell(const ServerClient& client) {
    CHECK(client.is_at_end && (layers == nullptr || client.has_heard_farewell));
  }

  void answers_each() {
    serve();
    const Client one = connect(), other = connect();
    one->say("one\n");
    other->say("other\n");
    STRCMP_EQUAL("other\n", hear(other, 6).c_str());
    STRCMP_EQUAL("one\n", hear(one, 4).c_str());
    CHECK_EQUAL(2, clients.connections_open.read());
    CHECK_EQUAL(uint64_t{6 + 6 + 4 + 6}, clients.received_bytes.read());
    CHECK(run([&] { return clients.sent_bytes.read() == 6 + 6 + 4 + 6; }));
    drain();
  }

  void one_too_many_is_closed() {
    serve();
    Client all[kConnections];
    for (Client& client : all) client = connect();
    CHECK(is_refused());
    CHECK_EQUAL(1, clients.connections_refused.read());
    CHECK_EQUAL(kConnections, clients.connections_total.read());
    all[1]->fd.close();
    CHECK(run([&] { return clients.connections_open.read() == kConnections - 1; }));
    CHECK_EQUAL(kConnections, clients.connections_peak.read());
    LONGS_EQUAL(1, shared.reset_count);
    const Client next = connect();  // in the slot that is free again
    CHECK(is_refused());
    CHECK_EQUAL(2, clients.connections_refused.read());
    drain();
  }

  void ends_with_its_session() {
    serve();
    const Client client = connect();
    client->say("one\nbye\ntwo\n");
    STRCMP_EQUAL("one\nbye\n", hear_all(client).c_str());
    check_farewell(*client);
    client->close_its_side();
    CHECK(run([&] { return is_empty(); }));
    LONGS_EQUAL(1, shared.reset_count);
    drain();
  }

  // The peer is still sending. A reset would discard the answer, and fail the peer's send.
  void its_end_reaches_a_peer_that_sends() {
    serve();
    const Client client = connect();
    const std::string more(60'000, 'x');
    client->say("one\nbye\n" + more);
    STRCMP_EQUAL("one\nbye\n", hear_all(client).c_str());
    check_farewell(*client);
    for (int i = 0; i < 3; ++i) {
      client->say(more);
      CHECK(run([&] { return unsent_bytes(client->fd) == 0; }));
    }
    CHECK_EQUAL(1, clients.connections_open.read());
    client->fd.close();
    CHECK(run([&] { return is_empty(); }));
    drain();
  }
  static int unsent_bytes(const Fd& fd) {
    int bytes = 0;
    ioctl(fd.number(), TIOCOUTQ, &bytes);
    return bytes;
  }

  // A peer that does not close has a second. A peer that goes on sending has kLingerBytes.
  void no_peer_lingers_for_ever() {
    serve();
    const Client idle = connect(), busy = connect();
    idle->say("bye\n");
    busy->say("bye\n");
    STRCMP_EQUAL("bye\n", hear_all(idle).c_str());
    const std::string more(64 << 10, 'x');
    uint64_t sent_bytes = 0;
    CHECK(run([&] {
      sent_bytes += busy->say_now(more);
      return clients.connections_open.read() <= 1;
    }));
    // On a slow machine the second of both is over first.
    CHECK(sent_bytes >= StreamLinger::kLingerBytes || is_empty());
    drain_alone([] { return true; });  // waits for the idle peer
  }

  // Closes at once, without an answer. Earlier answers are lost, too.
  void another_protocol_is_closed_and_counted() {
    serve();
    const Client client = connect();
    client->say("one\nforeign\ntwo\n");
    CHECK(run([&] { return is_empty(); }));
    CHECK_EQUAL(1, clients.connections_foreign.read());
    STRCMP_EQUAL("", hear_all(client).c_str());
    connect();
    CHECK_EQUAL(1, clients.connections_foreign.read());
    drain();
  }

  // Requests that came before the peer closed its side are answered.
  void ends_with_its_peer() {
    serve();
    const Client client = connect();
    client->say("one\nhalf");
    client->close_its_side();
    STRCMP_EQUAL("one\n", hear_all(client).c_str());
    check_farewell(*client);
    CHECK(run([&] { return is_empty(); }));
    drain();
  }

  // The peer vanishes in the middle of a reply, and the reply's loans come back.
  void peer_vanishes() {
    serve();
    const Client client = connect();
    client->say("lend\n");
    CHECK(!hear(client, 1).empty());
    LONGS_EQUAL(0, shared.released_count);
    client->fd.close();
    CHECK(run([&] { return is_empty(); }));
    LONGS_EQUAL(1, shared.released_count);
    drain();
  }

  void drain_answers_what_has_come() {
    serve();
    const Client idle = connect(), half = connect(), busy = connect();
    half->say("one\nha");
    busy->say("lend\ntwo\n");
    const std::string begin = hear(busy, 1);
    STRCMP_EQUAL("one\n", hear(half, 4).c_str());
    size_t heard_bytes = begin.size();
    std::string end;
    bool was_drained_early = false;
    drain([&] {
      if (!idle->has_ended()) idle->hear_now();
      if (!half->has_ended()) half->hear_now();
      was_drained_early |= end.empty() && server->is_drained();  // one peer has not taken its reply
      if (!idle->has_ended() || !half->has_ended()) return false;
      if (busy->has_ended()) return true;
      const std::string heard = busy->hear_now();
      heard_bytes += heard.size();
      end.append(heard);
      end.erase(0, end.size() - std::min<size_t>(end.size(), 5));
      return busy->has_ended();
    });
    check_farewell(*idle);
    check_farewell(*half);
    check_farewell(*busy);
    CHECK_FALSE(was_drained_early);
    LONGS_EQUAL(shared.large.size() + 4, heard_bytes);
    STRCMP_EQUAL("ltwo\n", end.c_str());
  }

  // A reset would discard the end of the reply.
  void drain_reaches_a_peer_that_sends() {
    serve();
    const Client client = connect();
    client->say("lend\n");
    size_t heard_bytes = hear(client, 1).size();
    drain([&] {
      if (client->has_ended()) return true;
      client->say_now("more\n");
      heard_bytes += client->hear_now().size();
      if (client->has_ended()) client->fd.close();
      return false;
    });
    check_farewell(*client);
    CHECK(heard_bytes >= shared.large.size());
  }

  // The peer's time is over while it sends: what comes then is no request. The clock of the timers
  // runs ahead.
  void drain_ends_while_a_peer_sends() {
    serve();
    const Client client = connect();
    client->say("lend\n");
    hear(client, 1);
    drain_alone([&] {
      client->hear_now();
      if (clients.sent_bytes.read() < 6 + shared.large.size()) return false;
      client->say_now(std::string(1000, 'x'));
      loop->own_timers().expire(monotonic_ns() + 2 * StreamLinger::kLingerNs);
      return true;
    });
    LONGS_EQUAL(2, shared.line_count);
  }

  void answers_later() {
    serve();
    const Client client = connect();
    client->say("later\none\n");
    CHECK(run([&] { return shared.waiting.size() == 1; }));
    CHECK_EQUAL(1, clients.answers_waiting.read());
    shared.finish();
    STRCMP_EQUAL("later\none\n", hear(client, 10).c_str());
    CHECK_EQUAL(0, clients.answers_waiting.read());
    drain();
  }

  // The clock of the timers runs ahead.
  void counts_answers_that_are_late() {
    serve();
    const Client client = connect();
    client->say("later\n");
    CHECK(run([&] { return shared.waiting.size() == 1; }));
    loop->own_timers().expire(monotonic_ns() + 60 * kNsPerSecond);
    CHECK_EQUAL(1, clients.answers_late.read());
    CHECK_EQUAL(1, clients.answers_waiting.read());
    shared.finish();
    STRCMP_EQUAL("later\n", hear(client, 6).c_str());
    CHECK_EQUAL(0, clients.answers_late.read());
    drain();
  }

  // The peer sends nothing more, but still reads.
  void answers_later_to_a_peer_that_has_closed_its_side() {
    serve();
    const Client client = connect();
    client->say("later\n");
    client->close_its_side();
    CHECK(run([&] { return shared.waiting.size() == 1; }));
    CHECK_EQUAL(1, clients.connections_open.read());
    shared.finish();
    STRCMP_EQUAL("later\n", hear_all(client).c_str());
    check_farewell(*client);
    CHECK(run([&] { return is_empty(); }));
    drain();
  }

  // The connection is nobody else's until the last answer has come.
  void keeps_the_connection_of_a_peer_that_vanishes() {
    serve();
    const Client client = connect();
    client->say("later\nlater\n");
    CHECK(run([&] { return shared.waiting.size() == 2; }));
    const linger at_once = {1, 0};
    setsockopt(client->fd.number(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    client->fd.close();  // a reset
    CHECK(run([&] { return shared.reset_count == 1; }));
    CHECK(!shared.waiting[0]->is_wanted());
    CHECK_EQUAL(1, clients.connections_open.read());
    shared.finish();
    CHECK_EQUAL(1, clients.connections_open.read());
    shared.finish();
    CHECK(run([&] { return is_empty(); }));
    LONGS_EQUAL(1, shared.reset_count);
    drain();
  }

  void finishes_answers_as_their_peer_vanishes() {
    shared.are_finished_by_left = true;
    serve();
    const Client client = connect();
    client->say("later\nlater\n");
    CHECK(run([&] { return shared.waiting.size() == 2; }));
    const linger at_once = {1, 0};
    setsockopt(client->fd.number(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    client->fd.close();  // a reset
    CHECK(run([&] { return is_empty(); }));
    LONGS_EQUAL(1, shared.reset_count);
    CHECK_EQUAL(0, clients.answers_waiting.read());
    CHECK(server->is_valid());
    drain();
  }

  void an_end_waits_for_answers() {
    serve();
    const Client client = connect();
    client->say("later\nbye\n");
    CHECK(run([&] { return shared.waiting.size() == 1; }));
    shared.finish();
    STRCMP_EQUAL("later\nbye\n", hear_all(client).c_str());
    check_farewell(*client);
    client->close_its_side();
    CHECK(run([&] { return is_empty(); }));
    drain();
  }

  void a_drain_waits_for_answers() {
    serve();
    const Client client = connect();
    client->say("later\n");
    CHECK(run([&] { return shared.waiting.size() == 1; }));
    uint32_t rounds = 0;
    std::string heard;
    drain([&] {
      if (++rounds == 100) {
        CHECK_FALSE(server->is_drained());
        shared.finish();
      }
      if (!client->has_ended()) heard += client->hear_now();
      return client->has_ended();
    });
    check_farewell(*client);
    STRCMP_EQUAL("later\n", heard.c_str());
  }

  void drain_of_nothing() {
    serve();
    CHECK_FALSE(server->is_drained());
    drain();
  }
};

// All of these as tests of the groups of `theme`.
#define BP_SERVER_TESTS(theme)                                                               \
  BP_BOTH_BACKENDS(theme, AnswersEachConnection, answers_each())                             \
  BP_BOTH_BACKENDS(theme, OneConnectionTooManyIsClosedAtOnce, one_too_many_is_closed())      \
  BP_BOTH_BACKENDS(theme, AConnectionEndsWithItsSession, ends_with_its_session())            \
  BP_BOTH_BACKENDS(theme, TheEndReachesAPeerThatSends, its_end_reaches_a_peer_that_sends())  \
  BP_BOTH_BACKENDS(theme, NoPeerLingersForEver, no_peer_lingers_for_ever())                  \
  BP_BOTH_BACKENDS(theme, AnotherProtocolIsClosed, another_protocol_is_closed_and_counted()) \
  BP_BOTH_BACKENDS(theme, AConnectionEndsWithItsPeer, ends_with_its_peer())                  \
  BP_BOTH_BACKENDS(theme, WhatWasLentComesBackFromAPeerThatVanishes, peer_vanishes())        \
  BP_BOTH_BACKENDS(theme, DrainingAnswersWhatHasCome, drain_answers_what_has_come())         \
  BP_BOTH_BACKENDS(theme, ADrainReachesAPeerThatSends, drain_reaches_a_peer_that_sends())    \
  BP_BOTH_BACKENDS(theme, DrainsWithoutConnections, drain_of_nothing())                      \
  BP_BOTH_BACKENDS(theme, AnswersLater, answers_later())                                     \
  BP_BOTH_BACKENDS(theme, CountsAnswersThatAreLate, counts_answers_that_are_late())          \
  BP_BOTH_BACKENDS(theme, AnswersLaterToAPeerThatHasClosedItsSide,                           \
                   answers_later_to_a_peer_that_has_closed_its_side())                       \
  BP_BOTH_BACKENDS(theme, KeepsTheConnectionOfAPeerThatVanishes,                             \
                   keeps_the_connection_of_a_peer_that_vanishes())                           \
  BP_BOTH_BACKENDS(theme, FinishesAnswersAsTheirPeerVanishes,                                \
                   finishes_answers_as_their_peer_vanishes())                                \
  BP_BOTH_BACKENDS(theme, AnEndWaitsForAnswers, an_end_waits_for_answers())                  \
  BP_BOTH_BACKENDS(theme, ADrainWaitsForAnswers, a_drain_waits_for_answers())

}  // namespace bedplate
