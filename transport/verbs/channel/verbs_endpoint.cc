// VerbsEndpoint: creation, exposures, and the connections of one peer. When a connection breaks,
// each pending operation and loan ends here, once. After the next handshake, each message that the
// peer has not received is sent again, once.
#include "transport/verbs/channel/verbs_endpoint.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <memory>

#include "platform/clock.h"
#include "platform/log.h"

namespace bedplate {
namespace {

constexpr uint32_t kInlineBytes = 256;  // requested; a device may have less

// A peer may break the protocol again and again, each time as another instance. The log has its
// first cut-offs, up to this number, and later those whose number is a power of two.
constexpr uint32_t kCutOffsTold = 16;

// A request for memory without the right breaks the queue pair at both ends. At the end with the
// memory, some devices report it by an event, others only by the state of the queue pair.
const char* why_broken(const VerbsLink& link, const SendQueue& queue) noexcept {
  const bool is_ours = !link.is_connecting.load(std::memory_order_acquire);
  const bool has_failed = is_ours && link.queue_pair.is_failed();
  if (link.was_refused.load(std::memory_order_acquire) || (has_failed && queue.is_idle())) {
    return "it asked for memory that it may not access";
  }
  return has_failed ? "it does not answer, or asked for memory that it may not access"
                    : "the peer is gone or restarts";
}

}  // namespace

Result<void> VerbsEndpoint::create(const VerbsEndpointOptions& options) {
  BP_DCHECK(options.index < parts_.shape.peer_count_max);
  BP_DCHECK(reinterpret_cast<uintptr_t>(options.memory) % kCacheLineBytes == 0);
  const uint32_t depth = parts_.shape.request_count();
  std::byte* const cells = outgoing_.create(options.memory);
  operations_.create(std::make_unique<RemoteOperations::Bounced[]>(depth),
                     reinterpret_cast<uint64_t*>(cells));
  VerbsLink& link = channel_.link;
  link.name = options.name;
  link.address = options.address;
  link.index = options.index;
  BP_TRY(link.queue_pair.create(*parts_.device, {.completions = options.completions,
                                                 .receives = options.receives,
                                                 .send_count_max = depth,
                                                 .send_pieces_max = SendQueue::kPiecesMax,
                                                 .inline_bytes = kInlineBytes,
                                                 .owner = &link}));
  BP_TRY(windows_.create());
  channel_.queue.create(std::make_unique<PostedRequest[]>(depth), depth, options.index,
                        link.queue_pair.handle());
  return {};
}

VerbsEndpoint::~VerbsEndpoint() = default;

bool VerbsEndpoint::is_valid() const noexcept {
  return channel_.is_valid() && drain_.is_valid() && windows_.is_valid() && outgoing_.is_valid() &&
         operations_.is_valid() && lender_.is_valid() && borrower_.is_valid() &&
         (is_dirty_ || !channel_.may_send || !channel_.queue.has_list());
}

void VerbsEndpoint::look_at_link() noexcept {
  BP_DCHECK(parts_.is_own_thread());
  VerbsLink& link = channel_.link;
  if (channel_.is_draining || link.state.load(std::memory_order_acquire) != LinkState::kUp) return;
  if (!channel_.is_live) begin_life();
  if (channel_.is_live && link.must_break.load(std::memory_order_acquire)) {
    break_life(why_broken(link, channel_.queue), false);
  }
  if (channel_.is_live && !channel_.may_send && link.can_send.load(std::memory_order_acquire)) {
    begin_sending();
  }
}

// A device may have stopped, for ever or until more is posted (device_quirks.h). So if no request
// has ended since the last look, this posts a signalled read behind the others. If even the read
// does not end, the connection is made anew.
void VerbsEndpoint::look_at_progress(uint64_t now_ns) noexcept {
  BP_DCHECK(parts_.is_own_thread() && now_ns >= seen_ns_);
  const SendQueue& queue = channel_.queue;
  if (!channel_.may_send || queue.is_idle() || queue.ended() != seen_ended_) {
    seen_ended_ = queue.ended();
    seen_ns_ = now_ns;
    is_kicked_ = false;
    return;
  }
  if (now_ns - seen_ns_ >= parts_.stall_ns_max) {
    return break_life("its device, or this one, does not complete posted requests", false);
  }
  const uint32_t room_kept = kAcknowledgementsMax - outgoing_.acknowledgements_out() + 1;
  if (is_kicked_ || queue.room() <= room_kept) return;
  is_kicked_ = true;
  operations_.list_flush(nullptr);
  mark_dirty();
  parts_.counters->kicks.add(1);
}

void VerbsEndpoint::begin_life() noexcept {
  BP_DCHECK_SLOW(is_valid());
  BP_DCHECK(!channel_.is_live && !channel_.may_send && !channel_.is_draining);
  BP_DCHECK(operations_.out_count() == 0 && lender_.out_count() == 0 && borrower_.is_empty());
  BP_DCHECK(channel_.link.state.load(std::memory_order_relaxed) == LinkState::kUp);
  channel_.is_live = true;
  channel_.is_cut_off = false;
  has_refused_ = false;
  if (!outgoing_.begin_life()) {
    break_life("it claims to have received messages that were not sent", true);
  }
}

void VerbsEndpoint::begin_sending() noexcept {
  BP_DCHECK(channel_.is_live && !channel_.may_send);
  BP_DCHECK(!channel_.link.is_connecting.load(std::memory_order_relaxed));
  BP_KEEPS_VALID(*this);
  channel_.may_send = true;
  if (parts_.datagrams.is_open()) {
    parts_.datagrams.set_peer(channel_.link.index, datagram_address());
  }
  parts_.counters->connected.add(1);
  outgoing_.resend();
  mark_dirty();
}

// A peer that does not answer may be gone. A network with too small an MTU looks the same: it
// carries the handshake and small messages. Only this line tells the operator.
void VerbsEndpoint::break_by_device(ibv_wc_status status) noexcept {
  if (status != IBV_WC_RETRY_EXC_ERR) return break_life(ibv_wc_status_str(status), false);
  char why[160];
  const uint32_t packet_bytes = mtu_bytes(std::min(channel_.link.mtu, channel_.link.peer.mtu));
  std::snprintf(why, sizeof why,
                "it no longer answers (%s); if it comes back at once, make the path carry UDP port "
                "4791 with %u bytes of data in a packet",
                ibv_wc_status_str(status), packet_bytes);
  break_life(why, false);
}

void VerbsEndpoint::break_life(const char* why, bool is_fault) noexcept {
  if (!channel_.is_live) return;
  BP_DCHECK(!channel_.is_draining && (why != nullptr || !is_fault));
  VerbsLink& link = channel_.link;
  VerbsCounters& counters = *parts_.counters;
  if (channel_.may_send) counters.broken.add(1);
  if (is_fault) {
    counters.cut_off.add(1);
    ++cut_off_count_;
  }
  const bool is_told = is_fault
                           ? cut_off_count_ <= kCutOffsTold || std::has_single_bit(cut_off_count_)
                           // The handshake has logged the connection; it also logs connections that
                           // never come up.
                           : link.can_send.load(std::memory_order_acquire);
  if (why != nullptr && is_told) {
    BP_LOG_WARNING("verbs: %s %s at %s: %s", is_fault ? "cutting off" : "lost the connection to",
                   link.name.c_str(), link.host, why);
  }
  channel_.is_live = channel_.may_send = false;
  channel_.is_cut_off = is_fault;
  if (parts_.datagrams.is_open()) parts_.datagrams.forget_peer(link.index);
  drain_.begin();
  link.must_break.store(true, std::memory_order_release);
  parts_.connector.wake();  // the connector rings until the link is down
  BP_DCHECK_SLOW(is_valid());
}

// A lent block is its owner's again; the peer may or may not have read it. A loan that was not
// delivered is void, and the peer's loans need not be given back any more: messages of both kinds
// are sent again empty.
Result<void> VerbsEndpoint::end_life() noexcept {
  BP_DCHECK(parts_.is_own_thread());
  BP_DCHECK(!channel_.is_draining && !channel_.is_live && !channel_.may_send);
  BP_DCHECK_SLOW(is_valid());
  VerbsLink& link = channel_.link;
  BP_DCHECK(link.state.load(std::memory_order_relaxed) == LinkState::kUp);
  const Outcome posted = has_refused_ ? Outcome::kNotDone : Outcome::kUnknown;
  channel_.queue.end_all([&](const PostedRequest& request, uint32_t index, bool was_posted) {
    end_request(request, index, was_posted ? posted : Outcome::kNotDone);
  });
  operations_.end_life();
  outgoing_.void_loans();
  lender_.end_all();
  windows_.renew();
  borrower_.end_life();
  Result<void> renewed;
  if (!parts_.is_lost) renewed = link.queue_pair.renew();
  BP_DCHECK(channel_.queue.is_idle() && lender_.out_count() == 0 && borrower_.is_empty());
  BP_DCHECK_SLOW(is_valid());
  channel_.queue.use(link.queue_pair.handle());
  const bool is_lost = parts_.is_lost || !renewed.ok();
  link.hand_over(is_lost               ? LinkState::kLost
                 : channel_.is_cut_off ? LinkState::kCutOff
                                       : LinkState::kDown);
  parts_.connector.wake();
  return renewed;
}

// Messages may have no completion of their own: this waits for a read behind them.
bool VerbsEndpoint::settle() noexcept {
  BP_DCHECK(parts_.is_own_thread());
  if (!channel_.may_send || (channel_.queue.is_idle() && !borrower_.has_returns())) return true;
  if (operations_.out_count() == 0) {
    operations_.require_flush();
    (void)flush(nullptr);
  }
  return false;
}

DatagramPeer VerbsEndpoint::datagram_address() const noexcept {
  const VerbsLink& link = channel_.link;
  BP_DCHECK(link.state.load(std::memory_order_relaxed) == LinkState::kUp);
  return {.queue = link.datagram_queue,
          .key = datagram_key(link.peer_instance),
          .own_mark = link.packet_number,
          .peer_mark = link.peer.packet_number,
          .index = link.peer_index,
          .gid = link.peer.gid,
          .lid = link.peer.lid,
          .mtu = link.peer.mtu};
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
  Error error =
      error_while("exposing %s to %s", format_bytes(memory.size()).text, channel_.link.name.c_str())
          .set_cure("export its segment, or use memory of an exported one");
  if (!windows_.can_bind(kVerbsLoanCountMax, memory)) {
    return error.set_answer("no export that may be read and written contains it, and memory "
                            "windows are not used here or cannot contain it");
  }
  if (!channel_.may_send) return error.set_answer("it is not connected");
  const uint32_t window = windows_.next_exposure();
  if (window == MemoryWindows::kNone) {
    return error.set_answer("it already has all of its memory windows (%u)",
                            MemoryWindows::kExposureCountMax);
  }
  if (!channel_.has_room()) {
    error.set_answer("its queue is full of requests that have not completed");
    return error.set_cure("poll, then try again");
  }
  const bool has_atomics = parts_.device->has_atomics();
  unsigned access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  if (has_atomics) access |= IBV_ACCESS_REMOTE_ATOMIC;
  const uint32_t key = windows_.bind(window, memory, access);
  mark_dirty();
  return RemoteMemory{reinterpret_cast<uintptr_t>(memory.data()), memory.size(), key,
                      pack_reach(Reach::kConnection, has_atomics ? kAllRights : needed,
                                 channel_.link.packet_number)};
}

}  // namespace bedplate
