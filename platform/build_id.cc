#include "platform/build_id.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include <link.h>

namespace bedplate {
namespace {

constexpr size_t padded(size_t bytes) noexcept { return (bytes + 3) & ~size_t{3}; }

// dl_iterate_phdr visits the program itself first.
int read_notes(dl_phdr_info* info, size_t, void* into) {
  auto* id = static_cast<BuildId*>(into);
  for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    const auto* notes = reinterpret_cast<const std::byte*>(info->dlpi_addr + part.p_vaddr);
    for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= part.p_memsz;) {
      ElfW(Nhdr) note;
      std::memcpy(&note, notes + at, sizeof note);
      const std::byte* name = notes + at + sizeof note;
      const std::byte* value = name + padded(note.n_namesz);
      at += sizeof note + padded(note.n_namesz) + padded(note.n_descsz);
      if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != 4 || std::memcmp(name, "GNU", 4) != 0)
        continue;
      constexpr char kDigits[] = "0123456789abcdef";
      const size_t byte_count = std::min<size_t>(note.n_descsz, sizeof id->text / 2);
      for (size_t k = 0; k < byte_count; ++k) {
        const auto byte = static_cast<unsigned>(value[k]);
        id->text[2 * k] = kDigits[byte >> 4];
        id->text[2 * k + 1] = kDigits[byte & 15];
      }
      id->text[2 * byte_count] = '\0';
    }
  }
  return 1;
}

}  // namespace

BuildId build_id() noexcept {
  BuildId id;
  dl_iterate_phdr(&read_notes, &id);
  return id;
}

}  // namespace bedplate
