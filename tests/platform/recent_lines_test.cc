// The last lines of the log: in order, whole, and cut off only between characters.
#include "platform/recent_lines.h"

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>

#include "platform/log.h"
#include "platform/result.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::StderrCapture;

TEST_GROUP(RecentLines) {
  std::unique_ptr<LineSlot[]> more = std::make_unique<LineSlot[]>(100);

  static constexpr size_t kPageBytes = 4096;
  std::byte* const pages = static_cast<std::byte*>(
      mmap(nullptr, 6 * kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  // The second half of this slot begins the second page. The slot is the eighth of an array that
  // begins half a slot into the first page.
  LineSlot* const halved_slot =
      reinterpret_cast<LineSlot*>(pages + kPageBytes - sizeof(LineSlot) / 2);

  void teardown() override {
    keep_few_lines();
    munmap(pages, 6 * kPageBytes);
  }
  static void log_letter(char letter) {
    char line[kRecentLineBytesMax];
    std::memset(line, letter, sizeof line);
    line[sizeof line - 1] = '\n';
    remember_line(line, sizeof line);
  }
  static std::string from(uint64_t first) {
    std::string lines;
    for_each_recent_line(
        first,
        [](const char* line, size_t line_bytes, void* text) {
          static_cast<std::string*>(text)->append(line, line_bytes);
        },
        &lines);
    return lines;
  }
  static std::string last() { return from(next_recent_line() - 1); }
  static std::string numbers(int first, int end) {
    std::string lines;
    for (int i = first; i < end; ++i) lines += "bedplate: number " + std::to_string(i) + "\n";
    return lines;
  }
  static void log_numbers(int first, int end) {
    StderrCapture capture;
    for (int i = first; i < end; ++i) BP_LOG_INFO("number %d", i);
    capture.finish();
  }
};

TEST(RecentLines, AreTheLastOnesInTheirOrder) {
  log_numbers(0, 40);
  STRCMP_EQUAL(numbers(8, 40).c_str(), from(0).c_str());
  // Reading from `next` returns only later lines.
  const uint64_t next = next_recent_line();
  log_numbers(40, 41);
  STRCMP_EQUAL(numbers(40, 41).c_str(), from(next).c_str());
  char line[kRecentLineBytesMax];
  LONGS_EQUAL(0, read_recent_line(next - 32, line));  // overwritten
  LONGS_EQUAL(0, read_recent_line(next + 1, line));   // not yet written
}

TEST(RecentLines, ErrorsAreThere) {
  StderrCapture capture;
  Error error;
  log_error(error.set_doing("doing").set_answer("answer"));
  capture.finish();
  STRCMP_EQUAL("bedplate: doing: answer\n", last().c_str());
}

// A character of two bytes, at each position around the cut.
TEST(RecentLines, LongOnesAreCutOffBeforeACharacter) {
  const size_t room = kRecentLineBytesMax - sizeof kCutMark;
  for (size_t before = room - 3; before <= room + 1; ++before) {
    const std::string line = std::string(before, 'x') + "\xc3\xa9" + std::string(100, 'y') + "\n";
    remember_line(line.data(), line.size());
    const size_t kept = before == room - 1 ? before : room;
    STRCMP_EQUAL((line.substr(0, kept) + kCutMark + "\n").c_str(), last().c_str());
    CHECK(last().size() <= kRecentLineBytesMax);
  }
  const std::string fits = std::string(kRecentLineBytesMax - 1, 'x') + "\n";
  remember_line(fits.data(), fits.size());
  STRCMP_EQUAL(fits.c_str(), last().c_str());
}

TEST(RecentLines, ManyAreKeptWhereSlotsAreLent) {
  log_numbers(0, 32);
  keep_lines_in({more.get(), 100});
  STRCMP_EQUAL(numbers(0, 32).c_str(), from(0).c_str());
  log_numbers(32, 132);
  STRCMP_EQUAL(numbers(32, 132).c_str(), from(0).c_str());
  keep_few_lines();
  STRCMP_EQUAL(numbers(100, 132).c_str(), from(0).c_str());
}

// Reading the slot's second half faults. The fault's handler overwrites all slots, this one too,
// before the read continues.
TEST(RecentLines, OneThatIsOverwrittenMeanwhileIsGone) {
  static std::byte* second_page = nullptr;
  second_page = pages + kPageBytes;
  keep_lines_in({halved_slot - 7, 32});
  while (next_recent_line() % 32 != 8) log_letter('a');
  const uint64_t number = next_recent_line() - 1;
  struct sigaction before = {};
  struct sigaction overwrite = {};
  overwrite.sa_handler = [](int) {
    mprotect(second_page, kPageBytes, PROT_READ | PROT_WRITE);
    for (int i = 0; i < 32; ++i) log_letter('b');
  };
  sigaction(SIGSEGV, &overwrite, &before);
  CHECK_EQUAL(0, mprotect(second_page, kPageBytes, PROT_NONE));
  char line[kRecentLineBytesMax];
  const size_t bytes = read_recent_line(number, line);
  sigaction(SIGSEGV, &before, nullptr);
  CHECK_EQUAL(number + 33, next_recent_line());
  LONGS_EQUAL(0, bytes);
  LONGS_EQUAL(sizeof line, read_recent_line(number + 32, line));
}

// Threads log while another thread reads the lines that are overwritten next. Each read returns a
// whole line or none.
TEST(RecentLines, NoneIsTorn) {
  constexpr int kWriters = 3;
  constexpr size_t kBytes = kRecentLineBytesMax - 1;
  std::atomic<bool> must_end{false};
  std::vector<std::thread> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.emplace_back([&must_end, i] {
      const std::string line = std::string(kBytes, static_cast<char>('a' + i)) + "\n";
      while (!must_end.load()) remember_line(line.data(), line.size());
    });
  }
  bool is_torn = false;
  // On one core, each round takes as long as the writers' time slices.
  for (int round = 0; round < 1000 && !is_torn; ++round) {
    // The lines also move to other memory meanwhile.
    if (round % 2 == 0) keep_lines_in({more.get(), 100});
    char line[kRecentLineBytesMax];
    const uint64_t first = first_recent_line();
    for (uint64_t i = first; i < first + 4; ++i) {
      const size_t bytes = read_recent_line(i, line);
      if (bytes != kBytes + 1) continue;  // from before this test, or overwritten
      is_torn |= std::string(line, kBytes) != std::string(kBytes, line[0]) || line[kBytes] != '\n';
    }
    keep_few_lines();
  }
  must_end.store(true);
  for (std::thread& each : writers) each.join();
  CHECK_FALSE(is_torn);
}
