#include "tests/strain/stop.h"

#include <algorithm>
#include <cinttypes>

#include <signal.h>
#include <sys/wait.h>

#include "platform/clock.h"
#include "platform/log.h"
#include "tests/strain/strained_group.h"
#include "tests/support/patience.h"

namespace bedplate::strain {
namespace {

constexpr uint32_t kProcessCount = 6;  // including the owner, which is neither stopped nor killed
constexpr uint32_t kStoppedMax = 2;    // at once
using test::kPatienceNs;
constexpr uint64_t kUntilTold = UINT64_MAX / 2;
constexpr uint32_t kKillsInLongStop = 6;
constexpr uint32_t kSpareCount = kKillsInLongStop;  // no slot becomes free during the long stop

class StopEvents {
 public:
  StopEvents(GroupKind kind, uint64_t seed)
      : group_(shape_for(kind), seed, 1, kSpareCount), random_(seed) {}

  void run(uint32_t events);
  void report(uint32_t events) const;

 private:
  struct Peer {
    pid_t pid = 0;
    uint32_t member = 0;
    uint64_t go_on_ns = 0;  // when the stopped peer continues; 0: it is not stopped
  };

  static GroupShape shape_for(GroupKind kind) {
    GroupShape shape = strained_shape(kind, kProcessCount + kSpareCount);
    shape.box_count = 2;  // most messages go through the FIFOs
    return shape;
  }
  uint64_t below(uint64_t bound) { return random_() % bound; }
  BoardRow& row(const Peer& peer) { return group_.board().rows[peer.member]; }
  size_t stopped_count() const;
  void start_missing();
  void stop(Peer& peer, uint64_t nanoseconds);
  bool stop_with_claim(Peer& peer, uint64_t nanoseconds);
  bool has_claim(uint32_t member) const;
  void go_on(Peer& peer);
  void go_on_where_due();
  void kill(size_t index);
  void note_delays();
  void stop_for_long();
  void wait_for_stopped();
  void wait_for_places();
  void wait_for_messages();
  void pause(uint64_t nanoseconds);

  StrainedGroup group_;
  std::mt19937_64 random_;
  std::vector<Peer> peers_;
  uint64_t longest_ns_ = 0;
  uint64_t longest_join_ns_ = 0;
  uint64_t longest_join_beside_ns_ = 0;  // while another was stopped
  uint32_t stops_ = 0, kills_ = 0, claims_ = 0, cut_off_ = 0;
  bool long_had_claim_ = false;
};

size_t StopEvents::stopped_count() const {
  return static_cast<size_t>(std::count_if(peers_.begin(), peers_.end(),
                                           [](const Peer& peer) { return peer.go_on_ns != 0; }));
}

void StopEvents::start_missing() {
  while (peers_.size() + 1 < kProcessCount) {
    const uint64_t begin = monotonic_ns();
    const bool is_beside = stopped_count() > 0;
    const auto has_place = [this] {
      go_on_where_due();
      return group_.taken_count() < kProcessCount + kSpareCount;
    };
    if (time_until(has_place, kPatienceNs) == UINT64_MAX) {
      fail("no place becomes free; %zu members are stopped", stopped_count());
    }
    Peer peer;
    peer.pid = group_.start_peer();
    peer.member = group_.wait_until_alive(peer.pid);
    peers_.push_back(peer);
    uint64_t* longest =
        is_beside && stopped_count() > 0 ? &longest_join_beside_ns_ : &longest_join_ns_;
    *longest = std::max(*longest, monotonic_ns() - begin);
  }
}

void StopEvents::stop(Peer& peer, uint64_t nanoseconds) {
  if (peer.go_on_ns != 0) fail("process %d is stopped already", peer.pid);
  row(peer).stopped_until_ns.store(UINT64_MAX, std::memory_order_release);
  ::kill(peer.pid, SIGSTOP);
  int status = 0;
  if (waitpid(peer.pid, &status, WUNTRACED) != peer.pid || !WIFSTOPPED(status)) {
    fail("process %d ended with %x before it was stopped", peer.pid, static_cast<unsigned>(status));
  }
  peer.go_on_ns = monotonic_ns() + nanoseconds;
}

void StopEvents::go_on(Peer& peer) {
  ::kill(peer.pid, SIGCONT);
  row(peer).stopped_until_ns.store(monotonic_ns(), std::memory_order_release);
  peer.go_on_ns = 0;
}

// Whether the member has claimed a slot of a FIFO and not published it.
bool StopEvents::has_claim(uint32_t member) const {
  const GroupSegment& segment = group_.segment();
  for (uint32_t receiver = 0; receiver < segment.shape().member_count; ++receiver) {
    const InboundFifo fifo = segment.fifo(receiver);
    const uint64_t tail = fifo.tail();
    for (uint64_t index = tail; index < tail + fifo.capacity(); ++index) {
      SlotHeader header;
      fifo.peek(index, &header);
      if (header.kind == SlotKind::kClaimed && header.sender == member) return true;
    }
  }
  return false;
}

// Stops the peer, again and again until it holds a claim. Returns whether it does. A random stop
// hits the few instructions between claiming and publishing about once in a hundred times.
bool StopEvents::stop_with_claim(Peer& peer, uint64_t nanoseconds) {
  if (group_.segment().shape().kind != GroupKind::kLazy) {  // there are no claims
    stop(peer, nanoseconds);
    return false;
  }
  row(peer).must_hurry.store(1, std::memory_order_release);
  bool is_hit = false;
  for (int i = 0; i < 2000 && !is_hit; ++i) {
    if (i > 0) go_on(peer);
    pause(50 * kNsPerUs + below(200 * kNsPerUs));
    stop(peer, nanoseconds);
    is_hit = has_claim(peer.member);
  }
  row(peer).must_hurry.store(0, std::memory_order_release);
  if (is_hit) ++claims_;
  return is_hit;
}

// Continues the peers whose stop is over. A peer may have been cut off because it did not
// acknowledge; such a peer is killed.
void StopEvents::go_on_where_due() {
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].go_on_ns == 0 || monotonic_ns() < peers_[i].go_on_ns) continue;
    go_on(peers_[i]);
    if (group_.members().state(peers_[i].member) == MemberState::kAlive) continue;
    ++cut_off_;
    kill(i--);
  }
}

void StopEvents::kill(size_t index) {
  const Peer peer = peers_[index];
  peers_.erase(peers_.begin() + static_cast<std::ptrdiff_t>(index));
  note_delays();
  ::kill(peer.pid, SIGKILL);
  if (const int status = StrainedGroup::status_of(peer.pid); status != -SIGKILL) {
    fail("process %d ended with %d before it was killed", peer.pid, status);
  }
}

void StopEvents::note_delays() {
  for (uint32_t i = 0; i < group_.segment().shape().member_count; ++i) {
    longest_ns_ = std::max(longest_ns_, group_.board().rows[i].longest_ns.load());
  }
}

void StopEvents::pause(uint64_t nanoseconds) {
  const timespec duration = {static_cast<time_t>(nanoseconds / kNsPerSecond),
                             static_cast<long>(nanoseconds % kNsPerSecond)};
  nanosleep(&duration, nullptr);
}

// Kills other members and starts their successors, one after the other. No slot and no message
// between running members may wait for the stopped member, which continues only after all of that.
void StopEvents::stop_for_long() {
  wait_for_stopped();
  wait_for_places();
  Peer& stopped = peers_[below(peers_.size())];
  const pid_t pid = stopped.pid;
  long_had_claim_ = stop_with_claim(stopped, kUntilTold);
  for (uint32_t i = 0; i < kKillsInLongStop; ++i) {
    size_t index = below(peers_.size());
    while (peers_[index].pid == pid) index = below(peers_.size());
    kill(index);
    ++kills_;
    start_missing();
    wait_for_messages();
  }
  for (Peer& peer : peers_) {
    if (peer.pid == pid) peer.go_on_ns = monotonic_ns();
  }
  wait_for_stopped();
}

// Waits until the slots of all killed members are free. A slot stays taken until the running
// members have acknowledged the death, and the member to be stopped must do so first. The spare
// slots are for the members that are killed during the long stop.
void StopEvents::wait_for_places() {
  if (time_until([this] { return group_.taken_count() == kProcessCount; }, kPatienceNs) ==
      UINT64_MAX) {
    fail("%u places do not become free, though all members run",
         group_.taken_count() - kProcessCount);
  }
}

// Waits until each running member has received, from each other one, a message sent from now on.
void StopEvents::wait_for_messages() {
  struct Pair {
    uint32_t from, to;
    uint64_t sent, heard;
  };
  std::vector<uint32_t> running = {0};  // the owner
  for (const Peer& peer : peers_) {
    if (peer.go_on_ns == 0) running.push_back(peer.member);
  }
  const BoardRow* rows = group_.board().rows;
  std::vector<Pair> pairs;
  for (const uint32_t from : running) {
    for (const uint32_t to : running) {
      if (from == to) continue;
      const uint64_t sent = count_for(rows[from].sent[to].load(), group_.members().generation(to));
      pairs.push_back({from, to, sent, rows[to].heard[from].load()});
    }
  }
  const auto has_come = [&](const Pair& pair) {
    const uint64_t heard = rows[pair.to].heard[pair.from].load();
    // An unchanged count may belong to a former member. One message that the sender has not counted
    // yet may be on its way.
    return heard != pair.heard && heard > pair.sent + 1;
  };
  for (const Pair& pair : pairs) {
    if (time_until([&] { return has_come(pair); }, kPatienceNs) != UINT64_MAX) continue;
    fail("messages from member %u to member %u wait for one that is stopped", pair.from, pair.to);
  }
}

void StopEvents::wait_for_stopped() {
  while (stopped_count() > 0) {
    pause(kNsPerMs);
    go_on_where_due();
  }
  start_missing();
}

void StopEvents::run(uint32_t events) {
  group_.start_own_traffic();
  start_missing();
  for (uint32_t i = 0; i < events; ++i) {
    go_on_where_due();
    start_missing();
    const size_t index = below(peers_.size());
    if (below(3) == 0) {
      kill(index);
      ++kills_;
    } else if (peers_[index].go_on_ns == 0 && stopped_count() < kStoppedMax) {
      // 10 ms to 1 s, mostly short.
      const uint64_t duration = (10 + below(90) * (1 + 10 * (below(10) == 0))) * kNsPerMs;
      below(8) == 0 ? static_cast<void>(stop_with_claim(peers_[index], duration))
                    : stop(peers_[index], duration);
      ++stops_;
    }
    pause(below(10 * kNsPerMs));
  }
  stop_for_long();
  note_delays();
  group_.settle();
  std::vector<pid_t> pids;
  for (const Peer& peer : peers_) pids.push_back(peer.pid);
  group_.end(pids);
  group_.end_own_traffic();
}

void StopEvents::report(uint32_t events) const {
  std::printf("stop: %s, %u events: %u stops, %u of them in the middle of a claim, %u kills; "
              "between those not stopped a message took at most %" PRIu64 " ms, a long stop%s "
              "included; a new member came within %" PRIu64
              " ms, beside a stopped one within %" PRIu64
              " ms; %u were cut off while they were stopped\n",
              to_text(group_.segment().shape().kind), events, stops_, claims_, kills_,
              longest_ns_ / kNsPerMs, long_had_claim_ ? " with a claim" : "",
              longest_join_ns_ / kNsPerMs, longest_join_beside_ns_ / kNsPerMs, cut_off_);
}

}  // namespace

void stop_members(GroupKind kind, uint32_t events, uint64_t seed) {
  set_log_level(LogLevel::kError);
  StopEvents all(kind, seed);
  all.run(events);
  all.report(events);
}

}  // namespace bedplate::strain
