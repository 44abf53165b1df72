// Tables of the configuration that come with a part of the program: [verbs] with
// libbedplate-verbs.a, those of an image's first process with libbedplate-init.a.
//
// A part describes and checks its tables by the functions here. Its settings are stored in the
// configuration (Configuration::part), and only the part knows their type. The runtime refers to
// the parts by weak symbols: a program without a part refuses its tables, and names the missing
// package. Threads: any, before the seal (it allocates).
#pragma once

#include <string_view>
#include <vector>

#include "apps/configuration/configuration.h"
#include "apps/configuration/configuration_table.h"
#include "pinned_pool/plan.h"
#include "platform/result.h"

namespace bedplate {

// The functions of a part. The archive defines one such struct, and a program asks for it by name
// (-Wl,-u, in the part's .pc file).
struct ConfigurationPart {
  // Describes its tables in `file`; their variables are in settings that this function makes
  // (Configuration::make_part).
  void (*describe)(ConfigurationTable& file, Configuration& all);
  // Checks the rules between its tables and others, once the whole file is read.
  void (*check)(ReadTable& file, const Configuration& all);
  // Checks that `segments`, all of the plan, include the segments that its tables name. nullptr:
  // its tables name none.
  Result<void> (*check_segments)(const Configuration& all,
                                 const std::vector<SegmentRequest>& segments);
};

// Each of these functions calls the function of that name in all linked parts, in the order of
// docs/configuration.md.
void describe_parts(ConfigurationTable& file, Configuration& all);
void check_parts(ReadTable& file, const Configuration& all);
Result<void> check_segments_of_parts(const Configuration& all,
                                     const std::vector<SegmentRequest>& segments);

// The name of the part that has the table ("init"), if the program lacks that part; its package is
// bedplate-NAME. Static text. nullptr: no part has such a table, or the part is linked.
const char* missing_part(std::string_view table) noexcept;

}  // namespace bedplate
