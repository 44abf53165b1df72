#include "transport/verbs/channel/remote_operations_datapath.h"

#include <algorithm>

#include "platform/units.h"

namespace bedplate {
namespace {

constexpr uint64_t kPacketBytesMin = 256;  // the smallest MTU
// Each request this long is signalled: a whole list of them takes so long that a slow device would
// look like a stopped one (LinkTiming::stall_ns_max).
constexpr uint64_t kOwnSignalBytes = kMiB;

}  // namespace

SendStatus RemoteOperations::transfer(ibv_wr_opcode opcode, std::byte* local, uint64_t bytes,
                                      const RemoteMemory& remote, Completion* done) noexcept {
  if (bytes > remote.bytes) return SendStatus::kTooLong;
  if (BP_UNLIKELY(!channel_.may_send)) return channel_.status_when_down();
  const bool is_put = opcode == IBV_WR_RDMA_WRITE;
  if (!channel_.may_reach(remote, is_put ? kWrite : kRead)) return SendStatus::kRefused;
  if (bytes == 0) return SendStatus::kDone;
  if (const SendStatus room = has_room_for(bytes); room != SendStatus::kPending) return room;
  const bool is_inline = is_put && bytes <= channel_.link.queue_pair.inline_bytes();
  if (!is_inline && BP_UNLIKELY(!is_registered(local, bytes))) {
    return bounce(opcode, local, bytes, remote, done);
  }
  list_parts(opcode, local, bytes, remote);
  channel_.queue.end_transfer(RequestKind::kOperation, done);
  return SendStatus::kPending;
}

// Transfers memory outside the pool through the bounce buffer that no peer reaches.
SendStatus RemoteOperations::bounce(ibv_wr_opcode opcode, std::byte* local, uint64_t bytes,
                                    const RemoteMemory& remote, Completion* done) noexcept {
  if (bytes > parts_.transfer_bounce.bytes()) return SendStatus::kRefused;
  std::byte* piece = parts_.transfer_bounce.take(bytes);
  if (piece == nullptr) return SendStatus::kAgain;
  BP_DCHECK(channel_.may_send && bytes > 0 && bytes <= remote.bytes);
  const bool is_put = opcode == IBV_WR_RDMA_WRITE;
  if (is_put) std::memcpy(piece, local, bytes);
  list_parts(opcode, piece, bytes, remote);
  const uint32_t index = channel_.queue.end_transfer(RequestKind::kBounced, done);
  bounced_[index] = {piece, is_put ? nullptr : local, bytes};
  parts_.counters->bounced_bytes.add(bytes);
  return SendStatus::kPending;
}

// Copies a get's bytes to their destination, if all of them have come.
void RemoteOperations::end_bounced(const Bounced& bounced, Outcome outcome) noexcept {
  BP_DCHECK(bounced.piece != nullptr && bounced.bytes > 0);
  if (bounced.into != nullptr && outcome == Outcome::kDone) {
    std::memcpy(bounced.into, bounced.piece, bounced.bytes);
  }
  parts_.transfer_bounce.give_back(bounced.piece, bounced.bytes);
}

// A full scatter-gather list may end a request early, at most once for each region of the pool.
SendStatus RemoteOperations::has_room_for(uint64_t bytes) const noexcept {
  const uint64_t request_bytes_max = parts_.device->port().transfer_bytes_max;
  const uint64_t requests =
      (BP_UNLIKELY(bytes > request_bytes_max) ? bytes / request_bytes_max : 0) + 2 +
      ChannelParts::kRequestsKept;
  if (requests > channel_.queue.depth()) return SendStatus::kTooLong;
  return requests > channel_.queue.room() ? SendStatus::kAgain : SendStatus::kPending;
}

// Lists a transfer as parts. The caller makes the last part the end of the transfer.
void RemoteOperations::list_parts(ibv_wr_opcode opcode, std::byte* local, uint64_t bytes,
                                  const RemoteMemory& remote) noexcept {
  const uint64_t request_bytes_max = parts_.device->port().transfer_bytes_max;
  const bool is_put = opcode == IBV_WR_RDMA_WRITE;
  // The peer may withdraw a window between two packets.
  const bool can_be_cut_short =
      is_put && bytes > kPacketBytesMin && reach_of(remote) == Reach::kConnection;
  BP_DCHECK(channel_.may_send && bytes > 0 && bytes <= remote.bytes);
  uint64_t at = 0;
  while (at < bytes) {
    BP_DCHECK(channel_.has_room());
    const SendQueue::Slot slot = channel_.queue.add(
        opcode, {.kind = RequestKind::kPart, .can_be_cut_short = can_be_cut_short});
    uint64_t filled = bytes;
    if (is_put && bytes <= channel_.link.queue_pair.inline_bytes()) {
      slot.pieces[0] = {reinterpret_cast<uintptr_t>(local), static_cast<uint32_t>(bytes), 0};
      slot.request.num_sge = 1;
      slot.request.send_flags = IBV_SEND_INLINE;
    } else {
      filled = fill_pieces(local + at, std::min(bytes - at, request_bytes_max), slot);
      if (BP_UNLIKELY(filled >= kOwnSignalBytes)) slot.request.send_flags = IBV_SEND_SIGNALED;
    }
    BP_DCHECK(filled > 0 && filled <= bytes - at);
    slot.request.wr.rdma = {remote.address + at, static_cast<uint32_t>(remote.key)};
    if (!is_put && filled >= SendQueue::kAnswerBytes) mark_answer(local + at + filled);
    at += filled;
    ++out_count_;
  }
}

void RemoteOperations::mark_answer(std::byte* end) noexcept {
  if (BP_UNLIKELY(parts_.device->quirks().ends_without_answer)) {
    channel_.queue.mark_answer(end - SendQueue::kAnswerBytes);
  }
}

bool RemoteOperations::is_registered(const std::byte* local, uint64_t bytes) const noexcept {
  uint32_t pieces = 0;
  while (bytes > 0) {
    const KeyedRange range = parts_.keys->key(local, bytes);
    if (range.key == kNoKey || ++pieces > SendQueue::kPiecesMax) return false;
    local += range.bytes;
    bytes -= range.bytes;
  }
  return true;
}

uint64_t RemoteOperations::fill_pieces(const std::byte* local, uint64_t bytes,
                                       const SendQueue::Slot& slot) const noexcept {
  uint64_t filled = 0;
  int count = 0;
  while (filled < bytes && count < static_cast<int>(SendQueue::kPiecesMax)) {
    const KeyedRange range = parts_.keys->key(local + filled, bytes - filled);
    BP_DCHECK(range.key != kNoKey && range.bytes > 0 && range.bytes <= bytes - filled);
    slot.pieces[count++] = {reinterpret_cast<uintptr_t>(local + filled),
                            static_cast<uint32_t>(range.bytes), VerbsDevice::local_key(range.key)};
    filled += range.bytes;
  }
  slot.request.num_sge = count;
  return filled;
}

SendStatus RemoteOperations::atomic(ibv_wr_opcode opcode, const RemoteMemory& to, uint64_t first,
                                    uint64_t second, uint64_t* before, Completion* done) noexcept {
  if (to.bytes < sizeof(uint64_t)) return SendStatus::kTooLong;
  if (to.address % sizeof(uint64_t) != 0) return SendStatus::kRefused;
  if (BP_UNLIKELY(!channel_.may_send)) return channel_.status_when_down();
  if (!channel_.may_reach(to, kAtomic)) return SendStatus::kRefused;
  if (!channel_.has_room()) return SendStatus::kAgain;
  SendQueue& queue = channel_.queue;
  uint64_t* into = cell(queue.next_index());
  const SendQueue::Slot slot =
      queue.add(opcode, {.kind = RequestKind::kAtomic, .done = done, .before = before});
  slot.pieces[0] = {reinterpret_cast<uintptr_t>(into), sizeof *into, parts_.memory_key};
  slot.request.num_sge = 1;
  slot.request.wr.atomic.remote_addr = to.address;
  slot.request.wr.atomic.rkey = static_cast<uint32_t>(to.key);
  slot.request.wr.atomic.compare_add = first;
  slot.request.wr.atomic.swap = second;
  mark_answer(reinterpret_cast<std::byte*>(into + 1));
  ++out_count_;
  must_flush_ = true;
  return SendStatus::kPending;
}

void RemoteOperations::list_flush(Completion* done) noexcept {
  BP_DCHECK(channel_.may_send && channel_.queue.room() > 0);
  SendQueue& queue = channel_.queue;
  uint64_t* into = cell(queue.next_index());
  const SendQueue::Slot slot =
      queue.add(IBV_WR_RDMA_READ, {.kind = RequestKind::kOperation, .done = done});
  slot.pieces[0] = {reinterpret_cast<uintptr_t>(into), sizeof *into, parts_.memory_key};
  slot.request.num_sge = 1;
  slot.request.wr.rdma = {channel_.link.flush_address, channel_.link.flush_key};
  ++out_count_;
  must_flush_ = false;
}

bool RemoteOperations::is_valid() const noexcept {
  if ((has_part_ || lacks_part_) && out_count_ == 0) return false;
  using Kind = RequestKind;
  return out_count_ == channel_.count_of(Kind::kOperation) + channel_.count_of(Kind::kBounced) +
                           channel_.count_of(Kind::kPart) + channel_.count_of(Kind::kAtomic);
}

}  // namespace bedplate
