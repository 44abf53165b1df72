// Counters read by control requests: with the real answers of an appliance, and with invalid ones.
#include "apps/program/counters/remote_counters.h"

#include <algorithm>
#include <memory>
#include <string>

#include <fcntl.h>

#include "apps/control/control_session.h"
#include "apps/control/runtime_methods.h"
#include "apps/program/counters/counter_changes.h"
#include "apps/testing/session_peer.h"
#include "tests/apps/counters/counters_file_fixture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

// The control session of an appliance that has nothing but counters.
struct Asked {
  explicit Asked(Running* running, const std::string& path) {
    runtime.counters = running->file.view();
    runtime.counters_file = Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    runtime.add_to(&methods);
    site.methods = &methods;
    site.counters = &counters;
    CHECK(loop.create({}).ok());
    site.own_loop = &loop;
    session = std::make_unique<ControlSession>(site);
  }
  std::string answer(const std::string& params) {
    return testing::SessionPeer(*session).say(
        R"({"jsonrpc":"2.0","id":1,"method":"counters.read","params":)" + params + "}\n");
  }

  EventLoop loop;
  ControlMethods methods;
  RuntimeMethods runtime;
  ControlCounters counters;
  ControlSite site;
  std::unique_ptr<ControlSession> session;
};

struct Channel final : ControlChannel {
  explicit Channel(std::function<Result<std::string>(const std::string&)> its_answer)
      : answer(std::move(its_answer)) {}
  Result<std::string> ask(const std::string& method, const std::string& params) override {
    STRCMP_EQUAL("counters.read", method.c_str());
    return answer(params);
  }
  std::function<Result<std::string>(const std::string&)> answer;
};

}  // namespace

TEST_GROUP_BASE(RemoteCounters, CountersFileFixture) {
  std::unique_ptr<Running> running;
  std::unique_ptr<Asked> asked;
  std::string said;  // replaces the real answer, unless it is empty
  size_t answer_bytes = 0;
  size_t ask_count = 0;
  size_t open_count = 0;
  bool is_broken = false;
  RemoteCounters remote{"a line", [this]() -> Result<std::unique_ptr<ControlChannel>> {
                          ++open_count;
                          return {std::make_unique<Channel>(
                              [this](const std::string& params) { return answer(params); })};
                        }};

  Result<std::string> answer(const std::string& params) {
    ++ask_count;
    if (is_broken) return error_while("asking").set_answer("it closed the connection");
    const std::string answer = said.empty() ? asked->answer(params) : said;
    answer_bytes += answer.size();
    return answer;
  }
  void begin(const std::vector<CounterSet>& sets = kSets) {
    asked.reset();
    running.reset();
    running = std::make_unique<Running>(directory, "demo", sets);
    running->publish();
    asked = std::make_unique<Asked>(running.get(), path("demo"));
  }
  void teardown() override {
    asked.reset();
    running.reset();
    CountersFileFixture::teardown();
  }
  CountersSnapshot look() {
    auto taken = remote.snapshot();
    if (!taken.ok()) FAIL(taken.error().answer);
    return taken.take();
  }
  void check_refused(const std::string& answer, const char* says) {
    said = answer;
    auto taken = remote.snapshot();
    CHECK(!taken.ok());
    STRCMP_CONTAINS(says, taken.error().answer);
    CHECK(taken.error().cure[0] != '\0');
    said.clear();
  }
};

TEST(RemoteCounters, AreWhatTheFileSays) {
  begin();
  running->gets().hits.set(5);
  running->gets().held_bytes.set(~uint64_t{0} - 1);
  const CountersSnapshot far = look();
  auto opened = CountersReader::open(directory, "demo");
  const CountersSnapshot near = snapshot_of(opened.value());
  CHECK(far.is_of_run(near));
  LONGS_EQUAL(near.header().file_bytes, far.header().file_bytes);
  MEMCMP_EQUAL(&near.header(), &far.header(), near.header().file_bytes);
}

TEST(RemoteCounters, ALaterLookAsksForWhatMayHaveChanged) {
  std::vector<CounterSet> sets = kSets;
  sets.push_back({"late", "gets", "", sizeof(HitCounters), described_counters<HitCounters>()});
  sets.back().is_spare = true;
  begin(sets);
  const CountersSnapshot first = look();
  LONGS_EQUAL(1, ask_count);
  LONGS_EQUAL(3, first.sets().size());
  const size_t first_bytes = std::exchange(answer_bytes, 0);
  running->gets().hits.set(6);
  const CountersSnapshot second = look();
  CHECK_EQUAL(6, *second.sets()[0].read("hits"));
  CHECK(second.taken_ns() > first.taken_ns());
  CHECK(counter_changes(&first, second)[0].counters[0].has_before);
  CHECK(answer_bytes < first_bytes);
}

TEST(RemoteCounters, ASetThatWasTakenSinceIsThere) {
  std::vector<CounterSet> sets = kSets;
  for (CounterSet& set : sets) set.owner = "";
  sets.push_back({"", "late", "", sizeof(HitCounters), described_counters<HitCounters>()});
  sets.back().is_spare = true;
  begin(sets);
  LONGS_EQUAL(3, look().sets().size());
  running->file.take_spare<HitCounters>("late", "one")->hits.set(9);
  const CountersSnapshot now = look();
  LONGS_EQUAL(4, now.sets().size());
  CHECK(now.sets()[3].instance == "one");
  CHECK_EQUAL(9, *now.sets()[3].read("hits"));
}

TEST(RemoteCounters, AnotherRunIsReadAnew) {
  begin();
  const CountersSnapshot first = look();
  running->file.header().created_ns += 1;  // as in another run with the same pid
  running->gets().hits.set(1);
  const CountersSnapshot second = look();
  CHECK_FALSE(second.is_of_run(first));
  std::vector<CounterSet> more = kSets;
  more.push_back({"late", "gets", "", sizeof(HitCounters), described_counters<HitCounters>()});
  begin(more);
  LONGS_EQUAL(4, look().sets().size());
}

TEST(RemoteCounters, NonsenseIsRefusedAndWhatIsRightAfterwardsIsRead) {
  begin();
  const auto answer = [](const std::string& bytes, const std::string& words) {
    return R"({"jsonrpc":"2.0","id":1,"result":{"created_ns":1,"now_ns":2,"bytes":)" + bytes +
           R"(,"words":[)" + words + "]}}\n";
  };
  for (int round = 0; round < 2; ++round) {  // before and after a successful read
    const char* none = round == 0 ? "its answer contains no counters" : "no";
    check_refused("login:", "its answer contains no counters");
    check_refused("[]\n", "its answer contains no counters");
    check_refused("{\"result\":1}\n", "its answer contains no counters");
    check_refused(answer("-8", ""), "its answer contains no counters");
    check_refused(answer("8", "1"), none);
    check_refused(answer("1024", "-127"), none);
    check_refused(answer("1024", "-129"), none);
    check_refused(answer("1024", "-9223372036854775808"), none);
    check_refused(answer("1024", "-127,\"nine byte\""), none);
    check_refused(answer("1024", "-127,\"\",1"), none);
    check_refused(answer("1024", "-127,[1]"), none);
    check_refused(answer("1024", "-127,1.5"), none);
    check_refused(answer("99999999999999", "-1"), none);
    check_refused(answer("1024", "-128"), "not a counters file");
    check_refused(R"({"id":1,"error":{"code":-32601,"message":"there is no such method"}})",
                  "there is no such method");
    LONGS_EQUAL(3, look().sets().size());
  }
}

TEST(RemoteCounters, AChannelThatBreaksIsOpenedAgain) {
  begin();
  look();
  LONGS_EQUAL(1, open_count);
  is_broken = true;
  CHECK(!remote.snapshot().ok());
  is_broken = false;
  LONGS_EQUAL(3, look().sets().size());
  LONGS_EQUAL(2, open_count);
}

TEST(RemoteCounters, OnlyWordsThatAreThereAreRead) {
  begin();
  const auto refused = [&](const std::string& params) { return asked->answer(params); };
  STRCMP_CONTAINS("\"error\"", refused(R"({"from":4})").c_str());
  STRCMP_CONTAINS("\"error\"", refused(R"({"from":0,"bytes":7})").c_str());
  STRCMP_CONTAINS("\"error\"", refused(R"({"from":8000000})").c_str());
  STRCMP_CONTAINS("\"words\":[]}", refused(R"({"from":0,"bytes":0})").c_str());
  // Words beyond the end of the file are left out.
  const std::string all = std::to_string(running->file.header().file_bytes - 8);
  STRCMP_CONTAINS("\"words\":[-1]}",
                  refused(R"({"from":)" + all + R"(,"bytes":18446744073709551608})").c_str());
}
