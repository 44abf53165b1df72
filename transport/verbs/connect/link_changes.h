// Tells a shard to look at its links: counts the reasons, and rings the shard's doorbells.
//
// A link has changed, or the shard is to check that its requests end. The shard compares the count
// with the last one that it saw, and looks at its links only if they differ. Threads: any, after
// open().
#pragma once

#include <atomic>
#include <cstdint>

#include "transport/loop/doorbell.h"
#include "transport/verbs/connect/verbs_link.h"

namespace bedplate {

class LinkChanges {
 public:
  // `bell`: the provider's. `loop_bell`: of the event loop that polls the provider; nullptr: polled
  // by hand. Both outlive this.
  void open(Doorbell& bell, Doorbell* loop_bell) noexcept {
    bell_ = &bell;
    loop_bell_ = loop_bell;
  }
  uint32_t count() const noexcept { return count_.load(std::memory_order_acquire); }
  void ring() noexcept {
    count_.fetch_add(1, std::memory_order_release);  // pairs with count()
    bell_->ring();
    if (loop_bell_ != nullptr) loop_bell_->ring();
  }
  // Asks the shard to take the link down; until then it stays up.
  void break_link(VerbsLink& link) noexcept {
    if (!link.must_break.exchange(true, std::memory_order_acq_rel)) ring();
  }

 private:
  Doorbell* bell_ = nullptr;
  Doorbell* loop_bell_ = nullptr;
  std::atomic<uint32_t> count_{0};
};

}  // namespace bedplate
