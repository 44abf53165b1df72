#include "transport/shm/shm_dispatch.h"

namespace bedplate {

void ShmDispatch::create(const Options& options) {
  BP_ASSERT(parts_ == nullptr);
  parts_ = &options.parts;
  endpoints_ = &options.endpoints;
  view_ = &options.view;
  borrower_ = &options.borrower;
  dispatcher_ = &options.dispatcher;
  counters_ = &options.counters;
  boxes_ = options.boxes;
  if (options.parts.outgoing.place.kind() == GroupKind::kExchange) {
    copied_out_ = std::make_unique<std::byte[]>(kMessageBytesMax + 1);
  }
}

}  // namespace bedplate
