// Self-checking traffic between two appliances, and its account.
//
// Both ends run it, with one peer each. Numbered messages, loans, puts, gets and atomics go in both
// directions all the time, and every byte identifies its operation. The test that reads the account
// handles the network's faults (cables, reboots, hostile neighbours); the traffic checks rules that
// always hold:
//
//   messages  come once, in order; an acknowledged message never comes again
//   loans     ended as kDone: read, with the right content; each is given back once
//   puts      kDone: the bytes arrived; kNotDone: none of them; kUnknown: each is old or new
//   atomics   each returned value is possible after the operations that ended before
//
// A failed check is a line `traffic: FAULT: ...` and is counted. While traffic of all kinds flows
// in both directions, a line `traffic: flows` appears at most twice a second.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/messages/messenger.h"
#include "transport/verbs/channel/verbs_provider.h"

namespace bedplate::traffic {

inline constexpr AmId kGreeting = 1;  // the instance, messages received, memory for the peer's puts
inline constexpr AmId kData = 3;
inline constexpr AmId kLent = 5;
inline constexpr AmId kUnread = 6;  // a loan that its receiver has not read

inline constexpr uint32_t kSlotCount = 4;
inline constexpr uint64_t kSlotBytes = 8 * kKiB;
inline constexpr uint64_t kAreaBytes = kSlotCount * kSlotBytes + 4 * kKiB;  // the words come last

struct UnreadLoan {
  uint64_t lender;  // its instance
  uint64_t number;
};

// Counts of operations by their outcome.
struct Ends {
  uint64_t started = 0;
  uint64_t counts[3] = {};  // by Outcome

  void add(Outcome outcome) noexcept { ++counts[static_cast<int>(outcome)]; }
  uint64_t done() const noexcept { return counts[static_cast<int>(Outcome::kDone)]; }
  std::string text() const;  // JSON
};

void report_fault(const char* format, ...) noexcept __attribute__((format(printf, 1, 2)));
uint64_t fault_count() noexcept;

// Fills `bytes` with the content of operation `number` of `stream`: no two have a word in common.
void fill(std::span<std::byte> bytes, uint64_t stream, uint64_t number) noexcept;
// The word at `index` of that content.
uint64_t word_of(uint64_t stream, uint64_t number, size_t index) noexcept;
bool is_filled(std::span<const std::byte> bytes, uint64_t stream, uint64_t number) noexcept;

// An operation that calls on_end() of its owner.
template <typename Owner>
struct Operation : Completion {
  explicit Operation(Owner* whose) : owner(whose) {
    call = [](Completion& self, Outcome outcome) noexcept {
      static_cast<Operation&>(self).owner->on_end(outcome);
    };
  }
  Owner* owner;
};

// One slot of the peer's memory: put, flush, get, compare, and again.
class PutSlot {
 public:
  PutSlot(uint32_t index, Ends* puts, Ends* gets);
  // Takes the next step. `may_begin`: also begins the next put.
  void step(Endpoint& peer, const RemoteMemory& area, bool may_begin) noexcept;
  // Makes the bytes of the slot unknown: they are read before the next put.
  void forget() noexcept;
  bool is_idle() const noexcept { return state_ == State::kIdle || is_first_; }
  void on_end(Outcome outcome) noexcept;

 private:
  enum class State : uint8_t { kIdle, kPutting, kFlushDue, kFlushing, kGetDue, kGetting };
  void compare() noexcept;

  const uint32_t index_;
  Ends* const puts_;
  Ends* const gets_;
  State state_ = State::kFlushDue;
  bool is_first_ = true;  // nothing was put yet
  uint64_t number_ = 0;
  Outcome outcome_ = Outcome::kDone;  // of the put
  bool is_forgotten_ = false;         // the bytes there are unknown
  std::vector<std::byte> sent_;
  std::vector<std::byte> seen_;
  std::vector<std::byte> known_;  // the bytes before the put
  Operation<PutSlot> operation_{this};
};

// Two words of the peer: one is a counter, the other is exchanged.
class AtomicWords {
 public:
  explicit AtomicWords(Ends* ends) : ends_(ends) {}
  void step(Endpoint& peer, const RemoteMemory& area, bool may_begin) noexcept;
  void forget() noexcept;
  bool is_idle() const noexcept { return !is_pending_; }
  void on_end(Outcome outcome) noexcept;

 private:
  Ends* const ends_;
  bool is_pending_ = false;
  bool adds_ = false;
  bool is_forgotten_ = false;
  uint64_t low_ = 0;  // the count is between these
  uint64_t high_ = UINT64_MAX;
  std::vector<uint64_t> possible_;  // values that the other word may have; empty: any
  uint64_t expected_ = 0;
  uint64_t desired_ = 0;
  uint64_t before_ = 0;
  Operation<AtomicWords> operation_{this};
};

// Blocks that are lent to the peer.
class Lender {
 public:
  Lender();
  void step(Endpoint& peer, bool may_begin) noexcept;
  // The peer has not read the loan `number`.
  void take_unread(uint64_t number) noexcept;
  bool is_idle() const noexcept;
  const Ends& ends() const noexcept { return ends_; }
  uint64_t unread_count() const noexcept { return unread_; }

 private:
  static constexpr uint32_t kBlockCount = 3;
  struct Block : Completion {
    Lender* lender = nullptr;
    uint64_t number = 0;
    std::vector<std::byte> bytes;
    bool is_lent = false;
  };
  Block blocks_[kBlockCount];
  std::vector<uint8_t> outcomes_;  // by number; 0xff while it has not ended
  Ends ends_;
  uint64_t unread_ = 0;
};

// Loans from the peer: each is read into its own buffer, compared, and returned.
class Borrower {
 public:
  explicit Borrower(Messenger& messenger);
  void take(const Message& message) noexcept;
  void step(Endpoint& peer, uint64_t lender) noexcept;
  // A new peer numbers its loans anew.
  void forget() noexcept;
  bool is_idle() const noexcept;
  uint64_t read_count() const noexcept { return read_; }

 private:
  static constexpr uint32_t kReadCount = 16;
  struct Read : Completion {
    Borrower* borrower = nullptr;
    Loan loan;
    uint64_t number = 0;
    std::vector<std::byte> bytes;
    enum class State : uint8_t { kFree, kDue, kReading } state = State::kFree;
  };
  void end(Read& read, bool is_done) noexcept;

  Messenger* const messenger_;
  Read reads_[kReadCount];
  std::vector<uint64_t> unread_;  // numbers to report to the lender
  uint64_t next_ = 0;
  bool is_new_ = true;
  uint64_t read_ = 0;
};

struct TrafficOptions {
  Messenger* messenger = nullptr;
  Endpoint* peer = nullptr;
  std::string peer_name;
  std::span<std::byte> area = {};  // for the peer's puts; an export
  uint64_t instance = 0;
};

class Traffic {
 public:
  explicit Traffic(const TrafficOptions& options);

  // Continues all traffic. Called all the time.
  void step(bool may_begin) noexcept;
  // Whether all operations have ended, and all sent messages are acknowledged.
  bool is_drained() const noexcept;
  // One line of JSON.
  std::string account(const VerbsCounters& counters) const;

 private:
  void greet() noexcept;
  void send_data() noexcept;
  void take_greeting(const Message& message) noexcept;
  void take_data(const Message& message) noexcept;
  void take_loan(const Message& message) noexcept;
  void take_unread(const Message& message) noexcept;
  void hear_of(uint64_t instance) noexcept;
  void look_at_silence(uint64_t now_ns) noexcept;
  void look_at_flow(uint64_t now_ns) noexcept;
  template <void (Traffic::*function)(const Message&) noexcept>
  void listen(AmId id);

  const TrafficOptions options_;
  RemoteMemory mine_;  // options.area, as the peer reaches it
  // The peer.
  uint64_t peer_instance_ = 0;
  bool was_known_ = false;  // by an earlier instance
  RemoteMemory theirs_;
  uint64_t heard_ns_ = 0;
  bool is_silent_ = true;
  // Counts of each kind of traffic at the last line `traffic: flows`.
  std::array<uint64_t, 7> flow_ = {};
  uint64_t flow_told_ns_ = 0;
  // Messages to it.
  uint64_t sent_ = 0;
  uint64_t acknowledged_ = 0;
  uint64_t acknowledged_before_ = 0;  // by an earlier instance
  uint64_t greeted_ns_ = 0;
  uint64_t gone_ = 0;
  // Messages from it.
  bool has_received_ = false;
  uint64_t began_at_ = 0;  // the first number of this peer
  uint64_t received_ = 0;  // the next number
  uint64_t strangers_ = 0;
  Ends puts_;
  Ends gets_;
  Ends atomics_;
  std::vector<std::unique_ptr<PutSlot>> slots_;
  AtomicWords words_{&atomics_};
  Lender lender_;
  Borrower borrower_;
};

}  // namespace bedplate::traffic
