// The files of a recording: their names, and which of them may be emptied.
//
// A recording in one file has the name PATH. With several files each has a number appended:
// PATH.000012. A new file gets the number after the last one, or the next one whose name is free.
// So the names are in the order of recording, independent of any clock. The next file exists
// beforehand, empty.
//
// A file is emptied only if its name still refers to it. A file that was moved away or removed no
// longer belongs to the recording.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "apps/services/planned_files.h"
#include "platform/result.h"

namespace bedplate::relay {

// Checks that the file `fd` is empty, or begins and ends as a transport stream; holes are allowed.
// Errors: the file cannot be examined, is a device, or has other content. Without a cure, except
// for a device: the caller adds it.
Result<void> check_is_recording(int fd) noexcept;

// Threads: the main thread before the seal, then only the recordings' thread.
class RecordingFiles {
 public:
  RecordingFiles(std::string path, uint32_t count);
  RecordingFiles(const RecordingFiles&) = delete;
  RecordingFiles& operator=(const RecordingFiles&) = delete;

  uint32_t count() const noexcept { return static_cast<uint32_t>(names_.size()); }
  // The keeper of file `index` for its plan, in the order of file numbers. path() of the first
  // keeper searches for existing files.
  FileKeeper& keeper(uint32_t index) noexcept { return keepers_[index]; }
  // The file's name. Before that search it is the name that the file gets if none exists.
  const std::string& name(uint32_t index) const noexcept { return names_[index]; }
  uint64_t number(uint32_t index) const noexcept { return numbers_[index]; }

  // Whether its name still refers to the file open as `fd`.
  bool is_still_there(uint32_t index, int fd) const noexcept;
  // Empties the file and renames it: it gets a number after the last one. It does not allocate.
  // Requires: is_still_there(), and several files. Errors: the file is unchanged, or empty under
  // its old name; a retry completes it.
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
  uint64_t last_number_ = 0;  // the highest that any of its files has or had
};

}  // namespace bedplate::relay
