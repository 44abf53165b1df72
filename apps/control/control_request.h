// One line of a client of the control socket or the serial line, a JSON-RPC 2.0 request: an object
// with "jsonrpc", "method", "params" (an object of texts, numbers and booleans) and "id".
// Everything else is refused, so a request has at most two levels. nlohmann's parser reads it in
// one pass without recursion, and allocates at most a few times the line's length of heap.
//
// Threads: any, one at a time for each object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "apps/services/control_methods.h"

namespace bedplate {

// The codes of JSON-RPC 2.0, section 5.1, and after them our own.
enum class ControlFault : int {
  kNone = 0,
  kNoJson = -32700,
  kNoRequest = -32600,
  kNoMethod = -32601,
  kNoParameter = -32602,
  kInternal = -32603,
  kRefused = -32000,
  kNotAllowed = -32001,
  kStuck = -32002,
};

struct ControlRequest {
  struct Parameter {
    std::string_view name;
    ControlType type = ControlType::kText;
    std::string_view text = {};
    uint64_t number = 0;
  };
  static constexpr size_t kBytesMax = 8 * 1024;  // the longest line

  ControlFault fault = ControlFault::kNone;
  std::string_view complaint;  // explains a fault, for people; only set with a fault
  bool is_answer = false;      // it has "result" or "error": an answer, not a request
  bool has_id = false;         // without an id only an unreadable request gets an answer
  std::string_view id;         // as JSON; "null" if it has none
  std::string_view method;
  size_t parameter_count = 0;
  Parameter parameters[kControlParametersMax];

  size_t used_bytes = 0;
  char texts[kBytesMax + 1024] = {};  // backs the views above
};

// Reads `line`, without its newline. Requires: it has at most kBytesMax bytes.
void read_control_request(std::string_view line, ControlRequest* request) noexcept;

}  // namespace bedplate
