#include "transport/dpdk/eal/pci_drivers.h"

#include <cstdint>
#include <cstring>

#include <link.h>

#include "platform/text_words.h"

namespace bedplate {
namespace {

constexpr std::string_view kMark = "PMD_INFO_STRING= ";
constexpr std::string_view kIdentities = "\"pci_ids\"";
constexpr uint32_t kAny = 0xffff;  // in a driver's text

struct Search {
  const PciIdentity& identity;
  bool is_found = false;
};

// AddressSanitizer would report reads of the gaps between constants.
[[gnu::no_sanitize_address]] bool begins_here(const char* text) noexcept {
  for (size_t i = 0; i < kMark.size(); ++i) {
    if (text[i] != kMark.data()[i]) return false;
  }
  return true;
}

[[gnu::no_sanitize_address]] void look_in(const char* text, size_t bytes, Search& search) noexcept {
  if (bytes < kMark.size()) return;
  for (const char* const end = text + bytes - kMark.size(); text <= end; ++text) {
    // The constant in this file is only the mark, without identities.
    if (begins_here(text) && is_driver_for(text, search.identity)) search.is_found = true;
  }
}

int look_in_program(dl_phdr_info* info, size_t, void* context) noexcept {
  for (size_t i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & (PF_R | PF_W)) != PF_R) continue;
    // The dynamic linker gives the address as a number.
    look_in(reinterpret_cast<const char*>(info->dlpi_addr + part.p_vaddr), part.p_filesz,
            *static_cast<Search*>(context));
  }
  return 0;
}

}  // namespace

bool is_driver_for(std::string_view driver_text, const PciIdentity& identity) noexcept {
  const size_t list = driver_text.find(kIdentities);
  if (!driver_text.starts_with(kMark) || list == std::string_view::npos) return false;
  const uint32_t is[] = {identity.vendor, identity.device, identity.subsystem_vendor,
                         identity.subsystem_device};
  uint32_t count = 0;
  bool is_match = true;
  std::string_view rest = driver_text.substr(list + kIdentities.size());
  while (!rest.empty()) {
    const auto number = try_take_number<uint32_t>(&rest);
    if (!number) {
      rest.remove_prefix(1);
      continue;
    }
    is_match = is_match && (*number == is[count] || *number == kAny);
    if (++count < std::size(is)) continue;
    if (is_match) return true;
    count = 0;
    is_match = true;
  }
  return false;
}

bool has_pci_driver(const PciIdentity& identity) noexcept {
  Search search{identity};
  dl_iterate_phdr(look_in_program, &search);
  return search.is_found;
}

}  // namespace bedplate
