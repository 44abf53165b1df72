// Shows each quirk of device_quirks.h that one machine can show, without a provider in between:
// with two queue pairs of the device at hand. The test of a quirk fails, and says so, if the device
// no longer has the quirk, or has it although quirks_of() does not say so.
//
// Not here: quirks that need a lost packet or device, or a queue pair's reset at the right moment
// (device_quirks.h says which tests show them), and windows, which are probed on every device
// (window_probe.h).
#include <memory>
#include <string>
#include <vector>

#include <sys/mman.h>

#include "platform/clock.h"
#include "tests/support/patience.h"
#include "tests/support/skip.h"
#include "tests/support/soft_roce.h"
#include "transport/verbs/device/queue_pair.h"
#include "transport/verbs/device/verbs_device.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

// Two queue pairs of one device, connected to one another, and memory that both may use.
struct Pair {
  explicit Pair(const VerbsDevice& its_device) : device(its_device), memory(2 * kHalfBytes) {
    completions = ibv_create_cq(device.context(), 64, nullptr, nullptr, 0);
    region = ibv_reg_mr(device.domain(), memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
    CHECK(completions != nullptr && region != nullptr);
    const QueuePairOptions options = {.completions = completions, .send_count_max = 8};
    CHECK(sender.create(device, options).ok() && receiver.create(device, options).ok());
    const RetryOptions retry = {.timeout_log2 = 14, .count = 3};
    const ibv_mtu mtu = device.port().mtu;
    CHECK(sender.connect(1, mtu, receiver.address(2, mtu), retry).ok());
    CHECK(receiver.connect(2, mtu, sender.address(1, mtu), retry).ok());
  }
  ~Pair() {
    sender.destroy();
    receiver.destroy();
    ibv_dereg_mr(region);
    ibv_destroy_cq(completions);
  }
  ibv_sge piece(uint64_t at, uint64_t bytes) const {
    return {reinterpret_cast<uintptr_t>(memory.data() + at), static_cast<uint32_t>(bytes),
            region->lkey};
  }
  void send(uint64_t bytes) {
    ibv_sge local = piece(0, bytes);
    ibv_send_wr request = {};
    request.sg_list = &local;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* refused = nullptr;
    CHECK(ibv_post_send(sender.handle(), &request, &refused) == 0);
  }
  void post_receive(uint64_t bytes) {
    ibv_sge into = piece(kHalfBytes, bytes);
    ibv_recv_wr request = {};
    request.wr_id = UINT64_MAX;
    request.sg_list = &into;
    request.num_sge = 1;
    ibv_recv_wr* refused = nullptr;
    CHECK(ibv_post_recv(receiver.handle(), &request, &refused) == 0);
  }
  // How the request with `wr_id` ends.
  ibv_wc_status end_of(uint64_t wr_id) {
    const uint64_t deadline_ns = monotonic_ns() + kPatienceNs;
    for (ibv_wc one = {}; monotonic_ns() < deadline_ns;) {
      if (ibv_poll_cq(completions, 1, &one) > 0 && one.wr_id == wr_id) return one.status;
    }
    FAIL("the device ends nothing");
    return IBV_WC_GENERAL_ERR;
  }

  static constexpr uint64_t kHalfBytes = 4096;

  const VerbsDevice& device;
  std::vector<char> memory;
  ibv_cq* completions = nullptr;
  ibv_mr* region = nullptr;
  QueuePair sender;
  QueuePair receiver;
};

}  // namespace

TEST_GROUP(VerbsQuirkSigns) {
  std::unique_ptr<VerbsDevice> device;
  std::unique_ptr<Pair> pair;  // destroyed before the device, also if a test fails

  bool open() {
    if (!has_verbs_device()) return false;
    device = VerbsDevice::open({}).take();
    return true;
  }
  void check(const char* quirk, bool is_expected, bool is_seen) {
    if (is_seen == is_expected) return;
    const std::string text =
        device->port().device + (is_seen ? " has the quirk " : " has no longer the quirk ") +
        quirk + (is_seen ? ": quirks_of() has to say so" : ": what gets around it can go");
    FAIL(text.c_str());
  }
};

TEST(VerbsQuirkSigns, HidesLongMessages) {
  if (!open()) BP_SKIP(kNoVerbs);
  pair = std::make_unique<Pair>(*device);
  pair->post_receive(64);
  pair->send(128);
  const ibv_wc_status status = pair->end_of(UINT64_MAX);
  CHECK(status != IBV_WC_SUCCESS);
  check("hides_long_messages", device->quirks().hides_long_messages,
        status == IBV_WC_LOC_QP_OP_ERR);
}

// This quirk is the kernel's and has no name, because its workaround is right on every device. It
// is expected with soft RoCE, which hides_long_messages stands for.
TEST(VerbsQuirkSigns, WhatMayNotBeWrittenIsNotPinned) {
  if (!open()) BP_SKIP(kNoVerbs);
  void* memory = mmap(nullptr, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  ibv_mr* region = ibv_reg_mr(device->domain(), memory, 4096, 0);
  const bool is_seen = region == nullptr;
  if (region != nullptr) ibv_dereg_mr(region);
  munmap(memory, 4096);
  check("of what is mapped read-only", device->quirks().hides_long_messages, is_seen);
}
