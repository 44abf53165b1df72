// TLS around a session that echoes its input, with the library's own client: both versions, long
// texts, client certificates, clients that speak no TLS, and ends.
#include "apps/tls/tls_connection.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "tests/support/death_test.h"
#include "tests/transport/tls/tls_session_fixture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

// Echoes its input. Input that ends with "." ends it.
class Echo final : public ConnectionSession {
 public:
  bool is_open = false;
  bool is_certified = false;
  bool has_begun = false;  // a request that is not complete
  bool waits = false;      // for its next output

  void open(int) noexcept override {
    is_open = true;
    is_certified = is_ended_ = false;
    said_.clear();
  }
  void closed() noexcept override { is_open = false; }
  void peer_is_certified() noexcept override { is_certified = true; }
  std::span<char> room() noexcept override {
    return is_ended_ || !said_.empty() ? std::span<char>() : std::span(heard_);
  }
  void received(size_t bytes) noexcept override {
    said_.assign(heard_, bytes);
    is_ended_ = said_.ends_with('.');
  }
  std::string_view output() const noexcept override { return said_; }
  void sent(size_t bytes) noexcept override { said_.erase(0, bytes); }
  bool is_over() const noexcept override { return is_ended_; }
  bool is_in_request() const noexcept override { return has_begun; }
  bool is_waiting() const noexcept override { return waits; }
  void time_out() noexcept override {
    said_ = "too slow";
    is_ended_ = true;
  }

 private:
  char heard_[1000];
  std::string said_;
  bool is_ended_ = false;
};

}  // namespace

TEST_GROUP_BASE(TlsConnection, TlsSessionFixture) {
  TlsConnectionEnvironment environment;
  TlsCounters counters;
  Echo echo;
  std::unique_ptr<TlsConnection> connection =
      std::make_unique<TlsConnection>(environment, echo, counters);
  std::string heard;

  void teardown() override {
    if (echo.is_open) connection->closed();
    TlsSessionFixture::teardown();
  }
  void serve(const TlsFiles& files) {
    environment.where = "[server]";
    CHECK(environment.credentials.load(files, "[server]", &problems));
    while (environment.log_limit.try_pass("[server]")) continue;  // no log of deliberate failures
  }
  void connect(int version) {
    new_client(version);
    client->start();
    connection->open(-1);
  }
  // Moves all bytes between the client and the connection, at most `bytes_max` at a time.
  void exchange(size_t bytes_max = SIZE_MAX) {
    while (true) {
      const std::string_view said = connection->output().substr(0, bytes_max);
      const std::span<char> room = connection->room();
      const size_t bytes = std::min({room.size(), client->sent.size(), bytes_max});
      if (said.empty() && bytes == 0) return;
      if (!said.empty()) {
        client->arriving += said;
        connection->sent(said.size());
        continue;
      }
      std::memcpy(room.data(), client->sent.data(), bytes);
      client->sent.erase(0, bytes);
      connection->received(bytes);
      CHECK(connection->is_valid());
    }
  }
  // Runs the handshake; returns the client's last result.
  int agree(size_t bytes_max = SIZE_MAX) {
    int said = SSL_ERROR_WANT_READ;
    for (int i = 0; i < 10 && said == SSL_ERROR_WANT_READ; ++i) {
      said = client->handshake();
      exchange(bytes_max);
    }
    return said;
  }
};

TEST(TlsConnection, WhatIsSaidWithinIsHeard) {
  serve(certificates());
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    for (const size_t step : {SIZE_MAX, size_t{7}}) {
      connect(version);
      CHECK_FALSE(connection->is_in_request());
      LONGS_EQUAL(0, agree(step));
      const std::string text(50'000, 't');
      client->write(text);
      exchange(step);
      CHECK(client->read() == text);
      CHECK_FALSE(connection->is_over());
      client->write("the end.");
      exchange(step);
      STRCMP_EQUAL("the end.", client->read().c_str());
      LONGS_EQUAL(SSL_ERROR_ZERO_RETURN, client->last_read);
      CHECK(connection->is_over());
      connection->closed();
      CHECK_FALSE(echo.is_open);
    }
  }
  LONGS_EQUAL(4, counters.handshakes.read());
  LONGS_EQUAL(4 * 50'008, counters.read_bytes.read());
  LONGS_EQUAL(4 * 50'008, counters.written_bytes.read());
}

TEST(TlsConnection, ACertificateIsToldToTheSession) {
  TlsFiles files = with_authorities();
  files.takes_clients_without = true;
  serve(files);
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    for (const bool shows : {false, true}) {
      new_client(version);
      if (shows) client->show(client_certificate);
      client->start();
      connection->open(-1);
      LONGS_EQUAL(0, agree());
      client->write("x");
      exchange();
      STRCMP_EQUAL("x", client->read().c_str());
      CHECK_EQUAL(shows, echo.is_certified);
      connection->closed();
    }
  }
}

TEST(TlsConnection, AWrongCertificateIsRefusedThoughNoneIsNeeded) {
  const TestCertificate expired{"old", {.issuer = &authority, .until = "20210203000000Z"}};
  const TestCertificate foreign{"client", {.issuer = &stranger}};
  TlsFiles files = with_authorities();
  files.takes_clients_without = true;
  serve(files);
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    for (const TestCertificate* shown : {&expired, &foreign}) {
      new_client(version);
      client->show(*shown);
      client->start();
      connection->open(-1);
      const int said = agree();
      client->read();
      CHECK(said == SSL_ERROR_SSL || client->last_read == SSL_ERROR_SSL);  // an alert says why
      CHECK(connection->is_over());
      CHECK_FALSE(echo.is_certified);
      connection->closed();
    }
  }
  LONGS_EQUAL(4, counters.failed_credentials.read());
  LONGS_EQUAL(0, counters.failed_gone.read());
}

TEST(TlsConnection, HttpInClearEndsIt) {
  serve(certificates());
  connect(TLS1_3_VERSION);
  client->sent = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
  exchange();
  CHECK(connection->is_over());
  STRCMP_EQUAL("", client->arriving.c_str());
  LONGS_EQUAL(1, counters.failed_protocol.read());
}

// Encrypted output that is not sent yet has not reached the client.
TEST(TlsConnection, WhatIsSaidIsSentBeforeItWaitsOrIsLate) {
  serve(certificates());
  connect(TLS1_3_VERSION);
  LONGS_EQUAL(0, agree());
  client->write("a line");
  exchange();
  echo.has_begun = echo.waits = true;
  CHECK(connection->is_waiting() && connection->is_in_request());
  client->write("one more");
  const size_t bytes = client->sent.size();
  std::memcpy(connection->room().data(), client->sent.data(), bytes);
  connection->received(bytes);
  CHECK(!connection->output().empty() && echo.output().empty());
  CHECK_FALSE(connection->is_waiting() || connection->is_in_request());
  connection->sent(connection->output().size());
  CHECK(connection->is_waiting() && connection->is_in_request());
  connection->look(0);
  echo.has_begun = echo.waits = false;
#if BP_DEBUG
  BP_CHECK_DIES("is_waiting()", connection->look(0));
  BP_CHECK_DIES("is_in_request()", connection->time_out());
#endif
}

// A handshake has the time limit of a request, from its first byte.
TEST(TlsConnection, AHandshakeThatIsTooSlowIsBrokenOff) {
  serve(certificates());
  connect(TLS1_3_VERSION);
  client->handshake();
  client->sent.resize(client->sent.size() / 2);
  exchange();
  CHECK(connection->is_in_request());
  connection->time_out();
  CHECK(connection->is_over());
  CHECK_FALSE(connection->is_in_request());
  connection->closed();
  LONGS_EQUAL(1, counters.failed_gone.read());
  connect(TLS1_3_VERSION);  // the next client is served
  LONGS_EQUAL(0, agree());
  echo.has_begun = true;
  connection->time_out();
  exchange();
  STRCMP_EQUAL("too slow", client->read().c_str());
  LONGS_EQUAL(SSL_ERROR_ZERO_RETURN, client->last_read);
  CHECK(connection->is_over());
}

TEST(TlsConnection, AClientThatLeaves) {
  serve(certificates());
  connect(TLS1_3_VERSION);
  connection->closed();
  LONGS_EQUAL(0, counters.failed_gone.read());  // no handshake has begun
  connect(TLS1_3_VERSION);
  client->handshake();
  exchange();
  connection->closed();
  LONGS_EQUAL(1, counters.failed_gone.read());
  connect(TLS1_3_VERSION);
  LONGS_EQUAL(0, agree());
  client->write("x");
  client->close_notify();
  exchange();
  STRCMP_EQUAL("x", client->read().c_str());
  LONGS_EQUAL(SSL_ERROR_ZERO_RETURN, client->last_read);
  CHECK(connection->is_over());
}
