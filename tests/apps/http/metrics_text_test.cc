// The counters of a simulated appliance in both formats, compared byte by byte.
#include "apps/http/metrics_text.h"

#include <cstring>
#include <string>
#include <vector>

#include "apps/counters/counter_sums.h"
#include "apps/services/shard_counters.h"
#include "tests/apps/counters/counters_file_fixture.h"

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
  table.state("mode", counters.mode, "off|on", "What it does.").at_a_glance("mode");
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
// Returns the lines of one metric.
std::string of(const std::string& text, const std::string& name) {
  std::string lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at) + 1;
    const std::string line = text.substr(at, end - at);
    const size_t position = line.find(name);
    if (position == 0 || (line[0] == '#' && position != std::string::npos)) lines += line;
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
  STRCMP_EQUAL("# GLANCE bedplate_box_mode{owner=\"\",set=\"box\",column=\"mode\"}\n"
               "bedplate_box_mode{box=\"x-1\",is=\"off\"} 0\n"
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

TEST(MetricsText, TheSumOfShardsIsAMetricOfItsOwn) {
  std::vector<CounterSet> sets;
  for (const char* shard : {"a", "b"}) {
    sets.push_back(on_shard(
        {"echo", "clients", "", sizeof(test::HitCounters), described_counters<test::HitCounters>()},
        shard, 2));
  }
  add_sums(&sets);
  test::Running running(directory, "a", sets);
  for (const size_t i : {size_t{1}, size_t{2}}) {
    static_cast<test::HitCounters*>(running.file.values(sets[i]))->hits.set(i);
  }
  add_up_shards(running.file.header());
  const std::string text = all(running, MetricsFormat::kPrometheus);
  STRCMP_EQUAL("bedplate_echo_hits_total{} 3\n", of(text, "bedplate_echo_hits_total{").c_str());
  STRCMP_EQUAL("bedplate_echo_clients_hits_total{shard=\"a\"} 1\n"
               "bedplate_echo_clients_hits_total{shard=\"b\"} 2\n",
               of(text, "bedplate_echo_clients_hits_total{").c_str());
}

// Each such metric has one mark, after its head, with its owner and set. The counters of a service
// itself are one set.
TEST(MetricsText, WhatIsSeenAtAGlanceIsMarked) {
  struct Marked {
    Counter sent_bytes;
    Counter open;
    Histogram wait_ns;
  } marked;
  CounterTable table(&marked);
  table.counter("sent_bytes", marked.sent_bytes, "bytes", "Sent.").at_a_glance("sent");
  table.gauge("open", marked.open, "clients", "Clients.").at_a_glance("clients");
  table.histogram("wait_ns", marked.wait_ns, "ns", "How long.").at_a_glance("p99");
  const CounterDescriptions counters = table.take();
  test::Running running(directory, "a",
                        {{"my-relay", "all", "", sizeof marked, counters},
                         {"my-relay", "feeds", "x", sizeof marked, counters},
                         {"my-relay", "feeds", "y", sizeof marked, counters}});
  const std::string text = all(running, MetricsFormat::kPrometheus);
  STRCMP_EQUAL(
      "# HELP bedplate_my_relay_sent_bytes_total Sent.\n"
      "# TYPE bedplate_my_relay_sent_bytes_total counter\n"
      "# GLANCE bedplate_my_relay_sent_bytes_total{owner=\"my-relay\",set=\"\",column=\"sent\"}\n"
      "bedplate_my_relay_sent_bytes_total{} 0\n",
      of(text, "bedplate_my_relay_sent").c_str());
  std::string marks;
  for (size_t at = 0; (at = text.find("# GLANCE ", at)) != std::string::npos;) {
    const size_t end = text.find('\n', at) + 1;
    marks += text.substr(at + 9, end - at - 9);
    at = end;
  }
  STRCMP_EQUAL(
      "bedplate_my_relay_sent_bytes_total{owner=\"my-relay\",set=\"\",column=\"sent\"}\n"
      "bedplate_my_relay_open{owner=\"my-relay\",set=\"\",column=\"clients\"}\n"
      "bedplate_my_relay_wait_seconds{owner=\"my-relay\",set=\"\",column=\"p99\"}\n"
      "bedplate_my_relay_feeds_sent_bytes_total{owner=\"my-relay\",set=\"feeds\",column=\"sent\"}\n"
      "bedplate_my_relay_feeds_open{owner=\"my-relay\",set=\"feeds\",column=\"clients\"}\n"
      "bedplate_my_relay_feeds_wait_seconds{owner=\"my-relay\",set=\"feeds\",column=\"p99\"}\n",
      marks.c_str());
  CHECK(all(running, MetricsFormat::kOpenMetrics).find("GLANCE") == std::string::npos);
}

TEST(MetricsText, TheApplianceSaysItsNameAndAge) {
  test::Running running(directory, "pump-1", kAll);
  for (const auto format : {MetricsFormat::kPrometheus, MetricsFormat::kOpenMetrics}) {
    STRCMP_EQUAL("# HELP bedplate_appliance_info The appliance that these counters belong to.\n"
                 "# TYPE bedplate_appliance_info gauge\n"
                 "bedplate_appliance_info{name=\"pump-1\"} 1\n",
                 of(all(running, format), "bedplate_appliance_info").c_str());
    const auto age = [&] {
      const std::string text = all(running, format);
      const std::string line = "\nbedplate_appliance_uptime_seconds{} ";
      const size_t at = text.find(line);
      CHECK(at != std::string::npos);
      return std::stod(text.substr(at + line.size()));
    };
    const double first = age();
    CHECK(first > 0 && age() > first);
  }
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

// Each bucket of the text combines several buckets of the histogram.
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
  // Without the age of the appliance, which differs from call to call.
  const auto from_the_first_set = [&](size_t piece_bytes) {
    const std::string text = all(running, MetricsFormat::kOpenMetrics, piece_bytes);
    return text.substr(text.find("# HELP bedplate_box"));
  };
  STRCMP_EQUAL(from_the_first_set(1 << 20).c_str(),
               from_the_first_set(MetricsText::kPieceBytesMin).c_str());
}
