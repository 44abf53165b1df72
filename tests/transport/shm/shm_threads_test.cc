// Members on threads of their own, and members with several threads, for ThreadSanitizer.
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "platform/clock.h"
#include "tests/support/patience.h"
#include "tests/support/pool_fixture.h"
#include "tests/transport/shm/group_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

constexpr uint64_t kTooLongNs = 2 * kPatienceNs;
constexpr AmId kNumbered = 250;

// The head of a message: its thread and its number, which determine the other bytes.
struct Numbered {
  uint32_t thread = 0;
  uint32_t number = 0;
};

std::string make_numbered(const Numbered& head, size_t bytes) {
  std::string made(std::max(bytes, sizeof head), static_cast<char>(head.number * 7 + head.thread));
  std::memcpy(made.data(), &head, sizeof head);
  return made;
}

// Receives numbered messages, and counts the errors in them.
struct Checker {
  static constexpr uint32_t kThreadCountMax = 16;

  void listen(Messenger& messenger) {
    messenger.set_handler(kNumbered, {[](void* self, const Message& message) noexcept {
                                        static_cast<Checker*>(self)->handle(message);
                                      },
                                      this});
    owner = &messenger;
  }
  void handle(const Message& message) noexcept {
    const std::span<const std::byte> bytes =
        message.loan.is_there() ? message.loan.memory : message.payload;
    Numbered head;
    std::memcpy(&head, bytes.data(), sizeof head);
    if (head.thread >= kThreadCountMax || head.number != next[head.thread]++) ++wrong;
    const auto fill = static_cast<std::byte>(head.number * 7 + head.thread);
    for (std::byte byte : bytes.subspan(sizeof head)) wrong += byte != fill;
    ++count;
    if (message.loan.is_there()) owner->release(message.loan);
  }

  Messenger* owner = nullptr;
  uint32_t next[kThreadCountMax] = {};
  uint64_t count = 0;
  uint64_t wrong = 0;
};

GroupShape small_shape(GroupKind kind, uint32_t member_count) {
  GroupShape shape = shape_of(kind, member_count);
  shape.entry_count = 16;
  shape.eager_bytes = 1000;
  shape.eager_count = 4;
  shape.box_count = 4;
  shape.box_bytes = 1024;
  shape.send_threshold = 4;
  shape.is_multi_threaded = 1;
  return shape;
}

struct Block : Completion {
  std::span<std::byte> memory;
  std::atomic<bool> is_out{false};
};

}  // namespace

TEST_GROUP(ShmThreads) {
  TestPool pool;
  std::span<std::byte> lent;

  void setup() override { lent = pool.memory(256 * kKiB); }
};

// One member, four threads that send through the same two endpoints, while its shard polls.
TEST(ShmThreads, ManyThreadsSendThroughTheSameEndpoints) {
  constexpr uint32_t kThreads = 4;
  constexpr uint32_t kEach = 3000;
  for (GroupKind kind : {GroupKind::kLazy, GroupKind::kMesh}) {
    GroupRig rig(small_shape(kind, 3), &*pool);
    Member* members[3] = {&rig.join(0, true), &rig.join(1), &rig.join(2)};
    Checker checkers[3];
    Endpoint* to[3] = {nullptr, &members[0]->to(1), &members[0]->to(2)};
    std::atomic<bool> is_over{false};
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < 3; ++i) {
      checkers[i].listen(members[i]->messenger);
      threads.emplace_back([&, i] {
        while (!is_over.load(std::memory_order_acquire)) {
          if (members[i]->messenger.poll(16) == 0) std::this_thread::yield();
        }
      });
    }
    std::vector<std::thread> senders;
    std::vector<Block> blocks(kThreads);
    for (uint32_t t = 0; t < kThreads; ++t) {
      blocks[t].memory = lent.subspan(t * 512, 512);
      blocks[t].call = [](Completion& self, Outcome) noexcept {
        static_cast<Block&>(self).is_out.store(false, std::memory_order_release);
      };
      senders.emplace_back([&, t] {
        uint32_t numbers[3] = {};
        for (uint32_t i = 0; i < 2 * kEach; ++i) {
          const uint32_t peer = 1 + i % 2;
          const std::string text = make_numbered({t, numbers[peer]++}, (i * 37 + t) % 1001);
          if (i % 5 == 0 && !blocks[t].is_out.load(std::memory_order_acquire)) {
            const std::string block = make_numbered({t, numbers[peer] - 1}, 512);
            std::memcpy(blocks[t].memory.data(), block.data(), block.size());
            blocks[t].is_out.store(true, std::memory_order_relaxed);
            while (to[peer]->am_send_loan(kNumbered, {}, blocks[t].memory, &blocks[t]) !=
                   SendStatus::kPending) {
              std::this_thread::yield();
            }
            continue;
          }
          while (to[peer]->am_send(kNumbered, bytes_of(text)) != SendStatus::kDone) {
            std::this_thread::yield();
          }
        }
      });
    }
    for (std::thread& sender : senders) sender.join();
    const auto loans_out = [&] {
      for (Block& block : blocks) {
        if (block.is_out.load(std::memory_order_acquire)) return true;
      }
      return false;
    };
    CHECK(eventually([&] { return !loans_out(); }));
    is_over.store(true, std::memory_order_release);
    for (std::thread& thread : threads) thread.join();
    for (uint32_t i = 1; i < 3; ++i) {
      while (members[i]->messenger.poll(16) > 0) {
      }
      LONGS_EQUAL(0, checkers[i].wrong);
      LONGS_EQUAL(kThreads * kEach, checkers[i].count);
      LONGS_EQUAL(0, members[i]->counters.cut_off.read());
    }
  }
}

// Two senders take turns at being busy, so that the receiver's only box goes to and fro between
// them while both go on sending messages of all lengths.
TEST(ShmThreads, ABoxGoesToAndFroWhileBothSend) {
  GroupShape shape = small_shape(GroupKind::kLazy, 3);
  shape.box_count_max = 1;
  shape.send_threshold = 1;
  GroupRig rig(shape, &*pool);
  Member* members[3] = {&rig.join(0), &rig.join(1), &rig.join(2)};
  Checker checker;
  checker.listen(members[0]->messenger);
  std::atomic<uint32_t> running{2}, sent{0};
  std::vector<std::thread> senders;
  constexpr uint32_t kEach = 40000;
  const uint64_t end_ns = monotonic_ns() + kTooLongNs;
  // On a busy machine one sender may end before the other begins, so they go on until the box has
  // moved.
  const auto has_moved = [&] {
    return members[0]->counters.boxes_returned.read() > 0 || monotonic_ns() > end_ns;
  };
  for (uint32_t i = 1; i < 3; ++i) {
    senders.emplace_back([&, i] {
      Endpoint& to = members[i]->to(0);
      for (uint32_t n = 0; n < kEach || !has_moved(); ++n, sent.fetch_add(1)) {
        const std::string text = make_numbered({i, n}, n % 3 == 0 ? n % 1001 : 60 + n % 100);
        while (to.am_send(kNumbered, bytes_of(text)) == SendStatus::kAgain) {
          members[i]->messenger.poll(16);
          std::this_thread::yield();
        }
        if (n % 2 == 0) members[i]->messenger.poll(16);
        // Each is silent at times, for as long as the other needs to get the box.
        if (n % 200 == i * 100 - 100) {
          for (int k = 0; k < 20; ++k) {
            members[i]->messenger.poll(16);
            std::this_thread::yield();
          }
        }
      }
      for (int k = 0; k < 1000; ++k) members[i]->messenger.poll(16);
      running.fetch_sub(1);
    });
  }
  const auto is_complete = [&] {
    return checker.count == sent.load() || members[0]->counters.cut_off.read() > 0;
  };
  while (running.load() > 0) {
    if (members[0]->messenger.poll(16) == 0) std::this_thread::yield();
  }
  eventually([&] { return members[0]->messenger.poll(16) == 0 && is_complete(); });
  for (std::thread& sender : senders) sender.join();
  LONGS_EQUAL(sent.load(), checker.count);
  LONGS_EQUAL(0, checker.wrong);
  LONGS_EQUAL(0, members[0]->counters.cut_off.read());
  CHECK(members[0]->counters.boxes_returned.read() > 0);
}

// Each member sleeps when it has no message. A message without a wake-up would show as a long
// sleep.
TEST(ShmThreads, EveryMessageWakesWhoWaitsForIt) {
  for (GroupKind kind : kGroupKinds) {
    constexpr uint32_t kRounds = 3000;
    GroupRig rig(small_shape(kind, 2), &*pool);
    Member* members[2] = {&rig.join(0), &rig.join(1)};
    Checker checkers[2];
    for (uint32_t i = 0; i < 2; ++i) checkers[i].listen(members[i]->messenger);
    uint64_t longest_ns[2] = {};
    const auto play = [&](uint32_t self) {
      Endpoint& to = members[self]->to(1 - self);
      for (uint32_t round = 0; round < kRounds; ++round) {
        const std::string text = make_numbered({1 - self, round}, round % 300);
        const auto send = [&] {
          while (to.am_send(kNumbered, bytes_of(text)) != SendStatus::kDone) {
            members[self]->messenger.poll(16);
            std::this_thread::yield();
          }
        };
        if (self == 0) send();
        while (checkers[self].count <= round) {
          const uint64_t begin_ns = monotonic_ns();
          members[self]->messenger.wait(kTooLongNs);
          longest_ns[self] = std::max(longest_ns[self], monotonic_ns() - begin_ns);
        }
        if (self == 1) send();
      }
    };
    std::thread other(play, 1);
    play(0);
    other.join();
    for (const uint64_t ns : longest_ns) CHECK(ns < kPatienceNs);
    for (const Checker& checker : checkers) LONGS_EQUAL(0, checker.wrong);
  }
}

// A loan that another thread releases comes back although the borrower's shard sleeps.
TEST(ShmThreads, AReleaseByAnotherThreadWakesTheLender) {
  GroupRig rig(small_shape(GroupKind::kLazy, 2), &*pool);
  Member& a = rig.join(0);
  Member& b = rig.join(1, true);
  Block block;
  block.is_out.store(true);
  block.call = [](Completion& self, Outcome) noexcept {
    static_cast<Block&>(self).is_out.store(false);
  };
  CHECK(a.to(1).am_send_loan(1, {}, lent.first(100), &block) == SendStatus::kPending);
  b.messenger.poll(8);
  LONGS_EQUAL(1, b.received.size());
  std::thread releaser([&] { b.messenger.release(b.received[0].loan); });
  const uint64_t begin_ns = monotonic_ns();
  while (block.is_out.load() && monotonic_ns() - begin_ns < kTooLongNs) {
    a.messenger.wait(kTooLongNs);
  }
  releaser.join();
  CHECK_FALSE(block.is_out.load());
  CHECK(monotonic_ns() - begin_ns < kPatienceNs);
}

// Operations that the target executes, started by several threads.
TEST(ShmThreads, OperationsOfManyThreadsEndOnce) {
  constexpr uint32_t kThreads = 3;
  constexpr uint32_t kEach = 1000;
  struct Done : Completion {
    std::atomic<uint32_t> count{0};
  };
  GroupRig rig(small_shape(GroupKind::kLazy, 2), &*pool);
  Member& a = rig.join(0, true);
  Member& b = rig.join(1);
  alignas(8) std::byte outside[8] = {};
  auto exposed = b.to(0).expose(outside);
  CHECK(exposed.ok());
  Endpoint& to = a.to(1);
  std::atomic<bool> is_over{false};
  std::vector<std::thread> pollers;
  for (Member* member : {&a, &b}) {
    pollers.emplace_back([&, member] {
      while (!is_over.load()) {
        if (member->messenger.poll(16) == 0) std::this_thread::yield();
      }
    });
  }
  std::vector<std::thread> threads;
  Done done[kThreads];
  for (Done& one : done) {
    one.call = [](Completion& self, Outcome outcome) noexcept {
      if (outcome == Outcome::kDone) static_cast<Done&>(self).count.fetch_add(1);
    };
    threads.emplace_back([&] {
      for (uint32_t i = 0; i < kEach;) {
        if (to.fetch_add(exposed.value(), 1, nullptr, &one) == SendStatus::kPending) ++i;
        else std::this_thread::yield();
        while (one.count.load() < i) std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  is_over.store(true);
  for (std::thread& poller : pollers) poller.join();
  uint64_t sum = 0;
  std::memcpy(&sum, outside, 8);
  LONGS_EQUAL(kThreads * kEach, sum);
}
