// Rules between keys of a table, and between tables of a file; one key alone is its description's
// business (configuration_table.h). A key that breaks a rule becomes an error with its position,
// and the others are looked at all the same. Threads: any.
#pragma once

#include "apps/configuration/configuration.h"
#include "apps/configuration/read_table.h"

namespace bedplate {

// Each is called once its table is read. The checks of groups and processes fill in defaults that
// depend on other keys.
void check_group(ReadTable& table, GroupSettings& group);
void check_process(ReadTable& table, ProcessSettings& process);

// Called once the whole file is read, with the names of shards and groups looked up. Fills in
// defaults that depend on other tables.
void check_across_tables(ReadTable& file, Configuration& all);

}  // namespace bedplate
