#include "apps/boot/configuration.h"

#include "apps/boot/configuration_table.h"
#include "apps/boot/loaded_configuration.h"
#include "platform/log.h"

namespace bedplate {
namespace {

// The keys of `table`, then those of the tables in it.
void list_keys(const ConfigurationTable& table, std::vector<KeyDescription>* all) {
  for (const ConfigurationKey& key : table.keys()) {
    all->push_back({table.name() + "." + key.name(), key.type_text(), key.default_text(),
                    key.range_text(), key.help_text()});
  }
  for (const ConfigurationTable::Child& child : table.children()) {
    ConfigurationTable inner(child.name, true);
    child.describe(inner);
    list_keys(inner, all);
  }
}

}  // namespace

std::optional<Configuration> parse_configuration(std::string_view text, const char* path,
                                                 std::span<Service* const> services,
                                                 std::vector<Error>* problems) {
  LoadedConfiguration loaded;
  if (!loaded.parse(text, path, services, problems)) return std::nullopt;
  return std::move(loaded.configuration());
}

std::optional<Configuration> load_configuration(const char* path,
                                                std::span<Service* const> services,
                                                std::vector<Error>* problems) {
  LoadedConfiguration loaded;
  if (!loaded.load(path, services, problems)) return std::nullopt;
  return std::move(loaded.configuration());
}

std::vector<KeyDescription> configuration_keys(std::span<Service* const> services) {
  Configuration sample;
  ConfigurationTable file("", true);
  describe(file, sample);
  std::vector<Error> thrown;
  if (auto described = describe_services(services, file, sample, &thrown); !described.ok()) {
    thrown.push_back(described.error());
  }
  std::vector<KeyDescription> all;
  list_keys(file, &all);
  for (const Error& error : thrown) log_error(error);
  return all;
}

std::string markdown_row(const KeyDescription& key) {
  const std::string& value = key.default_text;
  const bool is_words =
      value == "required" || (!value.starts_with('"') && value.find(' ') != std::string::npos);
  return "| `" + key.name + "` | " + key.type + " | " + (is_words ? value : "`" + value + "`") +
         " | " + key.range + " | " + key.help + " |";
}

}  // namespace bedplate
