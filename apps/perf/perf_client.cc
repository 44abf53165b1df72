#include "apps/perf/perf_client.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "platform/assert.h"
#include "platform/product.h"

namespace bedplate {
namespace {

constexpr uint64_t kPatienceNs = 5 * kNsPerSecond;
constexpr uint64_t kWarmUpCount = 200;  // round trips
constexpr char kLost[] = "the connection to it was lost";
constexpr char kDefect[] = "this is a defect of the device, its driver, or Bedplate";

}  // namespace

PerfClient::PerfClient(PerfSide& side) : side_(side) {
  for (const AmId id : {kPerfReady, kPerfData, kPerfTally, kPerfDisplaced}) {
    side.messenger().set_handler(id, {[](void* self, const Message& message) noexcept {
                                        static_cast<PerfClient*>(self)->handle(message);
                                      },
                                      this});
  }
}

void PerfClient::handle(const Message& message) noexcept {
  side_.messenger().release(message.loan);
  const std::span<const std::byte> payload = message.payload;
  if (message.id == kPerfData) {
    ++received_count_;
    if (received_count_ <= warm_up_count_) count_verified(perf_is(payload, received_count_));
    if (payload.size() != bytes_ || !perf_has_come(payload, received_count_)) ++wrong_count_;
  } else if (message.id == kPerfReady && payload.size() == sizeof ready_) {
    std::memcpy(&ready_, payload.data(), sizeof ready_);
    is_ready_ = true;
  } else if (message.id == kPerfTally && payload.size() == sizeof tally_) {
    std::memcpy(&tally_, payload.data(), sizeof tally_);
    has_tally_ = true;
  } else if (message.id == kPerfDisplaced) {
    is_displaced_ = true;
  }
}

Error PerfClient::trouble(const char* answer) const {
  return error_while("measuring with %s", address_.c_str())
      .set_answer("%s", answer)
      .set_cure("check the other side, and start this one again");
}

Error PerfClient::trouble(SendStatus status) const {
  BP_ASSERT(status != SendStatus::kDone && status != SendStatus::kPending);
  return trouble(status == SendStatus::kGone ? kLost : to_text(status));
}

template <typename Done>
Result<void> PerfClient::wait_until(PerfMode mode, Done is_done) {
  Messenger& messenger = side_.messenger();
  while (!is_done()) {
    const bool has_work = messenger.poll(kPerfPollBudget) > 0;
    if (is_displaced_) return trouble("it is now measuring with another client");
    if (has_work) pace_.work_done();
    else if (is_connected_ && side_.has_lost(*server_)) return trouble(kLost);
    else if (pace_.is_overdue(mode, kPatienceNs)) return trouble("it has been silent for 5 s");
    if (has_work && !pace_.yields(mode)) continue;
    if (!is_done()) pace_.idle(messenger, mode);
  }
  pace_.work_done();
  return {};
}

Result<void> PerfClient::send(AmId id, std::span<const std::byte> payload) {
  BP_ASSERT(is_connected_);
  SendStatus status = SendStatus::kAgain;
  BP_TRY(wait_until(PerfMode::kPolling, [&] {
    status = server_->am_send(id, payload);
    return status != SendStatus::kAgain;
  }));
  if (status != SendStatus::kDone) return trouble(status);
  return {};
}

Result<void> PerfClient::connect(const std::string& address) {
  address_ = address;
  auto found = side_.connect();
  if (!found.ok()) return found.error();
  server_ = found.value();
  // The server runs once it accepts a message; it ignores an empty one.
  SendStatus status = SendStatus::kAgain;
  auto connected = wait_until(PerfMode::kEvents, [&] {
    status = server_->am_send(kPerfAsk, {});
    return status != SendStatus::kAgain;
  });
  if (!connected.ok()) {
    return error_while("connecting to %s", address.c_str())
        .set_answer("nobody answers within 5 s")
        .set_cure("start there: %s perf serve %s", product().name, address.c_str());
  }
  if (status != SendStatus::kDone) return trouble(status);
  is_connected_ = true;
  auto source = server_->expose(side_.source());
  if (!source.ok()) return source.error();
  auto target = server_->expose(side_.target());
  if (!target.ok()) return target.error();
  own_source_ = source.value();
  own_target_ = target.value();
  return {};
}

uint64_t PerfClient::bytes_max(PerfOperation operation) const noexcept {
  BP_ASSERT(server_ != nullptr);  // connect() was called
  return operation == PerfOperation::kSend ? server_->limits().am_bytes_max : kPerfBytesMax;
}

Result<PerfResult> PerfClient::run(const PerfTask& task, uint64_t bytes) {
  BP_ASSERT(bytes > 0 && bytes <= bytes_max(task.operation));
  BP_ASSERT(task.count > 0 || task.duration_ns > 0);
  BP_ASSERT(!task.is_both || task.measure == PerfMeasure::kBandwidth);
  PerfResult result;
  result.bytes = bytes;
  BP_TRY(ask(task, bytes));
  const bool is_latency = task.measure == PerfMeasure::kLatency;
  BP_TRY(is_latency ? measure_latency(task, &result) : measure_bandwidth(task, &result));
  BP_TRY(end(task, &result));
  return result;
}

Result<void> PerfClient::ask(const PerfTask& task, uint64_t bytes) {
  bytes_ = bytes;
  const bool is_latency = task.measure == PerfMeasure::kLatency;
  warm_up_count_ = is_latency ? kWarmUpCount : 1;
  received_count_ = verified_count_ = wrong_count_ = 0;
  is_ready_ = has_tally_ = is_displaced_ = false;
  const std::span<std::byte> source = side_.source().first(bytes);
  const std::span<std::byte> target = side_.target().first(bytes);
  perf_fill(source, 1);
  perf_fill(target, 0);
  PerfAsk asked;
  asked.operation = task.operation;
  asked.measure = task.measure;
  asked.is_both = task.is_both;
  asked.sleeps = task.mode == PerfMode::kEvents;
  asked.bytes = bytes;
  asked.warm_up_count = warm_up_count_;
  asked.source = own_source_.part(0, bytes);
  asked.target = own_target_.part(0, bytes);
  BP_TRY(send(kPerfAsk, perf_payload(asked)));
  BP_TRY(wait_until(PerfMode::kEvents, [&] { return is_ready_; }));
  if (ready_.version != kPerfVersion) return trouble("it has another version");
  const bool gets = task.operation == PerfOperation::kGet;
  stream_.begin(*server_, task.operation, gets ? target : source,
                (gets ? ready_.source : ready_.target).part(0, bytes));
  return {};
}

// Send and put are timed as round trips, get as one call. Each time ends when the next begins, so a
// round trip costs one reading of the clock.
Result<void> PerfClient::measure_latency(const PerfTask& task, PerfResult* result) {
  const std::span<std::byte> source = side_.source().first(bytes_);
  const std::span<std::byte> target = side_.target().first(bytes_);
  const bool gets = task.operation == PerfOperation::kGet;
  for (uint64_t number = 1; number <= warm_up_count_; ++number) {
    perf_fill(gets ? target : source, gets ? 0 : number);
    BP_TRY(round_trip(task, number));
    if (task.operation != PerfOperation::kSend) {
      count_verified(perf_becomes(target, gets ? 1 : number));
    }
  }
  uint64_t number = warm_up_count_;
  uint64_t before_ns = monotonic_ns();
  const uint64_t until_ns = before_ns + task.duration_ns;
  while (task.count != 0 ? result->count < task.count : before_ns < until_ns) {
    if (!gets) perf_stamp(source, number + 1);
    BP_TRY(round_trip(task, ++number));
    const uint64_t now_ns = monotonic_ns();
    result->times.add(now_ns - before_ns);
    ++result->count;
    before_ns = now_ns;
  }
  return {};
}

Result<void> PerfClient::round_trip(const PerfTask& task, uint64_t number) {
  SendStatus status = stream_.start();
  if (BP_UNLIKELY(status == SendStatus::kAgain)) {
    BP_TRY(wait_until(task.mode, [&] {
      status = stream_.start();
      return status != SendStatus::kAgain;
    }));
  }
  if (BP_UNLIKELY(status != SendStatus::kDone && status != SendStatus::kPending)) {
    return trouble(status);
  }
  if (BP_UNLIKELY(stream_.failed_count() != 0)) return trouble(kLost);  // of an earlier operation
  switch (task.operation) {
    case PerfOperation::kSend:
      return wait_until(task.mode, [&] { return received_count_ == number; });
    case PerfOperation::kPut: {
      const std::span<const std::byte> target = side_.target().first(bytes_);
      return wait_until(task.mode,
                        [&] { return perf_has_come(target, number) && stream_.is_idle(); });
    }
    case PerfOperation::kGet: break;
  }
  return wait_until(task.mode, [&] { return stream_.is_idle(); });
}

Result<void> PerfClient::measure_bandwidth(const PerfTask& task, PerfResult* result) {
  const uint64_t began_ns = monotonic_ns();
  const uint64_t until_ns = began_ns + task.duration_ns;
  SendStatus status = SendStatus::kAgain;
  BP_TRY(wait_until(task.mode, [&] {
    for (uint32_t i = 0; i < kPerfListed; ++i) {
      if (task.count != 0 && stream_.started_count() == task.count) return true;
      status = stream_.start();
      if (status == SendStatus::kAgain) break;
      if (status != SendStatus::kDone && status != SendStatus::kPending) return true;
      pace_.work_done();
    }
    return task.count == 0 && monotonic_ns() >= until_ns;
  }));
  if (status != SendStatus::kDone && status != SendStatus::kPending &&
      status != SendStatus::kAgain) {
    return trouble(status);
  }
  BP_TRY(wait_until(task.mode, [&] { return stream_.is_idle(); }));
  // The server gets messages in order: when it answers, all of them have arrived.
  if (task.operation == PerfOperation::kSend) BP_TRY(await_tally(task.mode));
  result->elapsed_ns = monotonic_ns() - began_ns;
  result->count = stream_.started_count();
  if (task.operation == PerfOperation::kGet && stream_.failed_count() == 0) {
    count_verified(perf_becomes(side_.target().first(bytes_), 1));
  }
  return {};
}

Result<void> PerfClient::await_tally(PerfMode mode) {
  BP_TRY(send(kPerfStop, {}));
  return wait_until(mode, [&] { return has_tally_; });
}

Result<void> PerfClient::end(const PerfTask& task, PerfResult* result) {
  if (!has_tally_) BP_TRY(await_tally(PerfMode::kEvents));
  const bool was_put = task.operation == PerfOperation::kPut && tally_.started_count > 0;
  if (was_put) count_verified(perf_becomes(side_.target().first(bytes_), 1));
  result->back_count = tally_.started_count;
  result->back_elapsed_ns = tally_.elapsed_ns;
  result->verified_count = verified_count_ + tally_.verified_count;
  return check_ends(task);
}

Result<void> PerfClient::check_ends(const PerfTask& task) const {
  if (stream_.failed_count() != 0) return trouble(kLost);
  char text[96];
  if (const uint64_t count = wrong_count_ + tally_.wrong_count; count != 0) {
    std::snprintf(text, sizeof text, "%" PRIu64 " messages differ from what was sent", count);
    return trouble(text).set_cure("%s", kDefect);
  }
  if (task.operation != PerfOperation::kSend) return {};
  const uint64_t back_count = task.is_both ? tally_.started_count : received_count_;
  const uint64_t sent_count = stream_.started_count() + back_count;
  const uint64_t came_count = tally_.received_count + received_count_;
  if (came_count == sent_count) return {};
  std::snprintf(text, sizeof text, "%" PRIu64 " messages were sent, but %" PRIu64 " arrived",
                sent_count, came_count);
  return trouble(text).set_cure("%s", kDefect);
}

void PerfClient::count_verified(bool is_right) noexcept {
  verified_count_ += is_right;
  wrong_count_ += !is_right;
}

}  // namespace bedplate
