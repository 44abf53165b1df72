// The connector: makes connections and notices when peers go.
//
// It listens, dials with a bounded back-off, gives and takes the handshake's records
// (docs/verbs.md) over a socket or by the RDMA connection manager (link_carriers.cc), and brings
// queue pairs up. The socket of a handshake, or its call, stays open as the lifeline of its
// connection: a peer that dies hangs up, which an idle queue pair would never tell. A handshake
// that breaks the rules is refused, and logged once for each host.
//
// One thread for each provider, whose part this is. It touches a link only while that is its own
// (verbs_link.h), and never a message.
//
// Invariants, around each event and each look at all links: 1. A talk that is not free has a socket
// or a call, and from its hello on a link. 2. A link has at most one talk that is its lifeline, and
// one that is to become it. 3. A link that is dialed is neither up nor lost: a hello that is
// answered ends the dialing, or waits. 4. A link that is up has a lifeline, or waits for ready, or
// is to break. 5. Strangers, told hosts and back-offs keep within their limits. 6. Each link is
// valid. 7. All talks have the carrier of the options, and a link that is dialed has an address.
// 8. A held talk has a good hello of its link, and has read nothing behind it. 9. The open calls
// are those of talks. (is_valid) 10. A talk goes from stage to stage in their order. (enter)
// 11. Only its own thread touches talks, back-offs and links that are down. (is_own_thread, in
// each function)
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "platform/file.h"
#include "platform/log_limit.h"
#include "platform/thread_owner.h"
#include "platform/thread_stack.h"
#include "transport/loop/doorbell.h"
#include "transport/verbs/connect/connection_manager.h"
#include "transport/verbs/connect/verbs_link.h"
#include "transport/verbs/verbs_wire.h"

namespace bedplate {

struct LinkTiming {
  uint64_t backoff_ns_min = 10'000'000;
  uint64_t backoff_ns_max = 1'000'000'000;
  uint64_t answer_ns_max = 2'000'000'000;  // for the records of a handshake
  uint64_t give_up_ns = 30'000'000'000;    // then sends say kGone; it is dialed on all the same
  // An unreachable peer is logged at once, then after this, then after twice as long each time.
  uint64_t tell_ns_min = 60'000'000'000;
  uint64_t tell_ns_max = 3'600'000'000'000;
  // A TCP lifeline whose other end answers no probe hangs up, a third later at most.
  uint64_t silence_ns_max = 6'000'000'000;
  // If no posted request ends for so long, the connection is made anew. A healthy device reports a
  // silent peer much sooner; each request has to get through in this time.
  uint64_t stall_ns_max = 5'000'000'000;
  RetryOptions retry;
};

// All objects that it names outlive stop().
struct LinkConnectorOptions {
  std::string name;
  uint64_t instance = 0;
  std::optional<SocketAddress> listen;
  uint16_t window = 0;
  uint32_t message_bytes = 0;
  uint32_t flush_key = 0;
  uint64_t flush_address = 0;
  uint32_t datagram_queue = 0;  // 0: none
  bool is_by_manager = false;   // the RDMA connection manager's, and no socket
  LinkTiming timing;
  VerbsDevice* device = nullptr;  // its events are taken here
  int completion_fd = -1;         // readable when something arrives for a shard that sleeps
  Doorbell* bell = nullptr;       // the provider's: rung when a link changes
  Doorbell* loop_bell = nullptr;  // of the loop that polls it; nullptr: polled by hand
};

class LinkConnector {
 public:
  LinkConnector() noexcept = default;
  LinkConnector(const LinkConnector&) = delete;
  LinkConnector& operator=(const LinkConnector&) = delete;
  ~LinkConnector() { stop(); }

  // Starts the thread. `links` outlast stop(). Before the seal. Requires: called once.
  // Errors (kSystem): it cannot listen there; no thread.
  Result<void> start(const LinkConnectorOptions& options, std::vector<VerbsLink*> links);
  // Ends the thread, and waits for its end; all lifelines hang up. Does nothing if none runs.
  void stop() noexcept;
  // Asks the shard to take the link down; until then it stays up. Threads: any.
  void break_link(VerbsLink& link) noexcept;

  // Tells the connector that a link is down, or wanted. Threads: any. Cost: a system call.
  void wake() noexcept;
  // Counts the changes of links that a shard must look at. Threads: any.
  uint32_t changes() const noexcept { return changes_.load(std::memory_order_acquire); }
  // How many hellos it has refused. Threads: any.
  uint64_t refused_count() const noexcept { return refused_.load(std::memory_order_relaxed); }
  // Threads: its own, or any before start() and after stop().
  bool is_valid() const noexcept;
  // How many sockets it may have open: for each peer a lifeline and a call, then strangers.
  static constexpr uint64_t socket_count_max(uint64_t peer_count) noexcept {
    return 2 * peer_count + kStrangerCountMax;
  }

 private:
  static constexpr uint32_t kStrangerCountMax = 16;  // sockets that have not said hello
  static constexpr uint32_t kToldHostCountMax = 32;
  // The words by which epoll tells descriptors apart; a talk has its index.
  static constexpr uint64_t kWakeToken = UINT64_MAX;
  static constexpr uint64_t kListenerToken = UINT64_MAX - 1;
  static constexpr uint64_t kCompletionToken = UINT64_MAX - 2;
  static constexpr uint64_t kDeviceToken = UINT64_MAX - 3;
  static constexpr uint64_t kManagerToken = UINT64_MAX - 4;

  enum class Stage : uint8_t {
    kFree,
    kConnecting,  // our connect() is under way
    kAwaitHello,
    kHeld,  // a good hello; its link has to come down first
    kAwaitWelcome,
    kAwaitReady,
    kLifeline,
  };
  // Any talk may be dropped: then it is free.
  static constexpr bool can_follow(Stage from, Stage to) noexcept {
    switch (to) {
      case Stage::kFree: return true;
      case Stage::kConnecting:
      case Stage::kAwaitHello: return from == Stage::kFree;
      case Stage::kHeld: return from == Stage::kAwaitHello;
      case Stage::kAwaitWelcome: return from == Stage::kConnecting;
      case Stage::kAwaitReady: return from == Stage::kHeld;
      case Stage::kLifeline: return from == Stage::kAwaitWelcome || from == Stage::kAwaitReady;
    }
    return false;
  }
  struct Talk {
    Stage stage = Stage::kFree;
    Fd fd;  // or
    rdma_cm_id* call = nullptr;
    VerbsLink* link = nullptr;
    uint64_t deadline_ns = 0;
    size_t bytes = 0;  // of the record
    HandshakeRecord record = {};
    char host[64] = {};
  };
  struct Dialing {  // for each link
    uint64_t next_ns = 0;
    uint64_t backoff_ns = 0;
    uint64_t down_since_ns = 0;  // 0: nobody wants it, or it is up and has been of use
    uint64_t up_since_ns = 0;    // 0: it is down
    uint64_t tell_ns = 0;        // when to say again that it cannot be reached
    uint64_t tell_pause_ns = 0;  // then; 0: it was not said yet in this time down
    uint64_t cut_instance = 0;
    char address[64] = {};  // that is dialed, for messages
  };

  void run() noexcept;
  void look_at_progress(uint64_t now_ns) noexcept;
  int wait_ms() const noexcept;
  void handle_event(uint64_t token) noexcept;
  void handle_record(Talk& talk) noexcept;

  // Carrying the records (link_carriers.cc).
  Result<void> listen() noexcept;
  void dial(VerbsLink& link, uint64_t now_ns) noexcept;
  void accept_one() noexcept;
  void listen_again(bool listens) noexcept;
  // Makes room among talks that have not said hello: drops those that have waited longest.
  void drop_strangers(uint32_t count_max) noexcept;
  void read_talk(Talk& talk) noexcept;
  // Ends the talk, at any stage.
  void give_up(Talk& talk, const char* why) noexcept;
  void take_manager_events() noexcept;
  void take_call(const ConnectionManager::Event& event) noexcept;
  bool send_record(Talk& talk, HandshakeRecord& record) noexcept;
  bool watch(int fd, uint32_t events, uint64_t token) noexcept;
  bool watch(Talk& talk, uint32_t events) noexcept;
  void drop(Talk& talk) noexcept;

  // Dialing.
  void look_after(VerbsLink& link, uint64_t now_ns) noexcept;
  bool has_been_of_use(const VerbsLink& link, uint64_t now_ns) const noexcept;
  void say_hello(Talk& talk) noexcept;
  void take_welcome(Talk& talk) noexcept;
  void take_refusal(Talk& talk) noexcept;
  // `cure` nullptr: the cure for a peer that does not answer.
  void back_off(VerbsLink& link, const char* why, const char* cure = nullptr) noexcept;
  void delay_next(Dialing& state) noexcept;

  // Answering.
  void take_hello(Talk& talk) noexcept;
  void answer_hello(Talk& talk) noexcept;
  void refuse(Talk& talk, Refusal why) noexcept;
  // Notes the instance of the peer that broke the rules, if one did.
  void note_cut_off(const VerbsLink& link) noexcept;

  // Both. begin() chooses values anew for each handshake.
  void begin(VerbsLink& link) noexcept;
  void commit(VerbsLink& link, const HandshakeRecord& record, const char* host) noexcept;
  void come_up(VerbsLink& link) noexcept;
  Result<void> connect_queue_pair(VerbsLink& link) noexcept;
  HandshakeRecord make_record(HandshakeKind kind, const VerbsLink* link) const noexcept;
  Talk* free_talk() noexcept;
  void enter(Talk& talk, Stage next) noexcept {
    BP_DCHECK(is_own_thread() && can_follow(talk.stage, next));
    talk.stage = next;
  }
  // The link's lifeline, or its talk that is not a lifeline yet; nullptr: none.
  Talk* talk_of(const VerbsLink& link, bool is_lifeline) noexcept;
  const Talk* talk_of(const VerbsLink& link, bool is_lifeline) const noexcept;
  bool is_own_thread() const noexcept { return owner_.is_caller(); }
  bool is_valid(const Talk& talk) const noexcept;
  bool is_held_well(const Talk& talk) const noexcept;
  bool is_valid(const VerbsLink& link) const noexcept;
  VerbsLink* link_named(const char* name) const noexcept;
  Dialing& dialing(const VerbsLink& link) noexcept {
    BP_DCHECK(link.place < dialing_.size() && is_own_thread());
    return dialing_[link.place];
  }
  void tell_once(const char* host, const char* why) noexcept;
  void ring() noexcept;

  LinkConnectorOptions options_;
  std::vector<VerbsLink*> links_;
  std::vector<Dialing> dialing_;
  std::vector<Talk> talks_;
  char told_hosts_[kToldHostCountMax][64] = {};
  uint32_t told_host_count_ = 0;
  OncePerSecond device_errors_;
  uint64_t accept_ns_ = 0;          // when there may be a file descriptor again; 0: it is listening
  bool was_shortage_told_ = false;  // of descriptors, since something was accepted
  uint32_t device_faults_ = 0;      // that all links were broken for
  uint64_t rung_ns_ = 0;            // when the shard was last asked to check its requests
  Fd epoll_;
  Fd wake_;
  Fd listener_;
  ConnectionManager manager_;
  StackedThread thread_;
  bool is_running_ = false;
  std::atomic<bool> must_stop_{false};
  std::atomic<uint32_t> changes_{0};
  std::atomic<uint64_t> refused_{0};
  ThreadOwner owner_;  // held by its thread, in debug builds
};

}  // namespace bedplate
