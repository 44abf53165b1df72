// The answers of an HTTP session, without a socket.
#include "apps/http/http_session.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/socket.h>

#include "apps/counters/counter_alerts.h"
#include "apps/testing/session_peer.h"
#include "platform/file.h"
#include "platform/recent_lines.h"
#include "platform/units.h"
#include "tests/apps/counters/counters_file_fixture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

struct Failing {
  Counter failed;
};
void describe(CounterTable& table, Failing& counters) {
  table.gauge("failed", counters.failed, "drives", "Failed.").alert_from(1, "it has failed");
}

struct FakePeer final : StreamPeer {
  int fd() const noexcept override { return number; }
  bool is_certified() const noexcept override { return has_certificate; }

  int number = -1;
  bool has_certificate = false;
};

struct Site : HttpSite {
  Site(HttpCounters& its_counters, EventLoop& its_loop) {
    counters = &its_counters;
    own_loop = &its_loop;
  }
};

}  // namespace

TEST_GROUP_BASE(HttpSession, test::CountersFileFixture) {
  uint64_t clock_ns = 1000 * kNsPerSecond;
  EventLoop loop;
  const bool has_loop = loop.create({.test_clock_ns = &clock_ns}).ok();
  HttpCounters counters;
  Site site{counters, loop};
  std::unique_ptr<HttpSession> session = std::make_unique<HttpSession>(site);
  testing::SessionPeer client{*session};

  // Returns all answers to `text` on a new connection. Receives at most `step` bytes at a time.
  std::string said(const std::string& text, size_t step = SIZE_MAX) {
    CHECK(has_loop);
    session->reset();
    client.now_ns = loop.look_at_clock();
    return client.say(text, step);
  }
  // Returns what comes when this much time has passed.
  std::string after(uint64_t ns) {
    clock_ns += ns;
    loop.run_round();
    client.now_ns = clock_ns;
    return client.take();
  }
  std::string get(const std::string& path, const std::string& headers = "") {
    return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n";
  }
  void expect_status(const char* status, const std::string& text) {
    for (const size_t step : {SIZE_MAX, size_t{1}}) {
      STRNCMP_EQUAL((std::string("HTTP/1.1 ") + status).c_str(), said(text, step).c_str(), 12);
    }
  }
  // Returns `metrics` without the line that differs from call to call.
  static std::string without_age(const std::string& metrics) {
    const size_t begin = metrics.find("bedplate_appliance_uptime_seconds{}");
    if (begin == std::string::npos) return metrics;
    return metrics.substr(0, begin) + metrics.substr(metrics.find('\n', begin) + 1);
  }
  // Returns the body of an answer in chunks. Checks that nothing follows it.
  static std::string joined(const std::string& answer) {
    std::string rest = answer.substr(answer.find("\r\n\r\n") + 4), body;
    for (;;) {
      const size_t bytes = std::stoul(rest.substr(0, rest.find("\r\n")), nullptr, 16);
      rest = rest.substr(rest.find("\r\n") + 2);
      body += rest.substr(0, bytes);
      STRCMP_EQUAL("\r\n", rest.substr(bytes, 2).c_str());
      rest = rest.substr(bytes + 2);
      if (bytes == 0) break;
    }
    STRCMP_EQUAL("", rest.c_str());
    return body;
  }
  static void remember(const std::string& line) {
    remember_line((line + "\n").data(), line.size() + 1);
  }
  static size_t count_of(const std::string& text, const std::string& part) {
    size_t count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
      ++count;
    return count;
  }
};

TEST(HttpSession, HealthAndReadiness) {
  STRCMP_EQUAL("HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\n"
               "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
               "Content-Length: 3\r\n\r\nok\n",
               said(get("/healthz")).c_str());
  CHECK_FALSE(session->is_over());
  expect_status("503", get("/readyz"));
  site.is_ready = true;
  expect_status("200", get("/readyz"));
  expect_status("404", get("/nothing"));
  const std::string head = said("HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  STRCMP_CONTAINS("Content-Length: 3\r\n\r\n", head.c_str());
  CHECK(head.ends_with("\r\n\r\n"));
}

// Without the token, the page has no data of the appliance; it asks for the token.
TEST(HttpSession, ThePageIsForAllAndTheNumbersAreNot) {
  site.token = "secret";
  remember("a secret line");
  const std::string page = said(get("/"));
  STRNCMP_EQUAL("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n", page.c_str(), 55);
  STRCMP_CONTAINS("Content-Security-Policy: default-src 'none'; ", page.c_str());
  const std::string body = joined(page);
  CHECK(body.ends_with("</script>\n"));
  CHECK(body.find("secret line") == std::string::npos);
  CHECK(body.find("://") == std::string::npos);  // it loads nothing from other hosts
  expect_status("401", get("/metrics"));
  expect_status("401", get("/log"));
  expect_status("401", get("/stats.json"));
  expect_status("421", "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  CHECK(said("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n").ends_with("\r\n\r\n"));
}

// Even without JavaScript, the page begins with the state and the number of alerts. A bad state is
// not green.
TEST(HttpSession, ThePageSaysItsStateBeforeAnyProgramRuns) {
  const std::vector<CounterSet> sets = {
      {"disk", "drives", "a", sizeof(Failing), described_counters<Failing>()},
      {"disk", "drives", "b", sizeof(Failing), described_counters<Failing>()}};
  test::Running running(directory, "pump-7", sets);
  running.publish();
  CounterAlerts alerts;
  alerts.create(running.file, sets);
  site.view = running.file.view();
  const auto expect_state = [&](const char* class_name, const char* words) {
    const std::string page = joined(said(get("/"), 1000));
    const std::string state =
        std::string("<p><span id=\"state\" role=\"status\" class=\"") + class_name + "\">" + words;
    STRCMP_CONTAINS((state + "</span>").c_str(), page.c_str());
    // The title has the same state, and the name of the appliance. The page begins with the name.
    const std::string name = site.token.empty() ? "pump-7" : "bedplate";
    const bool is_said = std::string_view(class_name) == "bad" && site.token.empty();
    const std::string title = (is_said ? "! " + std::string(words) + " - " : "") + name;
    STRCMP_CONTAINS(("<title>" + title + "</title>").c_str(), page.c_str());
    STRCMP_CONTAINS(("</style>\n<body>\n<h1><span id=\"name\">" + name + "</span>").c_str(),
                    page.c_str());
    CHECK_EQUAL(site.token.empty(), page.find("pump-7") != std::string::npos);
  };
  const auto fail = [&](size_t index) {
    static_cast<Failing*>(running.file.values(sets[index]))->failed.set(1);
    alerts.look(kNsPerSecond);
  };
  expect_state("bad", "Draining, or not ready yet");
  site.is_ready = true;
  expect_state("good", "Ready");
  fail(0);
  expect_state("bad", "1 needs a look");
  fail(1);
  expect_state("bad", "2 need a look");
  expect_status("200", get("/readyz"));
  site.is_ready = false;
  expect_state("bad", "Draining, or not ready yet; 2 need a look");
  site.token = "secret";
  expect_state("bad", "A token is needed");
}

// The log is served as text: it has no HTML and no control characters, and each message is a line.
TEST(HttpSession, TheLogIsText) {
  test::Running running(directory, "a");
  site.view = running.file.view();
  for (int i = 0; i < 30; ++i) remember(std::string(300, '&'));
  remember("</pre><script>alert(1)</script>\n\x1b[2J\xc3\xa9");
  const std::string log = said("GET /log HTTP/1.0\r\n\r\n");
  CHECK(log.ends_with("\n</pre><script>alert(1)</script>  [2J\xc3\xa9\n"));
  CHECK(count_of(log, std::string(300, '&') + "\n") >= 30);
  const std::string page = joined(said(get("/"), 1000));
  STRCMP_CONTAINS("\n&lt;/pre>&lt;script>alert(1)&lt;/script>  [2J\xc3\xa9\n</pre>\n<script>",
                  page.c_str());
  LONGS_EQUAL(1, count_of(page, "</pre>"));
}

TEST(HttpSession, ACertificateStandsForTheToken) {
  FakePeer peer;
  session->set_owner({.peer = &peer});
  site.token = "secret";
  expect_status("401", get("/healthz"));
  peer.has_certificate = true;
  expect_status("200", get("/healthz"));
}

TEST(HttpSession, LongAnswersInChunksAreThoseWithout) {
  test::Running running(directory, "a");
  site.view = running.file.view();
  const std::pair<std::string, std::string> kAll[] = {
      {"/metrics", "bedplate_cache_hits_total{} 0\n"},
      {"/stats.json", "\"services\":{\"cache\":{\"hits\":0,\"held_bytes\":0},"}};
  for (const auto& [path, line] : kAll) {
    const std::string plain = said("GET " + path + " HTTP/1.0\r\n\r\n");
    CHECK(session->is_over());
    const std::string body = plain.substr(plain.find("\r\n\r\n") + 4);
    STRCMP_CONTAINS(line.c_str(), body.c_str());
    const std::string chunked = said(get(path), 7);
    CHECK_FALSE(session->is_over());
    STRCMP_CONTAINS("Transfer-Encoding: chunked\r\n", chunked.c_str());
    STRCMP_EQUAL(without_age(body).c_str(), without_age(joined(chunked)).c_str());
  }
}

// A limited number of clients get events each second, until the appliance drains.
TEST(HttpSession, EventsComeInRounds) {
  test::Running running(directory, "a");
  site.view = running.file.view();
  const std::string ask = "GET /events HTTP/1.0\r\n\r\n";
  expect_status("503", ask);
  site.is_ready = true;
  expect_status("503", ask);
  site.listeners_max = 1;
  remember("a line & another");
  std::string text = said(ask + get("/healthz"), 1000);
  STRCMP_CONTAINS("Content-Type: text/event-stream\r\n", text.c_str());
  text = text.substr(text.find("\r\n\r\n") + 4);
  CHECK(text.starts_with("event:signs\ndata:\n\nevent:log\ndata:"));
  const std::string mark = "data:a line & another\n\nevent:metrics\n";
  const size_t begin = text.find(mark) + mark.size();
  CHECK(begin > mark.size() && text.ends_with("\n\n"));
  std::string metrics;
  for (size_t at = begin; at < text.size() - 1; at = text.find('\n', at) + 1) {
    STRCMP_EQUAL("data:", text.substr(at, 5).c_str());
    metrics += text.substr(at + 5, text.find('\n', at) - at - 4);
  }
  CHECK(session->is_waiting() && !session->is_over());
  LONGS_EQUAL(1, counters.listeners.read());

  HttpSession other(site);
  testing::SessionPeer other_client(other);
  STRNCMP_EQUAL("HTTP/1.1 503", other_client.say(ask).c_str(), 12);
  const std::string plain = other_client.say("GET /metrics HTTP/1.0\r\n\r\n");
  STRCMP_EQUAL("", plain.c_str());  // the 503 was its last answer
  other.reset();
  const std::string asked = other_client.say("GET /metrics HTTP/1.0\r\n\r\n");
  STRCMP_EQUAL(without_age(asked.substr(asked.find("\r\n\r\n") + 4)).c_str(),
               without_age(metrics).c_str());

  STRCMP_EQUAL("", after(1).c_str());
  STRCMP_EQUAL("", after(kNsPerSecond / 2).c_str());
  STRCMP_CONTAINS("event:log\n\nevent:metrics\ndata:", after(kNsPerSecond / 2).c_str());
  remember("a new one");
  STRCMP_CONTAINS("\nevent:log\ndata:a new one\n\n", after(kNsPerSecond).c_str());
  // A client that receives nothing gets no further round.
  clock_ns += kNsPerSecond;
  loop.run_round();
  CHECK(!session->replies().empty() && !session->is_waiting());
  clock_ns += 6 * kNsPerSecond;
  loop.run_round();
  CHECK_FALSE(session->is_waiting());
  session->sent(clock_ns);
  client.take();
  CHECK(session->is_waiting());
  site.is_ready = false;
  STRCMP_EQUAL("", after(kNsPerSecond / 2).c_str());
  CHECK(session->is_over() && !session->is_waiting());
  LONGS_EQUAL(0, counters.listeners.read());
  LONGS_EQUAL(0, counters.clients.connections_timed_out.read());
}

// A client of HTTP 1.1 gets the end of its answer.
TEST(HttpSession, EventsEndInADrain) {
  test::Running running(directory, "a");
  site.view = running.file.view();
  site.is_ready = true;
  site.listeners_max = 1;
  CHECK(said(get("/events")).ends_with("\r\n"));
  site.is_ready = false;
  STRCMP_EQUAL("0\r\n\r\n", after(kNsPerSecond / 2).c_str());
  CHECK(session->is_over() && session->is_valid());
}

// It has not acknowledged the last round.
TEST(HttpSession, AListenerThatHearsNothingIsDropped) {
  int fds[2];
  LONGS_EQUAL(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
  const Fd near(fds[0]), far(fds[1]);
  FakePeer peer;
  peer.number = near.number();
  session->set_owner({.peer = &peer});
  test::Running running(directory, "a");
  site.view = running.file.view();
  site.is_ready = true;
  site.listeners_max = 1;
  said("GET /events HTTP/1.0\r\n\r\n");
  LONGS_EQUAL(1, send(near.number(), "x", 1, MSG_NOSIGNAL));
  for (int i = 0; i < 19; ++i) STRCMP_EQUAL("", after(kNsPerSecond / 2).c_str());
  LONGS_EQUAL(1, counters.listeners.read());
  after(kNsPerSecond / 2);
  CHECK(session->is_over());
  LONGS_EQUAL(0, counters.listeners.read());
  LONGS_EQUAL(1, counters.clients.connections_timed_out.read());
}

TEST(HttpSession, WhatEndsMakesRoomForAnotherListener) {
  test::Running running(directory, "a");
  site.view = running.file.view();
  site.is_ready = true;
  site.listeners_max = 1;
  for (int i = 0; i < 3; ++i) {
    expect_status("200", get("/events"));
    session->leave();
    CHECK_FALSE(session->is_waiting());
  }
  LONGS_EQUAL(0, counters.listeners.read());
  CHECK(said("HEAD /events HTTP/1.1\r\nHost: a\r\n\r\n").ends_with("\r\n\r\n"));
  LONGS_EQUAL(0, counters.listeners.read());
}

TEST(HttpSession, PipelinedRequestsAreAnsweredInTheirOrder) {
  const std::string three = get("/healthz") + get("/nothing") + get("/healthz");
  for (const size_t step : {SIZE_MAX, size_t{1}, size_t{100}}) {
    const std::string answers = said(three, step);
    LONGS_EQUAL(3, count_of(answers, "HTTP/1.1 "));
    CHECK(answers.find("HTTP/1.1 200") < answers.find("HTTP/1.1 404"));
    CHECK(answers.ends_with("ok\n"));
  }
}

TEST(HttpSession, NothingIsReadAfterARefusal) {
  const std::string bad = "GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string answers = said(bad + get("/healthz"));
  LONGS_EQUAL(1, count_of(answers, "HTTP/1.1 "));
  STRCMP_CONTAINS("HTTP/1.1 400 Bad Request\r\n", answers.c_str());
  STRCMP_CONTAINS("Connection: close\r\n", answers.c_str());
  CHECK(session->is_over());
  LONGS_EQUAL(0, session->input().piece_count);
}

TEST(HttpSession, WhatDoesNotFitIsRefused) {
  expect_status("414", "GET /" + std::string(9000, 'x'));
  expect_status("431", get("/", "X: " + std::string(9000, 'x') + "\r\n"));
  expect_status("413", get("/", "Content-Length: 1\r\n"));
  STRCMP_EQUAL("", said("GET").c_str());
  CHECK(session->progress().has_begun);
  session->late();
  STRNCMP_EQUAL("HTTP/1.1 408", client.take().c_str(), 12);
  CHECK(session->is_over());
}

TEST(HttpSession, TokenAndHost) {
  site.token = "0123456789abcdef";
  expect_status("401", get("/healthz"));
  expect_status("401", get("/healthz", "Authorization: Bearer 0123456789abcdeF\r\n"));
  expect_status("401", get("/healthz", "Authorization: Bearer 0123456789abcdef0\r\n"));
  expect_status("401", get("/healthz", "Authorization: Basic 0123456789abcdef\r\n"));
  expect_status("200", get("/healthz", "Authorization: Bearer 0123456789abcdef\r\n"));
  site.token.clear();
  const std::string other = "GET /healthz HTTP/1.1\r\nHost: box.example:9464\r\n\r\n";
  expect_status("421", other);
  site.host = "box.example";
  expect_status("200", other);
}
