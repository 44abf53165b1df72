#include "transport/sockets/line_server.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <poll.h>

#include "platform/assert.h"

namespace bedplate {
namespace {

bool would_block() noexcept { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

void LineServer::create(const LineServerOptions& options,
                        std::span<StreamSession* const> sessions) noexcept {
  BP_DCHECK(options_.loop == nullptr && options.line != nullptr && !sessions.empty());
  BP_DCHECK(options.sent_bytes != nullptr && options.timed_out != nullptr);
  options_ = options;
  sessions_ = sessions;
  options.loop->own_timers().reserve_more(1);
  for (StreamSession* session : sessions) {
    session->set_owner(
        {.changed = [](void* self) noexcept { static_cast<LineServer*>(self)->changed(); },
         .context = this});
  }
}

bool LineServer::is_valid() const noexcept {
  if (session_ != nullptr && !fd_.is_open()) return false;
  if (session_ == nullptr && is_sending()) return false;
  return !watch_.is_watched() || (fd_.is_open() && watch_.fd == fd_.number());
}

void LineServer::start() noexcept {
  BP_DCHECK(options_.loop->is_own_thread());
  open();
}

void LineServer::open() noexcept {
  fd_ = options_.line->open();
  begin_session();
  arm_timer();
}

// The line's sessions, or the one that has just changed, may have come to their end.
void LineServer::begin_session() noexcept {
  if (!fd_.is_open() || session_ != nullptr) return;
  const auto found = std::find_if(sessions_.begin(), sessions_.end(),
                                  [](const StreamSession* each) { return !each->is_waiting(); });
  if (found == sessions_.end()) return;  // changed() tries again
  session_ = *found;
  session_->reset();
  greeting_ = options_.greeting;
  patience_.begin(options_.loop->now_ns());
  pump(false);
}

// The line stays open.
void LineServer::drop_session() noexcept {
  BP_KEEPS_VALID(*this);
  options_.sockets->stop_watching(watch_);
  StreamSession& session = *std::exchange(session_, nullptr);
  greeting_ = {};
  session.leave();
  if (!std::exchange(sending_, {}).empty()) session.sent(options_.loop->now_ns());
}

void LineServer::changed() noexcept {
  if (session_ == nullptr) return begin_session();
  pump(false);
}

void LineServer::ready(uint32_t events) noexcept {
  BP_DCHECK(session_ != nullptr);
  options_.loop->look_at_clock();
  // A line that has hung up may still have bytes to read.
  pump((events & (POLLIN | POLLHUP | POLLERR)) != 0);
}

void LineServer::pump(bool is_readable) noexcept {
  BP_KEEPS_VALID(*this);
  is_blocked_ = false;
  if (!send()) return;
  if (is_readable && !receive()) return;
  if (!send()) return;
  if (session_->is_over() && !is_sending()) {
    drop_session();
    return begin_session();
  }
  watch();
  arm_timer();
}

// These return false if the line is lost.
bool LineServer::send() noexcept {
  while (!is_blocked_) {
    if (!greeting_.empty()) {
      iovec piece = {const_cast<char*>(greeting_.data()), greeting_.size()};
      if (!send_some(&piece, 1)) return false;
      greeting_.remove_prefix(sent_bytes_);
      continue;
    }
    if (sending_.empty()) {
      sending_ = session_->replies();
      if (sending_.empty()) return true;
      session_->handed_over(options_.loop->look_at_clock());
    }
    if (!send_some(sending_.data(), sending_.size())) return false;
    for (size_t left = sent_bytes_; !sending_.empty();) {
      iovec& piece = sending_.front();
      const size_t bytes = std::min(left, piece.iov_len);
      piece.iov_base = static_cast<char*>(piece.iov_base) + bytes;
      piece.iov_len -= bytes;
      left -= bytes;
      if (piece.iov_len > 0) break;
      sending_ = sending_.subspan(1);
    }
    if (sending_.empty()) session_->sent(options_.loop->now_ns());
  }
  return true;
}

bool LineServer::send_some(iovec* pieces, size_t count) noexcept {
  sent_bytes_ = 0;
  const ssize_t sent = writev(fd_.number(), pieces, static_cast<int>(count));
  if (sent < 0 && !would_block()) {
    lose(errno);
    return false;
  }
  is_blocked_ = sent <= 0;
  if (is_blocked_) return true;
  sent_bytes_ = static_cast<size_t>(sent);
  options_.sent_bytes->add(sent_bytes_);
  taken_ns_ = options_.loop->now_ns();
  return true;
}

bool LineServer::receive() noexcept {
  const StreamSession::Input input = session_->input();
  if (input.piece_count == 0) return true;
  const ssize_t got = readv(fd_.number(), input.pieces, static_cast<int>(input.piece_count));
  if (got < 0 && would_block()) return true;
  if (got <= 0) {
    lose(got < 0 ? errno : 0);
    return false;
  }
  session_->received(static_cast<uint64_t>(got), options_.loop->now_ns());
  return true;
}

// The line broke: it is opened again after a while.
void LineServer::lose(int error_number) noexcept {
  BP_DCHECK(session_ != nullptr);
  options_.line->lost(error_number);
  drop_session();
  options_.line->close(&fd_);
  arm_timer();
}

// Watches for what can be done: bytes that the session takes, and space for its replies.
void LineServer::watch() noexcept {
  const uint32_t in = session_->input().piece_count > 0 ? POLLIN : 0;
  const uint32_t events = in | (is_blocked_ ? POLLOUT : 0);
  if (watch_.is_watched() && watch_.events == events) return;
  options_.sockets->stop_watching(watch_);
  if (events == 0) return;
  watch_.fd = fd_.number();
  watch_.events = events;
  if (const int error = options_.sockets->start_watching(watch_); error != 0) lose(error);
}

void LineServer::arm_timer() noexcept {
  if (timer_.is_armed()) return;
  const bool is_idle = session_ == nullptr || SessionPatience::is_idle(*session_, state());
  if (fd_.is_open() && is_idle) return;
  const uint64_t pause_ns = fd_.is_open() ? kLookNs : kAgainNs;
  options_.loop->own_timers().arm(timer_, options_.loop->now_ns() + pause_ns);
}

void LineServer::look() noexcept {
  const uint64_t now_ns = options_.loop->look_at_clock();
  if (!fd_.is_open()) return open();
  if (session_ == nullptr) return;  // all sessions wait
  const PatienceLimits limits = {.slow_ns_max = options_.slow_ns_max};
  const PatienceVerdict verdict = patience_.look(now_ns, limits, *session_, state());
  if (verdict == PatienceVerdict::kPatient) return arm_timer();
  options_.timed_out->add(1);
  if (verdict == PatienceVerdict::kLate) {
    patience_.begin(now_ns);
    session_->late();
    return pump(false);
  }
  options_.line->drop_output(fd_.number());
  drop_session();
  begin_session();
}

void LineServer::end() noexcept {
  if (options_.loop == nullptr) return;
  if (session_ != nullptr) drop_session();
  if (fd_.is_open()) options_.line->close(&fd_);
  options_.loop->own_timers().cancel(timer_);
}

}  // namespace bedplate
