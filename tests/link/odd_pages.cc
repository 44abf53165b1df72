// For a program that asks for pages of a size that no machine has.
#include <cstdint>

extern "C" const uint64_t bedplate_boot_page_bytes;
extern "C" const uint64_t bedplate_boot_page_bytes = 5000;
