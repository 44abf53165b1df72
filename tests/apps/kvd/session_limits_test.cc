// Sessions of kvd whose listener has a limit, without sockets: order, turns, bytes, changes, and
// clients that leave. The clock is the test's.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "platform/units.h"
#include "tests/apps/kvd/kvd_driver.h"
#include "transport/loop/event_loop.h"
#include "transport/loop/request_limit_datapath.h"
#include "transport/sockets/stream_peer.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::kvd;

#define ANSWERS_TO(answer, client, ...) STRCMP_EQUAL(answer, (client).say(__VA_ARGS__).c_str())
#define TAKES(answer, client) STRCMP_EQUAL(answer, (client).take().c_str())

namespace {

struct ListenerPeer final : StreamPeer {
  int fd() const noexcept override { return -1; }
  bool is_certified() const noexcept override { return false; }
  void* listener() const noexcept override { return limit; }

  RequestLimit* limit = nullptr;
};

constexpr const char* kA = "VALUE a 0 1\r\nx\r\n";
constexpr const char* kGotA = "VALUE a 0 1\r\nx\r\nEND\r\n";

}  // namespace

TEST_GROUP(KvdSessionLimits) {
  uint64_t clock_ns = 1000 * kNsPerSecond;
  // Allocated separately, because CppUTest's operator new ignores the alignment.
  std::unique_ptr<EventLoop> loop = std::make_unique<EventLoop>();
  std::unique_ptr<LimitCounters> counters = std::make_unique<LimitCounters>();
  std::unique_ptr<RequestLimit> limit;
  CacheRig rig{1024 * 1024};
  ListenerPeer limited, unlimited;
  std::vector<std::unique_ptr<Client>> clients;

  void setup() override {
    EventLoopOptions options;
    options.test_clock_ns = &clock_ns;
    CHECK(loop->create(options).ok());
    loop->timers().reserve_more(RequestLimit::kTimerCount);
    limit = std::make_unique<RequestLimit>(*loop, *counters, &Session::turn_came, loop.get());
    limited.limit = limit.get();
    rig.environment.loop = loop.get();
    rig.cache.set_time(clock_ns);
    STRCMP_EQUAL("STORED\r\nSTORED\r\n",
                 client().say("set a 0 0 1\r\nx\r\nset n 0 0 1\r\n1\r\n").c_str());
  }
  void teardown() override {
    clients.clear();
    limit->set({});
  }
  Client& client(bool is_limited = true) {
    Client& made = *clients.emplace_back(std::make_unique<Client>(rig));
    made.session().set_owner({.peer = is_limited ? &limited : &unlimited});
    return made;
  }
  void set(const LimitRates& rates) {
    limit->set(rates);
    rig.environment.set_limited(rates.are_limited());
  }
  uint32_t pass(uint64_t ns) {
    clock_ns += ns;
    uint32_t all = 0;
    while (const uint32_t work = loop->run_round()) all += work;
    return all;
  }
};

TEST(KvdSessionLimits, PipelinedRequestsWaitInTheirOrder) {
  Client& one = client();
  set({.read_rate = 10});
  ANSWERS_TO((kGotA + std::string("STORED\r\n")).c_str(), one,
             "get a\r\nset b 0 0 1\r\ny\r\nget b\r\nset c 0 0 1\r\nz\r\nversion\r\n");
  CHECK_EQUAL(1, limit->reads_waiting());
  pass(100 * kNsPerMs - 1);
  TAKES("", one);
  pass(1);
  // The write behind it waited for it, too.
  TAKES("VALUE b 0 1\r\ny\r\nEND\r\nSTORED\r\n", one);
  pass(100 * kNsPerMs);
  STRCMP_CONTAINS("VERSION ", one.take().c_str());
  CHECK_EQUAL(0, limit->reads_waiting());
  CHECK_EQUAL(2, counters->reads.wait_ns.count());
}

TEST(KvdSessionLimits, OneRequestASecond) {
  Client& one = client();
  set({.read_rate = 1});
  std::string requests;
  for (int i = 0; i < 10; ++i) requests += "get a\r\n";
  ANSWERS_TO(kGotA, one, requests);
  for (int i = 1; i < 10; ++i) {
    pass(kNsPerSecond - 1);
    TAKES("", one);
    pass(1);
    TAKES(kGotA, one);
  }
}

TEST(KvdSessionLimits, NothingPollsWhileTheyWait) {
  Client& one = client();
  set({.read_rate = 1});
  ANSWERS_TO(kGotA, one, "get a\r\nget a\r\n");
  for (int i = 0; i < 100; ++i) CHECK_EQUAL(0, loop->run_round());
  CHECK(loop->timers().next_deadline_ns() == clock_ns + kNsPerSecond);
  CHECK_EQUAL(1, pass(kNsPerSecond));
  TAKES(kGotA, one);
  CHECK(loop->timers().next_deadline_ns() == TimerQueue::kNever);
}

// Without that, one long get would pass any limit.
TEST(KvdSessionLimits, EachKeyOfAGetIsARead) {
  Client& one = client();
  set({.read_rate = 1});
  ANSWERS_TO(kA, one, "get a missing a\r\n");
  pass(kNsPerSecond);
  TAKES("", one);
  pass(kNsPerSecond);
  TAKES(kGotA, one);
  CHECK_EQUAL(3, rig.counters.gets.read());
}

TEST(KvdSessionLimits, RequestsThatArriveMeanwhileWaitBehind) {
  Client& one = client();
  set({.read_rate = 1});
  ANSWERS_TO(kGotA, one, "get a\r\nget a\r\n");
  ANSWERS_TO("", one, "set b 0 0 1\r\ny\r\nge");
  ANSWERS_TO("", one, "t b\r\n");
  pass(kNsPerSecond);
  TAKES((kGotA + std::string("STORED\r\n")).c_str(), one);
  pass(kNsPerSecond);
  TAKES("VALUE b 0 1\r\ny\r\nEND\r\n", one);
}

TEST(KvdSessionLimits, ClientsTakeTurns) {
  Client &one = client(), &two = client();
  set({.read_rate = 1});
  ANSWERS_TO(kGotA, one, "get a\r\nget a\r\nget a\r\n");
  ANSWERS_TO("", two, "get a\r\n");
  pass(kNsPerSecond);
  TAKES(kGotA, one);
  TAKES("", two);
  pass(kNsPerSecond);
  TAKES("", one);
  TAKES(kGotA, two);
  pass(kNsPerSecond);
  TAKES(kGotA, one);
}

TEST(KvdSessionLimits, CommandsThatMayChangeItemsAreWrites) {
  const std::pair<const char*, bool> commands[] = {{"get a\r\n", true},
                                                   {"gets a\r\n", true},
                                                   {"gat 0 a\r\n", true},
                                                   {"gats 0 a\r\n", true},
                                                   {"mg a v\r\n", true},
                                                   {"me a\r\n", true},
                                                   {"mn\r\n", true},
                                                   {"version\r\n", true},
                                                   {"verbosity 1\r\n", true},
                                                   {"stats\r\n", true},
                                                   {"set b 0 0 1\r\nx\r\n", false},
                                                   {"add b 0 0 1\r\nx\r\n", false},
                                                   {"replace b 0 0 1\r\nx\r\n", false},
                                                   {"append b 0 0 1\r\nx\r\n", false},
                                                   {"prepend b 0 0 1\r\nx\r\n", false},
                                                   {"cas b 0 0 1 1\r\nx\r\n", false},
                                                   {"incr n 1\r\n", false},
                                                   {"decr n 1\r\n", false},
                                                   {"touch a 0\r\n", false},
                                                   {"delete b\r\n", false},
                                                   {"ms b 1\r\nx\r\n", false},
                                                   {"md b\r\n", false},
                                                   {"ma n\r\n", false},
                                                   {"flush_all\r\n", false}};
  for (const auto& [command, is_read] : commands) {
    set({.read_rate = 1, .write_rate = 1});
    Client &one = client(), &reader = client(), &writer = client();
    CHECK_TEXT(!one.say(command).empty(), command);
    reader.say("get a\r\n");
    writer.say("delete other\r\n");
    CHECK_EQUAL_TEXT(is_read ? 1 : 0, limit->reads_waiting(), command);
    CHECK_EQUAL_TEXT(is_read ? 0 : 1, limit->writes_waiting(), command);
    clients.clear();
    set({});
  }
}

TEST(KvdSessionLimits, ARefusedLineCostsNothing) {
  Client &one = client(), &two = client();
  set({.read_rate = 1, .write_rate = 1});
  ANSWERS_TO("ERROR\r\nERROR\r\n", one, "bogus\r\nget\r\n");
  ANSWERS_TO((kGotA + std::string("NOT_FOUND\r\n")).c_str(), one, "get a\r\ndelete b\r\n");
  ANSWERS_TO("ERROR\r\n", two, "bogus\r\n");
}

TEST(KvdSessionLimits, BytesOfValuesArePaidByThoseBehind) {
  Client &one = client(), &two = client();
  const std::string value(5000, 'v');
  const std::string got = "VALUE big 0 5000\r\n" + value + "\r\nEND\r\n";
  one.say("set big 0 0 5000\r\n" + value + "\r\n");
  set({.read_rate_bytes = 1000, .write_rate_bytes = 1000});  // bursts of 100 bytes
  ANSWERS_TO(got.c_str(), one, "get big\r\n");
  ANSWERS_TO("", two, "get missing\r\n");
  pass(4900 * kNsPerMs - 1);
  TAKES("", two);
  pass(1);
  TAKES("END\r\n", two);
  ANSWERS_TO("HD s5000\r\n", one, "mg big s\r\n");
  ANSWERS_TO(("VA 5000\r\n" + value + "\r\n").c_str(), one, "mg big v\r\n");
  ANSWERS_TO("", one, "mn\r\n");
  CHECK_EQUAL(1, limit->reads_waiting());
  // Writes pay in the same way. The second value waits outside.
  ANSWERS_TO("STORED\r\n", two, "set big 0 0 5000\r\n" + value + "\r\n");
  ANSWERS_TO("", two, "set big 0 0 5000\r\n" + value + "\r\n");
  CHECK_EQUAL(1, limit->writes_waiting());
  pass(4900 * kNsPerMs);
  TAKES("STORED\r\n", two);
  TAKES("", one);
  pass(100 * kNsPerMs);
  TAKES("MN\r\n", one);
}

// A client could else wait with a short value, and be sent a long one.
TEST(KvdSessionLimits, AValueCountsAsItIsSent) {
  Client &one = client(), &two = client();
  const std::string value(1000, 'v');
  set({.read_rate_bytes = 1000});  // a burst of 100 bytes
  one.say("set b 0 0 200\r\n" + value.substr(800) + "\r\n");
  one.say("get b\r\n");
  ANSWERS_TO("", one, "get a\r\n");
  two.say("set a 0 0 1000\r\n" + value + "\r\n");
  pass(100 * kNsPerMs);
  TAKES(("VALUE a 0 1000\r\n" + value + "\r\nEND\r\n").c_str(), one);
  ANSWERS_TO("", two, "get missing\r\n");
  pass(1000 * kNsPerMs - 1);
  TAKES("", two);
  pass(1);
  TAKES("END\r\n", two);
}

TEST(KvdSessionLimits, TwoChangesInARowBothHold) {
  Client& one = client();
  LimitRates rates = limit->rates();
  rates.read_rate = 1;
  set(rates);
  rates = limit->rates();
  rates.write_rate = 1;
  set(rates);
  ANSWERS_TO((kGotA + std::string("NOT_FOUND\r\n")).c_str(), one,
             "get a\r\ndelete b\r\nget a\r\ndelete b\r\n");
  rates = limit->rates();
  rates.read_rate = 10;
  set(rates);
  rates.read_rate = 2;
  set(rates);
  pass(500 * kNsPerMs - 1);
  TAKES("", one);
  pass(1);
  TAKES(kGotA, one);
  CHECK_EQUAL(1, limit->writes_waiting());
  pass(500 * kNsPerMs);
  TAKES("NOT_FOUND\r\n", one);
}

TEST(KvdSessionLimits, AnEndOfTheLimitLetsAllGo) {
  Client &one = client(), &two = client();
  set({.read_rate = 1});
  ANSWERS_TO(kGotA, one, "get a\r\nget a\r\nget a\r\n");
  ANSWERS_TO("", two, "get a\r\nget a\r\n");
  set({});
  TAKES((kGotA + std::string(kGotA)).c_str(), one);
  TAKES((kGotA + std::string(kGotA)).c_str(), two);
  CHECK(loop->timers().next_deadline_ns() == TimerQueue::kNever);
  // The next limit holds from its first request on.
  set({.read_rate = 1});
  ANSWERS_TO(kGotA, one, "get a\r\nget a\r\n");
}

TEST(KvdSessionLimits, AClientThatLeavesTakesItsRequestsAlong) {
  Client &one = client(), &two = client(), &three = client();
  set({.read_rate = 1});
  ANSWERS_TO(kGotA, one, "get a\r\n");
  ANSWERS_TO("", two, "get a\r\nget a\r\n");
  ANSWERS_TO("", three, "get a\r\n");
  CHECK_EQUAL(2, limit->reads_waiting());
  two.session().leave();
  CHECK(!two.session().is_waiting());
  CHECK_EQUAL(1, limit->reads_waiting());
  two.session().reset();
  pass(kNsPerSecond);
  TAKES(kGotA, three);
  // The next peer of that session begins anew.
  ANSWERS_TO("", two, "get a\r\n");
  pass(kNsPerSecond);
  TAKES(kGotA, two);
}

TEST(KvdSessionLimits, OtherListenersGoOn) {
  Client &one = client(), &far = client(false);
  set({.read_rate = 1, .write_rate = 1});
  ANSWERS_TO(kGotA, one, "get a\r\nget a\r\n");
  for (int i = 0; i < 5; ++i) ANSWERS_TO("NOT_FOUND\r\nEND\r\n", far, "delete b\r\nget b\r\n");
}
