// Ports through DPDK as services of the runtime: [[port]], and [dpdk] for their shared settings.
//
// A port is a datagram network, known by its name: other services open sockets on it
// (ServicePlan::datagram_socket), so a program lists these two services before them. The first port
// starts EAL; without a port EAL does not start. apps/services/service.h documents the purpose,
// time and thread of each function.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "apps/services/service.h"

namespace bedplate {

class OpenPort;
struct DpdkSettings;
struct PortSettings;
struct EalCounters;

// [dpdk]. It only holds settings.
class DpdkService final : public Service {
 public:
  DpdkService();
  ~DpdkService() override;
  const char* name() const noexcept override { return "dpdk"; }
  void describe(ConfigurationTable& table) override;

  const DpdkSettings& settings() const noexcept { return *settings_; }

 private:
  std::unique_ptr<DpdkSettings> settings_;
};

// [[port]].
class PortService final : public Service {
 public:
  // `dpdk` outlives this.
  explicit PortService(const DpdkService& dpdk);
  ~PortService() override;
  PortService(const PortService&) = delete;
  PortService& operator=(const PortService&) = delete;

  const char* name() const noexcept override { return "port"; }
  uint32_t table_count_max() const noexcept override { return 16; }
  void describe(ConfigurationTable& table) override;
  DatagramNetwork* datagram_network(std::string_view name) noexcept override;
  Result<void> plan(ServicePlan& plan) override;
  void preflight(std::vector<Error>* problems) override;
  Result<void> create(ServiceContext& context) override;
  void start(uint32_t shard) noexcept override;
  void tick() noexcept override;

 private:
  OpenPort* find(std::string_view name) noexcept;
  // The port that `from` forwards to. Requires: check_forwarding() succeeded.
  OpenPort& target_of(const OpenPort& from) noexcept;
  // Errors: too many ports use the device.
  Result<void> check_device(const PortSettings& settings) const;
  // Errors: forward_to does not name another port.
  Result<void> check_forwarding(const PortSettings& settings) noexcept;
  uint64_t heap_bytes() const noexcept;
  Result<void> start_dpdk(ServiceContext& context);

  const DpdkService& dpdk_;
  std::vector<std::unique_ptr<OpenPort>> ports_;
  std::unique_ptr<OpenPort> sample_;  // describes the table if there is no configuration file
  EalCounters* counters_ = nullptr;
};

}  // namespace bedplate
