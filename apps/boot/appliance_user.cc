#include "apps/boot/appliance_user.h"

#include <algorithm>
#include <string>

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/capabilities.h"
#include "platform/log.h"

namespace bedplate {
namespace {

constexpr unsigned kDirectoryMode = 0755;
constexpr uint64_t kRootCapabilities = uint64_t{1} << CAP_SETUID | uint64_t{1} << CAP_SETGID;

Error refusal(const std::string& user) noexcept {
  return configuration_error_while("giving up root for [appliance] user = \"%s\"", user.c_str());
}

Result<void> check_capabilities_asked(const std::string& user, const AppliancePlan& plan) {
  for (const ServiceNeeds& service : plan.services) {
    if ((service.capabilities & kRootCapabilities) == 0) continue;
    return refusal(user)
        .set_answer("the service %s asks for CAP_SETUID or CAP_SETGID, with which it could become "
                    "root again",
                    service.name.c_str())
        .set_cure("use these capabilities in prepare() only, or leave user out");
  }
  return {};
}

// The limit of locked memory binds the user, not root. So the limit is raised for the user, which
// needs CAP_SYS_RESOURCE. If root lacks that capability, the user keeps CAP_IPC_LOCK, which lifts
// the limit.
uint64_t kept_capabilities(const AppliancePlan& plan) noexcept {
  constexpr uint64_t kMayLock = uint64_t{1} << CAP_IPC_LOCK;
  const rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
  const bool is_raised = setrlimit(RLIMIT_MEMLOCK, &all) == 0;
  return plan.capabilities() | (is_raised ? 0 : own_capabilities() & kMayLock);
}

// The directories of files that the runtime removes at its end, or that a service renames.
std::vector<std::string> directories_of(const Configuration& configuration,
                                        const AppliancePlan& plan) {
  std::vector<std::string> directories = {configuration.appliance.runtime_directory};
  const auto add = [&directories](const std::string& path) {
    const size_t slash = path.rfind('/');
    if (slash == path.npos) return;
    std::string directory = slash == 0 ? "/" : path.substr(0, slash);
    const bool is_there =
        std::find(directories.begin(), directories.end(), directory) != directories.end();
    if (!is_there) directories.push_back(std::move(directory));
  };
  if (!plan.groups.empty()) add(configuration.messages.socket);
  for (const ServiceNeeds& service : plan.services) {
    for (const ListenNeed& need : service.listens) {
      for (const SocketAddress& address : need.addresses) {
        if (address.kind == SocketAddress::Kind::kUnix) add(address.path);
      }
    }
    for (const FileNeed& file : service.files) {
      if (file.plan.is_renamed) add(file.plan.path);
    }
  }
  return directories;
}

void check_directory(const std::string& directory, const User& user, std::vector<Error>* problems) {
  struct stat status {};
  if (stat(directory.c_str(), &status) != 0) return;
  // In a sticky directory a file that root has made can be removed only by root or the directory's
  // owner.
  const bool is_stuck = (status.st_mode & S_ISVTX) != 0 && status.st_uid != user.id;
  if (!is_stuck && access(directory.c_str(), W_OK | X_OK) == 0) return;
  problems->push_back(
      error_while("checking %s as the user %s", directory.c_str(), user.name.c_str())
          .set_answer("the user could not remove the appliance's files there when it ends")
          .set_cure("chown %s %s, or choose another directory", user.name.c_str(),
                    directory.c_str()));
}

}  // namespace

Result<std::optional<User>> find_appliance_user(const Configuration& configuration) {
  const std::string& name = configuration.appliance.user;
  if (name.empty()) return std::optional<User>();
  BP_TRY_ASSIGN(auto user, find_user(name.c_str()));
  if (configuration.is_first_process) {
    return refusal(name)
        .set_answer("the first process of an image stays root, without root's capabilities")
        .set_cure("leave user out (docs/image.md lists what is kept)");
  }
  if (user.id == 0) {
    return refusal(name)
        .set_answer("this user is root")
        .set_cure("name another user, or leave user out");
  }
  if (geteuid() == user.id && getuid() == user.id) return std::optional<User>();
  if (geteuid() != 0) {
    return refusal(name)
        .set_answer("this process runs as user %u, and only root can become another user",
                    geteuid())
        .set_cure("start it as root or as %s", name.c_str());
  }
  return std::optional<User>(std::move(user));
}

void look_as_appliance(const Configuration& configuration, const AppliancePlan& plan,
                       const Look& look, std::vector<Error>* problems) {
  auto found = find_appliance_user(configuration);
  if (!found.ok()) return;
  if (!found.value()) return look(problems);
  if (!check_capabilities_asked(configuration.appliance.user, plan).ok()) return;
  (void)look_as_user(*found.value(), kept_capabilities(plan), look, problems).ok();
}

void check_appliance_user(const Configuration& configuration, const AppliancePlan& plan,
                          std::vector<Error>* problems) {
  auto found = find_appliance_user(configuration);
  if (!found.ok()) return problems->push_back(found.error());
  if (!found.value()) return;
  auto asked = check_capabilities_asked(configuration.appliance.user, plan);
  if (!asked.ok()) return problems->push_back(asked.error());
  const User& user = *found.value();
  const auto look = [&](std::vector<Error>* seen) {
    for (const std::string& directory : directories_of(configuration, plan)) {
      check_directory(directory, user, seen);
    }
  };
  auto looked = look_as_user(user, kept_capabilities(plan), look, problems);
  if (!looked.ok()) problems->push_back(looked.error());
}

Result<void> give_runtime_directory(const Configuration& configuration) {
  auto found = find_appliance_user(configuration);
  if (!found.ok() || !found.value()) return {};  // check_appliance_user has reported it
  const char* directory = configuration.appliance.runtime_directory.c_str();
  if (mkdir(directory, kDirectoryMode) != 0) return {};  // it exists, or its lock says why not
  const User& user = *found.value();
  if (lchown(directory, user.id, user.group) == 0) return {};
  return error_from_errno("giving %s to the user %s", directory, user.name.c_str())
      .set_cure("create it and chown it by hand");
}

Result<void> give_up_root(const Configuration& configuration, const AppliancePlan& plan,
                          PinnedPool& pool) {
  auto found = find_appliance_user(configuration);
  if (!found.ok()) return found.error();
  if (!found.value()) return {};
  const User& user = *found.value();
  const uint64_t kept = kept_capabilities(plan);
  if (!plan.groups.empty()) BP_TRY(pool.give_files(user.id, user.group));
  BP_TRY(become_user(user, kept));
  BP_LOG_INFO("%s: gave up root: user %u, group %u; capabilities kept: %s",
              configuration.appliance.name.c_str(), user.id, user.group,
              kept == 0 ? "none" : name_capabilities(kept).c_str());
  return {};
}

}  // namespace bedplate
