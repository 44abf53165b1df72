#include "apps/perf/perf_server.h"

#include <cstring>

#include "platform/assert.h"
#include "platform/log.h"

namespace bedplate {
namespace {

constexpr uint64_t kColdNs = kNsPerSecond;  // polling ends after this silence
constexpr uint64_t kColdSleepNs = 100 * kNsPerMs;

bool makes_sense(const PerfAsk& ask) noexcept {
  return ask.operation <= PerfOperation::kGet && ask.measure <= PerfMeasure::kBandwidth &&
         ask.bytes != 0 && ask.bytes <= kPerfBytesMax;
}

}  // namespace

PerfServer::PerfServer(PerfSide& side) : side_(side), echo_(64 * kKiB) {
  for (const AmId id : {kPerfAsk, kPerfData, kPerfStop}) {
    side.messenger().set_handler(id, {[](void* self, const Message& message) noexcept {
                                        static_cast<PerfServer*>(self)->handle(message);
                                      },
                                      this});
  }
}

void PerfServer::serve(const volatile sig_atomic_t& must_stop) noexcept {
  bool is_cold = true;
  while (must_stop == 0) {
    const bool has_begun = advance();  // the poll hands this work to the device
    const bool has_work = side_.messenger().poll(kPerfPollBudget) > 0 || has_begun;
    if (has_work) {
      pace_.work_done();
      is_cold = false;
      if (!pace_.yields(mode())) continue;
    }
    is_cold = !has_work && (is_cold || pace_.is_overdue(mode(), kColdNs));
    if (is_cold) side_.messenger().wait(kColdSleepNs);
    else pace_.idle(side_.messenger(), mode());
  }
}

// The client's own puts and gets need no help of the server, so it sleeps and leaves the core to
// the client.
PerfMode PerfServer::mode() const noexcept {
  const bool is_waiting = state_ == State::kIdle || state_ == State::kPassive;
  return is_waiting || ask_.sleeps != 0 ? PerfMode::kEvents : PerfMode::kPolling;
}

void PerfServer::handle(const Message& message) noexcept {
  side_.messenger().release(message.loan);
  if (message.id == kPerfAsk) {
    PerfAsk ask;
    if (message.payload.size() != sizeof ask) return;
    std::memcpy(&ask, message.payload.data(), sizeof ask);
    return take_ask(message.from, ask);
  }
  if (&message.from != client_) return;
  if (message.id == kPerfData) return take_data(message.payload);
  BP_ASSERT(message.id == kPerfStop);  // the last of the handled ids
  owes_tally_ = true;
}

void PerfServer::take_ask(Endpoint& from, const PerfAsk& ask) noexcept {
  // A client of another version gets this side's version; nonsense gets no answer.
  if (ask.version != kPerfVersion) {
    (void)from.am_send(kPerfReady, perf_payload(PerfReady()));
    return;
  }
  if (!makes_sense(ask)) return;
  if (client_ != nullptr && client_ != &from && state_ != State::kIdle) {
    (void)client_->am_send(kPerfDisplaced, {});  // if this fails, the silence tells it
  }
  state_ = State::kIdle;
  if (!expose_to(from)) return;
  ask_ = ask;
  tally_ = {};
  number_ = 0;
  owes_tally_ = owes_echo_ = false;
  owes_ready_ = true;
  perf_fill(side_.source().first(ask.bytes), 1);
  perf_fill(side_.target().first(ask.bytes), 0);
  state_ = state_for(ask);
  if (state_ != State::kStreams) return;
  const bool gets = ask.operation == PerfOperation::kGet;
  stream_.begin(from, ask.operation, (gets ? side_.target() : side_.source()).first(ask.bytes),
                gets ? ask.source : ask.target);
  began_ns_ = monotonic_ns();
}

// Exposes the memory to `client` alone: withdraws it from the previous client.
bool PerfServer::expose_to(Endpoint& client) noexcept {
  if (client_ != nullptr) {
    client_->withdraw(ready_.source);
    client_->withdraw(ready_.target);
    client_ = nullptr;
  }
  auto source = client.expose(side_.source());
  if (!source.ok()) {
    log_error(source.error());
    return false;
  }
  auto target = client.expose(side_.target());
  if (!target.ok()) {
    client.withdraw(source.value());
    log_error(target.error());
    return false;
  }
  client_ = &client;
  ready_.source = source.value();
  ready_.target = target.value();
  return true;
}

PerfServer::State PerfServer::state_for(const PerfAsk& ask) const noexcept {
  if (ask.is_both != 0) return State::kStreams;
  const bool is_latency = ask.measure == PerfMeasure::kLatency;
  switch (ask.operation) {
    case PerfOperation::kSend: return is_latency ? State::kEchoes : State::kCounts;
    case PerfOperation::kPut: return is_latency ? State::kPutsBack : State::kPassive;
    case PerfOperation::kGet: break;
  }
  return State::kPassive;
}

void PerfServer::take_data(std::span<const std::byte> payload) noexcept {
  ++number_;
  if (number_ <= ask_.warm_up_count) count_verified(perf_is(payload, number_));
  if (payload.size() != ask_.bytes || !perf_has_come(payload, number_)) ++tally_.wrong_count;
  if (state_ != State::kEchoes) return;
  if (client_->am_send(kPerfData, payload) != SendStatus::kAgain) return;
  owes_echo_ = true;
  echo_.assign(payload.begin(), payload.end());
}

void PerfServer::count_verified(bool is_right) noexcept {
  tally_.verified_count += is_right;
  tally_.wrong_count += !is_right;
}

bool PerfServer::advance() noexcept {
  if (client_ == nullptr) {
    BP_ASSERT(state_ == State::kIdle);
    return false;
  }
  const bool has_answered = (owes_ready_ || owes_tally_ || owes_echo_) && answer();
  switch (state_) {
    case State::kPutsBack: return put_back() || has_answered;
    case State::kStreams: return stream() || has_answered;
    default: return has_answered;
  }
}

bool PerfServer::answer() noexcept {
  if (owes_echo_ && client_->am_send(kPerfData, echo_) == SendStatus::kDone) {
    owes_echo_ = false;
    return true;
  }
  if (owes_ready_ && client_->am_send(kPerfReady, perf_payload(ready_)) == SendStatus::kDone) {
    owes_ready_ = false;
    return true;
  }
  if (!owes_tally_ || (state_ == State::kStreams && !stream_.is_idle())) return false;
  if (state_ == State::kStreams) {
    tally_.started_count = stream_.started_count();
    tally_.elapsed_ns = monotonic_ns() - began_ns_;
  }
  tally_.received_count = number_;
  // All puts, or gets, of a stream carry the same bytes.
  const bool has_come = ask_.operation == PerfOperation::kPut ||
                        (ask_.operation == PerfOperation::kGet && tally_.started_count > 0);
  if (ask_.measure == PerfMeasure::kBandwidth && has_come) {
    count_verified(perf_becomes(side_.target().first(ask_.bytes), 1));
  }
  state_ = State::kIdle;
  owes_tally_ = client_->am_send(kPerfTally, perf_payload(tally_)) == SendStatus::kAgain;
  return true;
}

bool PerfServer::put_back() noexcept {
  BP_DCHECK(ask_.bytes > 0 && ask_.operation == PerfOperation::kPut);  // makes_sense(), state_for()
  const std::span<std::byte> target = side_.target().first(ask_.bytes);
  if (!perf_has_come(target, number_ + 1) || !stream_.is_idle()) return false;
  ++number_;
  const std::span<std::byte> source = side_.source().first(ask_.bytes);
  const bool is_verified = number_ <= ask_.warm_up_count;
  // Before the put back: the client then puts the next one here.
  const bool is_right = is_verified && perf_becomes(target, number_);
  is_verified ? perf_fill(source, number_) : perf_stamp(source, number_);
  if (number_ == 1) stream_.begin(*client_, PerfOperation::kPut, source, ask_.target);
  if (stream_.start() == SendStatus::kAgain) {
    --number_;  // sees the put again next time
  } else if (is_verified) {
    count_verified(is_right);
  }
  return true;
}

bool PerfServer::stream() noexcept {
  uint32_t started = 0;
  for (; !owes_tally_ && started < kPerfListed; ++started) {
    const SendStatus status = stream_.start();
    if (status != SendStatus::kDone && status != SendStatus::kPending) break;
  }
  return started > 0;
}

}  // namespace bedplate
