// The read-ahead buffer of a client: the bytes that have arrived, and how many more to receive.
//
// Requests are read ahead into a buffer, many at a time; the last requests decide how far. After a
// small write all of the buffer is used: the payloads of a burst come with their headers, and the
// volume's shard copies them from there. After a large write only the next header is read: the next
// payload then goes straight from the socket to its destination. After any other request at least
// 64 headers are read. A medium write counts as small while writes come in bursts: then a copy
// costs less than a receive of its own. If the client waits for each write, a copy costs more.
//
// Invariants, by is_valid(): 1. The bytes that have arrived lie within the buffer. 2. The
// read-ahead range lies within the buffer. 3. Nothing in the buffer moves while a part of it is
// lent (room()).
// Threads: the shard of the connections.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include <sys/uio.h>

#include "apps/blockd/nbd_request_datapath.h"
#include "platform/assert.h"
#include "platform/units.h"

namespace bedplate::nbd {

class ReadAhead {
 public:
  // Begins anew, for the next client. Requires: nothing is lent.
  void clear() noexcept {
    BP_DCHECK(!is_lent());
    ahead_bytes_ = kAheadBytes;
    is_burst_ = false;
    begin_ = end_ = 0;
  }

  // ---- The bytes that have arrived ----

  uint32_t bytes() const noexcept {
    BP_DCHECK(begin_ <= end_);
    return end_ - begin_;
  }
  std::span<const std::byte> arrived() const noexcept { return {buffer_ + begin_, bytes()}; }
  // Takes the next `count` bytes; they stay where they are until room() is called.
  std::byte* take(uint32_t count) noexcept {
    BP_DCHECK(count <= bytes());
    return buffer_ + std::exchange(begin_, begin_ + count);
  }
  // Takes the next `count` bytes and lends them to another shard, until give_back().
  std::byte* lend(uint32_t count) noexcept {
    ++lent_count_;
    return take(count);
  }
  // Ends one loan of lend(). Returns whether no loan is left.
  bool give_back() noexcept {
    BP_DCHECK(is_lent());
    return --lent_count_ == 0;
  }
  bool is_lent() const noexcept { return lent_count_ > 0; }
  uint32_t lent_count() const noexcept { return lent_count_; }

  // ---- The next receive ----

  // The space for the next receive, as far as to read ahead. First moves the bytes not yet taken to
  // the front. Requires: nothing is lent. Cost: a copy of those bytes.
  iovec room() noexcept {
    BP_DCHECK(!is_lent());
    const uint32_t kept = bytes();
    if (begin_ > 0 && kept > 0) std::memmove(buffer_, buffer_ + begin_, kept);
    begin_ = 0;
    end_ = kept;
    BP_DCHECK(kept < ahead_bytes_);
    is_burst_ = kept > 0;
    return {buffer_ + kept, ahead_bytes_ - kept};
  }
  // `count` bytes were received into room().
  void add(uint64_t count) noexcept {
    BP_DCHECK(count <= kBufferBytes - end_);
    end_ += static_cast<uint32_t>(count);
  }
  // The same, for a receive that brought a payload and then these `count` bytes.
  void add_behind_payload(uint64_t count) noexcept {
    is_burst_ = count > 0;
    add(count);
  }

  // ---- How far ahead ----

  // A write of this length was taken.
  void follow_write(uint32_t length) noexcept {
    const bool is_small =
        length <= kSmallWriteMaxBytes || (length <= kBurstWriteMaxBytes && is_burst_);
    ahead_bytes_ = is_small ? kBufferBytes : kAheadOfLargeBytes;
  }
  // A request other than a write was taken.
  void follow_other() noexcept { ahead_bytes_ = std::max(ahead_bytes_, kAheadBytes); }
  // The rest of the buffer came with the request that was taken. Called after follow_write() or
  // follow_other().
  void set_burst() noexcept { is_burst_ = true; }

  bool is_valid() const noexcept {
    return begin_ <= end_ && end_ <= kBufferBytes && ahead_bytes_ <= kBufferBytes;
  }

 private:
  static constexpr uint32_t kBufferBytes = 128 * kKiB;
  // How many bytes are read ahead, unless the last write was small or large.
  static constexpr uint32_t kAheadBytes = 64 * kRequestHeaderBytes;
  static constexpr uint32_t kAheadOfLargeBytes = kRequestHeaderBytes;
  static constexpr uint32_t kSmallWriteMaxBytes = 8 * kKiB;
  static constexpr uint32_t kBurstWriteMaxBytes = 32 * kKiB;
  static_assert(kBurstWriteMaxBytes + kRequestHeaderBytes <= kBufferBytes);

  uint32_t ahead_bytes_ = kAheadBytes;
  bool is_burst_ = false;  // the next request came in one receive with the one before it
  uint32_t begin_ = 0;
  uint32_t end_ = 0;
  uint32_t lent_count_ = 0;
  std::byte buffer_[kBufferBytes];
};

}  // namespace bedplate::nbd
