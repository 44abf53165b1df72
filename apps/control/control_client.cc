#include "apps/control/control_client.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "platform/clock.h"
#include "platform/product.h"
#include "platform/serial_line.h"
#include "platform/text.h"
#include "transport/sockets/socket_address.h"

namespace bedplate {
namespace {

constexpr size_t kAnswerLineBytesMax = 64 * kMiB;
constexpr size_t kShownBytesMax = 60;  // of a line that is not an answer
constexpr size_t kDepthMax = 64;
constexpr size_t kMembersMax = 10'000;  // of an object

Result<Fd> connected_to(const std::string& path) {
  SocketAddress address;
  address.kind = SocketAddress::Kind::kUnix;
  address.path = path;
  return start_connecting(address);
}

std::string random_id() {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number) {
    number = monotonic_ns() << 20 ^ static_cast<uint64_t>(getpid());
  }
  char text[24];
  std::snprintf(text, sizeof text, "%016llx-", static_cast<unsigned long long>(number));
  return text;
}

// The start of the line, printable.
std::string readable(std::string_view line) {
  while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
  return printable(line.substr(0, kShownBytesMax));
}

// Whether it is cheap enough to parse: values print recursively, and each key of an object is
// compared with all earlier keys. Text that is not JSON may pass.
bool is_bearable(std::string_view json) noexcept {
  size_t members[kDepthMax] = {};  // in each open object
  size_t depth = 0;
  bool is_text = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char each = json[i];
    if (each == '"') is_text = !is_text;
    if (is_text) {
      if (each == '\\') ++i;
    } else if (each == '{' || each == '[') {
      if (++depth == kDepthMax) return false;
      members[depth] = 0;
    } else if (each == '}' || each == ']') {
      if (depth > 0) --depth;
    } else if (each == ':' && ++members[depth] > kMembersMax) {
      return false;
    }
  }
  return true;
}

}  // namespace

ControlClient::ControlClient(Kind kind, Fd fd, std::string name, const ControlPatience& patience)
    : kind_(kind),
      fd_(std::move(fd)),
      name_(std::move(name)),
      patience_(patience),
      id_(random_id()) {}

ControlClient::~ControlClient() {
  if (kind_ == Kind::kSerialLine) close_serial_line(&fd_);
}

Result<ControlClient> ControlClient::connect(const std::string& path,
                                             const ControlPatience& patience) {
  auto connected = connected_to(path);
  if (!connected.ok()) {
    Error error = connected.error();
    return error.set_cure(
        "start it with [control] in its configuration; only root, its own user and the group of "
        "[control] may ask");
  }
  return ControlClient(Kind::kControlSocket, connected.take(), path, patience);
}

Result<ControlClient> ControlClient::connect_to_line(const std::string& path,
                                                     const ControlPatience& patience) {
  BP_TRY_ASSIGN(auto connected, connected_to(path));
  return ControlClient(Kind::kLineSocket, std::move(connected), path, patience);
}

Result<ControlClient> ControlClient::open_line(const std::string& path, uint32_t baud,
                                               const ControlPatience& patience) {
  BP_TRY_ASSIGN(auto opened, open_serial_line(path.c_str(), baud));
  return ControlClient(Kind::kSerialLine, std::move(opened), path, patience);
}

Result<std::string> ControlClient::ask(const std::string& method, const std::string& params) {
  Asked asked = {.method = method,
                 .id = id_ + std::to_string(++asked_count_),
                 .until_ns = monotonic_ns() + patience_.in_all_ns};
  // A name that is not UTF-8 names no method; the appliance answers so.
  const std::string name = nlohmann::ordered_json(method).dump(
      -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  // If this fails, the lines that the peer has already sent tell why.
  send("\n"
       R"({"jsonrpc":"2.0","id":")" +
           asked.id + R"(","method":)" + name + R"(,"params":)" + params + "}\n",
       asked.until_ns);
  while (true) {
    BP_TRY_ASSIGN(const auto line, next_line(asked));
    if (!is_bearable(line)) {
      asked.other = readable(line);
      continue;
    }
    const auto json = nlohmann::ordered_json::parse(line, nullptr, false);
    const bool is_answer = json.is_object() && (json.contains("result") || json.contains("error"));
    if (is_answer && json.contains("id") && json["id"] == asked.id) return line;
    if (is_answer && json.contains("error") && json.contains("id") && json["id"].is_null()) {
      const auto& error = json["error"];
      const bool has_message =
          error.is_object() && error.contains("message") && error["message"].is_string();
      asked.complaint = has_message ? printable(error["message"].get_ref<const std::string&>())
                                    : "an error without a message";
    } else if (std::string other = readable(line); !other.empty()) {
      asked.other = std::move(other);
    }
  }
}

bool ControlClient::wait_for(short events, uint64_t until_ns) const noexcept {
  const uint64_t deadline_ns = std::min(until_ns, monotonic_ns() + patience_.silence_ns);
  pollfd polled = {fd_.number(), events, 0};
  while (true) {
    const uint64_t now_ns = monotonic_ns();
    const uint64_t left_ns = now_ns < deadline_ns ? deadline_ns - now_ns : 0;
    const int ready = poll(&polled, 1, static_cast<int>((left_ns + 999'999) / 1'000'000));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

bool ControlClient::send(std::string_view text, uint64_t until_ns) const noexcept {
  while (!text.empty()) {
    const ssize_t sent = kind_ == Kind::kSerialLine
                             ? write(fd_.number(), text.data(), text.size())
                             : ::send(fd_.number(), text.data(), text.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      text.remove_prefix(static_cast<size_t>(sent));
    } else if (errno != EINTR && (errno != EAGAIN || !wait_for(POLLOUT, until_ns))) {
      return false;
    }
  }
  return true;
}

// Bytes that arrived in time count even if this thread was not scheduled then: once the time is
// over, it reads one last time, all that there is.
Result<std::string> ControlClient::next_line(Asked& asked) {
  size_t looked = 0;
  while (true) {
    if (const size_t end = received_.find('\n', looked); end != received_.npos) {
      std::string line = received_.substr(0, end + 1);
      received_.erase(0, end + 1);
      return line;
    }
    looked = received_.size();
    if (looked > kAnswerLineBytesMax) return failure(asked, "its reply is not a valid answer");
    if (asked.is_over || !wait_for(POLLIN, asked.until_ns)) {
      return failure(asked, "it did not answer in time");
    }
    asked.is_over = monotonic_ns() >= asked.until_ns;
    int there = 0;
    ioctl(fd_.number(), FIONREAD, &there);
    std::string piece(static_cast<size_t>(std::max(there, 1)), '\0');  // 0: its end
    const ssize_t got = read(fd_.number(), piece.data(), piece.size());
    if (got > 0) {
      received_.append(piece, 0, static_cast<size_t>(got));
      continue;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) {
      const int number = errno;
      return failure(asked, Error().set_answer_errno(number).answer);
    }
    return failure(
        asked, kind_ == Kind::kSerialLine ? "the line was hung up" : "it closed the connection");
  }
}

// "asking NAME for METHOD". An answer by the peer, if any, says more than a timeout.
Error ControlClient::failure(const Asked& asked, const char* answer) const {
  Error error = error_while("asking %s for %s", name_.c_str(), asked.method.c_str());
  // On a line the complaint is usually about an earlier client's leftovers.
  if (!asked.complaint.empty() && kind_ == Kind::kControlSocket) {
    return error.set_answer("%s", asked.complaint.c_str());
  }
  const std::string other = !asked.complaint.empty() ? asked.complaint
                            : asked.other.empty()    ? readable(received_)
                                                     : asked.other;
  if (other.empty()) error.set_answer("%s", answer);
  if (!other.empty()) error.set_answer("%s; received: %s", answer, other.c_str());
  switch (kind_) {
    case Kind::kControlSocket: return error.set_cure("see its log, and `%s top`", product().name);
    case Kind::kLineSocket:
      return error.set_cure(
          "for an appliance's own socket, see its log; for one that leads to a serial line, check "
          "that the other end's [control] has that line as `serial`, and that nobody else uses it");
    case Kind::kSerialLine:
      return error.set_cure("check that the other end's [control] has this line as `serial`, at "
                            "the same `serial_baud`");
  }
  return error;
}

}  // namespace bedplate
