// The order and content of messages for each pair, whichever queue a message takes. One thread
// plays all members. Chance decides which member sends, polls or falls silent. The model is a queue
// for each pair.
#include "transport/shm/endpoint/shm_provider.h"

#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "tests/support/pool_fixture.h"
#include "tests/support/seed.h"
#include "tests/transport/shm/group_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

constexpr uint64_t kBlockBytes = 256;

// A block that is lent now and then, and records its return.
struct Block : Completion {
  std::span<std::byte> memory;
  bool is_out = false;
};

struct Expected {
  std::string payload;
  const Block* loan = nullptr;
};

// All resources are scarce, so that each kind of queue is used, runs out, and is used again.
GroupShape scarce(GroupKind kind, uint32_t member_count) {
  GroupShape shape;
  shape.kind = kind;
  shape.member_count = member_count;
  shape.entry_count = 8;
  shape.eager_bytes = 1000;
  shape.eager_count = 2;
  shape.box_bytes = 1024;  // 4 slots, an area of 704 bytes; longer messages take the eager region
  shape.box_count = 5;
  shape.box_count_max = 2;
  shape.send_threshold = 3;
  shape.loan_count = 8;
  return shape;
}

class Traffic {
 public:
  Traffic(GroupKind kind, uint32_t member_count)
      : count_(member_count), random_(seed_.value()), rig_(scarce(kind, member_count), &*pool_) {
    const std::span<std::byte> lent = pool_.memory(64 * kKiB);
    for (Block& block : blocks_) {
      block.memory = lent.subspan(static_cast<size_t>(&block - blocks_) * kBlockBytes, kBlockBytes);
      block.call = [](Completion& self, Outcome outcome) noexcept {
        auto& back = static_cast<Block&>(self);
        BP_ASSERT(back.is_out && outcome == Outcome::kDone);
        back.is_out = false;
      };
    }
    for (uint32_t i = 0; i < count_; ++i) members_.push_back(&rig_.join(i));
    expected_.resize(count_ * count_);
  }

  void run(int steps) {
    for (int step = 0; step < steps; ++step) {
      if (step % 4000 == 0) {
        const uint64_t to = random_() % count_;
        favourite_ = (to + 1 + random_() % (count_ - 1)) % count_ * count_ + to;
      }
      const auto who = static_cast<uint32_t>(random_() % count_);
      if (random_() % 3 == 0) {
        poll(who, static_cast<uint32_t>(random_() % 8 + 1));
        continue;
      }
      // Most messages are for one pair, so that some pairs are busy and others fall idle.
      const uint64_t pair = random_() % 8 != 0 ? favourite_ : random_() % (count_ * count_);
      if (pair / count_ != pair % count_) {
        send(static_cast<uint32_t>(pair / count_), static_cast<uint32_t>(pair % count_));
      }
    }
    for (int round = 0; round < 1000; ++round) {
      for (uint32_t i = 0; i < count_; ++i) poll(i, 16);
      while (!held_.empty()) release_one();
    }
  }

  // Nothing was lost, and every loan is back.
  void check_end() {
    for (const auto& pair : expected_) CHECK_TEXT(pair.empty(), seed_.text());
    for (const Block& block : blocks_) CHECK_TEXT(!block.is_out, seed_.text());
    for (Member* member : members_) {
      LONGS_EQUAL_TEXT(0, member->counters.cut_off.read(), seed_.text());
      LONGS_EQUAL_TEXT(0, member->shm.loans_out(), seed_.text());
      boxes_granted += member->counters.boxes_granted.read();
      boxes_returned += member->counters.boxes_returned.read();
    }
  }

  uint64_t boxes_granted = 0;
  uint64_t boxes_returned = 0;
  uint64_t sent = 0;

 private:
  void send(uint32_t from, uint32_t to) {
    Endpoint& endpoint = members_[from]->to(to);
    Expected message;
    const size_t limit = endpoint.limits().am_bytes_max;
    const size_t bytes = random_() % 2 == 0 ? random_() % 57 : random_() % (limit + 1);
    SendStatus status = SendStatus::kAgain;
    Block* block = random_() % 4 == 0 ? free_block() : nullptr;
    if (block != nullptr) {
      message.payload.assign(random_() % 33, static_cast<char>('A' + sent % 26));
      message.loan = block;
      std::memset(block->memory.data(), static_cast<int>(sent % 256), kBlockBytes);
      status = endpoint.am_send_loan(5, bytes_of(message.payload), block->memory, block);
      block->is_out = status == SendStatus::kPending;
    } else {
      message.payload.assign(bytes, static_cast<char>('a' + sent % 26));
      status = endpoint.am_send(5, bytes_of(message.payload));
    }
    if (status == SendStatus::kAgain) return;
    CHECK_TEXT(status == (block != nullptr ? SendStatus::kPending : SendStatus::kDone),
               seed_.text());
    expected_[from * count_ + to].push_back(message);
    ++sent;
  }

  void poll(uint32_t who, uint32_t budget) {
    Member& member = *members_[who];
    member.messenger.poll(budget);
    for (const Member::Received& got : member.received) {
      auto& pair = expected_[got.from * count_ + who];
      CHECK_TEXT(!pair.empty() && pair.front().payload == got.payload, seed_.text());
      const Block* lent = pair.front().loan;
      CHECK_TEXT((lent != nullptr) == got.loan.is_there(), seed_.text());
      if (lent != nullptr) {
        CHECK_TEXT(got.loan.memory.data() == lent->memory.data(), seed_.text());
        CHECK_TEXT(got.loan.memory.size() == kBlockBytes, seed_.text());
        held_.push_back({who, got.loan});
      }
      pair.pop_front();
    }
    member.received.clear();
    if (!held_.empty() && random_() % 2 == 0) release_one();
  }

  void release_one() {
    const size_t which = random_() % held_.size();
    members_[held_[which].first]->messenger.release(held_[which].second);
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(which));
  }

  Block* free_block() {
    Block& block = blocks_[random_() % std::size(blocks_)];
    return block.is_out ? nullptr : &block;
  }

  uint32_t count_;
  Seed seed_;
  std::mt19937_64 random_;
  TestPool pool_;
  GroupRig rig_;
  std::vector<Member*> members_;
  std::vector<std::deque<Expected>> expected_;
  std::vector<std::pair<uint32_t, Loan>> held_;
  Block blocks_[40];
  uint64_t favourite_ = 0;
};

}  // namespace

TEST_GROUP(ShmOrder) {
  std::unique_ptr<Traffic> traffic;  // a member, so that it is destroyed when a check fails

  void run(GroupKind kind, uint32_t member_count, int steps) {
    traffic = std::make_unique<Traffic>(kind, member_count);
    traffic->run(steps);
    traffic->check_end();
    CHECK(traffic->sent > static_cast<uint64_t>(steps) / 10);
  }
};

TEST(ShmOrder, HoldsInALazyGroupWhateverPathIsTaken) {
  run(GroupKind::kLazy, 6, 200000);
  CHECK(traffic->boxes_granted > 10);
  CHECK(traffic->boxes_returned > 5);
}

TEST(ShmOrder, HoldsInAMesh) { run(GroupKind::kMesh, 6, 200000); }

TEST(ShmOrder, HoldsInAnExchange) { run(GroupKind::kExchange, 2, 100000); }

TEST(ShmOrder, HoldsAmongMany) { run(GroupKind::kLazy, 40, 100000); }
