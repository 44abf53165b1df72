// The replies of a connection, in two lists: ready to be sent, and being sent.
//
// Up to 64 ready replies leave in one send: their headers lie side by side in one array, and the
// data of reads go straight from the volume.
//
// Invariants, which Connection::is_valid() checks: 1. Each request is in at most one of the two
// lists. 2. The second list is empty unless a send is in flight.
// Threads: the shard of the connections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>

#include <sys/uio.h>

#include "apps/blockd/block_request.h"
#include "apps/blockd/nbd_request_datapath.h"
#include "platform/assert.h"
#include "platform/tail_queue.h"

namespace bedplate::nbd {

class ReplyQueue {
 public:
  // Whether replies wait for the next send.
  bool has_ready() const noexcept { return !ready_.is_empty(); }
  // Whether a send has replies.
  bool is_sending() const noexcept { return !being_sent_.is_empty(); }

  // The request is done: its reply is ready.
  void push(BlockRequest& request) noexcept { ready_.push(request); }
  // Takes a ready reply that will not be sent. Requires: has_ready().
  BlockRequest& pop_ready() noexcept { return ready_.pop(); }
  // Takes a reply that was sent. Requires: is_sending(), and the send has completed.
  BlockRequest& pop_sent() noexcept { return being_sent_.pop(); }

  // Makes one send of up to 64 ready replies, and calls `answered(request)` for each. Returns the
  // vector to send; this queue owns it until the send completes. Empty: no reply is ready.
  // Requires: !is_sending().
  template <typename Answered>
  std::span<iovec> begin_send(bool structured_replies, Answered&& answered) noexcept {
    BP_DCHECK(!is_sending());
    piece_count_ = 0;
    std::byte* header = headers_;
    for (uint32_t i = 0; i < kRepliesPerSend && has_ready(); ++i) {
      BlockRequest& request = ready_.pop();
      being_sent_.push(request);
      header = append_reply(request, structured_replies, header);
      answered(request);
    }
    return {pieces_, piece_count_};
  }

  // The number of requests in both lists, for is_valid(). Nothing: a list has more than `most`, or
  // is broken. Cost: a visit to each request.
  std::optional<size_t> count(size_t most) const noexcept {
    const auto is_any = [](const BlockRequest&) { return true; };
    const auto ready = ready_.count(most, is_any);
    const auto being_sent = being_sent_.count(most, is_any);
    if (!ready || !being_sent) return {};
    return *ready + *being_sent;
  }

 private:
  static constexpr uint32_t kRepliesPerSend = 64;

  // Adds bytes to the send. Headers lie side by side, so consecutive headers without data (replies
  // to writes) share one iovec.
  void append(std::byte* bytes, size_t count) noexcept {
    BP_DCHECK(piece_count_ < std::size(pieces_));
    iovec* const last = piece_count_ == 0 ? nullptr : &pieces_[piece_count_ - 1];
    if (last != nullptr && static_cast<std::byte*>(last->iov_base) + last->iov_len == bytes) {
      last->iov_len += count;
    } else {
      pieces_[piece_count_++] = {bytes, count};
    }
  }

  // Appends the reply with its header at `destination`. Returns the address for the next reply's
  // header.
  std::byte* append_reply(const BlockRequest& request, bool structured_replies,
                          std::byte* destination) noexcept {
    const Request& wire = request.wire;
    const ReplyBytes header(destination, kMaxReplyHeaderBytes);
    const bool is_read = wire.command == Command::kRead;
    const bool failed = request.error != ErrorCode::kNone;
    size_t header_bytes = 0;
    const bool is_status = wire.command == Command::kBlockStatus;
    uint64_t data_bytes = is_read && !failed ? wire.length : 0;
    if (!(is_read || is_status) || !structured_replies) {
      header_bytes = encode_simple_reply(header, wire.cookie, request.error);
    } else if (failed) {
      header_bytes = encode_error_chunk(header, wire.cookie, request.error);
    } else if (is_read) {
      header_bytes = encode_read_chunk(header, wire.cookie, wire.offset, wire.length);
    } else if (request.data == nullptr) {
      header_bytes = encode_all_data(header, wire.cookie, wire.length);
    } else {
      data_bytes = request.done_bytes;
      header_bytes = encode_block_status(header, wire.cookie, static_cast<uint32_t>(data_bytes));
    }
    append(destination, header_bytes);
    if (data_bytes > 0) append(request.data, data_bytes);
    return destination + header_bytes;
  }

  TailQueue<&BlockRequest::next> ready_;
  TailQueue<&BlockRequest::next> being_sent_;
  uint32_t piece_count_ = 0;
  iovec pieces_[2 * kRepliesPerSend];
  std::byte headers_[kRepliesPerSend * kMaxReplyHeaderBytes];
};

}  // namespace bedplate::nbd
