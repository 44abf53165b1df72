// Checks of a configuration's values: type and range of one value, and clashes between two.
// Threads: any (they allocate).
#pragma once

#include <string>

#include "apps/configuration/configuration_table.h"
#include "apps/configuration/toml_reader.h"

namespace bedplate {

// Reads `node` into `value`, which must be new; leaves value->position as it is. For a key that
// takes a list, `node` is one element; an element of kAddresses is read as text only. Returns the
// fault, to follow the key's name ("is 7"), or an empty text.
std::string read_value(const ConfigurationKey& key, const TomlNode& node,
                       ConfigurationKey::Value* value);

// Whether the kernel would refuse to listen at both. IPv6 sockets are opened for IPv6 only, so
// addresses of different families never clash.
bool addresses_clash(const SocketAddress& left, const SocketAddress& right);

}  // namespace bedplate
