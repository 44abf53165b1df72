#include "tests/strain/victim.h"

#include <algorithm>

namespace bedplate::strain {
namespace {

constexpr AmId kWordsId = 1;
constexpr AmId kLoanId = 2;
constexpr AmId kExposedId = 3;  // its payload is a RemoteMemory
constexpr std::byte kUntouched{0x5a};

}  // namespace

Victim::Victim(const ShmProviderOptions& options, std::span<std::byte> heap, uint64_t seed)
    : random_(seed),
      self_(options.member),
      member_count_(options.segment.shape().member_count),
      heap_(heap) {
  private_.fill(kUntouched);
  scratch_.fill(kUntouched);
  const auto call = [](Completion& self, Outcome) noexcept {
    auto& pending = static_cast<Pending&>(self);
    if (!pending.is_out) fail("a completion without a pending operation was called");
    pending.is_out = false;
  };
  for (Pending& operation : operations_) operation.call = call;
  for (Pending& loan : loans_) loan.call = call;
  for (const AmId id : {kWordsId, kLoanId, kExposedId}) {
    messenger_.set_handler(id, {[](void* self, const Message& message) noexcept {
                                  static_cast<Victim*>(self)->receive(message);
                                },
                                this});
  }
  ShmProviderOptions shm = options;
  shm.counters = &counters_;
  shm.on_peer = {
      [](void* self, const PeerEvent& event) noexcept { static_cast<Victim*>(self)->learn(event); },
      this};
  if (!shm_.create(shm, messenger_.dispatcher()).ok()) fail("no provider");
  messenger_.add_provider(shm_);
}

void Victim::read(std::span<const std::byte> bytes) noexcept {
  for (const std::byte byte : bytes) sum_ += static_cast<uint64_t>(byte);
}

void Victim::receive(const Message& message) noexcept {
  read(message.payload);
  read(message.loan.memory);
  const uint32_t from = static_cast<ShmEndpoint&>(message.from).peer();
  if (from >= member_count_ || from == self_) fail("a message from member %u", from);
  if (message.id == kExposedId && message.payload.size() >= sizeof(RemoteMemory)) {
    RemoteMemory& remote = peers_[from].remote;
    std::memcpy(&remote, message.payload.data(), sizeof remote);
    // Clears the mark of pool memory (is_pool_memory), so that only the target accesses it.
    remote.kind &= ~uint64_t{1};
  }
  if (below(8) == 0) (void)message.from.am_send(kWordsId, std::span(scratch_).first(below(100)));
  if (!message.loan.is_there()) return;
  if (held_count_ == held_.size()) messenger_.release(held_[--held_count_]);
  held_[held_count_++] = message.loan;
}

void Victim::learn(const PeerEvent& event) noexcept {
  if (event.kind == PeerEventKind::kPoolGone) return;
  peers_[event.member].is_there = event.kind == PeerEventKind::kJoined;
}

void Victim::meet(uint32_t member) {
  Peer& peer = peers_[member];
  if (peer.is_there == (peer.endpoint != nullptr)) return;
  if (!peer.is_there) {
    peer.endpoint->withdraw(peer.exposed);
    peer = {};
    return;
  }
  auto endpoint = messenger_.connect({member});
  if (!endpoint.ok()) return;
  auto exposed = endpoint.value()->expose(std::span(private_).subspan(kExposedAt, kExposedBytes));
  if (!exposed.ok()) fail("%s: %s", exposed.error().doing, exposed.error().answer);
  peer.endpoint = endpoint.value();
  peer.exposed = exposed.value();
}

template <typename Start>
void Victim::start(Pending& pending, Start&& call) {
  if (pending.is_out) return;
  pending.is_out = true;
  if (call() != SendStatus::kPending) pending.is_out = false;
}

void Victim::operate(Peer& peer) {
  Pending& pending = operations_[below(kPendingCount)];
  Endpoint& endpoint = *peer.endpoint;
  RemoteMemory remote = peer.remote;
  remote.bytes = std::min<uint64_t>(remote.bytes, pending.local.size());
  const uint64_t bytes = remote.bytes == 0 ? 0 : below(remote.bytes + 1);
  switch (below(5)) {
    case 0:
      return start(pending, [&] {
        return endpoint.put(std::span(pending.local).first(bytes), remote, &pending);
      });
    case 1:
      return start(pending, [&] {
        return endpoint.get(std::span(pending.local).first(bytes), remote, &pending);
      });
    case 2:
      return start(pending,
                   [&] { return endpoint.fetch_add(remote, 1, &pending.before, &pending); });
    case 3:
      return start(pending,
                   [&] { return endpoint.compare_swap(remote, 1, 2, &pending.before, &pending); });
    default: return start(pending, [&] { return endpoint.flush(&pending); });
  }
}

void Victim::act(Peer& peer) {
  Endpoint& endpoint = *peer.endpoint;
  switch (below(8)) {
    case 0: {
      const auto& exposed = peer.exposed;
      return (void)endpoint.am_send(kExposedId, std::as_bytes(std::span(&exposed, 1)));
    }
    case 1: {
      const uint64_t i = below(kBlockCount);
      return start(loans_[i], [&] {
        return endpoint.am_send_loan(kLoanId, std::span(scratch_).first(below(33)),
                                     heap_.subspan(i * kBlockBytes, 1 + below(kBlockBytes)),
                                     &loans_[i]);
      });
    }
    case 2:
    case 3: return operate(peer);
    case 4: {
      const uint64_t limit = endpoint.limits().am_bytes_max;
      return (void)endpoint.am_send(kWordsId, std::span(scratch_).first(below(limit + 1)));
    }
    default: return (void)endpoint.am_send(kWordsId, std::span(scratch_).first(below(100)));
  }
}

void Victim::step() {
  messenger_.poll(static_cast<uint32_t>(1 + below(16)));
  if (below(64) == 0) messenger_.wait(1);
  if (held_count_ > 0 && below(2) == 0) messenger_.release(held_[--held_count_]);
  for (uint32_t i = 0; i < member_count_; ++i) {
    if (i == self_) continue;
    meet(i);
    if (peers_[i].endpoint != nullptr && below(2) == 0) act(peers_[i]);
  }
}

void Victim::check_private() const {
  for (uint32_t i = 0; i < kPrivateBytes; ++i) {
    if (i - kExposedAt < kExposedBytes || private_[i] == kUntouched) continue;
    fail("byte %u of private memory, which was not exposed, was written", i);
  }
}

}  // namespace bedplate::strain
