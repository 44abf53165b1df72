// The serial line of [control]. It is opened at boot, with root's rights, and again after each
// break, with the rights that the process has then. It logs losses and failures to reopen the line,
// at most two a minute, and each recovery from a logged one.
#pragma once

#include <cstdint>
#include <string>

#include "platform/counter.h"
#include "platform/file.h"
#include "platform/log_limit.h"
#include "platform/result.h"
#include "platform/serial_line.h"
#include "transport/sockets/standing_line.h"

namespace bedplate {

class ControlLine final : public StandingLine {
 public:
  ControlLine() noexcept = default;
  ~ControlLine() override { close_serial_line(&fd_); }

  // Opens the line for the first time. Errors: those of open_serial_line. Threads: the main thread.
  Result<void> begin(std::string path, uint32_t baud);
  // Sets the counter of losses, which lost() needs. Before the line is served.
  void count_in(Counter* losses) noexcept { losses_ = losses; }

  Fd open() noexcept override;
  void lost(int error_number) noexcept override;
  void drop_output(int fd) noexcept override { drop_serial_output(fd); }
  void close(Fd* fd) noexcept override { close_serial_line(fd); }

 private:
  static constexpr uint32_t kLinesMax = 2;  // logged errors per minute

  std::string path_;
  uint32_t baud_ = kSerialBaud;
  Counter* losses_ = nullptr;
  Fd fd_;                 // from begin() until open() hands it out
  bool is_lost_ = false;  // the loss is logged
  bool is_told_ = false;  // the reason why it cannot be opened is logged
  LogLimit limit_{kLinesMax, 60 * kNsPerSecond};
};

}  // namespace bedplate
