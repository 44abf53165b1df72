// Tables of the configuration that come with a part of the program: [verbs] with
// libbedplate-verbs.a, those of an image's first process with libbedplate-init.a.
//
// A part describes its tables, and checks them, by the functions here; its settings lie in the
// configuration (Configuration::part), and it alone knows them. The runtime knows the parts weakly:
// a program without one refuses its tables, and says which package it lacks. Threads: any, before
// the seal (it allocates).
#pragma once

#include <string_view>
#include <vector>

#include "apps/configuration/configuration.h"
#include "apps/configuration/configuration_table.h"
#include "pinned_pool/plan.h"
#include "platform/result.h"

namespace bedplate {

// The functions by which a part brings its tables. The archive defines one, a program asks for it
// by name (-Wl,-u, which the part's .pc file says).
struct ConfigurationPart {
  // Describes its tables in `file`; their variables are in settings that this makes
  // (Configuration::make_part).
  void (*describe)(ConfigurationTable& file, Configuration& all);
  // Checks the rules between its tables and others, once the whole file is read.
  void (*check)(ReadTable& file, const Configuration& all);
  // Checks that `segments`, all of the plan, include those that its tables name. nullptr: they name
  // none.
  Result<void> (*check_segments)(const Configuration& all,
                                 const std::vector<SegmentRequest>& segments);
};

// Each calls the function of all parts that are linked in, in the order of docs/configuration.md.
void describe_parts(ConfigurationTable& file, Configuration& all);
void check_parts(ReadTable& file, const Configuration& all);
Result<void> check_segments_of_parts(const Configuration& all,
                                     const std::vector<SegmentRequest>& segments);

// The part that would bring the table of this name ("init"), if it were linked in; its package is
// bedplate-NAME. Static text. nullptr: there is none, or it is linked in.
const char* missing_part(std::string_view table) noexcept;

}  // namespace bedplate
