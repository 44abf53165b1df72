#include "apps/services/limit_settings.h"

#include <algorithm>

#include "apps/configuration/configuration_table.h"
#include "apps/configuration/read_table.h"

namespace bedplate {
namespace {

// Checks that a listener with a limit listens. The address of an earlier table was refused, and is
// empty here.
void check_listeners(ReadTable& read, const std::vector<ListenerSettings>& all,
                     const std::vector<SocketAddress>& listen,
                     const std::vector<SocketAddress>& image_listen) {
  for (const char* key : {"listen", "image_listen", "listener.address"}) {
    if (read.was_refused(key)) return;
  }
  const TomlNode* listeners = tables_of(read, "listener", all.size());
  for (size_t i = 0; listeners != nullptr && i < all.size(); ++i) {
    const std::string& text = all[i].address;
    const auto is_it = [&text](const SocketAddress& address) { return address.text() == text; };
    if (text.empty() || std::any_of(listen.begin(), listen.end(), is_it) ||
        std::any_of(image_listen.begin(), image_listen.end(), is_it)) {
      continue;
    }
    read.refuse_at(find_child(listeners->children[i], "address")->position,
                   "\"address\" is \"" + text + "\", which is not in \"listen\"",
                   "expected an address of \"listen\" or \"image_listen\", as it is there");
  }
}

}  // namespace

void describe(ConfigurationTable& table, LimitRates& rates) {
  for (const LimitKey& each : kLimitKeys) {
    uint64_t* const value = &(rates.*each.value);
    ConfigurationKey& key = each.is_size ? table.size(each.name, value, each.min, each.max)
                                         : table.integer(each.name, value, each.min, each.max);
    if (each.is_limit) key.otherwise("no limit");
    key.help(each.help);
  }
}

void describe(ConfigurationTable& table, ListenerSettings& settings) {
  table.text("address", &settings.address, 1, 255)
      .required()
      .unique()
      .help("An address of `listen` or `image_listen`, whose clients share these limits.");
  table.table("limits", &settings.limits);
}

void describe_listeners(ConfigurationTable& table, std::vector<ListenerSettings>* listeners,
                        const std::vector<SocketAddress>& listen,
                        const std::vector<SocketAddress>& image_listen) {
  table.tables("listener", listeners, 0, 16);
  table.check([listeners, &listen, &image_listen](ReadTable& read) {
    check_listeners(read, *listeners, listen, image_listen);
  });
}

LimitRates limits_of(const std::vector<ListenerSettings>& listeners, std::string_view address) {
  for (const ListenerSettings& each : listeners) {
    if (each.address == address) return each.limits;
  }
  return {};
}

}  // namespace bedplate
