// The orders of the program that single-steps a sender, and the sender's answers, in the board's
// segment; and the paths of a send that are stepped.
#pragma once

#include <atomic>
#include <cstdint>

#include "transport/messages/endpoint.h"
#include "transport/shm/membership/group_layout.h"

namespace bedplate::strain {

// The queue that a deed goes through: a group is made for each.
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
  // Written by the process that steps. The order is stored last, with another number each time.
  std::atomic<uint32_t> order;
  Deed deed;
  uint32_t is_marked;   // a trap before and behind the call
  uint64_t attempt;     // the message's number
  RemoteMemory memory;  // the receiver's, exposed to it
  // By the sender.
  std::atomic<uint32_t> answered;  // the order whose status this is
  SendStatus status;
  std::atomic<uint64_t> ended;     // loans and operations whose completion was called
  std::atomic<uint64_t> not_done;  // of these, completed without kDone
  std::atomic<uint32_t> has_box;
  std::atomic<uint64_t> polls;
  std::atomic<int> connection;  // its descriptor; 0: it is not ready
};

}  // namespace bedplate::strain
