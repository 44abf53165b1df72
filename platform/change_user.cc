#include "platform/change_user.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "platform/capabilities.h"
#include "platform/file.h"
#include "platform/known_child.h"
#include "platform/text_words.h"

namespace bedplate {
namespace {

Error becoming(const User& user) noexcept {
  return error_from_errno("becoming the user %s", user.name.c_str())
      .set_cure("start it as root, in a container with CAP_SETUID, CAP_SETGID and CAP_SETPCAP");
}

Result<void> change_thread(const User& user, uint64_t kept) noexcept {
  BP_TRY(bound_capabilities(kept));  // while CAP_SETPCAP is in effect
  if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0 ||
      syscall(SYS_setgroups, user.groups.size(), user.groups.data()) != 0 ||
      syscall(SYS_setresgid, user.group, user.group, user.group) != 0 ||
      syscall(SYS_setresuid, user.id, user.id, user.id) != 0 ||
      prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) != 0) {
    return becoming(user);
  }
  return keep_capabilities(kept);
}

// The ids of a thread, from the lines of /proc/PID/status that begin with a known name.
struct Identity {
  std::vector<uint32_t> users, groups, others;
};

void read_identity(const char* line, void* into) {
  auto* identity = static_cast<Identity*>(into);
  const struct {
    const char* name;
    std::vector<uint32_t>* numbers;
  } lines[] = {
      {"Uid:", &identity->users}, {"Gid:", &identity->groups}, {"Groups:", &identity->others}};
  for (const auto& each : lines) {
    const size_t bytes = std::strlen(each.name);
    if (std::strncmp(line, each.name, bytes) != 0) continue;
    std::string_view rest = line + bytes;
    for (size_t before = 0; before != rest.size();) {
      before = rest.size();
      const uint32_t number = take_number<uint32_t>(&rest, 0);
      if (rest.size() != before) each.numbers->push_back(number);
    }
  }
}

Result<void> check_thread(pid_t thread, const User& user) {
  Identity found;
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/status";
  if (!read_lines(path.c_str(), &read_identity, &found).ok()) return {};  // the thread has ended
  std::vector<uint32_t> groups = user.groups;
  std::sort(groups.begin(), groups.end());
  std::sort(found.others.begin(), found.others.end());
  const bool is_changed = found.users == std::vector<uint32_t>(4, user.id) &&
                          found.groups == std::vector<uint32_t>(4, user.group) &&
                          found.others == groups;
  if (is_changed) return {};
  return error_while("checking the user of thread %d", thread)
      .set_answer("not all of its ids are those of %s", user.name.c_str())
      .set_cure("it began before root was given up: start it later");
}

// Checks that this process cannot become root again. Saved ids or capabilities would allow it.
Result<void> check_cannot_become_root(const User& user) noexcept {
  const uint32_t root = 0;
  const bool is_refused = syscall(SYS_setresuid, root, root, root) != 0 && errno == EPERM &&
                          syscall(SYS_setresgid, root, root, root) != 0 && errno == EPERM &&
                          syscall(SYS_setgroups, 0, nullptr) != 0 && errno == EPERM;
  if (is_refused) return {};
  return error_while("checking whether %s can become root again", user.name.c_str())
      .set_answer("it can")
      .set_cure("this is a defect, or a capability of a service allows it");
}

// Reads the problems that `child` has written into the pipe, and reports how the child ended.
Result<void> read_problems(const Fd& reader, pid_t child, const User& user,
                           std::vector<Error>* problems) {
  Error error;
  ssize_t bytes = 0;
  for (;;) {
    bytes = read(reader.number(), &error, sizeof error);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes != static_cast<ssize_t>(sizeof error)) break;
    problems->push_back(error);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (bytes == 0 && status == 0) return {};
  return error_while("checking this machine as %s", user.name.c_str())
      .set_answer("the checking process ended by %s %d", WIFSIGNALED(status) ? "signal" : "code",
                  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status))
      .set_cure("this is a defect: report it, with the lines before");
}

}  // namespace

Result<void> become_user(const User& user, uint64_t kept) {
  const int dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
  BP_TRY(change_thread(user, kept));
  // The kernel clears the dumpable flag; without the flag a process cannot read its own /proc
  // files.
  if (dumpable == 1) prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  BP_TRY_ASSIGN(const auto threads, list_threads());
  for (const pid_t thread : threads) BP_TRY(check_thread(thread, user));
  BP_TRY(check_capabilities(kept));
  return check_cannot_become_root(user);
}

Result<void> look_as_user(const User& user, uint64_t kept, const Look& look,
                          std::vector<Error>* problems) {
  int ends[2] = {};
  if (pipe(ends) != 0) return becoming(user);
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  const pid_t child = fork();
  if (child < 0) return becoming(user);
  if (child == 0) {
    is_known_child = true;
    std::vector<Error> found;
    auto became = become_user(user, kept);
    if (became.ok()) look(&found);
    else found.push_back(became.error());
    for (const Error& error : found) {
      const ssize_t bytes = write(writer.number(), &error, sizeof error);
      if (bytes != static_cast<ssize_t>(sizeof error)) _exit(1);
    }
    _exit(0);
  }
  writer.close();
  return read_problems(reader, child, user, problems);
}

}  // namespace bedplate
