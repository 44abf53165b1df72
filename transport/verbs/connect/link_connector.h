// The connector: makes connections and notices when peers go.
//
//     forever:
//       wait for events, and for a moment that a talk or a back-off waits for  wait_ms()
//       for each event:                                                        handle_event()
//         the listener: a caller becomes a stranger                            LinkAnswerer
//         a talk: our connect() has ended, or a record, or the peer hung up    LinkDialer,
//         the RDMA connection manager: likewise                                LinkAnswerer
//         the device: links that it complains of are to break                  VerbsDevice
//         completions: the shard, which sleeps, is rung
//       for each handshake: answer a held hello whose link has come down; end one that is late
//       each second, while a link is up: ring the shard, to check its requests look_at_progress()
//       for each link:                                                         look_after()
//         up: break it if the device has failed; ring the shard if it is to
//             break; else note if it is of use                                 LinkBackoff
//         down: hang up; dial it when its back-off is over                     LinkDialer
//
// The records of a handshake are those of docs/verbs.md. They go over a socket or by the RDMA
// connection manager (link_talks.h). The socket of a handshake, or its call, stays open as the
// lifeline of its connection: a peer that dies hangs up, and an idle queue pair would not notice.
//
// A part of VerbsProvider. Each connector has one thread. The thread writes a link's fields only
// while it owns the link (verbs_link.h), and never touches a message.
//
// Invariants, around each event and each look at all links: 1. Talks, back-offs and refused hosts
// are valid (link_talks.h, link_backoff.h, refused_hosts.h). 2. A link that is dialed is neither up
// nor lost, and has an address: a hello that is answered ends the dialing, or waits. 3. A link that
// is up has a lifeline, or waits for ready, or is to break. 4. Each link is valid. 5. A held talk
// has a good hello of its link, and has read nothing after it. (is_valid) 6. Only its own thread
// touches talks, back-offs and links that are down. (is_own_thread, in each function)
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "platform/assert.h"
#include "platform/result.h"
#include "platform/thread_stack.h"
#include "transport/verbs/connect/link_answerer.h"
#include "transport/verbs/connect/link_connector_options.h"
#include "transport/verbs/connect/link_dialer.h"
#include "transport/verbs/connect/link_handshake.h"
#include "transport/verbs/connect/link_listener.h"
#include "transport/verbs/connect/link_parts.h"
#include "transport/verbs/connect/verbs_link.h"

namespace bedplate {

class LinkConnector {
 public:
  LinkConnector() noexcept = default;
  LinkConnector(const LinkConnector&) = delete;
  LinkConnector& operator=(const LinkConnector&) = delete;
  ~LinkConnector() { stop(); }

  // Starts the thread. `links` outlast stop(). Before the seal. Requires: called once.
  // Errors (kSystem): it cannot listen; too few descriptors; a seccomp profile forbids a call; no
  // thread. After an error it can only be destroyed.
  Result<void> start(const LinkConnectorOptions& options, std::vector<VerbsLink*> links);
  // Ends the thread, and waits for its end; all lifelines hang up. Does nothing if none runs.
  void stop() noexcept;
  // Asks the shard to take the link down; until then it stays up. Threads: any.
  void break_link(VerbsLink& link) noexcept {
    BP_DCHECK(link.connector == this);
    parts_.changes.break_link(link);
  }

  // Wakes the connector: a link is down, or is wanted. Threads: any. Cost: a system call.
  void wake() noexcept { parts_.events.wake(); }
  // How often the shard was asked to look at its links; it looks when the number grows. Threads:
  // any.
  uint32_t changes() const noexcept { return parts_.changes.count(); }
  // How many handshakes it has refused, malformed welcomes included. A hello that loses against our
  // own call does not count. Threads: any.
  uint64_t refused_count() const noexcept { return parts_.refused_hosts.count(); }
  // Threads: its own, or any before start() and after stop().
  bool is_valid() const noexcept;
  // The most sockets that talks may have open.
  static constexpr uint64_t socket_count_max(uint64_t peer_count) noexcept {
    return LinkTalks::count_max(peer_count);
  }

 private:
  Result<void> listen() noexcept;
  bool watch_all() noexcept;

  void run() noexcept;
  int wait_ms() const noexcept;
  void handle_event(uint64_t token) noexcept;
  void accept_one() noexcept;
  void take_manager_events() noexcept;
  void read_talk(LinkTalk& talk) noexcept;
  void handle_record(LinkTalk& talk) noexcept;
  // Ends the talk, at any stage.
  void give_up(LinkTalk& talk, const char* why) noexcept;
  void look_at_progress(uint64_t now_ns) noexcept;
  void look_after(VerbsLink& link, uint64_t now_ns) noexcept;

  bool is_own_thread() const noexcept { return parts_.is_own_thread(); }
  bool is_valid(const LinkTalk& talk) const noexcept;
  bool is_valid(const VerbsLink& link) const noexcept;

  LinkParts parts_;
  LinkHandshake handshake_{parts_};
  LinkDialer dialer_{parts_, handshake_};
  LinkAnswerer answerer_{parts_, handshake_};
  LinkListener listener_{parts_.events};
  uint32_t device_faults_ = 0;  // the device's fault count at the last look
  uint64_t rung_ns_ = 0;        // when the shard was last asked to check its requests
  StackedThread thread_;
  bool is_running_ = false;
  std::atomic<bool> must_stop_{false};
};

}  // namespace bedplate
