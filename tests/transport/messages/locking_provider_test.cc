// One provider for many threads: calls to it take the lock, and its callbacks run without the lock.
//
// To prove that callbacks hold no lock, another thread uses the same provider during a callback.
#include "transport/messages/locking_provider.h"

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include <sched.h>

#include "tests/support/death_test.h"
#include "tests/support/patience.h"
#include "transport/messages/messenger.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr AmId kAm = 7;

// A provider whose behaviour a test sets. It asserts that only one thread is in it at a time.
class Watched final : public Provider, public Endpoint {
 public:
  static constexpr EndpointLimits kLimits = {100, 50, 20};

  explicit Watched(const Dispatcher*& dispatcher)
      : Endpoint("watched", kLimits), dispatcher_(dispatcher) {}

  const char* name() const noexcept override { return "watched"; }
  Result<Endpoint*> connect(const PeerAddress&) override { return this; }
  uint32_t poll(uint32_t) noexcept override {
    const Inside inside(*this);
    if (Completion* first = std::exchange(done, nullptr); first != nullptr) {
      inside_.store(false);
      first->call(*first, Outcome::kDone);
      BP_ASSERT(!inside_.exchange(true));
    }
    if (events.function != nullptr) {
      inside_.store(false);
      events.function(events.context, {PeerEventKind::kJoined, 3, 0});
      BP_ASSERT(!inside_.exchange(true));
    }
    if (std::exchange(has_message, false)) {
      inside_.store(false);
      was_delivered = dispatcher_->deliver({*this, kAm, {}, {.provider = this, .token = 5}});
      BP_ASSERT(!inside_.exchange(true));
    }
    return 1;
  }
  void release(const Loan& loan) noexcept override {
    const Inside inside(*this);
    if (loan.provider == this && loan.token == 5) ++released_count;
  }
  void announce_sleep() noexcept override {}
  void announce_awake() noexcept override {}
  void sleep(uint64_t) noexcept override {}
  bool can_sleep() const noexcept override { return true; }

  SendStatus am_send(AmId, std::span<const std::byte>) noexcept override {
    const Inside inside(*this);
    ++sent_count;
    return SendStatus::kDone;
  }
  SendStatus am_send_loan(AmId, std::span<const std::byte>, std::span<std::byte>,
                          Completion* returned) noexcept override {
    return keep(returned);
  }
  SendStatus start(const RemoteOperation& operation) noexcept override {
    return keep(operation.done);
  }
  SendStatus flush(Completion* flushed) noexcept override { return keep(flushed); }
  Result<RemoteMemory> expose(std::span<std::byte>) override {
    const Inside inside(*this);
    return RemoteMemory{};
  }
  void withdraw(const RemoteMemory&) noexcept override { const Inside inside(*this); }
  bool has_room() noexcept override {
    const Inside inside(*this);
    return true;
  }

  Completion* done = nullptr;  // of the last operation
  PeerEventHandler events;
  bool has_message = false;
  bool was_delivered = false;
  int released_count = 0;
  uint64_t sent_count = 0;  // not atomic, on purpose
  SendStatus answer = SendStatus::kPending;

 private:
  struct Inside {
    explicit Inside(Watched& provider) : owner(provider) {
      BP_ASSERT(!owner.inside_.exchange(true));
      sched_yield();  // lets other threads come in
    }
    ~Inside() { owner.inside_.store(false); }
    Watched& owner;
  };

  SendStatus keep(Completion* completion) noexcept {
    const Inside inside(*this);
    if (answer == SendStatus::kPending) done = completion;
    return answer;
  }

  const Dispatcher*& dispatcher_;
  std::atomic<bool> inside_{false};
};

struct Noted : Completion {
  explicit Noted(void (*body)(Noted&) = nullptr, Endpoint* endpoint = nullptr)
      : then(body), to(endpoint) {
    call = [](Completion& self, Outcome how) noexcept {
      auto& noted = static_cast<Noted&>(self);
      ++noted.count;
      noted.outcome = how;
      if (noted.then != nullptr) noted.then(noted);
    };
  }
  void (*then)(Noted&);
  Endpoint* to;
  int count = 0;
  Outcome outcome = Outcome::kUnknown;
  bool others_got_in = false;
};

// Whether another thread can send while this thread runs a callback.
bool others_get_in(Endpoint& to) {
  std::atomic<bool> is_sent{false};
  std::thread other([&] { is_sent.store(to.am_send(kAm, {}) == SendStatus::kDone); });
  const bool got_in = test::eventually([&] { return is_sent.load(); });
  BP_ASSERT(got_in);  // else join() would wait for ever
  other.join();
  return got_in;
}

}  // namespace

TEST_GROUP(LockingProvider) {
  static constexpr uint32_t kCompletionCount = 2;

  Messenger messenger;
  const Dispatcher* inner = nullptr;
  Watched watched{inner};
  LockingProvider locking{
      watched, messenger.dispatcher(), {.endpoint_count = 1, .completion_count = kCompletionCount}};

  void setup() override {
    inner = &locking.dispatcher();
    messenger.add_provider(locking);
  }
  void teardown() override { CHECK(locking.is_valid()); }
  Endpoint& peer() { return *messenger.connect({0}).value(); }
};

TEST(LockingProvider, WrapsAnEndpointOnce) {
  POINTERS_EQUAL(&peer(), &peer());
  POINTERS_EQUAL(static_cast<Endpoint*>(&watched), &LockingProvider::wrapped(peer()));
  STRCMP_EQUAL("watched", peer().provider_name());
  LONGS_EQUAL(Watched::kLimits.am_bytes_max, peer().limits().am_bytes_max);
  CHECK(peer().has_room());
}

TEST(LockingProvider, HasNoMorePeersThanWereAnnounced) {
  LockingProvider small(watched, messenger.dispatcher(), {});
  CHECK(small.connect({0}).ok());  // there is one spare endpoint
  BP_CHECK_DIES("assertion failed: ", [&] {
    const Dispatcher* none = nullptr;
    Watched other(none);
    small.dispatcher().deliver({other, kAm, {}, {}});
  }());
}

TEST(LockingProvider, AHandlerIsCalledWithoutTheLockAndAnswersWithIt) {
  struct Seen {
    Endpoint* from = nullptr;
    Loan loan;
    bool others_got_in = false;
  } seen;
  messenger.set_handler(kAm, {[](void* context, const Message& message) noexcept {
                                auto& it = *static_cast<Seen*>(context);
                                it = {&message.from, message.loan, others_get_in(message.from)};
                              },
                              &seen});
  watched.has_message = true;
  messenger.poll(1);
  CHECK(watched.was_delivered);
  CHECK(seen.others_got_in);
  POINTERS_EQUAL(&peer(), seen.from);
  POINTERS_EQUAL(&locking, seen.loan.provider);
  std::thread([&] { messenger.release(seen.loan); }).join();
  LONGS_EQUAL(1, watched.released_count);
}

// The inner provider must know: it counts the message and keeps the loan.
TEST(LockingProvider, SaysThatThereIsNoHandler) {
  watched.has_message = watched.was_delivered = true;
  messenger.poll(1);
  CHECK_FALSE(watched.was_delivered);
}

TEST(LockingProvider, ACompletionIsCalledWithoutTheLock) {
  std::byte memory[8] = {};
  Noted noted([](Noted& self) { self.others_got_in = others_get_in(*self.to); }, &peer());
  const auto comes_back = [&](SendStatus status) {
    CHECK(status == SendStatus::kPending);
    noted.others_got_in = false;
    const int before = noted.count;
    messenger.poll(1);
    return noted.count == before + 1 && noted.outcome == Outcome::kDone && noted.others_got_in;
  };
  for (int i = 0; i < 3; ++i) {  // more than there are completions
    CHECK(comes_back(peer().am_send_loan(kAm, {}, memory, &noted)));
    CHECK(comes_back(peer().put(memory, {}, &noted)));
    CHECK(comes_back(peer().flush(&noted)));
  }
  CHECK(peer().put(memory, {}, nullptr) == SendStatus::kPending);
  POINTERS_EQUAL(nullptr, watched.done);
}

TEST(LockingProvider, KeepsNoCompletionOfWhatDidNotBegin) {
  Noted noted;
  for (const SendStatus status : {SendStatus::kDone, SendStatus::kAgain, SendStatus::kGone}) {
    watched.answer = status;
    for (uint32_t i = 0; i <= kCompletionCount; ++i) CHECK(peer().flush(&noted) == status);
  }
  watched.answer = SendStatus::kPending;
  for (uint32_t i = 0; i < kCompletionCount; ++i) {
    CHECK(peer().flush(&noted) == SendStatus::kPending);
  }
  CHECK(peer().flush(&noted) == SendStatus::kAgain);
  messenger.poll(1);
  CHECK(peer().flush(&noted) == SendStatus::kPending);
  LONGS_EQUAL(1, noted.count);
}

TEST(LockingProvider, AnEventIsToldWithoutTheLock) {
  struct Told {
    Endpoint* to = nullptr;
    uint32_t member = 0;
    bool others_got_in = false;
  } told = {&peer()};
  watched.events = locking.events_to({[](void* context, const PeerEvent& event) noexcept {
                                        auto& it = *static_cast<Told*>(context);
                                        it.member = event.member;
                                        it.others_got_in = others_get_in(*it.to);
                                      },
                                      &told});
  // Also before the first poll: a new provider reports the peers that are already there.
  watched.events.function(watched.events.context, {PeerEventKind::kJoined, 9, 0});
  LONGS_EQUAL(9, told.member);
  told.others_got_in = false;
  messenger.poll(1);
  LONGS_EQUAL(3, told.member);
  CHECK(told.others_got_in);
}

// The inner provider asserts that it is never in two threads.
TEST(LockingProvider, ManyThreadsUseItWhileOnePolls) {
  constexpr uint32_t kThreads = 3;
  constexpr uint32_t kEach = 500;
  Endpoint& to = peer();
  std::atomic<uint32_t> running{kThreads};
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (uint32_t n = 0; n < kEach; ++n) {
        BP_ASSERT(to.am_send(kAm, {}) == SendStatus::kDone && to.has_room());
        to.withdraw(to.expose({}).value());
        BP_ASSERT(to.flush(nullptr) == SendStatus::kPending);
        messenger.release({.provider = &locking, .token = 5});
      }
      running.fetch_sub(1);
    });
  }
  while (running.load() > 0) messenger.poll(1);
  for (std::thread& thread : threads) thread.join();
  LONGS_EQUAL(kThreads * kEach, watched.sent_count);
}
