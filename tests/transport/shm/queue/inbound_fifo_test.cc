// The inbound FIFO: alone, with writers that die at each step, and between threads.
#include "transport/shm/queue/inbound_fifo_datapath.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

// Invariant 4: a writer's end has no tail to set.
template <typename End>
concept SetsTail = requires(End end) {
  end.set_tail(0);
};
static_assert(SetsTail<InboundFifoReader> && !SetsTail<InboundFifo>);

TEST_GROUP(InboundFifo) {
  static constexpr uint32_t kLine = kCacheLineBytes;

  std::byte* memory = nullptr;
  InboundFifoReader fifo;
  uint32_t entries = 0;
  uint64_t tail = 0;        // the reader's
  uint64_t known_tail = 0;  // a writer's

  // `start`: the number of messages that seem to have passed already.
  void make(uint32_t entry_count, uint64_t start = 0) {
    teardown();
    entries = entry_count;
    const uint64_t bytes = 2 * kLine + InboundFifo::slot_bytes(entry_count);
    memory = static_cast<std::byte*>(std::aligned_alloc(kLine, bytes));
    std::memset(memory, 0, bytes);
    fifo = InboundFifoReader({memory, entry_count, kLine});
    tail = known_tail = start;
    counter().store(start);
    fifo.set_tail(start);
    for (uint64_t i = start - entry_count; start != 0 && i != start; ++i) {
      slot(i).header.store(pack_slot(lap(i), {SlotKind::kInline, 0, 0, 0}));
    }
  }
  void teardown() override {
    std::free(memory);
    memory = nullptr;
  }

  std::atomic<uint64_t>& counter() { return *reinterpret_cast<std::atomic<uint64_t>*>(memory); }
  MessageSlot& slot(uint64_t index) {
    return reinterpret_cast<MessageSlot*>(memory + 2 * kLine)[index % entries];
  }
  uint64_t lap(uint64_t index) {
    return lap_of(index, static_cast<unsigned>(std::countr_zero(entries)));
  }

  bool send(uint32_t sender, uint64_t value) {
    const InboundFifo::Claim claim = fifo.try_claim(sender, &known_tail);
    if (claim.slot == nullptr) return false;
    std::memcpy(claim.slot->payload, &value, sizeof value);
    fifo.publish(claim, {SlotKind::kInline, 1, sizeof value, sender});
    return true;
  }
  // Returns the next value, or UINT64_MAX.
  uint64_t receive(uint32_t* sender = nullptr) {
    SlotHeader header;
    const MessageSlot& found = fifo.peek(tail, &header);
    if (header.kind != SlotKind::kInline) return UINT64_MAX;
    if (sender != nullptr) *sender = header.sender;
    uint64_t value = 0;
    std::memcpy(&value, found.payload, sizeof value);
    fifo.set_tail(++tail);
    return value;
  }
  SlotKind next_kind(uint32_t* sender = nullptr) {
    SlotHeader header;
    fifo.peek(tail, &header);
    if (sender != nullptr) *sender = header.sender;
    return header.kind;
  }
};

TEST(InboundFifo, GivesBackWhatWasSentInOrder) {
  make(8);
  CHECK(next_kind() == SlotKind::kNone);
  CHECK(send(3, 10) && send(4, 11));
  uint32_t sender = 0;
  LONGS_EQUAL(10, receive(&sender));
  LONGS_EQUAL(3, sender);
  LONGS_EQUAL(11, receive(&sender));
  LONGS_EQUAL(4, sender);
  CHECK(next_kind() == SlotKind::kNone);
}

TEST(InboundFifo, FullSaysNoAndTakesNothing) {
  make(4);
  for (uint64_t i = 0; i < 4; ++i) CHECK(send(1, i));
  for (int i = 0; i < 10; ++i) CHECK_FALSE(send(1, 99));
  LONGS_EQUAL(4, fifo.claims());
  LONGS_EQUAL(0, receive());
  CHECK(send(1, 4));
  CHECK_FALSE(send(1, 5));
  for (uint64_t i = 1; i < 5; ++i) LONGS_EQUAL(i, receive());
}

TEST(InboundFifo, AClaimShowsWhoseItIs) {
  make(4);
  const InboundFifo::Claim claim = fifo.try_claim(77, &known_tail);
  CHECK(send(1, 5));
  uint32_t sender = 0;
  CHECK(next_kind(&sender) == SlotKind::kClaimed);
  LONGS_EQUAL(77, sender);
  LONGS_EQUAL(UINT64_MAX, receive());  // later messages wait
  fifo.publish(claim, {SlotKind::kInline, 1, 8, 77});
  CHECK(next_kind() == SlotKind::kInline);
}

// The writer was killed after it took the slot and before it moved the counter.
TEST(InboundFifo, HelpsAWriterThatDiedBeforeItMovedTheCounter) {
  make(4);
  for (uint64_t round = 0; round < 20; ++round) {
    const uint64_t abandoned = counter().load();
    uint64_t before = slot(abandoned).header.load();
    CHECK(slot(abandoned).header.compare_exchange_strong(
        before, pack_slot(lap(abandoned), {SlotKind::kClaimed, 0, 0, 9})));
    CHECK(send(1, round));
    LONGS_EQUAL(abandoned + 2, fifo.claims());
    uint32_t sender = 0;
    CHECK(next_kind(&sender) == SlotKind::kClaimed);
    LONGS_EQUAL(9, sender);
    fifo.set_tail(++tail);  // the reader skips the slot
    LONGS_EQUAL(round, receive());
  }
}

// The writer was killed after it moved the counter and before it published.
TEST(InboundFifo, AllSlotsTornAreUsedAgain) {
  make(4);
  for (int round = 0; round < 5; ++round) {
    for (uint32_t i = 0; i < 4; ++i) CHECK(fifo.try_claim(i, &known_tail).slot != nullptr);
    CHECK_FALSE(send(1, 1));
    fifo.set_tail(tail += 4);
    for (uint64_t i = 0; i < 4; ++i) CHECK(send(1, i));
    for (uint64_t i = 0; i < 4; ++i) LONGS_EQUAL(i, receive());
  }
}

TEST(InboundFifo, LapsWrap) {
  for (uint32_t entry_count : {2u, 8u}) {
    const uint64_t laps = kSlotLapMask + 1;
    make(entry_count, laps * entry_count - 2 * entry_count);
    for (uint64_t i = 0; i < 10 * entry_count; ++i) {
      CHECK(next_kind() == SlotKind::kNone);
      CHECK(send(2, i));
      LONGS_EQUAL(i, receive());
    }
  }
}

TEST(InboundFifo, NonsenseInTheCountersEndsInNoSlot) {
  make(8);
  // A counter one behind the tail is valid: see the last test.
  for (uint64_t forged : {uint64_t{1} << 63, UINT64_MAX - 1, uint64_t{8}, uint64_t{1} << 40}) {
    counter().store(forged);
    known_tail = 0;
    CHECK(fifo.try_claim(1, &known_tail).slot == nullptr);
  }
  counter().store(400);
  fifo.set_tail(400);  // the tail too, but the slots have another lap
  known_tail = 0;
  CHECK(fifo.try_claim(1, &known_tail).slot == nullptr);
}

TEST(InboundFifo, RandomAgainstAModel) {
  test::Seed seed;
  std::mt19937_64 random(seed.value());
  make(16);
  struct Expected {
    uint64_t value;
    bool is_torn;
  };
  std::deque<Expected> model;
  std::vector<uint64_t> known(5, 0);  // the tail that each writer knows, mostly a stale one
  for (uint64_t i = 0; i < 100000; ++i) {
    known_tail = known[i % 5];
    switch (random() % 4) {
      case 0:
      case 1:
        CHECK_TEXT(send(1, i) == (model.size() < 16), seed.text());
        if (model.size() < 16) model.push_back({i, false});
        break;
      case 2:
        if (random() % 8 != 0) break;
        CHECK_TEXT((fifo.try_claim(9, &known_tail).slot != nullptr) == (model.size() < 16),
                   seed.text());
        if (model.size() < 16) model.push_back({i, true});
        break;
      default:
        if (model.empty()) {
          CHECK_TEXT(next_kind() == SlotKind::kNone, seed.text());
          break;
        }
        if (model.front().is_torn) {
          CHECK_TEXT(next_kind() == SlotKind::kClaimed, seed.text());
          fifo.set_tail(++tail);
        } else {
          CHECK_TEXT(receive() == model.front().value, seed.text());
        }
        model.pop_front();
    }
    known[i % 5] = known_tail;
    CHECK_TEXT(fifo.is_valid(), seed.text());
  }
}

TEST(InboundFifo, SeesThatItsBooksDoNotFitTogether) {
  make(16);
  CHECK(fifo.is_valid());
  CHECK(send(1, 1) && send(1, 2));
  CHECK(fifo.is_valid());
  counter().store(1);  // one writer may not have moved it yet
  CHECK(fifo.is_valid());
  counter().store(0);  // but not two writers
  CHECK_FALSE(fifo.is_valid());
  counter().store(2);
  fifo.set_tail(4);
  CHECK_FALSE(fifo.is_valid());
}

TEST(InboundFifo, ManyThreadsOneReader) {
  make(64);
  constexpr uint32_t kWriters = 4;
  constexpr uint64_t kEach = 30000;
  std::vector<std::thread> writers;
  for (uint32_t w = 0; w < kWriters; ++w) {
    writers.emplace_back([&, w] {
      uint64_t known = 0;
      for (uint64_t i = 0; i < kEach;) {
        const InboundFifo::Claim claim = fifo.try_claim(w, &known);
        if (claim.slot == nullptr) {
          std::this_thread::yield();
          continue;
        }
        const uint64_t value = uint64_t{w} << 32 | i++;
        std::memcpy(claim.slot->payload, &value, sizeof value);
        fifo.publish(claim, {SlotKind::kInline, 1, sizeof value, w});
        if (i % 1000 == 0) fifo.try_claim(100, &known);  // a dead writer's, which the reader skips
      }
    });
  }
  std::vector<uint64_t> next(kWriters, 0);
  uint64_t wrong = 0;
  for (uint64_t got = 0; got < kWriters * kEach;) {
    uint32_t sender = 0;
    if (next_kind(&sender) == SlotKind::kClaimed && sender == 100) {
      fifo.set_tail(++tail);
      continue;
    }
    const uint64_t value = receive(&sender);
    if (value == UINT64_MAX) {
      std::this_thread::yield();
      continue;
    }
    if (value != (uint64_t{sender} << 32 | next[sender]++)) ++wrong;
    ++got;
  }
  for (std::thread& writer : writers) writer.join();
  LONGS_EQUAL(0, wrong);
}

// The counter is then one behind the tail. A writer that sees the tail first must not take the FIFO
// for full, because no other writer may be there to move the counter.
TEST(InboundFifo, GoesOnBehindTheSlotOfAWriterThatDiedBeforeItMovedTheCounter) {
  make(2);
  CHECK(send(1, 10) && send(1, 11));
  fifo.set_tail(2);
  slot(2).header.store(pack_slot(lap(2), {SlotKind::kClaimed, 0, 0, 2}));
  fifo.set_tail(3);  // the reader skips the slot
  LONGS_EQUAL(2, fifo.claims());
  CHECK(send(1, 13));
  LONGS_EQUAL(4, fifo.claims());
}
