// RDMA devices as devices of the pool (transport/verbs/device/verbs_drivers.cc has their drivers):
// a device is found, or refused with a reason; the pool is local only; exports have exactly their
// rights; and errors about limits have both numbers.
#include "transport/verbs/device/verbs_device.h"

#include <cstring>

#include "tests/support/death_test.h"
#include "tests/support/pool_fixture.h"
#include "tests/support/skip.h"
#include "tests/support/soft_roce.h"
#include "tests/transport/verbs/verbs_fixture.h"
#include "transport/verbs/device/queue_pair.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

constexpr uint64_t kPage = 4 * kKiB;

// Two queue pairs of one device, connected to one another.
struct Pair {
  ibv_cq* completions = nullptr;
  QueuePair here;
  QueuePair there;

  explicit Pair(const VerbsDevice& device) {
    completions = ibv_create_cq(device.context(), 16, nullptr, nullptr, 0);
    const QueuePairOptions options = {.completions = completions, .send_count_max = 4};
    BP_ASSERT(here.create(device, options).ok() && there.create(device, options).ok());
    connect();
  }
  ~Pair() {
    here.destroy();
    there.destroy();
    ibv_destroy_cq(completions);
  }
  void connect() {
    constexpr ibv_mtu kMtu = IBV_MTU_1024;
    auto outcome = here.connect(7, kMtu, there.address(9, kMtu), {});
    CHECK_TEXT(outcome.ok(), outcome.ok() ? "" : outcome.error().answer);
    CHECK(there.connect(9, kMtu, here.address(7, kMtu), {}).ok());
  }
  ibv_wc_status run(ibv_wr_opcode opcode, void* local, uint32_t key, uint32_t bytes, void* remote,
                    uint32_t remote_key) {
    ibv_sge piece = {reinterpret_cast<uintptr_t>(local), bytes, key};
    ibv_send_wr request = {};
    request.opcode = opcode;
    request.send_flags = IBV_SEND_SIGNALED;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.wr.rdma = {reinterpret_cast<uintptr_t>(remote), remote_key};
    ibv_send_wr* bad = nullptr;
    CHECK(ibv_post_send(here.handle(), &request, &bad) == 0);
    ibv_wc completion = {};
    while (ibv_poll_cq(completions, 1, &completion) == 0) {
    }
    if (completion.status != IBV_WC_SUCCESS) {  // the same pair goes on, as after any loss
      CHECK(here.reset().ok() && there.reset().ok());
      connect();
    }
    return completion.status;
  }
};

}  // namespace

TEST_GROUP(VerbsDevice) {
  TestPool pool{kTestPoolBaseInRange};
  std::unique_ptr<VerbsDevice> device;
  KeyTable keys;
  bool is_there = false;

  void setup() override {
    is_there = has_verbs_device();
    CHECK(pool->create_segment("one", 16 * kPage, PageSize::k4KiB, 1).ok());
    CHECK(pool->create_segment("two", 16 * kPage, PageSize::k4KiB, 1).ok());
  }
  void open(const VerbsDeviceOptions& options = {}) {
    auto opened = VerbsDevice::open(options);
    CHECK_TEXT(opened.ok(), opened.ok() ? "" : opened.error().answer);
    device = opened.take();
  }
  std::byte* memory(uint32_t segment) { return pool->segment(segment).address; }
};

TEST(VerbsDevice, SaysWhyThereIsNone) {
  if (is_there) BP_SKIP("there is an RDMA device here");
  const auto refused = VerbsDevice::open({});
  CHECK_FALSE(refused.ok());
  STRCMP_EQUAL("looking for RDMA devices", refused.error().doing);
  const bool has_core = access("/sys/class/infiniband", F_OK) == 0;
  STRCMP_EQUAL(has_core ? "the kernel has none" : "the kernel's module ib_core is not loaded",
               refused.error().answer);
  CHECK(std::strstr(refused.error().cure, "rdma link add rxe0") != nullptr);
}

TEST(VerbsDevice, NamesTheDriversThatAreLinkedIn) {
  if (kIsSanitized) BP_SKIP("sanitizer builds take the system's drivers");
  for (const char* name : {"rxe", "mlx5", "mlx4", "efa", "irdma", "bnxt_re"}) {
    CHECK_TEXT(std::strstr(verbs_drivers(), name) != nullptr, name);
  }
}

TEST(VerbsDevice, IsFoundByNameOrRefusedWithWhatThereIs) {
  if (!is_there) BP_SKIP(kNoVerbs);
  const auto refused = VerbsDevice::open({.device = "mlx5_7", .port = 1});
  CHECK_FALSE(refused.ok());
  STRCMP_EQUAL("looking for the RDMA device mlx5_7, port 1", refused.error().doing);
  const std::string name = choose_verbs_port("", 0).value().device;
  CHECK(std::strstr(refused.error().answer, name.c_str()) != nullptr);
  open({.device = name, .port = 1});
  STRCMP_EQUAL(name.c_str(), device->kind().name);
  CHECK(device->port().is_usable());
}

TEST(VerbsDevice, RegistersEachSegmentOnceAndForItselfAlone) {
  if (!is_there) BP_SKIP(kNoVerbs);
  open();
  const RegistrationCounts before = registration_counts();
  CHECK(keys.create(*pool, *device).ok());
  LONGS_EQUAL(2, registration_counts().total - before.total);
  Pair pair(*device);
  std::byte* from = memory(0) + 100;
  std::byte* to = memory(1) + 5000;
  std::memset(from, 42, 3000);
  const Key from_key = keys.key(from, 3000).key;
  const Key to_key = keys.key(to, 3000).key;
  // A peer that has the pool's own keys can do nothing with them.
  for (ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    LONGS_EQUAL(IBV_WC_REM_ACCESS_ERR, pair.run(opcode, from, VerbsDevice::local_key(from_key),
                                                3000, to, device->region(to_key)->rkey));
  }
  BYTES_EQUAL(0, static_cast<uint8_t>(to[0]));
  keys.destroy();
}

TEST(VerbsDevice, ExportsGiveJustTheirRightsOnJustTheirBytes) {
  if (!is_there) BP_SKIP(kNoVerbs);
  open();
  CHECK(keys.create(*pool, *device).ok());
  auto readable = device->add_export(*pool, {memory(1) + 64, 1000}, kRead);
  auto writable = device->add_export(*pool, {memory(1) + 8192, 1000}, kAllRights);
  CHECK(readable.ok() && writable.ok());
  POINTERS_EQUAL(readable.value(), device->find_export(memory(1) + 64, 1000, kRead));
  POINTERS_EQUAL(nullptr, device->find_export(memory(1) + 64, 1001, kRead));
  POINTERS_EQUAL(nullptr, device->find_export(memory(1) + 63, 10, kRead));
  POINTERS_EQUAL(nullptr, device->find_export(memory(1) + 64, 10, kAllRights));
  POINTERS_EQUAL(writable.value(), device->find_export(memory(1) + 9191, 1, kRead));
  std::byte* local = memory(0);
  const uint32_t key = VerbsDevice::local_key(keys.key(local, kPage).key);
  std::memset(local, 42, kPage);
  {
    Pair pair(*device);
    const uint32_t readable_key = readable.value()->remote_key;
    const uint32_t writable_key = writable.value()->remote_key;
    std::byte* at = memory(1) + 64;
    LONGS_EQUAL(IBV_WC_SUCCESS, pair.run(IBV_WR_RDMA_READ, local, key, 1000, at, readable_key));
    LONGS_EQUAL(IBV_WC_REM_ACCESS_ERR,
                pair.run(IBV_WR_RDMA_READ, local, key, 1001, at, readable_key));
    LONGS_EQUAL(IBV_WC_REM_ACCESS_ERR,
                pair.run(IBV_WR_RDMA_WRITE, local, key, 10, at, readable_key));
    at = memory(1) + 8192;
    LONGS_EQUAL(IBV_WC_SUCCESS, pair.run(IBV_WR_RDMA_WRITE, local, key, 1000, at, writable_key));
    LONGS_EQUAL(IBV_WC_REM_ACCESS_ERR,
                pair.run(IBV_WR_RDMA_WRITE, local, key, 10, at - 1, writable_key));
    LONGS_EQUAL(IBV_WC_REM_ACCESS_ERR,
                pair.run(IBV_WR_RDMA_WRITE, local, key, 10, at, writable_key + 1));
  }
  keys.destroy();
}

TEST(VerbsDevice, WhatItCannotSendInlineIsNotAskedOfIt) {
  if (!is_there) BP_SKIP(kNoVerbs);
  open();
  ibv_cq* completions = ibv_create_cq(device->context(), 16, nullptr, nullptr, 0);
  QueuePair queue_pair;
  const auto made = queue_pair.create(
      *device, {.completions = completions, .send_count_max = 4, .inline_bytes = 1 << 20});
  CHECK_TEXT(made.ok(), made.ok() ? "" : made.error().answer);
  CHECK(queue_pair.inline_bytes() > 0 && queue_pair.inline_bytes() < 1 << 20);
  queue_pair.destroy();
  ibv_destroy_cq(completions);
}

#if BP_DEBUG
TEST(VerbsDevice, AQueuePairIsConnectedFromResetAlone) {
  if (!is_there) BP_SKIP(kNoVerbs);
  open();
  {
    Pair pair(*device);
    CHECK(pair.here.is_valid() && pair.there.is_valid());
    const QueuePairAddress peer = pair.there.address(9, IBV_MTU_1024);
    const auto connect = [&] { (void)pair.here.connect(7, IBV_MTU_1024, peer, {}); };
    BP_CHECK_DIES("handle_->state == IBV_QPS_RESET", connect());
    pair.here.fail();
    CHECK(pair.here.is_failed() && pair.here.is_valid());
    BP_CHECK_DIES("handle_->state == IBV_QPS_RESET", connect());
    CHECK(pair.here.reset().ok() && pair.there.reset().ok());
    pair.connect();
  }
}
#endif

TEST(VerbsDevice, WhatThePlanExceedsIsSaidWithBothNumbers) {
  if (!is_there) BP_SKIP(kNoVerbs);
  open({.export_count_max = 1});
  const auto max = static_cast<uint64_t>(device->limits().max_qp);
  const VerbsDemand demands[] = {{"queue pairs", "make max_peers smaller", max, max},
                                 {"queue pairs", "make max_peers smaller", max + 1, max}};
  CHECK(device->check_demands(std::span(demands).first(1)).ok());
  const auto refused = device->check_demands(demands);
  CHECK_FALSE(refused.ok());
  const std::string expected =
      std::to_string(max + 1) + " queue pairs are needed, it has " + std::to_string(max);
  STRCMP_EQUAL(expected.c_str(), refused.error().answer);
  CHECK(device->add_export(*pool, {memory(0), 10}, kRead).ok());
  const auto second = device->add_export(*pool, {memory(0), 10}, kRead);
  CHECK_FALSE(second.ok());
  STRCMP_EQUAL("there are 1 exports already, as many as were planned", second.error().answer);
}

TEST(VerbsDevice, KnowsWhetherWindowsAreEnforced) {
  if (!is_there) BP_SKIP(kNoVerbs);
  open();
  if (device->port().device.starts_with("rxe")) {
    CHECK(device->has_windows());
    CHECK_FALSE(device->enforces_windows());  // docs/verbs.md
  }
}

TEST(VerbsDevice, TellsWhoseQueuePairItIsAndCountsItsOwnFaults) {
  if (!is_there) BP_SKIP(kNoVerbs);
  open();
  struct Owner final : QueuePairOwner {
    std::vector<ibv_event_type> told;
    void take_event(ibv_event_type type) noexcept override { told.push_back(type); }
  } owner;
  ForgedEvents events(*device);
  LONGS_EQUAL(0, events.take());
  CHECK_FALSE(device->tells_last_receive());
  ibv_qp* const owned = events.queue_pair(&owner);
  events.tell(IBV_EVENT_QP_ACCESS_ERR, owned);
  events.tell(IBV_EVENT_QP_FATAL, events.queue_pair(nullptr));  // such as the probe's
  events.tell(IBV_EVENT_QP_LAST_WQE_REACHED, owned);
  LONGS_EQUAL(3, events.take());
  LONGS_EQUAL(2, owned->events_completed);  // acknowledged: it can be destroyed
  CHECK((owner.told == std::vector{IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_LAST_WQE_REACHED}));
  CHECK(device->tells_last_receive());
  LONGS_EQUAL(0, device->fault_count());
  events.tell(IBV_EVENT_DEVICE_FATAL, nullptr);
  events.tell(IBV_EVENT_PORT_ACTIVE, nullptr);
  LONGS_EQUAL(2, events.take());
  LONGS_EQUAL(1, device->fault_count());
  LONGS_EQUAL(5, device->event_count());
}
