#include "transport/verbs/channel/verbs_provider.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <random>

#include <poll.h>

#include "platform/clock.h"
#include "platform/log.h"
#include "platform/units.h"
#include "transport/verbs/channel/verbs_endpoint.h"
#include "transport/verbs/channel/verbs_parts.h"

namespace bedplate {
namespace {

uint64_t random_instance() {
  std::random_device source;
  return uint64_t{source()} << 32 | source() | 1;
}

}  // namespace

std::vector<VerbsDemand> VerbsProvider::demands(const VerbsShape& shape,
                                                const ibv_device_attr& limits, bool uses_windows) {
  const uint64_t requests = shape.request_count();
  const uint64_t receives = shape.receive_count();
  const auto limit = [](int value) { return static_cast<uint64_t>(std::max(value, 0)); };
  return {
      {"queue pairs", "make the number of peers smaller",
       shape.peer_count_max + (shape.datagram_count > 0 ? 1 : 0), limit(limits.max_qp)},
      {"requests in a queue", "make the window or the operations of a peer smaller", requests,
       limit(limits.max_qp_wr)},
      {"shared receive queues", "let fewer shards use verbs", 1, limit(limits.max_srq)},
      {"receives in a shared queue", "make the number of peers or the window smaller", receives,
       limit(limits.max_srq_wr)},
      {"completions in a queue", "make the number of peers or the window smaller",
       shape.completion_count(), limit(limits.max_cqe)},
      {"memory windows", "make the number of peers smaller",
       uses_windows ? uint64_t{shape.peer_count_max} * MemoryWindows::kCount : 0,
       limit(limits.max_mw)},
      {"pieces in a request", "use another device", SendQueue::kPiecesMax, limit(limits.max_sge)},
  };
}

VerbsProvider::VerbsProvider() : parts_(std::make_unique<VerbsParts>()) {}

VerbsProvider::~VerbsProvider() {
  parts_->connector.stop();
  endpoints_.clear();
  parts_->datagrams.destroy();
  if (receives_ != nullptr) ibv_destroy_srq(receives_);
  if (completions_ != nullptr) ibv_destroy_cq(completions_);
  if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
}

Result<void> VerbsProvider::create(const VerbsProviderOptions& options,
                                   const Dispatcher& dispatcher) {
  BP_ASSERT(parts_->device == nullptr && options.device != nullptr && options.keys != nullptr);
  BP_ASSERT(check_shape(options.shape).ok());
  BP_ASSERT(options.peers.size() <= options.shape.peer_count_max);
  BP_ASSERT(options.memory.size() >= verbs_memory_bytes(options.shape));
  BP_ASSERT(reinterpret_cast<uintptr_t>(options.memory.data()) % VerbsShape::kPageBytes == 0);
  BP_ASSERT(options.name.size() < kVerbsNameBytes && !options.name.empty());
  set_parts(options, dispatcher);
  const VerbsDevice& device = *options.device;
  const VerbsShape& shape = options.shape;
  BP_TRY(device.check_demands(demands(shape, device.limits(), parts_->uses_windows)));
  const std::span<std::byte> shared =
      memory_.subspan(shape.private_bytes(), verbs_shared_bytes(shape));
  const std::span<std::byte> flush_page = shared.first(VerbsShape::kPageBytes);
  auto flush_word = options.device->add_export(*options.pool, flush_page, RemoteRights::kRead);
  if (!flush_word.ok()) return flush_word.error();
  BP_TRY(open_loan_bounce(*options.pool, shared.subspan(VerbsShape::kPageBytes)));
  const uint64_t transfer_bytes = shape.bounce_page_bytes();
  parts_->transfer_bounce.create(
      memory_.subspan(shape.private_bytes() - transfer_bytes, transfer_bytes));
  BP_TRY(bell_.create());
  BP_TRY(make_queues());
  BP_TRY(make_endpoints(options.peers));
  BP_DCHECK_SLOW(is_valid());
  std::vector<VerbsLink*> links;
  for (const auto& endpoint : endpoints_) links.push_back(&endpoint->link());
  return parts_->connector.start({.name = options.name,
                                  .instance = parts_->instance,
                                  .listen = options.listen,
                                  .window = shape.window,
                                  .message_bytes = shape.message_bytes,
                                  .flush_key = flush_word.value()->remote_key,
                                  .flush_address = reinterpret_cast<uintptr_t>(flush_page.data()),
                                  .datagram_queue = parts_->datagrams.number(),
                                  .is_by_manager = options.connects_by_manager,
                                  .timing = options.timing,
                                  .device = options.device,
                                  .completion_fd = channel_->fd,
                                  .bell = &bell_,
                                  .loop_bell = options.loop_bell},
                                 std::move(links));
}

// Sets the fields that are set once, except the bounce buffer's key and the inline limit.
void VerbsProvider::set_parts(const VerbsProviderOptions& options, const Dispatcher& dispatcher) {
  memory_ = options.memory;
  const KeyedRange own = options.keys->key(memory_.data(), memory_.size());
  BP_ASSERT(own.key != kNoKey && own.bytes == memory_.size());
  parts_->provider = this;
  parts_->dispatcher = &dispatcher;
  parts_->device = options.device;
  parts_->keys = options.keys;
  parts_->counters = options.counters != nullptr ? options.counters : &own_counters_;
  parts_->shape = options.shape;
  const auto header_bytes = static_cast<uint32_t>(sizeof(VerbsMessageHeader));
  parts_->limits = {options.shape.message_bytes - header_bytes, 0, kVerbsLoanHeaderBytesMax};
  parts_->stall_ns_max = options.timing.stall_ns_max;
  parts_->instance = random_instance();
  parts_->memory_key = VerbsDevice::local_key(own.key);
  parts_->uses_windows = options.device->enforces_windows() ||
                         (options.trust_windows && options.device->has_windows());
}

// With windows, each loan has a window of its own, even if its block was copied here. Without, each
// borrower gets the key of the whole buffer: so it must not have old bytes.
Result<void> VerbsProvider::open_loan_bounce(const PinnedPool& pool, std::span<std::byte> memory) {
  parts_->loan_bounce.create(memory);
  if (parts_->uses_windows || memory.empty()) return {};
  std::fill(memory.begin(), memory.end(), std::byte{0});
  auto opened = parts_->device->add_export(pool, memory, RemoteRights::kRead);
  if (!opened.ok()) return opened.error();
  parts_->loan_bounce_key = opened.value()->remote_key;
  BP_LOG_INFO("verbs: %s %s memory windows: loans that no export contains are copied, and a "
              "borrower of one can read those of others (docs/verbs.md)",
              parts_->device->kind().name,
              parts_->device->has_windows() ? "does not enforce" : "has no");
  return {};
}

Result<void> VerbsProvider::make_queues() {
  const char* device = parts_->device->kind().name;
  ibv_context* context = parts_->device->context();
  channel_ = ibv_create_comp_channel(context);
  const auto count = static_cast<int>(parts_->shape.completion_count());
  if (channel_ != nullptr) {
    set_blocking(channel_->fd, false);
    completions_ = ibv_create_cq(context, count, nullptr, channel_, 0);
  }
  if (completions_ == nullptr) {
    return error_from_errno("making a completion queue of %s with %d entries", device, count)
        .set_cure("make the number of peers or the window smaller");
  }
  ibv_srq_init_attr attributes = {};
  attributes.attr.max_wr = receive_count();
  attributes.attr.max_sge = 1;
  receives_ = ibv_create_srq(parts_->device->domain(), &attributes);
  if (receives_ == nullptr) {
    return error_from_errno("making a shared receive queue of %s with %u entries", device,
                            receive_count())
        .set_cure("make the number of peers or the window smaller");
  }
  for (uint32_t i = 0; i < receive_count(); ++i) repost(i);
  post_receives();
  const VerbsShape& shape = parts_->shape;
  if (shape.datagram_count == 0) return {};
  std::byte* memory =
      receive_buffer(receive_count()) + shape.peer_count_max * shape.peer_memory_bytes();
  return parts_->datagrams.create(
      {.device = parts_->device,
       .completions = completions_,
       .memory = {memory, DatagramQueue::memory_bytes(shape.datagram_count)},
       .memory_key = parts_->memory_key,
       .count = shape.datagram_count,
       .peer_count_max = shape.peer_count_max,
       .key = datagram_key(parts_->instance),
       .counters = &parts_->counters->datagrams});
}

Result<void> VerbsProvider::make_endpoints(std::span<const VerbsPeer> peers) {
  const VerbsShape& shape = parts_->shape;
  std::byte* memory = receive_buffer(receive_count());
  parts_->dirty.create(shape.peer_count_max);
  for (uint32_t i = 0; i < peers.size(); ++i) {
    endpoints_.push_back(std::make_unique<VerbsEndpoint>(*parts_));
    BP_TRY(endpoints_.back()->create({.name = peers[i].name,
                                      .address = peers[i].address,
                                      .index = static_cast<uint16_t>(i),
                                      .memory = memory,
                                      .completions = completions_,
                                      .receives = receives_}));
    memory += shape.peer_memory_bytes();
  }
  const uint32_t inline_bytes =
      endpoints_.empty() ? 0 : endpoints_[0]->link().queue_pair.inline_bytes();
  const auto header_bytes = static_cast<uint32_t>(sizeof(VerbsMessageHeader));
  parts_->limits.inline_bytes_max = std::min(
      parts_->limits.am_bytes_max, inline_bytes > header_bytes ? inline_bytes - header_bytes : 1);
  return {};
}

Result<Endpoint*> VerbsProvider::connect(const PeerAddress& peer) {
  BP_DCHECK(parts_->is_own_thread());
  for (const auto& endpoint : endpoints_) {
    if (peer.name == nullptr || endpoint->link().name != peer.name) continue;
    if (!endpoint->link().is_wanted.exchange(true, std::memory_order_acq_rel)) {
      parts_->connector.wake();
    }
    return endpoint.get();
  }
  return error_while("connecting to %s", peer.name == nullptr ? "a peer without a name" : peer.name)
      .set_answer("%s", peer.name == nullptr ? "verbs finds peers by their names"
                                             : "it is not in the list of peers")
      .set_cure("add it to the list of peers, on both sides");
}

PeerState VerbsProvider::peer_state(uint32_t index) const noexcept {
  BP_DCHECK(index < endpoints_.size());
  const VerbsLink& link = endpoints_[index]->link();
  const LinkState state = link.state.load(std::memory_order_acquire);
  if (state == LinkState::kCutOff) return PeerState::kCutOff;
  if (state == LinkState::kUp && link.can_send.load(std::memory_order_acquire)) {
    return PeerState::kConnected;
  }
  if (link.is_given_up.load(std::memory_order_acquire)) return PeerState::kGivenUp;
  const bool is_dialed = link.address && link.is_wanted.load(std::memory_order_acquire);
  return is_dialed ? PeerState::kDialing : PeerState::kWaiting;
}

SendStatus VerbsProvider::send_datagram(const Endpoint& to, AmId id,
                                        std::span<const std::byte> payload) noexcept {
  return static_cast<const VerbsEndpoint&>(to).send_datagram(id, payload);
}

uint32_t VerbsProvider::datagram_bytes_max(const Endpoint& to) const noexcept {
  return static_cast<const VerbsEndpoint&>(to).datagram_bytes_max();
}

bool VerbsProvider::is_connected(const Endpoint& endpoint) noexcept {
  return static_cast<const VerbsEndpoint&>(endpoint).is_connected();
}

// The event of an earlier sleep may still be in the channel, although its completion was polled
// while awake. While an event is unread, a device need not send the next one (mlx5). So the event
// is read here, before the queue is armed again; on waking it would cost time.
void VerbsProvider::follow(const ThreadOwner& loop) noexcept { parts_->owner.follow(loop); }

void VerbsProvider::announce_sleep() noexcept {
  BP_DCHECK(parts_->is_own_thread());
  BP_KEEPS_VALID(*this);
  post_sends();
  bell_.announce_sleep();
  if (is_armed_) take_event();
  if (const int outcome = ibv_req_notify_cq(completions_, 0); BP_UNLIKELY(outcome != 0)) {
    lose_device(strerror(outcome));
  }
  is_armed_ = true;
}

void VerbsProvider::announce_awake() noexcept {
  BP_DCHECK(parts_->is_own_thread());
  bell_.announce_awake();
}

// Reads the event if it has come. There is at most one, because one was requested.
void VerbsProvider::take_event() noexcept {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  if (ibv_get_cq_event(channel_, &queue, &context) != 0) return;
  ibv_ack_cq_events(completions_, 1);
  is_armed_ = false;
}

void VerbsProvider::sleep(uint64_t timeout_ns) noexcept {
  BP_DCHECK(parts_->is_own_thread());
  pollfd waits[] = {{channel_->fd, POLLIN, 0}, {bell_.event_fd(), POLLIN, 0}};
  const timespec timeout = {static_cast<time_t>(timeout_ns / kNsPerSecond),
                            static_cast<long>(timeout_ns % kNsPerSecond)};
  ppoll(waits, std::size(waits), &timeout, nullptr);
  if (waits[0].revents != 0) take_event();
  if (waits[1].revents != 0) bell_.acknowledge();
}

bool VerbsProvider::is_valid() const noexcept {
  uint32_t dirty_count = 0;
  uint32_t draining_count = 0;
  for (const auto& endpoint : endpoints_) {
    if (endpoint->is_dirty() != parts_->dirty.holds(*endpoint)) return false;
    dirty_count += endpoint->is_dirty();
    draining_count += endpoint->drain().is_in_progress();
  }
  return dirty_count == parts_->dirty.all().size() && draining_count == parts_->draining_count &&
         listed_receives_ < kCompletionBatch && parts_->is_valid();
}

uint64_t VerbsProvider::refused_count() const noexcept { return parts_->connector.refused_count(); }

void VerbsProvider::look_at_links() noexcept {
  BP_KEEPS_VALID(*this);
  const uint64_t now_ns = monotonic_ns();
  for (const auto& endpoint : endpoints_) {
    endpoint->look_at_link();
    endpoint->look_at_progress(now_ns);
  }
}

uint32_t VerbsProvider::look_at_draining() noexcept {
  const uint64_t now_ns = monotonic_ns();
  uint32_t count = 0;
  for (const auto& endpoint : endpoints_) {
    QueuePairDrain& drain = endpoint->drain();
    if (!drain.is_in_progress() || !drain.is_done(now_ns)) continue;
    // First takes the remaining completions: the reset of a queue pair may drop its receives.
    count += take_completions(receive_count());
    if (const auto stopped = drain.end(); !stopped.ok()) lose_device(stopped.error().answer);
    if (const auto ended = endpoint->end_life(); !ended.ok()) lose_device(ended.error().answer);
    ++count;
  }
  return count;
}

// Other processes that use the device find out by themselves. No peer is reconnected: the queues of
// a device that was removed stay dead when it is inserted again.
void VerbsProvider::lose_device(const char* why) noexcept {
  BP_DCHECK(parts_->is_own_thread());
  if (parts_->is_lost) return;
  parts_->is_lost = true;
  BP_LOG_WARNING("verbs: lost the device %s: %s; its peers cannot be reached any more; restart "
                 "when it is back",
                 parts_->device->kind().name, why);
  for (const auto& endpoint : endpoints_) endpoint->lose();
}

bool VerbsProvider::settle() noexcept {
  BP_DCHECK(parts_->is_own_thread());
  bool is_settled = true;
  for (const auto& endpoint : endpoints_) is_settled = endpoint->settle() && is_settled;
  return is_settled;
}

}  // namespace bedplate
