// Puts, gets, atomics and flushes to one peer that have not ended.
//
// A put or get becomes one request, or several parts if it is longer than the device's longest
// request. Its completion is called when the last part ends. Memory outside the pool, or in more
// than kPiecesMax of its regions, goes through the bounce buffer that no peer reaches. Atomics
// answer into a cell of ours; a flush reads a word of the peer's. Requests are listed here, and
// posted by the endpoint.
//
// A part of VerbsEndpoint. Threads: the shard's.
//
// Invariants: 1. out_count_ counts its requests in the queue. 2. has_part_ and lacks_part_ are set
// only before the end of a transfer. (is_valid)
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include <infiniband/verbs.h>

#include "platform/assert.h"
#include "transport/messages/endpoint.h"
#include "transport/verbs/channel/channel_parts.h"
#include "transport/verbs/channel/send_queue_datapath.h"
#include "transport/verbs/channel/verbs_parts.h"

namespace bedplate {

class RemoteOperations {
 public:
  // A transfer through the bounce buffer, which holds its bytes until it ends.
  struct Bounced {
    std::byte* piece = nullptr;
    std::byte* into = nullptr;  // the destination of a get; nullptr: it is a put
    uint64_t bytes = 0;
  };

  // `channel` outlives this. create() follows.
  explicit RemoteOperations(ChannelParts& channel) noexcept
      : parts_(channel.shared), channel_(channel) {}
  // Requires: a record and a cell for each request of the queue; `cells` outlives this. Called
  // once.
  void create(std::unique_ptr<Bounced[]> bounced, uint64_t* cells) noexcept {
    BP_DCHECK(cells_ == nullptr && cells != nullptr);
    bounced_ = std::move(bounced);
    cells_ = cells;
  }

  // As Endpoint::start. kTooLong: also if the transfer takes more requests than the queue has.
  // kRefused: also if it needs more than the bounce buffer.
  SendStatus start(const RemoteOperation& operation) noexcept;

  // Whether a flush has to wait: the peer may not have all data yet.
  bool needs_flush() const noexcept { return must_flush_ || out_count_ > 0; }
  // Makes the next flush wait for the peer, even if nothing was put.
  void require_flush() noexcept { must_flush_ = true; }
  // Lists a read of the peer's flush word. `done`, which may be nullptr, is called when the read
  // ends: after all requests before it, with the data of writes in the peer's memory. The
  // completion of a write says only that the peer's device has the data. Requires: the connection
  // may send; space for one request.
  void list_flush(Completion* done) noexcept;

  // The request has ended; `index` is that of its slot in the queue. Calls the completion at the
  // end of a transfer, an atomic or a flush.
  void end(const PostedRequest& request, uint32_t index, Outcome outcome) noexcept;
  // The connection is over: all of its requests have ended.
  void end_life() noexcept {
    BP_DCHECK(out_count_ == 0);
    must_flush_ = false;
  }

  // Requests that have not ended.
  uint32_t out_count() const noexcept { return out_count_; }
  bool is_valid() const noexcept;

 private:
  SendStatus transfer(ibv_wr_opcode opcode, std::byte* local, uint64_t bytes,
                      const RemoteMemory& remote, Completion* done) noexcept;
  SendStatus bounce(ibv_wr_opcode opcode, std::byte* local, uint64_t bytes,
                    const RemoteMemory& remote, Completion* done) noexcept;
  void end_bounced(const Bounced& bounced, Outcome outcome) noexcept;
  // Returns kPending if the queue has space for a transfer of `bytes`, else kAgain or kTooLong.
  SendStatus has_room_for(uint64_t bytes) const noexcept;
  void list_parts(ibv_wr_opcode opcode, std::byte* local, uint64_t bytes,
                  const RemoteMemory& remote) noexcept;
  void mark_answer(std::byte* end) noexcept;
  bool is_registered(const std::byte* local, uint64_t bytes) const noexcept;
  // Fills in the pieces of a request. Returns how many bytes fit into them.
  uint64_t fill_pieces(const std::byte* local, uint64_t bytes,
                       const SendQueue::Slot& slot) const noexcept;
  SendStatus atomic(ibv_wr_opcode opcode, const RemoteMemory& to, uint64_t first, uint64_t second,
                    uint64_t* before, Completion* done) noexcept;
  // The cell of a request: an atomic or a flush answers there.
  uint64_t* cell(uint32_t request_index) const noexcept {
    BP_DCHECK(request_index < channel_.queue.depth());
    return cells_ + request_index;
  }

  VerbsParts& parts_;
  ChannelParts& channel_;
  std::unique_ptr<Bounced[]> bounced_;  // for each request
  uint64_t* cells_ = nullptr;           // for each request
  uint32_t out_count_ = 0;
  bool must_flush_ = false;  // a put or an atomic began since the last flush, or one is required
  // The transfer that ends next: has_part_ says that a part may have been done, lacks_part_ that a
  // part may not have been done.
  bool has_part_ = false;
  bool lacks_part_ = false;
};

inline SendStatus RemoteOperations::start(const RemoteOperation& operation) noexcept {
  const auto& [kind, local, bytes, remote, operand, expected, before, done] = operation;
  switch (kind) {
    case OperationKind::kPut: {
      const SendStatus status = transfer(IBV_WR_RDMA_WRITE, local, bytes, remote, done);
      must_flush_ = must_flush_ || status == SendStatus::kPending;
      return status;
    }
    case OperationKind::kGet: return transfer(IBV_WR_RDMA_READ, local, bytes, remote, done);
    case OperationKind::kFetchAdd:
      return atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, remote, operand, 0, before, done);
    case OperationKind::kCompareSwap: break;
  }
  return atomic(IBV_WR_ATOMIC_CMP_AND_SWP, remote, expected, operand, before, done);
}

inline void RemoteOperations::end(const PostedRequest& request, uint32_t index,
                                  Outcome outcome) noexcept {
  BP_DCHECK(out_count_ > 0);
  --out_count_;
  if (outcome == Outcome::kDone && BP_UNLIKELY(SendQueue::lacks_answer(request, index))) {
    outcome = Outcome::kUnknown;
  }
  if (request.kind == RequestKind::kPart) {
    BP_DCHECK(request.done == nullptr);
    has_part_ = has_part_ || outcome != Outcome::kNotDone;
    lacks_part_ = lacks_part_ || outcome != Outcome::kDone;
    return;
  }
  if (request.kind == RequestKind::kAtomic && request.before != nullptr &&
      outcome == Outcome::kDone) {
    *request.before = *cell(index);
  }
  if (has_part_ && outcome == Outcome::kNotDone) outcome = Outcome::kUnknown;
  if (lacks_part_ && outcome == Outcome::kDone) outcome = Outcome::kUnknown;
  has_part_ = lacks_part_ = false;
  if (request.kind == RequestKind::kBounced) end_bounced(bounced_[index], outcome);
  if (request.done != nullptr) request.done->call(*request.done, outcome);
}

}  // namespace bedplate
