// The library behind TLS, OpenSSL 3: made ready once for the process, without a file of
// configuration, without loading anything, and without work at exit.
//
// All memory that it frees is wiped first: keys, data derived from them, plain text. A refusal of
// malloc is remembered for the thread, since not all of the library passes it on. The callers
// choose the owner that memory is charged to (HeapOwnerScope): the library's memory of a thread
// goes when that ends, its memory of the process stays.
#pragma once

#include <memory>

namespace bedplate {

// Deletes by a function of the library's.
template <auto kFree>
struct TlsDelete {
  template <typename Object>
  void operator()(Object* object) const noexcept {
    kFree(object);
  }
};
template <typename Object, auto kFree>
using TlsPointer = std::unique_ptr<Object, TlsDelete<kFree>>;

// Before anything else of the library; returns the same each time. False: it has no memory, or
// others had used it before. Threads: any.
[[nodiscard]] bool prepare_tls_library() noexcept;

// Returns the library's last failure on this thread, which it then forgets: a number (0: nothing),
// with a static text.
unsigned long take_tls_error() noexcept;
const char* tls_error_text(unsigned long error) noexcept;

// While it has sessions a thread keeps some small blocks of the library's for the next record.
void begin_tls_session() noexcept;
void end_tls_session() noexcept;

// Whether malloc has refused the library anything on this thread since this was last asked.
bool take_tls_refusal() noexcept;

}  // namespace bedplate
