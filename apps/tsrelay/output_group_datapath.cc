#include "apps/tsrelay/output_group_datapath.h"

#include <algorithm>
#include <cerrno>

namespace bedplate::relay {
namespace {

constexpr uint64_t kLookNs = 1'000'000'000;

}  // namespace

void OutputGroup::create(PacketRing& ring, DatagramSocket& socket, OutputGroup* aside,
                         uint32_t output_count_max) {
  BP_ASSERT(ring_ == nullptr && (aside == nullptr || aside->main_ == nullptr));
  ring_ = &ring;
  socket_ = &socket;
  aside_ = aside;
  if (aside != nullptr) aside->main_ = this;
  members_.reserve(output_count_max);
  ring.add_tap(*this);
  number_ = block_end_ = next_;
}

DatagramOwner OutputGroup::owner() noexcept {
  DatagramOwner owner;
  owner.context = this;
  owner.received = [](void*, std::span<ReceivedDatagram>) noexcept {};  // outputs ignore datagrams
  owner.has_room = [](void* self) noexcept {
    static_cast<OutputGroup*>(self)->is_blocked_ = false;
  };
  owner.failed = [](void* self, int error_number, const DatagramAddress& to) noexcept {
    static_cast<OutputGroup*>(self)->failed(error_number, to);
  };
  return owner;
}

bool OutputGroup::wants(const Output& output, const Packet& packet,
                        uint64_t number) const noexcept {
  if (number < output.first_number || output.is_muted) return false;
  if (packet.kind == PacketKind::kEmpty) return !output.is_plain;
  return packet.kind == PacketKind::kMedia || output.has_fec;
}

void OutputGroup::write(const Output& output, const Packet& packet,
                        OutgoingDatagram* datagram) noexcept {
  BP_DCHECK(packet.rtp.header_bytes + packet.payload_bytes <= packet.byte_count);
  datagram->bytes = packet.bytes;
  datagram->byte_count = packet.byte_count;
  datagram->to = output.to;
  if (packet.kind == PacketKind::kColumn || packet.kind == PacketKind::kRow) {
    const uint16_t beside = packet.kind == PacketKind::kColumn ? kFecColumnPort : kFecRowPort;
    datagram->to.port = static_cast<uint16_t>(datagram->to.port + beside);
  } else if (output.is_plain) {
    datagram->bytes += packet.rtp.header_bytes;
    datagram->byte_count = packet.payload_bytes;
  } else if (output.adds_rtp && packet.has_added_rtp) {
    datagram->bytes -= kRtpHeaderBytes;
    datagram->byte_count += kRtpHeaderBytes;
  }
}

uint32_t OutputGroup::fill(Cursor* cursor) noexcept {
  BP_DCHECK(next_ < block_end_ && cursor->number < block_end_);
  uint32_t count = 0;
  while (count < kBatchMax && cursor->member < members_.size()) {
    const Output& output = *members_[cursor->member];
    const Packet& packet = ring_->at(cursor->number);
    if (wants(output, packet, cursor->number)) {
      write(output, packet, &datagrams_[count]);
      cursors_[count++] = *cursor;
    }
    if (++cursor->number == block_end_) *cursor = {cursor->member + 1, next_};
  }
  return count;
}

void OutputGroup::begin_block(uint64_t end) noexcept {
  number_ = next_;
  member_ = 0;
  block_end_ = end;
}

// Moves to `cursor`. next_ passes the packets that all members have had.
void OutputGroup::go_to(Cursor cursor) noexcept {
  if (cursor.number >= block_end_) cursor = {cursor.member + 1, next_};
  BP_DCHECK(cursor.member <= members_.size() && cursor.number >= next_);
  member_ = cursor.member;
  number_ = cursor.number;
  if (member_ + 1 == members_.size()) next_ = number_;
  if (member_ < members_.size()) return;
  next_ = block_end_;
  begin_block(next_);
}

// Sends `count` datagrams. Returns false if the socket's queue is full.
bool OutputGroup::send(uint32_t count, Cursor end) noexcept {
  BP_DCHECK(count > 0 && count <= kBatchMax);
  const DatagramsSent result = socket_->send_batch({datagrams_, count});
  BP_DCHECK(result.sent_count <= count);
  BP_DCHECK((result.sent_count == count) == (result.status == DatagramStatus::kDone));
  for (uint32_t i = 0; i < result.sent_count; ++i) {
    OutputCounters& counters = *members_[cursors_[i].member]->counters;
    counters.packets.add(1);
    counters.bytes.add(datagrams_[i].byte_count);
  }
  if (result.sent_count == count) {
    go_to(end);
    return true;
  }
  Cursor at = cursors_[result.sent_count];
  if (result.status == DatagramStatus::kRefused) {
    members_[at.member]->counters->refused.add(1);
    ++at.number;
  }
  is_blocked_ = result.status == DatagramStatus::kAgain;
  go_to(at);
  return !is_blocked_;
}

uint32_t OutputGroup::pump(uint64_t now_ns) noexcept {
  BP_KEEPS_VALID(*this);
  const uint64_t begun_at = next_;
  now_ns_ = now_ns;
  if (main_ != nullptr) bring_back(now_ns);
  if (members_.empty()) {
    next_ = ring_->ready_end();
    begin_block(next_);
    return 0;
  }
  while (!is_blocked_ && next_ < ring_->ready_end()) {
    if (next_ == block_end_) begin_block(std::min(ring_->ready_end(), next_ + kBlockMax));
    Cursor cursor = {member_, number_};
    const uint32_t count = fill(&cursor);
    if (count == 0) {
      go_to(cursor);
    } else if (!send(count, cursor)) {
      break;
    }
  }
  return static_cast<uint32_t>(next_ - begun_at);
}

void OutputGroup::missed(const Packet& packet) noexcept {
  if (next_ == block_end_) block_end_ = next_ + 1;  // no member has had it
  for (size_t i = member_; i < members_.size(); ++i) {
    const bool had_it = i == member_ && number_ > next_;
    if (!had_it && wants(*members_[i], packet, next_)) members_[i]->counters->dropped.add(1);
  }
  const uint64_t left = next_ + 1;  // the ring continues from here
  number_ = std::max(number_, left);
  if (left == block_end_) {
    number_ = left;
    member_ = 0;
  }
}

// An earlier datagram to `to` has failed. The datagrams of the current call are not lost.
void OutputGroup::failed(int error_number, const DatagramAddress& to) noexcept {
  BP_KEEPS_VALID(*this);
  for (size_t i = members_.size(); i-- > 0;) {
    Output& output = *members_[i];
    const auto beside = static_cast<uint16_t>(to.port - output.to.port);
    const bool is_it =
        output.to.ip == to.ip &&
        (beside == 0 || (output.has_fec && (beside == kFecColumnPort || beside == kFecRowPort)));
    if (!is_it) continue;
    output.counters->unreachable.add(1);
    output.failed_ns = now_ns_;
    const bool is_nobody = error_number == EHOSTUNREACH || error_number == ENETUNREACH;
    if (is_nobody && aside_ != nullptr) move(i, *aside_);
  }
}

// Moves a member to the other group. It continues with the first packet that it has not had or, if
// the other group is past that packet, with that group's next one.
void OutputGroup::move(size_t index, OutputGroup& other) noexcept {
  BP_ASSERT(index < members_.size() && (&other == aside_ || &other == main_));
  Output& output = *members_[index];
  const uint64_t had_end = index < member_ ? block_end_ : index == member_ ? number_ : next_;
  const uint64_t wanted = std::max(had_end, output.first_number);
  for (uint64_t number = wanted; number < other.next_; ++number) {
    if (wants(output, ring_->at(number), number)) output.counters->dropped.add(1);
  }
  output.first_number = wanted;
  output.counters->is_aside.set(&other == aside_ ? 1 : 0);
  members_.erase(members_.begin() + static_cast<std::ptrdiff_t>(index));
  if (next_ < block_end_) {
    go_to(index < member_    ? Cursor{member_ - 1, number_}
          : index == member_ ? Cursor{member_, next_}
                             : Cursor{member_, number_});
  }
  BP_ASSERT(other.members_.size() < other.members_.capacity());
  other.members_.insert(other.members_.end(), &output);
}

void OutputGroup::bring_back(uint64_t now_ns) noexcept {
  if (now_ns < look_ns_) return;
  look_ns_ = now_ns + kLookNs;
  for (size_t i = members_.size(); i-- > 0;) {
    if (now_ns >= members_[i]->failed_ns + kAsideNs) move(i, *main_);
  }
}

}  // namespace bedplate::relay
