#include "apps/boot/configuration.h"

#include <algorithm>

#include <sys/stat.h>

#include "apps/boot/configuration_reader.h"
#include "apps/boot/configuration_table.h"
#include "apps/boot/service.h"
#include "apps/boot/service_calls.h"
#include "platform/file.h"
#include "platform/log.h"

namespace bedplate {
namespace {

constexpr size_t kFileMaxBytes = kMiB;

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

// The tables of services, behind the runtime's; `thrown` gets what their descriptions throw.
// Errors: one whose name is taken.
Result<void> describe_services(std::span<Service* const> services, ConfigurationTable& file,
                               Configuration& all, std::vector<Error>* thrown) {
  for (Service* service : services) {
    if (file.find_key(service->name()) != nullptr || file.find_child(service->name()) != nullptr) {
      Error error;
      error.kind = ErrorKind::kConfiguration;
      error.set_doing("giving the service %s its table of the configuration", service->name());
      error.set_answer("the runtime, or another service, has one of this name");
      return error.set_cure("this is a defect of the program: each service has a name of its own");
    }
    const auto describe = [service, &all, thrown](ConfigurationTable& table) {
      const bool is_known =
          std::find(all.services.begin(), all.services.end(), service) != all.services.end();
      if (!table.is_sample() && !is_known) all.services.push_back(service);
      auto described = call_service(*service, "describing its table", [&] {
        service->describe(table);
        return Result<void>{};
      });
      if (!described.ok()) thrown->push_back(described.error());
    };
    file.service(service->name(), service->table_count_max(), describe);
  }
  return {};
}

}  // namespace

std::optional<Configuration> parse_configuration(std::string_view text, const char* path,
                                                 std::span<Service* const> services,
                                                 std::vector<Error>* problems) {
  const auto refuse = [&](const char* answer, const char* cure) {
    problems->push_back(configuration_error(path, {}, answer, cure));
    return std::nullopt;
  };
  if (text.empty()) {
    return refuse("the file is empty", "docs/configuration.md shows the smallest file that works");
  }
  if (text.size() > kFileMaxBytes) {
    return refuse("the file has more than 1 MiB",
                  "expected a configuration, which is a few KiB of TOML text");
  }
  Result<TomlNode> root = read_toml(text, path);
  if (!root.ok()) {
    problems->push_back(root.error());
    return std::nullopt;
  }
  Configuration configuration;
  ConfigurationTable file("");
  describe(file, configuration);
  std::vector<Error> found;
  if (auto described = describe_services(services, file, configuration, &found); !described.ok()) {
    problems->push_back(described.error());
    return std::nullopt;
  }
  ConfigurationReader reader(file, configuration);
  reader.read(root.value());
  if (found.empty()) found = reader.problems(path);  // else they come of the half description
  problems->insert(problems->end(), found.begin(), found.end());
  if (!found.empty()) return std::nullopt;
  std::vector<Service*>& there = configuration.services;
  std::sort(there.begin(), there.end(), [services](Service* left, Service* right) {
    return std::find(services.begin(), services.end(), left) <
           std::find(services.begin(), services.end(), right);
  });
  return configuration;
}

std::optional<Configuration> load_configuration(const char* path,
                                                std::span<Service* const> services,
                                                std::vector<Error>* problems) {
  const auto refuse = [&](Error error) {
    error.kind = ErrorKind::kConfiguration;
    error.set_doing("reading the configuration %s", path);
    problems->push_back(error.set_cure("name a readable file with the appliance's configuration"));
    return std::nullopt;
  };
  // Opening a FIFO waits for its other end, reading a pipe or a terminal for what comes.
  struct stat status {};
  if (stat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
    return refuse(Error{}.set_answer("it is no regular file"));
  }
  std::string text(kFileMaxBytes + 2, '\0');  // one byte too many shows, plus the terminator
  Result<size_t> bytes = read_text_file(path, text.data(), text.size());
  if (!bytes) return refuse(bytes.error());
  text.resize(bytes.value());
  return parse_configuration(text, path, services, problems);
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
