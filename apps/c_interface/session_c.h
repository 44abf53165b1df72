// Servers and sessions of the C interface (bedplate_session.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>

#include "apps/c_interface/bedplate_session.h"
#include "transport/sockets/stream_server.h"
#include "transport/tls/tls_files.h"

namespace bedplate {

class ServiceContext;
class ServicePlan;

// A server as planned, and from create() on the server itself.
class CServer {
 public:
  CServer(std::string service, std::string name, uint32_t shard, uint32_t connections,
          const char* key, const bp_protocol& protocol)
      : service_(std::move(service)),
        name_(std::move(name)),
        shard_(shard),
        connections_(connections),
        key_(key == nullptr ? "" : key),
        protocol_(protocol) {}
  CServer(const CServer&) = delete;
  CServer& operator=(const CServer&) = delete;

  const std::string& name() const noexcept { return name_; }
  uint32_t shard() const noexcept { return shard_; }
  uint32_t connections() const noexcept { return connections_; }
  const bp_protocol& protocol() const noexcept { return protocol_; }
  bool is_created() const noexcept { return !memory_.empty(); }

  void plan(ServicePlan& plan) const;
  // `layers`: those of its shard; nullptr: there is no TLS. Errors: it was created before; those of
  // the context, as for parts that are not planned.
  Result<void> create(ServiceContext& context, const char* listen, StreamLayers* layers);
  StreamServer& server() noexcept { return server_; }
  const StreamServer& server() const noexcept { return server_; }

  // The next part of its memory, for a session that is being made.
  std::span<std::byte> take(uint64_t bytes) noexcept;

 private:
  uint64_t session_bytes() const noexcept;

  std::string service_;
  std::string name_;
  uint32_t shard_;
  uint32_t connections_;
  std::string key_;
  bp_protocol protocol_;
  std::span<std::byte> memory_;
  uint64_t taken_bytes_ = 0;
  StreamServer server_;
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
  explicit CSession(CServer& server) noexcept;

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

 private:
  StreamStep work(uint64_t now_ns) noexcept override;
  void released(void* loan) noexcept override;
  void left() noexcept override;

  bp_session* as_c() noexcept { return reinterpret_cast<bp_session*>(this); }

  const bp_protocol& protocol_;
  void* state_;
};

}  // namespace bedplate
