// A group in the output of `bedplate plan`: its parts, and its shape in the words of [[group]].
#pragma once

#include <vector>

#include "apps/program/json_output.h"
#include "transport/shm/membership/group_layout.h"

namespace bedplate {

struct PartRow {
  const char* name;
  uint64_t count;
  uint64_t bytes_each;
  uint64_t bytes() const noexcept { return count * bytes_each; }
};

// The parts in the order of GroupPart, without parts that this layout lacks.
std::vector<PartRow> part_rows(const GroupLayout& layout);

JsonValue parts_json(const std::vector<PartRow>& rows);

// The keys of [[group]] that have an effect in this layout, without name.
JsonValue shape_json(const GroupShape& shape);

}  // namespace bedplate
