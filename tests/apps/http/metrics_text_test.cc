// The counters of a made-up appliance as both formats have them, to the byte.
#include "apps/http/metrics_text.h"

#include <cstring>
#include <string>
#include <vector>

#include "tests/apps/boot/counters_file_fixture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

struct AllKinds {
  Counter lost_ns;
  Counter level;
  Counter mode;
  Counter flags;
  Histogram wait_ns;
};
void describe(CounterTable& table, AllKinds& counters) {
  table.counter("lost_ns", counters.lost_ns, "ns", "Time \"lost\" \\ gone.");
  table.gauge("level", counters.level, "items", "A level.");
  table.state("mode", counters.mode, "off|on", "What it does.");
  table.flags("flags", counters.flags, "a|b", "What it has.");
  table.histogram("wait_ns", counters.wait_ns, "ns", "How long.");
}

const std::vector<CounterSet> kAll = {
    {"", "box", "x-1", sizeof(AllKinds), described_counters<AllKinds>()},
    {"cache", "gets", "", sizeof(test::HitCounters), described_counters<test::HitCounters>()},
    {"", "box", "\"y\"", sizeof(AllKinds), described_counters<AllKinds>()},
    {"relay", "feeds", "a", sizeof(test::FeedCounters), described_counters<test::FeedCounters>()},
    {"relay", "feeds", "b", sizeof(test::FeedCounters), described_counters<test::FeedCounters>()}};

}  // namespace

TEST_GROUP_BASE(MetricsText, test::CountersFileFixture){
    AllKinds & box(test::Running & running,
                   size_t set){return *static_cast<AllKinds*>(running.file.values(kAll[set]));
}
std::string all(test::Running& running, MetricsFormat format,
                size_t piece_bytes = MetricsText::kPieceBytesMin) {
  MetricsText metrics(running.file.view(), format);
  std::string text;
  std::vector<char> piece(piece_bytes);
  while (const size_t bytes = metrics.write(piece)) {
    CHECK(piece[bytes - 1] == '\n');
    text.append(piece.data(), bytes);
  }
  return text;
}
// The lines of one metric.
std::string of(const std::string& text, const std::string& name) {
  std::string lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at) + 1;
    const std::string line = text.substr(at, end - at);
    const size_t place = line.find(name);
    if (place == 0 || (line[0] == '#' && place != std::string::npos)) lines += line;
    at = end;
  }
  return lines;
}
}
;

TEST(MetricsText, EachKindInTheTextFormat) {
  test::Running running(directory, "a", kAll);
  box(running, 0).lost_ns.set(1'500'000'001);
  box(running, 0).level.set(kNoValue);
  box(running, 2).level.set(7);
  box(running, 0).mode.set(1);
  box(running, 2).flags.set(3);
  const std::string text = all(running, MetricsFormat::kPrometheus);
  STRCMP_EQUAL("# HELP bedplate_box_lost_seconds_total Time \"lost\" \\\\ gone.\n"
               "# TYPE bedplate_box_lost_seconds_total counter\n"
               "bedplate_box_lost_seconds_total{box=\"x-1\"} 1.500000001\n"
               "bedplate_box_lost_seconds_total{box=\"\\\"y\\\"\"} 0.000000000\n",
               of(text, "bedplate_box_lost").c_str());
  STRCMP_EQUAL("# HELP bedplate_box_level A level.\n# TYPE bedplate_box_level gauge\n"
               "bedplate_box_level{box=\"\\\"y\\\"\"} 7\n",
               of(text, "bedplate_box_level").c_str());
  STRCMP_EQUAL("bedplate_box_mode{box=\"x-1\",is=\"off\"} 0\n"
               "bedplate_box_mode{box=\"x-1\",is=\"on\"} 1\n"
               "bedplate_box_mode{box=\"\\\"y\\\"\",is=\"off\"} 1\n"
               "bedplate_box_mode{box=\"\\\"y\\\"\",is=\"on\"} 0\n",
               of(text, "bedplate_box_mode{").c_str());
  STRCMP_EQUAL("bedplate_box_flags{box=\"\\\"y\\\"\",is=\"a\"} 1\n"
               "bedplate_box_flags{box=\"\\\"y\\\"\",is=\"b\"} 1\n",
               of(text, "bedplate_box_flags{box=\"\\\"y").c_str());
  STRCMP_EQUAL("# HELP bedplate_relay_feeds_lost_total Never came.\n"
               "# TYPE bedplate_relay_feeds_lost_total counter\n"
               "bedplate_relay_feeds_lost_total{feeds=\"a\"} 0\n"
               "bedplate_relay_feeds_lost_total{feeds=\"b\"} 0\n",
               of(text, "bedplate_relay").c_str());
  STRCMP_EQUAL("bedplate_cache_hits_total{} 0\n", of(text, "bedplate_cache_hits_total{").c_str());
}

TEST(MetricsText, OpenMetricsDiffers) {
  test::Running running(directory, "a", kAll);
  const std::string text = all(running, MetricsFormat::kOpenMetrics);
  STRCMP_EQUAL("# HELP bedplate_box_lost_seconds Time \\\"lost\\\" \\\\ gone.\n"
               "# TYPE bedplate_box_lost_seconds counter\n"
               "# UNIT bedplate_box_lost_seconds seconds\n"
               "bedplate_box_lost_seconds_total{box=\"x-1\"} 0.000000000\n"
               "bedplate_box_lost_seconds_total{box=\"\\\"y\\\"\"} 0.000000000\n",
               of(text, "bedplate_box_lost").c_str());
  STRCMP_EQUAL("\n# EOF\n", text.substr(text.size() - 7).c_str());
}

// Its buckets are those of the histogram, put together; the sum is at most a sixteenth too large.
TEST(MetricsText, HistogramsAddUp) {
  test::Running running(directory, "a", kAll);
  Histogram& waits = box(running, 0).wait_ns;
  for (const uint64_t value : {uint64_t{0}, uint64_t{15}, uint64_t{16}, uint64_t{1000}}) {
    waits.add(value);
  }
  waits.add(uint64_t{1} << 50);
  const std::string text = all(running, MetricsFormat::kPrometheus);
  const auto expect_line = [&](const std::string& line) {
    STRCMP_CONTAINS(("\nbedplate_box_wait_seconds" + line + "\n").c_str(), text.c_str());
  };
  expect_line("_bucket{box=\"x-1\",le=\"0.000000015\"} 2");
  expect_line("_bucket{box=\"x-1\",le=\"0.000000031\"} 3");
  expect_line("_bucket{box=\"x-1\",le=\"0.000000511\"} 3");
  expect_line("_bucket{box=\"x-1\",le=\"0.000001023\"} 4");
  expect_line("_bucket{box=\"x-1\",le=\"549.755813887\"} 4");
  expect_line("_bucket{box=\"x-1\",le=\"+Inf\"} 5");
  expect_line("_count{box=\"x-1\"} 5");
  STRCMP_CONTAINS("# TYPE bedplate_box_wait_seconds histogram\n", text.c_str());
}

TEST(MetricsText, PiecesAreTheWhole) {
  test::Running running(directory, "a", kAll);
  const std::string whole = all(running, MetricsFormat::kOpenMetrics, 1 << 20);
  STRCMP_EQUAL(whole.c_str(), all(running, MetricsFormat::kOpenMetrics).c_str());
}
