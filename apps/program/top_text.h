// The sections of `top` as lines of text, which any terminal can show: ASCII, no colour.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "apps/program/top_model.h"
#include "apps/program/top_watch.h"

namespace bedplate {

struct TopTextOptions {
  size_t columns = 80;  // of the terminal: no line is longer
  bool has_all = true;  // whether what does not fit beside the rest follows below it
};

// "demo: pid 4711, running, the last 1.0 s". Requires: it could be read.
std::string headline(const TopAppliance& appliance);

// A table has a line of heads (two, where that makes columns narrower) and one for each row; a list
// has "name value" in as many columns as fit. Title first. What is cut off ends in "~".
std::vector<std::string> section_lines(const TopSection& section, const TopTextOptions& options);

// `text`, or as much of it as fits, with "~" at its end.
std::string cut_text(const std::string& text, size_t columns);

}  // namespace bedplate
