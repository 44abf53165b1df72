#include "apps/program/counters/remote_counters.h"

#include <algorithm>
#include <cstring>
#include <span>

#include <nlohmann/json.hpp>

#include "apps/control/control_request.h"
#include "platform/assert.h"
#include "platform/product.h"
#include "platform/text.h"

namespace bedplate {
namespace {

constexpr size_t kWordBytes = sizeof(uint64_t);
constexpr int kNoSuchMethod = static_cast<int>(ControlFault::kNoMethod);

struct ReadAnswer {
  uint64_t created_ns = 0;
  uint64_t now_ns = 0;
  uint64_t bytes = 0;  // the whole file's
  nlohmann::ordered_json words;
};

Error not_read(const std::string& source) {
  return error_while("reading counters through %s", source.c_str());
}

Error nonsense(const std::string& source) {
  return not_read(source)
      .set_answer("its answer contains no counters")
      .set_cure("check with `%s ctl ping` and the same --socket or --serial that it is an "
                "appliance's control socket or serial line",
                product().name);
}

Result<ReadAnswer> answer_of(const std::string& text, const std::string& source) {
  auto json = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!json.is_object()) return nonsense(source);
  if (json.contains("error") && json["error"].is_object() && json["error"].contains("message") &&
      json["error"]["message"].is_string()) {
    Error error = not_read(source);
    error.set_answer("%s",
                     printable(json["error"]["message"].get_ref<const std::string&>()).c_str());
    if (json["error"].contains("code") && json["error"]["code"] == kNoSuchMethod) {
      error.set_cure("an older release has no counters.read: read its counters file on its own "
                     "machine");
    }
    return error;
  }
  if (!json.contains("result") || !json["result"].is_object()) return nonsense(source);
  auto& result = json["result"];
  ReadAnswer answer;
  const auto take = [&](const char* key, uint64_t* to) {
    if (!result.contains(key) || !result[key].is_number_unsigned()) return false;
    *to = result[key].get<uint64_t>();
    return true;
  };
  if (!take("created_ns", &answer.created_ns) || !take("now_ns", &answer.now_ns) ||
      !take("bytes", &answer.bytes) || !result.contains("words") || !result["words"].is_array()) {
    return nonsense(source);
  }
  answer.words = std::move(result["words"]);
  return answer;
}

// Reads the format of write_counter_words() (apps/control/counter_words.h). Returns true if it has
// exactly as many words as `to`.
bool take_words(const nlohmann::ordered_json& items, std::span<uint64_t> to) {
  for (const auto& item : items) {
    uint64_t count = 1;
    if (item.is_string()) {
      const auto& text = item.get_ref<const std::string&>();
      count = (text.size() + kWordBytes - 1) / kWordBytes;
      if (count == 0 || count > to.size()) return false;
      to[count - 1] = 0;
      std::memcpy(to.data(), text.data(), text.size());
    } else if (item.is_number_unsigned()) {
      if (to.empty()) return false;
      to[0] = item.get<uint64_t>();
    } else if (item.is_number_integer()) {
      count = uint64_t{0} - static_cast<uint64_t>(item.get<int64_t>());
      if (count > to.size()) return false;
      std::fill_n(to.begin(), count, 0);
    } else {
      return false;
    }
    to = to.subspan(count);
  }
  return to.empty();
}

}  // namespace

Result<std::string> RemoteCounters::ask(uint64_t from, uint64_t bytes) {
  if (channel_ == nullptr) {
    BP_ASSERT(open_ != nullptr);
    BP_TRY_ASSIGN(channel_, open_());
  }
  std::string params = "{\"from\":" + std::to_string(from);
  if (bytes > 0) params += ",\"bytes\":" + std::to_string(bytes);
  auto answer = channel_->ask("counters.read", params + "}");
  if (!answer.ok()) channel_.reset();
  return answer;
}

Result<void> RemoteCounters::read_all() {
  BP_TRY_ASSIGN(const auto text, ask(0, 0));
  BP_TRY_ASSIGN(const ReadAnswer got, answer_of(text, source_));
  if (got.bytes % kWordBytes != 0 || got.bytes < sizeof(CountersHeader) ||
      got.bytes > CountersSnapshot::kBytesMax) {
    return nonsense(source_);
  }
  std::vector<uint64_t> words(got.bytes / kWordBytes);
  if (!take_words(got.words, words)) return nonsense(source_);
  words_ = std::move(words);
  created_ns_ = got.created_ns;
  now_ns_ = got.now_ns;
  return {};
}

Result<bool> RemoteCounters::read_again(uint64_t from, uint64_t bytes) {
  if (bytes == 0) return true;
  BP_TRY_ASSIGN(const auto text, ask(from, bytes));
  BP_TRY_ASSIGN(const ReadAnswer got, answer_of(text, source_));
  if (got.created_ns != created_ns_ || got.bytes != words_.size() * kWordBytes) return false;
  if (!take_words(got.words, std::span(words_).subspan(from / kWordBytes, bytes / kWordBytes))) {
    return nonsense(source_);
  }
  now_ns_ = got.now_ns;
  return true;
}

// Reads the sets first, so that the values of a set are at least as recent as its record. The
// offsets can be trusted: they come from the last good snapshot.
Result<bool> RemoteCounters::read_changes() {
  BP_ASSERT(words_.size() * kWordBytes >= sizeof(CountersHeader));  // read_all() has checked it
  const auto& header = *reinterpret_cast<const CountersHeader*>(words_.data());
  const uint64_t all = words_.size() * kWordBytes;
  const uint64_t sets = header.sets.offset;
  const uint64_t set_bytes = uint64_t{header.sets.count} * header.sets.record_bytes;
  const uint64_t values = std::min(alert_records(header).offset, all);
  auto is_same = read_again(sets, set_bytes);
  if (!is_same.ok() || !is_same.value()) return is_same;
  return read_again(values, all - values);
}

Result<CountersSnapshot> RemoteCounters::snapshot() {
  BP_TRY_ASSIGN(const auto is_read, words_.empty() ? Result<bool>(false) : read_changes());
  if (!is_read) BP_TRY(read_all());
  auto copy = std::make_unique<uint64_t[]>(words_.size());
  std::copy(words_.begin(), words_.end(), copy.get());
  auto snapshot =
      CountersSnapshot::of_copy(std::move(copy), words_.size() * kWordBytes, now_ns_, source_);
  if (!snapshot.ok()) words_.clear();
  return snapshot;
}

}  // namespace bedplate
