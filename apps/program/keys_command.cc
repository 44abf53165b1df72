#include <cstdio>

#include "apps/boot/loaded_configuration.h"
#include "apps/configuration/configuration.h"
#include "apps/program/commands.h"
#include "apps/program/json_output.h"
#include "apps/program/manual.h"
#include "platform/text.h"

namespace bedplate {
namespace {

// "appliance, pool, ...": the outermost tables.
std::string table_names(std::span<Service* const> services) {
  std::string names, last;
  for (const KeyDescription& key : configuration_keys(services)) {
    const std::string table = key.name.substr(0, key.name.find('.'));
    if (table != last) add_word(&names, table);
    last = table;
  }
  return names;
}

// The keys of `table` and of the tables in it; all keys if it is empty.
std::vector<KeyDescription> keys_of(const std::string& table, std::span<Service* const> services) {
  std::vector<KeyDescription> keys = configuration_keys(services);
  std::erase_if(keys, [&table](const KeyDescription& key) {
    return !table.empty() && !key.name.starts_with(table + ".");
  });
  return keys;
}

JsonValue to_json(const std::vector<KeyDescription>& keys) {
  JsonValue json = JsonValue::array();
  for (const KeyDescription& key : keys) {
    json.push_back({{"key", key.name},
                    {"type", key.type},
                    {"default", key.default_text},
                    {"range", key.range},
                    {"help", key.help}});
  }
  return json;
}

void print_text(const std::vector<KeyDescription>& keys) {
  for (const KeyDescription& key : keys) {
    std::printf("%s\n  takes: %s, %s\n  default: %s\n  %s\n", key.name.c_str(), key.type.c_str(),
                key.range.c_str(), key.default_text.c_str(), key.help.c_str());
  }
}

}  // namespace

int keys_command(const Arguments& arguments) {
  const std::string table = arguments.operands.empty() ? "" : arguments.operands[0];
  const std::vector<KeyDescription> keys = keys_of(table, arguments.services);
  if (keys.empty()) {
    return usage_failure("there is no table",
                         table + "; TABLE may be: " + table_names(arguments.services), "keys");
  }
  if (arguments.has("--json")) {
    print_json(to_json(keys));
  } else if (arguments.has("--markdown")) {
    for (const KeyDescription& key : keys) std::printf("%s\n", markdown_row(key).c_str());
  } else if (arguments.has("--man")) {
    std::fputs(keys_manual(keys).c_str(), stdout);
  } else {
    print_text(keys);
  }
  return kExitGood;
}

}  // namespace bedplate
