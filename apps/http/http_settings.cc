#include "apps/http/http_settings.h"

#include "apps/configuration/configuration_table.h"
#include "apps/services/tls_keys.h"

namespace bedplate {
namespace {

constexpr uint64_t kListenersMax = 8;
constexpr uint64_t kConnectionsMax = 1024;
constexpr uint16_t kPort = 9464;

}  // namespace

HttpSettings::HttpSettings() {
  SocketAddress address;
  address.host = "127.0.0.1";
  address.port = kPort;
  listen.push_back(address);
}

void describe(ConfigurationTable& table, HttpSettings& settings) {
  table.addresses("listen", &settings.listen, 1, kListenersMax)
      .otherwise("[\"tcp:127.0.0.1:9464\"]")
      .unique()
      .help("The addresses at which HTTP is served, or HTTPS if there is a certificate "
            "([http.md](http.md)). An address that other machines can reach needs a token or "
            "client certificates.");
  table.addresses("image_listen", &settings.image_listen, 1, kListenersMax)
      .otherwise("those of listen")
      .unique()
      .help("The addresses to use instead as the first process of an image.");
  table.path("token_file", &settings.token_file, 1, 255)
      .otherwise("no token is required")
      .help("A file with the token, of 16 to 256 bytes, that each request must carry: "
            "`Authorization: Bearer TOKEN`. It is read at boot, before root is given up; it is "
            "readable by its owner alone, or belongs to root with mode 0640.");
  describe_tls_keys(table, &settings.tls,
                    {.page = "http.md#tls",
                     .has_shared_keys = false,
                     .or_else = " or, if there is a `token_file`, the token"});
  table.text("host", &settings.host, 1, 253)
      .otherwise("no name")
      .help("A host name that requests may use, besides addresses and `localhost`. A request "
            "for another name is refused: a foreign web page may have made it.");
  table.integer("max_connections", &settings.max_connections, 1, kConnectionsMax)
      .help("The most open connections. Their memory is planned; a further one replaces an idle "
            "one, or is refused if all are busy.");
}

}  // namespace bedplate
