#include "transport/sockets/stream_session_datapath.h"

#include <charconv>

#include "platform/assert.h"

namespace bedplate {

bool StreamSession::is_valid() const noexcept {
  if (layer_.is_wanted() && (!is_over_ || has_begun())) return false;
  return StreamInput::is_valid() && replies_.is_valid() && later_.is_valid() && layer_.is_valid();
}

void StreamSession::leave() noexcept {
  if (has_left_) return;
  has_left_ = is_running_ = true;
  left();
  is_running_ = false;
}

void StreamSession::reset() noexcept {
  leave();
  BP_ASSERT(!is_waiting() && !is_running_);
  void* loan = nullptr;
  while (replies_.take_loan(&loan)) released(loan);
  replies_.reset();
  // Nobody reads the finished answers that were not sent.
  for (const LaterAnswer* each = later_.next(); each != nullptr; each = later_.next()) {
    if (each->has_loan()) released(each->loan_);
    later_.pop();
  }
  is_over_ = has_left_ = false;
  foreign_ = nullptr;
  layer_.forget();
  forget_arrived();
  received_ns_ = 0;
  is_starved_ = true;
  BP_DCHECK_SLOW(is_valid());
}

// ---- requests -----------------------------------------------------------------------------------

StreamSession::Input StreamSession::input() noexcept {
  BP_KEEPS_VALID(*this);
  return is_over_ ? Input() : next_pieces();
}

void StreamSession::received(uint64_t bytes, uint64_t now_ns) noexcept {
  BP_KEEPS_VALID(*this);
  add_arrived(bytes);
  // Requests that wait behind a send keep the time of their arrival.
  if (is_starved_) received_ns_ = now_ns;
  run(now_ns);
}

void StreamSession::run(uint64_t now_ns) noexcept {
  BP_DCHECK(!is_running_);
  const bool has_later = later_.has_any();
  if (BP_UNLIKELY(has_later)) {
    later_.prepare(*this);
    later_.send_finished(replies_, now_ns);
  }
  is_running_ = true;
  is_starved_ = false;
  while (!is_over_ && !is_starved_ && !later_.is_session_waiting() && !replies_.is_sending() &&
         replies_.has_room() && later_.may_step()) {
    is_starved_ = !may_step();
    if (is_starved_) break;
    if (BP_UNLIKELY(has_later)) later_.begin_step(received_ns_);
    const StreamStep outcome = work(now_ns);
    is_starved_ = outcome == StreamStep::kStarved;
    steps_ += is_starved_ ? 0 : 1;
    if (BP_UNLIKELY(outcome == StreamStep::kWaits)) later_.begin_session_wait();
    if (BP_UNLIKELY(has_later)) {
      later_.end_step();
      later_.send_finished(replies_, now_ns);
    }
    BP_DCHECK_SLOW(is_valid());
  }
  is_running_ = false;
}

// ---- the layer ----------------------------------------------------------------------------------

static constexpr char kBehindLayerRequest[] = "in clear behind its request for encryption";

void StreamSession::start_layer() noexcept {
  BP_REQUIRE(is_running_ && layer_.may_start(),
             "a session starts a layer that it does not have, twice, or outside of work(): "
             "StreamSession::start_layer");
  BP_DREQUIRE(!is_moving(),
              "a step skips or fills, and starts a layer: StreamSession::start_layer");
  if (!arrived().empty()) return end_foreign(kBehindLayerRequest);
  layer_.want();
  end();
}

std::span<const std::byte> StreamSession::begin_layer(uint64_t early_bytes) noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(!is_waiting());
  layer_.begin();
  if (early_bytes > kLayerEarlyBytesMax) {
    end_foreign(kBehindLayerRequest);
    return {};
  }
  is_over_ = false;
  is_starved_ = true;
  return std::as_bytes(just_added(early_bytes));
}

// ---- replies ------------------------------------------------------------------------------------

void StreamSession::say_number(uint64_t number) noexcept {
  char digits[20];
  say({digits, static_cast<size_t>(std::to_chars(digits, std::end(digits), number).ptr - digits)});
}

std::span<iovec> StreamSession::replies() noexcept {
  BP_KEEPS_VALID(*this);
  return replies_.begin_send();
}

void StreamSession::handed_over(uint64_t now_ns) noexcept {
  replies_.handed_over(received_ns_, now_ns);
}

void StreamSession::sent(uint64_t now_ns) noexcept {
  BP_DCHECK_SLOW(is_valid());
  void* loan = nullptr;
  while (replies_.take_loan(&loan)) released(loan);
  replies_.end_send(now_ns);
  BP_DCHECK_SLOW(is_valid());
  if (!has_left_) run(now_ns);
}

// ---- answers that come later --------------------------------------------------------------------

void StreamSession::resume(uint64_t now_ns) noexcept {
  BP_REQUIRE(later_.is_session_waiting() && (!is_running_ || has_left_),
             "a session is resumed that does not wait, or from within work(): "
             "StreamSession::resume");
  later_.end_session_wait();
  if (is_running_) return;  // within left()
  if (!has_left_) run(now_ns);
  if (owner_.changed != nullptr) owner_.changed(owner_.context);
}

}  // namespace bedplate
