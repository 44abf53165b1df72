#include "apps/program/top/top_alerts.h"

#include <algorithm>

#include "apps/program/top/top_text.h"
#include "platform/assert.h"

namespace bedplate {
namespace {

// The most columns for another appliance's name: a longer name would push the shown name out of the
// head.
constexpr size_t kNameColumns = 20;

std::string need_a_look(size_t count) {
  return "! " + std::to_string(count) + (count == 1 ? " needs a look" : " need a look");
}

}  // namespace

std::string alerts_head(const std::vector<TopView>& views, size_t shown) {
  BP_ASSERT(shown < views.size());
  const size_t own = views[shown].alerts.size();
  size_t elsewhere = 0;
  std::vector<std::string> names;
  for (size_t i = 0; i < views.size(); ++i) {
    if (i == shown || views[i].alerts.empty()) continue;
    elsewhere += views[i].alerts.size();
    names.push_back(views[i].name);
  }
  std::string head = own > 0 ? need_a_look(own) : "";
  if (elsewhere == 0) return head;
  head += own > 0 ? ", " + std::to_string(elsewhere) : need_a_look(elsewhere);
  head += " in " + (names.size() == 1 ? fit_columns(names[0], kNameColumns)
                                      : std::to_string(names.size()) + " others");
  return head + " (tab)";
}

std::vector<std::string> alerts_in_brief(const std::vector<std::string>& alerts, size_t columns,
                                         size_t rows) {
  std::vector<std::string> text;
  if (rows == 0 || columns <= kNoteIndent) return text;
  const bool has_all = alerts.size() <= rows;
  // A single row shows the first alert; the head has the number.
  const size_t count = has_all ? alerts.size() : std::max<size_t>(rows - 1, 1);
  size_t room = rows - count - (has_all || rows == 1 ? 0 : 1);
  for (size_t i = 0; i < count; ++i) {
    std::vector<std::string> lines = note_lines(alerts[i], columns);
    const size_t taken = std::min(lines.size(), 1 + room);
    room -= taken - 1;
    if (taken < lines.size()) {  // the next word does not fit: cut the line, with "~"
      std::string& last = lines[taken - 1];
      last = fit_columns(last + " " + lines[taken].substr(kNoteIndent), columns);
    }
    text.insert(text.end(), lines.begin(), lines.begin() + static_cast<ptrdiff_t>(taken));
  }
  if (!has_all && rows > 1) {
    const std::string more = "! " + std::to_string(alerts.size() - count) + " more: press n";
    text.push_back(fit_columns(more, columns));
  }
  BP_ASSERT(text.size() <= rows);
  return text;
}

std::vector<std::string> alerts_in_full(const std::vector<std::string>& alerts, size_t columns) {
  if (alerts.empty()) return {fit_columns("nothing needs a look", columns)};
  std::vector<std::string> text;
  for (const std::string& alert : alerts) {
    const std::vector<std::string> lines = note_lines(alert, columns);
    text.insert(text.end(), lines.begin(), lines.end());
  }
  return text;
}

}  // namespace bedplate
