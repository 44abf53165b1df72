// Asks the kernel whether a thread sleeps. The bell's word is no proof: a sender may have cleared
// it and been stopped before it woke the sleeper.
#pragma once

#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace bedplate::strain {

// `stat_path`: /proc/PID/stat, or the same file of a thread.
inline bool is_asleep_in_kernel(const char* stat_path) noexcept {
  char text[256];
  const int fd = open(stat_path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t bytes = read(fd, text, sizeof text - 1);
  close(fd);
  text[bytes > 0 ? bytes : 0] = '\0';
  const char* name_end = std::strrchr(text, ')');
  return name_end != nullptr && name_end[2] == 'S';
}

}  // namespace bedplate::strain
