#include "apps/tsrelay/relay_service.h"

#include <algorithm>
#include <cerrno>
#include <span>
#include <string_view>

#include <sys/socket.h>

#include "apps/boot/service_context.h"
#include "apps/services/home_shards.h"
#include "apps/services/service_plan.h"
#include "apps/tsrelay/stream_shards.h"
#include "platform/log.h"
#include "platform/random_bytes.h"
#include "transport/udp/udp_socket.h"

namespace bedplate {
namespace {

using namespace relay;

constexpr uint32_t kBudget = 64;

// The name of a stream's part. The stream's own name may be invalid in the file system or the pool.
std::string name_of(uint32_t stream, const char* what, uint32_t index) {
  return "s" + std::to_string(stream) + "_" + what + std::to_string(index);
}

OwnerName own_buffers_of(uint32_t stream) {
  return OwnerName("fec-" + std::to_string(stream), "tsrelay");
}

BufferPool::Options pool_options(const RelayStreamSettings& stream) {
  BufferPool::Options options;
  options.buffer_bytes = stream.buffer_bytes;
  options.buffer_count = stream.own_buffers();
  return options;
}

std::string what_of(const RelayStreamSettings& stream, const char* what, uint32_t index) {
  return std::string(what) + " " + std::to_string(index) + " of the stream " + stream.name;
}

// `beside`: added to the leg's port. For a group the socket binds the group's address and shares
// its port: two interfaces can bring the same group, and other streams other groups of the port.
DatagramOpening opening_of_leg(const RelayStreamSettings& stream, uint32_t index, uint16_t beside) {
  const RelayLegSettings& leg = stream.legs[index];
  DatagramOpening opening;
  opening.what = (beside == 0 ? "" : "FEC of ") + what_of(stream, "leg", index);
  DatagramOptions& options = opening.options;
  if (stream.adds_rtp() && beside == 0) options.headroom_bytes = kRtpHeadroomBytes;
  options.local = parse_datagram_address(leg.address).value();
  options.local.port = static_cast<uint16_t>(options.local.port + beside);
  options.receive_queue_bytes = stream.receive_queue_bytes;
  options.shares_port = options.local.ip.is_multicast();
  if (!options.shares_port) return opening;
  const IpAddress source = leg.source.empty() ? IpAddress{} : parse_ip_address(leg.source).value();
  opening.memberships = {{options.local.ip, source, leg.interface}};
  return opening;
}

DatagramOpening opening_of_group(const RelayStreamSettings& stream, const RelayGroup& group) {
  DatagramOpening opening;
  opening.what = what_of(stream, "output", group.outputs.front());
  opening.options.local.ip.family = group.family;
  opening.options.send_queue_bytes = stream.send_queue_bytes;
  opening.options.multicast_hops = group.ttl;
  opening.options.sends_broadcast = group.broadcast;
  opening.multicast_interface = group.interface;
  return opening;
}

Result<RtpAdder::Beginning> by_lot() {
  RtpAdder::Beginning beginning;
  for (const std::span<std::byte> part :
       {std::as_writable_bytes(std::span(&beginning.ssrc, 1)),
        std::as_writable_bytes(std::span(&beginning.sequence, 1)),
        std::as_writable_bytes(std::span(&beginning.timestamp, 1))}) {
    BP_TRY(draw_bytes(part));
  }
  return beginning;
}

// The heap that a stream takes in create(), rounded up generously.
uint64_t heap_bytes(const RelayStreamSettings& stream) {
  return sizeof(TsInspector) + sizeof(FecReceiver) + stream.packet_count() * (sizeof(Packet) + 16) +
         stream.ring_slots() * sizeof(uint32_t) +
         LegMerge::slot_count(stream.window_packets) * sizeof(LegMerge::Slot) +
         stream.outputs.size() * (sizeof(Output) + 2 * sizeof(std::string)) +
         groups_of(stream).size() * (sizeof(OutputGroup) + stream.outputs.size() * 16) * 2 +
         stream.recordings.size() * sizeof(Recording) + stream.recording_file_count() * 64 +
         stream.readers * sizeof(LocalReader) +
         (3 * stream.legs.size() + 2 * stream.outputs.size()) * 256 + 64 * kKiB;
}

}  // namespace

// ---- Planning -----------------------------------------------------------------------------------

Result<void> RelayService::plan(ServicePlan& plan) {
  BP_TRY(check(settings_));
  BP_TRY_ASSIGN(shards_, choose_stream_shards(settings_, plan.configuration(), *this));
  std::vector<CarvePlan> carves;
  Placement placement;  // of the carves: near the first stream that has one
  TraceDescription traced = {kPacketKinds, kPacketStations};
  for (const auto& stream : settings_.streams) traced.subjects.push_back(stream.name);
  plan.trace(std::move(traced));
  recording_files_.clear();
  recording_files_.resize(settings_.streams.size());
  plan.descriptors(1, nullptr);  // the bell of the recordings' thread
  if (rotates()) plan.threads(1);
  for (uint32_t i = 0; i < settings_.streams.size(); ++i) {
    BP_TRY(plan_stream(plan, i));
    const RelayStreamSettings& stream = settings_.streams[i];
    if (stream.own_buffers() == 0) continue;
    const uint64_t bytes = BufferPool::bytes_for(pool_options(stream));
    if (carves.empty()) placement = plan.placement(shards_[i]);
    carves.push_back({own_buffers_of(i), align_up(bytes, kCacheLineBytes)});
  }
  uint32_t reader_count = 0;
  for (const RelayStreamSettings& stream : settings_.streams) reader_count += stream.readers;
  // All readers share one table of loans; it has capacity for all of them at once.
  const uint32_t loan_count = reader_count * LocalReader::kLoansMax;
  for (const GroupSettings& group : plan.configuration().groups) {
    if (loan_count <= group.shape.loan_count) continue;
    return configuration_error_while("checking readers in [tsrelay]")
        .set_answer("%u readers have up to %u loans, and the group %s has fewer", reader_count,
                    loan_count, group.name.c_str())
        .set_cure("set loans = %u or more in its [[group]], or lower readers", loan_count);
  }
  if (reader_count > 0) plan.message("read");
  plan.descriptors(NetworkWatch::kDescriptors, nullptr);
  if (!carves.empty()) plan.segment("tsrelay", std::move(carves), placement);
  return {};
}

Result<void> RelayService::plan_stream(ServicePlan& plan, uint32_t index) {
  const RelayStreamSettings& stream = settings_.streams[index];
  const uint32_t shard = shards_[index];
  const auto socket = [&](const std::string& name, uint32_t buffers, uint32_t bytes,
                          const std::string& network, DatagramOpening opening) {
    plan.datagram_socket(shard, name.c_str(), {buffers, bytes}, network, std::move(opening));
  };
  for (uint32_t i = 0; i < stream.legs.size(); ++i) {
    const std::string& network = stream.legs[i].network;
    socket(name_of(index, "leg", i), stream.leg_buffers(), stream.leg_buffer_bytes(), network,
           opening_of_leg(stream, i, 0));
    plan.counters<LegCounters>("legs", stream.name + "/" + std::to_string(i));
    if (!stream.legs[i].fec) continue;
    socket(name_of(index, "column", i), stream.fec_buffers(), stream.buffer_bytes, network,
           opening_of_leg(stream, i, kFecColumnPort));
    socket(name_of(index, "row", i), stream.fec_buffers(), stream.buffer_bytes, network,
           opening_of_leg(stream, i, kFecRowPort));
  }
  const std::vector<RelayGroup> groups = groups_of(stream);
  for (uint32_t i = 0; i < groups.size(); ++i) {
    // Outputs receive nothing: one buffer of the smallest size.
    const std::string& network = groups[i].network;
    const DatagramOpening opening = opening_of_group(stream, groups[i]);
    socket(name_of(index, "out", i), 1, kCacheLineBytes, network, opening);
    if (groups[i].outputs.size() > 1) {
      socket(name_of(index, "aside", i), 1, kCacheLineBytes, network, opening);
    }
  }
  CounterSet counted = {.owner = name(),
                        .name = "streams",
                        .instance = stream.name,
                        .bytes = sizeof(StreamCounters),
                        .counters = described_counters<StreamCounters>()};
  const std::vector<ShardSettings>& all = plan.configuration().shards;
  if (all.size() > 1) counted.labels.push_back({kHomeLabel, all[shard].name});
  plan.counters(std::move(counted));
  for (uint32_t i = 0; i < stream.outputs.size(); ++i) {
    plan.counters<OutputCounters>("outputs", instance_of(stream, i), {stream.name});
  }
  for (uint32_t i = 0; i < stream.recordings.size(); ++i) {
    plan.counters<RecordingCounters>("recordings", stream.name + "/" + std::to_string(i),
                                     {stream.name});
    plan_recording(plan, index, i);
  }
  if (stream.readers > 0) {
    plan.counters<ReaderCounters>("readers", stream.name);
    plan.messages(shard);
  }
  plan.sources(shard, 1);
  plan.heap(heap_bytes(stream));
  return {};
}

void RelayService::plan_recording(ServicePlan& plan, uint32_t stream, uint32_t index) {
  const RelayStreamSettings& settings = settings_.streams[stream];
  const RelayRecordingSettings& recording = settings.recordings[index];
  recording_files_[stream].push_back(
      std::make_unique<RecordingFiles>(recording.path, recording.files));
  RecordingFiles& files = *recording_files_[stream].back();
  for (uint32_t i = 0; i < recording.files; ++i) {
    FilePlan its;
    its.name = name_of(stream, "r", index) + "_" + std::to_string(i);
    its.path = files.name(i);
    its.key = "path of recording " + settings.name + "/" + std::to_string(index);
    its.is_writable = its.create = true;
    its.is_renamed = recording.files > 1;
    its.bytes_max = recording.rotate_bytes;
    its.operation_count_max = Recording::kWritesMax;
    its.keeper = &files.keeper(i);
    plan.file(shards_[stream], its);
  }
}

bool RelayService::rotates() const noexcept {
  return std::any_of(
      settings_.streams.begin(), settings_.streams.end(), [](const RelayStreamSettings& stream) {
        return std::any_of(stream.recordings.begin(), stream.recordings.end(),
                           [](const auto& recording) { return recording.files > 1; });
      });
}

// Finds broadcast addresses, which depend on this machine's interfaces, so `plan` on another
// machine cannot know them. connect() to a broadcast address answers EACCES.
void RelayService::preflight(std::vector<Error>* problems) {
  for (const RelayStreamSettings& stream : settings_.streams) {
    for (const RelayOutputSettings& output : stream.outputs) {
      if (!output.network.empty() || output.broadcast) continue;
      auto to = parse_datagram_address(output.to);
      if (!to.ok() || to.value().ip.family != AF_INET) continue;
      const Fd probe(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      sockaddr_in6 name;
      const socklen_t bytes = to_kernel(to.value(), &name);
      if (!probe.is_open() ||
          connect(probe.number(), reinterpret_cast<sockaddr*>(&name), bytes) == 0 ||
          errno != EACCES) {
        continue;
      }
      problems->push_back(refused_broadcast(stream, output));
    }
  }
}

// ---- Creation -----------------------------------------------------------------------------------

// If the network cannot be watched, all lookups are repeated twice a second.
Result<void> RelayService::create(ServiceContext& context) {
  BP_TRY(recording_thread_.create());
  if (auto watched = network_.create(); !watched.ok()) log_error(watched.error());
  for (uint32_t i = 0; i < settings_.streams.size(); ++i) BP_TRY(create_stream(context, i));
  return rotates() ? start_recording_thread() : Result<void>{};
}

Result<void> RelayService::start_recording_thread() {
  std::vector<Recording*> all;
  for (const auto& instance : instances_) {
    for (const auto& recording : instance->recordings) all.push_back(recording.get());
  }
  return recording_thread_.start(std::move(all));
}

Result<void> RelayService::create_stream(ServiceContext& context, uint32_t index) {
  const RelayStreamSettings& settings = settings_.streams[index];
  instances_.push_back(std::make_unique<Instance>(settings));
  Instance& instance = *instances_.back();
  instance.shard = shards_[index];
  instance.shard_name = context.configuration().shards[instance.shard].name;
  instance.loop = &context.loop(instance.shard);
  if (context.configuration().shards.size() > 1) say_home(instance);
  BP_TRY_ASSIGN(instance.counters, context.counters<StreamCounters>("streams", settings.name));

  StreamOptions options;
  options.format = settings.format;
  options.window_ns = settings.window_ms * kNsPerMs;
  options.window_packets = settings.window_packets;
  options.silence_ns = settings.sender_timeout_ms * kNsPerMs;
  options.pace_delay_ns = settings.pace_ms * kNsPerMs;
  if (settings.has_fec) {
    options.fec_columns = settings.fec.columns;
    options.fec_rows = settings.fec.rows;
    options.has_fec_rows = settings.fec.row_packets;
  }
  options.adds_rtp = settings.adds_rtp();
  BP_TRY_ASSIGN(options.rtp_beginning, by_lot());
  options.packet_count = settings.packet_count();
  options.ring_slots = settings.ring_slots();
  options.tap_count = static_cast<uint32_t>(2 * settings.outputs.size() +
                                            settings.recordings.size() + settings.readers);
  BP_TRY_ASSIGN(const auto trace, context.trace(instance.shard));
  options.trace = {trace, static_cast<uint16_t>(index)};
  options.buffer_bytes = settings.buffer_bytes;
  options.counters = instance.counters;
  options.loop = instance.loop;
  if (settings.own_buffers() > 0) {
    BP_TRY_ASSIGN(const auto memory, context.carve(own_buffers_of(index)));
    options.pool = BufferPool::create(memory, pool_options(settings));
  }
  const auto socket = [&](const char* what, uint32_t leg) {
    return context.datagram_socket(name_of(index, what, leg));
  };
  for (uint32_t i = 0; i < settings.legs.size(); ++i) {
    LegOptions leg;
    BP_TRY_ASSIGN(leg.counters,
                  context.counters<LegCounters>("legs", settings.name + "/" + std::to_string(i)));
    BP_TRY_ASSIGN(leg.media, socket("leg", i));
    if (settings.legs[i].fec) {
      BP_TRY_ASSIGN(leg.column, socket("column", i));
      BP_TRY_ASSIGN(leg.row, socket("row", i));
    }
    options.legs.push_back(leg);
  }
  instance.stream.create(options);
  instance.said.resize(settings.legs.size(), LegArrival::kPackets);
  BP_TRY(open_legs(context, instance, index));

  instance.outputs.resize(settings.outputs.size());
  instance.output_names.resize(settings.outputs.size());
  const uint32_t group_count = static_cast<uint32_t>(groups_of(settings).size());
  for (uint32_t i = 0; i < group_count; ++i) BP_TRY(open_group(context, instance, index, i));
  BP_TRY(create_recordings(context, instance, index));
  BP_TRY(create_readers(context, instance));

  instance.look.context = instance.drain.context = &instance;
  instance.look.function = [](void* self) noexcept {
    auto& its = *static_cast<Instance*>(self);
    its.stream.look_for_missing(its.loop->now_ns());
    its.counters->rate_peak_bytes.set(
        its.rate.look(its.counters->bytes.read(), its.loop->now_ns()));
    for (const auto& recording : its.recordings) recording->tell();
    const auto is_there = [](const auto& reader) { return reader->is_there(); };
    its.counters->readers.set(
        static_cast<uint64_t>(std::count_if(its.readers.begin(), its.readers.end(), is_there)));
  };
  instance.drain.function = [](void* self) noexcept {
    static_cast<Instance*>(self)->stream.drain();
  };
  return context.add_source(instance.shard, instance.stream, kBudget);
}

void RelayService::say_home(const Instance& instance) noexcept {
  const RelayStreamSettings& settings = instance.settings;
  BP_LOG_INFO("tsrelay: %s: on the shard %s, %s; its planned load is %s/s", settings.name.c_str(),
              instance.shard_name.c_str(), settings.shard ? "which it names" : "by load",
              format_rounded_bytes(settings.load_bytes()).text);
}

Result<void> RelayService::open_legs(ServiceContext& context, Instance& instance, uint32_t index) {
  const RelayStreamSettings& settings = instance.settings;
  for (uint32_t i = 0; i < settings.legs.size(); ++i) {
    const auto open = [&](const char* what, DatagramSocket* socket, const DatagramOwner& owner,
                          uint16_t beside) -> Result<void> {
      instance.sockets.push_back(socket);
      BP_TRY(context.open_datagram_socket(name_of(index, what, i), owner));
      if (!settings.legs[i].network.empty()) return {};
      for (const DatagramMembership& each : opening_of_leg(settings, i, beside).memberships) {
        instance.memberships.add_group(i, *socket, each.group, each.source, each.interface,
                                       network_);
      }
      return {};
    };
    const LegOptions& sockets = instance.stream.leg(i);
    BP_TRY(open("leg", sockets.media, instance.stream.media_owner(i), 0));
    if (!settings.legs[i].fec) continue;
    BP_TRY(open("column", sockets.column, instance.stream.fec_owner(i, false), kFecColumnPort));
    BP_TRY(open("row", sockets.row, instance.stream.fec_owner(i, true), kFecRowPort));
  }
  return {};
}

Result<void> RelayService::open_group(ServiceContext& context, Instance& instance, uint32_t index,
                                      uint32_t group) {
  const RelayStreamSettings& settings = instance.settings;
  const RelayGroup its = groups_of(settings)[group];
  const auto count = static_cast<uint32_t>(its.outputs.size());
  const auto make = [&](const char* what, OutputGroup* aside) -> Result<OutputGroup*> {
    BP_TRY_ASSIGN(const auto socket, context.datagram_socket(name_of(index, what, group)));
    instance.groups.push_back(std::make_unique<OutputGroup>());
    OutputGroup& made = *instance.groups.back();
    made.create(instance.stream.ring(), *socket, aside, count);
    BP_TRY(context.open_datagram_socket(name_of(index, what, group), made.owner()));
    instance.sockets.push_back(&made.socket());
    if (!its.interface.empty() && its.network.empty()) {
      instance.memberships.add_sender(made.socket(), its.interface, network_);
    }
    return &made;
  };
  OutputGroup* aside = nullptr;
  if (count > 1) {
    BP_TRY_ASSIGN(aside, make("aside", nullptr));
  }
  BP_TRY_ASSIGN(const auto main, make("out", aside));
  for (const uint32_t i : its.outputs) {
    Output& output = instance.outputs[i];
    BP_TRY_ASSIGN(output.counters,
                  context.counters<OutputCounters>("outputs", instance_of(settings, i)));
    instance.output_names[i] = instance_of(settings, i).substr(settings.name.size() + 1);
    output.to = parse_datagram_address(settings.outputs[i].to).value();
    output.is_plain = settings.outputs[i].plain;
    output.adds_rtp = settings.outputs[i].adds_rtp;
    output.has_fec = settings.outputs[i].fec;
    main->add(output);
  }
  return {};
}

Result<void> RelayService::create_recordings(ServiceContext& context, Instance& instance,
                                             uint32_t index) {
  const RelayStreamSettings& settings = instance.settings;
  for (uint32_t i = 0; i < settings.recordings.size(); ++i) {
    const RelayRecordingSettings& its = settings.recordings[i];
    std::vector<File*> files;
    for (uint32_t number = 0; number < its.files; ++number) {
      BP_TRY_ASSIGN(const auto file,
                    context.file(name_of(index, "r", i) + "_" + std::to_string(number)));
      files.push_back(file);
    }
    BP_TRY_ASSIGN(const auto counters, context.counters<RecordingCounters>(
                                           "recordings", settings.name + "/" + std::to_string(i)));
    instance.recordings.push_back(std::make_unique<Recording>());
    BP_TRY(instance.recordings.back()->create(
        instance.stream.ring(), files,
        {its.rotate_bytes, its.rotate_s * kNsPerSecond, recording_files_[index][i].get(), counters,
         &recording_thread_.bell(), &instance.loop->doorbell()}));
  }
  return {};
}

Result<void> RelayService::create_readers(ServiceContext& context, Instance& instance) {
  const RelayStreamSettings& settings = instance.settings;
  if (settings.readers == 0) return {};
  BP_TRY_ASSIGN(const auto messenger, context.messenger(instance.shard));
  BP_TRY_ASSIGN(const auto number, context.message("read"));
  BP_TRY_ASSIGN(const auto counters, context.counters<ReaderCounters>("readers", settings.name));
  for (uint32_t i = 0; i < settings.readers; ++i) {
    instance.readers.push_back(std::make_unique<LocalReader>());
    instance.readers.back()->create(instance.stream.ring(), messenger, *counters);
  }
  messenger->set_handler(number, {[](void* self, const Message& question) noexcept {
                                    static_cast<RelayService*>(self)->read(question);
                                  },
                                  this});
  return {};
}

// ---- Running ------------------------------------------------------------------------------------

void RelayService::start(uint32_t shard) noexcept {
  recording_thread_.begin();
  for (const auto& instance : instances_) {
    if (instance->shard != shard) continue;
    for (DatagramSocket* socket : instance->sockets) {
      const int outcome = socket->start();
      BP_ASSERT(outcome == 0 && "its watch was planned");
    }
  }
}

// Threads: the shard that was asked. It serves only its own streams.
void RelayService::read(const Message& question) noexcept {
  const std::string_view text(reinterpret_cast<const char*>(question.payload.data()),
                              question.payload.size());
  if (question.loan.is_there()) question.loan.provider->release(question.loan);
  if (text.empty()) return;  // without a message number it has no answer
  const auto id = static_cast<AmId>(text[0]);
  for (const auto& instance : instances_) {
    if (instance->settings.name != text.substr(1) || !instance->loop->is_own_thread()) continue;
    LocalReader* chosen = nullptr;
    for (const auto& reader : instance->readers) {
      if (reader->is_of(question.from)) chosen = reader.get();
      if (chosen == nullptr && reader->is_free()) chosen = reader.get();
    }
    if (chosen != nullptr) return chosen->begin(question.from, id);
    instance->counters->questions_dropped.add(1);
  }
  (void)question.from.am_send(id, {});
}

// Logs each change of a leg's reception: no call fails if a group gets no packets, or if a leg
// drops all packets.
void RelayService::say_silences(Instance& instance) noexcept {
  const RelayStreamSettings& settings = instance.settings;
  if (instance.stream.is_drained()) return;
  for (uint32_t i = 0; i < settings.legs.size(); ++i) {
    const uint64_t number = instance.stream.leg(i).counters->comes.read();
    const auto comes = static_cast<LegArrival>(number);
    if (comes == instance.said[i]) continue;
    if (!instance.silence_log.try_pass(settings.name.c_str())) continue;
    instance.said[i] = comes;
    const char* const at = settings.legs[i].address.c_str();
    if (comes == LegArrival::kPackets) {
      BP_LOG_INFO("tsrelay: %s: packets arrive at %s again", settings.name.c_str(), at);
    } else {
      const LegArrivalText& text = kLegArrivals[number];
      BP_LOG_WARNING("tsrelay: %s: %s at %s for %u ms; %s", settings.name.c_str(), text.says, at,
                     settings.sender_timeout_ms, text.cure);
    }
  }
}

void RelayService::say(const Instance& instance, const Memberships::One& its) noexcept {
  const RelayStreamSettings& settings = instance.settings;
  const char* const by =
      its.interface.empty() ? "the interface that the routes choose" : its.interface.c_str();
  Error error;
  if (its.is_group) {
    error.set_doing("tsrelay: %s: receiving %s over %s", settings.name.c_str(),
                    settings.legs[its.leg].address.c_str(), by);
  } else {
    error.set_doing("tsrelay: %s: sending multicast over %s", settings.name.c_str(), by);
  }
  if (its.error_number != 0) {
    error.set_answer_errno(its.error_number);
    error.set_cure("check `ip link` and `ip route`; it is tried again twice a second");
    return log_error(error);
  }
  if (its.at == 0) {
    error.set_answer("the interface is gone");
    error.set_cure("restore it under this name; it is then used again automatically");
    return log_error(error);
  }
  BP_LOG_INFO("%s: continues on interface %u", error.doing, its.at);
}

void RelayService::look_at_network(Instance& instance, bool has_changed, uint64_t now_ns) noexcept {
  const auto is_silent = [&](uint32_t leg) {
    const auto comes = static_cast<LegArrival>(instance.stream.leg(leg).counters->comes.read());
    return comes == LegArrival::kNothing || comes == LegArrival::kNoInterface;
  };
  const auto changed = [&](const Memberships::One& its) {
    if (its.is_group) instance.stream.set_has_interface(its.leg, its.at != 0);
    say(instance, its);
  };
  instance.memberships.look(network_, has_changed, now_ns, is_silent, changed);
}

void RelayService::tick() noexcept {
  const bool has_changed = network_.has_changed();
  const uint64_t now_ns = monotonic_ns();
  for (const auto& instance : instances_) {
    say_silences(*instance);
    if (!is_draining_) look_at_network(*instance, has_changed, now_ns);
    instance->loop->submit(instance->look);
  }
  recording_thread_.bell().ring();  // it retries failed files
}

void RelayService::request_drain() noexcept {
  is_draining_ = true;  // before the shards close the sockets
  for (const auto& instance : instances_) instance->loop->submit(instance->drain);
}

bool RelayService::is_drained() const noexcept {
  return std::all_of(instances_.begin(), instances_.end(),
                     [](const auto& instance) { return instance->stream.is_drained(); });
}

}  // namespace bedplate
