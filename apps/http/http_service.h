// [http]: what the appliance counts, for Prometheus and for those that ask whether it lives
// (docs/http.md), as a service of the runtime. Each program has it.
//
// It runs on a thread of its own, beside the shards, which notice nothing of it but cache lines
// that are read. It knows no service: it shows what the counters file says of itself.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/boot/connection_thread.h"
#include "apps/boot/service.h"
#include "apps/http/http_session.h"
#include "platform/recent_lines.h"

namespace bedplate {

class HttpService final : public Service {
 public:
  HttpService();
  ~HttpService() override;

  const char* name() const noexcept override { return "http"; }
  void describe(ConfigurationTable& table) override;
  Result<void> plan(ServicePlan& plan) override;
  Result<void> prepare() override;
  Result<void> create(ServiceContext& context) override;
  Result<void> sealed() override;
  void request_drain() noexcept override { site_.is_ready = false; }
  void stopped() noexcept override { thread_.stop(); }

 private:
  // ---- [http] ----
  std::vector<SocketAddress> listen_;
  std::vector<SocketAddress> image_listen_;
  std::string token_file_;
  uint32_t max_connections_ = 8;

  HttpSite site_;
  std::unique_ptr<LineSlot[]> log_;  // where lines of the log lie, as long as this lives
  std::vector<std::unique_ptr<HttpSession>> sessions_;
  ConnectionThread thread_;
};

}  // namespace bedplate
