#include "pinned_pool/join/join_acceptor.h"

#include <cerrno>

#include <sys/epoll.h>
#include <sys/socket.h>

#include "platform/clock.h"
#include "platform/units.h"

namespace bedplate {
namespace {

constexpr uint64_t kPauseNs = 100 * kNsPerMs;

}  // namespace

Result<void> JoinAcceptor::open(JoinListener* listener, const std::string& path) noexcept {
  if (listener != nullptr) {
    listener_ = listener->take();
    // Listens again, as the present user: joiners see the user of the last listen() as the owner.
    if (listen(listener_.number(), SOMAXCONN) == 0) return {};
    return error_from_errno("listening for processes that join");
  }
  BP_TRY_ASSIGN(listener_, listen_for_joiners(path.c_str()));
  return {};
}

bool JoinAcceptor::begin() noexcept {
  return watch_.add(listener_, EPOLLIN, JoinWatch::kListenerMark);
}

JoinAcceptor::Outcome JoinAcceptor::accept(Fd* socket) noexcept {
  *socket = Fd(accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket->is_open()) return Outcome::kAccepted;
  switch (errno) {
    case ECONNABORTED:
    case EINTR: return Outcome::kWentAway;
    case EAGAIN: return Outcome::kNone;
    default: return Outcome::kFailed;
  }
}

void JoinAcceptor::pause() noexcept {
  watch_.remove(listener_);
  resume_ns_ = monotonic_ns() + kPauseNs;
}

void JoinAcceptor::resume_if_due(uint64_t now_ns) noexcept {
  if (!is_paused() || now_ns < resume_ns_) return;
  // A kernel that lacks memory refuses the watch: another pause.
  resume_ns_ = begin() ? 0 : now_ns + kPauseNs;
}

}  // namespace bedplate
