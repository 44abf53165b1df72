// A simulated NVMe controller: its registers are memory, which it obeys whenever the test calls
// step(). On demand it answers late, wrongly, or not at all.
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <span>
#include <vector>

#include "transport/nvme/nvme_controller.h"
#include "transport/nvme/nvme_prp_datapath.h"

namespace bedplate::test {

class FakeNvme final : public NvmePort {
 public:
  static constexpr uint64_t kRegistersBytes = 8192;
  static constexpr uint16_t kQueueCountMax = 8;  // with the admin queue

  // Its properties, as it reports them.
  uint32_t entry_count_max = 64;
  uint32_t doorbell_log2 = 0;
  bool has_nvm = true;
  uint32_t page_log2_min = 12;
  uint8_t transfer_log2 = 0;
  uint16_t optionals = nvme::kHasWriteZeroes | nvme::kHasDeallocate;
  bool has_cache = true;
  uint32_t queue_grant = 64;  // for I/O
  uint32_t completion_grant = 64;
  struct Space {
    uint64_t block_count;
    uint8_t block_log2;
    uint16_t metadata_bytes;
  };
  std::vector<Space> spaces = {{2048, 9, 0}};  // namespaces, from number 1 on

  // Its defects.
  bool is_gone = false;
  bool stays_ready = false;  // ignores requests to disable it
  bool is_never_ready = false;
  bool holds_io = false;  // I/O commands are held until release()
  bool holds_admin = false;
  bool aborts = false;            // obeys Abort commands
  std::deque<uint16_t> statuses;  // of the next I/O commands
  uint16_t admin_status = 0;      // of all admin commands with the opcode below
  uint8_t refused_opcode = 0xff;
  uint8_t media_errors = 7;  // over the drive's whole lifetime

  // A record of the driver's actions.
  std::vector<nvme::Command> commands;  // all for I/O
  std::vector<nvme::Command> admin_commands;
  std::vector<uint32_t> features[16];
  uint32_t start_count = 0;
  bool may_use_memory = false;
  uint32_t trespass_count = 0;               // DMA that was not allowed
  uint32_t stray_count = 0;                  // doorbells of queues that do not exist at that time
  uint32_t interrupts[kQueueCountMax] = {};  // of each queue
  bool was_shut_down = false;
  std::vector<std::byte> disk;

  FakeNvme() {
    registers = static_cast<volatile std::byte*>(std::aligned_alloc(4096, kRegistersBytes));
    registers_bytes = kRegistersBytes;
    interrupt_count = kQueueCountMax;
    power_on();
  }
  ~FakeNvme() override { std::free(const_cast<std::byte*>(registers)); }

  // Sets the registers and the disk from the properties. Call it again after a change of these.
  void power_on() {
    std::memset(const_cast<std::byte*>(registers), 0, kRegistersBytes);
    const uint64_t cap = (entry_count_max - 1) | 1ULL << 16 | 2ULL << 24 |
                         uint64_t{doorbell_log2} << 32 | uint64_t{has_nvm} << 37 |
                         uint64_t{page_log2_min - 12} << 48;
    at<uint64_t>(nvme::kCapabilities) = cap;
    disk.assign(spaces[0].block_count << spaces[0].block_log2, std::byte{0});
  }
  void allow_dma(bool is_allowed) noexcept override { may_use_memory = is_allowed; }

  void vanish() {
    is_gone = true;
    std::memset(const_cast<std::byte*>(registers), 0xff, kRegistersBytes);
  }

  void step() {
    if (is_gone) return;
    const uint32_t configuration = at<uint32_t>(nvme::kConfiguration);
    const bool is_enabled = (configuration & nvme::kEnable) != 0;
    if (!is_enabled && was_enabled_ && !stays_ready) {
      at<uint32_t>(nvme::kStatus) = 0;
      was_enabled_ = false;
      held_.clear();
      for (Queue& queue : queues_) queue = {};
      forget_doorbells();
    }
    if (is_enabled && !was_enabled_ && !is_never_ready) {
      const uint32_t sizes = at<uint32_t>(nvme::kAdminSizes);
      queues_[0] = {at<uint64_t>(nvme::kAdminSubmission), at<uint64_t>(nvme::kAdminCompletion),
                    (sizes & 0xfff) + 1};
      at<uint32_t>(nvme::kStatus) = nvme::kReady;
      was_enabled_ = true;
      ++start_count;
    }
    if (!was_enabled_) {
      const auto* doorbells = const_cast<std::byte*>(registers) + nvme::kDoorbells;
      stray_count +=
          static_cast<uint32_t>(4096 - std::count(doorbells, doorbells + 4096, std::byte{0}));
      return forget_doorbells();
    }
    if ((configuration & nvme::kShutdown) != 0) {
      at<uint32_t>(nvme::kStatus) = nvme::kReady | nvme::kShutdownDone;
      was_shut_down = true;
    }
    for (uint16_t id = 0; id < kQueueCountMax; ++id) take_commands(id);
  }

  // Carries out the held commands, the last one first.
  void release() {
    while (!held_.empty()) {
      const Held held = held_.back();
      held_.pop_back();
      carry_out(held);
    }
  }
  // Carries out the held commands of one queue.
  void release_of(uint16_t queue_id) {
    const auto released = std::stable_partition(
        held_.begin(), held_.end(), [&](const Held& held) { return held.queue_id != queue_id; });
    const std::vector<Held> all(released, held_.end());
    held_.erase(released, held_.end());
    for (const Held& held : all) carry_out(held);  // an abort looks for its command in held_
  }
  size_t held_count() const { return held_.size(); }
  // Writes a completion, even if there is no such command.
  void complete(uint16_t queue_id, uint16_t command_id, uint16_t status, uint32_t result = 0) {
    if (!may_use_memory) {
      ++trespass_count;
      return;
    }
    Queue& queue = queues_[queue_id];
    auto* entry = reinterpret_cast<nvme::Completion*>(queue.completions) + queue.completion_tail;
    entry->result = result;
    entry->submission_head = static_cast<uint16_t>(queue.head);
    entry->command_id = command_id;
    entry->status = static_cast<uint16_t>(status << 1 | queue.phase);
    if (++queue.completion_tail == queue.entry_count) {
      queue.completion_tail = 0;
      queue.phase ^= 1;
    }
  }

 private:
  struct Queue {
    uint64_t submissions = 0;
    uint64_t completions = 0;
    uint32_t entry_count = 0;
    uint32_t head = 0;
    uint32_t completion_tail = 0;
    uint16_t phase = 1;
  };
  struct Held {
    uint16_t queue_id;
    nvme::Command command;
  };

  template <typename T>
  volatile T& at(size_t offset) {
    return *reinterpret_cast<volatile T*>(registers + offset);
  }

  void forget_doorbells() {
    std::memset(const_cast<std::byte*>(registers) + nvme::kDoorbells, 0, 4096);
  }

  void take_commands(uint16_t id) {
    Queue& queue = queues_[id];
    const size_t doorbell = nvme::kDoorbells + 2U * id * (size_t{4} << doorbell_log2);
    if (doorbell >= kRegistersBytes) return;
    const uint32_t tail = at<uint32_t>(doorbell);
    if (queue.entry_count == 0) {
      if (tail != 0) ++stray_count;
      return;
    }
    while (queue.head != tail) {
      if (!may_use_memory) ++trespass_count;
      const auto* entries = reinterpret_cast<const nvme::Command*>(queue.submissions);
      const Held taken = {id, entries[queue.head]};
      if (++queue.head == queue.entry_count) queue.head = 0;
      (id == 0 ? admin_commands : commands).push_back(taken.command);
      if (id == 0 ? holds_admin : holds_io) {
        held_.push_back(taken);
      } else {
        carry_out(taken);
      }
    }
  }

  void carry_out(const Held& held) {
    const nvme::Command& command = held.command;
    if (held.queue_id == 0) return administer(command);
    uint16_t status = 0;
    if (!statuses.empty()) {
      status = statuses.front();
      statuses.pop_front();
    }
    if (status == 0) status = do_io(command);
    complete(held.queue_id, command.id, status);
  }

  // The memory of a transfer, according to its PRP entries.
  std::vector<std::span<std::byte>> pages_of(const nvme::Command& command, uint64_t bytes) {
    std::vector<std::span<std::byte>> pages;
    const auto add = [&](uint64_t address) {
      const uint64_t here = std::min(bytes, 4096 - address % 4096);
      pages.push_back({reinterpret_cast<std::byte*>(address), here});
      bytes -= here;
    };
    add(command.prp1);
    if (bytes == 0) return pages;
    if (bytes <= 4096) {
      add(command.prp2);
      return pages;
    }
    const auto* entry = reinterpret_cast<const uint64_t*>(command.prp2);
    while (bytes > 0) add(*entry++);
    return pages;
  }

  uint16_t do_io(const nvme::Command& command) {
    if (command.opcode == nvme::kFlush) return 0;
    const Space& space = spaces.at(command.space - 1);
    if (command.opcode == nvme::kDatasetManagement) {
      const auto* range = reinterpret_cast<const nvme::Range*>(command.prp1);
      std::fill_n(&disk[range->first_block << space.block_log2],
                  uint64_t{range->block_count} << space.block_log2, std::byte{0});
      return 0;
    }
    const uint64_t first = command.word10 | uint64_t{command.word11} << 32;
    const uint64_t count = (command.word12 & 0xffff) + 1;
    if (first + count > space.block_count) return 0x080;  // LBA out of range
    std::byte* target = &disk[first << space.block_log2];
    const uint64_t bytes = count << space.block_log2;
    if (command.opcode == nvme::kWriteZeroes) {
      std::fill_n(target, bytes, std::byte{0});
      return 0;
    }
    for (const std::span<std::byte> page : pages_of(command, bytes)) {
      if (command.opcode == nvme::kRead) {
        std::memcpy(page.data(), target, page.size());
      } else {
        std::memcpy(target, page.data(), page.size());
      }
      target += page.size();
    }
    return 0;
  }

  void administer(const nvme::Command& command) {
    auto* data = reinterpret_cast<std::byte*>(command.prp1);
    uint32_t result = 0;
    uint16_t status = command.opcode == refused_opcode ? admin_status : 0;
    if (status == 0) {
      switch (command.opcode) {
        case nvme::kIdentify: status = identify(command, data); break;
        case nvme::kSetFeatures:
          features[command.word10 & 0xf].push_back(command.word11);
          if (command.word10 == nvme::kFeatureQueueCount) {
            result = (queue_grant - 1) | (completion_grant - 1) << 16;
          }
          break;
        case nvme::kCreateCompletion:
          completions_.at(command.word10 & 0xffff) = command.prp1;
          interrupts[command.word10 & 0xffff] = command.word11 >> 16;
          break;
        case nvme::kCreateSubmission: {
          const uint32_t id = command.word10 & 0xffff;
          queues_[id] = {command.prp1, completions_.at(command.word11 >> 16),
                         (command.word10 >> 16) + 1};
          break;
        }
        case nvme::kAbort: result = abort(command.word10) ? 0 : 1; break;
        case nvme::kGetLogPage:
          std::memset(data, 0, nvme::kHealthBytes);
          data[nvme::kSpare] = std::byte{93};
          data[nvme::kTemperature] = std::byte{44};
          data[nvme::kTemperature + 1] = std::byte{1};
          data[nvme::kMediaErrors] = std::byte{media_errors};
          break;
        default: break;
      }
    }
    complete(0, command.id, status, result);
  }

  uint16_t identify(const nvme::Command& command, std::byte* data) {
    std::memset(data, 0, nvme::kIdentifyBytes);
    const auto put = [data](size_t offset, auto value) {
      std::memcpy(data + offset, &value, sizeof value);
    };
    if (command.word10 == nvme::kIdentifyController) {
      put(nvme::kMaxTransfer, transfer_log2);
      put(nvme::kOptionals, optionals);
      put(nvme::kWriteCache, static_cast<uint8_t>(has_cache ? 1 : 0));
      return 0;
    }
    if (command.space == 0 || command.space > spaces.size()) return nvme::kInvalidNamespace;
    const Space& space = spaces[command.space - 1];
    put(nvme::kBlockCount, space.block_count);
    put(nvme::kFormat, uint8_t{2});
    put(nvme::kFormats + 8, space.metadata_bytes);
    put(nvme::kFormats + 10, space.block_log2);
    return 0;
  }

  bool abort(uint32_t word) {
    if (!aborts) return false;
    const auto id = static_cast<uint16_t>(word >> 16);
    const uint32_t queue_id = word & 0xffff;
    const auto found = std::find_if(held_.begin(), held_.end(), [&](const Held& held) {
      return held.queue_id == queue_id && held.command.id == id;
    });
    if (found == held_.end()) return false;
    held_.erase(found);
    complete(static_cast<uint16_t>(queue_id), id, 0x007);  // abort requested
    return true;
  }

  Queue queues_[kQueueCountMax];
  std::array<uint64_t, kQueueCountMax> completions_ = {};
  std::vector<Held> held_;
  bool was_enabled_ = false;
};

}  // namespace bedplate::test
