// Makes transport streams for tests: sections of PAT and PMT, and packets for these and other
// content, with a continuity counter for each PID.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "apps/tsrelay/psi_datapath.h"
#include "apps/tsrelay/ts_packet_datapath.h"

namespace bedplate::relay {

using Bytes = std::vector<std::byte>;

struct MadeStream {
  uint8_t type = 0;
  uint16_t pid = 0;
  std::vector<uint8_t> descriptors;
};
struct MadeProgram {
  uint16_t number = 0;
  uint16_t pid = 0;
  uint16_t clock_pid = kNullPid;
  std::vector<MadeStream> streams;
  uint8_t version = 0;
};
struct MadeSectionHead {
  uint8_t version = 0;
  uint8_t section = 0;
  uint8_t last_section = 0;
  bool is_current = true;
};

inline Bytes made_section(uint8_t table, uint16_t number, const MadeSectionHead& head,
                          const Bytes& body) {
  Bytes all(8);
  store_u8(all.data(), table);
  store_u16(all.data() + 1, 0xB000 | (body.size() + 9));
  store_u16(all.data() + 3, number);
  store_u8(all.data() + 5, 0xC0 | (head.version & 0x1F) << 1 | (head.is_current ? 1 : 0));
  store_u8(all.data() + 6, head.section);
  store_u8(all.data() + 7, head.last_section);
  all.insert(all.end(), body.begin(), body.end());
  const uint32_t crc = section_crc(all);
  all.resize(all.size() + 4);
  store_u32(all.data() + all.size() - 4, crc);
  return all;
}

inline Bytes made_pat(std::span<const MadeProgram> programs, const MadeSectionHead& head,
                      uint16_t stream = 1) {
  Bytes body(4 * programs.size());
  for (size_t i = 0; i < programs.size(); ++i) {
    store_u16(body.data() + 4 * i, programs[i].number);
    store_u16(body.data() + 4 * i + 2, 0xE000 | programs[i].pid);
  }
  return made_section(kPatTable, stream, head, body);
}

inline Bytes made_pmt(const MadeProgram& program, bool is_current = true) {
  Bytes body(4);
  store_u16(body.data(), 0xE000 | program.clock_pid);
  store_u16(body.data() + 2, 0xF000);
  for (const MadeStream& stream : program.streams) {
    const size_t at = body.size();
    body.resize(at + 5 + stream.descriptors.size());
    store_u8(body.data() + at, stream.type);
    store_u16(body.data() + at + 1, 0xE000 | stream.pid);
    store_u16(body.data() + at + 3, 0xF000 | stream.descriptors.size());
    for (size_t i = 0; i < stream.descriptors.size(); ++i) {
      body[at + 5 + i] = std::byte{stream.descriptors[i]};
    }
  }
  return made_section(kPmtTable, program.number,
                      {.version = program.version, .is_current = is_current}, body);
}

class TsMux {
 public:
  static constexpr uint64_t kNoPcr = ~uint64_t{0};

  // Returns a packet of this PID, whose payload begins with `content`.
  Bytes packet(uint16_t pid, std::span<const std::byte> content, bool begins_unit = false,
               uint64_t pcr = kNoPcr) {
    Bytes all(kTsPacketBytes, std::byte{0xFF});
    const bool has_pcr = pcr != kNoPcr;
    store_u8(all.data(), kTsSync);
    store_u16(all.data() + 1, (begins_unit ? 0x4000U : 0U) | pid);
    store_u8(all.data() + 3, (has_pcr ? 0x30U : 0x10U) | next_[pid]);
    next_[pid] = (next_[pid] + 1) & 0x0F;
    size_t at = 4;
    if (has_pcr) {
      const uint64_t base = pcr % kPcrModulus / 300;
      store_u8(all.data() + 4, 7);
      store_u8(all.data() + 5, 0x10);
      store_u32(all.data() + 6, base >> 1);
      store_u16(all.data() + 10, (base & 1) << 15 | 0x7E00 | pcr % 300);
      at = 12;
    }
    std::copy_n(content.begin(), std::min(content.size(), kTsPacketBytes - at), all.begin() + at);
    return all;
  }
  Bytes plain(uint16_t pid, uint64_t pcr = kNoPcr) { return packet(pid, {}, false, pcr); }
  // Returns the packets of a section.
  Bytes table(uint16_t pid, const Bytes& section) {
    Bytes rest(1);  // the pointer_field: the section follows
    rest.insert(rest.end(), section.begin(), section.end());
    Bytes all;
    for (bool begins = true; !rest.empty(); begins = false) {
      const Bytes one = packet(pid, rest, begins);
      all.insert(all.end(), one.begin(), one.end());
      rest.erase(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(
                                                  rest.size(), kTsPacketBytes - 4)));
    }
    return all;
  }
  // Sets the next continuity counter of a PID, as if another sender went on with it.
  void jump(uint16_t pid, uint8_t to) { next_[pid] = to & 0x0F; }

 private:
  std::map<uint16_t, uint8_t> next_;
};

}  // namespace bedplate::relay
