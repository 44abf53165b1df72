// The promise of the project: any pointer from malloc is a source and a target of RDMA as it is,
// and after the seal nothing is registered any more.
//
// The test runs in a process of its own, whose pool is sealed: 10,000 operations of random sizes,
// each on memory that was allocated for it, with other blocks allocated and freed in between. Every
// byte is checked at the far end. The test and the kernel count registrations.
#include <cinttypes>
#include <cstdio>
#include <random>
#include <set>

#include "tests/support/death_test.h"
#include "tests/support/filled.h"
#include "tests/support/seed.h"
#include "tests/support/skip.h"
#include "tests/transport/verbs/verbs_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

constexpr AmId kLent = 4;
constexpr uint32_t kOperationCount = 10'000;
constexpr uint64_t kBytesMax = 200'000;
constexpr uint32_t kInFlightMax = 12;

struct Freed {
  void operator()(std::byte* block) const noexcept { std::free(block); }
};
using Block = std::unique_ptr<std::byte, Freed>;

Block allocate(uint64_t bytes) {
  Block block(static_cast<std::byte*>(std::malloc(bytes)));
  BP_PROBE_CHECK(block != nullptr);
  return block;
}

class Traffic {
 public:
  Traffic(VerbsRig& rig, std::span<std::byte> open, uint64_t seed)
      : rig_(rig), open_(open), random_(seed), exposed_(rig.b.to("a").expose(open).take()) {
    rig_.b.messenger->set_handler(kLent, {[](void* self, const Message& message) noexcept {
                                            static_cast<Traffic*>(self)->borrow(message);
                                          },
                                          this});
  }

  void run() {
    while (ended_count_ < kOperationCount) {
      while (begun_count_ < kOperationCount && begun_count_ - ended_count_ < kInFlightMax) {
        begin();
        churn();
      }
      rig_.poll();
    }
  }
  size_t sources() const { return sources_.size(); }
  size_t targets() const { return targets_.size(); }
  uint64_t bytes() const { return bytes_; }

 private:
  enum class Kind { kLoan, kPut, kGet };
  struct Operation : Completion {
    Traffic* traffic = nullptr;
    Kind kind = Kind::kLoan;
    uint32_t number = 0;
    uint64_t bytes = 0;
    Block block;  // at a: lent, put, or the target of a get
    Block into;   // at b: the loan is read into it
    Loan loan;
    struct Read : Completion {
      Operation* whole = nullptr;
    } got;
    bool is_in_flight = false;
  };

  // The offset of the part of b's open memory that belongs to this operation.
  uint64_t offset(const Operation& operation) const {
    return static_cast<uint64_t>(&operation - operations_) * kBytesMax;
  }

  void begin() {
    Operation* operation = operations_;
    while (operation->is_in_flight) ++operation;
    operation->traffic = this;
    operation->is_in_flight = true;
    operation->kind = static_cast<Kind>(random_() % 3);
    operation->number = begun_count_++;
    const uint64_t die = random_() % 100;  // most are small, some have many packets
    operation->bytes = 1 + random_() % (die < 80 ? 2000 : die < 99 ? 20'000 : kBytesMax);
    operation->block = allocate(operation->bytes);
    operation->call = [](Completion& self, Outcome outcome) noexcept {
      BP_PROBE_CHECK(outcome == Outcome::kDone);
      auto& ended = static_cast<Operation&>(self);
      ended.traffic->end(ended);
    };
    const bool is_target = operation->kind == Kind::kGet;
    (is_target ? targets_ : sources_).insert(operation->block.get());
    fill(is_target ? open_.data() + offset(*operation) : operation->block.get(), operation->bytes,
         operation->number);
    SendStatus status = SendStatus::kAgain;
    while (status == SendStatus::kAgain) {
      status = start(*operation);
      rig_.poll();
    }
    BP_PROBE_CHECK(status == SendStatus::kPending);
  }

  SendStatus start(Operation& operation) {
    Endpoint& to_b = rig_.a.to("b");
    const std::span<std::byte> block = {operation.block.get(), operation.bytes};
    const RemoteMemory remote = exposed_.part(offset(operation), operation.bytes);
    switch (operation.kind) {
      case Kind::kPut: return to_b.put(block, remote, &operation);
      case Kind::kGet: return to_b.get(block, remote, &operation);
      case Kind::kLoan: break;
    }
    const auto header = std::as_bytes(std::span(&operation.number, 1));
    return to_b.am_send_loan(kLent, header, block, &operation);
  }

  // At b: reads the loan into memory that it allocates now.
  void borrow(const Message& message) {
    uint32_t number = 0;
    std::memcpy(&number, message.payload.data(), sizeof number);
    Operation* operation = operations_;
    while (!operation->is_in_flight || operation->number != number) ++operation;
    BP_PROBE_CHECK(message.loan.remote.bytes == operation->bytes);
    operation->loan = message.loan;
    operation->into = allocate(operation->bytes);
    targets_.insert(operation->into.get());
    operation->got.whole = operation;
    operation->got.call = [](Completion& self, Outcome outcome) noexcept {
      BP_PROBE_CHECK(outcome == Outcome::kDone);
      Operation& whole = *static_cast<Operation::Read&>(self).whole;
      check(whole.into.get(), whole);
      whole.traffic->keep(std::move(whole.into));
      whole.traffic->rig_.b.messenger->release(whole.loan);
    };
    const std::span<std::byte> into = {operation->into.get(), operation->bytes};
    BP_PROBE_CHECK(rig_.b.to("a").get(into, message.loan.remote, &operation->got) ==
                   SendStatus::kPending);
  }

  void end(Operation& operation) {
    if (operation.kind == Kind::kPut) check(open_.data() + offset(operation), operation);
    if (operation.kind == Kind::kGet) check(operation.block.get(), operation);
    keep(std::move(operation.block));
    operation.is_in_flight = false;
    bytes_ += operation.bytes;
    ++ended_count_;
  }

  static void check(const std::byte* data, const Operation& operation) {
    BP_PROBE_CHECK(is_filled(data, operation.bytes, operation.number));
  }

  // Allocates and frees other blocks meanwhile. keep() holds used blocks for a while, so that new
  // blocks have other addresses.
  void churn() { keep(random_() % 3 == 0 ? nullptr : allocate(1 + random_() % 20'000)); }
  void keep(Block block) { others_[random_() % std::size(others_)] = std::move(block); }

  VerbsRig& rig_;
  std::span<std::byte> open_;
  std::mt19937_64 random_;
  RemoteMemory exposed_;
  Operation operations_[kInFlightMax + 1];
  Block others_[4096];
  std::set<const void*> sources_, targets_;
  uint32_t begun_count_ = 0;
  uint32_t ended_count_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace

BP_PROBE(verbs_promise) {
  if (!has_verbs_device()) probe_skipped(kNoVerbs);
  Seed seed;
  // The heap as the configuration opens one (`remote = "read"`), and memory that peers may write.
  const Segment& heap = process_pool().segment(0);
  const Block written = allocate((kInFlightMax + 1) * kBytesMax);
  const std::span<std::byte> open = {written.get(), (kInFlightMax + 1) * kBytesMax};
  VerbsRig rig({.exported = open, .readable = {heap.address, heap.bytes}});
  BP_PROBE_CHECK(rig.connect());
  Traffic traffic(rig, open, seed.value());
  process_pool().seal();
  const RegistrationCounts before = registration_counts();
  const uint64_t kernel_before = kernel_resource_count("mr");
  traffic.run();
  const RegistrationCounts after = registration_counts();
  BP_PROBE_CHECK(before.total > 0 && after.total == before.total);
  BP_PROBE_CHECK(after.after_seal == 0);
  BP_PROBE_CHECK(kernel_before > 0 && kernel_before != UINT64_MAX);
  BP_PROBE_CHECK(kernel_resource_count("mr") == kernel_before);
  BP_PROBE_CHECK(rig.a.counters.bounced_bytes.read() == 0);  // nothing was copied
  BP_PROBE_CHECK(rig.a.counters.broken.read() == 0);
  std::fprintf(stderr,
               "promise: %u operations, %" PRIu64 " MiB, %zu distinct buffers as RDMA source, %zu "
               "as target; regions: %" PRIu64 " before the seal, %" PRIu64 " after it (the kernel "
               "has %" PRIu64 ")\n",
               kOperationCount, traffic.bytes() / kMiB, traffic.sources(), traffic.targets(),
               after.total, after.after_seal, kernel_before);
}

TEST_GROUP(VerbsPromise){};

TEST(VerbsPromise, AfterTheSealNothingIsRegisteredAndEveryBlockIsReachable) {
  const Ended ended = run_fresh("verbs_promise", {"BEDPLATE_BOOT_BYTES=128 MiB"});
  check_probe(ended, "verbs_promise", __FILE__, __LINE__);
  if (const char* line = std::strstr(ended.text, "promise: "); line != nullptr) {
    std::printf("\n%s", line);
  }
}
