#include "apps/services/planned_tls.h"

#include "alloc/heap_owner.h"
#include "apps/services/service_calls.h"
#include "apps/services/service_plan.h"
#include "apps/services/tls_part.h"
#include "platform/assert.h"
#include "transport/tls/tls_credentials.h"

namespace bedplate {
namespace {

bool has_tls(const ServiceNeeds& service) noexcept {
  return service.tls && !service.tls->files.is_empty();
}

// nullptr: there are problems.
std::unique_ptr<TlsServer> load(const ServiceNeeds& service, std::vector<Error>* problems) {
  const TlsPart* part = tls_part();
  BP_ASSERT(part != nullptr);  // ServicePlan::tls has looked
  auto server = part->make("[" + service.name + "]", service.tls->heap_owner);
  return server->load(service.tls->files, problems) ? std::move(server) : nullptr;
}

}  // namespace

uint64_t TlsNeed::heap_bytes() const noexcept {
  uint64_t bytes = 0;
  for (const TlsShardNeed& each : shards) {
    bytes += TlsCredentials::heap_bytes(each.connection_count);
  }
  return bytes;
}

void check_planned_tls(const std::vector<ServiceNeeds>& services, std::vector<Error>* problems) {
  for (const ServiceNeeds& service : services) {
    if (has_tls(service)) load(service, problems);
  }
}

Result<std::vector<std::unique_ptr<TlsServer>>> load_planned_tls(
    const std::vector<ServiceNeeds>& services) {
  std::vector<std::unique_ptr<TlsServer>> all;
  for (const ServiceNeeds& service : services) {
    std::unique_ptr<TlsServer>& server = all.emplace_back();
    if (!has_tls(service)) continue;
    std::vector<Error> problems;
    server = in_service(*service.service, [&] { return load(service, &problems); });
    if (server == nullptr) return problems.front();
    BP_TRY_ASSIGN(const auto owner, heap_owner(OwnerName(service.tls->heap_owner)));
    // A [[limit]] of the configuration is set later and wins.
    limit_heap_owner(owner, service.tls->heap_bytes());
  }
  return all;
}

}  // namespace bedplate
