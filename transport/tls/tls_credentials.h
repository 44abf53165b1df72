// TlsCredentials: what a server proves itself with, and what it asks of its clients: a certificate
// with its key, authorities for the certificates of clients, keys that both sides have (PSK).
//
// The library is mbedTLS; 2.28, which Debian 12 has, speaks TLS 1.2. Only ciphers that authenticate
// what they encrypt are offered (AEAD), and only key exchanges whose sessions stay secret when a
// key is lost later. What the library allocates, for handshakes as well, is charged to the owner
// "heap:tls", so a limit on that owner bounds all of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/pk.h>
#include <mbedtls/ssl.h>
#include <mbedtls/x509_crt.h>

#include "alloc/heap_owner.h"
#include "platform/result.h"

namespace bedplate {

// Paths; empty: without. A certificate and its key come together, both in PEM. The file of shared
// keys has lines NAME:KEY, KEY in hexadecimal, as GnuTLS's psktool writes it.
struct TlsFiles {
  std::string certificate = {};  // may be followed by those that it is signed by
  std::string key = {};
  std::string client_authorities = {};  // clients must show a certificate that one of them signed
  std::string shared_keys = {};

  bool is_empty() const noexcept { return certificate.empty() && shared_keys.empty(); }
};

// Threads: load() on one, before the others; then any, each with sessions of its own.
class TlsCredentials {
 public:
  static constexpr const char* kHeapOwner = "heap:tls";

  TlsCredentials() noexcept;
  ~TlsCredentials();
  TlsCredentials(const TlsCredentials&) = delete;
  TlsCredentials& operator=(const TlsCredentials&) = delete;

  // Reads all of `files`. What is wrong with them is added to `problems`, each with its cure:
  // missing, not readable, no certificate, expired, a key that is another's, secrets that everybody
  // can read. `where` says of which part of the configuration they are: "[server]".
  // Requires: called once; !files.is_empty(). Returns whether it may be used.
  bool load(const TlsFiles& files, const char* where, std::vector<Error>* problems);

  // For sessions. Requires: load() said yes. It lives as long as they do.
  const mbedtls_ssl_config& config() const noexcept { return config_; }
  HeapOwner owner() const noexcept { return owner_; }

 private:
  struct SharedKey {
    explicit SharedKey(std::string_view its_name) : name(its_name) {}
    SharedKey(SharedKey&&) noexcept = default;
    ~SharedKey();  // wipes the key

    std::string name;
    std::vector<unsigned char> key;
  };

  void load_certificate(const TlsFiles& files, const char* where, std::vector<Error>* problems);
  void load_authorities(const TlsFiles& files, const char* where, std::vector<Error>* problems);
  void load_shared_keys(const TlsFiles& files, const char* where, std::vector<Error>* problems);
  const char* add_shared_key(std::string_view line);
  int choose_shared_key(mbedtls_ssl_context* session, std::string_view name) const noexcept;

  HeapOwner owner_ = {};
  mbedtls_ssl_config config_;
  mbedtls_entropy_context entropy_;
  mbedtls_ctr_drbg_context random_;
  mbedtls_x509_crt certificate_;
  mbedtls_x509_crt authorities_;
  mbedtls_pk_context key_;
  std::vector<SharedKey> shared_keys_;
};

}  // namespace bedplate
