// Fuzz target of the relay's input from strangers: datagrams of any content, RTP, transport
// streams, FEC, and the merge of any sequence numbers. Also of the inspector, compared with a model
// of a stream (ts_air.h) whose tables and clocks change in any way.
//
// The first byte chooses the inspector, or the window of the merge. For the merge, records follow:
// a byte for the kind, a byte for the length, then the bytes. Checks that packets are delivered in
// order and never twice, that every held packet is released, and that each part's invariants hold.
// `make fuzz-run` builds and runs this.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "apps/tsrelay/datagram_content_datapath.h"
#include "apps/tsrelay/fec_receiver_datapath.h"
#include "apps/tsrelay/fec_sender_datapath.h"
#include "apps/tsrelay/leg_merge_datapath.h"
#include "apps/tsrelay/pacer_datapath.h"
#include "tests/apps/tsrelay/ts_air.h"

namespace bedplate::relay {
namespace {

constexpr uint32_t kBufferBytes = 2048;

void require(bool kept, const char* what) {
  if (kept) return;
  std::fprintf(stderr, "tsrelay_fuzz: broken promise: %s\n", what);
  std::abort();
}

// Random numbers that are taken from the input's bytes; 0 after the last byte.
struct Said {
  std::span<const std::byte> rest;

  uint32_t below(uint32_t limit) {
    if (rest.empty()) return 0;
    const uint32_t value = load_u8(rest.data()) % limit;
    rest = rest.subspan(1);
    return value;
  }
};

// Checks that the inspector knows the last tables sent, and reports no fault in a good stream.
void follow_the_air(std::span<const std::byte> input) {
  Said said{input};
  auto inspector = std::make_unique<TsInspector>();
  TsAir<Said> air(said);
  while (!said.rest.empty()) {
    for (uint32_t changes = said.below(4); changes > 0; --changes) air.change();
    if (said.below(16) == 0) inspector->forget();
    air.send(*inspector);
    require(inspector->is_valid(), "the inspector is valid");
    const char* other = air.differs(*inspector);
    require(other == nullptr, other != nullptr ? other : "");
    const TsReport& r = inspector->report();
    require(r.crc_errors == air.broken_count, "broken sections are counted");
    require(r.continuity_errors + r.pat_errors + r.pmt_errors + r.pid_errors == 0, "no fault");
    require(r.pcr_discontinuities == 0, "clocks that move are no discontinuity");
  }
}

struct Relay final : MergeSink, FecReceiverSink, FecSenderSink {
  std::vector<std::vector<std::byte>> items;
  std::vector<int> holds;
  std::set<uint32_t> in_merge;
  int buffers_out = 0;
  bool has_last = false;
  uint16_t last = 0;
  uint64_t now_ns = 1;
  LegMerge merge;
  std::vector<LegMerge::Slot> slots;
  std::unique_ptr<FecReceiver> receiver = std::make_unique<FecReceiver>();
  std::unique_ptr<TsInspector> inspector = std::make_unique<TsInspector>();
  FecSender sender;
  Pacer pacer{1000};

  explicit Relay(uint32_t window) {
    slots.resize(LegMerge::slot_count(window));
    merge.create({.window_ns = 1000, .window_packets = window, .sink = this}, slots);
    receiver->create(*this, kBufferBytes);
    sender.create({4, 4, true, kBufferBytes, this});
  }

  // ---- LegMerge ----
  void deliver(uint32_t item, uint32_t missing_count) noexcept override {
    require(in_merge.erase(item) == 1, "an item is delivered once");
    RtpPacket rtp;
    require(parse_rtp(items[item], &rtp) == RtpFault::kNone, "what was taken is RTP");
    const auto wanted = static_cast<uint16_t>(last + 1 + missing_count);
    require(!has_last || rtp.sequence == wanted, "what is delivered is in order");
    has_last = true;
    last = rtp.sequence;
    sender.add(std::span(items[item]).subspan(kRtpHeaderBytes), rtp);
    require(sender.is_valid(), "the sender of FEC is valid");
  }
  void drop(uint32_t item, MergeDrop) noexcept override {
    require(in_merge.erase(item) == 1, "an item is dropped once");
  }
  void restarted() noexcept override { has_last = false; }

  // ---- FEC ----
  std::span<const std::byte> bytes_of(uint32_t item) noexcept override { return items.at(item); }
  void hold(uint32_t item) noexcept override { ++holds.at(item); }
  void let_go(uint32_t item) noexcept override {
    require(--holds.at(item) >= 0, "what is let go was held");
  }
  std::byte* take_buffer() noexcept override {
    ++buffers_out;
    return new std::byte[kBufferBytes];
  }
  void give_buffer(std::byte* buffer) noexcept override {
    --buffers_out;
    delete[] buffer;
  }
  uint32_t recovered(std::byte* buffer, uint32_t bytes) noexcept override {
    const uint32_t item = add({buffer, bytes});
    give_buffer(buffer);
    insert(item, LegMerge::kRecovered);
    hold(item);
    return item;
  }
  void send_fec(std::byte* buffer, uint32_t bytes, bool) noexcept override {
    FecPacket packet;
    require(bytes == kFecHeadersBytes || parse_fec({buffer, bytes}, &packet), "FEC that is sent");
    give_buffer(buffer);
  }

  uint32_t add(std::span<const std::byte> bytes) {
    items.emplace_back(bytes.begin(), bytes.end());
    holds.push_back(0);
    return static_cast<uint32_t>(items.size() - 1);
  }
  bool insert(uint32_t item, uint32_t leg) {
    RtpPacket rtp;
    if (parse_rtp(items[item], &rtp) != RtpFault::kNone) return false;
    require(rtp.header_bytes + rtp.payload_bytes <= items[item].size(), "a payload lies within");
    in_merge.insert(item);
    merge.insert({item, leg, rtp.sequence, rtp.timestamp, now_ns});
    require(merge.is_valid(), "the order is valid");
    return true;
  }
  void content(std::span<const std::byte> bytes) {
    for (const auto format : {StreamFormat::kAuto, StreamFormat::kRtp, StreamFormat::kUdp}) {
      RtpPacket rtp;
      const DatagramContent its = content_of(bytes, bytes.size() % 5 == 0, format, &rtp);
      require(rtp.header_bytes + rtp.payload_bytes <= bytes.size(), "a payload lies within");
      require(!its.has_number || bytes.size() >= kRtpHeaderBytes, "a number was read");
      if (its.content != Content::kTransport) continue;
      const size_t stream = its.has_number ? rtp.payload_bytes : bytes.size();
      require(stream > 0 && stream % kTsPacketBytes == 0, "whole packets");
      require(its.has_number == (rtp.header_bytes != 0), "RTP or none");
    }
  }
  void media(std::span<const std::byte> bytes, uint32_t leg) {
    content(bytes);
    const uint32_t item = add(bytes);
    if (insert(item, leg)) receiver->add_media(item, load_u16(items[item].data() + 2));
    require(receiver->is_valid(), "the receiver of FEC is valid");
  }
  void transport(std::span<const std::byte> bytes) {
    std::vector<std::byte> packets((bytes.size() / kTsPacketBytes + 1) * kTsPacketBytes);
    std::memcpy(packets.data(), bytes.data(), bytes.size());
    const TsClock clock = inspector->inspect(packets, now_ns);
    require(inspector->is_valid(), "the inspector is valid");
    (void)pacer.due_ns(clock, static_cast<uint32_t>(packets.size()), now_ns);
    require(pacer.is_valid(), "the pace is valid");
  }

  void run(std::span<const std::byte> input) {
    while (input.size() >= 2) {
      const uint8_t kind = load_u8(input.data());
      const size_t bytes = std::min<size_t>(load_u8(input.data() + 1), input.size() - 2);
      const std::span<const std::byte> record = input.subspan(2, bytes);
      input = input.subspan(2 + bytes);
      now_ns += kind & 0xF0;
      std::vector<std::byte> made(kRtpHeaderBytes + 188);
      switch (kind & 7) {
        case 0: media(record, kind >> 3 & 1); break;
        case 1: transport(record); break;
        case 2:
          receiver->add_fec(add(record));
          require(receiver->is_valid(), "the receiver of FEC is valid");
          break;
        case 3: merge.expire(now_ns); break;
        case 4: merge.restart(); break;
        default:  // a whole packet with any number
          if (bytes < 2) break;
          write_rtp({.sequence = load_u16(record.data()), .timestamp = load_u16(record.data())},
                    made.data());
          std::memcpy(made.data() + kRtpHeaderBytes, record.data(), std::min<size_t>(bytes, 188));
          media(made, kind >> 3 & 1);
      }
    }
    merge.restart();
    require(in_merge.empty(), "nothing stays behind");
    receiver->restart();
    sender.restart();
    for (const int count : holds) require(count == 0, "what was held is let go");
    require(buffers_out == 0, "buffers are given back");
  }
};

}  // namespace
}  // namespace bedplate::relay

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes < 1 || bytes > 8192) return 0;
  if (data[0] >= 0xC0) {
    bedplate::relay::follow_the_air(std::as_bytes(std::span(data + 1, bytes - 1)));
    return 0;
  }
  bedplate::relay::Relay relay(1U + data[0] % 64);
  relay.run(std::as_bytes(std::span(data + 1, bytes - 1)));
  return 0;
}
