#include "platform/capabilities.h"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include <dirent.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "platform/file.h"
#include "platform/text_words.h"

namespace bedplate {
namespace {

constexpr uint64_t bit(int capability) noexcept { return uint64_t{1} << capability; }

Error refused(const char* what) noexcept {
  return error_from_errno("dropping capabilities: %s", what)
      .set_cure("this is a defect, or this is not the machine's first process");
}

// The capability sets of a thread, from the lines of /proc/PID/status.
struct ThreadSets {
  uint64_t permitted = ~uint64_t{0};
  uint64_t effective = ~uint64_t{0};
  uint64_t bounding = ~uint64_t{0};
};

void read_set(const char* line, void* into) {
  auto* sets = static_cast<ThreadSets*>(into);
  const struct {
    const char* name;
    uint64_t* set;
  } lines[] = {
      {"CapPrm:", &sets->permitted}, {"CapEff:", &sets->effective}, {"CapBnd:", &sets->bounding}};
  for (const auto& each : lines) {
    const size_t bytes = std::strlen(each.name);
    if (std::strncmp(line, each.name, bytes) == 0) {
      std::string_view digits = line + bytes;
      *each.set = take_number<uint64_t>(&digits, 0, 16);
    }
  }
}

Result<void> check_thread(pid_t thread, uint64_t kept) {
  ThreadSets sets;
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/status";
  if (auto read = read_lines(path.c_str(), &read_set, &sets); !read.ok()) {
    if (access(path.c_str(), F_OK) != 0) return {};  // the thread has ended meanwhile
    return read;
  }
  if (sets.permitted == kept && sets.effective == kept && sets.bounding == kept) return {};
  return error_while("checking the capabilities of thread %d", thread)
      .set_answer("permitted %" PRIx64 ", effective %" PRIx64 ", bounding %" PRIx64
                  "; it should keep %" PRIx64,
                  sets.permitted, sets.effective, sets.bounding, kept)
      .set_cure("this is a defect: the thread began before capabilities were dropped");
}

}  // namespace

uint64_t own_capabilities() noexcept {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, sets) != 0) return 0;
  return uint64_t{sets[1].effective} << 32 | sets[0].effective;
}

std::string name_capabilities(uint64_t kept) {
  constexpr struct {
    int capability;
    const char* name;
  } kNames[] = {
      {CAP_IPC_LOCK, "IPC_LOCK"}, {CAP_SYS_BOOT, "SYS_BOOT"}, {CAP_SYS_PTRACE, "SYS_PTRACE"}};
  std::string names;
  const auto add = [&names](const std::string& name) {
    names += (names.empty() ? "" : ", ") + name;
  };
  for (const auto& each : kNames) {
    if ((kept & bit(each.capability)) != 0) add(each.name);
    kept &= ~bit(each.capability);
  }
  for (int number = 0; kept >> number != 0; ++number) {
    if ((kept >> number & 1) != 0) add("number " + std::to_string(number));
  }
  return names;
}

Result<void> bound_capabilities(uint64_t kept) noexcept {
  int is_there = 0;
  for (int number = 0; (is_there = prctl(PR_CAPBSET_READ, number, 0, 0, 0)) >= 0; ++number) {
    if (is_there == 0 || (kept & bit(number)) != 0) continue;
    if (prctl(PR_CAPBSET_DROP, number, 0, 0, 0) != 0) return refused("the bounding set");
  }
  return {};
}

Result<void> keep_capabilities(uint64_t kept) noexcept {
  // The bounding set comes first: dropping from it needs a capability (CAP_SETPCAP).
  BP_TRY(bound_capabilities(kept));
  if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0) {
    return refused("the ambient set");
  }
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  for (uint32_t i = 0; i < _LINUX_CAPABILITY_U32S_3; ++i) {
    sets[i].permitted = sets[i].effective = static_cast<uint32_t>(kept >> (32 * i));
  }
  if (syscall(SYS_capset, &header, sets) != 0) return refused("permitted and effective");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return refused("no new privileges");
  return {};
}

Result<std::vector<pid_t>> list_threads() {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir("/proc/self/task"), &closedir);
  if (!entries) {
    return error_from_errno("listing this process's threads").set_cure("mount -t proc proc /proc");
  }
  std::vector<pid_t> threads;
  while (const dirent* entry = readdir(entries.get())) {
    if (pid_t thread = 0; parse_number(entry->d_name, &thread)) threads.push_back(thread);
  }
  return threads;
}

Result<void> check_capabilities(uint64_t kept) {
  BP_TRY_ASSIGN(const auto threads, list_threads());
  for (const pid_t thread : threads) BP_TRY(check_thread(thread, kept));
  return {};
}

}  // namespace bedplate
