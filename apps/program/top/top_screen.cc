#include "apps/program/top/top_screen.h"

#include <algorithm>
#include <utility>

#include "apps/program/top/top_alerts.h"
#include "platform/assert.h"

namespace bedplate {
namespace {

constexpr int kEscape = 27;
constexpr int kBackspace = 8;
constexpr int kDelete = 127;
constexpr int kInterrupt = 3;  // Ctrl-C
constexpr size_t kFilterMax = 63;
// The fewest rows with space for a graph.
constexpr size_t kGraphRowsMin = 16;

bool has_word(std::string_view text, std::string_view word) {
  return text.find(word) != std::string_view::npos;
}

// The part of a section that passes the filter: the whole section, some rows, or some columns.
TopSection filtered(const TopSection& section, const std::string& filter) {
  if (filter.empty() || !section.notes.empty() || has_word(section.title, filter)) return section;
  TopSection kept = section;
  std::erase_if(kept.rows, [&](const TopRow& row) { return !has_word(row.instance, filter); });
  if (!kept.rows.empty()) return kept;
  kept.rows = section.rows;
  for (size_t i = kept.columns.size(); i-- > 0;) {
    if (has_word(kept.columns[i].name, filter)) continue;
    kept.columns.erase(kept.columns.begin() + static_cast<ptrdiff_t>(i));
    for (TopRow& row : kept.rows) row.values.erase(row.values.begin() + static_cast<ptrdiff_t>(i));
  }
  return kept;
}

}  // namespace

void TopScreen::show(std::vector<TopView> views, uint64_t now_ns) {
  if (is_frozen_) return;
  error_.clear();
  const std::string shown = view_ < views_.size() ? views_[view_].path : "";
  std::map<std::string, TopHistory> histories;  // without those of appliances that are gone
  view_ = 0;
  for (size_t i = 0; i < views.size(); ++i) {
    TopHistory& history = histories[views[i].path];
    history = std::move(histories_[views[i].path]);
    history.add(views[i].sections, now_ns);
    if (views[i].path == shown) view_ = i;
  }
  histories_ = std::move(histories);
  views_ = std::move(views);
  now_ns_ = now_ns;
}

void TopScreen::show_error(std::string text) {
  if (!is_frozen_) error_ = std::move(text);
}

bool TopScreen::press(int key) {
  if (key == kInterrupt) return false;
  if (is_typing_) return press_in_filter(key);
  switch (key) {
    case 'q': return false;
    case ' ': is_frozen_ = !is_frozen_; break;
    case 'g': has_graph_ = !has_graph_; break;
    case 'n':
      has_alerts_alone_ = !has_alerts_alone_;
      top_line_ = 0;
      break;
    case '/':
      has_alerts_alone_ = false;
      is_typing_ = true;
      filter_.clear();
      break;
    case kEscape:
      has_alerts_alone_ = false;
      filter_.clear();
      break;
    case 's': sort_by_mark(); break;
    case '\t':
      if (!views_.empty()) view_ = (view_ + 1) % views_.size();
      top_line_ = 0;
      break;
    case 'k': move_mark(kTopUp); break;
    case 'j': move_mark(kTopDown); break;
    case 'h': move_mark(kTopLeft); break;
    case 'l': move_mark(kTopRight); break;
    case 'b': move_mark(kTopPageUp); break;
    case 'f': move_mark(kTopPageDown); break;
    default: move_mark(key); break;
  }
  return true;
}

bool TopScreen::press_in_filter(int key) {
  if (key == '\r' || key == '\n') {
    is_typing_ = false;
  } else if (key == kEscape) {
    is_typing_ = false;
    filter_.clear();
  } else if (key == kBackspace || key == kDelete) {
    if (!filter_.empty()) filter_.pop_back();
  } else if (key >= ' ' && key < kDelete && filter_.size() < kFilterMax) {
    filter_ += static_cast<char>(key);
  }
  return true;
}

// Sorts by the marked column. Repeated calls cycle: the largest first, the smallest first,
// unsorted.
void TopScreen::sort_by_mark() {
  if (marked_span() == keys_of_spans_.size()) return;
  Sorting& sorting = sortings_[mark_.section];
  if (sorting.column != mark_.column) sorting = {mark_.column, Order::kAsIs};
  sorting.order = sorting.order == Order::kAsIs      ? Order::kFalling
                  : sorting.order == Order::kFalling ? Order::kRising
                                                     : Order::kAsIs;
}

// Finds the mark by its names. Returns the number of spans if the value is gone.
size_t TopScreen::marked_span() const noexcept {
  return static_cast<size_t>(std::find(keys_of_spans_.begin(), keys_of_spans_.end(), mark_) -
                             keys_of_spans_.begin());
}

// Left and right move to the neighbour in the line. Up and down move to the nearest value of the
// next line with values, or a page further.
void TopScreen::move_mark(int key) {
  if (has_alerts_alone_) return scroll(key);
  const std::vector<TopSpan>& spans = laid_out_.spans;
  BP_ASSERT(keys_of_spans_.size() == spans.size());
  if (spans.empty()) return;
  size_t at = marked_span();
  if (at == spans.size()) at = 0;
  const TopSpan from = spans[at];
  const auto distance = [&](size_t to) {
    return spans[to].end > from.end ? spans[to].end - from.end : from.end - spans[to].end;
  };
  // The span of `first`'s line that is nearest.
  const auto nearest = [&](size_t first) {
    size_t best = first;
    for (size_t i = 0; i < spans.size(); ++i) {
      if (spans[i].line == spans[first].line && distance(i) < distance(best)) best = i;
    }
    return best;
  };
  const size_t step = key == kTopUp || key == kTopDown ? 1 : std::max<size_t>(body_rows_ - 1, 1);
  switch (key) {
    case kTopLeft: at = at == 0 ? 0 : at - 1; break;
    case kTopRight: at = std::min(at + 1, spans.size() - 1); break;
    case kTopHome: at = 0; break;
    case kTopEnd: at = spans.size() - 1; break;
    case kTopUp:
    case kTopPageUp:
      while (at > 0 && spans[at].line + step > from.line) --at;
      at = nearest(at);
      break;
    case kTopDown:
    case kTopPageDown:
      while (at + 1 < spans.size() && spans[at].line < from.line + step) ++at;
      at = nearest(at);
      break;
    default: return;
  }
  mark_ = keys_of_spans_[at];
  is_chosen_ = true;
}

// Scrolls the full list of alerts: it has lines only, no values to choose.
void TopScreen::scroll(int key) noexcept {
  const size_t page = std::max<size_t>(body_rows_ - 1, 1);
  switch (key) {
    case kTopUp: top_line_ -= std::min<size_t>(top_line_, 1); break;
    case kTopDown: ++top_line_; break;
    case kTopPageUp: top_line_ -= std::min(top_line_, page); break;
    case kTopPageDown: top_line_ += page; break;
    case kTopHome: top_line_ = 0; break;
    case kTopEnd: top_line_ = laid_out_.lines.size(); break;
    default: break;
  }
}

std::vector<TopScreen::Arranged> TopScreen::arranged_sections() const {
  std::vector<Arranged> sections;
  if (view_ >= views_.size()) return sections;
  for (const TopSection& section : views_[view_].sections) {
    TopSection kept = filtered(section, filter_);
    if (kept.notes.empty() && (kept.columns.empty() || kept.rows.empty())) continue;
    const auto sorting = sortings_.find(kept.title);
    if (sorting != sortings_.end() && sorting->second.order != Order::kAsIs) {
      const auto column =
          std::find_if(kept.columns.begin(), kept.columns.end(),
                       [&](const TopColumn& one) { return one.name == sorting->second.column; });
      const auto index = static_cast<size_t>(column - kept.columns.begin());
      const bool is_falling = sorting->second.order == Order::kFalling;
      const auto is_before = [&](const TopRow& left, const TopRow& right) {
        const double a = left.values[index].number;
        const double b = right.values[index].number;
        return is_falling ? a > b : a < b;
      };
      if (index < kept.columns.size()) {
        std::stable_sort(kept.rows.begin(), kept.rows.end(), is_before);
        kept.title += (is_falling ? ", most " : ", least ") + sorting->second.column;
      }
    }
    sections.push_back({std::move(kept), section.title});
  }
  return sections;
}

void TopScreen::lay_out(size_t columns) {
  laid_out_ = {};
  keys_of_spans_.clear();
  first_value_ = 0;
  if (has_alerts_alone_) {
    laid_out_.lines = alerts_in_full(alerts(), columns);
    return;
  }
  bool has_value = false;
  for (const auto& [section, name] : arranged_sections()) {
    const TopLines text = section_lines(section, {.columns = columns});
    const size_t first = laid_out_.lines.size();
    for (TopSpan span : text.spans) {
      has_value = has_value || section.columns[span.column].aspect != TopAspect::kLabel;
      first_value_ += has_value ? 0 : 1;
      keys_of_spans_.push_back(
          {name, section.rows[span.row].instance, section.columns[span.column].name});
      span.line += first;
      laid_out_.spans.push_back(span);
    }
    laid_out_.lines.insert(laid_out_.lines.end(), text.lines.begin(), text.lines.end());
  }
}

const std::vector<std::string>& TopScreen::alerts() const noexcept {
  static const std::vector<std::string> kNone;
  return view_ < views_.size() ? views_[view_].alerts : kNone;
}

// The number of alerts comes first, highlighted, so that it fits on any terminal.
void TopScreen::write_head(size_t columns, TopPicture* picture) const {
  if (!error_.empty() || view_ >= views_.size()) {
    picture->lines.push_back(fit_columns(error_, columns));
    return;
  }
  std::string head = alerts_head(views_, view_);
  if (!head.empty()) {
    picture->marks.push_back({0, 0, std::min(head.size(), columns)});
    head += "  ";
  }
  if (views_.size() > 1) {
    head += std::to_string(view_ + 1) + "/" + std::to_string(views_.size()) + " ";
  }
  picture->lines.push_back(fit_columns(head + views_[view_].headline, columns));
}

std::string TopScreen::keys_line() const {
  if (is_typing_) return "/" + filter_ + "_";
  std::string line = is_frozen_ ? "FROZEN  " : "";
  if (!filter_.empty()) line += "/" + filter_ + "  ";
  line += "q:end ";
  if (has_alerts_alone_ || !alerts().empty()) line += has_alerts_alone_ ? "n:back " : "n:alerts ";
  line += "space:freeze /:filter s:sort arrows:choose g:graph";
  return views_.size() > 1 ? line + " tab:next" : line;
}

TopPicture TopScreen::picture(size_t columns, size_t rows) {
  BP_ASSERT(histories_.size() == views_.size());
  TopPicture picture;
  if (columns == 0 || rows == 0) return picture;
  lay_out(columns);
  // Until a key chooses a mark, it is the first value: rates exist only from the second look on.
  if (!is_chosen_ && !keys_of_spans_.empty()) {
    mark_ = keys_of_spans_[std::min(first_value_, keys_of_spans_.size() - 1)];
  }
  const size_t marked = marked_span();
  std::vector<std::string> graph;
  if (has_graph_ && !has_alerts_alone_ && rows >= kGraphRowsMin && view_ < views_.size()) {
    graph = histories_[views_[view_].path].graph(mark_, now_ns_, columns, rows / 3);
  }
  body_rows_ = rows > 2 + graph.size() ? rows - 2 - graph.size() : 1;
  std::vector<std::string> brief;
  if (!has_alerts_alone_) brief = alerts_in_brief(alerts(), columns, body_rows_ / 2);
  body_rows_ -= brief.size();
  // Keeps the marked line on the screen, and leaves no row empty that a line could fill.
  const size_t line_count = laid_out_.lines.size();
  if (marked < laid_out_.spans.size()) {
    const size_t line = laid_out_.spans[marked].line;
    if (line < top_line_) top_line_ = line;
    if (line >= top_line_ + body_rows_) top_line_ = line + 1 - body_rows_;
    if (line < body_rows_) top_line_ = 0;
  }
  top_line_ = std::min(top_line_, line_count > body_rows_ ? line_count - body_rows_ : 0);

  write_head(columns, &picture);
  for (std::string& line : brief) picture.lines.push_back(std::move(line));
  const size_t first_row = picture.lines.size();
  for (size_t i = 0; i < body_rows_ && picture.lines.size() < rows; ++i) {
    const size_t line = top_line_ + i;
    picture.lines.push_back(line < line_count ? laid_out_.lines[line] : "");
  }
  for (std::string& line : graph) picture.lines.push_back(std::move(line));
  if (picture.lines.size() < rows) picture.lines.push_back(fit_columns(keys_line(), columns));
  BP_ASSERT(picture.lines.size() <= rows);
  if (marked < laid_out_.spans.size()) {
    const TopSpan& span = laid_out_.spans[marked];
    const size_t line = first_row + span.line - top_line_;
    if (span.line >= top_line_ && line < picture.lines.size() && span.begin < columns) {
      BP_ASSERT(span.begin > 0);
      std::string& text = picture.lines[line];
      text.resize(std::max(text.size(), std::min(span.end, columns)), ' ');
      text[span.begin - 1] = '>';  // for terminals without reverse video
      picture.marks.push_back({line, span.begin, std::min(span.end, columns)});
    }
  }
  return picture;
}

}  // namespace bedplate
