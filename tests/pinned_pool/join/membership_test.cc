#include "pinned_pool/join/membership.h"

#include <cstring>
#include <string>

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/file.h"
#include "platform/units.h"
#include "tests/support/death_test.h"
#include "tests/support/patience.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr uint32_t kMemberCount = 5;
constexpr uint64_t kMemoryBytes = 4 * kKiB;

}  // namespace

TEST_GROUP(MembersTable) {
  std::byte* memory = nullptr;
  MembersTable* table = nullptr;
  const PoolId pool_id = make_pool_id().take();

  void setup() override {
    memory = static_cast<std::byte*>(
        mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    CHECK(memory != MAP_FAILED);
    table = MembersTable::create({memory, kMemoryBytes}, kMemberCount, pool_id);
  }
  void teardown() override { munmap(memory, kMemoryBytes); }

  void check_refused(const char* answer, uint64_t bytes = kMemoryBytes) {
    auto opened = MembersTable::open({memory, bytes}, pool_id);
    CHECK(!opened.ok());
    STRNCMP_EQUAL(answer, opened.error().answer, std::strlen(answer));
  }

  // Starts a child that holds the table's owner life. Returns when it does. The child then waits to
  // be killed, or ends.
  pid_t start_holder(bool waits) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
      BP_ASSERT(table->hold_owner_life().ok());
      [[maybe_unused]] const ssize_t written = write(ends[1], "1", 1);
      while (waits) pause();
      _exit(0);
    }
    ::close(ends[1]);
    char said = 0;
    CHECK(read(ends[0], &said, 1) == 1);
    ::close(ends[0]);
    return child;
  }
};

TEST(MembersTable, BeginsWithFreeMembers) {
  LONGS_EQUAL(kMemberCount, table->member_count());
  CHECK(table->epoch() == 0);
  for (uint32_t i = 0; i < kMemberCount; ++i) {
    CHECK(table->word(i) == MemberWord{});
    STRCMP_EQUAL("", table->name(i).text);
  }
  LONGS_EQUAL(128 + 5 * 128, MembersTable::bytes_for(kMemberCount));
}

TEST(MembersTable, EachChangeIsAnEpoch) {
  table->begin_join(3, 1234, MemberName("relay"), {});
  CHECK(table->epoch() == 1);
  CHECK((table->word(3) == MemberWord{1, MemberState::kJoining}));
  LONGS_EQUAL(1234, table->pid(3));
  STRCMP_EQUAL("relay", table->name(3).text);
  uint64_t epoch = 1;
  for (const MemberState state :
       {MemberState::kAlive, MemberState::kDead, MemberState::kQuiet, MemberState::kFree}) {
    table->set_state(3, state);
    ++epoch;
    CHECK(table->epoch() == epoch);
    CHECK(table->changed_epoch(3) == epoch);
    CHECK((table->word(3) == MemberWord{1, state}));
  }
  CHECK(table->changed_epoch(2) == 0);
  table->begin_join(3, 99, MemberName("a name that is longer than thirty-one bytes"), {});
  CHECK((table->word(3) == MemberWord{2, MemberState::kJoining}));
  STRCMP_EQUAL("a name that is longer than thir", table->name(3).text);
}

TEST(MembersTable, SaysWhatEachGenerationHasMapped) {
  SegmentRights rights;
  rights.add(0, false);
  rights.add(64, true);
  rights.add(kSegmentCountMax - 1, false);
  table->begin_join(3, 1, MemberName("relay"), rights);
  for (uint32_t segment = 0; segment < kSegmentCountMax + 8; ++segment) {
    const bool is_readable = segment == 0 || segment == 64 || segment == kSegmentCountMax - 1;
    CHECK(table->may_read(3, segment) == is_readable);
    CHECK(table->may_write(3, segment) == (segment == 64));
    CHECK_FALSE(table->may_read(2, segment));
  }
  table->set_state(3, MemberState::kFree);
  table->begin_join(3, 1, MemberName("relay"), {});
  CHECK_FALSE(table->may_read(3, 64) || table->may_write(3, 64));
}

TEST(MembersTable, KnowsWhetherItIsValid) {
  SegmentRights rights;
  rights.add(3, true);
  table->begin_join(1, 1, MemberName("first"), {});
  table->begin_join(3, 1, MemberName("relay"), rights);
  CHECK(table->is_valid());
  auto* const entry = reinterpret_cast<MemberEntry*>(memory + kMembersHeaderBytes) + 3;
  const auto is_invalid_with = [&](std::atomic<uint64_t>& word, uint64_t value) {
    const uint64_t before = word.exchange(value);
    const bool is_valid = table->is_valid();
    word.store(before);
    return !is_valid && table->is_valid();
  };
  CHECK(is_invalid_with(entry->changed_epoch, 3));  // an epoch to come
  CHECK(is_invalid_with(entry->changed_epoch, 1));  // another member's; the last has no member
  CHECK(is_invalid_with(entry->word, 1 << 8 | 5));  // an unknown state
  CHECK(is_invalid_with(entry->word, 2));           // alive, but never joined
  CHECK(is_invalid_with(entry->word, 3 << 8 | 1));  // more generations than epochs
  CHECK(is_invalid_with(entry->readable[0], 0));    // writable, but not readable
  CHECK(is_invalid_with(entry[1].changed_epoch, 2));
  CHECK(is_invalid_with(*reinterpret_cast<std::atomic<uint64_t>*>(memory), 7));  // wrong magic
#if BP_DEBUG
  entry->changed_epoch.store(3);
  BP_CHECK_DIES("is_valid() before a change", table->set_state(3, MemberState::kAlive));
#endif
}

#if BP_DEBUG
// While a thread holds the owner's life, no other thread may change the table.
TEST(MembersTable, AnotherThreadThanItsOwnersIsAProgrammingError) {
  const pid_t child = start_holder(true);
  BP_CHECK_DIES("!owner_life_.is_held_by_another()",
                table->begin_join(1, 1, MemberName("relay"), {}));
  BP_CHECK_DIES("!owner_life_.is_held_by_another()", table->set_state(1, MemberState::kDead));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  table->begin_join(1, 1, MemberName("relay"), {});
}
#endif

TEST(MembersTable, IsOpenedByWhoHasItReadOnly) {
  CHECK(mprotect(memory, kMemoryBytes, PROT_READ) == 0);
  auto opened = MembersTable::open({memory, kMemoryBytes}, pool_id);
  CHECK(opened.ok());
  POINTERS_EQUAL(table, opened.value());
}

TEST(MembersTable, RefusesWhatIsNone) {
  check_refused("100 bytes at", 100);
  check_refused("it has 5 members, in 400 bytes", 400);
  memory[8] = std::byte{7};
  check_refused("it has version 7, this program supports 3");
  memory[0] = std::byte{0};
  check_refused("it begins with 316d656d70646500, not with 316d656d70646562");
}

TEST(MembersTable, RefusesAnotherPools) {
  auto opened = MembersTable::open({memory, kMemoryBytes}, make_pool_id().take());
  CHECK(!opened.ok());
  STRCMP_EQUAL("it belongs to another pool", opened.error().answer);
}

TEST(MembersTable, OwnerIsGoneUnlessItHoldsItsLife) {
  CHECK(table->is_owner_gone());
  BP_ASSERT(table->hold_owner_life().ok());
  CHECK(!table->is_owner_gone());
  table->release_owner_life();
  CHECK(table->is_owner_gone());
}

// Readers of the table learn none of the owner's addresses.
TEST(MembersTable, ShowsNoAddressOfTheOwners) {
  // A sanitizer maps so much that small numbers pass for addresses.
  if (test::kIsSanitized) BP_SKIP("what is mapped says nothing in this build");
  BP_ASSERT(table->hold_owner_life().ok());
  for (size_t at = 0; at + sizeof(uint64_t) <= kMembersHeaderBytes; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, memory + at, sizeof word);
    const bool is_own = word - reinterpret_cast<uint64_t>(memory) < kMemoryBytes;
    unsigned char is_there = 0;
    const uint64_t page = word & ~uint64_t{4095};
    const bool is_mapped = word != 0 && mincore(reinterpret_cast<void*>(page), 1, &is_there) == 0;
    CHECK_TEXT(is_own || !is_mapped, std::to_string(at).c_str());
  }
  table->release_owner_life();
}

TEST(MembersTable, OwnersDeathIsSeen) {
  const pid_t child = start_holder(true);
  CHECK(!table->is_owner_gone());
  CHECK(kill(child, SIGKILL) == 0);
  // The kernel clears the word before anybody has waited for the child.
  CHECK(test::eventually([this] { return table->is_owner_gone(); }));
  waitpid(child, nullptr, 0);
}

TEST(MembersTable, OwnersExitIsSeenToo) {
  const pid_t child = start_holder(false);
  CHECK(test::eventually([this] { return table->is_owner_gone(); }));
  waitpid(child, nullptr, 0);
}
