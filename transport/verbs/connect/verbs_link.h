// The link to one peer: state that the shard and the connector share.
//
// The link's state tells which thread has it. That thread writes its fields; a release store of the
// state hands them over. The connector has a link that is down; the shard has it from up to the end
// of draining. A part of VerbsProvider.
//
// Invariants: 1. A link that is down has a queue pair, which is the connector's. 2. A link that is
// up is wanted, and knows its peer: instance, queue pair, valid packet numbers and packet sizes.
// 3. It can send only once the connector has brought up the queue pair. (is_valid) 4. The connector
// writes only to a link that is down. (is_connectors, where it writes) 5. It goes to and fro
// between the two, until it is lost. (hand_over)
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "transport/sockets/socket_address.h"
#include "transport/verbs/device/queue_pair.h"

namespace bedplate {

class LinkConnector;

enum class LinkState : uint8_t {
  kDown,    // the connector's: queue pair in RESET
  kUp,      // the shard's: takes messages; sends as soon as can_send
  kCutOff,  // down, and this instance of the peer is refused from now on
  kLost,    // down for good: the device is gone
};

// The side that has it gives it to the other; once it is lost, neither gets it.
constexpr bool can_follow(LinkState from, LinkState to) noexcept {
  if (from == LinkState::kUp) return to != LinkState::kUp;
  return from != LinkState::kLost && to == LinkState::kUp;
}

struct VerbsLink final : QueuePairOwner {
  // Set once.
  std::string name;
  std::optional<SocketAddress> address;  // where it listens; nothing: it dials, or nobody does
  uint16_t place = 0;                    // of this link here
  LinkConnector* connector = nullptr;    // its owner while it is down
  QueuePair queue_pair;

  std::atomic<LinkState> state{LinkState::kDown};
  std::atomic<bool> can_send{false};    // the queue pair is ready, the peer listens
  std::atomic<bool> must_break{false};  // the connector asks the shard to take it down
  // The connector still brings the queue pair up: the shard, which owns the link already, takes
  // messages, but leaves the queue pair's state alone.
  std::atomic<bool> is_connecting{false};
  std::atomic<bool> has_worked{false};        // since it came up a request has ended well
  std::atomic<bool> was_refused{false};       // the device said so: the peer lacked the right
  std::atomic<bool> has_last_receive{false};  // the device said so: no receive is under way
  std::atomic<bool> is_wanted{false};         // we connect to it, or it dialed us
  std::atomic<bool> is_given_up{false};       // down for longer than give_up_ns

  // Fields of the thread that has the link.
  uint64_t peer_instance = 0;  // 0: never connected
  uint64_t received = 0;       // messages of that instance that were handed on
  uint64_t peer_received = 0;  // of our messages, as it says
  bool is_fresh = false;       // another instance than before, or the first; the shard clears it
  uint16_t peer_place = 0;
  uint32_t packet_number = 0;  // our first, and our mark
  ibv_mtu mtu = IBV_MTU_256;   // ours, as the peer was told
  QueuePairAddress peer;
  uint64_t flush_address = 0;
  uint32_t flush_key = 0;
  uint32_t datagram_queue = 0;  // of the peer; 0: it takes none
  char host[64] = {};           // where it is, for messages

  uint64_t cut_instance = 0;  // that broke the rules, and is refused; the connector's at all times

  void take_event(ibv_event_type type) noexcept override;

  // Notes the instance of the peer that broke the rules, if one did. Threads: the connector's.
  void note_cut_off() noexcept {
    if (state.load(std::memory_order_acquire) == LinkState::kCutOff) cut_instance = peer_instance;
  }

  // Gives it to the other thread. Threads: the one that has it.
  void hand_over(LinkState next) noexcept {
    BP_DCHECK(can_follow(state.load(std::memory_order_relaxed), next));
    state.store(next, std::memory_order_release);
  }

  // Threads: the connector's, or the shard's while it has the link: it reads nothing that the other
  // one may write then.
  bool is_valid() const noexcept;
  // Whether the connector has the link, and may write its fields. Threads: the same.
  bool is_connectors() const noexcept {
    const LinkState now = state.load(std::memory_order_acquire);
    return now == LinkState::kDown || now == LinkState::kCutOff;
  }
};

}  // namespace bedplate
