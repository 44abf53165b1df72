// A service in C under test: its functions are called as those of a service in C++.
#include "apps/testing/c_service.h"

#include "apps/testing/test_appliance.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::testing::TestAppliance;

namespace {

// The state of a service that counts its starts in carved memory.
struct Counting {
  uint64_t first = 1;
  uint64_t* starts = nullptr;
};

int plan(void*, bp_plan* plan) {
  bp_plan_memory(plan, "counting", 64, 0);
  bp_plan_counter(plan, "starts", "starts", "How often it was started.");
  return 0;
}
int create(void* self, bp_context* context) {
  auto& counting = *static_cast<Counting*>(self);
  counting.starts = static_cast<uint64_t*>(bp_carve(context, "counting", nullptr));
  if (counting.starts == nullptr) return -1;
  *counting.starts = counting.first;
  bp_counter_add(bp_counter_of(context, "starts"), 1);
  return 0;
}

}  // namespace

TEST_GROUP(CService) {
  Counting counting;
  bp_service described = {};

  void setup() override {
    described.name = "counting";
    described.self = &counting;
    described.describe = [](void* self, bp_table* table) {
      bp_table_integer(table, "first", &static_cast<Counting*>(self)->first, 1, 100, "The first.");
    };
    described.plan = &plan;
    described.create = &create;
    described.start = [](void* self, unsigned) { ++*static_cast<Counting*>(self)->starts; };
  }
};

TEST(CService, BootsInATest) {
  const auto service = testing::make_service(described);
  TestAppliance appliance({service.get()});
  STRCMP_EQUAL("", appliance.boot("[counting]\nfirst = 41\n").c_str());
  LONGS_EQUAL(42, *counting.starts);
  CHECK(appliance.counter("counting", "starts") == 1);
}

TEST(CService, TellsWhyItsCreateFails) {
  described.plan = [](void*, bp_plan*) { return 0; };
  const auto service = testing::make_service(described);
  TestAppliance appliance({service.get()});
  STRCMP_EQUAL("counting: carving counting: it is not planned; this is a defect of the service: "
               "plan() must ask for all that create() uses",
               appliance.boot("[counting]\n").c_str());
}
