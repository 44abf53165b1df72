#include "transport/tls/tls_credentials.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <span>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mbedtls/error.h>
#include <mbedtls/platform_util.h>

#include "platform/assert.h"
#include "platform/file.h"

namespace bedplate {
namespace {

constexpr size_t kFileMaxBytes = 256 * 1024;

// The first that a client has, too, is taken. ChaCha20 first: of what the library has it takes the
// least time. Certificates before shared keys: a client that has both means them. No exchange over
// a prime (DHE): one of 2048 bits takes the shard 50 ms, ten times as long as one over a curve.
constexpr int kCiphers[] = {
    MBEDTLS_TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    MBEDTLS_TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    MBEDTLS_TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    MBEDTLS_TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    MBEDTLS_TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    MBEDTLS_TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    MBEDTLS_TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256,
    0,
};

// What a file holds; wiped where it ends.
struct SecretText {
  explicit SecretText(size_t bytes) : text(bytes, '\0') {}
  SecretText(SecretText&& other) noexcept { text.swap(other.text); }
  ~SecretText() { mbedtls_platform_zeroize(text.data(), text.size()); }

  std::string text;
};

// One file: where it is said, and what may go wrong with it.
class SecretFile {
 public:
  SecretFile(const char* what, const std::string& path, const char* where,
             std::vector<Error>* problems)
      : what_(what), path_(path), where_(where), problems_(problems) {}

  Error problem() const {
    Error error;
    return error.set_doing("reading the %s %s for %s", what_, path_.c_str(), where_);
  }
  void refuse(Error error, const char* cure) { problems_->push_back(error.set_cure("%s", cure)); }
  void refuse(const char* answer, const char* cure) {
    refuse(problem().set_answer("%s", answer), cure);
  }
  void refuse_parsed(int outcome, const char* cure) {
    char text[128];
    mbedtls_strerror(outcome, text, sizeof text);
    refuse(text, cure);
  }

  // All of it. `is_secret`: nobody but its owner and its group may read it.
  std::optional<SecretText> read(bool is_secret) {
    const Fd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat status {};
    if (!fd.is_open() || fstat(fd.number(), &status) != 0) {
      const int cause = errno;
      refuse(problem().set_answer_errno(cause), "name a file that is there and can be read");
      return {};
    }
    if (!S_ISREG(status.st_mode)) {
      refuse("it is no file", "name a file");
      return {};
    }
    if (is_secret && (status.st_mode & (S_IROTH | S_IWOTH)) != 0) {
      refuse("every user of this machine can read or write it", "chmod o= it");
      return {};
    }
    if (static_cast<size_t>(status.st_size) > kFileMaxBytes) {
      refuse("it has more than 256 KiB", "name the right one, or make it shorter");
      return {};
    }
    SecretText secret(static_cast<size_t>(status.st_size));
    std::string& text = secret.text;
    size_t done = 0;
    while (done < text.size()) {
      const ssize_t outcome = ::read(fd.number(), text.data() + done, text.size() - done);
      if (outcome < 0) {
        refuse(problem().set_answer_errno(errno), "name a file that can be read");
        return {};
      }
      if (outcome == 0) break;  // it became shorter meanwhile
      done += static_cast<size_t>(outcome);
    }
    text.resize(done);
    return secret;
  }

 private:
  const char* what_;
  const std::string& path_;
  const char* where_;
  std::vector<Error>* problems_;
};

// The library takes PEM with its terminating zero.
std::span<const unsigned char> pem(const SecretText& secret) noexcept {
  return {reinterpret_cast<const unsigned char*>(secret.text.c_str()), secret.text.size() + 1};
}

int hex_digit(char digit) noexcept {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

}  // namespace

TlsCredentials::SharedKey::~SharedKey() { mbedtls_platform_zeroize(key.data(), key.size()); }

TlsCredentials::TlsCredentials() noexcept {
  mbedtls_ssl_config_init(&config_);
  mbedtls_entropy_init(&entropy_);
  mbedtls_ctr_drbg_init(&random_);
  mbedtls_x509_crt_init(&certificate_);
  mbedtls_x509_crt_init(&authorities_);
  mbedtls_pk_init(&key_);
}

TlsCredentials::~TlsCredentials() {
  mbedtls_ssl_config_free(&config_);
  mbedtls_pk_free(&key_);
  mbedtls_x509_crt_free(&authorities_);
  mbedtls_x509_crt_free(&certificate_);
  mbedtls_ctr_drbg_free(&random_);
  mbedtls_entropy_free(&entropy_);
}

bool TlsCredentials::load(const TlsFiles& files, const char* where, std::vector<Error>* problems) {
  BP_ASSERT(!files.is_empty());
  const size_t problem_count = problems->size();
  auto owner = heap_owner(OwnerName(kHeapOwner));
  if (!owner.ok()) {
    problems->push_back(owner.error());
    return false;
  }
  owner_ = owner.value();
  const HeapOwnerScope scope(owner_);
  int outcome = mbedtls_ctr_drbg_seed(&random_, mbedtls_entropy_func, &entropy_, nullptr, 0);
  if (outcome == 0) {
    outcome = mbedtls_ssl_config_defaults(&config_, MBEDTLS_SSL_IS_SERVER,
                                          MBEDTLS_SSL_TRANSPORT_STREAM, MBEDTLS_SSL_PRESET_DEFAULT);
  }
  if (outcome != 0) {
    Error error;
    error.set_doing("preparing TLS for %s", where);
    char text[128];
    mbedtls_strerror(outcome, text, sizeof text);
    problems->push_back(error.set_answer("%s", text).set_cure("raise the limit of heap:tls"));
    return false;
  }
  mbedtls_ssl_conf_rng(&config_, mbedtls_ctr_drbg_random, &random_);
  mbedtls_ssl_conf_min_version(&config_, MBEDTLS_SSL_MAJOR_VERSION_3, MBEDTLS_SSL_MINOR_VERSION_3);
  mbedtls_ssl_conf_ciphersuites(&config_, kCiphers);
  mbedtls_ssl_conf_session_tickets(&config_, MBEDTLS_SSL_SESSION_TICKETS_DISABLED);
  mbedtls_ssl_conf_authmode(&config_, MBEDTLS_SSL_VERIFY_NONE);
  if (!files.certificate.empty()) load_certificate(files, where, problems);
  if (!files.client_authorities.empty()) load_authorities(files, where, problems);
  if (!files.shared_keys.empty()) load_shared_keys(files, where, problems);
  return problems->size() == problem_count;
}

void TlsCredentials::load_certificate(const TlsFiles& files, const char* where,
                                      std::vector<Error>* problems) {
  SecretFile certificate_file("certificate", files.certificate, where, problems);
  SecretFile key_file("private key", files.key, where, problems);
  auto certificate = certificate_file.read(false);
  auto key = key_file.read(true);
  if (!certificate || !key) return;
  const auto key_pem = pem(*key);
  const int key_outcome = mbedtls_pk_parse_key(&key_, key_pem.data(), key_pem.size(), nullptr, 0);
  const auto chain_pem = pem(*certificate);
  const int outcome = mbedtls_x509_crt_parse(&certificate_, chain_pem.data(), chain_pem.size());
  if (outcome > 0) {
    certificate_file.refuse("a certificate in it cannot be read", "take that one out, or renew it");
  } else if (outcome < 0) {
    certificate_file.refuse_parsed(outcome, "name a certificate in PEM");
  }
  if (key_outcome != 0) {
    key_file.refuse_parsed(key_outcome, "name a private key in PEM that has no password");
  }
  if (outcome != 0 || key_outcome != 0) return;
  if (mbedtls_pk_check_pair(&certificate_.pk, &key_) != 0) {
    key_file.refuse("it is not the key of the certificate", "name the key that was certified");
  }
  if (mbedtls_x509_time_is_past(&certificate_.valid_to) != 0) {
    const mbedtls_x509_time& end = certificate_.valid_to;
    char text[64];
    std::snprintf(text, sizeof text, "it expired on %04d-%02d-%02d", end.year, end.mon, end.day);
    certificate_file.refuse(text, "renew it; or set this machine's clock, if that is wrong");
  }
  if (mbedtls_x509_time_is_future(&certificate_.valid_from) != 0) {
    certificate_file.refuse("it is not valid yet", "set this machine's clock, or name another");
  }
  const int own = mbedtls_ssl_conf_own_cert(&config_, &certificate_, &key_);
  if (own != 0) certificate_file.refuse_parsed(own, "raise the limit of heap:tls");
}

void TlsCredentials::load_authorities(const TlsFiles& files, const char* where,
                                      std::vector<Error>* problems) {
  SecretFile file("authorities of clients", files.client_authorities, where, problems);
  const auto text = file.read(false);
  if (!text) return;
  const auto chain_pem = pem(*text);
  const int outcome = mbedtls_x509_crt_parse(&authorities_, chain_pem.data(), chain_pem.size());
  if (outcome > 0) file.refuse("a certificate in it cannot be read", "take that one out");
  if (outcome < 0) file.refuse_parsed(outcome, "name certificates in PEM");
  mbedtls_ssl_conf_ca_chain(&config_, &authorities_, nullptr);
  mbedtls_ssl_conf_authmode(&config_, MBEDTLS_SSL_VERIFY_REQUIRED);
}

void TlsCredentials::load_shared_keys(const TlsFiles& files, const char* where,
                                      std::vector<Error>* problems) {
  SecretFile file("shared keys", files.shared_keys, where, problems);
  const auto secret = file.read(true);
  if (!secret) return;
  const std::string& text = secret->text;
  std::string_view rest = text;
  for (int number = 1; !rest.empty(); ++number) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    if (line.empty()) continue;
    if (const char* answer = add_shared_key(line); answer != nullptr) {
      file.refuse(file.problem().set_answer("line %d: %s", number, answer),
                  "write lines as psktool does: NAME:KEY, the key in hexadecimal");
      break;  // what is no such file has many
    }
  }
  if (shared_keys_.empty() && text.find_first_not_of('\n') == std::string::npos) {
    file.refuse("it has no key", "write lines as psktool does: NAME:KEY, the key in hexadecimal");
  }
  mbedtls_ssl_conf_psk_cb(
      &config_,
      [](void* self, mbedtls_ssl_context* session, const unsigned char* name, size_t name_bytes) {
        return static_cast<const TlsCredentials*>(self)->choose_shared_key(
            session, {reinterpret_cast<const char*>(name), name_bytes});
      },
      this);
}

// Returns what is wrong with the line, or nullptr.
const char* TlsCredentials::add_shared_key(std::string_view line) {
  const size_t colon = line.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return "it has no name and key";
  const std::string_view digits = line.substr(colon + 1);
  SharedKey shared(line.substr(0, colon));
  if (shared.name[0] == '#') return "names in hexadecimal are not known here";
  for (const SharedKey& other : shared_keys_) {
    if (other.name == shared.name) return "the name was there before";
  }
  if (digits.empty() || digits.size() % 2 != 0) return "the key has no even number of digits";
  if (digits.size() / 2 > MBEDTLS_PSK_MAX_LEN) return "the key has more than 32 bytes";
  shared.key.reserve(digits.size() / 2);  // nothing of it is left behind
  for (size_t i = 0; i < digits.size(); i += 2) {
    const int high = hex_digit(digits[i]);
    const int low = hex_digit(digits[i + 1]);
    if (high < 0 || low < 0) return "the key is not in hexadecimal";
    shared.key.push_back(static_cast<unsigned char>(16 * high + low));
  }
  shared_keys_.push_back(std::move(shared));
  return nullptr;
}

// During the handshake: names are no secret.
int TlsCredentials::choose_shared_key(mbedtls_ssl_context* session,
                                      std::string_view name) const noexcept {
  for (const SharedKey& shared : shared_keys_) {
    if (shared.name != name) continue;
    return mbedtls_ssl_set_hs_psk(session, shared.key.data(), shared.key.size());
  }
  return MBEDTLS_ERR_SSL_UNKNOWN_IDENTITY;
}

}  // namespace bedplate
