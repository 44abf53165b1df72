// An HTTP connection without its socket: received bytes go in, bytes to send come out.
//
// It answers requests in order. Its memory is two buffers of fixed length: a request that does not
// fit is refused, and a long answer is written in parts, as its client takes them. Threads: one.
// Nothing is allocated.
//
// Invariants, which is_valid() checks before and after each call that changes it: 1. The input and
// the output lie within their buffers; output that was sent whole is gone. 2. An answer in progress
// has output, except for events between two rounds. 3. A client that listens to events sends no
// more requests, and is counted, within the limit. 4. The input buffer has space if more may come.
// The functions that write output keep one more: 5. No part overwrites output that is not sent.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "apps/connections/connection_session.h"
#include "apps/counters/counters_view.h"
#include "apps/counters/stats_json.h"
#include "apps/http/event_text.h"
#include "apps/http/http_request.h"
#include "apps/http/lines.h"
#include "apps/http/metrics_text.h"
#include "apps/http/status_page.h"
#include "platform/counter_table.h"

namespace bedplate {

struct HttpCounters {
  Counter requests;
  Counter refused;
  Counter unauthorized;
  Counter listeners;
  ServedCounters connections;
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
};

class HttpSession final : public ConnectionSession {
 public:
  // `site` outlives this.
  explicit HttpSession(const HttpSite& site) noexcept : site_(&site) {}

  void open(int fd) noexcept override;
  void closed() noexcept override;
  std::span<char> room() noexcept override;
  void received(size_t bytes) noexcept override;
  std::string_view output() const noexcept override { return {out_ + sent_, made_ - sent_}; }
  void sent(size_t bytes) noexcept override;
  bool is_over() const noexcept override { return is_last_ && !is_making(); }
  bool is_in_request() const noexcept override {
    return received_ > 0 && output().empty() && !is_waiting();
  }
  void time_out() noexcept override;
  // Whether it is between two rounds of events.
  bool is_waiting() const noexcept override { return is_listening() && output().empty(); }
  void look(uint64_t now_ns) noexcept override;
  void peer_is_certified() noexcept override { is_certified_ = true; }

  bool is_valid() const noexcept;

 private:
  static constexpr size_t kRequestBytesMax = 8 * 1024;
  static constexpr size_t kHeadBytesMax = 1024;
  static constexpr size_t kOutBytes = EventText::kPieceBytesMin + kHeadBytesMax;
  static_assert(kOutBytes <= 0xffff, "the length of a chunk has four digits");
  // The source of an answer that is written in parts.
  using Making = std::variant<std::monostate, MetricsText, StatsJson, AlertLines, LogLines,
                              StatusPage, EventText>;

  void go_on() noexcept;
  void answer(const HttpRequest& request) noexcept;
  bool is_allowed(const HttpRequest& request) const noexcept;
  void refuse(int status) noexcept;
  void say(int status, std::string_view type, std::string_view body, std::string_view more,
           bool is_head) noexcept;
  void say_events(const HttpRequest& request) noexcept;
  void say_long(const Making& what, std::string_view type, std::string_view more,
                const HttpRequest& request) noexcept;
  void make_more() noexcept;
  size_t make_piece(std::span<char> to) noexcept;
  bool has_heard() const noexcept;
  bool is_listening() const noexcept { return std::holds_alternative<EventText>(making_); }
  bool is_making() const noexcept { return !std::holds_alternative<std::monostate>(making_); }

  const HttpSite* site_;
  bool is_last_ = false;     // no more requests are read
  Making making_;            // the source of the next output, once output() was sent
  uint32_t order_[64] = {};  // the order of sets in StatsJson
  bool is_chunked_ = false;
  int fd_ = -1;
  uint64_t next_round_ns_ = 0;  // the time of the next round of events
  uint64_t heard_ns_ = 0;       // the last look() at which the client had acknowledged everything
  bool is_certified_ = false;   // its certificate replaces the token
  size_t received_ = 0;
  size_t made_ = 0;
  size_t sent_ = 0;
  char in_[kRequestBytesMax] = {};
  char out_[kOutBytes] = {};
};

}  // namespace bedplate
