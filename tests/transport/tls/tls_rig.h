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
#include <vector>

#include <sys/stat.h>

// A key as the library had it before its third version is written without the encoders, which a
// static program does not have.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "platform/assert.h"
#include "transport/tls/tls_library.h"
#include "transport/tls/tls_session.h"

namespace bedplate::test {

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

// What was written to it.
inline std::string text_of(BIO* bio) {
  char* text = nullptr;
  const long bytes = BIO_get_mem_data(bio, &text);
  return {text, static_cast<size_t>(bytes)};
}

// A key, and a certificate for it that `issuer` signed (nullptr: itself).
class TestCertificate {
 public:
  struct Options {
    const TestCertificate* issuer = nullptr;
    bool is_authority = false;
    const char* from = "20200101000000Z";
    const char* until = "20991231235959Z";
  };
  TestCertificate(const std::string& name, const Options& options) {
    BP_ASSERT(prepare_tls_library());
    key_.reset(EVP_PKEY_new());
    EC_KEY* const key = EC_KEY_new_by_curve_name(NID_X9_62_prime256v1);
    BP_ASSERT(EC_KEY_generate_key(key) == 1 && EVP_PKEY_assign_EC_KEY(key_.get(), key) == 1);
    certificate_.reset(X509_new());
    X509* const it = certificate_.get();
    const TestCertificate& issuer = options.issuer != nullptr ? *options.issuer : *this;
    static int next_serial = 1;
    BP_ASSERT(X509_set_version(it, X509_VERSION_3) == 1);
    BP_ASSERT(ASN1_INTEGER_set(X509_get_serialNumber(it), next_serial++) == 1);
    BP_ASSERT(ASN1_TIME_set_string_X509(X509_getm_notBefore(it), options.from) == 1);
    BP_ASSERT(ASN1_TIME_set_string_X509(X509_getm_notAfter(it), options.until) == 1);
    BP_ASSERT(X509_NAME_add_entry_by_txt(X509_get_subject_name(it), "CN", MBSTRING_ASC,
                                         reinterpret_cast<const unsigned char*>(name.c_str()), -1,
                                         -1, 0) == 1);
    BP_ASSERT(X509_set_issuer_name(it, X509_get_subject_name(issuer.certificate())) == 1);
    BP_ASSERT(X509_set_pubkey(it, key_.get()) == 1);
    X509_EXTENSION* const constraints =
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints,
                            options.is_authority ? "critical,CA:TRUE" : "critical,CA:FALSE");
    BP_ASSERT(X509_add_ext(it, constraints, -1) == 1);
    X509_EXTENSION_free(constraints);
    BP_ASSERT(X509_sign(it, issuer.key(), EVP_sha256()) > 0);
  }

  X509* certificate() const { return certificate_.get(); }
  EVP_PKEY* key() const { return key_.get(); }
  std::string pem() const {
    const TlsPointer<BIO, BIO_free_all> bio(BIO_new(BIO_s_mem()));
    BP_ASSERT(PEM_write_bio_X509(bio.get(), certificate()) == 1);
    return text_of(bio.get());
  }
  std::string key_pem(const char* password = nullptr) const {
    const TlsPointer<BIO, BIO_free_all> bio(BIO_new(BIO_s_mem()));
    const EVP_CIPHER* const cipher = password != nullptr ? EVP_aes_128_cbc() : nullptr;
    BP_ASSERT(PEM_write_bio_PrivateKey_traditional(bio.get(), key(), cipher, nullptr, 0, nullptr,
                                                   const_cast<char*>(password)) == 1);
    return text_of(bio.get());
  }

 private:
  TlsPointer<EVP_PKEY, EVP_PKEY_free> key_;
  TlsPointer<X509, X509_free> certificate_;
};

// The other end. What it wants to send is in `sent`, what it is to get is added to `arriving`.
class TlsClient {
 public:
  TlsClient() {
    BP_ASSERT(prepare_tls_library());
    context_.reset(SSL_CTX_new(TLS_client_method()));
    SSL_CTX_set_app_data(context(), this);
  }
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  void trust(const TestCertificate& authority) {
    BP_ASSERT(X509_STORE_add_cert(SSL_CTX_get_cert_store(context()), authority.certificate()) == 1);
    SSL_CTX_set_verify(context(), SSL_VERIFY_PEER, nullptr);
  }
  void show(const TestCertificate& own) {
    BP_ASSERT(SSL_CTX_use_certificate(context(), own.certificate()) == 1);
    BP_ASSERT(SSL_CTX_use_PrivateKey(context(), own.key()) == 1);
  }
  void share(const std::string& name, std::string_view key) {
    name_ = name;
    key_ = key;
    SSL_CTX_set_psk_client_callback(context(), &tell_key);
  }
  // TLS1_2_VERSION and the like; none but this one.
  void speak(int version) {
    SSL_CTX_set_security_level(context(), 0);
    BP_ASSERT(SSL_CTX_set_min_proto_version(context(), version) == 1);
    BP_ASSERT(SSL_CTX_set_max_proto_version(context(), version) == 1);
  }
  // Of TLS 1.2, by OpenSSL's names.
  void offer(const char* ciphers) { BP_ASSERT(SSL_CTX_set_cipher_list(context(), ciphers) == 1); }

  void start() {
    session_.reset(SSL_new(context()));
    in_ = BIO_new(BIO_s_mem());
    out_ = BIO_new(BIO_s_mem());
    SSL_set_bio(session_.get(), in_, out_);
    SSL_set_connect_state(session_.get());
  }
  // Each: SSL_ERROR_NONE, done; SSL_ERROR_WANT_READ, when more has come; or it has failed.
  int handshake() {
    return said([this] { return SSL_do_handshake(session_.get()); });
  }
  int renegotiate() {
    return said([this] { return SSL_renegotiate(session_.get()); }) + handshake();
  }
  int change_keys() {
    return said([this] { return SSL_key_update(session_.get(), SSL_KEY_UPDATE_REQUESTED); }) +
           handshake();
  }
  void write(std::string_view text) {
    const int bytes = static_cast<int>(text.size());
    BP_ASSERT(said([&] { return SSL_write(session_.get(), text.data(), bytes); }) == 0);
  }
  // All that has arrived.
  std::string read() {
    std::string text;
    char part[4096];
    while (true) {
      int bytes = 0;
      last_read = said([&] { return bytes = SSL_read(session_.get(), part, sizeof part); });
      if (last_read != SSL_ERROR_NONE) return text;
      text.append(part, static_cast<size_t>(bytes));
    }
  }
  void close_notify() {
    said([this] { return SSL_shutdown(session_.get()); });
  }
  // The cipher.
  const char* cipher() const { return SSL_get_cipher_name(session_.get()); }

  std::string sent;
  std::string arriving;
  int last_read = 0;  // SSL_ERROR_ZERO_RETURN: the other end has said that it ends

 private:
  SSL_CTX* context() const { return context_.get(); }
  static unsigned tell_key(SSL* session, const char*, char* name, unsigned name_max_bytes,
                           unsigned char* key, unsigned key_max_bytes) {
    const auto& self = *static_cast<TlsClient*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(session)));
    BP_ASSERT(self.name_.size() < name_max_bytes && self.key_.size() <= key_max_bytes);
    std::strcpy(name, self.name_.c_str());
    std::memcpy(key, self.key_.data(), self.key_.size());
    return static_cast<unsigned>(self.key_.size());
  }
  template <typename Call>
  int said(Call call) {
    if (!arriving.empty()) BIO_write(in_, arriving.data(), static_cast<int>(arriving.size()));
    arriving.clear();
    const int result = call();
    const int error = result > 0 ? SSL_ERROR_NONE : SSL_get_error(session_.get(), result);
    ERR_clear_error();
    sent += text_of(out_);
    BIO_reset(out_);
    return error;
  }

  TlsPointer<SSL_CTX, SSL_CTX_free> context_;
  TlsPointer<SSL, SSL_free> session_;
  BIO* in_ = nullptr;  // the session's
  BIO* out_ = nullptr;
  std::string name_;
  std::string key_;
};

inline const std::string kSharedKey = std::string("\x01\x23\x45\x67\x89\xab\xcd\xef", 8);
inline constexpr std::string_view kSharedKeyLine = "alice:0123456789abcdef\n";

}  // namespace bedplate::test
