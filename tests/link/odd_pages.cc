// What a program defines that wants pages which no machine has.
#include <cstdint>

extern "C" const uint64_t bedplate_boot_page_bytes;
extern "C" const uint64_t bedplate_boot_page_bytes = 5000;
