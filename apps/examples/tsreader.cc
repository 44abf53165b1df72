// Reads a stream of the relay by messages, and writes the transport stream into a file
// (docs/tsrelay.md):
//
//     tsreader SOCKET NAME STREAM FILE [--keep]
//
// joins the pool as the [[process]] NAME. Each packet is lent in the buffer that the relay received
// it in, without a copy. With --keep it returns no packet, which no reader should do: the relay
// then stops sending.
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "transport/messages/joined_process.h"

using namespace bedplate;
namespace {

constexpr AmId kPacket = 1;
constexpr uint32_t kService = 0;  // the owner of the pool is member 0
constexpr uint64_t kWaitNs = 100'000'000;

JoinedProcess* joined = nullptr;
std::FILE* file = nullptr;
bool keeps = false;
bool is_over = false;     // the appliance is gone
bool is_refused = false;  // no such stream, or no free slot
uint64_t next_number = 0;
uint64_t missing_count = 0;

struct GetNumber : NumberQuery {
  bool is_told = false;
  std::optional<AmId> number;
};

void take_number(NumberQuery& query, std::optional<AmId> number) noexcept {
  static_cast<GetNumber&>(query).number = number;
  static_cast<GetNumber&>(query).is_told = true;
}

// 8 bytes: the packet's number in the stream; 4 bytes: the offset of the transport stream in it.
void take_packet(void*, const Message& message) noexcept {
  uint64_t number;
  uint32_t offset;
  if (!message.loan.is_there() || message.payload.size() != sizeof number + sizeof offset) {
    is_refused = true;
    return joined->messenger().release(message.loan);
  }
  std::memcpy(&number, message.payload.data(), sizeof number);
  std::memcpy(&offset, message.payload.data() + sizeof number, sizeof offset);
  missing_count += number - next_number;
  next_number = number + 1;
  const std::span<const std::byte> payload = message.loan.memory.subspan(offset);
  std::fwrite(payload.data(), 1, payload.size(), file);
  std::fflush(file);
  if (!keeps) joined->messenger().release(message.loan);
}

void on_peer(void*, const PeerEvent& event) noexcept {
  if (event.kind == PeerEventKind::kPoolGone) is_over = true;
}

int fail(const Error& error) {
  char text[1024];
  std::fprintf(stderr, "tsreader: %s\n", format_error(error, text, sizeof text));
  return 1;
}

template <typename Condition>
void wait_until(Condition has_come) {
  Messenger& messenger = joined->messenger();
  while (!has_come() && !is_over) {
    if (messenger.poll(64) == 0) messenger.wait(kWaitNs);
  }
}

template <typename Send>
bool send_until_done(Send send) {
  SendStatus status = send();
  while (status == SendStatus::kAgain && !is_over) {
    joined->messenger().wait(kWaitNs);
    status = send();
  }
  return status == SendStatus::kDone;
}

}  // namespace
int main(int count, char** words) {
  keeps = count == 6 && std::string_view(words[5]) == "--keep";
  if (count != 5 && !keeps) {
    return std::fputs("usage: tsreader SOCKET NAME STREAM FILE [--keep]\n", stderr), 2;
  }
  file = std::fopen(words[4], "wb");
  if (file == nullptr) return std::perror(words[4]), 1;
  auto process = JoinedProcess::join(
      {.join = {.socket_path = words[1], .process = words[2]}, .on_peer = {on_peer, nullptr}});
  if (!process.ok()) return fail(process.error());
  joined = process.value().get();
  Messenger& messenger = joined->messenger();
  messenger.set_handler(kPacket, {take_packet, nullptr});
  auto service = messenger.connect({kService});
  if (!service.ok()) return fail(service.error());
  GetNumber get;
  get.answered = take_number;
  const bool is_asked =
      send_until_done([&] { return messenger.ask_number(*service.value(), "tsrelay.read", get); });
  if (is_asked) wait_until([&] { return get.is_told; });
  if (!is_asked || !get.number) {
    return std::fprintf(stderr, "tsreader: %s has no relay with readers\n", words[1]), 1;
  }
  std::string question(1, static_cast<char>(kPacket));
  question += words[3];
  send_until_done([&] {
    return service.value()->am_send(*get.number, std::as_bytes(std::span<const char>(question)));
  });
  wait_until([] { return is_refused; });
  std::fprintf(stderr, "tsreader: %s after %llu packets, %llu missing\n",
               is_refused ? "refused" : "ended", static_cast<unsigned long long>(next_number),
               static_cast<unsigned long long>(missing_count));
  std::fclose(file);
  joined->leave();
  return is_refused ? 1 : 0;
}
