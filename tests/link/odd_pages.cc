// Linked into a program that requests a page size that no machine has.
#include <cstdint>

extern "C" const uint64_t bedplate_boot_page_bytes;
extern "C" const uint64_t bedplate_boot_page_bytes = 5000;
