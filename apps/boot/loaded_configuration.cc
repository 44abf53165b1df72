#include "apps/boot/loaded_configuration.h"

#include <algorithm>
#include <cstring>

#include <sys/stat.h>

#include "apps/services/service.h"
#include "apps/services/service_calls.h"
#include "platform/file.h"
#include "platform/log.h"

namespace bedplate {

static constexpr size_t kFileMaxBytes = kMiB;

static constexpr Choice<PlainText> kPlainTextChoices[] = {{"local", PlainText::kLocal},
                                                          {"allowed", PlainText::kAllowed},
                                                          {"refused", PlainText::kRefused}};

// Each service with addresses in its table has this key, also services from outside the tree:
// ServicePlan::listen asks for it.
static void describe_plain_text(const char* service, ConfigurationTable& table,
                                Configuration& all) {
  const auto is_addresses = [](const ConfigurationKey& key) {
    return key.type() == ConfigurationKey::Type::kAddresses;
  };
  if (std::none_of(table.keys().begin(), table.keys().end(), is_addresses)) return;
  table.choice("plain_text", &all.plain_text[service], kPlainTextChoices)
      .help("The listeners that serve clients without TLS: those on loopback and Unix sockets, "
            "all, or none. A service without TLS that other machines can reach is refused at "
            "boot, unless this is `\"allowed\"` ([Plain text](#plain-text)).");
}

static bool is_service_name(const char* name) {
  constexpr char kCharacters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
  if (name == nullptr) return false;
  const size_t length = strspn(name, kCharacters);
  return name[length] == '\0' && length >= 1 && length <= 32;
}

Result<void> describe_services(std::span<Service* const> services, ConfigurationTable& file,
                               Configuration& all, std::vector<Error>* thrown) {
  const auto defect = [](const char* name, const char* answer, const char* cure) {
    return configuration_error_while("describing the table of the service %s", name)
        .set_answer("%s", answer)
        .set_cure("this is a defect of the program: %s", cure);
  };
  for (Service* service : services) {
    const char* const name = service->name();
    if (!is_service_name(name)) {
      return defect(name == nullptr ? "without a name" : name, "this is not a valid service name",
                    "a name has 1 to 32 characters of a-z, 0-9 and -");
    }
    if (file.find_key(name) != nullptr || file.find_child(name) != nullptr) {
      return defect(name, "the runtime or another service already uses this name",
                    "each service needs a name of its own");
    }
    const auto describe = [service, &all, thrown](ConfigurationTable& table) {
      const bool is_known =
          std::find(all.services.begin(), all.services.end(), service) != all.services.end();
      if (!table.is_sample() && !is_known) all.services.push_back(service);
      auto described = call_service(*service, "describing its table", [&] {
        service->describe(table);
        describe_plain_text(service->name(), table, all);
        return Result<void>{};
      });
      if (described.ok()) return;
      Error error = described.error();
      error.kind = ErrorKind::kConfiguration;
      thrown->push_back(error);
    };
    file.service(service->name(), service->table_count_max(), describe);
  }
  return {};
}

bool LoadedConfiguration::parse(std::string_view text, const char* path,
                                std::span<Service* const> services, std::vector<Error>* problems) {
  const auto refuse = [&](const char* answer, const char* cure) {
    problems->push_back(configuration_error(path, {}, answer, cure));
    return false;
  };
  if (text.empty()) {
    return refuse("the file is empty", "docs/configuration.md shows the smallest file that works");
  }
  if (text.size() > kFileMaxBytes) {
    return refuse("the file is larger than 1 MiB",
                  "expected a configuration, which is a few KiB of TOML text");
  }
  Result<TomlNode> root = read_toml(text, path);
  if (!root.ok()) {
    problems->push_back(root.error());
    return false;
  }
  root_ = std::make_unique<TomlNode>(root.take());
  path_ = path;
  configuration_.text_bytes = text.size();
  describe(*file_, configuration_);
  std::vector<Error> found;
  if (auto described = describe_services(services, *file_, configuration_, &found);
      !described.ok()) {
    problems->push_back(described.error());
    return false;
  }
  ConfigurationReader reader(*file_, configuration_);
  reader.read(*root_);
  if (found.empty()) found = reader.problems(path);  // else they follow from those
  problems->insert(problems->end(), found.begin(), found.end());
  if (!found.empty()) return false;
  tables_ = reader.take_tables();
  std::vector<Service*>& there = configuration_.services;
  std::sort(there.begin(), there.end(), [services](Service* left, Service* right) {
    return std::find(services.begin(), services.end(), left) <
           std::find(services.begin(), services.end(), right);
  });
  return true;
}

bool LoadedConfiguration::load(const char* path, std::span<Service* const> services,
                               std::vector<Error>* problems) {
  const auto refuse = [&](Error error) {
    error.kind = ErrorKind::kConfiguration;
    error.set_doing("reading the configuration %s", path);
    problems->push_back(error.set_cure("name a readable file with the appliance's configuration"));
    return false;
  };
  // Opening a FIFO blocks until its other end is opened; reading a pipe or a terminal blocks, too.
  struct stat status {};
  if (stat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
    return refuse(Error{}.set_answer("it is not a regular file"));
  }
  std::string text(kFileMaxBytes + 2, '\0');  // detects a larger file; terminator
  Result<size_t> bytes = read_text_file(path, text.data(), text.size());
  if (!bytes) return refuse(bytes.error());
  text.resize(bytes.value());
  return parse(text, path, services, problems);
}

LoadedConfiguration::LoadedConfiguration() : file_(std::make_unique<ConfigurationTable>("")) {}
LoadedConfiguration::~LoadedConfiguration() = default;

std::vector<NumberKey> LoadedConfiguration::number_keys() const {
  std::vector<NumberKey> all;
  for (const ConfigurationReader::Kept& kept : tables_) {
    std::string instance;
    for (const ConfigurationKey& key : kept.table->keys()) {
      const TomlNode* value = find_child(*kept.node, key.name());
      const bool is_name = key.is_unique() && value != nullptr;
      if (is_name && value->kind == TomlNode::Kind::kText && instance.empty()) {
        instance = value->text;
      }
    }
    for (const ConfigurationKey& key : kept.table->keys()) {
      if (!key.is_number()) continue;
      all.push_back({kept.table->name(), kept.is_one_of_several, instance, &key});
    }
  }
  return all;
}

std::vector<Error> LoadedConfiguration::check() {
  ConfigurationReader reader(*file_, configuration_);
  reader.check(*root_, tables_);
  return reader.problems(path_.c_str());
}

namespace {

// Lists the keys of `table`, then those of the tables in it. Appends names that are described twice
// to `defects`.
void list_keys(const ConfigurationTable& table, std::vector<KeyDescription>* all,
               std::vector<Error>* defects) {
  if (const std::string twice = find_doubled_name(table); !twice.empty()) {
    defects->push_back(
        configuration_error_while("describing the table %s", table.name().c_str())
            .set_answer("it has two keys or tables \"%s\"", twice.c_str())
            .set_cure("this is a defect of the service: give each a name of its own"));
  }
  for (const ConfigurationKey& key : table.keys()) {
    all->push_back({table.name() + "." + key.name(), key.type_text(), key.default_text(),
                    key.range_text(), key.help_text()});
  }
  for (const ConfigurationTable::Child& child : table.children()) {
    ConfigurationTable inner(child.name, true);
    child.describe(inner);
    list_keys(inner, all, defects);
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
  list_keys(file, &all, &thrown);
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
