// Members that write nonsense: each kind is noticed, its writer is cut off, and the others go on.
//
// The hostile member joins like any other; the tests write its nonsense straight into the segment.
#include "transport/shm/endpoint/shm_provider.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "tests/support/pool_fixture.h"
#include "tests/support/seed.h"
#include "tests/support/stderr_capture.h"
#include "tests/transport/shm/group_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

GroupShape small_shape(GroupKind kind) {
  GroupShape shape = shape_of(kind, 3);
  shape.entry_count = 16;
  shape.box_count = 4;
  shape.box_bytes = 1024;
  shape.send_threshold = 4;
  shape.loan_count = 16;
  return shape;
}

struct Forged {
  SlotHeader header;
  std::byte payload[kInlineBytesMax] = {};
};

template <typename Body>
Forged forge(SlotKind kind, uint32_t am, uint32_t bytes, const Body& body) {
  Forged forged = {{kind, am, bytes, 0}, {}};
  static_assert(sizeof body <= sizeof forged.payload);
  std::memcpy(forged.payload, &body, sizeof body);
  return forged;
}
Forged forge_control(ShmControl what, uint32_t box) {
  return forge(SlotKind::kControl, static_cast<uint32_t>(what), sizeof box, box);
}

}  // namespace

TEST_GROUP(ShmHostile) {
  StderrCapture log;
  TestPool pool;
  std::span<std::byte> lent;
  Counted lent_back;  // the returns of loans of `lent`
  std::unique_ptr<GroupRig> rig;
  Member* a = nullptr;       // hostile
  Member* b = nullptr;       // its victim
  Member* c = nullptr;       // a third member; none in an exchange
  Endpoint* to_b = nullptr;  // of the hostile member, from before it was cut off

  void setup() override { lent = pool.memory(64 * kKiB); }

  void start(GroupKind kind) {
    rig = std::make_unique<GroupRig>(small_shape(kind), &*pool);
    a = &rig->join(0);
    b = &rig->join(1);
    c = kind == GroupKind::kExchange ? nullptr : &rig->join(2);
    b->messenger.poll(8);
    to_b = &a->to(1);
  }

  // The queues by which one slot of nonsense reaches the victim.
  void by_fifo(const Forged& forged) {
    const InboundFifo::Claim claim = rig->claim(1, 0);
    if (claim.slot == nullptr) return;  // full
    std::memcpy(claim.slot->payload, forged.payload, sizeof forged.payload);
    rig->segment().fifo(1).publish(claim, forged.header);
  }
  static void by_box(const FastBox& box, uint64_t number, const Forged& forged) {
    MessageSlot& slot = box.slot(number % FastBox::slot_count(box.bytes()));
    std::memcpy(slot.payload, forged.payload, sizeof forged.payload);
    slot.header.store(pack_slot(lap_of(number, box.slot_count_log2()), forged.header));
  }

  // The victim notices, the hostile member learns that it is cut off, and the victim serves the
  // others.
  void check_cut_off(const char* what) {
    b->received.clear();
    b->messenger.poll(64);
    LONGS_EQUAL_TEXT(1, b->counters.cut_off.read(), what);
    LONGS_EQUAL_TEXT(0, b->received.size(), what);
    to_b->am_send(1, bytes_of("more"));  // it does not know yet
    b->messenger.poll(64);
    LONGS_EQUAL_TEXT(0, b->received.size(), what);
    LONGS_EQUAL_TEXT(1, b->counters.cut_off.read(), what);
    for (int i = 0; i < 3; ++i) a->messenger.poll(64);
    CHECK_TEXT(to_b->am_send(1, bytes_of("more")) == SendStatus::kGone, what);
    const auto is_told = [](const PeerEvent& event) {
      return event.kind == PeerEventKind::kCutOff && event.member == 1;
    };
    LONGS_EQUAL_TEXT(1, std::count_if(a->events.begin(), a->events.end(), is_told), what);
    auto refused = a->messenger.connect({1});
    CHECK_TEXT(!refused.ok(), what);
    STRCMP_CONTAINS("has cut this member off", refused.error().answer);
    auto again = b->messenger.connect({0});
    CHECK_TEXT(!again.ok(), what);
    STRCMP_CONTAINS("cut off", again.error().answer);
    STRCMP_CONTAINS("member 0 (member, process 1000) is cut off: it wrote", log.text().c_str());
    if (c == nullptr) return;
    CHECK_TEXT(c->to(1).am_send(1, bytes_of("honest")) == SendStatus::kDone, what);
    b->messenger.poll(64);
    LONGS_EQUAL_TEXT(1, b->received.size(), what);
  }
};

// A poll delivers all messages before it logs anything.
TEST(ShmHostile, IsSaidInTheLogWhenAllIsDelivered) {
  start(GroupKind::kLazy);
  struct Seen {
    StderrCapture* log;
    std::string text;
    uint64_t cut_off_count;
    Member* victim;
  } seen = {&log, "nothing came", 0, b};
  b->messenger.set_handler(77, {[](void* context, const Message&) noexcept {
                                  auto& into = *static_cast<Seen*>(context);
                                  into.text = into.log->text();
                                  into.cut_off_count = into.victim->counters.cut_off.read();
                                },
                                &seen});
  by_fifo(forge(SlotKind::kInline, 1, kInlineBytesMax + 1, uint64_t{0}));
  CHECK(c->to(1).am_send(77, bytes_of("behind it")) == SendStatus::kDone);
  b->messenger.poll(64);
  LONGS_EQUAL(1, seen.cut_off_count);
  STRCMP_EQUAL("", seen.text.c_str());
  STRCMP_CONTAINS("member 0 (member, process 1000) is cut off: it wrote a message longer than its "
                  "slot",
                  log.text().c_str());
}

TEST(ShmHostile, EachKindOfNonsenseInTheFifo) {
  const uint64_t region = GroupLayout(small_shape(GroupKind::kLazy)).eager_region_bytes();
  const auto at = reinterpret_cast<uintptr_t>(lent.data());
  const LoanDescriptor good = {at, 64, 0, 1, 0, {}};
  LoanDescriptor beyond = good, outside = good, number = good, header = good, wraps = good;
  beyond.bytes = lent.size() + 1;
  outside.address = reinterpret_cast<uintptr_t>(this);
  number.loan = small_shape(GroupKind::kLazy).loan_count;
  header.header_bytes = kLoanHeaderBytesMax + 1;
  wraps.bytes = UINT64_MAX;
  const struct {
    const char* what;
    Forged forged;
  } cases[] = {
      {"kind 7", forge(static_cast<SlotKind>(7), 1, 8, 0)},
      {"longer than its slot", forge(SlotKind::kInline, 1, kInlineBytesMax + 1, 0)},
      {"an area in a FIFO", forge(SlotKind::kArea, 1, 100, PayloadOffset{0})},
      {"offset beyond the region", forge(SlotKind::kEager, 1, 100, PayloadOffset{region - 99})},
      {"offset that wraps", forge(SlotKind::kEager, 1, 100, PayloadOffset{UINT64_MAX - 50})},
      {"a loan beyond its segment", forge(SlotKind::kLoan, 1, 56, beyond)},
      {"a loan outside the pool", forge(SlotKind::kLoan, 1, 56, outside)},
      {"a loan that there is not", forge(SlotKind::kLoan, 1, 56, number)},
      {"a header that is too long", forge(SlotKind::kLoan, 1, 56, header)},
      {"a loan that wraps", forge(SlotKind::kLoan, 1, 56, wraps)},
      {"a control of no kind", forge_control(static_cast<ShmControl>(200), 0)},
      {"a box that there is not", forge_control(ShmControl::kBoxGranted, 4)},
      {"a box that is not its own", forge_control(ShmControl::kBoxGranted, 3)},
      {"wanting what there is not", forge_control(ShmControl::kBoxWanted, UINT32_MAX)},
      {"closing what there is not", forge_control(ShmControl::kBoxClosed, 99)},
      {"closing another's", forge_control(ShmControl::kBoxClosed, 1)},
      {"an operation beside a line", forge(SlotKind::kControl, 3, 8, PayloadOffset{32})},
      {"an operation at the end", forge(SlotKind::kControl, 3, 8, PayloadOffset{region})},
      {"an operation that wraps", forge(SlotKind::kControl, 3, 8, PayloadOffset{UINT64_MAX - 63})},
  };
  for (const auto& one : cases) {
    start(GroupKind::kLazy);
    by_fifo(one.forged);
    check_cut_off(one.what);
  }
  start(GroupKind::kLazy);
  by_fifo(forge(SlotKind::kLoan, 1, 56, good));  // shows that the cause is not something else
  b->messenger.poll(8);
  LONGS_EQUAL(1, b->received.size());
  LONGS_EQUAL(0, b->counters.cut_off.read());
}

// The hostile member names memory that the victim has mapped, but it has not. It must not get the
// bytes in this manner.
TEST(ShmHostile, ALoanOfWhatItMayNotReadItself) {
  const std::span<std::byte> secret = pool.memory(4 * kKiB);
  SegmentRights rights;
  rights.add(0, false);
  for (GroupKind kind : {GroupKind::kLazy, GroupKind::kExchange}) {
    for (const std::span<std::byte> memory : {lent, secret}) {
      rig = std::make_unique<GroupRig>(small_shape(kind), &*pool);
      a = &rig->join(0, false, rights);
      b = &rig->join(1);
      c = nullptr;
      b->messenger.poll(8);
      to_b = &a->to(1);
      CHECK(to_b->am_send_loan(1, {}, memory, &lent_back) == SendStatus::kPending);
      if (memory.data() == secret.data()) {
        check_cut_off("a loan of what it may not read");
      } else {
        b->messenger.poll(8);
        LONGS_EQUAL(1, b->received.size());
        b->received[0].loan.provider->release(b->received[0].loan);
      }
    }
  }
}

TEST(ShmHostile, NonsenseInAnOperation) {
  for (int which = 0; which < 2; ++which) {
    start(GroupKind::kLazy);
    auto* record = reinterpret_cast<OperationRecord*>(rig->segment().eager_region(0).data());
    record->request.kind = which == 0 ? static_cast<OperationKind>(4) : OperationKind::kGet;
    record->request.bytes = which == 0 ? 0 : UINT32_MAX;
    by_fifo(forge(SlotKind::kControl, static_cast<uint32_t>(ShmControl::kOperation), 8,
                  PayloadOffset{0}));
    check_cut_off("an operation");
  }
}

// An honest member lends memory that its peer has not mapped. Nothing is sent, and no member is cut
// off.
TEST(ShmHostile, ALoanOfWhatThePeerMayNotReadIsRefused) {
  const std::span<std::byte> secret = pool.memory(4 * kKiB);
  SegmentRights rights;
  rights.add(0, false);
  for (GroupKind kind : kGroupKinds) {
    rig = std::make_unique<GroupRig>(small_shape(kind), &*pool);
    a = &rig->join(0);
    b = &rig->join(1, false, rights);
    Counted returned;
    CHECK(a->to(1).am_send_loan(1, {}, secret, &returned) == SendStatus::kRefused);
    LONGS_EQUAL(0, a->shm.loans_out());
    CHECK(a->to(1).am_send(1, bytes_of("still friends")) == SendStatus::kDone);
    b->messenger.poll(8);
    LONGS_EQUAL(1, b->received.size());
    LONGS_EQUAL(0, b->counters.cut_off.read());
    LONGS_EQUAL(0, returned.count);
  }
}

// Loans to a member that ignores its lender come back, whichever queue they were sent through.
TEST(ShmHostile, LoansOfTheOneThatIsCutOffComeBack) {
  for (GroupKind kind : kGroupKinds) {
    for (bool is_before : {true, false}) {  // sent before the nonsense, or after it was noticed
      start(kind);
      Counted returned;
      const auto lend = [&] {
        CHECK(to_b->am_send_loan(1, {}, lent.first(64), &returned) == SendStatus::kPending);
      };
      if (is_before) lend();
      b->messenger.poll(64);
      for (const auto& received : b->received) b->messenger.release(received.loan);
      const Forged nonsense = forge(SlotKind::kInline, 1, 57, 0);
      const uint32_t number = is_before ? 1 : 0;  // of the next message in a lane or box
      switch (kind) {
        case GroupKind::kLazy: by_fifo(nonsense); break;
        case GroupKind::kMesh:
          rig->segment().lane(1, 0).push(number, {SlotKind::kNone, 1, 8, 0});
          break;
        case GroupKind::kExchange: by_box(rig->segment().inbound_box(1), number, nonsense); break;
      }
      b->messenger.poll(64);
      LONGS_EQUAL(1, b->counters.cut_off.read());
      b->received.clear();
      if (!is_before && kind == GroupKind::kLazy) lend();
      b->messenger.poll(64);
      LONGS_EQUAL(0, b->received.size());
      for (int i = 0; i < 600; ++i) a->messenger.poll(64);
      LONGS_EQUAL(is_before || kind == GroupKind::kLazy ? 1 : 0, returned.count);
      LONGS_EQUAL(0, a->shm.loans_out());
    }
  }
}

// No member can be cut off for these slots; the FIFO goes on.
TEST(ShmHostile, SlotsOfMembersThatThereAreNotArePassedOver) {
  for (SlotKind kind : {SlotKind::kClaimed, SlotKind::kInline, SlotKind::kControl}) {
    for (uint32_t sender : {1u, 3u, kMemberCountMax}) {  // 1: the victim itself
      start(GroupKind::kLazy);
      rig->segment().fifo(1).publish(rig->claim(1, 0), {kind, 1, 4, sender});
      CHECK(c->to(1).am_send(1, bytes_of("honest")) == SendStatus::kDone);
      b->messenger.poll(8);
      LONGS_EQUAL(1, b->received.size());
      STRCMP_EQUAL("honest", b->received[0].payload.c_str());
    }
  }
}

TEST(ShmHostile, NonsenseInAFastBox) {
  for (const auto& [what, forged] : {
           std::pair{"longer than its slot", forge(SlotKind::kInline, 1, 57, 0)},
           std::pair{"beyond the area", forge(SlotKind::kArea, 1, 100, PayloadOffset{704 - 99})},
           std::pair{"no kind", forge(SlotKind::kNone, 1, 0, 0)},
           std::pair{"claimed", forge(SlotKind::kClaimed, 1, 0, 0)},
           std::pair{"its own end", forge_control(ShmControl::kBoxClosed, 0)},
       }) {
    start(GroupKind::kLazy);
    for (int i = 0; i < 4; ++i) {
      CHECK(a->to(1).am_send(1, bytes_of("x")) == SendStatus::kDone);
      CHECK(c->to(1).am_send(1, bytes_of("y")) == SendStatus::kDone);
      b->messenger.poll(8);
    }
    uint32_t box = 0;
    while (rig->segment().box_owner(box).load() != pack_box_owner(1, 0)) ++box;
    Forged slot = forged;
    if (forged.header.kind == SlotKind::kControl) std::memcpy(slot.payload, &box, sizeof box);
    by_box(rig->segment().box(box), 0, slot);
    c->messenger.poll(8);
    check_cut_off(what);
    LONGS_EQUAL(2, b->shm.inbound_box_count());
  }
}

TEST(ShmHostile, NonsenseInALane) {
  start(GroupKind::kMesh);
  const uint64_t region = rig->segment().layout().eager_region_bytes();
  for (const LaneWord& word : {
           LaneWord{SlotKind::kEager, 1, 100, region - 99},
           LaneWord{SlotKind::kEager, 1, 0, region + 1},
           LaneWord{SlotKind::kInline, 1, 8, region - kInlineBytesMax + 1},
           LaneWord{SlotKind::kInline, 1, kInlineBytesMax + 1, 0},
           LaneWord{SlotKind::kNone, 1, 8, 0},
           LaneWord{SlotKind::kArea, 1, 8, 0},
           LaneWord{SlotKind::kLoan, 1, 56, 0},
           LaneWord{SlotKind::kControl, static_cast<uint32_t>(ShmControl::kBoxClosed), 4, 0},
       }) {
    start(GroupKind::kMesh);
    rig->segment().lane(1, 0).push(0, word);
    rig->segment().lane(1, 0).push(1, {SlotKind::kEager, 1, 4, 0});  // not delivered any more
    check_cut_off("a word");
  }
  start(GroupKind::kMesh);
  rig->segment().lane(1, 0).push(16, {SlotKind::kEager, 1, 4, 0});
  check_cut_off("too many words");
}

TEST(ShmHostile, NonsenseFromWhomNobodyTrusts) {
  for (const auto& [what, forged] : {
           std::pair{"closing a box", forge_control(ShmControl::kBoxClosed, 0)},
           std::pair{"granting a box", forge_control(ShmControl::kBoxGranted, 0)},
           std::pair{"wanting no box", forge_control(ShmControl::kBoxWanted, UINT32_MAX)},
           std::pair{"an operation", forge(SlotKind::kControl, 3, 8, PayloadOffset{0})},
           std::pair{"an eager message", forge(SlotKind::kEager, 1, 8, PayloadOffset{0})},
           std::pair{"beyond the area", forge(SlotKind::kArea, 1, 705, PayloadOffset{0})},
           std::pair{"longer than its slot", forge(SlotKind::kInline, 1, 8191, 0)},
       }) {
    start(GroupKind::kExchange);
    by_box(rig->segment().inbound_box(1), 0, forged);
    check_cut_off(what);
    b->messenger.poll(8);
    CHECK(GroupSegment::attach(rig->segment().memory(), rig->segment().shape(), GroupRig::kPoolId)
              .ok());
  }
}

// The hostile member writes garbage over all that it can write. Sanitizers check that nothing
// outside is touched.
TEST(ShmHostile, ChanceScribblesOverAllThatAMemberCanWrite) {
  Seed seed;
  std::mt19937_64 random(seed.value());
  for (GroupKind kind : kGroupKinds) {
    for (int round = 0; round < 30; ++round) {
      start(kind);
      const GroupLayout& layout = rig->segment().layout();
      const std::span<std::byte> memory = rig->segment().memory();
      const uint64_t begin = layout.member(0) - layout.part_bytes(GroupPart::kBoxes) -
                             layout.part_bytes(GroupPart::kBoxOwners);
      std::vector<Member*> honest = {b};
      if (c != nullptr) honest.push_back(c);
      for (int i = 0; i < 300; ++i) {
        for (Member* member : honest) {
          member->messenger.poll(16);
          member->received.clear();
          auto to = member->messenger.connect({0});
          if (to.ok()) to.value()->am_send(1, bytes_of(std::string(random() % 900, 'x')));
        }
        to_b->am_send(1, bytes_of(std::string(random() % 900, 'y')));
        for (int k = 0; k < 4; ++k) {
          // Mostly words of queues: flips a bit, writes a word, or writes the header of a slot.
          auto* word = reinterpret_cast<uint64_t*>(memory.data() + begin +
                                                   random() % ((memory.size() - begin) / 8) * 8);
          switch (random() % 3) {
            case 0: __atomic_fetch_xor(word, uint64_t{1} << random() % 64, __ATOMIC_RELAXED); break;
            case 1: __atomic_store_n(word, random(), __ATOMIC_RELAXED); break;
            default:
              __atomic_store_n(word,
                               pack_slot(random() % 4, {static_cast<SlotKind>(random() % 8),
                                                        static_cast<uint32_t>(random() % 8),
                                                        static_cast<uint32_t>(random() % 8192),
                                                        static_cast<uint32_t>(random() % 4)}),
                               __ATOMIC_RELAXED);
          }
        }
        // Also forges the slots that are due, so that they are read at once.
        if (kind != GroupKind::kMesh) {
          const auto kind_of_slot = static_cast<SlotKind>(random() % 8);
          Forged forged = {{kind_of_slot, static_cast<uint32_t>(random() % 6),
                            static_cast<uint32_t>(random() % 8192), 0},
                           {}};
          for (std::byte& byte : forged.payload) {
            byte = static_cast<std::byte>(random() % 2 == 0 ? random() : 0);
          }
          if (kind == GroupKind::kExchange) {
            by_box(rig->segment().inbound_box(1), static_cast<uint64_t>(i), forged);
          } else {
            by_fifo(forged);
          }
        }
      }
    }
  }
}
