// The MAC addresses of the stations on the link that we send to: the ARP cache and the neighbour
// cache, with the states of RFC 4861, 7.3.2, for both.
//
// Only our own sends create entries. Requests and announcements of other stations only update
// existing entries, so a flood of them cannot fill the table or evict an entry.
//
// To make an entry, it looks at the next kLookedAtCount entries, and takes an unused one. If there
// is none, it evicts the least recently used of those that are stale, or whose station was asked
// and has not answered. If there is none of these either, it takes the first such entry behind
// them. It never evicts an entry that is reachable, delayed or being probed. It drops the frames
// that wait for an evicted station, and does not tell their owners.
//
// Frames that wait for an answer are in one table for all neighbours (waiting_frames_datapath.h).
//
// Invariants, checked by is_valid(): 1. Exactly the used entries are in the chains of their
// addresses. 2. Only an incomplete entry has waiting frames, and it counts them; each waiting frame
// has an entry. 3. No incomplete, delayed or probed entry is due before next_deadline_ns().
#pragma once

#include <cstdint>
#include <memory>

#include <rte_mbuf.h>

#include "platform/assert.h"
#include "transport/dpdk/net/ip_words_datapath.h"
#include "transport/dpdk/net/waiting_frames_datapath.h"

namespace bedplate {

struct Neighbour {
  enum class State : uint8_t { kUnused, kIncomplete, kReachable, kStale, kDelay, kProbe };

  bool has_mac() const noexcept { return state > State::kIncomplete; }

  IpAddress address;
  rte_ether_addr mac = {};
  State state = State::kUnused;
  uint8_t asked_count = 0;
  uint32_t waiting_count = 0;
  uint32_t next = 0;         // the next entry in its chain
  uint64_t deadline_ns = 0;  // kReachable: its end. kIncomplete, kDelay, kProbe: when it is due
  uint64_t used_ns = 0;
};

// The interface by which Neighbours asks stations, and sends or drops waiting frames.
class NeighbourAsker {
 public:
  // Asks for the MAC of `target`. `known` is the MAC address to confirm. If it is nullptr, the
  // question goes to all stations.
  virtual void ask(const IpAddress& target, const rte_ether_addr* known) noexcept = 0;
  // Both take ownership of the frame. send_waiting() sends a frame whose MAC is known now.
  // drop_waiting() drops a frame whose neighbour did not answer (`is_unresolved`), or that a full
  // table has pushed out. For an unresolved frame it may call Neighbours again.
  virtual void send_waiting(rte_mbuf* frame, const rte_ether_addr& mac) noexcept = 0;
  virtual void drop_waiting(rte_mbuf* frame, bool is_unresolved) noexcept = 0;

 protected:
  ~NeighbourAsker() = default;
};

// Threads: the shard's. No allocation after construction. Times: of one monotonic clock.
class Neighbours {
 public:
  // The times and kAskedMax are those of RFC 4861, 10.
  static constexpr uint64_t kRetransmitNs = 1'000'000'000;
  static constexpr uint64_t kReachableNs = 30'000'000'000;
  static constexpr uint64_t kDelayNs = 5'000'000'000;
  static constexpr uint32_t kAskedMax = 3;
  static constexpr uint32_t kLookedAtCount = 64;  // per new entry, if one of them may be taken
  static constexpr uint64_t kNever = ~uint64_t{0};

  // How a message about a station changes its entry.
  struct Evidence {
    bool is_solicited = false;  // the message answers our question
    bool is_override = false;   // the message may replace a known MAC address
  };

  struct Limits {
    uint32_t entry_count = 0;
    uint32_t waiting_count = 0;  // the most waiting frames, of all neighbours together
  };

  // `asker` outlives it. Before the seal: it allocates. Requires: both limits are over 0.
  Neighbours(NeighbourAsker& asker, const Limits& limits);
  ~Neighbours() = default;
  Neighbours(const Neighbours&) = delete;
  Neighbours& operator=(const Neighbours&) = delete;

  // Returns the entry of a station to send to. If there is none, creates it and asks the station.
  // If the entry has no MAC, the frame must wait(). Returns nullptr if no entry is free and none
  // may be evicted. The entry is valid until the next use() or advance(). Cost of a new entry: a
  // look at kLookedAtCount entries, or at all if none of these may be taken.
  Neighbour* use(const IpAddress& address, uint64_t now_ns) noexcept;
  // Lets `frame` wait for the answer, and takes ownership of it. If too many frames wait, drops the
  // oldest of all. Requires: the entry has no MAC.
  void wait(Neighbour& neighbour, rte_mbuf* frame) noexcept;

  // Learns that `address` has `mac`, and sends the waiting frames of its entry. If the entry has
  // another MAC and the evidence does not override it, the MAC stays, and a reachable entry becomes
  // stale. Returns whether there is an entry.
  bool learn(const IpAddress& address, const rte_ether_addr& mac, const Evidence& evidence,
             uint64_t now_ns) noexcept;
  // Whether the station was asked and has not answered yet.
  bool is_asked(const IpAddress& address) const noexcept;

  // Asks again, or gives up, for each entry that is due.
  void advance(uint64_t now_ns) noexcept;
  uint64_t next_deadline_ns() const noexcept { return next_deadline_ns_; }

  // Read-only look-up. Returns nullptr if there is no entry.
  const Neighbour* find(const IpAddress& address) const noexcept;
  bool is_valid() const noexcept;

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  static bool is_timed(const Neighbour& entry) noexcept {
    return entry.state == Neighbour::State::kIncomplete ||
           entry.state == Neighbour::State::kDelay || entry.state == Neighbour::State::kProbe;
  }
  uint32_t& chain_of(const IpAddress& address) const noexcept;
  Neighbour* find_entry(const IpAddress& address) const noexcept {
    return const_cast<Neighbour*>(find(address));
  }
  uint32_t index_of(const Neighbour& entry) const noexcept {
    BP_DCHECK(&entry >= entries_.get() && &entry < entries_.get() + count_max_);
    return static_cast<uint32_t>(&entry - entries_.get());
  }
  Neighbour* take_entry(uint64_t now_ns) noexcept;
  void unlink(Neighbour& entry) noexcept;
  void give_up(Neighbour& entry) noexcept;
  void arm(Neighbour& entry, uint64_t deadline_ns) noexcept;
  void ask_again(Neighbour& entry, uint64_t now_ns) noexcept;

  NeighbourAsker& asker_;
  uint32_t count_max_;
  uint32_t chain_mask_;
  std::unique_ptr<Neighbour[]> entries_;
  std::unique_ptr<uint32_t[]> chains_;
  WaitingFrames waiting_;
  std::unique_ptr<rte_mbuf*[]> given_up_;  // the frames that are being dropped
  uint32_t hand_ = 0;                      // where the search for the next entry begins
  uint64_t next_deadline_ns_ = kNever;
};

}  // namespace bedplate
