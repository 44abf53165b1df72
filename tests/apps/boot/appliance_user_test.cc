// [appliance] user: the appliance gives up root and becomes this user. Checks run with the user's
// rights, and the pool's files become the user's.
#include "apps/boot/appliance_user.h"

#include <cstdlib>
#include <string>

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "apps/boot/outsiders.h"
#include "apps/boot/preflight.h"
#include "pinned_pool/boot_segment.h"
#include "platform/capabilities.h"
#include "platform/log.h"
#include "tests/support/death_test.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// Drops `capability` from the effective set of the calling thread.
bool give_up(int capability) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  data[0].effective &= ~(1U << capability);
  return syscall(SYS_capset, &header, data) == 0;
}

bool may(int capability) { return (own_capabilities() >> capability & 1) != 0; }

std::string text_of(const Error& error) {
  char text[1024];
  return format_error(error, text, sizeof text);
}

// Whether this user is root and may become another user; root of a container may not.
bool can_become() { return getuid() == 0 && setegid(getegid()) == 0; }

}  // namespace

TEST_GROUP(ApplianceUser) {
  Configuration configuration;
  AppliancePlan plan;
  User nobody = find_user("nobody").take();
  bool can_change = false;

  void setup() override {
    configuration.appliance.name = "demo";
    configuration.appliance.user = "nobody";
    configuration.appliance.runtime_directory = "/not/there";
    configuration.event_loop.sockets = SocketBackendChoice::kEpoll;
    can_change = geteuid() == 0 && problems().empty();
  }

  std::vector<Error> problems() {
    std::vector<Error> found;
    check_appliance_user(configuration, plan, &found);
    return found;
  }

  void refused(const char* user, const char* text) {
    configuration.appliance.user = user;
    const auto found = find_appliance_user(configuration);
    CHECK_TEXT(!found.ok(), text);
    STRCMP_CONTAINS(text, text_of(found.error()).c_str());
  }
};

TEST(ApplianceUser, NoneIsAskedForByDefault) {
  configuration.appliance.user = "";
  CHECK_FALSE(find_appliance_user(configuration).take().has_value());
  LONGS_EQUAL(0, problems().size());
  CHECK(give_runtime_directory(configuration).ok());
}

TEST(ApplianceUser, ThoseThatCannotBeAreRefused) {
  refused("nobody-of-this-name", "no such user in /etc/passwd");
  refused("root", "giving up root for [appliance] user = \"root\": this user is root");
  configuration.is_first_process = true;
  refused("nobody", "the first process of an image stays root");
}

TEST(ApplianceUser, OnlyRootCanBecomeAnother) {
  if (!can_become()) BP_SKIP("needs root that may become another user");
  const auto as_user = [this](uint32_t user) {
    return test::run_forked([&] {
      if (setuid(user) != 0) _exit(1);
      auto found = find_appliance_user(configuration);
      if (!found.ok()) log_error(found.error());
      _exit(!found.ok() ? 2 : found.value() ? 3 : 0);
    });
  };
  LONGS_EQUAL(0, as_user(find_user_id("nobody").take()).exit_code);  // it is this user already
  const test::Ended ended = as_user(4711);
  LONGS_EQUAL(2, ended.exit_code);
  CHECK(ended.said("this process runs as user 4711, and only root can become another user; start "
                   "it as root"));
}

TEST(ApplianceUser, AServiceThatCouldComeBackIsAProblem) {
  if (!can_become()) BP_SKIP("needs root that may become another user");
  plan.services.resize(1);
  plan.services[0].name = "door";
  plan.services[0].capabilities = uint64_t{1} << CAP_SETUID;
  const auto found = problems();
  LONGS_EQUAL(1, found.size());
  STRCMP_CONTAINS("the service door asks for CAP_SETUID or CAP_SETGID", text_of(found[0]).c_str());
}

TEST(ApplianceUser, GetsTheRuntimeDirectoryAndKeepsIt) {
  if (!can_change) BP_SKIP("needs root that may become another user");
  char base[] = "/tmp/bp_user_XXXXXX";
  CHECK(mkdtemp(base) != nullptr);
  configuration.appliance.runtime_directory = std::string(base) + "/run";
  CHECK(chmod(base, 0755) == 0);
  CHECK(give_runtime_directory(configuration).ok());
  struct stat made = {};
  CHECK(stat(configuration.appliance.runtime_directory.c_str(), &made) == 0);
  LONGS_EQUAL(find_user_id("nobody").take(), made.st_uid);
  LONGS_EQUAL(0, problems().size());
  CHECK(give_runtime_directory(configuration).ok());  // the directory exists already
  rmdir(configuration.appliance.runtime_directory.c_str());
  rmdir(base);
}

TEST(ApplianceUser, DirectoriesAreTriedAsTheUser) {
  if (!can_change) BP_SKIP("needs root that may become another user");
  char directory[] = "/tmp/bedplate-user-XXXXXX";
  CHECK(mkdtemp(directory) != nullptr);
  configuration.appliance.runtime_directory = directory;
  LONGS_EQUAL(1, problems().size());
  CHECK_EQUAL(0, chown(directory, nobody.id, nobody.group));
  LONGS_EQUAL(0, problems().size());
  CHECK_EQUAL(0, chown(directory, 0, 0));
  CHECK_EQUAL(0, chmod(directory, 01777));  // sticky: the user could not remove root's files
  LONGS_EQUAL(1, problems().size());
  rmdir(directory);
}

TEST(ApplianceUser, WithoutOneThisProcessLooks) {
  configuration.appliance.user = "";
  std::vector<Error> found;
  pid_t who = 0;
  look_as_appliance(
      configuration, plan, [&](auto*) { who = getpid(); }, &found);
  LONGS_EQUAL(getpid(), who);
  // A capability to change users is allowed where no user is to be given up.
  plan.services.resize(1);
  plan.services[0].capabilities = uint64_t{1} << CAP_SETUID;
  who = 0;
  look_as_appliance(
      configuration, plan, [&](auto*) { who = getpid(); }, &found);
  LONGS_EQUAL(getpid(), who);
  plan.services.clear();
  if (!can_change) BP_SKIP("needs root that may become another user");
  configuration.appliance.user = "nobody";
  const auto look = [&](std::vector<Error>* seen) {
    if (getpid() != who && geteuid() == nobody.id) seen->push_back(Error{}.set_answer("seen"));
  };
  look_as_appliance(configuration, plan, look, &found);
  LONGS_EQUAL(1, found.size());
  STRCMP_EQUAL("seen", found[0].answer);
}

// The limit does not bind root. With CAP_SYS_RESOURCE, root lifts the limit for the user. Without
// it, the user keeps CAP_IPC_LOCK.
TEST(ApplianceUser, TheLimitOfLockedMemoryIsNone) {
  if (!can_change) BP_SKIP("needs root that may become another user");
  plan.pool.segments = {{"boot", 64 * kMiB, PageSize::k4KiB, {}}};
  const auto is_told = [this](std::initializer_list<int> without) {
    return test::exit_code_of([&] {
      const rlimit low = {kMiB, kMiB};
      if (setrlimit(RLIMIT_MEMLOCK, &low) != 0) return 90;
      for (const int capability : without) {
        if (!give_up(capability)) return 91;
      }
      for (const Error& each : preflight(configuration, plan)) {
        if (std::string(each.doing) == "checking the limit of locked memory") return 1;
      }
      return 0;
    });
  };
  if (may(CAP_SYS_RESOURCE)) LONGS_EQUAL(0, is_told({CAP_IPC_LOCK}));
  if (may(CAP_IPC_LOCK)) LONGS_EQUAL(0, is_told({CAP_SYS_RESOURCE}));
  LONGS_EQUAL(1, is_told({CAP_IPC_LOCK, CAP_SYS_RESOURCE}));
}

TEST(ApplianceUser, ProcessesOfTheUserAreItsOwn) {
  ProcessSettings process;
  process.name = "worker";
  process.user = std::to_string(nobody.id);
  CHECK_FALSE(is_outsider(configuration, process));
  configuration.appliance.user = "";
  CHECK_EQUAL(geteuid() != nobody.id, is_outsider(configuration, process));
  process.user = "0";
  CHECK_FALSE(is_outsider(configuration, process));
}

BP_PROBE(GivesUpRoot) {
  Configuration configuration;
  configuration.appliance.user = "nobody";
  AppliancePlan plan;
  plan.groups.push_back({"fifo:main", {}});
  const Segment& segment = boot_segment();
  BP_PROBE_CHECK(give_up_root(configuration, plan, process_pool()).ok());
  struct stat status {};
  BP_PROBE_CHECK(fstat(segment.memfd, &status) == 0);
  const User nobody = find_user("nobody").take();
  BP_PROBE_CHECK(status.st_uid == nobody.id && status.st_gid == nobody.group);
  BP_PROBE_CHECK(geteuid() == nobody.id);
}

TEST(ApplianceUser, ThePoolsFilesBecomeTheUsers) {
  if (test::kIsSanitized) BP_SKIP("a sanitizer has a thread of its own, which stays root");
  if (!can_change) BP_SKIP("needs root that may become another user");
  BP_CHECK_PROBE(GivesUpRoot);
}
