// The fast box: alone, against a model, between two threads, and with a consumer that writes
// garbage.
#include "transport/messages/fast_box_datapath.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <thread>

#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// The byte at `at` of message `number`. It differs between messages.
std::byte byte_of(uint64_t number, uint64_t at) { return static_cast<std::byte>(number * 31 + at); }

}  // namespace

TEST_GROUP(FastBox) {
  std::byte* memory = nullptr;
  FastBox box;
  FastBoxProducer producer;
  FastBoxConsumer consumer;

  void make(uint32_t bytes) {
    teardown();
    memory = static_cast<std::byte*>(std::aligned_alloc(kCacheLineBytes, bytes));
    std::memset(memory, 0xee, bytes);  // content of an earlier use
    box = FastBox(memory, bytes);
    box.clear();
    producer = FastBoxProducer(box);
    consumer = FastBoxConsumer(box);
  }
  void teardown() override {
    std::free(memory);
    memory = nullptr;
  }

  bool send(uint64_t number, uint32_t bytes) {
    MessageSlot* slot = producer.next_slot();
    if (slot == nullptr) return false;
    const auto am = static_cast<uint32_t>(number % 256);
    if (bytes <= kInlineBytesMax) {
      for (uint32_t i = 0; i < bytes; ++i) slot->payload[i] = byte_of(number, i);
      producer.publish(*slot, {SlotKind::kInline, am, bytes, 3});
      return true;
    }
    PayloadOffset offset;
    std::byte* area = producer.next_area(bytes, &offset);
    if (area == nullptr) return false;
    for (uint32_t i = 0; i < bytes; ++i) area[i] = byte_of(number, i);
    std::memcpy(slot->payload, &offset, sizeof offset);
    producer.publish(*slot, {SlotKind::kArea, am, bytes, 3});
    return true;
  }
  // Whether message `number` of `bytes` bytes came next, and is whole.
  bool receive(uint64_t number, uint32_t bytes) {
    SlotHeader header;
    const MessageSlot* slot = consumer.peek(&header);
    if (slot == nullptr || header.am != number % 256 || header.bytes != bytes) return false;
    const std::byte* payload = slot->payload;
    if (header.kind == SlotKind::kArea) {
      PayloadOffset offset;
      std::memcpy(&offset, slot->payload, sizeof offset);
      payload = consumer.area_payload(offset, bytes);
      if (payload == nullptr) return false;
    }
    for (uint32_t i = 0; i < bytes; ++i) {
      if (payload[i] != byte_of(number, i)) return false;
    }
    consumer.consume();
    return true;
  }
  bool is_empty() {
    SlotHeader header;
    return consumer.peek(&header) == nullptr;
  }
};

TEST(FastBox, GivesBackWhatWasSentInOrder) {
  for (uint32_t bytes = kFastBoxBytesMin; bytes <= kFastBoxBytesMax; bytes *= 2) {
    make(bytes);
    CHECK(is_empty());
    CHECK(send(1, 8) && send(2, 100) && send(3, 0));
    CHECK(receive(1, 8) && receive(2, 100) && receive(3, 0));
    CHECK(is_empty());
  }
}

TEST(FastBox, HoldsAsManyAsItHasSlots) {
  make(4096);
  const uint32_t slots = FastBox::slot_count(4096);
  for (uint32_t i = 0; i < slots; ++i) CHECK(send(i, 8));
  CHECK_FALSE(send(slots, 8));
  for (uint32_t i = 0; i < slots; ++i) CHECK(receive(i, 8));
  CHECK(send(slots, 8));
}

TEST(FastBox, WrapsThroughManyLaps) {
  make(1024);
  for (uint32_t i = 0; i < 10000; ++i) CHECK(send(i, i % 57) && receive(i, i % 57));
}

TEST(FastBox, TakesAMessageAsLongAsTheAreaWheneverItIsEmpty) {
  make(1024);
  const uint32_t area = box.area_bytes();
  uint64_t number = 0;
  for (uint32_t before = 57; before <= area; before += 64) {
    CHECK(send(number, before) && receive(number, before));
    ++number;
    CHECK(is_empty());
    CHECK(send(number, area) && receive(number, area));
    ++number;
    CHECK(is_empty());
  }
  PayloadOffset offset;
  POINTERS_EQUAL(nullptr, producer.next_area(area + 1, &offset));
}

TEST(FastBox, SkipsTheAreasEndWhenItIsTooShort) {
  make(1024);  // the area has 704 bytes
  CHECK(send(0, 400));
  CHECK(receive(0, 400) && is_empty());
  CHECK(send(1, 200));  // 448..640
  CHECK(send(2, 300));  // at the start: only 64 bytes are left at the end
  CHECK(receive(1, 200) && receive(2, 300));
}

TEST(FastBox, KeepsTheAreaUntilTheConsumerIsDone) {
  make(1024);
  CHECK(send(0, 400));
  CHECK_FALSE(send(1, 400));
  CHECK(receive(0, 400));
  CHECK(is_empty());
  CHECK(send(1, 400));
  CHECK(receive(1, 400));
}

TEST(FastBox, KnowsWhatWasConsumed) {
  make(1024);
  CHECK(producer.is_drained());
  CHECK(send(0, 8) && send(1, 8));
  CHECK_FALSE(producer.is_drained());
  CHECK_FALSE(producer.is_consumed(0));
  CHECK(receive(0, 8));
  consumer.acknowledge();
  CHECK(producer.is_consumed(0));
  CHECK_FALSE(producer.is_consumed(1));
  CHECK_FALSE(producer.is_drained());
  CHECK(receive(1, 8));
  CHECK(is_empty());  // a receiver that finds nothing acknowledges
  CHECK(producer.is_drained());
}

TEST(FastBox, RefusesOffsetsOutsideTheArea) {
  make(1024);
  const uint64_t area = box.area_bytes();
  CHECK(consumer.area_payload({0}, static_cast<uint32_t>(area)) == box.area());
  CHECK(consumer.area_payload({area}, 0) != nullptr);
  POINTERS_EQUAL(nullptr, consumer.area_payload({area}, 1));
  POINTERS_EQUAL(nullptr, consumer.area_payload({1}, static_cast<uint32_t>(area)));
  POINTERS_EQUAL(nullptr, consumer.area_payload({UINT64_MAX}, 1));
  POINTERS_EQUAL(nullptr, consumer.area_payload({UINT64_MAX - 10}, 60));
}

TEST(FastBox, AnImpossibleAcknowledgementChangesNothing) {
  make(1024);
  const uint32_t slots = FastBox::slot_count(1024);
  for (uint32_t i = 0; i < slots; ++i) CHECK(send(i, 100));
  for (uint64_t forged : {uint64_t{slots} + 1, UINT64_MAX, uint64_t{1} << 63}) {
    box.ack().store(forged);
    CHECK_FALSE(send(slots, 8));
    CHECK_FALSE(producer.is_drained());
    CHECK_FALSE(producer.is_consumed(0));
  }
  box.ack().store(2);
  CHECK(producer.is_consumed(1));
  box.ack().store(1);  // backwards
  CHECK_FALSE(producer.is_drained());
  CHECK(producer.is_consumed(1));
}

TEST(FastBox, StaysInsideWhateverTheConsumerWrites) {
  test::Seed seed;
  std::mt19937_64 random(seed.value());
  make(1024);
  for (uint64_t i = 0; i < 20000; ++i) {
    const uint32_t bytes = static_cast<uint32_t>(random() % (box.area_bytes() + 1));
    PayloadOffset offset;
    MessageSlot* slot = producer.next_slot();
    if (slot != nullptr) {
      CHECK_TEXT(slot >= &box.slot(0) && slot < &box.slot(FastBox::slot_count(1024)), seed.text());
      std::byte* area = producer.next_area(bytes, &offset);
      if (area != nullptr) {
        CHECK_TEXT(area >= box.area(), seed.text());
        CHECK_TEXT(area + bytes <= box.area() + box.area_bytes(), seed.text());
      }
      producer.publish(*slot, {});
    }
    CHECK_TEXT(producer.is_valid(), seed.text());
    box.ack().store(random() % 3 == 0 ? random() : producer.next_index() - random() % 8);
  }
}

// No sequence of lengths may leave the producer waiting for space in an empty box.
TEST(FastBox, RandomLengthsAgainstAModel) {
  test::Seed seed;
  std::mt19937_64 random(seed.value());
  for (uint32_t box_bytes : {1024u, 4096u, 65536u}) {
    make(box_bytes);
    std::deque<std::pair<uint64_t, uint32_t>> model;
    uint64_t number = 0;
    for (int i = 0; i < 30000; ++i) {
      if (random() % 2 == 0) {
        const uint32_t bytes = static_cast<uint32_t>(
            random() % 3 == 0 ? random() % (std::min(box.area_bytes(), kSlotBytesMax) + 1)
                              : random() % 120);
        bool was_sent = send(number, bytes);
        if (!was_sent && model.empty()) {
          CHECK_TEXT(is_empty(), seed.text());  // a poll that finds nothing acknowledges
          was_sent = send(number, bytes);
          CHECK_TEXT(was_sent, seed.text());
        }
        if (was_sent) model.emplace_back(number++, bytes);
      } else if (model.empty()) {
        CHECK_TEXT(is_empty(), seed.text());
      } else {
        CHECK_TEXT(receive(model.front().first, model.front().second), seed.text());
        model.pop_front();
      }
      CHECK_TEXT(producer.is_valid() && consumer.is_valid(), seed.text());
    }
  }
}

TEST(FastBox, BetweenTwoThreads) {
  make(4096);
  constexpr uint64_t kCount = 100000;
  const auto bytes_of = [](uint64_t number) { return static_cast<uint32_t>(number * 37 % 400); };
  std::thread sender([&] {
    for (uint64_t i = 0; i < kCount; ++i) {
      while (!send(i, bytes_of(i))) std::this_thread::yield();
    }
  });
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    while (is_empty()) std::this_thread::yield();
    if (!receive(i, bytes_of(i))) {
      ++wrong;
      consumer.consume();
    }
  }
  sender.join();
  LONGS_EQUAL(0, wrong);
}
