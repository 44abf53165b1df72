#include "platform/user.h"

#include <optional>
#include <string_view>

#include <unistd.h>

#include "platform/file.h"
#include "platform/text_words.h"

namespace bedplate {
namespace {

constexpr uint32_t kNobody = ~0U;  // system calls take it for "no change"

std::optional<uint32_t> parse_id(std::string_view digits) noexcept {
  uint32_t id = kNobody;
  if (!parse_number(digits, &id) || id == kNobody) return {};
  return id;
}

// The field `index` of a line of fields separated by colons; empty if the line has fewer.
std::string_view field_of(std::string_view line, int index, char separator = ':') noexcept {
  for (; index > 0; --index) {
    const size_t end = line.find(separator);
    if (end == line.npos) return {};
    line.remove_prefix(end + 1);
  }
  return line.substr(0, line.find(separator));
}

// In passwd(5): name:password:number:group:...
struct Search {
  std::string_view name = {};              // search by name
  std::optional<uint32_t> wanted_id = {};  // or by number
  std::string found_name = {};
  std::optional<uint32_t> id = {};
  std::optional<uint32_t> group = {};
};

void look_at_line(const char* line, void* context) {
  Search& search = *static_cast<Search*>(context);
  const auto id = parse_id(field_of(line, 2));
  const bool is_it = search.wanted_id ? id == search.wanted_id : field_of(line, 0) == search.name;
  if (search.id || !is_it) return;
  search.id = id;
  search.group = parse_id(field_of(line, 3));
  search.found_name = field_of(line, 0);
}

struct GroupSearch {
  std::string_view name;
  std::vector<uint32_t>* groups;
};

// A line of group(5): name:password:number:user,user,...
void look_at_group(const char* line, void* context) {
  const GroupSearch& search = *static_cast<GroupSearch*>(context);
  const auto id = parse_id(field_of(line, 2));
  const std::string_view users = field_of(line, 3);
  for (int i = 0; id && !field_of(users, i, ',').empty(); ++i) {
    if (field_of(users, i, ',') == search.name && *id != search.groups->front()) {
      search.groups->push_back(*id);
    }
  }
}

Error not_found(const char* text, const char* answer, const char* what = "user") noexcept {
  return configuration_error_while("looking for the %s %s", what, text).set_answer("%s", answer);
}

}  // namespace

Result<uint32_t> find_user_id(const char* text) noexcept {
  if (const auto id = parse_id(text)) return *id;
  Search search = {.name = text};
  const Result<void> read = read_lines("/etc/passwd", &look_at_line, &search);
  if (search.id) return *search.id;
  return not_found(text, read.ok() ? "no such user in /etc/passwd" : read.error().answer)
      .set_cure("name another one, make it with useradd, or write its number");
}

// Lines of group(5) begin like lines of passwd(5).
Result<uint32_t> find_group_id(const char* text) noexcept {
  if (const auto id = parse_id(text)) return *id;
  Search search = {.name = text};
  const Result<void> read = read_lines("/etc/group", &look_at_line, &search);
  if (search.id) return *search.id;
  return not_found(text, read.ok() ? "no such group in /etc/group" : read.error().answer, "group")
      .set_cure("name another one, make it with groupadd, or write its number");
}

Result<User> find_user(const char* text) {
  Search search = {.name = text, .wanted_id = parse_id(text)};
  const Result<void> read = read_lines("/etc/passwd", &look_at_line, &search);
  if (!search.id || !search.group) {
    return not_found(text, read.ok() ? "no such user in /etc/passwd" : read.error().answer)
        .set_cure("name another one, or make it with useradd: its group must be known");
  }
  User user = {text, *search.id, *search.group, {*search.group}};
  GroupSearch groups = {search.found_name, &user.groups};
  (void)read_lines("/etc/group", &look_at_group, &groups).ok();  // else just one group
  return user;
}

uint32_t own_user() noexcept { return geteuid(); }

}  // namespace bedplate
