#include "apps/program/counters/signs.h"

#include "apps/counters/counter_signs.h"
#include "apps/counters/counters_file.h"
#include "apps/counters/counters_reader.h"
#include "platform/text.h"

namespace bedplate {
namespace {

std::string text_of(void (*write)(const CountersView&, uint32_t, TextWriter*),
                    const CountersView& view, uint32_t index) {
  char text[kSignTextBytesMax];
  TextWriter writer(text);
  write(view, index, &writer);
  return {text, writer.bytes()};
}

}  // namespace

std::vector<SeenSign> signs_of(const CountersSnapshot& counters) {
  const CountersView view = counters.view();
  std::vector<SeenSign> signs;
  for (uint32_t i = 0; i < view.sign_count(); ++i) {
    if (!is_raised(view, i)) continue;
    const CounterSignRecord& sign = view.sign(i);
    const CounterRecord& counter = view.counter(view.set(sign.set), sign.counter);
    signs.push_back({printable(text_of(&write_sign_subject, view, i)),
                     printable(std::string(CountersView::text(counter.name))),
                     printable(text_of(&write_sign_text, view, i))});
  }
  return signs;
}

Json signs_json(const CountersSnapshot& counters) {
  Json json = Json::array();
  for (const SeenSign& sign : signs_of(counters)) {
    json.push_back({{"of", sign.of}, {"counter", sign.counter}, {"says", sign.says}});
  }
  return json;
}

std::vector<Finding> appliance_findings(const std::string& directory) {
  std::vector<Finding> findings;
  auto names = list_appliances(directory);
  if (!names.ok()) return findings;
  for (const std::string& name : names.value()) {
    const std::string title = "appliance " + name;
    auto reader = CountersReader::open_file(counters_path(directory, name));
    if (!reader.ok()) {
      findings.push_back({title, Verdict::kWarning, reader.error().answer, reader.error().cure});
      continue;
    }
    if (!reader.value().is_running()) {
      findings.push_back({title, Verdict::kWarning, "it has crashed: its log says how",
                          "start it again; `bedplate stats` shows its last counters"});
      continue;
    }
    auto snapshot = reader.value().snapshot();
    if (!snapshot.ok()) {
      const Error& error = snapshot.error();
      findings.push_back({title, Verdict::kWarning, error.answer, error.cure});
      continue;
    }
    const std::vector<SeenSign> signs = signs_of(snapshot.value());
    if (signs.empty()) {
      findings.push_back({title, Verdict::kGood, "runs; nothing needs a look", ""});
    }
    for (const SeenSign& sign : signs) {
      findings.push_back({title, Verdict::kWarning, sign.text(), "`bedplate top` shows it live"});
    }
  }
  return findings;
}

}  // namespace bedplate
