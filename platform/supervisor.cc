#include "platform/supervisor.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <limits>

#include <unistd.h>

#include "platform/environment.h"
#include "platform/text_words.h"
#include "platform/units.h"

namespace bedplate {
namespace {

constexpr char kSocket[] = "NOTIFY_SOCKET";
constexpr char kWatchdogTime[] = "WATCHDOG_USEC";
constexpr char kWatchdogProcess[] = "WATCHDOG_PID";
constexpr size_t kMessageBytesMax = 512;

// 0: there is none, or it is no number.
uint64_t number_in(const char* name) noexcept {
  const char* text = environment_text(name);
  uint64_t number = 0;
  return text != nullptr && parse_number(text, &number) ? number : 0;
}

// The watchdog's period, or 0 if the variables were inherited from the process that is watched.
uint64_t watchdog_time_ns() noexcept {
  const uint64_t process = number_in(kWatchdogProcess);
  if (process != 0 && process != static_cast<uint64_t>(getpid())) return 0;
  return std::min(number_in(kWatchdogTime), std::numeric_limits<uint64_t>::max() / kNsPerUs) *
         kNsPerUs;
}

}  // namespace

Result<void> Supervisor::open() noexcept {
  const char* name = environment_text(kSocket);
  Result<void> connected;
  if (name != nullptr && *name != '\0') connected = connect_to(name);
  if (is_there()) watchdog_ns_ = watchdog_time_ns();
  for (const char* each : {kSocket, kWatchdogTime, kWatchdogProcess}) forget_environment_text(each);
  return connected;
}

Result<void> Supervisor::connect_to(const char* name) noexcept {
  Error error =
      error_while("looking for the supervisor at NOTIFY_SOCKET=%s", name)
          .set_cure("unset NOTIFY_SOCKET, or set it to a socket that this user may write to");
  const size_t name_bytes = std::strlen(name);
  if ((*name != '/' && *name != '@') || name_bytes >= sizeof address_.sun_path) {
    return error.set_answer("it begins neither with / nor with @, or is longer than %zu bytes",
                            sizeof address_.sun_path - 1);
  }
  address_.sun_family = AF_UNIX;
  std::memcpy(address_.sun_path, name, name_bytes);
  // A leading @ stands for the zero byte of the abstract namespace.
  if (*name == '@') address_.sun_path[0] = '\0';
  address_bytes_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name_bytes);
  Fd made(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!made.is_open() ||
      connect(made.number(), reinterpret_cast<const sockaddr*>(&address_), address_bytes_) != 0) {
    return error.set_answer_errno(errno);
  }
  socket_ = std::move(made);
  return {};
}

bool Supervisor::send(const char* format, ...) noexcept {
  if (!is_there()) return false;
  char text[kMessageBytesMax];
  va_list values;
  va_start(values, format);
  const int bytes = std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  if (bytes <= 0) return false;
  const size_t text_bytes = std::min(static_cast<size_t>(bytes), sizeof text - 1);
  const auto try_send = [&] {
    return ::send(socket_.number(), text, text_bytes, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
  };
  if (try_send()) return true;
  // The supervisor was restarted, and may have a new socket of the same name.
  const bool is_gone = errno == ECONNREFUSED || errno == ENOTCONN;
  return is_gone &&
         connect(socket_.number(), reinterpret_cast<const sockaddr*>(&address_), address_bytes_) ==
             0 &&
         try_send();
}

bool Supervisor::status(const char* text, uint64_t patience_ns) noexcept {
  return send("EXTEND_TIMEOUT_USEC=%" PRIu64 "\nSTATUS=%s", patience_ns / kNsPerUs, text);
}

bool Supervisor::stopping(uint64_t patience_ns) noexcept {
  return send("STOPPING=1\nEXTEND_TIMEOUT_USEC=%" PRIu64 "\nSTATUS=draining",
              patience_ns / kNsPerUs);
}

}  // namespace bedplate
