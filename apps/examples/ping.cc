// Two processes that exchange messages: `ping SOCKET ann bob` joins the pool of two.toml as ann and
// greets bob, who is started as `ping SOCKET bob ann`. Either may be ping.c.
#include <cstdio>
#include <span>

#include "transport/messages/joined_process.h"

using namespace bedplate;
namespace {

constexpr AmId kHello = 1;
constexpr int kRounds = 3;
constexpr uint64_t kWaitNs = 100'000'000;

uint32_t peer = UINT32_MAX;
bool is_over = false;  // the peer has left, or the pool is gone
int heard = 0;

// Both callbacks run within poll() and wait(), on this thread.
void print(void*, const Message& message) noexcept {
  const auto* text = reinterpret_cast<const char*>(message.payload.data());
  std::printf("heard: %.*s\n", static_cast<int>(message.payload.size()), text);
  ++heard;
}

void on_peer(void*, const PeerEvent& event) noexcept {
  if (event.kind == PeerEventKind::kPoolGone) is_over = true;
  if (event.kind == PeerEventKind::kLeft && event.member == peer) is_over = true;
}

int fail(const Error& error) {
  char text[1024];
  std::fprintf(stderr, "ping: %s\n", format_error(error, text, sizeof text));
  return 1;
}

}  // namespace
int main(int count, char** words) {
  if (count != 4) return std::fputs("usage: ping SOCKET NAME PEER\n", stderr), 2;
  auto joined = JoinedProcess::join(
      {.join = {.socket_path = words[1], .process = words[2]}, .on_peer = {on_peer, nullptr}});
  if (!joined.ok()) return fail(joined.error());
  JoinedProcess& self = *joined.value();
  Messenger& messenger = self.messenger();
  messenger.set_handler(kHello, {print, nullptr});
  while (!is_over && (peer = self.find_member(words[3])) == UINT32_MAX) messenger.wait(kWaitNs);
  auto endpoint = messenger.connect({peer});
  if (!endpoint.ok()) return fail(endpoint.error());
  std::printf("connected to %s\n", words[3]);
  std::fflush(stdout);
  for (int sent = 0; (sent < kRounds || heard < kRounds) && !is_over;) {
    char text[64];
    const int bytes = std::snprintf(text, sizeof text, "%s says hello %d", words[2], sent);
    const auto payload = std::as_bytes(std::span(text, static_cast<size_t>(bytes)));
    if (sent < kRounds && endpoint.value()->am_send(kHello, payload) == SendStatus::kDone) ++sent;
    if (messenger.poll(16) == 0) messenger.wait(kWaitNs);
  }
  self.leave();
  return heard == kRounds ? 0 : 1;
}
