// JSON on standard output: the one way in which commands print it.
#pragma once

#include <cstdio>

#include <nlohmann/json.hpp>

#include "platform/numa.h"

namespace bedplate {

using Json = nlohmann::ordered_json;

// A node's number; null where it is left to the system.
inline Json node_json(int node) { return node == kAnyNode ? Json() : Json(node); }

// A name that was cut off in the middle of a character must not stop the report: what is no UTF-8
// is replaced.
inline void print_json(const Json& json) {
  std::printf("%s\n", json.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

}  // namespace bedplate
