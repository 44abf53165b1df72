// Watches a descriptor, and has planned no watch.
#include <poll.h>
#include <sys/eventfd.h>

#include "tests/mistakes/mistake.h"

namespace bedplate {
namespace {

class UnplannedWatch final : public Mistake {
 public:
  UnplannedWatch() noexcept : Mistake("unplanned_watch") {}
  Result<void> create(ServiceContext& context) override {
    sockets_ = &context.sockets(0);
    return {};
  }
  void start(uint32_t) noexcept override {
    watch_.fd = eventfd(0, EFD_CLOEXEC);
    watch_.events = POLLIN;
    watch_.ready = [](void*, uint32_t) noexcept {};
    (void)sockets_->start_watching(watch_);
    end();
  }

 private:
  StreamSockets* sockets_ = nullptr;
  Watch watch_;
} unplanned_watch;

}  // namespace
}  // namespace bedplate
