// A configuration that was read, with its keys: their values can be read and changed. `bedplate
// plan --explain` plans with other values, to show how much memory they would take.
//
// Only the variables change, never the file. Call check() before planning with changed values: a
// plan relies on it.
//
// Threads: one, before the seal (it allocates). Lifetime: `services` outlive it; the object does
// not move, since the keys point at their variables.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/configuration/configuration.h"
#include "apps/configuration/configuration_reader.h"
#include "apps/configuration/configuration_table.h"

namespace bedplate {

// A numeric key of one table of the file.
struct NumberKey {
  std::string table;               // with the tables around it: "cache.tenant"
  bool is_one_of_several = false;  // [[cache.tenant]]
  std::string instance;            // the table's name: the first text in it that must be unique
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

  // As load_configuration() and parse_configuration(); false if those return nothing. Requires:
  // neither load() nor parse() was called before.
  bool load(const char* path, std::span<Service* const> services, std::vector<Error>* problems);
  bool parse(std::string_view text, const char* path, std::span<Service* const> services,
             std::vector<Error>* problems);

  Configuration& configuration() noexcept { return configuration_; }
  const Configuration& configuration() const noexcept { return configuration_; }

  // The numeric keys of each table that the file has, in file order, including keys left at their
  // defaults. They live as long as this object.
  std::vector<NumberKey> number_keys() const;

  // Runs the checks across keys with the present values and returns the errors. The caller keeps
  // each value in its range and to its rule.
  std::vector<Error> check();

 private:
  Configuration configuration_;
  std::unique_ptr<ConfigurationTable> file_;
  std::unique_ptr<TomlNode> root_;
  std::string path_;
  std::vector<ConfigurationReader::Kept> tables_;
};

// Describes the tables of services, after the runtime's. `file` describes a table as it is read:
// until then `services`, `all` and `thrown` stay in place. An exception of a description is
// appended to `thrown`, as an error. Errors: a service's name is taken, or is no valid name.
Result<void> describe_services(std::span<Service* const> services, ConfigurationTable& file,
                               Configuration& all, std::vector<Error>* thrown);

// Reads and checks the file at `path`, which may have a table for each of `services`. Stores the
// settings of each service in the service itself, so read only one configuration with the same
// services. Appends every problem to `problems`, in the file's order: "PATH:LINE:COLUMN: what is
// wrong; what was expected", each of kind kConfiguration. A file that cannot be read is a problem,
// too: "reading the configuration PATH: ...". If a service's description throws, appends only these
// exceptions, each of kind kSystem. Returns nothing if there is a problem. Threads: any, before the
// seal (it allocates).
std::optional<Configuration> load_configuration(const char* path,
                                                std::span<Service* const> services,
                                                std::vector<Error>* problems);

// The same for text in memory; `path` appears only in messages.
std::optional<Configuration> parse_configuration(std::string_view text, const char* path,
                                                 std::span<Service* const> services,
                                                 std::vector<Error>* problems);

// A key as it is documented.
struct KeyDescription {
  std::string name;  // with its table: "pool.bytes"
  std::string type;
  std::string default_text;  // as written in a file, in words, or "required"
  std::string range;
  std::string help;  // Markdown
};

// Every key, in the order of the documentation; keys of `services` last. Logs a service that cannot
// be described, and leaves out its further keys.
std::vector<KeyDescription> configuration_keys(std::span<Service* const> services);

// The key's row in the table of docs/configuration.md, without a newline.
std::string markdown_row(const KeyDescription& key);

}  // namespace bedplate
