// Values of a configuration: whether one is of its key's type and range, and which do not go
// together.
#pragma once

#include <string>

#include "apps/configuration/configuration_table.h"
#include "apps/configuration/toml_reader.h"

namespace bedplate {

// Reads `node` into `value`, whose position stays. For a key that takes a list, `node` is one
// element; addresses are read as texts.
// Returns what is wrong, to follow the key's name ("is 7"), or nothing.
std::string read_value(const ConfigurationKey& key, const TomlNode& node,
                       ConfigurationKey::Value* value);

// Whether the kernel would refuse to listen at both. IPv6 sockets are opened for IPv6 only, so the
// two families do not meet.
bool addresses_clash(const SocketAddress& left, const SocketAddress& right);

}  // namespace bedplate
