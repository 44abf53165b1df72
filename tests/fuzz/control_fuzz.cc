// Fuzz target of the control socket's lines: any bytes must get the same answers whole and in
// parts, each answer must be JSON-RPC, and the counters must add up, also if a shard is late.
//
// The lowest bit of the first byte chooses whether shards are late, the other bits the size of the
// parts. `make fuzz-run` builds and runs this.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "alloc/heap_owner.h"
#include "alloc/thread_heaps.h"
#include "apps/control/control_session.h"
#include "apps/testing/session_peer.h"
#include "platform/units.h"

namespace bedplate {

// Stubs: the heap is the sanitizer's, which has no owners and gives no pages back.
constinit thread_local HeapOwner current_owner;
HeapOwner enter_heap_owner(HeapOwner owner) noexcept { return owner; }
void return_empty_pages() noexcept {}

namespace {

void require(bool kept, const char* what) {
  if (kept) return;
  std::fprintf(stderr, "control_fuzz: broken promise: %s\n", what);
  std::abort();
}

// A loop, whose clock the fuzzer sets.
class Shard {
 public:
  explicit Shard(const uint64_t& clock_ns) {
    require(loop_.create({.test_clock_ns = &clock_ns}).ok(), "there is a loop");
  }
  EventLoop& loop() noexcept { return loop_; }
  void run() { loop_.run_round(); }

 private:
  EventLoop loop_;
};

struct Appliance {
  uint64_t clock_ns = kNsPerSecond;
  Shard own{clock_ns};  // that of the sessions
  Shard shard{clock_ns};
  ControlMethods methods;
  ControlCounters counters;
  ControlSite site;

  Appliance() {
    site.methods = &methods;
    site.counters = &counters;
    site.own_loop = &own.loop();
    methods.add(
        {.name = "echo",
         .parameters = {{.name = "text"},
                        {.name = "number", .type = ControlType::kNumber, .is_required = false},
                        {.name = "yes", .type = ControlType::kBoolean, .is_required = false}}},
        [](void*, ControlCall& call) noexcept {
          call.result().begin_array().text(call.text("text")).number(call.number("number"));
          call.result().boolean(call.boolean("yes")).end_array();
        },
        this);
    methods.add(
        {.name = "long", .parameters = {{.name = "pages", .type = ControlType::kNumber}}},
        [](void*, ControlCall& call) noexcept {
          if (call.page() == 0) call.result().begin_array();
          call.result().number(call.page());
          const bool is_last = call.page() + 1 >= call.number("pages") || call.page() == 9;
          is_last ? (void)call.result().end_array() : call.more(call.page() + 1);
        },
        this);
    methods.add(
        {.name = "cache.flush", .parameters = {{.name = "key"}}},
        [](void* self, ControlCall& call) noexcept {
          call.go_on(
              static_cast<Appliance*>(self)->shard.loop(),
              [](void*, ControlCall& there) noexcept {
                Error error;
                if (there.text("key").empty()) there.refuse(error.set_answer("it has no key"));
                if (there.page() == 0) there.result().begin_array();
                there.result().text(there.text("key"));
                const bool is_last = there.text("key") != "more" || there.page() == 3;
                is_last ? (void)there.result().end_array() : there.more(there.page() + 1);
              },
              self);
        },
        this);
  }
};

struct Said {
  std::string answers;
  uint64_t requests = 0;
  uint64_t refused = 0;
};

Said answers_to(std::string_view input, size_t step, bool is_late) {
  static Appliance appliance;
  static ControlSession session(appliance.site);
  const uint64_t requests = appliance.counters.requests.read();
  const uint64_t refused = appliance.counters.refused.read();
  session.reset();
  testing::SessionPeer peer(session);
  Said said;
  // Takes as much of the input as the session does before it waits.
  const auto go_on = [&] {
    said.answers += peer.take();
    while (!session.is_waiting() && !session.is_over() && peer.give(&input, step) > 0) {
      said.answers += peer.take();
    }
  };
  for (go_on(); session.is_waiting(); go_on()) {
    if (is_late) {
      appliance.clock_ns += ControlSession::kPatienceNs;
      appliance.own.run();
      require(session.late_loop() != nullptr, "what is late is known");
      require(session.is_over(), "what is late ends its connection");
    }
    appliance.shard.run();
    appliance.own.run();
    require(session.late_loop() == nullptr, "what was done is not late");
  }
  said.answers += peer.take();
  require(session.is_valid(), "its invariants hold");
  said.requests = appliance.counters.requests.read() - requests;
  said.refused = appliance.counters.refused.read() - refused;
  return said;
}

// Checks that each line is an answer with one result or error.
void look_at(const Said& said) {
  uint64_t results = 0;
  uint64_t errors = 0;
  std::string_view rest = said.answers;
  for (size_t end = rest.find('\n'); end != rest.npos; end = rest.find('\n')) {
    const auto json = nlohmann::json::parse(rest.substr(0, end), nullptr, false);
    require(json.is_object() && json.size() == 3 && json.value("jsonrpc", "") == "2.0" &&
                json.contains("id") && json.contains("result") != json.contains("error"),
            "an answer is one of JSON-RPC");
    ++(json.contains("result") ? results : errors);
    rest.remove_prefix(end + 1);
  }
  require(rest.empty(), "an answer is a line");
  require(errors <= said.refused && results + said.refused <= said.requests,
          "a request is answered or refused, once");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, bytes - 1);
  const bool is_late = (data[0] & 1) != 0;
  const Said whole = answers_to(input, SIZE_MAX, is_late);
  look_at(whole);
  const Said pieces = answers_to(input, size_t{1} + data[0] / 2, is_late);
  require(whole.answers == pieces.answers, "pieces are answered as the whole");
  require(whole.requests == pieces.requests && whole.refused == pieces.refused,
          "pieces are counted as the whole");
  return 0;
}

}  // namespace bedplate
