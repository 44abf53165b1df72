#include "apps/blockd/far_limits_datapath.h"

#include <algorithm>
#include <cstddef>

#include "apps/blockd/nbd_connection_datapath.h"
#include "platform/assert.h"

namespace bedplate {

void FarLimits::create(const FarLimitsOptions& options) noexcept {
  BP_ASSERT(options_.limits == nullptr && options.limits != nullptr && options.home > 0);
  options_ = options;
  there_ = {options.there, &options.limits_loop->doorbell()};
  back_ = {options.back, &options.connections_loop->doorbell()};
}

void FarLimits::serve(void (*passed)(void* context, BlockRequest& request) noexcept,
                      void* context) noexcept {
  BP_ASSERT(passed_ == nullptr && passed != nullptr);
  passed_ = passed;
  context_ = context;
}

bool FarLimits::is_valid() const noexcept {
  return (is_ending_ || waiting_.is_empty()) && (is_on_ || (!is_ending_ && out_count_ == 0));
}

void FarLimits::admit(BlockRequest& request) noexcept {
  BP_DCHECK(is_on_ && request.home == options_.home);
  if (is_ending_) return waiting_.push(request);
  ++out_count_;
  there_.push(request);
}

void FarLimits::set_on(bool is_on) noexcept {
  BP_ASSERT(options_.connections_loop->is_own_thread());
  BP_KEEPS_VALID(*this);
  if (!is_on) {
    is_ending_ = is_on_;
    if (is_ending_ && out_count_ == 0) end();
    return;
  }
  is_on_ = true;
  is_ending_ = false;
  for (auto all = waiting_.take(); !all.is_empty();) admit(all.pop());
}

// All are back: those that have come meanwhile follow them.
void FarLimits::end() noexcept {
  is_on_ = is_ending_ = false;
  for (auto all = waiting_.take(); !all.is_empty();) passed_(context_, all.pop());
}

uint32_t FarLimits::poll_back(uint32_t budget) noexcept {
  BP_KEEPS_VALID(*this);
  BlockRequest* batch[kBudget];
  const size_t count = options_.back->pop_batch({batch, std::min(budget, kBudget)});
  for (size_t i = 0; i < count; ++i) {
    BP_ASSERT(out_count_ > 0);
    --out_count_;
    passed_(context_, *batch[i]);
  }
  if (is_ending_ && out_count_ == 0) end();
  return static_cast<uint32_t>(count);
}

uint32_t FarLimits::poll(uint32_t budget) noexcept {
  BlockRequest* batch[kBudget];
  const size_t count = options_.there->pop_batch({batch, std::min(budget, kBudget)});
  for (size_t i = 0; i < count; ++i) {
    BlockLimit::admit(*batch[i], batch[i]->connection->listener_limit);
  }
  back_.ring();  // also for requests whose turn has come since the last poll
  return static_cast<uint32_t>(count);
}

// First takes what the connections have sent before they left.
void FarLimits::drop_there() noexcept {
  BP_ASSERT(options_.limits_loop->is_own_thread());
  while (poll(kBudget) > 0) {
  }
  options_.limits->give_back_left(options_.home, back_);
}

}  // namespace bedplate
