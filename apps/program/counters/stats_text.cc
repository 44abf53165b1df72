#include "apps/program/counters/stats_text.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "apps/program/counters/counter_text.h"
#include "platform/assert.h"
#include "platform/text.h"
#include "platform/text_words.h"

namespace bedplate {
namespace {

constexpr size_t kColumnsMax = 100;
constexpr int kNameColumns = 26;

using Sets = std::vector<const SeenSet*>;

void print_line(std::string_view name, const std::string& value) {
  std::printf("  %-*.*s %s\n", kNameColumns, static_cast<int>(name.size()), name.data(),
              value.c_str());
}

// "  0   a, b, c", broken into lines.
void print_words(std::string_view name, const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    if (kNameColumns + 5 + line.size() + word.size() > kColumnsMax) {
      print_line(name, line + ",");
      line.clear();
    }
    add_word(&line, word);
  }
  if (!line.empty()) print_line(name, line);
}

// Whether its 0 may be listed in the line of zeros. A count of 0 may; state 0 has a word, and node
// 0 is a node.
bool can_fold(const SeenCounter& counter) noexcept {
  return is_zero(counter) && counter.unit != "boolean" && counter.unit != "node" &&
         !counter.read_words();
}

void print_block(const Sets& sets, const std::string& title) {
  std::printf("%s\n", title.c_str());
  std::vector<std::string> zeros;
  for (const SeenSet* set : sets) {
    for (const auto& [label, value] : set->labels) print_line(label, std::string(value));
    for (const SeenCounter& counter : set->counters) {
      if (can_fold(counter)) {
        zeros.emplace_back(counter.name);
      } else {
        print_line(counter.name, counter_text(counter, true));
      }
    }
  }
  print_words("0", zeros);
}

// Sorts names that begin with a number by that number; other names follow in file order.
void sort_by_number(Sets* sets) {
  const auto starts_with_digit = [](const SeenSet* set) {
    BP_ASSERT(!set->instance.empty());
    return std::isdigit(static_cast<unsigned char>(set->instance[0])) != 0;
  };
  if (!std::any_of(sets->begin(), sets->end(), starts_with_digit)) return;
  const auto number = [&](const SeenSet* set) {
    std::string_view name = set->instance;
    return take_number<uint64_t>(&name, ~0ULL);
  };
  std::stable_sort(sets->begin(), sets->end(), [&](const SeenSet* left, const SeenSet* right) {
    return number(left) < number(right);
  });
}

// Rows of cells; the first is the head.
struct Table {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> zeros;  // counters that are 0 in all rows
  std::vector<std::string> sames;  // "node 0": counters with the same value in all rows
  size_t zero_rows = 0;            // rows that are 0 in all counters
  std::string zero_row;            // the text for such rows

  size_t width(size_t column) const {
    size_t most = 0;
    for (const auto& row : rows) most = std::max(most, row[column].size());
    return most;
  }
  size_t columns() const {
    size_t sum = 0;
    for (size_t i = 0; i < rows[0].size(); ++i) sum += width(i) + 2;
    return sum;
  }
};

// Whether all counters of the set are 0, and it has no label that must be shown.
bool is_zero_row(const SeenSet& set) {
  return !set.counters.empty() && set.labels.empty() &&
         std::all_of(set.counters.begin(), set.counters.end(), is_zero);
}

Table table_of(const Sets& sets) {
  Table table;
  const SeenSet& first = *sets[0];
  std::vector<size_t> shown;
  for (size_t i = 0; i < first.counters.size(); ++i) {
    const SeenCounter& counter = first.counters[i];
    const std::string text = counter_text(counter, false);
    const bool is_same = std::all_of(sets.begin(), sets.end(), [&](const SeenSet* set) {
      return counter_text(set->counters[i], false) == text;
    });
    if (!is_same || first.counters.size() == 1) {
      shown.push_back(i);
    } else if (can_fold(counter)) {
      table.zeros.emplace_back(counter.name);
    } else {
      table.sames.push_back(std::string(counter.name) + " " + text);
    }
  }
  std::vector<std::string> head = {""};
  for (const auto& label : first.labels) head.emplace_back(label.first);
  for (const size_t i : shown) head.emplace_back(first.counters[i].name);
  table.rows.push_back(head);
  for (const SeenSet* set : sets) {
    if (is_zero_row(*set)) {
      ++table.zero_rows;
      table.zero_row = set->counters[0].read_words().value_or("all 0");
      continue;
    }
    std::vector<std::string> row = {std::string(set->instance)};
    for (const auto& label : set->labels) row.emplace_back(label.second);
    for (const size_t i : shown) row.push_back(counter_text(set->counters[i], false));
    BP_ASSERT(row.size() == head.size());  // the sets have the same labels and counters
    table.rows.push_back(std::move(row));
  }
  return table;
}

void print_table(const Table& table, std::string_view title) {
  std::printf("%.*s\n", static_cast<int>(title.size()), title.data());
  for (const auto& row : table.rows) {
    if (table.rows.size() == 1) break;
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const size_t gap = table.width(i) - row[i].size();
      line += "  " + (i == 0 ? row[i] + std::string(gap, ' ') : std::string(gap, ' ') + row[i]);
    }
    std::printf("%s\n", line.c_str());
  }
  if (table.zero_rows > 0) {
    std::printf("  %zu%s: %s\n", table.zero_rows, table.rows.size() > 1 ? " more" : "",
                table.zero_row.c_str());
  }
  print_words("all: ", table.sames);
  print_words("all: 0", table.zeros);
}

// Prints instances: as a table if they have the same counters and labels, and the table fits.
void print_instances(Sets sets, const std::string& title) {
  sort_by_number(&sets);
  const auto is_like_first = [&](const SeenSet* set) {
    return set->counters.size() == sets[0]->counters.size() &&
           set->labels.size() == sets[0]->labels.size();
  };
  if (sets.size() > 1 && std::all_of(sets.begin(), sets.end(), is_like_first)) {
    const Table table = table_of(sets);
    if (table.columns() <= kColumnsMax) return print_table(table, title);
  }
  for (const SeenSet* set : sets) print_block({set}, title + " " + std::string(set->instance));
}

}  // namespace

void print_sets(const std::vector<SeenSet>& sets) {
  for (size_t i = 0; i < sets.size();) {
    const SeenSet& first = sets[i];
    Sets alike;
    // A service's sets that have no instance form one block.
    for (; i < sets.size() && sets[i].owner == first.owner; ++i) {
      const bool is_one = first.instance.empty() && sets[i].instance.empty();
      if (sets[i].name != first.name && (!is_one || first.owner.empty())) break;
      if (sets[i].instance.empty() != first.instance.empty()) break;
      alike.push_back(&sets[i]);
    }
    std::string title(first.owner);
    if (first.owner.empty() || !first.instance.empty()) {
      title += (title.empty() ? "" : " ") + std::string(first.name);
    }
    first.instance.empty() ? print_block(alike, title) : print_instances(alike, title);
  }
}

}  // namespace bedplate
