// Secret files: which files are accepted, and the errors about refused files.
#include "platform/secret_file.h"

#include <cstring>
#include <string>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/fake_root.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(SecretFile) {
  test::FakeRoot root;

  std::string file(const std::string& content, mode_t mode) {
    root.write("/secret", content);
    const std::string path = root.path() + "/secret";
    LONGS_EQUAL(0, chmod(path.c_str(), mode));
    return path;
  }
  std::string refused(const std::string& path, FilePrivacy privacy = FilePrivacy::kSecret) {
    auto read = read_secret_file(path, privacy, 8);
    CHECK(!read.ok());
    char text[1024];
    return format_error(read.error(), text, sizeof text);
  }
};

TEST(SecretFile, IsReadWholeWhereItIsForItsOwnerAlone) {
  STRCMP_EQUAL(
      "12345678",
      read_secret_file(file("12345678", 0600), FilePrivacy::kSecret, 8).take().text.c_str());
  CHECK(read_secret_file(file("1", 0400), FilePrivacy::kSecret, 8).ok());
  STRCMP_CONTAINS("it has more than 8 bytes", refused(file("123456789", 0600)).c_str());
  STRCMP_CONTAINS("/none: No such file or directory", refused(root.path() + "/none").c_str());
}

TEST(SecretFile, AShortSecretIsNotLeftBehindByAMove) {
  SecretText first(8);
  std::memcpy(first.text.data(), "12345678", 8);
  const SecretText second(std::move(first));
  POINTERS_EQUAL(nullptr, memmem(&first, sizeof first, "2345678", 7));
  STRCMP_EQUAL("12345678", second.text.c_str());
}

TEST(SecretFile, OthersMayNeitherReadNorWriteIt) {
  for (const mode_t mode : {0604U, 0602U, 0620U, 0666U}) {
    const std::string path = file("1", mode);
    STRCMP_CONTAINS(("; chmod 600 " + path).c_str(), refused(path).c_str());
  }
  // The group may read a file of root, as with Debian's ssl-cert, but not a file of another user.
  const auto read = read_secret_file(file("1", 0640), FilePrivacy::kSecret, 8);
  CHECK_EQUAL(geteuid() == 0, read.ok());
}

TEST(SecretFile, AnybodyMayReadWhatIsOnlyTrusted) {
  CHECK(read_secret_file(file("1", 0644), FilePrivacy::kTrusted, 8).ok());
  STRCMP_CONTAINS("every user of this machine can write it (mode 0646)",
                  refused(file("1", 0646), FilePrivacy::kTrusted).c_str());
}

TEST(SecretFile, IsNoFifoWhichWouldHoldTheBoot) {
  const std::string path = root.path() + "/fifo";
  LONGS_EQUAL(0, mkfifo(path.c_str(), 0600));
  STRCMP_CONTAINS("it is not a regular file; name a file", refused(path).c_str());
  STRCMP_CONTAINS("it is not a regular file", refused(root.path()).c_str());
  LONGS_EQUAL(0, unlink(path.c_str()));
}

TEST(SecretFile, BelongsToRootOrTheUser) {
  if (geteuid() != 0) return;
  const std::string path = file("1", 0600);
  LONGS_EQUAL(0, chown(path.c_str(), 65534, 0));
  STRCMP_CONTAINS("it belongs to user 65534, who can read and change it", refused(path).c_str());
  CHECK(read_secret_file(path, FilePrivacy::kSecret, 8, "65534").ok());
}
