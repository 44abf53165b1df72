#include "apps/program/interface_check.h"

#include <cstring>

#include "apps/program/program.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

// A service whose code was compiled against the next interface, of version 0.12.3.
class NewerService : public Service {
 public:
  NewerService() {
    const CompiledAgainst newer = {.interface_number = BP_INTERFACE + 1, .version = 0x000c03};
    // The member of any version: behind the pointer to the virtual functions.
    std::memcpy(reinterpret_cast<char*>(this) + sizeof(void*), &newer, sizeof newer);
  }
  const char* name() const noexcept override {
    was_called = true;
    return "newer";
  }
  mutable bool was_called = false;
};

class OwnService : public Service {
 public:
  const char* name() const noexcept override { return "own"; }
};

}  // namespace

TEST_GROUP(InterfaceCheck) {
  char program[5] = "logd", option[10] = "--version";
  char* words[3] = {program, option, nullptr};
  OwnService own;
};

TEST(InterfaceCheck, ItsOwnInterfaceOfAnyVersionFits) {
  CHECK(check_interface("it", {}).ok());
  CHECK(check_interface("it", {.interface_number = BP_INTERFACE, .version = 0x020304}).ok());
  LONGS_EQUAL(BP_INTERFACE, own.compiled_against().interface_number);
  LONGS_EQUAL(BP_VERSION, own.compiled_against().version);
}

TEST(InterfaceCheck, ARefusalHasBothVersionsAsPeopleKnowThem) {
  const auto refused = check_interface("it", {.interface_number = 4711, .version = 0x020304});
  CHECK(!refused.ok());
  LONGS_EQUAL(ErrorKind::kConfiguration, refused.error().kind);
  STRCMP_CONTAINS("it was compiled against Bedplate 2.3.4 with interface 4711, but the archive is "
                  "Bedplate ",
                  refused.error().answer);
}

TEST(InterfaceCheck, AProgramCallsNoFunctionOfAServiceOfAnotherInterface) {
  StderrCapture log;
  NewerService newer;
  LONGS_EQUAL(2, run_program(2, words, {&own, &newer}));
  CHECK(!newer.was_called);
  STRCMP_CONTAINS("starting the program: service 2 of its list was compiled against Bedplate "
                  "0.12.3 with interface ",
                  log.text().c_str());
  STRCMP_CONTAINS("; compile it again with the headers that were installed with the archive",
                  log.text().c_str());
}
