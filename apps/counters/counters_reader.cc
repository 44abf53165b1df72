#include "apps/counters/counters_reader.h"

#include <algorithm>

#include <dirent.h>
#include <fcntl.h>

#include "apps/counters/counters_file.h"
#include "platform/product.h"
#include "platform/text.h"

namespace bedplate {

namespace {

// The names before `suffix` of all files in `directory` that end with it.
Result<std::vector<std::string>> list_names(const std::string& directory, std::string_view suffix) {
  DIR* handle = opendir(directory.c_str());
  if (handle == nullptr) {
    return error_from_errno("looking for appliances in %s", directory.c_str())
        .set_cure("start one (`%s run CONFIG`), or name its runtime directory with "
                  "--directory",
                  product().name);
  }
  std::vector<std::string> names;
  while (const dirent* entry = readdir(handle)) {
    const std::string_view file(entry->d_name);
    if (!file.ends_with(suffix)) continue;
    names.emplace_back(file.substr(0, file.size() - suffix.size()));
  }
  closedir(handle);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

Result<std::vector<std::string>> list_appliances(const std::string& directory) {
  return list_names(directory, kCountersSuffix);
}

Result<std::vector<std::string>> list_crashed(const std::string& directory) {
  return list_names(directory, kCrashedSuffix);
}

Error no_appliance(const std::string& directory) {
  return error_while("looking for appliances in %s", directory.c_str())
      .set_answer("none is running")
      .set_cure("start one (`%s run CONFIG`), or name its runtime directory with "
                "--directory",
                product().name);
}

namespace {

Error usage_error(const std::string& doing) {
  return configuration_error_while("%s", doing.c_str());
}

Result<std::string> choose_name(const std::string& directory) {
  auto names = list_appliances(directory);
  if (!names.ok()) return names.error();
  if (names.value().size() == 1) return names.value().front();
  if (names.value().empty()) return no_appliance(directory);
  std::string all;
  for (const std::string& name : names.value()) add_word(&all, name);
  return usage_error("choosing an appliance in " + directory)
      .set_answer("there are %zu: %s", names.value().size(), all.c_str())
      .set_cure("name one: %s stats NAME", product().name);
}

}  // namespace

bool CountersReader::still_runs() const noexcept {
  struct flock lock {};  // F_GETLK finds the holder, takes nothing
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  return fcntl(fd_.number(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

Result<CountersReader> CountersReader::open(const std::string& directory,
                                            const std::string& wanted) {
  std::string name = wanted;
  if (name.empty()) {
    auto chosen = choose_name(directory);
    if (!chosen.ok()) return chosen.error();
    name = chosen.take();
  }
  return open_file(counters_path(directory, name));
}

Result<CountersReader> CountersReader::open_file(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.is_open()) {
    return error_from_errno("reading counters: opening %s", path.c_str())
        .set_cure("start the appliance (`%s run CONFIG`), or name its runtime directory with "
                  "--directory, or the file with --from",
                  product().name);
  }
  CountersReader reader(std::move(fd), path);
  auto snapshot = reader.snapshot();
  if (!snapshot.ok()) return snapshot.error();
  reader.appliance_ = snapshot.value().appliance();
  reader.pid_ = snapshot.value().pid();
  reader.is_running_ = reader.still_runs();
  return reader;
}

}  // namespace bedplate
