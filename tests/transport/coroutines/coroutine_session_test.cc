// Sessions whose protocol is a coroutine: requests in parts and many at once, long answers, waits
// for other things, and peers that go meanwhile; without sockets, and with a server's.
#include "transport/coroutines/coroutine_session.h"
#include "transport/sockets/stream_server.h"  // before CppUTest's macro `new`

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/datapath_law.h"
#include "tests/support/death_test.h"
#include "tests/transport/coroutines/coroutine_rig.h"
#include "tests/transport/sockets/stream_sockets_fixture.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

// State that the sessions of a test share.
struct Site {
  explicit Site(EventLoop& its_loop) : loop(its_loop), frames(its_loop) {}

  void go_on() {
    CoroutineEvent& event = *events.front();
    events.erase(events.begin());
    event.set();
  }

  EventLoop& loop;
  FramesRig frames;
  std::vector<CoroutineEvent*> events;  // that sessions wait for
  std::string large = std::string(9000, 'l');
  std::vector<void*> released;
  int begun_count = 0;
  int ended_count = 0;
};

// Answers each line with itself. Some lines do more first:
//
//     wait         waits for an event; "wait twice" for two
//     long         says Site::large
//     lend         lends it three times; "long lend" does both
//     bytes N      takes N bytes, and says them
//     fill N       the same, by fill()
//     skip N       drops N bytes
//     number       says a number
//     end          ends the session, and waits for a line
//     bye          ends the coroutine
class Talk final : public CoroutineSession {
 public:
  explicit Talk(Site& site) noexcept
      : CoroutineSession(site.frames.frames, input_, output_), site_(site) {}

  Coroutine<> serve() noexcept override {
    ++site_.begun_count;
    for (bool is_over = false; !is_over;) {
      const std::string_view request = co_await line();
      if (request.empty()) break;
      is_over = request == "bye\n";
      if (request.starts_with("wait")) co_await wait_for_event();
      if (request == "wait twice\n") co_await wait_for_event();
      if (request.starts_with("long")) co_await say(site_.large);
      for (int i = 0; i < 3 && request.ends_with("lend\n"); ++i) {
        co_await lend(site_.large, &site_.large);
      }
      if (request == "end\n") {
        end();
      } else if (request == "number\n") {
        co_await say_number(18'446'744'073'709'551'615U);
      } else if (request.starts_with("bytes ") || request.starts_with("fill ") ||
                 request.starts_with("skip ")) {
        co_await take_more(request);
        continue;
      }
      co_await say(request);
    }
    ++site_.ended_count;
  }

 private:
  Coroutine<> wait_for_event() {
    CoroutineEvent event(site_.loop);
    site_.events.push_back(&event);
    co_await event;
  }
  Coroutine<> take_more(std::string_view request) {
    const auto count = static_cast<uint64_t>(std::atoi(request.substr(5).data()));
    if (request.starts_with("bytes ")) {
      const std::string_view more = co_await bytes(count);
      co_await say(more);
    } else if (request.starts_with("skip ")) {
      const bool is_skipped = co_await skip(count);
      if (is_skipped) co_await say("skipped");
    } else {
      char memory[200];
      const bool is_filled = co_await fill(memory, count);
      if (is_filled) co_await say({memory, count});
    }
    co_await say("\n");
  }
  void released(void* loan) noexcept override { site_.released.push_back(loan); }

  Site& site_;
  char input_[64];
  char output_[2 * StreamSession::kStepTextBytes];
};

}  // namespace

TEST_GROUP(CoroutineSession) {
  std::unique_ptr<EventLoop> loop = std::make_unique<EventLoop>();
  std::unique_ptr<Site> site;
  std::unique_ptr<Talk> talk;

  void setup() override {
    CHECK(loop->create({}).ok());
    site = std::make_unique<Site>(*loop);
    talk = std::make_unique<Talk>(*site);
  }
  void teardown() override {
    if (!talk->is_waiting()) talk->reset();
    CHECK_EQUAL(0, site->frames.frames.in_use());
    CHECK(site->events.empty());
    LONGS_EQUAL(site->begun_count, site->ended_count);
    talk.reset();
    site.reset();
    loop.reset();
  }

  // Gives as much of `text` as the session receives. Returns the rest.
  std::string_view try_give(std::string_view text) {
    while (!text.empty()) {
      const StreamSession::Input input = talk->input();
      if (input.piece_count == 0) break;
      const size_t bytes = std::min(input.pieces[0].iov_len, text.size());
      std::memcpy(input.pieces[0].iov_base, text.data(), bytes);
      text.remove_prefix(bytes);
      talk->received(bytes, 1000);
      CHECK(talk->is_valid());
    }
    return text;
  }
  void give(std::string_view text) { CHECK(try_give(text).empty()); }
  std::string take() {
    std::string all;
    for (auto pieces = talk->replies(); !pieces.empty(); pieces = talk->replies()) {
      for (const iovec& piece : pieces) {
        all.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
      }
      talk->handed_over(2000);
      talk->sent(2000);
      CHECK(talk->is_valid());
    }
    return all;
  }
};

TEST(CoroutineSession, AnswersRequestsInPartsAndManyAtOnce) {
  give("one\ntwo\nth");
  STRCMP_EQUAL("one\ntwo\n", take().c_str());
  give("ree\n");
  STRCMP_EQUAL("three\n", take().c_str());
  LONGS_EQUAL(1, site->begun_count);
}

TEST(CoroutineSession, AnswersInOrderThoughOneWaits) {
  give("one\nwait\nthree\n");
  STRCMP_EQUAL("one\n", take().c_str());
  CHECK(talk->is_waiting());
  site->go_on();
  CHECK_FALSE(talk->is_waiting());
  STRCMP_EQUAL("wait\nthree\n", take().c_str());
}

// The buffer of 64 bytes would move the line to its front, and receive over it.
TEST(CoroutineSession, ALineStaysInPlaceWhileTheCoroutineWaits) {
  const std::string first = std::string(30, 'a') + "\n",
                    second = "wait " + std::string(20, 'b') + "\n";
  give(first + second);
  STRCMP_EQUAL(first.c_str(), take().c_str());
  const std::string more = std::string(20, 'c') + "\n" + std::string(30, 'd') + "\n";
  const std::string_view rest = try_give(more);
  CHECK(!rest.empty());
  site->go_on();
  STRCMP_EQUAL(second.c_str(), take().substr(0, second.size()).c_str());
  give(rest);
  take();
}

// The answer before it is still being sent when the wait ends.
TEST(CoroutineSession, GoesOnWhenTheSocketHasTakenTheAnswerBefore) {
  give("one\nwait\n");
  CHECK(!talk->replies().empty());
  site->go_on();
  CHECK(talk->replies().empty());
  talk->sent(2000);
  STRCMP_EQUAL("wait\n", take().c_str());
}

TEST(CoroutineSession, SaysMoreThanOneStepMay) {
  give("long\nnumber\n");
  CHECK(take() == site->large + "long\n18446744073709551615number\n");
}

TEST(CoroutineSession, LendsMoreThanOneStepMay) {
  give("lend\nnext\n");
  CHECK(take() == site->large + site->large + site->large + "lend\nnext\n");
  LONGS_EQUAL(3, site->released.size());
}

TEST(CoroutineSession, TakesBytesThatAreNoLine) {
  give("bytes 5\na\nb\n");
  give("cone\n");
  STRCMP_EQUAL("a\nb\nc\none\n", take().c_str());
  const std::string body = std::string(150, 'x') + "\n";
  give("fill 151\n" + body + "two\n");
  CHECK(take() == body + "\ntwo\n");
  give("skip 151\n");
  give(body + "three\n");
  STRCMP_EQUAL("skipped\nthree\n", take().c_str());
  give("fill 3\nabcfour\n");  // the body came with its header
  STRCMP_EQUAL("abc\nfour\n", take().c_str());
}

TEST(CoroutineSession, ALineThatDoesNotFitEndsWithoutANewline) {
  const std::string line(64, 'x');
  give(line);
  CHECK(take() == line);
  give("rest\n");
  STRCMP_EQUAL("rest\n", take().c_str());
}

TEST(CoroutineSession, EndsWithItsCoroutine) {
  give("one\nbye\nthree\n");
  STRCMP_EQUAL("one\nbye\n", take().c_str());
  CHECK(talk->is_over());
  LONGS_EQUAL(1, site->ended_count);
  talk->reset();
  give("next\n");
  STRCMP_EQUAL("next\n", take().c_str());
  LONGS_EQUAL(2, site->begun_count);
}

TEST(CoroutineSession, MayEndBeforeItsCoroutine) {
  give("end\ntwo\n");
  STRCMP_EQUAL("end\n", take().c_str());
  CHECK(talk->is_over());
  LONGS_EQUAL(0, site->ended_count);
  talk->reset();
  LONGS_EQUAL(1, site->ended_count);
}

TEST(CoroutineSession, WithoutAFrameEndsAtOnce) {
  const CoroutineFrames::Scope scope(site->frames.frames);
  std::vector<void*> taken;
  for (void* each = CoroutineFrames::take(512); each != nullptr;
       each = CoroutineFrames::take(512)) {
    taken.push_back(each);
  }
  site->frames.refused.set(0);
  give("one\n");
  STRCMP_EQUAL("", take().c_str());
  CHECK(talk->is_over());
  CHECK_EQUAL(1, site->frames.refused.read());
  for (void* each : taken) CoroutineFrames::give_back(each);
}

// ---- Peers that go ------------------------------------------------------------------------------

TEST(CoroutineSession, APeerThatGoesEndsAWaitForInput) {
  give("one\nhal");
  take();
  talk->leave();
  LONGS_EQUAL(1, site->ended_count);
  CHECK_FALSE(talk->is_waiting());
}

TEST(CoroutineSession, APeerThatGoesEndsAFill) {
  give("fill 100\nabc");
  talk->leave();
  LONGS_EQUAL(1, site->ended_count);
}

TEST(CoroutineSession, APeerThatGoesEndsAWaitForRoom) {
  give("long lend\n");  // the output buffer holds less than half of the first answer
  CHECK(!talk->replies().empty());
  LONGS_EQUAL(0, site->ended_count);
  talk->leave();
  LONGS_EQUAL(1, site->ended_count);
  LONGS_EQUAL(3, site->released.size());  // loans that nobody reads come back at once
  talk->sent(2000);
  LONGS_EQUAL(1, site->begun_count);  // bytes of a peer that has gone begin no conversation
}

TEST(CoroutineSession, AWaitForSomethingElseIsFinishedFirst) {
  give("wait\nlend\n");
  talk->leave();
  CHECK(talk->is_waiting());
  LONGS_EQUAL(0, site->ended_count);
  site->go_on();
  LONGS_EQUAL(1, site->ended_count);
  CHECK_FALSE(talk->is_waiting());
  STRCMP_EQUAL("", take().c_str());
}

TEST(CoroutineSession, SeveralWaitsAreFinishedFirst) {
  give("wait twice\n");
  talk->leave();
  site->go_on();
  CHECK(talk->is_waiting());
  LONGS_EQUAL(0, site->ended_count);
  site->go_on();
  LONGS_EQUAL(1, site->ended_count);
}

namespace {

// Waits for an event once its peer has gone.
class Parting final : public CoroutineSession {
 public:
  explicit Parting(Site& site) noexcept
      : CoroutineSession(site.frames.frames, input_, output_), site_(site) {}
  Coroutine<> serve() noexcept override {
    (void)co_await bytes(2);
    CoroutineEvent event(site_.loop);
    site_.events.push_back(&event);
    co_await event;
    co_await say("nobody hears this");
    ++site_.ended_count;
  }

 private:
  Site& site_;
  char input_[64];
  char output_[2 * StreamSession::kStepTextBytes];
};

}  // namespace

TEST(CoroutineSession, KeepsItsConnectionWhileItWaitsBehindItsPeer) {
  Parting parting(*site);
  int changed_count = 0;
  parting.set_owner(
      {.changed = [](void* count) { ++*static_cast<int*>(count); }, .context = &changed_count});
  std::memcpy(parting.input().pieces[0].iov_base, "a", 1);
  parting.received(1, 1000);
  parting.leave();
  CHECK(parting.is_waiting());
  LONGS_EQUAL(0, changed_count);
  site->go_on();
  CHECK_FALSE(parting.is_waiting());
  LONGS_EQUAL(1, changed_count);
  LONGS_EQUAL(1, site->ended_count);
  parting.reset();
  site->ended_count = 0;
}

TEST(CoroutineSession, KeepsTheLawOfTheDataPath) {
  BP_SKIP_WITHOUT_LAW();
  const StreamSession::Input input = talk->input();
  std::memcpy(input.pieces[0].iov_base, "one\nbytes 2\nab", 14);
  size_t bytes = 0;
  LONGS_EQUAL(0, breaches_in([&] {
                talk->received(14, 1000);
                for (const iovec& piece : talk->replies()) bytes += piece.iov_len;
                talk->handed_over(2000);
                talk->sent(2000);
                talk->leave();
              }));
  LONGS_EQUAL(7, bytes);
}

TEST(CoroutineSession, IsSpokenForByItsOwnCoroutineAlone) {
  struct Body {
    static Coroutine<> run(Talk& other) { co_await other.serve(); }
  };
  BP_CHECK_DIES(
      "broken contract: a coroutine waits for the peer of a session that did not begin it", {
        EventLoop own_loop;
        if (!own_loop.create({}).ok()) abort();
        Site own(own_loop);
        Talk other(own);
        if (!start_coroutine(own.frames.frames, [&] { return Body::run(other); })) abort();
      });
}

// ---- With sockets -------------------------------------------------------------------------------

class CoroutineServerBodies : public SocketsFixture {
 public:
  static constexpr uint64_t kConnections = 3;
  static constexpr uint64_t kBytes = StreamServer::bytes_for<Talk>(kConnections);

  struct alignas(kCacheLineBytes) Memory {
    std::byte bytes[kBytes];
  };
  std::unique_ptr<Memory> memory = std::make_unique<Memory>();
  std::unique_ptr<Site> site;
  StreamServerCounters clients;
  std::unique_ptr<StreamServer> server = std::make_unique<StreamServer>();
  sockaddr_in address = {};
  Fd listener;

  void serve() {
    site = std::make_unique<Site>(*loop);
    listener = listening_socket(&address);
    server->create<Talk>({.loop = loop.get(), .sockets = sockets.get(), .counters = &clients},
                         memory->bytes, *site);
    server->add_listener(listener.number());
    server->start();
  }
  void say(const Fd& client, const std::string& text) {
    LONGS_EQUAL(text.size(), ::send(client.number(), text.data(), text.size(), MSG_NOSIGNAL));
  }
  std::string hear(const Fd& client, size_t bytes) {
    std::string heard;
    CHECK(run_until([&] {
      char buffer[1024];
      const ssize_t got = recv(client.number(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (got > 0) heard.append(buffer, static_cast<size_t>(got));
      return got == 0 || (got < 0 && errno != EAGAIN) || heard.size() >= bytes;
    }));
    return heard;
  }
  void wait_for_end() {
    CHECK(run_until([&] { return clients.connections_open.read() == 0; }));
    CHECK_EQUAL(0, site->frames.frames.in_use());
    LONGS_EQUAL(site->begun_count, site->ended_count);
    listener.close();
  }
  void vanish(Fd& client) {
    const linger at_once = {1, 0};
    setsockopt(client.number(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    client.close();  // a reset
  }

  void answers() {
    serve();
    Fd one = connect_to(address), other = connect_to(address);
    say(one, "one\nlong\n");
    say(other, "other\n");
    STRCMP_EQUAL("other\n", hear(other, 6).c_str());
    CHECK(hear(one, 9009) == "one\n" + site->large + "long\n");
    say(one, "bye\n");
    STRCMP_EQUAL("bye\n", hear(one, 1 << 20).c_str());
    one.close();
    other.close();
    wait_for_end();
  }

  void peer_vanishes_while_it_waits() {
    serve();
    Fd client = connect_to(address);
    say(client, "wait\n");
    CHECK(run_until([&] { return site->events.size() == 1; }));
    vanish(client);
    for (int i = 0; i < 10; ++i) pump();
    CHECK_EQUAL(1, clients.connections_open.read());
    site->go_on();
    wait_for_end();
  }

  // The kernel may write into the memory of a fill() until the receive has ended.
  void peer_vanishes_in_a_body() {
    serve();
    Fd client = connect_to(address);
    say(client, "one\nfill 100\nabc");
    STRCMP_EQUAL("one\n", hear(client, 4).c_str());
    vanish(client);
    wait_for_end();
  }

  void a_closed_side_is_answered() {
    serve();
    Fd client = connect_to(address);
    say(client, "one\nwait\n");
    shutdown(client.number(), SHUT_WR);
    CHECK(run_until([&] { return site->events.size() == 1; }));
    site->go_on();
    STRCMP_EQUAL("one\nwait\n", hear(client, 1 << 20).c_str());
    client.close();
    wait_for_end();
  }
};

BP_GROUPS_OF_BOTH_BACKENDS(CoroutineServer, CoroutineServerBodies);

BP_BOTH_BACKENDS(CoroutineServer, AnswersEachConnection, answers())
BP_BOTH_BACKENDS(CoroutineServer, KeepsTheConnectionOfAPeerThatVanishes,
                 peer_vanishes_while_it_waits())
BP_BOTH_BACKENDS(CoroutineServer, EndsWithAPeerThatVanishesInABody, peer_vanishes_in_a_body())
BP_BOTH_BACKENDS(CoroutineServer, AnswersAPeerThatHasClosedItsSide, a_closed_side_is_answered())
