#include "platform/user.h"

#include <charconv>
#include <optional>
#include <string_view>

#include <unistd.h>

#include "platform/file.h"

namespace bedplate {
namespace {

constexpr uint32_t kNobody = ~0U;  // what system calls take for "no change"

std::optional<uint32_t> parse_id(std::string_view digits) noexcept {
  uint32_t id = 0;
  const char* end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, id);
  if (parsed.ec != std::errc() || parsed.ptr != end || id == kNobody) return {};
  return id;
}

struct Search {
  std::string_view name;
  std::optional<uint32_t> id = {};
};

// A line of passwd(5): name:password:number:...
void look_at_line(const char* text, void* context) {
  Search& search = *static_cast<Search*>(context);
  const std::string_view line = text;
  const size_t name_end = line.find(':');
  const size_t password_end = line.find(':', name_end == line.npos ? name_end : name_end + 1);
  if (search.id || password_end == line.npos || line.substr(0, name_end) != search.name) return;
  const std::string_view rest = line.substr(password_end + 1);
  search.id = parse_id(rest.substr(0, rest.find(':')));
}

}  // namespace

Result<uint32_t> find_user_id(const char* text) noexcept {
  if (const auto id = parse_id(text)) return *id;
  Search search = {text};
  const Result<void> read = read_lines("/etc/passwd", &look_at_line, &search);
  if (search.id) return *search.id;
  Error error;
  error.kind = ErrorKind::kConfiguration;
  error.set_doing("looking for the user %s", text);
  error.set_answer("%s", read.ok() ? "no such user in /etc/passwd" : read.error().answer);
  return error.set_cure("name another one, make it with useradd, or write its number");
}

bool is_own_user(uint32_t id) noexcept { return id == 0 || id == geteuid(); }

}  // namespace bedplate
