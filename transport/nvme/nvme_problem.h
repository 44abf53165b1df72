// The problems of a drive, as a number that a shard can leave behind, and as words.
#pragma once

#include <cstdint>
#include <string>

#include "platform/result.h"

namespace bedplate {

enum class NvmeProblem : uint32_t {
  kNone,
  kGone,              // its registers read as all ones
  kTakenBack,         // the kernel asked for it
  kNotDisabled,       // it did not become so in the time that it says itself
  kNotReady,          // likewise
  kFatal,             // it says so itself
  kSilent,            // an admin command was not answered in time
  kLate,              // a command was not, nor once it was to be aborted
  kRefused,           // an admin command; `detail`: the status
  kNotNvm,            // it has other commands than those for blocks
  kPageBytes,         // it takes no pages of 4 KiB
  kNoQueue,           // it gives no I/O queue
  kFewerQueues,       // than it had granted before
  kNoWriteCache,      // that could be turned on
  kMissingNamespace,  // `detail`: its number; so in what follows
  kMetadata,          // the namespace is formatted with metadata
  kBlockBytes,        // blocks of other than 512 to 4096 bytes
  kOtherFormat,       // it was formatted anew, or it or its transfers have become smaller
  kCount
};

// Static; a sentence without its subject: "does not become ready".
const char* to_text(NvmeProblem problem) noexcept;

// The error for `problem` of the drive at `address`, while it was being started.
Error error_of(NvmeProblem problem, uint32_t detail, const std::string& address) noexcept;

}  // namespace bedplate
