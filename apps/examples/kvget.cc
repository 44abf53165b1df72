// Queries a key-value service by message (docs/kvd.md), and prints the values of the keys: `kvget
// SOCKET NAME KEY...` joins the pool as the [[process]] NAME. A long value is printed from the
// service's cache, without a copy. A process reaches the first shard alone: of a service on several
// shards it gets the keys of that one.
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "transport/messages/joined_process.h"

using namespace bedplate;
namespace {

constexpr AmId kAnswer = 1;
constexpr size_t kKeyBytesMax = 250;
constexpr uint32_t kService = 0;  // the owner of the pool is member 0
constexpr uint64_t kWaitNs = 100'000'000;
enum Found : char { kFound = 0, kNone = 1, kUnreachable = 2, kElsewhere = 3 };

JoinedProcess* joined = nullptr;
bool is_over = false;  // no answer will come
bool is_answered = false;
bool is_found = false;

struct GetNumber : NumberQuery {
  bool is_told = false;
  std::optional<AmId> number;
};

// All callbacks run within poll() and wait(), on this thread.
void take_number(NumberQuery& query, std::optional<AmId> number) noexcept {
  static_cast<GetNumber&>(query).number = number;
  static_cast<GetNumber&>(query).is_told = true;
}

// The message: the question's 4 bytes (unused, as only one question is outstanding); the result; a
// short value. A longer value is lent.
void print_answer(void*, const Message& message) noexcept {
  std::string_view text(reinterpret_cast<const char*>(message.payload.data()),
                        message.payload.size());
  is_answered = true;
  is_found = text.size() >= 5 && text[4] == kFound;
  if (is_found) {
    std::string_view value = text.substr(5);
    if (message.loan.is_there()) {
      value = {reinterpret_cast<const char*>(message.loan.memory.data()),
               message.loan.memory.size()};
    }
    std::printf("%.*s\n", static_cast<int>(value.size()), value.data());
  } else {
    const char result = text.size() >= 5 ? text[4] : char{kUnreachable};
    std::puts(result == kNone        ? "(none)"
              : result == kElsewhere ? "(on another shard)"
                                     : "(not accessible)");
  }
  joined->messenger().release(message.loan);
}

void on_peer(void*, const PeerEvent& event) noexcept {
  if (event.kind == PeerEventKind::kPoolGone) is_over = true;
}

int fail(const Error& error) {
  char text[1024];
  std::fprintf(stderr, "kvget: %s\n", format_error(error, text, sizeof text));
  return 1;
}

// If the queue was full, the question is sent again when a message has come.
template <typename Send>
bool send_until_done(Send send) {
  SendStatus status = send();
  while (status == SendStatus::kAgain && !is_over) {
    joined->messenger().wait(kWaitNs);
    status = send();
  }
  return status == SendStatus::kDone;
}

bool wait_until(const bool& has_come) {
  Messenger& messenger = joined->messenger();
  while (!has_come && !is_over) {
    if (messenger.poll(16) == 0) messenger.wait(kWaitNs);
  }
  return has_come;
}

}  // namespace
int main(int count, char** words) {
  if (count < 4) return std::fputs("usage: kvget SOCKET NAME KEY...\n", stderr), 2;
  auto process = JoinedProcess::join(
      {.join = {.socket_path = words[1], .process = words[2]}, .on_peer = {on_peer, nullptr}});
  if (!process.ok()) return fail(process.error());
  joined = process.value().get();
  Messenger& messenger = joined->messenger();
  messenger.set_handler(kAnswer, {print_answer, nullptr});
  auto service = messenger.connect({kService});
  if (!service.ok()) return fail(service.error());
  GetNumber get;
  get.answered = take_number;
  const bool is_asked =
      send_until_done([&] { return messenger.ask_number(*service.value(), "kvd.get", get); });
  if (!is_asked || !wait_until(get.is_told) || !get.number) {
    return std::fprintf(stderr, "kvget: %s has no kvd\n", words[1]), 1;
  }
  bool are_found = true;
  for (int i = 3; i < count && !is_over; ++i) {
    char question[5 + kKeyBytesMax] = {kAnswer};
    const std::string_view key = words[i];
    if (key.size() > kKeyBytesMax) return std::fprintf(stderr, "kvget: a key is too long\n"), 2;
    key.copy(question + 5, key.size());
    is_answered = false;
    const auto payload = std::as_bytes(std::span(question, 5 + key.size()));
    if (!send_until_done([&] { return service.value()->am_send(*get.number, payload); })) break;
    are_found = wait_until(is_answered) && is_found && are_found;
  }
  joined->leave();
  return are_found && !is_over ? 0 : 1;
}
