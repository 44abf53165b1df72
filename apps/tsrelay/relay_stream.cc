// Creates a stream.
#include "apps/tsrelay/relay_stream_datapath.h"

namespace bedplate::relay {

void RelayStream::create(const StreamOptions& options) {
  BP_ASSERT(!options.legs.empty() && options.legs.size() <= LegMerge::kLegsMax);
  BP_ASSERT(packets_ == nullptr && options.counters != nullptr);
  options_ = options;
  packets_ = std::make_unique<Packet[]>(options.packet_count);
  table_.create({packets_.get(), options.packet_count}, options.pool);
  indices_ = std::make_unique<uint32_t[]>(options.ring_slots);
  ring_.create(table_, {indices_.get(), options.ring_slots}, options.tap_count, options.trace);
  const uint64_t slot_count = LegMerge::slot_count(options.window_packets);
  slots_ = std::make_unique<LegMerge::Slot[]>(slot_count);
  merge_.create({options.window_ns, options.window_packets, this}, {slots_.get(), slot_count});
  inspector_ = std::make_unique<TsInspector>();
  arrivals_ = std::make_unique<Arrival[]>(options.packet_count);
  pacer_ = Pacer(options.pace_delay_ns);
  successor_ = Successor(options.silence_ns);
  rtp_adder_.create(options.rtp_beginning);
  fec_sender_.create(
      {options.fec_columns, options.fec_rows, options.has_fec_rows, options.buffer_bytes, this});
  legs_.resize(options.legs.size());
  for (uint8_t i = 0; i < legs_.size(); ++i) {
    Leg& leg = legs_[i];
    leg.options = options.legs[i];
    leg.lock = SenderLock(options.silence_ns);
    leg.media = {this, leg.options.media, i, false};
    leg.column = {this, leg.options.column, i, true};
    leg.row = {this, leg.options.row, i, true};
    if (leg.options.column == nullptr || fec_receiver_ != nullptr) continue;
    fec_receiver_ = std::make_unique<FecReceiver>();
    fec_receiver_->create(*this, options.buffer_bytes);
  }
}

}  // namespace bedplate::relay
