// All operations at random: both sides send, lend, put, get and add, and the connection breaks
// repeatedly. A simple model says what must be true.
//
// Every loan and every put has a number, which determines its bytes. The bytes of a loan match the
// number that was sent with it. A side puts to one area, and a queue pair does its puts in order.
// So the bytes of a get have the number of a put that was started before the get ended, and that is
// no older than the last put that was done when the get was started.
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <deque>
#include <random>

#include "tests/support/filled.h"
#include "tests/support/seed.h"
#include "tests/support/skip.h"
#include "tests/transport/verbs/verbs_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

constexpr AmId kNumbered = 3;
constexpr AmId kLent = 4;
constexpr uint64_t kBlockBytes = 20'000;
constexpr uint32_t kSteps = 10'000;

// One operation. `outcome` is valid once it has ended.
struct Operation : Completion {
  enum class Kind { kLoan, kRead, kPut, kGet, kAdd, kFlush, kBreak };
  Kind kind = Kind::kPut;
  uint32_t ended_count = 0;
  Outcome outcome = Outcome::kDone;
  uint32_t number = 0;    // loan, put: determines its bytes; read: of the loan
  uint32_t done_put = 0;  // get: the last put that was done when the get started
  uint64_t before = 0;
  Loan loan;
  std::unique_ptr<std::byte[]> block = std::make_unique<std::byte[]>(kBlockBytes);

  explicit Operation(Kind what) : kind(what) {
    call = [](Completion& self, Outcome how) noexcept {
      auto& operation = static_cast<Operation&>(self);
      ++operation.ended_count;
      operation.outcome = how;
    };
  }
};

// A side's record of what it sent and got.
struct Side {
  VerbsSide* verbs = nullptr;
  const char* peer = "";
  RemoteMemory area;  // the peer's, for this side's puts and gets
  RemoteMemory counter;
  uint64_t next_sent = 0;
  uint64_t next_received = 0;
  bool is_in_order = true;
  std::deque<std::unique_ptr<Operation>> operations;
  std::deque<std::pair<Loan, uint32_t>> borrowed;  // each with its number
  uint32_t next_number = 1;
  uint32_t done_put = 0;  // the last put that is known to be done
  uint32_t last_put = 0;  // the last put that was started

  Endpoint& to_peer() { return verbs->to(peer); }
  void listen() {
    verbs->messenger->set_handler(
        kNumbered, {[](void* self, const Message& message) noexcept {
                      auto& side = *static_cast<Side*>(self);
                      uint64_t number = UINT64_MAX;
                      std::memcpy(&number, message.payload.data(), sizeof number);
                      side.is_in_order = side.is_in_order && number == side.next_received;
                      ++side.next_received;
                    },
                    this});
    verbs->messenger->set_handler(
        kLent, {[](void* self, const Message& message) noexcept {
                  uint32_t number = 0;
                  std::memcpy(&number, message.payload.data(), sizeof number);
                  static_cast<Side*>(self)->borrowed.emplace_back(message.loan, number);
                },
                this});
  }
};

}  // namespace

TEST_GROUP(VerbsRandom) {
  Seed seed;
  std::mt19937_64 random{seed.value()};
  std::vector<std::byte> shared = std::vector<std::byte>(8 * kBlockBytes + 64);
  uint32_t got_count = 0;  // gets that were compared
  uint32_t read_count = 0;

  static SendStatus start(Side & side, Operation & operation) {
    Endpoint& to = side.to_peer();
    const std::span<std::byte> block = {operation.block.get(), kBlockBytes};
    switch (operation.kind) {
      case Operation::Kind::kLoan:
        return to.am_send_loan(kLent, std::as_bytes(std::span(&operation.number, 1)), block,
                               &operation);
      case Operation::Kind::kRead: return to.get(block, operation.loan.remote, &operation);
      case Operation::Kind::kPut: return to.put(block, side.area, &operation);
      case Operation::Kind::kGet: return to.get(block, side.area, &operation);
      case Operation::Kind::kAdd:
        return to.fetch_add(side.counter, 1, &operation.before, &operation);
      case Operation::Kind::kFlush: return to.flush(&operation);
      case Operation::Kind::kBreak: {
        RemoteMemory forged = side.area;
        forged.key += 0x5000;
        return to.put(block, forged, &operation);
      }
    }
    return SendStatus::kRefused;
  }

  void begin(Side & side, Operation::Kind kind, const Loan& loan = {}, uint32_t number = 0) {
    auto operation = std::make_unique<Operation>(kind);
    operation->number = number;
    operation->loan = loan;
    operation->done_put = side.done_put;
    if (kind == Operation::Kind::kLoan || kind == Operation::Kind::kPut) {
      operation->number = side.next_number++;
      fill(operation->block.get(), kBlockBytes, operation->number);
    }
    const SendStatus status = start(side, *operation);
    if (status == SendStatus::kPending) {
      if (kind == Operation::Kind::kPut) side.last_put = operation->number;
      side.operations.push_back(std::move(operation));
    } else if (kind == Operation::Kind::kRead) {
      side.verbs->messenger->release(loan);
    }
  }

  // Whether the bytes of a get are those of a possible put. Most puts differ in their first word.
  static bool is_a_put(const Side& side, const Operation& get) {
    for (uint32_t number = get.done_put; number <= side.last_put; ++number) {
      if (is_filled(get.block.get(), kBlockBytes, number)) return true;
    }
    return false;
  }

  void step(Side & side, uint64_t breaks_in_a_thousand) {
    const uint64_t die = random() % 1000;
    if (die < breaks_in_a_thousand) return begin(side, Operation::Kind::kBreak);
    switch (die % 8) {
      case 0: return begin(side, Operation::Kind::kLoan);
      case 1: return begin(side, Operation::Kind::kPut);
      case 2: return begin(side, Operation::Kind::kGet);
      case 3: return begin(side, Operation::Kind::kAdd);
      case 4: return begin(side, Operation::Kind::kFlush);
      case 5:
        if (side.borrowed.empty()) return;
        begin(side, Operation::Kind::kRead, side.borrowed.front().first,
              side.borrowed.front().second);
        return side.borrowed.pop_front();
      default: {
        std::byte payload[200] = {};
        std::memcpy(payload, &side.next_sent, sizeof side.next_sent);
        const auto bytes = sizeof side.next_sent + random() % 100;
        if (side.to_peer().am_send(kNumbered, std::span(payload).first(bytes)) ==
            SendStatus::kDone) {
          ++side.next_sent;
        }
      }
    }
  }

  // Counts the operations that have ended, releases the loans that were read, and forgets both.
  void settle(Side & side, uint64_t * done_adds, uint64_t * unknown_adds) {
    for (auto& operation : side.operations) {
      if (operation->ended_count == 0) continue;
      LONGS_EQUAL_TEXT(1, operation->ended_count, seed.text());
      const bool is_done = operation->outcome == Outcome::kDone;
      if (operation->kind == Operation::Kind::kAdd) {
        *done_adds += is_done ? 1 : 0;
        *unknown_adds += operation->outcome == Outcome::kUnknown ? 1 : 0;
      }
      if (operation->kind == Operation::Kind::kBreak) CHECK_TEXT(!is_done, seed.text());
      if (operation->kind == Operation::Kind::kPut && is_done) side.done_put = operation->number;
      if (operation->kind == Operation::Kind::kGet && is_done) {
        CHECK_TEXT(is_a_put(side, *operation), seed.text());
        ++got_count;
      }
      if (operation->kind == Operation::Kind::kRead) {
        if (is_done) {
          CHECK_TEXT(is_filled(operation->block.get(), kBlockBytes, operation->number),
                     seed.text());
          ++read_count;
        }
        side.verbs->messenger->release(operation->loan);
      }
      operation.reset();
    }
    std::erase(side.operations, nullptr);
  }

  void run(const VerbsRigOptions& given, uint64_t breaks_in_a_thousand) {
    VerbsRigOptions options = given;
    options.exported = {shared.data() + (64 - reinterpret_cast<uintptr_t>(shared.data()) % 64),
                        8 * kBlockBytes};
    VerbsRig rig(options);
    CHECK(rig.connect());
    Side a, b;
    a.verbs = &rig.a;
    b.verbs = &rig.b;
    a.peer = "b";
    b.peer = "a";
    for (Side* side : {&a, &b}) {
      Side& other = side == &a ? b : a;
      const RemoteMemory all = other.to_peer().expose(options.exported).take();
      side->area = all.part(side == &a ? kBlockBytes : 3 * kBlockBytes, kBlockBytes);
      side->counter = all.part(side == &a ? 0 : 64, sizeof(uint64_t));
      fill(options.exported.data() + (side == &a ? 1 : 3) * kBlockBytes, kBlockBytes, 0);
      side->listen();
    }
    std::memset(options.exported.data(), 0, kBlockBytes);
    uint64_t done_adds[2] = {}, unknown_adds[2] = {};
    for (uint32_t i = 0; i < kSteps; ++i) {
      step(random() % 2 == 0 ? a : b, breaks_in_a_thousand);
      if (random() % 4 == 0) rig.poll();
      if (i % 64 == 0) {
        settle(a, &done_adds[0], &unknown_adds[0]);
        settle(b, &done_adds[1], &unknown_adds[1]);
      }
      if (i % 64 == 63) CHECK_TEXT(rig.connect(), seed.text());  // else it is mostly down
    }
    CHECK_TEXT(rig.poll_until([&] {
      for (Side* side : {&a, &b}) {  // returns all loans that are left
        while (!side->borrowed.empty()) {
          side->verbs->messenger->release(side->borrowed.front().first);
          side->borrowed.pop_front();
        }
      }
      settle(a, &done_adds[0], &unknown_adds[0]);
      settle(b, &done_adds[1], &unknown_adds[1]);
      return a.operations.empty() && b.operations.empty() && a.next_received == b.next_sent &&
             b.next_received == a.next_sent;
    }),
               seed.text());
    for (int i = 0; i < 100; ++i) rig.poll();
    CHECK_TEXT(a.is_in_order && b.is_in_order, seed.text());
    LONGS_EQUAL_TEXT(b.next_sent, a.next_received, seed.text());
    LONGS_EQUAL_TEXT(a.next_sent, b.next_received, seed.text());
    for (int i = 0; i < 2; ++i) {
      uint64_t counted = 0;
      std::memcpy(&counted, options.exported.data() + 64 * i, sizeof counted);
      CHECK_TEXT(counted >= done_adds[i] && counted <= done_adds[i] + unknown_adds[i], seed.text());
    }
    for (Side* side : {&a, &b}) {  // the final bytes are those of a put, too
      Operation last(Operation::Kind::kGet);
      last.done_put = side->done_put;
      std::memcpy(last.block.get(), options.exported.data() + (side == &a ? 1 : 3) * kBlockBytes,
                  kBlockBytes);
      CHECK_TEXT(is_a_put(*side, last), seed.text());
    }
    std::printf("\n%" PRIu64 " + %" PRIu64 " messages, %" PRIu64 " connections lost, %" PRIu64
                " sent again, %" PRIu64 " + %" PRIu64 " additions done, %" PRIu64
                " unknown; compared: %u gets, %u loans\n",
                a.next_sent, b.next_sent, rig.a.counters.broken.read(),
                rig.a.counters.resent.read() + rig.b.counters.resent.read(), done_adds[0],
                done_adds[1], unknown_adds[0] + unknown_adds[1], got_count, read_count);
    CHECK_TEXT(got_count >= 100 && read_count >= 100, seed.text());
  }
};

TEST(VerbsRandom, WithoutBreaks) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  run({}, 0);
}

TEST(VerbsRandom, WithBreaks) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  run({.shape = {.peer_count_max = 1, .window = 8, .message_bytes = 512}}, 8);
}

TEST(VerbsRandom, WithBreaksAndWindows) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  run({.shape = {.peer_count_max = 1, .window = 16, .message_bytes = 1024}, .trust_windows = true},
      8);
}
