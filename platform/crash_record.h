// The record of a crash: the reason, the thread, the place, the build, and the calls.
//
//     bedplate: till.cc:55: assertion failed: change >= 0; this is a defect in the program...
//     bedplate: error: crash: signal 6 (ABRT) in thread main, shard main, service till, build a3...
//     bedplate: error:   called from /usr/bin/bedplate 0x56054f
//
// The log gets these lines, and so does memory that the program lends: other processes can read it
// after the crash. record_cause() and record_calls() are steps of the handler of crashes
// (crash_handler.h).
//
// Threads: the crashed one records; the main thread calls the other functions before. Nothing is
// allocated, and no lock is taken, except by record_calls(): the loader's, and the unwinder's.
#pragma once

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>

#include <ucontext.h>

#include "platform/text_writer.h"

namespace bedplate {

// A crash, as its signal tells it.
struct Crash {
  int number = 0;  // of the signal
  siginfo_t info = {};
  const ucontext_t* context = nullptr;  // what it interrupted
};

// Memory for a record. Other processes may read it.
struct CrashRecord {
  static constexpr size_t kTextBytesMax = 8176;

  std::atomic<uint64_t> crashed_ns{0};  // realtime_ns(); 0: there was no crash
  std::atomic<uint64_t> text_bytes{0};  // grows with the text, and is stored after it, with release
  char text[kTextBytesMax] = {};        // lines, each with its newline; too many are left out
};
static_assert(sizeof(CrashRecord) == 8192);

// Fetches what a record needs and a signal handler may not ask for. Called before a crash.
void prepare_crash_record() noexcept;

// From now on a crash is also recorded in `record`; `begun(context)` is called once its first lines
// are there. One record is lent at a time: a later one replaces it. If a write to it crashes, as to
// a mapped file that was truncated, it gets no more lines.
// Ownership: `record` and `context` stay until forget_crash_record().
void keep_crash_in(CrashRecord* record, void (*begun)(void* context) noexcept,
                   void* context) noexcept;
// Ends keep_crash_in(); does nothing if another record, or none, is lent.
void forget_crash_record(const CrashRecord* record) noexcept;

// Adds to a record which part of the program the crashing thread works for: ", shard main, service
// till". It is called on that thread, in a signal handler.
using CrashPlaceWriter = void (*)(TextWriter& to) noexcept;
// From now on records have the place that `write` writes.
void name_crash_places(CrashPlaceWriter write) noexcept;

// Records the reason, the signal, the thread, the place and the build.
void record_cause(const Crash& crash) noexcept;
// Records the calls that led to the crash, innermost first, 24 at most: FILE and OFFSET for
// `addr2line -Cfpe FILE OFFSET`.
void record_calls(const Crash& crash) noexcept;

}  // namespace bedplate
