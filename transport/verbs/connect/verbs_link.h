// The link to one peer: state that the shard and the connector share.
//
// The link's state tells which thread owns the link. The owner writes the fields, and hands them
// over with a release store of the state. The connector owns a link that is down. The shard owns a
// link from kUp to the end of draining. A part of VerbsProvider.
//
// Invariants: 1. A link in kDown has a queue pair, which is the connector's. 2. A link that
// is up is wanted, and knows its peer: instance, queue pair, valid packet numbers and packet sizes.
// 3. It can send only once the connector has brought up the queue pair. (is_valid) 4. The
// connector writes only to a link that is down. (is_connectors, before each write) 5. Ownership
// alternates between the two threads, until the link is lost. (hand_over)
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
  kCutOff,  // down; this instance of the peer is refused from now on
  kLost,    // down for good: the device is gone
};

// Whether the owner may hand the link over in the state `to`. A link that is lost stays lost.
constexpr bool can_follow(LinkState from, LinkState to) noexcept {
  if (from == LinkState::kUp) return to != LinkState::kUp;
  return from != LinkState::kLost && to == LinkState::kUp;
}

struct VerbsLink final : QueuePairOwner {
  // Set once.
  std::string name;
  std::optional<SocketAddress> address;  // the peer's listener; nothing: it dials, or nobody does
  uint16_t index = 0;                    // this link's index here
  LinkConnector* connector = nullptr;    // owns the link while it is down
  QueuePair queue_pair;

  std::atomic<LinkState> state{LinkState::kDown};
  std::atomic<bool> can_send{false};    // the queue pair is connected, and the peer is ready
  std::atomic<bool> must_break{false};  // the shard has to take the link down
  // The connector is still bringing the queue pair up. The shard already owns the link: it takes
  // messages, but must not change the state of the queue pair.
  std::atomic<bool> is_connecting{false};
  std::atomic<bool> has_worked{false};        // a request has succeeded since it came up
  std::atomic<bool> was_refused{false};       // the device reported that the peer lacked the right
  std::atomic<bool> has_last_receive{false};  // the device reported that no receive is under way
  std::atomic<bool> is_wanted{false};         // we connect to it, or it dialed us
  std::atomic<bool> is_given_up{false};       // down for longer than give_up_ns, until of use again

  // Written by the thread that owns the link.
  uint64_t peer_instance = 0;  // 0: never connected
  uint64_t received = 0;       // messages of that instance that the shard has taken
  uint64_t peer_received = 0;  // our messages that the peer says it has received
  bool is_fresh = false;       // the peer's instance is new; the shard clears it
  uint16_t peer_index = 0;     // this link's index at the peer
  uint32_t packet_number = 0;  // of our first packet; also our mark
  ibv_mtu mtu = IBV_MTU_256;   // ours, as sent to the peer
  QueuePairAddress peer;
  uint64_t flush_address = 0;
  uint32_t flush_key = 0;
  uint32_t datagram_queue = 0;  // the peer's; 0: it takes no datagrams
  char host[64] = {};           // the peer's, for messages

  uint64_t cut_instance = 0;  // the instance that broke the protocol; always the connector's

  // The event breaks the link, unless it tells of the last receive. Threads: any.
  void take_event(ibv_event_type type) noexcept override;

  // Records the peer's instance if it broke the protocol. Threads: the connector's.
  void note_cut_off() noexcept {
    if (state.load(std::memory_order_acquire) == LinkState::kCutOff) cut_instance = peer_instance;
  }

  // Gives the link to the other thread. Threads: the owner.
  void hand_over(LinkState next) noexcept {
    BP_DCHECK(can_follow(state.load(std::memory_order_relaxed), next));
    state.store(next, std::memory_order_release);
  }

  // Reads nothing that the other thread may write meanwhile. Threads: the connector's, or the
  // shard's while it owns the link.
  bool is_valid() const noexcept;
  // Whether the connector owns the link, and may write its fields. Threads: as is_valid().
  bool is_connectors() const noexcept {
    const LinkState now = state.load(std::memory_order_acquire);
    return now == LinkState::kDown || now == LinkState::kCutOff;
  }
};

}  // namespace bedplate
