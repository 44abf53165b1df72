#include "transport/messages/endpoint.h"

namespace bedplate {

const char* to_text(SendStatus status) noexcept {
  switch (status) {
    case SendStatus::kDone: return "done";
    case SendStatus::kPending: return "pending";
    case SendStatus::kAgain: return "again";
    case SendStatus::kGone: return "gone";
    case SendStatus::kTooLong: return "too long";
    case SendStatus::kRefused: return "refused";
  }
  return "";
}

const char* to_text(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::kDone: return "done";
    case Outcome::kNotDone: return "not done";
    case Outcome::kUnknown: return "unknown";
  }
  return "";
}

}  // namespace bedplate
