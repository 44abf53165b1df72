// TlsSession: the server's end of one TLS connection, without a socket: what has arrived lies in
// one buffer, what is to be sent in another, and nothing here waits.
//
// A handshake is computed, so handshake() takes the calling thread some milliseconds in all; the
// library allocates then (owner "heap:tls"), and when it cannot the session fails and nothing else
// does. What is read and written afterwards allocates nothing. It knows no time: the owner of the
// socket ends a handshake that takes too long.
//
// Invariants: 1. The input is used up whenever more is asked for (kMore). 2. What there is to send
// lies within the output. 3. A session that has failed stays so. (is_valid)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <mbedtls/ssl.h>

#include "transport/tls/tls_credentials.h"

namespace bedplate {

// Why a session ended before its time.
enum class TlsFailure : uint8_t {
  kNone,
  kProtocol,     // what the peer sent is no TLS, was changed on its way, or would agree anew
  kCredentials,  // a certificate or a key that is not known here, or no cipher in common
  kRefused,      // the peer says that it does not want ours
  kMemory,       // "heap:tls" is used up
  kGone,         // the peer left in the middle of the handshake
};
const char* text_of(TlsFailure failure) noexcept;

// Threads: one at a time. Ownership: the buffers and the credentials outlive it, from begin() on.
class TlsSession {
 public:
  // A record at its longest, with what the cipher adds.
  static constexpr size_t kRecordMaxBytes = 16 * 1024 + 512;
  static constexpr size_t kBufferMinBytes = 2 * kRecordMaxBytes;

  enum class Outcome : uint8_t {
    kDone,    // something moved; or the handshake is over
    kMore,    // when more has arrived, or output was sent
    kEnded,   // the peer has said that nothing more comes, or has closed
    kFailed,  // failure() says why; what is in the output is to be sent still
  };

  TlsSession() noexcept { mbedtls_ssl_init(&session_); }
  ~TlsSession() { end(); }
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // A new peer. Requires: !is_begun(); each buffer has kBufferMinBytes at least. A session that the
  // memory does not suffice for fails at handshake().
  void begin(const TlsCredentials& credentials, std::span<std::byte> input,
             std::span<std::byte> output) noexcept;
  // Gives back what it has allocated.
  void end() noexcept;
  bool is_begun() const noexcept { return credentials_ != nullptr; }

  // Where bytes that arrive go: all of the input when it is used up, or none.
  std::span<std::byte> input_room() const noexcept {
    return input_begin_ == input_end_ ? input_ : std::span<std::byte>();
  }
  // So many have come there; 0: the peer has closed.
  void arrived(size_t bytes) noexcept;

  // What is to be sent next; it stays as it is until sent().
  std::span<const std::byte> pending() const noexcept {
    return output_.subspan(output_begin_, output_end_ - output_begin_);
  }
  // The first `bytes` of it are sent. More may have been added behind them meanwhile.
  void sent(size_t bytes) noexcept;

  // Goes on with the handshake. Requires: it is not over.
  Outcome handshake() noexcept;
  bool is_established() const noexcept { return is_established_; }

  // Of what has arrived, as much as there is: `bytes` is what `memory` got.
  struct Moved {
    size_t bytes = 0;
    Outcome outcome = Outcome::kDone;
  };
  // kMore or kEnded may come with bytes. Requires: is_established().
  Moved read(std::span<std::byte> memory) noexcept;
  // As much of `memory` as the output has room for, in whole records. Requires: is_established().
  Moved write(std::span<const std::byte> memory) noexcept;
  // Says that nothing more comes, where there is room for it.
  void close_notify() noexcept;

  TlsFailure failure() const noexcept { return failure_; }
  // What the library said to it, terminated.
  void describe_failure(char* text, size_t text_bytes) const noexcept;
  // For people: version and cipher. Requires: is_established().
  const char* cipher() const noexcept { return mbedtls_ssl_get_ciphersuite(&session_); }

  bool is_valid() const noexcept;

 private:
  static int receive_from(void* self, unsigned char* bytes, size_t count) noexcept;
  static int send_to(void* self, const unsigned char* bytes, size_t count) noexcept;
  Outcome fail(int outcome) noexcept;

  const TlsCredentials* credentials_ = nullptr;
  std::span<std::byte> input_;
  std::span<std::byte> output_;
  size_t input_begin_ = 0;
  size_t input_end_ = 0;
  size_t output_begin_ = 0;
  size_t output_end_ = 0;
  bool is_established_ = false;
  bool has_ended_ = false;   // nothing more arrives
  bool has_spoken_ = false;  // the library, since this was last reset
  TlsFailure failure_ = TlsFailure::kNone;
  int failure_code_ = 0;  // the library's
  mbedtls_ssl_context session_;
};

}  // namespace bedplate
