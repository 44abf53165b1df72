// What needs a look, on the screen of `top`: how much of it there is, which stands in the head
// whatever else is shown; below the head each in brief, above everything that scrolls; and, where
// that is too short, all of them in full.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "apps/program/top_model.h"

namespace bedplate {

// "! 4 need a look, 2 in west (tab)": those of the appliance that is shown, then those of the
// others. Empty: nothing needs one. Requires: shown < views.size().
std::string signs_head(const std::vector<TopView>& views, size_t shown);

// In at most so many rows: each in one or more, the first ones in full. What is cut off ends in
// "~"; those that have no row are counted in the last one.
std::vector<std::string> signs_in_brief(const std::vector<std::string>& signs, size_t columns,
                                        size_t rows);
// In as many lines as they take; that there is none is a line, too.
std::vector<std::string> signs_in_full(const std::vector<std::string>& signs, size_t columns);

}  // namespace bedplate
