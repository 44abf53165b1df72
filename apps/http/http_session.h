// The session of an HTTP connection (transport/sockets/stream_session_datapath.h).
//
// It answers requests in order. Its memory is two buffers of fixed length: a request that does not
// fit is refused, and a long answer is written in parts, as its client takes them. A client that
// listens to events gets a round each second; between two rounds the session waits for its timer.
// Threads: that of the loop. Nothing is allocated after the construction.
//
// Invariants, which is_valid() checks around each step: 1. The output lies within its buffer. 2. A
// client that listens to events sends no more requests, and is counted, within the limit. 3. The
// timer is armed only while the session waits between two rounds. The functions that write output
// keep one more: 4. No part overwrites output that is not sent.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "apps/counters/counters_view.h"
#include "apps/counters/stats_json.h"
#include "apps/http/event_text.h"
#include "apps/http/http_request.h"
#include "apps/http/lines.h"
#include "apps/http/metrics_text.h"
#include "apps/http/status_page.h"
#include "platform/counter_table.h"
#include "transport/loop/event_loop.h"
#include "transport/sockets/stream_server_counters.h"
#include "transport/sockets/stream_session_datapath.h"

namespace bedplate {

struct HttpCounters {
  Counter requests;
  Counter refused;
  Counter unauthorized;
  Counter listeners;
  StreamServerCounters clients;
};
void describe(CounterTable& table, HttpCounters& counters);

// State that all HTTP connections share.
struct HttpSite {
  CountersView view;  // from the seal on
  std::string token;  // empty: clients need none
  std::string host;   // its host name, accepted besides addresses; empty: none
  std::atomic<bool> is_ready{false};
  uint32_t listeners_max = 0;  // the most clients with events at once
  HttpCounters* counters = nullptr;
  EventLoop* own_loop = nullptr;  // that of the connections
};

class HttpSession final : public StreamSession {
 public:
  // Before the seal: it allocates the timer's slot. `site` outlives this.
  explicit HttpSession(const HttpSite& site) noexcept;

  void late() noexcept override;

  bool is_valid() const noexcept;

 private:
  static constexpr size_t kRequestBytesMax = 8 * 1024;
  static constexpr size_t kHeadBytesMax = 1024;
  static constexpr size_t kOutBytes = EventText::kPieceBytesMin + kHeadBytesMax;
  static_assert(kOutBytes <= 0xffff, "the length of a chunk has four digits");
  // The source of the end of events.
  struct Ended {
    static constexpr size_t kPieceBytesMin = 0;
    size_t write(std::span<char> /*to*/) noexcept { return 0; }
  };
  // The source of an answer that is written in parts.
  using Making = std::variant<std::monostate, Ended, MetricsText, StatsJson, AlertLines, LogLines,
                              StatusPage, EventText>;

  StreamStep work(uint64_t now_ns) noexcept override;
  void released(void* /*loan*/) noexcept override { made_ = 0; }
  void left() noexcept override;

  StreamStep answer_next() noexcept;
  void answer(const HttpRequest& request) noexcept;
  bool is_allowed(const HttpRequest& request) const noexcept;
  void refuse(int status) noexcept;
  void say(int status, std::string_view type, std::string_view body, std::string_view more,
           bool is_head) noexcept;
  void say_events(const HttpRequest& request) noexcept;
  void say_long(const Making& what, std::string_view type, std::string_view more,
                const HttpRequest& request) noexcept;
  StreamStep make_more(uint64_t now_ns) noexcept;
  StreamStep end_answer() noexcept;
  size_t make_piece(std::span<char> to) noexcept;
  StreamStep send_made() noexcept;
  void wait_for_round(uint64_t now_ns) noexcept;
  void look() noexcept;
  void end_listening() noexcept;
  bool has_heard() const noexcept;
  bool is_listening() const noexcept { return std::holds_alternative<EventText>(making_); }
  bool is_making() const noexcept { return !std::holds_alternative<std::monostate>(making_); }

  const HttpSite* site_;
  bool is_last_ = false;     // no more requests are read
  Making making_;            // the source of the next output, once the present output was sent
  uint32_t order_[64] = {};  // the order of sets in StatsJson
  bool is_chunked_ = false;
  uint64_t next_round_ns_ = 0;  // the time of the next round of events
  uint64_t heard_ns_ = 0;       // the last look at which the client had acknowledged everything
  Timer timer_ = {.expired = [](void* self) noexcept { static_cast<HttpSession*>(self)->look(); },
                  .context = this};
  size_t made_ = 0;  // bytes of output that are being sent; 0: none
  char in_[kRequestBytesMax];
  char out_[kOutBytes];
};

}  // namespace bedplate
