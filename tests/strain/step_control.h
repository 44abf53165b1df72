// Orders from the stepping program to the sender, and the sender's answers, both in the board's
// segment. Also lists the paths of a send that are stepped.
#pragma once

#include <atomic>
#include <cstdint>

#include "transport/messages/endpoint.h"
#include "transport/shm/membership/group_layout.h"

namespace bedplate::strain {

// The queue that a call uses. Each queue has its own group.
enum class StepQueue : uint32_t { kFifo, kBox, kLane, kExchange };
inline constexpr StepQueue kStepQueues[] = {StepQueue::kFifo, StepQueue::kBox, StepQueue::kLane,
                                            StepQueue::kExchange};

// One call of the endpoint.
enum class Deed : uint32_t { kShort, kLong, kLoan, kPut, kGet, kAdd, kSwap };
inline constexpr Deed kDeeds[] = {Deed::kShort, Deed::kLong, Deed::kLoan, Deed::kPut,
                                  Deed::kGet,   Deed::kAdd,  Deed::kSwap};

inline const char* to_text(StepQueue queue) noexcept {
  constexpr const char* kTexts[] = {"fifo", "box", "lane", "exchange"};
  return kTexts[static_cast<uint32_t>(queue)];
}
inline const char* to_text(Deed deed) noexcept {
  constexpr const char* kTexts[] = {"short", "long", "loan", "put", "get", "add", "swap"};
  return kTexts[static_cast<uint32_t>(deed)];
}
// True if the call invokes a handler.
inline bool is_message(Deed deed) noexcept { return deed <= Deed::kLoan; }
inline bool is_possible(StepQueue queue, Deed deed) noexcept {
  return is_message(deed) || queue != StepQueue::kExchange;
}

inline constexpr uint32_t kStepWordCount = 8;  // of the receiver's memory that operations use

struct StepControl {
  // Written by the stepping process. `order` is stored last, and each order has a new number.
  std::atomic<uint32_t> order;
  Deed deed;
  uint32_t is_marked;   // a trap before and after the call
  uint64_t attempt;     // the message's number
  RemoteMemory memory;  // the receiver's, exposed to it
  // By the sender.
  std::atomic<uint32_t> answered;  // the order that `status` belongs to
  SendStatus status;
  std::atomic<uint64_t> ended;     // loans and operations whose completion was called
  std::atomic<uint64_t> not_done;  // of these, completed without kDone
  std::atomic<uint32_t> has_box;
  std::atomic<uint64_t> polls;
  std::atomic<int> connection;  // descriptor of the sender's connection; 0: not ready yet
};

}  // namespace bedplate::strain
