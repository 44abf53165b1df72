// Findings about keys, with a service of the test: the code under test knows no service.
#include "apps/program/plan/key_findings.h"

#include <bit>
#include <memory>

#include "tests/apps/counters/counters_file_fixture.h"

#include "apps/boot/appliance_plan.h"
#include "apps/configuration/read_table.h"
#include "apps/services/service.h"
#include "pinned_pool/boot_segment.h"

#include "CppUTest/TestHarness.h"

namespace bedplate {
namespace {

// Measures a key that does not exist.
struct HallCounters {
  Counter seats_peak;
};
void describe(CounterTable& table, HallCounters& c) {
  table.gauge("seats_peak", c.seats_peak, "guests", "At once.")
      .peak_of("chairs", "Guests are refused.");
}
bool measures_no_key = false;

struct RoomCounters {
  Counter seats_peak;
  Counter refused;
  Counter store_peak;
  Counter store_bytes;
  Counter lost;
};
void describe(CounterTable& table, RoomCounters& c) {
  table.gauge("seats_peak", c.seats_peak, "guests", "At once.")
      .peak_of("seats", "Guests are refused.");
  table.counter("refused", c.refused, "guests", "Too many.").refusals_of("seats");
  table.gauge("store_peak", c.store_peak, "bytes", "At once.")
      .peak_of("store_bytes", "Less is stored.", "store_bytes");
  table.gauge("store_bytes", c.store_bytes, "bytes", "What part of the store there is.");
  table.counter("lost", c.lost, "coats", "Too many.").refusals_of("hooks");
}
struct TableCounters {
  Counter plates_peak;
  Counter chairs_peak;
  Counter stood;
};
void describe(CounterTable& table, TableCounters& c) {
  table.gauge("plates_peak", c.plates_peak, "plates", "At once.")
      .peak_of("table.plates", "Guests wait.");
  table.gauge("chairs_peak", c.chairs_peak, "chairs", "At once.")
      .peak_of("table.chairs", "Guests stand.");
  table.counter("stood", c.stood, "guests", "Too many.").refusals_of("table.chairs");
}

// The counters of a waiter, who serves several tables.
struct WaiterCounters {
  Counter spilled;
};
void describe(CounterTable& table, WaiterCounters& c) {
  table.counter("spilled", c.spilled, "plates", "Too many.").refusals_of("table.plates");
}

struct TableSettings {
  std::string name;
  uint32_t plates = 16;
  uint32_t chairs = 100;
};
void describe(ConfigurationTable& table, TableSettings& settings) {
  table.name("name", &settings.name, 1, 16).required().unique().help("Which.");
  table.integer("plates", &settings.plates, 1, 1024)
      .rule(ConfigurationKey::Rule::kPowerOfTwo)
      .help("How many.");
  table.integer("chairs", &settings.chairs, 1, 256)
      .rule(ConfigurationKey::Rule::kRoundedToPowerOfTwo)
      .help("How many.");
}

constexpr uint64_t kSeatBytes = 64 * kKiB;

struct InnService : Service {
  const char* name() const noexcept override { return "inn"; }
  void describe(ConfigurationTable& table) override {
    table.integer("seats", &seats, 1, 1000).help("For guests.");
    table.integer("hooks", &hooks, 1, 40).help("For coats.");
    table.size("store_bytes", &store_bytes, 4 * kKiB, kGiB).help("For food.");
    table.size("cellar_bytes", &cellar_bytes, 4 * kKiB, kGiB).help("For wine.");
    table.integer("patience_ms", &patience_ms, 1, 1000).help("Of guests.");
    table.tables("table", &tables, 0, 4);
    table.check([this](ReadTable& read) {
      if (seats < 8) read.refuse_value("seats", "\"seats\" is too small for the inn", "have 8");
    });
  }
  Result<void> plan(ServicePlan& plan) override {
    uint64_t plates = 0;
    uint64_t chairs = 0;
    for (const TableSettings& one : tables) {
      plates += one.plates;
      chairs += std::bit_ceil(one.chairs);
    }
    plan.segment("inn",
                 {{"seats:inn", seats * kSeatBytes},
                  {"plates:inn", plates * kKiB + kKiB},
                  {"chairs:inn", chairs * kKiB + kKiB},
                  {"store:inn", store_bytes},
                  {"cellar:inn", cellar_bytes}},
                 plan.placement(0));
    plan.counters<RoomCounters>("room");
    if (measures_no_key) plan.counters<HallCounters>("tables", "hall");
    for (const TableSettings& one : tables) plan.counters<TableCounters>("tables", one.name);
    plan.counters<WaiterCounters>("waiters", "ann", {"left", "right"});
    plan.counters<WaiterCounters>("waiters", "bob", {"right"});
    return {};
  }
  uint32_t seats = 100;
  uint32_t hooks = 20;
  uint64_t store_bytes = 2 * kMiB;
  uint64_t cellar_bytes = 8 * kMiB;
  uint32_t patience_ms = 500;
  std::vector<TableSettings> tables;
};

}  // namespace

class FindingsBodies : public test::CountersFileFixture {
 public:
  InnService inn;
  LoadedConfiguration loaded;
  std::vector<CounterSet> sets;
  std::unique_ptr<test::Running> running;

  void setup() override {
    test::CountersFileFixture::setup();
    Service* const services[] = {&inn};
    std::vector<Error> problems;
    const std::string bytes = std::to_string(boot_segment_bytes() + 64 * kMiB);
    CHECK(loaded.parse("[appliance]\nname = \"demo\"\n[pool]\nbytes = " + bytes +
                           "\npages = \"4 KiB\"\nheap_min_bytes = \"24 MiB\"\n"
                           "[[shard]]\nname = \"main\"\ncpu = 0\n[inn]\n"
                           "[[inn.table]]\nname = \"left\"\n[[inn.table]]\nname = \"right\"\n",
                       "f", services, &problems));
    auto plan = plan_appliance(loaded.configuration());
    STRCMP_EQUAL("", plan.ok() ? "" : plan.error().answer);
    sets = plan.value().counters();
    running = std::make_unique<test::Running>(directory, "demo", sets);
    running->publish();
  }
  void teardown() override {
    running.reset();
    measures_no_key = false;
    test::CountersFileFixture::teardown();
  }
  template <typename Counters>
  Counters& of(const char* name, const char* instance = "") {
    for (const CounterSet& set : sets) {
      if (set.owner == "inn" && set.name == name && set.instance == instance) {
        return *static_cast<Counters*>(running->file.values(set));
      }
    }
    FAIL(name);
    return *new Counters;
  }
  RoomCounters& room() { return of<RoomCounters>("room"); }

  Result<KeyFindings> find() {
    auto opened = CountersReader::open(directory, "demo");
    CHECK(opened.ok());
    return find_keys(loaded, test::snapshot_of(opened.value()));
  }
  KeyFinding finding(const std::string& key) {
    auto all = find();
    CHECK(all.ok());
    for (const KeyFinding& one : all.value().found) {
      if (one.key == key) return one;
    }
    FAIL(key.c_str());
    return {};
  }
  bool is_unknown(const char* key) {
    auto all = find();
    CHECK(all.ok());
    const std::vector<std::string>& unknown = all.value().unknown;
    return std::find(unknown.begin(), unknown.end(), key) != unknown.end();
  }
};

TEST_GROUP_BASE(KeyFindings, FindingsBodies){};

TEST(KeyFindings, AKeyThatIsTooLargeIsProposedSmallerWithWhatThatSaves) {
  room().seats_peak.set(40);
  const KeyFinding seats = finding("inn.seats");
  CHECK_EQUAL(100, seats.value);
  CHECK_EQUAL(40, seats.peak.value());
  CHECK_EQUAL(50, seats.proposed.value());
  CHECK_EQUAL(static_cast<int64_t>(50 * kSeatBytes), seats.saved_bytes);
  STRCMP_EQUAL("guests", seats.unit.c_str());
  STRCMP_EQUAL("Guests are refused.", seats.risk.c_str());
  CHECK_EQUAL(100, inn.seats);  // unchanged
}

TEST(KeyFindings, AKeyStaysWhereTheMarginTakesTheRest) {
  for (const uint64_t peak : {80, 90, 100}) {
    room().seats_peak.set(peak);
    CHECK_FALSE(finding("inn.seats").proposed.has_value());
  }
  room().seats_peak.set(79);
  CHECK_EQUAL(98, finding("inn.seats").proposed.value());
}

TEST(KeyFindings, WhatWasExhaustedIsProposedLarger) {
  room().seats_peak.set(100);
  room().refused.set(3);
  const KeyFinding seats = finding("inn.seats");
  CHECK_EQUAL(3, seats.refused);
  CHECK_EQUAL(125, seats.proposed.value());
  CHECK_EQUAL(-static_cast<int64_t>(25 * kSeatBytes), seats.saved_bytes);
}

TEST(KeyFindings, WhatWasRefusedForAnotherReasonDoesNotCount) {
  room().seats_peak.set(40);
  room().refused.set(3);
  CHECK_EQUAL(50, finding("inn.seats").proposed.value());
}

TEST(KeyFindings, ThatOnlyRefusalsAreCountedWillDo) {
  CHECK_FALSE(finding("inn.hooks").proposed.has_value());
  CHECK_FALSE(finding("inn.hooks").peak.has_value());
  room().lost.set(1);
  CHECK_EQUAL(25, finding("inn.hooks").proposed.value());
  inn.hooks = 36;
  CHECK_EQUAL(40, finding("inn.hooks").proposed.value());  // the maximum
  inn.hooks = 40;
  CHECK_FALSE(finding("inn.hooks").proposed.has_value());
  STRCMP_EQUAL("it is at its maximum already", finding("inn.hooks").obstacle.c_str());
}

TEST(KeyFindings, APeakMayBeOfAPartOfTheKey) {
  room().store_bytes.set(kMiB);  // the other MiB has another use
  room().store_peak.set(400 * kKiB);
  CHECK_EQUAL(kMiB + 500 * kKiB, finding("inn.store_bytes").proposed.value());
  room().store_peak.set(400 * kKiB + 1);
  CHECK_EQUAL(kMiB + 504 * kKiB, finding("inn.store_bytes").proposed.value());
}

TEST(KeyFindings, EachOfSeveralTablesHasItsOwnPeak) {
  of<TableCounters>("tables", "left").plates_peak.set(3);
  of<TableCounters>("tables", "right").plates_peak.set(5);
  const KeyFinding left = finding("inn.table[left].plates");
  CHECK_EQUAL(4, left.proposed.value());
  CHECK_EQUAL(static_cast<int64_t>(12 * kKiB), left.saved_bytes);
  CHECK_EQUAL(8, finding("inn.table[right].plates").proposed.value());  // a power of two
}

// The key is 100, which is rounded up to 128.
TEST(KeyFindings, AKeyIsMeasuredByWhatItIsRoundedUpTo) {
  TableCounters& left = of<TableCounters>("tables", "left");
  const auto proposed = [&](uint64_t peak) {
    left.chairs_peak.set(peak);
    return finding("inn.table[left].chairs").proposed.value_or(0);
  };
  for (const uint64_t peak : {52, 70, 100, 101, 128}) CHECK_EQUAL(0, proposed(peak));
  CHECK_EQUAL(64, proposed(51));
  CHECK_EQUAL(static_cast<int64_t>(64 * kKiB), finding("inn.table[left].chairs").saved_bytes);
  left.stood.set(1);
  CHECK_EQUAL(64, proposed(51));  // the refusal had another cause
  CHECK_EQUAL(0, proposed(80));   // the same: 80 of 128 were in use
  CHECK_EQUAL(256, proposed(128));
  inn.tables[0].chairs = 200;
  CHECK_EQUAL(0, proposed(256));
  STRCMP_EQUAL("it is at its maximum already", finding("inn.table[left].chairs").obstacle.c_str());
}

TEST(KeyFindings, ASetMayMeasureSeveralTablesThatItIsNotCalledAs) {
  for (const char* table : {"left", "right"})
    of<TableCounters>("tables", table).plates_peak.set(16);
  of<WaiterCounters>("waiters", "ann").spilled.set(1);
  of<WaiterCounters>("waiters", "bob").spilled.set(2);
  CHECK_EQUAL(1, finding("inn.table[left].plates").refused);
  CHECK_EQUAL(3, finding("inn.table[right].plates").refused);
  CHECK_EQUAL(32, finding("inn.table[left].plates").proposed.value());
}

TEST(KeyFindings, WhatTheConfigurationWouldRefuseIsNotProposed) {
  room().seats_peak.set(4);
  const KeyFinding seats = finding("inn.seats");
  CHECK_FALSE(seats.proposed.has_value());
  STRCMP_CONTAINS("5 would be refused: ", seats.obstacle.c_str());
  STRCMP_CONTAINS("\"seats\" is too small for the inn", seats.obstacle.c_str());
  CHECK_EQUAL(100, inn.seats);
}

TEST(KeyFindings, WhatThePoolHasNoRoomForIsNotProposed) {
  inn.seats = 450;
  room().seats_peak.set(450);
  room().refused.set(1);
  const KeyFinding seats = finding("inn.seats");
  CHECK_FALSE(seats.proposed.has_value());
  STRCMP_CONTAINS("562 would be refused: ", seats.obstacle.c_str());
}

TEST(KeyFindings, AKeyOfMemoryThatNothingMeasuresIsUnknown) {
  CHECK(is_unknown("inn.cellar_bytes"));
  CHECK_FALSE(is_unknown("inn.patience_ms"));  // it takes no memory
  CHECK_FALSE(is_unknown("inn.seats"));
}

TEST(KeyFindings, ACounterOfAKeyThatThereIsNotIsADefect) {
  measures_no_key = true;
  auto found = find();
  CHECK_FALSE(found.ok());
  CHECK(found.error().kind == ErrorKind::kConfiguration);
  STRCMP_CONTAINS("seats_peak", found.error().doing);
  STRCMP_CONTAINS("inn.chairs, which is not a key", found.error().answer);
}

}  // namespace bedplate
