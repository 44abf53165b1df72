// A leg takes the packets of one sender at a time, which it knows by its address and its SSRC.
//
// Where two send to one address, their packets would be a mixture that is of no use: the first one
// has the leg, and keeps it until nothing has come of it for a while.
#pragma once

#include <cstdint>
#include <cstring>

#include "transport/datagram_address.h"

namespace bedplate::relay {

struct Sender {
  DatagramAddress from;
  uint32_t ssrc = 0;  // 0 without RTP

  bool operator==(const Sender& other) const noexcept {
    return ssrc == other.ssrc && from.port == other.from.port &&
           from.interface_index == other.from.interface_index &&
           from.ip.family == other.from.ip.family &&
           std::memcmp(from.ip.bytes, other.from.ip.bytes, sizeof from.ip.bytes) == 0;
  }
};

enum class SenderVerdict : uint8_t {
  kSame,
  kNew,      // the first one, or one that takes the place of one that is silent
  kForeign,  // another one has the leg
};

class SenderLock {
 public:
  explicit SenderLock(uint64_t silence_ns = 0) noexcept : silence_ns_(silence_ns) {}

  SenderVerdict judge(const Sender& sender, uint64_t now_ns) noexcept {
    if (has_sender_ && sender == sender_) {
      heard_ns_ = now_ns;
      return SenderVerdict::kSame;
    }
    if (is_alive(now_ns)) return SenderVerdict::kForeign;
    has_sender_ = true;
    sender_ = sender;
    heard_ns_ = now_ns;
    return SenderVerdict::kNew;
  }
  // The next sender may have it.
  void open() noexcept { has_sender_ = false; }
  bool is_alive(uint64_t now_ns) const noexcept {
    return has_sender_ && now_ns < heard_ns_ + silence_ns_;
  }
  // Whether nothing has come of a sender for so long, or ever since this was asked first.
  bool is_silent(uint64_t now_ns) noexcept {
    if (heard_ns_ == 0) heard_ns_ = now_ns;
    return now_ns >= heard_ns_ + silence_ns_;
  }
  const Sender& sender() const noexcept { return sender_; }

 private:
  uint64_t silence_ns_;
  bool has_sender_ = false;
  Sender sender_;
  uint64_t heard_ns_ = 0;
};

}  // namespace bedplate::relay
