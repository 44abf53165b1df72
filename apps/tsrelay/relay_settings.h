// [tsrelay] of the configuration, with the checks of settings that depend on each other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/configuration/configuration_table.h"
#include "apps/tsrelay/relay_stream_datapath.h"
#include "platform/units.h"
#include "transport/sockets/datagram_address.h"

namespace bedplate {

struct RelayLegSettings {
  std::string address = {};
  std::string source = {};
  std::string interface = {};
  std::string network = {};
  bool fec = false;
};

struct RelayOutputSettings {
  std::string name = {};
  std::string to = {};
  std::string interface = {};
  std::string network = {};
  uint8_t ttl = 1;
  bool broadcast = false;
  bool plain = false;
  bool adds_rtp = false;
  bool fec = false;
};

struct RelayRecordingSettings {
  std::string path = {};
  uint32_t files = 1;
  uint64_t rotate_bytes = 0;
  uint32_t rotate_s = 0;
};

struct RelayFecSettings {
  uint32_t columns = 10;
  uint32_t rows = 10;
  bool row_packets = true;
};

struct RelayStreamSettings {
  std::string name = {};
  std::optional<uint32_t> shard = {};  // nothing: one of the relay's shards
  uint64_t rate_bytes = kMiB;          // planned, in a second
  relay::StreamFormat format = relay::StreamFormat::kAuto;
  uint32_t window_ms = 50;
  uint32_t window_packets = 512;
  uint32_t queue_packets = 1024;
  uint32_t sender_timeout_ms = 500;
  uint32_t pace_ms = 0;
  uint32_t buffer_bytes = 2048;
  uint32_t receive_queue_bytes = 0;
  uint32_t send_queue_bytes = 0;
  uint32_t readers = 0;
  std::vector<RelayLegSettings> legs;
  std::vector<RelayOutputSettings> outputs;
  std::vector<RelayRecordingSettings> recordings;
  RelayFecSettings fec;
  bool has_fec = false;

  // The planned load: the bytes that it receives in a second, and hands to outputs, recordings and
  // readers.
  uint64_t load_bytes() const noexcept;
  bool receives_fec() const noexcept;
  bool adds_rtp() const noexcept;
  // The size of each buffer of a leg; it includes the headroom if RTP is added.
  uint32_t leg_buffer_bytes() const noexcept;
  // The number of files of all its recordings.
  uint64_t recording_file_count() const noexcept;
  // The most packets that an output may lag behind: queue_packets, rounded up to a power of two.
  uint32_t ring_slots() const noexcept;
  // The number of buffers of each leg's socket: enough for all components that hold packets at the
  // same time.
  uint32_t leg_buffers() const noexcept;
  // The number of buffers of each socket for FEC.
  uint32_t fec_buffers() const noexcept;
  // The number of the stream's own buffers, for generated FEC packets and recovered packets. It is
  // 0 without FEC.
  uint32_t own_buffers() const noexcept;
  // The most packets at once: one for each buffer, of the stream and of all its sockets.
  uint32_t packet_count() const noexcept;
};

struct RelaySettings {
  std::vector<uint32_t> shards;  // for streams that name none; empty: all
  std::vector<RelayStreamSettings> streams;
};

void describe(ConfigurationTable& table, RelaySettings& settings);

// A group of outputs that share a socket. `outputs`: their indices among the stream's outputs.
struct RelayGroup {
  std::string interface = {};
  std::string network = {};
  uint8_t ttl = 1;
  int family = 0;
  bool broadcast = false;
  std::vector<uint32_t> outputs;
};

// Groups outputs whose sockets would have equal settings. Requires: check() has passed.
std::vector<RelayGroup> groups_of(const RelayStreamSettings& settings);
// The name of an output's counters: STREAM/NAME.
std::string instance_of(const RelayStreamSettings& stream, uint32_t output);
// The error for a setting of a stream: `what` is wrong because of `answer`.
Error refused(const RelayStreamSettings& stream, const std::string& what, const char* answer,
              const char* cure);
// The error for an output to a broadcast address without broadcast = true.
Error refused_broadcast(const RelayStreamSettings& stream, const RelayOutputSettings& output);
// Checks settings that depend on each other. Errors (kConfiguration): the first wrong setting.
Result<void> check(const RelaySettings& settings);

}  // namespace bedplate
