// Puts, gets and atomics of the traffic.
#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tests/guest/traffic.h"

namespace bedplate::traffic {
namespace {

constexpr uint64_t kPutStream = 1000;  // plus the index of the slot

std::atomic<uint64_t> faults{0};

// The words are at the end of the area, behind the slots.
RemoteMemory word_at(const RemoteMemory& area, uint64_t index) {
  return area.part(kSlotCount * kSlotBytes + index * sizeof(uint64_t), sizeof(uint64_t));
}

}  // namespace

void report_fault(const char* format, ...) noexcept {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (++faults <= 20) std::printf("traffic: FAULT: %s\n", text);
}
uint64_t fault_count() noexcept { return faults; }

uint64_t word_of(uint64_t stream, uint64_t number, size_t index) noexcept {
  return (stream << 48 ^ number << 16 ^ index) * 0x9e3779b97f4a7c15;  // odd: distinct words
}

void fill(std::span<std::byte> bytes, uint64_t stream, uint64_t number) noexcept {
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
    const uint64_t word = word_of(stream, number, i / sizeof word);
    std::memcpy(&bytes[i], &word, std::min(sizeof word, bytes.size() - i));
  }
}

bool is_filled(std::span<const std::byte> bytes, uint64_t stream, uint64_t number) noexcept {
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
    const uint64_t word = word_of(stream, number, i / sizeof word);
    if (std::memcmp(&bytes[i], &word, std::min(sizeof word, bytes.size() - i)) != 0) return false;
  }
  return true;
}

std::string Ends::text() const {
  char line[160];
  std::snprintf(line, sizeof line,
                "{\"started\": %" PRIu64 ", \"done\": %" PRIu64 ", \"not_done\": %" PRIu64
                ", \"unknown\": %" PRIu64 "}",
                started, counts[0], counts[1], counts[2]);
  return line;
}

// ---- Puts ----

PutSlot::PutSlot(uint32_t index, Ends* puts, Ends* gets)
    : index_(index),
      puts_(puts),
      gets_(gets),
      sent_(kSlotBytes),
      seen_(kSlotBytes),
      known_(kSlotBytes) {}

void PutSlot::step(Endpoint& peer, const RemoteMemory& area, bool may_begin) noexcept {
  const RemoteMemory there = area.part(index_ * kSlotBytes, kSlotBytes);
  if (state_ == State::kIdle && may_begin) {
    fill(sent_, kPutStream + index_, number_ + 1);
    if (peer.put(sent_, there, &operation_) != SendStatus::kPending) return;
    ++number_;
    ++puts_->started;
    state_ = State::kPutting;
  } else if (state_ == State::kFlushDue) {
    if (peer.flush(&operation_) == SendStatus::kPending) state_ = State::kFlushing;
  } else if (state_ == State::kGetDue) {
    std::fill(seen_.begin(), seen_.end(), std::byte{0xa5});
    if (peer.get(seen_, there, &operation_) != SendStatus::kPending) return;
    ++gets_->started;
    state_ = State::kGetting;
  }
}

void PutSlot::on_end(Outcome outcome) noexcept {
  switch (state_) {
    case State::kPutting:
      puts_->add(outcome);
      outcome_ = outcome;
      state_ = State::kFlushDue;
      break;
    case State::kFlushing:
      state_ = outcome == Outcome::kDone ? State::kGetDue : State::kFlushDue;
      break;
    case State::kGetting:
      gets_->add(outcome);
      state_ = outcome == Outcome::kDone ? State::kIdle : State::kFlushDue;
      if (outcome == Outcome::kDone && !is_forgotten_) compare();
      break;
    default: report_fault("a completion of slot %u that nobody waits for", index_);
  }
  if (!is_forgotten_) return;
  is_forgotten_ = false;
  forget();
}

void PutSlot::compare() noexcept {
  if (std::exchange(is_first_, false)) {
    known_ = seen_;
    return;
  }
  const uint64_t stream = kPutStream + index_;
  for (size_t i = 0; i < kSlotBytes; i += sizeof(uint64_t)) {
    uint64_t before = 0;
    uint64_t now = 0;
    std::memcpy(&before, &known_[i], sizeof before);
    std::memcpy(&now, &seen_[i], sizeof now);
    const bool is_new = now == word_of(stream, number_, i / sizeof now);
    const bool is_right = outcome_ == Outcome::kDone      ? is_new
                          : outcome_ == Outcome::kNotDone ? now == before
                                                          : is_new || now == before;
    if (is_right) continue;
    report_fault("put %" PRIu64 " of slot %u ended as %s, but at %zu is %016" PRIx64, number_,
                 index_, to_text(outcome_), i, now);
    break;
  }
  known_ = seen_;
}

void PutSlot::forget() noexcept {
  is_forgotten_ =
      state_ == State::kPutting || state_ == State::kFlushing || state_ == State::kGetting;
  if (is_forgotten_) return;
  state_ = State::kFlushDue;
  is_first_ = true;
}

// ---- Atomics ----

void AtomicWords::step(Endpoint& peer, const RemoteMemory& area, bool may_begin) noexcept {
  if (is_pending_ || !may_begin) return;
  adds_ = !adds_;
  expected_ = possible_.empty() ? 0 : possible_.front();
  desired_ = ends_->started + 1;
  const SendStatus status =
      adds_ ? peer.fetch_add(word_at(area, 0), 1, &before_, &operation_)
            : peer.compare_swap(word_at(area, 1), expected_, desired_, &before_, &operation_);
  is_pending_ = status == SendStatus::kPending;
  if (is_pending_) ++ends_->started;
}

void AtomicWords::on_end(Outcome outcome) noexcept {
  is_pending_ = false;
  ends_->add(outcome);
  if (is_forgotten_) return forget();
  if (outcome == Outcome::kUnknown) {
    if (adds_ && high_ != UINT64_MAX) ++high_;
    if (!adds_ && !possible_.empty()) possible_.push_back(desired_);
  }
  if (outcome != Outcome::kDone) return;
  if (adds_) {
    if (before_ < low_ || before_ > high_) {
      report_fault("a word was %" PRIu64 " before 1 was added; between %" PRIu64 " and %" PRIu64
                   " can be",
                   before_, low_, high_);
    }
    low_ = high_ = before_ + 1;
    return;
  }
  if (!possible_.empty() &&
      std::find(possible_.begin(), possible_.end(), before_) == possible_.end()) {
    report_fault("a word was %" PRIu64 " before it was exchanged; nobody put that there", before_);
  }
  possible_ = {before_ == expected_ ? desired_ : before_};
}

void AtomicWords::forget() noexcept {
  is_forgotten_ = is_pending_;
  low_ = 0;
  high_ = UINT64_MAX;
  possible_.clear();
}

}  // namespace bedplate::traffic
