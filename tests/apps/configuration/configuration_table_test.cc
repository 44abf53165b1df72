// A table of a service: it is described next to its settings, and read as strictly as the runtime's
// tables.
#include "apps/configuration/configuration_table.h"

#include <string>
#include <vector>

#include "apps/configuration/configuration_reader.h"
#include "apps/configuration/read_table.h"

#include "CppUTest/TestHarness.h"

namespace cache {

enum class Policy { kOldest, kLeastUsed };
constexpr bedplate::Choice<Policy> kPolicies[] = {{"oldest", Policy::kOldest},
                                                  {"least-used", Policy::kLeastUsed}};

struct Tenant {
  std::string name;
  uint32_t share = 1;
};

struct Settings {
  bool is_there = false;
  std::vector<bedplate::SocketAddress> listen;
  uint64_t bytes = bedplate::kMiB;
  uint16_t slots = 8;
  bool verbose = true;
  std::optional<int> node;
  Policy policy = Policy::kLeastUsed;
  std::vector<Policy> fallbacks = {Policy::kOldest};
  bool may_read = false;
  bool may_write = false;
  uint32_t first = 7;
  std::optional<uint32_t> own = {};
  std::vector<uint32_t> some;
  std::vector<std::string> prefixes;
  std::vector<std::string> hops;
  std::vector<Tenant> tenants;
};

// The table finds describe() by the type of the settings, in any namespace.
void describe(bedplate::ConfigurationTable& table, Tenant& tenant) {
  table.name("name", &tenant.name, 1, 8).required().unique().help("Whose part it is.");
  table.integer("share", &tenant.share, 1, 100).help("Of all.");
}

void describe(bedplate::ConfigurationTable& table, Settings& settings) {
  using Rule = bedplate::ConfigurationKey::Rule;
  table.addresses("listen", &settings.listen, 1, 2).required().unique().help("Where.");
  table.size("bytes", &settings.bytes, 4096, bedplate::kGiB).rule(Rule::kMultipleOf4KiB);
  table.integer("slots", &settings.slots, 1, 1024).rule(Rule::kPowerOfTwo);
  table.boolean("verbose", &settings.verbose);
  table.integer("node", &settings.node, 0, 7).otherwise("any");
  table.choice("policy", &settings.policy, kPolicies);
  table.choices("fallbacks", &settings.fallbacks, kPolicies, 0);
  table.flags("rights", {{"read", &settings.may_read}, {"write", &settings.may_write}}, 1);
  table.shard("first", &settings.first);
  table.shard("own", &settings.own).otherwise("any");
  table.shards("some", &settings.some, 3).otherwise("all");
  table.texts("prefixes", bedplate::ConfigurationKey::Type::kIpPrefixes, &settings.prefixes, 2);
  table.texts("hops", bedplate::ConfigurationKey::Type::kIpAddresses, &settings.hops, 2);
  table.tables("tenant", &settings.tenants, 1, 2);
  table.check([&settings](bedplate::ReadTable& read) {
    if (read.was_refused("slots") || read.was_refused("bytes")) return;
    if (settings.bytes / 4096 >= settings.slots || !read.has("slots")) return;
    read.refuse_value("slots", "\"slots\" is more than there are pages", "expected fewer");
  });
}

}  // namespace cache

using namespace bedplate;

TEST_GROUP(ConfigurationTable) {
  cache::Settings settings;
  Configuration shards;

  // Returns a line for each problem; "": none.
  std::string read(const std::string& text) {
    settings = {};
    shards.shards = {{"a", 0}, {"b", 1}, {"c", 2}};
    Result<TomlNode> root = read_toml(text, "f");
    CHECK(root.ok());
    ConfigurationTable file("");
    file.table("cache", &settings, false, &settings.is_there);
    ConfigurationReader reader(file, shards);
    reader.read(root.value());
    std::string lines;
    for (const Error& problem : reader.problems("f")) {
      char line[1024];
      lines += std::string(format_error(problem, line, sizeof line)) + "\n";
    }
    return lines;
  }
};

namespace {
constexpr const char* kSmallest =
    "[cache]\nlisten = [\"tcp:127.0.0.1:1\"]\n[[cache.tenant]]\nname = \"x\"\n";
}  // namespace

TEST(ConfigurationTable, LeavesDefaultsWhereTheFileSaysNothing) {
  STRCMP_EQUAL("", read("").c_str());
  CHECK_FALSE(settings.is_there);
  STRCMP_EQUAL("", read(kSmallest).c_str());
  CHECK(settings.is_there);
  LONGS_EQUAL(1, settings.listen.size());
  CHECK(settings.bytes == kMiB && settings.slots == 8 && settings.verbose && !settings.node);
  CHECK(settings.policy == cache::Policy::kLeastUsed);
  LONGS_EQUAL(1, settings.fallbacks.size());
  LONGS_EQUAL(7, settings.first);  // the file names no shard
  CHECK(!settings.own.has_value());
  LONGS_EQUAL(1, settings.tenants.size());
  LONGS_EQUAL(1, settings.tenants[0].share);
}

TEST(ConfigurationTable, PutsEveryValueWhereItsKeyIsBoundTo) {
  STRCMP_EQUAL("", read("[cache]\nlisten = [\"tcp:127.0.0.1:1\", \"unix:/x\"]\nbytes = \"8 KiB\"\n"
                        "slots = 2\nverbose = false\nnode = 3\npolicy = \"oldest\"\n"
                        "fallbacks = [\"least-used\", \"oldest\"]\nrights = [\"write\"]\n"
                        "first = \"b\"\nown = \"a\"\nsome = [\"c\", \"a\"]\n"
                        "prefixes = [\"192.0.2.1/24\"]\nhops = [\"2001:db8::1\", \"192.0.2.2\"]\n"
                        "[[cache.tenant]]\nname = \"x\"\nshare = 5\n"
                        "[[cache.tenant]]\nname = \"y\"\n")
                       .c_str());
  LONGS_EQUAL(2, settings.listen.size());
  CHECK(settings.bytes == 8192 && settings.slots == 2 && !settings.verbose);
  LONGS_EQUAL(3, settings.node.value());
  CHECK(settings.policy == cache::Policy::kOldest);
  CHECK((settings.fallbacks ==
         std::vector<cache::Policy>{cache::Policy::kLeastUsed, cache::Policy::kOldest}));
  CHECK(settings.may_write && !settings.may_read);
  LONGS_EQUAL(1, settings.first);
  LONGS_EQUAL(0, settings.own.value());
  CHECK((settings.some == std::vector<uint32_t>{2, 0}));
  STRCMP_EQUAL("192.0.2.1/24", settings.prefixes.at(0).c_str());
  STRCMP_EQUAL("192.0.2.2", settings.hops.at(1).c_str());
  LONGS_EQUAL(5, settings.tenants[0].share);
  STRCMP_EQUAL("y", settings.tenants[1].name.c_str());
}

TEST(ConfigurationTable, RefusesWhatIsNotAsDescribed) {
  STRCMP_EQUAL(
      "f:3:11: \"tcp:0.0.0.0:1\" clashes with \"tcp:127.0.0.1:1\" at line 2; expected another port "
      "or path (0.0.0.0 and [::] use a port on all addresses)\n"
      "f:4:9: \"slots\" is 3, not a power of two; expected integer: 1..1024, a power of two\n"
      "f:5:11: element 1 of \"rights\" is \"x\"; expected list of choices: 1..2 of \"read\" or "
      "\"write\", unique\n"
      "f:6:9: no shard has the name \"d\"; expected one of: a, b, c\n"
      "f:7:1: unknown key \"polcy\"; did you mean \"policy\"? [cache] may have: listen, bytes, "
      "slots, verbose, node, policy, fallbacks, rights, first, own, some, prefixes, hops, "
      "[[cache.tenant]]\n"
      "f:11:8: \"name\" \"x\" is already used by the [[cache.tenant]] at line 9; expected a "
      "different one: each [[cache.tenant]] has its own\n",
      read("[cache]\nlisten = [\"tcp:127.0.0.1:1\",\n          \"tcp:0.0.0.0:1\"]\nslots = 3\n"
           "rights = [\"x\"]\nfirst = \"d\"\npolcy = \"oldest\"\n"
           "[[cache.tenant]]\nname = \"x\"\n[[cache.tenant]]\nname = \"x\"\n")
          .c_str());
}

TEST(ConfigurationTable, ListsOfShardsAndAddressesAreReadAsStrictly) {
  const auto of = [&](const std::string& keys) {
    return read("[cache]\nlisten = [\"unix:/x\"]\n" + keys + "[[cache.tenant]]\nname = \"x\"\n");
  };
  STRCMP_EQUAL("f:3:14: no shard has the name \"d\"; expected one of: a, b, c\n",
               of("some = [\"a\", \"d\"]\n").c_str());
  STRCMP_EQUAL("f:3:14: element 2 of \"some\" appears twice; expected list of shards: 1..3 names "
               "of shards, unique\n",
               of("some = [\"a\", \"a\"]\n").c_str());
  STRCMP_EQUAL("f:3:8: \"some\" has 0 elements; expected list of shards: 1..3 names of shards, "
               "unique\n",
               of("some = []\n").c_str());
  STRCMP_EQUAL("f:3:13: element 1 of \"prefixes\" is \"192.0.2.1\"; expected list of "
               "addresses/prefixes: 0..2 numeric IPv4 or IPv6 addresses, each with / and its "
               "prefix length, unique\n",
               of("prefixes = [\"192.0.2.1\"]\n").c_str());
  STRCMP_EQUAL("f:3:9: element 1 of \"hops\" is \"192.0.2.1/24\"; expected list of addresses: "
               "0..2 numeric IPv4 or IPv6 addresses, unique\n",
               of("hops = [\"192.0.2.1/24\"]\n").c_str());
}

TEST(ConfigurationTable, AsksTheTablesOwnCheck) {
  STRCMP_EQUAL("f:4:9: \"slots\" is more than there are pages; expected fewer\n",
               read("[cache]\nlisten = [\"unix:/x\"]\nbytes = 4096\nslots = 2\n"
                    "[[cache.tenant]]\nname = \"x\"\n")
                   .c_str());
}

TEST(ConfigurationTable, TellsItsKeysWithTheirDefaults) {
  ConfigurationTable table("cache", true);
  describe(table, settings);
  std::string told;
  for (const ConfigurationKey& key : table.keys()) {
    told += key.name() + " " + key.default_text() + ": " + key.expectation() + "\n";
  }
  STRCMP_EQUAL("listen required: list of addresses: 1..2 addresses, unique\n"
               "bytes \"1 MiB\": size: 4 KiB..1 GiB, a multiple of 4 KiB\n"
               "slots 8: integer: 1..1024, a power of two\n"
               "verbose true: boolean: true or false\n"
               "node any: integer: 0..7\n"
               "policy \"least-used\": choice: \"oldest\" or \"least-used\"\n"
               "fallbacks [\"oldest\"]: list of choices: 0..2 of \"oldest\" or \"least-used\", "
               "unique\n"
               "rights []: list of choices: 1..2 of \"read\" or \"write\", unique\n"
               "first the first shard: shard: the name of a shard\n"
               "own any: shard: the name of a shard\n"
               "some all: list of shards: 1..3 names of shards, unique\n"
               "prefixes []: list of addresses/prefixes: 0..2 numeric IPv4 or IPv6 addresses, each "
               "with / and its prefix length, unique\n"
               "hops []: list of addresses: 0..2 numeric IPv4 or IPv6 addresses, unique\n",
               told.c_str());
  STRCMP_EQUAL("[[cache.tenant]]", table.find_child("tenant")->label().c_str());
  LONGS_EQUAL(0, settings.tenants.size());  // describe() was called for a sample
}

namespace {

struct Placed {
  std::vector<uint32_t> shards;
};
void describe(ConfigurationTable& table, Placed& settings) {
  table.shards_or_all("shards", &settings.shards).help("Where it lives.");
}

}  // namespace

TEST(ConfigurationTable, AServiceIsPlacedOnAllShardsOrOnThoseThatItNames) {
  Placed placed;
  const auto told = [&](const std::string& keys) {
    Result<TomlNode> root = read_toml("[cache]\n" + keys, "f");
    CHECK(root.ok());
    shards.shards = {{"a", 0}, {"b", 1}, {"c", 2}};
    ConfigurationTable file("");
    file.table("cache", &placed);
    ConfigurationReader reader(file, shards);
    reader.read(root.value());
    const std::vector<Error> problems = reader.problems("f");
    char line[1024];
    return problems.empty() ? std::string()
                            : std::string(format_error(problems[0], line, sizeof line));
  };
  STRCMP_EQUAL("", told("shards = [\"c\", \"a\"]\n").c_str());
  CHECK((placed.shards == std::vector<uint32_t>{2, 0}));
  STRCMP_EQUAL("", told("").c_str());  // an earlier file leaves nothing behind
  CHECK((placed.shards == std::vector<uint32_t>{0, 1, 2}));
  STRCMP_EQUAL("", told("shards = [\"b\"]\n").c_str());
  STRCMP_EQUAL("", told("shards = \"all\"\n").c_str());
  CHECK((placed.shards == std::vector<uint32_t>{0, 1, 2}));
  const std::string expected =
      "; expected list of shards: \"all\", or 1..64 names of shards, unique";
  STRCMP_EQUAL(("f:2:16: element 2 of \"shards\" appears twice" + expected).c_str(),
               told("shards = [\"a\", \"a\"]\n").c_str());
  STRCMP_EQUAL(("f:2:10: \"shards\" has 0 elements" + expected).c_str(),
               told("shards = []\n").c_str());
  STRCMP_EQUAL(("f:2:10: \"shards\" is a string" + expected).c_str(),
               told("shards = \"every\"\n").c_str());
  STRCMP_EQUAL("f:2:16: no shard has the name \"d\"; expected one of: a, b, c",
               told("shards = [\"a\", \"d\"]\n").c_str());
}

namespace {

struct Doubled {
  uint64_t bytes = 4096;
};
void describe(ConfigurationTable& table, Doubled& settings) {
  table.size("bytes", &settings.bytes, 1, kGiB);
  table.size("bytes", &settings.bytes, 1, kMiB);
}

}  // namespace

TEST(ConfigurationTable, ATableWithANameTwiceIsRefused) {
  Doubled doubled;
  Result<TomlNode> root = read_toml("\n[cache]\nbytes = 1\n", "f");
  CHECK(root.ok());
  ConfigurationTable file("");
  file.table("cache", &doubled);
  ConfigurationReader reader(file, shards);
  reader.read(root.value());
  const std::vector<Error> problems = reader.problems("f");
  LONGS_EQUAL(1, problems.size());
  char line[1024];
  STRCMP_EQUAL("f:2:1: [cache] is described with two keys or tables \"bytes\"; this is a defect of "
               "the service: give each a name of its own",
               format_error(problems[0], line, sizeof line));
  CHECK_EQUAL(4096, doubled.bytes);
}

TEST(ConfigurationTable, ANameThatIsDescribedTwiceIsFound) {
  ConfigurationTable table("cache");
  describe(table, settings);
  STRCMP_EQUAL("", find_doubled_name(table).c_str());
  table.boolean("tenant", &settings.verbose);
  STRCMP_EQUAL("tenant", find_doubled_name(table).c_str());  // a table of this name is there
  table.boolean("slots", &settings.verbose);
  STRCMP_EQUAL("slots", find_doubled_name(table).c_str());
}
