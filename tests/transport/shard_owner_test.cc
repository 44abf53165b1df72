// The timers, sockets (over both backends) and files of a running shard belong to its thread.
// Another thread that uses them fails an assertion, in builds that have assertions.
#include "platform/assert.h"

#if BP_DEBUG

#include <memory>
#include <thread>

#include <poll.h>

#include "tests/support/death_test.h"
#include "tests/transport/loop/plain_sleeper.h"
#include "tests/transport/sockets/stream_sockets_fixture.h"

using namespace bedplate;

class OwnedBodies : public SocketsFixture {
 public:
  std::unique_ptr<test::PlainSleeper> sleeper;
  std::thread shard;

  void run_elsewhere() {
    sleeper = std::make_unique<test::PlainSleeper>(*loop);
    loop->set_sleeper(*sleeper);
    shard = std::thread([this] { loop->run(); });
    CHECK(test::eventually([this] { return !loop->is_own_thread(); }));
  }
  void teardown() override {
    if (shard.joinable()) {
      loop->stop();
      shard.join();
    }
    SocketsFixture::teardown();
  }

  void timers() {
    TimerQueue& timers = loop->timers();
    timers.reserve_more(1);
    run_elsewhere();
    Timer timer;  // has no function, but arm() checks the thread first
    BP_CHECK_DIES("TimerQueue::arm was called on another thread", timers.arm(timer, 1));
    BP_CHECK_DIES("TimerQueue::cancel was called on another thread", timers.cancel(timer));
    BP_CHECK_DIES("TimerQueue::expire was called on another thread", timers.expire(0));
    BP_CHECK_DIES("EventLoop::timers was called on another thread", (void)loop->timers());
  }

  void streams() {
    constexpr const char* kWords = " was called on another thread than its shard's";
    run_elsewhere();
    StreamSocket socket;
    BP_CHECK_DIES(kWords, (void)sockets->attach(socket));
    BP_CHECK_DIES(kWords, sockets->receive(socket));
    BP_CHECK_DIES(kWords, sockets->send(socket));
    BP_CHECK_DIES(kWords, sockets->detach(socket));
    StreamListener listener;
    BP_CHECK_DIES(kWords, sockets->start_listening(listener));
    BP_CHECK_DIES(kWords, sockets->stop_listening(listener));
  }

  void watches_and_rounds() {
    constexpr const char* kWords = " was called on another thread than its shard's";
    run_elsewhere();
    Watch watch;
    BP_CHECK_DIES(kWords, (void)sockets->start_watching(watch));
    BP_CHECK_DIES(kWords, sockets->stop_watching(watch));
    BP_CHECK_DIES(kWords, sockets->poll(1));
    BP_CHECK_DIES(kWords, sockets->sleep_until(0));
  }

  // The files of the ring only. Without a ring, a thread serves the files.
  void files() {
    FileBackend* backend = sockets->file_backend();
    run_elsewhere();
    if (backend == nullptr) return;
    FileOperation operation;
    BP_CHECK_DIES("loop_->is_own_thread()", backend->issue(operation));
    BP_CHECK_DIES("loop_->is_own_thread()", backend->wait(0));
  }

  void anybodys_before_and_after() {
    connect_pair();
    run_elsewhere();
    loop->stop();
    shard.join();
    std::byte byte{};
    receive(ours, &byte, 1);
    peer.close();
    CHECK(run_until([this] { return ours.receive_count == 1; }));
  }
};

BP_GROUPS_OF_BOTH_BACKENDS(Owned, OwnedBodies);

BP_BOTH_BACKENDS(Owned, TimersAreTheLoopsThreads, timers())
BP_BOTH_BACKENDS(Owned, StreamsAndListenersAreTheLoopsThreads, streams())
BP_BOTH_BACKENDS(Owned, WatchesAndRoundsAreTheLoopsThreads, watches_and_rounds())
BP_BOTH_BACKENDS(Owned, FilesAreTheLoopsThreads, files())
BP_BOTH_BACKENDS(Owned, BeforeAndAfterTheLoopRunsTheyAreAnybodys, anybodys_before_and_after())

#endif
