// A wave: commands of one client for the keys of other shards, which cross together.
//
//     the session   add() for each command, in order; commands for keys of its own shard behind
//                   one that crosses join the wave: they are executed at once, and answered in turn
//                   no further command is there, or the wave is full: send()
//     each owner    one question (shard_question_datapath.h): execute() of its operations, in order
//     the session   changed(): is_back(); it answers next(), answered(), one by one
//     each owner    one more question if items are pinned: it unpins them, once they are sent
//     the session   changed(): is_idle()
//
// So a get of a short value costs one crossing there and one back, however many commands come with
// it, and an owner is woken at most once for a wave. Only the owner touches the pins of its items.
//
// The texts of operations lie in the input of the session, which keeps them in place while the wave
// is out (StreamInput::keep_arrived). Short texts of items come back in the wave's own memory.
//
//     kIdle -- add() --> kOpen -- send() --> kOut -- all answered --> kBack
//     kBack -- the last answered() --> kHeld while texts are being sent --> kReturning --> kIdle
//
// A client may leave at any time. A wave that is out comes back first: its owners may still read
// the client's input. Pins are returned after the client, while the next one comes. When the shards
// stop, a wave that is out stays so, and nothing of it is touched any more.
//
// Invariants, looked at by is_valid(): 1. Operations that cross are in the list of their owner's
// part, others in none. 2. Texts that are being sent are counted, and belong to answered
// operations. Threads: the session's; a part that is out belongs to its owner's shard.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "apps/kvd/far_turn_datapath.h"
#include "apps/kvd/items_datapath.h"
#include "apps/kvd/key_owner_datapath.h"
#include "apps/kvd/operation_datapath.h"
#include "platform/assert.h"
#include "platform/cache_line.h"
#include "platform/free_list.h"
#include "transport/loop/shard_question_datapath.h"

namespace bedplate::kvd {

struct Crossing;

class Wave {
 public:
  static constexpr uint32_t kOperationsMax = 32;
  static constexpr uint32_t kTextBytes = 8 * 1024;
  static constexpr uint32_t kCopyMax = 1536;  // the longest text of an item that is copied
  static_assert(kCopyMax >= kMetaReplyBytesMax && kCopyMax % kCacheLineBytes == 0);

  // How many questions a session has in flight at once, on a kvd of so many shards.
  static constexpr uint32_t question_count(uint32_t shard_count) noexcept {
    return shard_count - 1 + FarTurn::kQuestionCount;
  }

  // The operations of one owner.
  struct alignas(kCacheLineBytes) Part : ShardQuestion {
    Wave* wave = nullptr;
    const Environment* owner = nullptr;
    uint32_t number = 0;      // of the owner
    uint32_t operations = 0;  // a bit for each
    uint32_t pinned = 0;      // those whose items may be unpinned
  };

  // `parts`: one for each other shard. Ownership: both outlive this.
  Wave(Crossing& crossing, std::span<Part> parts) noexcept;
  Wave(const Wave&) = delete;
  Wave& operator=(const Wave&) = delete;

  // `changed` is called when the wave is back, or idle again; not from within the calls below.
  void serve(void (*changed)(void* context) noexcept, void* context) noexcept {
    changed_ = changed;
    context_ = context;
  }

  bool is_idle() const noexcept { return state_ == State::kIdle; }
  bool is_open() const noexcept { return state_ == State::kOpen; }
  // A step of a session adds two at most: the last key of a get, and its end.
  bool is_full() const noexcept { return count_ + 2 > kOperationsMax; }
  bool is_out() const noexcept { return state_ == State::kOut; }
  bool is_back() const noexcept { return state_ == State::kBack; }

  // A new operation for shard number `owner`, which the caller fills before send(). Requires:
  // is_idle(), then an owner that is another shard; or is_open(), and it has room.
  Operation& add(uint32_t owner) noexcept;
  // A new operation for all other shards, which change nothing of it. Requires: is_idle().
  Operation& add_for_all() noexcept;
  // Sends all operations to their owners. Requires: is_open().
  void send() noexcept;

  // The operation that is answered next. Requires: is_back().
  Operation& next() noexcept {
    BP_DCHECK(is_back() && next_ < count_);
    return operations_[next_];
  }
  // next() is answered. If it crossed, and has an item, its owner unpins that, unless it `is_lent`:
  // then sent() does, later. If it did not cross, the item is the caller's.
  void answered(bool is_lent) noexcept;
  // The text of this operation, which was lent, needs its item no longer.
  void sent(Operation& operation) noexcept;
  // Nobody wants the answers that are left: items are given back. Requires: is_back().
  void drop_answers() noexcept;
  // Gives a new item (kMake) of shard number `owner` back to it. Requires: is_idle().
  void give_back(CacheItem& item, uint32_t owner) noexcept;

  // Whether it is of another shard.
  bool crossed(const Operation& operation) const noexcept;
  // Whether `loan` is an operation of this wave.
  bool has(const void* loan) const noexcept {
    return loan >= operations_ && loan < operations_ + kOperationsMax;
  }
  bool is_valid() const noexcept;

  // The turn of the same session at its limit.
  FarTurn& turn() noexcept { return turn_; }
  const FarTurn& turn() const noexcept { return turn_; }

  Wave* next_spare = nullptr;  // Crossing's

 private:
  enum class State : uint8_t { kIdle, kOpen, kOut, kBack, kHeld, kReturning };
  static constexpr uint16_t kAllOthers = UINT16_MAX;  // Operation::owner

  void open() noexcept;
  Part& part_of(uint32_t owner) noexcept;
  uint32_t index_of(const Operation& operation) const noexcept {
    return static_cast<uint32_t>(&operation - operations_);
  }
  std::span<char> copy_of(uint32_t index) noexcept {
    return {texts_ + index * copy_bytes_, copy_bytes_};
  }
  void ask(Part& part, void (*asked)(ShardQuestion& self) noexcept) noexcept;
  void let_go(Operation& operation) noexcept;
  void return_pins() noexcept;
  static void execute_part(ShardQuestion& self) noexcept;
  static void unpin_part(ShardQuestion& self) noexcept;
  static void took_back(ShardQuestion& self) noexcept;

  Crossing& crossing_;
  const std::span<Part> parts_;
  void (*changed_)(void* context) noexcept = nullptr;
  void* context_ = nullptr;
  State state_ = State::kIdle;
  uint32_t count_ = 0;       // operations
  uint32_t next_ = 0;        // those before it are answered
  uint32_t part_count_ = 0;  // owners
  uint32_t out_count_ = 0;   // parts that are at their owners
  uint32_t lent_count_ = 0;  // texts that are being sent
  uint32_t copy_bytes_ = 0;  // of each operation's copy
  FarTurn turn_;
  Operation operations_[kOperationsMax];
  alignas(kCacheLineBytes) char texts_[kTextBytes];
};

// The other shards of a kvd, and the waves to them, for the sessions of one shard.
struct Crossing {
  std::span<const Environment* const> shards;  // of all shards, in the order of their numbers
  uint32_t own = 0;                            // this shard's number
  ShardAsker* asker = nullptr;                 // planned for Wave::question_count() of each wave
  FreeList<&Wave::next_spare> spare;           // for sessions that are made

  uint32_t owner_of(std::string_view key) const noexcept {
    return kvd::owner_of(key, static_cast<uint32_t>(shards.size()));
  }
  const Environment& here() const noexcept { return *shards[own]; }
};

inline bool Wave::crossed(const Operation& operation) const noexcept {
  return operation.owner != crossing_.own;
}

}  // namespace bedplate::kvd
