// Files of services in C: durable writes, extents, and the results of failed operations.
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/c_interface/bedplate_service.h"
#include "apps/services/service.h"
#include "apps/testing/c_service.h"
#include "apps/testing/test_appliance.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::testing::MemoryFile;
using bedplate::testing::TestAppliance;

TEST_GROUP(FilesC) {
  bp_file* file = nullptr;
  bp_service described = {};
  std::unique_ptr<Service> service;
  std::unique_ptr<TestAppliance> appliance;
  MemoryFile* memory = nullptr;
  bp_file_operation operation = {};
  std::vector<int64_t> results;

  void setup() override {
    described.name = "journal";
    described.self = &file;
    described.plan = [](void*, bp_plan* plan) {
      bp_plan_file(plan, "log", 0, "/var/log/journal", NULL, BP_FILE_WRITABLE | BP_FILE_EXTENTS, 4);
      return 0;
    };
    described.create = [](void* self, bp_context* context) {
      bp_file*& its = *static_cast<bp_file**>(self);
      its = bp_file_of(context, "log");
      return its == nullptr ? -1 : 0;
    };
    service = testing::make_service(described);
    appliance = std::make_unique<TestAppliance>(std::vector<Service*>{service.get()});
    STRCMP_EQUAL("", appliance->plan("[journal]\n").c_str());
    memory = &appliance->file("journal", "log");
    memory->content = "begin";
    STRCMP_EQUAL("", appliance->create().c_str());
    appliance->start();
  }
  void teardown() override { appliance.reset(); }

  static void ended(void* results, int64_t result) {
    static_cast<std::vector<int64_t>*>(results)->push_back(result);
  }
  int64_t result() {
    appliance->run();
    CHECK(!results.empty());
    return results.back();
  }
};

TEST(FilesC, ADurableWriteSurvivesAPowerCut) {
  LONGS_EQUAL(5, bp_file_bytes(file));
  bp_file_write(file, &operation, "lost", 4, 5, &ended, &results);
  LONGS_EQUAL(4, result());
  bp_file_write_durable(file, &operation, "kept", 4, 9, &ended, &results);
  LONGS_EQUAL(4, result());
  STRCMP_EQUAL("beginlostkept", memory->content.c_str());
  memory->cut_power();
  CHECK(memory->content == std::string("begin\0\0\0\0kept", 13));
}

TEST(FilesC, ListTheirExtents) {
  bp_extent extents[2] = {};
  bp_file_extents(file, &operation, extents, 2, 100, 1, &ended, &results);
  LONGS_EQUAL(1, result());
  LONGS_EQUAL(4, extents[0].bytes);
  LONGS_EQUAL(1, extents[0].has_data);
}

TEST(FilesC, TellTheErrorOfAnOperation) {
  memory->fail(FileAction::kSync, EIO);
  bp_file_sync(file, &operation, 0, &ended, &results);
  LONGS_EQUAL(-EIO, result());
  bp_file_sync(file, &operation, 0, &ended, &results);
  LONGS_EQUAL(0, result());
}
