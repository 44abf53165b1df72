// TlsCredentials: a server's certificate with its key, the authorities that sign its clients'
// certificates, and keys that both sides share (PSK).
//
// TLS 1.2 and 1.3, by OpenSSL. Offers only ciphers that authenticate what they encrypt (AEAD), and
// only key exchanges with forward secrecy; no renegotiation, no tickets, no resumption. The
// library's memory, for handshakes as well, is charged to one owner, so a limit on that owner
// bounds all of it except the library's own state. That state belongs to the process, and is
// charged to the first credentials.
//
// Invariants: 1. The library's context is made once. (prepare) 2. It points back to the credentials
// (choose_shared_key). 3. A shared key has a unique name, and a permitted size. (add_shared_key)
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "alloc/heap_owner.h"
#include "platform/assert.h"
#include "platform/result.h"
#include "platform/units.h"
#include "transport/tls/tls_files.h"

// OpenSSL's types; its headers stay out of ours.
struct bio_method_st;
struct ssl_ctx_st;
struct ssl_st;

namespace bedplate {

// Threads: load() on one, before the others; then any, each with sessions of its own.
class TlsCredentials {
 public:
  static constexpr const char* kHeapOwner = "heap:tls";

  // `heap_owner`: allocations are charged to it; a static text.
  explicit TlsCredentials(const char* heap_owner = kHeapOwner) noexcept : owner_name_(heap_owner) {}
  ~TlsCredentials();
  TlsCredentials(const TlsCredentials&) = delete;
  TlsCredentials& operator=(const TlsCredentials&) = delete;

  // Reads all of `files`. Adds each problem to `problems`, with its cure: missing, unreadable, no
  // certificate, expired, a key of another certificate, a secret that everybody can read. `where`:
  // the part of the configuration, "[server]". Requires: called once; !files.is_empty(). Returns
  // whether the credentials are usable.
  bool load(const TlsFiles& files, const char* where, std::vector<Error>* problems);

  // The library's context, for sessions. Requires: load() returned true. The credentials outlive
  // the sessions.
  ssl_ctx_st* context() const noexcept {
    BP_DCHECK(context_ != nullptr);
    return context_;
  }
  const bio_method_st* transport() const noexcept { return transport_; }
  HeapOwner owner() const noexcept { return owner_; }
  const char* owner_name() const noexcept { return owner_name_; }

  // The bytes that the library takes for the handshakes and open sessions of `connection_count`
  // connections, including some for the credentials.
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
