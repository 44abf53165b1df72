#include "transport/verbs/connect/link_listener.h"

#include <cerrno>

#include <sys/epoll.h>
#include <sys/socket.h>

#include "platform/assert.h"
#include "platform/clock.h"
#include "platform/log.h"

namespace bedplate {
namespace {

constexpr uint64_t kPauseNs = 100 * kNsPerMs;

}  // namespace

Result<void> LinkListener::open(const SocketAddress& address) noexcept {
  auto listening = listen_at(address);
  if (!listening.ok()) {
    Error error = listening.error();
    return error.set_cure("choose an address of this machine that is not in use");
  }
  fd_ = listening.take();
  set_blocking(fd_.number(), false);
  return {};
}

bool LinkListener::watch() noexcept {
  return events_.watch(fd_.number(), EPOLLIN, LinkEvents::kListenerToken);
}

Fd LinkListener::accept() noexcept {
  BP_DCHECK(is_open());
  Fd fd(accept4(fd_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd.is_open()) {
    was_shortage_told_ = false;
    return fd;
  }
  if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return fd;
  const Error shortage = error_from_errno("accepting a connection of verbs, which is retried")
                             .set_cure("free memory");  // if descriptors were not short
  if (!was_shortage_told_ && shortages_.try_pass()) {
    log_error(shortage);
    was_shortage_told_ = true;
  }
  pause();
  return fd;
}

// The socket stays readable: without a pause the thread would retry without end.
void LinkListener::pause() noexcept {
  events_.watch(fd_.number(), 0, LinkEvents::kListenerToken);
  resume_ns_ = monotonic_ns() + kPauseNs;
}

void LinkListener::resume_if_due(uint64_t now_ns) noexcept {
  if (!is_paused() || now_ns < resume_ns_) return;
  BP_ASSERT(is_open());
  watch();
  resume_ns_ = 0;
}

}  // namespace bedplate
