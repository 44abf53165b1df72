#include "apps/services/tls_keys.h"

#include "apps/configuration/configuration_table.h"
#include "apps/configuration/read_table.h"
#include "apps/services/tls_part.h"

namespace bedplate {
namespace {

constexpr uint64_t kPathBytesMax = 255;

void check_certificate(ReadTable& read) {
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

void check_part(ReadTable& read) {
  if (tls_part() != nullptr) return;
  for (const char* key : {"tls_certificate", "tls_shared_keys"}) {
    if (!read.has(key)) continue;
    read.refuse_value(key, "this program has no TLS linked in",
                      "link it with bedplate-tls (pkg-config; CMake: Bedplate::tls), or leave the "
                      "key out");
  }
}

}  // namespace

void describe_tls_keys(ConfigurationTable& table, TlsFiles* files, const TlsKeyTerms& terms) {
  table.path("tls_certificate", &files->certificate, 1, kPathBytesMax)
      .otherwise(terms.has_shared_keys ? "none: clients of TLS need a shared key"
                                       : "none: there is no TLS")
      .help("The server's certificate for TLS, in PEM, followed by the intermediate certificates "
            "([" +
            terms.page.substr(0, terms.page.find('#')) + "](" + terms.page + ")).");
  table.path("tls_key", &files->key, 1, kPathBytesMax)
      .otherwise("none: there is no certificate")
      .help("The private key of `tls_certificate`. Its file is readable by its owner alone, or "
            "belongs to root with mode 0640.");
  table.path("tls_client_authorities", &files->client_authorities, 1, kPathBytesMax)
      .otherwise("none: no client needs a certificate")
      .help("Certificates of authorities, in PEM: a client must present a certificate signed by "
            "one of them" +
            terms.or_else + ".");
  if (terms.has_shared_keys) {
    table.path("tls_shared_keys", &files->shared_keys, 1, kPathBytesMax)
        .otherwise("none: TLS is by certificate, if at all")
        .help("Keys shared with clients, in lines `NAME:KEY` as `psktool` writes them. Its file "
              "is readable by its owner alone, or belongs to root with mode 0640.");
  }
  table.check([](ReadTable& read) {
    check_certificate(read);
    check_part(read);
  });
}

}  // namespace bedplate
