// An event loop with sockets on a thread of its own, with a server of lines.
#include "transport/sockets/socket_thread.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <sys/socket.h>

#include "alloc/heap_owner.h"
#include "platform/file.h"
#include "tests/support/fake_root.h"
#include "tests/support/patience.h"
#include "tests/transport/sockets/stream_memory.h"
#include "transport/sockets/socket_address.h"
#include "transport/sockets/stream_server.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// Echoes each line; "wait" is never answered.
class Echo final : public StreamSession {
 public:
  Echo() noexcept : StreamSession(input_, output_) {}

 private:
  StreamStep work(uint64_t) noexcept override {
    const std::string_view line = arrived_line();
    if (line.empty()) return StreamStep::kStarved;
    const bool waits = line == "wait\n";
    if (!waits) say(line);
    take(line.size());
    return waits ? StreamStep::kWaits : StreamStep::kTaken;
  }

  char input_[256];
  char output_[2 * StreamSession::kStepTextBytes];
};

}  // namespace

TEST_GROUP(SocketThread) {
  test::FakeRoot root;
  SocketAddress address;
  Fd listener;
  StreamServerCounters counters;
  StreamServer server;
  StreamMemory memory{StreamServer::bytes_for<Echo>(2)};
  std::unique_ptr<SocketThread> thread = std::make_unique<SocketThread>();

  void create() {
    address.kind = SocketAddress::Kind::kUnix;
    address.path = root.path() + "/socket";
    auto listening = listen_at(address);
    CHECK(listening.ok());
    listener = listening.take();
    CHECK(
        thread
            ->create({.name = "test",
                      .socket_count_max = 2,
                      .begin = [](void* all) noexcept { static_cast<StreamServer*>(all)->start(); },
                      .end = [](void* all) noexcept { static_cast<StreamServer*>(all)->end(); },
                      .context = &server})
            .ok());
    server.create<Echo>(
        {.loop = &thread->loop(), .sockets = &thread->sockets(), .counters = &counters},
        memory.aligned());
    server.add_listener(listener.number());
  }
  Fd client() {
    auto connected = start_connecting(address);
    CHECK(connected.ok());
    set_blocking(connected.value().number(), true);
    return connected.take();
  }
  static void say(const Fd& fd, std::string_view words) {
    LONGS_EQUAL(words.size(), send(fd.number(), words.data(), words.size(), MSG_NOSIGNAL));
  }
  // Returns the next line; empty: the other end sends nothing more.
  static std::string heard(const Fd& fd) {
    std::string line;
    char byte = 0;
    while (!line.ends_with('\n')) {
      CHECK(test::has_input(fd.number()));
      if (recv(fd.number(), &byte, 1, 0) <= 0) break;
      line += byte;
    }
    return line;
  }
};

TEST(SocketThread, AnswersFromItsBeginningOn) {
  create();
  const Fd early = client();
  say(early, "early\n");
  CHECK_EQUAL(0, counters.connections_total.read());
  thread->begin();
  STRCMP_EQUAL("early\n", heard(early).c_str());
  const Fd late = client();
  say(late, "late\n");
  STRCMP_EQUAL("late\n", heard(late).c_str());
  thread->stop();
  thread->stop();  // it has already ended
}

TEST(SocketThread, AnEndClosesWhatIsOpen) {
  create();
  thread->begin();
  const Fd idle = client(), waiting = client();
  say(idle, "one\n");
  STRCMP_EQUAL("one\n", heard(idle).c_str());
  say(waiting, "wait\n");
  CHECK(test::eventually([&] { return counters.received_bytes.read() == 9; }));
  thread.reset();
  STRCMP_EQUAL("", heard(idle).c_str());
  STRCMP_EQUAL("", heard(waiting).c_str());
}

TEST(SocketThread, MayEndBeforeItBegins) {
  create();
  thread->stop();
  CHECK_EQUAL(0, counters.connections_total.read());
}

// All that the loop allocates belongs to the service that it serves.
TEST(SocketThread, WorksForTheOwnerThatMadeIt) {
  struct Seen {
    HeapOwner owner;
    EventLoop* loop;
  } seen = {{}, &thread->loop()};
  const HeapOwner own = current_heap_owner();
  CHECK(thread
            ->create({.name = "test",
                      .begin =
                          [](void* context) noexcept {
                            static_cast<Seen*>(context)->owner = current_heap_owner();
                          },
                      .context = &seen})
            .ok());
  thread->begin();
  thread->stop();
  LONGS_EQUAL(own.index, seen.owner.index);
}
