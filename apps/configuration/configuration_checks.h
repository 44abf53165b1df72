// Rules between keys of a table, and between tables of a file. Rules for a single key are in its
// description (configuration_table.h). A key that breaks a rule becomes an error with its position;
// the checks then go on. Threads: any.
#pragma once

#include "apps/configuration/configuration.h"
#include "apps/configuration/read_table.h"

namespace bedplate {

// Each is called after its table is read. Both fill in defaults that depend on other keys.
void check_group(ReadTable& table, GroupSettings& group);
void check_process(ReadTable& table, ProcessSettings& process);

// Called once the whole file is read, with the names of shards and groups looked up. Fills in
// defaults that depend on other tables.
void check_across_tables(ReadTable& file, Configuration& all);

}  // namespace bedplate
