// What the keys of a table, and the tables of a file, must be to one another.
#pragma once

#include "apps/boot/configuration.h"
#include "apps/boot/configuration_reader.h"

namespace bedplate {

// Each is called once its table is read; those of groups and processes complete what has a default
// that depends on other keys.
void check_group(ReadTable& table, GroupSettings& group);
void check_process(ReadTable& table, ProcessSettings& process);
void check_crash(ReadTable& table, const CrashSettings& crash);
void check_verbs(ReadTable& table, VerbsSettings& verbs);

// Called once the whole file is read, with the names of shards and groups looked up; completes what
// has a default that depends on other tables.
void check_across_tables(ReadTable& file, Configuration& all);

}  // namespace bedplate
