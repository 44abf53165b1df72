// tsrelay: a relay for transport streams, as a service of the runtime.
//
// Read on: a stream and the path of its packets (relay_stream_datapath.h), its outputs
// (output_group_datapath.h, recording_datapath.h, local_reader_datapath.h), and docs/tsrelay.md.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/services/service.h"
#include "apps/tsrelay/local_reader_datapath.h"
#include "apps/tsrelay/output_group_datapath.h"
#include "apps/tsrelay/rate_peak.h"
#include "apps/tsrelay/recording_datapath.h"
#include "apps/tsrelay/recording_thread.h"
#include "apps/tsrelay/relay_memberships.h"
#include "apps/tsrelay/relay_settings.h"
#include "platform/log_limit.h"

namespace bedplate {

class RelayService final : public Service {
 public:
  const char* name() const noexcept override { return "tsrelay"; }
  void describe(ConfigurationTable& table) override { bedplate::describe(table, settings_); }
  Result<void> plan(ServicePlan& plan) override;
  void preflight(std::vector<Error>* problems) override;
  Result<void> create(ServiceContext& context) override;
  void start(uint32_t shard) noexcept override;
  void tick() noexcept override;
  void methods(ControlMethods& methods) override;
  void request_drain() noexcept override;
  bool is_drained() const noexcept override;
  bool stopped() noexcept override { return recording_thread_.stop(); }

  RelaySettings& settings() noexcept { return settings_; }

 private:
  static constexpr uint32_t kSilenceLinesMax = 8;

  // A stream with all its parts.
  struct Instance {
    explicit Instance(const RelayStreamSettings& its) noexcept : settings(its) {}

    const RelayStreamSettings& settings;
    std::vector<std::string> output_names;  // instance_of() without the stream's name
    uint32_t shard = 0;
    std::string shard_name;
    EventLoop* loop = nullptr;  // the shard's
    relay::RelayStream stream;
    std::vector<DatagramSocket*> sockets;  // all of them
    std::vector<relay::Output> outputs;
    std::vector<std::unique_ptr<relay::OutputGroup>> groups;
    std::vector<std::unique_ptr<relay::Recording>> recordings;
    std::vector<std::unique_ptr<relay::LocalReader>> readers;
    relay::StreamCounters* counters = nullptr;
    relay::RatePeak rate;                 // of bytes
    std::vector<relay::LegArrival> said;  // each leg's reception, as last logged
    relay::Memberships memberships;
    LogLimit silence_log{kSilenceLinesMax};
    LoopCall look;
    LoopCall drain;
  };

  Result<void> plan_stream(ServicePlan& plan, uint32_t index);
  Result<void> create_stream(ServiceContext& context, uint32_t index);
  static void say_home(const Instance& instance) noexcept;
  Result<void> open_legs(ServiceContext& context, Instance& instance, uint32_t index);
  Result<void> open_group(ServiceContext& context, Instance& instance, uint32_t index,
                          uint32_t group);
  void plan_recording(ServicePlan& plan, uint32_t stream, uint32_t index);
  Result<void> create_recordings(ServiceContext& context, Instance& instance, uint32_t index);
  Result<void> start_recording_thread();
  bool rotates() const noexcept;
  Result<void> create_readers(ServiceContext& context, Instance& instance);
  void read(const Message& question) noexcept;
  static void say_silences(Instance& instance) noexcept;
  static void say(const Instance& instance, const relay::Memberships::One& its) noexcept;
  void look_at_network(Instance& instance, bool has_changed, uint64_t now_ns) noexcept;
  Instance* find_stream(ControlCall& call) noexcept;
  static void mute(Instance& instance, ControlCall& call) noexcept;
  void list_streams(ControlCall& call) noexcept;
  void list_outputs(ControlCall& call) noexcept;
  void mute_outputs(ControlCall& call) noexcept;

  RelaySettings settings_;
  std::vector<uint32_t> shards_;  // of each stream, from the last plan
  // For each stream: the files of each of its recordings, from the last plan.
  std::vector<std::vector<std::unique_ptr<relay::RecordingFiles>>> recording_files_;
  NetworkWatch network_;
  bool is_draining_ = false;
  std::vector<std::unique_ptr<Instance>> instances_;
  relay::RecordingThread recording_thread_;
};

}  // namespace bedplate
