// A configuration that was read, with its keys at hand: their values can be read and changed.
// `bedplate plan --explain` plans with other values, to tell what they would take.
//
// Only the variables change, never the file. Call check() on changed values before they are planned
// with: a plan relies on it.
//
// Threads: one, before the seal (it allocates). Lifetime: `services` outlive it; it stays where it
// is, since the keys know where their variables lie.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/boot/configuration.h"
#include "apps/boot/configuration_reader.h"
#include "apps/boot/configuration_table.h"

namespace bedplate {

// A key that says a number, of one table of the file.
struct NumberKey {
  std::string table;               // with those that it lies in: "cache.tenant"
  bool is_one_of_several = false;  // [[cache.tenant]]
  std::string instance;            // the first text in it that must be unique: its name
  const ConfigurationKey* key = nullptr;

  // "cache.bytes"; "cache.tenant[a].bytes" if there may be several.
  std::string text() const {
    return table + (is_one_of_several ? "[" + instance + "]" : "") + "." + key->name();
  }
};

class LoadedConfiguration {
 public:
  LoadedConfiguration();
  ~LoadedConfiguration();
  LoadedConfiguration(const LoadedConfiguration&) = delete;
  LoadedConfiguration& operator=(const LoadedConfiguration&) = delete;

  // As load_configuration() and parse_configuration(); false if these return nothing. Requires:
  // neither was called before.
  bool load(const char* path, std::span<Service* const> services, std::vector<Error>* problems);
  bool parse(std::string_view text, const char* path, std::span<Service* const> services,
             std::vector<Error>* problems);

  Configuration& configuration() noexcept { return configuration_; }
  const Configuration& configuration() const noexcept { return configuration_; }

  // The keys of each table that the file has, in its order, also those that it leaves to their
  // defaults. They live as long as this.
  std::vector<NumberKey> number_keys() const;

  // The errors of the checks across keys, with the values that they have now. The caller keeps each
  // value in its range and to its rule.
  std::vector<Error> check();

 private:
  Configuration configuration_;
  std::unique_ptr<ConfigurationTable> file_;
  std::unique_ptr<TomlNode> root_;
  std::string path_;
  std::vector<ConfigurationReader::Kept> tables_;
};

// Describes the tables of services, behind the runtime's; `thrown` gets exceptions of their
// descriptions, as errors. Errors: a service's name is taken.
Result<void> describe_services(std::span<Service* const> services, ConfigurationTable& file,
                               Configuration& all, std::vector<Error>* thrown);

}  // namespace bedplate
