#include "apps/http/event_text.h"

#include <cstring>
#include <string_view>

#include "platform/assert.h"

namespace bedplate {
namespace {

constexpr std::string_view kPrefix = "data:";
// The shortest line is "bedplate_x_y{} 0".
constexpr size_t kMetricsLineBytesMin = 17;
static_assert(MetricsText::kPieceBytesMin / kMetricsLineBytesMin * kPrefix.size() <=
              EventText::kPrefixesBytes);

size_t put(std::string_view text, std::span<char> to) noexcept {
  return text.copy(to.data(), to.size());
}

// Writes metrics as an event's data. It first writes a part behind space for the prefixes, then
// moves it to the front line by line. The front never reaches a line that has not been moved.
size_t write_metrics(MetricsText* metrics, std::span<char> to) noexcept {
  const std::span<char> from = to.subspan(EventText::kPrefixesBytes, MetricsText::kPieceBytesMin);
  std::string_view rest(from.data(), metrics->write(from));
  size_t bytes = 0;
  while (!rest.empty()) {
    const size_t line_bytes = rest.find('\n') + 1;
    BP_ASSERT(line_bytes > 0 && to.data() + bytes + kPrefix.size() <= rest.data());
    bytes += put(kPrefix, to.subspan(bytes));
    std::memmove(to.data() + bytes, rest.data(), line_bytes);
    bytes += line_bytes;
    rest.remove_prefix(line_bytes);
  }
  return bytes;
}

}  // namespace

void EventText::begin_round() noexcept {
  BP_ASSERT(part_ == Part::kOver && !has_name_);
  part_ = Part::kAlerts;
  alerts_ = AlertLines(counters_, LineFormat::kEvent);
  log_ = LogLines(LineFormat::kEvent, log_.end());
  metrics_ = MetricsText(counters_, MetricsFormat::kPrometheus);
}

size_t EventText::write(std::span<char> to) noexcept {
  BP_ASSERT(to.size() >= kPieceBytesMin);
  if (part_ == Part::kOver) return 0;
  if (!has_name_) {
    has_name_ = true;
    const char* name = part_ == Part::kAlerts ? "event:signs\n"
                       : part_ == Part::kLog  ? "event:log\n"
                                              : "event:metrics\n";
    return put(name, to);
  }
  const size_t bytes = part_ == Part::kAlerts ? alerts_.write(to)
                       : part_ == Part::kLog  ? log_.write(to)
                                              : write_metrics(&metrics_, to);
  BP_DCHECK(bytes <= to.size());
  if (bytes > 0) return bytes;
  has_name_ = false;
  // Without alerts there is still an event; without log lines there is none.
  const char* end = part_ == Part::kAlerts ? "data:\n\n" : "\n";
  part_ = static_cast<Part>(static_cast<uint8_t>(part_) + 1);
  return put(end, to);
}

}  // namespace bedplate
