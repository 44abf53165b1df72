// Requests that are accepted, and requests that are refused, among them those that two readers
// could understand differently.
#include "apps/http/http_request.h"

#include <string>
#include <string_view>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(HttpRequest){
    // Returns the status of a request. Checks that it is the same if the request comes in parts.
    int status(const std::string& text){const HttpReading whole = read_http_request(text);
HttpReading part;
for (size_t bytes = 0; bytes <= text.size() && part.status == 0; ++bytes) {
  part = read_http_request(std::string_view(text).substr(0, bytes));
}
LONGS_EQUAL(whole.status, part.status);
if (whole.status == 200) LONGS_EQUAL(whole.bytes, part.bytes);
return whole.status;
}
int with(const std::string& headers) {
  return status("GET / HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n");
}
bool wants_openmetrics(const std::string& accept) {
  const std::string text = "GET / HTTP/1.0\r\n" + accept + "\r\n";
  const HttpReading reading = read_http_request(text);
  LONGS_EQUAL(200, reading.status);
  return reading.request.wants_openmetrics;
}
}
;

TEST(HttpRequest, IsTakenApart) {
  const std::string text =
      "\r\nHEAD /metrics?x=1 HTTP/1.1\r\nhost:  b:1 \r\nAuthorization: Bearer t\r\n"
      "Connection: keep-alive, Close\r\n\r\nGET";
  const HttpReading reading = read_http_request(text);
  LONGS_EQUAL(200, reading.status);
  LONGS_EQUAL(text.size() - 3, reading.bytes);
  CHECK(reading.request.path == "/metrics");
  CHECK(reading.request.host == "b:1");
  CHECK(reading.request.authorization == "Bearer t");
  CHECK(reading.request.is_head && reading.request.is_last && !reading.request.is_http_10);
}

TEST(HttpRequest, WhatEachIsAnswered) {
  LONGS_EQUAL(200, with(""));
  LONGS_EQUAL(200, with("Content-Length: 0\r\nX-Empty:\r\n"));
  LONGS_EQUAL(200, status("GET / HTTP/1.0\r\n\r\n"));
  LONGS_EQUAL(0, status(""));
  LONGS_EQUAL(0, status("GET / HTTP/1.1\r\nHost: a\r\n"));
  LONGS_EQUAL(405, status("POST / HTTP/1.1\r\n"));
  LONGS_EQUAL(405, status("get / HTTP/1.1\r\n"));
  LONGS_EQUAL(505, status("GET / HTTP/2.0\r\n"));
  LONGS_EQUAL(505, status("GET / HTTP/1.9\r\n"));
  LONGS_EQUAL(414, status("GET /" + std::string(kHttpTargetMax, 'x') + " HTTP/1.1\r\n"));
  LONGS_EQUAL(413, with("Content-Length: 5\r\n"));
  LONGS_EQUAL(413, with("Content-Length: 00000000000000000000000\r\n"));
}

TEST(HttpRequest, WhatIsNoneIsRefused) {
  for (const char* line :
       {"GET /", "GET / HTTP/1.1 x", "GET  / HTTP/1.1", " GET / HTTP/1.1", "GET / http/1.1",
        "GET / HTTP/1.10", "GET * HTTP/1.1", "GET http:///x HTTP/1.1",
        "GET http://me@localhost/ HTTP/1.1", "GET http:/localhost/ HTTP/1.1",
        "GET ftp://localhost/ HTTP/1.1", "GET http://localhost#x HTTP/1.1", "GET ?x HTTP/1.1",
        "G(T / HTTP/1.1", "GET /\x7f HTTP/1.1", "GET /\tx HTTP/1.1", "\x16\x03\x01", "/"}) {
    LONGS_EQUAL(400, status(std::string(line) + "\r\n\r\n"));
  }
  LONGS_EQUAL(400, status("GET / HTTP/1.1\r\n\r\n"));  // without Host
  LONGS_EQUAL(400, status(std::string("GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", 29)));
}

// Proxies get absolute targets: [RFC 9112, 3.2.2].
TEST(HttpRequest, ATargetMayBeAbsolute) {
  const auto read = [](const std::string& target) {
    const std::string text = "GET " + target + " HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    const HttpReading reading = read_http_request(text);
    LONGS_EQUAL(200, reading.status);
    return std::string(reading.request.host) + " " + std::string(reading.request.path);
  };
  STRCMP_EQUAL("localhost:9464 /metrics", read("http://localhost:9464/metrics?x=http://a").c_str());
  STRCMP_EQUAL("[::1] /", read("HTTPS://[::1]").c_str());
  STRCMP_EQUAL("a /", read("Http://a?x").c_str());
  STRCMP_EQUAL("evil.example /x", read("/x").c_str());
  LONGS_EQUAL(400, status("GET http://a/ HTTP/1.1\r\n\r\n"));  // without Host
  LONGS_EQUAL(400, status("GET http://a/ HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"));
}

TEST(HttpRequest, ASchemeHasNoCase) {
  for (const auto& [said, token] : {std::pair<const char*, const char*>{"Bearer t", "t"},
                                    {"bearer  t", "t"},
                                    {"BEARER t", "t"},
                                    {"Basic t", ""},
                                    {"Bearert", ""},
                                    {"Bearer", ""}}) {
    HttpRequest request;
    request.authorization = said;
    CHECK_TRUE(bearer_token(request) == token);
  }
}

// A request is read by itself, whatever bytes follow it.
TEST(HttpRequest, WhatFollowsIsNotLookedAt) {
  LONGS_EQUAL(200, read_http_request("GET / HTTP/1.0\r\n\r\nHEAD /\rx").status);
}

// If a proxy and a server disagree on a request's end, a second request can be smuggled.
TEST(HttpRequest, WhatCouldBeReadInTwoWaysIsRefused) {
  for (const char* headers :
       {"Transfer-Encoding: chunked\r\n", "transfer-encoding: identity\r\n",
        "Content-Length: 0\r\nContent-Length: 0\r\n", "Content-Length: +0\r\n",
        "Content-Length: 0, 0\r\n", "Content-Length:\r\n", "Content-Length : 0\r\n",
        "X: a\r\n b\r\n", "\tX: a\r\n", ": a\r\n", "X\r\n", "X: a\nY: b\r\n", "X: a\rY: b\r\n",
        "Host: a\r\n", "Authorization: a\r\nAuthorization: b\r\n", "X: \x01\r\n"}) {
    LONGS_EQUAL(400, with(headers));
  }
  LONGS_EQUAL(400, status("GET / HTTP/1.0\n\n"));
}

TEST(HttpRequest, FormatIsWhatAcceptPrefers) {
  const std::string open = "application/openmetrics-text";
  CHECK_FALSE(wants_openmetrics(""));
  CHECK_FALSE(wants_openmetrics("Accept: */*\r\n"));
  CHECK(wants_openmetrics("Accept: " + open + "\r\n"));
  CHECK(wants_openmetrics("Accept: text/plain;q=0.5\r\naccept: " + open +
                          "; version=1.0.0;q=0.9\r\n"));
  CHECK_FALSE(wants_openmetrics("Accept: " + open + ";q=0\r\n"));
  CHECK_FALSE(wants_openmetrics("Accept: text/plain," + open + ";q=0.25\r\n"));
  CHECK_FALSE(wants_openmetrics("Accept: " + open + ";q=x\r\n"));
}

TEST(HttpRequest, HostsOfOthers) {
  for (const char* host :
       {"", "127.0.0.1", "10.0.0.1:9464", "[::1]", "[fe80::1]:1", "localhost", "LOCALHOST:9464"}) {
    CHECK(is_own_host(host));
  }
  for (const char* host : {"evil.example", "evil.example:9464", "127.0.0.1.evil.example", "[", "[]",
                           "[::1", "[::1]x", "localhost.evil.example", "1", ":1"}) {
    CHECK_FALSE(is_own_host(host));
    CHECK_FALSE(is_own_host(host, "box.example"));
  }
  for (const char* host : {"box.example", "BOX.example", "Box.Example:9464"}) {
    CHECK(is_own_host(host, "boX.example"));
    CHECK_FALSE(is_own_host(host));
  }
}
