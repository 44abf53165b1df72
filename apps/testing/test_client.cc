#include "apps/testing/test_client.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

#include "apps/testing/test_appliance.h"
#include "platform/assert.h"
#include "platform/clock.h"

namespace bedplate::testing {

TestClient::TestClient(TestAppliance& appliance, Fd socket) noexcept
    : appliance_(appliance), socket_(std::move(socket)) {}

// Calls `attempt` until it does not block. Returns whether it moved something.
template <typename Try>
bool TestClient::go_on(Try&& attempt) {
  for (const uint64_t end_ns = monotonic_ns() + kPatienceNs; monotonic_ns() < end_ns;) {
    const Step step = attempt();
    if (step != Step::kBlocked) return step == Step::kMoved;
    if (appliance_.run() > 0) continue;
    // Another thread has to do something, or the kernel.
    pollfd readable = {socket_.number(), POLLIN, 0};
    poll(&readable, 1, 1);
  }
  return false;
}

bool TestClient::send(std::string_view text) {
  while (!text.empty()) {
    const bool has_moved = go_on([&] {
      const ssize_t sent =
          ::send(socket_.number(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent > 0) text.remove_prefix(static_cast<size_t>(sent));
      if (sent > 0) return Step::kMoved;
      return sent < 0 && (errno == EAGAIN || errno == EINTR) ? Step::kBlocked : Step::kEnded;
    });
    if (!has_moved) return false;
  }
  return true;
}

TestClient::Step TestClient::receive_some(std::string* into, size_t bytes_max) {
  char buffer[16 * 1024];
  const ssize_t got =
      recv(socket_.number(), buffer, std::min(bytes_max, sizeof buffer), MSG_DONTWAIT);
  if (got > 0) into->append(buffer, static_cast<size_t>(got));
  if (got > 0) return Step::kMoved;
  return got < 0 && (errno == EAGAIN || errno == EINTR) ? Step::kBlocked : Step::kEnded;
}

std::string TestClient::receive(size_t bytes) {
  std::string all;
  while (all.size() < bytes && go_on([&] { return receive_some(&all, bytes - all.size()); })) {
  }
  return all;
}

std::string TestClient::receive_all() {
  std::string all;
  size_t before = 0;
  uint32_t work = 0;
  const uint64_t end_ns = monotonic_ns() + kPatienceNs;
  do {
    before = all.size();
    work = appliance_.run();
    while (receive_some(&all, SIZE_MAX) == Step::kMoved) {
    }
  } while ((work > 0 || all.size() > before) && monotonic_ns() < end_ns);
  return all;
}

bool TestClient::is_closed() {
  appliance_.run();
  char byte;
  const ssize_t got = recv(socket_.number(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

void TestClient::end_sending() noexcept { shutdown(socket_.number(), SHUT_WR); }

}  // namespace bedplate::testing
