// TLS for services: the functions that libbedplate-tls.a, which uses OpenSSL, brings to the
// runtime.
//
// The runtime refers to the archive by a weak symbol. A program without the archive links nothing
// of OpenSSL; its services refuse a configuration with TLS keys (tls_keys.h). A program with TLS
// asks for bedplate_tls_part (-Wl,-u, in bedplate-tls.pc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "platform/result.h"
#include "transport/sockets/stream_layer.h"
#include "transport/tls/tls_counters.h"
#include "transport/tls/tls_files.h"

namespace bedplate {

// The layers of the connections of one loop.
struct TlsLayersOptions {
  StreamSockets* sockets = nullptr;  // the loop's
  TlsCounters* counters = nullptr;
  std::span<std::byte> memory;           // TlsStreams::bytes_for() the connections
  LayerUse local = LayerUse::kRequired;  // on listeners that only this machine can reach
  LayerUse elsewhere = LayerUse::kRequired;
  uint64_t handshake_ns_max = 0;  // TlsEnvironment
};

// The server's end of TLS. Threads: main thread for all functions; layers belong to their loop.
class TlsServer {
 public:
  virtual ~TlsServer() = default;

  // See TlsCredentials::load().
  virtual bool load(const TlsFiles& files, std::vector<Error>* problems) = 0;
  // For the connections of a loop. All that `options` names outlives the layers, and the layers are
  // destroyed before this object, after their loop has run. Requires: load() returned true.
  virtual std::unique_ptr<StreamLayers> make_layers(const TlsLayersOptions& options) = 0;
};

struct TlsPart {
  // `where` appears in the log: "[server]". OpenSSL's memory is charged to `heap_owner`
  // (TlsCredentials::heap_bytes).
  std::unique_ptr<TlsServer> (*make)(std::string where, std::string heap_owner);
};

// nullptr: the program was linked without it.
const TlsPart* tls_part() noexcept;

}  // namespace bedplate
