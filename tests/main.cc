// The test runner: CppUTest with the whole heap in the pool (but in sanitizer builds).
//
// Its last line is `N passed, N failed, N skipped`, the skips before it by their reasons; the exit
// code is 1 if anything failed, with a line `failed: GROUP.NAME`. With such names in ONLY_TESTS, a
// line each, just these run. CppUTest's own leak detection is off: it counts blocks of its own
// operator new, and here new is the pool's or the sanitizer's, which finds leaks by itself.
// `--probe NAME` runs one probe instead (tests/support/death_test.h).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "alloc/confined_heap.h"
#include "platform/units.h"
#include "tests/support/death_test.h"
#include "tests/support/skip.h"

#include "CppUTest/CommandLineTestRunner.h"
#include "CppUTest/JUnitTestOutput.h"
#include "CppUTest/MemoryLeakWarningPlugin.h"
#include "CppUTest/TestRegistry.h"
#include "CppUTest/TestResult.h"

// The tests allocate blocks of 64 MiB from segment 0; probes get less from their environment.
extern "C" const uint64_t bedplate_boot_bytes =
    (bedplate::test::kIsSanitized ? 16 : 256) * bedplate::kMiB;

namespace {

struct Tally {
  size_t passed_count = 0;
  size_t skipped_count = 0;
  std::vector<std::string> failed;
  std::map<std::string, std::vector<std::string>> skips;  // the tests for each reason
};

// Counts tests as they end, whatever output CppUTest was asked for.
class CountingOutput : public ConsoleTestOutput {
 public:
  explicit CountingOutput(Tally* tally) : tally_(tally) {}

  void printCurrentTestStarted(const UtestShell& test) override {
    ConsoleTestOutput::printCurrentTestStarted(test);
    name_ = std::string(test.getGroup().asCharString()) + "." + test.getName().asCharString();
    is_ignored_ = !test.willRun();
    bedplate::test::skip_reason.clear();
  }

  void printCurrentTestEnded(const TestResult& result) override {
    ConsoleTestOutput::printCurrentTestEnded(result);
    const bool failed = result.getFailureCount() > failure_count_;
    failure_count_ = result.getFailureCount();
    const std::string reason = is_ignored_ ? "marked as ignored" : bedplate::test::skip_reason;
    if (failed) {
      tally_->failed.push_back(name_);
    } else if (!reason.empty()) {
      ++tally_->skipped_count;
      tally_->skips[reason].push_back(name_);
    } else {
      ++tally_->passed_count;
    }
  }

 private:
  Tally* tally_;
  std::string name_;
  bool is_ignored_ = false;
  size_t failure_count_ = 0;
};

class Runner : public CommandLineTestRunner {
 public:
  Runner(int count, const char* const* words, Tally* tally)
      : CommandLineTestRunner(count, words, TestRegistry::getCurrentRegistry()), tally_(tally) {}

 protected:
  TestOutput* createConsoleOutput() override { return new CountingOutput(tally_); }
  TestOutput* createJUnitOutput(const SimpleString& package) override {
    TestOutput* xml = CommandLineTestRunner::createJUnitOutput(package);
    return createCompositeOutput(xml, createConsoleOutput());
  }

 private:
  Tally* tally_;
};

void print_skips(const Tally& tally) {
  std::putchar('\n');
  for (const auto& [reason, tests] : tally.skips) {
    std::printf("skipped: %s (%zu)\n", reason.c_str(), tests.size());
    for (const std::string& test : tests) std::printf("    %s\n", test.c_str());
  }
}

// The switches that choose the tests of ONLY_TESTS: those of its groups with one of its names.
std::vector<std::string> switches_of_environment() {
  std::vector<std::string> switches;
  const char* only = std::getenv("ONLY_TESTS");
  std::istringstream lines(only == nullptr ? "" : only);
  for (std::string line; std::getline(lines, line);) {
    const size_t dot = line.find('.');
    if (dot == std::string::npos) continue;
    for (const std::string& word :
         {std::string("-sg"), line.substr(0, dot), std::string("-sn"), line.substr(dot + 1)}) {
      switches.push_back(word);
    }
  }
  return switches;
}

}  // namespace

int main(int count, char** words) {
  bedplate::heap_create();  // segment 0 exists, whichever malloc there is
  if (count == 3 && std::strcmp(words[1], "--probe") == 0) bedplate::test::run_probe(words[2]);
  MemoryLeakWarningPlugin::turnOffNewDeleteOverloads();
  Tally tally;
  static const std::vector<std::string> switches = switches_of_environment();
  std::vector<const char*> all_words(words, words + count);
  for (const std::string& word : switches) all_words.push_back(word.c_str());
  // Never destroyed: AddressSanitizer would have its delete meet CppUTest's new.
  static auto* const runner =
      new Runner(static_cast<int>(all_words.size()), all_words.data(), &tally);
  const int outcome = runner->runAllTestsMain();
  print_skips(tally);
  for (const std::string& name : tally.failed) std::printf("failed: %s\n", name.c_str());
  std::printf("%zu passed, %zu failed, %zu skipped\n", tally.passed_count, tally.failed.size(),
              tally.skipped_count);
  return outcome != 0 || !tally.failed.empty() ? 1 : 0;
}
