#include "transport/messages/message_names.h"

#include <algorithm>

namespace bedplate {

Result<AmId> MessageNames::add(std::string_view name) {
  Error error = error_while("giving the message \"%.*s\" a number",
                            static_cast<int>(std::min(name.size(), size_t{64})), name.data());
  if (name.empty() || name.size() > kMessageNameMax) {
    error.set_answer("its name has %zu bytes", name.size());
    return error.set_cure("expected 1..%zu", kMessageNameMax);
  }
  if (find(name)) {
    error.set_answer("it has one already");
    return error.set_cure(
        "add each name once, and begin it with the name of its service: \"cache.get\"");
  }
  if (names_.size() == size_t{kAskNumberAm} - kFirstNamedAm) {
    error.set_answer("all %zu are in use", names_.size());
    return error.set_cure("distinguish messages of one service by their first bytes");
  }
  names_.emplace_back(name);
  return static_cast<AmId>(kFirstNamedAm + names_.size() - 1);
}

std::optional<AmId> MessageNames::find(std::string_view name) const noexcept {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) return std::nullopt;
  return static_cast<AmId>(kFirstNamedAm + (found - names_.begin()));
}

}  // namespace bedplate
