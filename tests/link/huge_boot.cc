// Linked into a program whose heap is on hugepages before main.
#include <cstdint>

extern "C" const uint64_t bedplate_boot_bytes;
extern "C" const uint64_t bedplate_boot_bytes = 24 << 20;
extern "C" const uint64_t bedplate_boot_page_bytes;
extern "C" const uint64_t bedplate_boot_page_bytes = 2 << 20;
