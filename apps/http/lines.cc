#include "apps/http/lines.h"

#include <algorithm>
#include <string_view>

#include "apps/counters/counter_alerts.h"
#include "platform/assert.h"
#include "platform/recent_lines.h"
#include "platform/text_writer.h"

namespace bedplate {
namespace {

void write_character(char each, bool is_html, TextWriter* writer) noexcept {
  if (is_html && each == '<') {
    writer->text("&lt;");
  } else if (is_html && each == '&') {
    writer->text("&amp;");
  } else {
    // Control characters would split a line or steer a terminal.
    const bool is_control = static_cast<unsigned char>(each) < ' ' || each == '\x7f';
    const char shown = is_control ? ' ' : each;
    writer->text({&shown, 1});
  }
}

void write_line(std::string_view line, LineFormat format, TextWriter* writer) noexcept {
  const bool is_item = format == LineFormat::kListItem;
  if (is_item) writer->text("<li class=\"bad\">");
  if (format == LineFormat::kEvent) writer->text("data:");
  for (const char each : line) {
    write_character(each, is_item || format == LineFormat::kPreformatted, writer);
  }
  writer->text(is_item ? "</li>" : "\n");
}

}  // namespace

size_t AlertLines::write(std::span<char> to) noexcept {
  BP_ASSERT(to.size() >= kPieceBytesMin);
  BP_DCHECK(next_ <= counters_.alert_count());
  size_t bytes = 0;
  for (; next_ < counters_.alert_count(); ++next_) {
    if (!is_raised(counters_, next_)) continue;
    char text[kAlertTextBytesMax];
    TextWriter line(text);
    write_alert_subject(counters_, next_, &line);
    line.text(": ");
    write_alert_text(counters_, next_, &line);
    TextWriter writer(to.subspan(bytes));
    write_line({text, line.bytes()}, format_, &writer);
    BP_DCHECK(bytes > 0 || !writer.is_full());  // otherwise it would look like the end
    if (writer.is_full()) break;
    bytes += writer.bytes();
  }
  return bytes;
}

LogLines::LogLines(LineFormat format, uint64_t first) noexcept
    : format_(format), next_(std::max(first, first_recent_line())), end_(next_recent_line()) {}

size_t LogLines::write(std::span<char> to) noexcept {
  BP_ASSERT(to.size() >= kPieceBytesMin);
  size_t bytes = 0;
  for (; next_ < end_; ++next_) {
    char text[kRecentLineBytesMax];
    const size_t line_bytes = read_recent_line(next_, text);
    if (line_bytes == 0) continue;
    BP_DCHECK(text[line_bytes - 1] == '\n');
    TextWriter writer(to.subspan(bytes));
    write_line({text, line_bytes - 1}, format_, &writer);
    BP_DCHECK(bytes > 0 || !writer.is_full());  // otherwise it would look like the end
    if (writer.is_full()) break;
    bytes += writer.bytes();
  }
  return bytes;
}

}  // namespace bedplate
