#include "apps/blockd/limit_settings.h"

#include "apps/configuration/configuration_table.h"

namespace bedplate {

void describe(ConfigurationTable& table, LimitRates& rates) {
  for (const LimitKey& each : kLimitKeys) {
    uint64_t* const value = &(rates.*each.value);
    ConfigurationKey& key = each.is_size ? table.size(each.name, value, each.min, each.max)
                                         : table.integer(each.name, value, each.min, each.max);
    if (each.is_limit) key.otherwise("no limit");
    key.help(each.help);
  }
}

}  // namespace bedplate
