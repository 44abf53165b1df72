// The reader of a configuration: one walk over the file by the tables of configuration_keys.h
// (configuration.cc), then the checks across keys (configuration_checks.cc).
//
// The walk goes on after a problem, because the first one found need not be the first one in the
// file. A check across keys is left out where one of its sides was refused already: it would only
// blame the wrong line.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/boot/configuration.h"
#include "apps/boot/configuration_keys.h"
#include "apps/boot/toml_reader.h"

namespace bedplate::keys {

// nullptr when there is none.
const TomlNode* find_child(const TomlNode& node, std::string_view key) noexcept;

struct Problem {
  TomlPosition position;
  std::string answer;
  std::string cure;
};

class Reader {
 public:
  void read_table(std::string_view name, const TomlNode& node);
  void check_across_keys();
  Result<Configuration> finish(const char* path);

 private:
  void add_problem(TomlPosition position, std::string answer, std::string cure) {
    // Of several at one place the one that was found first stays: the order of kKeys.
    if (first_problem_ && first_problem_->position <= position) return;
    first_problem_ = {position, std::move(answer), std::move(cure)};
  }
  void refuse(const Key& key, TomlPosition position, std::string answer, std::string cure) {
    refused_.push_back(&key);
    add_problem(position, std::move(answer), std::move(cure));
  }
  bool was_refused(std::string_view table_name, std::string_view name) const {
    const Key* key = find_key(table_name, name);
    return std::count(refused_.begin(), refused_.end(), key) != 0;
  }
  void read_tables(const Table& table, const TomlNode& node);
  void read_one_table(const Table& table, const TomlNode& node);
  void read_key(const Key& key, const TomlNode& node);
  void read_list(const Key& key, const TomlNode& node);
  void read_address(const Key& key, const TomlNode& node);
  bool claim(const Key& key, const Value& value);
  void check_missing(std::string_view name, const TomlNode& node);
  void refuse_keys(const TomlNode& node, std::initializer_list<const char*> names,
                   const std::string& answer, const std::string& cure);
  void check_group(const TomlNode& node);
  void check_eager_region(const TomlNode& node, const GroupShape& shape);
  void check_process(const TomlNode& node);
  void check_pool();
  void check_listen_addresses(const std::vector<SocketAddress>& listen,
                              const std::vector<TomlPosition>& positions);
  void check_network(const TomlNode& node);
  void check_crash(const TomlNode& node);
  void check_verbs(const TomlNode& node);
  void check_verbs_peers(const TomlNode& node);
  void check_verbs_names();
  void resolve_shards();
  void resolve_groups();
  void complete_messages();

  struct Taken {
    const Key* key;
    std::string text;
    TomlPosition position;
  };
  Draft draft_;
  std::vector<Taken> taken_;              // values of keys that must be unique
  std::vector<const Key*> refused_;       // keys without a usable value somewhere
  std::optional<Problem> first_problem_;  // in the file's order
};

}  // namespace bedplate::keys
