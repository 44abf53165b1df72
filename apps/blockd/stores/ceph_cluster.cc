#include "apps/blockd/stores/ceph_cluster.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/file.h"
#include "platform/progress.h"
#include "platform/secret_file.h"

namespace bedplate {
namespace {

constexpr size_t kKeyringBytesMax = 64 * 1024;
constexpr size_t kKeyBytesMax = 128;
// A monitor sends this first (src/include/msgr.h of Ceph, CEPH_BANNER). With the newer protocol it
// sends "ceph v2\n".
constexpr std::string_view kBanner = "ceph v027";
constexpr std::string_view kNewBanner = "ceph v2\n";

Error reading(const std::string& path, const std::string& user) {
  return error_while("reading the key of client.%s in %s", user.c_str(), path.c_str());
}

std::string_view trimmed(std::string_view text) noexcept {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

bool is_base64(std::string_view text) noexcept {
  const auto is_digit = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '/' || c == '=';
  };
  return !text.empty() && text.size() <= kKeyBytesMax && text.size() % 4 == 0 &&
         std::all_of(text.begin(), text.end(), is_digit);
}

// The value of `key` in the section `section`, as a view into `text`: a copy would have to be
// wiped, too. Nothing: no such section, or no such key in it.
std::optional<std::string_view> find_key(std::string_view text, const std::string& section,
                                         bool* has_section) {
  bool is_inside = false;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view words = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (words.empty() || words[0] == '#' || words[0] == ';') continue;
    if (words[0] == '[') {
      is_inside = words == "[" + section + "]";
      *has_section |= is_inside;
      continue;
    }
    const size_t equals = words.find('=');
    if (!is_inside || equals == words.npos || trimmed(words.substr(0, equals)) != "key") continue;
    return trimmed(words.substr(equals + 1));
  }
  return std::nullopt;
}

// A monitor that is being asked.
struct Monitor {
  Fd socket;
  std::string seen = {};  // the part of its banner received so far
};

// A monitor's answer; kNone: it has not sent enough yet.
enum class Answer : uint8_t { kNone, kGood, kNewer, kOther, kBroken };

// Requires: the socket is readable or has an error. `*number`: the errno of kBroken.
Answer read_banner(Monitor& monitor, int* number) {
  char text[16];
  const size_t wanted = kBanner.size() - monitor.seen.size();
  const ssize_t bytes = read(monitor.socket.number(), text, wanted);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return Answer::kNone;
  if (bytes <= 0) {
    *number = bytes == 0 ? ECONNRESET : errno;
    return Answer::kBroken;
  }
  monitor.seen.append(text, static_cast<size_t>(bytes));
  if (monitor.seen.starts_with(kNewBanner)) return Answer::kNewer;
  if (monitor.seen == kBanner) return Answer::kGood;
  return kBanner.starts_with(monitor.seen) ? Answer::kNone : Answer::kOther;
}

Result<void> wait_for_one(const std::vector<SocketAddress>& monitors, uint64_t timeout_ns) {
  Error error =
      error_while("asking the Ceph monitors %s", ceph_monitor_list(monitors).c_str())
          .set_answer("none answered within %llu s",
                      static_cast<unsigned long long>(timeout_ns / kNsPerSecond))
          .set_cure(
              "check that they run and can be reached from here (ceph -s), and that these are "
              "their v1 addresses (ceph mon dump)");
  const uint64_t end_ns = monotonic_ns() + timeout_ns;
  Progress progress("waiting for a Ceph monitor", {.wait_max_ns = timeout_ns});
  std::vector<Monitor> left;
  std::vector<pollfd> wanted;
  for (const SocketAddress& address : monitors) {
    auto socket = start_connecting(address);
    if (!socket.ok()) {
      error.set_answer("%s", socket.error().answer);
      continue;
    }
    left.push_back({socket.take()});
    wanted.push_back({left.back().socket.number(), POLLIN, 0});
  }
  for (size_t left_count = left.size(); left_count != 0;) {
    const uint64_t now_ns = monotonic_ns();
    if (now_ns >= end_ns) break;
    progress.look();
    const uint64_t wait_ns = std::min(end_ns - now_ns, Progress::kLookPeriodNs);
    const int timeout_ms = static_cast<int>(wait_ns / kNsPerMs + 1);
    if (poll(wanted.data(), wanted.size(), timeout_ms) <= 0) continue;
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i].revents == 0) continue;
      int number = 0;
      const Answer answer = read_banner(left[i], &number);
      if (answer == Answer::kNone) continue;
      if (answer == Answer::kGood) return {};
      if (answer == Answer::kBroken) error.set_answer_errno(number);
      if (answer == Answer::kOther) error.set_answer("the answer is not from a monitor");
      if (answer == Answer::kNewer) {
        error.set_answer("a monitor speaks protocol v2 there, but the kernel's client needs v1");
      }
      wanted[i].fd = -1;  // poll skips it
      --left_count;
    }
  }
  return error;
}

}  // namespace

Result<std::string> read_ceph_key(const std::string& path, const std::string& user) {
  Error error = reading(path, user);
  auto read = read_secret_file(path, FilePrivacy::kSecret, kKeyringBytesMax);
  if (!read.ok()) {
    error.set_answer("%s", read.error().answer);
    if (access(path.c_str(), R_OK) == 0) return error.set_cure("%s", read.error().cure);
    return error.set_cure("create it with ceph auth get client.%s -o %s, readable by its owner "
                          "alone, and run as that owner",
                          user.c_str(), path.c_str());
  }
  const std::string& text = read.value().text;
  bool has_section = false;
  const auto key = find_key(text, "client." + user, &has_section);
  if (!has_section) {
    error.set_answer("it has no [client.%s]", user.c_str());
    return error.set_cure("name another user, or add this one: ceph auth get client.%s",
                          user.c_str());
  }
  if (!key || !is_base64(*key)) {
    error.set_answer(key ? "its key is not base64" : "its section has no \"key =\"");
    return error.set_cure("write it again: ceph auth get client.%s -o %s", user.c_str(),
                          path.c_str());
  }
  return std::string(*key);
}

std::string ceph_monitor_list(const std::vector<SocketAddress>& monitors) {
  std::string list;
  for (const SocketAddress& monitor : monitors) {
    const std::string text = monitor.text();
    list += (list.empty() ? "" : ",") + text.substr(text.find(':') + 1);  // behind "tcp:"
  }
  return list;
}

Result<void> CephMonitors::reach(const std::vector<SocketAddress>& monitors, uint64_t timeout_ns) {
  if (timeout_ns <= silence_ns_) return silence_;
  auto reached = wait_for_one(monitors, timeout_ns);
  if (reached.ok()) return reached;
  silence_ = reached.error();
  silence_ns_ = timeout_ns;
  return reached;
}

}  // namespace bedplate
