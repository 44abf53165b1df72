// TLS of a service that somebody writes: three lines in a service of lines bring it. Clients that
// it serves, and all that it refuses, with their counters.
#include "apps/services/tls_keys.h"
#include "transport/sockets/stream_server.h"  // before CppUTest's macro `new`

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/boot/service_context.h"
#include "apps/services/service.h"
#include "apps/services/service_plan.h"
#include "apps/testing/test_appliance.h"
#include "tests/apps/services/tls_test_client.h"
#include "tests/support/stderr_capture.h"
#include "tests/transport/sockets/stream_server_bodies.h"
#include "tests/transport/tls/tls_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;
using bedplate::testing::TestAppliance;
using bedplate::testing::TestClient;

namespace {

class Lines final : public Service {
 public:
  EchoLines::Shared shared;
  TlsTerms terms;

  const char* name() const noexcept override { return "lines"; }
  void describe(ConfigurationTable& table) override {
    table.addresses("listen", &listen_, 1, 4).required().help("Where it listens.");
    describe_tls_keys(table, &tls_);
  }
  Result<void> plan(ServicePlan& plan) override {
    plan.segment("lines", {{"connections:lines", StreamServer::bytes_for<EchoLines>(kClients)}},
                 plan.placement(0));
    plan.connections(0, kClients, nullptr);
    plan.tls(0, kClients, tls_, terms);
    plan.listen("listen", listen_);
    plan.counters<StreamServerCounters>("clients");
    return {};
  }
  Result<void> create(ServiceContext& context) override {
    BP_TRY_ASSIGN(const auto memory, context.carve("connections:lines"));
    BP_TRY_ASSIGN(const auto counters, context.counters<StreamServerCounters>("clients"));
    BP_TRY_ASSIGN(const auto listening, context.listeners("listen"));
    StreamServerOptions options = {.name = "lines",
                                   .loop = &context.loop(0),
                                   .sockets = &context.sockets(0),
                                   .counters = counters};
    BP_TRY_ASSIGN(options.layers, context.tls(0));
    server_.create<EchoLines>(options, memory, shared);
    for (const Fd& socket : listening) server_.add_listener(socket.number());
    return {};
  }
  void start(uint32_t) noexcept override { server_.start(); }
  void request_drain() noexcept override { server_.request_drain(); }
  bool is_drained() const noexcept override { return server_.is_drained(); }

 private:
  static constexpr uint32_t kClients = 4;
  std::vector<SocketAddress> listen_;
  TlsFiles tls_;
  StreamServer server_;
};

}  // namespace

TEST_GROUP(TlsService) {
  TlsFolder folder;
  TestCertificate authority{"authority", {.is_authority = true}};
  TestCertificate stranger{"stranger", {.is_authority = true}};
  TestCertificate server{"localhost", {.issuer = &authority}};
  Lines lines;
  std::unique_ptr<TestAppliance> appliance =
      std::make_unique<TestAppliance>(std::vector<Service*>{&lines});

  StderrCapture log;

  void setup() override { lines.shared.large.resize(4 << 20); }
  void teardown() override {
    appliance->run();  // the clients have gone: their connections give back OpenSSL's memory
    appliance.reset();
  }

  // With a certificate, and `keys` of the table.
  void boot(const std::string& keys) {
    const std::string certificate = folder.write("cert.pem", server.pem(), 0644);
    const std::string key = folder.write("key.pem", server.key_pem());
    const std::string text = "[lines]\nlisten = [\"tcp:127.0.0.1:7\"]\ntls_certificate = \"" +
                             certificate + "\"\ntls_key = \"" + key + "\"\n" + keys;
    STRCMP_EQUAL("", appliance->boot(text).c_str());
  }
  std::string authorities() {
    return "tls_client_authorities = \"" + folder.write("ca.pem", authority.pem(), 0644) + "\"\n";
  }
  TlsTestClient client() { return TlsTestClient(appliance->connect("lines", "listen")); }
  uint64_t counted(const char* counter) { return appliance->counter("lines", counter).value(); }
  uint64_t open_count() {
    appliance->run();
    return counted("connections_open");
  }
  // A client that is served, whatever others did.
  void serves_another() {
    TlsTestClient another = client();
    another.tls->trust(authority);
    CHECK(another.begin());
    STRCMP_EQUAL("hello\n", another.ask("hello\n").c_str());
  }
  // Nothing of the client was executed, and it sees the end.
  void was_refused(TlsTestClient & refused, const char* counter) {
    CHECK(refused.is_closed());
    CHECK_EQUAL(1, counted(counter));
    LONGS_EQUAL(0, lines.shared.line_count);
    refused.close();
    appliance->advance(2 * StreamLinger::kLingerNs);
    CHECK_EQUAL(0, open_count());
  }
};

TEST(TlsService, ServesAClientThatTrustsItsCertificate) {
  boot("plain_text = \"refused\"\n");
  TlsTestClient one = client();
  one.tls->trust(authority);
  CHECK(one.begin());
  STRCMP_EQUAL("one\ntwo\n", one.ask("one\ntwo\n").c_str());
  CHECK_EQUAL(1, counted("tls_handshakes"));
  CHECK_EQUAL(8, counted("tls_read_bytes"));
  STRCMP_EQUAL("bye\n", one.ask("bye\n").c_str());
  LONGS_EQUAL(SSL_ERROR_ZERO_RETURN, one.tls->last_read);  // it has announced its end
  CHECK(one.is_closed());
}

TEST(TlsService, AsksClientsForACertificate) {
  boot(authorities());
  const TestCertificate own("client", {.issuer = &authority});
  TlsTestClient certified = client();
  certified.tls->show(own);
  CHECK(certified.begin());
  STRCMP_EQUAL("one\n", certified.ask("one\n").c_str());
}

TEST(TlsService, RefusesAClientWithoutACertificate) {
  boot(authorities());
  TlsTestClient bare = client();
  bare.begin();
  STRCMP_EQUAL("", bare.ask("one\n").c_str());
  LONGS_EQUAL(SSL_ERROR_SSL, bare.tls->last_read);  // it hears why
  was_refused(bare, "tls_failed_credentials");
}

TEST(TlsService, RefusesTheCertificateOfAStranger) {
  boot(authorities());
  const TestCertificate own("client", {.issuer = &stranger});
  TlsTestClient strange = client();
  strange.tls->show(own);
  strange.begin();
  STRCMP_EQUAL("", strange.ask("one\n").c_str());
  LONGS_EQUAL(SSL_ERROR_SSL, strange.tls->last_read);
  was_refused(strange, "tls_failed_credentials");
}

TEST(TlsService, RefusesACertificateThatHasExpired) {
  boot(authorities());
  const TestCertificate own("client", {.issuer = &authority, .until = "20210101000000Z"});
  TlsTestClient late = client();
  late.tls->show(own);
  late.begin();
  STRCMP_EQUAL("", late.ask("one\n").c_str());
  LONGS_EQUAL(SSL_ERROR_SSL, late.tls->last_read);
  was_refused(late, "tls_failed_credentials");
  STRCMP_CONTAINS("[lines]: TLS with the client process", log.text().c_str());
  STRCMP_CONTAINS("certificate has expired", log.text().c_str());
}

TEST(TlsService, CountsAClientThatRefusesItsCertificate) {
  boot("");
  TlsTestClient distrustful = client();
  distrustful.tls->trust(stranger);
  CHECK_FALSE(distrustful.begin());
  was_refused(distrustful, "tls_failed_refused");
  serves_another();
}

TEST(TlsService, RefusesPlainTextWhereItIsRefused) {
  boot("plain_text = \"refused\"\n");
  TestClient plain = appliance->connect("lines", "listen");
  CHECK(plain.send("one\n12345\n"));
  STRCMP_EQUAL("", plain.receive_all().c_str());
  CHECK(plain.is_closed());
  CHECK_EQUAL(1, counted("tls_failed_protocol"));
  LONGS_EQUAL(0, lines.shared.line_count);
  plain.close();
  serves_another();
}

TEST(TlsService, ServesPlainTextToThisMachineBesideTls) {
  boot("");
  TestClient plain = appliance->connect("lines", "listen");
  CHECK(plain.send("plain\n"));
  STRCMP_EQUAL("plain\n", plain.receive_all().c_str());
  serves_another();
}

TEST(TlsService, RefusesGarbageInPlaceOfAClientHello) {
  boot("");
  const std::string record = std::string("\x16\x03\x01\x00\x20", 5) + std::string(32, 'g');
  for (uint64_t i = 1; i <= 3; ++i) {
    TestClient garbage = appliance->connect("lines", "listen");
    CHECK(garbage.send(record.substr(0, i == 1 ? 1 : record.size())));
    garbage.receive_all();
    if (i == 1) CHECK(garbage.send(record.substr(1)));
    garbage.receive_all();
    CHECK(garbage.is_closed());
    CHECK_EQUAL(i, counted("tls_failed_protocol"));
  }
  LONGS_EQUAL(0, lines.shared.line_count);
  serves_another();
}

TEST(TlsService, ClosesAClientThatVanishesInTheHandshake) {
  boot("");
  TlsTestClient gone = client();
  gone.begin(1);
  CHECK_EQUAL(1, open_count());
  gone.close();
  CHECK_EQUAL(0, open_count());
  CHECK_EQUAL(1, counted("tls_failed_gone"));
  serves_another();
}

TEST(TlsService, EndsHandshakesThatTakeTooLong) {
  boot("plain_text = \"refused\"\n");
  TlsTestClient served = client();
  CHECK(served.begin());
  TlsTestClient begun = client();
  begun.begin(1);
  TestClient silent = appliance->connect("lines", "listen");
  CHECK_EQUAL(3, open_count());
  appliance->advance(9 * kNsPerSecond);
  CHECK_EQUAL(3, open_count());
  appliance->advance(2 * kNsPerSecond);
  CHECK_EQUAL(1, open_count());
  CHECK(silent.is_closed() && begun.is_closed());
  CHECK_EQUAL(2, counted("tls_failed_late"));
  STRCMP_CONTAINS("failed: the client took too long for the handshake (it has sent nothing)",
                  log.text().c_str());
  STRCMP_EQUAL("still\n", served.ask("still\n").c_str());
}

TEST(TlsService, EndsHandshakesAfterTheTimeThatItPlans) {
  lines.terms.handshake_ns_max = 60 * kNsPerSecond;
  boot("plain_text = \"refused\"\n");
  TestClient silent = appliance->connect("lines", "listen");
  appliance->advance(59 * kNsPerSecond);
  CHECK_EQUAL(1, open_count());
  appliance->advance(2 * kNsPerSecond);
  CHECK_EQUAL(0, open_count());
}

TEST(TlsService, MayLetHandshakesTakeAnyTime) {
  lines.terms.handshake_ns_max = 0;
  boot("plain_text = \"refused\"\n");
  TestClient silent = appliance->connect("lines", "listen");
  appliance->advance(1000 * kNsPerSecond);
  CHECK_EQUAL(1, open_count());
}

// An end without close_notify: what has come is answered, and nothing counts as broken.
TEST(TlsService, AnswersAClientThatClosesItsSocketAlone) {
  boot("");
  TlsTestClient abrupt = client();
  CHECK(abrupt.begin());
  abrupt.tls->write("one\nhal");
  CHECK(abrupt.exchange());
  abrupt.end_sending();
  STRCMP_EQUAL("one\n", abrupt.ask("").c_str());
  LONGS_EQUAL(SSL_ERROR_ZERO_RETURN, abrupt.tls->last_read);
  abrupt.close();
  CHECK_EQUAL(0, open_count());
  CHECK_EQUAL(0, counted("tls_broken_records"));
  LONGS_EQUAL(1, lines.shared.line_count);
}

// It goes in mid-answer: the loan comes back.
TEST(TlsService, TakesBackWhatItLentToAClientThatVanishes) {
  boot("");
  TlsTestClient greedy = client();
  CHECK(greedy.begin());
  greedy.tls->write("lend\n");
  CHECK(greedy.send_what_is_there());
  appliance->run();
  LONGS_EQUAL(0, lines.shared.released_count);
  greedy.close();
  CHECK_EQUAL(0, open_count());
  LONGS_EQUAL(1, lines.shared.released_count);
  serves_another();
}

// More than the socket and the layer hold: another client is served meanwhile.
TEST(TlsService, SendsAnswersThatFillTheSocket) {
  boot("");
  TlsTestClient slow = client();
  CHECK(slow.begin());
  slow.tls->write("lend\nlend\nend\n");
  CHECK(slow.send_what_is_there());
  appliance->run();
  serves_another();
  const std::string wanted = lines.shared.large + lines.shared.large + "end\n";
  const std::string heard = slow.ask("");
  CHECK(heard == wanted);
  LONGS_EQUAL(2, lines.shared.released_count);
}

TEST(TlsService, IsDrainedInMidHandshakeToo) {
  boot("plain_text = \"refused\"\n");
  TlsTestClient served = client();
  CHECK(served.begin());
  TlsTestClient begun = client();
  begun.begin(1);
  CHECK(appliance->drain());
  STRCMP_EQUAL("", served.ask("").c_str());
  LONGS_EQUAL(SSL_ERROR_ZERO_RETURN, served.tls->last_read);
}
