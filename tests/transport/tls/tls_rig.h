// The peer for tests of TLS: generated certificates, files for them, and the library's own client,
// connected to a session through memory.
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

// Permits OpenSSL's older functions for keys. They write a key without the encoders, which a static
// program does not have.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/bio.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
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

// The text that was written to `bio`.
inline std::string text_of(BIO* bio) {
  char* text = nullptr;
  const long bytes = BIO_get_mem_data(bio, &text);
  return {text, static_cast<size_t>(bytes)};
}

// A key, and a certificate for it that `issuer` signed (nullptr: self-signed).
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

// The client. It appends its output to `sent`. A test appends its input to `arriving`.
class TlsClient {
 public:
  TlsClient() {
    BP_ASSERT(prepare_tls_library());
    context_.reset(SSL_CTX_new(TLS_client_method()));
    SSL_CTX_set_app_data(context(), this);
    SSL_CTX_set_keylog_callback(context(), &keep_secret);
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
  // Allows one version only, such as TLS1_2_VERSION.
  void speak(int version) {
    SSL_CTX_set_security_level(context(), 0);
    BP_ASSERT(SSL_CTX_set_min_proto_version(context(), version) == 1);
    BP_ASSERT(SSL_CTX_set_max_proto_version(context(), version) == 1);
  }
  // Offers ciphers of TLS 1.2, by OpenSSL's names.
  void offer(const char* ciphers) { BP_ASSERT(SSL_CTX_set_cipher_list(context(), ciphers) == 1); }

  // Offers ciphers of TLS 1.3, by OpenSSL's names.
  int offer_13(const char* ciphers) { return SSL_CTX_set_ciphersuites(context(), ciphers); }

  void start() {
    session_.reset(SSL_new(context()));
    in_ = BIO_new(BIO_s_mem());
    out_ = BIO_new(BIO_s_mem());
    SSL_set_bio(session_.get(), in_, out_);
    SSL_set_connect_state(session_.get());
  }
  // These return SSL_ERROR_NONE: done; SSL_ERROR_WANT_READ: more input is needed; otherwise it
  // failed.
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
  // Makes a record of the client, because its library splits no message. It is record number
  // `sequence` under the first key of a session with TLS_AES_128_GCM_SHA256.
  std::string record(uint64_t sequence, std::string_view text, uint8_t type) const;
  void write(std::string_view text) {
    const int bytes = static_cast<int>(text.size());
    BP_ASSERT(said([&] { return SSL_write(session_.get(), text.data(), bytes); }) == 0);
  }
  // Returns all text that has arrived.
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
  // The library's session, for calls before or after the handshake. Requires: start().
  SSL* session() const { return session_.get(); }
  // The name of the cipher.
  const char* cipher() const { return SSL_get_cipher_name(session_.get()); }

  std::string sent;
  std::string arriving;
  std::string traffic_secret;  // of TLS 1.3, in hexadecimal; it encrypts the client's records
  int last_read = 0;           // SSL_ERROR_ZERO_RETURN: the session has sent its end

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
  static void keep_secret(const SSL* session, const char* line) {
    auto& self = *static_cast<TlsClient*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(session)));
    const std::string_view text(line);
    if (!text.starts_with("CLIENT_TRAFFIC_SECRET_0 ")) return;
    self.traffic_secret = text.substr(text.rfind(' ') + 1);
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

// HKDF-Expand-Label (RFC 8446, 7.1).
inline std::string expanded(std::string_view secret, std::string_view label, size_t bytes) {
  const TlsPointer<EVP_KDF, EVP_KDF_free> kdf(EVP_KDF_fetch(nullptr, "TLS13-KDF", nullptr));
  const TlsPointer<EVP_KDF_CTX, EVP_KDF_CTX_free> context(EVP_KDF_CTX_new(kdf.get()));
  int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
  char digest[] = "SHA256";
  char prefix[] = "tls13 ";
  const auto octets = [](const char* key, std::string_view value) {
    return OSSL_PARAM_construct_octet_string(key, const_cast<char*>(value.data()), value.size());
  };
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      octets(OSSL_KDF_PARAM_KEY, secret),
      octets(OSSL_KDF_PARAM_PREFIX, prefix),
      octets(OSSL_KDF_PARAM_LABEL, label),
      OSSL_PARAM_construct_end()};
  std::string result(bytes, '\0');
  BP_ASSERT(EVP_KDF_derive(context.get(), reinterpret_cast<unsigned char*>(result.data()), bytes,
                           parameters) == 1);
  return result;
}

// RFC 8446, 5.2 and 5.3.
inline std::string TlsClient::record(uint64_t sequence, std::string_view text, uint8_t type) const {
  std::string secret;
  for (size_t i = 0; i < traffic_secret.size(); i += 2) {
    secret += static_cast<char>(std::stoi(traffic_secret.substr(i, 2), nullptr, 16));
  }
  const std::string key = expanded(secret, "key", 16);
  std::string nonce = expanded(secret, "iv", 12);
  for (size_t i = 0; i < 8; ++i) {
    nonce[11 - i] = static_cast<char>(nonce[11 - i] ^ static_cast<char>(sequence >> (8 * i)));
  }
  std::string plain(text);
  plain += static_cast<char>(type);
  constexpr size_t kTagBytes = 16;
  const size_t bytes = plain.size() + kTagBytes;
  std::string all = {'\x17', '\x03', '\x03', static_cast<char>(bytes >> 8),
                     static_cast<char>(bytes)};
  std::string hidden(bytes, '\0');
  const auto raw = [](auto& of) { return reinterpret_cast<const unsigned char*>(of.data()); };
  auto* const out = reinterpret_cast<unsigned char*>(hidden.data());
  const TlsPointer<EVP_CIPHER_CTX, EVP_CIPHER_CTX_free> context(EVP_CIPHER_CTX_new());
  int count = 0;
  BP_ASSERT(EVP_EncryptInit_ex(context.get(), EVP_aes_128_gcm(), nullptr, raw(key), raw(nonce)) ==
            1);
  BP_ASSERT(EVP_EncryptUpdate(context.get(), nullptr, &count, raw(all), 5) == 1);
  BP_ASSERT(EVP_EncryptUpdate(context.get(), out, &count, raw(plain),
                              static_cast<int>(plain.size())) == 1);
  BP_ASSERT(EVP_EncryptFinal_ex(context.get(), out + count, &count) == 1);
  BP_ASSERT(EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes,
                                out + plain.size()) == 1);
  return all + hidden;
}

inline const std::string kSharedKey = std::string("\x01\x23\x45\x67\x89\xab\xcd\xef", 8);
inline constexpr std::string_view kSharedKeyLine = "alice:0123456789abcdef\n";

}  // namespace bedplate::test
