#include "transport/tls/tls_session.h"

#include <algorithm>
#include <cstring>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "platform/assert.h"
#include "transport/tls/tls_library.h"

namespace bedplate {
namespace {

TlsFailure cause_of(unsigned long error, bool is_established) noexcept {
  if (ERR_GET_LIB(error) != ERR_LIB_SSL) return TlsFailure::kProtocol;
  switch (const int reason = ERR_GET_REASON(error)) {
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_NO_SHARED_SIGNATURE_ALGORITHMS:
    case SSL_R_NO_SUITABLE_KEY_SHARE:
    case SSL_R_NO_SUITABLE_GROUPS:
    case SSL_R_PSK_IDENTITY_NOT_FOUND:
    case SSL_R_BINDER_DOES_NOT_VERIFY:
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
    case SSL_R_BAD_SIGNATURE:
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE: return TlsFailure::kCredentials;
    // The first record under a key that both should have: most likely the peer has another shared
    // key.
    case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC:
      return is_established ? TlsFailure::kProtocol : TlsFailure::kCredentials;
    // Alerts have numbers from this offset on.
    default: return reason >= SSL_AD_REASON_OFFSET ? TlsFailure::kRefused : TlsFailure::kProtocol;
  }
}

}  // namespace

const char* to_text(TlsFailure failure) noexcept {
  switch (failure) {
    case TlsFailure::kNone: return "nothing failed";
    case TlsFailure::kProtocol:
      return "the client did not send TLS 1.2 or 1.3, its data was altered, or it tried to "
             "renegotiate";
    case TlsFailure::kCredentials:
      return "the client's key, certificate or ciphers are not accepted";
    case TlsFailure::kRefused: return "the client refused our key, certificate or ciphers";
    case TlsFailure::kMemory: return "the memory for TLS is used up";
    case TlsFailure::kGone: return "the client left in the middle of the handshake";
    case TlsFailure::kLate: return "the client took too long for the handshake";
  }
  return "?";
}

void TlsSession::begin(const TlsCredentials& credentials, std::span<std::byte> input,
                       std::span<std::byte> output) noexcept {
  BP_ASSERT(!is_begun());
  BP_ASSERT(std::min(input.size(), output.size()) >= kBufferMinBytes);
  credentials_ = &credentials;
  input_ = input;
  output_ = output;
  input_begin_ = input_end_ = output_begin_ = output_end_ = 0;
  is_established_ = has_ended_ = has_met_end_ = is_reading_ = waits_for_input_ = false;
  stop_text_ = nullptr;
  read_bytes_ = key_change_count_ = 0;
  failure_ = TlsFailure::kNone;
  failure_text_ = nullptr;
  begin_tls_session();
  const HeapOwnerScope scope(credentials.owner());
  BIO* const transport = BIO_new(credentials.transport());
  session_ = SSL_new(credentials.context());
  if (transport == nullptr || session_ == nullptr) {
    BIO_free(transport);
    fail_as_told();
    return;
  }
  BIO_set_data(transport, this);
  BIO_set_init(transport, 1);
  SSL_set_bio(session_, transport, transport);
  SSL_set_accept_state(session_);
  SSL_set_msg_callback(session_, &look_at_message);
  SSL_set_msg_callback_arg(session_, this);
  BP_DCHECK_SLOW(is_valid());
}

void TlsSession::end() noexcept {
  SSL_free(session_);
  if (is_begun()) end_tls_session();
  session_ = nullptr;
  credentials_ = nullptr;
  BP_DCHECK_SLOW(is_valid());
}

bool TlsSession::is_valid() const noexcept {
  const bool has_failed = failure_ != TlsFailure::kNone;
  if (input_begin_ > input_end_ || input_end_ > input_.size()) return false;
  if (output_begin_ > output_end_ || output_end_ > output_.size()) return false;
  if (output_begin_ == output_end_ && output_end_ > 0) return false;
  if (has_met_end_ && (!has_ended_ || input_begin_ != input_end_)) return false;
  if (session_ == nullptr ? is_begun() && !has_failed : !is_begun()) return false;
  return has_failed == (failure_text_ != nullptr) && !is_reading_;
}

void TlsSession::arrived(size_t bytes) noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(is_begun() && bytes <= input_room().size());
  BP_DCHECK(!input_room().empty() && !has_ended_);
  input_begin_ = 0;
  input_end_ = bytes;
  has_ended_ = bytes == 0;
}

void TlsSession::sent(size_t bytes) noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(bytes <= pending().size());
  output_begin_ += bytes;
  if (output_begin_ == output_end_) output_begin_ = output_end_ = 0;
}

bio_method_st* TlsSession::make_transport() noexcept {
  BIO_METHOD* const method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "bedplate");
  if (method == nullptr) return nullptr;
  BIO_meth_set_read(method, &receive);
  BIO_meth_set_write(method, &send);
  BIO_meth_set_ctrl(method, &control);
  return method;
}

int TlsSession::receive(bio_st* transport, char* bytes, int count) noexcept {
  auto& self = *static_cast<TlsSession*>(BIO_get_data(transport));
  BIO_clear_retry_flags(transport);
  if (self.stop_text_ != nullptr) return -1;
  BP_DCHECK(count > 0 && self.is_begun());
  const size_t taken = std::min(static_cast<size_t>(count), self.input_end_ - self.input_begin_);
  if (taken == 0 && self.has_ended_) {
    self.has_met_end_ = true;
    return 0;
  }
  if (taken == 0) {
    BIO_set_retry_read(transport);
    return -1;
  }
  std::memcpy(bytes, self.input_.data() + self.input_begin_, taken);
  self.input_begin_ += taken;
  return static_cast<int>(taken);
}

int TlsSession::send(bio_st* transport, const char* bytes, int count) noexcept {
  auto& self = *static_cast<TlsSession*>(BIO_get_data(transport));
  BIO_clear_retry_flags(transport);
  // Stops a TLS 1.2 peer that renegotiates. The library answers each request, and a peer may go on
  // for ever and read nothing; an answer that does not fit would have to be sent before everything
  // else. With TLS 1.3 the library answers changes of keys, which are counted.
  if (self.is_reading_ && SSL_version(self.session_) == TLS1_2_VERSION) {
    self.stop_text_ = "the client tried to renegotiate";
  }
  BP_DCHECK(count > 0 && self.is_begun());
  const size_t taken = std::min(static_cast<size_t>(count), self.output_.size() - self.output_end_);
  if (taken == 0) {
    BIO_set_retry_write(transport);
    return -1;
  }
  std::memcpy(self.output_.data() + self.output_end_, bytes, taken);
  self.output_end_ += taken;
  return static_cast<int>(taken);
}

// There is nothing to flush. The library is not told here of the end of input: it would end the
// session, although replies may still be sent.
long TlsSession::control(bio_st*, int command, long, void*) noexcept {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

// Counts changes of keys: each costs computation and memory.
void TlsSession::look_at_message(int is_written, int, int type, const void* bytes, size_t count,
                                 ssl_st*, void* context) noexcept {
  if (is_written != 0 || type != SSL3_RT_HANDSHAKE || count == 0) return;
  if (*static_cast<const unsigned char*>(bytes) != SSL3_MT_KEY_UPDATE) return;
  auto& self = *static_cast<TlsSession*>(context);
  ++self.key_change_count_;
  if (self.key_change_count_ > kKeyChangesMin + self.read_bytes_ / kBytesForAKeyChange) {
    self.stop_text_ = "too many key changes";
  }
}

TlsSession::Outcome TlsSession::fail(TlsFailure failure, const char* text) noexcept {
  BP_DCHECK(failure_ == TlsFailure::kNone && failure != TlsFailure::kNone && text != nullptr);
  failure_ = failure;
  failure_text_ = text;
  return Outcome::kFailed;
}

TlsSession::Outcome TlsSession::fail_as_told() noexcept {
  const unsigned long error = take_tls_error();
  if (take_tls_refusal()) return fail(TlsFailure::kMemory, credentials_->owner_name());
  if (error == 0 && stop_text_ != nullptr) return fail(TlsFailure::kProtocol, stop_text_);
  if (has_met_end_) return fail(TlsFailure::kGone, "the connection has ended");
  const char* text = tls_error_text(error);
  if (ERR_GET_LIB(error) == ERR_LIB_SSL &&
      ERR_GET_REASON(error) == SSL_R_CERTIFICATE_VERIFY_FAILED) {
    text = X509_verify_cert_error_string(SSL_get_verify_result(session_));
  }
  if (ERR_GET_LIB(error) == ERR_LIB_SSL && ERR_GET_REASON(error) == SSL_R_HTTP_REQUEST) {
    text = "it is plain HTTP";
  }
  return fail(cause_of(error, is_established_), text);
}

void TlsSession::give_up() noexcept {
  BP_ASSERT(is_begun() && !is_established_);
  if (failure_ != TlsFailure::kNone) return;
  const char* text = input_end_ == 0 ? "it has sent nothing" : "it has not sent all of its part";
  (void)fail(TlsFailure::kLate, text);
}

// The outcome of a call that moved nothing, from the library's answer.
TlsSession::Outcome TlsSession::outcome_of(int result) noexcept {
  switch (SSL_get_error(session_, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: return Outcome::kMore;
    case SSL_ERROR_ZERO_RETURN: return Outcome::kEnded;
    default: break;
  }
  if (is_established_ && has_met_end_) return Outcome::kEnded;
  return fail_as_told();
}

TlsSession::Outcome TlsSession::handshake() noexcept {
  BP_ASSERT(is_begun() && !is_established_);
  BP_KEEPS_VALID(*this);
  if (failure_ != TlsFailure::kNone) return Outcome::kFailed;
  const HeapOwnerScope scope(credentials_->owner());
  take_tls_refusal();
  const int result = SSL_do_handshake(session_);
  if (result == 1) {
    ERR_clear_error();
    is_established_ = true;
    return Outcome::kDone;
  }
  const Outcome outcome = outcome_of(result);
  BP_DCHECK(outcome != Outcome::kMore || input_begin_ == input_end_ || SSL_want_write(session_));
  return outcome == Outcome::kEnded
             ? fail(TlsFailure::kGone, "the client has closed the connection")
             : outcome;
}

TlsSession::Moved TlsSession::read(std::span<std::byte> memory) noexcept {
  BP_ASSERT(is_established_);
  BP_KEEPS_VALID(*this);
  Moved moved;
  if (failure_ != TlsFailure::kNone) return {.outcome = Outcome::kFailed};
  const HeapOwnerScope scope(credentials_->owner());
  take_tls_refusal();
  is_reading_ = true;
  while (moved.bytes < memory.size()) {
    size_t bytes = 0;
    const int result =
        SSL_read_ex(session_, memory.data() + moved.bytes, memory.size() - moved.bytes, &bytes);
    BP_ASSERT(bytes <= memory.size() - moved.bytes);
    moved.bytes += bytes;
    read_bytes_ += bytes;
    if (result != 1) moved.outcome = outcome_of(result);
    if (moved.outcome != Outcome::kDone) break;
  }
  is_reading_ = false;
  BP_DCHECK(moved.outcome != Outcome::kMore || input_begin_ == input_end_ ||
            SSL_want_write(session_));
  return moved;
}

TlsSession::Moved TlsSession::write(std::span<const std::byte> memory) noexcept {
  BP_ASSERT(is_established_);
  BP_KEEPS_VALID(*this);
  Moved moved;
  if (failure_ != TlsFailure::kNone) return {.outcome = Outcome::kFailed};
  const HeapOwnerScope scope(credentials_->owner());
  take_tls_refusal();
  waits_for_input_ = false;
  while (moved.bytes < memory.size()) {
    // Writes whole records only: one that did not fit would have to be offered again unchanged.
    if (output_.size() - output_end_ < kRecordMaxBytes) {
      moved.outcome = Outcome::kMore;
      break;
    }
    const std::span<const std::byte> record =
        memory.subspan(moved.bytes).first(std::min(kTextMaxBytes, memory.size() - moved.bytes));
    size_t bytes = 0;
    const int result = SSL_write_ex(session_, record.data(), record.size(), &bytes);
    if (result != 1) {
      // Part of a message about keys has arrived, and must be answered first; nothing of this
      // record was written yet.
      waits_for_input_ = SSL_get_error(session_, result) == SSL_ERROR_WANT_READ;
      moved.outcome = waits_for_input_ ? Outcome::kMore : fail_as_told();
      break;
    }
    BP_DCHECK(bytes == record.size());  // a record is written whole, or not at all
    moved.bytes += bytes;
  }
  return moved;
}

void TlsSession::close_notify() noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(is_begun());
  if (!is_established_ || failure_ != TlsFailure::kNone) return;
  const HeapOwnerScope scope(credentials_->owner());
  if (output_.size() - output_end_ >= kRecordMaxBytes) SSL_shutdown(session_);
  ERR_clear_error();
}

bool TlsSession::has_certificate() const noexcept {
  BP_DCHECK(is_begun() && is_established_);
  return SSL_get0_peer_certificate(session_) != nullptr &&
         SSL_get_verify_result(session_) == X509_V_OK;
}

const char* TlsSession::version() const noexcept { return SSL_get_version(session_); }
const char* TlsSession::cipher() const noexcept { return SSL_get_cipher_name(session_); }

}  // namespace bedplate
