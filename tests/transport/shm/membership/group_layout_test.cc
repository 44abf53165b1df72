// The layout of a group: its computed sizes and offsets match its objects, to the byte.
#include "transport/shm/membership/group_layout.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/skip.h"
#include "transport/shm/membership/group_segment.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

struct Extent {
  uint64_t begin;
  uint64_t end;
  GroupPart part;
};

// The extents that a group's objects report. The space between an extent and the next line belongs
// to that extent.
class Extents {
 public:
  explicit Extents(const GroupLayout& layout) : layout_(layout) {}

  void add(GroupPart part, uint64_t begin, uint64_t bytes) {
    all_.push_back({begin, begin + bytes, part});
  }

  // Returns the first problem: an overlap, a gap that is more than the rest of a line, or a part
  // whose sum differs from the layout. Empty: there is no problem.
  std::string problem() {
    std::sort(all_.begin(), all_.end(),
              [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
    const uint64_t line = layout_.shape().line_bytes;
    std::vector<uint64_t> sums(static_cast<size_t>(GroupPart::kCount));
    uint64_t end = 0;
    for (size_t i = 0; i < all_.size(); ++i) {
      const Extent& extent = all_[i];
      if (extent.begin < end) return "overlap at " + std::to_string(extent.begin);
      if (extent.begin != end && extent.begin != align_up(end, line)) {
        return "hole at " + std::to_string(end);
      }
      if (extent.begin != end) sums[static_cast<size_t>(all_[i - 1].part)] += extent.begin - end;
      sums[static_cast<size_t>(extent.part)] += extent.end - extent.begin;
      end = extent.end;
    }
    sums[static_cast<size_t>(all_.back().part)] += align_up(end, line) - end;
    if (align_up(end, line) != layout_.bytes()) return "end at " + std::to_string(end);
    for (size_t i = 0; i < sums.size(); ++i) {
      const auto part = static_cast<GroupPart>(i);
      if (sums[i] != layout_.part_bytes(part)) return to_text(part);
    }
    return {};
  }

 private:
  const GroupLayout& layout_;
  std::vector<Extent> all_;
};

// The problem of the layout for a group of this shape.
std::string problem_of(const GroupShape& shape) {
  CHECK(check_group_shape(shape).ok());
  const GroupLayout layout(shape);
  Extents extents(layout);
  extents.add(GroupPart::kHeader, 0, sizeof(GroupHeader));
  for (uint32_t i = 0; shape.kind == GroupKind::kLazy && i < shape.box_count; ++i) {
    extents.add(GroupPart::kBoxOwners, layout.box_owner(i), sizeof(uint64_t));
    extents.add(GroupPart::kBoxes, layout.box(i), shape.box_bytes);
  }
  for (uint32_t i = 0; i < shape.member_count; ++i) {
    extents.add(GroupPart::kWrappers, layout.wrapper(i), sizeof(MemberWrapper));
    extents.add(GroupPart::kWrappers, layout.card(i), sizeof(SingleCopyCard));
    extents.add(GroupPart::kReturnedLoans, layout.returned_loans(i), shape.loan_count);
    const uint64_t bitmap_bytes = (shape.member_count + 63) / 64 * 8;
    extents.add(GroupPart::kHeldLoans, layout.held_loans(i), bitmap_bytes);
    extents.add(GroupPart::kHeldLoans, layout.cut_offs(i), bitmap_bytes);
    if (shape.kind == GroupKind::kExchange) {
      extents.add(GroupPart::kQueues, layout.inbound_box(i), shape.box_bytes);
      continue;
    }
    extents.add(GroupPart::kEager, layout.eager(i), layout.eager_region_bytes());
    if (shape.kind == GroupKind::kLazy) {
      extents.add(GroupPart::kClaims, layout.fifo(i), 2 * shape.line_bytes);
      extents.add(GroupPart::kQueues, layout.fifo(i) + 2 * shape.line_bytes,
                  InboundFifo::slot_bytes(shape.entry_count));
      continue;
    }
    const uint64_t counter_bytes = shape.is_multi_threaded ? shape.line_bytes : sizeof(uint32_t);
    for (uint32_t j = 0; j < shape.member_count; ++j) {
      if (j == i) continue;
      extents.add(GroupPart::kQueues, layout.lane_queue(i, j),
                  MeshLane::queue_bytes(shape.entry_count));
      extents.add(GroupPart::kHeadsAndTails, layout.lane_tail(i, j), counter_bytes);
      extents.add(GroupPart::kHeadsAndTails, layout.lane_head(j, i), counter_bytes);
    }
  }
  return extents.problem();
}

// All numbers of members. Under a sanitizer, where all take a minute: the small numbers and some
// larger ones.
std::vector<uint32_t> member_counts() {
  const uint32_t count_max = test::kIsSanitized ? 304 : 1024;
  std::vector<uint32_t> counts;
  for (uint32_t count = 1; count <= count_max;
       count += test::kIsSanitized && count >= 64 ? 60 : 1) {
    counts.push_back(count);
  }
  return counts;
}

}  // namespace

TEST_GROUP(GroupLayout){};

TEST(GroupLayout, LazyIsWhatItsObjectsTakeForAnyNumberOfMembers) {
  for (const uint32_t members : member_counts()) {
    GroupShape shape;
    shape.member_count = members;
    shape.box_count = default_box_count(members);
    STRCMP_EQUAL("", problem_of(shape).c_str());
  }
}

TEST(GroupLayout, MeshIsWhatItsObjectsTakeForAnyNumberOfMembers) {
  for (const uint32_t members : member_counts()) {
    for (uint32_t is_multi_threaded : {0u, 1u}) {
      GroupShape shape;
      shape.kind = GroupKind::kMesh;
      shape.member_count = members;
      shape.entry_count = 16;
      shape.is_multi_threaded = is_multi_threaded;
      // All pairs have many extents, so beyond 64 members only some numbers are checked one by one.
      if (members <= 64 || members % 240 == 64) STRCMP_EQUAL("", problem_of(shape).c_str());
      const GroupLayout layout(shape);
      uint64_t sum = 0;
      for (uint32_t part = 0; part < static_cast<uint32_t>(GroupPart::kCount); ++part) {
        sum += layout.part_bytes(static_cast<GroupPart>(part));
      }
      UNSIGNED_LONGS_EQUAL(layout.bytes(), sum);
      UNSIGNED_LONGS_EQUAL(layout.bytes(), layout.eager(members - 1) + layout.eager_region_bytes());
    }
  }
}

TEST(GroupLayout, ExchangeIsWhatItsObjectsTake) {
  GroupShape shape;
  shape.kind = GroupKind::kExchange;
  STRCMP_EQUAL("", problem_of(shape).c_str());
}

TEST(GroupLayout, LinesOf128BytesAreKeptToo) {
  for (GroupKind kind : {GroupKind::kLazy, GroupKind::kMesh, GroupKind::kExchange}) {
    GroupShape shape;
    shape.kind = kind;
    shape.box_count = 2;
    shape.line_bytes = 128;
    STRCMP_EQUAL("", problem_of(shape).c_str());
    const GroupLayout layout(shape);
    LONGS_EQUAL(0, layout.wrapper(1) % 128);
    LONGS_EQUAL(0, layout.fifo(1) % 128);
  }
}

TEST(GroupLayout, QueuesAndTailsLieWithReceiversHeadsWithSenders) {
  GroupShape shape;
  shape.kind = GroupKind::kMesh;
  shape.member_count = 5;
  const GroupLayout layout(shape);
  const auto home_of = [&](uint64_t offset) {
    return (offset - layout.member(0)) / layout.member_bytes();
  };
  for (uint32_t receiver = 0; receiver < 5; ++receiver) {
    for (uint32_t sender = 0; sender < 5; ++sender) {
      if (sender == receiver) continue;
      LONGS_EQUAL(receiver, home_of(layout.lane_queue(receiver, sender)));
      LONGS_EQUAL(receiver, home_of(layout.lane_tail(receiver, sender)));
      LONGS_EQUAL(sender, home_of(layout.lane_head(receiver, sender)));
    }
  }
}

TEST(GroupLayout, NothingThatTwoWriteSharesALine) {
  // In the multi-threaded mode every head and tail has a line; otherwise the heads and tails of one
  // member share lines.
  GroupShape shape;
  shape.kind = GroupKind::kMesh;
  shape.member_count = 9;
  shape.is_multi_threaded = 1;
  const GroupLayout layout(shape);
  std::vector<uint64_t> lines;
  for (uint32_t receiver = 0; receiver < 9; ++receiver) {
    for (uint32_t sender = 0; sender < 9; ++sender) {
      if (sender == receiver) continue;
      lines.push_back(layout.lane_head(receiver, sender) / kCacheLineBytes);
      lines.push_back(layout.lane_tail(receiver, sender) / kCacheLineBytes);
    }
  }
  std::sort(lines.begin(), lines.end());
  CHECK(std::adjacent_find(lines.begin(), lines.end()) == lines.end());
}

TEST(GroupLayout, SixteenEntriesForAThousandMembersStayBelowTheGoal) {
  GroupShape mesh;
  mesh.kind = GroupKind::kMesh;
  mesh.member_count = 1024;
  mesh.entry_count = 16;
  mesh.eager_count = 1;
  mesh.loan_count = 64;
  CHECK(GroupLayout(mesh).bytes() <= 150'000'000);
  GroupShape lazy;
  lazy.member_count = 1024;
  lazy.box_count = default_box_count(1024);
  CHECK(GroupLayout(lazy).bytes() <= 1024 * 58 * kKiB);
}

TEST(GroupLayout, RefusesWhatIsOutOfRange) {
  const auto refusal = [](auto change) {
    GroupShape shape;
    change(shape);
    const Result<void> result = check_group_shape(shape);
    CHECK_FALSE(result.ok());
    return std::string(result.error().answer) + "; " + result.error().cure;
  };
  STRCMP_EQUAL("members is 2048; members may be 1..2047",
               refusal([](GroupShape& s) { s.member_count = 2048; }).c_str());
  STRCMP_EQUAL("members is 3; members may be 2..2", refusal([](GroupShape& s) {
                                                      s.kind = GroupKind::kExchange;
                                                      s.member_count = 3;
                                                    }).c_str());
  STRCMP_EQUAL("entries is 100; entries may be 2..32768, a power of two",
               refusal([](GroupShape& s) { s.entry_count = 100; }).c_str());
  STRCMP_EQUAL("eager_bytes is 8192; eager_bytes may be 64..8191",
               refusal([](GroupShape& s) { s.eager_bytes = 8192; }).c_str());
  STRCMP_EQUAL("box_bytes is 512; box_bytes may be 1024..65536, a power of two",
               refusal([](GroupShape& s) { s.box_bytes = 512; }).c_str());
  STRCMP_EQUAL("eager_bytes is 127 and eager_count is 1; eager_bytes times eager_count must be at "
               "least 128 in the layout lazy",
               refusal([](GroupShape& s) {
                 s.eager_bytes = 127;
                 s.eager_count = 1;
               }).c_str());
  STRCMP_EQUAL("eager_bytes is 64 and eager_count is 2; eager_bytes times eager_count must be at "
               "least 192 in the layout mesh",
               refusal([](GroupShape& s) {
                 s.kind = GroupKind::kMesh;
                 s.eager_bytes = 64;
                 s.eager_count = 2;
               }).c_str());
  STRCMP_EQUAL("kind is 7; kind may be 0..2",
               refusal([](GroupShape& s) { s.kind = static_cast<GroupKind>(7); }).c_str());
}
