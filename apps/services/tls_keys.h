// The keys for TLS in the table of a service: tls_certificate, tls_key, tls_client_authorities and
// tls_shared_keys. They are the same for every service. The key plain_text, which says where
// clients without TLS are served, is described by the runtime (ServicePlan::listen).
//
//     describe_tls_keys(table, &settings.tls, {.page = "cache.md#tls"});   // in describe()
//     plan.tls(shard, max_connections, settings.tls);                      // in plan()
#pragma once

#include <string>

#include "transport/tls/tls_files.h"
#include "platform/version.h"

namespace bedplate {

class ConfigurationTable;

// The differences between services.
struct TlsKeyTerms {
  std::string page = "services.md#tls";  // the document that the keys refer to
  bool has_shared_keys = true;
  // Another way for a client without a certificate: " or, if there is a `token_file`, the token".
  std::string or_else = {};
};

// Describes the keys, with the checks between them: a certificate and its key come together, and
// tls_client_authorities only with them; and a program without libbedplate-tls.a refuses the keys.
// Ownership: `files` outlives `table`.
void describe_tls_keys(ConfigurationTable& table, TlsFiles* files, const TlsKeyTerms& terms = {});

}  // namespace bedplate
