// The lines of a record of a crash, in the log and in lent memory.
#include "platform/crash_record.h"

#include <csignal>
#include <cstring>
#include <string>
#include <string_view>

#include <sys/prctl.h>
#include <unistd.h>

#include "platform/build_id.h"
#include "platform/log.h"
#include "tests/support/death_test.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

CrashRecord record;
ucontext_t context;
int begun_count = 0;

void begun(void* count) noexcept { ++*static_cast<int*>(count); }
void write_shop(TextWriter& to) noexcept { to.text(", shop 7"); }

// A crash of this thread, here.
Crash crash_by(int number, int code, void* address = nullptr) {
  Crash crash;
  crash.number = number;
  crash.info.si_signo = number;
  crash.info.si_code = code;
  crash.info.si_addr = address;
  if (code <= 0) crash.info.si_pid = getpid();
  getcontext(&context);
  crash.context = &context;
  return crash;
}

void prepare() {
  prctl(PR_SET_NAME, "tester");
  prepare_crash_record();
  keep_crash_in(&record, &begun, &begun_count);
}

std::string text_of_record() { return {record.text, record.text_bytes.load()}; }

std::string line(const std::string& before_build) {
  return before_build + ", build " + build_id().text + "\n";
}

bool is_recorded_as(const Crash& crash, const std::string& before_build) {
  record_cause(crash);
  return text_of_record() == line(before_build);
}

}  // namespace

TEST_GROUP(CrashRecord){};

BP_PROBE(RecordOfAnAssertion) {
  prepare();
  name_crash_places(&write_shop);
  BP_PROBE_CHECK(record.crashed_ns.load() == 0 && begun_count == 0);
  constexpr std::string_view kWords = "bedplate: a.cc:1: assertion failed: x: y\n";
  write_last_line(kWords.data(), kWords.size());
  record_cause(crash_by(SIGABRT, SI_TKILL));
  BP_PROBE_CHECK(record.crashed_ns.load() != 0 && begun_count == 1);
  BP_PROBE_CHECK(text_of_record() == "a.cc:1: assertion failed: x: y\n" +
                                         line("signal 6 (ABRT) in thread tester, shop 7"));
}

TEST(CrashRecord, HasTheReasonThePlaceAndTheBuild) {
  const test::Ended ended = test::run_fresh("RecordOfAnAssertion");
  test::check_probe(ended, "RecordOfAnAssertion", __FILE__, __LINE__);
  STRCMP_CONTAINS("bedplate: error: crash: signal 6 (ABRT) in thread tester, shop 7, build ",
                  ended.text);
}

BP_PROBE(RecordOfAnOrigin) {
  prepare();
  void* const address = reinterpret_cast<void*>(0x1000);
  BP_PROBE_CHECK(is_recorded_as(crash_by(SIGSEGV, SEGV_MAPERR, address),
                                "signal 11 (SEGV) at address 0x1000 in thread tester"));
  BP_PROBE_CHECK(is_recorded_as(crash_by(SIGSEGV, SEGV_MAPERR),
                                "signal 11 (SEGV) at address 0x0 in thread tester"));
  BP_PROBE_CHECK(is_recorded_as(crash_by(SIGSEGV, SI_KERNEL), "signal 11 (SEGV) in thread tester"));
  BP_PROBE_CHECK(is_recorded_as(crash_by(SIGBUS, SI_USER), "signal 7 (BUS) in thread tester"));
  Crash sent = crash_by(SIGBUS, SI_USER);
  sent.info.si_pid = 4711;
  BP_PROBE_CHECK(is_recorded_as(sent, "signal 7 (BUS) from process 4711 in thread tester"));
  Crash refused = crash_by(SIGSYS, 1);
  refused.info.si_syscall = 62;
  BP_PROBE_CHECK(is_recorded_as(refused, "signal 31 (SYS) by system call 62 in thread tester"));
}

TEST(CrashRecord, TellsWhereTheSignalCameFrom) { BP_CHECK_PROBE(RecordOfAnOrigin); }

BP_PROBE(RecordOfCalls) {
  prepare();
  const Crash crash = crash_by(SIGABRT, SI_TKILL);
  record_cause(crash);
  const size_t cause_bytes = text_of_record().size();
  record_calls(crash);
  const std::string calls = text_of_record().substr(cause_bytes);
  BP_PROBE_CHECK(calls.starts_with("  called from ") && calls.ends_with("\n"));
  // Lines that do not fit are left out.
  for (int i = 0; i < 100; ++i) record_calls(crash);
  const std::string text = text_of_record();
  BP_PROBE_CHECK(text.size() > CrashRecord::kTextBytesMax / 2 && text.ends_with("\n"));
  BP_PROBE_CHECK(text.size() <= CrashRecord::kTextBytesMax);
}

TEST(CrashRecord, HasTheCallsThatFit) { BP_CHECK_PROBE(RecordOfCalls); }

BP_PROBE(RecordThatIsForgotten) {
  prepare();
  static CrashRecord other;
  forget_crash_record(&other);
  BP_PROBE_CHECK(is_recorded_as(crash_by(SIGBUS, SI_USER), "signal 7 (BUS) in thread tester"));
  forget_crash_record(&record);
  record_cause(crash_by(SIGILL, SI_USER));
  BP_PROBE_CHECK(text_of_record() == line("signal 7 (BUS) in thread tester"));
  BP_PROBE_CHECK(begun_count == 1);
}

TEST(CrashRecord, OnceForgottenStaysAsItIs) {
  const test::Ended ended = test::run_fresh("RecordThatIsForgotten");
  test::check_probe(ended, "RecordThatIsForgotten", __FILE__, __LINE__);
  STRCMP_CONTAINS("crash: signal 4 (ILL)", ended.text);
}
