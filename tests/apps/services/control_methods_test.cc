// The table of methods: a method that cannot be added is refused by its name. control_session_test
// calls methods.
#include "apps/services/control_methods.h"

#include "tests/support/death_test.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(ControlMethods) {
  ControlMethods methods;
  char text[1024];

  static void nothing(void*, ControlCall&) noexcept {}

  void setup() override { methods.set_owner("cache"); }
  void add(ControlMethod method, ControlCall::Function function = &nothing) {
    methods.add(std::move(method), function, nullptr);
  }
  // Why the first was refused; "": none was.
  const char* refusal() {
    const auto outcome = methods.refusal();
    return outcome.ok() ? "" : format_error(outcome.error(), text, sizeof text);
  }
  const char* refusal_of(ControlMethod method, ControlCall::Function function = &nothing) {
    methods = {};
    methods.set_owner("cache");
    add(std::move(method), function);
    return refusal();
  }
};

TEST(ControlMethods, AMethodHasItsServicesNameInFront) {
  add({.name = "flush", .parameters = {{.name = "key"}, {.name = "after_ms"}}});
  add({.name = "stats.slow-ones"});
  STRCMP_EQUAL("", refusal());
  CHECK(methods.find("cache.flush") != nullptr);
  CHECK(methods.find("cache.stats.slow-ones") != nullptr);
  CHECK(methods.find("flush") == nullptr);
}

TEST(ControlMethods, AMethodThatIsAddedTwiceIsRefusedByName) {
  add({.name = "flush"});
  add({.name = "drop"});
  add({.name = "flush"});
  add({.name = "drop"});
  STRCMP_EQUAL("adding the method cache.flush: another one has this name; this is a defect of the "
               "service: apps/services/control_methods.h says what a method needs",
               refusal());
  LONGS_EQUAL(2, methods.all().size());
}

TEST(ControlMethods, AMethodThatMakesNoSenseIsRefusedByName) {
  for (const char* name : {"", "Flush", "flush all", "flush.", "a..b", ".a"}) {
    STRCMP_CONTAINS("a name has words of a-z, 0-9, _ and -", refusal_of({.name = name}));
  }
  STRCMP_CONTAINS("adding the method cache.flush: it has no function",
                  refusal_of({.name = "flush"}, nullptr));
  ControlMethod many = {.name = "flush"};
  for (char letter = 'a'; letter <= 'i'; ++letter) {
    many.parameters.push_back({.name = std::string(1, letter)});
  }
  STRCMP_CONTAINS("it has more than 8 parameters", refusal_of(many));
  STRCMP_CONTAINS("the name of a parameter has letters of a-z, 0-9 and _",
                  refusal_of({.name = "flush", .parameters = {{.name = "the key"}}}));
  STRCMP_CONTAINS("two of its parameters have the same name",
                  refusal_of({.name = "flush", .parameters = {{.name = "a"}, {.name = "a"}}}));
}

namespace {

// A call with one argument, a text.
struct Call final : ControlCall {
  Call() noexcept {
    values_[0] = {.name = "key", .text = "a"};
    value_count_ = 1;
  }
};

}  // namespace

TEST(ControlMethods, AnArgumentIsAskedForAsItsType) {
  const Call call;
  CHECK(call.text("key") == "a");
  CHECK_EQUAL(7, call.number("count", 7));
  BP_CHECK_DIES("broken contract: a method asks for its parameter key as a number, and it is a "
                "text: ControlCall::number\n",
                (void)call.number("key"));
}
