// The group's segment: another process finds it as it was made, and refuses a segment that differs.
#include "transport/shm/membership/group_segment.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(GroupSegment) {
  static constexpr PoolId kPool = {11, 12};

  GroupShape shape;
  std::span<std::byte> memory;

  void setup() override {
    shape.member_count = 4;
    shape.box_count = 6;
    make(GroupKind::kLazy);
  }
  void teardown() override { std::free(memory.data()); }

  GroupSegment make(GroupKind kind) {
    std::free(memory.data());
    shape.kind = kind;
    if (kind == GroupKind::kExchange) shape.member_count = 2;
    const uint64_t bytes = align_up(GroupLayout(shape).bytes(), 64);
    memory = {static_cast<std::byte*>(std::aligned_alloc(64, bytes)), GroupLayout(shape).bytes()};
    std::memset(memory.data(), 0, bytes);
    return GroupSegment::create(memory, shape, kPool, BellFence::kBoth);
  }
  GroupHeader& header() { return *reinterpret_cast<GroupHeader*>(memory.data()); }

  void refuses(const char* what) {
    auto attached = GroupSegment::attach(memory, shape, kPool);
    CHECK_FALSE(attached.ok());
    STRCMP_CONTAINS(what, attached.error().answer);
    CHECK(attached.error().cure[0] != '\0');
  }
};

TEST(GroupSegment, IsFoundAsItWasMade) {
  for (GroupKind kind : {GroupKind::kLazy, GroupKind::kMesh, GroupKind::kExchange}) {
    const GroupSegment made = make(kind);
    auto attached = GroupSegment::attach(memory, shape, kPool);
    CHECK(attached.ok());
    CHECK(attached.value().shape() == shape);
    CHECK(attached.value().fence() == BellFence::kBoth);
    for (uint32_t i = 0; i < shape.member_count; ++i) {
      POINTERS_EQUAL(&made.wrapper(i), &attached.value().wrapper(i));
    }
  }
}

TEST(GroupSegment, RefusesAnotherMagic) {
  header().magic.store(0);
  refuses("magic");
}

TEST(GroupSegment, RefusesAnotherVersion) {
  header().version = GroupHeader::kVersion + 1;
  refuses("version");
}

TEST(GroupSegment, RefusesAnotherPool) {
  header().pool_id.random = 99;
  refuses("it belongs to another pool");
}

TEST(GroupSegment, RefusesAPoolThatWasBornAtAnotherTime) {
  header().pool_id.born_ns = 99;
  refuses("it belongs to another pool");
}

TEST(GroupSegment, RefusesAnotherShape) {
  header().shape.entry_count *= 2;
  refuses("its shape is not the one that the owner sent");
}

TEST(GroupSegment, RefusesAFenceThatThereIsNot) {
  header().fence = static_cast<BellFence>(2);
  refuses("its kind of fence is unknown here");
}

TEST(GroupSegment, RefusesMemoryThatIsTooShort) {
  const std::span<std::byte> whole = memory;
  for (size_t bytes : {size_t{0}, sizeof(GroupHeader) - 1, whole.size() - 1}) {
    memory = whole.first(bytes);
    refuses("size");
  }
  memory = whole;
}

TEST(GroupSegment, RefusesAShapeThatCannotBe) {
  shape.entry_count = 3;
  refuses("entries");
}

TEST(GroupSegment, ResetMakesAMemberAndItsBoxesAsNew) {
  const GroupSegment segment = make(GroupKind::kLazy);
  const GroupLayout& layout = segment.layout();
  std::memset(memory.data() + layout.member(0), 0xab, 4 * layout.member_bytes());
  segment.box_owner(0).store(pack_box_owner(2, 0));
  segment.box_owner(1).store(pack_box_owner(0, 2));
  segment.box_owner(2).store(pack_box_owner(0, 1));
  segment.reset_member(2);
  for (uint64_t i = 0; i < layout.member_bytes(); ++i) {
    CHECK(memory[layout.member(2) + i] == std::byte{0});
    CHECK(memory[layout.member(1) + i] == std::byte{0xab});
    CHECK(memory[layout.member(3) + i] == std::byte{0xab});
  }
  LONGS_EQUAL(0, segment.box_owner(0).load());
  LONGS_EQUAL(0, segment.box_owner(1).load());
  CHECK(segment.box_owner(2).load() == pack_box_owner(0, 1));
}

TEST(GroupSegment, ResetEmptiesLanesFromAndTo) {
  const GroupSegment segment = make(GroupKind::kMesh);
  for (uint32_t to = 0; to < 4; ++to) {
    for (uint32_t from = 0; from < 4; ++from) {
      if (to == from) continue;
      segment.lane(to, from).push(4, {SlotKind::kEager, 1, 1, 64});
      segment.lane(to, from).set_tail(3);
    }
  }
  segment.reset_member(1);
  for (uint32_t to = 0; to < 4; ++to) {
    for (uint32_t from = 0; from < 4; ++from) {
      if (to == from) continue;
      const bool is_new = to == 1 || from == 1;
      LONGS_EQUAL(is_new ? 0 : 5, segment.lane(to, from).head());
      LONGS_EQUAL(is_new ? 0 : 3, segment.lane(to, from).tail());
      CHECK((segment.lane(to, from).at(4).kind == SlotKind::kNone) == is_new);
    }
  }
}

TEST(GroupSegment, ResetEmptiesBothBoxesOfAnExchange) {
  const GroupSegment segment = make(GroupKind::kExchange);
  for (uint32_t i = 0; i < 2; ++i) segment.inbound_box(i).ack().store(5);
  segment.reset_member(1);
  for (uint32_t i = 0; i < 2; ++i) LONGS_EQUAL(0, segment.inbound_box(i).ack().load());
}
