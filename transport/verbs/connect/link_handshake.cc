#include "transport/verbs/connect/link_handshake.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <span>

#include "platform/clock.h"
#include "platform/log.h"
#include "platform/random_bytes.h"

namespace bedplate {
namespace {

uint32_t random_packet_number() noexcept {
  uint32_t number = 0;
  const auto drawn = draw_bytes(std::as_writable_bytes(std::span(&number, 1)));
  BP_ASSERT(drawn.ok());  // it worked when the connector was made
  return number & kPacketNumberMask;
}

}  // namespace

void LinkHandshake::begin(VerbsLink& link) noexcept {
  BP_DCHECK(parts_.is_own_thread() && link.is_connectors());
  link.packet_number = random_packet_number();
  link.mtu = active_mtu(parts_.options.device->context(), parts_.options.device->port());
}

HandshakeRecord LinkHandshake::make_record(HandshakeKind kind,
                                           const VerbsLink* link) const noexcept {
  HandshakeRecord record = {};
  record.kind = static_cast<uint16_t>(kind);
  std::snprintf(record.name, sizeof record.name, "%s", parts_.options.name.c_str());
  record.instance = parts_.options.instance;
  record.window = parts_.options.window;
  record.message_bytes = parts_.options.message_bytes;
  record.flush_key = parts_.options.flush_key;
  record.flush_address = parts_.options.flush_address;
  record.datagram_queue = parts_.options.datagram_queue;
  record.mtu = IBV_MTU_256;
  record.reads_max = 1;
  if (link == nullptr) return record;
  BP_DCHECK(parts_.is_own_thread() && link->is_connectors());  // else the shard may write it
  const QueuePairAddress address = link->queue_pair.address(link->packet_number, link->mtu);
  record.known_instance = link->peer_instance;
  record.received = link->received;
  record.queue_pair = address.number;
  record.packet_number = address.packet_number;
  std::memcpy(record.gid, address.gid.raw, sizeof record.gid);
  record.lid = address.lid;
  record.mtu = static_cast<uint8_t>(address.mtu);
  record.reads_max = address.reads_max;
  record.index = link->index;
  return record;
}

void LinkHandshake::commit(VerbsLink& link, const HandshakeRecord& record,
                           const char* host) noexcept {
  const LinkState state = link.state.load(std::memory_order_acquire);
  BP_ASSERT(state == LinkState::kDown || state == LinkState::kCutOff);
  BP_DCHECK(parts_.is_own_thread() && record.instance != link.cut_instance);
  link.is_wanted.store(true, std::memory_order_relaxed);
  const bool goes_on =
      record.instance == link.peer_instance && record.known_instance == parts_.options.instance;
  if (!goes_on) {
    link.is_fresh = true;
    link.received = 0;
  }
  link.peer_instance = record.instance;
  link.peer_received = goes_on ? record.received : 0;
  link.peer_index = record.index;
  link.flush_address = record.flush_address;
  link.flush_key = record.flush_key;
  link.datagram_queue = record.datagram_queue;
  link.peer = {
      record.queue_pair, record.packet_number, {}, record.lid, static_cast<ibv_mtu>(record.mtu),
      record.reads_max};
  std::memcpy(link.peer.gid.raw, record.gid, sizeof record.gid);
  std::snprintf(link.host, sizeof link.host, "%s", host);
  link.must_break.store(false, std::memory_order_relaxed);
  link.can_send.store(false, std::memory_order_relaxed);
  link.is_connecting.store(true, std::memory_order_relaxed);
  for (std::atomic<bool>* of_a_life :
       {&link.has_worked, &link.was_refused, &link.has_last_receive}) {
    of_a_life->store(false, std::memory_order_relaxed);
  }
  link.hand_over(LinkState::kUp);
  BP_DCHECK_SLOW(link.is_valid());
  parts_.changes.ring();
}

Result<void> LinkHandshake::connect_queue_pair(VerbsLink& link) noexcept {
  BP_ASSERT(link.is_connecting.load(std::memory_order_relaxed));
  BP_DCHECK(parts_.is_own_thread() && !link.can_send.load(std::memory_order_relaxed));
  auto connected =
      link.queue_pair.connect(link.packet_number, link.mtu, link.peer, parts_.options.timing.retry);
  link.is_connecting.store(false, std::memory_order_release);
  return connected;
}

void LinkHandshake::come_up(VerbsLink& link) noexcept {
  BP_ASSERT(!link.is_connecting.load(std::memory_order_relaxed));
  BP_DCHECK(parts_.is_own_thread() && parts_.talks.of(link, true) != nullptr);
  parts_.backoff(link).come_up(monotonic_ns());
  link.can_send.store(true, std::memory_order_release);
  BP_LOG_INFO("verbs: connected to %s at %s", link.name.c_str(), link.host);
  if (link.mtu != link.peer.mtu) {
    BP_LOG_WARNING("verbs: sending to %s at %s: its MTU is %u, that of %s is %u, so packets have "
                   "%u bytes; give both network interfaces the same (ip link set ... mtu ...)",
                   link.name.c_str(), link.host, mtu_bytes(link.peer.mtu),
                   parts_.options.device->kind().name, mtu_bytes(link.mtu),
                   mtu_bytes(std::min(link.mtu, link.peer.mtu)));
  }
  parts_.changes.ring();
}

}  // namespace bedplate
