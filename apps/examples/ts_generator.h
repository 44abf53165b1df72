// Generates a transport stream of one program at a constant rate: PAT, PMT, PCRs and a moving
// picture. All other packets are null packets, numbered in their payload.
//
// The same options make the same stream, byte for byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "apps/examples/test_picture.h"
#include "apps/tsrelay/ts_packet_datapath.h"

namespace bedplate::relay {

class TsGenerator {
 public:
  static constexpr uint64_t kBitsPerSecondMin = 1'000'000;  // below this the picture does not fit
  static constexpr uint16_t kPmtPid = 0x100;
  static constexpr uint16_t kVideoPid = 0x101;

  // Requires: `bits_per_second` is at least kBitsPerSecondMin.
  explicit TsGenerator(uint64_t bits_per_second = 4'000'000) noexcept;

  // Writes the next packet, kTsPacketBytes, to `to`.
  void next(std::byte* to) noexcept;
  // The number of packets so far.
  uint64_t packet_count() const noexcept { return packet_count_; }
  // The time at which the packet `number` is to leave, relative to the first packet.
  uint64_t ns_of(uint64_t number) const noexcept;

 private:
  static constexpr uint64_t kTablesPerSecond = 10;
  static constexpr uint64_t kPcrsPerSecond = 40;

  uint64_t pcr_of(uint64_t number) const noexcept;
  uint64_t packets_in(uint64_t per_second) const noexcept;
  void write_head(std::byte* to, uint16_t pid, bool begins_unit, uint8_t* counter,
                  uint32_t payload_bytes, bool has_pcr) noexcept;
  void write_table(std::byte* to, bool is_pat) noexcept;
  void begin_picture() noexcept;
  void write_video(std::byte* to, bool has_pcr) noexcept;

  uint64_t bits_per_second_;
  uint64_t packet_count_ = 0;
  uint64_t picture_count_ = 0;
  uint64_t next_pcr_ = 0;    // the next packet with a PCR
  uint64_t next_table_ = 0;  // the first packet that may have the next PAT
  bool is_pmt_next_ = false;
  uint8_t pat_counter_ = 0;
  uint8_t pmt_counter_ = 0;
  uint8_t video_counter_ = 0;
  std::byte head_[32];  // of the PES packet
  uint32_t head_bytes_ = 0;
  uint32_t head_done_ = 0;
  std::span<const std::byte> picture_;  // the rest of the picture
  TestPicture encoder_;
};

}  // namespace bedplate::relay
