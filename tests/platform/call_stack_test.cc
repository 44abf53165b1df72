#include "platform/call_stack.h"

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <string>

#include <link.h>
#include <ucontext.h>
#include <unistd.h>

#include "tests/support/death_test.h"
#include "tests/support/signal_line.h"
#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

[[gnu::noinline]] void inner(unsigned skipped) {
  log_call_stack(skipped);
  asm volatile("");  // no tail call
}
[[gnu::noinline]] void outer(unsigned skipped) {
  inner(skipped);
  asm volatile("");
}

std::string stack_of(unsigned skipped) {
  test::StderrCapture capture;
  outer(skipped);
  return capture.finish();
}

// The program's load address minus its link address.
uintptr_t load_bias() {
  uintptr_t bias = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* into) {
        *static_cast<uintptr_t*>(into) = info->dlpi_addr;
        return 1;
      },
      &bias);
  return bias;
}

// Whether line `index` names a call in `function`, which is shorter than 200 bytes.
bool is_call_in(const std::string& text, unsigned index, void (*function)(unsigned)) {
  size_t begin = 0;
  for (unsigned i = 0; i < index; ++i) begin = text.find('\n', begin) + 1;
  const std::string line = text.substr(begin, text.find('\n', begin) - begin);
  const uintptr_t called = std::strtoull(line.c_str() + line.rfind(' '), nullptr, 16) + load_bias();
  return called - reinterpret_cast<uintptr_t>(function) < 200;
}

// Writes the calls that a signal interrupted to standard error.
void show_interrupted(int, siginfo_t*, void* context) {
  for_each_interrupted_call(*static_cast<const ucontext_t*>(context),
                            [](const char* line) { test::write_line("%s\n", line); });
}

void handle(int number, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action = {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO;
  sigaction(number, &action, nullptr);
}

[[gnu::noinline]] void interrupt(unsigned) {
  asm volatile("int3");  // SIGTRAP
  asm volatile("");
}

using Function = void (*)();
[[gnu::noinline]] void call_null(unsigned) {
  Function volatile nothing = nullptr;  // hides the value from the compiler
  nothing();
  asm volatile("");
}

unsigned line_count(const std::string& text) {
  unsigned count = 0;
  for (const char each : text) count += each == '\n' ? 1 : 0;
  return count;
}

}  // namespace

TEST_GROUP(CallStack){};

TEST(CallStack, BeginsWithItsCaller) {
  const std::string text = stack_of(0);
  STRCMP_CONTAINS("bedplate: error:   called from ", text.c_str());
  STRCMP_CONTAINS("bedplate-tests 0x", text.c_str());
  CHECK_TEXT(is_call_in(text, 0, &inner), text.c_str());
  CHECK_TEXT(is_call_in(text, 1, &outer), text.c_str());
}

TEST(CallStack, LeavesOutWhatItIsTold) {
  const std::string text = stack_of(1);
  CHECK_TEXT(is_call_in(text, 0, &outer), text.c_str());
}

TEST(CallStack, InAHandlerBeginsWithTheInterruptedCall) {
  const test::Ended ended = test::run_forked([] {
    handle(SIGTRAP, &show_interrupted);
    interrupt(0);
  });
  CHECK_TEXT(is_call_in(ended.text, 0, &interrupt), ended.text);
  CHECK_TEXT(line_count(ended.text) > 1, ended.text);
}

BP_PROBE(CallOfANullPointer) {
  handle(SIGSEGV, [](int number, siginfo_t* info, void* context) {
    show_interrupted(number, info, context);
    _exit(0);
  });
  call_null(0);
}

// A call of a null pointer has no frame. Its caller is shown all the same.
TEST(CallStack, OfANullPointerShowsTheCaller) {
  BP_SKIP_UNDER_SANITIZER();
  const test::Ended ended = test::run_fresh("CallOfANullPointer");
  LONGS_EQUAL(0, ended.exit_code);
  LONGS_EQUAL(1, line_count(ended.text));
  CHECK_TEXT(is_call_in(ended.text, 0, &call_null), ended.text);
}
