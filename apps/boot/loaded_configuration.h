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
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/configuration/configuration.h"
#include "apps/configuration/configuration_reader.h"
#include "apps/configuration/configuration_table.h"

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

// Reads and checks the file at `path`, which may have a table for each of `services`. Stores the
// settings of each service in it: a service is read for once. Appends every problem to `problems`,
// in the file's order: "PATH:LINE:COLUMN: what is wrong; what was expected", each of kind
// kConfiguration. A file that cannot be read is a problem, too: "reading the configuration PATH:
// ...".
// Returns nothing if there is a problem. Threads: any, before the seal (it allocates).
std::optional<Configuration> load_configuration(const char* path,
                                                std::span<Service* const> services,
                                                std::vector<Error>* problems);

// The same for text in memory; `path` only appears in messages.
std::optional<Configuration> parse_configuration(std::string_view text, const char* path,
                                                 std::span<Service* const> services,
                                                 std::vector<Error>* problems);

// One key as the documentation has it.
struct KeyDescription {
  std::string name;  // with its table: "pool.bytes"
  std::string type;
  std::string default_text;  // as a file would write it, in words, or "required"
  std::string range;
  std::string help;  // Markdown
};

// Every key, in the order of the documentation; those of `services` last.
std::vector<KeyDescription> configuration_keys(std::span<Service* const> services);

// Its row in the table of docs/configuration.md, without a newline.
std::string markdown_row(const KeyDescription& key);

}  // namespace bedplate
