// Program specific information of a transport stream (ISO/IEC 13818-1, 2.4.4): reassembles sections
// from packets, and parses the heads of PAT and PMT sections. TsTables reads their bodies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bedplate::relay {

inline constexpr uint32_t kSectionBytesMax = 1024;  // of PAT and PMT
inline constexpr uint8_t kPatTable = 0;
inline constexpr uint8_t kPmtTable = 2;

// The CRC-32 of 13818-1, annex B. It is 0 over a whole section with its CRC.
uint32_t section_crc(std::span<const std::byte> bytes) noexcept;

// Reassembles the sections of one PID. Its buffer never holds more than one section.
class SectionReader {
 public:
  // Adds a packet of its PID: the bytes after the header, and the header's `begins_unit`. Calls
  // done(section) for each section that is complete; its CRC is not checked yet.
  template <typename Done>
  void add(std::span<const std::byte> payload, bool begins_unit, Done done) noexcept;
  // A packet is or may be missing: drops the incomplete section.
  void restart() noexcept { is_open_ = false; }

 private:
  // Takes bytes of the open section off the front. Returns true if the section is complete. Drops a
  // section that is longer than kSectionBytesMax.
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
    // Then comes another section, or stuffing up to the end of the packet.
    constexpr std::byte kStuffing{0xFF};
    is_open_ = false;
    if (!payload.empty() && payload[0] != kStuffing) open();
  }
}

// The head of a section with the long syntax.
struct SectionHead {
  uint8_t table = 0;
  uint16_t number = 0;  // transport_stream_id of a PAT, program_number of a PMT
  uint8_t version = 0;
  bool is_current = false;  // false: it announces the next version
  uint8_t section = 0;      // its number in the table; the last is last_section
  uint8_t last_section = 0;
  uint32_t crc = 0;
  std::span<const std::byte> body;  // between the head and the CRC
};
// Returns false if it is not such a section, or its CRC is wrong. Sets *is_broken: whether the CRC
// is wrong.
bool parse_section(std::span<const std::byte> section, SectionHead* head, bool* is_broken) noexcept;

// Whether packets of an elementary stream must arrive continuously: video and audio. All other
// streams may be silent for hours (TR 101 290, 1.6): SCTE-35, subtitles, teletext, data, and
// secondary audio. `type` and `descriptors` are those of its PMT.
bool is_continuous(uint8_t type, std::span<const std::byte> descriptors) noexcept;

}  // namespace bedplate::relay
