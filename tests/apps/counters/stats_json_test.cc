// The counters of a simulated appliance as JSON, compared byte by byte, in parts of any length.
#include "apps/counters/stats_json.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "tests/apps/counters/counters_file_fixture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

struct AllKinds {
  Counter level;
  Counter is_open;
  Counter mode;
  Counter flags;
  Histogram wait_ns;
  SharedText client;
};
void describe(CounterTable& table, AllKinds& counters) {
  table.gauge("level", counters.level, "items", "A level.");
  table.gauge("is_open", counters.is_open, "boolean", "Whether it is open.").at_a_glance("open");
  table.state("mode", counters.mode, "off|on", "What it does.");
  table.flags("flags", counters.flags, "a|b", "What it has.");
  table.histogram("wait_ns", counters.wait_ns, "ns", "How long.");
  table.text("client", counters.client, "Who it is.");
}

// The sets of one JSON object are not next to each other.
const std::vector<CounterSet> kAll = {
    {"relay", "feeds", "b", sizeof(test::FeedCounters), described_counters<test::FeedCounters>()},
    {"", "box", "x", sizeof(AllKinds), described_counters<AllKinds>(), {{"backend", "a \"b\""}}},
    {"relay", "all", "", sizeof(test::HitCounters), described_counters<test::HitCounters>()},
    {"relay", "feeds", "a", sizeof(test::FeedCounters), described_counters<test::FeedCounters>()}};

}  // namespace

TEST_GROUP_BASE(StatsJson, test::CountersFileFixture) {
  uint64_t look_count = 0;  // of the last call of all()

  std::string all(CountersView counters, const StatsJson::Options& options,
                  size_t piece_bytes = StatsJson::kPieceBytesMin, size_t order_count = 64) {
    AuditReport audit;
    audit.text[0] = '!';
    std::vector<uint32_t> order(order_count);
    StatsJson json(counters, audit, options, order);
    std::string text;
    std::vector<char> piece(piece_bytes);
    while (const size_t bytes = json.write(piece)) text.append(piece.data(), bytes);
    look_count = json.look_count();
    return text;
  }
  static std::string without_spaces(std::string text) {
    std::erase_if(text, [](char each) { return each == ' ' || each == '\n'; });
    return text;
  }
};

TEST(StatsJson, EachKindAtItsPosition) {
  test::Running running(directory, "a", kAll);
  auto& box = *static_cast<AllKinds*>(running.file.values(kAll[1]));
  box.level.set(kNoValue);
  box.is_open.set(1);
  box.mode.set(1);
  box.flags.set(5);
  box.wait_ns.add(10);
  box.client.set("10.0.0.7\n\xff");
  const std::string expected =
      "{\"name\":\"a\",\"pid\":" + std::to_string(getpid()) +
      ",\"running\":true,\"audit\":\"!\",\"signs\":[],"
      "\"box\":{\"x\":{\"backend\":\"a \\\"b\\\"\",\"level\":null,\"is_open\":true,\"mode\":\"on\","
      "\"flags\":\"a 4\","
      "\"wait_ns\":{\"count\":1,\"p50\":10,\"p90\":10,\"p99\":10,\"p999\":10,\"max\":10},"
      "\"client\":\"10.0.0.7\\u000a\xef\xbf\xbd\"}},"
      "\"services\":{\"relay\":{\"hits\":0,\"held_bytes\":0,"
      "\"feeds\":{\"a\":{\"lost\":0},\"b\":{\"lost\":0}}}}}\n";
  STRCMP_EQUAL(expected.c_str(), all(running.file.view(), {}).c_str());
  // The layout for people has the same content.
  const std::string lines = all(running.file.view(), {.layout = JsonLayout::kLines});
  STRCMP_EQUAL(without_spaces(expected).c_str(), without_spaces(lines).c_str());
  STRCMP_CONTAINS(",\n  \"signs\": [],\n  \"box\": {\n    \"x\": {\n      \"backend\": \"a",
                  lines.c_str());
  CHECK(lines.ends_with("\"lost\": 0\n        }\n      }\n    }\n  }\n}\n"));
}

TEST(StatsJson, DescribedEachHasItsKindUnitAndHelp) {
  test::Running running(directory, "a", {kAll[0]});
  STRCMP_CONTAINS("\"services\":{\"relay\":{\"feeds\":{\"b\":{\"lost\":{\"value\":0,"
                  "\"kind\":\"counter\",\"unit\":\"packets\",\"help\":\"Never came.\"}}}}}}\n",
                  all(running.file.view(), {.is_described = true}).c_str());
}

TEST(StatsJson, DescribedItHasTheColumnOfWhatIsSeenAtAGlance) {
  test::Running running(directory, "a", {kAll[1]});
  const std::string text = all(running.file.view(), {.is_described = true});
  STRCMP_CONTAINS("\"help\":\"Whether it is open.\",\"column\":\"open\"}", text.c_str());
  STRCMP_CONTAINS("\"help\":\"A level.\"}", text.c_str());
}

TEST(StatsJson, ACrashIsWrittenWithItsLines) {
  test::Running running(directory, "a", {kAll[0]});
  SeenCrash crash;
  crash.crashed_ns = 5;
  const auto text = [&] { return all(running.file.view(), {.crash = &crash}); };
  STRCMP_CONTAINS("\"audit\":\"!\",\"crash\":{\"realtime_ns\":5,\"lines\":[]},\"signs\":[],",
                  text().c_str());
  crash.lines = {"signal 6", "  called \"x\""};
  STRCMP_CONTAINS("\"crash\":{\"realtime_ns\":5,\"lines\":[\"signal 6\","
                  "\"  called \\\"x\\\"\"]},\"signs\":[],",
                  text().c_str());
  crash.lines.assign(40, std::string(1024, 'x'));  // more than one part
  const std::string whole = all(running.file.view(), {.crash = &crash}, size_t{1} << 20);
  STRCMP_EQUAL(whole.c_str(), text().c_str());
}

// Everything is written in parts, even a long list of values of an unknown kind.
TEST(StatsJson, PiecesAreTheWhole) {
  std::vector<CounterSet> sets;
  for (int i = 0; i < 200; ++i) {
    sets.push_back(
        {"", "box", "x" + std::to_string(i), sizeof(AllKinds), described_counters<AllKinds>()});
  }
  test::Running running(directory, "a", sets);
  const auto& counter = running.file.view().counter(running.file.view().set(7), 4);
  std::string("of tomorrow").copy(const_cast<char*>(counter.kind), sizeof counter.kind);
  const std::string whole = all(running.file.view(), {}, size_t{16} << 20);
  STRCMP_EQUAL(whole.c_str(), all(running.file.view(), {}).c_str());
  STRCMP_CONTAINS("\"wait_ns\":{\"kind\":\"of tomorrow\",\"unit\":\"ns\",\"values\":[0,0,0",
                  whole.c_str());
  LONGS_EQUAL(std::count(whole.begin(), whole.end(), '{'),
              std::count(whole.begin(), whole.end(), '}'));
}

// A foreign file may have very many sets. If `order` has space for all sets, one look at each finds
// their order. With less space, the text is the same.
TEST(StatsJson, TheOrderOfManySetsTakesOneLookAtEach) {
  constexpr uint32_t kCount = 1000;
  std::vector<CounterSet> sets;
  for (uint32_t i = 0; i < kCount; ++i) {
    const uint32_t number = (i * 1237 + 11) % kCount;  // each number once, unsorted
    sets.push_back({number % 3 == 0 ? "" : "relay", "feeds", std::to_string(number),
                    sizeof(test::FeedCounters), described_counters<test::FeedCounters>()});
  }
  test::Running running(directory, "a", sets);
  const CountersView view = running.file.view();
  const std::string whole = all(view, {}, StatsJson::kPieceBytesMin, view.set_count() + 1);
  CHECK_EQUAL(view.set_count(), look_count);
  size_t at = 0, count = 0;
  for (; (at = whole.find("{\"lost\":0}", at)) != std::string::npos; ++at) ++count;
  CHECK_EQUAL(kCount, count);
  for (const size_t room : {size_t{1}, size_t{7}, size_t{500}, size_t{view.set_count()}}) {
    STRCMP_EQUAL(whole.c_str(), all(view, {}, StatsJson::kPieceBytesMin, room).c_str());
    CHECK_EQUAL(view.set_count() * (view.set_count() / room + 1), look_count);
  }
}

// A foreign file may have any text. Even the longest alert fits into one part.
TEST(StatsJson, TheLongestAlertFits) {
  const std::string label(sizeof(CounterLabelRecord::value) - 1, '\1');
  CounterSet set = {"relay", "feeds", "b", sizeof(test::FeedCounters), {}};
  const CounterDescriptions described = described_counters<test::FeedCounters>();
  std::vector<CounterDescription> own(described.begin(), described.end());
  own[0].alert_from(1, "{a}");
  set.counters = own;
  for (int i = 0; i < 13; ++i) set.labels.push_back({"a", label});
  test::Running running(directory, "a", {set});
  const CountersView view = running.file.view();
  const auto fill = [](const char* text, size_t bytes) {
    std::memset(const_cast<char*>(text), '\1', bytes - 1);
  };
  fill(view.set(0).owner.text, sizeof view.set(0).owner.text);
  fill(view.set(0).name.text, sizeof view.set(0).name.text);
  fill(view.set(0).instance.text, sizeof view.set(0).instance.text);
  const CounterLabelRecord& last = view.label(view.set(0), 12);
  const_cast<char*>(last.value)[kAlertTextBytesMax % label.size()] = '\0';
  const_cast<std::atomic<uint64_t>&>(view.alert(0).since_ns).store(1);
  const std::string text = all(view, {});
  const size_t says = text.find("\"says\":\"");
  LONGS_EQUAL(6 * kAlertTextBytesMax, text.find('"', says + 8) - says - 8);
}

TEST(StatsJson, AuditOfTooLittle) {
  test::Running running(directory, "a", kAll);
  STRCMP_EQUAL("the file does not describe the pool's segments",
               audit_of(running.file.view(), true).text);
  STRCMP_EQUAL("the appliance is not running: it crashed or was killed",
               audit_of(running.file.view(), false).text);
}
