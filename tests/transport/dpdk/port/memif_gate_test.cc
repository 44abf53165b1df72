// The gate of a memif: memory is unmapped only after the burst in progress. The driver's calls on
// other threads go through the gate too, because the linker redirects them.
#include "transport/dpdk/port/memif_gate.h"

#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include <rte_ethdev.h>
#include <unistd.h>

#include "platform/file.h"
#include "tests/support/death_test.h"
#include "tests/support/patience.h"
#include "tests/transport/dpdk/started_eal.h"
#include "transport/dpdk/port/port.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// Defective code shows itself within this time. The tests wait for correct code without this limit.
constexpr useconds_t kMistakeUs = 200'000;

// The number of mappings of memif memory in this process.
int region_count() {
  int count = 0;
  const auto add = [](const char* line, void* context) {
    *static_cast<int*>(context) += std::strstr(line, "memif_region") != nullptr ? 1 : 0;
  };
  CHECK(read_lines("/proc/self/maps", add, &count).ok());
  return count;
}

struct Memif {
  Port port;

  Memif(const char* name, const std::string& path, bool is_server) {
    test::started_eal();
    PortOptions options;
    options.name = name;
    options.device = parse_port_device("memif:" + path).take();
    options.is_memif_server = is_server;
    options.mac.addr_bytes[0] = 2;
    options.mac.addr_bytes[5] = is_server ? 1 : 2;
    options.buffer_count = 512;
    options.descriptor_count = 64;
    options.memory = test::take_buffers(mbuf_shape(options.mtu_bytes, 512).bytes());
    CHECK(port.open(options).ok());
    CHECK(port.start().ok());
  }
  bool is_up() {
    port.watch();
    return port.state() == PortState::kUp;
  }
};

}  // namespace

TEST_GROUP(MemifGate){};

TEST(MemifGate, WhileItIsClosedNoBurstBegins) {
  MemifGate gate;
  CHECK(gate.enter());
  gate.leave();
  close_memif_gates();
  CHECK_FALSE(gate.enter());
  CHECK_FALSE(gate.is_inside());
  open_memif_gates();
  CHECK(gate.enter());
  gate.leave();
}

TEST(MemifGate, TwoBurstsAtATimeOrAGateThatNobodyClosedIsAProgrammingError) {
  MemifGate gate;
  CHECK(gate.enter());
  BP_CHECK_DIES("one burst at a time", gate.enter());
  gate.leave();
  BP_CHECK_DIES("opened more often than closed", open_memif_gates());
}

TEST(MemifGate, ClosingWaitsForTheBurstInProgress) {
  MemifGate gate, other;
  CHECK(gate.enter());
  std::atomic<bool> is_closed = false;
  std::thread closer([&] {
    close_memif_gates();
    is_closed = true;
  });
  bool has_begun = false;  // the close has begun: no burst begins any more
  CHECK(test::eventually([&] {
    has_begun = !other.enter();
    if (!has_begun) other.leave();
    return has_begun;
  }));
  usleep(kMistakeUs);
  const bool was_closed = is_closed;
  gate.leave();
  closer.join();
  open_memif_gates();
  CHECK_FALSE(was_closed);
  CHECK(is_closed);
}

// At boot and at the end. ThreadSanitizer sees a list of gates that is not guarded.
TEST(MemifGate, GatesComeAndGoWhileTheDriverConnects) {
  std::atomic<bool> is_over = false;
  std::thread driver([&] {
    while (!is_over) {
      close_memif_gates();
      open_memif_gates();
    }
  });
  for (int i = 0; i < 10'000; ++i) {
    MemifGate gate;
    if (gate.enter()) gate.leave();
  }
  is_over = true;
  driver.join();
}

TEST(MemifGate, TheDriverUnmapsNothingDuringABurst) {
  const std::string path = "/tmp/bedplate-memif-" + std::to_string(getpid()) + ".sock";
  Memif server("gate-server", path, true);
  Memif client("gate-client", path, false);
  CHECK(test::eventually([&] { return server.is_up() && client.is_up(); }));
  const int before = region_count();
  CHECK(before > 0);
  MemifGate gate;
  CHECK(gate.enter());
  std::atomic<bool> is_over = false;
  std::thread closer([&] {
    client.port.close();
    is_over = true;
  });
  usleep(kMistakeUs);
  const bool was_over = is_over;
  const int during = region_count();
  gate.leave();
  closer.join();
  CHECK_FALSE(was_over);
  LONGS_EQUAL(before, during);
  CHECK(test::eventually([&] { return region_count() < before && !server.is_up(); }));
  server.port.close();
  unlink(path.c_str());
}
