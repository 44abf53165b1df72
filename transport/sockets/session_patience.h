// How long a server waits for the peer of a StreamSession: for the rest of a request, for its
// replies to be taken, for the next request.
//
// Its owner calls look() every so often; a request costs nothing. So a time is known as exactly as
// the looks are frequent. Threads: the session's.
#pragma once

#include <algorithm>
#include <cstdint>

#include "platform/units.h"
#include "transport/sockets/stream_session_datapath.h"

namespace bedplate {

// 0: no limit.
struct PatienceLimits {
  // From the beginning of a request to its end, and between two times that the peer takes bytes of
  // replies. A layer limits the time of its handshakes itself.
  uint64_t slow_ns_max = 0;
  uint64_t idle_ns_max = 0;  // between requests

  bool are_any() const noexcept { return slow_ns_max > 0 || idle_ns_max > 0; }
};

// For services that people and monitors ask now and then.
inline constexpr PatienceLimits kUsualPatience = {.slow_ns_max = 10 * kNsPerSecond,
                                                  .idle_ns_max = 120 * kNsPerSecond};

// kLate: a request is not complete in time. kSlow: the peer does not take its replies. kIdle: no
// request has come for too long.
enum class PatienceVerdict : uint8_t { kPatient, kLate, kSlow, kIdle };

class SessionPatience {
 public:
  // The state of the session's connection. `taken_ns`: LayeredSocket::taken_ns().
  struct Connection {
    bool is_sending = false;
    bool is_in_handshake = false;
    uint64_t taken_ns = 0;
  };

  // A new peer has come, or the present one gets all its time again.
  void begin(uint64_t now_ns) noexcept {
    begun_ns_ = since_ns_ = now_ns;
    kind_ = Kind::kIdle;
  }
  PatienceVerdict look(uint64_t now_ns, const PatienceLimits& limits, const StreamSession& session,
                       const Connection& connection) noexcept {
    const StreamSession::Progress progress = session.progress();
    const Kind kind = kind_of(session, progress, connection);
    if (kind != kind_ || progress.steps != steps_ || kind == Kind::kWaits) since_ns_ = now_ns;
    kind_ = kind;
    steps_ = progress.steps;
    if (kind == Kind::kSends) since_ns_ = std::max(since_ns_, connection.taken_ns);
    const uint64_t limit_ns = kind == Kind::kWaits  ? 0
                              : kind == Kind::kIdle ? limits.idle_ns_max
                                                    : limits.slow_ns_max;
    if (limit_ns == 0 || now_ns < since_ns_ + limit_ns) return PatienceVerdict::kPatient;
    if (kind == Kind::kIdle) return PatienceVerdict::kIdle;
    return kind == Kind::kRequests ? PatienceVerdict::kLate : PatienceVerdict::kSlow;
  }

  // Whether the peer waits for nothing, and has begun nothing.
  static bool is_idle(const StreamSession& session, const Connection& connection) noexcept {
    return kind_of(session, session.progress(), connection) == Kind::kIdle;
  }
  // The time of the last bytes; of the beginning, if none have come.
  uint64_t heard_ns(const StreamSession& session) const noexcept {
    return std::max(begun_ns_, session.progress().received_ns);
  }

 private:
  // The state of a connection: it sends replies; it waits for something else than its peer, or for
  // a handshake; it receives a request; or nothing of that.
  enum class Kind : uint8_t { kIdle, kSends, kWaits, kRequests };

  static Kind kind_of(const StreamSession& session, const StreamSession::Progress& progress,
                      const Connection& connection) noexcept {
    if (connection.is_in_handshake) return Kind::kWaits;
    if (connection.is_sending) return Kind::kSends;
    if (session.is_waiting()) return Kind::kWaits;
    return progress.has_begun && !session.is_over() ? Kind::kRequests : Kind::kIdle;
  }

  uint64_t begun_ns_ = 0;
  uint64_t since_ns_ = 0;  // when this began that has lasted at all looks since
  uint32_t steps_ = 0;     // at the last look
  Kind kind_ = Kind::kIdle;
};

}  // namespace bedplate
