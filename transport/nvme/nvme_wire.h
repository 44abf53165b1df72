// The interface of an NVMe controller: registers, commands, completions.
//
// This file has only the parts that the driver uses. The section numbers are those of the NVM
// Express Base Specification 1.4. Later specifications have not changed these parts. All numbers
// are little-endian, like those of the machine.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bedplate::nvme {

static_assert(std::endian::native == std::endian::little);

// ---- Registers (3.1): offsets, and the fields of their values ----

inline constexpr size_t kCapabilities = 0x00;   // CAP, 8 bytes
inline constexpr size_t kConfiguration = 0x14;  // CC
inline constexpr size_t kStatus = 0x1c;         // CSTS
inline constexpr size_t kAdminSizes = 0x24;     // AQA
inline constexpr size_t kAdminSubmission = 0x28;
inline constexpr size_t kAdminCompletion = 0x30;
inline constexpr size_t kDoorbells = 0x1000;

// Each register of a controller that is gone reads as this value.
inline constexpr uint32_t kAllOnes = ~uint32_t{0};

// CAP
constexpr uint32_t entry_count_max(uint64_t cap) noexcept { return (cap & 0xffff) + 1; }
constexpr uint64_t ready_units(uint64_t cap) noexcept { return cap >> 24 & 0xff; }  // of 500 ms
constexpr uint32_t doorbell_bytes(uint64_t cap) noexcept { return 4U << (cap >> 32 & 0xf); }
constexpr bool has_nvm_commands(uint64_t cap) noexcept { return (cap >> 37 & 1) != 0; }
constexpr uint64_t page_bytes_min(uint64_t cap) noexcept { return 4096ULL << (cap >> 48 & 0xf); }

// CC: enabled, pages of 4 KiB, entries of 64 and 16 bytes.
inline constexpr uint32_t kEnable = 1;
inline constexpr uint32_t kSettings = 6U << 16 | 4U << 20;
inline constexpr uint32_t kShutdown = 1U << 14;
// CSTS
inline constexpr uint32_t kReady = 1;
inline constexpr uint32_t kFatal = 2;
inline constexpr uint32_t kShutdownMask = 3U << 2;
inline constexpr uint32_t kShutdownDone = 2U << 2;

// ---- Queues (4.2, 4.6) ----

struct Command {
  uint8_t opcode = 0;
  uint8_t flags = 0;  // 0: PRPs describe the data
  uint16_t id = 0;
  uint32_t space = 0;  // the namespace
  uint64_t reserved = 0;
  uint64_t metadata = 0;
  uint64_t prp1 = 0;
  uint64_t prp2 = 0;
  uint32_t word10 = 0;
  uint32_t word11 = 0;
  uint32_t word12 = 0;
  uint32_t word13 = 0;
  uint32_t word14 = 0;
  uint32_t word15 = 0;
};
static_assert(sizeof(Command) == 64 && offsetof(Command, prp1) == 24 &&
              offsetof(Command, word10) == 40);

struct Completion {
  uint32_t result = 0;
  uint32_t reserved = 0;
  uint16_t submission_head = 0;
  uint16_t submission_id = 0;
  uint16_t command_id = 0;
  uint16_t status = 0;  // bit 0: the phase
};
static_assert(sizeof(Completion) == 16 && offsetof(Completion, status) == 14);

inline constexpr uint32_t kEveryNamespace = ~uint32_t{0};

// ---- Admin commands (5) ----

enum AdminOpcode : uint8_t {
  kCreateSubmission = 0x01,
  kGetLogPage = 0x02,
  kCreateCompletion = 0x05,
  kIdentify = 0x06,
  kAbort = 0x08,
  kSetFeatures = 0x09,
};

inline constexpr uint32_t kIdentifyNamespace = 0;
inline constexpr uint32_t kIdentifyController = 1;
inline constexpr uint32_t kIdentifyBytes = 4096;
inline constexpr uint32_t kFeatureWriteCache = 6;
inline constexpr uint32_t kFeatureQueueCount = 7;
inline constexpr uint32_t kHealthLog = 2;
inline constexpr uint32_t kHealthBytes = 512;
// Bits of word 11 of the commands that create queues.
inline constexpr uint32_t kContiguous = 1;
inline constexpr uint32_t kInterrupts = 2;

// Reads a number in a controller's answer.
template <typename T>
T field(const std::byte* answer, size_t offset) noexcept {
  T value;
  std::memcpy(&value, answer + offset, sizeof value);
  return value;
}

// Identify Controller (5.15.2.2)
inline constexpr size_t kMaxTransfer = 77;  // MDTS: log2, in smallest pages; 0: no limit
inline constexpr size_t kOptionals = 520;   // ONCS
inline constexpr size_t kWriteCache = 525;  // VWC: bit 0
inline constexpr uint16_t kHasDeallocate = 1U << 2;
inline constexpr uint16_t kHasWriteZeroes = 1U << 3;

// Identify Namespace (5.15.2.1)
inline constexpr size_t kBlockCount = 0;  // NSZE
inline constexpr size_t kFormat = 26;     // FLBAS: the index of the format in use
inline constexpr size_t kFormats = 128;   // of 4 bytes: 2 metadata, 1 log2 of the block

// SMART / Health Information (5.14.1.2)
inline constexpr size_t kWarnings = 0;
inline constexpr size_t kTemperature = 1;  // kelvin, 2 bytes
inline constexpr size_t kSpare = 3;
inline constexpr size_t kUsed = 5;
inline constexpr size_t kUnitsRead = 32;  // of 512,000 bytes; 16 bytes each from here on
inline constexpr size_t kUnitsWritten = 48;
inline constexpr size_t kPowerCycles = 112;
inline constexpr size_t kPowerOnHours = 128;
inline constexpr size_t kUnsafeShutdowns = 144;
inline constexpr size_t kMediaErrors = 160;

// ---- NVM commands (NVM Command Set Specification 1.0, 3.2) ----

enum Opcode : uint8_t {
  kFlush = 0x00,
  kWrite = 0x01,
  kRead = 0x02,
  kWriteZeroes = 0x08,
  kDatasetManagement = 0x09,
};

// Bits of word 12; the low 16 bits have the number of blocks, less one.
inline constexpr uint32_t kForceUnitAccess = 1U << 30;
inline constexpr uint32_t kDeallocateZeroes = 1U << 25;
inline constexpr uint64_t kBlocksPerCommandMax = 65536;
// A bit of word 11 of kDatasetManagement.
inline constexpr uint32_t kDeallocate = 1U << 2;
inline constexpr uint64_t kBlocksPerRangeMax = 0xffff'ffff;

struct Range {
  uint32_t attributes = 0;
  uint32_t block_count = 0;
  uint64_t first_block = 0;
};
static_assert(sizeof(Range) == 16);

// ---- The status of a completion (4.6.1.2), without the phase ----

inline constexpr uint16_t kSuccess = 0;
inline constexpr uint16_t kInvalidOpcode = 0x001;
inline constexpr uint16_t kInvalidField = 0x002;
inline constexpr uint16_t kInvalidNamespace = 0x00b;
inline constexpr uint16_t kWriteProtected = 0x020;
inline constexpr uint16_t kCapacityExceeded = 0x081;
inline constexpr uint16_t kReadOnlyRange = 0x182;
// Selects the three bits of type and the eight of code. The bits above them are retry delays and
// the like.
inline constexpr uint16_t kCodeMask = 0x7ff;
// The driver's own value: no answer will come, and the command may or may not have been carried
// out.
inline constexpr uint16_t kNoAnswer = 0xffff;

}  // namespace bedplate::nvme
