// The library behind TLS, OpenSSL 3, as it is used here: made ready once for the process, without a
// file of configuration, without anything that it would load, and without work at exit.
//
// What it frees is wiped first, whatever it was: keys, what was derived from them, plain text. What
// malloc refuses it is remembered for the thread, since not all of the library passes that on.
// Where memory is charged to is the business of the callers (HeapOwnerScope): what a thread keeps
// in the library for itself goes when it ends, what the process keeps stays.
//
// Tested by tests/transport/tls/tls_session_test.cc.
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

// What the library says of the last failure on this thread, and forgets: its number (0: nothing),
// of which the text is static.
unsigned long take_tls_error() noexcept;
const char* tls_error_text(unsigned long error) noexcept;

// While it has sessions a thread keeps some small blocks of the library's for the next record.
void begin_tls_session() noexcept;
void end_tls_session() noexcept;

// Whether malloc has refused the library anything on this thread since this was last asked.
bool take_tls_refusal() noexcept;

}  // namespace bedplate
