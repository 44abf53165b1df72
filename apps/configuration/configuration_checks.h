// Rules between keys of a table, and between tables of a file. Rules for a single key are in its
// description (configuration_table.h). A key that breaks a rule becomes an error with its position;
// the checks then go on. Threads: any.
#pragma once

#include "apps/configuration/configuration.h"
#include "apps/configuration/read_table.h"

namespace bedplate {

// These check one table after it is read, and fill in defaults that depend on its other keys.
void check_group(ReadTable& table, GroupSettings& group);
void check_process(ReadTable& table, ProcessSettings& process);

// Called after the whole file is read, and the names of shards and groups are looked up. Fills in
// defaults that depend on other tables, and adds the spare members of processes to their groups.
void check_across_tables(ReadTable& file, Configuration& all);

}  // namespace bedplate
