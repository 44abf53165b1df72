#include "apps/services/tls_part.h"

// tls_server_part.cc defines it.
extern "C" [[gnu::weak]] const bedplate::TlsPart bedplate_tls_part;

namespace bedplate {

const TlsPart* tls_part() noexcept { return &bedplate_tls_part; }

}  // namespace bedplate
