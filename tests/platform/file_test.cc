#include "platform/file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/death_test.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

bool is_open_descriptor(int fd) { return fcntl(fd, F_GETFD) >= 0; }

Fd open_null() { return Fd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

TEST_GROUP(Fd){};

TEST(Fd, ClosesAtTheEndOfItsLife) {
  int number = -1;
  {
    const Fd fd = open_null();
    number = fd.number();
    CHECK(fd.is_open());
    CHECK(is_open_descriptor(number));
  }
  CHECK_FALSE(is_open_descriptor(number));
}

TEST(Fd, NoneIsNotOpen) {
  Fd fd;
  CHECK_FALSE(fd.is_open());
  LONGS_EQUAL(-1, fd.number());
  fd.close();
}

TEST(Fd, MovesAndLeavesNothingBehind) {
  Fd first = open_null();
  const int number = first.number();
  Fd second(std::move(first));
  CHECK_FALSE(first.is_open());
  LONGS_EQUAL(number, second.number());
  Fd third = open_null();
  const int replaced = third.number();
  third = std::move(second);
  CHECK_FALSE(is_open_descriptor(replaced));
  CHECK_FALSE(second.is_open());
  LONGS_EQUAL(number, third.number());
  CHECK(is_open_descriptor(number));
}

TEST(Fd, MoveToItselfKeepsIt) {
  Fd fd = open_null();
  Fd& same = fd;
  fd = std::move(same);
  CHECK(fd.is_open());
  CHECK(is_open_descriptor(fd.number()));
}

TEST(Fd, ReleaseGivesItAway) {
  Fd fd = open_null();
  const int number = fd.release();
  CHECK_FALSE(fd.is_open());
  CHECK(is_open_descriptor(number));
  ::close(number);
}

TEST(Fd, BlockingIsSetAndTakenBack) {
  const Fd fd = open_null();
  set_blocking(fd.number(), false);
  CHECK((fcntl(fd.number(), F_GETFL) & O_NONBLOCK) != 0);
  set_blocking(fd.number(), true);
  CHECK((fcntl(fd.number(), F_GETFL) & O_NONBLOCK) == 0);
}

TEST_GROUP(File) {
  char directory[32] = "/tmp/bedplate-test-XXXXXX";
  std::string path;

  void setup() override {
    CHECK(mkdtemp(directory) != nullptr);
    path = std::string(directory) + "/file";
  }
  void teardown() override {
    unlink(path.c_str());
    rmdir(path.c_str());
    rmdir(directory);
  }
  void write_file(const char* text) {
    std::FILE* file = std::fopen(path.c_str(), "w");
    std::fputs(text, file);
    std::fclose(file);
  }
};

TEST(File, TextIsReadAndTerminated) {
  write_file("hello");
  char text[16];
  std::memset(text, 'z', sizeof text);
  LONGS_EQUAL(5, read_text_file(path.c_str(), text, sizeof text).value());
  STRCMP_EQUAL("hello", text);
}

TEST(File, TextLongerThanItsBufferIsCutOff) {
  write_file("hello");
  char text[4];
  LONGS_EQUAL(3, read_text_file(path.c_str(), text, sizeof text).value());
  STRCMP_EQUAL("hel", text);
  LONGS_EQUAL(0, read_text_file(path.c_str(), text, 1).value());
  STRCMP_EQUAL("", text);
}

TEST(File, MissingFileIsAnErrorThatNamesIt) {
  char text[4];
  const Result<size_t> result = read_text_file(path.c_str(), text, sizeof text);
  CHECK_FALSE(result.ok());
  STRCMP_EQUAL(("opening " + path).c_str(), result.error().doing);
  STRCMP_EQUAL("No such file or directory", result.error().answer);
}

TEST(File, ReadingADirectoryIsAnErrorThatNamesIt) {
  char text[4];
  const Result<size_t> result = read_text_file(directory, text, sizeof text);
  CHECK_FALSE(result.ok());
  STRCMP_EQUAL((std::string("reading ") + directory).c_str(), result.error().doing);
}

TEST(File, NoRoomForTheTerminatorIsAProgrammingError) {
  char text[1];
  BP_CHECK_DIES("assertion failed: capacity > 0", (void)read_text_file("/dev/null", text, 0));
}

TEST(File, NumberIsReadOrNothing) {
  write_file("1024\n");
  CHECK(read_number_file(path.c_str()) == uint64_t{1024});
  write_file("0");
  CHECK(read_number_file(path.c_str()) == uint64_t{0});
  write_file("none");
  CHECK_FALSE(read_number_file(path.c_str()).has_value());
  write_file("");
  CHECK_FALSE(read_number_file(path.c_str()).has_value());
  CHECK_FALSE(read_number_file("/nonexistent/file").has_value());
}

TEST(File, AFieldsNumberIsReadOrNothing) {
  write_file("MemFree: 7 kB\nMem:\t  12 kB\nMem: 13\nHuge 5\nName: x\n");
  CHECK(read_number_field(path.c_str(), "Mem") == uint64_t{12});
  CHECK(read_number_field(path.c_str(), "MemFree") == uint64_t{7});
  for (const char* field : {"Huge", "Name", "None", ""}) {
    CHECK_TEXT(!read_number_field(path.c_str(), field), field);
  }
  CHECK_FALSE(read_number_field("/nonexistent/file", "Mem").has_value());
}

TEST(File, DirectoryIsMadeOnce) {
  CHECK(ensure_directory(path.c_str(), 0700).ok());
  struct stat status {};
  LONGS_EQUAL(0, stat(path.c_str(), &status));
  CHECK(S_ISDIR(status.st_mode));
  LONGS_EQUAL(0700, status.st_mode & 0777);
  CHECK(ensure_directory(path.c_str(), 0700).ok());
}

TEST(File, DirectoryThatCannotBeMadeIsAnErrorWithACure) {
  write_file("a file");
  const Result<void> over_file = ensure_directory(path.c_str(), 0700);
  CHECK_FALSE(over_file.ok());
  const Result<void> two_levels = ensure_directory("/nonexistent/level", 0700);
  CHECK_FALSE(two_levels.ok());
  STRCMP_EQUAL("making the directory /nonexistent/level", two_levels.error().doing);
  STRCMP_EQUAL("No such file or directory", two_levels.error().answer);
  STRCMP_EQUAL("make it, or let this user write to the directory that it is to lie in",
               two_levels.error().cure);
}

TEST_GROUP(Lines) {
  std::string collected;

  void read(const std::string& content) {
    char path[] = "/tmp/bedplate-lines-XXXXXX";
    const Fd fd(mkstemp(path));
    LONGS_EQUAL(content.size(), write(fd.number(), content.data(), content.size()));
    collected.clear();
    const auto add = [](const char* line, void* into) {
      *static_cast<std::string*>(into) += std::string(line) + "|";
    };
    CHECK(read_lines(path, add, &collected).ok());
    unlink(path);
  }
};

TEST(Lines, ComeWithoutTheirNewlines) {
  read("one\n\ntwo\n");
  STRCMP_EQUAL("one||two|", collected.c_str());
}

TEST(Lines, MayBeMoreThanABufferHolds) {
  std::string content, expected;
  for (int i = 0; i < 2000; ++i) {
    content += "line " + std::to_string(i) + "\n";
    expected += "line " + std::to_string(i) + "|";
  }
  read(content);
  STRCMP_EQUAL(expected.c_str(), collected.c_str());
}

TEST(Lines, OneThatIsTooLongDoesNotHideTheOthers) {
  read("first\n" + std::string(10'000, 'x') + "\nlast\n");
  STRCMP_CONTAINS("first|", collected.c_str());
  STRCMP_CONTAINS("|last|", collected.c_str());
}

TEST(Lines, OfNoFileAreAnError) {
  const auto read = read_lines(
      "/nowhere/at/all", [](const char*, void*) {}, nullptr);
  CHECK_FALSE(read.ok());
  STRCMP_EQUAL("opening /nowhere/at/all", read.error().doing);
}
