// Tested by tests/system/ports_devices_test.py.
#include "transport/dpdk/port/memif_link.h"

#include <algorithm>
#include <cerrno>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <rte_ethdev.h>
#include <rte_log.h>

#include "platform/clock.h"
#include "platform/file.h"
#include "transport/dpdk/eal/eal_log.h"
#include "transport/dpdk/port/memif_gate.h"

namespace bedplate {

void remove_stale_socket(const std::string& path) noexcept {
  const Fd probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (!probe.is_open() || path.size() >= sizeof address.sun_path) return;
  path.copy(address.sun_path, path.size());
  if (connect(probe.number(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 &&
      errno == ECONNREFUSED) {
    unlink(path.c_str());
  }
}

// While it is stopped and started no shard may touch it. The driver would call it an error that
// nobody is there, each time.
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
