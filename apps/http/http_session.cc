#include "apps/http/http_session.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "platform/assert.h"
#include "platform/text_writer.h"
#include "platform/units.h"

namespace bedplate {
namespace {

constexpr std::string_view kPlain = "text/plain; charset=utf-8";
constexpr std::string_view kEvents = "text/event-stream";
constexpr std::string_view kHtml = "text/html; charset=utf-8";
constexpr std::string_view kPrometheus = "text/plain; version=0.0.4; charset=utf-8";
constexpr std::string_view kJson = "application/json";
constexpr std::string_view kOpenMetrics =
    "application/openmetrics-text; version=1.0.0; charset=utf-8";
// A chunk's length as four digits, and the two line ends.
constexpr size_t kChunkHeadBytes = 6;
constexpr std::string_view kChunkEnd = "\r\n";
constexpr std::string_view kLastChunk = "0\r\n\r\n";
constexpr uint64_t kRoundNs = kNsPerSecond;
constexpr uint64_t kDrainLookNs = 500 * kNsPerMs;  // the longest delay until it notices a drain
constexpr uint64_t kSlowNs = 10 * kNsPerSecond;    // the most time to deliver a round

std::string_view reason_of(int status) noexcept {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 421: return "Misdirected Request";
    case 431: return "Request Header Fields Too Large";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Error";
  }
}

std::string_view more_of(int status) noexcept {
  if (status == 401) return "WWW-Authenticate: Bearer realm=\"bedplate\"\r\n";
  if (status == 405) return "Allow: GET, HEAD\r\n";
  return "";
}

// Compares in constant time, whatever the position of a difference.
bool is_equal(std::string_view one, std::string_view other) noexcept {
  if (one.size() != other.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    difference |= static_cast<unsigned char>(one[i]) ^ static_cast<unsigned char>(other[i]);
  }
  return difference == 0;
}

void write_head(int status, std::string_view type, std::string_view more, bool is_last,
                TextWriter* writer) noexcept {
  writer->text("HTTP/1.1 ").number(static_cast<uint64_t>(status)).text(" ").text(reason_of(status));
  writer->text("\r\nContent-Type: ").text(type).text("\r\n").text(more);
  writer->text("Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n");
  if (is_last) writer->text("Connection: close\r\n");
}

}  // namespace

void describe(CounterTable& table, HttpCounters& counters) {
  table.counter("requests", counters.requests, "requests", "Answered requests.")
      .at_a_glance("requests");
  table.counter("refused", counters.refused, "requests", "Requests answered with an error.")
      .alert_as_it_grows(
          "{refused} requests were answered with an error so far ({unauthorized} lacked the "
          "token): check what its clients request");
  table.counter("unauthorized", counters.unauthorized, "requests", "Requests without the token.")
      .no_alert("refused counts them, and its alert says so");
  table.gauge("listeners", counters.listeners, "clients", "Clients that read /events now.");
  describe(table, counters.clients, "max_connections");
}

HttpSession::HttpSession(const HttpSite& site) noexcept
    : StreamSession(in_, std::span(out_).first<2 * kStepTextBytes>()), site_(&site) {
  // The base class never writes to that: all answers are lent, none is said.
  site.own_loop->own_timers().reserve_more(1);
}

bool HttpSession::is_valid() const noexcept {
  if (made_ > sizeof out_ || !StreamSession::is_valid()) return false;
  if (timer_.is_armed() && (!is_waiting() || !is_listening())) return false;
  if (!is_listening()) return true;
  const uint64_t listeners = site_->counters->listeners.read();
  return is_last_ && listeners > 0 && listeners <= site_->listeners_max;
}

StreamStep HttpSession::work(uint64_t now_ns) noexcept {
  BP_DCHECK_SLOW(is_valid());
  if (made_ > 0) return StreamStep::kStarved;  // the last part is being sent
  return is_making() ? make_more(now_ns) : answer_next();
}

void HttpSession::late() noexcept {
  refuse(408);
  send_made();
}

void HttpSession::left() noexcept {
  site_->own_loop->own_timers().cancel(timer_);
  end_listening();
  making_ = {};
  is_last_ = is_chunked_ = false;
  if (is_waiting()) resume(site_->own_loop->now_ns());
}

void HttpSession::end_listening() noexcept {
  if (is_listening()) site_->counters->listeners.add(~uint64_t{0});
}

// Sends the output, if there is any. Ends the session after the last answer.
StreamStep HttpSession::send_made() noexcept {
  if (made_ > 0) lend({out_, made_}, this);
  if (is_last_ && !is_making()) end();
  return StreamStep::kTaken;
}

// Answers the next request once it is complete.
StreamStep HttpSession::answer_next() noexcept {
  if (arrived().empty()) return StreamStep::kStarved;
  const HttpReading reading = read_http_request(arrived());
  if (reading.status == 0) {
    if (!is_input_full()) return StreamStep::kStarved;
    refuse(arrived().find('\n') != std::string_view::npos ? 431 : 414);
  } else if (reading.status != 200) {
    refuse(reading.status);
  } else {
    site_->counters->requests.add(1);
    if (reading.request.is_last) is_last_ = true;
    answer(reading.request);
    BP_DCHECK(made_ > 0);  // else the client would wait for ever
    take(reading.bytes);
  }
  return send_made();
}

bool HttpSession::is_allowed(const HttpRequest& request) const noexcept {
  if (site_->token.empty() || (peer() != nullptr && peer()->is_certified())) return true;
  return is_equal(bearer_token(request), site_->token);
}

void HttpSession::answer(const HttpRequest& request) noexcept {
  int status = 200;
  if (!is_own_host(request.host, site_->host)) {
    status = 421;
  } else if (request.path == "/") {
    // Every client gets the page: without `told` it has no numbers, and its script needs the token
    // to get them.
    std::optional<StatusPage::Told> told;
    if (is_allowed(request)) {
      told = {.is_ready = site_->is_ready.load(std::memory_order_relaxed)};
    }
    say_long(StatusPage(site_->view, told), kHtml, kStatusPageHeaders, request);
    return;
  } else if (!is_allowed(request)) {
    status = 401;
    site_->counters->unauthorized.add(1);
  } else if (request.path == "/healthz") {
    say(200, kPlain, "ok\n", "", request.is_head);
    return;
  } else if (request.path == "/readyz") {
    status = site_->is_ready.load(std::memory_order_relaxed) ? 200 : 503;
    if (status == 200) {
      say(200, kPlain, "ready\n", "", request.is_head);
      return;
    }
  } else if (request.path == "/signs") {
    say_long(AlertLines(site_->view, LineFormat::kText), kPlain, "", request);
    return;
  } else if (request.path == "/log") {
    say_long(LogLines(LineFormat::kText), kPlain, "", request);
    return;
  } else if (request.path == "/events") {
    say_events(request);
    return;
  } else if (request.path == "/metrics") {
    const bool is_open = request.wants_openmetrics;
    const MetricsText metrics(site_->view,
                              is_open ? MetricsFormat::kOpenMetrics : MetricsFormat::kPrometheus);
    say_long(metrics, is_open ? kOpenMetrics : kPrometheus, "Vary: Accept\r\n", request);
    return;
  } else if (request.path == "/stats.json") {
    say_long(StatsJson(site_->view, audit_of(site_->view, true), {}, order_), kJson, "", request);
    return;
  } else {
    status = 404;
  }
  site_->counters->refused.add(1);
  say(status, kPlain, "", more_of(status), request.is_head);
}

// Refuses a bad request. The start of the next request is unknown, so this is the last answer.
void HttpSession::refuse(int status) noexcept {
  site_->counters->requests.add(1);
  site_->counters->refused.add(1);
  is_last_ = true;
  take(arrived().size());
  say(status, kPlain, "", more_of(status), false);
}

// Writes a short answer. If `body` is empty, it is the status's own text.
void HttpSession::say(int status, std::string_view type, std::string_view body,
                      std::string_view more, bool is_head) noexcept {
  BP_DCHECK(made_ == 0 && !is_making());
  const std::string_view reason = reason_of(status);
  BP_DCHECK(reason != reason_of(0));  // a status with a text of its own
  TextWriter writer({out_, sizeof out_});
  write_head(status, type, more, is_last_, &writer);
  writer.text("Content-Length: ").number(body.empty() ? reason.size() + 1 : body.size());
  writer.text("\r\n\r\n");
  if (!is_head && body.empty()) writer.text(reason).text("\n");
  BP_ASSERT(!writer.is_full());
  made_ = writer.bytes();
  if (is_head) return;
  BP_ASSERT(made_ <= kHeadBytesMax && body.size() <= sizeof out_ - made_);
  if (!body.empty()) std::memcpy(out_ + made_, body.data(), body.size());
  made_ += body.size();
}

// Answers /events. This is the last answer of the connection; it ends with the connection, or when
// the appliance drains.
void HttpSession::say_events(const HttpRequest& request) noexcept {
  const bool is_ready = site_->is_ready.load(std::memory_order_relaxed);
  if (!is_ready || site_->counters->listeners.read() >= site_->listeners_max) {
    char text[160];
    TextWriter why(text);
    if (is_ready) {
      why.text("Too many clients read /events; the limit is ").number(site_->listeners_max);
      why.text(", half of max_connections.\n");
    } else {
      why.text("The appliance is draining.\n");
    }
    site_->counters->refused.add(1);
    say(503, kPlain, {text, why.bytes()}, "Retry-After: 10\r\n", request.is_head);
    return;
  }
  BP_DCHECK(!is_listening());
  is_last_ = true;
  say_long(EventText(site_->view), kEvents, "", request);
  if (is_listening()) site_->counters->listeners.add(1);
  next_round_ns_ = heard_ns_ = 0;
}

// Whether the client has acknowledged all bytes. At most one round is unacknowledged.
bool HttpSession::has_heard() const noexcept {
  int unheard_bytes = 0;
  const int fd = peer() == nullptr ? -1 : peer()->fd();
  return ioctl(fd, SIOCOUTQ, &unheard_bytes) != 0 || unheard_bytes == 0;
}

// A round is over.
void HttpSession::wait_for_round(uint64_t now_ns) noexcept {
  if (next_round_ns_ == 0) next_round_ns_ = now_ns + kRoundNs;
  heard_ns_ = now_ns;
  site_->own_loop->own_timers().arm(timer_, std::min(next_round_ns_, now_ns + kDrainLookNs));
}

// Begins the next round if it is due. Ends the events if the client is slow, or the appliance
// drains.
void HttpSession::look() noexcept {
  BP_DCHECK(is_listening() && is_waiting());
  const uint64_t now_ns = site_->own_loop->now_ns();
  if (has_heard()) heard_ns_ = now_ns;
  const bool is_slow = now_ns - heard_ns_ >= kSlowNs;
  if (is_slow) site_->counters->clients.connections_timed_out.add(1);
  if (is_slow || !site_->is_ready.load(std::memory_order_relaxed)) {
    end_listening();
    making_ = Ended();
    return resume(now_ns);
  }
  if (now_ns < next_round_ns_ || heard_ns_ != now_ns) {
    const uint64_t look_ns = now_ns + kDrainLookNs;
    const bool is_due = now_ns >= next_round_ns_;
    return site_->own_loop->own_timers().arm(timer_,
                                             is_due ? look_ns : std::min(next_round_ns_, look_ns));
  }
  next_round_ns_ = now_ns + kRoundNs;
  std::get_if<EventText>(&making_)->begin_round();
  resume(now_ns);
}

// Begins an answer that is written in parts, as the client takes them. HEAD gets only the head.
void HttpSession::say_long(const Making& what, std::string_view type, std::string_view more,
                           const HttpRequest& request) noexcept {
  BP_DCHECK(made_ == 0 && !is_making());
  is_chunked_ = !request.is_http_10;
  making_ = request.is_head ? Making() : what;
  TextWriter writer({out_, sizeof out_});
  write_head(200, type, more, is_last_, &writer);
  if (is_chunked_ && !request.is_head) writer.text("Transfer-Encoding: chunked\r\n");
  writer.text("\r\n");
  BP_DCHECK(!writer.is_full() && writer.bytes() <= kHeadBytesMax);
  made_ = writer.bytes();
}

// Writes the next part and returns its bytes; 0: all is written.
size_t HttpSession::make_piece(std::span<char> to) noexcept {
  return std::visit(
      [to]<typename Text>(Text& text) noexcept -> size_t {
        if constexpr (std::is_same_v<Text, std::monostate>) {
          return 0;
        } else {
          static_assert(Text::kPieceBytesMin <= EventText::kPieceBytesMin);
          return text.write(to);
        }
      },
      making_);
}

// Writes the next part, as a chunk if the client knows chunks.
StreamStep HttpSession::make_more(uint64_t now_ns) noexcept {
  BP_DCHECK(made_ == 0 && is_making());
  const size_t head = is_chunked_ ? kChunkHeadBytes : 0;
  const size_t tail = is_chunked_ ? kChunkEnd.size() : 0;
  const size_t bytes = make_piece({out_ + head, sizeof out_ - head - tail});
  BP_ASSERT(bytes <= sizeof out_ - head - tail);
  if (bytes == 0 && is_listening()) {
    wait_for_round(now_ns);
    return StreamStep::kWaits;
  }
  if (bytes == 0) return end_answer();
  made_ = head + bytes + tail;
  if (is_chunked_) {
    for (size_t i = 0; i < 4; ++i) out_[i] = "0123456789abcdef"[bytes >> (4 * (3 - i)) & 15];
    std::memcpy(out_ + 4, kChunkEnd.data(), kChunkEnd.size());
    std::memcpy(out_ + head + bytes, kChunkEnd.data(), kChunkEnd.size());
  }
  return send_made();
}

// All of the answer is written.
StreamStep HttpSession::end_answer() noexcept {
  making_ = {};
  if (is_chunked_) made_ = kLastChunk.copy(out_, sizeof out_);
  return send_made();
}

}  // namespace bedplate
