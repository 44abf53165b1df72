#include "apps/blockd/block_limit_datapath.h"

#include "apps/blockd/volume.h"
#include "platform/assert.h"
#include "platform/usdt.h"

namespace bedplate {
namespace {

bool is_read(const BlockRequest& request) noexcept {
  return request.wire.command == nbd::Command::kRead ||
         request.wire.command == nbd::Command::kBlockStatus;
}

uint64_t payload_bytes(const BlockRequest& request) noexcept {
  const bool has_payload =
      request.wire.command == nbd::Command::kRead || request.wire.command == nbd::Command::kWrite;
  return has_payload ? request.wire.length : 0;
}

}  // namespace

bool BlockLimit::try_pass(BlockRequest& request) noexcept {
  return (is_read(request) ? reads() : writes()).try_pass(request, payload_bytes(request));
}

// A request goes on behind the limit of kind `passed`.
void BlockLimit::go_on(BlockRequest& request, LimitKind passed) noexcept {
  const Volume& volume = *request.volume;
  if (passed == LimitKind::kListener) {
    if (volume.limit != nullptr && !volume.limit->try_pass(request)) return;
    passed = LimitKind::kVolume;
  }
  if (passed == LimitKind::kVolume && volume.tenant_limit != nullptr &&
      !volume.tenant_limit->try_pass(request)) {
    return;
  }
  BP_USDT(request_queued, request.wire.cookie, request.step);
  BP_DCHECK(request.home < volume.behind_limits.size());
  volume.behind_limits[request.home]->push(request);
}

void BlockLimit::admit(BlockRequest& request, BlockLimit* of_listener) noexcept {
  if (of_listener != nullptr && !of_listener->try_pass(request)) return;
  go_on(request, LimitKind::kListener);
}

void BlockLimit::let_go(void* self, RateWaiter& waiter) noexcept {
  const auto& limit = *static_cast<BlockLimit*>(self);
  auto& request = static_cast<BlockRequest&>(waiter);
  request.trace.pass(kQueued, limit.loop().now_ns());  // the volume begins to be waited for
  go_on(request, limit.kind_);
}

}  // namespace bedplate
