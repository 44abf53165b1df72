// The messenger: the provider that it chooses, the reasons for refusals, and arriving messages.
#include "transport/messages/messenger.h"

#include <thread>

#include "platform/clock.h"
#include "platform/thread_owner.h"
#include "platform/units.h"
#include "tests/support/death_test.h"
#include "tests/support/patience.h"
#include "tests/support/skip.h"
#include "tests/transport/messages/fake_provider.h"
#include "tests/transport/shm/group_rig.h"
#include "transport/self/self_provider.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

// A provider without peers. It reports `found` at each poll, and counts its polls.
class CountingProvider final : public Provider {
 public:
  uint32_t found = 0;
  uint32_t polls = 0;

  const char* name() const noexcept override { return "counting"; }
  Result<Endpoint*> connect(const PeerAddress&) override { return Error(); }
  uint32_t poll(uint32_t) noexcept override { return ++polls, found; }
  void release(const Loan&) noexcept override {}
  void announce_sleep() noexcept override {}
  void announce_awake() noexcept override {}
  void sleep(uint64_t) noexcept override {}
  bool can_sleep() const noexcept override { return true; }
};

// Three providers, of which the first always finds something. They are polled until the other two
// are quiet.
struct QuietRig {
  Messenger messenger;
  CountingProvider providers[3];

  QuietRig() {
    for (CountingProvider& one : providers) messenger.add_provider(one);
    providers[0].found = 1;
    poll(2 * Messenger::kQuietPolls);
    expect(128, 128, 128);
  }
  void poll(uint32_t times) {
    for (CountingProvider& one : providers) one.polls = 0;
    for (uint32_t i = 0; i < times; ++i) messenger.poll(16);
  }
  void expect(uint32_t first, uint32_t second, uint32_t third) {
    LONGS_EQUAL(first, providers[0].polls);
    LONGS_EQUAL(second, providers[1].polls);
    LONGS_EQUAL(third, providers[2].polls);
  }
};

}  // namespace

TEST_GROUP(Messenger) { const GroupShape shape = shape_of(GroupKind::kLazy, 3); };

TEST(Messenger, WithoutProvidersSaysSo) {
  Messenger messenger;
  auto endpoint = messenger.connect({0});
  CHECK_FALSE(endpoint.ok());
  STRCMP_CONTAINS("no providers", endpoint.error().answer);
  STRCMP_CONTAINS("add_provider", endpoint.error().cure);
}

TEST(Messenger, TakesTheFirstProviderThatReachesThePeer) {
  GroupRig rig(shape);
  Member& a = rig.join(0);
  rig.join(1);
  SelfProvider self(0, a.messenger.dispatcher());
  a.messenger.add_provider(self);
  STRCMP_EQUAL("shm", a.to(1).provider_name());
  STRCMP_EQUAL("self", a.to(0).provider_name());
  POINTERS_EQUAL(&a.to(1), &a.to(1));
}

TEST(Messenger, EachProviderSaysWhyItWasNotTaken) {
  GroupRig rig(shape);
  Member& a = rig.join(0);
  const struct {
    uint32_t member;
    const char* why;
  } cases[] = {{3, "the group has 3 members"},
               {UINT32_MAX, "the group has 3 members"},
               {0, "that is this member itself"},
               {1, "its slot is free"}};
  for (const auto& one : cases) {
    auto endpoint = a.messenger.connect({one.member});
    CHECK_FALSE(endpoint.ok());
    STRCMP_CONTAINS(one.why, endpoint.error().answer);
    CHECK(endpoint.error().cure[0] != '\0');
  }
  SelfProvider self(0, a.messenger.dispatcher());
  a.messenger.add_provider(self);
  auto endpoint = a.messenger.connect({1});
  CHECK_FALSE(endpoint.ok());
  STRCMP_CONTAINS("shm: its slot is free; self: ", endpoint.error().answer);
}

TEST(Messenger, WhatHasNoHandlerIsCountedAndItsLoanGivenBack) {
  GroupRig rig(shape);
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  CHECK(a.to(1).am_send(200, bytes_of("nobody")) == SendStatus::kDone);
  CHECK(a.to(1).am_send(1, bytes_of("somebody")) == SendStatus::kDone);
  b.messenger.poll(8);
  LONGS_EQUAL(1, b.counters.unhandled.read());
  LONGS_EQUAL(1, b.received.size());
  LONGS_EQUAL(2, b.counters.received.read());
}

TEST(Messenger, PollSaysHowMuchCameWithinItsBudget) {
  GroupRig rig(shape);
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  for (int i = 0; i < 5; ++i) CHECK(a.to(1).am_send(1, bytes_of("x")) == SendStatus::kDone);
  LONGS_EQUAL(2, b.messenger.poll(2));
  LONGS_EQUAL(3, b.messenger.poll(8));
  LONGS_EQUAL(0, b.messenger.poll(8));
}

TEST(Messenger, PollWithoutABudgetTakesNothing) {
  for (GroupKind kind : {GroupKind::kLazy, GroupKind::kMesh, GroupKind::kExchange}) {
    GroupRig rig(shape_of(kind, 2));
    Member& a = rig.join(0);
    Member& b = rig.join(1);
    CHECK(a.to(1).am_send(1, bytes_of("x")) == SendStatus::kDone);
    b.messenger.poll(0);
    LONGS_EQUAL(0, b.received.size());
    b.messenger.poll(8);
    LONGS_EQUAL(1, b.received.size());
  }
}

TEST(Messenger, WaitReturnsAtOnceWhenSomethingIsThere) {
  GroupRig rig(shape);
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  CHECK(a.to(1).am_send(1, bytes_of("x")) == SendStatus::kDone);
  const uint64_t begin_ns = monotonic_ns();
  b.messenger.wait(2 * kPatienceNs);
  CHECK(monotonic_ns() - begin_ns < kPatienceNs);
  LONGS_EQUAL(1, b.received.size());
  b.messenger.wait(kNsPerMs);  // without messages it ends by itself
  CHECK(a.to(1).am_send(9, {}) == SendStatus::kDone);
  CHECK(a.to(1).am_send(9, bytes_of(std::string(4097, 'x'))) == SendStatus::kTooLong);
}

// ---- Room ----

namespace {

// Within its call it cancels `other`, and waits for room again `again_count` times.
struct Room : RoomCall {
  Room() {
    call = [](RoomCall& self) noexcept {
      auto& room = static_cast<Room&>(self);
      ++room.count;
      if (room.other != nullptr) room.messenger->take_back(*room.other);
      if (room.again_count-- > 0) room.messenger->notify_room(*room.peer, room);
    };
  }
  Messenger* messenger = nullptr;
  Endpoint* peer = nullptr;
  RoomCall* other = nullptr;
  int again_count = 0;
  int count = 0;
};

}  // namespace

BP_PROBE(poll_within_a_handler) {
  static Messenger messenger;
  SelfProvider self(0, messenger.dispatcher());
  messenger.add_provider(self);
  messenger.set_handler(1, {[](void*, const Message&) noexcept { messenger.poll(8); }, nullptr});
  BP_PROBE_CHECK(messenger.connect({0}).value()->am_send(1, {}) == SendStatus::kDone);
  messenger.poll(8);
}

TEST(Messenger, AHandlerThatPollsIsTold) {
  check_died(run_fresh("poll_within_a_handler"),
             "broken contract: a handler or another callback of a poll polls its messenger: it "
             "returns instead (Messenger::poll, wait; bp_poll, bp_wait)\n",
             __FILE__, __LINE__);
}

// In any build, once the loop runs.
TEST(Messenger, OfALoopItIsConnectedOnTheLoopsThreadAlone) {
  ThreadOwner loop;
  Messenger messenger;
  messenger.follow(loop);
  FakeProvider fake(1, 1, messenger.dispatcher());
  messenger.add_provider(fake);
  CHECK(messenger.connect({0}).ok());
  const ThreadOwner::Hold hold(loop);
  CHECK(messenger.connect({0}).ok());
  Ended ended;
  std::thread([&] { ended = run_forked([&] { (void)messenger.connect({0}); }); }).join();
  check_died(ended, "Messenger::connect was called on another thread", __FILE__, __LINE__);
}

TEST(Messenger, RoomIsToldOnceAPollAndMayBeAskedForAgainWithinTheCall) {
  Messenger messenger;
  FakeProvider fake(1, 1, messenger.dispatcher());
  messenger.add_provider(fake);
  Endpoint& peer = *messenger.connect({0}).value();
  Room first, second, third;
  for (Room* room : {&first, &second, &third}) {
    room->messenger = &messenger;
    room->peer = &peer;
    messenger.notify_room(peer, *room);
  }
  first.again_count = 3;
  first.other = &second;
  // Counts the third, and the second, which was cancelled. The first waits again.
  LONGS_EQUAL(2, messenger.poll(16));
  LONGS_EQUAL(1, first.count);
  LONGS_EQUAL(0, second.count);
  LONGS_EQUAL(1, third.count);
  LONGS_EQUAL(0, messenger.poll(16));  // not counted: the first waits again
  LONGS_EQUAL(2, first.count);
  // The messenger checks less and less often.
  const auto is_seldom = [&] { return messenger.sleep_max_ns() == RoomWait::kLookMaxNs; };
  CHECK(test::eventually(is_seldom));
  LONGS_EQUAL(0, messenger.poll(16));
  LONGS_EQUAL(1, messenger.poll(16));
  LONGS_EQUAL(4, first.count);
  CHECK(messenger.sleep_max_ns() == PollSource::kUnlimitedNs);
  messenger.take_back(first);  // does nothing
  messenger.poll(16);
  LONGS_EQUAL(4, first.count);
}

// A peer that never reads costs a look every 50 ms: the pause grows from poll to poll.
TEST(Messenger, LooksForRoomMoreAndMoreSeldomWhileThereIsNone) {
  GroupRig rig(shape);
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  Endpoint& peer = a.to(1);
  while (peer.am_send(9, {}) == SendStatus::kDone) continue;
  Room room;
  a.messenger.notify_room(peer, room);
  const auto is_seldom = [&] { return a.messenger.sleep_max_ns() == RoomWait::kLookMaxNs; };
  CHECK(test::eventually(is_seldom));
  a.messenger.poll(16);
  CHECK(is_seldom());
  LONGS_EQUAL(0, room.count);
  for (int i = 0; i < 100 && room.count == 0; ++i) {
    b.messenger.poll(16);
    a.messenger.poll(16);
  }
  LONGS_EQUAL(1, room.count);
  CHECK(a.messenger.sleep_max_ns() == PollSource::kUnlimitedNs);
}

// A peer dies while a caller waits for room there: the call comes, and the next send returns kGone.
TEST(Messenger, ThoseWhoWaitForRoomAreToldOfADeath) {
  GroupRig rig(shape);
  Member& a = rig.join(0);
  rig.join(1);
  Endpoint& peer = a.to(1);
  while (peer.am_send(9, {}) == SendStatus::kDone) continue;
  Room room;
  a.messenger.notify_room(peer, room);
  a.messenger.poll(16);
  LONGS_EQUAL(0, room.count);
  rig.kill(1);
  for (int i = 0; i < 100 && room.count == 0; ++i) a.messenger.poll(16);
  LONGS_EQUAL(1, room.count);
  CHECK(peer.am_send(9, {}) == SendStatus::kGone);
}

// ---- Names and their numbers ----

namespace {

struct Query : NumberQuery {
  int answer_count = 0;
  std::optional<AmId> number;
  Query() {
    answered = [](NumberQuery& self, std::optional<AmId> told) noexcept {
      auto& query = static_cast<Query&>(self);
      ++query.answer_count;
      query.number = told;
    };
  }
};

}  // namespace

TEST(Messenger, ANumberIsTheReceiversAndAskedForByName) {
  GroupRig rig(shape);
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  MessageNames names;
  LONGS_EQUAL(128, names.add("cache.get").take());
  LONGS_EQUAL(129, names.add("cache.put").take());
  b.messenger.answer_names(names);
  Query put, none;
  CHECK(a.messenger.ask_number(a.to(1), "cache.put", put) == SendStatus::kDone);
  CHECK(a.messenger.ask_number(a.to(1), "cache.drop", none) == SendStatus::kDone);
  b.messenger.poll(8);
  LONGS_EQUAL(0, put.answer_count);
  a.messenger.poll(8);
  LONGS_EQUAL(1, put.answer_count);
  LONGS_EQUAL(129, *put.number);
  LONGS_EQUAL(1, none.answer_count);
  CHECK_FALSE(none.number.has_value());
  // A messenger without names has no number.
  Query back;
  CHECK(b.messenger.ask_number(b.to(0), "cache.put", back) == SendStatus::kDone);
  a.messenger.poll(8);
  b.messenger.poll(8);
  LONGS_EQUAL(1, back.answer_count);
  CHECK_FALSE(back.number.has_value());
}

TEST(Messenger, OnlyWhatWasAskedIsAnsweredAndOnlyByThePeerThatWas) {
  GroupRig rig(shape);
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  Member& c = rig.join(2);
  MessageNames names;
  CHECK(names.add("cache.get").ok());
  b.messenger.answer_names(names);
  Query query, taken_back;
  CHECK(a.messenger.ask_number(a.to(1), "cache.get", query) == SendStatus::kDone);
  CHECK(a.messenger.ask_number(a.to(1), "cache.get", taken_back) == SendStatus::kDone);
  a.messenger.take_back(taken_back);
  const int32_t forged[2] = {static_cast<int32_t>(query.token), 200};
  CHECK(c.to(0).am_send(kTellNumberAm, std::as_bytes(std::span(forged))) == SendStatus::kDone);
  CHECK(b.to(0).am_send(kTellNumberAm, bytes_of("?")) == SendStatus::kDone);
  a.messenger.poll(8);
  LONGS_EQUAL(0, query.answer_count);
  b.messenger.poll(8);
  a.messenger.poll(8);
  LONGS_EQUAL(1, query.answer_count);
  LONGS_EQUAL(128, *query.number);
  LONGS_EQUAL(0, taken_back.answer_count);
  // A number outside the range of names counts as none.
  Query again;
  CHECK(a.messenger.ask_number(a.to(1), "cache.get", again) == SendStatus::kDone);
  const int32_t odd[2] = {static_cast<int32_t>(again.token), 3};
  CHECK(b.to(0).am_send(kTellNumberAm, std::as_bytes(std::span(odd))) == SendStatus::kDone);
  a.messenger.poll(8);
  LONGS_EQUAL(1, again.answer_count);
  CHECK_FALSE(again.number.has_value());
}

namespace {

// A member that asks another one for numbers without end, and reads no answer until told to.
struct Asker {
  Member& self;
  Member& asked;
  std::vector<std::unique_ptr<Query>> queries;

  // Asks for more numbers than the waiting list and the queue hold. With a sanitizer there are
  // fewer, because each poll checks the whole list.
  Asker(Member& asker, Member& peer) : self(asker), asked(peer) {
    const int count = test::kIsSanitized ? 300 : 2000;
    for (int i = 0; i < count; ++i) {
      queries.push_back(std::make_unique<Query>());
      if (self.messenger.ask_number(self.to(1), "cache.get", *queries.back()) !=
          SendStatus::kDone) {
        queries.pop_back();
      }
      asked.messenger.poll(8);
    }
  }
  ~Asker() {
    for (const auto& query : queries) self.messenger.take_back(*query);
  }
  size_t read_answers() {
    for (int i = 0; i < 100; ++i) {
      self.messenger.poll(64);
      asked.messenger.poll(64);
    }
    return static_cast<size_t>(std::count_if(queries.begin(), queries.end(), [](const auto& query) {
      return query->answer_count == 1;
    }));
  }
};

}  // namespace

TEST(Messenger, AnswersWaitForRoomAndAreBounded) {
  GroupRig rig(shape);
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  MessageNames names;
  CHECK(names.add("cache.get").ok());
  b.messenger.answer_names(names);
  Asker asker(a, b);
  const size_t answered = asker.read_answers();
  CHECK(answered > 16);
  CHECK(answered < asker.queries.size());
  Query last;
  CHECK(a.messenger.ask_number(a.to(1), "cache.get", last) == SendStatus::kDone);
  b.messenger.poll(64);
  a.messenger.poll(64);
  LONGS_EQUAL(1, last.answer_count);
}

// The other peer's answer waits, too: the first one has left it a place.
TEST(Messenger, AnswersThatNobodyReadsLeaveOtherPeersTheirs) {
  GroupRig rig(shape);
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  Member& c = rig.join(2);
  MessageNames names;
  CHECK(names.add("cache.get").ok());
  b.messenger.answer_names(names);
  Asker asker(a, b);
  while (b.to(2).am_send(9, {}) == SendStatus::kDone) continue;
  Query query;
  CHECK(c.messenger.ask_number(c.to(1), "cache.get", query) == SendStatus::kDone);
  b.messenger.poll(64);
  LONGS_EQUAL(0, query.answer_count);
  for (int i = 0; i < 100 && query.answer_count == 0; ++i) {
    c.messenger.poll(64);
    b.messenger.poll(64);
  }
  LONGS_EQUAL(1, query.answer_count);
}

TEST(Messenger, NamesAreOfTheirLengthOnceAndSoMany) {
  MessageNames names;
  CHECK(names.add(std::string(47, 'a')).ok());
  CHECK_FALSE(names.add(std::string(48, 'a')).ok());
  CHECK_FALSE(names.add("").ok());
  auto twice = names.add(std::string(47, 'a'));
  CHECK_FALSE(twice.ok());
  STRCMP_EQUAL("it has one already", twice.error().answer);
  for (int i = 1; i < 126; ++i) CHECK(names.add("n" + std::to_string(i)).ok());
  LONGS_EQUAL(253, *names.find("n125"));
  auto over = names.add("one more");
  CHECK_FALSE(over.ok());
  STRCMP_EQUAL("all 126 are in use", over.error().answer);
}

TEST(Messenger, SaysWhichProviderItTookAndWhy) {
  GroupRig rig(shape);
  Member& a = rig.join(0);
  rig.join(1);
  Messenger messenger;
  SelfProvider self(5, messenger.dispatcher(), "here");
  messenger.add_provider(self);
  messenger.add_provider(a.shm);
  std::string why;
  CHECK(messenger.connect({.name = "here"}, &why).ok());
  STRCMP_EQUAL("self", why.c_str());
  CHECK(messenger.connect({1}, &why).ok());
  STRCMP_EQUAL("shm, since self: this is member 5", why.c_str());
  auto nobody = messenger.connect({.name = "nobody"});
  CHECK_FALSE(nobody.ok());
  STRCMP_EQUAL("self: this is here; shm: no living member has this name", nobody.error().answer);
}

TEST(Messenger, LooksAtQuietProvidersInTurn) {
  QuietRig rig;
  rig.poll(8 * Messenger::kPollsPerQuietOne);
  rig.expect(8 * Messenger::kPollsPerQuietOne, 4, 4);
}

TEST(Messenger, WhereNothingComesItLooksAtOneOfThemInEachPoll) {
  QuietRig rig;
  rig.providers[0].found = 0;
  rig.poll(2 * Messenger::kQuietPolls);
  rig.poll(20);
  rig.expect(20, 10, 10);
}

TEST(Messenger, WhereSomethingComesItLooksEachTimeAgain) {
  QuietRig rig;
  rig.providers[1].found = 1;
  rig.poll(2 * Messenger::kPollsPerQuietOne);
  CHECK(rig.providers[1].polls >= 1);
  rig.providers[1].found = 0;
  rig.poll(30);
  LONGS_EQUAL(30, rig.providers[1].polls);
  CHECK(rig.providers[2].polls < 10);
}

TEST(Messenger, ItsLastLookBeforeASleepIsAtAllAndSoAreTheFirstOnes) {
  QuietRig rig;
  rig.messenger.announce_sleep();
  rig.poll(1);
  rig.expect(1, 1, 1);
  rig.messenger.announce_awake();
  rig.poll(Messenger::kQuietPolls - 1);
  rig.expect(63, 63, 63);
}
