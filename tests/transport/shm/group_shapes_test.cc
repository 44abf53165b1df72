// Every small shape that check_group_shape accepts works: all messages, loans and operations end.
#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/pool_fixture.h"
#include "tests/transport/shm/group_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

// All combinations of these small values, accepted or not.
std::vector<GroupShape> small_shapes(GroupKind kind) {
  std::vector<GroupShape> all = {shape_of(kind, 3)};
  const auto vary = [&all](uint32_t GroupShape::*field, std::initializer_list<uint32_t> values) {
    std::vector<GroupShape> varied;
    for (GroupShape shape : all) {
      for (const uint32_t value : values) {
        shape.*field = value;
        varied.push_back(shape);
      }
    }
    all = std::move(varied);
  };
  vary(&GroupShape::eager_bytes, {63, 64, 65, 129, 1024});
  vary(&GroupShape::eager_count, {1, 2, 3});
  vary(&GroupShape::line_bytes, {64, 128});
  vary(&GroupShape::loan_count, {1, 3});
  if (kind != GroupKind::kExchange) vary(&GroupShape::entry_count, {1, 2, 8});
  if (kind == GroupKind::kMesh) vary(&GroupShape::is_multi_threaded, {0, 1});
  if (kind != GroupKind::kMesh) vary(&GroupShape::box_bytes, {1024, 2048});
  if (kind == GroupKind::kLazy) {
    vary(&GroupShape::box_count, {0, 1, 6});
    vary(&GroupShape::box_count_max, {0, 1});
    vary(&GroupShape::send_threshold, {1, 3});
  }
  return all;
}

std::string text_of(const GroupShape& shape) {
  std::string text = to_text(shape.kind);
  for (const uint32_t number :
       {shape.entry_count, shape.eager_bytes, shape.eager_count, shape.box_bytes, shape.box_count,
        shape.box_count_max, shape.send_threshold, shape.loan_count, shape.is_multi_threaded,
        shape.line_bytes}) {
    text += ' ' + std::to_string(number);
  }
  return text;
}

}  // namespace

TEST_GROUP(GroupShapes) {
  static constexpr int kRoundsMax = 200;  // polls before a test gives up; a few suffice

  TestPool pool;
  std::span<std::byte> lent;
  std::unique_ptr<GroupRig> rig;
  Member* a = nullptr;  // sends
  Member* b = nullptr;
  std::string shape_text;
  alignas(8) std::byte outside[2048] = {};  // of b, outside the pool

  void setup() override { lent = pool.memory(4 * kKiB); }
  void start(const GroupShape& shape) {
    shape_text = text_of(shape);
    rig = std::make_unique<GroupRig>(shape, &*pool);
    a = &rig->join(0);
    b = &rig->join(1);
    rig->poll();
  }
  void poll() {
    b->messenger.poll(64);
    a->messenger.poll(64);
  }
  // Repeats `attempt` while it returns kAgain.
  SendStatus send(const std::function<SendStatus()>& attempt) {
    SendStatus status = SendStatus::kAgain;
    for (int i = 0; i < kRoundsMax && status == SendStatus::kAgain; ++i) {
      status = attempt();
      if (status == SendStatus::kAgain) poll();
    }
    return status;
  }
  void finish(const Counted& done, const char* what) {
    for (int i = 0; i < kRoundsMax && done.count == 0; ++i) poll();
    if (done.count != 1 || done.outcome != Outcome::kDone) {
      FAIL((std::string(what) + " does not end in " + shape_text).c_str());
    }
  }
  void check(bool is_so, const char* what, size_t bytes) {
    if (!is_so)
      FAIL((std::string(what) + " of " + std::to_string(bytes) + " in " + shape_text).c_str());
  }

  void send_every_size() {
    const size_t longest = a->to(1).limits().am_bytes_max;
    // All short lengths, and of the longer ones those beside a line's end. Three messages of each.
    for (size_t bytes = 0; bytes <= longest; ++bytes) {
      if (bytes > 260 && (bytes + 1) % 64 > 2 && bytes != longest) continue;
      const std::string text(bytes, static_cast<char>('a' + bytes % 26));
      for (int i = 0; i < 3; ++i) {
        check(send([&] { return a->to(1).am_send(1, bytes_of(text)); }) == SendStatus::kDone,
              "a message", bytes);
      }
      for (int i = 0; i < 4; ++i) poll();
      check(b->received.size() == 3, "messages", bytes);
      for (const auto& received : b->received) check(received.payload == text, "bytes", bytes);
      b->received.clear();
    }
  }
  void lend() {
    for (int i = 0; i < 5; ++i) {
      Counted returned;
      check(send([&] { return a->to(1).am_send_loan(2, bytes_of("head"), lent, &returned); }) ==
                SendStatus::kPending,
            "a loan", lent.size());
      for (int round = 0; round < kRoundsMax && b->received.empty(); ++round) poll();
      check(b->received.size() == 1, "a loan that arrives", lent.size());
      b->messenger.release(b->received[0].loan);
      b->received.clear();
      for (int round = 0; round < 300 && returned.count == 0; ++round) poll();
      check(returned.count == 1, "the return", lent.size());
    }
  }
  void operate() {
    auto exposed = b->to(0).expose(outside);
    CHECK(exposed.ok());
    const RemoteMemory remote = exposed.value();
    for (const size_t bytes : {0u, 1u, 8u, 63u, 64u, 65u, 500u, 2048u}) {
      std::vector<std::byte> data(bytes, static_cast<std::byte>(bytes)), got(bytes);
      Counted put, get;
      check(send([&] { return a->to(1).put(data, remote.part(0, bytes), &put); }) ==
                SendStatus::kPending,
            "a put", bytes);
      finish(put, "a put");
      check(send([&] { return a->to(1).get(got, remote.part(0, bytes), &get); }) ==
                SendStatus::kPending,
            "a get", bytes);
      finish(get, "a get");
      check(got == data, "what was got", bytes);
    }
    std::memset(outside, 0, 8);
    uint64_t before = 99;
    Counted add, swap, flush;
    check(send([&] { return a->to(1).fetch_add(remote.part(0, 8), 7, &before, &add); }) ==
              SendStatus::kPending,
          "an addition", 8);
    finish(add, "an addition");
    check(send([&] { return a->to(1).compare_swap(remote.part(0, 8), 7, 9, &before, &swap); }) ==
              SendStatus::kPending,
          "a swap", 8);
    finish(swap, "a swap");
    check(before == 7 && outside[0] == std::byte{9}, "what was swapped", 8);
    // Several puts at once: each of them ends.
    std::vector<std::byte> data(300, std::byte{5});
    Counted many[5];
    for (Counted& one : many) {
      check(send([&] { return a->to(1).put(data, remote.part(0, 300), &one); }) ==
                SendStatus::kPending,
            "one of many puts", 300);
    }
    check(send([&] { return a->to(1).am_send(1, bytes_of("beside them")); }) == SendStatus::kDone,
          "a message beside puts", 11);
    for (const Counted& one : many) finish(one, "one of many puts");
    check(a->to(1).flush(&flush) == SendStatus::kDone, "a flush", 0);
    b->received.clear();
  }
  void try_all(GroupKind kind) {
    uint32_t accepted_count = 0;
    for (const GroupShape& shape : small_shapes(kind)) {
      if (!check_group_shape(shape).ok()) continue;
      ++accepted_count;
      start(shape);
      send_every_size();
      lend();
      if (kind != GroupKind::kExchange) operate();
    }
    CHECK(accepted_count >= 40);
  }
};

TEST(GroupShapes, EverythingEndsInEachSmallLazyGroup) { try_all(GroupKind::kLazy); }
TEST(GroupShapes, EverythingEndsInEachSmallMesh) { try_all(GroupKind::kMesh); }
TEST(GroupShapes, EverythingEndsInEachSmallExchange) { try_all(GroupKind::kExchange); }

// The row of a kind matches its layout and its checks.
TEST(GroupShapes, TraitsAreThoseOfTheLayout) {
  for (const GroupKind kind : kGroupKinds) {
    const GroupTraits traits = group_traits(kind);
    GroupShape shape = shape_of(kind, 3);
    const GroupLayout layout(shape);
    LONGS_EQUAL(traits.gives_boxes, layout.part_bytes(GroupPart::kBoxes) != 0);
    LONGS_EQUAL(traits.has_eager_region, layout.part_bytes(GroupPart::kEager) != 0);
    LONGS_EQUAL(traits.has_eager_region, layout.eager_region_bytes() != 0);
    LONGS_EQUAL(traits.has_eager_region, eager_region_bytes_min(kind) != 0);
    CHECK(traits.slot_eager_bytes == 0 || traits.has_eager_region);
    for (const uint32_t count : {traits.member_count_min - 1, traits.member_count_max + 1}) {
      shape.member_count = count;
      CHECK_FALSE(check_group_shape(shape).ok());
    }
    for (const uint32_t count : {traits.member_count_min, traits.member_count_max}) {
      shape.member_count = count;
      CHECK(check_group_shape(shape).ok());
    }
  }
}
