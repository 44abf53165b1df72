// Fuzz target of the packet layer: any frames, socket calls and times, in any order. Checks the
// invariants and the frames that are sent.
//
// The input is a list of steps, each a byte for the kind (modulo 8), a byte for a value, and data:
//     0, 1  receives a frame: two bytes for its length, then its bytes; 1: corrects its checksums
//     2     time passes: the square of the value, in ms
//     3     a socket sends a kept buffer if it has one, else 16 * value bytes, to one of its peers
//     4     a socket joins or leaves one of some groups, of any source or of one
//     5     a socket closes, or opens
//     6     sets the port's space for frames, and whether it has buffers
//     7     releases kept buffers
// Promises: no crash; the invariants hold after each step; the parser accepts each frame that is
// sent; work that is due is done; no buffer is lost.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/transport/dpdk/net/net_rig.h"

namespace bedplate {
namespace {

using made_up::Bytes;
using frames::operator+;

void require(bool kept, const char* what) {
  if (kept) return;
  std::fprintf(stderr, "net_fuzz: broken promise: %s\n", what);
  std::abort();
}

constexpr const char* kPeers4[] = {"192.0.2.9:7000",    "192.0.2.10:7001", "203.0.113.5:7002",
                                   "192.0.2.1:5004",    "239.1.1.1:5004",  "192.0.2.255:7000",
                                   "255.255.255.255:1", "232.1.1.1:5005"};
constexpr const char* kPeers6[] = {
    "[2001:db8::9]:7000", "[2001:db8:1::5]:7001", "[fe80::9]:7002", "[2001:db8::1]:5004",
    "[ff02::1:3]:5004",   "[ff3e::1]:5005",       "[::1]:1",        "[2001:db8::a]:7000"};

class Judge final : public made_up::Port {
 public:
  uint32_t send(std::span<rte_mbuf*> frames) noexcept override {
    for (rte_mbuf* one : frames) {
      // Copied into one mbuf, since a frame's checksummed bytes may lie in several.
      rte_mbuf* copy = frame_of(made_up::bytes_of(one));
      PacketFilter filter;
      std::memcpy(&filter.mac, rte_pktmbuf_mtod(copy, uint8_t*), sizeof filter.mac);
      ParsedPacket packet;
      const PacketDrop cause = parse_packet(copy, filter, packet);
      rte_pktmbuf_free(copy);
      require(cause == PacketDrop::kNone, "what is sent is well-formed");
    }
    return made_up::Port::send(frames);
  }

 private:
  rte_mbuf* frame_of(const Bytes& bytes) {
    rte_mbuf* made = mirror_.allocate();
    std::memcpy(rte_pktmbuf_append(made, static_cast<uint16_t>(bytes.size())), bytes.data(),
                bytes.size());
    return made;
  }
  made_up::Pool mirror_{1};
};

// Corrects the checksums of a frame, if it has the headers for them.
void mend(Bytes& frame) {
  if (frame.size() < 34) return;
  const uint32_t type = frames::number(frame, 12, 2);
  const auto put = [&](size_t at, uint16_t value) {
    frame[at] = static_cast<uint8_t>(value >> 8);
    frame[at + 1] = static_cast<uint8_t>(value);
  };
  size_t message = 0;
  size_t end = 0;
  Bytes pseudo;
  uint8_t protocol = 0;
  if (type == 0x0800) {
    const size_t header = (frame[14] & 15U) * 4;
    if (header < 20 || frame.size() < 14 + header) return;
    put(24, 0);
    put(24, frames::sum(frames::part(frame, 14, header)));
    message = 14 + header;
    end = 14 + frames::number(frame, 16, 2);
    protocol = frame[23];
    if (protocol == 17) pseudo = frames::part(frame, 26, 8);
  } else if (type == 0x86dd && frame.size() >= 54) {
    message = 54;
    end = 54 + frames::number(frame, 18, 2);
    protocol = frame[20];
    if (protocol == 0 && frame.size() >= 62) {
      protocol = frame[54];
      message = 54 + (frame[55] + 1U) * 8;
    }
    pseudo = frames::part(frame, 22, 32);
  }
  if (end > frame.size() || message + 8 > end) return;
  const size_t at = message + (protocol == 17 ? 6 : 2);
  put(at, 0);
  if (!pseudo.empty()) {
    pseudo = pseudo + frames::be(end - message, 4) + frames::be(protocol, 4);
  }
  put(at, frames::sum(pseudo + frames::part(frame, message, end - message)));
}

class Run {
 public:
  Run() {
    options_ = made_up::usual_options();
    options_.counters = &counters_;
    options_.neighbour_count_max = 16;
    options_.membership_count_max = 32;
    options_.takes_routers = true;
    options_.gateway6 = {};
    stack_ = std::make_unique<NetStack>(port_, options_);
    stack_->start(time());
    const DatagramShape shape = {.buffer_count = 8, .buffer_bytes = 2048};
    for (auto& end : ends_) end = std::make_unique<made_up::End>(*stack_, shape);
    for (uint32_t i = 0; i < kEndCount; ++i) toggle(i);
    look();
  }
  ~Run() {
    for (auto& end : ends_) end.reset();
    stack_.reset();
    require(port_.pool.is_whole(), "no buffer is lost");
  }

  void step(const uint8_t*& at, const uint8_t* end) {
    const uint8_t what = *at++ % 8;
    const uint8_t value = at < end ? *at++ : uint8_t{0};
    made_up::End& chosen = *ends_[value % kEndCount];
    switch (what) {
      case 0:
      case 1: return frame(at, end, what == 1, value);
      case 2: now_ns_ += uint64_t{value} * value * 1'000'000; break;
      case 3: return send(chosen, value);
      case 4: return join(chosen, value);
      case 5: toggle(value % kEndCount); break;
      case 6:
        port_.room = value < 128 ? made_up::Port::kUnlimited : value % 8;
        port_.has_buffers = value % 16 != 1;
        break;
      default:
        while (!kept_[value % kEndCount].empty()) {
          chosen.socket.release(kept_[value % kEndCount].back());
          kept_[value % kEndCount].pop_back();
        }
    }
    look();
  }

 private:
  static constexpr uint32_t kEndCount = 4;

  NetTime time() const { return {now_ns_, now_ns_}; }

  void look() {
    stack_->advance(time());
    require(stack_->is_valid(), "the invariants hold");
    const uint64_t due_ns = stack_->next_deadline_ns();
    require(due_ns == 0 || due_ns > now_ns_, "work that is due is done");
    port_.sent.clear();
    port_.flags.clear();
    for (uint32_t i = 0; i < kEndCount; ++i) {
      for (const auto& got : ends_[i]->all) {
        require(got.datagram.byte_count <= 2048, "no datagram is longer than a buffer");
        if (got.datagram.is_kept) kept_[i].push_back(got.datagram.bytes);
      }
      ends_[i]->all.clear();
      ends_[i]->failures.clear();
    }
  }

  void frame(const uint8_t*& at, const uint8_t* end, bool is_mended, uint8_t value) {
    if (end - at < 2) return;
    size_t count = (at[0] << 8 | at[1]) % 1600U;
    at += 2;
    count = std::min(count, static_cast<size_t>(end - at));
    Bytes bytes(at, at + count);
    at += count;
    if (is_mended) mend(bytes);
    if (port_.pool.free_count() < 8) return;
    const size_t cut = value & 0x80 ? value % 64U : bytes.size();
    rte_mbuf* made = cut < bytes.size()
                         ? port_.frame(frames::part(bytes, 0, cut), frames::part(bytes, cut))
                         : port_.frame(bytes);
    stack_->receive({&made, 1}, time());
    look();
  }

  void send(made_up::End& end, uint8_t value) {
    if (!end.socket.is_open()) return;
    const uint32_t index = value % kEndCount;
    static const Bytes kBytes(4096, 0x47);
    const char* to = index % 2 == 0 ? kPeers4[value / 4 % 8] : kPeers6[value / 4 % 8];
    const void* bytes = kBytes.data();
    size_t count = size_t{value} * 16;
    if (!kept_[index].empty()) {
      bytes = kept_[index].back();
      count = std::min<size_t>(count, 64);
    }
    const DatagramsSent result = end.send(to, bytes, count, value % 3 == 0 ? 600U : 0U);
    require(result.sent_count <= 1, "no more is sent than was given");
    look();
  }

  void join(made_up::End& end, uint8_t value) {
    if (!end.socket.is_open()) return;
    const bool is_ipv6 = end.socket.local().ip.family == AF_INET6;
    const IpAddress group =
        made_up::at(is_ipv6 ? kPeers6[4 + value / 8 % 2] : kPeers4[value / 8 % 2 == 0 ? 4 : 7]).ip;
    const IpAddress source =
        value & 0x40 ? made_up::at(is_ipv6 ? kPeers6[0] : kPeers4[0]).ip : IpAddress{};
    auto outcome = value & 0x80 ? end.socket.leave(group, source, nullptr)
                                : end.socket.join(group, source, nullptr);
    (void)outcome.ok();
    look();
  }

  void toggle(uint32_t index) {
    made_up::End& end = *ends_[index];
    if (end.socket.is_open()) {
      end.socket.close();
      return;
    }
    kept_[index].clear();  // the next open replaces the buffers
    end.keeps = index < 2;
    constexpr const char* kLocals[kEndCount] = {"0.0.0.0:5004", "[::]:5004", "192.0.2.1:5005",
                                                "[::]:5005"};
    DatagramOptions options = end.options(kLocals[index]);
    if (index == 3) options.peer = made_up::at(kPeers6[0]);
    require(end.open(options).ok(), "a socket opens again");
  }

  Judge port_;
  NetCounters counters_;
  NetOptions options_;
  uint64_t now_ns_ = 1'000'000'000;
  std::unique_ptr<NetStack> stack_;
  std::unique_ptr<made_up::End> ends_[kEndCount];
  std::vector<std::byte*> kept_[kEndCount];
};

}  // namespace
}  // namespace bedplate

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  bedplate::Run run;
  const uint8_t* end = data + bytes;
  for (int steps = 0; data < end && steps < 200; ++steps) run.step(data, end);
  return 0;
}
