#include "platform/result.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "tests/support/death_test.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// Counts its live objects. Only movable.
struct Tracked {
  explicit Tracked(int* live_count) : live(live_count) { ++*live; }
  Tracked(Tracked&& other) noexcept : live(other.live) { ++*live; }
  Tracked(const Tracked&) = delete;
  ~Tracked() { --*live; }
  int* live;
};

Error some_error() {
  Error error;
  return error.set_doing("doing").set_answer("answer").set_cure("cure");
}

Result<int> half_of(int number) {
  if (number % 2 != 0) return some_error();
  return number / 2;
}

Result<void> half_twice(int number, bool* reached_end) {
  BP_TRY(half_of(number));
  BP_TRY(half_of(number / 2));
  *reached_end = true;
  return {};
}

}  // namespace

TEST_GROUP(Error){};

TEST(Error, HasThreePartsInOneMessage) {
  char text[1024];
  STRCMP_EQUAL("doing: answer; cure", format_error(some_error(), text, sizeof text));
}

TEST(Error, LeavesOutWhatIsEmptyWithItsSeparator) {
  char text[64];
  Error error;
  STRCMP_EQUAL("", format_error(error, text, sizeof text));
  error.set_doing("doing");
  STRCMP_EQUAL("doing", format_error(error, text, sizeof text));
  error.set_cure("cure");
  STRCMP_EQUAL("doing; cure", format_error(error, text, sizeof text));
}

TEST(Error, PartsAreFormattedAndMayBeReplaced) {
  Error error = some_error();
  error.set_doing("opening %s", "f").set_answer("%d of %d", 1, 2).set_cure("try %c", 'x');
  STRCMP_EQUAL("opening f", error.doing);
  STRCMP_EQUAL("1 of 2", error.answer);
  STRCMP_EQUAL("try x", error.cure);
}

TEST(Error, OverlongPartsAreCutOffAndTerminated) {
  const std::string longest(5000, 'x');
  Error error;
  error.set_doing("%s", longest.c_str());
  error.set_answer("%s", longest.c_str());
  error.set_cure("%s", longest.c_str());
  LONGS_EQUAL(sizeof error.doing - 1, std::strlen(error.doing));
  LONGS_EQUAL(sizeof error.answer - 1, std::strlen(error.answer));
  LONGS_EQUAL(sizeof error.cure - 1, std::strlen(error.cure));
  char text[10];
  LONGS_EQUAL(9, std::strlen(format_error(error, text, sizeof text)));
}

TEST(Error, TakesTheTextOfErrno) {
  errno = ENOENT;
  const Error error = error_from_errno("opening %s", "f");
  STRCMP_EQUAL("opening f", error.doing);
  STRCMP_EQUAL("No such file or directory", error.answer);
  CHECK(error.kind == ErrorKind::kSystem);
  STRCMP_EQUAL("unknown error", Error().set_answer_errno(99999).answer);
}

TEST(Error, KindIsTheExitCode) {
  LONGS_EQUAL(1, static_cast<int>(ErrorKind::kSystem));
  LONGS_EQUAL(2, static_cast<int>(ErrorKind::kConfiguration));
}

TEST_GROUP(Result){};

TEST(Result, HoldsAValue) {
  Result<int> result = half_of(8);
  CHECK(result.ok());
  CHECK(static_cast<bool>(result));
  LONGS_EQUAL(4, result.value());
  result.value() = 5;
  LONGS_EQUAL(5, result.take());
}

TEST(Result, HoldsAnError) {
  const Result<int> result = half_of(7);
  CHECK_FALSE(result.ok());
  CHECK_FALSE(static_cast<bool>(result));
  STRCMP_EQUAL("answer", result.error().answer);
}

TEST(Result, OfNothingHoldsAnErrorOrNot) {
  const Result<void> good;
  const Result<void> bad = some_error();
  CHECK(good.ok());
  CHECK_FALSE(bad.ok());
  STRCMP_EQUAL("cure", bad.error().cure);
}

TEST(Result, DestroysItsValueOnceHoweverItWasMoved) {
  int live = 0;
  {
    Result<Tracked> result = Tracked(&live);
    LONGS_EQUAL(1, live);
    Result<Tracked> moved = std::move(result);
    LONGS_EQUAL(2, live);  // the moved-from object is still alive
    const Tracked taken = moved.take();
    LONGS_EQUAL(3, live);
  }
  LONGS_EQUAL(0, live);
  {
    Result<Tracked> failed = some_error();
    const Result<Tracked> moved = std::move(failed);
    CHECK_FALSE(moved.ok());
  }
  LONGS_EQUAL(0, live);
}

TEST(Result, TryReturnsTheFirstError) {
  bool reached_end = false;
  CHECK_FALSE(half_twice(7, &reached_end).ok());
  CHECK_FALSE(half_twice(6, &reached_end).ok());
  CHECK_FALSE(reached_end);
  CHECK(half_twice(8, &reached_end).ok());
  CHECK(reached_end);
}

TEST(Result, AskingForWhatIsNotThereStopsTheProcess) {
  Result<int> good = half_of(8);
  Result<int> bad = half_of(7);
  const Result<void> nothing;
  BP_CHECK_DIES("assertion failed: !ok_", (void)good.error());
  BP_CHECK_DIES("assertion failed: ok_", (void)bad.value());
  BP_CHECK_DIES("assertion failed: ok_", (void)bad.take());
  BP_CHECK_DIES("assertion failed: !ok_", (void)nothing.error());
}

// When descriptors run out, the cure names their limit and not the file that was being opened.
TEST(Error, DescriptorsThatRunOutAreToldAsThat) {
  for (const int number : {EMFILE, ENFILE}) {
    Error error = some_error();
    error.set_answer_errno(number).set_cure("choose a directory that may be written to");
    STRCMP_CONTAINS(
        number == EMFILE ? "raise the limit of open files, which is " : "raise sysctl fs.file-max",
        error.cure);
  }
  Error other = some_error();
  STRCMP_EQUAL("choose", other.set_answer_errno(EACCES).set_cure("choose").cure);
}
