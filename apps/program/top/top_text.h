// The sections of `top` as lines of text, which any terminal can show: ASCII, no colour.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "apps/program/top/top_model.h"
#include "apps/program/top/top_watch.h"

namespace bedplate {

struct TopTextOptions {
  size_t columns = 80;  // no line is longer
  bool has_all = true;  // columns that do not fit follow below; else left out
};

// "demo: pid 4711, running, the last 1.0 s". Requires: the appliance could be read.
std::string headline(const TopAppliance& appliance);

// The position of a value in the lines. It may lie beyond the end of its line: a line is cut to
// its columns, and its last blanks are dropped.
struct TopSpan {
  size_t line = 0;
  size_t begin = 0;  // with two blanks before it
  size_t end = 0;
  size_t row = 0;     // of the section
  size_t column = 0;  // of the section
};

struct TopLines {
  std::vector<std::string> lines;
  std::vector<TopSpan> spans;  // from top to bottom, from left to right
};

// A section's lines, the title first. A table has a line of heads (two, if that makes columns
// narrower) and a line for each row. A list has "name value" in as many columns as fit. Notes are
// wrapped between words. A cut text ends in "~".
TopLines section_lines(const TopSection& section, const TopTextOptions& options);

// "! " and the words of `note`, in as many lines as needed; further lines begin with kNoteIndent
// blanks. A word that is longer than a line continues in the next line.
inline constexpr size_t kNoteIndent = 2;
std::vector<std::string> note_lines(const std::string& note, size_t columns);

// `text`, cut to `columns` bytes; a cut text ends in "~". A byte that is not printable ASCII
// becomes "?".
std::string fit_columns(const std::string& text, size_t columns);

}  // namespace bedplate
