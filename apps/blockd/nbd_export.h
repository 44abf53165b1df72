// An NBD export: a volume as clients see it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "apps/blockd/nbd_wire.h"

namespace bedplate::nbd {

inline constexpr size_t kNameMaxBytes = 255;

// The name has 1 to kNameMaxBytes bytes, which outlive this.
struct ExportInfo {
  std::string_view name;
  uint64_t bytes;
  bool read_only;
};

// The transmission flags to announce for an export ("Transmission flags").
inline uint16_t transmission_flags(const ExportInfo& info, bool structured_replies) noexcept {
  uint32_t flags = kTransmissionHasFlags | kTransmissionSendFlush | kTransmissionSendFua |
                   kTransmissionSendTrim | kTransmissionSendWriteZeroes |
                   kTransmissionCanMultiConn | kTransmissionSendFastZero;
  if (info.read_only) flags |= kTransmissionReadOnly;
  if (structured_replies) flags |= kTransmissionSendDf;
  return static_cast<uint16_t>(flags);
}

}  // namespace bedplate::nbd
