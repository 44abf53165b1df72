// One line of a client of the control socket, as JSON-RPC 2.0 has it: an object with "jsonrpc",
// "method", "params" (an object of texts, numbers and booleans) and "id". Everything else is
// refused, so a request has two levels at most. nlohmann's parser reads it; it goes through the
// text once, without recursion, and takes memory of the heap for the length of a line at most.
//
// Threads: any, each object one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "apps/services/control_methods.h"

namespace bedplate {

// Codes of JSON-RPC 2.0, section 5.1, and below them our own.
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
  static constexpr size_t kBytesMax = 8 * 1024;  // of a line

  ControlFault fault = ControlFault::kNone;
  std::string_view complaint;  // of a fault: its text, for people
  bool is_answer = false;      // it has "result" or "error": an answer, not a request
  bool has_id = false;         // else it gets no answer, unless it could not be read
  std::string_view id;         // as JSON
  std::string_view method;
  size_t parameter_count = 0;
  Parameter parameters[kControlParametersMax];

  size_t used_bytes = 0;
  char texts[kBytesMax + 1024] = {};  // the bytes of the views above
};

// Reads `line`, of kBytesMax at most, without its end.
void read_control_request(std::string_view line, ControlRequest* request) noexcept;

}  // namespace bedplate
