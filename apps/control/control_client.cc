#include "apps/control/control_client.h"

#include <cerrno>
#include <string>

#include <poll.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>

#include "platform/clock.h"
#include "transport/socket_address.h"

namespace bedplate {

Result<ControlClient> ControlClient::connect(const std::string& path, uint64_t silence_ns) {
  SocketAddress address;
  address.kind = SocketAddress::Kind::kUnix;
  address.path = path;
  auto connected = start_connecting(address);
  if (!connected.ok()) {
    Error error = connected.error();
    return error.set_cure("does it run, and has its configuration [control]? Root and its own user "
                          "may ask, and the group that [control] names");
  }
  return ControlClient(connected.take(), path, silence_ns);
}

Result<std::string> ControlClient::ask(const std::string& method, const std::string& params) {
  // What is no UTF-8 is no method's name: the appliance says so.
  const std::string name = nlohmann::ordered_json(method).dump(
      -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  const std::string request =
      R"({"jsonrpc":"2.0","id":1,"method":)" + name + R"(,"params":)" + params + "}\n";
  send(request);  // where it fails, what was said before tells why
  return next_line(method);
}

bool ControlClient::wait_for(short events) const noexcept {
  const uint64_t deadline_ns = monotonic_ns() + silence_ns_;
  pollfd polled = {fd_.number(), events, 0};
  while (true) {
    const uint64_t now_ns = monotonic_ns();
    const uint64_t left_ns = now_ns < deadline_ns ? deadline_ns - now_ns : 0;
    const int ready = poll(&polled, 1, static_cast<int>((left_ns + 999'999) / 1'000'000));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

bool ControlClient::send(std::string_view text) const noexcept {
  while (!text.empty()) {
    const ssize_t sent = ::send(fd_.number(), text.data(), text.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      text.remove_prefix(static_cast<size_t>(sent));
    } else if (errno != EAGAIN || !wait_for(POLLOUT)) {
      return false;
    }
  }
  return true;
}

Result<std::string> ControlClient::next_line(const std::string& method) {
  char piece[16 * 1024];
  size_t looked = 0;
  while (true) {
    if (const size_t end = received_.find('\n', looked); end != received_.npos) {
      std::string line = received_.substr(0, end + 1);
      received_.erase(0, end + 1);
      return line;
    }
    looked = received_.size();
    const bool is_ready = wait_for(POLLIN);
    const ssize_t got = is_ready ? recv(fd_.number(), piece, sizeof piece, 0) : -1;
    if (got > 0) {
      received_.append(piece, static_cast<size_t>(got));
      continue;
    }
    if (is_ready && got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    Error error = failure(method);
    if (!is_ready) {
      error.set_answer("it has not answered in %u s",
                       static_cast<unsigned>(silence_ns_ / kNsPerSecond));
    } else if (got < 0) {
      error.set_answer_errno(errno);
    } else {
      error.set_answer("it ended the connection");
    }
    return error.set_cure("see its log, and `bedplate top`");
  }
}

// "asking NAME for METHOD".
Error ControlClient::failure(const std::string& method) const {
  Error error;
  return error.set_doing("asking %s for %s", name_.c_str(), method.c_str());
}

}  // namespace bedplate
