// The part of libbedplate-tls.a that the runtime refers to (apps/services/tls_part.h): servers with
// OpenSSL's credentials, and layers over them.
#include <deque>
#include <string>
#include <utility>

#include "apps/services/tls_part.h"
#include "platform/log_limit.h"
#include "transport/tls/tls_credentials.h"
#include "transport/tls/tls_streams.h"

namespace bedplate {
namespace {

class OpenSslServer final : public TlsServer {
 public:
  OpenSslServer(std::string where, std::string heap_owner) noexcept
      : where_(std::move(where)),
        heap_owner_(std::move(heap_owner)),
        credentials_(heap_owner_.c_str()) {}

  bool load(const TlsFiles& files, std::vector<Error>* problems) override {
    return credentials_.load(files, where_.c_str(), problems);
  }
  std::unique_ptr<StreamLayers> make_layers(const TlsLayersOptions& options) override {
    const TlsEnvironment environment = {.sockets = options.sockets,
                                        .credentials = &credentials_,
                                        .counters = options.counters,
                                        .log_limit = &log_limits_.emplace_back(10),
                                        .where = where_.c_str(),
                                        .handshake_ns_max = options.handshake_ns_max};
    return std::make_unique<TlsStreams>(environment, options.memory, options.local,
                                        options.elsewhere);
  }

 private:
  const std::string where_;
  const std::string heap_owner_;
  TlsCredentials credentials_;
  std::deque<LogLimit> log_limits_;  // one for each shard
};

}  // namespace
}  // namespace bedplate

extern "C" const bedplate::TlsPart bedplate_tls_part;
const bedplate::TlsPart bedplate_tls_part = {
    [](std::string where, std::string heap_owner) -> std::unique_ptr<bedplate::TlsServer> {
      return std::make_unique<bedplate::OpenSslServer>(std::move(where), std::move(heap_owner));
    }};
