// The C interface to services (apps/c_interface/service_c.h) without an appliance.
// tests/system/service_c_test.py tests it with an appliance.
#include "apps/c_interface/bedplate_service.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "apps/c_interface/service_c.h"
#include "apps/configuration/configuration_table.h"
#include "apps/services/service_plan.h"
#include "platform/product.h"
#include "tests/support/death_test.h"
#include "tests/support/patience.h"
#include "tests/support/stderr_capture.h"
#include "tests/transport/loop/running_loop.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

TEST_GROUP(ServiceC) {
  bp_service service = {};
  char program[6] = "store", option[10] = "--version";
  char* words[3] = {program, option, nullptr};

  const Product before = product();

  void setup() override { service.name = "store"; }
  void teardown() override {
    bp_set_product(nullptr, nullptr, nullptr);
    set_product(before);
  }

  int run(unsigned version, unsigned interface_number, size_t bytes) {
    return bp_main_of(version, interface_number, bytes, 2, words, &service, 1);
  }
  // Runs `check` on a configuration with these tables. Returns its exit code; its log is in `said`.
  int check(const std::string& tables) {
    char check_word[6] = "check";
    char path[] = "/tmp/bedplate-test-XXXXXX";
    const int fd = mkstemp(path);
    const std::string text = "[appliance]\nname = \"c\"\n[pool]\nbytes = \"64 MiB\"\n"
                             "[[shard]]\nname = \"main\"\ncpu = 0\n" +
                             tables;
    LONGS_EQUAL(text.size(), write(fd, text.data(), text.size()));
    close(fd);
    char* check_it[4] = {program, check_word, path, nullptr};
    StderrCapture log;
    const int code = bp_main(3, check_it, &service, 1);
    unlink(path);
    said = log.text();
    return code;
  }
  std::string said;
};

TEST(ServiceC, AHeaderOfAnotherInterfaceIsRefusedWithBothVersions) {
  StderrCapture log;
  LONGS_EQUAL(2, run(0x010203, BP_INTERFACE + 1, sizeof(bp_service)));
  STRCMP_CONTAINS("starting the program: its list of services was compiled against Bedplate 1.2.3 "
                  "with interface ",
                  log.text().c_str());
}

TEST(ServiceC, AProgramMayBeAProductOfItsOwn) {
  char unknown[6] = "serve";
  char* serve[3] = {program, unknown, nullptr};
  const auto said_by = [&] {
    StderrCapture log;
    LONGS_EQUAL(2, bp_main_of(BP_VERSION, BP_INTERFACE, sizeof(bp_service), 2, serve, &service, 1));
    return log.text();
  };
  bp_set_product("logd", "2.1", nullptr);
  STRCMP_EQUAL("logd: reading the command line: unknown command serve; see: logd --help\n",
               said_by().c_str());
  STRCMP_EQUAL("2.1", product().version);
  STRCMP_EQUAL(Product{}.summary, product().summary);
  bp_set_product(nullptr, nullptr, nullptr);
  STRCMP_CONTAINS("bedplate: reading the command line", said_by().c_str());
  for (const char* wrong : {"", "Log", "log/d"}) {
    bp_set_product(wrong, "2.1", "a store of logs");
    STRCMP_CONTAINS("is not a name of a product; this is a defect of the program: a name has 1 to "
                    "31 characters of a-z, 0-9 and -, and begins with a letter\n",
                    said_by().c_str());
  }
}

TEST(ServiceC, AnotherVersionOfTheSameInterfaceIsNotRefused) {
  LONGS_EQUAL(0, run(0x010203, BP_INTERFACE, sizeof(bp_service)));
}

TEST(ServiceC, AListWithServicesOfAnotherSizeIsRefusedWithBothSizes) {
  StderrCapture log;
  LONGS_EQUAL(2, run(BP_VERSION, BP_INTERFACE, sizeof(bp_service) - sizeof(void*)));
  const std::string sizes = "its bp_service has " +
                            std::to_string(sizeof(bp_service) - sizeof(void*)) +
                            " bytes, but the archive's has " + std::to_string(sizeof(bp_service));
  STRCMP_CONTAINS(sizes.c_str(), log.text().c_str());
}

TEST(ServiceC, AValueOfItsTableThatIsOutOfRangeIsRefusedWithItsPosition) {
  service.describe = [](void*, bp_table* table) {
    static uint64_t item_count = 8;
    bp_table_integer(table, "items", &item_count, 1, 100, "How many it keeps.");
  };
  LONGS_EQUAL(2, check("[store]\nitems = 500\n"));
  STRCMP_CONTAINS(":9:9: \"items\"", said.c_str());
}

namespace {

struct Mirror {
  uint64_t copies = 1;
  const char* at = "";
};

// A mirror needs two copies, and lies elsewhere.
void check_mirror(void* self, bp_read_table* read) {
  const auto& mirror = *static_cast<Mirror*>(self);
  if (bp_read_was_refused(read, "copies")) return;
  if (bp_read_has(read, "at") && mirror.copies < 2) {
    bp_read_refuse(read, "at", "\"at\" needs copies of 2 or more", "set copies, or leave it out");
  }
  if (mirror.copies > 1 && strcmp(mirror.at, "here") == 0) {
    bp_read_refuse(read, nullptr, "the mirror is here", "set \"at\" to another place");
  }
}

}  // namespace

TEST(ServiceC, ValuesThatDoNotGoTogetherAreRefusedWithTheirPosition) {
  static Mirror mirror;
  mirror = {};
  service.self = &mirror;
  service.describe = [](void* self, bp_table* table) {
    auto& its = *static_cast<Mirror*>(self);
    bp_table_integer(table, "copies", &its.copies, 1, 4, "How many copies there are.");
    bp_table_text(table, "at", &its.at, 20, "Where the mirror is.");
    bp_table_check(table, check_mirror);
  };
  LONGS_EQUAL(2, check("[store]\nat = \"there\"\n"));
  STRCMP_CONTAINS(":9:6: \"at\" needs copies of 2 or more; set copies, or leave it out\n",
                  said.c_str());
  mirror = {};
  LONGS_EQUAL(2, check("[store]\ncopies = 2\nat = \"here\"\n"));
  STRCMP_CONTAINS(":8:1: the mirror is here; set \"at\" to another place\n", said.c_str());
  mirror = {};
  LONGS_EQUAL(2, check("[store]\ncopies = 9\nat = \"there\"\n"));  // only the wrong value is told
  STRCMP_CONTAINS(":9:10: \"copies\" is 9", said.c_str());
  CHECK(said.find("needs copies") == std::string::npos);
}

// `plan --explain` describes the table once more, to list its keys, and then plans again.
TEST(ServiceC, ValuesOfTheFileStayIfTheKeysAreListed) {
  static const char* from = nullptr;
  from = "the default";
  service.describe = [](void*, bp_table* table) {
    bp_table_text(table, "from", &from, 20, "Where it begins.");
    bp_table_listen(table, "listen", "Where it listens.");
  };
  CService made(service);
  ConfigurationTable read("store");
  made.describe(read);
  ConfigurationKey::Value text;
  text.text = "the file";
  read.find_key("from")->store(text);
  ConfigurationKey::Value address;
  address.address = parse_socket_address("tcp:127.0.0.1:80").take();
  read.find_key("listen")->store(address);
  ConfigurationTable sample("store", true);
  made.describe(sample);
  Configuration configuration;
  configuration.shards.resize(1);
  ServicePlan plan(configuration, made);
  CHECK(made.plan(plan).ok());
  STRCMP_EQUAL("the file", from);
  auto taken = plan.take();
  CHECK(taken.ok());
  LONGS_EQUAL(1, taken.value().listens[0].addresses.size());
  ConfigurationTable again("store");
  made.describe(again);
  ServicePlan next(configuration, made);
  CHECK(made.plan(next).ok());
  STRCMP_EQUAL("the default", from);
}

TEST(ServiceC, AServiceThatHasNoNameOrAWrongOneIsRefused) {
  service.name = nullptr;
  LONGS_EQUAL(2, check(""));
  STRCMP_CONTAINS("describing the table of the service without a name", said.c_str());
  service.name = "Store!";
  LONGS_EQUAL(2, check(""));
  STRCMP_CONTAINS("this is not a valid service name; this is a defect of the program: a name has 1 "
                  "to 32 characters of a-z, 0-9 and -",
                  said.c_str());
}

TEST(ServiceC, AFunctionThatFailsWithoutAReasonIsNamed) {
  bp_fail("opening the store", "it is full", "make room");  // an earlier error, not that of plan()
  service.plan = [](void*, bp_plan*) { return -1; };
  LONGS_EQUAL(2, check("[store]\n"));
  STRCMP_CONTAINS("calling plan of the service store: it returned -1 without a reason; "
                  "call bp_fail before it returns",
                  said.c_str());
}

// A question of C, between two shards and of a shard to itself.
TEST(ServiceC, AQuestionIsAnsweredOnTheShardThatAsked) {
  RunningLoop here(0), there(0);
  bedplate::ShardAsker asker;
  asker.create(*here.loop, 1);
  bp_loop from = {.loop = here.loop.get(), .asker = &asker};
  bp_loop to = {.loop = there.loop.get()};
  struct Doubling {
    bp_question question = {};
    unsigned number = 21;
    std::thread::id asked_thread, answered_thread;
    std::atomic<unsigned> answer_count{0};
  } doubling;
  doubling.question.context = &doubling;
  doubling.question.asked = [](bp_question* question) {
    auto& its = *static_cast<Doubling*>(question->context);
    its.asked_thread = std::this_thread::get_id();
    its.number *= 2;
    bp_answer(question);
  };
  const auto answered = [](bp_question* question) {
    auto& its = *static_cast<Doubling*>(question->context);
    its.answered_thread = std::this_thread::get_id();
    its.answer_count.fetch_add(1);
  };
  here.run_there([&] { bp_ask(&from, &to, &doubling.question, answered); });
  CHECK(eventually([&] { return doubling.answer_count.load() == 1; }));
  LONGS_EQUAL(42, doubling.number);
  CHECK(doubling.asked_thread == there.thread.get_id());
  CHECK(doubling.answered_thread == here.thread.get_id());
  here.run_there([&] { bp_ask(&from, &from, &doubling.question, answered); });
  CHECK(eventually([&] { return doubling.answer_count.load() == 2; }));
  LONGS_EQUAL(84, doubling.number);
  CHECK(doubling.asked_thread == here.thread.get_id());
}

TEST(ServiceC, AQuestionThatIsNotPlannedIsAProgrammingError) {
  BP_CHECK_DIES("a question is asked on a shard where none is planned: bp_plan_questions", {
    bedplate::EventLoop loop;
    bp_loop shard = {.loop = &loop};
    bp_question question = {};
    question.asked = [](bp_question* asked) { bp_answer(asked); };
    bp_ask(&shard, &shard, &question, [](bp_question*) {});
  });
}

TEST(ServiceC, WhatFailsIsKeptInThreeParts) {
  LONGS_EQUAL(-1, bp_fail("opening the store", "it is full", "make room"));
  STRCMP_EQUAL("opening the store: it is full; make room", bp_error_text());
}
