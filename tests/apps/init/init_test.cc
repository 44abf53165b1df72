// The parts of the first process that do nothing to the machine. The rest is in tests/guest.
#include "apps/init/init.h"

#include <optional>
#include <string>
#include <vector>

#include "apps/init/core_dump.h"
#include "apps/init/drill.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

std::string text_of(const Error& error) {
  char text[1024];
  return format_error(error, text, sizeof text);
}

bool is_init_with(std::vector<const char*> words) {
  return is_init(static_cast<int>(words.size()), const_cast<char**>(words.data()));
}

}  // namespace

TEST_GROUP(Init){};

TEST(Init, AnOrdinaryProcessIsNone) {
  CHECK(!is_init_with({}));
  CHECK(!is_init_with({"bedplate"}));
  CHECK(!is_init_with({"/init"}));  // by name, but not process 1
  CHECK(!is_init_with({"/init", "run"}));
  CHECK(!is_init_with({"/sbin/bedplate", kDumpCore}));
  CHECK(is_init_with({"/init", kDumpCore, "1", "/dev/vda", "reboot", "0"}));
}

TEST(Init, ADumpsWordsMustBeThereAndOfTheFirstProcess) {
  const char* words[] = {"/init", kDumpCore, "2", "/nowhere", "halt", "0"};
  LONGS_EQUAL(2, dump_core(2, const_cast<char**>(words)));
  LONGS_EQUAL(2, dump_core(6, const_cast<char**>(words)));
}

TEST(Init, DrillsAreKnownByName) {
  CHECK(parse_drill(std::nullopt).value() == Drill::kNone);
  CHECK(parse_drill("hang").value() == Drill::kHang);
  CHECK(parse_drill("hang-deaf").value() == Drill::kHangDeaf);
  CHECK(parse_drill("overflow").value() == Drill::kOverflow);
  STRCMP_CONTAINS("there is no drill \"fire\"; write assertion, boot, fault",
                  text_of(parse_drill("fire").error()).c_str());
}
