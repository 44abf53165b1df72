#include "transport/tls/tls_stream.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/socket.h>

#include "platform/assert.h"
#include "transport/tls/tls_failures.h"
#include "transport/tls/tls_streams.h"

namespace bedplate {

TlsStream::TlsStream(TlsStreams& all) noexcept : all_(all), environment_(all.environment()) {
  inner_.receive.completed = &TlsStream::received;
  inner_.receive.context = this;
  inner_.send.completed = &TlsStream::sent;
  inner_.send.context = this;
}

bool TlsStream::is_valid() const noexcept {
  if (!is_open()) {
    return !is_in_flight() && !is_attached_ && !session_.is_begun() && !is_limited();
  }
  if (is_in_flight() && !is_attached_) return false;
  if (is_aborted_ && (receive_end_ > 0 || send_end_ > 0)) return false;
  if (has_said_end_ && (outer_->receive.is_in_flight || outer_->send.is_in_flight)) return false;
  if (is_limited() && (session_.is_established() || receive_end_ <= 0 || has_said_end_)) {
    return false;
  }
  return session_.is_begun() && is_moving_valid() && session_.is_valid();
}

// Invariants 1 and 2. The sockets advance the operation's memory as it is sent.
bool TlsStream::is_moving_valid() const noexcept {
  if (inner_.receive.is_in_flight) {
    const std::span<std::byte> room = session_.input_room();
    const auto* first = static_cast<const std::byte*>(receive_piece_.iov_base);
    if (room.empty() || first < room.data() ||
        first + receive_piece_.iov_len > room.data() + room.size()) {
      return false;
    }
  }
  if (!inner_.send.is_in_flight) return true;
  const std::span<const std::byte> pending = session_.pending();
  const auto* first = static_cast<const std::byte*>(send_piece_.iov_base);
  return !pending.empty() && first >= pending.data() &&
         first + send_piece_.iov_len <= pending.data() + pending.size();
}

void TlsStream::open(StreamSocket& outer, std::span<const std::byte> early,
                     void (*said_end)(void* context) noexcept, void* context) noexcept {
  BP_DCHECK(is_own_thread() && said_end != nullptr);
  BP_DCHECK_SLOW(is_valid());
  BP_ASSERT(!is_open() && !outer.receive.is_in_flight && !outer.send.is_in_flight);
  BP_ASSERT(early.size() <= kEarlyBytesMax);
  outer_ = &outer;
  said_end_ = said_end;
  context_ = context;
  is_asked_ = is_aborted_ = has_said_end_ = has_all_ = is_deaf_ = false;
  has_heard_ = !early.empty();
  receive_end_ = send_end_ = 1;
  environment_.sockets->detach(outer);
  inner_.fd = outer.fd;
  const int outcome = environment_.sockets->attach(inner_);
  is_attached_ = outcome == 0;
  if (is_attached_) {
    all_.handshakes().begin(*this);
  } else {
    receive_end_ = send_end_ = -outcome;
  }
  session_.begin(*environment_.credentials, input_, output_);
  if (!early.empty()) {
    std::memcpy(input_, early.data(), early.size());
    session_.arrived(early.size());
  }
  BP_DCHECK_SLOW(is_valid());
}

void TlsStream::wake() noexcept {
  is_asked_ = true;
  if (!std::exchange(is_woken_, true)) all_.wake(*this);
}

void TlsStream::receive() noexcept {
  BP_DCHECK(is_own_thread() && is_open() && !has_said_end_);
  begin_operation(outer_->receive, *outer_, false);
  has_all_ = false;
  wake();
}

void TlsStream::send() noexcept {
  BP_DCHECK(is_own_thread() && is_open() && !has_said_end_);
  begin_operation(outer_->send, *outer_, true);
  wake();
}

void TlsStream::end_receive() noexcept {
  BP_DCHECK(is_own_thread());
  BP_ASSERT(is_open() && outer_->receive.is_in_flight);
  outer_->receive.is_ending = true;
  if (inner_.receive.is_in_flight) return environment_.sockets->end_receive(inner_);
  wake();
}

// Nothing moves any more: operations end with `result`, unless they have an end already.
void TlsStream::abort_with(int64_t result) noexcept {
  BP_DCHECK(is_own_thread());
  BP_KEEPS_VALID(*this);
  BP_ASSERT(is_open());
  is_aborted_ = true;
  all_.handshakes().end(*this);
  if (receive_end_ > 0) receive_end_ = result;
  if (send_end_ > 0) send_end_ = result;
  environment_.sockets->abort(inner_);
  wake();
}

// A callback may close the stream, also while it is in the list.
void TlsStream::run() noexcept {
  BP_DCHECK(is_own_thread() && is_woken_);
  is_woken_ = false;
  if (is_open() && std::exchange(is_asked_, false)) advance_all();
  if (is_open() && has_said_end_ && !is_in_flight()) said_end_(context_);
}

void TlsStream::received(void* context, int64_t result) noexcept {
  auto& self = *static_cast<TlsStream*>(context);
  BP_DCHECK(self.is_own_thread() && self.is_open());
  if (result >= 0) {
    self.has_heard_ |= result > 0;
    self.session_.arrived(static_cast<size_t>(result));
  } else if (result == -ECANCELED) {
    self.has_all_ = true;
  } else if (self.receive_end_ > 0) {
    self.all_.handshakes().end(self);
    self.receive_end_ = result;
  }
  self.advance_all();
  self.wake_if_it_ends();
}

void TlsStream::sent(void* context, int64_t result) noexcept {
  auto& self = *static_cast<TlsStream*>(context);
  BP_DCHECK(self.is_own_thread() && self.is_open());
  if (result >= 0) {
    self.session_.sent(static_cast<size_t>(result));
  } else {
    self.is_deaf_ = true;
    if (self.send_end_ > 0) self.send_end_ = result;
  }
  self.advance_all();
  self.wake_if_it_ends();
}

// say_end() has returned false, and its caller asks again after a wake.
void TlsStream::wake_if_it_ends() noexcept {
  if (is_open() && has_said_end_) wake();
}

// Does everything that is possible now. Callbacks that run here request another run by wake() only;
// each may close the stream.
void TlsStream::advance_all() noexcept {
  BP_KEEPS_VALID(*this);
  if (!session_.is_established() && receive_end_ > 0) shake_hands();
  if (session_.is_established()) {
    read_some();
    if (is_open()) write_some();
  }
  if (!is_open()) return;
  move_bytes();
  end_operations();
}

void TlsStream::shake_hands() noexcept {
  switch (session_.handshake()) {
    case TlsSession::Outcome::kDone:
      all_.handshakes().end(*this);
      environment_.counters->handshakes.add(1);
      return;
    case TlsSession::Outcome::kFailed: return failed();
    default: return;
  }
}

// Whether memory is left; skips empty pieces.
bool TlsStream::has_pieces(SocketOperation& operation) noexcept {
  msghdr& message = operation.message;
  while (message.msg_iovlen > 0 && message.msg_iov->iov_len == 0) {
    ++message.msg_iov;
    --message.msg_iovlen;
  }
  return message.msg_iovlen > 0;
}

void TlsStream::read_some() noexcept {
  SocketOperation& operation = outer_->receive;
  bool is_complete = false;
  while (operation.is_in_flight && receive_end_ > 0 && has_pieces(operation)) {
    const iovec piece = *operation.message.msg_iov;
    const auto moved = session_.read({static_cast<std::byte*>(piece.iov_base), piece.iov_len});
    environment_.counters->read_bytes.add(moved.bytes);
    is_complete = advance(operation, moved.bytes);
    if (moved.outcome == TlsSession::Outcome::kEnded) receive_end_ = 0;
    if (moved.outcome == TlsSession::Outcome::kFailed) failed();
    if (moved.outcome != TlsSession::Outcome::kDone) break;
  }
  if (is_complete) finish(operation, static_cast<int64_t>(operation.moved_bytes));
}

void TlsStream::write_some() noexcept {
  SocketOperation& operation = outer_->send;
  while (operation.is_in_flight && send_end_ > 0 && has_pieces(operation)) {
    const iovec piece = *operation.message.msg_iov;
    const auto moved = session_.write({static_cast<std::byte*>(piece.iov_base), piece.iov_len});
    environment_.counters->written_bytes.add(moved.bytes);
    advance(operation, moved.bytes);
    if (moved.outcome == TlsSession::Outcome::kFailed) failed();
    if (moved.outcome != TlsSession::Outcome::kDone) break;
  }
}

// Moves bytes between the buffers and the socket, including an alert that tells why the session
// failed.
void TlsStream::move_bytes() noexcept {
  if (!is_attached_ || is_aborted_) return;
  const bool says_why = session_.failure() != TlsFailure::kNone && !is_deaf_;
  if (const auto pending = session_.pending();
      !pending.empty() && !inner_.send.is_in_flight && (send_end_ > 0 || says_why)) {
    send_piece_ = {const_cast<std::byte*>(pending.data()), pending.size()};
    inner_.send.pieces = &send_piece_;
    inner_.send.piece_count = 1;
    environment_.sockets->send(inner_);
  }
  // If run() is due, the session may already hold the wanted bytes.
  const std::span<std::byte> room = session_.input_room();
  const bool is_wanted = (outer_->receive.is_in_flight && !(is_receive_ending() && has_all_)) ||
                         (outer_->send.is_in_flight && session_.waits_for_input());
  if (is_wanted && receive_end_ > 0 && !inner_.receive.is_in_flight && !room.empty() &&
      !is_asked_) {
    receive_piece_ = {room.data(), room.size()};
    inner_.receive.pieces = &receive_piece_;
    inner_.receive.piece_count = 1;
    inner_.receive.min_bytes = 1;
    environment_.sockets->receive(inner_);
    if (is_receive_ending()) environment_.sockets->end_receive(inner_);
  }
}

void TlsStream::end_operations() noexcept {
  SocketOperation& sending = outer_->send;
  if (sending.is_in_flight && !inner_.send.is_in_flight) {
    if (send_end_ <= 0) {
      finish(sending, send_end_);
    } else if (!has_pieces(sending) && session_.pending().empty()) {
      finish(sending, static_cast<int64_t>(sending.moved_bytes));
    }
  }
  if (!is_open() || !outer_->receive.is_in_flight || inner_.receive.is_in_flight) return;
  if (receive_end_ > 0) {
    if (is_receive_ending() && !is_asked_) finish(outer_->receive, -ECANCELED);
    return;
  }
  // A failure makes the user close the connection, so the peer must get the reason first.
  if (session_.failure() != TlsFailure::kNone && inner_.send.is_in_flight) return;
  finish(outer_->receive, receive_end_);
}

void TlsStream::finish(SocketOperation& operation, int64_t result) noexcept {
  BP_DCHECK(operation.is_in_flight && operation.completed != nullptr);
  operation.is_in_flight = false;
  operation.completed(operation.context, result);
}

void TlsStream::failed() noexcept {
  BP_DCHECK(session_.failure() != TlsFailure::kNone);
  all_.handshakes().end(*this);
  receive_end_ = send_end_ = -EPROTO;
  tell_tls_failure(session_, inner_.fd, environment_.counters, environment_.log_limit,
                   environment_.where);
}

void TlsStream::handshake_overdue() noexcept {
  BP_DCHECK(is_open() && !is_limited() && !session_.is_established());
  session_.give_up();
  tell_tls_failure(session_, inner_.fd, environment_.counters, environment_.log_limit,
                   environment_.where);
  abort_with(-ETIMEDOUT);
}

bool TlsStream::say_end() noexcept {
  BP_DCHECK(is_own_thread() && is_open());
  BP_KEEPS_VALID(*this);
  all_.handshakes().end(*this);
  BP_ASSERT(!outer_->receive.is_in_flight && !outer_->send.is_in_flight);
  if (!std::exchange(has_said_end_, true) && send_end_ > 0) {
    session_.close_notify();
    move_bytes();
  }
  // Nobody waits for more.
  if (inner_.receive.is_in_flight && !inner_.receive.is_ending) {
    environment_.sockets->end_receive(inner_);
  }
  return !is_in_flight();
}

bool TlsStream::is_certified() const noexcept {
  return session_.is_begun() && session_.is_established() && session_.has_certificate();
}

bool TlsStream::is_in_handshake() const noexcept {
  return has_heard_ && session_.is_begun() && !session_.is_established();
}

void TlsStream::close() noexcept {
  BP_DCHECK(is_own_thread());
  BP_ASSERT(is_open() && !is_in_flight());
  if (std::exchange(is_attached_, false)) environment_.sockets->detach(inner_);
  session_.end();
  inner_.fd = -1;
  outer_ = nullptr;
  BP_DCHECK_SLOW(is_valid());
}

}  // namespace bedplate
