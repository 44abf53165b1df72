#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "pinned_pool/join/join_socket.h"
#include "tests/pinned_pool/join/join_rig.h"
#include "tests/support/skip.h"

using namespace bedplate;
using bedplate::test::become_other_user;
using bedplate::test::Child;
using bedplate::test::JoinRig;
using bedplate::test::kOtherUser;
using Kind = JoinEvent::Kind;

namespace {

Fd connect_raw(const char* path) {
  return connect_to_owner(path, monotonic_ns() + JoinRig::kPatienceNs).take();
}

int wait_on = -1;  // a pipe end, in a child

// A request of the process "relay", which tests change so that it is refused.
join::Request odd_request() {
  join::Request request;
  request.pool_base = test::kTestPoolBase;
  request.process = MemberName("relay");
  return request;
}

}  // namespace

TEST_GROUP(Join) {
  JoinRig rig;

  // Starts a child that waits for a free place, kPatienceNs at most.
  Child start_patient(uint32_t member_count) {
    return rig.fork_joiner([&](JoinOptions& options) {
      JoinRig::close_on_exec();
      options.member_count = member_count;
      options.timeout_ns = JoinRig::kPatienceNs;
      BP_PROBE_CHECK(JoinedPool::join(options).take().ready().ok());
      pause();
    });
  }

  void check_answer(const join::Request& request, const char* answer,
                    size_t bytes = sizeof(join::Request)) {
    const Fd socket = connect_raw(rig.path);
    LONGS_EQUAL(0, join::send_packet(socket.number(), &request, bytes));
    join::Explained refusal;
    LONGS_EQUAL(sizeof refusal, join::receive_packet(socket.number(), &refusal, sizeof refusal));
    STRCMP_EQUAL(answer, join::told(refusal).answer);
    LONGS_EQUAL(0, join::receive_packet(socket.number(), &refusal, sizeof refusal));
  }
};

TEST(Join, GivesWhatWasGrantedAtTheSameAddresses) {
  const Segment* secret = rig.create("secret", 4 * kKiB);
  rig.fifo->is_for_devices = false;
  rig.start();
  std::memcpy(rig.buffers->address, "from the owner", 15);
  Child child = rig.fork_joiner([&](JoinOptions& options) {
    options.member_count = 2;
    options.owner_uid = getuid();
    JoinedPool joined = JoinedPool::join(options).take();
    PinnedPool& pool = *options.pool;
    BP_PROBE_CHECK(joined.pool_id() == rig.pool_id);
    BP_PROBE_CHECK(joined.group_name() == OwnerName("mesh"));
    BP_PROBE_CHECK(joined.layout().size() == 6 &&
                   std::memcmp(joined.layout().data(), "layout", 6) == 0);
    BP_PROBE_CHECK(joined.terms().size() == 5 &&
                   std::memcmp(joined.terms().data(), "terms", 5) == 0);
    BP_PROBE_CHECK(pool.segment_count() == 5);
    BP_PROBE_CHECK(joined.members().size() == 2 && joined.members()[0].index == 1 &&
                   joined.members()[1].index == 2 && joined.members()[1].generation == 1);
    BP_PROBE_CHECK(&joined.table() == rig.table);
    BP_PROBE_CHECK(joined.table().state(1) == MemberState::kJoining);
    BP_PROBE_CHECK(joined.table().state(0) == MemberState::kAlive);
    BP_PROBE_CHECK(joined.fifo().address == rig.fifo->address && joined.fifo().is_writable);
    BP_PROBE_CHECK(joined.own_heap()->address == rig.heaps[0]->address);
    BP_PROBE_CHECK(!pool.find_segment("heap:relay#1")->is_writable);
    BP_PROBE_CHECK(std::strcmp(reinterpret_cast<char*>(rig.buffers->address), "from the owner") ==
                   0);
    BP_PROBE_CHECK(quiet_fd() >= 0 && !joined.is_owner_gone());
    for (uint32_t i = 0; i < pool.segment_count(); ++i) {
      const Segment& segment = pool.segment(i);
      BP_PROBE_CHECK(segment.is_for_devices == (segment.owner != OwnerName("fifo:mesh")));
      BP_PROBE_CHECK(rig.pool->find_segment(segment.owner)->number == segment.number);
      BP_PROBE_CHECK(joined.table().may_read(1, segment.number));
      BP_PROBE_CHECK(joined.table().may_write(2, segment.number) == segment.is_writable);
    }
    joined.own_heap()->address[5] = std::byte{0x5a};
    BP_PROBE_CHECK(joined.ready().ok());
    pause();
  });
  LONGS_EQUAL(1, rig.wait_for(Kind::kJoined));
  const JoinEvent event = rig.last(Kind::kJoined);
  STRCMP_EQUAL("relay", event.process.text);
  LONGS_EQUAL(child.pid(), event.pid);
  LONGS_EQUAL(1, event.member);
  LONGS_EQUAL(2, event.member_count);
  std::byte written{};
  LONGS_EQUAL(1, pread(rig.heaps[0]->memfd, &written, 1, 5));  // the owner sees the write
  CHECK(written == std::byte{0x5a});
  CHECK(rig.table->state(2) == MemberState::kAlive);
  LONGS_EQUAL(child.pid(), rig.table->pid(2));
  STRCMP_EQUAL("relay", rig.table->name(2).text);
  CHECK(rig.table->may_write(0, rig.buffers->number));  // the owner's own member
  CHECK_FALSE(rig.table->may_read(1, secret->number));
}

TEST(Join, ReadOnlyIsReadOnlyForAnotherUserByAnyMethod) {
  if (getuid() != 0) BP_SKIP("only root can become another user");
  rig.start();
  Child child = rig.fork_joiner([&](JoinOptions& options) {
    become_other_user();
    JoinedPool joined = JoinedPool::join(options).take();
    for (const char* owner : {"members", "buffers", "heap:relay#1"}) {
      const Segment& segment = *options.pool->find_segment(owner);
      BP_PROBE_CHECK(mprotect(segment.address, 4096, PROT_READ | PROT_WRITE) != 0);
      BP_PROBE_CHECK(mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED, segment.memfd, 0) == MAP_FAILED);
      BP_PROBE_CHECK(
          fallocate(segment.memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) != 0);
      BP_PROBE_CHECK(fchmod(segment.memfd, 0777) != 0);
      char again[64];
      std::snprintf(again, sizeof again, "/proc/self/fd/%d", segment.memfd);
      BP_PROBE_CHECK(open(again, O_RDWR) < 0);
      std::snprintf(again, sizeof again, "/proc/%d/fd/%d", getppid(), rig.buffers->memfd);
      BP_PROBE_CHECK(open(again, O_RDWR) < 0);
    }
    std::signal(SIGSEGV, SIG_DFL);  // sanitizers have a handler
    rig.buffers->address[0] = std::byte{1};
  });
  LONGS_EQUAL(-SIGSEGV, child.status());
}

TEST(Join, LeavingIsADeathInGoodOrder) {
  rig.start();
  Child child = rig.fork_joiner([&](JoinOptions& options) {
    JoinedPool joined = JoinedPool::join(options).take();
    (void)joined.ready();
    joined.leave();
    BP_PROBE_CHECK(quiet_fd() == -1);
    auto again = JoinedPool::join(options);
    BP_PROBE_CHECK(!again.ok());
    BP_PROBE_CHECK(std::strcmp(again.error().answer, "this process has joined a pool before") == 0);
    pause();
  });
  LONGS_EQUAL(1, rig.wait_for(Kind::kLeft));
  LONGS_EQUAL(1, rig.keeper.stops.load());  // the child has announced that it writes no more
  CHECK(rig.table->state(1) == MemberState::kDead);
  CHECK(rig.keeper.resets == 0);  // the child still runs, and could write
  child.kill_now();
  LONGS_EQUAL(1, rig.wait_for(Kind::kFreed));
  LONGS_EQUAL(0, rig.wait_for(Kind::kDied, 0));
  LONGS_EQUAL(1, rig.keeper.resets.load());
}

TEST(Join, EachUntrustedProcessHasAGroupOfItsOwn) {
  Segment* second = rig.create("members2", 4 * kKiB);
  Segment* exchange = rig.create("exchange:guest#1", 64 * kKiB);
  MembersTable* table = MembersTable::create(second->memory(), 2, rig.pool_id);
  rig.options.groups.push_back({"guest#1", table, {}, exchange, &rig.keeper});
  rig.options.grants = {
      {.name = MemberName("guest"), .max_count = 2, .is_trusted = false, .heaps = rig.heaps}};
  rig.start();
  Child first = rig.start_joiner("guest");
  LONGS_EQUAL(1, rig.wait_for(Kind::kJoined));
  Child other = rig.fork_joiner([&](JoinOptions& options) {
    options.process = "guest";
    JoinedPool joined = JoinedPool::join(options).take();
    BP_PROBE_CHECK(joined.group_name() == OwnerName("guest#1"));
    BP_PROBE_CHECK(joined.fifo().owner == OwnerName("exchange:guest#1"));
    BP_PROBE_CHECK(joined.own_heap()->owner == OwnerName("heap:relay#1"));
    BP_PROBE_CHECK(options.pool->segment_count() == 3);  // none of the other process's
  });
  LONGS_EQUAL(0, other.status());
}

TEST(Join, RefusesWhoMayNot) {
  rig.options.grants[0].uid = kOtherUser;
  rig.start();
  rig.check_refused("the pool's configuration has no process of this name",
                    [](JoinOptions& options) { options.process = "relais"; });
  const std::string answer = "user " + std::to_string(getuid()) + " may not join, user " +
                             std::to_string(kOtherUser) + " may";
  rig.check_refused(answer.c_str(), [](JoinOptions&) {});
  LONGS_EQUAL(2, rig.wait_for(Kind::kRefused, 2));
  STRCMP_EQUAL("relay", rig.last(Kind::kRefused).process.text);
  if (getuid() != 0) BP_SKIP("only root can become another user");
  Child child = rig.fork_joiner([&](JoinOptions& options) {
    become_other_user();
    BP_PROBE_CHECK(JoinedPool::join(options).ok());
  });
  LONGS_EQUAL(0, child.status());
}

TEST(Join, RefusesMoreThanPlanned) {
  rig.start();
  rig.check_refused("it asks for 4 members, the configuration has 3 for it",
                    [](JoinOptions& options) { options.member_count = 4; });
  rig.check_refused("it asks for 0 members",
                    [](JoinOptions& options) { options.member_count = 0; });
  rig.check_refused("it asks for 65 members",
                    [](JoinOptions& options) { options.member_count = 65; });
  Child first = rig.start_joiner();
  Child second = rig.start_joiner();
  LONGS_EQUAL(2, rig.wait_for(Kind::kJoined, 2));
  const auto wait_a_while = [](JoinOptions& options) { options.timeout_ns = kNsPerSecond / 4; };
  rig.check_refused("all 2 planned slots are in use, 0 of them by processes that died",
                    wait_a_while);
  rig.keeper.forgets = false;
  first.kill_and_wait();
  LONGS_EQUAL(1, rig.wait_for(Kind::kQuiet));
  rig.check_refused("all 2 planned slots are in use, 1 of them by processes that died",
                    wait_a_while);
  rig.keeper.forgets = true;
  LONGS_EQUAL(1, rig.wait_for(Kind::kFreed));
  Child third = rig.start_joiner();
  LONGS_EQUAL(3, rig.wait_for(Kind::kJoined, 3));
}

// While a member is suspended, no dead member of its group is forgotten.
TEST(Join, ANewcomerTakesASparePlaceWhileTheDeadIsNotForgotten) {
  rig.options.grants[0].max_count = 1;
  rig.options.grants[0].spare_count = 1;
  rig.start();
  Child first = rig.start_joiner();
  LONGS_EQUAL(1, rig.wait_for(Kind::kJoined));
  const auto at_once = [](JoinOptions& options) { options.timeout_ns = kNsPerSecond / 4; };
  // A spare place is not given out while the other places belong to living processes.
  rig.check_refused("all 1 planned slots are in use, 0 of them by processes that died", at_once);
  rig.keeper.forgets = false;
  first.kill_and_wait();
  LONGS_EQUAL(1, rig.wait_for(Kind::kQuiet));
  Child second = rig.start_joiner();
  LONGS_EQUAL(2, rig.wait_for(Kind::kJoined, 2));
  second.kill_and_wait();
  LONGS_EQUAL(2, rig.wait_for(Kind::kQuiet, 2));
  rig.check_refused("all 2 planned slots are in use, 2 of them by processes that died", at_once);
  rig.keeper.forgets = true;
  LONGS_EQUAL(2, rig.wait_for(Kind::kFreed, 2));
  Child third = rig.start_joiner();
  LONGS_EQUAL(3, rig.wait_for(Kind::kJoined, 3));
}

// A process gives up before the owner gets a core.
TEST(Join, WhoDoesNotWaitForTheAnswerTakesNoPlace) {
  rig.create_server();
  {
    const join::Request request = odd_request();
    const Fd socket = connect_raw(rig.path);
    LONGS_EQUAL(0, join::send_packet(socket.number(), &request, sizeof request));
  }
  rig.start_server();
  LONGS_EQUAL(1, rig.wait_for(Kind::kRefused));
  STRCMP_EQUAL("it left without waiting for the answer", rig.last(Kind::kRefused).error.answer);
  CHECK(rig.table->state(1) == MemberState::kFree);
}

TEST(Join, WaitsForAPlaceOfALivingOne) {
  rig.start();
  Child first = rig.start_joiner();
  Child second = rig.start_joiner();
  LONGS_EQUAL(2, rig.wait_for(Kind::kJoined, 2));
  Child third = start_patient(1);
  CHECK(rig.wait_for(Kind::kRefused, 2) >= 2);  // it repeats its request
  first.kill_now();
  LONGS_EQUAL(3, rig.wait_for(Kind::kJoined, 3));
}

TEST(Join, WaitsForAPlaceThatIsNotForgottenYet) {
  rig.keeper.forgets = false;
  rig.options.grants[0].max_count = 1;
  rig.options.grants[0].heaps.resize(1);
  rig.start();
  Child first = rig.start_joiner();
  LONGS_EQUAL(1, rig.wait_for(Kind::kJoined));
  first.kill_and_wait();
  LONGS_EQUAL(1, rig.wait_for(Kind::kQuiet));
  Child second = start_patient(1);
  CHECK(rig.wait_for(Kind::kRefused) >= 1);
  rig.keeper.forgets = true;
  LONGS_EQUAL(2, rig.wait_for(Kind::kJoined, 2));
}

TEST(Join, WaitsForMembersOfItsGroup) {
  rig.options.grants[0].members_max = 7;
  rig.start();
  Child first = rig.start_joiner("relay", 5);
  LONGS_EQUAL(1, rig.wait_for(Kind::kJoined));
  Child second = start_patient(3);
  CHECK(rig.wait_for(Kind::kRefused) >= 1);
  first.kill_now();
  LONGS_EQUAL(2, rig.wait_for(Kind::kJoined, 2));
}

TEST(Join, AProcessThatWasRefusedCanTryAgain) {
  rig.start();
  Child first = rig.start_joiner();
  Child second = rig.start_joiner();
  LONGS_EQUAL(2, rig.wait_for(Kind::kJoined, 2));
  Child third = rig.fork_joiner([](JoinOptions& options) {
    options.timeout_ns = 0;
    BP_PROBE_CHECK(!JoinedPool::join(options).ok());
    options.timeout_ns = JoinRig::kPatienceNs;
    BP_PROBE_CHECK(JoinedPool::join(options).take().ready().ok());
    pause();
  });
  CHECK(rig.wait_for(Kind::kRefused) >= 1);
  second.kill_now();
  LONGS_EQUAL(3, rig.wait_for(Kind::kJoined, 3));
}

// Between its connection and its request, the process gets no core for longer than the owner waits.
TEST(Join, AProcessThatWasTooSlowTriesAgain) {
  rig.options.request_timeout_ns = 20 * kNsPerMs;
  rig.start();
  int ends[2];
  CHECK(pipe(ends) == 0);
  Child child = rig.fork_joiner([&](JoinOptions& options) {
    wait_on = ends[0];
    ::close(ends[1]);
    options.timeout_ns = JoinRig::kPatienceNs;
    options.at_step = [](JoinStep step) {
      char ignored;
      if (step == JoinStep::kConnected && read(wait_on, &ignored, 1) < 0) _exit(1);
    };
    BP_PROBE_CHECK(JoinedPool::join(options).take().ready().ok());
    pause();
  });
  ::close(ends[0]);
  LONGS_EQUAL(1, rig.wait_for(Kind::kRefused));
  STRCMP_EQUAL("it sent no request in time", rig.last(Kind::kRefused).error.answer);
  ::close(ends[1]);
  LONGS_EQUAL(1, rig.wait_for(Kind::kJoined));
}

TEST(Join, RefusesMoreThanTheGroupHas) {
  rig.options.grants[0].members_max = 64;
  rig.start();
  rig.check_refused("group mesh has 7 free members of 8, 9 are needed",
                    [](JoinOptions& options) { options.member_count = 9; });
}

TEST(Join, RefusesProgramsThatDoNotFit) {
  rig.start();
  join::Request request = odd_request();
  request.head.magic = 1;
  check_answer(request, "the other end is not Bedplate");
  check_answer(odd_request(), "the other end is not Bedplate", 7);
  request = odd_request();
  request.head.version = 9;
  check_answer(request, "it uses version 9, this program version 4");
  request = odd_request();
  request.head.kind = join::PacketKind::kReady;
  check_answer(request, "it sent a message of an unexpected kind");
  check_answer(odd_request(), "a packet has the wrong length", sizeof request - 1);
  request = odd_request();
  request.pool_base = kRegionBytes;
  char wanted[128];
  std::snprintf(wanted, sizeof wanted, "its pool begins at 0x40000000, this one at 0x%llx",
                static_cast<unsigned long long>(test::kTestPoolBase));
  check_answer(request, wanted);
  request = odd_request();
  request.region_bytes = 2 * kRegionBytes;
  std::snprintf(wanted, sizeof wanted,
                "its pool has 0x%llx bytes in regions of 0x80000000, this one 0x%llx in regions of "
                "0x40000000",
                static_cast<unsigned long long>(kPoolSpanBytes),
                static_cast<unsigned long long>(kPoolSpanBytes));
  check_answer(request, wanted);
  request = odd_request();
  request.cache_line_bytes = 128;
  check_answer(request, "its cache lines have 128 bytes, here they have 64");
  request = odd_request();
  request.process = MemberName("");
  check_answer(request, "it sent no name");
  std::memset(request.process.text, 'x', sizeof request.process.text);
  check_answer(request, "it sent no name");
}

TEST(Join, OwnerHearsWhyAProcessCouldNotUseItsPart) {
  rig.start();
  rig.check_refused("its address", [](JoinOptions&) {
    BP_PROBE_CHECK(mmap(reinterpret_cast<void*>(test::kTestPoolBase + kRegionBytes), 4096,
                        PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
                        0) != MAP_FAILED);
  });
  LONGS_EQUAL(1, rig.wait_for(Kind::kFailed));
  const JoinEvent event = rig.last(Kind::kFailed);
  STRCMP_EQUAL("relay", event.process.text);
  CHECK(std::strstr(event.error.doing, "for fifo:mesh in pages of 4 KiB") != nullptr);
  CHECK(std::strstr(event.error.answer, "is already in use in this process") != nullptr);
  LONGS_EQUAL(1, rig.wait_for(Kind::kFreed));
}

TEST(Join, OwnerHearsWhenDescriptorsAreLost) {
  rig.start();
  Child child = rig.fork_joiner([](JoinOptions& options) {
    const int next = dup(0);
    ::close(next);
    const auto limit = static_cast<rlim_t>(next) + 3;  // the socket, and two more at most
    const rlimit files = {limit, limit};
    BP_PROBE_CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    auto joined = JoinedPool::join(options);
    BP_PROBE_CHECK(!joined.ok());
    const char* answer = joined.error().answer;
    BP_PROBE_CHECK(std::strstr(answer, " descriptors arrived for 5 segments") != nullptr);
    pause();
  });
  LONGS_EQUAL(1, rig.wait_for(Kind::kFailed));
  const Error told = rig.last(Kind::kFailed).error;
  CHECK(std::strstr(told.answer, " descriptors arrived for 5 segments") != nullptr);
  STRCMP_EQUAL("raise the limit of open files: ulimit -n 1024", told.cure);
}

TEST(Join, WhoSaysNothingCostsABoundedTime) {
  rig.options.request_timeout_ns = 20 * kNsPerMs;
  rig.start();
  const Fd silent = connect_raw(rig.path);
  LONGS_EQUAL(1, rig.wait_for(Kind::kRefused));
  STRCMP_EQUAL("it sent no request in time", rig.last(Kind::kRefused).error.answer);
}

TEST(Join, WhoIsNeverReadyCostsABoundedTime) {
  rig.options.ready_timeout_ns = 20 * kNsPerMs;
  rig.start();
  Child child = rig.fork_joiner([](JoinOptions& options) {
    auto joined = JoinedPool::join(options);
    pause();
  });
  LONGS_EQUAL(1, rig.wait_for(Kind::kFailed));
  CHECK(rig.table->state(1) == MemberState::kDead);
  child.kill_now();
  LONGS_EQUAL(1, rig.wait_for(Kind::kFreed));
}

TEST(Join, WhoWasCutOffIsNotReady) {
  rig.options.ready_timeout_ns = 200 * kNsPerMs;
  rig.start();
  for (const bool is_shut : {true, false}) {
    Child late = rig.fork_joiner([](JoinOptions& options) {
      JoinedPool joined = JoinedPool::join(options).take();
      const MembersTable& table = joined.table();
      BP_PROBE_CHECK(JoinRig::becomes([&] { return table.state(1) == MemberState::kDead; }));
      const auto ready = joined.ready();
      BP_PROBE_CHECK(!ready.ok());
      BP_PROBE_CHECK(std::strcmp(ready.error().answer, "it has cut this process off") == 0);
      BP_PROBE_CHECK(std::strstr(ready.error().cure, "see the owner's log for the reason") !=
                     nullptr);
    });
    // On a busy machine, `late` may be cut off already; the result is the same.
    CHECK(JoinRig::becomes([&] { return rig.table->state(1) != MemberState::kFree; }));
    // The owner answers this later request, so it has closed its write end of the quiet pipe.
    check_answer(odd_request(), "the other end is not Bedplate", 7);
    // Unless `is_shut`, this child holds the owner's end of the connection open: `late` can still
    // send, but nobody reads.
    Child bystander = rig.fork_joiner([is_shut](JoinOptions&) {
      while (!is_shut) pause();
    });
    LONGS_EQUAL(0, late.status());
    LONGS_EQUAL(is_shut ? 1 : 2, rig.wait_for(Kind::kFreed, is_shut ? 1 : 2));
  }
}

TEST(Join, AThousandWhoSayNothingKeepNobodyOut) {
  rig.start();
  // This process holds both ends of each connection.
  if (!allow_open_files(4096).ok()) BP_SKIP("a process may have fewer open files here");
  std::vector<Fd> silent;
  for (int i = 0; i < 1000; ++i) silent.push_back(connect_raw(rig.path));
  Child child = rig.start_joiner();
  LONGS_EQUAL(1, rig.wait_for(Kind::kJoined));
}

TEST(Join, JoinerGivesUpOnWhatIsNoOwner) {
  Fd listener = listen_for_joiners(rig.path).take();
  rig.check_refused("it did not answer in time",
                    [](JoinOptions& options) { options.timeout_ns = 30 * kNsPerMs; });
  set_blocking(listener.number(), true);
  Child service = rig.fork_joiner([&](JoinOptions&) {
    for (int i = 0;; ++i) {
      const Fd peer(accept(listener.number(), nullptr, nullptr));
      if (i > 0 && i % 2 == 0) join::send_packet(peer.number(), "220 ftp ready", 14);
    }
  });
  rig.check_refused("it closed the connection",
                    [](JoinOptions& options) { options.process = "x"; });
  rig.check_refused("the other end is not Bedplate", [](JoinOptions&) {});
  const std::string answer = "user " + std::to_string(getuid()) + " serves";
  rig.check_refused(answer.c_str(), [](JoinOptions& options) { options.owner_uid = 12; });
  service.kill_and_wait();
  listener.close();
  rig.check_refused("Connection refused", [](JoinOptions& options) { options.timeout_ns = 0; });
  std::filesystem::remove(rig.path);
  rig.check_refused("No such file", [](JoinOptions& options) { options.timeout_ns = 0; });
  rig.check_refused("Protocol wrong type for socket", [&](JoinOptions&) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, rig.path);
    const int stream = socket(AF_UNIX, SOCK_STREAM, 0);
    BP_PROBE_CHECK(bind(stream, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    BP_PROBE_CHECK(listen(stream, 1) == 0);
  });
}

// The control thread would wait for itself.
// The child creates the server: a server of the parent would write into the rig's shared memory,
// and the writes would stay.
TEST(Join, StopByTheControlThreadIsAProgrammingError) {
  JoinServer* server = nullptr;
  rig.options.on_event = [&](const JoinEvent&) { server->stop(); };
  BP_CHECK_DIES("!control_.is_held_by_caller()", {
    server = JoinServer::create(rig.options).take().release();
    CHECK(server->start().ok() && server->serve().ok());
    const Fd socket = connect_raw(rig.path);
    join::send_packet(socket.number(), "nonsense", 8);
    for (;;) pause();
  });
}

#if BP_DEBUG
// The server cannot free a member that it does not know.
TEST(Join, AMemberThatIsNobodysIsAProgrammingError) {
  rig.create_server();
  CHECK(rig.server->is_valid());
  rig.table->begin_join(5, 1, MemberName("stray"), {});
  BP_CHECK_DIES("is_valid() before a change", rig.server->add_own_member(0, MemberName("owner")));
}
#endif

TEST(Join, SocketOfADeadOwnerIsReplacedAndThatOfALivingOneIsNot) {
  (void)listen_for_joiners(rig.path).take();
  rig.start();
  auto second = listen_for_joiners(rig.path);
  CHECK(!second.ok());
  STRCMP_EQUAL("Address already in use", second.error().answer);
  std::string long_path(200, 'x');
  CHECK(!listen_for_joiners(long_path.c_str()).ok());
  CHECK(!listen_for_joiners("/proc/none").ok());
}

// An outsider could punch holes into the hugepages, which may stay for ever.
TEST(Join, RefusesHugepagesThatOutsidersWrite) {
  const auto answer = [&](bool is_trusted, std::optional<uid_t> uid) -> std::string {
    rig.options.groups.resize(2, rig.options.groups[0]);  // each untrusted process has its own
    rig.options.grants[0].is_trusted = is_trusted;
    rig.options.grants[0].uid = uid;
    auto created = JoinServer::create(rig.options);
    if (created.ok()) return "";
    CHECK(created.error().kind == ErrorKind::kConfiguration);
    return created.error().answer;
  };
  rig.heaps[1]->page = PageSize::k2MiB;
  const char* refused = "it may write heap:relay#1, which has pages of 2 MiB";
  STRCMP_EQUAL(refused, answer(true, {}).c_str());
  STRCMP_EQUAL(refused, answer(true, kOtherUser).c_str());
  STRCMP_EQUAL(refused, answer(false, 0).c_str());
  STRCMP_EQUAL("", answer(true, 0).c_str());
  STRCMP_EQUAL("", answer(true, geteuid()).c_str());
  rig.heaps[1]->page = PageSize::k4KiB;
  rig.options.grants[0].segments[0].segment->page = PageSize::k2MiB;
  STRCMP_EQUAL("", answer(true, kOtherUser).c_str());  // the process only reads them
  rig.options.grants[0].segments[0].is_writable = true;
  STRCMP_EQUAL("it may write buffers, which has pages of 2 MiB", answer(true, kOtherUser).c_str());
  rig.buffers->page = PageSize::k4KiB;
}

TEST(Join, RefusesPlansThatMakeNoSense) {
  const std::vector<ProcessGrant> good = rig.options.grants;
  const auto check = [&](auto change, const char* answer) {
    rig.options.grants = good;
    change(rig.options.grants[0]);
    auto created = JoinServer::create(rig.options);
    CHECK(!created.ok());
    STRCMP_EQUAL(answer, created.error().answer);
    CHECK(created.error().kind == ErrorKind::kConfiguration);
  };
  check([](ProcessGrant& grant) { grant.max_count = 3; }, "2 heaps for 3 slots");
  check([](ProcessGrant& grant) { grant.spare_count = 2; }, "2 heaps for 4 slots");
  check([](ProcessGrant& grant) { grant.group = 1; }, "groups 1 to 1 of 1");
  check([](ProcessGrant& grant) { grant.is_trusted = false; }, "groups 0 to 1 of 1");
  check([](ProcessGrant& grant) { grant.members_max = 65; }, "2 processes with 65 members each");
  check([](ProcessGrant& grant) { grant.segments.resize(125, grant.segments[0]); },
        "129 segments to be mapped");
}
