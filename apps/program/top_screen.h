// The screen of `top`: what stands on it, and what each key does. It knows no terminal: it is given
// what was seen and which keys were pressed, and makes lines.
//
// From above: whose counters these are; sections, which scroll; where there is room, a graph of the
// last two minutes of the value that is marked with ">"; the keys. A terminal of 20 x 5 has room
// for three lines of sections.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "apps/program/top_history.h"
#include "apps/program/top_model.h"
#include "apps/program/top_text.h"

namespace bedplate {

// Keys that are no characters; those are themselves.
enum TopKeyCode : int {
  kTopUp = 256,
  kTopDown,
  kTopLeft,
  kTopRight,
  kTopPageUp,
  kTopPageDown,
  kTopHome,
  kTopEnd,
};

// One appliance as it was seen.
struct TopView {
  std::string headline;
  std::vector<TopSection> sections;
};

// Lines of at most so many columns as were asked for; of one of them a part is marked.
struct TopPicture {
  std::vector<std::string> lines;
  size_t marked_line = 0;
  size_t marked_begin = 0;
  size_t marked_end = 0;  // marked_begin: nothing is
};

class TopScreen {
 public:
  // What was seen at `now_ns`, monotonic, of each appliance. Ignored where it is frozen.
  void show(std::vector<TopView> views, uint64_t now_ns);
  // Instead: why nothing was.
  void show_error(std::string text);

  // Returns false for the key that ends it.
  bool press(int key);

  TopPicture picture(size_t columns, size_t rows);

 private:
  enum class Order : uint8_t { kAsIs, kFalling, kRising };
  struct Sorting {
    std::string column;
    Order order = Order::kAsIs;
  };

  bool press_in_filter(int key);
  void sort_by_mark();
  void move_mark(int key);
  struct Arranged {
    TopSection section;  // its title says how it is sorted, too
    std::string name;
  };
  std::vector<Arranged> arranged_sections() const;
  void lay_out(size_t columns);
  size_t marked_span() const noexcept;
  std::string keys_line() const;

  std::vector<TopView> views_;
  std::string error_;
  size_t view_ = 0;
  std::vector<TopHistory> histories_;  // of each view
  uint64_t now_ns_ = 0;
  bool is_frozen_ = false;
  bool has_graph_ = true;
  bool is_typing_ = false;  // a filter
  std::string filter_;
  std::map<std::string, Sorting> sortings_;  // by section
  TopKey mark_;
  size_t top_line_ = 0;  // the first of the sections' lines that is on the screen
  size_t body_rows_ = 1;
  // As of the last picture: what keys move about in.
  TopLines laid_out_;
  std::vector<TopKey> keys_of_spans_;
  size_t first_value_ = 0;  // of them: the first that is no label
};

}  // namespace bedplate
