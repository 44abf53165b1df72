#include "apps/boot/listeners.h"

#include <cstdlib>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace bedplate {
namespace {

constexpr int kFirstActivatedFd = 3;  // SD_LISTEN_FDS_START
constexpr int kActivatedMax = 8;

Error activation_error(const char* answer) {
  Error error;
  error.set_doing("taking over activated sockets");
  error.set_answer("%s", answer);
  error.set_cure("start it by socket activation (a systemd socket unit, `nbdinfo [ bedplate run "
                 "CONFIG ]`), or remove \"activation:\" from [blockd] listen");
  return error;
}

long number_in_environment(const char* name) {
  const char* text = getenv(name);
  return text == nullptr ? -1 : std::strtol(text, nullptr, 10);
}

bool is_listening_stream(int fd) {
  int value = 0;
  socklen_t bytes = sizeof value;
  const bool listens = getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &bytes) == 0 && value;
  bytes = sizeof value;
  return listens && getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &bytes) == 0 &&
         value == SOCK_STREAM;
}

}  // namespace

Listeners::~Listeners() {
  for (const std::string& path : paths_) unlink(path.c_str());
}

void Listeners::take_activated(std::vector<Error>* problems) {
  if (number_in_environment("LISTEN_PID") != getpid()) {
    problems->push_back(activation_error("LISTEN_PID does not name this process"));
    return;
  }
  const long count = number_in_environment("LISTEN_FDS");
  if (count < 1 || count > kActivatedMax) {
    problems->push_back(activation_error("LISTEN_FDS is not a number from 1 to 8"));
    return;
  }
  for (int fd = kFirstActivatedFd; fd < kFirstActivatedFd + count; ++fd) {
    if (!is_listening_stream(fd)) {
      problems->push_back(activation_error("a descriptor passed is no listening stream socket"));
      return;
    }
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    sockets_.emplace_back(fd);
  }
}

void Listeners::open(const std::vector<SocketAddress>& addresses, std::vector<Error>* problems) {
  for (const SocketAddress& address : addresses) {
    if (address.kind == SocketAddress::Kind::kActivation) {
      take_activated(problems);
      continue;
    }
    auto socket = listen_at(address);
    if (!socket.ok()) {
      problems->push_back(socket.error());
      continue;
    }
    sockets_.push_back(socket.take());
    if (address.kind == SocketAddress::Kind::kUnix) paths_.push_back(address.path);
  }
}

}  // namespace bedplate
