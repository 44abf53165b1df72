// The serial line of [control]: opened at boot, while root's rights are there, and again each time
// that it broke. The log is told once that it is gone, and once that it is back.
#pragma once

#include <cstdint>
#include <string>

#include "apps/boot/standing_line.h"
#include "platform/counter.h"
#include "platform/file.h"
#include "platform/log_limit.h"
#include "platform/result.h"
#include "platform/serial_line.h"

namespace bedplate {

class ControlLine final : public StandingLine {
 public:
  ControlLine() noexcept = default;
  ~ControlLine() override { close_serial_line(&fd_); }

  // Opens it for the first time. Errors: those of open_serial_line. Threads: the main thread.
  Result<void> begin(std::string path, uint32_t baud);
  // Where losses are counted. Before the thread of the connections is made.
  void count_in(Counter* losses) noexcept { losses_ = losses; }

  Fd open() noexcept override;
  void lost(int error_number) noexcept override;
  void drop_output(int fd) noexcept override { drop_serial_output(fd); }
  void close(Fd* fd) noexcept override { close_serial_line(fd); }

 private:
  static constexpr uint32_t kLinesMax = 2;  // of the log, in a minute, that it is gone

  std::string path_;
  uint32_t baud_ = kSerialBaud;
  Counter* losses_ = nullptr;
  Fd fd_;                 // not handed out yet
  bool is_lost_ = false;  // the log was told that it broke
  bool is_told_ = false;  // the log was told why it cannot be opened
  LogLimit limit_{kLinesMax, 60 * kNsPerSecond};
};

}  // namespace bedplate
