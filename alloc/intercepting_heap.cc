// The heap and the malloc family in one translation unit, for libbedplate-malloc.a.
//
// So malloc and free contain mimalloc's fast paths, as in mimalloc's own library, where they are
// aliases; in separate objects each call would be two. libbedplate.a has the heap alone
// (confined_mimalloc.cc): a program that links both archives, this one first, takes nothing from
// that object. new and delete are not here, because a program may define its own.
#include "alloc/confined_mimalloc.cc"

// Exported to the libraries of a dynamic program; the heap stays hidden (flags.mk).
#pragma GCC visibility push(default)
#include "alloc/interception.cc"
#pragma GCC visibility pop
