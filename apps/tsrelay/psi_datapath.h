// Program specific information of a transport stream (ISO/IEC 13818-1, 2.4.4): sections put
// together from packets, and what PAT and PMT say.
//
// Tested by tests/apps/tsrelay/ts_inspector_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bedplate::relay {

inline constexpr uint32_t kSectionBytesMax = 1024;  // of PAT and PMT
inline constexpr uint8_t kPatTable = 0;
inline constexpr uint8_t kPmtTable = 2;

// CRC-32 of 13818-1, annex B. Over a whole section with its CRC it is 0.
uint32_t section_crc(std::span<const std::byte> bytes) noexcept;

// Puts the sections of one PID together. Its buffer never holds more than one.
class SectionReader {
 public:
  // Of a packet of its PID: what is behind the header; `begins_unit` as the header says. Calls
  // done(section) for each that is whole, its CRC not yet looked at.
  template <typename Done>
  void add(std::span<const std::byte> payload, bool begins_unit, Done done) noexcept;
  // A packet is missing: what was begun is lost.
  void restart() noexcept { is_open_ = false; }

 private:
  // Takes what belongs to the open section off the front. Returns whether it is whole.
  bool take(std::span<const std::byte>* payload) noexcept;
  void open() noexcept {
    is_open_ = true;
    bytes_ = 0;
  }

  bool is_open_ = false;
  uint16_t bytes_ = 0;
  std::byte section_[kSectionBytesMax];
};

template <typename Done>
void SectionReader::add(std::span<const std::byte> payload, bool begins_unit, Done done) noexcept {
  if (begins_unit) {
    if (payload.empty()) return restart();
    const auto pointer = static_cast<size_t>(payload[0]);
    payload = payload.subspan(1);
    if (pointer > payload.size()) return restart();
    std::span<const std::byte> rest = payload.first(pointer);
    if (is_open_ && take(&rest)) done(std::span<const std::byte>(section_, bytes_));
    payload = payload.subspan(pointer);
    open();
  }
  while (is_open_ && take(&payload)) {
    done(std::span<const std::byte>(section_, bytes_));
    // Another one follows at once, or stuffing to the end of the packet.
    constexpr std::byte kStuffing{0xFF};
    is_open_ = false;
    if (!payload.empty() && payload[0] != kStuffing) open();
  }
}

// What a section with the long syntax says at its front.
struct SectionHead {
  uint8_t table = 0;
  uint16_t number = 0;  // transport_stream_id of a PAT, program_number of a PMT
  uint8_t version = 0;
  bool is_current = false;  // else it says what will be
  uint8_t section = 0;      // of the table, which ends with last_section
  uint8_t last_section = 0;
  uint32_t crc = 0;
  std::span<const std::byte> body;  // between the head and the CRC
};
// Returns false where it is none, or its CRC is wrong (*is_broken then).
bool parse_section(std::span<const std::byte> section, SectionHead* head, bool* is_broken) noexcept;

// Whether packets of an elementary stream must come all the time: video and audio. All else may
// have nothing to say for hours (TR 101 290, 1.6): SCTE-35, subtitles, teletext, data, and audio
// beside the main one. `type` and `descriptors` are those of its PMT.
bool is_continuous(uint8_t type, std::span<const std::byte> descriptors) noexcept;

}  // namespace bedplate::relay
