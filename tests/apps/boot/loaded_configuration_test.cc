#include "apps/boot/loaded_configuration.h"

#include "apps/configuration/read_table.h"

#include "tests/apps/boot/service_rig.h"

#include "CppUTest/TestHarness.h"

namespace bedplate {
namespace {

struct Tenant {
  std::string name;
  uint32_t slots = 4;
  std::optional<uint32_t> boxes;
};
void describe(ConfigurationTable& table, Tenant& tenant) {
  table.name("name", &tenant.name, 1, 16).required().unique().help("Whose.");
  table.integer("slots", &tenant.slots, 1, 64).help("How many.");
  table.integer("boxes", &tenant.boxes, 0, 64).otherwise("some").help("How many.");
}

struct TenantService : Service {
  const char* name() const noexcept override { return "cache"; }
  void describe(ConfigurationTable& table) override {
    table.size("bytes", &bytes, 4 * kKiB, kGiB).help("The size of this memory.");
    table.integer("limit", &limit, 1, 100).help("At least what tenants have.");
    table.tables("tenant", &tenants, 0, 8);
    table.check([this](ReadTable& read) {
      uint64_t all = 0;
      for (const Tenant& tenant : tenants) all += tenant.slots;
      if (all > limit) read.refuse_value("limit", "\"limit\" is too small", "raise it");
    });
  }
  uint64_t bytes = kMiB;
  uint32_t limit = 10;
  std::vector<Tenant> tenants;
};

}  // namespace

class LoadedBodies : public Utest {
 public:
  TenantService cache;
  LoadedConfiguration loaded;
  std::vector<NumberKey> keys;

  void setup() override {
    Service* const services[] = {&cache};
    std::vector<Error> problems;
    CHECK(loaded.parse("[appliance]\nname = \"a\"\n[pool]\nbytes = \"256 MiB\"\n"
                       "[[shard]]\nname = \"main\"\ncpu = 0\n"
                       "[cache]\nbytes = \"2 MiB\"\n"
                       "[[cache.tenant]]\nname = \"one\"\n"
                       "[[cache.tenant]]\nname = \"two\"\nslots = 3\n",
                       "f", services, &problems));
    CHECK(problems.empty());
    keys = loaded.number_keys();
  }
  const NumberKey* find(const std::string& text) {
    for (const NumberKey& key : keys) {
      if (key.text() == text) return &key;
    }
    return nullptr;
  }
  uint64_t number(const char* text) {
    CHECK_TEXT(find(text) != nullptr, text);
    return find(text)->key->number().value();
  }
};

TEST_GROUP_BASE(LoadedConfiguration, LoadedBodies){};

TEST(LoadedConfiguration, HasEachNumberOfTheFileWithItsTablesName) {
  CHECK_EQUAL(256 * kMiB, number("pool.bytes"));
  CHECK_EQUAL(0, number("shard[main].cpu"));
  CHECK_EQUAL(2 * kMiB, number("cache.bytes"));
  CHECK_EQUAL(10, number("cache.limit"));
  CHECK_EQUAL(4, number("cache.tenant[one].slots"));
  CHECK_EQUAL(3, number("cache.tenant[two].slots"));
  CHECK(find("cache.tenant[two].name") == nullptr);
  CHECK_FALSE(find("cache.tenant[two].boxes")->key->number().has_value());
}

TEST(LoadedConfiguration, WhatIsChangedIsWhatTheServiceSees) {
  find("cache.bytes")->key->set_number(4096);
  find("cache.tenant[two].slots")->key->set_number(1);
  find("cache.tenant[one].boxes")->key->set_number(7);
  find("pool.bytes")->key->set_number(kGiB);
  CHECK_EQUAL(4096, cache.bytes);
  CHECK_EQUAL(1, cache.tenants[1].slots);
  CHECK_EQUAL(7, cache.tenants[0].boxes.value());
  CHECK_EQUAL(kGiB, loaded.configuration().pool.bytes);
  find("cache.tenant[one].boxes")->key->set_number(std::nullopt);
  CHECK_FALSE(cache.tenants[0].boxes.has_value());
}

TEST(LoadedConfiguration, ChecksAcrossKeysAreAskedAgain) {
  CHECK(loaded.check().empty());
  find("cache.tenant[one].slots")->key->set_number(8);
  const std::vector<Error> problems = loaded.check();
  CHECK_EQUAL(1, problems.size());
  STRCMP_CONTAINS("\"limit\" is too small", problems[0].answer);
  find("cache.limit")->key->set_number(11);
  CHECK(loaded.check().empty());
}

// Members of processes come on top of the configured ones, once, however often values are tried.
TEST_GROUP(LoadedGroups){};

TEST(LoadedGroups, HaveTheSameMembersAtEachCheck) {
  LoadedConfiguration loaded;
  std::vector<Error> problems;
  CHECK(loaded.parse("[appliance]\nname = \"a\"\n[pool]\nbytes = \"256 MiB\"\n"
                     "[[shard]]\nname = \"main\"\ncpu = 0\n"
                     "[[group]]\nname = \"g\"\nmembers = 4\n"
                     "[[process]]\nname = \"p\"\nuser = \"root\"\ngroup = \"g\"\nspare_count = 2\n",
                     "f", {}, &problems));
  CHECK(problems.empty());
  const GroupSettings& group = loaded.configuration().groups[0];
  const uint32_t boxes = group.shape.box_count;
  CHECK_EQUAL(2, group.spare_count);
  CHECK_EQUAL(6, group.shape.member_count);
  for (const NumberKey& key : loaded.number_keys()) {
    if (key.text() == "group[g].members") key.key->set_number(5);
  }
  for (int i = 0; i < 3; ++i) CHECK(loaded.check().empty());
  CHECK_EQUAL(2, group.spare_count);
  CHECK_EQUAL(7, group.shape.member_count);
  CHECK(group.shape.box_count >= boxes);
}

}  // namespace bedplate
