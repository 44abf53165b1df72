#include "apps/http/status_page.h"

#include <algorithm>
#include <iterator>

#include "apps/counters/counter_alerts.h"
#include "apps/http/status_page_parts.h"
#include "platform/assert.h"
#include "platform/product.h"
#include "platform/text_writer.h"

namespace bedplate {

const std::string_view kStatusPageHeaders =
    "Content-Security-Policy: default-src 'none'; script-src '" BP_STATUS_PAGE_SCRIPT
    "'; style-src '" BP_STATUS_PAGE_STYLE
    "'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "Referrer-Policy: no-referrer\r\n";

namespace {

constexpr size_t kStateBytesMax = 256;

// Writes that the appliance is not ready, and the number of raised alerts; often nothing.
void write_words(const StatusPage::Told& told, const CountersView& counters,
                 TextWriter* writer) noexcept {
  const uint32_t alert_count = raised_alert_count(counters);
  if (!told.is_ready) writer->text("Draining, or not ready yet");
  if (alert_count == 0) return;
  writer->text(told.is_ready ? "" : "; ").number(alert_count);
  writer->text(alert_count == 1 ? " needs a look" : " need a look");
}

// Writes a value of the page; the script's tell() later overwrites it. An appliance's name has only
// letters, digits, - and _.
void write_value(std::string_view name, const std::optional<StatusPage::Told>& told,
                 const CountersView& counters, TextWriter* writer) noexcept {
  char text[kStateBytesMax];
  TextWriter state(text);
  if (told) write_words(*told, counters, &state);
  const std::string_view words(text, state.bytes());
  const bool is_good = told && words.empty();
  if (name == "name") {
    writer->text(told ? counters.appliance() : product().name);
  } else if (name == "title") {
    if (!words.empty()) writer->text("! ").text(words).text(" - ");
    writer->text(told ? counters.appliance() : product().name);
  } else if (name == "state_class") {
    writer->text(is_good ? "good" : "bad");
  } else {
    BP_DCHECK(name == "state");
    writer->text(is_good ? "Ready" : told ? words : "A token is needed");
  }
}

}  // namespace

size_t StatusPage::write(std::span<char> to) noexcept {
  BP_ASSERT(to.size() >= kPieceBytesMin);
  constexpr size_t kRoomBytes = std::max(AlertLines::kPieceBytesMin, LogLines::kPieceBytesMin);
  static_assert(std::all_of(std::begin(kStatusPageParts), std::end(kStatusPageParts),
                            [](std::string_view part) { return part.size() <= kPieceBytesMin; }));
  size_t bytes = 0;
  while (part_ < std::size(kStatusPageParts)) {
    const std::span<char> rest = to.subspan(bytes);
    const std::string_view part = kStatusPageParts[part_];
    const bool is_text = part_ % 2 == 0;
    size_t more = 0;
    if (is_text) {
      if (part.size() > rest.size()) break;
      bytes += part.copy(rest.data(), rest.size());
    } else if (part == "alerts" || part == "log") {
      if (rest.size() < kRoomBytes) break;
      if (told_) more = part == "alerts" ? alerts_.write(rest) : log_.write(rest);
      bytes += more;
    } else {
      if (rest.size() < 2 * kStateBytesMax) break;
      TextWriter writer(rest);
      write_value(part, told_, counters_, &writer);
      bytes += writer.bytes();
    }
    if (more == 0) ++part_;  // sources of lines: once all lines are written
  }
  return bytes;
}

}  // namespace bedplate
