#include "apps/boot/tls_part.h"

// tls_connection.cc defines it.
extern "C" [[gnu::weak]] const bedplate::TlsPart bedplate_tls_part;

namespace bedplate {

const TlsPart* tls_part() noexcept { return &bedplate_tls_part; }

void check_tls_certificate(ReadTable& read) {
  if (read.was_refused("tls_certificate") || read.was_refused("tls_key")) return;
  if (read.has("tls_certificate") && !read.has("tls_key")) {
    read.refuse_value("tls_certificate", "its key is missing", "expected \"tls_key\" beside it");
  }
  if (!read.has("tls_certificate")) {
    read.refuse_keys({"tls_key", "tls_client_authorities"},
                     "is only for a server with a certificate",
                     "expected \"tls_certificate\" beside it");
  }
}

}  // namespace bedplate
