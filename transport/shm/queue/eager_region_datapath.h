// The eager region of a member holds copies of its messages that do not fit into a slot. Each copy
// stays there until the peer that it is for has consumed it.
//
// Memory is allocated in cache lines. No peer reports that it consumed a message: a member that
// needs space asks, for each chunk, the queue that carried the message. All state is in private
// memory; a peer that scribbles over the region only spoils messages.
//
// A stopped peer consumes nothing, and must not hold the whole region. So the end of the region,
// the reserve, is for peers that hold no chunk; and a peer with a chunk in the reserve gets no
// other chunk.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/assert.h"
#include "platform/cache_line.h"
#include "platform/units.h"
#include "transport/messages/piece_map_datapath.h"
#include "transport/shm/endpoint/peer_share_datapath.h"
#include "transport/shm/membership/group_layout.h"
#include "transport/shm/queue/outgoing_queue.h"

namespace bedplate {

class OutgoingPath;

// Threads: one at a time.
//
// Invariants: 1. Each taken line belongs to exactly one used chunk. 2. A chunk reaches into the
// reserve if and only if in_reserve_ says so. 3. A chunk with a message has a holder, and the
// shares count exactly the chunks with a holder. (is_valid)
class EagerRegion {
 public:
  static constexpr uint32_t kPieceCountMax = 64;     // the most chunks in use at once
  static constexpr uint32_t kPieceReserveCount = 8;  // for peers that hold no chunk
  static constexpr uint32_t kLineCountMax = 4096;
  static_assert(kLineCountMax <= UINT16_MAX);
  static_assert(kLineCountMax * kCacheLineBytes >= uint64_t{kEagerCountMax} * kMessageBytesMax);

  // The message that uses a chunk. Once the peer has consumed the message, reclaim() may free the
  // chunk.
  static constexpr uint32_t kNobody = UINT32_MAX;
  struct Use {
    uint32_t member = kNobody;  // the peer; kNobody: not set yet, so the chunk stays in use
    uint64_t index = 0;  // the message's number in the queue; is_answer: the peer's generation
    QueueKind queue = QueueKind::kFifo;
    bool is_answer = false;        // not a message: the peer may still store an answer in the chunk
    OutgoingPath* path = nullptr;  // the path that carried the message
  };
  struct Piece {
    std::byte* memory = nullptr;  // nullptr: there is no space
    uint64_t offset = 0;
    uint32_t number = 0;
  };

  EagerRegion() noexcept = default;
  // `peer_count`: all numbers of peers are smaller. `reserve_bytes`: the size of the reserve; at
  // most the whole region. Allocates; called before the data path runs.
  EagerRegion(std::span<std::byte> memory, uint32_t peer_count, uint64_t reserve_bytes)
      : memory_(memory),
        line_count_(static_cast<uint32_t>(memory.size() / kCacheLineBytes)),
        shared_line_count_(line_count_ - static_cast<uint32_t>(reserve_bytes / kCacheLineBytes)),
        lines_(line_count_),
        share_(peer_count, kPieceCountMax, kPieceReserveCount) {
    BP_ASSERT(line_count_ <= kLineCountMax && shared_line_count_ <= line_count_);
  }

  // Allocates a contiguous chunk of `bytes` for `peer`. The chunk stays in use until cancel(), or
  // until reclaim() finds that the peer has consumed the message that set_use() named. Requires:
  // this region has memory.
  Piece try_take(uint64_t bytes, uint32_t peer) noexcept;
  void set_use(const Piece& piece, const Use& use) noexcept {
    BP_DCHECK(is_used(piece.number) && use.member != kNobody);
    if (pieces_[piece.number].holder == kNobody) hold(piece, use.member);
    pieces_[piece.number].use = use;
    BP_DCHECK_SLOW(is_valid());
  }
  // Makes `peer` the holder of the chunk. reclaim() does not free the chunk before set_use() has
  // named its message.
  void hold(const Piece& piece, uint32_t peer) noexcept {
    BP_DCHECK(is_used(piece.number) && pieces_[piece.number].holder == kNobody);
    pieces_[piece.number].holder = peer;
    share_.take(peer);
    BP_DCHECK_SLOW(is_valid());
  }
  void cancel(const Piece& piece) noexcept { free(piece.number); }

  // Frees every chunk with a message for which is_consumed(use) returns true.
  template <typename IsConsumed>
  void reclaim(IsConsumed&& is_consumed) noexcept {
    for (uint64_t left = used_; left != 0; left &= left - 1) {
      const auto number = static_cast<uint32_t>(std::countr_zero(left));
      const Use& use = pieces_[number].use;
      if (use.member != kNobody && is_consumed(use)) free(number);
    }
  }

  bool is_idle() const noexcept { return used_ == 0; }
  bool is_valid() const noexcept;

 private:
  struct Taken {
    uint16_t first_line = 0;
    uint16_t line_count = 0;
    uint32_t holder = kNobody;  // the peer whose share counts it
    Use use;
  };

  bool is_used(uint32_t number) const noexcept { return (used_ >> number & 1) != 0; }
  // How many lines, from the first on, a chunk for `peer` may come from.
  uint32_t lines_for(uint32_t peer) const noexcept;
  void free(uint32_t number) noexcept;

  std::span<std::byte> memory_;
  uint32_t line_count_ = 0;
  uint32_t shared_line_count_ = 0;  // the lines after these are the reserve
  PieceMap lines_;
  uint64_t used_ = 0;        // bit i: pieces_[i] is taken
  uint64_t in_reserve_ = 0;  // bit i: pieces_[i] reaches into the reserve
  PeerShare share_;
  Taken pieces_[kPieceCountMax];
};

inline uint32_t EagerRegion::lines_for(uint32_t peer) const noexcept {
  if (share_.held_by(peer) == 0) return line_count_;
  for (uint64_t left = in_reserve_; left != 0; left &= left - 1) {
    if (pieces_[std::countr_zero(left)].holder == peer) return 0;
  }
  return shared_line_count_;
}

inline EagerRegion::Piece EagerRegion::try_take(uint64_t bytes, uint32_t peer) noexcept {
  BP_DCHECK_SLOW(is_valid());
  const uint64_t wanted = bytes == 0 ? 1 : (bytes + kCacheLineBytes - 1) / kCacheLineBytes;
  const uint32_t end = lines_for(peer);
  if (used_ == UINT64_MAX || wanted > end || !share_.may_take(peer)) return {};
  const auto count = static_cast<uint32_t>(wanted);
  // Tries the reserve last, even for a peer that may use it.
  const uint32_t shared_end = std::min(end, shared_line_count_);
  uint32_t first = lines_.find_next(shared_end, count);
  if (first == PieceMap::kNone && end > shared_end) first = lines_.find(0, end, count);
  if (first == PieceMap::kNone) return {};
  lines_.take(first, count);
  const auto number = static_cast<uint32_t>(std::countr_one(used_));
  pieces_[number] = {static_cast<uint16_t>(first), static_cast<uint16_t>(count), kNobody, {}};
  used_ |= uint64_t{1} << number;
  if (first + count > shared_line_count_) in_reserve_ |= uint64_t{1} << number;
  const uint64_t offset = uint64_t{first} * kCacheLineBytes;
  BP_DCHECK_SLOW(is_valid());
  return {memory_.data() + offset, offset, number};
}

inline void EagerRegion::free(uint32_t number) noexcept {
  BP_ASSERT(is_used(number));
  lines_.give_back(pieces_[number].first_line, pieces_[number].line_count);
  used_ &= ~(uint64_t{1} << number);
  in_reserve_ &= ~(uint64_t{1} << number);
  if (pieces_[number].holder != kNobody) share_.give_back(pieces_[number].holder);
  BP_DCHECK_SLOW(is_valid());
}

inline bool EagerRegion::is_valid() const noexcept {
  uint64_t lines[kLineCountMax / 64] = {};
  uint32_t taken_count = 0;
  uint32_t held_count = 0;
  if ((in_reserve_ & ~used_) != 0) return false;
  for (uint64_t left = used_; left != 0; left &= left - 1) {
    const auto number = static_cast<uint32_t>(std::countr_zero(left));
    const Taken& piece = pieces_[number];
    const uint32_t end = uint32_t{piece.first_line} + piece.line_count;
    if (piece.line_count == 0 || end > line_count_) return false;
    for (uint32_t line = piece.first_line; line < end; ++line) {
      const uint64_t bit = uint64_t{1} << (line % 64);
      if (!lines_.is_taken(line) || (lines[line / 64] & bit) != 0) return false;
      lines[line / 64] |= bit;
    }
    taken_count += piece.line_count;
    if ((end > shared_line_count_) != ((in_reserve_ >> number & 1) != 0)) return false;
    if (piece.use.member != kNobody && piece.holder == kNobody) return false;
    if (piece.holder != kNobody) ++held_count;
  }
  return taken_count == lines_.taken_count() && lines_.is_valid() &&
         share_.free_count() + held_count == (line_count_ == 0 ? 0 : kPieceCountMax);
}

}  // namespace bedplate
