// The loans that a member has from others. It returns a loan by storing the loan's mark into the
// loan's byte in the lender's part of the segment.
#pragma once

#include <cstdint>

#include "transport/messages/message_slot.h"
#include "transport/messages/provider.h"
#include "transport/shm/endpoint/endpoint_table.h"

namespace bedplate {

// Threads: the shard's.
//
// Invariants: 1. A loan that waits to be returned has a peer as its lender, and a valid number. 2.
// The released loans of a peer are at most as many as this member holds of it. (is_valid)
class Borrower {
 public:
  struct Options {
    const GroupView& group;
    const EndpointTable& endpoints;
    Provider& owner;               // the provider in each Loan that borrow() makes
    bool returns_at_once = false;  // at release(), not at the next poll
  };
  // Everything in `options` outlives this.
  void create(const Options& options) noexcept;

  // Takes a loan from `from`. Returns nullptr, and sets `*loan`; or gives a malformed loan back,
  // and returns its fault as static text.
  const char* borrow(ShmEndpoint& from, const LoanDescriptor& descriptor, Loan* loan) noexcept;
  // Returns a loan that was not delivered. Wakes nobody. Does nothing if its number is malformed.
  void refuse(uint32_t lender, const LoanDescriptor& descriptor) noexcept;

  // Provider::release().
  void release(const Loan& loan) noexcept;
  // Whether released loans wait for give_back_released(), which the next poll calls.
  bool has_released() const noexcept { return released_count_ > 0; }
  void give_back_released() noexcept;

  // Called when this member is dead to the others: from here on released loans are dropped, and no
  // byte of the lenders is stored.
  void stop() noexcept;

  bool is_valid() const noexcept;

 private:
  static constexpr uint32_t kReleasedCountMax = 32;

  struct Return {
    uint64_t generation = 0;  // the lender's, cut to the bits that a token has for it
    uint32_t lender = 0;
    uint16_t loan = 0;
    uint8_t mark = 0;
  };

  void give_back(const Return& loan) noexcept;
  // Whether `from` is still the generation that lent it.
  static bool is_of(const Return& loan, const ShmEndpoint& from) noexcept;
  void set_held(uint32_t lender, bool is_held) noexcept;

  const GroupView* group_ = nullptr;
  const EndpointTable* endpoints_ = nullptr;
  Provider* owner_ = nullptr;
  bool returns_at_once_ = false;
  bool is_stopped_ = false;
  // Released loans. The next poll returns them: a store to the lender's line at the release would
  // hold up a message that this shard sends right after it.
  uint32_t released_count_ = 0;
  Return released_[kReleasedCountMax];
};

}  // namespace bedplate
