// One member of a stressed group. It sends messages of all kinds and sizes to all others, and
// verifies each received message: content, order for each pair, no duplicates. From a member that
// died it must have received at least the messages that the member had counted as sent.
#pragma once

#include <array>
#include <random>

#include "tests/strain/board.h"
#include "tests/strain/verified_message.h"
#include "transport/messages/messenger.h"
#include "transport/shm/endpoint/shm_provider.h"

namespace bedplate::strain {

class Participant {
 public:
  static constexpr uint32_t kBlockCount = 48;
  static constexpr uint32_t kBlockBytes = 16 * 1024;
  static constexpr uint64_t kHeapBytes = uint64_t{kBlockCount} * kBlockBytes;

  struct Options {
    ShmProviderOptions shm;
    Board* board = nullptr;
    std::span<std::byte> heap;  // kHeapBytes; the others may read it
    uint64_t seed = 0;
    uint32_t hold_max = 8;  // loans that it holds for a while before it returns them
  };

  Participant() = default;
  Participant(const Participant&) = delete;
  Participant& operator=(const Participant&) = delete;

  void create(const Options& options);

  // One round: polls, sends a few messages, and sometimes sleeps. Ends the process on any fault.
  void step();
  // Runs rounds until the board's command is kEnd, the pool is gone, or this member must leave.
  void run();

  bool is_pool_gone() const noexcept { return is_pool_gone_; }
  const ShmCounters& counters() const noexcept { return counters_; }

 private:
  struct Peer {
    Endpoint* endpoint = nullptr;
    uint64_t generation = 0;  // of the member that we send to
    uint64_t next_sequence = 0;
    uint64_t heard_generation = 0;  // of the member that we receive from
    uint64_t expected = 0;
    bool is_joined = false;
  };
  struct Block : Completion {
    Participant* owner = nullptr;
    std::span<std::byte> memory;
    uint32_t peer = 0;
    bool is_out = false;
  };
  struct Held {
    VerifiedHeader header;
    Loan loan;
  };

  void receive(const Message& message) noexcept;
  void note_delay(uint32_t from, uint64_t sent_ns) noexcept;
  void learn(const PeerEvent& event) noexcept;
  void check_last_words(const PeerEvent& event) noexcept;
  void connect_to_new();
  void send_burst();
  SendStatus send_copy(uint32_t to, VerifiedHeader header);
  SendStatus send_loan(uint32_t to, VerifiedHeader header);
  void returned(Block& block) noexcept;
  void release_one();
  bool has_everything() noexcept;
  void drain_after_owner();
  uint64_t below(uint64_t bound) { return random_() % bound; }
  BoardRow& row() noexcept { return board_->rows[self_]; }

  ShmCounters counters_;
  ShmProvider shm_;
  Messenger messenger_;
  std::mt19937_64 random_;
  Board* board_ = nullptr;
  const MembersTable* members_ = nullptr;
  uint32_t self_ = 0;
  uint64_t generation_ = 0;
  uint32_t member_count_ = 0;
  uint32_t hold_max_ = 0;
  uint32_t partner_ = 0;
  uint32_t partner_left_ = 0;
  bool is_pool_gone_ = false;
  std::array<Peer, kMemberMax> peers_;
  std::array<Block, kBlockCount> blocks_;
  std::array<Held, 64> held_;
  uint32_t held_count_ = 0;
  std::array<std::byte, kMessageBytesMax> scratch_;
};

}  // namespace bedplate::strain
