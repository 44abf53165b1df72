// The last two minutes of all values in `top`, and a graph of one value.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/program/top/top_model.h"

namespace bedplate {

// A value's key; it stays the same while rows and columns come and go.
struct TopKey {
  std::string section;
  std::string instance;
  std::string column;
  auto operator<=>(const TopKey&) const = default;
};

class TopHistory {
 public:
  static constexpr uint64_t kKeptNs = 120 * uint64_t{1'000'000'000};
  // The time between points: the last value within it counts.
  static constexpr uint64_t kStepNs = 1'000'000'000;

  // Adds the values seen at `now_ns` (monotonic), and drops values older than kKeptNs. Requires:
  // `now_ns` is not before that of an earlier call.
  void add(const std::vector<TopSection>& sections, uint64_t now_ns);

  // A graph of `key` in `columns` and `rows`: a title with the text of the last value, the scale,
  // and bars of "#". Empty: the key has no points, or `rows` is below 3.
  std::vector<std::string> graph(const TopKey& key, uint64_t now_ns, size_t columns,
                                 size_t rows) const;

 private:
  struct Point {
    uint64_t step;  // its time, in units of kStepNs
    double number;
    std::string text;
    bool is_total;  // not a rate; the same for all points of a key
  };
  std::map<TopKey, std::deque<Point>> points_;
};

}  // namespace bedplate
