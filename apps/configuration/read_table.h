// A table that has been read, as the check() of its description sees it (configuration_table.h): it
// looks at the file's values, and refuses values that do not go together. The runtime reports them
// with file, line and column, beside all other problems of the file.
//
//     table.check([this](ReadTable& read) {
//       if (!read.was_refused("mirror") && read.has("mirror") && mirror_ == journal_) {
//         read.refuse_value("mirror", "\"mirror\" is the journal itself", "name another file");
//       }
//     });
//
// The variables have the file's values, except those of shards and groups, whose names are looked
// up once the whole file is read. Texts that are passed are copied. Threads: any, before the seal
// (it allocates).
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

#include "apps/configuration/configuration_table.h"
#include "apps/configuration/toml_reader.h"

namespace bedplate {

class ConfigurationProblems;

class ReadTable {
 public:
  // All three outlive this object.
  ReadTable(const ConfigurationTable& table, const TomlNode& node, ConfigurationProblems& problems)
      : table_(table), node_(node), problems_(problems) {}

  // The table as the file has it.
  const TomlNode& node() const noexcept { return node_; }
  // Whether the file has the key in this table, or the table in it.
  bool has(std::string_view key) const noexcept { return find_child(node_, key) != nullptr; }
  // Whether a value of `key`, or the table of that name, was refused or is misspelt, or a required
  // key is missing (not a required table). A check of its value would then blame the wrong line.
  // `key` is "pool.bytes" for the whole file, "bytes" for [pool].
  bool was_refused(std::string_view key) const;

  // `answer`: what is wrong; `cure`: what is expected instead.
  void refuse_at(TomlPosition position, std::string answer, std::string cure);
  // Reports a problem at the table itself.
  void refuse(std::string answer, std::string cure);
  // Reports a problem at the value of `key`; at the table if it has no such key.
  void refuse_value(std::string_view key, std::string answer, std::string cure);
  // Refuses those of `keys` that the table has and that make no sense in it: `"KEY" answer`.
  void refuse_keys(std::initializer_list<const char*> keys, const std::string& answer,
                   const std::string& cure);

 private:
  const ConfigurationTable& table_;
  const TomlNode& node_;
  ConfigurationProblems& problems_;
};

// The tables of [[`name`]] in `read`, in the file's order; nullptr: they are not `count`, because
// some were refused, or there are none. Lifetime: that of the file's nodes.
const TomlNode* tables_of(const ReadTable& read, std::string_view name, size_t count);

}  // namespace bedplate
