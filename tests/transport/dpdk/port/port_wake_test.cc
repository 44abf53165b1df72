// The descriptor that wakes a shard when frames come (queue_wake.h). An eventfd stands for the
// device's descriptor.
#include "transport/dpdk/port/queue_wake.h"

#include <poll.h>
#include <sys/eventfd.h>

#include "tests/transport/dpdk/started_eal.h"
#include "tests/transport/sockets/stream_sockets_fixture.h"
#include "transport/dpdk/port/port.h"

using namespace bedplate;

// QueueWake checks only whether the descriptor is readable. It stays readable until take().
class QueueWakeBodies : public SocketsFixture {
 public:
  Counter wakes;
  Fd event{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  QueueWake wake;

  void ring() { LONGS_EQUAL(0, eventfd_write(event.number(), 1)); }
  void take() {
    eventfd_t count = 0;
    LONGS_EQUAL(0, eventfd_read(event.number(), &count));
  }
  void pump_often() {
    for (int i = 0; i < 20; ++i) pump();
  }
  bool wakes_once_armed() {
    const uint64_t before = wakes.read();
    wake.arm();
    pump_often();
    return wakes.read() > before;
  }

  void all() {
    CHECK_EQUAL(0, wake.sleep_max_ns());  // without a descriptor: polled by time
    wake.create({.descriptor = {event.number(), false}, .sockets = sockets.get(), .wakes = &wakes});
    CHECK_EQUAL(0, wake.sleep_max_ns());  // not watched yet
    ring();
    pump_often();
    CHECK_EQUAL(0, wakes.read());  // a busy shard is not woken
    take();

    wake.arm();
    CHECK(wake.sleep_max_ns() == PollSource::kUnlimitedNs);
    wake.arm();  // before each sleep
    ring();
    CHECK(run_until([&] { return wakes.read() > 0; }));
    pump_often();
    CHECK_EQUAL(1, wakes.read());  // once for each sleep
    CHECK_EQUAL(0, wake.sleep_max_ns());

    // A descriptor that wakes repeatedly without frames is not watched until frames have come.
    CHECK(wakes_once_armed());
    CHECK(wakes_once_armed());
    CHECK_FALSE(wakes_once_armed());
    CHECK_EQUAL(0, wake.sleep_max_ns());
    wake.note_frames();
    CHECK(wakes_once_armed());
    take();
    wake.note_frames();
    wake.arm();
    CHECK(wake.sleep_max_ns() == PollSource::kUnlimitedNs);
    ring();
    CHECK(run_until([&] { return wakes.read() == 5; }));
  }
};

BP_GROUPS_OF_BOTH_BACKENDS(QueueWake, QueueWakeBodies);

BP_BOTH_BACKENDS(QueueWake, OnceForEachSleepAndNotInVainForEver, all())
