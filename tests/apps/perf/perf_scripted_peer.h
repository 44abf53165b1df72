// The other side of a PerfClient or PerfServer, scripted by a test. One object is both the only
// provider of the side under test and that provider's endpoint. A test overrides the functions that
// its subject uses.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "apps/perf/perf_side.h"

namespace bedplate::test {

class PerfScriptedPeer : public Provider, public Endpoint {
 public:
  explicit PerfScriptedPeer(Dispatcher& dispatcher)
      : Endpoint("scripted", kLimits), dispatcher_(dispatcher) {}

  uint32_t released_count = 0;  // of the loans of say_with_loan()

  // Delivers the message `id` from this peer in a later poll.
  void say(AmId id, std::span<const std::byte> payload) {
    later([this, id, text = std::vector<std::byte>(payload.begin(), payload.end())] {
      dispatcher_.deliver({*this, id, text, {}});
    });
  }
  void say_with_loan(AmId id) {
    later([this, id] { dispatcher_.deliver({*this, id, {}, {.provider = this}}); });
  }
  void later(std::function<void()> action) { due_.push_back(std::move(action)); }

  const char* name() const noexcept override { return "scripted"; }
  Result<Endpoint*> connect(const PeerAddress&) override { return this; }
  // Runs one of the actions of later().
  uint32_t poll(uint32_t) noexcept override {
    if (next_ == due_.size()) return 0;
    const auto action = due_[next_++];
    action();
    return 1;
  }
  void release(const Loan&) noexcept override { ++released_count; }
  void announce_sleep() noexcept override {}
  void announce_awake() noexcept override {}
  void sleep(uint64_t) noexcept override {}
  bool can_sleep() const noexcept override { return true; }

  SendStatus am_send_loan(AmId, std::span<const std::byte>, std::span<std::byte>,
                          Completion*) noexcept override {
    return SendStatus::kRefused;
  }
  SendStatus start(const RemoteOperation&) noexcept override { return SendStatus::kRefused; }
  SendStatus flush(Completion*) noexcept override { return SendStatus::kRefused; }
  Result<RemoteMemory> expose(std::span<std::byte> memory) override {
    return RemoteMemory{reinterpret_cast<uintptr_t>(memory.data()), memory.size(), 0, 0};
  }
  void withdraw(const RemoteMemory&) noexcept override {}
  bool has_room() noexcept override { return true; }

 private:
  static constexpr EndpointLimits kLimits = {4096, 56, 32};
  Dispatcher& dispatcher_;
  std::vector<std::function<void()>> due_;
  size_t next_ = 0;
};

// The side under test, whose only peer is a Peer.
template <typename Peer>
class PerfScriptedSide final : public PerfSide {
 public:
  PerfScriptedSide() : peer_(messenger_.dispatcher()), memory_(2 * kPerfBytesMax) {
    messenger_.add_provider(peer_);
    set_area(memory_);
  }
  Messenger& messenger() noexcept override { return messenger_; }
  Result<Endpoint*> connect() override { return &peer_; }
  Peer& peer() noexcept { return peer_; }

 private:
  Messenger messenger_;
  Peer peer_;
  std::vector<std::byte> memory_;
};

}  // namespace bedplate::test
