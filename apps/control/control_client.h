// The client's end of [control] (docs/control.md), for `bedplate ctl` and other programs that query
// an appliance from outside: over its socket, a serial line, or a socket connected to one. Each
// request gets one line as its answer.
//
// An earlier client may have left a request incomplete. So each request follows an empty line and
// has a unique id, and answers with other ids are skipped. Threads: any, one at a time for each
// object. It blocks, up to the time limits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "apps/control/control_channel.h"
#include "platform/file.h"
#include "platform/result.h"
#include "platform/units.h"

namespace bedplate {

struct ControlPatience {
  // Time without a byte received, or a byte of the request accepted.
  uint64_t silence_ns = 15 * kNsPerSecond;
  // Time for a request and its whole answer, including answers to others that come before it.
  uint64_t in_all_ns = 300 * kNsPerSecond;
};

class ControlClient final : public ControlChannel {
 public:
  // Connects to the control socket at `path`. Errors (kSystem): no process listens there, or this
  // user may not connect.
  static Result<ControlClient> connect(const std::string& path,
                                       const ControlPatience& patience = {});
  // The same for a Unix socket in front of a serial line, such as QEMU offers for a guest's line.
  static Result<ControlClient> connect_to_line(const std::string& path,
                                               const ControlPatience& patience = {});
  // Opens a serial line for this process alone. Requires: is_serial_baud(baud). Errors: those of
  // open_serial_line().
  static Result<ControlClient> open_line(const std::string& path, uint32_t baud,
                                         const ControlPatience& patience = {});

  ControlClient(ControlClient&&) noexcept = default;
  ControlClient& operator=(ControlClient&&) = delete;
  ~ControlClient() override;

  Result<std::string> ask(const std::string& method, const std::string& params = "{}") override;

 private:
  enum class Kind : uint8_t { kControlSocket, kLineSocket, kSerialLine };
  // The state of one request; times are monotonic_ns().
  struct Asked {
    const std::string& method;
    std::string id;
    uint64_t until_ns;
    bool is_over = false;        // the time limit has passed; no read follows the present one
    std::string complaint = {};  // an error answered without an id
    std::string other = {};      // the last line that is not an answer to it
  };

  ControlClient(Kind kind, Fd fd, std::string name, const ControlPatience& patience);

  // Whether `fd_` becomes ready for `events` before `until_ns`, and within the time for silence.
  bool wait_for(short events, uint64_t until_ns) const noexcept;
  bool send(std::string_view text, uint64_t until_ns) const noexcept;
  Result<std::string> next_line(Asked& asked);
  Error failure(const Asked& asked, const char* answer) const;

  Kind kind_;
  Fd fd_;
  std::string name_;  // the peer's name, for messages
  ControlPatience patience_;
  std::string id_;  // the prefix of all ids of this client
  uint64_t asked_count_ = 0;
  std::string received_;  // received bytes not returned yet
};

}  // namespace bedplate
