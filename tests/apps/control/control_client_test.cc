// What a client of the control socket asks, and what it makes of what is, or is not, answered.
#include "apps/control/control_client.h"

#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include <sys/socket.h>

#include "tests/support/fake_root.h"
#include "transport/socket_address.h"

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

  // The other end of the one connection: hears a line, says `answers`, and ends it, once it has
  // been left where it `stays`.
  struct Peer {
    Peer(int listener, std::string answers, bool stays = false)
        : thread([this, listener, answers = std::move(answers), stays] {
            const Fd fd(accept(listener, nullptr, nullptr));
            char byte = 0;
            while (recv(fd.number(), &byte, 1, 0) == 1 && byte != '\n') heard += byte;
            size_t sent = 0;
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
    std::thread thread;
  };

  std::string said_of(const Error& error) {
    char text[1024];
    return format_error(error, text, sizeof text);
  }
};

TEST(ControlClient, AsksAndIsAnswered) {
  // As long as a plan may be.
  const std::string answer =
      R"({"jsonrpc":"2.0","id":1,"result":")" + std::string(1 << 20, 'x') + "\"}\n";
  Peer peer(listener.number(), answer);
  auto client = ControlClient::connect(address.path);
  CHECK(client.ok());
  auto answered = client.value().ask("some\"thing", R"({"a":"b"})");
  CHECK(answered.ok());
  CHECK(answered.value() == answer);
  peer.end();
  STRCMP_EQUAL(R"({"jsonrpc":"2.0","id":1,"method":"some\"thing","params":{"a":"b"}})",
               peer.heard.c_str());
}

TEST(ControlClient, SaysThatNobodyIsThere) {
  listener.close();
  const auto client = ControlClient::connect(address.path);
  CHECK_FALSE(client.ok());
  STRCMP_EQUAL(("connecting to " + address.path +
                ": Connection refused; does it run, and has its "
                "configuration [control]? Root and its own user may ask, and the group that "
                "[control] names")
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
                " for ping: it ended the connection; see its log, and "
                "`bedplate top`")
                   .c_str(),
               said_of(answered.error()).c_str());
}

TEST(ControlClient, SaysThatNothingCame) {
  auto peer = std::make_unique<Peer>(listener.number(), R"({"jsonrpc":)", true);
  {
    auto client = ControlClient::connect(address.path, kNsPerSecond / 100);
    CHECK(client.ok());
    const auto answered = client.value().ask("ping");
    CHECK_FALSE(answered.ok());
    STRCMP_CONTAINS(" for ping: it has not answered in ", said_of(answered.error()).c_str());
  }
  peer.reset();
}
