// The screen of `top`: its lines, and the effect of each key. It does not use the terminal: it
// takes views and pressed keys, and makes lines.
//
// From top to bottom: a head with the number of alerts and the appliance's name; the alerts, in at
// most half of the rows that they share with the sections; the sections, which scroll; if there is
// space, a graph of the last two minutes of the value marked with ">"; the keys. A terminal of 20 x
// 5 has space for three lines of sections, or for one alert and two lines of sections.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "apps/program/top/top_history.h"
#include "apps/program/top/top_model.h"
#include "apps/program/top/top_text.h"

namespace bedplate {

// Keys that are not characters; a character's key is its code, below 256.
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

// A highlighted part of a line.
struct TopMark {
  size_t line = 0;
  size_t begin = 0;
  size_t end = 0;
};

// Lines of at most the requested columns. A line has at most one mark.
struct TopPicture {
  std::vector<std::string> lines;
  std::vector<TopMark> marks;
};

class TopScreen {
 public:
  // Shows the views of all appliances at `now_ns` (monotonic). Ignored while frozen. Requires: each
  // has a path of its own.
  void show(std::vector<TopView> views, uint64_t now_ns);
  // Shows an error in the head until the next show(); the sections stay. Ignored while frozen.
  void show_error(std::string text);

  // Returns false for a key that ends `top`: q, except in a filter, and Ctrl-C.
  bool press(int key);

  // The present picture; the next keys move the mark in it.
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
  void scroll(int key) noexcept;
  struct Arranged {
    TopSection section;  // its title also tells the sorting
    std::string name;
  };
  std::vector<Arranged> arranged_sections() const;
  void lay_out(size_t columns);
  size_t marked_span() const noexcept;
  const std::vector<std::string>& alerts() const noexcept;
  void write_head(size_t columns, TopPicture* picture) const;
  std::string keys_line() const;

  std::vector<TopView> views_;
  std::string error_;
  size_t view_ = 0;
  std::map<std::string, TopHistory> histories_;  // of each view's appliance, by its path
  uint64_t now_ns_ = 0;
  bool is_frozen_ = false;
  bool has_graph_ = true;
  bool has_alerts_alone_ = false;  // the alerts in full, instead of the sections
  bool is_typing_ = false;         // the user types a filter
  std::string filter_;
  std::map<std::string, Sorting> sortings_;  // by section
  TopKey mark_;
  bool is_chosen_ = false;  // a key chose the mark; else it is the first value
  size_t top_line_ = 0;     // the first scrolling line on the screen
  size_t body_rows_ = 1;
  // The last picture's layout, in which keys move the mark.
  TopLines laid_out_;
  std::vector<TopKey> keys_of_spans_;
  size_t first_value_ = 0;  // the first span that is not a label
};

}  // namespace bedplate
