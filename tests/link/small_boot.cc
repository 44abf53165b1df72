// Linked into a program that requests less than the smallest segment 0.
#include <cstdint>

extern "C" const uint64_t bedplate_boot_bytes;
extern "C" const uint64_t bedplate_boot_bytes = 1000;
