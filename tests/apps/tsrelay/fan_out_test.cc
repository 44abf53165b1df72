// A fan-out sends datagrams without an access to their bytes: the pages of the packets are closed
// while the packets are sent, and an access is detected.
#include <csignal>
#include <cstring>
#include <memory>

#include <sys/mman.h>

#include "tests/apps/tsrelay/relay_rig.h"

using namespace bedplate;
using namespace bedplate::relay;

namespace {

// Pages that count an access while they are closed. The access opens them.
class WatchedPages {
 public:
  explicit WatchedPages(size_t byte_count) : byte_count_(byte_count) {
    void* pages =
        mmap(nullptr, byte_count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    pages_ = static_cast<std::byte*>(pages);
    the_one_ = this;
    struct sigaction action = {};
    action.sa_sigaction = [](int number, siginfo_t* info, void*) {
      const auto* at = static_cast<std::byte*>(info->si_addr);
      if (at < the_one_->pages_ || at >= the_one_->pages_ + the_one_->byte_count_) {
        signal(number, SIG_DFL);
        return;
      }
      the_one_->touch_count_ = the_one_->touch_count_ + 1;
      the_one_->open();
    };
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &before_);
  }
  ~WatchedPages() {
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(pages_, byte_count_);
  }
  void close() { mprotect(pages_, byte_count_, PROT_NONE); }
  void open() { mprotect(pages_, byte_count_, PROT_READ | PROT_WRITE); }
  std::span<std::byte> span() const { return {pages_, byte_count_}; }
  uint32_t touch_count() const { return touch_count_; }

 private:
  static inline WatchedPages* the_one_ = nullptr;
  std::byte* pages_ = nullptr;
  size_t byte_count_;
  volatile uint32_t touch_count_ = 0;
  struct sigaction before_ = {};
};

}  // namespace

TEST_GROUP(FanOut){};

TEST(FanOut, ATouchIsSeen) {
  WatchedPages pages(4096);
  pages.close();
  LONGS_EQUAL(0, pages.touch_count());
  volatile std::byte* const byte = pages.span().data();
  CHECK(byte[17] == std::byte{0});
  LONGS_EQUAL(1, pages.touch_count());
}

TEST(FanOut, ToFiveHundredOutputsNoByteOfAPacketIsTouched) {
  constexpr uint32_t kOutputs = 500;
  constexpr uint32_t kPackets = 100;
  RelayRig r(1, kOutputs);
  WatchedPages pages(r.legs[0]->memory.size());
  r.legs[0]->memory = pages.span();
  r.options.adds_rtp = true;
  for (uint32_t i = 0; i < kOutputs; ++i) {
    r.outputs[i].is_plain = i % 3 == 0;
    r.outputs[i].adds_rtp = i % 3 == 1;
  }
  r.out.notes = false;
  r.create();
  // The packets are checked, ordered and inspected, but not sent: the socket has no space.
  r.out.room = 0;
  for (uint32_t i = 0; i < kPackets; ++i) CHECK(r.give(0, r.payload()));
  r.work();
  LONGS_EQUAL(kPackets, r.kept_count());
  LONGS_EQUAL(kPackets, r.counters->rtp_added.read());
  pages.close();
  r.out.room = ~size_t{0};
  r.out.owner.has_room(r.out.owner.context);
  r.work();
  LONGS_EQUAL(0, pages.touch_count());
  pages.open();
  for (uint32_t i = 0; i < kOutputs; ++i) LONGS_EQUAL(kPackets, r.output(i).packets.read());
  LONGS_EQUAL(0, r.kept_count());
}
