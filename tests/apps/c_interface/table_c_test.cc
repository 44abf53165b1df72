// The table of a service in C: each kind of key gives its variable the file's value, or is refused.
#include <cstdint>
#include <string>
#include <vector>

#include "apps/c_interface/bedplate_service.h"
#include "apps/services/service.h"
#include "apps/testing/c_service.h"
#include "apps/testing/test_appliance.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::testing::TestAppliance;

namespace {

const char* const kModes[] = {"slow", "fast", "off"};
const char* const kRights[] = {"read", "write", "erase"};

struct Tenant {
  uint64_t bytes = 4096;
  const char* name = "";
};

// The variables of the table, with their defaults.
struct Variables {
  const char* text = "none";
  const char* name = "ann";
  const char* path = "/var/log";
  const char* address = "not asked";
  const char* ip = "127.0.0.1";
  const char* prefix = "10.0.0.0/8";
  unsigned mode = 1;
  uint64_t rights = 5;
  const char* const* networks = nullptr;
  size_t network_count = 99;
  unsigned shards[4] = {};
  size_t shard_count = 99;
  unsigned places[64] = {};
  size_t place_count = 99;
  uint64_t bytes = 8192;
  int has_limits = 0;
  uint64_t limit = 7;
  Tenant tenants[3];
  unsigned tenant_count = 99;
};

void describe_limits(void* self, bp_table* table) {
  bp_table_integer(table, "most", &static_cast<Variables*>(self)->limit, 1, 100, "The most.");
}
void describe_tenant(void* self, unsigned index, bp_table* table) {
  Tenant& tenant = static_cast<Variables*>(self)->tenants[index];
  bp_table_name(table, "name", &tenant.name, 16, "Its name.");
  bp_table_required(table, "name");
  bp_table_unique(table, "name");
  bp_table_size(table, "bytes", &tenant.bytes, 4096, 1 << 20, "Its memory.");
}
void describe(void* self, bp_table* table) {
  auto& v = *static_cast<Variables*>(self);
  bp_table_text(table, "text", &v.text, 8, "A text.");
  bp_table_name(table, "name", &v.name, 8, "A name.");
  bp_table_path(table, "path", &v.path, 32, "A path.");
  bp_table_address(table, "address", &v.address, "Where it connects to.");
  bp_table_otherwise(table, "address", "nowhere");
  bp_table_ip_address(table, "ip", &v.ip, "An address.");
  bp_table_ip_prefix(table, "prefix", &v.prefix, "A prefix.");
  bp_table_choice(table, "mode", &v.mode, kModes, 3, "How it works.");
  bp_table_flags(table, "rights", &v.rights, kRights, 3, "What is allowed.");
  bp_table_texts(table, "networks", BP_IP_PREFIXES, &v.networks, &v.network_count, 4, "Networks.");
  bp_table_shards(table, "shards", v.shards, &v.shard_count, 4, "Shards.");
  bp_table_shards_or_all(table, "places", v.places, &v.place_count, "Its shards.");
  bp_table_size(table, "bytes", &v.bytes, 4096, 1 << 20, "Memory.");
  bp_table_rule(table, "bytes", BP_MULTIPLE_OF_4KIB);
  bp_table_table(table, "limits", &v.has_limits, &describe_limits, &v);
  bp_table_tables(table, "tenant", 3, &v.tenant_count, &describe_tenant, &v);
}

}  // namespace

TEST_GROUP(TableC) {
  Variables variables;
  bp_service described = {};
  std::unique_ptr<Service> service;
  std::unique_ptr<TestAppliance> appliance;

  void setup() override {
    described.name = "cache";
    described.self = &variables;
    described.describe = &describe;
  }
  void teardown() override { appliance.reset(); }

  // Returns the problems of [cache] with these lines; "": none.
  std::string read(const std::string& lines) {
    appliance.reset();
    variables = {};
    service = testing::make_service(described);
    appliance = std::make_unique<TestAppliance>(std::vector<Service*>{service.get()});
    return appliance->plan("[cache]\n" + lines);
  }
};

TEST(TableC, LeavesTheDefaultsOfKeysThatAreNotThere) {
  STRCMP_EQUAL("", read("").c_str());
  STRCMP_EQUAL("none", variables.text);
  STRCMP_EQUAL("ann", variables.name);
  STRCMP_EQUAL("/var/log", variables.path);
  POINTERS_EQUAL(nullptr, variables.address);
  STRCMP_EQUAL("127.0.0.1", variables.ip);
  LONGS_EQUAL(1, variables.mode);
  LONGS_EQUAL(5, variables.rights);
  LONGS_EQUAL(0, variables.network_count);
  LONGS_EQUAL(0, variables.shard_count);
  LONGS_EQUAL(1, variables.place_count);  // all that the configuration has
  LONGS_EQUAL(0, variables.places[0]);
  LONGS_EQUAL(0, variables.has_limits);
  LONGS_EQUAL(0, variables.tenant_count);
}

TEST(TableC, GivesEachVariableTheValueOfTheFile) {
  STRCMP_EQUAL("", read("text = \"x y\"\nname = \"bob\"\npath = \"/a\"\n"
                        "address = \"tcp:192.0.2.1:80\"\nip = \"2001:db8::1\"\n"
                        "prefix = \"192.0.2.0/24\"\nmode = \"off\"\nrights = [\"write\"]\n"
                        "networks = [\"10.0.0.0/8\", \"192.0.2.0/24\"]\n"
                        "shards = [\"other\", \"main\"]\nbytes = \"12 KiB\"\n"
                        "places = [\"other\"]\n"
                        "[cache.limits]\nmost = 50\n"
                        "[[cache.tenant]]\nname = \"one\"\n"
                        "[[cache.tenant]]\nname = \"two\"\nbytes = \"64 KiB\"\n"
                        "[[shard]]\nname = \"main\"\ncpu = 0\n"
                        "[[shard]]\nname = \"other\"\ncpu = 1\n")
                       .c_str());
  STRCMP_EQUAL("x y", variables.text);
  STRCMP_EQUAL("bob", variables.name);
  STRCMP_EQUAL("/a", variables.path);
  STRCMP_EQUAL("tcp:192.0.2.1:80", variables.address);
  STRCMP_EQUAL("2001:db8::1", variables.ip);
  STRCMP_EQUAL("192.0.2.0/24", variables.prefix);
  LONGS_EQUAL(2, variables.mode);
  LONGS_EQUAL(2, variables.rights);
  LONGS_EQUAL(2, variables.network_count);
  STRCMP_EQUAL("10.0.0.0/8", variables.networks[0]);
  STRCMP_EQUAL("192.0.2.0/24", variables.networks[1]);
  LONGS_EQUAL(2, variables.shard_count);
  LONGS_EQUAL(1, variables.shards[0]);
  LONGS_EQUAL(0, variables.shards[1]);
  LONGS_EQUAL(1, variables.place_count);
  LONGS_EQUAL(1, variables.places[0]);
  LONGS_EQUAL(12288, variables.bytes);
  LONGS_EQUAL(1, variables.has_limits);
  LONGS_EQUAL(50, variables.limit);
  LONGS_EQUAL(2, variables.tenant_count);
  STRCMP_EQUAL("one", variables.tenants[0].name);
  LONGS_EQUAL(4096, variables.tenants[0].bytes);
  STRCMP_EQUAL("two", variables.tenants[1].name);
  LONGS_EQUAL(65536, variables.tenants[1].bytes);
}

TEST(TableC, RefusesWhatDoesNotFitTheDescription) {
  const struct {
    const char* line;
    const char* problem;
  } kCases[] = {
      {"path = \"log\"\n", "configuration:2:8: \"path\" "},
      {"name = \"Ann!\"\n", "configuration:2:8: \"name\" "},
      {"ip = \"localhost\"\n", "configuration:2:6: \"ip\" "},
      {"mode = \"warp\"\n", "configuration:2:8: \"mode\" "},
      {"rights = [\"fly\"]\n", "configuration:2:11: "},
      {"shards = [\"far\"]\n", "no shard has the name \"far\""},
      {"bytes = 5000\n", "configuration:2:9: \"bytes\" "},
      {"[[cache.tenant]]\nbytes = 4096\n", "\"name\""},
      {"[[cache.tenant]]\nname = \"a\"\n[[cache.tenant]]\nname = \"a\"\n", "configuration:5:8: "},
      {"[cache.limits]\nmost = 0\n", "configuration:3:8: \"most\" "},
  };
  for (const auto& each : kCases) STRCMP_CONTAINS(each.problem, read(each.line).c_str());
}

// [[cache]]: the service is described for each of its tables.
TEST(TableC, ItsTableMayOccurSeveralTimes) {
  described.table_count_max = 2;
  static Tenant tenants[2];
  static unsigned count;
  count = 0;
  described.describe = [](void*, bp_table* table) {
    bp_table_name(table, "name", &tenants[count++ % 2].name, 16, "Its name.");
  };
  service = testing::make_service(described);
  appliance = std::make_unique<TestAppliance>(std::vector<Service*>{service.get()});
  STRCMP_EQUAL("",
               appliance->plan("[[cache]]\nname = \"one\"\n[[cache]]\nname = \"two\"\n").c_str());
  STRCMP_EQUAL("one", tenants[0].name);
  STRCMP_EQUAL("two", tenants[1].name);
}
