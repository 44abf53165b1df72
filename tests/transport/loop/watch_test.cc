// Watches of descriptors: of each kind, level-triggered, and silent once they are stopped.
#include "transport/loop/watch.h"

#include <csignal>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

#include "platform/assert.h"
#include "tests/support/death_test.h"
#include "tests/transport/sockets/stream_sockets_fixture.h"

using namespace bedplate;

namespace {

// A watch that counts its calls, and then calls `on_ready`.
struct Watched {
  Watch watch;
  uint32_t calls = 0;
  uint32_t events = 0;  // of the last call
  StreamSockets* sockets = nullptr;
  Watched* other = nullptr;
  void (*on_ready)(Watched& self) noexcept = nullptr;

  explicit Watched(int fd = -1, uint32_t wanted = POLLIN) {
    watch.fd = fd;
    watch.events = wanted;
    watch.context = this;
    watch.ready = [](void* context, uint32_t what) noexcept {
      auto& self = *static_cast<Watched*>(context);
      ++self.calls;
      self.events = what;
      if (self.on_ready != nullptr) self.on_ready(self);
    };
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
};

void stop_itself(Watched& self) noexcept { self.sockets->stop_watching(self.watch); }

void take_count(Watched& self) noexcept {
  uint64_t count = 0;
  BP_ASSERT(read(self.watch.fd, &count, sizeof count) == sizeof count);
}

Fd event_with(uint64_t count) {
  return Fd(eventfd(static_cast<unsigned>(count), EFD_CLOEXEC | EFD_NONBLOCK));
}
void ring(const Fd& event) {
  const uint64_t one = 1;
  LONGS_EQUAL(sizeof one, write(event.number(), &one, sizeof one));
}

}  // namespace

class WatchBodies : public SocketsFixture {
 public:
  void start(Watched& which) {
    which.sockets = sockets.get();
    LONGS_EQUAL(0, sockets->start_watching(which.watch));
  }
  void stop(Watched& which) { sockets->stop_watching(which.watch); }
  void pump_often() {
    for (int i = 0; i < 20; ++i) pump();
  }

  // Checks that a watch of `fd` is silent until `wake` is called.
  template <typename Wake>
  void wakes(int fd, Wake wake) {
    Watched it(fd);
    it.on_ready = &stop_itself;
    start(it);
    pump_often();
    LONGS_EQUAL(0, it.calls);
    wake();
    CHECK(run_until([&] { return it.calls > 0; }));
    CHECK((it.events & POLLIN) != 0);
    pump_often();
    LONGS_EQUAL(1, it.calls);
    CHECK(!it.watch.is_watched());
  }

  void every_kind() {
    const Fd event = event_with(0);
    wakes(event.number(), [&] { ring(event); });
    int fds[2];
    LONGS_EQUAL(0, pipe2(fds, O_CLOEXEC));
    const Fd from(fds[0]), to(fds[1]);
    wakes(fds[0], [&] { LONGS_EQUAL(1, write(fds[1], "x", 1)); });
    LONGS_EQUAL(0, socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, fds));
    const Fd near(fds[0]), far(fds[1]);
    wakes(fds[0], [&] { LONGS_EQUAL(1, write(fds[1], "x", 1)); });
    const Fd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    wakes(timer.number(), [&] {
      const itimerspec soon = {{}, {0, 1'000'000}};
      LONGS_EQUAL(0, timerfd_settime(timer.number(), 0, &soon, nullptr));
    });
    sigset_t wanted, before;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR2);
    LONGS_EQUAL(0, pthread_sigmask(SIG_BLOCK, &wanted, &before));
    const Fd signals(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
    wakes(signals.number(), [&] { LONGS_EQUAL(0, pthread_kill(pthread_self(), SIGUSR2)); });
    signalfd_siginfo taken;
    LONGS_EQUAL(sizeof taken, read(signals.number(), &taken, sizeof taken));
    LONGS_EQUAL(0, pthread_sigmask(SIG_SETMASK, &before, nullptr));
  }

  void never_from_within() {
    const Fd event = event_with(1);
    Watched it(event.number());
    start(it);
    LONGS_EQUAL(0, it.calls);
    for (int i = 0; i < 3; ++i) sockets->sleep_until(monotonic_ns() + kNsPerMs);
    LONGS_EQUAL(0, it.calls);  // not from within a sleep either
    CHECK(run_until([&] { return it.calls > 0; }));
    stop(it);
  }

  void level_triggered() {
    const Fd event = event_with(1);
    Watched it(event.number());
    start(it);
    CHECK(run_until([&] { return it.calls >= 5; }));  // nothing reads the count
    it.on_ready = &take_count;
    const uint32_t calls = it.calls;
    CHECK(run_until([&] { return it.calls > calls; }));
    it.on_ready = nullptr;  // a read without a count would abort
    const uint32_t at_rest = it.calls;
    pump_often();
    LONGS_EQUAL(at_rest, it.calls);
    it.on_ready = &take_count;
    ring(event);
    CHECK(run_until([&] { return it.calls > at_rest; }));
    stop(it);
  }

  void stopped_while_an_event_waits() {
    static uint32_t calls;
    calls = 0;
    for (const bool sleeps : {false, true}) {
      const Fd event = event_with(0);
      auto it = std::make_unique<Watch>();
      it->fd = event.number();
      it->events = POLLIN;
      it->ready = [](void*, uint32_t) noexcept { ++calls; };
      LONGS_EQUAL(0, sockets->start_watching(*it));
      pump_often();  // the kernel watches it now
      ring(event);
      if (sleeps) sockets->sleep_until(monotonic_ns() + kNsPerMs);  // the kernel reports the event
      sockets->stop_watching(*it);
      std::memset(static_cast<void*>(it.get()), 0x5a, sizeof *it);
      it.reset();
      pump_often();
      LONGS_EQUAL(0, calls);
    }
  }

  // The second watch has the slot of the first, but not its events.
  void a_slot_used_again() {
    const Fd loud = event_with(0);
    const Fd quiet = event_with(0);
    Watched first(loud.number());
    start(first);
    pump_often();
    ring(loud);
    sockets->sleep_until(monotonic_ns() + kNsPerMs);
    stop(first);
    Watched second(quiet.number());
    start(second);
    pump_often();
    LONGS_EQUAL(0, first.calls);
    LONGS_EQUAL(0, second.calls);
    stop(second);
  }

  void one_stops_the_other() {
    const Fd a = event_with(0);
    const Fd b = event_with(0);
    Watched first(a.number()), second(b.number());
    for (Watched* each : {&first, &second}) {
      each->other = each == &first ? &second : &first;
      each->on_ready = [](Watched& self) noexcept {
        self.sockets->stop_watching(self.other->watch);
        self.sockets->stop_watching(self.watch);
      };
      start(*each);
    }
    pump_often();
    ring(a);
    ring(b);
    CHECK(run_until([&] { return first.calls + second.calls > 0; }));
    pump_often();
    LONGS_EQUAL(1, first.calls + second.calls);
  }

  // A callback starts its watch again with other events; another callback frees its watch.
  void from_within_its_callback() {
    int fds[2];
    LONGS_EQUAL(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
    const Fd near(fds[0]), far(fds[1]);
    Watched it(fds[0], POLLIN);
    it.on_ready = [](Watched& self) noexcept {
      self.sockets->stop_watching(self.watch);
      self.watch.events = POLLOUT;
      self.on_ready = &stop_itself;
      BP_ASSERT(self.sockets->start_watching(self.watch) == 0);
    };
    start(it);
    LONGS_EQUAL(1, write(fds[1], "x", 1));
    CHECK(run_until([&] { return it.calls == 2; }));
    LONGS_EQUAL(POLLOUT, it.events);
    pump_often();
    LONGS_EQUAL(2, it.calls);
    static bool is_freed;
    is_freed = false;
    auto* owned = new Watched(fds[0]);
    owned->on_ready = [](Watched& self) noexcept {
      self.sockets->stop_watching(self.watch);
      delete &self;
      is_freed = true;
    };
    start(*owned);
    CHECK(run_until([&] { return is_freed; }));
    pump_often();
  }

  void hang_up() {
    int fds[2];
    LONGS_EQUAL(0, pipe2(fds, O_CLOEXEC));
    const Fd from(fds[0]);
    Fd to(fds[1]);
    Watched it(fds[0]);
    it.on_ready = &stop_itself;
    start(it);
    pump_often();
    to.close();
    CHECK(run_until([&] { return it.calls > 0; }));
    CHECK((it.events & POLLHUP) != 0);
  }

  // The kernel releases the descriptor at the stop, not at a later poll.
  void the_peer_sees_a_close() {
    int fds[2];
    LONGS_EQUAL(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
    Fd near(fds[0]);
    const Fd far(fds[1]);
    Watched it(fds[0]);
    start(it);
    pump_often();
    stop(it);
    near.close();
    char byte = 0;
    LONGS_EQUAL(0, recv(fds[1], &byte, 1, MSG_DONTWAIT));
  }

  void closed_by_its_owner() {
    const Fd event = event_with(0);
    Watched good(event.number());
    good.on_ready = &take_count;
    start(good);
    Fd doomed = event_with(0);
    Watched orphan(doomed.number());
    orphan.on_ready = [](Watched& self) noexcept { BP_ASSERT(self.events == POLLNVAL); };
    start(orphan);
    doomed.close();
    pump_often();
    ring(event);
    CHECK(run_until([&] { return good.calls == 1; }));
    CHECK(orphan.calls <= 1);
    // The descriptor's number now belongs to another file, which the orphan must not watch.
    const Fd heir = event_with(1);
    const uint32_t calls = orphan.calls;
    pump_often();
    LONGS_EQUAL(calls, orphan.calls);
    stop(orphan);
    stop(good);
  }

  void refusals();
  void insists();
};

void WatchBodies::refusals() {
  const Fd event = event_with(0);
  Watched it(-1);
  LONGS_EQUAL(EBADF, sockets->start_watching(it.watch));
  const Fd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const Fd directory(open("/", O_RDONLY | O_CLOEXEC));
  it.watch.fd = file.number();
  LONGS_EQUAL(EPERM, sockets->start_watching(it.watch));
  it.watch.fd = directory.number();
  LONGS_EQUAL(EPERM, sockets->start_watching(it.watch));
  it.watch.fd = event.number();
  for (const uint32_t events : {0U, 1U << 31, uint32_t{POLLHUP}}) {
    it.watch.events = events;
    LONGS_EQUAL(EINVAL, sockets->start_watching(it.watch));
  }
  it.watch.events = POLLIN;
  const auto ready = it.watch.ready;
  it.watch.ready = nullptr;
  LONGS_EQUAL(EINVAL, sockets->start_watching(it.watch));
  it.watch.ready = ready;
  CHECK(!it.watch.is_watched());
  sockets->stop_watching(it.watch);  // nothing happens
  start(it);
  Watched twin(event.number(), POLLOUT);
  LONGS_EQUAL(EEXIST, sockets->start_watching(twin.watch));
  // Starts as many watches as are allowed: one is running, sixty-three follow.
  std::vector<Fd> fds;
  std::vector<std::unique_ptr<Watched>> more;
  for (uint32_t i = 1; i < StreamSocketsOptions{}.watch_count_max; ++i) {
    fds.push_back(event_with(0));
    more.push_back(std::make_unique<Watched>(fds.back().number()));
    start(*more.back());
  }
  const Fd last = event_with(1);
  Watched one_too_many(last.number());
  LONGS_EQUAL(ENOSPC, sockets->start_watching(one_too_many.watch));
  stop(*more.back());
  start(one_too_many);
  CHECK(run_until([&] { return one_too_many.calls > 0; }));
  for (auto& each : more) stop(*each);
  stop(one_too_many);
  stop(it);
}

void WatchBodies::insists() {
  const Fd event = event_with(0);
  Watched it(event.number());
  start(it);
  BP_CHECK_DIES("a watch is started that is watched already",
                (void)sockets->start_watching(it.watch));
  stop(it);
}

BP_GROUPS_OF_BOTH_BACKENDS(Watch, WatchBodies);

BP_BOTH_BACKENDS(Watch, EveryKindOfDescriptorIsTold, every_kind())
BP_BOTH_BACKENDS(Watch, NeverCallsFromWithinItsStartNorASleep, never_from_within())
BP_BOTH_BACKENDS(Watch, IsCalledForAsLongAsTheDescriptorIsReady, level_triggered())
BP_BOTH_BACKENDS(Watch, StoppedAndFreedWhileAnEventWaitsIsNeverCalled,
                 stopped_while_an_event_waits())
BP_BOTH_BACKENDS(Watch, AnEventOfAStoppedOneIsNotThatOfTheNextInItsPlace, a_slot_used_again())
BP_BOTH_BACKENDS(Watch, OneCallbackMayStopTheOtherThatIsReadyToo, one_stops_the_other())
BP_BOTH_BACKENDS(Watch, ACallbackMayStopStartAndFreeItsOwn, from_within_its_callback())
BP_BOTH_BACKENDS(Watch, AHangUpIsToldUnasked, hang_up())
BP_BOTH_BACKENDS(Watch, OnceStoppedAClosedDescriptorIsClosed, the_peer_sees_a_close())
BP_BOTH_BACKENDS(Watch, ADescriptorClosedByItsOwnerHarmsNobodyElse, closed_by_its_owner())
BP_BOTH_BACKENDS(Watch, RefusesWhatCannotBeWatched, refusals())
BP_BOTH_BACKENDS(Watch, InsistsOnItsRequirements, insists())
