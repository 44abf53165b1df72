// The keys for TLS of a service's table: what they set, what does not go together, and what the
// documents say.
#include "apps/services/tls_keys.h"

#include <string>

#include "apps/configuration/configuration_reader.h"
#include "apps/configuration/read_table.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace tls_cache {

struct Settings {
  TlsFiles tls;
  TlsKeyTerms terms;
  uint32_t clients = 1;
};

void describe(ConfigurationTable& table, Settings& settings) {
  table.integer("clients", &settings.clients, 1, 10);
  table.check([&settings](ReadTable& read) {
    if (settings.clients == 7) read.refuse_value("clients", "there are 7", "expected others");
  });
  describe_tls_keys(table, &settings.tls, settings.terms);
}

}  // namespace tls_cache

TEST_GROUP(TlsKeys) {
  tls_cache::Settings settings;

  // Returns a line for each problem of [cache] with `lines`; "": none.
  std::string read(const std::string& lines) {
    Configuration all;
    Result<TomlNode> root = read_toml("[cache]\n" + lines, "f");
    CHECK(root.ok());
    ConfigurationTable file("");
    file.table("cache", &settings);
    ConfigurationReader reader(file, all);
    reader.read(root.value());
    std::string text;
    for (const Error& problem : reader.problems("f")) {
      char line[1024];
      text += std::string(format_error(problem, line, sizeof line)) + "\n";
    }
    return text;
  }
  std::string help_of(const char* key) {
    ConfigurationTable table("cache", true);
    describe(table, settings);
    const ConfigurationKey* found = table.find_key(key);
    return found == nullptr ? "none" : found->default_text() + ": " + found->help_text();
  }
};

TEST(TlsKeys, NameTheFiles) {
  STRCMP_EQUAL("", read("").c_str());
  CHECK(settings.tls.is_empty());
  STRCMP_EQUAL("", read("tls_certificate = \"/c\"\ntls_key = \"/k\"\ntls_shared_keys = \"/s\"\n"
                        "tls_client_authorities = \"/a\"\n")
                       .c_str());
  CHECK(!settings.tls.is_empty());
  STRCMP_EQUAL("/c", settings.tls.certificate.c_str());
  STRCMP_EQUAL("/k", settings.tls.key.c_str());
  STRCMP_EQUAL("/a", settings.tls.client_authorities.c_str());
  STRCMP_EQUAL("/s", settings.tls.shared_keys.c_str());
}

TEST(TlsKeys, ThatDoNotGoTogetherAreRefused) {
  STRCMP_EQUAL("f:2:19: its key is missing; expected \"tls_key\" beside it\n",
               read("tls_certificate = \"/c\"\n").c_str());
  STRCMP_EQUAL("f:2:1: \"tls_client_authorities\" is only for a server with a certificate; "
               "expected \"tls_certificate\" beside it\n",
               read("tls_client_authorities = \"/a\"\ntls_shared_keys = \"/s\"\n").c_str());
}

TEST(TlsKeys, LeaveTheTableItsOwnCheck) {
  STRCMP_EQUAL("f:2:11: there are 7; expected others\n"
               "f:3:19: its key is missing; expected \"tls_key\" beside it\n",
               read("clients = 7\ntls_certificate = \"/c\"\n").c_str());
}

TEST(TlsKeys, TellWhereTheyAreDocumented) {
  settings.terms = {.page = "cache.md#tls"};
  STRCMP_EQUAL("none: clients of TLS need a shared key: The server's certificate for TLS, in PEM, "
               "followed by the intermediate certificates ([cache.md](cache.md#tls)).",
               help_of("tls_certificate").c_str());
  STRCMP_CONTAINS("a client must present a certificate signed by one of them.",
                  help_of("tls_client_authorities").c_str());
  CHECK(help_of("tls_shared_keys") != "none");
}

TEST(TlsKeys, OfAServiceWithoutSharedKeys) {
  settings.terms = {.page = "x.md", .has_shared_keys = false, .or_else = " or a token"};
  STRCMP_CONTAINS("none: there is no TLS: ", help_of("tls_certificate").c_str());
  STRCMP_CONTAINS("signed by one of them or a token.", help_of("tls_client_authorities").c_str());
  STRCMP_EQUAL("none", help_of("tls_shared_keys").c_str());
  STRCMP_CONTAINS("unknown key \"tls_shared_keys\"", read("tls_shared_keys = \"/s\"\n").c_str());
}
