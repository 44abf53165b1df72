// Limits of a block server, without sockets: the requests that count, the order of limits, and the
// order of requests. The clock is the test's.
#include "apps/blockd/block_limit_datapath.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "apps/blockd/volume.h"
#include "platform/units.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using nbd::Command;

namespace {

constexpr uint64_t kLaneItems = 64;

// Allocated apart from the test group, because CppUTest's operator new ignores alignment.
struct Parts {
  alignas(kCacheLineBytes) std::byte lane[BlockRequestFifo::bytes_for(kLaneItems)];
  EventLoop loop;
  LimitCounters counters[3];
};

}  // namespace

TEST_GROUP(BlockLimit) {
  uint64_t clock_ns = 1000 * kNsPerSecond;
  std::unique_ptr<Parts> parts = std::make_unique<Parts>();
  BlockLane lane;
  Volume volumes[2];
  std::unique_ptr<BlockLimit> of_volume, of_tenant, of_listener;
  std::vector<BlockRequest> requests = std::vector<BlockRequest>(kLaneItems);
  size_t next = 0;

  void setup() override {
    EventLoopOptions options;
    options.test_clock_ns = &clock_ns;
    CHECK(parts->loop.create(options).ok());
    parts->loop.timers().reserve_more(6);
    lane.fifo = BlockRequestFifo::create(parts->lane, kLaneItems);
    of_volume = make(LimitKind::kVolume);
    of_tenant = make(LimitKind::kTenant);
    of_listener = make(LimitKind::kListener);
    for (Volume& volume : volumes) {
      volume.behind_limits = {&lane};
      volume.tenant_limit = of_tenant.get();
    }
    volumes[0].limit = of_volume.get();
  }
  void teardown() override {
    for (BlockLimit* each : {of_listener.get(), of_volume.get(), of_tenant.get()}) each->set({});
  }
  std::unique_ptr<BlockLimit> make(LimitKind kind) {
    return std::make_unique<BlockLimit>(kind, parts->loop,
                                        parts->counters[static_cast<size_t>(kind)]);
  }
  LimitCounters& counted(LimitKind kind) { return parts->counters[static_cast<size_t>(kind)]; }

  BlockRequest& ask(Command command, uint32_t length = 0, size_t volume = 0) {
    BlockRequest& request = requests[next++];
    request.wire.command = command;
    request.wire.length = length;
    request.volume = &volumes[volume];
    request.trace.begin(parts->loop.now_ns());
    BlockLimit::admit(request, of_listener.get());
    return request;
  }
  // The indices of the requests that have reached the lane since the last call.
  std::vector<size_t> arrived() {
    std::vector<size_t> all;
    BlockRequest* one[1];
    while (lane.fifo->pop_batch(one) == 1)
      all.push_back(static_cast<size_t>(one[0] - &requests[0]));
    return all;
  }
  void pass(uint64_t ns) {
    clock_ns += ns;
    while (parts->loop.run_round() > 0) {
    }
  }
};

using Indices = std::vector<size_t>;

TEST(BlockLimit, RequestsGoOnWithoutRates) {
  for (const Command each : {Command::kRead, Command::kWrite, Command::kFlush, Command::kTrim}) {
    ask(each, 4096);
  }
  CHECK((arrived() == Indices{0, 1, 2, 3}));
}

// Reads and block status use up the budget of reads, all others that of writes.
TEST(BlockLimit, EachKindCountsAsAReadOrAWrite) {
  const std::pair<Command, bool> kinds[] = {
      {Command::kRead, true},   {Command::kBlockStatus, true}, {Command::kWrite, false},
      {Command::kFlush, false}, {Command::kTrim, false},       {Command::kWriteZeroes, false}};
  for (const auto& [command, is_read] : kinds) {
    of_volume->set({.read_rate = 1, .write_rate = 1});
    ask(command);
    ask(Command::kRead);
    ask(Command::kWrite);
    CHECK_EQUAL(is_read ? 1 : 0, of_volume->reads_waiting());
    CHECK_EQUAL(is_read ? 0 : 1, of_volume->writes_waiting());
    of_volume->set({});
    CHECK_EQUAL(3, arrived().size());
  }
}

// A trim of 4 GiB moves no data: it must not use up hours of a budget of bytes.
TEST(BlockLimit, OnlyPayloadsCountAsBytes) {
  of_volume->set({.read_rate_bytes = 4096, .write_rate_bytes = 4096});
  for (const Command each :
       {Command::kFlush, Command::kTrim, Command::kWriteZeroes, Command::kBlockStatus}) {
    ask(each, UINT32_MAX);
  }
  CHECK_EQUAL(4, arrived().size());
  ask(Command::kRead, 4096);
  ask(Command::kWrite, 4096);
  CHECK_EQUAL(2, arrived().size());
  ask(Command::kRead, 1);
  ask(Command::kWrite, 1);
  CHECK_EQUAL(0, arrived().size());
}

TEST(BlockLimit, WaitsForEachOfItsLimits) {
  of_listener->set({.read_rate = 10});
  of_volume->set({.read_rate = 5});
  of_tenant->set({.read_rate = 2});
  for (int i = 0; i < 3; ++i) ask(Command::kRead, 512);
  CHECK((arrived() == Indices{0}));
  CHECK_EQUAL(2, of_listener->reads_waiting());
  pass(100 * kNsPerMs);
  CHECK_EQUAL(1, of_listener->reads_waiting());
  CHECK_EQUAL(1, of_volume->reads_waiting());
  pass(100 * kNsPerMs);
  CHECK_EQUAL(0, of_listener->reads_waiting());
  CHECK_EQUAL(1, of_volume->reads_waiting());
  CHECK_EQUAL(1, of_tenant->reads_waiting());
  CHECK((arrived() == Indices{}));
  pass(300 * kNsPerMs);
  CHECK((arrived() == Indices{1}));
  pass(500 * kNsPerMs);
  CHECK((arrived() == Indices{2}));
  CHECK_EQUAL(2, counted(LimitKind::kListener).reads.wait_ns.count());
  CHECK_EQUAL(2, counted(LimitKind::kVolume).reads.wait_ns.count());
  CHECK_EQUAL(2, counted(LimitKind::kTenant).reads.wait_ns.count());
}

TEST(BlockLimit, VolumesOfATenantShareItsLimit) {
  of_tenant->set({.write_rate = 1});
  ask(Command::kWrite, 512, 0);
  ask(Command::kWrite, 512, 1);
  CHECK((arrived() == Indices{0}));
  pass(kNsPerSecond);
  CHECK((arrived() == Indices{1}));
}

TEST(BlockLimit, AVolumesLimitIsItsOwn) {
  of_volume->set({.write_rate = 1});
  ask(Command::kWrite, 512, 0);
  ask(Command::kWrite, 512, 0);
  ask(Command::kWrite, 512, 1);
  CHECK((arrived() == Indices{0, 2}));
}

// Reads keep their order, writes keep theirs, a flush stays behind the writes before it.
TEST(BlockLimit, KeepsTheOrderOfReadsAndOfWrites) {
  of_volume->set({.read_rate = 1, .write_rate = 1});
  ask(Command::kWrite, 512);  // 0
  ask(Command::kWrite, 512);  // 1
  ask(Command::kRead, 512);   // 2
  ask(Command::kFlush);       // 3
  ask(Command::kRead, 512);   // 4
  CHECK((arrived() == Indices{0, 2}));
  pass(kNsPerSecond);
  Indices second = arrived();
  std::sort(second.begin(), second.end());  // the two are due at the same time
  CHECK((second == Indices{1, 4}));
  pass(kNsPerSecond);
  CHECK((arrived() == Indices{3}));
}

// No request overtakes another of its direction, in whatever order the limits end.
TEST(BlockLimit, AnEndOfLimitsKeepsTheOrder) {
  BlockLimit* const all[] = {of_listener.get(), of_volume.get(), of_tenant.get()};
  for (size_t first = 0; first < 3; ++first) {
    of_listener->set({.write_rate = 4});
    of_volume->set({.write_rate = 2});
    of_tenant->set({.write_rate = 1});
    const size_t begin = next;
    for (int i = 0; i < 6; ++i) ask(Command::kWrite, 512);
    pass(250 * kNsPerMs);
    pass(250 * kNsPerMs);
    pass(250 * kNsPerMs);
    for (size_t i = 0; i < 3; ++i) all[(first + i) % 3]->set({});
    const Indices order = arrived();
    CHECK_EQUAL(6, order.size());
    for (size_t i = 0; i < order.size(); ++i) CHECK_EQUAL(begin + i, order[i]);
  }
}

TEST(BlockLimit, TwoChangesInARowBothHold) {
  LimitRates rates = of_volume->rates();
  rates.read_rate = 1;
  of_volume->set(rates);
  rates = of_volume->rates();
  rates.write_rate_bytes = 4096;
  of_volume->set(rates);
  CHECK_EQUAL(1, of_volume->rates().read_rate);
  CHECK_EQUAL(1, counted(LimitKind::kVolume).reads.operations_per_second.read());
  CHECK_EQUAL(4096, counted(LimitKind::kVolume).writes.bytes_per_second.read());
  CHECK_EQUAL(100 * kNsPerMs, counted(LimitKind::kVolume).burst_ns.read());
  ask(Command::kRead, 512);
  ask(Command::kRead, 512);
  ask(Command::kWrite, 4096);
  ask(Command::kWrite, 4096);
  CHECK((arrived() == Indices{0, 2}));
}
