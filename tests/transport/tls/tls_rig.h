// What tests of TLS have at the other end: certificates made on the spot, files to put them in, and
// a client that is the library's own, joined to a session by memory alone.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/stat.h>

#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/error.h>
#include <mbedtls/pk.h>
#include <mbedtls/ssl.h>
#include <mbedtls/x509_crt.h>

#include "platform/assert.h"
#include "transport/tls/tls_session.h"

namespace bedplate::test {

inline std::string tls_error_text(int code) {
  char text[160];
  mbedtls_strerror(code, text, sizeof text);
  return text;
}

// A directory for the files of one test.
class TlsFolder {
 public:
  TlsFolder() {
    char pattern[] = "/tmp/bedplate-tls-XXXXXX";
    BP_ASSERT(mkdtemp(pattern) != nullptr);
    path_ = pattern;
  }
  ~TlsFolder() { std::filesystem::remove_all(path_); }
  TlsFolder(const TlsFolder&) = delete;
  TlsFolder& operator=(const TlsFolder&) = delete;

  std::string path(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, std::string_view text, mode_t mode = 0600) const {
    const std::string file = path(name);
    FILE* stream = std::fopen(file.c_str(), "w");
    BP_ASSERT(stream != nullptr);
    BP_ASSERT(std::fwrite(text.data(), 1, text.size(), stream) == text.size());
    std::fclose(stream);
    chmod(file.c_str(), mode);
    return file;
  }

 private:
  std::string path_;
};

class TlsRandom {
 public:
  TlsRandom() {
    mbedtls_entropy_init(&entropy_);
    mbedtls_ctr_drbg_init(&random_);
    BP_ASSERT(mbedtls_ctr_drbg_seed(&random_, mbedtls_entropy_func, &entropy_, nullptr, 0) == 0);
  }
  // The same numbers for the same seed, each time.
  explicit TlsRandom(std::string_view seed) {
    mbedtls_entropy_init(&entropy_);
    mbedtls_ctr_drbg_init(&random_);
    const auto nothing = [](void*, unsigned char* bytes, size_t count) {
      std::memset(bytes, 0, count);
      return 0;
    };
    BP_ASSERT(mbedtls_ctr_drbg_seed(&random_, nothing, nullptr,
                                    reinterpret_cast<const unsigned char*>(seed.data()),
                                    seed.size()) == 0);
  }
  ~TlsRandom() {
    mbedtls_ctr_drbg_free(&random_);
    mbedtls_entropy_free(&entropy_);
  }
  TlsRandom(const TlsRandom&) = delete;
  TlsRandom& operator=(const TlsRandom&) = delete;
  mbedtls_ctr_drbg_context* context() { return &random_; }

 private:
  mbedtls_entropy_context entropy_;
  mbedtls_ctr_drbg_context random_;
};

// A key, and a certificate for it that `issuer` signed (nullptr: itself).
class TestCertificate {
 public:
  struct Options {
    const TestCertificate* issuer = nullptr;
    bool is_authority = false;
    const char* from = "20200101000000";
    const char* until = "20991231235959";
  };
  TestCertificate(TlsRandom& random, const std::string& name, const Options& options)
      : name_(name) {
    mbedtls_pk_init(&key_);
    BP_ASSERT(mbedtls_pk_setup(&key_, mbedtls_pk_info_from_type(MBEDTLS_PK_ECKEY)) == 0);
    BP_ASSERT(mbedtls_ecp_gen_key(MBEDTLS_ECP_DP_SECP256R1, mbedtls_pk_ec(key_),
                                  mbedtls_ctr_drbg_random, random.context()) == 0);
    const TestCertificate& issuer = options.issuer != nullptr ? *options.issuer : *this;
    mbedtls_x509write_cert writer;
    mbedtls_x509write_crt_init(&writer);
    mbedtls_mpi serial;
    mbedtls_mpi_init(&serial);
    static int next_serial = 1;
    BP_ASSERT(mbedtls_mpi_lset(&serial, next_serial++) == 0);
    mbedtls_x509write_crt_set_subject_key(&writer, &key_);
    mbedtls_x509write_crt_set_issuer_key(&writer, const_cast<mbedtls_pk_context*>(&issuer.key_));
    mbedtls_x509write_crt_set_version(&writer, MBEDTLS_X509_CRT_VERSION_3);
    mbedtls_x509write_crt_set_md_alg(&writer, MBEDTLS_MD_SHA256);
    BP_ASSERT(mbedtls_x509write_crt_set_subject_name(&writer, ("CN=" + name).c_str()) == 0);
    BP_ASSERT(mbedtls_x509write_crt_set_issuer_name(&writer, ("CN=" + issuer.name_).c_str()) == 0);
    BP_ASSERT(mbedtls_x509write_crt_set_serial(&writer, &serial) == 0);
    BP_ASSERT(mbedtls_x509write_crt_set_validity(&writer, options.from, options.until) == 0);
    BP_ASSERT(mbedtls_x509write_crt_set_basic_constraints(&writer, options.is_authority, -1) == 0);
    unsigned char text[4096];
    BP_ASSERT(mbedtls_x509write_crt_pem(&writer, text, sizeof text, mbedtls_ctr_drbg_random,
                                        random.context()) == 0);
    certificate_ = reinterpret_cast<char*>(text);
    BP_ASSERT(mbedtls_pk_write_key_pem(&key_, text, sizeof text) == 0);
    key_text_ = reinterpret_cast<char*>(text);
    mbedtls_x509write_crt_free(&writer);
    mbedtls_mpi_free(&serial);
  }
  ~TestCertificate() { mbedtls_pk_free(&key_); }
  TestCertificate(const TestCertificate&) = delete;
  TestCertificate& operator=(const TestCertificate&) = delete;

  const std::string& pem() const { return certificate_; }
  const std::string& key_pem() const { return key_text_; }

 private:
  std::string name_;
  mbedtls_pk_context key_;
  std::string certificate_;
  std::string key_text_;
};

// The other end. What it wants to send is in `sent`, what it is to get is added to `arriving`.
class TlsClient {
 public:
  explicit TlsClient(TlsRandom& random) {
    mbedtls_ssl_init(&session_);
    mbedtls_ssl_config_init(&config_);
    mbedtls_x509_crt_init(&authorities_);
    mbedtls_x509_crt_init(&certificate_);
    mbedtls_pk_init(&key_);
    BP_ASSERT(mbedtls_ssl_config_defaults(&config_, MBEDTLS_SSL_IS_CLIENT,
                                          MBEDTLS_SSL_TRANSPORT_STREAM,
                                          MBEDTLS_SSL_PRESET_DEFAULT) == 0);
    mbedtls_ssl_conf_rng(&config_, mbedtls_ctr_drbg_random, random.context());
    mbedtls_ssl_conf_authmode(&config_, MBEDTLS_SSL_VERIFY_NONE);
  }
  ~TlsClient() {
    mbedtls_ssl_free(&session_);
    mbedtls_ssl_config_free(&config_);
    mbedtls_x509_crt_free(&authorities_);
    mbedtls_x509_crt_free(&certificate_);
    mbedtls_pk_free(&key_);
  }
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  void trust(const TestCertificate& authority) {
    BP_ASSERT(parse(&authorities_, authority.pem()));
    mbedtls_ssl_conf_ca_chain(&config_, &authorities_, nullptr);
    mbedtls_ssl_conf_authmode(&config_, MBEDTLS_SSL_VERIFY_REQUIRED);
  }
  void show(const TestCertificate& own) {
    BP_ASSERT(parse(&certificate_, own.pem()));
    BP_ASSERT(mbedtls_pk_parse_key(&key_, bytes_of(own.key_pem()), own.key_pem().size() + 1,
                                   nullptr, 0) == 0);
    BP_ASSERT(mbedtls_ssl_conf_own_cert(&config_, &certificate_, &key_) == 0);
  }
  void share(const std::string& name, std::string_view key) {
    BP_ASSERT(mbedtls_ssl_conf_psk(&config_, reinterpret_cast<const unsigned char*>(key.data()),
                                   key.size(), bytes_of(name), name.size()) == 0);
  }
  mbedtls_ssl_config& config() { return config_; }

  void start(const char* server_name = nullptr) {
    BP_ASSERT(mbedtls_ssl_setup(&session_, &config_) == 0);
    BP_ASSERT(mbedtls_ssl_set_hostname(&session_, server_name) == 0);
    mbedtls_ssl_set_bio(&session_, this, &send_to, &receive_from, nullptr);
  }
  // 0: done; MBEDTLS_ERR_SSL_WANT_READ: when more has come.
  int handshake() { return mbedtls_ssl_handshake(&session_); }
  int write(std::string_view text) {
    return mbedtls_ssl_write(&session_, bytes_of(text), text.size());
  }
  // All that has arrived.
  std::string read() {
    std::string text;
    unsigned char part[4096];
    while (true) {
      last_read = mbedtls_ssl_read(&session_, part, sizeof part);
      if (last_read <= 0) return text;
      text.append(reinterpret_cast<char*>(part), static_cast<size_t>(last_read));
    }
  }
  int renegotiate() { return mbedtls_ssl_renegotiate(&session_); }
  void close_notify() { mbedtls_ssl_close_notify(&session_); }
  const char* cipher() const { return mbedtls_ssl_get_ciphersuite(&session_); }

  std::string sent;
  std::string arriving;
  int last_read = 0;

 private:
  static const unsigned char* bytes_of(std::string_view text) {
    return reinterpret_cast<const unsigned char*>(text.data());
  }
  static bool parse(mbedtls_x509_crt* chain, const std::string& pem) {
    return mbedtls_x509_crt_parse(chain, bytes_of(pem), pem.size() + 1) == 0;
  }
  static int send_to(void* self, const unsigned char* bytes, size_t count) {
    static_cast<TlsClient*>(self)->sent.append(reinterpret_cast<const char*>(bytes), count);
    return static_cast<int>(count);
  }
  static int receive_from(void* self, unsigned char* bytes, size_t count) {
    std::string& arriving = static_cast<TlsClient*>(self)->arriving;
    if (arriving.empty()) return MBEDTLS_ERR_SSL_WANT_READ;
    const size_t taken = std::min(count, arriving.size());
    std::memcpy(bytes, arriving.data(), taken);
    arriving.erase(0, taken);
    return static_cast<int>(taken);
  }

  mbedtls_ssl_context session_;
  mbedtls_ssl_config config_;
  mbedtls_x509_crt authorities_;
  mbedtls_x509_crt certificate_;
  mbedtls_pk_context key_;
};

inline const std::string kSharedKey = std::string("\x01\x23\x45\x67\x89\xab\xcd\xef", 8);
inline constexpr std::string_view kSharedKeyLine = "alice:0123456789abcdef\n";

}  // namespace bedplate::test
