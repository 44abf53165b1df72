// Alerts on counters: each rule, the texts, and the alerts that a reader sees.
#include "apps/counters/counter_alerts.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "apps/blockd/nbd_counters.h"
#include "apps/blockd/stores/nvme_drives.h"
#include "apps/boot/runtime_counters.h"
#include "apps/services/planned_files.h"
#include "apps/tsrelay/relay_counters.h"
#include "tests/apps/counters/counters_file_fixture.h"
#include "transport/dpdk/net/net_counters.h"
#include "transport/dpdk/port/port_counters.h"

using namespace bedplate;

namespace {

struct Watched {
  Counter silent_ns;
  Counter free_bytes;
  Counter bytes;
  Counter state;
  Counter errors;
  Counter rounds;
  Counter asleep;
  SharedText client;
};
void describe(CounterTable& table, Watched& c) {
  table.gauge("silent_ns", c.silent_ns, "ns", "Silence.")
      .alert_from(5 * kNsPerSecond, "{place} is silent for {silent_ns}, {client} waits");
  table.gauge("free_bytes", c.free_bytes, "bytes", "Free.").alert_below(10, "bytes", "full");
  table.gauge("bytes", c.bytes, "bytes", "All.");
  table.state("state", c.state, "waiting|connected", "State.").alert_unless(1, "it is {state}");
  table.counter("errors", c.errors, "errors", "Errors.").alert_as_it_grows("{errors} errors");
  table.counter("rounds", c.rounds, "rounds", "Rounds.").alert_as_it_stands("asleep", "stuck");
  table.boolean("asleep", c.asleep, "Sleeps.");
  table.text("client", c.client, "Who.");
}

constexpr uint64_t kSecond = kNsPerSecond;

}  // namespace

TEST_GROUP_BASE(CounterAlerts, test::CountersFileFixture) {
  std::vector<CounterSet> sets = {
      {"disks", "stores", "a", sizeof(Watched), described_counters<Watched>(), {{"place", "/a"}}},
      {"disks", "stores", "b", sizeof(Watched), described_counters<Watched>(), {{"place", "/b"}}}};
  std::unique_ptr<test::Running> running;
  CounterAlerts alerts;
  uint64_t now_ns = 1000 * kSecond;

  void begin() {
    running = std::make_unique<test::Running>(directory, "demo", sets);
    running->publish();
    alerts.create(running->file, sets);
    for (size_t i = 0; i < 2; ++i) {  // raises no alert
      of(i).free_bytes.set(50);
      of(i).bytes.set(100);
      of(i).state.set(1);
      of(i).asleep.set(1);
    }
  }
  void teardown() override {
    running.reset();
    CountersFileFixture::teardown();
  }
  Watched& of(size_t index) { return *static_cast<Watched*>(running->file.values(sets[index])); }
  // Evaluates the rules once a second, for so many seconds. Returns the alerts raised at the end.
  std::string seen_after(uint64_t seconds) {
    for (uint64_t i = 0; i < seconds; ++i) alerts.look(now_ns += kSecond);
    std::string all;
    const CountersView view = running->file.view();
    for (uint32_t i = 0; i < view.alert_count(); ++i) {
      if (!is_raised(view, i)) continue;
      char text[512];
      TextWriter writer(text);
      write_alert_subject(view, i, &writer);
      writer.text(": ");
      write_alert_text(view, i, &writer);
      all += (all.empty() ? "" : "; ") + std::string(text, writer.bytes());
    }
    return all;
  }
  static std::string text_of(const SharedText& text) {
    const auto* words = reinterpret_cast<const Counter*>(&text);
    return std::string(SharedText::read(std::span(words, sizeof text / sizeof *words)).view());
  }
  void expect_seen(const char* expected, uint64_t seconds) {
    STRCMP_EQUAL(expected, seen_after(seconds).c_str());
  }
};

TEST(CounterAlerts, WhatIsSoundRaisesNoAlert) {
  begin();
  expect_seen("", 100);
}

TEST(CounterAlerts, AGaugeFromSomeValueOnNamesWhatIsBesideIt) {
  begin();
  of(1).silent_ns.set(5 * kSecond - 1);
  expect_seen("", 1);
  of(1).silent_ns.set(72 * kSecond / 10);
  of(1).client.set("10.0.0.7:4711");
  expect_seen("disks stores b: /b is silent for 7.2 s, 10.0.0.7:4711 waits", 1);
  of(1).silent_ns.set(kNoValue);
  expect_seen("", 1);
}

// A text that is too long is cut between characters: a page or metrics with invalid UTF-8 would be
// useless.
TEST(CounterAlerts, NoCharacterIsCutInTwo) {
  for (const char* const character : {"\u00e9", "\u20ac", "\U0001f40c"}) {
    const size_t bytes = std::strlen(character);
    for (size_t before = 90; before <= 100; ++before) {
      const std::string text = std::string(before, 'x') + character + character;
      SharedText shared;
      shared.set(text);
      const size_t whole = before >= SharedText::kBytesMax
                               ? SharedText::kBytesMax
                               : before + (SharedText::kBytesMax - before) / bytes * bytes;
      const size_t expected = std::min(whole, text.size());
      STRCMP_EQUAL(text.substr(0, expected).c_str(), text_of(shared).c_str());
    }
    sets[0].labels[0].value = std::string(160 - bytes, 'x') + character;
    begin();
    of(0).silent_ns.set(6 * kSecond);
    expect_seen(
        ("disks stores a: " + std::string(160 - bytes, 'x') + " is silent for 6 s,  waits").c_str(),
        1);
    running.reset();
    alerts = {};
  }
}

TEST(CounterAlerts, AGaugeBelowAPartOfAnother) {
  begin();
  of(0).free_bytes.set(10 * kMiB);
  of(0).bytes.set(100 * kMiB);
  expect_seen("", 1);
  of(0).free_bytes.set(9 * kMiB);
  expect_seen("disks stores a: full", 1);
  of(0).bytes.set(kNoValue);
  expect_seen("", 1);
  of(0).free_bytes.set(9);  // small numbers, and the largest
  of(0).bytes.set(90);
  expect_seen("", 1);
  of(0).bytes.set(91);
  expect_seen("disks stores a: full", 1);
  of(0).free_bytes.set(kNoValue - 1);
  of(0).bytes.set(kNoValue - 1);
  expect_seen("", 1);
}

TEST(CounterAlerts, AStateThatLasts) {
  begin();
  of(0).state.set(0);
  expect_seen("", 5);  // the connection may be about to be made
  expect_seen("disks stores a: it is waiting", 1);
  of(0).state.set(1);
  expect_seen("", 1);
}

TEST(CounterAlerts, WhatGrewRaisesAnAlertForAMinute) {
  begin();
  of(0).errors.set(7);  // before the first look, perhaps long ago
  expect_seen("", 2);
  of(0).errors.add(1);
  expect_seen("disks stores a: 8 errors", 1);
  expect_seen("disks stores a: 8 errors", 59);
  expect_seen("", 1);
}

TEST(CounterAlerts, WhatStandsThoughItIsNotAsleep) {
  begin();
  of(0).asleep.set(0);
  expect_seen("", 5);
  expect_seen("disks stores a: stuck", 2);
  of(0).rounds.add(1);
  expect_seen("", 1);
}

// A reader of the file sees the same alerts. It refuses a file whose alerts point outside the file.
TEST(CounterAlerts, ReadersSeeThemAndForeignOnesAreJudged) {
  begin();
  of(1).errors.add(0);
  alerts.look(now_ns);
  of(1).errors.add(3);
  alerts.look(now_ns + kSecond);
  auto reader = CountersReader::open(directory, "demo");
  CHECK(reader.ok());
  const CountersSnapshot seen = test::snapshot_of(reader.value());
  uint32_t raised = 0;
  for (uint32_t i = 0; i < seen.view().alert_count(); ++i) raised += is_raised(seen.view(), i);
  LONGS_EQUAL(1, raised);
  running->file.alert(0).counter = 1000;
  CHECK(!reader.value().snapshot().ok());
  running->file.alert(0).counter = 0;
  running->file.alert(0).set = 2;
  CHECK(!reader.value().snapshot().ok());
  running->file.alert(0).set = 0;
  const uint32_t count = std::exchange(running->file.header().alert_count, 1 << 20);
  CHECK(!reader.value().snapshot().ok());
  running->file.header().alert_count = count;
  running->file.header().alert_record_bytes -= 8;
  CHECK(!reader.value().snapshot().ok());
  running->file.header().alert_record_bytes = 0;  // an older build wrote zeros there
  running->file.header().alert_count = 0;
  CHECK(reader.value().snapshot().ok());
}

TEST(CounterAlerts, WhatAServicePlansIsJudged) {
  const CounterSet& set = sets[0];
  CounterAlert alert = {CounterAlert::Rule::kFrom, 1, "", "{nothing}"};
  STRCMP_EQUAL("the sentence of its alert names a counter that does not exist",
               defect_of(alert, set));
  alert.says = "";
  CHECK(defect_of(alert, set) != nullptr);
  alert.says = std::string(160, 'x');
  CHECK(defect_of(alert, set) != nullptr);
  alert.says = "open { and {place} and {errors}";
  CHECK(defect_of(alert, set) != nullptr);  // " and {place" is no name
  alert.says = "{place} and {errors} {";
  POINTERS_EQUAL(nullptr, defect_of(alert, set));
  alert.rule = CounterAlert::Rule::kStands;
  STRCMP_EQUAL("its alert refers to a counter that does not exist", defect_of(alert, set));
  alert.of = "asleep";
  POINTERS_EQUAL(nullptr, defect_of(alert, set));
}

// Growth of a counter of failures, losses or drops raises an alert, whose text says what to do.
namespace {

class Grown {
 public:
  template <typename Counters>
  static void expect(const std::string& directory, const char* counter, const char* expected) {
    const std::vector<CounterSet> sets = {
        {"some", "set", "one", sizeof(Counters), described_counters<Counters>()}};
    const auto found = std::find_if(sets[0].counters.begin(), sets[0].counters.end(),
                                    [&](const auto& each) { return each.name == counter; });
    CHECK_TEXT(found != sets[0].counters.end(), counter);
    STRCMP_EQUAL(nullptr, defect_of(found->alert, sets[0]));
    test::Running running(directory, "grown", sets);
    running.publish();
    CounterAlerts alerts;
    alerts.create(running.file, sets);
    auto* values = static_cast<std::byte*>(running.file.values(sets[0]));
    alerts.look(kSecond);
    STRCMP_EQUAL("", raised(running.file.view()).c_str());
    reinterpret_cast<Counter*>(values + found->offset)->add(3);
    alerts.look(2 * kSecond);
    STRCMP_EQUAL(expected, raised(running.file.view()).c_str());
  }

 private:
  static std::string raised(const CountersView& view) {
    std::string all;
    for (uint32_t i = 0; i < view.alert_count(); ++i) {
      if (!is_raised(view, i)) continue;
      char text[512];
      TextWriter writer(text);
      write_alert_text(view, i, &writer);
      all += std::string(text, writer.bytes()) + "\n";
    }
    return all;
  }
};

}  // namespace

TEST(CounterAlerts, WhatADriveOrAFileFails) {
  Grown::expect<NvmeQueueCounters>(
      directory, "errors",
      "it failed 3 commands so far (0 without an answer): the log says which; if this "
      "continues, replace the drive\n");
  Grown::expect<NvmeCounters>(directory, "critical_warnings",
                              "its health log has warnings (3: spare 1, temperature 2, "
                              "unreliable 4, read only 8, backup 16): cool it for a 2, else "
                              "replace it\n");
  Grown::expect<NvmeCounters>(directory, "new_media_errors",
                              "it lost data 3 times so far, and 0 times in its lifetime: copy "
                              "its volumes elsewhere, and replace the drive\n");
  Grown::expect<FileCounters>(directory, "file_errors",
                              "3 operations on it failed so far: check whether its file system "
                              "is full, and what the kernel's log says about its drive\n");
  Grown::expect<FileCounters>(directory, "file_polling_ended",
                              "the kernel no longer polls its drive, and the ordinary ring is "
                              "used: check queue/io_poll in /sys/block, and restart, or leave "
                              "\"polled\" out\n");
}

// The drive's earlier losses are read from its log only after the first look.
TEST(CounterAlerts, WhatADriveHadLostBeforeIsNone) {
  for (const CounterDescription& each : described_counters<NvmeCounters>()) {
    if (each.name == "media_errors") CHECK(each.alert.rule == CounterAlert::Rule::kNone);
  }
}

TEST(CounterAlerts, WhatAPortLoses) {
  Grown::expect<PortCounters>(directory, "missed_frames",
                              "its shards are too slow, and 3 frames were lost so far: give "
                              "each shard a core of its own, lengthen the queues, or add "
                              "shards\n");
  Grown::expect<PortCounters>(directory, "receive_errors",
                              "3 frames were damaged so far: check the cable, the module and "
                              "the other end of the link\n");
  Grown::expect<PortCounters>(directory, "send_errors",
                              "the device failed to send 3 frames so far: check its link, and "
                              "its driver's log\n");
  Grown::expect<NetCounters>(directory, "drop_waiting_full",
                             "3 frames were dropped so far: too many datagrams waited, or for too "
                             "many neighbours; check that their destinations are up\n");
  Grown::expect<PortCounters>(directory, "no_buffer_frames",
                              "3 frames found no buffer and were lost so far: give the port "
                              "more buffers\n");
}

TEST(CounterAlerts, WhatTheRelayLosesOrDrops) {
  Grown::expect<relay::StreamCounters>(directory, "lost",
                                       "3 packets were lost so far: check the sender and the "
                                       "network; a second leg or FEC would recover them\n");
  Grown::expect<relay::OutputCounters>(directory, "dropped",
                                       "the network is too slow for it, and 3 packets were "
                                       "dropped so far: check the interface, and what else "
                                       "sends through it\n");
  Grown::expect<relay::OutputCounters>(directory, "refused",
                                       "the kernel refused to send 3 packets so far: check the "
                                       "route, the MTU and the firewall\n");
  Grown::expect<relay::RecordingCounters>(directory, "dropped",
                                          "3 packets are missing in it: the disk was too slow, "
                                          "or no file was available: check the drive, what else "
                                          "writes to it, and the log\n");
  Grown::expect<relay::RecordingCounters>(directory, "errors",
                                          "3 writes failed so far: check whether the disk is "
                                          "full, and what the kernel's log says about it\n");
  Grown::expect<relay::ReaderCounters>(directory, "dropped",
                                       "a reader is too slow, and 3 packets were dropped so "
                                       "far: it must return loans sooner\n");
}

TEST(CounterAlerts, WhoIsRefusedAndWhatAPeerLoses) {
  Grown::expect<nbd::ConnectionCounters>(directory, "connections_refused",
                                         "3 clients were refused so far, because too many are "
                                         "connected: end some, or plan for more "
                                         "(max_connections)\n");
  Grown::expect<PeersCounters>(directory, "lost",
                               "a peer ended before it had confirmed all messages; up to 3 were "
                               "lost so far: its log says why; their senders must send them "
                               "again\n");
}
