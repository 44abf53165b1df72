// A client of a service, in the test's thread: the other end of a connection. While it sends or
// receives, it runs the appliance.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "platform/file.h"

namespace bedplate::testing {

class TestAppliance;

// Made by TestAppliance::connect and socket_pair. Threads: the test's. Ownership: its socket; the
// appliance outlives it.
class TestClient {
 public:
  TestClient(TestAppliance& appliance, Fd socket) noexcept;

  // Sends all of `text`, as fast as the service takes it. Returns false if the service has closed
  // the connection, or takes nothing more for kPatienceNs.
  bool send(std::string_view text);
  // Receives `bytes`. Returns fewer if the service has closed the connection, or sends nothing more
  // for kPatienceNs.
  std::string receive(size_t bytes);
  // Receives until the service has nothing more to do. Requires: no other thread makes the answers.
  std::string receive_all();
  // Whether the service has closed the connection, and all that it sent was received.
  bool is_closed();

  // Tells the service that no more comes (SHUT_WR); the client still receives.
  void end_sending() noexcept;
  // Closes the connection. Does nothing if it is closed.
  void close() noexcept { socket_.close(); }

  // Only a hang takes so long. Real time.
  static constexpr uint64_t kPatienceNs = 30'000'000'000;

 private:
  enum class Step { kMoved, kBlocked, kEnded };
  Step receive_some(std::string* into, size_t bytes_max);
  template <typename Try>
  bool go_on(Try&& attempt);

  TestAppliance& appliance_;
  Fd socket_;
};

}  // namespace bedplate::testing
