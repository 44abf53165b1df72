#include "tests/strain/stepper.h"

#include <array>
#include <csignal>

#include <sched.h>

#include "platform/log.h"
#include "tests/strain/strained_group.h"

namespace bedplate::strain {
namespace {

constexpr uint32_t kReceiver = 0;

// Stops this thread for its tracer, with a single instruction on x86-64.
[[gnu::always_inline]] inline void trap() noexcept {
#ifdef __x86_64__
  asm volatile("int3" ::: "memory");
#else
  raise(SIGTRAP);
#endif
}

class Stepper {
 public:
  Stepper(const JoinedGroup& group) : control_(group.board->step), group_(group) {
    for (Ended& ended : ended_) ended.owner = this;
    if (auto created = shm_.create(group.shm, messenger_.dispatcher()); !created.ok()) {
      fail("%s: %s", created.error().doing, created.error().answer);
    }
    messenger_.add_provider(shm_);
  }

  void run();

 private:
  struct Ended : Completion {
    Ended() {
      call = [](Completion& self, Outcome outcome) noexcept {
        auto& ended = static_cast<Ended&>(self);
        ended.is_out = false;
        StepControl& control = ended.owner->control_;
        if (outcome != Outcome::kDone) control.not_done.fetch_add(1, std::memory_order_release);
        control.ended.fetch_add(1, std::memory_order_release);
      };
    }
    Stepper* owner = nullptr;
    bool is_out = false;
    uint64_t before = 0;
  };

  void obey();
  // Does everything except the call itself.
  void prepare();
  [[gnu::noinline]] SendStatus send() noexcept;
  [[gnu::noinline]] SendStatus send_between_traps() noexcept {
    trap();
    const SendStatus status = send();
    trap();
    return status;
  }

  StepControl& control_;
  const JoinedGroup& group_;
  ShmProvider shm_;
  Messenger messenger_;
  Endpoint* endpoint_ = nullptr;
  Ended* completion_ = nullptr;
  std::span<std::byte> message_;
  std::span<std::byte> block_;
  Deed deed_ = Deed::kShort;
  uint64_t attempt_ = 0;
  RemoteMemory memory_;
  std::array<Ended, 64> ended_;
  std::array<std::byte, 1024> scratch_;
  std::array<std::byte, 128> local_ = {};
};

void Stepper::prepare() {
  deed_ = control_.deed;
  attempt_ = control_.attempt;
  memory_ = control_.memory;
  for (Ended& ended : ended_) {
    if (!ended.is_out) completion_ = &ended;
  }
  // Each completion has its own block, so that a lent block is not written.
  const auto number = static_cast<uint64_t>(completion_ - ended_.data());
  block_ = group_.pool.own_heap()->memory().subspan(number * 512, 300);
  const MembersTable& members = *group_.shm.members;
  VerifiedHeader header = {0,
                           static_cast<uint16_t>(group_.shm.member),
                           static_cast<uint16_t>(members.generation(group_.shm.member)),
                           kReceiver,
                           static_cast<uint16_t>(members.generation(kReceiver)),
                           0,
                           attempt_};
  header.bytes = deed_ == Deed::kLoan ? 300 : deed_ == Deed::kLong ? 500 : 16;
  const std::span<std::byte> content =
      deed_ == Deed::kLoan ? block_ : std::span(scratch_).subspan(sizeof header, header.bytes);
  fill(content, attempt_ * 7919);
  header.checksum = checksum_of(header, content);
  std::memcpy(scratch_.data(), &header, sizeof header);
  message_ = std::span(scratch_).first(sizeof header + (deed_ == Deed::kLoan ? 0 : header.bytes));
}

SendStatus Stepper::send() noexcept {
  switch (deed_) {
    case Deed::kShort:
    case Deed::kLong: return endpoint_->am_send(1, message_);
    case Deed::kLoan: return endpoint_->am_send_loan(2, message_, block_, completion_);
    case Deed::kPut: return endpoint_->put(local_, memory_.part(64, 128), completion_);
    case Deed::kGet: return endpoint_->get(local_, memory_.part(64, 128), completion_);
    case Deed::kAdd:
      return endpoint_->fetch_add(memory_.part(0, 8), 1, &completion_->before, completion_);
    case Deed::kSwap:
      return endpoint_->compare_swap(memory_.part(8, 8), 0, 0, &completion_->before, completion_);
  }
  return SendStatus::kRefused;
}

void Stepper::obey() {
  const uint32_t order = control_.order.load(std::memory_order_acquire);
  if (order == control_.answered.load(std::memory_order_relaxed)) return;
  prepare();
  const SendStatus status = control_.is_marked != 0 ? send_between_traps() : send();
  if (status == SendStatus::kPending) completion_->is_out = true;
  control_.status = status;
  control_.answered.store(order, std::memory_order_release);
}

void Stepper::run() {
  while (endpoint_ == nullptr) {
    messenger_.poll(8);
    auto endpoint = messenger_.connect({kReceiver});
    if (endpoint.ok()) endpoint_ = endpoint.value();
  }
  control_.answered.store(control_.order.load());
  control_.ended.store(0);
  control_.not_done.store(0);
  control_.connection.store(group_.pool.control_fd(), std::memory_order_release);
  while (!group_.pool.is_owner_gone()) {
    messenger_.poll(64);
    control_.has_box.store(static_cast<ShmEndpoint*>(endpoint_)->has_box() ? 1 : 0,
                           std::memory_order_relaxed);
    control_.polls.fetch_add(1, std::memory_order_release);
    obey();
    sched_yield();
  }
}

}  // namespace

int be_stepper(const char* socket_path, uint64_t) {
  set_log_level(LogLevel::kError);
  JoinedGroup group = join_group(socket_path);
  static Stepper self(group);
  if (!group.pool.ready().ok()) fail("not ready");
  self.run();
  return 0;
}

}  // namespace bedplate::strain
