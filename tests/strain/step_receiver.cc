#include "tests/strain/step_receiver.h"

#include <cinttypes>
#include <cstdarg>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include "platform/clock.h"
#include "tests/strain/asleep.h"

namespace bedplate::strain {
namespace {

constexpr uint64_t kAnswerNs = 20 * kNsPerSecond;

}  // namespace

// ---- The receiver ----

StepReceiver::StepReceiver(const StrainedGroup& group)
    : members_(group.members()), bell_(group.segment().bell(kReceiver)) {
  const AmHandler handler = {[](void* self, const Message& message) noexcept {
                               static_cast<StepReceiver*>(self)->receive(message);
                             },
                             this};
  messenger_.set_handler(1, handler);
  messenger_.set_handler(2, handler);
  ShmProviderOptions options = group.own_options(kReceiver);
  options.counters = &counters_;
  if (auto created = shm_.create(options, messenger_.dispatcher()); !created.ok()) {
    fail("%s: %s", created.error().doing, created.error().answer);
  }
  messenger_.add_provider(shm_);
  thread_ = std::thread([this] { run(); });
}

StepReceiver::~StepReceiver() {
  is_over_.store(true);
  ring();
  thread_.join();
}

void StepReceiver::run() noexcept {
  thread_id_.store(gettid());
  while (!is_over_.load(std::memory_order_relaxed)) {
    if (is_held_.load(std::memory_order_acquire)) {
      sched_yield();
      continue;
    }
    const uint32_t count = messenger_.poll(64);
    if (request_.load(std::memory_order_acquire) != Request::kNothing) serve();
    if (count > 0) continue;
    if (!is_sleepy_.load(std::memory_order_relaxed)) {
      sched_yield();
      continue;
    }
    messenger_.announce_sleep();
    // Checks all reasons for a wake-up once more. From here on a ring wakes this thread.
    const bool has_news = is_over_.load() || !is_sleepy_.load() ||
                          request_.load(std::memory_order_acquire) != Request::kNothing;
    if (!has_news && messenger_.poll(64) == 0) shm_.sleep(UINT64_MAX);
    messenger_.announce_awake();
  }
}

void StepReceiver::set_sleepy(bool is_sleepy) noexcept {
  if (is_sleepy_.exchange(is_sleepy) && !is_sleepy) ring();
}

bool StepReceiver::is_asleep() const noexcept {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread_id_.load());
  return is_asleep_in_kernel(path);
}

RemoteMemory StepReceiver::expose_to(uint32_t member) noexcept {
  requested_for_ = member;
  request(Request::kExpose);
  return exposed_;
}

void StepReceiver::request(Request what) noexcept {
  request_.store(what, std::memory_order_release);
  ring();
  const auto is_served = [&] {
    return request_.load(std::memory_order_acquire) == Request::kNothing;
  };
  if (time_until(is_served, kAnswerNs) == UINT64_MAX) fail("the receiver itself hangs");
}

void StepReceiver::serve() noexcept {
  if (request_.load() == Request::kHold) is_held_.store(true);
  if (request_.load() == Request::kExpose) {
    auto endpoint = messenger_.connect({requested_for_});
    if (!endpoint.ok()) fail("%s: %s", endpoint.error().doing, endpoint.error().answer);
    exposed_by_ = endpoint.value();
    auto exposed = exposed_by_->expose(std::as_writable_bytes(std::span(words_)));
    if (!exposed.ok()) fail("%s: %s", exposed.error().doing, exposed.error().answer);
    exposed_ = exposed.value();
  } else if (request_.load() == Request::kWithdraw && exposed_by_ != nullptr) {
    exposed_by_->withdraw(exposed_);
    exposed_by_ = nullptr;
  }
  request_.store(Request::kNothing, std::memory_order_release);
}

void StepReceiver::note_fault(const char* format, ...) noexcept {
  if (fault_is_new_.load(std::memory_order_acquire) != 0) return;  // only the first fault is noted
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(fault_, sizeof fault_, format, arguments);
  va_end(arguments);
  fault_is_new_.store(1, std::memory_order_release);
}

const char* StepReceiver::take_fault() noexcept {
  if (fault_is_new_.load(std::memory_order_acquire) == 0) return "";
  std::memcpy(taken_fault_, fault_, sizeof fault_);
  fault_is_new_.store(0, std::memory_order_release);
  return taken_fault_;
}

void StepReceiver::receive(const Message& message) noexcept {
  const uint32_t from = static_cast<ShmEndpoint&>(message.from).peer();
  VerifiedHeader header;
  const bool has_header = message.payload.size() >= sizeof header;
  if (has_header) std::memcpy(&header, message.payload.data(), sizeof header);
  const std::span<const std::byte> content = message.loan.is_there() ? message.loan.memory
                                             : has_header ? message.payload.subspan(sizeof header)
                                                          : std::span<const std::byte>();
  if (!has_header || header.bytes != content.size() || header.sender != from ||
      header.checksum != checksum_of(header, content)) {
    note_fault("spoilt: from %u, %zu bytes, number %" PRIu64 " of sender %u", from,
               message.payload.size(), has_header ? header.sequence : 0, header.sender);
  } else if (from < kStepOwnMax && members_.pid(from) == static_cast<uint32_t>(getpid())) {
    const uint64_t due = received_[from].load(std::memory_order_relaxed);
    if (header.sequence != due) {
      note_fault("order: number %" PRIu64 " of sender %u where %" PRIu64 " is due", header.sequence,
                 from, due);
    }
    received_[from].store(header.sequence + 1, std::memory_order_release);
  } else {
    const uint64_t last = last_attempt_.load(std::memory_order_relaxed);
    if (header.sequence <= last) {
      note_fault("twice or late: attempt %" PRIu64 " after %" PRIu64, header.sequence, last);
    }
    last_attempt_.store(header.sequence, std::memory_order_release);
  }
  if (message.loan.is_there()) messenger_.release(message.loan);
}

// ---- The senders ----

StepSenders::StepSenders(const StrainedGroup& group, uint32_t count)
    : members_(group.members()), count_(count) {
  for (uint32_t i = 0; i < count_; ++i) {
    senders_[i] = std::make_unique<Sender>();
    Sender& sender = *senders_[i];
    auto created =
        sender.shm.create(group.own_options(kReceiver + 1 + i), sender.messenger.dispatcher());
    if (!created.ok()) fail("%s: %s", created.error().doing, created.error().answer);
    sender.messenger.add_provider(sender.shm);
    auto endpoint = sender.messenger.connect({kReceiver});
    if (!endpoint.ok()) fail("%s: %s", endpoint.error().doing, endpoint.error().answer);
    sender.endpoint = endpoint.value();
  }
}

void StepSenders::poll() noexcept {
  for (uint32_t i = 0; i < count_; ++i) senders_[i]->messenger.poll(16);
}

SendStatus StepSenders::send_one(uint32_t index) {
  Sender& sender = *senders_[index];
  std::byte scratch[160];
  VerifiedHeader header;
  header.sender = static_cast<uint16_t>(kReceiver + 1 + index);
  header.sequence = sender.sent;
  header.bytes = sender.sent % 3 == 2 ? 128 : 16;
  const auto content = std::span(scratch).subspan(sizeof header, header.bytes);
  fill(content, sender.sent * 31 + index);
  header.checksum = checksum_of(header, content);
  std::memcpy(scratch, &header, sizeof header);
  const SendStatus status = sender.endpoint->am_send(1, {scratch, sizeof header + header.bytes});
  if (status == SendStatus::kDone) ++sender.sent;
  return status;
}

bool StepSenders::send(uint32_t messages, uint64_t within_ns) {
  const uint64_t until = monotonic_ns() + within_ns;
  for (uint32_t i = 0; i < messages; ++i) {
    for (uint32_t index = 0; index < count_; ++index) {
      for (;;) {
        const SendStatus status = send_one(index);
        if (status == SendStatus::kDone) break;
        if (status != SendStatus::kAgain || monotonic_ns() > until) return false;
        poll();
        sched_yield();
      }
    }
  }
  return true;
}

void StepSenders::fill_queue(uint32_t messages) {
  for (uint32_t i = 0; i < messages; ++i) {
    for (uint32_t index = 0; index < count_; ++index) {
      if (send_one(index) != SendStatus::kDone) return;
    }
  }
}

bool StepSenders::have_arrived(const StepReceiver& receiver) const noexcept {
  for (uint32_t i = 0; i < count_; ++i) {
    if (receiver.received(kReceiver + 1 + i) != senders_[i]->sent) return false;
  }
  return true;
}

}  // namespace bedplate::strain
