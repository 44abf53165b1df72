#include "apps/c_interface/error_c.h"

#include "apps/c_interface/bedplate.h"

namespace bedplate {
namespace {

thread_local Error the_error;
thread_local char the_error_text[1024];

}  // namespace

int c_fail(const Error& error) noexcept {
  the_error = error;
  format_error(error, the_error_text, sizeof the_error_text);
  return -1;
}

const Error& c_last_error() noexcept { return the_error; }

void c_forget_error() noexcept {
  the_error = {};
  the_error_text[0] = '\0';
}

}  // namespace bedplate

extern "C" {

const char* bp_error_text(void) { return bedplate::the_error_text; }
const char* bp_error_doing(void) { return bedplate::the_error.doing; }
const char* bp_error_answer(void) { return bedplate::the_error.answer; }
const char* bp_error_cure(void) { return bedplate::the_error.cure; }

}  // extern "C"
