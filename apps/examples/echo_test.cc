// The unit test of the echo service (echo.cc), with the test kit (docs/testing.md). It needs no
// test framework: it prints what is wrong, and its exit code is 1 then.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "apps/testing/test_appliance.h"

// The service and its program are one file: here the program's main is a function like others.
#define main echo_main
#include "echo.cc"
#undef main

namespace {

using testing::MemoryFile;
using testing::MessagePeer;
using testing::TestAppliance;
using testing::TestClient;

const char* const kTables = "[echo]\n"
                            "listen = [\"tcp:127.0.0.1:7007\"]\n"
                            "journal = \"/journal\"\n"
                            "max_connections = 2\n";
int failed_count = 0;

void expect(bool is_right, const char* what, const std::string& seen = "") {
  if (is_right) return;
  std::fprintf(stderr, "failed: %s%s%s\n", what, seen.empty() ? "" : ": ", seen.c_str());
  ++failed_count;
}

void a_line_is_kept_before_it_comes_back() {
  Echo echo;
  TestAppliance appliance({&echo});
  expect(appliance.plan(kTables).empty(), "its plan");
  MemoryFile& journal = appliance.file("echo", "journal");
  expect(appliance.create().empty(), "it gets what it has planned");
  appliance.start();
  TestClient client = appliance.connect("echo", "listen");
  journal.hold();
  client.send("hello\nworld\n");
  appliance.run();
  expect(appliance.counter("echo", "answers_waiting") == 1, "the first line waits");
  journal.release();
  expect(client.receive(12) == "hello\nworld\n", "both lines come back");
  expect(journal.content == "hello\nworld\n", "both lines are in the journal");
  journal.fail(FileAction::kWrite, ENOSPC);
  client.send("again\n");
  expect(client.receive(15) == "cannot be kept\n", "a full disk is told");
  expect(appliance.drain(), "it is drained in time");
  expect(client.is_closed(), "the drain ends the connection");
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
  fourth.send("hello\n");
  expect(fourth.receive(6) == "hello\n", "there is space after a client has left");
  expect(appliance.counter("echo", "lines") == 1, "its counter of lines");
}

void a_line_that_is_too_long_ends_the_connection() {
  Echo echo;
  TestAppliance appliance({&echo});
  expect(appliance.boot(kTables).empty(), "it boots");
  TestClient client = appliance.connect("echo", "listen");
  client.send(std::string(4'000, 'e'));
  expect(client.is_closed(), "it is closed");
}

void a_process_gets_back_what_it_sends_and_lends() {
  Echo echo;
  TestAppliance appliance({&echo});
  expect(appliance.plan(kTables).empty(), "its plan");
  MessagePeer& ann = appliance.add_peer("ann");
  expect(appliance.create().empty(), "it gets what it has planned");
  appliance.start();
  const std::span<std::byte> block = ann.memory(64);
  std::memset(block.data(), 'e', block.size());
  expect(ann.send("echo.say", "hello") == SendStatus::kDone, "a message is taken");
  expect(ann.lend("echo.say", "", block) == SendStatus::kPending, "a loan is taken");
  appliance.run();
  expect(ann.received.size() == 2, "two answers");
  if (ann.received.size() != 2) return;
  expect(ann.received[0].id == 1 && ann.received[0].payload == "hello", "the message comes back");
  expect(ann.received[1].payload == std::string(64, 'e'), "the lent bytes come back");
  expect(ann.returned_count() == 1, "the loan comes back");
}

void clients_may_be_on_two_shards() {
  Echo echo;
  TestAppliance appliance({&echo});
  const std::string shards = "[[shard]]\nname = \"main\"\ncpu = 0\n"
                             "[[shard]]\nname = \"second\"\ncpu = 1\n";
  const std::string problems = appliance.boot(shards + kTables);
  if (!problems.empty()) return expect(false, "it boots", problems);
  TestClient one = appliance.connect("echo", "listen");
  TestClient other = appliance.connect("echo", "listen");
  for (TestClient* client : {&one, &other}) {
    client->send("hello\n");
    expect(client->receive(6) == "hello\n", "the line comes back");
  }
  expect(appliance.counter("echo", "connections_open", "main") == 1, "one is on the first shard");
  expect(appliance.counter("echo", "connections_open", "second") == 1, "one is on the second");
  expect(appliance.counter("echo", "lines") == 2, "the lines of both are counted");
  expect(appliance.drain(), "it is drained in time");
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
  a_line_is_kept_before_it_comes_back();
  one_client_too_many_is_turned_away();
  a_line_that_is_too_long_ends_the_connection();
  a_process_gets_back_what_it_sends_and_lends();
  clients_may_be_on_two_shards();
  a_wrong_value_is_refused_by_its_line();
  std::printf("%d failed\n", failed_count);
  return failed_count == 0 ? 0 : 1;
}
