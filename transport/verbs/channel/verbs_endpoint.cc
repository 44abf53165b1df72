// VerbsEndpoint: how it is made, exposures, and its connections, which come, break and come back.
// When one breaks, each operation and loan that is pending ends here, once; when it is back, each
// message that the peer has not got is sent again, once.
#include "transport/verbs/channel/verbs_endpoint.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <iterator>

#include "platform/clock.h"
#include "platform/log.h"

namespace bedplate {
namespace {

constexpr uint32_t kInlineBytes = 256;  // asked for; a device may have less

// Receives that are under way when a queue pair fails get a moment to arrive; the peer sends again
// those that do not. The wait for a device that never flushes its requests ends after kDrainNsMax.
constexpr uint64_t kDrainNsMin = 2 * kNsPerMs;
constexpr uint64_t kDrainNsMax = kNsPerSecond;

// A peer may break the rules, and come back as another instance, again and again. The log has each
// of the first so many times, then those at which the number has doubled.
constexpr uint32_t kCutOffsTold = 16;

}  // namespace

Result<void> VerbsEndpoint::create(const VerbsEndpointOptions& options) {
  const VerbsShape& shape = parts_.shape;
  BP_DCHECK(slots_ == nullptr && options.place < shape.peer_count_max);
  BP_DCHECK(reinterpret_cast<uintptr_t>(options.memory) % kCacheLineBytes == 0);
  const uint32_t depth = shape.request_count();
  window_ = shape.window;
  message_bytes_ = shape.message_bytes;
  bounced_ = std::make_unique<Bounced[]>(depth);
  link_.name = options.name;
  link_.address = options.address;
  link_.place = options.place;
  slots_ = options.memory;
  acknowledgement_ = slots_ + uint64_t{shape.window} * shape.message_bytes;
  cells_ = reinterpret_cast<uint64_t*>(acknowledgement_ +
                                       kAcknowledgementsMax * sizeof(VerbsMessageHeader));
  BP_TRY(link_.queue_pair.create(*parts_.device, {.completions = options.completions,
                                                  .receives = options.receives,
                                                  .send_count_max = depth,
                                                  .send_pieces_max = SendQueue::kPiecesMax,
                                                  .inline_bytes = kInlineBytes,
                                                  .owner = &link_}));
  for (Window& window : windows_) {
    if (!parts_.uses_windows) break;
    if (!make_window(window)) {
      return error_from_errno("making %u memory windows for %s", kWindowCount, link_.name.c_str())
          .set_cure("make the number of peers smaller");
    }
  }
  queue_.create(std::make_unique<Request[]>(depth), depth, options.place,
                link_.queue_pair.handle());
  return {};
}

// The windows go before the queue pair (device_quirks.h).
VerbsEndpoint::~VerbsEndpoint() {
  for (Window& window : windows_) {
    if (window.handle != nullptr) ibv_dealloc_mw(window.handle);
  }
}

bool VerbsEndpoint::is_valid() const noexcept {
  if ((may_send_ && !is_live_) || (is_live_ && (is_draining_ || is_cut_off_))) return false;
  if (must_fail_ && !is_draining_ && !parts_.is_lost) return false;
  const bool is_up = link_.state.load(std::memory_order_relaxed) == LinkState::kUp;
  if ((is_live_ || is_draining_) && !is_up) return false;
  if (is_draining_ && !link_.must_break.load(std::memory_order_relaxed)) return false;
  if (!has_valid_slots()) return false;
  if (may_send_ && queue_.has_list() && !is_dirty_) return false;
  if ((is_borrowed_ & is_due_back_).any()) return false;
  if (is_live_ && link_.received - told_ > window_) return false;
  if ((has_part_ || lacks_part_) && operations_out_ == 0) return false;
  return is_due_back_.count() == return_count_ && queue_.is_valid() && loans_.is_valid() &&
         has_valid_counts() && has_valid_windows();
}

bool VerbsEndpoint::has_valid_slots() const noexcept {
  if (next_ - consumed_ > window_) return false;
  for (uint64_t number = consumed_; number != next_; ++number) {
    const VerbsMessageHeader& header = header_of(number);
    if (header.number != number || header.bytes > parts_.limits.am_bytes_max) return false;
  }
  return true;
}

bool VerbsEndpoint::has_valid_counts() const noexcept {
  using Kind = RequestKind;
  const auto count_of = [this](Kind kind) {
    return queue_.count_of([kind](const Request& request) { return request.kind == kind; });
  };
  return acknowledgements_out_ <= kAcknowledgementsMax &&
         acknowledgements_out_ == count_of(Kind::kAcknowledgement) &&
         invalidations_out_ == count_of(Kind::kInvalidate) &&
         operations_out_ == count_of(Kind::kOperation) + count_of(Kind::kBounced) +
                                count_of(Kind::kPart) + count_of(Kind::kAtomic);
}

bool VerbsEndpoint::has_valid_windows() const noexcept {
  uint32_t given_up_count = 0;
  uint32_t invalidating_count = 0;
  for (uint32_t i = 0; i < kWindowCount; ++i) {
    const WindowState state = windows_[i].state;
    given_up_count += state == WindowState::kGivenUp;
    invalidating_count += state == WindowState::kInvalidating;
    if (state != WindowState::kFree && !has_window(i)) return false;
    const bool is_ending = state == WindowState::kGivenUp || state == WindowState::kInvalidating;
    if (is_live_ && is_ending && i < kVerbsLoanCountMax &&
        !(loans_.is_out(i) && loans_[i].is_returning)) {
      return false;  // its end would give back a loan that is not lent
    }
    if (i >= kVerbsLoanCountMax || !loans_.is_out(i) || !loans_[i].has_window) continue;
    if (state == WindowState::kFree || (loans_[i].is_returning && state == WindowState::kBound)) {
      return false;
    }
  }
  return given_up_count == given_up_count_ && next_exposure_ < kExposureCountMax &&
         (!is_live_ || invalidating_count == invalidations_out_);
}

void VerbsEndpoint::look_at_link() noexcept {
  BP_DCHECK(parts_.is_own_thread());
  if (is_draining_ || link_.state.load(std::memory_order_acquire) != LinkState::kUp) return;
  if (!is_live_) begin_life();
  if (is_live_ && link_.must_break.load(std::memory_order_acquire)) {
    break_life(why_broken(), false);
  }
  if (is_live_ && !may_send_ && link_.can_send.load(std::memory_order_acquire)) begin_sending();
}

// A device may have stopped, until more is posted or for ever (device_quirks.h). So if nothing has
// ended since the last look, it posts a signalled read behind the rest. If even that does not end,
// the connection is made anew.
void VerbsEndpoint::look_at_progress(uint64_t now_ns) noexcept {
  BP_DCHECK(parts_.is_own_thread() && now_ns >= seen_ns_);
  if (!may_send_ || queue_.is_idle() || queue_.ended() != seen_ended_) {
    seen_ended_ = queue_.ended();
    seen_ns_ = now_ns;
    is_kicked_ = false;
    return;
  }
  if (now_ns - seen_ns_ >= parts_.stall_ns_max) {
    return break_life("its device, or this one, does not end what was posted", false);
  }
  const uint32_t room_kept = kAcknowledgementsMax - acknowledgements_out_ + 1;
  if (is_kicked_ || queue_.room() <= room_kept) return;
  is_kicked_ = true;
  list_flush(nullptr);
  parts_.counters->kicks.add(1);
}

// A peer that asks for memory that it was not given breaks the queue pair at both ends. At the end
// that has the memory some devices tell so by an event, others only by the queue pair's state.
const char* VerbsEndpoint::why_broken() const noexcept {
  const bool is_ours = !link_.is_connecting.load(std::memory_order_acquire);
  const bool has_failed = is_ours && link_.queue_pair.is_failed();
  if (link_.was_refused.load(std::memory_order_acquire) || (has_failed && queue_.is_idle())) {
    return "it asked for memory that it was not given";
  }
  return has_failed ? "it is silent, or asked for memory that it was not given"
                    : "the peer is gone or begins anew";
}

void VerbsEndpoint::begin_life() noexcept {
  BP_DCHECK_SLOW(is_valid());
  BP_DCHECK(!is_live_ && !may_send_ && !is_draining_ && operations_out_ == 0);
  BP_DCHECK(return_count_ == 0 && loans_.out_count() == 0 && is_borrowed_.none());
  BP_DCHECK(link_.state.load(std::memory_order_relaxed) == LinkState::kUp);
  is_live_ = true;
  is_cut_off_ = false;
  has_refused_ = false;
  if (link_.is_fresh) {
    link_.is_fresh = false;
    parts_.counters->lost.add(next_ - consumed_);
    next_ = consumed_ = 0;
  } else if (link_.peer_received - consumed_ > next_ - consumed_) {
    return break_life("it claims to have received what was not sent", true);
  } else {
    consumed_ = link_.peer_received;
  }
  told_ = link_.received;  // the handshake has said so
}

void VerbsEndpoint::begin_sending() noexcept {
  BP_DCHECK(is_live_ && !may_send_);
  BP_DCHECK(!link_.is_connecting.load(std::memory_order_relaxed));
  BP_KEEPS_VALID(*this);
  may_send_ = true;
  if (parts_.datagrams.is_open()) {
    parts_.datagrams.set_peer(link_.place, datagram_address());
  }
  parts_.counters->connected.add(1);
  parts_.counters->resent.add(next_ - consumed_);
  for (uint64_t number = consumed_; number != next_; ++number) {
    list_message(header_of(number));
  }
  mark_dirty();
}

// A peer that does not answer may be gone. A network that carries only small packets looks the
// same: it lets the handshake and small messages through. Only this line tells the operator.
void VerbsEndpoint::break_by_device(ibv_wc_status status) noexcept {
  if (status != IBV_WC_RETRY_EXC_ERR) return break_life(ibv_wc_status_str(status), false);
  char why[160];
  const uint32_t packet_bytes = mtu_bytes(std::min(link_.mtu, link_.peer.mtu));
  std::snprintf(why, sizeof why,
                "it answers no more (%s); if it comes back at once, let the way carry UDP port "
                "4791 with %u bytes of data in a packet",
                ibv_wc_status_str(status), packet_bytes);
  break_life(why, false);
}

void VerbsEndpoint::break_life(const char* why, bool is_fault) noexcept {
  if (!is_live_) return;
  BP_DCHECK(!is_draining_ && (why != nullptr || !is_fault));
  VerbsCounters& counters = *parts_.counters;
  if (may_send_) counters.broken.add(1);
  if (is_fault) {
    counters.cut_off.add(1);
    ++cut_off_count_;
  }
  const bool is_told = is_fault
                           ? cut_off_count_ <= kCutOffsTold || std::has_single_bit(cut_off_count_)
                           // The handshake has logged the connection; it also logs those that never
                           // come to be.
                           : link_.can_send.load(std::memory_order_acquire);
  if (why != nullptr && is_told) {
    BP_LOG_WARNING("verbs: %s %s at %s: %s", is_fault ? "cutting off" : "lost the connection to",
                   link_.name.c_str(), link_.host, why);
  }
  is_live_ = may_send_ = false;
  if (parts_.datagrams.is_open()) parts_.datagrams.forget_peer(link_.place);
  is_draining_ = true;
  is_cut_off_ = is_fault;
  must_fail_ = true;
  if (!link_.is_connecting.load(std::memory_order_acquire)) fail_queue_pair(monotonic_ns());
  ++parts_.draining_count;
  link_.must_break.store(true, std::memory_order_release);
  parts_.connector.wake();  // it rings until the link is down
  BP_DCHECK_SLOW(is_valid());
}

void VerbsEndpoint::fail_queue_pair(uint64_t now_ns) noexcept {
  BP_DCHECK(is_draining_ && must_fail_ && queue_.room() > 0);
  BP_DCHECK(!link_.is_connecting.load(std::memory_order_relaxed));
  must_fail_ = false;
  link_.queue_pair.fail();
  // The marker comes back behind all other requests: then these have ended.
  queue_.add(IBV_WR_SEND, {.kind = RequestKind::kMarker});
  queue_.post();
  drained_ns_min_ = now_ns + kDrainNsMin;
  drained_ns_max_ = now_ns + kDrainNsMax;
}

// Some devices say when the queue pair holds no receive of the shared queue any more. It waits for
// that, since a reset would lose the receives that are still held.
bool VerbsEndpoint::is_drained(uint64_t now_ns) noexcept {
  BP_DCHECK(parts_.is_own_thread() && is_draining_ && !is_live_);
  if (parts_.is_lost) return true;
  if (must_fail_) {
    if (link_.is_connecting.load(std::memory_order_acquire)) return false;
    fail_queue_pair(now_ns);
  }
  if (now_ns >= drained_ns_max_) return true;
  const bool has_receives = parts_.device->tells_last_receive() &&
                            !link_.has_last_receive.load(std::memory_order_acquire);
  return now_ns >= drained_ns_min_ && queue_.is_idle() && !has_receives;
}

Result<void> VerbsEndpoint::stop() noexcept {
  BP_DCHECK(parts_.is_own_thread() && is_draining_ && !is_live_);
  BP_DCHECK(parts_.draining_count > 0 && parts_.draining_count <= parts_.shape.peer_count_max);
  is_draining_ = false;
  --parts_.draining_count;
  ++life_;
  BP_DCHECK_SLOW(is_valid());
  return link_.queue_pair.reset();
}

Result<void> VerbsEndpoint::end_life() noexcept {
  BP_DCHECK(parts_.is_own_thread() && !is_draining_ && !is_live_ && !may_send_);
  BP_DCHECK(link_.state.load(std::memory_order_relaxed) == LinkState::kUp);
  end_pending();
  forget_loans();
  Result<void> renewed;
  if (!parts_.is_lost) renewed = link_.queue_pair.renew();
  BP_DCHECK(queue_.is_idle() && loans_.out_count() == 0 && return_count_ == 0);
  BP_DCHECK_SLOW(is_valid());
  queue_.use(link_.queue_pair.handle());
  const bool is_lost = parts_.is_lost || !renewed.ok();
  link_.hand_over(is_lost ? LinkState::kLost : is_cut_off_ ? LinkState::kCutOff : LinkState::kDown);
  parts_.connector.wake();
  return renewed;
}

void VerbsEndpoint::end_pending() noexcept {
  const Outcome posted = has_refused_ ? Outcome::kNotDone : Outcome::kUnknown;
  queue_.end_all([&](const Request& request, uint32_t place, bool was_posted) {
    end_request(request, place, was_posted ? posted : Outcome::kNotDone);
  });
  BP_DCHECK(acknowledgements_out_ == 0 && operations_out_ == 0 && invalidations_out_ == 0);
  acknowledgements_out_ = operations_out_ = invalidations_out_ = 0;
  must_flush_ = false;
}

// A block that was lent is its owner's again; nobody knows whether the peer has read it. A loan
// that was not delivered is not delivered later, and a loan of the peer's need not be given back
// any more: messages of both kinds are sent again empty.
void VerbsEndpoint::forget_loans() noexcept {
  BP_DCHECK(!is_live_ && !is_draining_ && queue_.is_idle());
  for (uint64_t number = consumed_; number != next_; ++number) {
    VerbsMessageHeader& header = header_of(number);
    if (header.kind == VerbsMessageKind::kMessage) continue;
    header.kind = VerbsMessageKind::kNothing;
    header.bytes = 0;
  }
  loans_.for_each_out([this](uint32_t loan) noexcept {
    end_loan(loan, Outcome::kUnknown);
    return true;
  });
  for (Window& window : windows_) {
    const bool is_lacking = window.handle == nullptr && parts_.uses_windows;
    if (window.state == WindowState::kFree && !is_lacking) continue;
    if (!is_lacking) ibv_dealloc_mw(window.handle);
    make_window(window);  // without one, a loan is refused, until the next life tries again
  }
  BP_DCHECK(loans_.out_count() == 0);
  given_up_count_ = 0;
  is_borrowed_.reset();
  is_due_back_.reset();
  return_count_ = 0;
}

// Messages may have no completion of their own: it waits for that of a read behind them.
bool VerbsEndpoint::settle() noexcept {
  BP_DCHECK(parts_.is_own_thread());
  if (!may_send_ || (queue_.is_idle() && return_count_ == 0)) return true;
  if (operations_out_ == 0) {
    must_flush_ = true;
    (void)flush(nullptr);
  }
  return false;
}

// A window is no registration: it pins nothing and opens nothing until it is bound.
bool VerbsEndpoint::make_window(Window& window) noexcept {
  window = {};
  window.handle = ibv_alloc_mw(parts_.device->domain(), IBV_MW_TYPE_2);
  if (window.handle == nullptr) return false;
  window.key = window.handle->rkey;
  return true;
}

DatagramPeer VerbsEndpoint::datagram_address() const noexcept {
  BP_DCHECK(link_.state.load(std::memory_order_relaxed) == LinkState::kUp);
  return {.queue = link_.datagram_queue,
          .key = datagram_key(link_.peer_instance),
          .own_mark = link_.packet_number,
          .peer_mark = link_.peer.packet_number,
          .place = link_.peer_place,
          .gid = link_.peer.gid,
          .lid = link_.peer.lid,
          .mtu = link_.peer.mtu};
}

Result<RemoteMemory> VerbsEndpoint::expose(std::span<std::byte> memory) {
  BP_DCHECK(parts_.is_own_thread());
  BP_KEEPS_VALID(*this);
  const auto needed = static_cast<RemoteRights>(RemoteRights::kRead | RemoteRights::kWrite);
  const VerbsExport* open = parts_.device->find_export(memory.data(), memory.size(), needed);
  if (open != nullptr) {
    return RemoteMemory{
        reinterpret_cast<uintptr_t>(memory.data()), memory.size(), open->remote_key,
        pack_reach(Reach::kExport, open->rights, static_cast<uint32_t>(parts_.instance))};
  }
  const auto is_free = [](const Window& window) {
    return window.handle != nullptr && window.state == WindowState::kFree;
  };
  // In turn, so that a key comes again as late as possible.
  Window* const first = windows_ + kVerbsLoanCountMax;
  Window* free = std::find_if(first + next_exposure_, std::end(windows_), is_free);
  if (free == std::end(windows_)) free = std::find_if(first, std::end(windows_), is_free);
  Error error =
      error_while("exposing %s to %s", format_bytes(memory.size()).text, link_.name.c_str())
          .set_cure("export its segment, or take the memory from one that is exported");
  if (!can_bind(kVerbsLoanCountMax, memory)) {
    return error.set_answer("no export holds it that may be read and written, and memory windows "
                            "are not used here or cannot hold it");
  }
  if (!may_send_) return error.set_answer("it is not connected");
  if (free == std::end(windows_)) {
    return error.set_answer("it has as many memory windows as it may have (%u)", kExposureCountMax);
  }
  if (queue_.room() <= kRequestsKept) {
    error.set_answer("its queue is full of requests that have not ended");
    return error.set_cure("poll, then try again");
  }
  next_exposure_ = static_cast<uint32_t>(free - first + 1) % kExposureCountMax;
  const bool has_atomics = parts_.device->has_atomics();
  unsigned access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  if (has_atomics) access |= IBV_ACCESS_REMOTE_ATOMIC;
  const uint32_t key = bind_window(static_cast<uint32_t>(free - windows_), memory, access);
  return RemoteMemory{
      reinterpret_cast<uintptr_t>(memory.data()), memory.size(), key,
      pack_reach(Reach::kConnection, has_atomics ? kAllRights : needed, link_.packet_number)};
}

void VerbsEndpoint::withdraw(const RemoteMemory& memory) noexcept {
  BP_DCHECK(parts_.is_own_thread());
  BP_KEEPS_VALID(*this);
  if (!may_send_ || !is_reach(memory, Reach::kConnection, link_.packet_number)) return;
  for (uint32_t i = kVerbsLoanCountMax; i < kWindowCount; ++i) {
    if (windows_[i].state == WindowState::kBound && windows_[i].key == memory.key) {
      give_up_window(i);
      return invalidate_windows();
    }
  }
}

}  // namespace bedplate
