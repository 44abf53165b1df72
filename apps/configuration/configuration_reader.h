// The reader of a configuration: one walk over the file by its description (configuration_table.h),
// then the rules between keys (configuration_checks.h).
//
// The walk goes on after a problem, so that all are reported. Threads: one (it allocates).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/configuration/configuration.h"
#include "apps/configuration/configuration_problems.h"
#include "apps/configuration/configuration_table.h"
#include "apps/configuration/toml_reader.h"

namespace bedplate {

class ConfigurationReader {
 public:
  // A table of the file, with its description.
  struct Kept {
    std::shared_ptr<ConfigurationTable> table;
    const TomlNode* node = nullptr;
    bool is_one_of_several = false;  // [[table]]
  };

  // `file` describes the variables that the reader sets, including those of `configuration`. Keys
  // that name a shard or a group refer to those of `configuration`. Both arguments outlive this
  // object.
  ConfigurationReader(const ConfigurationTable& file, const Configuration& configuration)
      : file_(file), configuration_(configuration) {}

  // Sets the variables, and collects the problems. Requires: called once. `root` outlives the
  // tables of take_tables().
  void read(const TomlNode& root);
  // The tables that were read, without the root table; they point into `root`. Requires: read() was
  // called.
  std::vector<Kept> take_tables() { return std::move(kept_); }
  // Checks only the rules between keys, on variables that were changed since read(). `root` is the
  // same as in read().
  void check(const TomlNode& root, const std::vector<Kept>& tables);
  // As ConfigurationProblems::errors().
  std::vector<Error> problems(const char* path) const { return problems_.errors(path); }

 private:
  using Key = ConfigurationKey;
  using Child = ConfigurationTable::Child;

  // A value of a key that must be unique.
  struct Taken {
    std::string key;  // with its table
    std::string text;
    TomlPosition position;
  };

  void refuse(const ConfigurationTable& table, const Key& key, TomlPosition position,
              std::string answer, std::string cure);
  void read_table(const ConfigurationTable& table, const std::string& label, const TomlNode& node);
  void read_tables(const ConfigurationTable& parent, const Child& child, const TomlNode& node);
  void read_one_table(const Child& child, const TomlNode& node);
  void refuse_unknown(const ConfigurationTable& table, const std::string& label,
                      const TomlNode& node);
  void check_missing(const ConfigurationTable& table, const std::string& label,
                     const TomlNode& node);
  void read_key(const ConfigurationTable& table, const std::string& label, const Key& key,
                const TomlNode& node);
  void read_list(const ConfigurationTable& table, const Key& key, const TomlNode& node);
  bool read_address(const ConfigurationTable& table, const Key& key, const TomlNode& node,
                    Key::Value* value);
  bool claim(const ConfigurationTable& table, const std::string& label, const Key& key,
             const Key::Value& value);
  void resolve_shards();
  void resolve_groups();
  void run_check(const ConfigurationTable& table, const TomlNode& node);

  const ConfigurationTable& file_;
  const Configuration& configuration_;
  std::vector<Kept> kept_;
  ConfigurationProblems problems_;
  std::vector<Taken> taken_;
  ConfigurationTable::References references_;  // of all tables
};

}  // namespace bedplate
