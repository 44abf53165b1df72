// PortDatagramSocket's data path.
#include <algorithm>
#include <atomic>
#include <cerrno>

#include "platform/assert.h"
#include "transport/dpdk/net/port_datagram_socket.h"

namespace bedplate {
namespace {

bool is_same_end(const DatagramAddress& one, const DatagramAddress& other) noexcept {
  return one.port == other.port && is_same(one.ip, other.ip);
}

// The mbuf's index in a socket's table of kept mbufs, in an mbuf field that is unused by then. It
// is only a hint: sockets of several shards may keep one mbuf, and overwrite each other's hint.
std::atomic_ref<uint32_t> hint_of(rte_mbuf* mbuf) noexcept {
  return std::atomic_ref<uint32_t>(mbuf->hash.usr);
}

}  // namespace

// ---- Matching -----------------------------------------------------------------------------------

bool PortDatagramSocket::collides_with(const PortDatagramSocket& other,
                                       uint16_t port) const noexcept {
  if (local_.port != port || local_.ip.family != other.local_.ip.family) return false;
  if (shares_port_ && other.shares_port_) return false;
  return is_unspecified(local_.ip) || is_unspecified(other.local_.ip) ||
         is_same(local_.ip, other.local_.ip);
}

bool PortDatagramSocket::is_from_peer(const DatagramAddress& from) const noexcept {
  return !peer_.is_there() || is_same_end(peer_, from);
}

uint32_t PortDatagramSocket::score(const DatagramAddress& to,
                                   const DatagramAddress& from) const noexcept {
  if (local_.port != to.port || local_.ip.family != to.ip.family) return 0;
  const bool is_exact = is_same(local_.ip, to.ip);
  if ((!is_exact && !is_unspecified(local_.ip)) || !is_from_peer(from)) return 0;
  return 1U + is_exact + (peer_.is_there() ? 2U : 0U);
}

bool PortDatagramSocket::takes_from_many(const DatagramAddress& to,
                                         const DatagramAddress& from) const noexcept {
  if (score(to, from) == 0) return false;
  return !is_multicast(to.ip) || parts_.groups.accepts(memberships_, to.ip, from.ip);
}

bool PortDatagramSocket::has_joined(const IpAddress& group) const noexcept {
  return parts_.groups.has_joined(memberships_, group);
}

// ---- Receiving ----------------------------------------------------------------------------------

PacketDrop PortDatagramSocket::push(rte_mbuf* frame, const ParsedPacket& packet,
                                    uint64_t wall_ns) noexcept {
  BP_KEEPS_VALID(*this);
  if (pending_count_ == kBatchMax || lent_count_ > 0 ||
      pending_count_ + kept_count_ == shape_.buffer_count) {
    return PacketDrop::kSocketFull;
  }
  // Trims a frame with a single reference to the datagram's bytes: then they can be sent on without
  // an attached mbuf (DatagramSender::refer).
  if (packet.payload_segment == frame && frame->nb_segs == 1 && RTE_MBUF_DIRECT(frame) &&
      rte_mbuf_refcnt_read(frame) == 1) {
    frame->data_off =
        static_cast<uint16_t>(packet.payload - static_cast<const std::byte*>(frame->buf_addr));
    frame->data_len = static_cast<uint16_t>(packet.payload_bytes);
    frame->pkt_len = packet.payload_bytes;
  }
  BP_DCHECK(packet.payload != nullptr && packet.payload_segment != nullptr);
  BP_DCHECK(is_open_);
  const uint32_t index = pending_count_++;
  batch_->frames[index] = frame;
  batch_->segments[index] = packet.payload_segment;
  ReceivedDatagram& datagram = batch_->received[index];
  datagram = {};
  datagram.bytes = packet.payload;
  datagram.byte_count = std::min(packet.payload_bytes, shape_.buffer_bytes);
  datagram.is_truncated = packet.payload_bytes > shape_.buffer_bytes;
  datagram.from = {packet.from, packet.from_port, 0};
  datagram.to = packet.to;
  datagram.received_ns = wall_ns;
  datagram.ecn = packet.ecn;
  NetCounters& counters = parts_.counters;
  counters.received_datagrams.add(1);
  counters.received_bytes.add(datagram.byte_count);
  if (datagram.is_truncated) counters.truncated_datagrams.add(1);
  if (is_started_) parts_.notes.has_pending = true;
  return PacketDrop::kNone;
}

// Keeps the mbuf whose own buffer holds the bytes, and frees the rest of the frame.
void PortDatagramSocket::keep(rte_mbuf* frame, rte_mbuf* segment) noexcept {
  rte_mbuf* held = rte_mbuf_from_indirect(segment);
  if (held != frame || frame->nb_segs > 1) {
    rte_mbuf_refcnt_update(held, 1);
    rte_pktmbuf_free(frame);
  }
  BP_ASSERT(kept_count_ < shape_.buffer_count);
  hint_of(held).store(kept_count_, std::memory_order_relaxed);
  kept_[kept_count_++] = held;
}

void PortDatagramSocket::deliver() noexcept {
  if (!is_pending()) return;
  BP_KEEPS_VALID(*this);
  BP_ASSERT(lent_count_ == 0);
  const uint32_t count = pending_count_;
  const uint32_t generation = generation_;
  lent_count_ = count;
  pending_count_ = 0;
  owner_.received(owner_.context, {batch_->received, count});
  lent_count_ = 0;
  // If received() closed the socket, kept datagrams stay valid; if it also reopened it, they do
  // not.
  const bool may_keep = generation == generation_ || !is_open_;
  for (uint32_t i = 0; i < count; ++i) {
    if (batch_->received[i].is_kept && may_keep) {
      keep(batch_->frames[i], batch_->segments[i]);
    } else {
      rte_pktmbuf_free(batch_->frames[i]);
    }
  }
}

void PortDatagramSocket::release(const std::byte* bytes) noexcept {
  BP_KEEPS_VALID(*this);
  rte_mbuf* mbuf = parts_.frames.queue().find(bytes);
  BP_REQUIRE(mbuf != nullptr,
             "a datagram is given back to another socket than its own: DatagramSocket::release");
  uint32_t index = hint_of(mbuf).load(std::memory_order_relaxed);
  if (index >= kept_count_ || kept_[index] != mbuf) {
    index = static_cast<uint32_t>(std::find(&kept_[0], &kept_[0] + kept_count_, mbuf) - &kept_[0]);
  }
  BP_REQUIRE(index < kept_count_,
             "a datagram is given back that was not kept: DatagramSocket::release");
  kept_[index] = kept_[--kept_count_];
  if (index < kept_count_) hint_of(kept_[index]).store(index, std::memory_order_relaxed);
  rte_pktmbuf_free_seg(mbuf);
}

void PortDatagramSocket::tell_failure(int error_number, const DatagramAddress& to) noexcept {
  if (is_started_ && owner_.failed != nullptr) owner_.failed(owner_.context, error_number, to);
}

uint32_t PortDatagramSocket::tell_room() noexcept {
  if (!wants_room_) return 0;
  BP_ASSERT(is_open_);
  wants_room_ = false;
  if (owner_.has_room != nullptr) owner_.has_room(owner_.context);
  return 1;
}

// ---- Sending ------------------------------------------------------------------------------------

int PortDatagramSocket::find_route(const OutgoingDatagram& datagram, LastRoute& last) noexcept {
  const DatagramAddress& to = datagram.to.is_there() ? datagram.to : peer_;
  if (last.is_there && is_same_end(last.to, to) && is_same(last.from, datagram.from)) {
    return last.error_number;
  }
  last.is_there = true;
  last.to = to;
  last.from = datagram.from;
  const auto check = [&] {
    if (!to.is_there()) return EDESTADDRREQ;
    if (to.ip.family != local_.ip.family) return EAFNOSUPPORT;
    if (to.port == 0) return EINVAL;
    IpAddress from = datagram.from;
    if (from.family == 0 && !is_unspecified(local_.ip) && !is_multicast(local_.ip))
      from = local_.ip;
    if (from.family != 0 && !parts_.routes.is_own(from)) return EADDRNOTAVAIL;
    return parts_.route_finder.find(to.ip, from, parts_.time.now_ns, last.route);
  };
  return last.error_number = check();
}

rte_mbuf* PortDatagramSocket::make_frame(const OutgoingDatagram& datagram, const LastRoute& last,
                                         uint32_t offset_bytes, uint32_t bytes) noexcept {
  DatagramFields fields;
  fields.ip.from = last.route.from;
  fields.ip.to = last.to.ip;
  fields.ip.traffic_class =
      static_cast<uint8_t>(service_class_ << 2 | static_cast<int>(datagram.ecn));
  if (is_multicast(last.to.ip)) fields.ip.hops = multicast_hops_;
  fields.from_port = local_.port;
  fields.to_port = last.to.port;
  fields.bytes = datagram.bytes + offset_bytes;
  fields.byte_count = bytes;
  rte_mbuf* frame = parts_.datagrams.make(fields);
  if (frame != nullptr) FrameSender::set_destination(frame, last.route.mac);
  return frame;
}

void PortDatagramSocket::note_sent(uint32_t bytes) noexcept {
  parts_.counters.sent_datagrams.add(1);
  parts_.counters.sent_bytes.add(bytes);
}

// Returns whether the port took all frames. Frees the others; `done` then stops before them.
bool PortDatagramSocket::flush(Outgoing& outgoing) noexcept {
  const uint32_t count = outgoing.count;
  BP_ASSERT(count <= kBatchMax);
  if (count == 0) return true;
  outgoing.count = 0;
  const uint32_t sent = parts_.frames.send_batch({outgoing.frames, count});
  for (uint32_t i = 0; i < sent; ++i) {
    note_sent(outgoing.bytes[i]);
    if (outgoing.is_looped[i]) parts_.looped.push(outgoing.frames[i]);
    outgoing.done = outgoing.after[i];
  }
  for (uint32_t i = sent; i < count; ++i) {
    if (outgoing.is_looped[i]) rte_pktmbuf_free(outgoing.frames[i]);
    rte_pktmbuf_free(outgoing.frames[i]);
  }
  return sent == count;
}

DatagramsSent PortDatagramSocket::send_batch(std::span<OutgoingDatagram> datagrams) noexcept {
  BP_KEEPS_VALID(*this);
  BP_REQUIRE(is_started_, "a datagram socket sends before it was started: DatagramSocket::start");
  DatagramsSent result;
  Outgoing outgoing;
  LastRoute last;
  Cursor cursor;
  while (cursor.index < datagrams.size()) {
    const OutgoingDatagram& datagram = datagrams[cursor.index];
    uint32_t bytes = datagram.byte_count - cursor.offset_bytes;
    if (datagram.segment_bytes != 0) bytes = std::min(bytes, datagram.segment_bytes);
    int error_number = find_route(datagram, last);
    const DatagramRoute& route = last.route;
    if (error_number == 0 &&
        bytes + DatagramSender::header_bytes(local_.ip.family) > route.mtu_bytes) {
      error_number = EMSGSIZE;
    }
    rte_mbuf* frame = nullptr;
    if (error_number == 0) frame = make_frame(datagram, last, cursor.offset_bytes, bytes);
    if (frame == nullptr) {
      const bool is_refused = flush(outgoing) && error_number != 0;
      result.status = is_refused ? DatagramStatus::kRefused : DatagramStatus::kAgain;
      result.error_number = is_refused ? error_number : 0;
      break;
    }
    BP_DCHECK(rte_pktmbuf_pkt_len(frame) > bytes);
    cursor.offset_bytes += bytes;
    BP_DCHECK(cursor.offset_bytes <= datagram.byte_count);
    if (cursor.offset_bytes == datagram.byte_count) cursor = {cursor.index + 1, 0};
    const bool is_group = is_multicast(last.to.ip);
    const bool stays = route.is_own || (is_group && multicast_hops_ == 0);
    if (stays || route.waits_for != nullptr) {
      // Earlier frames must be sent first: if one is refused, the caller sends this one again, too.
      if (!flush(outgoing)) {
        rte_pktmbuf_free(frame);
        result.status = DatagramStatus::kAgain;
        break;
      }
      note_sent(bytes);
      outgoing.done = cursor;
      if (route.waits_for != nullptr) {
        parts_.neighbours.wait(*route.waits_for, frame);
      } else if (is_group && !hears_own_multicast_) {
        rte_pktmbuf_free(frame);
      } else {
        parts_.looped.push(frame);
      }
      continue;
    }
    const uint32_t slot = outgoing.count++;
    outgoing.frames[slot] = frame;
    outgoing.after[slot] = cursor;
    outgoing.bytes[slot] = bytes;
    outgoing.is_looped[slot] =
        is_group && hears_own_multicast_ && parts_.ports.has_listeners(last.to.ip, last.to.port);
    if (outgoing.is_looped[slot]) rte_pktmbuf_refcnt_update(frame, 1);
    if (outgoing.count == kBatchMax && !flush(outgoing)) {
      result.status = DatagramStatus::kAgain;
      break;
    }
  }
  if (result.status == DatagramStatus::kDone && !flush(outgoing)) {
    result.status = DatagramStatus::kAgain;
  }
  if (result.status == DatagramStatus::kAgain) {
    wants_room_ = true;
    parts_.notes.wants_room = true;
  }
  result.sent_count = outgoing.done.index;
  BP_ASSERT(result.sent_count <= datagrams.size());
  if (outgoing.done.offset_bytes > 0) {
    datagrams[outgoing.done.index].bytes += outgoing.done.offset_bytes;
    datagrams[outgoing.done.index].byte_count -= outgoing.done.offset_bytes;
  }
  return result;
}

}  // namespace bedplate
