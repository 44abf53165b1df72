// A member that trusts nothing: it uses the whole interface, reads every byte that it receives, and
// relies on the sanitizer for the rest. Messages may be nonsense; they must never do harm.
#pragma once

#include <array>
#include <random>

#include "tests/strain/verified_message.h"
#include "transport/messages/messenger.h"
#include "transport/shm/endpoint/shm_provider.h"

namespace bedplate::strain {

class Victim {
 public:
  static constexpr uint32_t kMemberMax = 8;
  static constexpr uint32_t kBlockBytes = 1024;
  static constexpr uint32_t kBlockCount = 16;
  static constexpr uint64_t kHeapBytes = uint64_t{kBlockCount} * kBlockBytes;

  // `heap` has kHeapBytes; the others may read it.
  Victim(const ShmProviderOptions& options, std::span<std::byte> heap, uint64_t seed);
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

  // Polls, releases loans, and sends to some of the peers or operates on their memory.
  void step();

  const ShmCounters& counters() const noexcept { return counters_; }
  // Fails if private memory that was not exposed has changed.
  void check_private() const;

 private:
  static constexpr uint32_t kPrivateBytes = 2048;
  static constexpr uint32_t kExposedAt = 512;
  static constexpr uint32_t kExposedBytes = 256;
  static constexpr uint32_t kPendingCount = 16;

  // A completion is called once for each operation that was accepted.
  struct Pending : Completion {
    bool is_out = false;
    std::array<std::byte, kExposedBytes> local = {};
    uint64_t before = 0;
  };
  struct Peer {
    bool is_there = false;
    Endpoint* endpoint = nullptr;
    RemoteMemory exposed = {};  // our memory, exposed to the peer
    RemoteMemory remote = {};   // the peer's memory, exposed to us
  };

  void receive(const Message& message) noexcept;
  void read(std::span<const std::byte> bytes) noexcept;
  void learn(const PeerEvent& event) noexcept;
  void meet(uint32_t member);
  void act(Peer& peer);
  void operate(Peer& peer);
  template <typename Start>
  void start(Pending& pending, Start&& call);
  uint64_t below(uint64_t bound) { return random_() % bound; }

  ShmCounters counters_;
  ShmProvider shm_;
  Messenger messenger_;
  std::mt19937_64 random_;
  uint32_t self_;
  uint32_t member_count_;
  std::span<std::byte> heap_;
  std::array<Peer, kMemberMax> peers_;
  std::array<Pending, kPendingCount> operations_;
  std::array<Pending, kBlockCount> loans_;
  std::array<Loan, 8> held_;
  uint32_t held_count_ = 0;
  uint64_t sum_ = 0;  // of everything that was read
  std::array<std::byte, kMessageBytesMax> scratch_;
  alignas(64) std::array<std::byte, kPrivateBytes> private_;
};

}  // namespace bedplate::strain
