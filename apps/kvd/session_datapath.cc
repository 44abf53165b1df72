#include "apps/kvd/session_datapath.h"

#include <algorithm>
#include <climits>
#include <cstring>

namespace bedplate::kvd {
namespace {

constexpr const char* kNoCommand = "ERROR\r\n";
constexpr const char* kBadData = "CLIENT_ERROR bad data chunk\r\n";
constexpr const char* kBadExpiry = "CLIENT_ERROR invalid exptime argument\r\n";

const char* text_of(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::kDone: return "STORED\r\n";
    case Outcome::kNotStored: return "NOT_STORED\r\n";
    case Outcome::kExists: return "EXISTS\r\n";
    case Outcome::kNotFound: return "NOT_FOUND\r\n";
    case Outcome::kNotNumber:
      return "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
    case Outcome::kTooLarge: return "SERVER_ERROR object too large for cache\r\n";
    case Outcome::kNoMemory: break;
  }
  return "SERVER_ERROR out of memory storing object\r\n";
}

// The foreign protocol whose first byte is `first`; nullptr: it may be a line. No client of the
// text protocol begins a line with such a byte. TLS must end at once: its records may contain lines
// that a third party chose.
const char* foreign_by_byte(char first) noexcept {
  constexpr char kBinaryMagic = '\x80', kTlsHandshake = '\x16';
  if (first == kBinaryMagic) return "memcached's binary protocol";
  return first == kTlsHandshake ? "TLS" : nullptr;
}

// Whether a line that is no command belongs to an HTTP request of any version: its first line, or a
// field of its head, as no command has a colon in its first word.
bool is_of_http(std::string_view line) noexcept {
  while (line.ends_with(' ')) line.remove_suffix(1);
  const std::string_view last = line.substr(line.rfind(' ') + 1);
  return last.starts_with("HTTP/") || take_word(&line).find(':') != line.npos;
}

}  // namespace

const Session::Form Session::kForms[] = {
    {"get", "K", 0, nullptr},
    {"set", "kfeb", 1, &Session::begin_storing, kBadLine, Storing::kSet},
    {"gets", "K", 0, nullptr},
    {"add", "kfeb", 1, &Session::begin_storing, kBadLine, Storing::kAdd},
    {"replace", "kfeb", 1, &Session::begin_storing, kBadLine, Storing::kReplace},
    {"append", "kfeb", 1, &Session::begin_storing, kBadLine, Storing::kAppend},
    {"prepend", "kfeb", 1, &Session::begin_storing, kBadLine, Storing::kPrepend},
    {"cas", "kfebn", 1, &Session::begin_storing, kBadLine, Storing::kCas},
    {"incr", "kn", 1, &Session::count, "CLIENT_ERROR invalid numeric delta argument\r\n"},
    {"decr", "kn", 1, &Session::count, "CLIENT_ERROR invalid numeric delta argument\r\n"},
    {"touch", "ke", 1, &Session::touch, kBadExpiry},
    {"delete", "k", 2, &Session::remove},
    {"flush_all", "", 2, &Session::flush, kBadExpiry},
    {"version", "", 0, &Session::say_version},
    {"verbosity", "n", 1, &Session::say_ok},
    {"stats", "", 1, &Session::answer_stats},
    {"quit", "", 0, &Session::quit},
    {"", "", 0, nullptr},  // any other command
};

bool Session::is_valid() const noexcept {
  if (get_ != Get::kNone && (form_ == nullptr || form_->words != "K" || item_ != nullptr)) {
    return false;
  }
  if (get_ != Get::kAnswers && keys_bytes_ + keys_end_bytes_ > 0) return false;
  if (keys_bytes_ + keys_end_bytes_ > arrived().size()) return false;
  if (item_ == nullptr) return true;
  return form_ != nullptr && form_->storing != Storing::kNone && item_->pins > 0 &&
         !item_->is_linked && item_->body_bytes == value_bytes_ + kLineEnd.size();
}

void Session::left() noexcept {
  BP_DCHECK(environment_.is_own_thread());
  BP_KEEPS_VALID(*this);
  if (item_ != nullptr) cache_.release(*item_);
  item_ = nullptr;
  get_ = Get::kNone;
  keys_bytes_ = keys_end_bytes_ = 0;
}

StreamStep Session::work(uint64_t now_ns) noexcept {
  BP_DCHECK(environment_.is_own_thread());
  BP_KEEPS_VALID(*this);
  cache_.set_time(now_ns);
  if (item_ == nullptr && get_ == Get::kNone) return taken_if(work_on_line());
  if (get_ == Get::kDrops) return taken_if(drop_keys());
  if (get_ == Get::kAnswers && keys_bytes_ == 0) return taken_if(find_keys());
  item_ != nullptr ? end_storing() : answer_key();
  return StreamStep::kTaken;
}

// The parsers of numbers are inlined: a set has three of them.
[[gnu::flatten]] bool Session::read_word(char kind, std::string_view word) noexcept {
  BP_DCHECK(!word.empty() && std::strchr("kfebn", kind) != nullptr);
  switch (kind) {
    case 'k': return word.size() <= kKeyBytesMax;
    case 'f': return parse_number(word, &flags_);
    case 'e': return parse_number(word, &expiry_s_);
    case 'b': return parse_number(word, &value_bytes_) && value_bytes_ <= INT_MAX - kLineEnd.size();
    default: return parse_number(word, &number_);
  }
}

// The first fault of the words after the command, in memcached's order of checks; or nullptr.
const char* Session::parse(std::string_view line) noexcept {
  constexpr size_t kWordsMax = 8;
  BP_DCHECK(form_ != nullptr && form_->words.size() + form_->more_max < kWordsMax);
  if (form_->words == "K") return take_word(&line).empty() ? kNoCommand : nullptr;
  std::string_view words[kWordsMax];
  size_t count = 0;
  while (count < kWordsMax && !(words[count] = take_word(&line)).empty()) ++count;
  const size_t words_min = form_->words.size(), words_max = words_min + form_->more_max;
  if (form_->word.empty() || count < words_min || count > words_max) return kNoCommand;
  is_quiet_ = count > 0 && words[count - 1] == "noreply";
  key_ = words[0];
  more_ = count > words_min + (is_quiet_ ? 1 : 0) ? words[words_min] : "";
  for (size_t i = 0; i < words_min; ++i) {
    const char kind = form_->words[i];
    if (!read_word(kind, words[i])) return kind == 'k' ? kBadLine : form_->refusal;
  }
  return nullptr;
}

// Returns true if there was a line and, unless the value goes straight to its item, the value.
bool Session::work_on_line() noexcept {
  BP_DCHECK(item_ == nullptr && get_ == Get::kNone);
  const char* const foreign = arrived().empty() ? nullptr : foreign_by_byte(arrived().front());
  if (foreign != nullptr) return end_foreign(foreign), false;
  std::string_view line = arrived_line();
  const uint64_t line_bytes = line.size();
  if (line.empty()) {
    if (!is_input_full()) return false;
    if (begin_long_get()) return true;
    say("CLIENT_ERROR line too long\r\n");
    return quit(), false;
  }
  line.remove_suffix(line.ends_with(kLineEnd) ? 2 : 1);
  const std::string_view whole = line;
  const std::string_view word = take_word(&line);
  form_ = std::find_if(kForms, std::end(kForms) - 1,
                       [&](const Form& form) { return form.word == word; });
  is_quiet_ = false;
  expiry_s_ = 0;
  const bool is_get = form_->words == "K";
  const char* refusal = line_bytes > kLineMax && !is_get ? kNoCommand : parse(line);
  if (refusal != nullptr) {
    if (is_of_http(whole)) return end_foreign("HTTP"), false;
    take(line_bytes);
    answer(refusal);
  } else if (is_get) {
    get_ = Get::kAnswers;
    keys_bytes_ = line.size();
    keys_end_bytes_ = static_cast<uint64_t>(arrived().data() + line_bytes - line.end());
    BP_DCHECK(keys_bytes_ + keys_end_bytes_ < line_bytes);  // the command comes before them
    take(line_bytes - keys_bytes_ - keys_end_bytes_);
    answer_key();
  } else {
    const uint64_t whole_bytes = line_bytes + value_bytes_ + kLineEnd.size();
    const bool has_value = form_->storing != Storing::kNone;
    if (has_value && value_bytes_ <= kDirectBytes && arrived().size() < whole_bytes) {
      want(whole_bytes);
      return false;
    }
    take(line_bytes);
    if (!has_value) answered(environment_.counters->other_ns, kKindOther);
    BP_DCHECK(form_->execute != nullptr);
    (this->*form_->execute)();
  }
  return true;
}

// ---- reading ------------------------------------------------------------------------------------

// Begins a get whose line fills the buffer without an end. Returns true if it is a get with a key.
bool Session::begin_long_get() noexcept {
  std::string_view rest = arrived();
  const std::string_view word = take_word(&rest);
  const Form* const form = std::find_if(kForms, std::end(kForms) - 1, [&](const Form& each) {
    return each.words == "K" && each.word == word;
  });
  if (form == std::end(kForms) - 1 || rest.find_first_not_of(' ') == rest.npos) return false;
  form_ = form;
  get_ = Get::kAnswers;
  take(arrived().size() - rest.size());
  return true;
}

// Finds the keys that are complete now: those before the line's end, or before the last space.
// Returns true if work remains.
bool Session::find_keys() noexcept {
  BP_DCHECK(get_ == Get::kAnswers && keys_bytes_ == 0 && keys_end_bytes_ == 0);
  const std::string_view there = arrived();
  if (const size_t end = there.find('\n'); end != there.npos) {
    keys_end_bytes_ = there.substr(0, end + 1).ends_with(kLineEnd) ? 2 : 1;
    keys_bytes_ = end + 1 - keys_end_bytes_;
    if (keys_bytes_ == 0) end_get();
    return true;
  }
  const size_t space = there.rfind(' ');
  keys_bytes_ = space == there.npos ? 0 : space + 1;
  const uint64_t longest_bytes = kKeyBytesMax + 1;  // with the first half of the line's end
  if (keys_bytes_ > 0 || there.size() <= longest_bytes) return keys_bytes_ > 0;
  say(kBadLine);
  get_ = Get::kDrops;
  return true;
}

bool Session::drop_keys() noexcept {
  const size_t end = arrived().find('\n');
  const bool has_end = end != arrived().npos;
  take(has_end ? end + 1 : arrived().size());
  if (has_end) get_ = Get::kNone;
  return has_end;
}

void Session::end_get() noexcept {
  take(keys_end_bytes_);
  keys_end_bytes_ = 0;
  get_ = Get::kNone;
  say("END\r\n");
  answered(environment_.counters->get_ns, kKindGet);
}

void Session::answer_key() noexcept {
  BP_DCHECK(get_ == Get::kAnswers && keys_bytes_ > 0 && item_ == nullptr);
  std::string_view keys = arrived().substr(0, keys_bytes_);
  const std::string_view key = take_word(&keys);
  if (key.size() > kKeyBytesMax) {
    say(kBadLine);
    get_ = Get::kDrops;
    keys_bytes_ = keys_end_bytes_ = 0;
    return;
  }
  if (!key.empty()) {
    CacheItem* item = cache_.find(key);
    environment_.counters->count_get(item != nullptr);
    if (item != nullptr) {
      items_.use(*item);
      answer_item(*item);
    }
  }
  take(keys_bytes_ - keys.size());
  keys_bytes_ = keys.size();
  if (keys_bytes_ == 0 && keys_end_bytes_ > 0) end_get();
}

void Session::answer_item(CacheItem& item) noexcept {
  BP_DCHECK(item.is_linked && item.text().starts_with(kValueWord));
  std::string_view rest = item.text();
  if (form_->word == "gets") {
    const size_t head_bytes = item.head_bytes - kLineEnd.size();
    say(rest.substr(0, head_bytes));
    say(" ");
    say_number(item.version);
    rest.remove_prefix(head_bytes);
  }
  if (rest.size() <= kCopyMax) return say(rest);
  BP_DCHECK(rest.ends_with(kLineEnd));
  cache_.pin(item);
  lend(rest, &item);
}

void Session::say_version() noexcept {
  answer("VERSION ");
  answer(kVersion);
  answer(kLineEnd);
}

// Asked for statistics that kvd lacks, it answers END alone, as memcached does for empty sections.
void Session::answer_stats() noexcept {
  if (is_quiet_) return say(kNoCommand);
  if (more_.empty()) return say_stats();
  if (more_ == "settings") return say_settings();
  if (more_ == "reset") {
    environment_.stats->reset();
    return say("RESET\r\n");
  }
  const bool is_known =
      more_ == "items" || more_ == "slabs" || more_ == "sizes" || more_ == "conns";
  say(is_known ? "END\r\n" : kNoCommand);
}

void Session::say_stat(std::string_view name, uint64_t value) noexcept {
  say("STAT ");
  say(name);
  say(" ");
  say_number(value);
  say(kLineEnd);
}

void Session::say_stats() noexcept {
  const Stats& stats = *environment_.stats;
  for (size_t i = 0; i < stats.count(); ++i) {
    if (stats.is_version(i)) {
      say("STAT version ");
      say(kVersion);
      say(kLineEnd);
    } else {
      say_stat(stats.name(i), stats.value(i, cache_.now_ns()));
    }
  }
  say("END\r\n");
}

void Session::say_settings() noexcept {
  const Facts& facts = *environment_.facts;
  say_stat("maxbytes", facts.memory_bytes);
  say_stat("maxconns", facts.connections_max);
  say("STAT evictions on\r\nSTAT cas_enabled yes\r\nSTAT maxconns_fast yes\r\n");
  say_stat("num_threads", 1);
  say_stat("item_size_max", facts.value_bytes_max);
  say("END\r\n");
}

// ---- storing ------------------------------------------------------------------------------------

void Session::begin_storing() noexcept {
  BP_DCHECK(item_ == nullptr && form_->storing != Storing::kNone);
  const uint64_t data_bytes = value_bytes_ + kLineEnd.size();
  const bool fits = value_bytes_ <= environment_.facts->value_bytes_max;
  const bool is_direct = value_bytes_ > kDirectBytes;
  const bool is_set = form_->storing == Storing::kSet;
  if (fits && !is_direct && !arrived().substr(value_bytes_).starts_with(kLineEnd)) {
    take(data_bytes);
    return answer(kBadData);
  }
  if (fits) {
    item_ = items_.make(key_, {.flags = flags_,
                               .expires_ns = items_.expires_ns(expiry_s_),
                               .value_bytes = value_bytes_,
                               .may_reuse = is_set && !is_direct});
  }
  if (item_ != nullptr) {
    fill(item_->body(), data_bytes);
    return is_direct ? void() : end_storing();
  }
  // The old value is removed, too: the client wanted to replace it.
  CacheItem* old = is_set ? cache_.find(key_) : nullptr;
  if (old != nullptr) cache_.unlink(*old);
  skip(data_bytes);
  answer(text_of(items_.refused(fits ? Outcome::kNoMemory : Outcome::kTooLarge)));
}

void Session::end_storing() noexcept {
  BP_ASSERT(item_ != nullptr);
  BP_DCHECK(item_->pins > 0);
  CacheItem& item = *item_;
  item_ = nullptr;
  const bool is_whole = item.text().ends_with(kLineEnd);
  if (is_whole) environment_.counters->sets.add(1);
  const Items::StoreTerms terms = {.storing = form_->storing, .version = number_};
  answer(is_whole ? text_of(items_.store(item, terms).outcome) : kBadData);
  answered(environment_.counters->set_ns, kKindSet);
  cache_.release(item);
}

// ---- changing -----------------------------------------------------------------------------------

void Session::count() noexcept {
  const auto [changed, number] =
      items_.count(key_, {.is_incr = form_->word == "incr", .delta = number_});
  if (changed.outcome == Outcome::kNoMemory)
    return answer("SERVER_ERROR out of memory in incr\r\n");
  if (changed.outcome != Outcome::kDone) return answer(text_of(changed.outcome));
  if (is_quiet_) return;
  say_number(number);
  say(kLineEnd);
}

void Session::touch() noexcept {
  CacheItem* item = cache_.find(key_);
  if (item != nullptr) {
    item->expires_ns = items_.expires_ns(expiry_s_);
    items_.use(*item);
  }
  (item != nullptr ? environment_.counters->touch_hits : environment_.counters->touch_misses)
      .add(1);
  answer(item != nullptr ? "TOUCHED\r\n" : "NOT_FOUND\r\n");
}

void Session::remove() noexcept {
  if (!more_.empty() && more_ != "0") {
    return answer("CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n");
  }
  CacheItem* item = cache_.find(key_);
  if (item != nullptr) cache_.unlink(*item);
  (item != nullptr ? environment_.counters->delete_hits : environment_.counters->delete_misses)
      .add(1);
  answer(item != nullptr ? "DELETED\r\n" : "NOT_FOUND\r\n");
}

void Session::flush() noexcept {
  if (!more_.empty() && !parse_number(more_, &expiry_s_)) {
    return answer(kBadExpiry);
  }
  environment_.counters->flushes.add(1);
  cache_.flush(expiry_s_ > 0 ? items_.expires_ns(expiry_s_) : cache_.now_ns());
  say_ok();
}

}  // namespace bedplate::kvd
