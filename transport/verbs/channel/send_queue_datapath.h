// The requests of a queue pair that have not ended. They are collected in a list, posted to the
// device together (one doorbell), and end in their order.
//
// Not every request is signalled: a completion means that all requests before it have ended, too.
// So only the last request of a list is signalled. A list that nobody waits for (messages, binds)
// is not signalled until a quarter of the queue is unsignalled. A caller may signal its own
// request.
//
// Invariants, checked by is_valid() around each change: 1. A request is added, then posted, then
// ended; it has a slot until it has ended. 2. The list has the requests that are added and not
// posted, unless the device refused a list. 3. At least one request in a quarter of the queue is
// signalled. 4. Only the last request of a transfer has a completion to call. Checked elsewhere:
// 5. The end of a transfer, and the address of its answer, are set before the device has the
// request. (end_transfer, mark_answer) 6. The queue pair changes only between connections. (use)
//
// Request numbers go on from one connection to the next, so a completion of an earlier connection
// is recognised by its number. A part of VerbsEndpoint. Threads: the shard's.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>

#include <infiniband/verbs.h>

#include "platform/assert.h"
#include "platform/units.h"
#include "transport/messages/endpoint.h"

namespace bedplate {

enum class RequestKind : uint8_t {
  kMessage,  // nobody waits for it
  kAcknowledgement,
  kOperation,  // put, get, flush
  kBounced,    // put or get through the bounce buffer
  kPart,       // each part of a put or get of several requests, but the last
  kAtomic,     // `before` gets the cell's value
  kBind,
  kInvalidate,  // of `window`
  kMarker,      // the last request of a connection
};

struct PostedRequest {
  RequestKind kind = RequestKind::kMessage;
  // The peer may refuse it after a part of it was done.
  bool can_be_cut_short = false;
  uint32_t window = 0;
  Completion* done = nullptr;
  uint64_t* before = nullptr;
  std::byte* answer = nullptr;  // the last bytes of its answer, marked; nullptr: not marked
};

class SendQueue {
 public:
  static constexpr uint32_t kListMax = 16;
  static constexpr uint32_t kPiecesMax = 4;

  // `requests` has `depth` elements; `tag` goes into the upper half of each wr_id. Called once.
  // Requires: `depth` is a power of two, and the queue pair takes as many requests.
  void create(std::unique_ptr<PostedRequest[]> requests, uint32_t depth, uint32_t tag,
              ibv_qp* queue_pair) noexcept {
    BP_ASSERT(requests_ == nullptr && is_power_of_two(depth));
    requests_ = std::move(requests);
    depth_ = depth;
    tag_ = tag;
    queue_pair_ = queue_pair;
  }
  // Sets the queue pair of a new connection, which may differ from the old one. Requires: all
  // requests have ended.
  void use(ibv_qp* queue_pair) noexcept {
    BP_DCHECK(is_idle() && listed_ == 0 && !has_failed_);
    queue_pair_ = queue_pair;
  }

  bool is_valid() const noexcept {
    if (next_ - ended_ > depth_ || posted_ - ended_ > next_ - ended_) return false;
    if (listed_ > kListMax || (unsignalled_ > 0 && unsignalled_ >= depth_ / 4)) return false;
    if (!has_failed_ && listed_ != next_ - posted_) return false;
    return count_of([](const PostedRequest& request) {
             return request.done != nullptr &&
                    (request.kind == RequestKind::kPart || request.kind == RequestKind::kMessage);
           }) == 0;
  }
  // Counts the requests that have not ended and that `is_one(request)` accepts. For checks. Cost: a
  // walk of the queue.
  template <typename IsOne>
  uint32_t count_of(IsOne is_one) const noexcept {
    uint32_t count = 0;
    for (uint32_t number = ended_; number != next_; ++number) {
      count += is_one(requests_[number & (depth_ - 1)]);
    }
    return count;
  }

  uint32_t depth() const noexcept { return depth_; }
  uint32_t room() const noexcept { return depth_ - (next_ - ended_); }
  bool is_idle() const noexcept { return next_ == ended_; }
  // How many requests have ended so far; it wraps.
  uint32_t ended() const noexcept { return ended_; }
  // Whether there are requests to post.
  bool has_list() const noexcept { return next_ != posted_; }
  // Whether the device refused a list: then nothing more is posted in this connection.
  bool has_failed() const noexcept { return has_failed_; }
  // The index of the next request's slot in the ring; data of a request, such as its cell, has the
  // same index.
  uint32_t next_index() const noexcept { return next_ & (depth_ - 1); }

  // Makes the part that was added last the end of its transfer. Requires: it is still listed, or
  // nothing is posted any more.
  // Returns its index.
  uint32_t end_transfer(RequestKind kind, Completion* done) noexcept {
    const uint32_t index = (next_ - 1) & (depth_ - 1);
    BP_DCHECK(!is_idle() && (listed_ > 0 || has_failed_));
    BP_DCHECK(requests_[index].kind == RequestKind::kPart && kind != RequestKind::kPart);
    requests_[index].kind = kind;
    requests_[index].done = done;
    needs_signal_ = true;
    return index;
  }

  static constexpr size_t kAnswerBytes = sizeof(uint64_t);

  // The mark of an index. Received bytes equal the mark by accident once in 2^64. Each index has a
  // mark of its own, because two gets may go to the same memory.
  static constexpr uint64_t answer_mark(uint32_t index) noexcept {
    return (index + 1) * 0x9e37'79b9'7f4a'7c15;
  }
  // Writes the mark to `last`, the last kAnswerBytes of the destination of the request that was
  // added last, so that lacks_answer() tells whether they came. Requires: the request is still
  // listed, or nothing is posted any more.
  void mark_answer(std::byte* last) noexcept {
    const uint32_t index = (next_ - 1) & (depth_ - 1);
    BP_DCHECK(!is_idle() && (listed_ > 0 || has_failed_));
    const uint64_t mark = answer_mark(index);
    std::memcpy(last, &mark, sizeof mark);
    requests_[index].answer = last;
  }
  static bool lacks_answer(const PostedRequest& request, uint32_t index) noexcept {
    const uint64_t mark = answer_mark(index);
    return request.answer != nullptr && std::memcmp(request.answer, &mark, sizeof mark) == 0;
  }

  struct Slot {
    ibv_send_wr& request;
    ibv_sge* pieces;  // kPiecesMax
  };
  // Adds a request of `opcode`; posts the list first if it is full. The caller fills in the slot's
  // scatter-gather entries and addresses before the next call. Requires: room() > 0.
  Slot add(ibv_wr_opcode opcode, const PostedRequest& what) noexcept {
    BP_DCHECK(room() > 0 && requests_ != nullptr);
    BP_KEEPS_VALID(*this);
    if (listed_ == kListMax) post();
    requests_[next_index()] = what;
    const uint32_t at = listed_ == kListMax ? kListMax - 1 : listed_++;  // a full list was refused
    ibv_send_wr& request = list_[at];  // the rest of it depends on the opcode
    request.wr_id = uint64_t{tag_} << 32 | next_++;
    request.next = nullptr;
    request.sg_list = pieces_[at];
    request.num_sge = 0;
    request.opcode = opcode;
    request.send_flags = 0;
    request.imm_data = 0;  // some devices read it in requests without one (device_quirks.h)
    const bool is_waited_for =
        what.kind != RequestKind::kMessage && what.kind != RequestKind::kBind;
    needs_signal_ = needs_signal_ || is_waited_for;
    return {request, pieces_[at]};
  }

  // Gives the list to the device. If the device refuses it, has_failed() is true until end_all().
  // Cost: one doorbell.
  void post() noexcept {
    BP_KEEPS_VALID(*this);
    if (listed_ == 0 || has_failed_) return;
    for (uint32_t i = 0; i + 1 < listed_; ++i) list_[i].next = &list_[i + 1];
    unsignalled_ += listed_;
    if (needs_signal_ || unsignalled_ >= depth_ / 4) {
      list_[listed_ - 1].send_flags |= IBV_SEND_SIGNALED;
      unsignalled_ = 0;
      needs_signal_ = false;
    }
    ibv_send_wr* refused = nullptr;
    BP_DCHECK(queue_pair_ != nullptr && listed_ <= kListMax);
    if (ibv_post_send(queue_pair_, list_, &refused) == 0) {
      posted_ += listed_;
      listed_ = 0;
      return;
    }
    has_failed_ = true;
    // If the driver names no failed request (device_quirks.h), the device may have taken all of
    // them.
    posted_ = refused != nullptr ? static_cast<uint32_t>(refused->wr_id) : posted_ + listed_;
  }

  // Whether the device has the request and has not ended it. False for a request of an earlier
  // connection.
  bool is_in_flight(uint64_t wr_id) const noexcept {
    return static_cast<uint32_t>(wr_id) - ended_ < posted_ - ended_;
  }

  // Calls `end(request, index, is_last)` for every request up to `wr_id`, in order. `end` may add
  // requests. Requires: is_in_flight(wr_id).
  template <typename End>
  void end_up_to(uint64_t wr_id, End end) noexcept {
    BP_DCHECK(is_in_flight(wr_id));
    BP_DCHECK_SLOW(is_valid());
    const uint32_t count = static_cast<uint32_t>(wr_id) - ended_ + 1;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t index = ended_++ & (depth_ - 1);
      const PostedRequest request = requests_[index];  // copied: `end` may reuse its slot
      end(request, index, i + 1 == count);
    }
  }

  // The connection is over: calls `end(request, index, was_posted)` for all remaining requests, in
  // order. `end` adds none.
  template <typename End>
  void end_all(End end) noexcept {
    BP_DCHECK_SLOW(is_valid());
    const uint32_t posted = posted_;
    const uint32_t next = next_;
    BP_DCHECK(posted - ended_ <= next - ended_);
    listed_ = 0;
    posted_ = next;
    unsignalled_ = 0;
    needs_signal_ = has_failed_ = false;
    while (ended_ != next) {
      const bool was_posted = static_cast<int32_t>(ended_ - posted) < 0;
      const uint32_t index = ended_++ & (depth_ - 1);
      const PostedRequest request = requests_[index];
      end(request, index, was_posted);
    }
  }

 private:
  std::unique_ptr<PostedRequest[]> requests_;
  ibv_qp* queue_pair_ = nullptr;
  uint32_t depth_ = 0;
  uint32_t tag_ = 0;
  // Numbers of requests; they wrap.
  uint32_t ended_ = 0;   // all requests before it have ended
  uint32_t posted_ = 0;  // all requests before it are posted
  uint32_t next_ = 0;
  uint32_t listed_ = 0;
  uint32_t unsignalled_ = 0;  // since the last signalled request
  bool needs_signal_ = false;
  bool has_failed_ = false;
  ibv_send_wr list_[kListMax] = {};
  ibv_sge pieces_[kListMax][kPiecesMax] = {};
};

}  // namespace bedplate
