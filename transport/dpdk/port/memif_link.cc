#include "transport/dpdk/port/memif_link.h"

#include <algorithm>

#include <rte_ethdev.h>
#include <rte_log.h>

#include "platform/clock.h"
#include "transport/dpdk/eal/eal_log.h"
#include "transport/dpdk/port/memif_gate.h"

namespace bedplate {

// No shard may touch the port while it is stopped and started. The log level is raised meanwhile,
// because the driver logs an error for each try without a server.
bool MemifClient::connect(uint16_t number) noexcept {
  tried_ns_ = monotonic_ns();
  wait_ns_ = std::min(2 * wait_ns_, kLastWaitNs);
  const int type = rte_log_register("pmd.net.memif");
  const auto id = static_cast<uint32_t>(type);
  const int level = type < 0 ? -1 : rte_log_get_level(id);
  if (level >= 0) rte_log_set_level(id, RTE_LOG_CRIT);
  close_memif_gates();
  rte_eth_dev_stop(number);
  const bool is_started = rte_eth_dev_start(number) == 0;
  open_memif_gates();
  if (level >= 0) rte_log_set_level(id, static_cast<uint32_t>(level));
  (void)take_eal_error();
  return is_started;
}

bool MemifClient::is_due() const noexcept { return monotonic_ns() - tried_ns_ >= wait_ns_; }

}  // namespace bedplate
