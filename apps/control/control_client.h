// The client's end of the control socket (docs/control.md): `bedplate ctl`, and whatever else asks
// an appliance from outside. One request goes, one line comes.
//
// Threads: any, each object one at a time. It blocks, up to the time limit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "apps/control/control_channel.h"
#include "platform/file.h"
#include "platform/result.h"
#include "platform/units.h"

namespace bedplate {

class ControlClient final : public ControlChannel {
 public:
  // So long nothing may come of an answer, or go of a request.
  static constexpr uint64_t kSilenceNs = 15 * kNsPerSecond;

  // Connects to the control socket at `path`. Errors (kSystem): nobody listens there, or this user
  // may not connect.
  static Result<ControlClient> connect(const std::string& path, uint64_t silence_ns = kSilenceNs);

  Result<std::string> ask(const std::string& method, const std::string& params = "{}") override;

 private:
  ControlClient(Fd fd, std::string name, uint64_t silence_ns) noexcept
      : fd_(std::move(fd)), name_(std::move(name)), silence_ns_(silence_ns) {}

  // Whether `fd_` is ready for `events` before the time is over.
  bool wait_for(short events) const noexcept;
  bool send(std::string_view text) const noexcept;
  Result<std::string> next_line(const std::string& method);
  Error failure(const std::string& method) const;

  Fd fd_;
  std::string name_;  // of what is asked, for messages
  uint64_t silence_ns_;
  std::string received_;  // and not returned
};

}  // namespace bedplate
