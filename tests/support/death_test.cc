#include "tests/support/death_test.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "platform/file.h"
#include "platform/known_child.h"
#include "tests/support/patience.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

namespace bedplate::test {
namespace {

// The size of the pipe that is a child's standard error. It must hold all lines that the child logs
// in one burst. Before Linux 6.4, each line takes a whole page of the pipe if the child has no
// /proc to open the pipe again (standard_error.h).
constexpr int kPipeBytes = 1 << 20;

constexpr uint64_t kChildPatienceNs = 2 * kPatienceNs;  // the child itself may wait for kPatienceNs
constexpr int kFailedCode = 3;
constexpr int kSkippedCode = 77;
constexpr int kNoSuchProbeCode = 4;

constinit const Probe* first_probe = nullptr;

// Reads until the other end is closed, and stores the text that fits. Returns false on a timeout.
bool read_all(int fd, Ended* ended) {
  const uint64_t until = monotonic_ns() + kChildPatienceNs;
  size_t kept = 0;
  char dropped[1024];
  for (;;) {
    const uint64_t now = monotonic_ns();
    if (now >= until) return false;
    pollfd wanted{fd, POLLIN, 0};
    if (poll(&wanted, 1, static_cast<int>((until - now) / kNsPerMs + 1)) <= 0) continue;
    const size_t room = sizeof ended->text - 1 - kept;
    const ssize_t got =
        room > 0 ? read(fd, ended->text + kept, room) : read(fd, dropped, sizeof dropped);
    if (got == 0 || (got < 0 && errno != EINTR)) return true;
    if (got > 0 && room > 0) kept += static_cast<size_t>(got);
  }
}

Ended wait_for(pid_t child, const Fd& pipe_out) {
  Ended ended;
  ended.timed_out = !read_all(pipe_out.number(), &ended);
  if (ended.timed_out) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) ended.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  return ended;
}

std::string describe(const Ended& ended) {
  char text[160];
  std::snprintf(text, sizeof text, "exit code %d, signal %d%s, and it said:\n", ended.exit_code,
                ended.signal, ended.timed_out ? ", after it timed out" : "");
  return std::string(text) + ended.text;
}

}  // namespace

Ended run_forked(void (*function)(void*), void* context) {
  int ends[2];
  if (pipe(ends) != 0) FAIL("no pipe");
  Fd pipe_out(ends[0]);
  Fd pipe_in(ends[1]);
  fcntl(pipe_in.number(), F_SETPIPE_SZ, kPipeBytes);
  const pid_t child = fork();
  if (child == 0) {
    is_known_child = true;
    dup2(pipe_in.number(), STDERR_FILENO);
    ::close(pipe_in.number());
    ::close(pipe_out.number());
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    function(context);
    _exit(0);
  }
  if (child < 0) FAIL("no child");
  pipe_in.close();
  return wait_for(child, pipe_out);
}

Probe::Probe(const char* probe_name, void (*probe_function)()) noexcept
    : name(probe_name), function(probe_function), next(first_probe) {
  first_probe = this;
}

Ended run_fresh(const char* name, const std::vector<std::string>& variables) {
  // The arguments of exec are built here, so that the child only calls exec.
  std::vector<const char*> environment;
  for (const std::string& variable : variables) environment.push_back(variable.c_str());
  environment.push_back("BEDPLATE_BOOT_BYTES=16 MiB");  // getenv finds a name's first value
  for (char** variable = environ; *variable != nullptr; ++variable) {
    environment.push_back(*variable);
  }
  environment.push_back(nullptr);
  const char* words[] = {"bedplate-tests", "--probe", name, nullptr};
  return run_forked([&] {
    execve("/proc/self/exe", const_cast<char**>(words), const_cast<char**>(environment.data()));
    _exit(kNoSuchProbeCode);
  });
}

void run_probe(const char* name) noexcept {
  for (const Probe* probe = first_probe; probe != nullptr; probe = probe->next) {
    if (std::strcmp(probe->name, name) != 0) continue;
    probe->function();
    _exit(0);
  }
  std::fprintf(stderr, "there is no probe %s\n", name);
  _exit(kNoSuchProbeCode);
}

void probe_failed(const char* file, int line, const char* what) noexcept {
  // Without allocating: the heap may be exhausted.
  char text[512];
  const int length =
      std::snprintf(text, sizeof text, "%s:%d: not so: %s (errno %d)\n", file, line, what, errno);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, static_cast<size_t>(length));
  _exit(kFailedCode);
}

void probe_skipped(const char* reason) noexcept {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, reason, std::strlen(reason));
  _exit(kSkippedCode);
}

void check_probe(const Ended& ended, const char* name, const char* file, size_t line) {
  if (ended.exit_code == kSkippedCode) return skip_this_test(ended.text);
  if (ended.exit_code == 0) return;
  const std::string text = std::string("probe ") + name + ": " + describe(ended);
  FAIL_LOCATION(text.c_str(), file, line);
}

void check_died(const Ended& ended, std::string_view words, const char* file, size_t line) {
  if (ended.signal == SIGABRT && ended.said(words)) return;
  const std::string text =
      "expected abort() and \"" + std::string(words) + "\"; " + describe(ended);
  FAIL_LOCATION(text.c_str(), file, line);
}

}  // namespace bedplate::test
