#include "transport/shm/inbound_boxes.h"

namespace bedplate {

void InboundBoxes::create(const ShmPlace& place, ShmDispatch& dispatch,
                          const EndpointTable& endpoints, ShmCounters& counters) {
  BP_ASSERT(place_ == nullptr);
  place_ = &place;
  dispatch_ = &dispatch;
  endpoints_ = &endpoints;
  counters_ = &counters;
  boxes_ = std::make_unique<BoxReceiver[]>(place.shape().box_count_max);
}

}  // namespace bedplate
