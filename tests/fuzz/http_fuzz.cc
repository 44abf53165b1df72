// Fuzz target of HTTP requests: a session must answer any bytes alike, whole and in parts.
//
// The first byte chooses the size of the parts. `make fuzz-run` builds and runs this.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "alloc/heap_owner.h"
#include "alloc/thread_heaps.h"
#include "apps/http/http_session.h"
#include "apps/testing/session_peer.h"

namespace bedplate {

// Stubs: the heap is the sanitizer's, which has no owners and gives no pages back.
constinit thread_local HeapOwner current_owner;
HeapOwner enter_heap_owner(HeapOwner owner) noexcept { return owner; }
void return_empty_pages() noexcept {}

namespace {

void require(bool kept, const char* what) {
  if (kept) return;
  std::fprintf(stderr, "http_fuzz: broken promise: %s\n", what);
  std::abort();
}

const HttpSite& site() {
  static HttpCounters counters;
  static CountersHeader header;  // without counters
  static HttpSite only;
  static EventLoop loop;
  if (only.own_loop == nullptr) require(loop.create({}).ok(), "there is a loop");
  only.own_loop = &loop;
  only.counters = &counters;
  only.view = CountersView(&header);
  only.is_ready = true;
  only.listeners_max = 1;
  return only;
}

// Replaces the digits of the appliance's age, which may change between two answers.
void hide_age(std::string* answers) {
  constexpr std::string_view kAge = "bedplate_appliance_uptime_seconds{} ";
  for (size_t at = 0; (at = answers->find(kAge, at)) != std::string::npos;) {
    for (at += kAge.size(); at < answers->size() && (*answers)[at] != '\n'; ++at) {
      (*answers)[at] = '0';
    }
  }
}

std::string answers_to(std::string_view input, size_t step) {
  static HttpSession session(site());
  session.reset();
  std::string answers = testing::SessionPeer(session).say(input, step);
  hide_age(&answers);
  require(session.is_valid(), "its invariants hold");
  require(session.is_waiting() || session.is_over() == (session.input().piece_count == 0),
          "what is not over can be heard");
  return answers;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, bytes - 1);
  const HttpReading reading = read_http_request(input);
  require(reading.status != 200 || (reading.bytes <= input.size() &&
                                    input.substr(0, reading.bytes).ends_with("\r\n\r\n")),
          "a request ends with an empty line");
  const std::string whole = answers_to(input, SIZE_MAX);
  require(whole.empty() || whole.starts_with("HTTP/1.1 "), "an answer has its status first");
  require(whole == answers_to(input, size_t{1} + data[0]), "pieces are answered as the whole");
  return 0;
}

}  // namespace bedplate
