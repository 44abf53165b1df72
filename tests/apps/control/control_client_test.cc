// A client of the control socket: its requests, and its handling of good, bad and missing answers.
#include "apps/control/control_client.h"

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include <pty.h>
#include <sys/socket.h>
#include <unistd.h>

#include "platform/serial_line.h"
#include "tests/support/fake_root.h"
#include "transport/sockets/socket_address.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(ControlClient) {
  std::unique_ptr<test::FakeRoot> root;
  SocketAddress address;
  Fd listener;

  void setup() override {
    root = std::make_unique<test::FakeRoot>();
    address.kind = SocketAddress::Kind::kUnix;
    address.path = root->path() + "/test.control";
    auto listening = listen_at(address);
    CHECK(listening.ok());
    listener = listening.take();
  }
  void teardown() override {
    listener.close();
    root.reset();
  }

  // The other end of the connection: receives an empty line and a request, sends `answers` with the
  // request's id in place of each @, and closes. If it `stays`, it waits for the client to close.
  struct Peer {
    Peer(int listener, std::string answers, bool stays = false)
        : thread([this, listener, answers = std::move(answers), stays]() mutable {
            const Fd fd(accept(listener, nullptr, nullptr));
            char byte = 0;
            while (recv(fd.number(), &byte, 1, 0) == 1 && (heard.size() < 2 || byte != '\n')) {
              heard += byte;
            }
            size_t sent = 0;
            for (size_t at = 0; (at = answers.find('@')) != answers.npos;) {
              answers.replace(at, 1, "\"" + id_of(heard) + "\"");
            }
            said = answers;
            while (sent < answers.size()) {
              const ssize_t more =
                  send(fd.number(), answers.data() + sent, answers.size() - sent, MSG_NOSIGNAL);
              if (more <= 0) break;
              sent += static_cast<size_t>(more);
            }
            while (stays && recv(fd.number(), &byte, 1, 0) > 0) {
            }
          }) {}
    ~Peer() { end(); }
    void end() {
      if (thread.joinable()) thread.join();
    }
    std::string heard;
    std::string said;
    std::thread thread;
  };

  static std::string id_of(const std::string& request) {
    const size_t at = request.find("\"id\":\"") + 6;
    return request.substr(at, request.find('"', at) - at);
  }
  // Returns the answer that a client gets over a line that sends `answers`, or the error.
  std::string heard_over_a_line(const std::string& answers) {
    Peer peer(listener.number(), answers);
    auto client = ControlClient::connect_to_line(address.path);
    CHECK(client.ok());
    auto answered = client.value().ask("ping");
    return answered.ok() ? answered.value() : said_of(answered.error());
  }
  std::string said_of(const Error& error) {
    char text[1024];
    return format_error(error, text, sizeof text);
  }
};

TEST(ControlClient, AsksAndIsAnswered) {
  // As long as the answer with a plan may be.
  const std::string answer =
      R"({"jsonrpc":"2.0","id":@,"result":")" + std::string(1 << 20, 'x') + "\"}\n";
  Peer peer(listener.number(), answer);
  auto client = ControlClient::connect(address.path);
  CHECK(client.ok());
  auto answered = client.value().ask("some\"thing", R"({"a":"b"})");
  CHECK(answered.ok());
  peer.end();
  CHECK(answered.value() == peer.said);
  STRCMP_EQUAL(("\n"
                R"({"jsonrpc":"2.0","id":")" +
                id_of(peer.heard) + R"(","method":"some\"thing","params":{"a":"b"}})")
                   .c_str(),
               peer.heard.c_str());
}

TEST(ControlClient, ReadsAllThatHasComeInTime) {
  auto client = ControlClient::connect_to_line(address.path, {.in_all_ns = 1});
  CHECK(client.ok());
  const Fd peer(accept(listener.number(), nullptr, nullptr));
  const std::string lines = std::string(40'000, 'x') +
                            "\n{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32000,"
                            "\"message\":\"it is busy\"}}\n";
  LONGS_EQUAL(lines.size(), send(peer.number(), lines.data(), lines.size(), MSG_NOSIGNAL));
  const auto answered = client.value().ask("ping");
  CHECK_FALSE(answered.ok());
  STRCMP_CONTAINS("it did not answer in time; received: it is busy",
                  said_of(answered.error()).c_str());
}

TEST(ControlClient, SaysThatNobodyIsThere) {
  listener.close();
  const auto client = ControlClient::connect(address.path);
  CHECK_FALSE(client.ok());
  STRCMP_EQUAL(
      ("connecting to " + address.path +
       ": Connection refused; start it with [control] in its configuration; only root, its own "
       "user and the group of [control] may ask")
          .c_str(),
      said_of(client.error()).c_str());
}

TEST(ControlClient, SaysThatTheConnectionEnded) {
  Peer peer(listener.number(), R"({"jsonrpc":)");
  auto client = ControlClient::connect(address.path);
  CHECK(client.ok());
  const auto answered = client.value().ask("ping");
  CHECK_FALSE(answered.ok());
  STRCMP_EQUAL(("asking " + address.path +
                " for ping: it closed the connection; received: {\"jsonrpc\":; see its log, and "
                "`bedplate top`")
                   .c_str(),
               said_of(answered.error()).c_str());
}

TEST(ControlClient, SaysThatNothingCame) {
  auto client = ControlClient::connect(address.path, {.silence_ns = kNsPerSecond / 100});
  CHECK(client.ok());
  // The peer sends this before the request, so no thread has to be in time.
  const Fd peer(accept(listener.number(), nullptr, nullptr));
  LONGS_EQUAL(11, send(peer.number(), R"({"jsonrpc":)", 11, MSG_NOSIGNAL));
  const auto answered = client.value().ask("ping");
  CHECK_FALSE(answered.ok());
  STRCMP_CONTAINS(" for ping: it did not answer in time; received: {\"jsonrpc\":; see",
                  said_of(answered.error()).c_str());
}

TEST(ControlClient, PassesOverWhatIsSaidToOthers) {
  const std::string heard =
      heard_over_a_line("the end of an answer\"}\n\n[]\n17\n"
                        R"({"jsonrpc":"2.0","id":1,"result":1})"
                        "\n"
                        R"({"jsonrpc":"2.0","id":"other","error":{"code":-1,"message":"no"}})"
                        "\n"
                        R"({"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}})"
                        "\n"
                        R"({"jsonrpc":"2.0","id":@,"method":"echo"})"
                        "\n"
                        R"({"jsonrpc":"2.0","id":@,"result":[7]})"
                        "\n");
  STRCMP_CONTAINS(R"(,"result":[7]})", heard.c_str());
}

TEST(ControlClient, NoTwoHaveOneId) {
  std::string ids[2];
  for (std::string& id : ids) {
    Peer peer(listener.number(), R"({"jsonrpc":"2.0","id":@,"result":7})"
                                 "\n");
    auto client = ControlClient::connect(address.path);
    CHECK(client.ok());
    CHECK(client.value().ask("ping").ok());
    peer.end();
    id = id_of(peer.heard);
  }
  CHECK(ids[0] != ids[1]);
  CHECK(ids[0].size() > 16 && ids[0].size() <= 64);
}

TEST(ControlClient, SaysWhatIsRefusedBeforeItWasRead) {
  Peer peer(listener.number(),
            R"({"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"you may not"}})"
            "\n");
  auto client = ControlClient::connect(address.path);
  CHECK(client.ok());
  const auto answered = client.value().ask("ping");
  CHECK_FALSE(answered.ok());
  STRCMP_EQUAL(("asking " + address.path + " for ping: you may not").c_str(),
               said_of(answered.error()).c_str());
}

// The other end never falls silent, but sends nothing for this client.
TEST(ControlClient, WaitsNoLongerForWhatOthersAreTold) {
  auto client = ControlClient::connect_to_line(
      address.path, {.silence_ns = 60 * kNsPerSecond, .in_all_ns = kNsPerSecond / 10});
  CHECK(client.ok());
  const Fd peer(accept(listener.number(), nullptr, nullptr));
  const std::string other = "a console, \x1b[1msay\n";
  CHECK(send(peer.number(), other.data(), other.size(), MSG_NOSIGNAL) > 0);
  std::atomic<bool> is_over{false};
  std::thread console([&] {
    while (!is_over) {
      if (send(peer.number(), other.data(), other.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        usleep(1000);
    }
  });
  const auto answered = client.value().ask("ping");
  is_over = true;
  console.join();
  CHECK_FALSE(answered.ok());
  STRCMP_EQUAL(("asking " + address.path +
                " for ping: it did not answer in time; received: a console, ?[1msay; for an "
                "appliance's own socket, see its log; for one that leads to a serial line, check "
                "that the other end's [control] has that line as `serial`, and that nobody else "
                "uses it")
                   .c_str(),
               said_of(answered.error()).c_str());
}

// A line with too much nesting or too many members is skipped: it would only cost time and stack.
TEST(ControlClient, WhatIsTooDeepOrTooBroadIsPassedOver) {
  std::string broad = R"({"id":@,"result":{)";
  for (int i = 0; i < 20'000; ++i) broad += "\"" + std::to_string(i) + "\":1,";
  const std::string heard = heard_over_a_line(R"({"id":null,"error":)" + std::string(300'000, '[') +
                                              "\n" + R"({"id":@,"result":)" + std::string(64, '[') +
                                              std::string(64, ']') + "}\n" + broad + "\"z\":1}}\n" +
                                              R"({"id":@,"result":["[[{{ \" [[",{"a":[{"b":7}]}]})"
                                              "\n");
  STRCMP_CONTAINS(R"({"b":7})", heard.c_str());
}

// On a serial line, an error without an id is about the remains of an earlier client. Its control
// characters do not reach the terminal.
TEST(ControlClient, WhatALineComplainsOfIsNotTheAnswer) {
  const std::string heard =
      heard_over_a_line(R"({"id":null,"error":{"code":-32700,"message":"no \u001b]JSON\n"}})"
                        "\n");
  STRCMP_CONTAINS(" for ping: it closed the connection; received: no ?]JSON?; for an appliance's",
                  heard.c_str());
}

TEST(ControlClient, AsksOverASerialLine) {
  int near = -1, far = -1;
  char name[64];
  LONGS_EQUAL(0, openpty(&near, &far, name, nullptr, nullptr));
  const Fd line(near);
  close(far);
  {
    auto client = ControlClient::open_line(name, kSerialBaud);
    CHECK(client.ok());
    std::thread other([&line] {
      char request[256];
      size_t bytes = 0;
      while (bytes < 2 || request[bytes - 1] != '\n') {
        bytes += static_cast<size_t>(read(line.number(), request + bytes, 1));
      }
      const std::string answer = R"({"jsonrpc":"2.0","id":")" + id_of(std::string(request, bytes)) +
                                 R"(","result":"\\r"})"
                                 "\r\n";
      CHECK(write(line.number(), answer.data(), answer.size()) > 0);
    });
    auto answered = client.value().ask("ping");
    other.join();
    CHECK(answered.ok());
    STRCMP_CONTAINS(R"(","result":"\\r"})"
                    "\r\n",
                    answered.value().c_str());
    const auto second = ControlClient::open_line(name, kSerialBaud);
    CHECK_FALSE(second.ok());
    STRCMP_EQUAL("another process uses it", second.error().answer);
  }
  CHECK(ControlClient::open_line(name, kSerialBaud).ok());
}

TEST(ControlClient, SaysThatALineWasHungUp) {
  int near = -1, far = -1;
  char name[64];
  LONGS_EQUAL(0, openpty(&near, &far, name, nullptr, nullptr));
  close(far);
  auto client = ControlClient::open_line(name, kSerialBaud);
  CHECK(client.ok());
  close(near);
  const auto answered = client.value().ask("ping");
  CHECK_FALSE(answered.ok());
  STRCMP_EQUAL(("asking " + std::string(name) +
                " for ping: the line was hung up; check that the other end's [control] has this "
                "line as `serial`, at the same `serial_baud`")
                   .c_str(),
               said_of(answered.error()).c_str());
}
