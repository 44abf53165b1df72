#include "apps/program/top/top_text.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "platform/assert.h"

namespace bedplate {
namespace {

constexpr size_t kIndent = 2;
constexpr size_t kGap = 2;
// Instance names are cut if they take more than a third of a line.
constexpr size_t kInstancePart = 3;

struct Head {
  std::string upper;
  std::string lower;
  size_t width() const noexcept { return std::max(upper.size(), lower.size()); }
};

// Splits a name at the "_" or blank that makes the longer part shortest: "received" above
// "datagrams".
Head head_of(const std::string& name) {
  Head best = {"", name};
  for (size_t i = 1; i + 1 < name.size(); ++i) {
    if (name[i] != '_' && name[i] != ' ') continue;
    const Head broken = {name.substr(0, i), name.substr(i + 1)};
    if (broken.width() < best.width()) best = broken;
  }
  return best;
}

std::string padded_left(const std::string& text, size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}
std::string padded_right(const std::string& text, size_t width) {
  return text + std::string(width - std::min(width, text.size()), ' ');
}

// Whether the column is aligned left, as bars and words are; numbers are aligned right.
bool is_left(const TopColumn& column) noexcept {
  return column.aspect == TopAspect::kBar || column.aspect == TopAspect::kLabel;
}

class TableText {
 public:
  TableText(const TopSection& section, const TopTextOptions& options)
      : section_(section), options_(options) {
    for (const TopRow& row : section.rows) {
      BP_ASSERT(row.values.size() == section.columns.size());
      instance_width_ = std::max(instance_width_, row.instance.size());
    }
    instance_width_ = std::min(instance_width_, options.columns / kInstancePart);
    for (size_t i = 0; i < section.columns.size(); ++i) {
      heads_.push_back(head_of(section.columns[i].name));
      size_t width = heads_[i].width();
      for (const TopRow& row : section.rows) width = std::max(width, row.values[i].text.size());
      widths_.push_back(width);
    }
  }

  void write(TopLines* to) {
    to_ = to;
    size_t next = 0;
    do {
      const size_t end = end_of_band(next);
      add_band(next, end);
      next = end;
    } while (next < section_.columns.size() && options_.has_all);
  }

 private:
  // The end of the columns that fit from `begin` on, at least one.
  size_t end_of_band(size_t begin) const {
    size_t used = kIndent + instance_width_;
    size_t end = begin;
    while (end < widths_.size()) {
      used += kGap + widths_[end];
      if (used > options_.columns && end > begin) break;
      ++end;
    }
    return end;
  }

  std::string cell(size_t column, const std::string& text) const {
    BP_ASSERT(text.size() <= widths_[column]);
    const std::string gap(kGap, ' ');
    return gap + (is_left(section_.columns[column]) ? padded_right(text, widths_[column])
                                                    : padded_left(text, widths_[column]));
  }

  void add(std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    to_->lines.push_back(fit_columns(line, options_.columns));
  }

  void add_band(size_t begin, size_t end) {
    std::string upper(kIndent + instance_width_, ' ');
    std::string lower = upper;
    bool has_upper = false;
    for (size_t i = begin; i < end; ++i) {
      upper += cell(i, heads_[i].upper);
      lower += cell(i, heads_[i].lower);
      has_upper = has_upper || !heads_[i].upper.empty();
    }
    if (has_upper) add(upper);
    add(lower);
    for (size_t k = 0; k < section_.rows.size(); ++k) {
      const TopRow& row = section_.rows[k];
      std::string line(kIndent, ' ');
      line += padded_right(fit_columns(row.instance, instance_width_), instance_width_);
      for (size_t i = begin; i < end; ++i) {
        const size_t at = line.size() + kGap;
        line += cell(i, row.values[i].text);
        to_->spans.push_back({to_->lines.size(), at, line.size(), k, i});
      }
      add(line);
    }
  }

  const TopSection& section_;
  const TopTextOptions& options_;
  size_t instance_width_ = 0;
  std::vector<Head> heads_;
  std::vector<size_t> widths_;
  TopLines* to_ = nullptr;
};

// "name   value" pairs, in columns of equal width.
void write_list(const TopSection& section, const TopTextOptions& options, TopLines* to) {
  BP_ASSERT(section.rows[0].values.size() == section.columns.size());
  size_t name_width = 0;
  size_t value_width = 0;
  for (size_t i = 0; i < section.columns.size(); ++i) {
    name_width = std::max(name_width, section.columns[i].name.size());
    value_width = std::max(value_width, section.rows[0].values[i].text.size());
  }
  const size_t width = kIndent + name_width + kGap + value_width;
  const size_t beside = std::max<size_t>((options.columns + kGap) / (width + kGap), 1);
  const size_t count = section.columns.size();
  const size_t line_count = (count + beside - 1) / beside;
  for (size_t k = 0; k < line_count; ++k) {
    std::string line;
    for (size_t i = k; i < count; i += line_count) {
      if (!line.empty()) line += std::string(kGap, ' ');
      line += std::string(kIndent, ' ') + padded_right(section.columns[i].name, name_width);
      const size_t at = line.size() + kGap;
      line += std::string(kGap, ' ') + padded_left(section.rows[0].values[i].text, value_width);
      to->spans.push_back({to->lines.size(), at, line.size(), 0, i});
    }
    to->lines.push_back(fit_columns(line, options.columns));
  }
}

}  // namespace

std::string headline(const TopAppliance& appliance) {
  BP_ASSERT(appliance.now.has_value());
  std::string line = std::string(appliance.now->appliance()) + ": pid " +
                     std::to_string(appliance.now->pid()) + ", " +
                     (appliance.is_running ? "running" : "NOT running: its last counters");
  if (appliance.seconds() <= 0) return fit_columns(line, line.size());
  char text[32];
  std::snprintf(text, sizeof text, ", the last %.1f s", appliance.seconds());
  line += text;
  return fit_columns(line, line.size());
}

// Replaces unprintable bytes, so that names in a foreign file cannot control the terminal.
std::string fit_columns(const std::string& text, size_t columns) {
  std::string cut = text.substr(0, columns);
  const auto is_strange = [](char letter) { return letter < ' ' || letter > '~'; };
  std::replace_if(cut.begin(), cut.end(), is_strange, '?');
  if (text.size() > columns && columns > 0) cut.back() = '~';
  return cut;
}

std::vector<std::string> note_lines(const std::string& note, size_t columns) {
  std::vector<std::string> lines;
  std::string line = "! ";
  const auto end_line = [&] {
    lines.push_back(fit_columns(line, columns));
    line.assign(kNoteIndent, ' ');
  };
  size_t begin = 0;
  while (begin < note.size()) {
    const size_t end = std::min(note.find(' ', begin), note.size());
    std::string word = note.substr(begin, end - begin);
    if (line.size() > kNoteIndent && line.size() + 1 + word.size() > columns) end_line();
    if (line.size() > kNoteIndent) line += ' ';
    while (line.size() + word.size() > columns && columns > kNoteIndent) {
      BP_ASSERT(line.size() < columns);  // each round takes a part of the word
      const size_t fitting = columns - line.size();
      line += word.substr(0, fitting);
      word.erase(0, fitting);
      end_line();
    }
    line += word;
    begin = end + 1;
  }
  end_line();
  return lines;
}

TopLines section_lines(const TopSection& section, const TopTextOptions& options) {
  TopLines text;
  text.lines.push_back(fit_columns(section.title, options.columns));
  if (!section.notes.empty()) {
    for (const std::string& note : section.notes) {
      for (std::string& line : note_lines(note, options.columns)) {
        text.lines.push_back(std::move(line));
      }
    }
  } else if (section.is_list()) {
    write_list(section, options, &text);
  } else {
    TableText(section, options).write(&text);
  }
  if (section.idle_row_count > 0) {
    const std::string more = "  " + std::to_string(section.idle_row_count) + " more: all 0";
    text.lines.push_back(fit_columns(more, options.columns));
  }
  return text;
}

}  // namespace bedplate
