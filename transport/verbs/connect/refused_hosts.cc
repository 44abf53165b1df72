#include "transport/verbs/connect/refused_hosts.h"

#include <cstdio>
#include <cstring>

#include "platform/assert.h"
#include "platform/log.h"

namespace bedplate {

void RefusedHosts::tell_once(const char* host, const char* why) noexcept {
  BP_DCHECK(host != nullptr && why != nullptr);
  count_.fetch_add(1, std::memory_order_relaxed);
  for (uint32_t i = 0; i < host_count_; ++i) {
    if (std::strcmp(hosts_[i], host) == 0) return;
  }
  if (host_count_ == kHostCountMax) return;
  std::snprintf(hosts_[host_count_++], sizeof hosts_[0], "%s", host);
  BP_LOG_WARNING("verbs: refusing a handshake with %s: %s; further ones are only counted", host,
                 why);
}

}  // namespace bedplate
