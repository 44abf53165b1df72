// The loans that a member has from others. It returns a loan by storing a mark into the lender's
// byte.
#pragma once

#include <cstdint>

#include "transport/messages/message_slot.h"
#include "transport/messages/provider.h"
#include "transport/shm/endpoint/endpoint_table.h"

namespace bedplate {

// Threads: the shard's.
//
// Invariants: 1. A loan that waits to be returned has a peer as its lender, and a valid number. 2.
// No peer has more loans released than are held of it. (is_valid)
class Borrower {
 public:
  struct Options {
    const GroupView& group;
    const EndpointTable& endpoints;
    Provider& owner;  // of the loans, as the program sees it
    bool returns_at_once = false;
  };
  // Everything in `options` outlives this.
  void create(const Options& options) noexcept;

  // Takes a loan from `from`. Returns its fault; or nullptr, and sets `*loan`.
  const char* borrow(ShmEndpoint& from, const LoanDescriptor& descriptor, Loan* loan) noexcept;
  // Returns a loan that was not delivered.
  void refuse(uint32_t lender, const LoanDescriptor& descriptor) noexcept;

  // Provider::release().
  void release(const Loan& loan) noexcept;
  bool has_released() const noexcept { return released_count_ > 0; }
  void give_back_released() noexcept;

  // Ends all stores into other members' bytes: this member is dead to the others.
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
  // Released loans, which the next poll returns: a store to the lender's line would hold up a
  // message that this shard sends right after the release.
  uint32_t released_count_ = 0;
  Return released_[kReleasedCountMax];
};

}  // namespace bedplate
