// A provider that behaves as badly as its contract allows: it delays messages, reorders the
// messages of different peers (never of one peer), and returns kAgain on demand. All code that uses
// endpoints must work with it.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "transport/messages/provider.h"

namespace bedplate::test {

class FakeProvider final : public Provider {
 public:
  // Peers 0 to peer_count - 1. A message to a peer comes back from that peer, so a test is its own
  // peer.
  FakeProvider(uint32_t peer_count, uint64_t seed, const Dispatcher& dispatcher)
      : random_(seed), dispatcher_(dispatcher) {
    for (uint32_t i = 0; i < peer_count; ++i) peers_.push_back(std::make_unique<Peer>(*this));
  }

  // Answers the next `count` operations with kAgain.
  void refuse(uint32_t count) { refusals_ = count; }
  // A message waits for at most `polls` polls.
  void set_delay_max(uint32_t polls) { delay_max_ = polls; }
  // Operations that are under way end with `outcome`; later ones return kGone.
  void lose(uint32_t peer, Outcome outcome) {
    peers_[peer]->is_gone = true;
    peers_[peer]->outcome = outcome;
  }

  const char* name() const noexcept override { return "fake"; }
  Result<Endpoint*> connect(const PeerAddress& peer) override {
    if (peer.member < peers_.size()) return peers_[peer.member].get();
    Error error;
    error.set_doing("connecting to member %u", peer.member);
    error.set_answer("there are %zu fake peers", peers_.size());
    return error.set_cure("ask for one of them");
  }

  uint32_t poll(uint32_t budget) noexcept override {
    ++polls_;
    uint32_t count = 0;
    std::vector<Peer*> order;
    for (auto& peer : peers_) order.push_back(peer.get());
    std::shuffle(order.begin(), order.end(), random_);
    for (Peer* peer : order) {
      while (count < budget && peer->has_due(polls_)) {
        peer->finish_first();
        ++count;
      }
    }
    return count;
  }

  void release(const Loan& loan) noexcept override {
    const auto index = static_cast<uint32_t>(loan.token >> 32);
    peers_[index]->returned.push_back(static_cast<uint32_t>(loan.token));
  }
  void announce_sleep() noexcept override {}
  void announce_awake() noexcept override {}
  void sleep(uint64_t) noexcept override {}
  bool can_sleep() const noexcept override { return true; }

 private:
  // One operation under way. A message has a payload; other operations only end.
  struct Pending {
    uint64_t due = 0;
    bool is_message = false;
    AmId id = 0;
    std::string payload;
    std::span<std::byte> loan;
    Completion* done = nullptr;
  };

  struct Peer final : Endpoint {
    explicit Peer(FakeProvider& owner) : Endpoint("fake", kLimits), provider(owner) {}

    SendStatus am_send(AmId id, std::span<const std::byte> payload) noexcept override {
      if (payload.size() > limits().am_bytes_max) return SendStatus::kTooLong;
      if (const auto status = provider.admit(*this); status != SendStatus::kDone) return status;
      add({0, true, id, text_of(payload), {}, nullptr});
      return SendStatus::kDone;
    }
    SendStatus am_send_loan(AmId id, std::span<const std::byte> header, std::span<std::byte> block,
                            Completion* done) noexcept override {
      if (header.size() > limits().loan_header_bytes_max) return SendStatus::kTooLong;
      if (const auto status = provider.admit(*this); status != SendStatus::kDone) return status;
      add({0, true, id, text_of(header), block, done});
      return SendStatus::kPending;
    }
    SendStatus start(const RemoteOperation& operation) noexcept override {
      if (operation.bytes > operation.remote.bytes) return SendStatus::kTooLong;
      return begin(operation.done, [&] {
        auto* at = reinterpret_cast<std::byte*>(operation.remote.address);
        auto* word = reinterpret_cast<uint64_t*>(at);
        switch (operation.kind) {
          case OperationKind::kPut: std::copy_n(operation.local, operation.bytes, at); return;
          case OperationKind::kGet: std::copy_n(at, operation.bytes, operation.local); return;
          case OperationKind::kFetchAdd:
          case OperationKind::kCompareSwap: break;
        }
        const uint64_t was = *word;
        if (operation.before != nullptr) *operation.before = was;
        if (operation.kind == OperationKind::kFetchAdd) *word = was + operation.operand;
        else if (was == operation.expected) *word = operation.operand;
      });
    }
    // Ends after all earlier operations.
    SendStatus flush(Completion* done) noexcept override {
      return begin(done, [] {});
    }
    Result<RemoteMemory> expose(std::span<std::byte> memory) override {
      return RemoteMemory{reinterpret_cast<uintptr_t>(memory.data()), memory.size(), 0, 0};
    }
    void withdraw(const RemoteMemory&) noexcept override {}
    bool has_room() noexcept override { return true; }

    // Acts at once, and reports the end later. Users may rely on the effect only after the
    // completion.
    template <typename Action>
    SendStatus begin(Completion* done, Action action) noexcept {
      if (const auto status = provider.admit(*this); status != SendStatus::kDone) return status;
      action();
      add({0, false, 0, {}, {}, done});
      return SendStatus::kPending;
    }
    void add(Pending pending) {
      pending.due = provider.polls_ + provider.random_() % (provider.delay_max_ + 1);
      queue.push_back(std::move(pending));
    }
    bool has_due(uint64_t now) const {
      return !returned.empty() || (!queue.empty() && (is_gone || queue.front().due <= now));
    }
    void finish_first() {
      if (!returned.empty()) {
        Completion* done = lent[returned.front()];
        returned.pop_front();
        if (done != nullptr) done->call(*done, outcome);
        return;
      }
      const Pending first = std::move(queue.front());
      queue.pop_front();
      if (!first.is_message || is_gone) {
        if (first.done != nullptr) first.done->call(*first.done, outcome);
        return;
      }
      Loan loan;
      if (first.loan.data() != nullptr) {
        lent.push_back(first.done);
        loan = {first.loan, {}, &provider, provider.index_of(*this) << 32 | (lent.size() - 1)};
      }
      provider.dispatcher_.deliver(
          {*this, first.id, std::as_bytes(std::span(first.payload)), loan});
    }
    static std::string text_of(std::span<const std::byte> bytes) {
      return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }

    static constexpr EndpointLimits kLimits = {4096, 56, 32};
    FakeProvider& provider;
    std::deque<Pending> queue;
    std::deque<uint32_t> returned;
    std::vector<Completion*> lent;
    bool is_gone = false;
    Outcome outcome = Outcome::kDone;
  };

  SendStatus admit(const Peer& peer) {
    if (peer.is_gone) return SendStatus::kGone;
    if (refusals_ == 0) return SendStatus::kDone;
    --refusals_;
    return SendStatus::kAgain;
  }
  uint64_t index_of(const Peer& peer) const {
    uint64_t index = 0;
    while (peers_[index].get() != &peer) ++index;
    return index;
  }

  std::mt19937_64 random_;
  const Dispatcher& dispatcher_;
  std::vector<std::unique_ptr<Peer>> peers_;
  uint64_t polls_ = 0;
  uint32_t refusals_ = 0;
  uint32_t delay_max_ = 4;
};

}  // namespace bedplate::test
