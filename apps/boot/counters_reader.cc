#include "apps/boot/counters_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "apps/boot/counters_file.h"
#include "platform/text.h"

namespace bedplate {
namespace {

Error usage_error(const std::string& doing) {
  Error error;
  error.kind = ErrorKind::kConfiguration;
  error.set_doing("%s", doing.c_str());
  return error;
}

// The names of all appliances that have a counters file in `directory`.
Result<std::vector<std::string>> list_names(const std::string& directory) {
  DIR* handle = opendir(directory.c_str());
  if (handle == nullptr) {
    return error_from_errno("looking for appliances in %s", directory.c_str())
        .set_cure("start one (`bedplate run CONFIG`), or name its runtime directory with "
                  "--directory");
  }
  std::vector<std::string> names;
  while (const dirent* entry = readdir(handle)) {
    const std::string_view file(entry->d_name);
    if (!file.ends_with(kCountersSuffix)) continue;
    names.emplace_back(file.substr(0, file.size() - kCountersSuffix.size()));
  }
  closedir(handle);
  return names;
}

Result<std::string> choose_name(const std::string& directory) {
  auto names = list_names(directory);
  if (!names.ok()) return names.error();
  if (names.value().size() == 1) return names.value().front();
  if (names.value().empty()) {
    Error error;
    error.set_doing("looking for appliances in %s", directory.c_str());
    error.set_answer("none is running");
    error.set_cure("start one (`bedplate run CONFIG`), or name its runtime directory with "
                   "--directory");
    return error;
  }
  std::string all;
  for (const std::string& name : names.value()) add_word(&all, name);
  return usage_error("choosing an appliance in " + directory)
      .set_answer("there are %zu: %s", names.value().size(), all.c_str())
      .set_cure("name one: bedplate stats NAME");
}

// A text of the file ends where it ends, or with its field.
template <size_t kBytes>
std::string_view text_of_field(const char (&field)[kBytes]) noexcept {
  return {field, strnlen(field, kBytes)};
}

// Whether `bytes` from `offset` on lie in a file of `file_bytes`.
bool lies_in(uint64_t offset, uint64_t bytes, uint64_t file_bytes) noexcept {
  return offset <= file_bytes && bytes <= file_bytes - offset;
}

// Whether records lie in the file, with all that this build reads of each.
bool is_good(const CounterRecords& records, size_t known_bytes, uint64_t file_bytes) noexcept {
  return records.offset % 8 == 0 && records.record_bytes % 8 == 0 &&
         records.record_bytes >= known_bytes &&
         lies_in(records.offset, uint64_t{records.count} * records.record_bytes, file_bytes);
}

// Of "a|b|c": the first word; the rest stays.
std::string_view take_choice(std::string_view* words) noexcept {
  const size_t end = std::min(words->find('|'), words->size());
  const std::string_view word = words->substr(0, end);
  words->remove_prefix(std::min(end + 1, words->size()));
  return word;
}

}  // namespace

bool SeenCounter::is_number() const noexcept {
  return is(CounterKind::kCounter) || is(CounterKind::kGauge);
}

bool SeenCounter::is_histogram() const noexcept {
  return is(CounterKind::kHistogram) && step_bits == Histogram::kStepBits;
}

std::optional<std::string> SeenCounter::read_words() const {
  const bool is_state = is(CounterKind::kState);
  if (!is_state && !is(CounterKind::kFlags)) return {};
  uint64_t value = read();
  std::string text;
  std::string_view rest = words;
  for (uint64_t i = 0; i < 64 && !rest.empty(); ++i) {
    const std::string_view word = take_choice(&rest);
    if (is_state && i == value) return std::string(word);
    if (is_state || (value >> i & 1) == 0) continue;
    text += (text.empty() ? "" : " ") + std::string(word);
    value &= ~(uint64_t{1} << i);
  }
  if (is_state) return std::to_string(value);
  if (value != 0) text += (text.empty() ? "" : " ") + std::to_string(value);  // without a word
  return text.empty() ? "none" : text;
}

const SeenCounter* SeenSet::find(std::string_view counter) const noexcept {
  const auto found = std::find_if(counters.begin(), counters.end(),
                                  [&](const SeenCounter& one) { return one.name == counter; });
  return found == counters.end() ? nullptr : &*found;
}

std::optional<uint64_t> SeenSet::read(std::string_view counter) const noexcept {
  const SeenCounter* found = find(counter);
  if (found == nullptr) return {};
  return found->read();
}

CountersReader::CountersReader(CountersReader&& other) noexcept
    : fd_(std::move(other.fd_)),
      header_(std::exchange(other.header_, nullptr)),
      file_bytes_(other.file_bytes_),
      is_running_(other.is_running_) {}

CountersReader::~CountersReader() {
  if (header_ != nullptr) munmap(const_cast<CountersHeader*>(header_), file_bytes_);
}

const std::byte* CountersReader::record(const CounterRecords& records,
                                        uint32_t index) const noexcept {
  return reinterpret_cast<const std::byte*>(header_) + records.offset +
         uint64_t{index} * records.record_bytes;
}

// The description must lie in the file: another program may have written it.
bool CountersReader::is_consistent() const noexcept {
  const CountersHeader& header = *header_;
  if (header.file_bytes != file_bytes_ ||
      !is_good(header.sets, sizeof(CounterSetRecord), file_bytes_) ||
      !is_good(header.labels, sizeof(CounterLabelRecord), file_bytes_) ||
      !is_good(header.counters, sizeof(CounterRecord), file_bytes_)) {
    return false;
  }
  for (uint32_t i = 0; i < header.sets.count; ++i) {
    const auto& set = *reinterpret_cast<const CounterSetRecord*>(record(header.sets, i));
    if (uint64_t{set.first} + set.count > header.counters.count ||
        uint64_t{set.first_label} + set.label_count > header.labels.count ||
        set.values % sizeof(Counter) != 0 || set.values > file_bytes_) {
      return false;
    }
    for (uint32_t k = set.first; k < set.first + set.count; ++k) {
      const auto& one = *reinterpret_cast<const CounterRecord*>(record(header.counters, k));
      if (one.offset % sizeof(Counter) != 0 || one.bytes % sizeof(Counter) != 0 || one.bytes == 0 ||
          !lies_in(set.values + one.offset, one.bytes, file_bytes_)) {
        return false;
      }
    }
  }
  return true;
}

std::string_view CountersReader::appliance() const noexcept {
  return text_of_field(header_->appliance.text);
}

bool CountersReader::still_runs() const noexcept {
  struct flock lock {};  // asks who is in the way, takes nothing
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  return fcntl(fd_.number(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

std::vector<SeenSet> CountersReader::sets() const {
  std::vector<SeenSet> all;
  for (uint32_t i = 0; i < header_->sets.count; ++i) {
    const auto& set = *reinterpret_cast<const CounterSetRecord*>(record(header_->sets, i));
    if (set.is_there.load(std::memory_order_acquire) == 0) continue;
    SeenSet& seen = all.emplace_back();
    seen.owner = text_of_field(set.owner.text);
    seen.name = text_of_field(set.name.text);
    seen.instance = text_of_field(set.instance.text);
    for (uint32_t k = set.first_label; k < set.first_label + set.label_count; ++k) {
      const auto& label = *reinterpret_cast<const CounterLabelRecord*>(record(header_->labels, k));
      seen.labels.emplace_back(text_of_field(label.name), text_of_field(label.value));
    }
    for (uint32_t k = set.first; k < set.first + set.count; ++k) {
      const auto& one = *reinterpret_cast<const CounterRecord*>(record(header_->counters, k));
      const auto* values = reinterpret_cast<const Counter*>(
          reinterpret_cast<const std::byte*>(header_) + set.values + one.offset);
      seen.counters.push_back({text_of_field(one.name),
                               text_of_field(one.kind),
                               text_of_field(one.unit),
                               text_of_field(one.help),
                               text_of_field(one.words),
                               {values, one.bytes / sizeof(Counter)},
                               one.step_bits});
    }
  }
  return all;
}

Result<CountersReader> CountersReader::open(const std::string& directory,
                                            const std::string& wanted) {
  std::string name = wanted;
  if (name.empty()) {
    auto chosen = choose_name(directory);
    if (!chosen.ok()) return chosen.error();
    name = chosen.take();
  }
  return open_file(counters_path(directory, name));
}

Result<CountersReader> CountersReader::open_file(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.is_open()) {
    return error_from_errno("reading counters: opening %s", path.c_str())
        .set_cure("start the appliance (`bedplate run CONFIG`), or name its runtime directory with "
                  "--directory, or the file with --from");
  }
  Error unusable;
  unusable.set_doing("reading counters from %s", path.c_str());
  struct stat status {};
  if (fstat(fd.number(), &status) != 0 ||
      status.st_size < static_cast<off_t>(sizeof(CountersHeader))) {
    return unusable.set_answer("the file has fewer bytes than a header of counters")
        .set_cure("name the counters file of an appliance, or wait until it has booted");
  }
  const auto bytes = static_cast<uint64_t>(status.st_size);
  void* mapping = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.number(), 0);
  if (mapping == MAP_FAILED) return unusable.set_answer_errno(errno);
  CountersReader reader(std::move(fd), static_cast<const CountersHeader*>(mapping), bytes);
  if (reader.header_->magic.load(std::memory_order_acquire) != kCountersMagic) {
    return unusable.set_answer("the file is not complete, or none of counters")
        .set_cure("wait until the appliance has booted; of one of an older release its own "
                  "`bedplate` reads them");
  }
  if (reader.header_->format != kCountersFormat) {
    return unusable
        .set_answer("it has format %u, this program reads %u", reader.header_->format,
                    kCountersFormat)
        .set_cure("use the `bedplate` that the appliance runs");
  }
  if (!reader.is_consistent()) {
    return unusable.set_answer("its records lead out of the file")
        .set_cure("copy the file whole; otherwise it was spoiled, or is none of counters");
  }
  reader.is_running_ = reader.still_runs();
  return reader;
}

}  // namespace bedplate
