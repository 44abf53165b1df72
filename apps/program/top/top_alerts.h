// The alerts on the screen of `top`: their number, always in the head; each alert in brief below
// the head, above all scrolling lines; and, on request, all of them in full.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "apps/program/top/top_model.h"

namespace bedplate {

// "! 4 need a look, 2 in west (tab)": the number of alerts of the shown appliance, then that of the
// others. Empty: there are no alerts. Requires: shown < views.size().
std::string alerts_head(const std::vector<TopView>& views, size_t shown);

// The alerts in at most `rows` rows: each in one row or more, the first ones in full. A cut line
// ends in "~". If alerts have no row, the last row counts them; a single row shows the first alert.
// Empty: there are no alerts, no rows, or at most two columns.
std::vector<std::string> alerts_in_brief(const std::vector<std::string>& alerts, size_t columns,
                                         size_t rows);
// All alerts, in as many lines as needed; without alerts, one line that says so.
std::vector<std::string> alerts_in_full(const std::vector<std::string>& alerts, size_t columns);

}  // namespace bedplate
