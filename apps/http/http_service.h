// [http]: serves the counters to Prometheus and browsers, and answers health checks (docs/http.md).
// Each program has this service.
//
// It runs on a loop and a thread of its own, besides the shards, and costs them only the cache
// lines that it reads. It knows no service by name: it shows the sets that the counters file
// describes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/http/http_session.h"
#include "apps/http/http_settings.h"
#include "apps/services/service.h"
#include "apps/services/tls_part.h"
#include "platform/cache_line.h"
#include "platform/recent_lines.h"
#include "transport/sockets/socket_thread.h"
#include "transport/sockets/stream_server.h"

namespace bedplate {

class HttpService final : public Service {
 public:
  ~HttpService() override;

  const char* name() const noexcept override { return "http"; }
  void describe(ConfigurationTable& table) override { bedplate::describe(table, settings_); }
  Result<void> plan(ServicePlan& plan) override;
  void preflight(std::vector<Error>* problems) override;
  Result<void> prepare() override;
  Result<void> create(ServiceContext& context) override;
  Result<void> sealed() override;
  void request_drain() noexcept override { site_.is_ready = false; }
  bool stopped() noexcept override { return thread_.stop(), true; }

 private:
  Result<std::string> read_token() const;
  TlsFiles tls_files() const;
  static std::string_view too_many(void* self, std::span<char> room) noexcept;
  Result<void> secure(ServiceContext& context);

  HttpSettings settings_;
  std::string user_;  // the appliance's user; empty: that of the process
  HttpSite site_;
  std::unique_ptr<LineSlot[]> log_;  // the log's last lines; exists as long as this
  std::unique_ptr<TlsServer> tls_;   // nullptr: HTTP without TLS
  std::unique_ptr<CacheLine[]> layer_memory_;
  std::unique_ptr<StreamLayers> layers_;              // of tls_
  std::vector<std::unique_ptr<CacheLine[]>> memory_;  // of each connection
  StreamServer server_;
  SocketThread thread_;
};

}  // namespace bedplate
