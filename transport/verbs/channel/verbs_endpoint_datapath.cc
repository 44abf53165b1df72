// The sending half: messages into the window, operations into the send queue, and the windows by
// which a peer reaches memory. Requests are listed here and given to the device when the shard
// polls, or when a list is full.
#include <algorithm>
#include <cstring>

#include "platform/units.h"
#include "platform/usdt.h"
#include "transport/verbs/channel/verbs_endpoint.h"

namespace bedplate {
namespace {

constexpr uint64_t kPacketBytesMin = 256;  // the smallest MTU of all
// A request this long is signalled by itself: a list of such requests may take so long that a slow
// device looks like one that has stopped (LinkTiming::stall_ns_max).
constexpr uint64_t kOwnSignalBytes = kMiB;

}  // namespace

SendStatus VerbsEndpoint::am_send(AmId id, std::span<const std::byte> payload) noexcept {
  BP_DCHECK(parts_.is_own_thread());
  if (payload.size() > parts_.limits.am_bytes_max) return SendStatus::kTooLong;
  if (BP_UNLIKELY(!may_send_)) return status_when_down();
  if (!has_credit()) return SendStatus::kAgain;
  BP_USDT(verbs_send, id, payload.size());
  std::copy(payload.begin(), payload.end(), begin_message());
  send_message(VerbsMessageKind::kMessage, id, static_cast<uint32_t>(payload.size()));
  parts_.counters->sent.add(1);
  return SendStatus::kDone;
}

SendStatus VerbsEndpoint::am_send_loan(AmId id, std::span<const std::byte> header,
                                       std::span<std::byte> block, Completion* returned) noexcept {
  BP_DCHECK(parts_.is_own_thread());
  BP_KEEPS_VALID(*this);
  if (header.size() > kVerbsLoanHeaderBytesMax) return SendStatus::kTooLong;
  if (BP_UNLIKELY(!may_send_)) return status_when_down();
  if (!has_credit() || loans_.is_full() ||
      queue_.room() <= kRequestsKept + 1) {  // a window takes one
    return SendStatus::kAgain;
  }
  VerbsLoanBody body = {};
  body.loan = loans_.try_lend(block.data(), returned);
  BP_DCHECK(body.loan < kVerbsLoanCountMax);
  Lent& record = loans_[body.loan];
  record.bytes = block.size();
  record.is_returning = false;
  const SendStatus described = describe(body.loan, &body.memory);
  if (described != SendStatus::kPending) {
    loans_.cancel(body.loan);
    return described;
  }
  BP_USDT(verbs_lend, id, block.size());
  body.mark = ++record.mark;
  std::byte* at = begin_message();
  std::memcpy(at, &body, sizeof body);
  std::copy(header.begin(), header.end(), at + sizeof body);
  send_message(VerbsMessageKind::kLoan, id, static_cast<uint32_t>(sizeof body + header.size()));
  parts_.counters->sent.add(1);
  return SendStatus::kPending;
}

// Describes how the peer reaches the block. Returns kPending, kAgain or kRefused.
SendStatus VerbsEndpoint::describe(uint32_t loan, RemoteMemory* remote) noexcept {
  Lent& record = loans_[loan];
  // Never longer than the connection: once it is lost, the caller may give the block to another.
  *remote = {reinterpret_cast<uintptr_t>(record.block), record.bytes, 0,
             pack_reach(Reach::kConnection, kRead, link_.packet_number)};
  record.bounced = nullptr;
  record.has_window = false;
  if (record.bytes == 0) return SendStatus::kPending;  // there is nothing to reach
  const VerbsExport* open =
      parts_.device->find_export(record.block, record.bytes, RemoteRights::kRead);
  if (open != nullptr) {
    remote->key = open->remote_key;
    return SendStatus::kPending;
  }
  std::span<const std::byte> reached(record.block, record.bytes);
  if (!can_bind(loan, reached)) {
    if (parts_.uses_windows && !has_window(loan)) return SendStatus::kRefused;
    if (const SendStatus copied = bounce(record); copied != SendStatus::kPending) return copied;
    reached = {record.bounced, record.bytes};
    remote->address = reinterpret_cast<uintptr_t>(record.bounced);
  }
  record.has_window = parts_.uses_windows;
  remote->key = record.has_window ? bind_window(loan, reached, IBV_ACCESS_REMOTE_READ)
                                  : parts_.loan_bounce_key;
  return SendStatus::kPending;
}

// Copies the block into the bounce buffer of loans. Returns kPending, kAgain or kRefused.
SendStatus VerbsEndpoint::bounce(Lent& record) noexcept {
  if (record.bytes > parts_.loan_bounce.bytes()) return SendStatus::kRefused;
  record.bounced = parts_.loan_bounce.take(record.bytes);
  BP_DCHECK(record.block != nullptr && !record.is_returning);
  if (record.bounced == nullptr) return SendStatus::kAgain;
  std::memcpy(record.bounced, record.block, record.bytes);
  parts_.counters->bounced_bytes.add(record.bytes);
  return SendStatus::kPending;
}

SendStatus VerbsEndpoint::start(const RemoteOperation& operation) noexcept {
  BP_DCHECK(parts_.is_own_thread());
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

SendStatus VerbsEndpoint::transfer(ibv_wr_opcode opcode, std::byte* local, uint64_t bytes,
                                   const RemoteMemory& remote, Completion* done) noexcept {
  if (bytes > remote.bytes) return SendStatus::kTooLong;
  if (BP_UNLIKELY(!may_send_)) return status_when_down();
  const bool is_put = opcode == IBV_WR_RDMA_WRITE;
  if (!may_reach(remote, is_put ? kWrite : kRead)) return SendStatus::kRefused;
  if (bytes == 0) return SendStatus::kDone;
  if (const SendStatus room = has_room_for(bytes); room != SendStatus::kPending) return room;
  const bool is_inline = is_put && bytes <= link_.queue_pair.inline_bytes();
  if (!is_inline && BP_UNLIKELY(!is_registered(local, bytes))) {
    return bounce_transfer(opcode, local, bytes, remote, done);
  }
  list_transfer(opcode, local, bytes, remote);
  queue_.end_transfer(RequestKind::kOperation, done);
  return SendStatus::kPending;
}

// Transfers through the bounce buffer that no peer reaches.
SendStatus VerbsEndpoint::bounce_transfer(ibv_wr_opcode opcode, std::byte* local, uint64_t bytes,
                                          const RemoteMemory& remote, Completion* done) noexcept {
  if (bytes > parts_.transfer_bounce.bytes()) return SendStatus::kRefused;
  std::byte* piece = parts_.transfer_bounce.take(bytes);
  if (piece == nullptr) return SendStatus::kAgain;
  BP_DCHECK(may_send_ && bytes > 0 && bytes <= remote.bytes);
  const bool is_put = opcode == IBV_WR_RDMA_WRITE;
  if (is_put) std::memcpy(piece, local, bytes);
  list_transfer(opcode, piece, bytes, remote);
  const uint32_t place = queue_.end_transfer(RequestKind::kBounced, done);
  bounced_[place] = {piece, is_put ? nullptr : local, bytes};
  parts_.counters->bounced_bytes.add(bytes);
  return SendStatus::kPending;
}

// A list of pieces may end a request early, at most once for each region of the pool.
SendStatus VerbsEndpoint::has_room_for(uint64_t bytes) const noexcept {
  const uint64_t request_bytes_max = parts_.device->port().transfer_bytes_max;
  const uint64_t requests =
      (BP_UNLIKELY(bytes > request_bytes_max) ? bytes / request_bytes_max : 0) + 2 + kRequestsKept;
  if (requests > queue_.depth()) return SendStatus::kTooLong;
  return requests > queue_.room() ? SendStatus::kAgain : SendStatus::kPending;
}

// Lists the transfer as parts; the caller makes the last one its end.
void VerbsEndpoint::list_transfer(ibv_wr_opcode opcode, std::byte* local, uint64_t bytes,
                                  const RemoteMemory& remote) noexcept {
  const uint64_t request_bytes_max = parts_.device->port().transfer_bytes_max;
  const bool is_put = opcode == IBV_WR_RDMA_WRITE;
  // A window may be withdrawn between two packets.
  const bool can_be_cut_short =
      is_put && bytes > kPacketBytesMin && reach_of(remote) == Reach::kConnection;
  BP_DCHECK(may_send_ && bytes > 0 && bytes <= remote.bytes);
  uint64_t at = 0;
  while (at < bytes) {
    BP_DCHECK(queue_.room() > kRequestsKept);
    const SendQueue::Slot slot =
        queue_.add(opcode, {.kind = RequestKind::kPart, .can_be_cut_short = can_be_cut_short});
    uint64_t filled = bytes;
    if (is_put && bytes <= link_.queue_pair.inline_bytes()) {
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
    ++operations_out_;
  }
  mark_dirty();
}

void VerbsEndpoint::mark_answer(std::byte* end) noexcept {
  if (BP_UNLIKELY(parts_.device->quirks().ends_without_answer)) {
    queue_.mark_answer(end - SendQueue::kAnswerBytes);
  }
}

bool VerbsEndpoint::is_registered(const std::byte* local, uint64_t bytes) const noexcept {
  uint32_t pieces = 0;
  while (bytes > 0) {
    const KeyedRange range = parts_.keys->key(local, bytes);
    if (range.key == kNoKey || ++pieces > SendQueue::kPiecesMax) return false;
    local += range.bytes;
    bytes -= range.bytes;
  }
  return true;
}

uint64_t VerbsEndpoint::fill_pieces(const std::byte* local, uint64_t bytes,
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

SendStatus VerbsEndpoint::atomic(ibv_wr_opcode opcode, const RemoteMemory& to, uint64_t first,
                                 uint64_t second, uint64_t* before, Completion* done) noexcept {
  if (to.bytes < sizeof(uint64_t) || to.address % sizeof(uint64_t) != 0) {
    return SendStatus::kRefused;
  }
  if (BP_UNLIKELY(!may_send_)) return status_when_down();
  if (!may_reach(to, kAtomic)) return SendStatus::kRefused;
  if (queue_.room() <= kRequestsKept) return SendStatus::kAgain;
  uint64_t* into = cell(queue_.next_place());
  const SendQueue::Slot slot =
      queue_.add(opcode, {.kind = RequestKind::kAtomic, .done = done, .before = before});
  slot.pieces[0] = {reinterpret_cast<uintptr_t>(into), sizeof *into, parts_.memory_key};
  slot.request.num_sge = 1;
  slot.request.wr.atomic.remote_addr = to.address;
  slot.request.wr.atomic.rkey = static_cast<uint32_t>(to.key);
  slot.request.wr.atomic.compare_add = first;
  slot.request.wr.atomic.swap = second;
  mark_answer(reinterpret_cast<std::byte*>(into + 1));
  ++operations_out_;
  must_flush_ = true;
  mark_dirty();
  return SendStatus::kPending;
}

// A read of the flush word comes back after everything before it: also after the writes, whose own
// completions say only that the peer's device has them.
// It also ends after the end of every window that was withdrawn before.
SendStatus VerbsEndpoint::flush(Completion* done) noexcept {
  BP_DCHECK(parts_.is_own_thread());
  if (BP_UNLIKELY(!may_send_)) return status_when_down();
  if (given_up_count_ > 0) invalidate_windows();
  if (given_up_count_ > 0 || queue_.room() <= kRequestsKept) return SendStatus::kAgain;
  if (!must_flush_ && operations_out_ == 0 && invalidations_out_ == 0) return SendStatus::kDone;
  list_flush(done);
  return SendStatus::kPending;
}

void VerbsEndpoint::list_flush(Completion* done) noexcept {
  BP_DCHECK(may_send_ && queue_.room() > 0);
  uint64_t* into = cell(queue_.next_place());
  const SendQueue::Slot slot =
      queue_.add(IBV_WR_RDMA_READ, {.kind = RequestKind::kOperation, .done = done});
  slot.pieces[0] = {reinterpret_cast<uintptr_t>(into), sizeof *into, parts_.memory_key};
  slot.request.num_sge = 1;
  slot.request.wr.rdma = {link_.flush_address, link_.flush_key};
  ++operations_out_;
  must_flush_ = false;
  mark_dirty();
}

// Whether `memory` has `rights`, and is still valid: its owner may have been restarted.
bool VerbsEndpoint::may_reach(const RemoteMemory& memory, RemoteRights rights) const noexcept {
  return (rights_of(memory) & rights) == rights &&
         (is_reach(memory, Reach::kExport, static_cast<uint32_t>(link_.peer_instance)) ||
          is_reach(memory, Reach::kConnection, link_.peer.packet_number));
}

// Never kGone while the queue pair drains: until then the peer may reach lent or exposed memory.
SendStatus VerbsEndpoint::status_when_down() const noexcept {
  BP_DCHECK(!may_send_);
  const bool is_gone = !is_draining_ && (is_cut_off_ || parts_.is_lost ||
                                         link_.is_given_up.load(std::memory_order_acquire));
  return is_gone ? SendStatus::kGone : SendStatus::kAgain;
}

bool VerbsEndpoint::has_credit() const noexcept {
  return next_ - consumed_ < window_ && queue_.room() > kRequestsKept;
}

std::byte* VerbsEndpoint::slot(uint64_t number) const noexcept {
  return slots_ + (number & (window_ - 1)) * message_bytes_;
}

void VerbsEndpoint::send_message(VerbsMessageKind kind, AmId id, uint32_t bytes) noexcept {
  BP_DCHECK(may_send_ && has_credit() && bytes <= parts_.limits.am_bytes_max);
  VerbsMessageHeader& header = header_of(next_);
  header = {};
  header.number = next_;
  header.kind = kind;
  header.am = id;
  header.bytes = bytes;
  ++next_;
  list_message(header);
  mark_dirty();
}

// Lists a message: a new one, or one that is sent again in another life of the connection.
void VerbsEndpoint::list_message(VerbsMessageHeader& header) noexcept {
  BP_DCHECK(may_send_ && header.number - consumed_ < window_);
  header.consumed = told_ = link_.received;
  header.mark = link_.packet_number;
  header.place = link_.peer_place;
  const auto bytes = static_cast<uint32_t>(sizeof header) + header.bytes;
  const SendQueue::Slot slot = queue_.add(IBV_WR_SEND, {.kind = RequestKind::kMessage});
  slot.pieces[0] = {reinterpret_cast<uintptr_t>(&header), bytes, parts_.memory_key};
  slot.request.num_sge = 1;
  if (bytes <= link_.queue_pair.inline_bytes()) slot.request.send_flags = IBV_SEND_INLINE;
}

// It needs no credit: there is room for it at the peer, and a request is kept for it here.
void VerbsEndpoint::acknowledge() noexcept {
  BP_DCHECK(may_send_ && acknowledgements_out_ <= kAcknowledgementsMax);
  if (acknowledgements_out_ == kAcknowledgementsMax || queue_.room() == 0) return;
  auto* headers = reinterpret_cast<VerbsMessageHeader*>(acknowledgement_);
  VerbsMessageHeader& header = headers[next_acknowledgement_++ % kAcknowledgementsMax];
  header = {};
  header.consumed = told_ = link_.received;
  header.mark = link_.packet_number;
  header.place = link_.peer_place;
  header.kind = VerbsMessageKind::kAcknowledgement;
  const SendQueue::Slot slot = queue_.add(IBV_WR_SEND, {.kind = RequestKind::kAcknowledgement});
  slot.pieces[0] = {reinterpret_cast<uintptr_t>(&header), sizeof header, parts_.memory_key};
  slot.request.num_sge = 1;
  if (sizeof header <= link_.queue_pair.inline_bytes()) slot.request.send_flags = IBV_SEND_INLINE;
  ++acknowledgements_out_;
}

// Sends messages of as many returns as fit, while there is credit.
void VerbsEndpoint::send_returns() noexcept {
  const uint32_t count_max =
      parts_.limits.am_bytes_max / static_cast<uint32_t>(sizeof(ReturnedLoan));
  while (return_count_ > 0 && has_credit()) {
    const uint32_t count = std::min(return_count_, count_max);
    BP_DCHECK(count > 0 && is_dirty_);
    return_count_ -= count;
    const auto bytes = static_cast<uint32_t>(count * sizeof(ReturnedLoan));
    std::memcpy(begin_message(), returns_ + return_count_, bytes);
    for (uint32_t i = 0; i < count; ++i) is_due_back_[returns_[return_count_ + i].loan] = false;
    send_message(VerbsMessageKind::kReturns, 0, bytes);
  }
}

void VerbsEndpoint::mark_dirty() noexcept {
  if (is_dirty_) return;
  is_dirty_ = true;
  parts_.dirty.add(*this);
}

SendStatus VerbsEndpoint::send_datagram(AmId id,
                                        std::span<const std::byte> payload) const noexcept {
  BP_DCHECK(parts_.is_own_thread());
  if (!may_send_) return status_when_down();
  if (!parts_.datagrams.is_open()) return SendStatus::kRefused;
  return parts_.datagrams.send(link_.place, id, payload);
}

uint32_t VerbsEndpoint::datagram_bytes_max() const noexcept {
  if (!may_send_ || !parts_.datagrams.is_open()) return 0;
  return parts_.datagrams.bytes_max(link_.place);
}

// ---- Memory windows -----------------------------------------------------------------------------
//
// A window opens memory to one peer for one message, or until it is withdrawn. A request before the
// message that tells of it binds it; the end of the request that invalidates it gives the memory
// back.
// If these requests were flushed, the window's key is unknown: such windows are made anew when the
// connection is down (verbs_endpoint.cc).

bool VerbsEndpoint::can_bind(uint32_t index, std::span<const std::byte> memory) const noexcept {
  if (!has_window(index)) return false;
  const KeyedRange range = parts_.keys->key(memory.data(), memory.size());
  return range.key != kNoKey && range.bytes == memory.size();
}

uint32_t VerbsEndpoint::bind_window(uint32_t index, std::span<const std::byte> memory,
                                    unsigned access) noexcept {
  Window& window = windows_[index];
  BP_DCHECK(window.state == WindowState::kFree && can_bind(index, memory));
  BP_DCHECK(may_send_ && queue_.room() > kRequestsKept);
  const Key key = parts_.keys->key(memory.data(), memory.size()).key;
  window.handle->rkey = window.key;  // drivers take the former key from there
  window.key = ibv_inc_rkey(window.key);
  window.state = WindowState::kBound;
  const SendQueue::Slot slot = queue_.add(IBV_WR_BIND_MW, {.kind = RequestKind::kBind});
  slot.request.bind_mw.mw = window.handle;
  slot.request.bind_mw.rkey = window.key;
  slot.request.bind_mw.bind_info = {parts_.device->region(key),
                                    reinterpret_cast<uintptr_t>(memory.data()), memory.size(),
                                    access};
  mark_dirty();
  return window.key;
}

// Its invalidation follows with the next batch, or as soon as there is room.
void VerbsEndpoint::give_up_window(uint32_t index) noexcept {
  BP_DCHECK(is_live_ && index < kWindowCount && has_window(index));
  BP_DCHECK(windows_[index].state == WindowState::kBound);
  windows_[index].state = WindowState::kGivenUp;
  ++given_up_count_;
  mark_dirty();
}

void VerbsEndpoint::invalidate_windows() noexcept {
  BP_DCHECK(may_send_);
  for (uint32_t i = 0; i < kWindowCount && given_up_count_ > 0; ++i) {
    Window& window = windows_[i];
    if (window.state != WindowState::kGivenUp) continue;
    if (queue_.room() <= kRequestsKept) return;
    const SendQueue::Slot slot =
        queue_.add(IBV_WR_LOCAL_INV, {.kind = RequestKind::kInvalidate, .place = i});
    slot.request.invalidate_rkey = window.key;
    window.state = WindowState::kInvalidating;
    --given_up_count_;
    ++invalidations_out_;
    mark_dirty();
  }
}

void VerbsEndpoint::end_invalidation(uint32_t index, Outcome outcome) noexcept {
  BP_DCHECK(index < kWindowCount && windows_[index].state == WindowState::kInvalidating);
  BP_DCHECK(index >= kVerbsLoanCountMax || loans_[index].is_returning);
  if (outcome != Outcome::kDone) return;  // the life is over; so are its loans
  windows_[index].state = WindowState::kFree;
  if (index < kVerbsLoanCountMax) end_loan(index, Outcome::kDone);
}

}  // namespace bedplate
