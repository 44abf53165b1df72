#include "transport/tls/tls_session.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>

#include <mbedtls/error.h>

#include "platform/assert.h"

namespace bedplate {
namespace {

// The library adds the code of a part (its low seven bits) to that of the whole.
bool is_about_memory(int code) noexcept {
  constexpr int kWhole[] = {MBEDTLS_ERR_SSL_ALLOC_FAILED,   MBEDTLS_ERR_X509_ALLOC_FAILED,
                            MBEDTLS_ERR_PK_ALLOC_FAILED,    MBEDTLS_ERR_ECP_ALLOC_FAILED,
                            MBEDTLS_ERR_DHM_ALLOC_FAILED,   MBEDTLS_ERR_MD_ALLOC_FAILED,
                            MBEDTLS_ERR_CIPHER_ALLOC_FAILED};
  constexpr int kParts[] = {MBEDTLS_ERR_MPI_ALLOC_FAILED, MBEDTLS_ERR_ASN1_ALLOC_FAILED};
  const int part = -(-code & 0x7f);
  const int whole = code - part;
  return std::find(std::begin(kWhole), std::end(kWhole), whole) != std::end(kWhole) ||
         std::find(std::begin(kParts), std::end(kParts), part) != std::end(kParts);
}

TlsFailure cause_of(int code, bool is_established) noexcept {
  if (is_about_memory(code)) return TlsFailure::kMemory;
  switch (code) {
    case MBEDTLS_ERR_SSL_CONN_EOF: return TlsFailure::kGone;
    case MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY: return TlsFailure::kGone;
    case MBEDTLS_ERR_SSL_FATAL_ALERT_MESSAGE: return TlsFailure::kRefused;
    case MBEDTLS_ERR_SSL_UNKNOWN_IDENTITY:
    case MBEDTLS_ERR_SSL_NO_CIPHER_CHOSEN:
    case MBEDTLS_ERR_SSL_NO_USABLE_CIPHERSUITE:
    case MBEDTLS_ERR_SSL_NO_CLIENT_CERTIFICATE:
    case MBEDTLS_ERR_SSL_PEER_VERIFY_FAILED:
    case MBEDTLS_ERR_X509_CERT_VERIFY_FAILED: return TlsFailure::kCredentials;
    // The first record under a key that both should have: of another shared key, most likely.
    case MBEDTLS_ERR_SSL_INVALID_MAC:
      return is_established ? TlsFailure::kProtocol : TlsFailure::kCredentials;
    default: return TlsFailure::kProtocol;
  }
}

bool wants_more(int code) noexcept {
  return code == MBEDTLS_ERR_SSL_WANT_READ || code == MBEDTLS_ERR_SSL_WANT_WRITE;
}

}  // namespace

const char* text_of(TlsFailure failure) noexcept {
  switch (failure) {
    case TlsFailure::kNone: return "nothing failed";
    case TlsFailure::kProtocol:
      return "what the client sent is not TLS 1.2, was changed, or would agree anew";
    case TlsFailure::kCredentials: return "the client's key, certificate or ciphers are not ours";
    case TlsFailure::kRefused: return "the client refused our key, certificate or ciphers";
    case TlsFailure::kMemory: return "the memory of heap:tls is used up";
    case TlsFailure::kGone: return "the client left in the middle of the handshake";
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
  is_established_ = has_ended_ = false;
  failure_ = TlsFailure::kNone;
  failure_code_ = 0;
  const HeapOwnerScope scope(credentials.owner());
  if (const int outcome = mbedtls_ssl_setup(&session_, &credentials.config()); outcome != 0) {
    fail(outcome);
    return;
  }
  mbedtls_ssl_set_bio(&session_, this, &send_to, &receive_from, nullptr);
}

void TlsSession::end() noexcept {
  mbedtls_ssl_free(&session_);
  mbedtls_ssl_init(&session_);
  credentials_ = nullptr;
}

bool TlsSession::is_valid() const noexcept {
  return input_begin_ <= input_end_ && input_end_ <= input_.size() &&
         output_begin_ <= output_end_ && output_end_ <= output_.size() &&
         (failure_ == TlsFailure::kNone) == (failure_code_ == 0);
}

void TlsSession::arrived(size_t bytes) noexcept {
  BP_ASSERT(bytes <= input_room().size());
  input_begin_ = 0;
  input_end_ = bytes;
  has_ended_ = bytes == 0;
}

void TlsSession::sent(size_t bytes) noexcept {
  BP_ASSERT(bytes <= pending().size());
  output_begin_ += bytes;
  if (output_begin_ == output_end_) output_begin_ = output_end_ = 0;
}

int TlsSession::receive_from(void* context, unsigned char* bytes, size_t count) noexcept {
  auto& self = *static_cast<TlsSession*>(context);
  const size_t taken = std::min(count, self.input_end_ - self.input_begin_);
  if (taken == 0) return self.has_ended_ ? 0 : MBEDTLS_ERR_SSL_WANT_READ;
  std::memcpy(bytes, self.input_.data() + self.input_begin_, taken);
  self.input_begin_ += taken;
  return static_cast<int>(taken);
}

int TlsSession::send_to(void* context, const unsigned char* bytes, size_t count) noexcept {
  auto& self = *static_cast<TlsSession*>(context);
  self.has_spoken_ = true;
  const size_t taken = std::min(count, self.output_.size() - self.output_end_);
  if (taken == 0) return MBEDTLS_ERR_SSL_WANT_WRITE;
  std::memcpy(self.output_.data() + self.output_end_, bytes, taken);
  self.output_end_ += taken;
  return static_cast<int>(taken);
}

TlsSession::Outcome TlsSession::fail(int outcome) noexcept {
  failure_ = cause_of(outcome, is_established_);
  failure_code_ = outcome;
  return Outcome::kFailed;
}

TlsSession::Outcome TlsSession::handshake() noexcept {
  BP_ASSERT(is_begun() && !is_established_);
  BP_KEEPS_VALID(*this);
  if (failure_ != TlsFailure::kNone) return Outcome::kFailed;
  const HeapOwnerScope scope(credentials_->owner());
  const int outcome = mbedtls_ssl_handshake(&session_);
  if (wants_more(outcome)) return Outcome::kMore;
  if (outcome != 0) return fail(outcome);
  is_established_ = true;
  return Outcome::kDone;
}

TlsSession::Moved TlsSession::read(std::span<std::byte> memory) noexcept {
  BP_ASSERT(is_established_);
  BP_KEEPS_VALID(*this);
  Moved moved;
  if (failure_ != TlsFailure::kNone) return {.outcome = Outcome::kFailed};
  while (moved.bytes < memory.size()) {
    auto* place = reinterpret_cast<unsigned char*>(memory.data() + moved.bytes);
    has_spoken_ = false;
    const int outcome = mbedtls_ssl_read(&session_, place, memory.size() - moved.bytes);
    // It answers a peer that would agree anew. What had no room would have to be sent before all
    // else, and the peer may send that without end and read nothing.
    if (has_spoken_ && (outcome >= 0 || wants_more(outcome))) {
      moved.outcome = fail(MBEDTLS_ERR_SSL_UNEXPECTED_MESSAGE);
      break;
    }
    if (outcome > 0) {
      moved.bytes += static_cast<size_t>(outcome);
      continue;
    }
    if (outcome == 0 || outcome == MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY ||
        outcome == MBEDTLS_ERR_SSL_CONN_EOF) {
      moved.outcome = Outcome::kEnded;
    } else {
      moved.outcome = wants_more(outcome) ? Outcome::kMore : fail(outcome);
    }
    break;
  }
  return moved;
}

TlsSession::Moved TlsSession::write(std::span<const std::byte> memory) noexcept {
  BP_ASSERT(is_established_);
  BP_KEEPS_VALID(*this);
  Moved moved;
  if (failure_ != TlsFailure::kNone) return {.outcome = Outcome::kFailed};
  while (moved.bytes < memory.size()) {
    // A record that did not fit whole would have to be offered again as it is.
    if (output_.size() - output_end_ < kRecordMaxBytes) {
      moved.outcome = Outcome::kMore;
      break;
    }
    const auto* place = reinterpret_cast<const unsigned char*>(memory.data() + moved.bytes);
    const int outcome = mbedtls_ssl_write(&session_, place, memory.size() - moved.bytes);
    if (outcome <= 0) {
      moved.outcome = fail(outcome);
      break;
    }
    moved.bytes += static_cast<size_t>(outcome);
  }
  return moved;
}

void TlsSession::close_notify() noexcept {
  BP_ASSERT(is_begun());
  if (!is_established_ || failure_ != TlsFailure::kNone) return;
  if (output_.size() - output_end_ >= kRecordMaxBytes) mbedtls_ssl_close_notify(&session_);
}

void TlsSession::describe_failure(char* text, size_t text_bytes) const noexcept {
  mbedtls_strerror(failure_code_, text, text_bytes);
}

}  // namespace bedplate
