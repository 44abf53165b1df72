// TlsSession: the server's end of one TLS connection, without a socket: arrived bytes lie in one
// buffer, bytes to send in another, and nothing here waits.
//
// A handshake is computed, so handshake() takes the calling thread some milliseconds in all; the
// library allocates then (for the owner of the credentials), and when it cannot the session fails
// and nothing else does. Reads and writes afterwards allocate nothing, but for a change of keys, of
// which a peer may ask for few (TLS 1.3). It knows no time: the owner of the socket ends a
// handshake that takes too long.
//
// Invariants, which is_valid() looks at around each call: 1. Arrived bytes lie within the input,
// and bytes to send within the output, which begins anew once all is sent. 2. The library has met
// the end once it came, behind all that had arrived. 3. One that was begun has a session of the
// library's, or has failed; one that has ended has none. 4. A session that has failed says why.
// And: 5. The input is used up whenever more is asked for (kMore; handshake, read). 6. A session
// that has failed stays so, for the first reason (fail). 7. Nothing arrives behind the end
// (arrived).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/tls/tls_credentials.h"

struct bio_st;

namespace bedplate {

// Why a session ended before its time.
enum class TlsFailure : uint8_t {
  kNone,
  kProtocol,     // what the peer sent is no TLS, was changed on its way, or agrees anew for ever
  kCredentials,  // a certificate or a key that is not known here, or no cipher in common
  kRefused,      // the peer says that it does not want ours
  kMemory,       // what the owner of the credentials may have is used up
  kGone,         // the peer left in the middle of the handshake
};
const char* to_text(TlsFailure failure) noexcept;

// Threads: one at a time. Ownership: the buffers and the credentials outlive it, from begin() on.
class TlsSession {
 public:
  static constexpr size_t kTextMaxBytes = 16 * 1024;  // of one record
  // The most bytes that so much text becomes: with the cipher's additions to each of 32 records, if
  // the peer asks for short ones (RFC 6066), and messages that may have to go before it.
  static constexpr size_t kRecordMaxBytes = kTextMaxBytes + 1536;
  static constexpr size_t kBufferMinBytes = 2 * kRecordMaxBytes;
  // How often a peer may change its keys: so often, and once more for so many bytes of its data.
  // Libraries do after some millions of records.
  static constexpr uint64_t kKeyChangesMin = 16;
  static constexpr uint64_t kBytesForAKeyChange = 16 * 1024 * 1024;

  enum class Outcome : uint8_t {
    kDone,    // something moved; or the handshake is over
    kMore,    // when more has arrived, or output was sent
    kEnded,   // the peer has said that nothing more comes, or has closed
    kFailed,  // failure() says why; what is in the output is to be sent still
  };

  // The functions by which a session of the library's reaches its buffers; the caller frees it
  // (BIO_meth_free), after the sessions. nullptr: there is no memory.
  static bio_method_st* make_transport() noexcept;

  TlsSession() noexcept = default;
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

  // The room for bytes that arrive: all of the input when it is used up, or none.
  std::span<std::byte> input_room() const noexcept {
    return input_begin_ == input_end_ ? input_ : std::span<std::byte>();
  }
  // So many have come there; 0: the peer has closed.
  void arrived(size_t bytes) noexcept;

  // The bytes to send next; they stay as they are until sent().
  std::span<const std::byte> pending() const noexcept {
    return output_.subspan(output_begin_, output_end_ - output_begin_);
  }
  // The first `bytes` of it are sent. More may have been added behind them meanwhile.
  void sent(size_t bytes) noexcept;

  // Goes on with the handshake. Requires: it is not over.
  Outcome handshake() noexcept;
  bool is_established() const noexcept { return is_established_; }

  // The result of read() and write(): `bytes` were moved to or from `memory`.
  struct Moved {
    size_t bytes = 0;
    Outcome outcome = Outcome::kDone;
  };
  // kMore or kEnded may come with bytes. Requires: is_established().
  Moved read(std::span<std::byte> memory) noexcept;
  // As much of `memory` as the output has room for, in whole records; none while the peer is in the
  // middle of a message about its keys (waits_for_input). Requires: is_established().
  Moved write(std::span<const std::byte> memory) noexcept;
  // Whether the last write() waits for more to arrive, and not for room.
  bool waits_for_input() const noexcept { return waits_for_input_; }
  // Says that nothing more comes, if there is room for it.
  void close_notify() noexcept;

  TlsFailure failure() const noexcept { return failure_; }
  // The library's reason for the failure, for people; static. Requires: it has failed.
  const char* failure_text() const noexcept { return failure_text_; }
  // Whether the peer has shown a certificate that one of the authorities signed. Requires:
  // is_established().
  bool has_certificate() const noexcept;
  // For people, static. Requires: is_established().
  const char* version() const noexcept;
  const char* cipher() const noexcept;

  bool is_valid() const noexcept;

 private:
  static int receive(bio_st* transport, char* bytes, int count) noexcept;
  static int send(bio_st* transport, const char* bytes, int count) noexcept;
  static long control(bio_st* transport, int command, long number, void* pointer) noexcept;
  static void look_at_message(int is_written, int version, int type, const void* bytes,
                              size_t count, ssl_st* session, void* self) noexcept;
  Outcome outcome_of(int result) noexcept;
  Outcome fail(TlsFailure failure, const char* text) noexcept;
  Outcome fail_as_told() noexcept;

  const TlsCredentials* credentials_ = nullptr;
  std::span<std::byte> input_;
  std::span<std::byte> output_;
  size_t input_begin_ = 0;
  size_t input_end_ = 0;
  size_t output_begin_ = 0;
  size_t output_end_ = 0;
  bool is_established_ = false;
  bool has_ended_ = false;    // nothing more arrives
  bool has_met_end_ = false;  // and the library knows
  bool is_reading_ = false;
  bool waits_for_input_ = false;
  uint64_t read_bytes_ = 0;
  uint64_t key_change_count_ = 0;    // the peer's
  const char* stop_text_ = nullptr;  // why nothing of the peer is taken any more
  TlsFailure failure_ = TlsFailure::kNone;
  const char* failure_text_ = nullptr;
  ssl_st* session_ = nullptr;  // nullptr once begun: there was no memory for it
};

}  // namespace bedplate
