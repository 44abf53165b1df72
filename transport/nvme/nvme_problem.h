// The problems of a drive, as a number that a shard can record, and as words.
#pragma once

#include <cstdint>
#include <string>

#include "platform/result.h"

namespace bedplate {

enum class NvmeProblem : uint32_t {
  kNone,
  kGone,              // its registers read as all ones
  kTakenBack,         // the kernel asked for it
  kNotDisabled,       // not disabled within the time that the controller states
  kNotReady,          // not ready within that time
  kFatal,             // it reports a fatal status, or is not ready any more
  kSilent,            // an admin command was not answered in time
  kLate,              // a command was late twice: the abort did not end it
  kRefused,           // an admin command was refused; `detail`: the status
  kNotNvm,            // its command set is not NVM
  kPageBytes,         // it does not support pages of 4 KiB
  kNoQueue,           // it has no I/O queue, doorbell or interrupt, or too few entries
  kFewerQueues,       // than it granted before
  kNoWriteCache,      // it has no write cache to turn on
  kMissingNamespace,  // `detail`: its number, as in the following ones
  kMetadata,          // the namespace is formatted with metadata
  kBlockBytes,        // blocks of other than 512 to 4096 bytes
  kOtherFormat,       // it now has another block size, fewer blocks or shorter transfers
  kCount
};

// Static; a sentence without its subject: "does not become ready".
const char* to_text(NvmeProblem problem) noexcept;

// The error for `problem` of the drive at `address`, during its start.
Error error_of(NvmeProblem problem, uint32_t detail, const std::string& address) noexcept;

}  // namespace bedplate
