// The heap, and the malloc family in front of it, as one translation unit: libbedplate-malloc.a's.
//
// So malloc and free hold mimalloc's fast paths themselves, as they do in mimalloc's own library,
// where the names are aliases; across an object's border each call would be two. libbedplate.a has
// the heap alone (confined_mimalloc.cc): a program that links both archives, this one first, takes
// nothing of that object. new and delete are not here: a program may have its own.
#include "alloc/confined_mimalloc.cc"

// Seen by the libraries of a dynamic program; the heap behind it stays hidden (flags.mk).
#pragma GCC visibility push(default)
#include "alloc/interception.cc"
#pragma GCC visibility pop
