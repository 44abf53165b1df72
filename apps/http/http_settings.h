// [http] of the configuration.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/sockets/socket_address.h"
#include "transport/tls/tls_files.h"

namespace bedplate {

struct HttpSettings {
  // Listens at tcp:127.0.0.1:9464 by default.
  HttpSettings();

  std::vector<SocketAddress> listen;
  std::vector<SocketAddress> image_listen;  // replaces the listen addresses in the first process of
                                            // an image; may be empty
  std::string token_file;
  TlsFiles tls;
  std::string host;
  uint32_t max_connections = 8;
};

class ConfigurationTable;
void describe(ConfigurationTable& table, HttpSettings& settings);

}  // namespace bedplate
