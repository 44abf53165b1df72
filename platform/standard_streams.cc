#include "platform/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

namespace bedplate {
namespace {

constexpr const char* kNull = "/dev/null";

constinit bool stream_stands_in[STDERR_FILENO + 1] = {};

int open_stand_in(int stream) noexcept {
  const int file = open(kNull, stream == STDIN_FILENO ? O_RDONLY : O_WRONLY);
  return file >= 0 ? file : open("/", O_PATH);
}

}  // namespace

void hold_standard_streams() noexcept {
  // In this order each open() gets the missing number: it is the lowest free one.
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    const int opened = open_stand_in(stream);
    stream_stands_in[stream] = opened == stream;
    if (opened > stream) close(opened);  // another thread was faster
  }
}

bool stands_in(int stream) noexcept { return stream_stands_in[stream]; }

}  // namespace bedplate
