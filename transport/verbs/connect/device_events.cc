// A device's events beside completions: queue pairs broken by peers, ports, faults of the device.
//
// A device has one stream of events for all queue pairs, and every connector reads it. An event may
// be about another provider's link, so it goes to the owner of the queue pair. A queue pair is
// destroyed only after its events are acknowledged, so the owner still exists.
#include "platform/log.h"
#include "transport/verbs/connect/link_connector.h"
#include "transport/verbs/device/verbs_device.h"

namespace bedplate {

uint32_t VerbsDevice::take_events() noexcept {
  uint32_t count = 0;
  ibv_async_event event = {};
  for (; ibv_get_async_event(context_, &event) == 0; ++count) {
    handle_event(event);
    ibv_ack_async_event(&event);
  }
  event_count_.fetch_add(count, std::memory_order_relaxed);
  return count;
}

void VerbsDevice::handle_event(const ibv_async_event& event) noexcept {
  switch (event.event_type) {
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      tells_last_receive_.store(true, std::memory_order_relaxed);
      [[fallthrough]];
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      BP_DCHECK(event.element.qp != nullptr);
      if (auto* owner = static_cast<QueuePairOwner*>(event.element.qp->qp_context)) {
        owner->take_event(event.event_type);
      }
      return;
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_DEVICE_FATAL: fault_count_.fetch_add(1, std::memory_order_release); break;
    default: break;
  }
  // Peers can cause some of them: one line a second is enough.
  if (event_lines_.try_pass()) {
    BP_LOG_INFO("verbs: %s reports: %s", kind_.name, ibv_event_type_str(event.event_type));
  }
}

// Runs on any thread: the connector or the shard may own the link.
void VerbsLink::take_event(ibv_event_type type) noexcept {
  BP_DCHECK(connector != nullptr);  // it is up, or was
  if (type == IBV_EVENT_QP_LAST_WQE_REACHED) {
    return has_last_receive.store(true, std::memory_order_release);
  }
  if (type != IBV_EVENT_QP_FATAL) was_refused.store(true, std::memory_order_release);
  connector->break_link(*this);
}

}  // namespace bedplate
