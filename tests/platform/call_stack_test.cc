#include "platform/call_stack.h"

#include <cstdint>
#include <cstdlib>
#include <string>

#include <link.h>

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
