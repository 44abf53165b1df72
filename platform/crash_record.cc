#include "platform/crash_record.h"

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string_view>

#include <sys/prctl.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/build_id.h"
#include "platform/call_stack.h"
#include "platform/clock.h"
#include "platform/log.h"

namespace bedplate {
namespace {

constinit BuildId crashed_build = {};
constinit CrashPlaceWriter write_place = nullptr;

struct LentRecord {
  std::atomic<CrashRecord*> record{nullptr};
  void (*begun)(void* context) noexcept = nullptr;
  void* context = nullptr;
  size_t text_bytes = 0;  // of this crash, in the record
};
constinit LentRecord lent_record = {};

// The lent record, which is not lent meanwhile: if its use crashes, it is not used again.
class RecordUse {
 public:
  RecordUse() noexcept : record_(lent_record.record.exchange(nullptr)) {}
  RecordUse(const RecordUse&) = delete;
  RecordUse& operator=(const RecordUse&) = delete;
  ~RecordUse() { lent_record.record.store(record_); }
  CrashRecord* record() const noexcept { return record_; }

 private:
  CrashRecord* record_;
};

void add_line(CrashRecord& to, std::string_view line) noexcept {
  size_t& used = lent_record.text_bytes;
  if (line.size() + 1 > CrashRecord::kTextBytesMax - used) return;
  std::memcpy(to.text + used, line.data(), line.size());
  to.text[used + line.size()] = '\n';
  used += line.size() + 1;
  to.text_bytes.store(used, std::memory_order_release);
}

void record_call(const char* line) {
  BP_LOG_ERROR("%s", line);
  const RecordUse use;
  if (use.record() != nullptr) add_line(*use.record(), line);
}

// "bedplate: the reason" without the name of the program, which the log puts before it.
std::string_view reason() noexcept {
  const std::string_view words = last_words();
  const size_t colon = words.find(": ");
  return colon == words.npos ? words : words.substr(colon + 2);
}

// How the signal came: " from process 42", " at address 0x1000".
void write_origin(const Crash& crash, char* to, size_t to_bytes) noexcept {
  const siginfo_t& info = crash.info;
  to[0] = '\0';
  if (info.si_code <= 0) {  // it was sent: an assertion's abort() does that, too
    if (info.si_pid != getpid()) {
      std::snprintf(to, to_bytes, " from process %d", static_cast<int>(info.si_pid));
    }
  } else if (crash.number == SIGSYS) {
    std::snprintf(to, to_bytes, " by system call %d", info.si_syscall);
  } else if (info.si_code != SI_KERNEL) {  // SI_KERNEL: no address, as for a non-canonical one
    std::snprintf(to, to_bytes, " at address 0x%" PRIxPTR,
                  reinterpret_cast<uintptr_t>(info.si_addr));
  }
}

}  // namespace

void prepare_crash_record() noexcept {
  crashed_build = build_id();
  prepare_call_stack();
}

void keep_crash_in(CrashRecord* record, void (*begun)(void* context) noexcept,
                   void* context) noexcept {
  BP_ASSERT(record != nullptr && begun != nullptr);
  lent_record.begun = begun;
  lent_record.context = context;
  lent_record.record.store(record);
}

void forget_crash_record(const CrashRecord* record) noexcept {
  auto* lent = const_cast<CrashRecord*>(record);
  lent_record.record.compare_exchange_strong(lent, nullptr);
}

void name_crash_places(CrashPlaceWriter write) noexcept { write_place = write; }

void record_cause(const Crash& crash) noexcept {
  char origin[48];
  write_origin(crash, origin, sizeof origin);
  char thread[16] = {};
  prctl(PR_GET_NAME, thread, 0, 0, 0);
  char place[192];
  TextWriter writer({place, sizeof place});
  if (write_place != nullptr) write_place(writer);
  char line[512];
  std::snprintf(line, sizeof line, "signal %d (%s)%s in thread %s%.*s, build %s", crash.number,
                sigabbrev_np(crash.number), origin, thread, static_cast<int>(writer.bytes()), place,
                crashed_build.text);
  BP_LOG_ERROR("crash: %s", line);
  const RecordUse use;
  if (use.record() == nullptr) return;
  lent_record.text_bytes = 0;
  if (!reason().empty()) add_line(*use.record(), reason());
  add_line(*use.record(), line);
  use.record()->crashed_ns.store(realtime_ns(), std::memory_order_release);
  lent_record.begun(lent_record.context);
}

void record_calls(const Crash& crash) noexcept {
  for_each_interrupted_call(*crash.context, &record_call);
}

}  // namespace bedplate
