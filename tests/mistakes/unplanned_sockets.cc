// Attaches 200 sockets, and has planned none. It is refused, and told once.
#include <sys/socket.h>

#include "tests/mistakes/mistake.h"

namespace bedplate {
namespace {

class UnplannedSockets final : public Mistake {
 public:
  UnplannedSockets() noexcept : Mistake("unplanned_sockets") {}
  Result<void> create(ServiceContext& context) override {
    sockets_ = &context.sockets(0);
    return {};
  }
  void start(uint32_t) noexcept override {
    for (size_t i = 0; i < 200; i += 2) {
      int fds[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) break;
      for (size_t k = 0; k < 2; ++k) {
        all_[i + k].fd = fds[k];
        (void)sockets_->attach(all_[i + k]);
      }
    }
    end();
  }

 private:
  StreamSockets* sockets_ = nullptr;
  StreamSocket all_[200];
} unplanned_sockets;

}  // namespace
}  // namespace bedplate
