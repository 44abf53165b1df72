// The checks of verbs before memory is taken: anything that the machine lacks is in the report or
// in the log. tests/guest/verbs_test.py tests a whole appliance.
#include "apps/peers/verbs_peers.h"

#include <string>

#include "apps/boot/shard_messenger.h"
#include "pinned_pool/pinned_pool.h"
#include "tests/apps/configuration/configuration_support.h"
#include "tests/support/death_test.h"
#include "tests/support/fake_root.h"
#include "tests/support/patience.h"
#include "tests/support/skip.h"
#include "tests/support/soft_roce.h"
#include "tests/support/stderr_capture.h"
#include "tests/transport/loop/plain_sleeper.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

// Returns a configuration with [verbs]. Its pool is large enough for segment 0 of the tests.
std::string file_with_verbs(const std::string& lines) {
  std::string text = file_with(4, "bytes = \"2 GiB\"") + "[verbs]\n" + lines;
  return text.erase(text.find("[blockd]"), text.find("[verbs]") - text.find("[blockd]"));
}

std::vector<Error> problems_of(const std::string& text) {
  const auto configuration = parsed(text);
  auto plan = plan_appliance(configuration);
  CHECK(plan.ok());
  std::vector<Error> problems;
  VerbsPeers peers;
  peers.open(configuration, plan.value(), &problems);
  CHECK_FALSE(peers.is_there());
  return problems;
}

}  // namespace

// ---- Without a device ----

TEST_GROUP(Peers) { bool has_device = choose_verbs_port("", 0).ok(); };

TEST(Peers, WithoutVerbsNothingIsLookedFor) {
  LONGS_EQUAL(0, problems_of(file_with(4, "bytes = \"2 GiB\"")).size());
}

TEST(Peers, ADeviceThatIsRequiredIsAProblem) {
  if (has_device) BP_SKIP("there is an RDMA device");
  const auto problems = problems_of(file_with_verbs(""));
  LONGS_EQUAL(1, problems.size());
  STRCMP_EQUAL("looking for RDMA devices", problems[0].doing);
  CHECK(std::string(problems[0].cure).find("load the device's module") == 0 ||
        std::string(problems[0].cure).find("modprobe ib_uverbs") == 0);
}

TEST(Peers, ADeviceThatIsNotIsALineInTheLog) {
  if (has_device) BP_SKIP("there is an RDMA device");
  StderrCapture log;
  LONGS_EQUAL(0, problems_of(file_with_verbs("required = false\n")).size());
  const std::string text = log.text();
  STRCMP_CONTAINS("looking for RDMA devices: ", text.c_str());
  STRCMP_CONTAINS("demo: running without peers, as [verbs] required = false allows", text.c_str());
}

// Without a device, a missing module and an address that is taken are no problems either.
TEST(Peers, WhatIsNotRequiredIsNoProblemWhateverIsMissing) {
  if (has_device) BP_SKIP("there is an RDMA device");
  const auto taken = listen_at(parse_socket_address("tcp:127.0.0.1:7473").take());
  CHECK(taken.ok());
  const std::string listen = "listen = \"tcp:127.0.0.1:7473\"\n";
  StderrCapture log;
  LONGS_EQUAL(0, problems_of(file_with_verbs("required = false\n" + listen)).size());
  const std::string connect = "connect = \"rdma_cm\"\n";
  LONGS_EQUAL(0, problems_of(file_with_verbs("required = false\n" + connect)).size());
  STRCMP_CONTAINS("opening /dev/infiniband/rdma_cm, which [verbs] connect = \"rdma_cm\" needs: No "
                  "such file or directory; load the kernel module rdma_ucm (modprobe rdma_ucm), or "
                  "set connect = \"socket\", at all peers",
                  log.text().c_str());
}

TEST(Peers, AllThatIsMissingIsInOneReport) {
  if (has_device) BP_SKIP("there is an RDMA device");
  const auto taken = listen_at(parse_socket_address("tcp:127.0.0.1:7473").take());
  const auto problems = problems_of(file_with_verbs("listen = \"tcp:127.0.0.1:7473\"\n"));
  LONGS_EQUAL(2, problems.size());
  STRCMP_EQUAL("looking for RDMA devices", problems[0].doing);
  STRCMP_CONTAINS("7473", problems[1].doing);
  const auto managed = problems_of(file_with_verbs("connect = \"rdma_cm\"\n"));
  LONGS_EQUAL(2, managed.size());
  STRCMP_EQUAL("looking for RDMA devices", managed[0].doing);
  STRCMP_CONTAINS("/dev/infiniband/rdma_cm", managed[1].doing);
}

// ---- With a device ----

TEST_GROUP(VerbsPeers) { bool has_device = has_verbs_device(); };

TEST(VerbsPeers, AllThatIsThereIsGood) {
  if (!has_device) BP_SKIP(kNoVerbs);
  LONGS_EQUAL(0, problems_of(file_with_verbs("listen = \"tcp:127.0.0.1:7471\"\n")).size());
}

// Runs VerbsPeers from its memory to its end without an appliance, and checks is_valid() at each
// step. A probe, because its segment stays in the pool.
BP_PROBE(VerbsPeersWholeLife) {
  const auto configuration =
      parsed(file_with_verbs("listen = \"tcp:127.0.0.1:7471\"\n[[verbs.peer]]\nname = \"b\"\n"));
  auto plan = plan_appliance(configuration);
  BP_PROBE_CHECK(plan.ok());
  const OwnerName owner("verbs");
  PinnedPool& pool = process_pool();
  for (const SegmentPlan& segment : plan.value().pool.segments) {
    if (!(segment.owner == owner)) continue;
    BP_PROBE_CHECK(pool.create_segment(owner, segment.bytes, PageSize::k4KiB, 1).ok());
  }
  const test::FakeRoot directory;  // declared first, so it is removed last
  NameLock lock;
  CountersFile file;
  BP_PROBE_CHECK(lock.take(directory.path(), "demo").ok());
  BP_PROBE_CHECK(file.create(lock, plan.value().counters()).ok());
  EventLoop loop;
  BP_PROBE_CHECK(loop.create({}).ok());
  PlainSleeper sleeper(loop);
  loop.set_sleeper(sleeper);
  const MessageNames names;
  ShardMessenger messenger("main", 0, names);
  std::vector<Error> problems;
  VerbsPeers peers;
  BP_PROBE_CHECK(peers.is_valid() && !peers.is_drained());
  peers.open(configuration, plan.value(), &problems);
  BP_PROBE_CHECK(problems.empty() && !peers.is_there());
  BP_PROBE_CHECK(peers.create(configuration, pool, loop, &messenger, file).ok());
  BP_PROBE_CHECK(peers.is_there() && peers.is_valid());
  const Segment& last = pool.segment(pool.segment_count() - 1);
  const KeyedRange found = peers.key(last.address, 64);
  BP_PROBE_CHECK(found.key != kNoKey && found.bytes == 64 && peers.domain() != nullptr);
  BP_PROBE_CHECK(peers.key(&found, sizeof found).key == kNoKey);  // a stack is not in the pool
  peers.begin();
  for (int i = 0; i < 100; ++i) {
    messenger.poll(16);
    peers.poll(1);
    BP_PROBE_CHECK(peers.is_valid() && !peers.is_drained());  // no drain was requested
  }
  peers.refresh_counters();
  peers.request_drain();
  BP_PROBE_CHECK(eventually([&] {
    messenger.poll(16);
    peers.poll(1);
    return peers.is_drained();
  }));
  BP_PROBE_CHECK(peers.is_valid());
  peers.close();
  BP_PROBE_CHECK(peers.is_valid() && !peers.is_there());
  BP_PROBE_CHECK(peers.key(last.address, 64).key == kNoKey && peers.domain() == nullptr);
  peers.close();
}

TEST(VerbsPeers, KeepWhatTheyPromiseAllTheirLife) {
  if (!has_device) BP_SKIP(kNoVerbs);
  BP_CHECK_PROBE(VerbsPeersWholeLife);
}

TEST(VerbsPeers, AnotherDevicesNameIsAProblem) {
  if (!has_device) BP_SKIP(kNoVerbs);
  const auto problems = problems_of(file_with_verbs("device = \"mlx5_7\"\nport = 3\n"));
  LONGS_EQUAL(1, problems.size());
  STRCMP_EQUAL("looking for the RDMA device mlx5_7, port 3", problems[0].doing);
  STRCMP_CONTAINS("there are: ", problems[0].answer);
}

TEST(VerbsPeers, OfTwoDevicesTheOneThatIsNamedIsTaken) {
  if (!has_device || !has_managed_device()) BP_SKIP("no second RDMA device");
  LONGS_EQUAL(0, problems_of(file_with_verbs("device = \"rxe1\"\n")).size());
  const auto problems = problems_of(file_with_verbs("device = \"rxe1\"\nport = 2\n"));
  LONGS_EQUAL(1, problems.size());
  STRCMP_CONTAINS("rxe0 port 1", problems[0].answer);
  STRCMP_CONTAINS("rxe1 port 1", problems[0].answer);
}

// All limits are reported at once, each with the number needed and the device's maximum.
TEST(VerbsPeers, WhatTheDeviceLimitsIsSaidWithBothNumbers) {
  if (!has_device) BP_SKIP(kNoVerbs);
  auto device = VerbsDevice::open({}).take();
  const ibv_device_attr limits = device->limits();
  const uint64_t completions = 256 * (4096 + 2 + 16384) + 16;
  const uint64_t receives = 256 * (4096 + 2) + 16;
  if (static_cast<uint64_t>(limits.max_cqe) >= completions ||
      static_cast<uint64_t>(limits.max_srq_wr) >= receives) {
    BP_SKIP("this device has enough of everything");
  }
  const auto problems = problems_of(
      file_with_verbs("max_peers = 256\nwindow = 4096\noperations = 4096\nmessage_bytes = 256\n"));
  const auto is_there = [&](const std::string& answer) {
    for (const Error& problem : problems) {
      if (problem.answer == answer) return true;
    }
    return false;
  };
  CHECK(is_there(std::to_string(receives) + " receives in a shared queue are needed, it has " +
                 std::to_string(limits.max_srq_wr)));
  CHECK(is_there(std::to_string(completions) + " completions in a queue are needed, it has " +
                 std::to_string(limits.max_cqe)));
  for (const Error& problem : problems) CHECK(problem.cure[0] != '\0');
}

TEST(VerbsPeers, WhatIsOverALimitIsLeftWhereItIsNotRequired) {
  if (!has_device) BP_SKIP(kNoVerbs);
  StderrCapture log;
  LONGS_EQUAL(0, problems_of(file_with_verbs("required = false\nmax_peers = 256\nwindow = 4096\n"
                                             "operations = 4096\nmessage_bytes = 256\n"))
                     .size());
  STRCMP_CONTAINS("completions in a queue are needed", log.text().c_str());
}

TEST(VerbsPeers, AnAddressThatIsTakenIsAProblem) {
  if (!has_device) BP_SKIP(kNoVerbs);
  auto other = listen_at(parse_socket_address("tcp:127.0.0.1:7472").take());
  CHECK(other.ok());
  const auto problems =
      problems_of(file_with_verbs("required = false\nlisten = \"tcp:127.0.0.1:7472\"\n"));
  LONGS_EQUAL(1, problems.size());
  STRCMP_CONTAINS("7472", problems[0].doing);
}
