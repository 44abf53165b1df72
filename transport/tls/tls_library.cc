#include "transport/tls/tls_library.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <malloc.h>

#include <openssl/crypto.h>
#include <openssl/decoder.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/ssl.h>

#include "platform/assert.h"

namespace bedplate {
namespace {

thread_local bool was_refused = false;

void* noted(void* block) noexcept {
  if (block == nullptr) was_refused = true;
  return block;
}

// The library allocates two blocks of this size for each record that it writes, and frees them at
// once. A thread caches them, so a session allocates nothing after its handshake.
constexpr size_t kSpareBytes = 40;
constexpr size_t kSpareCountMax = 4;
thread_local void* spares[kSpareCountMax];
thread_local size_t spare_count = 0;
thread_local size_t session_count = 0;

void* allocate(size_t bytes, const char* /*file*/, int /*line*/) {
  BP_DCHECK(spare_count <= kSpareCountMax && (session_count > 0 || spare_count == 0));
  if (bytes == kSpareBytes && spare_count > 0) return spares[--spare_count];
  return noted(std::malloc(bytes));
}

void wipe_and_free(void* block, const char* /*file*/, int /*line*/) {
  if (block == nullptr) return;
  const size_t bytes = malloc_usable_size(block);
  OPENSSL_cleanse(block, bytes);
  // malloc rounds up to 16 bytes.
  if (bytes >= kSpareBytes && bytes < kSpareBytes + 16 && spare_count < kSpareCountMax &&
      session_count > 0) {
    spares[spare_count++] = block;
  } else {
    std::free(block);
  }
}

// Never in place: nobody would wipe the bytes that are left. The library never asks for 0 bytes.
void* reallocate(void* block, size_t bytes, const char* file, int line) {
  void* const other = noted(std::malloc(bytes));
  if (other == nullptr || block == nullptr) return other;
  const size_t before = malloc_usable_size(block);
  std::memcpy(other, block, before < bytes ? before : bytes);
  wipe_and_free(block, file, line);
  return other;
}

// The library makes all algorithms of one kind when the first of them is needed. This makes them
// now. In mid-handshake each algorithm that is left out of a static program
// (scripts/mk/tls_left_out.sh) would be reported as an error, and memory might be short.
bool make_algorithms() noexcept {
  const TlsPointer<EVP_MD, EVP_MD_free> digest(EVP_MD_fetch(nullptr, "SHA2-256", nullptr));
  const TlsPointer<EVP_MAC, EVP_MAC_free> mac(EVP_MAC_fetch(nullptr, "HMAC", nullptr));
  const TlsPointer<EVP_KDF, EVP_KDF_free> kdf(EVP_KDF_fetch(nullptr, "TLS13-KDF", nullptr));
  const TlsPointer<EVP_CIPHER, EVP_CIPHER_free> cipher(
      EVP_CIPHER_fetch(nullptr, "AES-128-GCM", nullptr));
  const TlsPointer<EVP_RAND, EVP_RAND_free> random(EVP_RAND_fetch(nullptr, "CTR-DRBG", nullptr));
  const TlsPointer<EVP_KEYMGMT, EVP_KEYMGMT_free> keys(EVP_KEYMGMT_fetch(nullptr, "EC", nullptr));
  const TlsPointer<EVP_KEYEXCH, EVP_KEYEXCH_free> exchange(
      EVP_KEYEXCH_fetch(nullptr, "ECDH", nullptr));
  const TlsPointer<EVP_SIGNATURE, EVP_SIGNATURE_free> signature(
      EVP_SIGNATURE_fetch(nullptr, "ECDSA", nullptr));
  const TlsPointer<OSSL_DECODER, OSSL_DECODER_free> decoder(
      OSSL_DECODER_fetch(nullptr, "EC", nullptr));
  const bool has_all =
      digest && mac && kdf && cipher && random && keys && exchange && signature && decoder;
  if (has_all) ERR_clear_error();
  return has_all;
}

bool prepare() noexcept {
  return CRYPTO_set_mem_functions(&allocate, &reallocate, &wipe_and_free) == 1 &&
         OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, nullptr) == 1 &&
         make_algorithms();
}

}  // namespace

bool prepare_tls_library() noexcept {
  static const bool is_ready = prepare();
  return is_ready;
}

// If there are several, returns the first that TLS itself reported: that one has the reason.
unsigned long take_tls_error() noexcept {
  unsigned long told = 0;
  while (const unsigned long error = ERR_get_error()) {
    if (told == 0 || (ERR_GET_LIB(told) != ERR_LIB_SSL && ERR_GET_LIB(error) == ERR_LIB_SSL)) {
      told = error;
    }
  }
  return told;
}

const char* tls_error_text(unsigned long error) noexcept {
  const char* text = ERR_reason_error_string(error);
  return text != nullptr ? text : "the library gives no reason";
}

void begin_tls_session() noexcept { ++session_count; }

// A session may end on another thread than it began on, when nothing else runs any more.
void end_tls_session() noexcept {
  if (session_count > 0) --session_count;
  while (session_count == 0 && spare_count > 0) std::free(spares[--spare_count]);
}

bool take_tls_refusal() noexcept { return std::exchange(was_refused, false); }

}  // namespace bedplate
