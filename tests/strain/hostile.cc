#include "tests/strain/hostile.h"

#include <algorithm>
#include <cinttypes>
#include <cstdlib>
#include <memory>

#include <sys/mman.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/log.h"
#include "tests/strain/scribbler.h"
#include "tests/strain/strained_group.h"
#include "tests/strain/victim.h"
#include "tests/support/pool_fixture.h"

namespace bedplate::strain {
namespace {

constexpr uint32_t kRoundsOfEpisode = 100;
constexpr PoolId kPoolId = {7, 8};

// Small, so that overwritten memory is soon used.
GroupShape scribbled_shape(GroupKind kind, uint32_t member_count) {
  GroupShape shape = strained_shape(kind, member_count);
  shape.entry_count = 16;
  shape.eager_bytes = 512;
  shape.box_bytes = 1024;
  shape.loan_count = 16;
  shape.send_threshold = 2;
  return shape;
}

// The episode being played: the parent prints it if this process fails or hangs.
struct Playing {
  GroupKind kind;
  uint64_t seed;
};
Playing* playing = nullptr;

// A group whose members all run in this thread. Its memory has exactly the size of the layout, so
// that the sanitizer detects reads behind its end.
class Episode {
 public:
  Episode(GroupKind kind, uint64_t seed)
      : shape_(scribbled_shape(kind, kind == GroupKind::kExchange ? 2 : 3)),
        layout_(shape_),
        random_(seed) {
    group_ = allocate(layout_.bytes());
    table_ = allocate(MembersTable::bytes_for(shape_.member_count));
    members_ = MembersTable::create(table_, shape_.member_count, kPoolId);
    BP_ASSERT(members_->hold_owner_life().ok());
    segment_ = GroupSegment::create(group_, shape_, kPoolId, BellFence::kSleeper);
    keeper_ = std::make_unique<ShmGroupKeeper>(segment_, *members_);
    for (uint32_t i = 0; i < shape_.member_count; ++i) join(i);
  }
  ~Episode() {
    for (auto& member : all_) member.reset();
    members_->release_owner_life();
    std::free(group_.data());
    std::free(table_.data());
  }

  void run() {
    Scribbler scribbler(segment_, heap(), false, random_());
    for (uint32_t round = 0; round < kRoundsOfEpisode; ++round) {
      for (uint64_t i = below(4); i > 0; --i) scribbler.scribble();
      step_all();
      if (below(40) == 0) die_and_come_back(static_cast<uint32_t>(below(shape_.member_count)));
    }
    mutations += scribbler.count();
    for (const auto& member : all_) {
      if (!member) continue;
      member->check_private();
      cut_off += member->counters().cut_off.read();
      received += member->counters().received.read();
    }
  }

  static inline uint64_t mutations = 0;
  static inline uint64_t cut_off = 0;
  static inline uint64_t received = 0;
  static inline uint64_t came_back = 0;

 private:
  static std::span<std::byte> allocate(uint64_t bytes) {
    void* memory = std::aligned_alloc(kCacheLineBytes, align_up(bytes, kCacheLineBytes));
    if (memory == nullptr) fail("no memory");
    std::memset(memory, 0, bytes);
    return {static_cast<std::byte*>(memory), bytes};
  }
  static PinnedPool& pool() {
    static PinnedPool pool(test::kTestPoolBase);
    return pool;
  }
  static std::span<std::byte> heap() {
    static Segment& segment =
        *pool().create_segment("heap:all", 3 * Victim::kHeapBytes, PageSize::k4KiB, 1).take();
    return segment.memory();
  }
  uint64_t below(uint64_t bound) { return random_() % bound; }

  void join(uint32_t member) {
    members_->begin_join(member, 1000 + member, MemberName("member"), SegmentRights::all());
    members_->set_state(member, MemberState::kAlive);
    ShmProviderOptions options;
    options.segment = segment_;
    options.members = members_;
    options.member = member;
    options.pool = &pool();
    all_[member] = std::make_unique<Victim>(
        options, heap().subspan(member * Victim::kHeapBytes, Victim::kHeapBytes), random_());
  }
  void step_all() {
    for (auto& member : all_) {
      if (member) member->step();
    }
  }
  void die_and_come_back(uint32_t member) {
    if (!all_[member]) return;
    cut_off += all_[member]->counters().cut_off.read();
    all_[member].reset();
    members_->set_state(member, MemberState::kDead);
    if (below(2) == 0) step_all();
    members_->set_state(member, MemberState::kQuiet);
    for (int i = 0; i < 20; ++i) {
      step_all();
      if (!keeper_->is_forgotten(member, members_->changed_epoch(member))) continue;
      keeper_->reset_member(member);
      members_->set_state(member, MemberState::kFree);
      if (below(2) == 0) step_all();
      ++came_back;
      return join(member);
    }
  }

  GroupShape shape_;
  GroupLayout layout_;
  std::mt19937_64 random_;
  std::span<std::byte> group_;
  std::span<std::byte> table_;
  MembersTable* members_ = nullptr;
  GroupSegment segment_;
  std::unique_ptr<ShmGroupKeeper> keeper_;
  std::unique_ptr<Victim> all_[3];
};

}  // namespace

void share_episode() {
  void* memory =
      mmap(nullptr, sizeof(Playing), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("no memory");
  playing = static_cast<Playing*>(memory);
}

void say_episode() {
  std::printf("repeat what failed with: message-strain episode %u %" PRIu64 "\n",
              static_cast<unsigned>(playing->kind), playing->seed);
}

void scribble_once(GroupKind kind, uint64_t seed) {
  Episode episode(kind, seed);
  episode.run();
}

void scribble_in_process(uint64_t nanoseconds, uint64_t mutation_max, uint64_t seed) {
  set_log_level(LogLevel::kError);  // cut-offs are only counted
  const uint64_t begin = monotonic_ns();
  constexpr GroupKind kKinds[] = {GroupKind::kLazy, GroupKind::kMesh, GroupKind::kExchange};
  uint64_t count = 0;
  for (; monotonic_ns() - begin < nanoseconds && Episode::mutations < mutation_max; ++count) {
    alarm(10);  // ends an episode that hangs
    *playing = {kKinds[count % 3], seed + count};
    scribble_once(playing->kind, playing->seed);
  }
  alarm(0);
  const double seconds = static_cast<double>(monotonic_ns() - begin) / kNsPerSecond;
  if (Episode::cut_off == 0) fail("nobody was cut off");
  std::printf("hostile: %" PRIu64 " mutations in %" PRIu64 " episodes, %.0f a second: %" PRIu64
              " messages taken, %" PRIu64 " cut off, %" PRIu64 " died and came back\n",
              Episode::mutations, count, static_cast<double>(Episode::mutations) / seconds,
              Episode::received, Episode::cut_off, Episode::came_back);
}

}  // namespace bedplate::strain
