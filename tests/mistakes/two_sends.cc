// Sends on a socket whose last send has not ended.
#include <sys/socket.h>

#include "tests/mistakes/mistake.h"

namespace bedplate {
namespace {

class TwoSends final : public Mistake {
 public:
  TwoSends() noexcept : Mistake("two_sends") {}
  Result<void> plan(ServicePlan& plan) override {
    plan.connections(0, 1, nullptr);
    return {};
  }
  Result<void> create(ServiceContext& context) override {
    sockets_ = &context.sockets(0);
    return {};
  }
  void start(uint32_t) noexcept override {
    int fds[2] = {-1, -1};
    (void)socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds);
    socket_.fd = fds[0];
    (void)sockets_->attach(socket_);
    socket_.send.pieces = &piece_;
    socket_.send.piece_count = 1;
    socket_.send.completed = [](void*, int64_t) noexcept {};
    sockets_->send(socket_);
    sockets_->send(socket_);
  }

 private:
  StreamSockets* sockets_ = nullptr;
  StreamSocket socket_;
  char text_[8] = "twice";
  iovec piece_ = {text_, sizeof text_};
} two_sends;

}  // namespace
}  // namespace bedplate
