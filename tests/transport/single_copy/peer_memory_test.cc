// The checks that PeerMemory makes for all kinds of single copy.
#include "transport/single_copy/single_copy.h"

#include <cstring>
#include <memory>

#include <unistd.h>

#include "tests/support/death_test.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// Reads this process's own memory, or returns the outcome that a test sets.
class StandIn final : public SingleCopy {
 public:
  SingleCopyKind kind() const noexcept override { return SingleCopyKind::kCma; }
  Result<ExposedRange> expose(void* memory, uint64_t bytes, bool is_writable) noexcept override {
    return ExposedRange{reinterpret_cast<uintptr_t>(memory), bytes, 0, is_writable};
  }
  void withdraw(const ExposedRange&) noexcept override {}

  const CopyOutcome* instead = nullptr;

 protected:
  class Access final : public PeerAccess {
   public:
    explicit Access(StandIn& all) noexcept : all_(all) {}
    CopyOutcome read(std::byte* local, const ExposedRange& range, uint64_t offset,
                     uint64_t bytes) noexcept override {
      if (all_.instead != nullptr) return *all_.instead;
      std::memcpy(local, reinterpret_cast<const std::byte*>(range.address) + offset, bytes);
      return {CopyEnd::kDone, bytes};
    }
    CopyOutcome write(const std::byte*, const ExposedRange&, uint64_t, uint64_t) noexcept override {
      return *all_.instead;
    }

   private:
    StandIn& all_;
  };
  Result<PeerAccess*> make_access(const SingleCopyPeer&, uint64_t,
                                  std::byte* storage) noexcept override {
    return static_cast<PeerAccess*>(std::construct_at(reinterpret_cast<Access*>(storage), *this));
  }
  void explain(const SingleCopyPeer&, int, Error&) const noexcept override {}
};

}  // namespace

TEST_GROUP(PeerMemory) {
  StandIn kind;
  PeerMemory memory;
  char bytes[64] = "what lies there";
  char local[64] = {};
  ExposedRange range;

  void setup() override {
    range = kind.expose(bytes, sizeof bytes, true).value();
    CHECK(kind.attach({getpid(), STDIN_FILENO}, kind.card().value(), memory).ok());
  }
  void teardown() override { memory.close(); }
};

TEST(PeerMemory, HandsOnTheOutcomesOfAnAccess) {
  CHECK(memory.read(local, range, 5, 4).end == CopyEnd::kDone);
  STRCMP_EQUAL("lies", local);
  const CopyOutcome part = {CopyEnd::kRefused, 3};
  kind.instead = &part;
  LONGS_EQUAL(3, memory.read(local, range, 0, 8).bytes);
  CHECK(memory.write(local, range, 0, 8).end == CopyEnd::kRefused);
}

// Otherwise a part would count as the whole, and bytes that were never copied would be used.
TEST(PeerMemory, AnAccessThatCopiesMoreOrLessThanItSaysIsAProgrammingError) {
  const CopyOutcome more = {CopyEnd::kRefused, 9};
  const CopyOutcome less = {CopyEnd::kDone, 7};
  kind.instead = &more;
  BP_CHECK_DIES("more was copied than was asked for", memory.read(local, range, 0, 8));
  BP_CHECK_DIES("more was copied than was asked for", memory.write(local, range, 0, 8));
  kind.instead = &less;
  BP_CHECK_DIES("a part is not all", memory.read(local, range, 0, 8));
  BP_CHECK_DIES("a part is not all", memory.write(local, range, 0, 8));
}

TEST(PeerMemory, AttachingTwiceIsAProgrammingError) {
  const SingleCopyCard card = kind.card().value();
  BP_CHECK_DIES("!memory.is_open()", (void)kind.attach({getpid(), STDIN_FILENO}, card, memory));
}

TEST(PeerMemory, AKindThatIsTwiceInAnOrderIsAProgrammingError) {
  const SingleCopyKind twice[] = {SingleCopyKind::kCma, SingleCopyKind::kCma};
  BP_CHECK_DIES("assertion failed", (void)choose_single_copy(twice));
}
