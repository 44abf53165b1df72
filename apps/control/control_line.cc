#include "apps/control/control_line.h"

#include <string>
#include <utility>

#include "platform/log.h"

namespace bedplate {

Result<void> ControlLine::begin(std::string path, uint32_t baud) {
  path_ = std::move(path);
  baud_ = baud;
  is_lost_ = is_told_ = false;
  BP_TRY_ASSIGN(fd_, open_serial_line(path_.c_str(), baud_));
  return {};
}

Fd ControlLine::open() noexcept {
  if (fd_.is_open()) return std::move(fd_);
  auto opened = open_serial_line(path_.c_str(), baud_);
  if (!opened.ok()) {
    if (!is_told_ && limit_.try_pass("the control line")) {
      log_error(opened.error());
      is_told_ = true;
    }
    return Fd();
  }
  // Not limited: it only follows a message about the loss, which is limited.
  if (is_lost_ || is_told_) {
    BP_LOG_INFO("control: the serial line %s is available again", path_.c_str());
  }
  is_lost_ = is_told_ = false;
  return opened.take();
}

void ControlLine::lost(int error_number) noexcept {
  losses_->add(1);
  if (!limit_.try_pass("the control line")) return;
  is_lost_ = true;
  Error error = error_while("control: using the serial line %s", path_.c_str());
  if (error_number != 0) error.set_answer_errno(error_number);
  if (error_number == 0) error.set_answer("it was hung up");
  log_error(error.set_cure("it is reopened once a second, until that succeeds"));
}

}  // namespace bedplate
