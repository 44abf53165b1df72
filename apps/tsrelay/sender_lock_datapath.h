// A leg takes the packets of one sender at a time, which it knows by its address and its SSRC.
//
// Where two send to one address, their packets would be a mixture that is of no use: the first one
// has the leg, and keeps it until nothing has come of it for a while. A sender that has restarted
// does not wait for that: it has its address and port, another SSRC, and sends nothing more of what
// it sent before (Successor).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "transport/datagram_address.h"

namespace bedplate::relay {

struct Sender {
  DatagramAddress from;
  uint32_t ssrc = 0;  // 0 without RTP

  bool has_address(const DatagramAddress& other) const noexcept {
    return from.port == other.port && from.interface_index == other.interface_index &&
           from.ip.family == other.ip.family &&
           std::memcmp(from.ip.bytes, other.ip.bytes, sizeof from.ip.bytes) == 0;
  }
  bool operator==(const Sender& other) const noexcept {
    return ssrc == other.ssrc && has_address(other.from);
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
  // Whether it is the one that has the leg.
  bool has(const Sender& sender) const noexcept { return has_sender_ && sender == sender_; }
  bool has_address(const DatagramAddress& from) const noexcept {
    return has_sender_ && sender_.has_address(from);
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

enum class SuccessorVerdict : uint8_t {
  kForeign,   // another one behind the same address
  kWaits,     // for a second one that says the same; another one that waited is foreign
  kBelieved,  // the sender has restarted, with the packet that waited
};

// Tells a sender that has restarted from two that share an address and a port (NAT, a common
// address of an encoder and its spare). Two packets in a row with a new SSRC are believed, if none
// that brings anything new came of the old one between them: so a stray packet takes nothing, nor
// do packets of two that alternate.
//
// Where an SSRC comes back that was just given up there are two of them after all, which send in
// turns: the one that comes back has the leg, as it was the first, and from then on only silence
// gives it to another, until no second SSRC has come for so long.
class Successor {
 public:
  explicit Successor(uint64_t silence_ns = 0) noexcept : silence_ns_(silence_ns) {}

  // Judges a packet that has the address of the leg's sender, but another SSRC than that sender's
  // `present`.
  SuccessorVerdict judge(uint32_t leg, uint32_t ssrc, uint16_t sequence, uint32_t present,
                         uint64_t now_ns) noexcept {
    if (now_ns < shared_until_ns_) {
      shared_until_ns_ = now_ns + silence_ns_;
      return SuccessorVerdict::kForeign;
    }
    if (!is_waiting_ || leg != leg_ || ssrc != ssrc_ || sequence != wanted_) {
      is_waiting_ = true;
      leg_ = leg;
      ssrc_ = ssrc;
      wanted_ = static_cast<uint16_t>(sequence + 1);
      return SuccessorVerdict::kWaits;
    }
    is_waiting_ = false;
    const bool comes_back =
        std::any_of(std::begin(given_up_), std::end(given_up_),
                    [&](const GivenUp& its) { return its.ssrc == ssrc && now_ns < its.until_ns; });
    if (comes_back) shared_until_ns_ = now_ns + silence_ns_;
    given_up_[given_up_count_++ % kGivenUpMax] = {present, now_ns + silence_ns_};
    return SuccessorVerdict::kBelieved;
  }
  // The one that has the leg has brought something new.
  void deny() noexcept { is_waiting_ = false; }

 private:
  static constexpr uint32_t kGivenUpMax = 8;  // so many behind one address are told from one
  struct GivenUp {
    uint32_t ssrc = 0;
    uint64_t until_ns = 0;
  };

  uint64_t silence_ns_;
  bool is_waiting_ = false;
  uint32_t leg_ = 0;
  uint32_t ssrc_ = 0;
  uint16_t wanted_ = 0;
  uint64_t shared_until_ns_ = 0;
  uint32_t given_up_count_ = 0;
  GivenUp given_up_[kGivenUpMax];
};

}  // namespace bedplate::relay
