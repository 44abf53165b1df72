#include "apps/blockd/stores/nvme_drives.h"

#include <algorithm>
#include <map>

#include <sys/mman.h>

#include "platform/clock.h"
#include "platform/log.h"
#include "transport/vfio/pci_device.h"
#include "transport/vfio/vfio_container.h"
#include "transport/vfio/vfio_pool.h"
#include "transport/vfio/vfio_preflight.h"

namespace bedplate {
namespace {

using State = NvmeController::State;

constexpr char kCounters[] = "nvme";
constexpr char kQueueCounters[] = "nvme_queues";

OwnerName owner_of(const std::string& address) { return {"nvme", address}; }

std::string name_of_queue(const std::string& address, size_t index) {
  return address + "/" + std::to_string(index + 1);
}
OwnerName owner_of_queue(const std::string& address, size_t index) {
  return {"nvme-queue", name_of_queue(address, index)};
}

// The name of the segment for the drives of one shard.
OwnerName segment_of(uint32_t shard) { return {"nvme", "shard-" + std::to_string(shard)}; }

// Temporary memory for the commands of a drive that is being probed.
class PassingMemory {
 public:
  explicit PassingMemory(uint64_t bytes) noexcept
      : address_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
        bytes_(bytes) {}
  PassingMemory(const PassingMemory&) = delete;
  PassingMemory& operator=(const PassingMemory&) = delete;
  ~PassingMemory() {
    if (container_ != nullptr) container_->unmap(address_, bytes_);
    if (address_ != MAP_FAILED) munmap(address_, bytes_);
  }
  Result<void> map(VfioContainer& container) noexcept {
    if (address_ == MAP_FAILED) return error_from_errno("allocating memory to check a drive");
    BP_TRY(container.map(address_, bytes_));
    container_ = &container;
    return {};
  }
  std::span<std::byte> span() const noexcept { return {static_cast<std::byte*>(address_), bytes_}; }

 private:
  void* const address_;
  const uint64_t bytes_;
  VfioContainer* container_ = nullptr;
};

Error disagreement(const std::string& name, const std::string& address, const std::string& other,
                   const char* answer, const char* cure) {
  return configuration_error_while("putting volume %s of [blockd] on the NVMe drive %s",
                                   name.c_str(), address.c_str())
      .set_answer(answer, other.c_str())
      .set_cure("%s", cure);
}

}  // namespace

void describe(CounterTable& table, NvmeCounters& c) {
  table.state("state", c.state, NvmeController::kStateWords, "The drive's state.");
  table.gauge("queue_pairs", c.queue_pairs, "pairs", "Pairs of I/O queues, each on a shard.");
  table.counter("aborts", c.aborts, "commands", "Late commands that the drive has aborted.")
      .alert_as_it_grows(
          "it is late, and has aborted {aborts} commands so far: check its temperature and "
          "firmware, or raise nvme_timeout_ms");
  table.counter("resets", c.resets, "resets", "Resets of the drive.");
  table
      .counter("bad_completions", c.bad_completions, "completions",
               "Completions of no pending admin command: a defect of the drive.")
      .alert_as_it_grows(
          "it completed {bad_completions} commands that it was not given so far, which is a "
          "defect of the drive: update its firmware, else replace it");
  table
      .gauge("critical_warnings", c.warnings, "bits",
             "Warnings in the drive's health log: spare low (1), temperature (2), unreliable "
             "(4), read only (8), backup failed (16).")
      .alert_from(1, "its health log has warnings ({critical_warnings}: spare 1, temperature 2, "
                     "unreliable 4, read only 8, backup 16): cool it for a 2, else replace it");
  table.gauge("temperature_kelvin", c.temperature_kelvin, "kelvin", "The drive's temperature.");
  table.gauge("spare_percent", c.spare_percent, "percent", "Remaining spare capacity.");
  table.gauge("used_percent", c.used_percent, "percent",
              "The used part of the drive's endurance, as its maker estimates.");
  table.counter("read_units", c.read_units, "units",
                "Data read in the drive's lifetime, in units of 512,000 bytes.");
  table.counter("written_units", c.written_units, "units",
                "Data written in the drive's lifetime, in units of 512,000 bytes.");
  table.counter("power_cycles", c.power_cycles, "cycles", "Times that it was switched on.");
  table.counter("power_on_hours", c.power_on_hours, "hours", "Hours that it was on.");
  table
      .counter("unsafe_shutdowns", c.unsafe_shutdowns, "times",
               "Losses of power without a shutdown.")
      .no_alert("it counts the drive's whole lifetime, and is known at each start");
  table
      .counter("media_errors", c.media_errors, "errors",
               "Media errors in the drive's lifetime: data that it could not read.")
      .no_alert("new_media_errors counts the recent ones");
  // Errors from before this start would raise an alert at each start. So the counters are 0 until
  // the first look at the drive's log.
  table
      .counter("new_media_errors", c.new_media_errors, "errors",
               "Media errors since the appliance first read the log.")
      .alert_as_it_grows(
          "it lost data {new_media_errors} times so far, and {media_errors} times in its "
          "lifetime: copy its volumes elsewhere, and replace the drive");
}

void describe(CounterTable& table, NvmeQueueCounters& c) {
  table.counter("commands", c.commands, "commands", "Commands given to the drive.");
  table.gauge("commands_outstanding", c.commands_outstanding, "commands", "Commands under way.");
  table.gauge("commands_peak", c.commands_peak, "commands", "The most commands in flight at once.")
      .peak_of("volume.nvme_queue_depth", "Further commands wait for a free slot.");
  table.counter("errors", c.errors, "commands", "Commands that failed, or got no answer.")
      .alert_as_it_grows(
          "it failed {errors} commands so far ({timeouts} without an answer): the log says "
          "which; if this continues, replace the drive");
  table
      .counter("timeouts", c.timeouts, "commands",
               "Commands without an answer within nvme_timeout_ms.")
      .no_alert("the alert of errors names them");
  table
      .counter("bad_completions", c.bad_completions, "completions",
               "Completions of no pending command: a defect of the drive.")
      .alert_as_it_grows(
          "it completed {bad_completions} commands that it was not given so far, which is a "
          "defect of the drive: update its firmware, else replace it");
  table.counter("interrupts", c.interrupts, "interrupts", "Interrupts that woke the shard.");
}

NvmeOptions NvmeDrives::Drive::options() const {
  NvmeOptions options;
  options.queue_entries = settings.queue_depth + 1;  // one entry of a queue stays empty
  options.timeout_ns = settings.timeout_ms * kNsPerMs;
  options.has_write_cache = settings.has_write_cache;
  options.namespaces.clear();
  for (const Space& space : spaces) options.namespaces.push_back(space.number);
  return options;
}

// ---- Before memory is taken ---------------------------------------------------------------------

Result<void> NvmeDrives::add(const std::string& name, const NvmeSettings& settings, uint64_t bytes,
                             uint32_t shard) {
  const auto is_it = [&](const Drive& each) { return each.settings.address == settings.address; };
  auto found = std::find_if(drives_.begin(), drives_.end(), is_it);
  if (found == drives_.end()) {
    drives_.emplace_back();
    found = drives_.end() - 1;
    found->settings = settings;
  }
  const NvmeSettings& first = found->settings;
  if (first.queue_depth != settings.queue_depth || first.timeout_ms != settings.timeout_ms ||
      first.has_write_cache != settings.has_write_cache) {
    return disagreement(name, settings.address, found->spaces.front().name,
                        "volume %s has other settings for it",
                        "set the same nvme_queue_depth, nvme_timeout_ms and nvme_write_cache");
  }
  for (const Space& space : found->spaces) {
    if (space.number != settings.space) continue;
    return disagreement(name, settings.address, space.name, "volume %s uses the same namespace",
                        "name another nvme_namespace");
  }
  std::vector<uint32_t>& shards = found->shards;
  const auto known = std::find(shards.begin(), shards.end(), shard);
  found->spaces.push_back(
      {name, settings.space, bytes, static_cast<size_t>(known - shards.begin())});
  if (known == shards.end()) shards.push_back(shard);
  return {};
}

void NvmeDrives::plan(ServicePlan& plan) const {
  std::map<uint32_t, std::vector<CarvePlan>> carves;
  const auto add = [&](uint32_t shard, const NvmeNeeds& needs, CarvePlan carve) {
    plan.timers(shard, needs.timers);
    plan.watches(shard, needs.watches);
    plan.sources(shard, needs.sources);
    plan.descriptors(needs.descriptors, nullptr);
    carves[shard].push_back(carve);
  };
  for (const Drive& each : drives_) {
    const std::string& address = each.settings.address;
    plan.vfio_device(address);
    plan.counters<NvmeCounters>(kCounters, address);
    add(each.shards[0], kNvmeControlNeeds, {owner_of(address), NvmeController::bytes_for()});
    std::vector<std::string> volumes;  // all of them, as each sets the depth of the drive's queues
    for (const Space& space : each.spaces) volumes.push_back(space.name);
    const uint64_t queue_bytes = NvmeQueuePair::bytes_for(each.options().queue_entries);
    for (size_t i = 0; i < each.shards.size(); ++i) {
      add(each.shards[i], kNvmeQueueNeeds, {owner_of_queue(address, i), queue_bytes});
      plan.counters<NvmeQueueCounters>(kQueueCounters, name_of_queue(address, i), volumes);
    }
  }
  for (const auto& [shard, of_shard] : carves) {
    plan.segment(segment_of(shard), of_shard, plan.placement(shard));
  }
}

Result<void> NvmeDrives::check_bytes(const Drive& drive, size_t index, const NvmeNamespace& found) {
  const Space& space = drive.spaces[index];
  const uint64_t bytes = NvmeStore::bytes_of(found);
  if (space.bytes <= bytes) return {};
  return error_while("checking namespace %u of the NVMe drive %s for volume %s", space.number,
                     drive.settings.address.c_str(), space.name.c_str())
      .set_answer("it has %llu bytes, fewer than \"bytes\"", static_cast<unsigned long long>(bytes))
      .set_cure("lower \"bytes\", or leave it out");
}

// The runtime itself reports drives that cannot be opened.
void NvmeDrives::preflight(std::vector<Error>* problems) const {
  for (const Drive& each : drives_) {
    if (!check_pci_device(each.settings.address).ok()) continue;
    if (auto probed = probe(each); !probed.ok()) problems->push_back(probed.error());
  }
}

Result<void> NvmeDrives::probe(const Drive& drive) {
  const std::string& address = drive.settings.address;
  const std::string group = look_up_pci_device(address).take().group;
  NvmeOptions options = drive.options();
  options.is_only_identified = true;
  VfioContainer container;
  if (!container.open().ok() || !container.open_group(group).ok()) return {};
  PassingMemory memory(NvmeController::bytes_for());
  if (!memory.map(container).ok()) return {};  // mapping the pool will fail, too, and report it
  BP_TRY_ASSIGN(auto opened, container.open_device(group, address));
  NvmeDevice device;
  BP_TRY(device.open(std::move(opened), address, 1));
  NvmeCounters counters;
  NvmeController controller;
  controller.create(device, memory.span(), {}, options, counters, monotonic_ns());
  BP_TRY(wait_until_ready(controller, address));
  for (size_t i = 0; i < drive.spaces.size(); ++i) {
    BP_TRY(check_bytes(drive, i, controller.space(i)));
  }
  return {};
}

// ---- From start to shutdown ---------------------------------------------------------------------

Result<void> NvmeDrives::create(ServiceContext& context) {
  for (Drive& each : drives_) BP_TRY(create(each, context));
  return {};
}

Result<void> NvmeDrives::create(Drive& drive, ServiceContext& context) {
  const std::string& address = drive.settings.address;
  BP_TRY_ASSIGN(const auto memory, context.carve(owner_of(address)));
  BP_TRY_ASSIGN(drive.counters, context.counters<NvmeCounters>(kCounters, address));
  std::vector<NvmeQueueMemory> queues;
  for (size_t i = 0; i < drive.shards.size(); ++i) {
    BP_TRY_ASSIGN(const auto queue_memory, context.carve(owner_of_queue(address, i)));
    BP_TRY_ASSIGN(const auto queue_counters,
                  context.counters<NvmeQueueCounters>(kQueueCounters, name_of_queue(address, i)));
    queues.push_back({queue_memory, queue_counters});
  }
  BP_TRY_ASSIGN(auto device, context.vfio().open_device(address));
  BP_TRY(drive.drive.create(std::move(device), address, memory, queues, drive.options(),
                            *drive.counters));
  for (size_t i = 0; i < drive.spaces.size(); ++i) {
    BP_TRY(check_bytes(drive, i, drive.drive.space(i)));
  }
  if (drive.drive.queue_count() < drive.shards.size()) tell_grant(drive, context);
  return {};
}

void NvmeDrives::tell_grant(const Drive& drive, const ServiceContext& context) {
  std::string names;
  for (size_t i = 0; i < drive.drive.queue_count(); ++i) {
    names += (i == 0 ? "" : ", ") + context.configuration().shards[drive.shards[i]].name;
  }
  BP_LOG_WARNING("the NVMe drive %s grants queues for %u of %zu shards: its volumes are on %s",
                 drive.settings.address.c_str(), drive.drive.queue_count(), drive.shards.size(),
                 names.c_str());
}

Result<void> NvmeDrives::add_sources(ServiceContext& context) {
  for (Drive& each : drives_) {
    std::vector<EventLoop*> loops;
    for (size_t i = 0; i < each.drive.queue_count(); ++i) {
      loops.push_back(&context.loop(each.shards[i]));
    }
    each.drive.attach(*loops[0], loops);
    for (size_t i = 0; i < loops.size(); ++i) {
      BP_TRY(context.add_source(each.shards[i], each.drive.queue(i), NvmeDrive::kBudget));
    }
  }
  return {};
}

NvmeDrives::FoundSpace NvmeDrives::find(const std::string& name) {
  for (Drive& each : drives_) {
    for (size_t i = 0; i < each.spaces.size(); ++i) {
      if (each.spaces[i].name == name) return {&each, i};
    }
  }
  BP_ASSERT(!"the volume was added");
  return {};
}

uint32_t NvmeDrives::shard_of(const std::string& name) {
  const auto [drive, space] = find(name);
  return drive->shards[drive->queue_of(drive->spaces[space])];
}

std::unique_ptr<VolumeStore> NvmeDrives::make_store(const std::string& name) {
  const auto [drive, index] = find(name);
  const Space& space = drive->spaces[index];
  return std::make_unique<NvmeStore>(drive->drive.queue(drive->queue_of(space)),
                                     drive->drive.space(index), space.bytes);
}

void NvmeDrives::start(uint32_t shard, StreamSockets& sockets) noexcept {
  for (Drive& each : drives_) {
    for (size_t i = 0; i < each.drive.queue_count(); ++i) {
      if (each.shards[i] == shard) each.drive.queue(i).start(sockets);
    }
    if (each.shards[0] == shard) each.drive.start(sockets);
  }
}

// Logs for the shards, which cannot log.
void NvmeDrives::tick() noexcept {
  for (Drive& each : drives_) {
    each.drive.tick();
    const uint64_t resets = each.counters->resets.read();
    const auto state = static_cast<State>(each.counters->state.read());
    const char* address = each.settings.address.c_str();
    const auto problem = static_cast<NvmeProblem>(each.counters->problem.read());
    // A reset may begin and end between two ticks.
    if (resets != each.told_resets && each.told_state == State::kReady) {
      BP_LOG_ERROR("the NVMe drive %s %s: it is being reset, and its volumes answer EIO until then",
                   address, to_text(problem));
      each.told_state = State::kDisabling;
    }
    each.told_resets = resets;
    if (state == each.told_state || state == State::kShuttingDown) continue;
    if (state == State::kFailed || state == State::kClosed) {
      const bool is_wanted = state == State::kClosed && problem != NvmeProblem::kTakenBack;
      each.told_state = state;
      if (is_wanted) continue;
      BP_LOG_ERROR("the NVMe drive %s %s: its volumes answer EIO%s", address, to_text(problem),
                   state == State::kFailed ? " until it can be started again" : "");
    } else if (state == State::kReady) {
      each.told_state = state;
      BP_LOG_WARNING("the NVMe drive %s is ready again", address);
    }
  }
}

void NvmeDrives::request_shut_down() noexcept {
  for (Drive& each : drives_) each.drive.request_shut_down();
}

bool NvmeDrives::are_shut_down() const noexcept {
  return std::all_of(drives_.begin(), drives_.end(),
                     [](const Drive& each) { return each.drive.is_shut_down(); });
}

}  // namespace bedplate
