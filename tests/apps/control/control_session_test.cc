// The answers of a control session, without a socket, and its calls on an event loop.
#include "apps/control/control_session.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "apps/testing/session_peer.h"
#include "platform/assert.h"
#include "platform/units.h"
#include "tests/support/death_test.h"
#include "transport/loop/event_loop.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(ControlSession) {
  ControlCounters counters;
  ControlMethods methods;
  ControlSite site;
  uint64_t clock_ns = kNsPerSecond;
  EventLoop loop;      // a shard's
  EventLoop own_loop;  // the sessions'
  std::unique_ptr<ControlSession> session;
  uint64_t number = 0;

  void setup() override {
    for (EventLoop* each : {&loop, &own_loop}) {
      CHECK(each->create({.test_clock_ns = &clock_ns}).ok());
    }
    site.shards = {{&loop, "main"}};
    site.own_loop = &own_loop;
    site.methods = &methods;
    site.counters = &counters;
    methods.add(
        {.name = "echo",
         .parameters = {{.name = "text"},
                        {.name = "number", .type = ControlType::kNumber, .is_required = false},
                        {.name = "yes", .type = ControlType::kBoolean, .is_required = false}}},
        [](void* /*context*/, ControlCall& call) noexcept {
          call.result().begin_array().text(call.text("text")).number(call.number("number", 7));
          call.result().boolean(call.boolean("yes")).end_array();
        },
        this);
    methods.add(
        {.name = "refuse"},
        [](void* /*context*/, ControlCall& call) noexcept {
          Error error;
          call.result().begin_object();  // the refusal drops this beginning
          call.refuse(error.set_doing("doing").set_answer("no").set_cure("ask again"));
        },
        this);
    methods.add(
        {.name = "long"},
        [](void* /*context*/, ControlCall& call) noexcept {
          if (call.page() == 0) call.result().begin_array();
          call.result().text(std::string_view(kLong)).number(call.page());
          call.page() < 9 ? call.more(call.page() + 1) : (void)call.result().end_array();
        },
        this);
    methods.set_owner("cache");
    methods.add(
        {.name = "flush"},
        [](void* group, ControlCall& call) noexcept {
          auto& self = *static_cast<TEST_GROUP_CppUTestGroupControlSession*>(group);
          call.go_on(
              self.loop,
              [](void* context, ControlCall& there) noexcept {
                there.result().number(
                    ++static_cast<TEST_GROUP_CppUTestGroupControlSession*>(context)->number);
              },
              group);
        },
        this);
    methods.add(
        {.name = "dump"},
        [](void* group, ControlCall& call) noexcept {
          call.go_on(
              static_cast<TEST_GROUP_CppUTestGroupControlSession*>(group)->loop,
              [](void*, ControlCall& there) noexcept {
                if (there.page() == 0) there.result().begin_array();
                there.result().number(there.page());
                there.more(there.page() + 1);
              },
              group);
        },
        this);
    session = std::make_unique<ControlSession>(site);
  }

  inline static const std::string kLong = std::string(9000, 'x');

  // The shard takes its calls, and the sessions hear of it.
  void run_loop() {
    loop.run_round();
    own_loop.run_round();
  }
  // The shard takes none for as long as sessions wait.
  void be_late() {
    clock_ns += ControlSession::kPatienceNs;
    own_loop.run_round();
  }
  void make_line() {
    site.sessions.clear();
    session = std::make_unique<ControlSession>(site, ControlSession::Kind::kLine);
  }

  // Returns all answers to `text`, until the session waits or is over.
  static std::string said_to(ControlSession & which, std::string_view text,
                             size_t step = SIZE_MAX) {
    testing::SessionPeer peer(which);
    std::string answers = peer.take();
    return answers + peer.say(text, step);
  }
  std::string said(std::string_view text, size_t step = SIZE_MAX) {
    return said_to(*session, text, step);
  }
  static std::string request(const std::string& method, const std::string& params = "") {
    return R"({"jsonrpc":"2.0","id":1,"method":")" + method + "\"" +
           (params.empty() ? "" : ",\"params\":{" + params + "}") + "}\n";
  }
  static std::string answer(const std::string& result) {
    return R"({"jsonrpc":"2.0","id":1,"result":)" + result + "}\n";
  }
  void expect_code(int code, const std::string& line) {
    const std::string answered = said(line + "\n");
    CHECK_TEXT(answered.find("\"code\":" + std::to_string(code) + ",") != answered.npos,
               (line + " -> " + answered).c_str());
  }
};

TEST(ControlSession, AnswersLineByLine) {
  const std::string all = request("echo", R"("text":"a\n\"\u00e9","number":5,"yes":true)") +
                          "\r\n" + request("echo", R"("text":"","number":"12","yes":"true")");
  const std::string wanted = answer("[\"a\\u000a\\\"\xc3\xa9\",5,true]") + answer("[\"\",12,true]");
  STRCMP_EQUAL(wanted.c_str(), said(all).c_str());
  STRCMP_EQUAL(wanted.c_str(), said(all, 1).c_str());
  CHECK_FALSE(session->is_over());
  LONGS_EQUAL(4, counters.requests.read());
  LONGS_EQUAL(0, counters.refused.read());
}

TEST(ControlSession, AnswersWithTheIdThatItWasGiven) {
  for (const char* id : {"null", "0", "18446744073709551615", "-1", "18446744073709551616",
                         "-1234567890123456789012345678901234567890", R"("a b")", R"("\u0001")"}) {
    const std::string line =
        std::string(R"({"id":)") + id + R"(,"method":"refuse","jsonrpc":"2.0"})";
    STRCMP_EQUAL((std::string(R"({"jsonrpc":"2.0","id":)") + id +
                  R"(,"error":{"code":-32000,"message":"doing: no; ask again"}})" + "\n")
                     .c_str(),
                 said(line + "\n").c_str());
  }
  // The id comes after the error.
  STRCMP_CONTAINS(
      "\"id\":5,",
      said("{\"jsonrpc\":\"2.0\",\"params\":[1,[2]],\"method\":\"a\",\"id\":5}\n").c_str());
  STRCMP_EQUAL("", said("{\"jsonrpc\":\"2.0\",\"method\":\"refuse\"}\n").c_str());
}

TEST(ControlSession, SaysWhatIsWrong) {
  expect_code(-32700, "{");
  expect_code(-32700, std::string(8000, '['));
  expect_code(-32600, "[" + std::string(4000, '[') + std::string(4000, ']') + "]");
  expect_code(-32600, "\"text\"");
  expect_code(-32600, "{}");
  expect_code(-32600, R"({"jsonrpc":"1.0","method":"echo","id":1})");
  expect_code(-32600, R"({"jsonrpc":"2.0","method":5,"id":1})");
  expect_code(-32600, R"({"jsonrpc":"2.0","method":"echo","id":1.5})");
  expect_code(-32600, R"({"jsonrpc":"2.0","method":"echo","id":1,"id":2})");
  expect_code(-32600, R"({"jsonrpc":"2.0","method":"echo","more":1})");
  expect_code(-32600,
              "{\"jsonrpc\":\"2.0\",\"method\":\"echo\",\"id\":\"" + std::string(65, 'x') + "\"}");
  // Integers too large for 64 bits, or even for a floating-point number.
  for (const size_t digits : {65, 308, 309, 400, 4000}) {
    const std::string id(digits, '9');
    STRCMP_CONTAINS(
        "\"id\":null,\"error\":{\"code\":-32600,\"message\":\"an id has at most 64 bytes\"",
        said("{\"jsonrpc\":\"2.0\",\"method\":\"echo\",\"id\":" + id + "}\n").c_str());
  }
  STRCMP_CONTAINS("\"message\":\"a number is too large\"",
                  said("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\",\"params\":{\"n\":" +
                       std::string(400, '9') + "}}\n")
                      .c_str());
  // An escaped id takes more space than in the request. Refused ids are not added to the first.
  std::string many_ids = R"({"jsonrpc":"2.0","method":"echo")";
  for (int i = 0; i < 50; ++i) {
    many_ids += ",\"id\":\"";
    for (int k = 0; k < 64; ++k) many_ids += "\\n";
    many_ids += "\"";
  }
  expect_code(-32600, many_ids + "}");
  STRCMP_CONTAINS(R"("id":1,)", said(R"({"jsonrpc":"2.0","method":"echo","id":1,"more":2})"
                                     "\n")
                                    .c_str());
  expect_code(-32601, R"({"jsonrpc":"2.0","method":"ech","id":1})");
  for (const char* params :
       {"", R"("text":1)", R"("text":null)", R"("text":{})", R"("text":[])", R"("txt":"")",
        R"("text":"","text":"")", R"("text":"","number":-1)", R"("text":"","number":1.5)",
        R"("text":"","number":"1x")", R"("text":"","number":18446744073709551616)",
        R"("text":"","yes":1)", R"("text":"","yes":"no")"}) {
    expect_code(-32602, R"({"jsonrpc":"2.0","id":1,"method":"echo","params":{)" +
                            std::string(params) + "}}");
  }
  CHECK_FALSE(session->is_over());
}

TEST(ControlSession, ALineThatIsTooLongEndsTheConnection) {
  STRCMP_CONTAINS("-32600", said(std::string(20000, 'x')).c_str());
  CHECK(session->is_over());
  LONGS_EQUAL(0, session->input().piece_count);
}

TEST(ControlSession, ALongAnswerIsMadeInPieces) {
  for (const size_t step : {SIZE_MAX, size_t{1000}}) {
    const std::string all = said(request("long") + request("echo", R"("text":"b")"), step);
    LONGS_EQUAL(10, std::count(all.begin(), all.end(), 'x') / 9000);
    STRCMP_CONTAINS("x\",8,\"x", all.c_str());
    CHECK(all.ends_with("x\",9]}\n" + answer("[\"b\",7,false]")));
  }
}

TEST(ControlSession, WhatBelongsToALoopIsDoneThere) {
  STRCMP_EQUAL("", said(request("cache.flush")).c_str());
  CHECK(session->is_waiting());
  own_loop.run_round();
  STRCMP_EQUAL("", said("").c_str());
  run_loop();
  STRCMP_EQUAL(answer("1").c_str(), said("").c_str());
  CHECK_FALSE(session->is_waiting() || session->late_loop() != nullptr);
}

// The loop may still run the call, so the session has no other peer until then.
TEST(ControlSession, ALoopThatDoesNotComeToItIsSaidToBeStuck) {
  said(request("cache.flush"));
  be_late();
  STRCMP_EQUAL(
      R"({"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"the shard main has not )"
      "handled it in 2 s, and may still do so: see `bedplate top`\"}}\n",
      said("").c_str());
  CHECK(session->is_over() && session->late_loop() == &loop);
  LONGS_EQUAL(1, counters.stuck.read());
  session->leave();
  CHECK(session->is_waiting());
  run_loop();
  CHECK_FALSE(session->is_waiting() || session->late_loop() != nullptr);
  session->reset();
  STRCMP_EQUAL("", said(request("cache.flush")).c_str());
  run_loop();
  STRCMP_EQUAL(answer("2").c_str(), said("").c_str());
}

// Its client does not wait for the answer.
TEST(ControlSession, ACallOutlivesItsClient) {
  said(request("cache.flush"));
  session->leave();
  CHECK(session->is_waiting() && session->late_loop() == nullptr);
  be_late();
  CHECK(session->is_waiting() && session->late_loop() == &loop);
  LONGS_EQUAL(1, counters.stuck.read());
  run_loop();
  CHECK_FALSE(session->is_waiting() || session->late_loop() != nullptr);
  session->reset();
  STRCMP_CONTAINS("[\"b\",7,false]", said(request("echo", R"("text":"b")")).c_str());
}

// The loop runs the call after the session has given up, and the result is dropped.
TEST(ControlSession, WhatComesTooLateIsNotSaid) {
  said(request("cache.dump"));
  be_late();
  run_loop();  // the method has more parts
  const std::string answered = said("");
  LONGS_EQUAL(1, std::count(answered.begin(), answered.end(), '\n'));
  STRCMP_CONTAINS("-32002", answered.c_str());
  CHECK(session->is_over());
  CHECK_FALSE(session->is_waiting() || session->late_loop() != nullptr);
}

TEST(ControlSession, AnAnswerThatIsLateInItsMiddleIsBrokenOff) {
  said(request("cache.dump"));
  run_loop();
  STRCMP_EQUAL(R"({"jsonrpc":"2.0","id":1,"result":[0)", said("").c_str());
  CHECK(session->is_waiting());
  be_late();
  STRCMP_EQUAL("", said("").c_str());
  CHECK(session->is_over());
  LONGS_EQUAL(1, counters.requests.read());
  LONGS_EQUAL(1, counters.refused.read());
  LONGS_EQUAL(1, counters.stuck.read());
  run_loop();
}

// Otherwise each call to the stuck shard would hold another session.
TEST(ControlSession, AShardThatIsStuckIsAskedForNothingMore) {
  said(request("cache.flush"));
  be_late();
  ControlSession other(site);
  STRCMP_EQUAL(R"({"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"the shard main is )"
               "stuck: it has not handled an earlier call, so this one was not sent: see `bedplate "
               "top`\"}}\n",
               said_to(other, request("cache.flush")).c_str());
  CHECK_FALSE(other.is_over() || other.is_waiting());
  STRCMP_CONTAINS("[\"b\",7,false]", said_to(other, request("echo", R"("text":"b")")).c_str());
  run_loop();
  STRCMP_EQUAL("", said_to(other, request("cache.flush")).c_str());
  CHECK(other.is_waiting());
  run_loop();
  STRCMP_EQUAL(answer("2").c_str(), said_to(other, "").c_str());
}

// Each line counts as one request. Each request in this test is refused or carried out.
TEST(ControlSession, ItsCountersAddUp) {
  const auto expect_counts = [this](uint64_t requests, uint64_t refused) {
    LONGS_EQUAL(requests, counters.requests.read());
    LONGS_EQUAL(refused, counters.refused.read());
  };
  said("\n \r\n" + request("echo", R"("text":"")") +
       R"({"jsonrpc":"2.0","method":"refuse"})"
       "\n");
  expect_counts(2, 1);
  said("{]\n");
  expect_counts(3, 2);
  session->reset();
  said(std::string(20000, 'x'));
  expect_counts(4, 3);
  session->reset();
  said("{");
  session->late();
  said("");
  expect_counts(5, 4);
}

// ---- On a serial line ----

TEST(ControlSession, ALineGoesOnBehindWhatItCannotRead) {
  make_line();
  const std::string good = request("echo", R"("text":"a")");
  const std::string wanted = answer("[\"a\",7,false]");
  constexpr const char* kTooLong = "a line must be shorter than 8192 bytes";
  for (const size_t step : {size_t{1}, size_t{1000}, size_t{8192}, SIZE_MAX}) {
    for (const size_t bytes : {8191, 8192, 8193, 16384, 100000}) {
      const std::string answered = said(std::string(bytes, 'x') + "\n" + good, step);
      const size_t end = answered.find('\n') + 1;
      STRCMP_CONTAINS(bytes < 8192 ? "this is not JSON" : kTooLong,
                      answered.substr(0, end).c_str());
      STRCMP_EQUAL(wanted.c_str(), answered.substr(end).c_str());
    }
  }
  // Noise, and the beginning of a request that another client left.
  const std::string answered = said(std::string("\xff\x80\x00{\"jsonr\n", 11) + good);
  STRCMP_CONTAINS("{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700", answered.c_str());
  STRCMP_EQUAL(wanted.c_str(), answered.substr(answered.find('\n') + 1).c_str());
  CHECK_FALSE(session->is_over());
}

TEST(ControlSession, ALineForgetsWhatDoesNotEnd) {
  make_line();
  said(R"({"jsonrpc":)");
  CHECK(session->progress().has_begun);
  session->late();
  STRCMP_CONTAINS("the line did not end in 10 s", said("").c_str());
  CHECK_FALSE(session->is_over());
  CHECK_FALSE(session->progress().has_begun);
  STRCMP_EQUAL("", said(R"("2.0","id":1,"method":"refuse"})").c_str());
  CHECK_FALSE(session->progress().has_begun);  // the rest of that line has no time limit
  STRCMP_EQUAL(answer("[\"a\",7,false]").c_str(),
               said("\n" + request("echo", R"("text":"a")")).c_str());
}

TEST(ControlSession, ALineIsNotAnsweredItsEcho) {
  make_line();
  std::string echo = said("{]\n" + request("refuse") + request("echo", R"("text":"a")"));
  LONGS_EQUAL(3, std::count(echo.begin(), echo.end(), '\n'));
  STRCMP_EQUAL("", said(echo).c_str());
  // On a connection, the echo is an error.
  session = std::make_unique<ControlSession>(site);
  STRCMP_CONTAINS("-32600", said(echo).c_str());
}

TEST(ControlSession, ALineEndsAnAnswerThatIsBrokenOff) {
  make_line();
  std::string answered = said(request("cache.dump"));
  CHECK(session->is_waiting());
  run_loop();
  answered += said("");  // the first part is sent; the next one is awaited
  CHECK(session->is_waiting());
  be_late();
  answered += said("");
  CHECK(session->is_over());  // this session waits for the late call; the line gets another
  const size_t end = answered.find('\n');
  STRCMP_EQUAL(R"({"jsonrpc":"2.0","id":1,"result":[0)", answered.substr(0, end).c_str());
  STRCMP_CONTAINS("{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32002",
                  answered.substr(end + 1).c_str());
  run_loop();
}

#if BP_DEBUG
// The session asks for the next part once a part is sent. So a part without text is an error.
TEST(ControlSession, AMethodThatGoesOnHasSaidSomething) {
  methods.add(
      {.name = "silent"},
      [](void* /*context*/, ControlCall& call) noexcept {
        if (call.page() == 0) call.result().text("all");
        call.more(call.page() + 1);
      },
      this);
  CHECK(session->is_valid());
  BP_CHECK_DIES("bytes > 0 || !goes_on_",
                said_to(*session, R"({"jsonrpc":"2.0","method":"cache.silent","id":1})"
                                  "\n"));
}
#endif
