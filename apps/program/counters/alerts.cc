#include "apps/program/counters/alerts.h"

#include <cerrno>

#include <unistd.h>

#include "apps/counters/counter_alerts.h"
#include "apps/counters/counters_file.h"
#include "apps/counters/counters_reader.h"
#include "platform/product.h"
#include "platform/text.h"

namespace bedplate {
namespace {

std::string text_of(void (*write)(const CountersView&, uint32_t, TextWriter*),
                    const CountersView& view, uint32_t index) {
  char text[kAlertTextBytesMax];
  TextWriter writer(text);
  write(view, index, &writer);
  return {text, writer.bytes()};
}

// An appliance that runs no more.
Finding finding_of_end(const std::string& title, const CountersReader& reader) {
  const auto crash = reader.crash();
  if (!crash) {
    return {title, Verdict::kWarning,
            "it has ended without the record of a crash: it was killed, or memory ran out (dmesg)",
            with_product_name("start it again; `PROGRAM stats` shows its last counters")};
  }
  return {title, Verdict::kWarning, "it has crashed, at " + crash->time() + ": " + crash->summary(),
          with_product_name("start it again; `PROGRAM stats` shows the calls and its last "
                            "counters")};
}

// The crash that ended an earlier run.
void add_earlier_crash(const std::string& directory, const std::string& name,
                       std::vector<Finding>* findings) {
  const std::string path = crashed_path(directory, name);
  auto reader = CountersReader::open_file(path);
  if (!reader.ok()) return;  // a foreign file
  const auto crash = reader.value().crash();
  if (!crash) return;
  findings->push_back({"appliance " + name, Verdict::kWarning,
                       "an earlier run has crashed, at " + crash->time() + ": " + crash->summary(),
                       with_product_name("`PROGRAM stats --from ") + path +
                           "` shows the calls and the last counters; "
                           "remove the file once the cause is known"});
}

}  // namespace

std::vector<SeenAlert> alerts_of(const CountersSnapshot& counters) {
  const CountersView view = counters.view();
  std::vector<SeenAlert> alerts;
  for (uint32_t i = 0; i < view.alert_count(); ++i) {
    if (!is_raised(view, i)) continue;
    const CounterAlertRecord& alert = view.alert(i);
    const CounterRecord& counter = view.counter(view.set(alert.set), alert.counter);
    alerts.push_back({printable(text_of(&write_alert_subject, view, i)),
                      printable(std::string(CountersView::text(counter.name))),
                      printable(text_of(&write_alert_text, view, i))});
  }
  return alerts;
}

JsonValue alerts_json(const CountersSnapshot& counters) {
  JsonValue json = JsonValue::array();
  for (const SeenAlert& alert : alerts_of(counters)) {
    json.push_back({{"of", alert.of}, {"counter", alert.counter}, {"says", alert.says}});
  }
  return json;
}

std::vector<Finding> appliance_findings(const std::string& directory) {
  std::vector<Finding> findings;
  auto names = list_appliances(directory);
  if (!names.ok()) {
    if (access(directory.c_str(), F_OK) != 0 && errno == ENOENT) return findings;  // nothing runs
    return {{"appliances", Verdict::kWarning, names.error().answer,
             "name a directory that this user may read: --directory"}};
  }
  for (const std::string& name : names.value()) {
    const std::string title = "appliance " + name;
    auto reader = CountersReader::open_file(counters_path(directory, name));
    if (!reader.ok()) {
      findings.push_back({title, Verdict::kWarning, reader.error().answer, reader.error().cure});
      continue;
    }
    if (!reader.value().is_running()) {
      findings.push_back(finding_of_end(title, reader.value()));
      continue;
    }
    auto snapshot = reader.value().snapshot();
    if (!snapshot.ok()) {
      const Error& error = snapshot.error();
      findings.push_back({title, Verdict::kWarning, error.answer, error.cure});
      continue;
    }
    const std::vector<SeenAlert> alerts = alerts_of(snapshot.value());
    if (alerts.empty()) {
      findings.push_back({title, Verdict::kGood, "runs; nothing needs a look", ""});
    }
    for (const SeenAlert& alert : alerts) {
      findings.push_back({title, Verdict::kWarning, alert.text(),
                          with_product_name("`PROGRAM top` shows it live")});
    }
  }
  auto crashed = list_crashed(directory);
  if (!crashed.ok()) return findings;  // it was removed meanwhile
  for (const std::string& name : crashed.value()) add_earlier_crash(directory, name, &findings);
  return findings;
}

}  // namespace bedplate
