// A directory that stands in for a machine's root: a test writes its files of /proc and /sys.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include <stdlib.h>

namespace bedplate::test {

// The constructor creates the directory, and the destructor removes it with its files.
class FakeRoot {
 public:
  FakeRoot() : path_(mkdtemp(template_)) {}
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;
  ~FakeRoot() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const noexcept { return path_; }

  void write(const std::string& file, const std::string& text) {
    const std::filesystem::path target(path_ + file);
    std::error_code ignored;
    std::filesystem::create_directories(target.parent_path(), ignored);
    std::ofstream(target) << text;
  }

 private:
  char template_[32] = "/tmp/bedplate-root-XXXXXX";
  std::string path_;
};

}  // namespace bedplate::test
