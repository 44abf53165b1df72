// The files with a server's keys for TLS, as its configuration names them. TlsCredentials
// (tls_credentials.h) reads them.
#pragma once

#include <string>

#include "platform/version.h"

namespace bedplate {

// Paths; empty: none. A certificate and its key come together, both in PEM. The file of shared keys
// has lines NAME:KEY, KEY in hexadecimal, as GnuTLS's psktool writes it.
struct TlsFiles {
  std::string certificate = {};  // the chain of its signers may follow
  std::string key = {};
  // Clients must show a certificate signed by one of these, unless they use a shared key.
  std::string client_authorities = {};
  std::string shared_keys = {};
  std::string user = {};  // may own the files, beside root and the user of this process
  // Takes clients that show no certificate; one that is shown must still be valid.
  bool takes_clients_without = false;

  bool is_empty() const noexcept { return certificate.empty() && shared_keys.empty(); }
};

}  // namespace bedplate
