// Overwrites a group's segment, at random and at sensitive positions. The same seed over the same
// memory repeats the same writes.
#pragma once

#include <cstdint>
#include <random>

#include "transport/shm/membership/group_segment.h"

namespace bedplate::strain {

class Scribbler {
 public:
  // `heap` is plausible memory for a loan. If the header is destroyed no process can join the
  // group, and a slot claimed for nothing stops a FIFO. With `spares_group` the scribbler leaves
  // both intact, so that later scribblers still have work.
  Scribbler(const GroupSegment& segment, std::span<const std::byte> heap, bool spares_group,
            uint64_t seed) noexcept
      : segment_(segment), heap_(heap), spares_group_(spares_group), random_(seed) {}

  // Makes one mutation.
  void scribble() noexcept;
  uint64_t count() const noexcept { return count_; }

 private:
  uint64_t below(uint64_t bound) noexcept { return random_() % bound; }
  uint32_t member() noexcept { return static_cast<uint32_t>(below(segment_.shape().member_count)); }
  std::byte* at(uint64_t offset) const noexcept { return segment_.memory().data() + offset; }
  // A number near the limit, a small one, or a random one.
  uint64_t edge(uint64_t limit) noexcept;
  template <typename T>
  void store(uint64_t offset, T value) noexcept;

  void anything() noexcept;
  void slot(uint64_t offset, uint64_t lap) noexcept;
  void payload(uint64_t offset, SlotKind kind) noexcept;
  void fifo() noexcept;
  void box(uint64_t offset) noexcept;
  void lane() noexcept;
  void operation() noexcept;
  void part_of_member() noexcept;
  void queue() noexcept;

  GroupSegment segment_;
  std::span<const std::byte> heap_;
  bool spares_group_;
  std::mt19937_64 random_;
  uint64_t count_ = 0;
};

}  // namespace bedplate::strain
