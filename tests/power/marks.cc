#include "tests/power/marks.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace bedplate::power {

void fail(const std::string& what) {
  std::fprintf(stderr, "power-traffic: %s: %s\n", what.c_str(), std::strerror(errno));
  std::_Exit(1);
}

Marks::Marks(const std::string& where) {
  if (where.starts_with("dm:")) {
    device_ = where.substr(3);
    fd_ = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);
    if (fd_ < 0) fail("opening /dev/mapper/control");
    return;
  }
  const size_t log = std::strlen("file:"), to = where.find(':', log);
  if (!where.starts_with("file:") || to == std::string::npos) fail("reading " + where);
  fd_ = open(where.substr(log, to - log).c_str(), O_RDONLY | O_CLOEXEC);
  to_ = std::fopen(where.substr(to + 1).c_str(), "we");
  if (fd_ < 0 || to_ == nullptr) fail("opening " + where);
}

Marks::~Marks() {
  close(fd_);
  if (to_ != nullptr && std::fclose(to_) != 0) fail("writing the marks");
}

void Marks::add(const std::string& text) {
  const std::lock_guard hold(lock_);
  if (to_ != nullptr) {
    struct stat status {};
    if (fstat(fd_, &status) != 0) fail("looking at the log");
    std::fprintf(to_, "%lld %s\n", static_cast<long long>(status.st_size), text.c_str());
    return;
  }
  const std::string message = "mark " + text;
  alignas(dm_ioctl) char memory[512] = {};
  dm_ioctl header{};
  header.version[0] = DM_VERSION_MAJOR;
  header.data_size = sizeof memory;
  header.data_start = sizeof header;
  std::memcpy(header.name, device_.c_str(), std::min(device_.size(), sizeof header.name - 1));
  std::memcpy(memory, &header, sizeof header);
  // A dm_target_msg: the sector 0, and the words.
  const size_t at = sizeof header + offsetof(dm_target_msg, message);
  if (message.size() >= sizeof memory - at) fail("making a mark of " + text);
  std::memcpy(memory + at, message.c_str(), message.size() + 1);
  if (ioctl(fd_, DM_TARGET_MSG, memory) != 0) fail("marking the log of " + device_);
}

}  // namespace bedplate::power
