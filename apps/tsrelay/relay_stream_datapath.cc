#include "apps/tsrelay/relay_stream_datapath.h"

namespace bedplate::relay {

bool RelayStream::is_valid() const noexcept {
  const uint64_t placed = arrival_count_ + merge_.held_count() + ring_.held_count() +
                          (waiting_ != PacketTable::kNone ? 1 : 0);
  if (arrival_count_ > options_.packet_count || placed > table_.used_count()) return false;
  return ring_.is_valid() && merge_.is_valid() && table_.is_valid() && pacer_.is_valid() &&
         inspector_->is_valid() && fec_sender_.is_valid() &&
         (fec_receiver_ == nullptr || fec_receiver_->is_valid());
}

// ---- Arrival ------------------------------------------------------------------------------------

DatagramOwner RelayStream::Inlet::owner() noexcept {
  DatagramOwner owner;
  owner.context = this;
  owner.received = [](void* context, std::span<ReceivedDatagram> datagrams) noexcept {
    const Inlet& its = *static_cast<Inlet*>(context);
    its.self->received(its, datagrams);
  };
  return owner;
}

DatagramOwner RelayStream::media_owner(uint32_t leg) noexcept {
  BP_ASSERT(leg < legs_.size());
  return legs_[leg].media.owner();
}

DatagramOwner RelayStream::fec_owner(uint32_t leg, bool is_row) noexcept {
  BP_ASSERT(leg < legs_.size() && fec_receiver_ != nullptr);
  return (is_row ? legs_[leg].row : legs_[leg].column).owner();
}

void RelayStream::received(const Inlet& inlet, std::span<ReceivedDatagram> datagrams) noexcept {
  BP_DCHECK(is_own_thread() && inlet.leg < legs_.size());
  for (ReceivedDatagram& datagram : datagrams) {
    if (datagram.is_truncated && inlet.is_fec) {
      legs_[inlet.leg].options.counters->truncated.add(1);
      continue;
    }
    const uint32_t index = table_.take();
    if (index == PacketTable::kNone) continue;  // never: there are as many packets as buffers
    Packet& packet = table_[index];
    packet.bytes = datagram.bytes;
    packet.byte_count = datagram.byte_count;
    packet.socket = inlet.socket;
    packet.received_ns = datagram.received_ns;
    packet.from = datagram.from;
    packet.leg = inlet.leg;
    packet.is_truncated = datagram.is_truncated;
    datagram.is_kept = true;
    BP_ASSERT(arrival_count_ < options_.packet_count);
    arrivals_[arrival_count_++] = {index, inlet.is_fec};
  }
}

// ---- Checks -------------------------------------------------------------------------------------

// Fills the packet's RTP fields and its kind.
DatagramContent RelayStream::look_at(Packet& packet) const noexcept {
  const DatagramContent its =
      content_of(packet.datagram(), packet.is_truncated, options_.format, &packet.rtp);
  const bool is_bare = its.content == Content::kTransport && !its.has_number;
  packet.payload_bytes = is_bare ? packet.byte_count : packet.rtp.payload_bytes;
  packet.kind = its.content == Content::kTransport ? PacketKind::kMedia
                : its.content == Content::kEmpty   ? PacketKind::kEmpty
                                                   : PacketKind::kNumber;
  return its;
}

namespace {

// Counts the cause of a datagram's drop.
void count_drop(LegCounters& counters, Content content) noexcept {
  switch (content) {
    case Content::kTransport:
    case Content::kEmpty: return;
    case Content::kTruncated: return counters.truncated.add(1);
    case Content::kNeither: return counters.rtp_malformed.add(1);
    case Content::kOtherType: return counters.other_type.add(1);
    case Content::kNotWhole: return counters.ts_malformed.add(1);
    case Content::kNoSync: return counters.no_sync.add(1);
  }
}

}  // namespace

bool RelayStream::is_any_alive(const Leg* but, uint64_t now_ns) const noexcept {
  return std::any_of(legs_.begin(), legs_.end(),
                     [&](const Leg& each) { return &each != but && each.lock.is_alive(now_ns); });
}

// Decides if the packet comes from the stream's sender. A new sender may replace a sender that is
// silent on all legs, or has restarted.
RelayStream::Admission RelayStream::admit(const Packet& packet, Leg& leg,
                                          uint64_t now_ns) noexcept {
  const uint32_t ssrc = packet.rtp.ssrc;
  Admission admission = Admission::kYes;
  if (!has_sender_ || ssrc != ssrc_) {
    if (has_sender_ && is_any_alive(nullptr, now_ns)) {
      const bool may_be_it = packet.rtp.header_bytes != 0 && leg.lock.has_address(packet.from);
      if (!may_be_it) return Admission::kForeign;
      switch (successor_.judge(packet.leg, ssrc, packet.rtp.sequence, ssrc_, now_ns)) {
        case SuccessorVerdict::kForeign: return Admission::kForeign;
        case SuccessorVerdict::kWaits: return Admission::kWaits;
        case SuccessorVerdict::kBelieved: admission = Admission::kBelieved;
      }
    }
    if (has_sender_) begin_anew();
    has_sender_ = true;
    ssrc_ = ssrc;
  }
  const SenderVerdict verdict = leg.lock.judge({packet.from, ssrc}, now_ns);
  if (verdict == SenderVerdict::kForeign) return Admission::kForeign;
  if (verdict == SenderVerdict::kNew) {
    if (!is_any_alive(&leg, now_ns)) learn_anew();  // else the other leg has the same stream
    leg.jitter.restart();
    leg.options.counters->senders.add(1);
  }
  return admission;
}

void RelayStream::begin_anew() noexcept {
  merge_.restart();
  for (Leg& leg : legs_) leg.lock.open();
}

// Forgets the numbers, tables and pace of the former sender.
void RelayStream::learn_anew() noexcept {
  merge_.restart();
  inspector_->forget();
  pacer_.forget();
}

void RelayStream::drop_waiting() noexcept {
  successor_.deny();
  if (waiting_ == PacketTable::kNone) return;
  legs_[table_[waiting_].leg].options.counters->foreign.add(1);
  table_.let_go(waiting_);
  waiting_ = PacketTable::kNone;
}

void RelayStream::judge(uint32_t index, uint64_t now_ns) noexcept {
  Packet& packet = table_[index];
  BP_DCHECK(packet.references == 1 && packet.leg < legs_.size());
  Leg& leg = legs_[packet.leg];
  LegCounters& counters = *leg.options.counters;
  packet.arrived_ns = now_ns;
  const DatagramContent its = look_at(packet);
  if (its.content != Content::kTransport) {
    count_drop(counters, its.content);
    if (its.has_number) return keep_number(index, now_ns);
    return table_.let_go(index);
  }
  // Packets without numbers cannot be merged: only the first leg's packets are taken.
  if (!its.has_number && &leg != legs_.data()) {
    counters.unnumbered.add(1);
    return table_.let_go(index);
  }
  const Admission admission = admit(packet, leg, now_ns);
  if (admission == Admission::kForeign) {
    counters.foreign.add(1);
    return table_.let_go(index);
  }
  const uint32_t waited = waiting_;
  if (admission == Admission::kWaits) {
    if (waited != PacketTable::kNone) {
      legs_[table_[waited].leg].options.counters->foreign.add(1);
      table_.let_go(waited);
    }
    waiting_ = index;
    return;
  }
  if (admission == Admission::kBelieved) {
    BP_ASSERT(waited != PacketTable::kNone);
    waiting_ = PacketTable::kNone;
    take(waited, now_ns);
  }
  take(index, now_ns);
}

// Takes a packet from the leg's sender.
void RelayStream::take(uint32_t index, uint64_t now_ns) noexcept {
  const Packet& packet = table_[index];
  Leg& leg = legs_[packet.leg];
  leg.options.counters->packets.add(1);
  leg.options.counters->bytes.add(packet.byte_count);
  if (packet.rtp.header_bytes == 0) {
    drop_waiting();
    return hand_on(index);
  }
  leg.jitter.add(packet.rtp.timestamp, packet.received_ns != 0 ? packet.received_ns : now_ns);
  insert(index, now_ns);
}

// Takes a packet without a transport stream. Such a packet does not give its sender the leg, nor
// keep the leg for it.
void RelayStream::keep_number(uint32_t index, uint64_t now_ns) noexcept {
  const Packet& packet = table_[index];
  Leg& leg = legs_[packet.leg];
  const bool is_its =
      has_sender_ && packet.rtp.ssrc == ssrc_ && leg.lock.has({packet.from, packet.rtp.ssrc});
  if (packet.kind == PacketKind::kEmpty) {
    LegCounters& counters = *leg.options.counters;
    (is_its ? counters.empty : counters.foreign).add(1);
  }
  if (!is_its) return table_.let_go(index);
  insert(index, now_ns);
}

void RelayStream::insert(uint32_t index, uint64_t now_ns) noexcept {
  const Packet& packet = table_[index];
  const uint16_t sequence = packet.rtp.sequence;
  const bool is_of_set = fec_receiver_ != nullptr && !packet.is_truncated;
  if (is_of_set) table_.hold(index);
  const MergeVerdict verdict =
      merge_.insert({index, packet.leg, sequence, packet.rtp.timestamp, now_ns});
  if (verdict == MergeVerdict::kTaken) drop_waiting();
  if (!is_of_set) return;
  const bool is_known = verdict == MergeVerdict::kTaken || verdict == MergeVerdict::kLate;
  if (is_known) fec_receiver_->add_media(index, sequence);
  table_.let_go(index);
}

// ---- Order, FEC -----------------------------------------------------------------------------

void RelayStream::deliver(uint32_t item, uint32_t missing_count) noexcept {
  options_.counters->lost.add(missing_count);
  Packet& packet = table_[item];
  if (packet.kind == PacketKind::kMedia) return hand_on(item);
  if (packet.kind == PacketKind::kNumber) return table_.let_go(item);
  packet.due_ns = last_due_ns_;  // at the same time as the packet before it
  pass_on(item, packet.rtp);
}

void RelayStream::drop(uint32_t item, MergeDrop cause) noexcept {
  if (cause == MergeDrop::kDuplicate) options_.counters->duplicates.add(1);
  if (cause == MergeDrop::kLate) options_.counters->late.add(1);
  const Packet& packet = table_[item];
  const bool is_of_leg = packet.socket != nullptr;  // else it was recovered by FEC
  if (cause == MergeDrop::kOutside && is_of_leg) {
    legs_[packet.leg].options.counters->outside.add(1);
  }
  table_.let_go(item);
}

void RelayStream::restarted() noexcept {
  options_.counters->restarts.add(1);
  inspector_->forgive_gap();
  if (fec_receiver_ != nullptr) fec_receiver_->restart();
}

std::span<const std::byte> RelayStream::bytes_of(uint32_t item) noexcept {
  BP_DCHECK(table_[item].references > 0);
  return table_[item].datagram();
}

uint32_t RelayStream::recovered(std::byte* buffer, uint32_t bytes) noexcept {
  BP_DCHECK(buffer != nullptr && bytes <= options_.buffer_bytes);
  const uint32_t index = table_.take();
  if (index == PacketTable::kNone) {
    give_buffer(buffer);
    return kNoItem;
  }
  Packet& packet = table_[index];
  packet.bytes = buffer;
  packet.byte_count = bytes;
  packet.arrived_ns = now_ns_;
  if (!look_at(packet).has_number) {
    table_.let_go(index);
    return kNoItem;
  }
  table_.hold(index);  // for the receiver
  (void)merge_.insert(
      {index, LegMerge::kRecovered, packet.rtp.sequence, packet.rtp.timestamp, now_ns_});
  return index;
}

// An FEC packet is due together with the media packet before it.
void RelayStream::send_fec(std::byte* buffer, uint32_t bytes, bool is_row) noexcept {
  BP_DCHECK(buffer != nullptr && bytes <= options_.buffer_bytes);
  const uint32_t index = table_.take();
  if (index == PacketTable::kNone) return give_buffer(buffer);
  Packet& packet = table_[index];
  packet.bytes = buffer;
  packet.byte_count = bytes;
  packet.kind = is_row ? PacketKind::kRow : PacketKind::kColumn;
  packet.due_ns = last_due_ns_;
  options_.counters->fec_sent.add(1);
  ring_.push(index, now_ns_);
}

// Writes an RTP header into the headroom of the leg's buffer, which only the stream uses.
RtpPacket RelayStream::add_rtp(Packet& packet) noexcept {
  BP_DCHECK(packet.socket != nullptr && !packet.has_added_rtp);
  BP_DCHECK(options_.adds_rtp && packet.rtp.header_bytes == 0);
  packet.has_added_rtp = true;
  options_.counters->rtp_added.add(1);
  const uint64_t leaves_ns = packet.due_ns != 0 ? packet.due_ns : packet.arrived_ns;
  return rtp_adder_.add(const_cast<std::byte*>(packet.bytes), packet.byte_count, leaves_ns);
}

void RelayStream::hand_on(uint32_t index) noexcept {
  Packet& packet = table_[index];
  BP_DCHECK(packet.payload_bytes > 0 && packet.payload_bytes % kTsPacketBytes == 0);
  BP_DCHECK(packet.references > 0 && packet.kind == PacketKind::kMedia);
  const TsClock clock = inspector_->inspect(packet.payload(), now_ns_);
  if (options_.pace_delay_ns != 0) {
    // From its arrival, not its delivery in order: a packet that waited for a gap is not late.
    packet.due_ns = pacer_.due_ns(clock, packet.payload_bytes, packet.arrived_ns);
    last_due_ns_ = packet.due_ns;
  }
  const bool is_plain = packet.rtp.header_bytes == 0;
  pass_on(index, is_plain && options_.adds_rtp ? add_rtp(packet) : packet.rtp);
}

// `rtp`: the header for outputs with RTP; if there is none, header_bytes is 0.
void RelayStream::pass_on(uint32_t index, const RtpPacket& rtp) noexcept {
  const Packet& packet = table_[index];
  options_.counters->packets.add(1);
  options_.counters->bytes.add(packet.payload_bytes);
  const bool is_plain = packet.rtp.header_bytes == 0;
  const std::span<const std::byte> body = packet.datagram().subspan(is_plain ? 0 : kRtpHeaderBytes);
  // The ring may release the packet before the FEC sums have read it.
  const bool has_fec = options_.fec_columns != 0 && rtp.header_bytes != 0;
  if (has_fec) table_.hold(index);
  ring_.push(index, now_ns_);
  if (!has_fec) return;
  fec_sender_.add(body, rtp);
  table_.let_go(index);
}

// ---- The loop -----------------------------------------------------------------------------------

uint32_t RelayStream::work(uint64_t now_ns) noexcept {
  BP_DCHECK(is_own_thread());
  BP_DCHECK(now_ns >= now_ns_);
  now_ns_ = now_ns;
  const bool is_due = now_ns_ >= deadline_ns();
  if (arrival_count_ == 0 && !is_due && ring_.held_count() == 0 && !is_draining_) return 0;
  uint32_t count = arrival_count_;
  for (uint32_t i = 0; i < arrival_count_; ++i) {
    const Arrival arrival = arrivals_[i];
    if (!arrival.is_fec) {
      judge(arrival.packet, now_ns_);
      continue;
    }
    BP_DCHECK(fec_receiver_ != nullptr);
    fec_receiver_->add_fec(arrival.packet);
    table_.let_go(arrival.packet);
  }
  arrival_count_ = 0;
  merge_.expire(now_ns_);
  if (is_draining_) ring_.hurry();
  count += ring_.pump(now_ns_);
  if (count > 0 || is_due) tell();
  if (is_draining_ && ring_.is_drained()) is_drained_.store(true, std::memory_order_release);
  BP_DCHECK_SLOW(is_valid());
  return count;
}

uint64_t RelayStream::sleep_max_ns() const noexcept {
  const uint64_t next_ns = deadline_ns();
  if (next_ns == LegMerge::kNever) return kUnlimitedNs;
  const uint64_t now_ns = options_.loop->now_ns();
  return next_ns > now_ns ? next_ns - now_ns : 0;
}

void RelayStream::set_has_interface(uint32_t leg, bool has_interface) noexcept {
  BP_ASSERT(leg < legs_.size());
  lacks_interface_[leg].store(!has_interface, std::memory_order_relaxed);
}

void RelayStream::look_for_missing(uint64_t now_ns) noexcept {
  BP_DCHECK(is_own_thread());
  inspector_->look_for_missing(now_ns);
  const bool is_waiting = waiting_ != PacketTable::kNone;
  if (is_waiting && now_ns > table_[waiting_].arrived_ns + options_.silence_ns) drop_waiting();
  for (Leg& leg : legs_) {
    const std::atomic<bool>& lacks_interface = lacks_interface_[&leg - legs_.data()];
    LegCounters& counters = *leg.options.counters;
    const bool is_silent = leg.lock.is_silent(now_ns);
    if (is_silent && counters.is_silent.read() == 0) counters.silences.add(1);
    counters.is_silent.set(is_silent ? 1 : 0);
    leg.silence.look(counters, now_ns);
    LegArrival comes = LegArrival::kPackets;
    if (is_silent) {
      const bool is_cut_off = lacks_interface.load(std::memory_order_relaxed);
      comes = is_cut_off ? LegArrival::kNoInterface : leg.silence.cause();
    }
    counters.comes.set(static_cast<uint64_t>(comes));
  }
  tell();
}

void RelayStream::drain() noexcept {
  BP_ASSERT(is_own_thread());
  for (const Leg& leg : legs_) {
    for (DatagramSocket* socket : {leg.options.media, leg.options.column, leg.options.row}) {
      if (socket != nullptr) socket->close();
    }
  }
  is_draining_ = true;
  (void)work(now_ns_);
  drop_waiting();
  merge_.restart();
  (void)work(now_ns_);
  BP_ASSERT(merge_.held_count() == 0 && arrival_count_ == 0);
}

// Copies the counts of its parts into the counters for `bedplate stats`.
void RelayStream::tell() noexcept {
  StreamCounters& c = *options_.counters;
  const TsReport& ts = inspector_->report();
  c.held.set(table_.used_count());
  c.window_peak.set(merge_.span_peak());
  c.queue_peak.set(ring_.held_peak());
  c.ts_packets.set(ts.packets);
  c.ts_null_packets.set(ts.null_packets);
  c.ts_programs.set(ts.programs);
  c.ts_bit_rate.set(ts.bits_per_second);
  c.ts_sync_losses.set(ts.sync_losses);
  c.ts_sync_byte_errors.set(ts.sync_byte_errors);
  c.ts_pat_errors.set(ts.pat_errors);
  c.ts_continuity_errors.set(ts.continuity_errors);
  c.ts_pmt_errors.set(ts.pmt_errors);
  c.ts_pid_errors.set(ts.pid_errors);
  c.ts_transport_errors.set(ts.transport_errors);
  c.ts_crc_errors.set(ts.crc_errors);
  c.pcrs.set(ts.pcrs);
  c.pcr_discontinuities.set(ts.pcr_discontinuities);
  c.pcr_interval_max_ns.set(ts.pcr_interval_max_ns);
  c.pcr_accuracy_max_ns.set(ts.pcr_accuracy_max_ns);
  c.pace_restarts.set(pacer_.restart_count());
  c.fec_unprotected.set(fec_sender_.unprotected_count());
  if (fec_receiver_ != nullptr) {
    const FecReceiverReport& fec = fec_receiver_->report();
    c.fec_packets.set(fec.packets);
    c.fec_recovered.set(fec.recovered);
    c.fec_unrecoverable.set(fec.unrecoverable);
    c.fec_malformed.set(fec.malformed);
  }
  for (uint32_t i = 0; i < legs_.size(); ++i) {
    LegCounters& leg = *legs_[i].options.counters;
    const LegReport report = merge_.leg_report(i);
    leg.lost.set(report.lost);
    leg.reordered.set(report.reordered);
    leg.jitter_ns.set(legs_[i].jitter.jitter_ns());
  }
}

}  // namespace bedplate::relay
