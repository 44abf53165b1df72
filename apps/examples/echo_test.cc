// The unit test of the echo service (echo.cc), with the test kit (docs/testing.md). It needs no
// test framework: it prints what is wrong, and its exit code is 1 then.
#include <cstdio>
#include <string>

#include "apps/testing/test_appliance.h"

// The service and its program are one file: here the program's main is a function like others.
#define main echo_main
#include "echo.cc"
#undef main

namespace {

using testing::TestAppliance;
using testing::TestClient;

const char* const kTables = "[echo]\n"
                            "listen = [\"tcp:127.0.0.1:7007\"]\n"
                            "max_connections = 2\n";
int failed_count = 0;

void expect(bool is_right, const char* what, const std::string& seen = "") {
  if (is_right) return;
  std::fprintf(stderr, "failed: %s%s%s\n", what, seen.empty() ? "" : ": ", seen.c_str());
  ++failed_count;
}

void clients_get_back_what_they_send() {
  Echo echo;
  TestAppliance appliance({&echo});
  const std::string problems = appliance.boot(kTables);
  if (!problems.empty()) return expect(false, "it boots", problems);
  TestClient one = appliance.connect("echo", "listen");
  TestClient other = appliance.connect("echo", "listen");
  const std::string text(100'000, 'e');
  std::string seen;
  one.send("hello");
  for (size_t at = 0; at < text.size(); at += 4'000) {
    other.send(text.substr(at, 4'000));
    seen += other.receive(4'000);
  }
  expect(seen == text, "100,000 bytes come back");
  expect(one.receive(5) == "hello", "five bytes come back");
  expect(appliance.counter("echo", "bytes") == 100'005, "its counter of bytes");
}

void one_client_too_many_is_turned_away() {
  Echo echo;
  TestAppliance appliance({&echo});
  expect(appliance.boot(kTables).empty(), "it boots");
  TestClient first = appliance.connect("echo", "listen");
  TestClient second = appliance.connect("echo", "listen");
  TestClient third = appliance.connect("echo", "listen");
  expect(third.is_closed(), "the third of two clients is turned away");
  first.close();
  appliance.run();
  TestClient fourth = appliance.connect("echo", "listen");
  fourth.send("hello");
  expect(fourth.receive(5) == "hello", "there is space after a client has left");
  expect(appliance.counter("echo", "connections") == 3, "its counter of connections");
}

void a_drain_ends_its_connections() {
  Echo echo;
  TestAppliance appliance({&echo});
  expect(appliance.boot(kTables).empty(), "it boots");
  TestClient client = appliance.connect("echo", "listen");
  client.send("hello");
  expect(client.receive(5) == "hello", "five bytes come back");
  expect(appliance.drain(), "it is drained in time");
  expect(client.is_closed(), "the drain ends the connection");
}

void a_wrong_value_is_refused_by_its_line() {
  Echo echo;
  TestAppliance appliance({&echo});
  const std::string problems = appliance.plan("[echo]\nlisten = []\nmax_connections = 9999\n");
  expect(problems.find("configuration:2:") != std::string::npos, "line 2 is refused", problems);
  expect(problems.find("configuration:3:19: \"max_connections\" is 9999") != std::string::npos,
         "line 3 is refused", problems);
}

}  // namespace

int main() {
  clients_get_back_what_they_send();
  one_client_too_many_is_turned_away();
  a_drain_ends_its_connections();
  a_wrong_value_is_refused_by_its_line();
  std::printf("%d failed\n", failed_count);
  return failed_count == 0 ? 0 : 1;
}
