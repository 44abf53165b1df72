// [control]: answers requests while the appliance runs, over a Unix socket next to its other files
// (docs/control.md), and over a serial line. Each program has this service.
//
// It runs on a loop and a thread of its own, besides the shards. It costs a shard time only for the
// parts of methods that run there. It knows no service by name: services add their methods
// themselves (Service::methods).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/control/control_line.h"
#include "apps/control/control_session.h"
#include "apps/control/control_settings.h"
#include "apps/control/runtime_methods.h"
#include "apps/services/service.h"
#include "platform/cache_line.h"
#include "transport/sockets/line_server.h"
#include "transport/sockets/socket_thread.h"
#include "transport/sockets/stream_server.h"

namespace bedplate {

struct AppliancePlan;
struct Configuration;

// Adds the methods of the runtime and of `services` to `methods`: to serve them, or to print them.
// Errors: an exception that a service threw, with the service's name.
Result<void> add_all_methods(std::span<Service* const> services, RuntimeMethods* runtime,
                             ControlMethods* methods);

class ControlService final : public Service {
 public:
  // `plan_text`: the plan as JSON, in one line.
  explicit ControlService(std::string (*plan_text)(const AppliancePlan&, const Configuration&))
      : plan_text_(plan_text) {}

  const char* name() const noexcept override { return "control"; }
  void describe(ConfigurationTable& table) override { bedplate::describe(table, settings_); }
  Result<void> plan(ServicePlan& plan) override;
  void preflight(std::vector<Error>* problems) override;
  Result<void> prepare() override;
  Result<void> create(ServiceContext& context) override;
  Result<void> sealed() override;
  bool stopped() noexcept override { return thread_.stop(), true; }

 private:
  bool is_allowed(int fd, uint32_t* user) const noexcept;
  // A stuck shard keeps one session of the line until it takes its call. So with one more than
  // there are shards the line always answers.
  static uint64_t line_session_count(const Configuration& configuration) noexcept;
  void begin() noexcept;
  void end() noexcept;
  static std::string_view refusal(void* self, int fd, std::span<char> room) noexcept;
  static std::string_view too_many(void* self, std::span<char> room) noexcept;

  ControlSettings settings_;
  std::string (*plan_text_)(const AppliancePlan&, const Configuration&);
  std::string user_;  // the user to become instead of root; empty: none
  uint32_t own_ = 0;  // the number of the appliance's user
  std::optional<uint32_t> group_id_;

  ControlMethods methods_;
  RuntimeMethods runtime_;
  ControlSite site_;
  ControlLine line_;
  std::vector<std::unique_ptr<ControlSession>> line_sessions_;
  std::vector<StreamSession*> line_session_list_;  // the same
  LineServer line_server_;
  std::vector<std::unique_ptr<CacheLine[]>> memory_;  // of each connection
  StreamServer server_;
  SocketThread thread_;
};

// The path of the socket of the appliance `name`, in its runtime directory.
std::string control_path(const std::string& directory, const std::string& name);

}  // namespace bedplate
