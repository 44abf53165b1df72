// The datapath of a UdpSocket.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include <linux/errqueue.h>
#include <netinet/udp.h>
#include <poll.h>

#include "platform/assert.h"
#include "platform/units.h"
#include "transport/udp/udp_socket.h"

namespace bedplate {
namespace {

// The kernel's limits for a message that it cuts (UDP_MAX_SEGMENTS, and the most that IPv4
// carries).
constexpr uint32_t kCutCountMax = 64;
constexpr uint32_t kMessageBytesMax = 65507;
// A call may report an earlier datagram's error, once, instead of doing its work; then it is
// repeated. A second error may come in between.
constexpr int kAttemptCount = 4;
// Errors reported per call, so that a flood of them does not keep the shard.
constexpr int kErrorCountMax = 32;
constexpr uint8_t kEcnMask = 3;

uint32_t segment_count(uint32_t bytes, uint32_t segment_bytes) noexcept {
  if (segment_bytes == 0 || bytes <= segment_bytes) return 1;
  return (bytes + segment_bytes - 1) / segment_bytes;
}

template <typename Value>
Value value_of(const cmsghdr& control) noexcept {
  Value value;
  std::memcpy(&value, CMSG_DATA(&control), sizeof value);
  return value;
}

template <typename Value>
void add_control(msghdr& message, int level, int type, const Value& value) noexcept {
  auto* control = reinterpret_cast<cmsghdr*>(static_cast<std::byte*>(message.msg_control) +
                                             message.msg_controllen);
  control->cmsg_level = level;
  control->cmsg_type = type;
  control->cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(CMSG_DATA(control), &value, sizeof value);
  message.msg_controllen += CMSG_SPACE(sizeof value);
}

// Space for control messages: the kernel's about a datagram (read_control), and ours to the kernel
// (write_message).
constexpr size_t kToldBytes = CMSG_SPACE(sizeof(in6_pktinfo)) + CMSG_SPACE(sizeof(int)) +
                              CMSG_SPACE(sizeof(timespec)) + CMSG_SPACE(sizeof(uint32_t)) +
                              CMSG_SPACE(sizeof(int));
constexpr size_t kSaidBytes =
    CMSG_SPACE(sizeof(in6_pktinfo)) + CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(uint16_t));

}  // namespace

bool UdpSocket::is_valid() const noexcept {
  if (!is_open()) return !is_started_ && !watch_.is_watched() && !refusal_.is_armed();
  if ((watch_.is_watched() || refusal_.is_armed()) && !is_started_) return false;
  if (refusal_.is_armed() && refused_with_ == 0) return false;
  if (is_started_ && (can_serve() & ~(watch_.is_watched() ? watch_.events : 0)) != 0) return false;
  const uint64_t count = shape_.buffer_count;
  uint64_t found_count = free_count_;
  uint64_t sum = 0;  // the sum of all indices shows that none is in two lists
  for (uint32_t i = 0; i < free_count_; ++i) {
    if (free_[i] >= count || is_kept_[free_[i]]) return false;
    sum += free_[i];
  }
  for (uint32_t i = 0; i < count; ++i) {
    found_count += is_kept_[i];
    sum += is_kept_[i] ? i : 0;
  }
  for (uint32_t i = 0; i < lent_count_; ++i) sum += in_->buffers[i];
  return found_count + lent_count_ == count && sum == count * (count - 1) / 2;
}

void UdpSocket::ready(uint32_t events) noexcept {
  BP_DCHECK(sockets_.loop().is_own_thread());
  BP_KEEPS_VALID(*this);
  const uint32_t generation = generation_;
  if ((events & POLLNVAL) != 0) return;
  if ((events & POLLERR) != 0) tell_errors();
  if (generation == generation_ && (events & (POLLIN | POLLERR)) != 0) receive_batch();
  if (generation == generation_ && (events & POLLOUT) != 0 && wants_room_) {
    wants_room_ = false;
    if (owner_.has_room != nullptr) owner_.has_room(owner_.context);
  }
  if (generation == generation_) update_watch();
}

// Receives only if a buffer is free or in received(), where it becomes free soon, or kept.
uint32_t UdpSocket::can_serve() const noexcept {
  return (free_count_ + lent_count_ > 0 ? uint32_t{POLLIN} : 0) |
         (wants_room_ ? uint32_t{POLLOUT} : 0);
}

void UdpSocket::update_watch() noexcept {
  BP_ASSERT(is_started_);
  const uint32_t events = can_serve();
  if (events == (watch_.is_watched() ? watch_.events : 0)) return;
  sockets_.stop_watching(watch_);
  watch_.events = events;
  if (events == 0) return;
  const int outcome = sockets_.start_watching(watch_);
  BP_ASSERT(outcome == 0 && "its watch was free a moment ago");
}

// ---- Receiving ----------------------------------------------------------------------------------

void UdpSocket::read_control(const msghdr& message, ReceivedDatagram& datagram) noexcept {
  static_assert(kToldBytes <= kControlBytes);
  BP_DCHECK((message.msg_flags & MSG_CTRUNC) == 0 && "the kernel said more than there is room for");
  auto& its = const_cast<msghdr&>(message);  // CMSG_NXTHDR writes nothing
  for (cmsghdr* one = CMSG_FIRSTHDR(&its); one != nullptr; one = CMSG_NXTHDR(&its, one)) {
    const int type = one->cmsg_type;
    if (one->cmsg_level == SOL_IP && type == IP_PKTINFO) {
      datagram.to.family = AF_INET;
      const auto info = value_of<in_pktinfo>(*one);
      std::memcpy(datagram.to.bytes, &info.ipi_addr, sizeof info.ipi_addr);
    } else if (one->cmsg_level == SOL_IPV6 && type == IPV6_PKTINFO) {
      datagram.to.family = AF_INET6;
      const auto info = value_of<in6_pktinfo>(*one);
      std::memcpy(datagram.to.bytes, &info.ipi6_addr, sizeof info.ipi6_addr);
    } else if (one->cmsg_level == SOL_IP && type == IP_TOS) {
      datagram.ecn = static_cast<Ecn>(value_of<uint8_t>(*one) & kEcnMask);
    } else if (one->cmsg_level == SOL_IPV6 && type == IPV6_TCLASS) {
      datagram.ecn = static_cast<Ecn>(value_of<int>(*one) & kEcnMask);
    } else if (one->cmsg_level == SOL_SOCKET && type == SCM_TIMESTAMPNS) {
      const auto time = value_of<timespec>(*one);
      datagram.received_ns =
          static_cast<uint64_t>(time.tv_sec) * kNsPerSecond + static_cast<uint64_t>(time.tv_nsec);
    } else if (one->cmsg_level == SOL_SOCKET && type == SO_RXQ_OVFL) {
      const auto dropped = value_of<uint32_t>(*one);  // since it was opened; may wrap around
      sockets_.counters().dropped_datagrams.add(dropped - dropped_count_);
      dropped_count_ = dropped;
    } else if (one->cmsg_level == SOL_UDP && type == UDP_GRO) {
      datagram.segment_bytes = static_cast<uint32_t>(value_of<int>(*one));
    }
  }
  if (datagram.segment_bytes >= datagram.byte_count) datagram.segment_bytes = 0;
}

void UdpSocket::receive_batch() noexcept {
  const uint32_t wanted = std::min(free_count_, kBatchMax);
  if (wanted == 0) return;
  Batch& batch = *in_;
  for (uint32_t i = 0; i < wanted; ++i) {
    Envelope& envelope = batch.envelopes[i];
    batch.buffers[i] = free_[free_count_ - 1 - i];
    envelope.piece = {memory_ + uint64_t{batch.buffers[i]} * shape_.buffer_bytes + headroom_bytes_,
                      shape_.buffer_bytes - headroom_bytes_};
    msghdr& message = batch.messages[i].msg_hdr;
    message = {};
    message.msg_name = &envelope.name;
    message.msg_namelen = sizeof envelope.name;
    message.msg_iov = &envelope.piece;
    message.msg_iovlen = 1;
    message.msg_control = envelope.control;
    message.msg_controllen = sizeof envelope.control;
  }
  const int outcome = recvmmsg(fd_.number(), batch.messages, wanted, MSG_DONTWAIT, nullptr);
  SocketCounters& counters = sockets_.counters();
  counters.system_calls.add(1);
  if (outcome <= 0) return;  // nothing there, or an error that the error queue has, too
  const auto count = static_cast<uint32_t>(outcome);
  for (uint32_t i = 0; i < count; ++i) {
    const msghdr& message = batch.messages[i].msg_hdr;
    ReceivedDatagram& datagram = batch.received[i];
    datagram = {};
    datagram.bytes = static_cast<std::byte*>(batch.envelopes[i].piece.iov_base);
    datagram.byte_count = batch.messages[i].msg_len;
    datagram.from = from_kernel(batch.envelopes[i].name);
    datagram.is_truncated = (message.msg_flags & MSG_TRUNC) != 0;
    read_control(message, datagram);
    counters.received_bytes.add(datagram.byte_count);
    counters.received_datagrams.add(segment_count(datagram.byte_count, datagram.segment_bytes));
    if (datagram.is_truncated) counters.truncated_datagrams.add(1);
  }
  BP_ASSERT(count <= wanted && lent_count_ == 0);
  free_count_ -= count;
  lent_count_ = count;
  const uint32_t generation = generation_;
  owner_.received(owner_.context, {batch.received, count});
  if (generation != generation_) return;  // closed: the buffers were given back, or are not needed
  lent_count_ = 0;
  for (uint32_t i = count; i-- > 0;) {
    if (batch.received[i].is_kept) {
      is_kept_[batch.buffers[i]] = true;
    } else {
      free_[free_count_++] = batch.buffers[i];
    }
  }
}

void UdpSocket::release(const std::byte* bytes) noexcept {
  BP_DREQUIRE_THREAD(sockets_.loop().is_own_thread(), "DatagramSocket::release");
  BP_KEEPS_VALID(*this);
  BP_REQUIRE(bytes >= memory_ && bytes < memory_ + shape_.bytes(),
             "a datagram is given back to another socket than its own: DatagramSocket::release");
  const auto buffer =
      static_cast<uint32_t>(static_cast<uint64_t>(bytes - memory_) / shape_.buffer_bytes);
  BP_REQUIRE(is_kept_[buffer],
             "a datagram is given back that was not kept: DatagramSocket::release");
  is_kept_[buffer] = false;
  free_[free_count_++] = buffer;
  if (is_started_ && free_count_ == 1) update_watch();
}

// Reports errors that came back for earlier datagrams, until there are none.
void UdpSocket::tell_errors() noexcept {
  const uint32_t generation = generation_;
  int told_count = 0;
  for (; told_count < kErrorCountMax; ++told_count) {
    sockaddr_in6 name = {};
    alignas(cmsghdr) std::byte control[512];
    std::byte ignored[1];
    iovec piece = {ignored, sizeof ignored};
    msghdr message = {};
    message.msg_name = &name;
    message.msg_namelen = sizeof name;
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    sockets_.counters().system_calls.add(1);
    if (recvmsg(fd_.number(), &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) break;
    int error_number = 0;
    for (cmsghdr* one = CMSG_FIRSTHDR(&message); one != nullptr; one = CMSG_NXTHDR(&message, one)) {
      const bool is_error = (one->cmsg_level == SOL_IP && one->cmsg_type == IP_RECVERR) ||
                            (one->cmsg_level == SOL_IPV6 && one->cmsg_type == IPV6_RECVERR);
      if (is_error) error_number = static_cast<int>(value_of<sock_extended_err>(*one).ee_errno);
    }
    if (error_number == 0 || owner_.failed == nullptr) continue;
    owner_.failed(owner_.context, error_number, from_kernel(name));
    if (generation != generation_) return;
  }
  int error_number = 0;
  socklen_t bytes = sizeof error_number;
  getsockopt(fd_.number(), SOL_SOCKET, SO_ERROR, &error_number, &bytes);  // and clears it
  if (told_count > 0 || error_number == 0 || owner_.failed == nullptr) return;
  owner_.failed(owner_.context, error_number, {});
}

// ---- Sending ------------------------------------------------------------------------------------

// The bytes of the datagram's rest that the next message takes.
uint32_t UdpSocket::piece_bytes(const OutgoingDatagram& datagram,
                                uint32_t left_bytes) const noexcept {
  BP_DCHECK(left_bytes <= datagram.byte_count && "more of it was sent than it has");
  const uint32_t segment = datagram.segment_bytes;
  if (segment == 0 || left_bytes <= segment) return left_bytes;
  if (refused_with_ != 0) return segment;
  const uint32_t count = std::min(kMessageBytesMax / segment, kCutCountMax);
  return std::min(left_bytes, segment * std::max(count, 1U));
}

// How many datagrams from the front can go as one message that the kernel cuts: all have the first
// one's length, except the last, which may be shorter.
uint32_t UdpSocket::joinable_count(std::span<const OutgoingDatagram> datagrams,
                                   uint32_t count_max) const noexcept {
  const OutgoingDatagram& first = datagrams.front();
  if (refused_with_ != 0 || first.segment_bytes != 0 || first.byte_count == 0) return 1;
  if (first.byte_count > joined_bytes_max_) return 1;
  const uint32_t most = std::min({count_max, kCutCountMax, kMessageBytesMax / first.byte_count,
                                  static_cast<uint32_t>(datagrams.size())});
  uint32_t count = 1;
  while (count < most) {
    const OutgoingDatagram& next = datagrams[count];
    const bool fits = next.segment_bytes == 0 && next.byte_count > 0 &&
                      next.byte_count <= first.byte_count && next.ecn == first.ecn &&
                      next.to == first.to && next.from == first.from;
    if (!fits) break;
    ++count;
    if (next.byte_count < first.byte_count) break;
  }
  return count;
}

void UdpSocket::write_message(const OutgoingDatagram& datagram, std::span<iovec> pieces,
                              uint32_t segment_bytes, uint32_t slot) noexcept {
  static_assert(kSaidBytes <= kControlBytes);
  BP_DCHECK(segment_bytes <= kMessageBytesMax);
  Batch& batch = *out_;
  Envelope& envelope = batch.envelopes[slot];
  msghdr& message = batch.messages[slot].msg_hdr;
  message = {};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  if (datagram.to.is_there()) {
    message.msg_namelen = to_kernel(datagram.to, &envelope.name);
    message.msg_name = &envelope.name;
  }
  message.msg_control = envelope.control;
  if (datagram.from.family == AF_INET) {
    in_pktinfo info = {};
    std::memcpy(&info.ipi_spec_dst, datagram.from.bytes, sizeof info.ipi_spec_dst);
    add_control(message, SOL_IP, IP_PKTINFO, info);
  } else if (datagram.from.family == AF_INET6) {
    in6_pktinfo info = {};
    std::memcpy(&info.ipi6_addr, datagram.from.bytes, sizeof info.ipi6_addr);
    add_control(message, SOL_IPV6, IPV6_PKTINFO, info);
  }
  if (datagram.ecn != Ecn::kNone) {
    const int traffic_class = service_class_ << 2 | static_cast<int>(datagram.ecn);
    add_control(message, is_ipv6_ ? SOL_IPV6 : SOL_IP, is_ipv6_ ? IPV6_TCLASS : IP_TOS,
                traffic_class);
  }
  if (segment_bytes != 0) {
    add_control(message, SOL_UDP, UDP_SEGMENT, static_cast<uint16_t>(segment_bytes));
  }
  if (message.msg_controllen == 0) message.msg_control = nullptr;
}

// Writes the messages of the next call, and returns how many there are.
uint32_t UdpSocket::write_batch(std::span<OutgoingDatagram> datagrams, Cursor cursor) noexcept {
  uint32_t slot = 0;
  uint32_t piece_count = 0;
  while (slot < kBatchMax && piece_count < kPieceMax && cursor.index < datagrams.size()) {
    const OutgoingDatagram& first = datagrams[cursor.index];
    iovec* const pieces = &pieces_[piece_count];
    Share& share = shares_[slot];
    share = {.datagram_count =
                 joinable_count(datagrams.subspan(cursor.index), kPieceMax - piece_count)};
    for (uint32_t i = 0; i < share.datagram_count; ++i) {
      const OutgoingDatagram& one = datagrams[cursor.index + i];
      const uint32_t bytes = piece_bytes(one, one.byte_count - cursor.offset_bytes);
      pieces[i] = {const_cast<std::byte*>(one.bytes) + cursor.offset_bytes, bytes};
      share.bytes += bytes;
    }
    const bool is_joined = share.datagram_count > 1;
    const uint32_t cut_bytes = is_joined ? first.byte_count : first.segment_bytes;
    share.segment_count = segment_count(share.bytes, cut_bytes);
    BP_DCHECK(share.segment_count <= kCutCountMax);
    BP_DCHECK(share.segment_count == 1 || share.bytes <= kMessageBytesMax);
    write_message(first, {pieces, share.datagram_count}, share.segment_count > 1 ? cut_bytes : 0,
                  slot++);
    piece_count += share.datagram_count;
    cursor = behind(cursor, share, datagrams);
  }
  return slot;
}

UdpSocket::Cursor UdpSocket::behind(Cursor cursor, const Share& share,
                                    std::span<const OutgoingDatagram> datagrams) const noexcept {
  if (share.datagram_count > 1) return {cursor.index + share.datagram_count, 0};
  cursor.offset_bytes += share.bytes;
  BP_DCHECK(cursor.offset_bytes <= datagrams[cursor.index].byte_count);
  const bool is_whole = cursor.offset_bytes == datagrams[cursor.index].byte_count;
  return is_whole ? Cursor{cursor.index + 1, 0} : cursor;
}

// Whether the kernel refused to cut, so that the same datagrams must be sent one by one. `first` is
// the first refused datagram.
bool UdpSocket::note_segmenting_refused(int error_number, const OutgoingDatagram& first) noexcept {
  const bool is_refusal = error_number == EINVAL || error_number == EIO ||
                          error_number == EOPNOTSUPP || error_number == ENOPROTOOPT ||
                          error_number == EMSGSIZE;
  if (!is_refusal || shares_[0].segment_count <= 1) return false;
  BP_ASSERT(refused_with_ == 0 && "it was cut although the kernel cuts nothing");
  if (error_number == EMSGSIZE && first.segment_bytes == 0) {
    // By itself each is sent as fragments; shorter datagrams can still be joined.
    BP_DCHECK(first.byte_count > 0 && first.byte_count <= joined_bytes_max_);
    joined_bytes_max_ = first.byte_count - 1;
    return true;
  }
  refused_with_ = error_number;
  EventLoop& loop = sockets_.loop();
  loop.own_timers().arm(refusal_, loop.now_ns());
  return true;
}

void UdpSocket::forget_segmenting_refused() noexcept {
  refused_with_ = 0;
  sockets_.loop().own_timers().cancel(refusal_);
}

DatagramsSent UdpSocket::send_batch(std::span<OutgoingDatagram> datagrams) noexcept {
  BP_DREQUIRE_THREAD(sockets_.loop().is_own_thread(), "DatagramSocket::send_batch");
  BP_KEEPS_VALID(*this);
  BP_REQUIRE(is_started_, "a datagram socket sends before it was started: DatagramSocket::start");
  SocketCounters& counters = sockets_.counters();
  DatagramsSent result;
  Cursor cursor;
  int attempts = 0;
  bool is_refusal_open = false;  // whether the kernel refused the cutting is still to be seen
  while (cursor.index < datagrams.size()) {
    const uint32_t count = write_batch(datagrams, cursor);
    const int outcome = sendmmsg(fd_.number(), out_->messages, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    const int error_number = outcome < 0 ? errno : 0;
    counters.system_calls.add(1);
    for (int i = 0; i < outcome; ++i) {
      counters.sent_bytes.add(shares_[i].bytes);
      counters.sent_datagrams.add(shares_[i].segment_count);
      cursor = behind(cursor, shares_[i], datagrams);
    }
    if (outcome > 0) {
      attempts = 0;
      is_refusal_open = false;
    }
    if (outcome >= 0 || error_number == EINTR) continue;
    if (error_number == EAGAIN || error_number == ENOBUFS) {
      result.status = DatagramStatus::kAgain;
      wants_room_ = true;
      update_watch();
      break;
    }
    if (note_segmenting_refused(error_number, datagrams[cursor.index])) {
      is_refusal_open = true;
      continue;
    }
    if (++attempts < kAttemptCount) continue;
    if (is_refusal_open) forget_segmenting_refused();  // uncut it is refused as well
    result.status = DatagramStatus::kRefused;
    result.error_number = error_number;
    break;
  }
  result.sent_count = cursor.index;
  if (cursor.offset_bytes > 0) {
    datagrams[cursor.index].bytes += cursor.offset_bytes;
    datagrams[cursor.index].byte_count -= cursor.offset_bytes;
  }
  return result;
}

}  // namespace bedplate
