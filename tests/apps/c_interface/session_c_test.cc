// Requests and replies in C: a service of lines whose answers come at once, later, or lent; its
// clients, its drain and its counters.
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/c_interface/bedplate_service.h"
#include "apps/services/service.h"
#include "apps/testing/c_service.h"
#include "apps/testing/test_appliance.h"
#include "tests/apps/services/tls_test_client.h"
#include "tests/transport/tls/tls_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::testing::TestAppliance;
using bedplate::testing::TestClient;

namespace {

// The state of the service.
struct Lines {
  bp_protocol protocol = {};
  bp_context* context = nullptr;
  bp_histogram* times = nullptr;
  std::vector<bp_later*> later;
  std::vector<bp_session*> waiting;
  std::vector<void*> released;
  char lent[5000];
  char filled[16] = {};
  unsigned left_count = 0;
};

// The memory of a session, for its protocol.
struct State {
  int is_filling;
  int has_waited;
};

void say(bp_session* session, std::string_view text) {
  bp_session_say(session, text.data(), text.size());
}

// "later": the answer is finished by the test; "wait": the session waits for the test; "lend",
// "fill" and "skip" (the next 5 bytes), "number", "shard" (its number), "end", "foreign"; "tls" is
// answered by a number, and "starttls" begins TLS. Other lines come back.
bp_step work(void* self, bp_session* session, uint64_t) {
  auto& lines = *static_cast<Lines*>(self);
  auto& state = *static_cast<State*>(bp_session_state(session));
  if (state.is_filling != 0) {
    state.is_filling = 0;
    say(session, lines.filled);
    say(session, "\n");
    return BP_TAKEN;
  }
  if (state.has_waited != 0) {
    state.has_waited = 0;
    say(session, "waited\n");
    return BP_TAKEN;
  }
  size_t bytes = 0;
  const char* begin = bp_session_arrived_line(session, &bytes);
  const std::string line(begin, bytes);
  if (line.empty()) {
    size_t arrived = 0;
    bp_session_arrived(session, &arrived);
    if (bp_session_is_input_full(session) != 0) bp_session_end(session);
    if (arrived == 1) bp_session_want(session, 3);
    return BP_STARVED;
  }
  bp_session_take(session, bytes);
  if (line == "later\n") {
    lines.later.push_back(bp_session_later(session));
    return BP_TAKEN;
  }
  if (line == "wait\n") {
    lines.waiting.push_back(session);
    state.has_waited = 1;
    return BP_WAITS;
  }
  if (line == "fill\n") {
    state.is_filling = 1;
    bp_session_fill(session, lines.filled, 5);
  } else if (line == "skip\n") {
    bp_session_skip(session, 5);
  } else if (line == "lend\n") {
    bp_session_lend(session, lines.lent, sizeof lines.lent, lines.lent);
  } else if (line == "number\n") {
    bp_session_say_number(session, 12345);
  } else if (line == "shard\n") {
    bp_session_say_number(session, bp_session_shard(session));
  } else if (line == "tls\n") {
    bp_session_say_number(session, bp_session_tls(session));
  } else if (line == "starttls\n") {
    say(session, line);
    bp_session_start_tls(session);
  } else if (line == "end\n") {
    bp_session_end(session);
  } else if (line == "foreign\n") {
    bp_session_end_foreign(session, "Esperanto");
  } else {
    say(session, line);
  }
  bp_session_answered(session, lines.times, 1);
  return BP_TAKEN;
}

class SessionBodies : public Utest {
 public:
  Lines lines;
  bp_service described = {};
  std::unique_ptr<Service> service;
  std::unique_ptr<TestAppliance> appliance;

  void setup() override {
    std::memset(lines.lent, 'l', sizeof lines.lent);
    lines.protocol.self = &lines;
    lines.protocol.work = &work;
    lines.protocol.released = [](void* self, bp_session*, void* loan) {
      static_cast<Lines*>(self)->released.push_back(loan);
    };
    lines.protocol.left = [](void* self, bp_session*) { ++static_cast<Lines*>(self)->left_count; };
    lines.protocol.input_bytes = 64;
    lines.protocol.output_bytes = 2 * BP_STEP_TEXT_BYTES;
    lines.protocol.state_bytes = sizeof(State);
    lines.protocol.later_count = 3;
    lines.protocol.is_traced = 1;
    described.name = "lines";
    described.self = &lines;
    described.describe = [](void*, bp_table* table) {
      bp_table_listen(table, "listen", "Where it listens.");
    };
    described.plan = [](void* self, bp_plan* plan) {
      bp_plan_histogram(plan, "times", "ns", "Times of lines.");
      bp_plan_trace(plan, "none|line", BP_SESSION_STATIONS, NULL, 0);
      bp_plan_server(plan, "clients", 0, 2, "max_connections",
                     &static_cast<Lines*>(self)->protocol);
      return 0;
    };
    described.create = [](void* self, bp_context* context) {
      auto& its = *static_cast<Lines*>(self);
      its.context = context;
      its.times = bp_histogram_of(context, "times");
      return bp_server_listen(context, "clients", "listen");
    };
  }
  void teardown() override { appliance.reset(); }

  std::string problems(const std::string& keys = "") {
    service = testing::make_service(described);
    appliance = std::make_unique<TestAppliance>(std::vector<Service*>{service.get()});
    return appliance->boot("[lines]\nlisten = [\"tcp:127.0.0.1:7\"]\n" + keys);
  }
  TestClient connect() {
    if (appliance == nullptr) STRCMP_EQUAL("", problems().c_str());
    return appliance->connect("lines", "listen");
  }
  uint64_t now_ns() { return bp_loop_now_ns(bp_loop_of(lines.context, 0)); }
};

}  // namespace

TEST_GROUP_BASE(SessionC, SessionBodies){};

TEST(SessionC, AnswersAtOnce) {
  TestClient client = connect();
  CHECK(client.send("one\nnumber\ntwo\n"));
  STRCMP_EQUAL("one\n12345two\n", client.receive_all().c_str());
  CHECK(client.send("t"));
  STRCMP_EQUAL("", client.receive_all().c_str());
  CHECK(client.send("hree\n"));
  STRCMP_EQUAL("three\n", client.receive_all().c_str());
  CHECK(appliance->counter("lines", "times") == 4);
  CHECK(appliance->counter("lines", "connections_total", "clients") == 1);
  CHECK_EQUAL(3, appliance->traces(0)[0].handle);  // requests of the first send
  LONGS_EQUAL(1, appliance->traces(0)[0].kind);
}

TEST(SessionC, FillsSkipsAndLends) {
  TestClient client = connect();
  CHECK(client.send("fill\nab"));
  STRCMP_EQUAL("", client.receive_all().c_str());
  CHECK(client.send("cdeskip\n12345lend\n"));
  CHECK(client.receive_all() == "abcde\n" + std::string(sizeof lines.lent, 'l'));
  LONGS_EQUAL(1, lines.released.size());
  POINTERS_EQUAL(lines.lent, lines.released[0]);
}

TEST(SessionC, AnswersLaterInTheOrderOfRequests) {
  TestClient client = connect();
  CHECK(client.send("later\none\nlater\n"));
  STRCMP_EQUAL("", client.receive_all().c_str());
  LONGS_EQUAL(2, lines.later.size());
  CHECK(appliance->counter("lines", "answers_waiting", "clients") == 2);
  bp_later* second = lines.later[1];
  LONGS_EQUAL(1, bp_later_is_wanted(second));
  bp_later_say(second, "second ", 7);
  bp_later_say_number(second, 2);
  bp_later_answered(second, lines.times, 1);
  bp_later_finish(second, now_ns());
  STRCMP_EQUAL("", client.receive_all().c_str());
  bp_later_lend(lines.later[0], "first ", 6, lines.lent);
  bp_later_finish(lines.later[0], now_ns());
  STRCMP_EQUAL("first one\nsecond 2", client.receive_all().c_str());
  LONGS_EQUAL(1, lines.released.size());
}

TEST(SessionC, CountsAnswersThatAreLate) {
  lines.protocol.answer_s_max = 60;
  TestClient client = connect();
  CHECK(client.send("later\n"));
  appliance->run();
  appliance->advance(59 * kNsPerSecond);
  CHECK(appliance->counter("lines", "answers_late", "clients") == 0);
  appliance->advance(2 * kNsPerSecond);
  CHECK(appliance->counter("lines", "answers_late", "clients") == 1);
  bp_later_finish(lines.later.at(0), now_ns());
  CHECK(appliance->counter("lines", "answers_late", "clients") == 0);
}

TEST(SessionC, AnswersMayBeLateInTenSecondsOrNever) {
  TestClient client = connect();
  CHECK(client.send("later\n"));
  appliance->run();
  appliance->advance(11 * kNsPerSecond);
  CHECK(appliance->counter("lines", "answers_late", "clients") == 1);
  bp_later_finish(lines.later.at(0), now_ns());
  client.close();
  appliance.reset();
  lines.later.clear();
  lines.protocol.answer_s_max = BP_ANSWERS_ANY_TIME;
  TestClient another = connect();
  CHECK(another.send("later\n"));
  appliance->run();
  appliance->advance(1000 * kNsPerSecond);
  CHECK(appliance->counter("lines", "answers_late", "clients") == 0);
  bp_later_finish(lines.later.at(0), now_ns());
}

TEST(SessionC, AnswersInAnyOrderIfTheProtocolAllowsIt) {
  lines.protocol.any_order = 1;
  TestClient client = connect();
  CHECK(client.send("later\none\n"));
  STRCMP_EQUAL("one\n", client.receive_all().c_str());
  bp_later_say(lines.later[0], "later\n", 6);
  bp_later_finish(lines.later[0], now_ns());
  STRCMP_EQUAL("later\n", client.receive_all().c_str());
}

TEST(SessionC, WaitsAndGoesOn) {
  TestClient client = connect();
  CHECK(client.send("wait\none\n"));
  STRCMP_EQUAL("", client.receive_all().c_str());
  bp_session_resume(lines.waiting.at(0), now_ns());
  STRCMP_EQUAL("waited\none\n", client.receive_all().c_str());
}

TEST(SessionC, KeepsAConnectionUntilItsAnswersHaveCome) {
  TestClient client = connect();
  CHECK(client.send("later\n"));
  appliance->run();
  client.close();
  appliance->run();
  LONGS_EQUAL(1, bp_later_is_wanted(lines.later.at(0)));  // a peer may send its end, and still read
  CHECK(appliance->counter("lines", "connections_open", "clients") == 1);
  bp_later_say(lines.later[0], "later\n", 6);
  bp_later_finish(lines.later[0], now_ns());
  appliance->run();
  LONGS_EQUAL(1, lines.left_count);
  CHECK(appliance->counter("lines", "connections_open", "clients") == 0);
}

TEST(SessionC, EndsSessionsAndRefusesClients) {
  TestClient first = connect(), second = connect(), third = connect();
  CHECK(third.is_closed());
  CHECK(first.send("one\nend\ntwo\n"));
  STRCMP_EQUAL("one\n", first.receive_all().c_str());
  CHECK(second.send("foreign\n"));
  CHECK(second.is_closed());
  CHECK(appliance->counter("lines", "connections_refused", "clients") == 1);
  CHECK(appliance->counter("lines", "connections_foreign", "clients") == 1);
}

TEST(SessionC, DrainsByItself) {
  TestClient client = connect();
  CHECK(client.send("one\n"));
  STRCMP_EQUAL("one\n", client.receive_all().c_str());
  CHECK(appliance->drain());
  CHECK(client.is_closed());
}

TEST(SessionC, WaitsForAnswersInADrain) {
  TestClient client = connect();
  CHECK(client.send("later\n"));
  appliance->run();
  CHECK_FALSE(appliance->drain());
  bp_later_say(lines.later.at(0), "late\n", 5);
  bp_later_finish(lines.later[0], now_ns());
  STRCMP_EQUAL("late\n", client.receive_all().c_str());
  appliance->advance(2 * kNsPerSecond);  // the end of a linger
  CHECK(service->is_drained());
}

TEST(SessionC, AServerThatIsNotPlannedIsRefused) {
  described.plan = [](void*, bp_plan*) { return 0; };
  described.create = [](void*, bp_context* context) {
    return bp_server_listen(context, "clients", "listen");
  };
  STRCMP_EQUAL("lines: creating the server clients: it is not planned; call bp_plan_server in plan",
               problems().c_str());
}

constexpr char kTwoShards[] =
    "[[shard]]\nname = \"main\"\ncpu = 0\n[[shard]]\nname = \"other\"\ncpu = 1\n";

TEST(SessionC, ServesOnSeveralShardsAsOne) {
  described.plan = [](void* self, bp_plan* plan) {
    const unsigned shards[] = {0, 1};
    bp_plan_histogram(plan, "times", "ns", "Times of lines.");
    bp_plan_trace(plan, "none|line", BP_SESSION_STATIONS, NULL, 0);
    bp_plan_server_on(plan, "clients", shards, 2, 3, "max_connections", "listen",
                      &static_cast<Lines*>(self)->protocol);
    return 0;
  };
  STRCMP_EQUAL("", problems(kTwoShards).c_str());
  std::vector<TestClient> clients;
  std::string told;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(connect());
    CHECK(clients.back().send("shard\n"));
    told += clients.back().receive_all();
  }
  STRCMP_EQUAL("0101", told.c_str());
  CHECK(connect().is_closed());
  CHECK(appliance->counter("lines", "connections_open") == 4);
  CHECK(appliance->counter("lines", "connections_open", "main") == 2);
  CHECK(appliance->counter("lines", "connections_open", "other") == 2);
  CHECK(appliance->counter("lines", "connections_moved") == 2);
  CHECK(appliance->drain());
  for (TestClient& client : clients) CHECK(client.is_closed());
}

TEST(SessionC, AServerIsPlannedAndCreatedAtTheSameAddresses) {
  described.plan = [](void* self, bp_plan* plan) {
    const unsigned shards[] = {0, 1};
    bp_plan_histogram(plan, "times", "ns", "Times of lines.");
    bp_plan_trace(plan, "none|line", BP_SESSION_STATIONS, NULL, 0);
    bp_plan_server_on(plan, "clients", shards, 2, 2, NULL, "others",
                      &static_cast<Lines*>(self)->protocol);
    return 0;
  };
  STRCMP_EQUAL("lines: creating the server clients at the addresses of listen: it is planned for "
               "those of others; give bp_plan_server_on and bp_server_listen the same key",
               problems(kTwoShards).c_str());
}

// ---- TLS ----

TEST_GROUP_BASE(SessionCTls, SessionBodies) {
  test::TlsFolder folder;

  void setup() override {
    SessionBodies::setup();
    described.describe = [](void*, bp_table* table) {
      bp_table_listen(table, "listen", "Where it listens.");
      bp_table_tls(table, NULL);
    };
  }
  void teardown() override {
    appliance->run();  // the clients have gone: their connections give back OpenSSL's memory
    SessionBodies::teardown();
  }
  // Boots with a shared key, and `keys` of the table.
  void boot(const std::string& keys = "") {
    const std::string path = folder.write("keys.psk", test::kSharedKeyLine);
    STRCMP_EQUAL("", problems("tls_shared_keys = \"" + path + "\"\n" + keys).c_str());
  }
  test::TlsTestClient secure_client() {
    test::TlsTestClient client(appliance->connect("lines", "listen"));
    client.tls->share("alice", test::kSharedKey);
    return client;
  }
};

TEST(SessionCTls, ServesClientsOfBothKinds) {
  boot();
  test::TlsTestClient secure = secure_client();
  CHECK(secure.begin());
  STRCMP_EQUAL("3one\n", secure.ask("tls\none\n").c_str());  // BP_TLS_BEGUN
  TestClient plain = connect();
  CHECK(plain.send("tls\none\n"));
  STRCMP_EQUAL("1one\n", plain.receive_all().c_str());  // BP_TLS_OFFERED
  CHECK(appliance->counter("lines", "tls_handshakes") == 1);
}

TEST(SessionCTls, RefusesPlainTextWhereItIsRefused) {
  boot("plain_text = \"refused\"\n");
  TestClient plain = connect();
  CHECK(plain.send("one\n12345\n"));
  STRCMP_EQUAL("", plain.receive_all().c_str());
  CHECK(plain.is_closed());
  CHECK(appliance->counter("lines", "times") == 0);
  test::TlsTestClient secure = secure_client();
  CHECK(secure.begin());
  STRCMP_EQUAL("one\n", secure.ask("one\n").c_str());
}

TEST(SessionCTls, WithoutKeysIsNone) {
  STRCMP_EQUAL("", problems().c_str());
  TestClient plain = connect();
  CHECK(plain.send("tls\n"));
  STRCMP_EQUAL("0", plain.receive_all().c_str());  // BP_TLS_NONE
  CHECK(!appliance->counter("lines", "tls_handshakes").has_value());
}

TEST(SessionCTls, BeginsWhenTheClientAsksForIt) {
  lines.protocol.has_tls_on_request = 1;
  boot("plain_text = \"refused\"\n");
  test::TlsTestClient client = secure_client();
  STRCMP_EQUAL("2", client.ask_in_clear("tls\n").c_str());  // BP_TLS_REQUIRED
  STRCMP_EQUAL("starttls\n", client.ask_in_clear("starttls\n").c_str());
  CHECK(client.begin());
  STRCMP_EQUAL("3one\n", client.ask("tls\none\n").c_str());
}

TEST(SessionCTls, RefusesTextBehindTheRequest) {
  lines.protocol.has_tls_on_request = 1;
  boot();
  TestClient client = connect();
  CHECK(client.send("starttls\ninjected\n"));
  STRCMP_EQUAL("", client.receive_all().c_str());
  CHECK(client.is_closed());
  CHECK(appliance->counter("lines", "connections_foreign", "clients") == 1);
}

TEST(SessionCTls, SharesAShardAmongServers) {
  described.describe = [](void*, bp_table* table) {
    bp_table_listen(table, "listen", "Where it listens.");
    bp_table_listen(table, "more", "Where it listens, too.");
    bp_table_tls(table, "lines.md#tls");
  };
  described.plan = [](void* self, bp_plan* plan) {
    auto& its = *static_cast<Lines*>(self);
    its.protocol.is_traced = 0;
    bp_plan_histogram(plan, "times", "ns", "Times of lines.");
    bp_plan_server(plan, "clients", 0, 2, NULL, &its.protocol);
    bp_plan_server(plan, "others", 0, 1, NULL, &its.protocol);
    return 0;
  };
  described.create = [](void* self, bp_context* context) {
    static_cast<Lines*>(self)->times = bp_histogram_of(context, "times");
    const int first = bp_server_listen(context, "clients", "listen");
    return first == 0 ? bp_server_listen(context, "others", "more") : first;
  };
  boot("more = [\"tcp:127.0.0.1:8\"]\n");
  for (const char* key : {"listen", "more"}) {
    test::TlsTestClient client(appliance->connect("lines", key));
    client.tls->share("alice", test::kSharedKey);
    CHECK(client.begin());
    STRCMP_EQUAL("one\n", client.ask("one\n").c_str());
  }
}

TEST(SessionCTls, IsNotForSocketsThatAreHandedOut) {
  described.plan = [](void*, bp_plan* plan) {
    bp_plan_connections(plan, 0, 1, NULL);
    return 0;
  };
  described.create = [](void* self, bp_context* context) {
    return bp_listen(
        context, "listen", 0, [](void*, int) {}, self);
  };
  const std::string path = folder.write("keys.psk", test::kSharedKeyLine);
  STRCMP_EQUAL("lines: listening at the addresses of listen: the service has TLS, which only its "
               "servers speak; serve the clients by bp_server_listen",
               problems("tls_shared_keys = \"" + path + "\"\n").c_str());
}
