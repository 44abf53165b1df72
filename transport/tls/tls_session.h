// TlsSession: the server's end of one TLS connection, without a socket. Received bytes lie in one
// buffer, bytes to send in another, and nothing here waits.
//
// A handshake needs computation: handshake() takes the calling thread some milliseconds in all. The
// library allocates then (for the owner of the credentials); if it cannot, the session fails and
// nothing else does. Later reads and writes allocate nothing, except for a change of keys, and a
// peer may make only a few of those (TLS 1.3). The session has no timeout: the owner of the socket
// ends a handshake that takes too long.
//
// Invariants, which is_valid() looks at around each call: 1. Received bytes lie within the input,
// and bytes to send within the output, which starts afresh once all is sent. 2. The library sees
// the end of input only after everything that arrived before it. 3. A session that was begun has an
// object of the library's, or has failed; one that has ended has none. 4. A failed session has a
// reason. And: 5. The input is used up whenever more is asked for (kMore; handshake, read). 6. A
// failed session stays so, for the first reason (fail). 7. Nothing arrives after the end (arrived).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/tls/tls_credentials.h"

struct bio_st;

namespace bedplate {

// Why a session ended early.
enum class TlsFailure : uint8_t {
  kNone,
  // The peer sent no TLS or altered data, renegotiated, or changed its keys too often.
  kProtocol,
  kCredentials,  // an unknown certificate or key, or no cipher in common
  kRefused,      // the peer rejects our credentials
  kMemory,       // the memory limit of the credentials' owner is reached
  kGone,         // the peer left during the handshake
  kLate,         // give_up()
};
const char* to_text(TlsFailure failure) noexcept;

// Threads: one at a time. Ownership: from begin() on, the buffers and the credentials outlive it.
class TlsSession {
 public:
  static constexpr size_t kTextMaxBytes = 16 * 1024;  // of one record
  // The most bytes that kTextMaxBytes of text become: the cipher's additions to each of 32 records,
  // if the peer asks for short ones (RFC 6066), and messages that may have to go first.
  static constexpr size_t kRecordMaxBytes = kTextMaxBytes + 1536;
  static constexpr size_t kBufferMinBytes = 2 * kRecordMaxBytes;
  // The limit on changes of keys by the peer: this many, and one more for each so many bytes of its
  // data. Libraries change keys after some millions of records.
  static constexpr uint64_t kKeyChangesMin = 16;
  static constexpr uint64_t kBytesForAKeyChange = 16 * 1024 * 1024;

  enum class Outcome : uint8_t {
    kDone,    // something moved; or the handshake is complete
    kMore,    // call again when more has arrived, or output was sent
    kEnded,   // the peer has announced its end, or has closed
    kFailed,  // failure() has the reason; the output must still be sent
  };

  // The table of functions by which the library's sessions access their buffers; the caller frees
  // it (BIO_meth_free), after the sessions. nullptr: no memory.
  static bio_method_st* make_transport() noexcept;

  TlsSession() noexcept = default;
  ~TlsSession() { end(); }
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Begins with a new peer. Requires: !is_begun(); each buffer has at least kBufferMinBytes. If
  // memory runs out the session fails at handshake().
  void begin(const TlsCredentials& credentials, std::span<std::byte> input,
             std::span<std::byte> output) noexcept;
  // Frees everything that the session allocated.
  void end() noexcept;
  bool is_begun() const noexcept { return credentials_ != nullptr; }

  // The space for received bytes: all of the input if it is used up, else none.
  std::span<std::byte> input_room() const noexcept {
    return input_begin_ == input_end_ ? input_ : std::span<std::byte>();
  }
  // Tells that `bytes` have arrived there; 0: the peer has closed. Requires: input_room() is not
  // empty; 0 was not told before.
  void arrived(size_t bytes) noexcept;

  // The bytes to send next; they stay unchanged until sent().
  std::span<const std::byte> pending() const noexcept {
    return output_.subspan(output_begin_, output_end_ - output_begin_);
  }
  // Tells that the first `bytes` of pending() are sent. Meanwhile more may have been added after
  // them.
  void sent(size_t bytes) noexcept;

  // Continues the handshake. Requires: it is not complete.
  Outcome handshake() noexcept;
  bool is_established() const noexcept { return is_established_; }
  // The handshake takes too long: the session has failed, unless it had failed before. Requires: it
  // is not complete.
  void give_up() noexcept;

  // The result of read() and write(): `bytes` were moved to or from `memory`.
  struct Moved {
    size_t bytes = 0;
    Outcome outcome = Outcome::kDone;
  };
  // Any outcome may come with bytes. Requires: is_established().
  Moved read(std::span<std::byte> memory) noexcept;
  // Writes as much of `memory` as the output has space for, in whole records; nothing while the
  // peer is in the middle of a message about its keys (waits_for_input). Requires:
  // is_established().
  Moved write(std::span<const std::byte> memory) noexcept;
  // Whether the last write() waits for input, not for space.
  bool waits_for_input() const noexcept { return waits_for_input_; }
  // Announces our end to the peer, if there is space for it.
  void close_notify() noexcept;

  TlsFailure failure() const noexcept { return failure_; }
  // The reason for the failure, for people; static. kMemory: the heap owner's name. Requires: it
  // has failed.
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
  bool has_met_end_ = false;  // the library has seen the end
  bool is_reading_ = false;
  bool waits_for_input_ = false;
  uint64_t read_bytes_ = 0;
  uint64_t key_change_count_ = 0;    // by the peer
  const char* stop_text_ = nullptr;  // why input of the peer is no longer processed
  TlsFailure failure_ = TlsFailure::kNone;
  const char* failure_text_ = nullptr;
  ssl_st* session_ = nullptr;  // nullptr after begin(): no memory
};

}  // namespace bedplate
