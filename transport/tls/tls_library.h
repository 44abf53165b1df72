// The library behind TLS, OpenSSL 3: initialised once for the process, with no configuration file,
// no loaded modules, and no work at exit.
//
// All memory that it frees is wiped first: keys, data derived from them, plain text. A failed
// malloc is remembered for the thread, since not all of the library reports it. The callers choose
// the owner that memory is charged to (HeapOwnerScope). The library's memory of a thread is freed
// when the thread ends; its memory of the process stays.
#pragma once

#include <memory>

namespace bedplate {

// A deleter that calls a function of the library.
template <auto kFree>
struct TlsDelete {
  template <typename Object>
  void operator()(Object* object) const noexcept {
    kFree(object);
  }
};
template <typename Object, auto kFree>
using TlsPointer = std::unique_ptr<Object, TlsDelete<kFree>>;

// Called before anything else of the library; returns the same each time. False: there is no
// memory, or other code had used the library before. Threads: any.
[[nodiscard]] bool prepare_tls_library() noexcept;

// Returns the number of a failure that the library reported on this thread, and clears all of them;
// 0: none. If there are several, it returns the first that TLS itself reported, else the first.
// tls_error_text() returns the number's static text.
unsigned long take_tls_error() noexcept;
const char* tls_error_text(unsigned long error) noexcept;

// While a thread has sessions it caches some small blocks of the library's for the next record.
void begin_tls_session() noexcept;
void end_tls_session() noexcept;

// Whether malloc has failed for the library on this thread since the last call.
bool take_tls_refusal() noexcept;

}  // namespace bedplate
