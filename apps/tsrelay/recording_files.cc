#include "apps/tsrelay/recording_files.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <climits>
#include <cstdio>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apps/tsrelay/ts_packet_datapath.h"
#include "platform/text_words.h"

namespace bedplate::relay {
namespace {

// The number of packets checked at each end of a file.
constexpr uint64_t kPacketsSeen = 16;
// The most names taken by other files that are skipped at once.
constexpr int kNamesTaken = 64;
// ".000012", or a number of up to twenty digits, and the NUL.
constexpr size_t kNumberBytes = 24;
constexpr size_t kDigitsMax = 18;

// Called before the seal and after it: it does not allocate if `name` has the capacity.
void write_name(std::string_view path, uint64_t number, std::string* name) noexcept {
  char digits[kNumberBytes];
  const int count = std::snprintf(digits, sizeof digits, ".%06" PRIu64, number);
  name->assign(path);
  name->append(digits, static_cast<size_t>(count));
}

// Parses the 12 of "PATH.12". Returns false if `text` is no such number.
bool is_number(std::string_view text, uint64_t* number) noexcept {
  return text.size() <= kDigitsMax && parse_number(text, number);
}

// Returns 1 if the start of a packet is a transport stream's; 0: a hole; -1: neither.
int look_at_packet(std::span<const std::byte> packet) noexcept {
  if (load_u8(packet.data()) == kTsSync) return 1;
  const auto is_zero = [](std::byte byte) { return byte == std::byte{}; };
  return std::all_of(packet.begin(), packet.end(), is_zero) ? 0 : -1;
}

// Renames, and refuses if `to` exists. If the file system cannot do both in one step, it first
// checks for `to`.
int rename_to_new(const char* from, const char* to) noexcept {
  if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  struct stat there {};
  if (lstat(to, &there) == 0) return EEXIST;
  return rename(from, to) == 0 ? 0 : errno;
}

}  // namespace

Result<void> check_is_recording(int fd) noexcept {
  Error error = error_while("looking for a recording");
  struct stat status {};
  if (fstat(fd, &status) != 0) return error.set_answer_errno(errno);
  if (!S_ISREG(status.st_mode)) {
    return error.set_answer("it is a device, not a file").set_cure("name a file");
  }
  if (status.st_size == 0) return {};
  const auto size = static_cast<uint64_t>(status.st_size);
  const uint64_t packets = (size + kTsPacketBytes - 1) / kTsPacketBytes;  // the last may be torn
  bool has_packet = false;
  const auto are_good = [&](uint64_t begin, uint64_t end) {
    std::byte packet[kTsPacketBytes];
    for (uint64_t i = begin; i < end; ++i) {
      const auto bytes = pread(fd, packet, sizeof packet, static_cast<off_t>(i * kTsPacketBytes));
      if (bytes <= 0) return false;
      const int seen = look_at_packet(std::span(packet).first(static_cast<size_t>(bytes)));
      if (seen < 0) return false;
      has_packet |= seen > 0 && bytes == ssize_t{kTsPacketBytes};
    }
    return true;
  };
  const uint64_t first = std::min(packets, kPacketsSeen);
  if (are_good(0, first) && are_good(std::max(first, packets - first), packets) && has_packet) {
    return {};
  }
  return error.set_answer("it has %" PRIu64 " bytes that are not a transport stream", size);
}

RecordingFiles::RecordingFiles(std::string path, uint32_t count)
    : path_(std::move(path)), names_(count), numbers_(count) {
  BP_ASSERT(count > 0);
  for (uint32_t i = 0; i < count; ++i) {
    names_[i].reserve(path_.size() + kNumberBytes);
    numbers_[i] = i;
    write_name(path_, i, &names_[i]);
    keepers_.emplace_back(*this, i);
  }
  last_number_ = count - 1;
  if (count == 1) names_[0] = path_;
}

// Finds the youngest existing files, and names new files after them to fill up the number.
Result<void> RecordingFiles::look() {
  if (count() == 1) return {};
  const size_t slash = path_.rfind('/');
  const std::string directory = slash == 0 ? "/" : path_.substr(0, slash);
  const std::string prefix = path_.substr(slash + 1) + ".";
  std::vector<std::pair<uint64_t, std::string>> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> handle(opendir(directory.c_str()), &closedir);
  if (handle == nullptr && errno != ENOENT) {
    return error_from_errno("looking for the files of the recording %s", path_.c_str())
        .set_cure("make its directory readable, or name another one");
  }
  while (const dirent* entry = handle ? readdir(handle.get()) : nullptr) {
    const std::string_view name(entry->d_name);
    uint64_t number = 0;
    if (!name.starts_with(prefix) || !is_number(name.substr(prefix.size()), &number)) continue;
    found.emplace_back(number, path_ + "." + std::string(name.substr(prefix.size())));
  }
  std::sort(found.begin(), found.end());
  last_number_ = found.empty() ? ~uint64_t{0} : found.back().first;
  const size_t begin = found.size() - std::min<size_t>(found.size(), count());
  for (uint32_t i = 0; i < count(); ++i) {
    if (begin + i < found.size()) {
      numbers_[i] = found[begin + i].first;
      names_[i].assign(found[begin + i].second);
    } else {
      numbers_[i] = ++last_number_;
      write_name(path_, last_number_, &names_[i]);
    }
  }
  return {};
}

Result<std::string> RecordingFiles::Keeper::path() {
  if (index_ == 0) BP_TRY(files_.look());
  return files_.names_[index_];
}

Result<void> RecordingFiles::Keeper::check(int fd) {
  auto checked = check_is_recording(fd);
  if (checked.ok()) return {};
  Error error = checked.error();
  if (error.cure[0] != '\0') return error;
  return error.set_cure("name another file; or, if nobody needs it: rm %s",
                        files_.names_[index_].c_str());
}

bool RecordingFiles::is_still_there(uint32_t index, int fd) const noexcept {
  struct stat named {};
  struct stat open {};
  return stat(names_[index].c_str(), &named) == 0 && fstat(fd, &open) == 0 &&
         named.st_dev == open.st_dev && named.st_ino == open.st_ino;
}

// Truncates the file before it renames it: old content under a new number would seem the youngest.
Result<void> RecordingFiles::begin_anew(uint32_t index, int fd) noexcept {
  BP_ASSERT(count() > 1);
  const char* const name = names_[index].c_str();
  if (ftruncate(fd, 0) != 0) {
    return error_from_errno("emptying %s of a recording", name)
        .set_cure("check its file system, and the kernel's log");
  }
  int outcome = EEXIST;
  uint64_t number = last_number_;
  char wanted[PATH_MAX];
  for (int i = 0; i < kNamesTaken && outcome == EEXIST; ++i) {
    ++number;
    std::snprintf(wanted, sizeof wanted, "%s.%06" PRIu64, path_.c_str(), number);
    outcome = rename_to_new(name, wanted);
  }
  if (outcome != 0) {
    return error_while("renaming %s of a recording to %s", name, wanted)
        .set_answer_errno(outcome)
        .set_cure("make its directory writable by the user of this process");
  }
  last_number_ = numbers_[index] = number;
  names_[index].assign(wanted);
  return {};
}

}  // namespace bedplate::relay
