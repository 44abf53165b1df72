// The reader of a configuration: one walk over the file by its description (configuration_table.h),
// then the rules between keys (configuration_checks.h).
//
// The walk goes on after a problem: all of them are told. A check across keys is left out if one of
// its sides was refused already: it would only blame the wrong line.
#pragma once

#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "apps/configuration/configuration.h"
#include "apps/configuration/configuration_table.h"
#include "apps/configuration/toml_reader.h"

namespace bedplate {

// nullptr when there is none.
const TomlNode* find_child(const TomlNode& node, std::string_view key) noexcept;

class ConfigurationReader {
 public:
  // A table of the file, with its description.
  struct Kept {
    std::shared_ptr<ConfigurationTable> table;
    const TomlNode* node = nullptr;
    bool is_one_of_several = false;  // [[table]]
  };

  // Fills in the variables that `file` describes, and `configuration`: references name its shards
  // and groups.
  ConfigurationReader(ConfigurationTable& file, Configuration& configuration)
      : file_(file), configuration_(configuration) {}

  void read(const TomlNode& root);
  // The tables that were read, without the file itself; they point into `root`. Requires: read()
  // was called.
  std::vector<Kept> take_tables() { return std::move(kept_); }
  // Checks the rules between keys alone, on variables that were changed since read(); `root` is the
  // same.
  void check(const TomlNode& root, const std::vector<Kept>& tables);
  // Every problem, in the file's order; each is of kind kConfiguration.
  std::vector<Error> problems(const char* path) const;

 private:
  friend class ReadTable;
  using Key = ConfigurationKey;
  using Child = ConfigurationTable::Child;

  struct Problem {
    TomlPosition position;
    std::string answer;
    std::string cure;
  };
  // A value of a key that must be unique.
  struct Taken {
    std::string key;  // with its table
    std::string text;
    TomlPosition position;
  };

  static std::string path_of(const ConfigurationTable& table, std::string_view key);
  void add_problem(TomlPosition position, std::string answer, std::string cure);
  void refuse(const ConfigurationTable& table, const Key& key, TomlPosition position,
              std::string answer, std::string cure);
  void read_table(ConfigurationTable& table, const std::string& label, const TomlNode& node);
  void read_tables(const ConfigurationTable& parent, const Child& child, const TomlNode& node);
  void read_one_table(const Child& child, const TomlNode& node);
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

  ConfigurationTable& file_;
  Configuration& configuration_;
  std::vector<Kept> kept_;
  std::vector<Problem> problems_;
  std::vector<Taken> taken_;
  std::set<std::string, std::less<>> refused_;  // keys without a usable value somewhere, and tables
  std::vector<ConfigurationTable::Reference> shard_references_;
  std::vector<ConfigurationTable::Reference> group_references_;
};

// A table that has been read, for its description's check().
class ReadTable {
 public:
  ReadTable(ConfigurationReader& reader, const ConfigurationTable& table, const TomlNode& node)
      : reader_(reader), table_(table), node_(node) {}

  // The table as the file has it.
  const TomlNode& node() const noexcept { return node_; }
  bool has(std::string_view key) const noexcept { return find_child(node_, key) != nullptr; }
  // Whether a value of `key`, or the table of that name, was refused, is misspelt, or is missing
  // though required; "pool.bytes" in the file, "bytes" in [pool].
  bool was_refused(std::string_view key) const {
    return reader_.refused_.contains(ConfigurationReader::path_of(table_, key));
  }

  // `answer`: what is wrong; `cure`: what is expected instead.
  void refuse_at(TomlPosition position, std::string answer, std::string cure) {
    reader_.add_problem(position, std::move(answer), std::move(cure));
  }
  // At the table itself.
  void refuse(std::string answer, std::string cure) {
    refuse_at(node_.position, std::move(answer), std::move(cure));
  }
  // At the value of `key`; at the table if it is not there.
  void refuse_value(std::string_view key, std::string answer, std::string cure) {
    const TomlNode* value = find_child(node_, key);
    refuse_at((value != nullptr ? *value : node_).position, std::move(answer), std::move(cure));
  }
  // Refuses those of `keys` that are there, as they make no sense in this table: `"KEY" answer`.
  void refuse_keys(std::initializer_list<const char*> keys, const std::string& answer,
                   const std::string& cure);

 private:
  ConfigurationReader& reader_;
  const ConfigurationTable& table_;
  const TomlNode& node_;
};

}  // namespace bedplate
