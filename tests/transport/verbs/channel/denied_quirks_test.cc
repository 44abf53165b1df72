// Each quirk, denied and not denied. If it is denied, the fault that device_quirks.h describes
// happens; if not, it does not. If such a test fails, the device at hand may no longer have the
// quirk.
//
// Not here: reset_keeps_reads, which makes the kernel use memory that it has freed (docs/verbs.md).
#include "transport/verbs/device/device_quirks.h"

#include <cstring>

#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"
#include "tests/transport/verbs/verbs_fixture.h"
#include "tests/transport/verbs/verbs_stranger.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

constexpr char kNoQuirk[] = "this RDMA device has no such quirk";

}  // namespace

TEST_GROUP_BASE(VerbsDeniedQuirks, VerbsFixture) {
  void teardown() override { Stranger::release_all(); }
  // Returns whether the device has the quirk.
  bool has(bool DeviceQuirks::*quirk) {
    return VerbsDevice::open({.device = options.by_manager ? kManagedDevice : ""})
               .take()
               ->quirks().*
           quirk;
  }
  // Starts both sides again, with the quirk or without.
  void begin(bool DeviceQuirks::*quirk, bool is_denied) {
    rig.reset();
    options.denied = {};
    options.denied.*quirk = is_denied;
    CHECK(start(options));
    CHECK(rig->device().quirks().*quirk == !is_denied);
  }

  VerbsRigOptions options;
};

// If denied, an answer that has not come counts as come: the caller gets kDone without the data.
TEST(VerbsDeniedQuirks, AnAnswerThatHasNotComeIsTakenForDone) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  if (!has(&DeviceQuirks::ends_without_answer)) BP_SKIP(kNoQuirk);
  Block target(64), into(64);
  options.shape = {.peer_count_max = 2, .window = 4, .operation_count_max = 4};
  options.exported = target.span();
  for (const bool is_denied : {false, true}) {
    begin(&DeviceQuirks::ends_without_answer, is_denied);
    const RemoteMemory exposed = to_a().expose(target.span()).take();
    // The answer looks as if it had not come, for one slot of the queue.
    const uint64_t mark = SendQueue::answer_mark(2);
    std::memcpy(target.memory + 56, &mark, sizeof mark);
    size_t unknown_count = 0;
    for (size_t i = 0; i < 16; ++i) {  // the depth of the queue
      Counted ended;
      CHECK(to_b().get(into.span(), exposed, &ended) == SendStatus::kPending);
      CHECK(rig->poll_until([&] { return ended.count == 1; }));
      unknown_count += ended.outcome == Outcome::kUnknown;
    }
    LONGS_EQUAL(is_denied ? 0 : 1, unknown_count);
  }
}

// A peer that may reach a part of a page can read the bytes behind it.
TEST(VerbsDeniedQuirks, WhatLiesBehindAWindowIsRead) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  if (!has(&DeviceQuirks::ignores_window_bounds)) BP_SKIP(kNoQuirk);
  constexpr size_t kGivenBytes = 1000;
  Block block(4 * kKiB), into(4 * kKiB);
  begin(&DeviceQuirks::ignores_window_bounds, false);
  const auto refused = to_a().expose(block.span().first(kGivenBytes));
  CHECK(!refused.ok());
  STRCMP_CONTAINS("memory windows are not used here", refused.error().answer);

  begin(&DeviceQuirks::ignores_window_bounds, true);
  std::memset(block.memory, 7, block.bytes);
  std::memset(into.memory, 0, into.bytes);
  RemoteMemory forged = to_a().expose(block.span().first(kGivenBytes)).take();
  forged.bytes = block.bytes;
  for (int i = 0; i < 100; ++i) rig->poll();  // the window is bound
  Counted ended;
  CHECK(insist([&] { return to_b().get(into.span(), forged, &ended); }) == SendStatus::kPending);
  CHECK(rig->poll_until([&] { return ended.count == 1; }));
  CHECK(ended.outcome == Outcome::kDone);
  BYTES_EQUAL(7, static_cast<uint8_t>(into.memory[block.bytes - 1]));
}

// A peer that sends too much counts as a peer whose connection broke, and may connect again, any
// number of times.
TEST(VerbsDeniedQuirks, WhoSaysTooMuchIsLetInAgain) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  if (!has(&DeviceQuirks::hides_long_messages)) BP_SKIP(kNoQuirk);
  options.has_c = true;
  for (const bool is_denied : {false, true}) {
    begin(&DeviceQuirks::hides_long_messages, is_denied);
    const StrangerOptions c = {.device = &rig->device(),
                               .keys = &rig->keys(),
                               .address = parse_socket_address(rig->address()).take(),
                               .meanwhile = [this] { rig->poll(); }};
    Stranger stranger(c);
    CHECK(stranger.connect());
    CHECK(rig->poll_until([&] { return VerbsProvider::is_connected(rig->b.to("c")); }));
    const std::vector<char> body(options.shape.message_bytes);  // its header comes before it
    stranger.post(stranger.header(), body.data(), static_cast<uint32_t>(body.size()));
    CHECK(rig->poll_until([&] { return rig->b.counters.broken.read() == 1; }));
    LONGS_EQUAL(is_denied ? 0 : 1, rig->b.counters.cut_off.read());
    stranger.hang_up();
    CHECK(stranger.connect() == is_denied);
  }
}

// There is no workaround: the quirk only decides whether the log has the advice.
TEST(VerbsDeniedQuirks, NobodyIsToldThatTheManagerMayBeLost) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  if (!has_managed_device()) BP_SKIP(kNoManager);
  options.by_manager = true;
  options.has_b = false;
  if (!has(&DeviceQuirks::loses_manager)) BP_SKIP(kNoQuirk);
  for (const bool is_denied : {false, true}) {
    rig.reset();
    options.denied.loses_manager = is_denied;
    StderrCapture log;
    rig = std::make_unique<VerbsRig>(options);
    (void)to_b();  // there is no b
    CHECK(rig->poll_until([&] { return log.text().find("connecting to b") != std::string::npos; }));
    const bool is_told = log.finish().find("rdma link delete, add") != std::string::npos;
    CHECK(is_told == !is_denied);
  }
  rig.reset();
  rest_managed_device();
}
