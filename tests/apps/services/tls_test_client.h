// A client of a service under test that speaks TLS: OpenSSL's own client over a TestClient.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "apps/testing/test_client.h"
#include "tests/transport/tls/tls_rig.h"

namespace bedplate::test {

class TlsTestClient {
 public:
  explicit TlsTestClient(testing::TestClient client) : client_(std::move(client)) {}

  // A test sets its certificates and keys before begin().
  std::unique_ptr<TlsClient> tls = std::make_unique<TlsClient>();

  // The handshake; at most `flights_max` of the client's flights are sent. Returns whether it is
  // complete on this side.
  bool begin(int flights_max = 10) {
    tls->start();
    int outcome = tls->handshake();
    for (int i = 0; i < flights_max; ++i) {
      if (!exchange() && tls->arriving.empty()) break;
      if (outcome != SSL_ERROR_WANT_READ || i + 1 == flights_max) break;
      outcome = tls->handshake();
    }
    send_what_is_there();  // the last flight, or an alert
    return outcome == SSL_ERROR_NONE;
  }
  // Sends what the library wants to send, and receives all that comes. Returns whether the service
  // took it.
  bool exchange() {
    const bool is_sent = send_what_is_there();
    tls->arriving += client_.receive_all();
    return is_sent;
  }
  bool send_what_is_there() { return client_.send(std::exchange(tls->sent, "")); }
  // Sends `text`, if there is some. Returns all text that comes back.
  std::string ask(std::string_view text) {
    if (!text.empty()) tls->write(text);
    exchange();
    return tls->read();
  }
  // The same without TLS, before begin().
  std::string ask_in_clear(std::string_view text) {
    client_.send(text);
    return client_.receive_all();
  }
  bool is_closed() { return client_.is_closed(); }
  void end_sending() noexcept { client_.end_sending(); }
  void close() noexcept { client_.close(); }

 private:
  testing::TestClient client_;
};

}  // namespace bedplate::test
