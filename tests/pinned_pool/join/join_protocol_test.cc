#include "pinned_pool/join/join_protocol.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include <sys/socket.h>
#include <sys/un.h>

#include "pinned_pool/join/join_socket.h"
#include "tests/pinned_pool/join/join_rig.h"
#include "tests/support/seed.h"

using namespace bedplate;
using namespace bedplate::join;
using bedplate::test::Child;
using bedplate::test::JoinRig;

namespace {

// An answer as the owner sends it: two segments, with a members table in the first.
std::unique_ptr<Accepted> good_answer() {
  auto accepted = std::make_unique<Accepted>();
  accepted->group = "mesh";
  accepted->members_address = kPoolBase + 4096;
  accepted->member_count = 1;
  accepted->segment_count = 2;
  accepted->segments[0] = {"members", kPoolBase, 8192, 4096, 0, 1, 1, SegmentRole::kMembers};
  accepted->segments[1] = {"fifo:mesh", kPoolBase + kRegionBytes, 8192, 4096, 1, 1,
                           2,           SegmentRole::kFifo};
  return accepted;
}

}  // namespace

TEST_GROUP(JoinProtocol) {
  std::unique_ptr<Accepted> accepted = good_answer();

  void check_refused(const char* answer, uint32_t descriptor_count = 3, size_t bytes = 0) {
    auto checked =
        check_accepted(*accepted, bytes != 0 ? bytes : accepted->bytes(), descriptor_count);
    CHECK(!checked.ok());
    STRCMP_EQUAL(answer, checked.error().answer);
    accepted = good_answer();
  }
};

TEST(JoinProtocol, AnAnswerThatMakesSensePasses) {
  CHECK(check_accepted(*accepted, accepted->bytes(), 3).ok());
}

TEST(JoinProtocol, AnswersThatMakeNoneAreRefused) {
  check_refused("2 descriptors arrived for 2 segments", 2);
  check_refused("a packet has the wrong length", 3, accepted->bytes() - 1);
  check_refused("a packet has the wrong length", 3, sizeof(Head));
  accepted->segment_count = kSegmentCountMax + 1;
  check_refused("a packet has the wrong length");
  accepted->head.version = 9;
  check_refused("it uses version 9, this program version 4");
  accepted->member_count = 0;
  check_refused("its description of the group is not valid");
  accepted->layout_bytes = kLayoutBytesMax + 1;
  check_refused("its description of the group is not valid");
  accepted->terms_bytes = kTermsBytesMax + 1;
  check_refused("its terms for this process are not valid");
  std::memset(accepted->group.text, 'x', sizeof accepted->group.text);
  check_refused("its description of the group is not valid");
  accepted->segments[1].is_writable = 2;
  check_refused("its description of a segment is not valid");
  accepted->segments[1].is_for_devices = 2;
  check_refused("its description of a segment is not valid");
  accepted->segments[1].number = kSegmentCountMax;
  check_refused("its description of a segment is not valid");
  accepted->segments[1].role = static_cast<SegmentRole>(77);
  check_refused("its description of a segment is not valid");
  accepted->segments[1].owner = "\x1b[2J";
  check_refused("its description of a segment is not valid");
  accepted->members_address = kPoolBase + 8192;
  check_refused("the members table lies outside its segment");
  accepted->members_address = kPoolBase + 4097;
  check_refused("the members table lies outside its segment");
  accepted->segments[1].role = SegmentRole::kOther;
  check_refused("a segment is missing or listed twice");
  accepted->segments[0].role = SegmentRole::kFifo;
  check_refused("a segment is missing or listed twice");
}

// Another service's packet has the length of a refusal, and a kind that would permit another try.
TEST(JoinProtocol, WhatIsNoRefusalOfBedplateIsNotTriedAgain) {
  JoinRig rig;
  const Fd listener = listen_for_joiners(rig.path).take();
  Child child = rig.fork_joiner([](JoinOptions& options) {
    const auto joined = JoinedPool::join(options);
    BP_PROBE_CHECK(!joined.ok());
    BP_PROBE_CHECK(std::strcmp(joined.error().answer, "the other end is not Bedplate") == 0);
  });
  CHECK(test::has_input(listener.number()));
  const Fd peer(accept(listener.number(), nullptr, nullptr));
  Explained refusal = explain(PacketKind::kNotNow, Error{});
  refusal.head.magic = kMagic + 1;
  LONGS_EQUAL(0, send_packet(peer.number(), &refusal, sizeof refusal));
  LONGS_EQUAL(0, child.status());
  LONGS_EQUAL(-1, accept(listener.number(), nullptr, nullptr));
}

TEST(JoinProtocol, WhatIsToldIsTextWhateverWasSent) {
  Explained explained;
  std::memset(&explained.doing, 0xff, sizeof explained.doing);
  std::strcpy(explained.answer, "bell\a and \x1b[2J");
  const Error error = told(explained);
  LONGS_EQUAL(sizeof error.doing - 1, std::strlen(error.doing));
  STRCMP_EQUAL("bell? and ?[2J", error.answer);
}

TEST(JoinProtocol, DescriptorsThatAreNotWantedAreClosed) {
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
  const Fd left(ends[0]), right(ends[1]);
  const size_t before = JoinRig::open_file_count();
  const int given[3] = {ends[0], ends[0], ends[0]};
  const Head head = {.kind = PacketKind::kReady};
  Head heard = head;
  LONGS_EQUAL(0, send_packet(ends[0], &head, sizeof head, given));
  LONGS_EQUAL(sizeof head, receive_packet(ends[1], &heard, sizeof heard));
  LONGS_EQUAL(before, JoinRig::open_file_count());
  {
    Fd kept[2];
    uint32_t count = 0;
    LONGS_EQUAL(0, send_packet(ends[0], &head, sizeof head, given));
    LONGS_EQUAL(sizeof head, receive_packet(ends[1], &heard, sizeof heard, 0, kept, &count));
    LONGS_EQUAL(2, count);
    LONGS_EQUAL(before + 2, JoinRig::open_file_count());
  }
  LONGS_EQUAL(before, JoinRig::open_file_count());
}

// An owner that accepts late leaves the joiner less time for its answer: a join takes its timeout
// once.
TEST(JoinProtocol, AConnectionWaitsOnlyUntilTheDeadline) {
  JoinRig rig;
  const Fd listener = listen_for_joiners(rig.path).take();
  LONGS_EQUAL(0, listen(listener.number(), 0));  // one connection waits, the next one blocks
  const uint64_t begin_ns = monotonic_ns();
  const uint64_t deadline_ns = begin_ns + JoinRig::kPatienceNs;
  const Fd first = connect_to_owner(rig.path, deadline_ns).take();
  uint64_t accepted_ns = 0;
  std::thread owner([&] {
    test::eventually([&] { return monotonic_ns() >= begin_ns + 50 * kNsPerMs; });
    accepted_ns = monotonic_ns();
    const Fd peer(accept(listener.number(), nullptr, nullptr));
  });
  auto late = connect_to_owner(rig.path, deadline_ns);
  owner.join();
  CHECK(late.ok());
  timeval limit = {};
  socklen_t bytes = sizeof limit;
  LONGS_EQUAL(0, getsockopt(late.value().number(), SOL_SOCKET, SO_RCVTIMEO, &limit, &bytes));
  const uint64_t limit_ns = static_cast<uint64_t>(limit.tv_sec) * kNsPerSecond +
                            static_cast<uint64_t>(limit.tv_usec) * 1000;
  constexpr uint64_t kJiffyNs = 10 * kNsPerMs;  // the kernel rounds up to its clock's tick
  CHECK(limit_ns <= deadline_ns - accepted_ns + kJiffyNs);
}

// Random packets, requests with random bytes, and unwanted descriptors. Half of the peers close
// before the answer. Afterwards a process joins as usual.
TEST(JoinProtocol, ServerOutlastsNonsense) {
  JoinRig rig;
  rig.start();
  const size_t before = JoinRig::open_file_count();
  const test::Seed seed;
  std::mt19937_64 random(seed.value());
  for (int round = 0; round < 4000; ++round) {
    const Fd socket = connect_to_owner(rig.path, monotonic_ns() + JoinRig::kPatienceNs).take();
    Request request;
    request.pool_base = test::kTestPoolBase;
    request.process = MemberName("nobody");
    std::byte packet[2048];
    for (std::byte& byte : packet) byte = static_cast<std::byte>(random());
    size_t bytes = random() % sizeof packet;
    if (random() % 4 != 0) {
      std::memcpy(packet, &request, sizeof request);
      for (uint64_t i = random() % 4; i > 0; --i) {
        packet[random() % sizeof request] = static_cast<std::byte>(random());
      }
      if (random() % 4 != 0) bytes = sizeof request;
    }
    const int thrown[4] = {socket.number(), 0, 1, 2};
    const size_t thrown_count = random() % 5;
    const int outcome = send_packet(socket.number(), packet, bytes, {thrown, thrown_count});
    if (outcome == EPERM && thrown_count > 0) continue;  // the kernel refuses descriptors
    if (random() % 2 == 0) continue;                     // closes before the answer
    Explained refusal;
    const timeval patience = {JoinRig::kPatienceNs / kNsPerSecond, 0};
    setsockopt(socket.number(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    const int64_t got = receive_packet(socket.number(), &refusal, sizeof refusal);
    // Before Linux 6.16, the server cuts off a connection that brings descriptors, unread.
    const bool is_cut_off = got == -ECONNRESET && thrown_count > 0;
    CHECK_TEXT(got == sizeof refusal || got == 0 || is_cut_off, seed.text());
  }
  Child child = rig.start_joiner();
  LONGS_EQUAL(1, rig.wait_for(JoinEvent::Kind::kJoined));
  child.kill_and_wait();
  LONGS_EQUAL(1, rig.wait_for(JoinEvent::Kind::kFreed));
  CHECK_TEXT(JoinRig::becomes([&] { return JoinRig::open_file_count() == before; }), seed.text());
}

TEST(JoinProtocol, NonsenseOfAJoinedProcessCutsItOff) {
  JoinRig rig;
  rig.start();
  Child child = rig.fork_joiner([](JoinOptions& options) {
    JoinedPool joined = JoinedPool::join(options).take();
    (void)joined.ready();
    send_packet(joined.control_fd(), "nonsense", 8);
    BP_PROBE_CHECK(test::has_input(joined.control_fd()));
    pause();
  });
  LONGS_EQUAL(1, rig.wait_for(JoinEvent::Kind::kDied));
  STRCMP_EQUAL("it sent an invalid message", rig.last(JoinEvent::Kind::kDied).error.answer);
  CHECK(rig.table->state(1) == MemberState::kDead);
}
