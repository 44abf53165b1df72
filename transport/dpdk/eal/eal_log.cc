#include "transport/dpdk/eal/eal_log.h"

#include <cstdio>
#include <cstring>
#include <mutex>

#include <rte_log.h>

#include "platform/log.h"

namespace bedplate {
namespace {

constexpr size_t kLineBytes = 256;

std::mutex error_mutex;  // errors come from any thread; drivers' data paths log nothing
char last_error[kLineBytes];
char taken_error[kLineBytes];

void keep_error(const char* line) noexcept {
  const std::lock_guard lock(error_mutex);
  std::snprintf(last_error, sizeof last_error, "%s", line);
}

void write_one(const char* text, size_t bytes) noexcept {
  char line[kLineBytes];
  std::snprintf(line, sizeof line, "%.*s", static_cast<int>(bytes), text);
  const int level = rte_log_cur_msg_loglevel();
  if (level <= static_cast<int>(RTE_LOG_ERR)) {
    keep_error(line);
    BP_LOG_ERROR("dpdk: %s", line);
  } else if (level == static_cast<int>(RTE_LOG_WARNING)) {
    BP_LOG_WARNING("dpdk: %s", line);
  } else {
    BP_LOG_INFO("dpdk: %s", line);
  }
}

ssize_t write_lines(void*, const char* text, size_t bytes) noexcept {
  for (size_t begin = 0; begin < bytes;) {
    const void* end = std::memchr(text + begin, '\n', bytes - begin);
    const size_t line_bytes =
        end == nullptr ? bytes - begin
                       : static_cast<size_t>(static_cast<const char*>(end) - (text + begin));
    if (line_bytes > 0) write_one(text + begin, line_bytes);
    begin += line_bytes + 1;
  }
  return static_cast<ssize_t>(bytes);
}

}  // namespace

Result<void> open_eal_log() noexcept {
  cookie_io_functions_t functions = {};
  functions.write = [](void* cookie, const char* text, size_t bytes) -> ssize_t {
    return write_lines(cookie, text, bytes);
  };
  static std::FILE* const stream = fopencookie(nullptr, "w", functions);
  if (stream == nullptr) return error_from_errno("opening a stream for DPDK's log");
  rte_openlog_stream(stream);
  rte_log_set_global_level(RTE_LOG_NOTICE);
  return {};
}

const char* take_eal_error() noexcept {
  const std::lock_guard lock(error_mutex);
  std::snprintf(taken_error, sizeof taken_error, "%s", last_error);
  last_error[0] = '\0';
  return taken_error;
}

}  // namespace bedplate
