/* Bedplate's version, and the number of its interface. C and C++.
 *
 * Objects that were compiled against different interfaces do not fit together: they disagree about
 * a layout, a virtual function, or the parameters of a function. So an object that includes an
 * installed header refers to a symbol that has the number in its name, and the archive defines only
 * the symbol of its own number (version.cc). An object of another interface does not link; in a
 * library that a program loads, it is not loaded. run_program() and bp_main() compare the numbers
 * again (apps/program/interface_check.h), for services in other languages and for linkers that
 * ignore the reference. */
#ifndef BEDPLATE_VERSION_H
#define BEDPLATE_VERSION_H

/* `make install`, packages and --version read these lines. */
#define BP_VERSION_MAJOR 0
#define BP_VERSION_MINOR 1
#define BP_VERSION_PATCH 0
/* 0xMMmmpp */
#define BP_VERSION (BP_VERSION_MAJOR * 0x10000u + BP_VERSION_MINOR * 0x100u + BP_VERSION_PATCH)

/* Raised by one whenever compiled programs must be compiled again; CONTRIBUTING.md says when. */
#define BP_INTERFACE 2

#define BP_INTERFACE_SYMBOL_OF_(number) \
  bedplate_interface_##number##_compile_again_with_the_headers_of_this_archive
#define BP_INTERFACE_SYMBOL_OF(number) BP_INTERFACE_SYMBOL_OF_(number)
#define BP_INTERFACE_SYMBOL BP_INTERFACE_SYMBOL_OF(BP_INTERFACE)

#ifdef __cplusplus
extern "C" {
#endif

extern const char BP_INTERFACE_SYMBOL;

/* The reference. Each object has its own, so that the linker names the object. Nothing reads it:
 * `used` keeps it in the object, and `retain` in a program that leaves out unused sections. */
#ifdef __has_attribute
#if __has_attribute(retain)
__attribute__((used, retain)) static const char* const bp_interface_reference =
    &BP_INTERFACE_SYMBOL;
#endif
#endif

#ifdef __cplusplus
}

namespace bedplate {

// The version and the interface that code was compiled against.
struct CompiledAgainst {
  unsigned interface_number = BP_INTERFACE;
  unsigned version = BP_VERSION;
};

}  // namespace bedplate
#endif

#endif
