// TlsCredentials: a server's proofs, and its demands of clients: a certificate with its key,
// authorities for the certificates of clients, keys that both sides have (PSK).
//
// TLS 1.2 and 1.3, by OpenSSL. Only ciphers that authenticate what they encrypt are offered (AEAD),
// and only key exchanges whose sessions stay secret when a key is lost later; no renegotiation, no
// tickets, no sessions that are taken up again. The library's memory, for handshakes as well, is
// charged to one owner, so a limit on that owner bounds all of it but the library's own state. That
// state is the process's, and is charged to the credentials that come first.
//
// Invariants: 1. The sessions' context is made once. (prepare) 2. It leads back to the credentials
// (choose_shared_key). 3. A shared key has a name of its own, and as many bytes as may be.
// (add_shared_key)
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "alloc/heap_owner.h"
#include "platform/assert.h"
#include "platform/result.h"
#include "platform/units.h"

// OpenSSL's, whose headers stay out of ours.
struct bio_method_st;
struct ssl_ctx_st;
struct ssl_st;

namespace bedplate {

// Paths; empty: without. A certificate and its key come together, both in PEM. The file of shared
// keys has lines NAME:KEY, KEY in hexadecimal, as GnuTLS's psktool writes it.
struct TlsFiles {
  std::string certificate = {};  // may be followed by those that it is signed by
  std::string key = {};
  std::string client_authorities = {};  // clients must show a certificate that one of them signed
  std::string shared_keys = {};
  std::string user = {};  // whose they may be, beside root's and those of this process's user
  bool takes_clients_without = false;  // a certificate; one that is shown is one that counts

  bool is_empty() const noexcept { return certificate.empty() && shared_keys.empty(); }
};

// Threads: load() on one, before the others; then any, each with sessions of its own.
class TlsCredentials {
 public:
  static constexpr const char* kHeapOwner = "heap:tls";

  // `heap_owner`: allocations are charged to it; static.
  explicit TlsCredentials(const char* heap_owner = kHeapOwner) noexcept : owner_name_(heap_owner) {}
  ~TlsCredentials();
  TlsCredentials(const TlsCredentials&) = delete;
  TlsCredentials& operator=(const TlsCredentials&) = delete;

  // Reads all of `files`. Problems with them are added to `problems`, each with its cure: missing,
  // not readable, no certificate, expired, a key that is another's, secrets that everybody can
  // read. `where` says of which part of the configuration they are: "[server]".
  // Requires: called once; !files.is_empty(). Returns whether it may be used.
  bool load(const TlsFiles& files, const char* where, std::vector<Error>* problems);

  // For sessions. Requires: load() said yes. They live as long as they do.
  ssl_ctx_st* context() const noexcept {
    BP_DCHECK(context_ != nullptr);
    return context_;
  }
  const bio_method_st* transport() const noexcept { return transport_; }
  HeapOwner owner() const noexcept { return owner_; }
  const char* owner_name() const noexcept { return owner_name_; }

  // The bytes that the library takes for handshakes and open sessions of so many connections, with
  // some for the credentials.
  static constexpr uint64_t heap_bytes(uint64_t connection_count) noexcept {
    return 4 * kMiB + connection_count * 96 * kKiB;
  }

 private:
  struct SharedKey {
    explicit SharedKey(std::string_view its_name) : name(its_name) {}
    SharedKey(SharedKey&&) noexcept = default;
    ~SharedKey();  // wipes the key

    std::string name;
    std::vector<unsigned char> key;
  };

  bool prepare() noexcept;
  void load_certificate(const TlsFiles& files, const char* where, std::vector<Error>* problems);
  void load_authorities(const TlsFiles& files, const char* where, std::vector<Error>* problems);
  void load_shared_keys(const TlsFiles& files, const char* where, std::vector<Error>* problems);
  const char* add_shared_key(std::string_view line);
  static unsigned choose_shared_key(ssl_st* session, const char* name, unsigned char* key,
                                    unsigned key_max_bytes) noexcept;

  const char* owner_name_;
  HeapOwner owner_ = {};
  ssl_ctx_st* context_ = nullptr;
  bio_method_st* transport_ = nullptr;
  std::vector<SharedKey> shared_keys_;
};

}  // namespace bedplate
