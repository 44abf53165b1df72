// The files of a recording: what they are called, and what may be emptied.
//
// One file is called as the recording. Of several each has a number behind that: PATH.000012. A
// file that is begun gets the number after the last one, so their order is that of their names, and
// no clock has a say in it. The one that is begun next is there beforehand, empty.
//
// A file is emptied only where it is still the one at its name: one that was moved away or removed
// belongs to whoever did that.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "apps/boot/planned_files.h"
#include "platform/result.h"

namespace bedplate::relay {

// Whether the file `fd` is empty, or begins and ends as a transport stream does, holes aside.
// Errors: the answer; what may be done about it is the caller's to say.
Result<void> check_is_recording(int fd) noexcept;

// Threads: the main thread before the seal, then one: that of the recordings.
class RecordingFiles {
 public:
  RecordingFiles(std::string path, uint32_t count);
  RecordingFiles(const RecordingFiles&) = delete;
  RecordingFiles& operator=(const RecordingFiles&) = delete;

  uint32_t count() const noexcept { return static_cast<uint32_t>(names_.size()); }
  // Of a plan: file `index`, in the order of their numbers. The first one's path() looks which
  // files there are.
  FileKeeper& keeper(uint32_t index) noexcept { return keepers_[index]; }
  // Before the keepers are asked: what they would be called where there is none yet.
  const std::string& name(uint32_t index) const noexcept { return names_[index]; }
  uint64_t number(uint32_t index) const noexcept { return numbers_[index]; }

  // Whether the file at its name is still the one that is open as `fd`.
  bool is_still_there(uint32_t index, int fd) const noexcept;
  // Empties the file and gives it the number after the last one. Nothing is allocated.
  // Requires: is_still_there(). Errors: it is as it was, or empty under its old name; another try
  // does the rest.
  Result<void> begin_anew(uint32_t index, int fd) noexcept;

 private:
  class Keeper final : public FileKeeper {
   public:
    Keeper(RecordingFiles& files, uint32_t index) noexcept : files_(files), index_(index) {}
    Result<std::string> path() override;
    Result<void> check(int fd) override;

   private:
    RecordingFiles& files_;
    const uint32_t index_;
  };

  Result<void> look();

  const std::string path_;
  std::vector<std::string> names_;
  std::vector<uint64_t> numbers_;
  std::deque<Keeper> keepers_;
  uint64_t last_number_ = 0;  // that any of its files has, or had
};

}  // namespace bedplate::relay
