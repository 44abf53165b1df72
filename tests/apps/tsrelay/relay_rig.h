// A relay stream with simulated sockets, for tests: the test supplies arriving packets and the
// time, and the rig records sent packets by address and content.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/tsrelay/output_group_datapath.h"
#include "apps/tsrelay/relay_stream_datapath.h"
#include "apps/examples/ts_generator.h"

#include "CppUTest/TestHarness.h"

namespace bedplate::relay {

inline DatagramAddress at(const char* text) { return parse_datagram_address(text).value(); }

// A simulated datagram socket.
struct FakeSocket final : DatagramSocket {
  static constexpr uint32_t kBufferBytes = 2048;
  static constexpr uint32_t kHeadroomBytes = kRtpHeadroomBytes;
  struct Sent {
    const std::byte* bytes;
    std::vector<std::byte> content;
    DatagramAddress to;
  };

  explicit FakeSocket(uint32_t buffer_count = 1)
      : own_memory(uint64_t{buffer_count} * kBufferBytes), memory(own_memory) {
    is_kept.resize(buffer_count);
    sent.reserve(65536);
  }

  std::vector<std::byte> own_memory;
  std::span<std::byte> memory;
  std::vector<bool> is_kept;
  DatagramOwner owner;
  bool open_ = true;
  std::string asked;  // the requests about interfaces, by number
  int join_error = 0;
  // ---- Sending ----
  std::vector<Sent> sent;
  size_t room = ~size_t{0};  // how many more datagrams it takes
  uint16_t refused_port = 0;
  bool notes = true;

  uint32_t kept_count() const {
    return static_cast<uint32_t>(std::count(is_kept.begin(), is_kept.end(), true));
  }
  // Gives the owner a datagram from `from`. Returns whether the owner keeps it.
  bool give(std::span<const std::byte> bytes, const DatagramAddress& from,
            uint64_t received_ns = 0) {
    const auto free = std::find(is_kept.begin(), is_kept.end(), false);
    if (free == is_kept.end()) return false;
    ReceivedDatagram datagram;
    constexpr size_t kRoom = kBufferBytes - kHeadroomBytes;
    datagram.bytes = memory.data() + (free - is_kept.begin()) * kBufferBytes + kHeadroomBytes;
    datagram.is_truncated = bytes.size() > kRoom;
    datagram.byte_count = static_cast<uint32_t>(std::min(bytes.size(), kRoom));
    std::copy_n(bytes.data(), datagram.byte_count, datagram.bytes);  // it may be empty
    datagram.from = from;
    datagram.received_ns = received_ns;
    owner.received(owner.context, {&datagram, 1});
    *free = datagram.is_kept;
    return datagram.is_kept;
  }

  Result<void> open(const DatagramOptions& options) override {
    owner = options.owner;
    return {};
  }
  int start() noexcept override { return 0; }
  void close() noexcept override { open_ = false; }
  bool is_open() const noexcept override { return open_; }
  DatagramAddress local() const noexcept override { return {}; }
  Result<void> join(const IpAddress&, const IpAddress&, const char*) override { return {}; }
  Result<void> leave(const IpAddress&, const IpAddress&, const char*) override { return {}; }
  int rejoin(const IpAddress&, const IpAddress&, uint32_t left, uint32_t index) noexcept override {
    asked += std::to_string(left) + ">" + std::to_string(index);
    return join_error;
  }
  int send_multicast_over(uint32_t index) noexcept override {
    asked += ">" + std::to_string(index);
    return join_error;
  }
  DatagramsSent send_batch(std::span<OutgoingDatagram> datagrams) noexcept override {
    DatagramsSent result;
    for (const OutgoingDatagram& one : datagrams) {
      if (one.to.port == refused_port) {
        result.status = DatagramStatus::kRefused;
        return result;
      }
      if (room == 0) {
        result.status = DatagramStatus::kAgain;
        return result;
      }
      --room;
      ++result.sent_count;
      if (!notes) continue;
      sent.push_back({one.bytes, {one.bytes, one.bytes + one.byte_count}, one.to});
    }
    return result;
  }
  void release(const std::byte* bytes) noexcept override {
    const auto index = static_cast<size_t>((bytes - memory.data()) / kBufferBytes);
    CHECK(is_kept.at(index));
    is_kept[index] = false;
  }

  // Returns the content of all datagrams that were sent to a port.
  std::vector<std::byte> all_to(uint16_t port) const {
    std::vector<std::byte> all;
    for (const Sent& one : sent) {
      if (one.to.port == port) all.insert(all.end(), one.content.begin(), one.content.end());
    }
    return all;
  }
  size_t count_to(uint16_t port) const {
    return static_cast<size_t>(std::count_if(
        sent.begin(), sent.end(), [port](const Sent& one) { return one.to.port == port; }));
  }
};

// Returns the payload of all RTP packets that were sent to a port.
inline std::vector<std::byte> without_rtp(const FakeSocket& socket, uint16_t port) {
  std::vector<std::byte> all;
  for (const auto& one : socket.sent) {
    if (one.to.port != port) continue;
    all.insert(all.end(), one.content.begin() + kRtpHeaderBytes, one.content.end());
  }
  return all;
}

// A stream with its legs and one group of outputs to 127.0.0.1, at ports from 9000 on.
struct RelayRig {
  static constexpr uint64_t kBegin = 1'000'000'000;
  static constexpr uint16_t kFirstPort = 9000;
  static constexpr uint16_t kPortStep = 10;

  StreamOptions options;
  std::vector<std::unique_ptr<FakeSocket>> legs;
  std::vector<std::unique_ptr<FakeSocket>> fec_sockets;
  FakeSocket out;
  FakeSocket out_aside;
  std::vector<std::unique_ptr<LegCounters>> leg_counters;
  std::vector<std::unique_ptr<OutputCounters>> output_counters;
  std::unique_ptr<StreamCounters> counters = std::make_unique<StreamCounters>();
  std::vector<Output> outputs;
  OutputGroup group;
  OutputGroup aside;
  RelayStream stream;
  std::vector<std::byte> pool_memory;
  std::unique_ptr<TsGenerator> generator = std::make_unique<TsGenerator>();
  uint64_t now = kBegin;
  std::vector<std::byte> input;  // the payload of all packets that were made

  explicit RelayRig(uint32_t leg_count = 1, uint32_t output_count = 1, bool has_fec = false) {
    options.window_ns = 1'000'000;
    options.window_packets = 256;
    options.silence_ns = 500'000'000;
    options.ring_slots = 256;
    options.tap_count = 2;
    options.buffer_bytes = FakeSocket::kBufferBytes;
    options.counters = counters.get();
    options.packet_count = 8192;
    for (uint32_t i = 0; i < leg_count; ++i) {
      legs.push_back(std::make_unique<FakeSocket>(2048));
      leg_counters.push_back(std::make_unique<LegCounters>());
      LegOptions leg;
      leg.media = legs.back().get();
      leg.counters = leg_counters.back().get();
      if (has_fec) {
        fec_sockets.push_back(std::make_unique<FakeSocket>(512));
        leg.column = leg.row = fec_sockets.back().get();
      }
      options.legs.push_back(leg);
    }
    outputs.resize(output_count);
  }
  void create() {
    if (options.pool == nullptr) {
      BufferPool::Options pool{.buffer_bytes = FakeSocket::kBufferBytes, .buffer_count = 2048};
      pool_memory.resize(BufferPool::bytes_for(pool) + kCacheLineBytes);
      void* at_line = pool_memory.data();
      size_t bytes = pool_memory.size();
      std::align(kCacheLineBytes, BufferPool::bytes_for(pool), at_line, bytes);
      options.pool = BufferPool::create({static_cast<std::byte*>(at_line), bytes}, pool);
    }
    stream.create(options);
    const auto count = static_cast<uint32_t>(outputs.size());
    aside.create(stream.ring(), out_aside, nullptr, count);
    group.create(stream.ring(), out, &aside, count);
    out.owner = group.owner();
    out_aside.owner = aside.owner();
    for (uint32_t i = 0; i < count; ++i) {
      output_counters.push_back(std::make_unique<OutputCounters>());
      outputs[i].to = at("127.0.0.1:1");
      outputs[i].to.port = port(i);
      outputs[i].counters = output_counters.back().get();
      group.add(outputs[i]);
    }
    for (uint32_t i = 0; i < legs.size(); ++i) {
      legs[i]->owner = stream.media_owner(i);
      if (!fec_sockets.empty()) fec_sockets[i]->owner = stream.fec_owner(i, false);
    }
  }
  static uint16_t port(uint32_t output) {
    return static_cast<uint16_t>(kFirstPort + kPortStep * output);
  }

  // Makes seven packets of a stream, and adds them to `input`.
  std::vector<std::byte> payload() {
    std::vector<std::byte> bytes(7 * kTsPacketBytes);
    for (uint32_t i = 0; i < 7; ++i) generator->next(bytes.data() + i * kTsPacketBytes);
    input.insert(input.end(), bytes.begin(), bytes.end());
    return bytes;
  }
  std::vector<std::byte> rtp(uint32_t number, uint32_t ssrc = 7) {
    const auto bytes = payload();
    std::vector<std::byte> whole(kRtpHeaderBytes + bytes.size());
    write_rtp({.sequence = static_cast<uint16_t>(number),
               .timestamp = number * 200,
               .ssrc = ssrc,
               .payload_type = kRtpTransportStream},
              whole.data());
    std::memcpy(whole.data() + kRtpHeaderBytes, bytes.data(), bytes.size());
    return whole;
  }
  bool give(uint32_t leg, std::span<const std::byte> datagram, const char* from = "10.0.0.1:5000") {
    return legs[leg]->give(datagram, at(from));
  }
  uint32_t work(uint64_t after_ns = 0) {
    now += after_ns;
    const uint32_t count = stream.work(now);
    CHECK(stream.is_valid());
    return count;
  }
  const LegCounters& leg(uint32_t index = 0) const { return *leg_counters[index]; }
  const OutputCounters& output(uint32_t index = 0) const { return *output_counters[index]; }
  uint32_t kept_count() const {
    uint32_t count = 0;
    for (const auto& each : legs) count += each->kept_count();
    for (const auto& each : fec_sockets) count += each->kept_count();
    return count;
  }
};

}  // namespace bedplate::relay
