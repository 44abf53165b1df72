// Gives a leg to one sender at a time, identified by its address and its SSRC.
//
// If two senders send to one address, a mixture of their packets is useless. So the first sender
// has the leg, and keeps it until it has been silent for a while. A restarted sender need not wait
// for that. It is recognised by the same address and port with another SSRC, while the old SSRC
// sends nothing more (Successor).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "transport/sockets/datagram_address.h"

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
  kNew,      // it gets the leg: no other sender is alive
  kForeign,  // another sender has the leg
};

class SenderLock {
 public:
  explicit SenderLock(uint64_t silence_ns = 0) noexcept : silence_ns_(silence_ns) {}

  // Judges a packet of `sender`. Gives the leg to it unless another sender is alive.
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
  // Frees the leg for the next sender.
  void open() noexcept { has_sender_ = false; }
  bool is_alive(uint64_t now_ns) const noexcept {
    return has_sender_ && now_ns < heard_ns_ + silence_ns_;
  }
  // Whether `sender` has the leg.
  bool has(const Sender& sender) const noexcept { return has_sender_ && sender == sender_; }
  bool has_address(const DatagramAddress& from) const noexcept {
    return has_sender_ && sender_.has_address(from);
  }
  // Whether no sender was heard for silence_ns_. Before the first sender, the time runs from the
  // first call.
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
  kForeign,   // another sender behind the same address
  kWaits,     // for a second packet that confirms it; an earlier packet that waited is foreign
  kBelieved,  // the sender has restarted, with the packet that waited
};

// Distinguishes a restarted sender from two senders that share an address and a port (NAT, or a
// common address of an encoder and its spare). Two packets of a new SSRC are accepted if they have
// consecutive numbers and come on one leg, and the old SSRC brings nothing new between them. So a
// stray packet does not take the leg, and two senders whose packets alternate do not take it
// either.
//
// If an SSRC comes back within silence_ns after it was given up, there are two senders after all,
// which send in turns. The SSRC that comes back gets the leg, as it was the first. From then on
// only silence gives the leg to another, until no second SSRC has come for silence_ns.
class Successor {
 public:
  explicit Successor(uint64_t silence_ns = 0) noexcept : silence_ns_(silence_ns) {}

  // Judges a packet from the address of the leg's sender with an SSRC other than `present`, the
  // SSRC of that sender.
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
  // Forgets the packet that waits: the sender of the leg has sent something new, or the packet has
  // waited too long.
  void deny() noexcept { is_waiting_ = false; }

 private:
  static constexpr uint32_t kGivenUpMax = 8;  // the latest SSRCs given up
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
