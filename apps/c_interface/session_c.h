// Servers and sessions of the C interface (bedplate_session.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "apps/boot/placed_server.h"
#include "apps/c_interface/bedplate_session.h"
#include "transport/sockets/stream_server.h"
#include "transport/tls/tls_files.h"

namespace bedplate {

class CServer;
class CTls;

// The sessions of a server on one shard.
struct CServerPlace {
  const CServer& server;
  uint32_t shard;
  std::span<std::byte> memory;  // not taken yet

  // The next part of the memory, for a session that is being made.
  std::span<std::byte> take(uint64_t bytes) noexcept;
};

// A server as planned, and from create() on the server itself.
class CServer {
 public:
  // `listen`: the key of the addresses that are planned for all its shards; empty: they are planned
  // without it, for its only shard.
  CServer(const char* service, const char* name, std::vector<uint32_t> shards, uint32_t connections,
          const char* key, const char* listen, const bp_protocol& protocol)
      : service_(service),
        name_(name),
        shards_(std::move(shards)),
        connections_(connections),
        key_(key == nullptr ? "" : key),
        listen_(listen),
        protocol_(protocol) {}
  CServer(const CServer&) = delete;
  CServer& operator=(const CServer&) = delete;

  const std::string& name() const noexcept { return name_; }
  const std::vector<uint32_t>& shards() const noexcept { return shards_; }
  const std::string& listen() const noexcept { return listen_; }
  // On each of its shards.
  uint32_t connections_of_each() const;
  const bp_protocol& protocol() const noexcept { return protocol_; }

  void plan(ServicePlan& plan);
  // `tls`: nullptr: there is no TLS. Errors: it was created before, or is planned for other
  // addresses; those of the context, as for parts that are not planned.
  Result<void> create(ServiceContext& context, const char* listen, CTls* tls);
  PlacedServer& server() noexcept { return server_; }
  const PlacedServer& server() const noexcept { return server_; }

 private:
  PlacedServerPlan planned() const;
  uint64_t session_bytes() const noexcept;
  Result<StreamServerCounters*> counters(ServiceContext& context, uint32_t shard) const;
  StreamServerOptions options() const;

  std::string service_;
  std::string name_;
  std::vector<uint32_t> shards_;
  uint32_t connections_;  // of all shards together
  std::string key_;
  std::string listen_;
  bp_protocol protocol_;
  std::deque<CServerPlace> places_;
  PlacedServer server_;
};

// TLS of a service's servers: bp_table_tls.
class CTls {
 public:
  TlsFiles files;  // of the configuration; empty: there is no TLS

  // Before the listeners of the service. Each shard of `servers` has TLS for all of them there.
  void plan(ServicePlan& plan, const std::deque<CServer>& servers);
  // Those of a shard's servers; nullptr: there is no TLS.
  Result<StreamLayers*> layers(ServiceContext& context, uint32_t shard);

 private:
  std::map<uint32_t, StreamLayers*> layers_;
};

// A bp_session. The functions that a protocol calls are public, for C.
class CSession final : public StreamSession {
 public:
  explicit CSession(CServerPlace& place) noexcept;

  using StreamSession::answered;
  using StreamSession::arrived;
  using StreamSession::arrived_line;
  using StreamSession::end;
  using StreamSession::end_foreign;
  using StreamSession::fill;
  using StreamSession::has_left;
  using StreamSession::is_input_full;
  using StreamSession::later;
  using StreamSession::layer;
  using StreamSession::lend;
  using StreamSession::resume;
  using StreamSession::say;
  using StreamSession::say_number;
  using StreamSession::skip;
  using StreamSession::start_layer;
  using StreamSession::take;
  using StreamSession::want;

  void* state() const noexcept { return state_; }
  uint32_t shard() const noexcept { return place_.shard; }

 private:
  StreamStep work(uint64_t now_ns) noexcept override;
  void released(void* loan) noexcept override;
  void left() noexcept override;

  bp_session* as_c() noexcept { return reinterpret_cast<bp_session*>(this); }

  const CServerPlace& place_;
  const bp_protocol& protocol_;
  void* state_;
};

}  // namespace bedplate
