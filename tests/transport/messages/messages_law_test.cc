// The data path's law for messages: no provider allocates, locks or logs. Its only system calls
// wake a peer, or copy if single copy by the kernel is in use.
//
// Each operation runs some times before it is watched: the first message to a peer may allocate.
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include "tests/support/datapath_law.h"
#include "tests/support/pool_fixture.h"
#include "tests/transport/shm/group_rig.h"
#include "tests/transport/verbs/verbs_rig.h"
#include "transport/messages/message_answers_datapath.h"
#include "transport/self/self_provider.h"
#include "transport/single_copy/single_copy.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

constexpr AmId kData = 210;  // beyond the messages that GroupRig's members record
constexpr AmId kQuestion = 211;
constexpr AmId kReply = 212;
constexpr char kName[] = "law.message";
constexpr int kWarmUps = 400;  // more than it takes to get a fast box and to check all loans
constexpr int kWatched = 100;
constexpr int kPollsMax = 100'000;  // a forgotten operation fails instead of hanging

// The path from a sender to a receiver, which may be the same messenger.
struct Wire {
  const char* name = "";
  Endpoint* there = nullptr;
  Endpoint* back = nullptr;
  Messenger* sender = nullptr;
  Messenger* receiver = nullptr;
  RemoteMemory remote;   // in the pool
  RemoteMemory outside;  // outside the pool; without bytes: not reachable
  std::span<std::byte> block;
  std::byte* local = nullptr;  // kLocalBytes
  uint32_t arrived = 0;
  uint32_t replies = 0;
  Loan loan;
  PollSource* answers = nullptr;  // the receiver's

  static constexpr size_t kLocalBytes = 32 * kKiB;

  void listen() {
    receiver->set_handler(kData, {[](void* self, const Message& message) noexcept {
                                    ++static_cast<Wire*>(self)->arrived;
                                    static_cast<Wire*>(self)->loan = message.loan;
                                  },
                                  this});
    sender->set_handler(kReply, {[](void* self, const Message& message) noexcept {
                                   ++static_cast<Wire*>(self)->replies;
                                   static_cast<Wire*>(self)->loan = message.loan;
                                 },
                                 this});
  }
  void poll() noexcept {
    sender->poll(16);
    if (receiver != sender) receiver->poll(16);
    answers->poll(16);
  }
  template <typename Condition>
  bool poll_until(Condition is_met) noexcept {
    for (int i = 0; i < kPollsMax && !is_met(); ++i) poll();
    return is_met();
  }
  // Repeats `operation` while it returns kAgain, then waits for its end.
  template <typename Operation>
  bool complete(Operation operation) noexcept {
    Counted done;
    SendStatus status = SendStatus::kAgain;
    for (int i = 0; i < kPollsMax && status == SendStatus::kAgain; ++i) {
      status = operation(&done);
      if (status == SendStatus::kAgain) poll();
    }
    if (status == SendStatus::kDone) return true;
    return status == SendStatus::kPending && poll_until([&] { return done.count > 0; }) &&
           done.outcome == Outcome::kDone;
  }
  bool sends(size_t bytes) noexcept {
    const uint32_t before = arrived;
    SendStatus status = SendStatus::kAgain;
    for (int i = 0; i < kPollsMax && status == SendStatus::kAgain; ++i) {
      status = there->am_send(kData, {local, bytes});
      if (status == SendStatus::kAgain) poll();
    }
    return status == SendStatus::kDone && poll_until([&] { return arrived > before; });
  }
};

// An action that is watched. Returns whether it succeeded; it must not use CHECK.
struct Deed {
  const char* name;
  bool (*function)(Wire&) noexcept;
};

constexpr Deed kDeeds[] = {
    {"am_send of nothing", [](Wire& wire) noexcept { return wire.sends(0); }},
    {"am_send inline",
     [](Wire& wire) noexcept { return wire.sends(wire.there->limits().inline_bytes_max); }},
    {"am_send copied",
     [](Wire& wire) noexcept { return wire.sends(wire.there->limits().inline_bytes_max + 1); }},
    {"am_send of the most",
     [](Wire& wire) noexcept { return wire.sends(wire.there->limits().am_bytes_max); }},
    {"am_send that is too long",
     [](Wire& wire) noexcept {
       return wire.there->am_send(kData, {wire.local, wire.there->limits().am_bytes_max + 1}) ==
              SendStatus::kTooLong;
     }},
    {"am_send_loan and release",
     [](Wire& wire) noexcept {
       wire.loan = {};
       return wire.complete([&](Completion* returned) {
         const SendStatus status =
             wire.there->am_send_loan(kData, {wire.local, 8}, wire.block, returned);
         if (status == SendStatus::kPending) {
           wire.poll_until([&] { return wire.loan.is_there(); });
           wire.receiver->release(wire.loan);
         }
         return status;
       });
     }},
    {"put",
     [](Wire& wire) noexcept {
       return wire.complete([&](Completion* done) {
         return wire.there->put({wire.local, 5000}, wire.remote, done);
       });
     }},
    {"get",
     [](Wire& wire) noexcept {
       return wire.complete([&](Completion* done) {
         return wire.there->get({wire.local, 5000}, wire.remote, done);
       });
     }},
    {"fetch_add",
     [](Wire& wire) noexcept {
       uint64_t before = 0;
       return wire.complete(
           [&](Completion* done) { return wire.there->fetch_add(wire.remote, 1, &before, done); });
     }},
    {"compare_swap",
     [](Wire& wire) noexcept {
       uint64_t before = 0;
       return wire.complete([&](Completion* done) {
         return wire.there->compare_swap(wire.remote, 1, 2, &before, done);
       });
     }},
    {"flush",
     [](Wire& wire) noexcept {
       return wire.complete([&](Completion* done) { return wire.there->flush(done); });
     }},
    {"put, get and fetch_add of memory that is not the pool's",
     [](Wire& wire) noexcept {
       if (wire.outside.bytes == 0) return true;
       uint64_t before = 0;
       return wire.complete([&](Completion* done) {
         return wire.there->put({wire.local, 5000}, wire.outside, done);
       }) && wire.complete([&](Completion* done) {
         return wire.there->get({wire.local, 5000}, wire.outside, done);
       }) && wire.complete([&](Completion* done) {
         return wire.there->fetch_add(wire.outside, 1, &before, done);
       });
     }},
    {"has_room, and what waits for room",
     [](Wire& wire) noexcept {
       struct Room : RoomCall {
         bool is_called = false;
       } room;
       room.call = [](RoomCall& self) noexcept { static_cast<Room&>(self).is_called = true; };
       for (int i = 0; i < kPollsMax; ++i) {
         if (wire.there->am_send(kData, {wire.local, 8}) == SendStatus::kAgain) break;
       }
       if (wire.there->has_room()) return false;
       wire.sender->notify_room(*wire.there, room);
       return wire.poll_until([&] { return room.is_called; }) && wire.there->has_room();
     }},
    {"a number asked for by name",
     [](Wire& wire) noexcept {
       struct Query : NumberQuery {
         bool is_answered = false;
       } query;
       query.answered = [](NumberQuery& self, std::optional<AmId> number) noexcept {
         static_cast<Query&>(self).is_answered = number.has_value();
       };
       for (int i = 0; i < kPollsMax; ++i) {
         if (wire.sender->ask_number(*wire.there, kName, query) == SendStatus::kDone) break;
         wire.poll();
       }
       return wire.poll_until([&] { return query.is_answered; });
     }},
    {"a question, and what it is lent",
     [](Wire& wire) noexcept {
       const uint32_t before = wire.replies;
       for (int i = 0; i < kPollsMax; ++i) {
         if (wire.there->am_send(kQuestion, {wire.local, 8}) == SendStatus::kDone) break;
         wire.poll();
       }
       if (!wire.poll_until([&] { return wire.replies > before; })) return false;
       wire.sender->release(wire.loan);
       return true;
     }},
    {"a poll that finds nothing",
     [](Wire& wire) noexcept {
       for (int i = 0; i < 1000; ++i) wire.poll();
       return true;
     }},
};

// Lends the same block to each peer that asks.
class LendingAnswers final : public MessageAnswers {
 public:
  explicit LendingAnswers(std::span<std::byte> block) : block_(block) {}

 private:
  Verdict answer(const Message& question) noexcept override {
    const SendStatus status = lend(question.from, kReply, {}, block_, this);
    return status == SendStatus::kAgain ? Verdict::kAgain : Verdict::kDone;
  }
  void returned(void*) noexcept override {}

  std::span<std::byte> block_;
};

}  // namespace

TEST_GROUP(MessagesLaw) {
  TestPool pool;
  std::span<std::byte> memory = pool.memory(64 * kKiB);
  std::vector<std::byte> local = std::vector<std::byte>(Wire::kLocalBytes);
  std::vector<std::byte> outside = std::vector<std::byte>(8 * kKiB);
  MessageNames names;

  // Exposes the memory for puts and gets, and runs all deeds over the wire.
  void keeps_the_law(Wire & wire, bool reaches_outside, Permit permit = Permit::kWaking) {
    if (wire.local == nullptr) wire.local = local.data();
    if (wire.block.empty()) wire.block = memory.subspan(32 * kKiB, 1000);
    wire.listen();
    if (names.all().empty()) CHECK(names.add(kName).ok());
    wire.receiver->answer_names(names);
    auto lender = std::make_unique<LendingAnswers>(memory.subspan(40 * kKiB, 1000));
    Counter dropped;
    lender->create({.messenger = wire.receiver,
                    .question = kQuestion,
                    .lent_bytes_max = 10'000,
                    .dropped = &dropped});
    wire.answers = lender.get();
    auto exposed = wire.back->expose(memory.first(8 * kKiB));
    CHECK_TEXT(exposed.ok(), wire.name);
    wire.remote = exposed.value();
    if (reaches_outside) wire.outside = wire.back->expose(outside).take();
    for (const Deed& deed : kDeeds) {
      const std::string what = std::string(wire.name) + ": " + deed.name;
      bool is_done = true;
      for (int i = 0; i < kWarmUps && is_done; ++i) is_done = deed.function(wire);
      CHECK_TEXT(is_done, what.c_str());
      const uint32_t breaches = breaches_in(
          [&] {
            for (int i = 0; i < kWatched && is_done; ++i) is_done = deed.function(wire);
          },
          permit);
      CHECK_TEXT(is_done, what.c_str());
      LONGS_EQUAL_TEXT(0, breaches, what.c_str());
    }
    for (int i = 0; i < 1000; ++i) wire.poll();  // the loans come back
    LONGS_EQUAL_TEXT(0, lender->lent_count(), wire.name);
    LONGS_EQUAL_TEXT(0, dropped.read(), wire.name);
    wire.back->withdraw(wire.remote);
    if (reaches_outside) wire.back->withdraw(wire.outside);
  }
  // `single_copy`: copies memory outside the pool, from this process to itself.
  void group_keeps_the_law(const GroupShape& shape, const char* name, bool has_box_then,
                           SingleCopy* single_copy = nullptr) {
    GroupRig rig(shape, &*pool);
    if (single_copy != nullptr) rig.pid = static_cast<uint32_t>(getpid());
    rig.single_copy = single_copy;
    Member& a = rig.join(0);
    Member& b = rig.join(1);
    Wire wire;
    wire.name = name;
    wire.there = &a.to(1);
    wire.back = &b.to(0);
    wire.sender = &a.messenger;
    wire.receiver = &b.messenger;
    keeps_the_law(wire, shape.kind != GroupKind::kExchange,  // an exchange refuses such memory
                  single_copy != nullptr ? Permit::kSingleCopy : Permit::kWaking);
    if (single_copy != nullptr) {  // the put ends at once, without the target
      const RemoteMemory remote = b.to(0).expose(outside).take();
      CHECK(a.to(1).put(std::span(local).first(5000), remote, nullptr) == SendStatus::kDone);
      b.to(0).withdraw(remote);
    }
    CHECK_EQUAL_TEXT(has_box_then, has_box(*wire.there), name);  // `name` is true
    LONGS_EQUAL(0, a.counters.cut_off.read() + b.counters.cut_off.read());
  }
  // `wire`: may set `local` and `block`; the rest comes from the rig.
  void verbs_keep_the_law(VerbsRig & rig, Wire wire, const char* name) {
    CHECK(rig.connect());
    wire.name = name;
    wire.there = &rig.a.to("b");
    wire.back = &rig.b.to("a");
    wire.sender = rig.a.messenger.get();
    wire.receiver = rig.b.messenger.get();
    keeps_the_law(wire, false, Permit::kDriver);
    LONGS_EQUAL(0, rig.a.counters.broken.read() + rig.b.counters.broken.read());
  }
};

TEST(MessagesLaw, Self) {
  BP_SKIP_WITHOUT_LAW();
  Messenger messenger;
  auto self = std::make_unique<SelfProvider>(5, messenger.dispatcher());
  messenger.add_provider(*self);
  Wire wire;
  wire.name = "self";
  wire.there = wire.back = messenger.connect({5}).value();
  wire.sender = wire.receiver = &messenger;
  keeps_the_law(wire, true);
}

TEST(MessagesLaw, InboundFifos) {
  BP_SKIP_WITHOUT_LAW();
  GroupShape shape = shape_of(GroupKind::kLazy, 2);
  shape.box_count_max = 0;
  group_keeps_the_law(shape, "inbound FIFO", false);
}

TEST(MessagesLaw, FastBoxes) {
  BP_SKIP_WITHOUT_LAW();
  group_keeps_the_law(shape_of(GroupKind::kLazy, 2), "fast box", true);
}

// Each put or get of memory outside the pool is one system call.
TEST(MessagesLaw, SingleCopyByTheKernel) {
  BP_SKIP_WITHOUT_LAW();
  auto opened = open_single_copy(SingleCopyKind::kCma);
  if (!opened.ok()) BP_SKIP("process_vm_readv is missing here, or forbidden");
  const auto single_copy = opened.take();
  group_keeps_the_law(shape_of(GroupKind::kLazy, 2), "single copy", true, single_copy.get());
}

TEST(MessagesLaw, MeshLanes) {
  BP_SKIP_WITHOUT_LAW();
  group_keeps_the_law(shape_of(GroupKind::kMesh, 2), "mesh lane", false);
}

TEST(MessagesLaw, Exchanges) {
  BP_SKIP_WITHOUT_LAW();
  group_keeps_the_law(shape_of(GroupKind::kExchange, 2), "exchange", true);
}

// The sender rings the sleeper's bell by a system call, and makes no other system call.
TEST(MessagesLaw, WakingASleeper) {
  BP_SKIP_WITHOUT_LAW();
  for (GroupKind kind : kGroupKinds) {
    GroupRig rig(shape_of(kind, 2), &*pool);
    Member& a = rig.join(0);
    Member& b = rig.join(1);
    talk(a, b, 100);
    Endpoint& there = a.to(1);
    b.messenger.announce_sleep();
    bool is_sent = false;
    LONGS_EQUAL(0, breaches_in([&] {
                  is_sent = there.am_send(kData, {local.data(), 8}) == SendStatus::kDone;
                }));
    CHECK(is_sent);
    b.messenger.announce_awake();
  }
}

// Several providers, most of them quiet. The set that each poll checks changes all the time.
TEST(MessagesLaw, MessengersWithQuietProviders) {
  BP_SKIP_WITHOUT_LAW();
  Messenger messenger;
  std::vector<std::unique_ptr<SelfProvider>> providers;
  for (uint32_t i = 0; i < 4; ++i) {
    providers.push_back(std::make_unique<SelfProvider>(i, messenger.dispatcher()));
    messenger.add_provider(*providers.back());
  }
  for (uint32_t member = 0; member < 4; ++member) {
    Wire wire;
    wire.name = "one of four";
    wire.there = wire.back = messenger.connect({member}).value();
    wire.sender = wire.receiver = &messenger;
    keeps_the_law(wire, true);
  }
}

// Soft RoCE posts by system calls, a real device by stores. All else holds for both.
TEST(MessagesLaw, Verbs) {
  BP_SKIP_WITHOUT_LAW();
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  VerbsRig rig({.exported = memory});
  verbs_keep_the_law(rig, {}, "verbs");
  LONGS_EQUAL(0, rig.a.counters.bounced_bytes.read());
}

// A block outside all exports has a memory window for each loan, which is closed after the loan.
TEST(MessagesLaw, VerbsWithWindows) {
  BP_SKIP_WITHOUT_LAW();
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  VerbsRig rig({.exported = memory, .trust_windows = true});
  if (!rig.device().has_windows()) BP_SKIP("this RDMA device has no memory windows");
  Wire wire;
  wire.block = std::span(local).first(1000);
  verbs_keep_the_law(rig, wire, "verbs with windows");
  LONGS_EQUAL(0, rig.a.counters.bounced_bytes.read());
}

// No device reaches memory outside the pool, so its bytes are copied.
TEST(MessagesLaw, VerbsWithBounceBuffers) {
  BP_SKIP_WITHOUT_LAW();
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  alignas(64) static std::byte elsewhere[Wire::kLocalBytes];
  VerbsRig rig({.exported = memory});
  Wire wire;
  wire.local = elsewhere;
  wire.block = std::span(elsewhere).first(1000);
  verbs_keep_the_law(rig, wire, "verbs with bounce buffers");
  CHECK(rig.a.counters.bounced_bytes.read() > 0);
}

TEST(MessagesLaw, Datagrams) {
  BP_SKIP_WITHOUT_LAW();
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  VerbsRigOptions options;
  options.shape.datagram_count = 16;
  VerbsRig rig(options);
  CHECK(rig.connect());
  Endpoint& there = rig.a.to("b");
  uint32_t arrived = 0;
  rig.b.messenger->set_handler(
      kData,
      {[](void* count, const Message&) noexcept { ++*static_cast<uint32_t*>(count); }, &arrived});
  const auto send_some = [&](uint32_t wanted) noexcept {
    const uint32_t end = arrived + wanted;
    for (int i = 0; i < kPollsMax && arrived < end; ++i) {
      (void)rig.a.verbs->send_datagram(there, kData, {local.data(), 100});
      rig.poll();
    }
    return arrived >= end;
  };
  CHECK(send_some(kWarmUps));
  bool is_done = false;
  LONGS_EQUAL(0, breaches_in([&] { is_done = send_some(kWatched); }, Permit::kDriver));
  CHECK(is_done);
}
