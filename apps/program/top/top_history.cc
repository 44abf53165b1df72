#include "apps/program/top/top_history.h"

#include <algorithm>
#include <utility>

#include "apps/program/top/top_text.h"
#include "platform/assert.h"

namespace bedplate {
namespace {

constexpr uint64_t kStepCount = TopHistory::kKeptNs / TopHistory::kStepNs;

std::string title_of(const TopKey& key) {
  std::string title = key.section;
  if (!key.instance.empty()) title += " " + key.instance;
  return title + " " + key.column;
}

}  // namespace

void TopHistory::add(const std::vector<TopSection>& sections, uint64_t now_ns) {
  const uint64_t step = now_ns / kStepNs;
  for (const TopSection& section : sections) {
    for (const TopRow& row : section.rows) {
      BP_ASSERT(row.values.size() == section.columns.size());
      for (size_t i = 0; i < section.columns.size(); ++i) {
        auto& points = points_[{section.title, row.instance, section.columns[i].name}];
        Point point = {step, row.values[i].number, row.values[i].text,
                       section.columns[i].aspect == TopAspect::kTotal};
        if (!points.empty() && points.back().is_total != point.is_total) {
          // A counter that had a rate and now stands still shows its total: its point is a rate of
          // 0.
          if (point.is_total) point = {step, 0, "0", false};
          if (points.back().is_total) points.clear();
        }
        BP_ASSERT(points.empty() || points.back().step <= step);  // time does not go backwards
        if (!points.empty() && points.back().step == step) points.pop_back();
        points.push_back(std::move(point));
      }
    }
  }
  for (auto one = points_.begin(); one != points_.end();) {
    auto& points = one->second;
    while (!points.empty() && points.front().step + kStepCount <= step) points.pop_front();
    one = points.empty() ? points_.erase(one) : std::next(one);
  }
}

std::vector<std::string> TopHistory::graph(const TopKey& key, uint64_t now_ns, size_t columns,
                                           size_t rows) const {
  const auto found = points_.find(key);
  if (found == points_.end() || rows < 3) return {};
  const std::deque<Point>& points = found->second;
  BP_ASSERT(!points.empty());  // add() keeps no key without points
  const auto largest =
      std::max_element(points.begin(), points.end(),
                       [](const Point& a, const Point& b) { return a.number < b.number; });
  const std::string scale = largest->text;
  std::vector<std::string> lines = {title_of(key) + ": now " + points.back().text + ", at most " +
                                    scale};
  // The axis, a gap, and one column for each second, or for the maximum of several seconds.
  const size_t axis = std::max<size_t>(scale.size(), 1) + 2;  // a label may have no text
  const size_t width = columns > axis ? std::min<size_t>(columns - axis, kStepCount) : 0;
  const size_t height = rows - 2;
  std::vector<size_t> heights(width);
  const uint64_t first = now_ns / kStepNs + 1 - std::min(now_ns / kStepNs + 1, kStepCount);
  for (const Point& point : points) {
    if (point.step < first || width == 0 || largest->number <= 0) continue;
    const size_t column = std::min<size_t>((point.step - first) * width / kStepCount, width - 1);
    const double share = point.number / largest->number;
    const auto full = static_cast<size_t>(share * static_cast<double>(height) + 0.5);
    heights[column] = std::max(heights[column], std::max<size_t>(full, point.number > 0));
  }
  for (size_t row = 0; row < height; ++row) {
    std::string line = row == 0 ? scale : row + 1 == height ? "0" : "";
    line = std::string(axis - 2 - line.size(), ' ') + line + " |";
    for (const size_t full : heights) line += full >= height - row ? '#' : ' ';
    lines.push_back(std::move(line));
  }
  const std::string begin = "-2 min";
  const std::string end = "now";
  std::string foot = std::string(axis, ' ') + begin;
  if (width > begin.size() + end.size()) {
    foot += std::string(width - begin.size() - end.size(), ' ') + end;
  }
  lines.push_back(std::move(foot));
  for (std::string& line : lines) line = fit_columns(line, columns);
  return lines;
}

}  // namespace bedplate
