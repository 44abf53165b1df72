#include "transport/messages/locking_provider.h"

#include <algorithm>
#include <bit>
#include <mutex>

#include "platform/assert.h"

namespace bedplate {

class LockingProvider::WrappedEndpoint final : public Endpoint {
 public:
  WrappedEndpoint(LockingProvider& owner, Endpoint& wrapped) noexcept
      : Endpoint(wrapped.provider_name(), wrapped.limits()), owner_(owner), wrapped_(wrapped) {}

  SendStatus am_send(AmId id, std::span<const std::byte> payload) noexcept override {
    const std::lock_guard guard(owner_.lock_);
    return wrapped_.am_send(id, payload);
  }
  SendStatus am_send_loan(AmId id, std::span<const std::byte> header, std::span<std::byte> block,
                          Completion* returned) noexcept override {
    return owner_.with_completion(returned, [&](Completion* ours) noexcept {
      return wrapped_.am_send_loan(id, header, block, ours);
    });
  }
  SendStatus start(const RemoteOperation& operation) noexcept override {
    return owner_.with_completion(operation.done, [&](Completion* ours) noexcept {
      RemoteOperation inner = operation;
      inner.done = ours;
      return wrapped_.start(inner);
    });
  }
  SendStatus flush(Completion* done) noexcept override {
    return owner_.with_completion(done,
                                  [&](Completion* ours) noexcept { return wrapped_.flush(ours); });
  }
  Result<RemoteMemory> expose(std::span<std::byte> memory) override {
    const std::lock_guard guard(owner_.lock_);
    return wrapped_.expose(memory);
  }
  void withdraw(const RemoteMemory& memory) noexcept override {
    const std::lock_guard guard(owner_.lock_);
    wrapped_.withdraw(memory);
  }
  bool has_room() noexcept override {
    const std::lock_guard guard(owner_.lock_);
    return wrapped_.has_room();
  }

  Endpoint& wrapped() const noexcept { return wrapped_; }

 private:
  LockingProvider& owner_;
  Endpoint& wrapped_;
};

// Releases the lock for the duration of a callback. A provider may report peers even while it is
// made.
class LockingProvider::Unlocked {
 public:
  explicit Unlocked(LockingProvider& owner) noexcept : owner_(owner) {
    if (owner_.is_polling_) owner_.lock_.unlock();
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked() {
    if (owner_.is_polling_) owner_.lock_.lock();
  }

 private:
  LockingProvider& owner_;
};

LockingProvider::LockingProvider(Provider& wrapped, const Dispatcher& outer,
                                 const LockingLimits& limits)
    : wrapped_(wrapped),
      outer_(outer),
      endpoints_(std::bit_ceil(2 * limits.endpoint_count + 1)),
      completions_(std::make_unique<WrappedCompletion[]>(limits.completion_count)),
      completion_count_(limits.completion_count) {
  dispatcher_.set_onward({[](void* self, const Message& message) noexcept {
                            return static_cast<LockingProvider*>(self)->pass_on(message);
                          },
                          this});
  for (WrappedCompletion& completion : std::span(completions_.get(), completion_count_)) {
    completion.owner = this;
    completion.call = [](Completion& self, Outcome outcome) noexcept {
      auto& ours = static_cast<WrappedCompletion&>(self);
      ours.owner->finish(ours, outcome);
    };
    free(completion);
  }
}

LockingProvider::~LockingProvider() = default;

PeerEventHandler LockingProvider::events_to(const PeerEventHandler& outer) noexcept {
  BP_ASSERT(outer_events_.function == nullptr);
  outer_events_ = outer;
  if (outer.function == nullptr) return {};
  return {[](void* context, const PeerEvent& event) noexcept {
            auto& self = *static_cast<LockingProvider*>(context);
            const Unlocked unlocked(self);
            self.outer_events_.function(self.outer_events_.context, event);
          },
          this};
}

Result<Endpoint*> LockingProvider::connect(const PeerAddress& peer) {
  const std::lock_guard guard(lock_);
  auto connected = wrapped_.connect(peer);
  if (!connected.ok()) return connected;
  return &wrap(*connected.value());
}

uint32_t LockingProvider::poll(uint32_t budget) noexcept {
  const std::lock_guard guard(lock_);
  BP_DCHECK(!is_polling_);
  is_polling_ = true;
  const uint32_t count = wrapped_.poll(budget);
  is_polling_ = false;
  return count;
}

void LockingProvider::release(const Loan& loan) noexcept {
  BP_ASSERT(loan.provider == this);
  Loan inner = loan;
  inner.provider = &wrapped_;
  const std::lock_guard guard(lock_);
  wrapped_.release(inner);
}

Endpoint& LockingProvider::wrapped(Endpoint& endpoint) noexcept {
  return static_cast<WrappedEndpoint&>(endpoint).wrapped();
}

size_t LockingProvider::index_of(const Endpoint& endpoint) const noexcept {
  const size_t mask = endpoints_.size() - 1;
  const auto address = reinterpret_cast<uintptr_t>(&endpoint);
  size_t index = (address * 0x9e37'79b9'7f4a'7c15) >> 32 & mask;
  for (size_t i = 0; endpoints_[index] && &endpoints_[index]->wrapped() != &endpoint; ++i) {
    BP_ASSERT(i <= mask);  // there is space for all that were announced
    index = (index + 1) & mask;
  }
  return index;
}

Endpoint& LockingProvider::wrap(Endpoint& endpoint) noexcept {
  std::optional<WrappedEndpoint>& slot = endpoints_[index_of(endpoint)];
  if (!slot) {
    slot.emplace(*this, endpoint);
    BP_DCHECK_SLOW(is_valid());
  }
  return *slot;
}

// Returns whether there is a handler: if not, the wrapped provider counts the message, and owns its
// loan.
bool LockingProvider::pass_on(const Message& message) noexcept {
  BP_DCHECK(is_polling_);
  Loan loan = message.loan;
  if (loan.is_there()) loan.provider = this;
  const Message outer = {wrap(message.from), message.id, message.payload, loan};
  const Unlocked unlocked(*this);
  return outer_.deliver(outer);
}

template <typename Start>
SendStatus LockingProvider::with_completion(Completion* done, Start&& start) noexcept {
  const std::lock_guard guard(lock_);
  if (done == nullptr) return start(nullptr);
  if (free_.is_empty()) return SendStatus::kAgain;
  WrappedCompletion& ours = free_.pop();
  ours.outer = done;
  const SendStatus status = start(&ours);
  if (status != SendStatus::kPending) free(ours);
  BP_DCHECK_SLOW(is_valid());
  return status;
}

void LockingProvider::finish(WrappedCompletion& completion, Outcome outcome) noexcept {
  BP_ASSERT(is_polling_ && completion.outer != nullptr);
  Completion& outer = *completion.outer;
  free(completion);
  const Unlocked unlocked(*this);
  outer.call(outer, outcome);
}

void LockingProvider::free(WrappedCompletion& completion) noexcept {
  completion.outer = nullptr;
  free_.push(completion);
}

bool LockingProvider::is_valid() const noexcept {
  for (size_t i = 0; i < endpoints_.size(); ++i) {
    if (endpoints_[i] && index_of(endpoints_[i]->wrapped()) != i) return false;
  }
  const auto is_free = [](const WrappedCompletion& one) { return one.outer == nullptr; };
  const auto completions = std::span(completions_.get(), completion_count_);
  const auto free_count = std::count_if(completions.begin(), completions.end(), is_free);
  return free_.has_just(static_cast<size_t>(free_count), is_free);
}

}  // namespace bedplate
