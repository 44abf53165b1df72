#include "transport/tls/tls_credentials.h"

#include <cstdio>
#include <cstring>
#include <optional>
#include <span>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "platform/assert.h"
#include "platform/plain_lines.h"
#include "platform/secret_file.h"
#include "transport/tls/tls_library.h"
#include "transport/tls/tls_session.h"

namespace bedplate {
namespace {

constexpr size_t kFileMaxBytes = 256 * 1024;
// The limit for a client's certificates, which are read before anybody knows whose they are.
constexpr long kCertificatesMaxBytes = 32 * 1024;

// Certificates before shared keys: a client that has both means the certificate. No exchange over a
// prime (DHE), which takes the shard many times as long as one over a curve.
constexpr const char* kCiphers12 = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:"
                                   "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305:"
                                   "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:"
                                   "ECDHE-PSK-CHACHA20-POLY1305";
// SHA-256 ciphers first: a shared key works with no others.
constexpr const char* kCiphers13 =
    "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384";
constexpr const char* kCurves = "X25519:P-256:P-384";

// With AES instructions, AES is cheapest; without them ChaCha20 is, for a client that prefers it.
bool has_aes_instructions() noexcept {
#if defined(__x86_64__)
  return __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
#else
  return false;
#endif
}

// For keys with a password: nobody is asked for it.
int no_password(char*, int, int, void*) { return -1; }

using Certificate = TlsPointer<X509, X509_free>;
using PrivateKey = TlsPointer<EVP_PKEY, EVP_PKEY_free>;
using Bio = TlsPointer<BIO, BIO_free_all>;

// One file: its position in the configuration, and its problems.
class SecretFile {
 public:
  SecretFile(const char* what, const std::string& path, const char* where, const char* owner,
             std::vector<Error>* problems)
      : what_(what), path_(path), where_(where), owner_(owner), problems_(problems) {}

  Error problem() const {
    return error_while("reading the %s %s for %s", what_, path_.c_str(), where_);
  }
  void refuse(Error error, const char* cure) { problems_->push_back(error.set_cure("%s", cure)); }
  void refuse(const char* answer, const char* cure) {
    refuse(problem().set_answer("%s", answer), cure);
  }
  // Rejects the file with the library's reason.
  void refuse_parsed(const char* cure) {
    const unsigned long error = take_tls_error();
    if (take_tls_refusal()) {
      Error of_memory = problem().set_answer("out of memory");
      problems_->push_back(of_memory.set_cure("raise the limit of %s", owner_));
      return;
    }
    refuse(tls_error_text(error), cure);
  }

  // Reads the whole file.
  std::optional<SecretText> read(FilePrivacy privacy, const std::string& user) {
    auto secret = read_secret_file(path_, privacy, kFileMaxBytes, user);
    if (secret.ok()) return secret.take();
    refuse(problem().set_answer("%s", secret.error().answer), secret.error().cure);
    return {};
  }

 private:
  const char* what_;
  const std::string& path_;
  const char* where_;
  const char* owner_;
  std::vector<Error>* problems_;
};

Bio bio_of(const SecretText& secret) noexcept {
  return Bio(BIO_new_mem_buf(secret.text.data(), static_cast<int>(secret.text.size())));
}

// Parses all certificates of the file; reports its problems. Empty: the file is unusable.
std::vector<Certificate> certificates_of(const SecretText& text, SecretFile& file,
                                         const char* cure) {
  std::vector<Certificate> all;
  const Bio bio = bio_of(text);
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, &no_password, nullptr)) {
    all.emplace_back(next);
  }
  // Reading must have ended because there was no further certificate.
  const unsigned long error = ERR_peek_last_error();
  const bool is_end =
      ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
  if (all.empty()) {
    file.refuse_parsed(cure);
  } else if (!is_end) {
    take_tls_error();
    file.refuse("a certificate in it cannot be read", "remove that one, or renew it");
    all.clear();
  }
  take_tls_error();
  return all;
}

int hex_digit(char digit) noexcept {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

}  // namespace

TlsCredentials::SharedKey::~SharedKey() { OPENSSL_cleanse(key.data(), key.size()); }

TlsCredentials::~TlsCredentials() {
  SSL_CTX_free(context_);
  BIO_meth_free(transport_);
}

bool TlsCredentials::load(const TlsFiles& files, const char* where, std::vector<Error>* problems) {
  BP_ASSERT(!files.is_empty() && context_ == nullptr);
  const size_t problem_count = problems->size();
  auto owner = heap_owner(OwnerName(owner_name_));
  if (!owner.ok()) {
    problems->push_back(owner.error());
    return false;
  }
  owner_ = owner.value();
  const HeapOwnerScope scope(owner_);
  if (!prepare()) {
    Error error = error_while("preparing TLS for %s", where);
    const unsigned long said = take_tls_error();
    if (take_tls_refusal()) {
      error.set_answer("out of memory").set_cure("raise the limit of %s", owner_name_);
    } else {
      error.set_answer("%s", said != 0 ? tls_error_text(said) : "OpenSSL was used before")
          .set_cure("let no code of this process use OpenSSL before the appliance boots");
    }
    problems->push_back(error);
    return false;
  }
  if (!files.certificate.empty()) load_certificate(files, where, problems);
  if (!files.client_authorities.empty()) load_authorities(files, where, problems);
  if (!files.shared_keys.empty()) load_shared_keys(files, where, problems);
  return problems->size() == problem_count;
}

bool TlsCredentials::prepare() noexcept {
  if (!prepare_tls_library()) return false;
  BP_ASSERT(context_ == nullptr && transport_ == nullptr);
  context_ = SSL_CTX_new(TLS_server_method());
  transport_ = TlsSession::make_transport();
  if (context_ == nullptr || transport_ == nullptr) return false;
  SSL_CTX_set_app_data(context_, this);
  SSL_CTX_set_options(context_, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION |
                                    SSL_OP_CIPHER_SERVER_PREFERENCE |
                                    (has_aes_instructions() ? 0 : SSL_OP_PRIORITIZE_CHACHA));
  SSL_CTX_set_mode(context_, SSL_MODE_NO_AUTO_CHAIN);
  SSL_CTX_set_session_cache_mode(context_, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_max_cert_list(context_, kCertificatesMaxBytes);
  constexpr unsigned char kSessions[] = "bedplate";
  return SSL_CTX_set_min_proto_version(context_, TLS1_2_VERSION) == 1 &&
         SSL_CTX_set_num_tickets(context_, 0) == 1 &&
         SSL_CTX_set_session_id_context(context_, kSessions, sizeof kSessions - 1) == 1 &&
         SSL_CTX_set_cipher_list(context_, kCiphers12) == 1 &&
         SSL_CTX_set_ciphersuites(context_, kCiphers13) == 1 &&
         SSL_CTX_set1_groups_list(context_, kCurves) == 1;
}

void TlsCredentials::load_certificate(const TlsFiles& files, const char* where,
                                      std::vector<Error>* problems) {
  SecretFile certificate_file("certificate", files.certificate, where, owner_name_, problems);
  SecretFile key_file("private key", files.key, where, owner_name_, problems);
  const auto text = certificate_file.read(FilePrivacy::kTrusted, files.user);
  const auto key_text = key_file.read(FilePrivacy::kSecret, files.user);
  if (!text || !key_text) return;
  const std::vector<Certificate> chain =
      certificates_of(*text, certificate_file, "name a certificate in PEM");
  const PrivateKey key(
      PEM_read_bio_PrivateKey(bio_of(*key_text).get(), nullptr, &no_password, nullptr));
  if (key == nullptr) key_file.refuse_parsed("name a private key in PEM that has no password");
  if (chain.empty() || key == nullptr) return;
  X509* const own = chain.front().get();
  if (X509_check_private_key(own, key.get()) != 1) {
    take_tls_error();
    return key_file.refuse("it is not the key of the certificate",
                           "name the key that was certified");
  }
  if (const ASN1_TIME* end = X509_get0_notAfter(own); X509_cmp_current_time(end) < 0) {
    tm date{};
    ASN1_TIME_to_tm(end, &date);
    char said[64];
    std::snprintf(said, sizeof said, "it expired on %04d-%02d-%02d", date.tm_year + 1900,
                  date.tm_mon + 1, date.tm_mday);
    certificate_file.refuse(said, "renew it; or set this machine's clock, if that is wrong");
  }
  if (X509_cmp_current_time(X509_get0_notBefore(own)) > 0) {
    certificate_file.refuse("it is not valid yet", "set this machine's clock, or name another");
  }
  bool is_taken = SSL_CTX_use_certificate(context_, own) == 1 &&
                  SSL_CTX_use_PrivateKey(context_, key.get()) == 1;
  for (size_t i = 1; i < chain.size(); ++i) {
    is_taken = is_taken && SSL_CTX_add1_chain_cert(context_, chain[i].get()) == 1;
  }
  if (!is_taken) {
    certificate_file.refuse_parsed(
        "name one with an RSA key of at least 2048 bits, or an elliptic curve");
  }
}

void TlsCredentials::load_authorities(const TlsFiles& files, const char* where,
                                      std::vector<Error>* problems) {
  SecretFile file("authorities of clients", files.client_authorities, where, owner_name_, problems);
  const auto text = file.read(FilePrivacy::kTrusted, files.user);
  if (!text) return;
  X509_STORE* const store = SSL_CTX_get_cert_store(context_);
  bool is_taken = X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN) == 1;  // not only roots
  for (const Certificate& one : certificates_of(*text, file, "name certificates in PEM")) {
    is_taken = is_taken && X509_STORE_add_cert(store, one.get()) == 1 &&
               SSL_CTX_add_client_CA(context_, one.get()) == 1;
  }
  if (!is_taken) file.refuse_parsed("name other certificates");
  const int without = files.takes_clients_without ? 0 : SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
  SSL_CTX_set_verify(context_, SSL_VERIFY_PEER | without, nullptr);
}

void TlsCredentials::load_shared_keys(const TlsFiles& files, const char* where,
                                      std::vector<Error>* problems) {
  SecretFile file("shared keys", files.shared_keys, where, owner_name_, problems);
  const auto secret = file.read(FilePrivacy::kSecret, files.user);
  if (!secret) return;
  constexpr const char* kCure = "write lines as psktool does: NAME:KEY, the key in hexadecimal";
  PlainLines lines(secret->text);
  const char* answer = nullptr;  // reports the first only: a file of another format has many
  while (answer == nullptr && lines.next()) answer = add_shared_key(lines.line());
  if (lines.fault() != nullptr) {
    file.refuse(file.problem().set_answer("line %u, column %u: there is %s", lines.number(),
                                          lines.column(), lines.fault()),
                kCure);
  } else if (answer != nullptr) {
    file.refuse(file.problem().set_answer("line %u: %s", lines.number(), answer), kCure);
  } else if (shared_keys_.empty()) {
    file.refuse("it has no key", kCure);
  }
  SSL_CTX_set_psk_server_callback(context_, &choose_shared_key);
}

// Returns the line's fault, or nullptr.
const char* TlsCredentials::add_shared_key(std::string_view line) {
  const size_t colon = line.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return "it is not a name and a key";
  const std::string_view digits = line.substr(colon + 1);
  SharedKey shared(line.substr(0, colon));
  if (shared.name[0] == '#') return "names in hexadecimal are not supported";
  for (const SharedKey& other : shared_keys_) {
    if (other.name == shared.name) return "the name is already in use";
  }
  if (digits.empty() || digits.size() % 2 != 0) {
    return "the key does not have an even number of digits";
  }
  if (digits.size() / 2 > PSK_MAX_PSK_LEN) return "the key has more than 512 bytes";
  shared.key.reserve(digits.size() / 2);  // no reallocation leaves a copy of the key behind
  for (size_t i = 0; i < digits.size(); i += 2) {
    const int high = hex_digit(digits[i]);
    const int low = hex_digit(digits[i + 1]);
    if (high < 0 || low < 0) return "the key is not in hexadecimal";
    shared.key.push_back(static_cast<unsigned char>(16 * high + low));
  }
  BP_DCHECK(!shared.key.empty() && shared.key.size() <= PSK_MAX_PSK_LEN);
  shared_keys_.push_back(std::move(shared));
  return nullptr;
}

// Called during the handshake, of either version; names are no secret. Returns the size of the key,
// or 0.
unsigned TlsCredentials::choose_shared_key(ssl_st* session, const char* name, unsigned char* key,
                                           unsigned key_max_bytes) noexcept {
  const SSL_CTX* const context = SSL_get_SSL_CTX(session);
  BP_DCHECK(name != nullptr && SSL_CTX_get_app_data(context) != nullptr);
  const auto& self = *static_cast<const TlsCredentials*>(SSL_CTX_get_app_data(context));
  for (const SharedKey& shared : self.shared_keys_) {
    if (shared.name != name || shared.key.size() > key_max_bytes) continue;
    std::memcpy(key, shared.key.data(), shared.key.size());
    return static_cast<unsigned>(shared.key.size());
  }
  return 0;
}

}  // namespace bedplate
