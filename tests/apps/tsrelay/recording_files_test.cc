// The files of a recording: their names, their order, and the check whether a file may be emptied.
#include "apps/tsrelay/recording_files.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/file.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::relay;

TEST_GROUP(RecordingFiles) {
  char directory[64] = "/tmp/bedplate-recording-XXXXXX";
  std::string path;

  void setup() override {
    CHECK(mkdtemp(directory) != nullptr);
    path = std::string(directory) + "/news.ts";
  }
  void teardown() override { std::filesystem::remove_all(directory); }

  void make(const std::string& file, const std::string& content) { std::ofstream(file) << content; }
  static std::string packets(size_t count) {
    std::string packet(188, 'x');
    packet[0] = 'G';
    std::string all;
    for (size_t i = 0; i < count; ++i) all += packet;
    return all;
  }
  // Returns the ends of the files' names, after "news.ts.".
  std::string names(RecordingFiles & files) {
    std::string all;
    for (uint32_t i = 0; i < files.count(); ++i) {
      auto its = files.keeper(i).path();
      CHECK(its.ok());
      STRCMP_EQUAL(its.value().c_str(), files.name(i).c_str());
      all += (i == 0 ? "" : " ") + its.value().substr(path.size() + 1);
    }
    return all;
  }
  std::string said_of(const std::string& content) {
    make(path, content);
    const Fd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
    const auto checked = check_is_recording(fd.number());
    return checked.ok() ? "" : checked.error().answer;
  }
};

TEST(RecordingFiles, OneIsCalledAsTheRecording) {
  RecordingFiles files(path, 1);
  auto its = files.keeper(0).path();
  CHECK(its.ok());
  STRCMP_EQUAL(path.c_str(), its.value().c_str());
}

TEST(RecordingFiles, ADeviceIsNotARecording) {
  RecordingFiles files("/dev/null", 1);
  const Fd device(open("/dev/null", O_RDWR | O_CLOEXEC));
  const auto checked = files.keeper(0).check(device.number());
  CHECK(!checked.ok());
  STRCMP_EQUAL("it is a device, not a file", checked.error().answer);
  STRCMP_EQUAL("name a file", checked.error().cure);
}

TEST(RecordingFiles, SeveralHaveNumbersInTheOrderOfTheirNames) {
  RecordingFiles files(path, 3);
  STRCMP_EQUAL("000000 000001 000002", names(files).c_str());
}

TEST(RecordingFiles, TheYoungestThatAreThereAreTakenAndNewOnesComeBehind) {
  for (const char* number : {"000007", "3", "000004", "000009"}) make(path + "." + number, "");
  for (const char* other : {"x", "12x", "", "-1"}) make(path + "." + other, "");
  make(path + "x.000044", "");
  RecordingFiles files(path, 3);
  STRCMP_EQUAL("000004 000007 000009", names(files).c_str());
  RecordingFiles more(path, 6);
  STRCMP_EQUAL("3 000004 000007 000009 000010 000011", names(more).c_str());
  LONGS_EQUAL(3, more.number(0));
  LONGS_EQUAL(11, more.number(5));
}

TEST(RecordingFiles, OneThatIsBegunAnewIsEmptyAndTheLastOfAll) {
  for (const char* number : {"000000", "000001"}) make(path + "." + number, packets(2));
  RecordingFiles files(path, 2);
  STRCMP_EQUAL("000000 000001", names(files).c_str());
  make(path + ".000002", "somebody else's");
  const Fd fd(open(files.name(0).c_str(), O_RDWR | O_CLOEXEC));
  CHECK(files.is_still_there(0, fd.number()));
  CHECK(files.begin_anew(0, fd.number()).ok());
  LONGS_EQUAL(3, files.number(0));
  CHECK(!std::filesystem::exists(path + ".000000"));
  LONGS_EQUAL(0, std::filesystem::file_size(path + ".000003"));
  LONGS_EQUAL(15, std::filesystem::file_size(path + ".000002"));
  CHECK(files.is_still_there(0, fd.number()));
}

TEST(RecordingFiles, OneThatWasMovedAwayOrRemovedIsNotOurs) {
  make(path + ".000000", packets(2));
  RecordingFiles files(path, 2);
  names(files);
  const Fd fd(open(files.name(0).c_str(), O_RDWR | O_CLOEXEC));
  CHECK(files.is_still_there(0, fd.number()));
  std::filesystem::rename(path + ".000000", path + ".kept");
  CHECK(!files.is_still_there(0, fd.number()));
  make(path + ".000000", "another file");
  CHECK(!files.is_still_there(0, fd.number()));
}

TEST(RecordingFiles, OneThatCannotBeRenamedIsToldWithTheCure) {
  make(path + ".000000", packets(2));
  RecordingFiles files(path, 2);
  names(files);
  const Fd fd(open(files.name(0).c_str(), O_RDWR | O_CLOEXEC));
  std::filesystem::remove(path + ".000000");
  const auto begun = files.begin_anew(0, fd.number());
  CHECK(!begun.ok());
  STRCMP_CONTAINS("news.ts.000000 of a recording to ", begun.error().doing);
  LONGS_EQUAL(0, files.number(0));
}

TEST(RecordingFiles, NothingButATransportStreamIsTakenForARecording) {
  const std::string hole(188, '\0');
  STRCMP_EQUAL("", said_of("").c_str());
  STRCMP_EQUAL("", said_of(packets(1)).c_str());
  STRCMP_EQUAL("", said_of(packets(100)).c_str());
  STRCMP_EQUAL("", said_of(packets(40) + packets(1).substr(0, 100)).c_str());  // torn at the end
  STRCMP_EQUAL("", said_of(hole + packets(40) + hole).c_str());  // writes that failed or were lost
  STRCMP_EQUAL("it has 1880 bytes that are not a transport stream",
               said_of(packets(9) + std::string(188, 'x')).c_str());
  for (const std::string& content :
       {std::string(4096, 'x'), std::string(1 << 20, '\0'), std::string("GNU"),
        std::string(300, 'G').replace(188, 1, "x"), packets(20) + std::string(188 * 40, 'x'),
        std::string(188, 'x') + packets(20)}) {
    STRCMP_CONTAINS("are not a transport stream", said_of(content).c_str());
  }
}
