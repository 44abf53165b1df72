// Standard error that nobody reads: pipes, sockets and terminals that several threads fill.
#include "platform/standard_error.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/file.h"
#include "platform/log.h"
#include "tests/strain/asleep.h"
#include "tests/support/answered_calls.h"
#include "tests/support/death_test.h"
#include "tests/support/patience.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr int kThreadCount = 4;
constexpr int kLineCount = 4000;  // per thread; together over twenty times what a pipe holds

// The two ends of the file that replaces standard error.
struct Ends {
  Fd reader;
  Fd writer;
};

Ends open_pipe() {
  int ends[2];
  BP_PROBE_CHECK(pipe2(ends, O_CLOEXEC) == 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

Ends open_named_pipe() {
  char path[64];
  std::snprintf(path, sizeof path, "/tmp/bedplate-log-%d.fifo", getpid());
  BP_PROBE_CHECK(mkfifo(path, 0600) == 0);
  Ends ends = {Fd(open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)),
               Fd(open(path, O_WRONLY | O_CLOEXEC))};
  unlink(path);
  return ends;
}

Ends open_socket(int type) {
  int ends[2];
  BP_PROBE_CHECK(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) == 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

Ends open_terminal() {
  int master, slave;
  termios plain = {};
  BP_PROBE_CHECK(openpty(&master, &slave, nullptr, &plain, nullptr) == 0);
  return {Fd(master), Fd(slave)};
}

// Reads all available data.
std::string drain(const Fd& reader) {
  std::string text;
  char part[65536];
  set_blocking(reader.number(), false);
  for (pollfd some = {reader.number(), POLLIN, 0}; poll(&some, 1, 100) == 1;) {
    const ssize_t got = read(reader.number(), part, sizeof part);
    if (got <= 0) break;
    text.append(part, static_cast<size_t>(got));
  }
  return text;
}

void log_much() {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreadCount; ++i) {
    threads.emplace_back([i] {
      char body[101] = {};  // not from the heap, which is small in a probe
      std::memset(body, 'a' + i, sizeof body - 1);
      for (int line = 0; line < kLineCount; ++line) BP_LOG_INFO("%s", body);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

uint64_t count_of(const std::string& text, const char* words) {
  uint64_t count = 0;
  for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) {
    ++count;
  }
  return count;
}

// The sum of the counts in the warnings about dropped lines. There can be several warnings, since a
// short warning can fit where a longer line does not.
uint64_t told_count(const std::string& text) {
  constexpr char kTold[] = "bedplate: warning: ";
  uint64_t count = 0;
  for (size_t at = text.find(kTold); at != std::string::npos; at = text.find(kTold, at + 1)) {
    unsigned long long one = 0;
    BP_PROBE_CHECK(std::sscanf(text.c_str() + at + sizeof kTold - 1,
                               "%llu lines of the log were dropped: nobody read them in time\n",
                               &one) == 1);
    count += one;
  }
  return count;
}

// Logs far more than the file holds while nobody reads, then reads. Checks that logging returns,
// that the file's flags are unchanged (other processes share them), and that each line was written
// or counted, except `torn_max` lines: a terminal takes parts of lines, and lines of other threads
// may follow such a part.
void check_nobody_reads(Ends ends, uint64_t torn_max = 0) {
  const Fd before(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
  dup2(ends.writer.number(), STDERR_FILENO);
  log_much();
  const uint64_t dropped = dropped_line_count();
  const bool is_told_early = tell_dropped_lines();
  const int flags = fcntl(STDERR_FILENO, F_GETFL);
  std::string text = drain(ends.reader);
  const bool is_told = tell_dropped_lines();
  BP_LOG_INFO("the last line");
  text += drain(ends.reader);
  dup2(before.number(), STDERR_FILENO);
  BP_PROBE_CHECK((flags & O_NONBLOCK) == 0);
  BP_PROBE_CHECK(dropped > 0 && !is_told_early && is_told);
  BP_PROBE_CHECK(dropped_line_count() == dropped);
  BP_PROBE_CHECK(told_count(text) == dropped);
  BP_PROBE_CHECK(text.ends_with("\nbedplate: the last line\n"));
  // A line that a terminal cut off counts as dropped.
  uint64_t whole = 0;
  for (int i = 0; i < kThreadCount; ++i) {
    const std::string line = "bedplate: " + std::string(100, static_cast<char>('a' + i)) + "\n";
    whole += count_of(text, line.c_str());
  }
  constexpr uint64_t kAll = uint64_t{kThreadCount} * kLineCount;
  BP_PROBE_CHECK(whole + dropped <= kAll && whole + dropped + torn_max >= kAll);
}

}  // namespace

BP_PROBE(PipeThatNobodyReads) { check_nobody_reads(open_pipe()); }
BP_PROBE(NamedPipeThatNobodyReads) { check_nobody_reads(open_named_pipe()); }
BP_PROBE(StreamThatNobodyReads) { check_nobody_reads(open_socket(SOCK_STREAM)); }
BP_PROBE(DatagramsThatNobodyReads) { check_nobody_reads(open_socket(SOCK_DGRAM)); }
BP_PROBE(TerminalThatNobodyReads) { check_nobody_reads(open_terminal(), kThreadCount); }

// A pipe takes short lines until its capacity in bytes is used.
void check_many_short_lines(Ends ends) {
  const Fd before(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
  dup2(ends.writer.number(), STDERR_FILENO);
  for (int i = 0; i < 1000; ++i) BP_LOG_INFO("line");
  const uint64_t dropped = dropped_line_count();
  const std::string text = drain(ends.reader);
  dup2(before.number(), STDERR_FILENO);
  BP_PROBE_CHECK(dropped == 0 && count_of(text, "bedplate: line\n") == 1000);
}

BP_PROBE(PipeOfShortLines) { check_many_short_lines(open_pipe()); }
BP_PROBE(NamedPipeOfShortLines) { check_many_short_lines(open_named_pipe()); }

// Without /proc the pipe cannot be opened again: each line takes a page, and no write blocks.
BP_PROBE(NamedPipeWithoutProc) {
  Ends ends = open_named_pipe();
  if (chroot("/tmp") != 0) test::probe_skipped("needs root");
  check_nobody_reads(std::move(ends));
}

BP_PROBE(TerminalThatIsStopped) {
  Ends ends = open_terminal();
  BP_PROBE_CHECK(tcflow(ends.writer.number(), TCOOFF) == 0);
  const Fd before(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
  dup2(ends.writer.number(), STDERR_FILENO);
  log_much();
  const uint64_t dropped = dropped_line_count();
  tcflow(ends.writer.number(), TCOON);
  BP_LOG_INFO("it goes on");
  const std::string text = drain(ends.reader);
  dup2(before.number(), STDERR_FILENO);
  BP_PROBE_CHECK(dropped == uint64_t{kThreadCount} * kLineCount);
  BP_PROBE_CHECK(text == "bedplate: warning: 16000 lines of the log were dropped: nobody read them "
                         "in time\nbedplate: it goes on\n");
}

// The log has no free descriptor for a private pipe.
BP_PROBE(NamedPipeWithoutAFreeDescriptor) {
  Ends ends = open_named_pipe();
  const Fd before(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
  dup2(ends.writer.number(), STDERR_FILENO);
  std::vector<Fd> all;
  for (int more = dup(0); more >= 0; more = dup(0)) all.emplace_back(more);
  for (int i = 0; i < 2000; ++i) BP_LOG_INFO("not for %d processes", i);
  const std::string text = drain(ends.reader);
  dup2(before.number(), STDERR_FILENO);
  BP_PROBE_CHECK(dropped_line_count() > 0);
  BP_PROBE_CHECK(count_of(text, "processes\n") + dropped_line_count() == 2000);
}

// A full pipe does not delay a crash for ever.
BP_PROBE(LastWordsToWhatNobodyReads) {
  Ends ends = open_pipe();
  dup2(ends.writer.number(), STDERR_FILENO);
  log_much();
  assertion_failed("file.cc", 1, "this");
}

namespace {

std::atomic<bool> has_said_its_last{false};

}  // namespace

// The reader starts once the crashing thread waits. The reader may get no core before that wait
// ends; it then reports that it was too late.
BP_PROBE(LastWordsToALateReader) {
  Ends ends = open_pipe();
  const Fd before(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
  dup2(ends.writer.number(), STDERR_FILENO);
  log_much();
  char speaker[64];
  std::snprintf(speaker, sizeof speaker, "/proc/self/task/%d/stat", gettid());
  std::thread late([&] {
    BP_PROBE_CHECK(test::eventually(
        [&] { return strain::is_asleep_in_kernel(speaker) || has_said_its_last; }));
    std::string text;
    bool was_late = false;
    while (text.find("assertion failed: this") == std::string::npos && !was_late) {
      was_late = has_said_its_last;
      text += drain(ends.reader);
    }
    const bool was_read = text.find("assertion failed: this") != std::string::npos;
    const char* const said = was_read ? "it was read" : "it was too late";
    BP_PROBE_CHECK(write(before.number(), said, std::strlen(said)) > 0);
    _exit(0);
  });
  struct sigaction wait = {};
  wait.sa_handler = [](int) {
    has_said_its_last = true;
    for (;;) pause();
  };
  sigaction(SIGABRT, &wait, nullptr);
  assertion_failed("file.cc", 1, "this");
}

// Whether a line arrives although a seccomp profile forbids `call`: other system calls write it.
bool arrives_without(long call, int error_number, int writer, int reader) {
  return test::exit_code_of([&] {
           dup2(writer, STDERR_FILENO);
           if (!test::forbid_call(static_cast<uint32_t>(call), error_number)) return 2;
           constexpr char kText[] = "a line\n";
           if (write_standard_error_now(kText, sizeof kText) != sizeof kText) return 1;
           char text[64];
           return read(reader, text, sizeof text) == sizeof kText ? 0 : 1;
         }) == 0;
}

TEST_GROUP(StandardError){};

TEST(StandardError, WhatIsSaidArrivesWhicheverCallIsForbidden) {
  for (const int error_number : {EPERM, ENOSYS}) {
    for (const long call : {SYS_newfstatat, SYS_pwritev2, SYS_openat, SYS_splice, SYS_sendto}) {
      const Ends pipe = open_pipe();
      CHECK(arrives_without(call, error_number, pipe.writer.number(), pipe.reader.number()));
      int ends[2];
      LONGS_EQUAL(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
      CHECK(arrives_without(call, error_number, ends[0], ends[1]));
      close(ends[0]);
      close(ends[1]);
    }
  }
}

TEST(StandardError, PipeThatNobodyReadsBlocksNobody) { BP_CHECK_PROBE(PipeThatNobodyReads); }

TEST(StandardError, NamedPipeThatNobodyReadsBlocksNobody) {
  BP_CHECK_PROBE(NamedPipeThatNobodyReads);
  BP_CHECK_PROBE(NamedPipeWithoutAFreeDescriptor);
}

TEST(StandardError, APipeHoldsWhatItHasRoomForHoweverShortTheLines) {
  BP_CHECK_PROBE(PipeOfShortLines);
  BP_CHECK_PROBE(NamedPipeOfShortLines);
}

TEST(StandardError, WithoutProcANamedPipeBlocksNobody) { BP_CHECK_PROBE(NamedPipeWithoutProc); }

TEST(StandardError, SocketThatNobodyReadsBlocksNobody) {
  BP_CHECK_PROBE(StreamThatNobodyReads);
  BP_CHECK_PROBE(DatagramsThatNobodyReads);
}

TEST(StandardError, TerminalThatNobodyReadsBlocksNobody) {
  BP_CHECK_PROBE(TerminalThatNobodyReads);
  BP_CHECK_PROBE(TerminalThatIsStopped);
}

TEST(StandardError, LastWordsAreNotHeldUpForEver) {
  const test::Ended ended = test::run_fresh("LastWordsToWhatNobodyReads");
  LONGS_EQUAL(SIGABRT, ended.signal);
}

TEST(StandardError, LastWordsReachALateReader) {
  test::Ended ended;
  CHECK(test::eventually([&] {
    ended = test::run_fresh("LastWordsToALateReader");
    return !ended.said("it was too late");
  }));
  CHECK_TEXT(ended.said("it was read"), ended.text);
}
