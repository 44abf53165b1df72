#include "apps/kvd/session_datapath.h"

#include <algorithm>
#include <climits>
#include <cstring>

namespace bedplate::kvd {
namespace {

constexpr const char* kNoCommand = "ERROR\r\n";
constexpr const char* kBadData = "CLIENT_ERROR bad data chunk\r\n";
constexpr const char* kBadExpiry = "CLIENT_ERROR invalid exptime argument\r\n";

std::string_view text_of(Outcome outcome) noexcept {
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

// No line of the text protocol begins with one of these bytes. A client of the binary protocol gets
// a line of text: it shows the user the cause. TLS must end without: its records may contain lines
// that a third party chose.
constexpr char kBinaryMagic = '\x80', kTlsHandshake = '\x16';
constexpr const char* kNoBinary =
    "CLIENT_ERROR the binary protocol is not supported: use the text protocol\r\n";

// Whether a line that is no command belongs to an HTTP request of any version: its first line, or a
// field of its head, as no command has a colon in its first word.
bool is_of_http(std::string_view line) noexcept {
  while (line.ends_with(' ')) line.remove_suffix(1);
  const std::string_view last = line.substr(line.rfind(' ') + 1);
  return last.starts_with("HTTP/") || take_word(&line).find(':') != line.npos;
}

}  // namespace

const Session::Form Session::kForms[] = {
    Form::of_get("get", "K", kGet),
    {"set", "kfeb", 1, &Session::begin_storing, kBadLine, Storing::kSet},
    Form::of_meta("mg", meta_get),
    {.word = "ms",
     .words = "kbm",
     .execute = &Session::begin_meta_storing,
     .storing = Storing::kSet,
     .syntax = Syntax::kMeta},
    Form::of_get("gets", "K", kGet | kWithVersion),
    Form::of_get("gat", "eK", kGet | kTouching),
    Form::of_get("gats", "eK", kGet | kWithVersion | kTouching),
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
    Form::of_meta("md", meta_delete),
    Form::of_meta("ma", meta_count),
    Form::of_meta("me", meta_debug),
    {"mn", "", 0, &Session::say_no_op},
    {.word = "", .words = "", .syntax = Syntax::kUnknown},
};

bool Session::is_valid() const noexcept {
  if (keys_ != Keys::kNone && (form_ == nullptr || form_->get == 0 || item_ != nullptr)) {
    return false;
  }
  if (keys_ != Keys::kAnswered && keys_bytes_ + keys_end_bytes_ > 0) return false;
  if (keys_bytes_ + keys_end_bytes_ > arrived().size()) return false;
  if (has_turn_ && waits_for_ != nullptr) return false;
  if (item_ == nullptr) return true;
  return form_ != nullptr && form_->storing != Storing::kNone && item_->pins > 0 &&
         !item_->is_linked && item_->body_bytes == value_bytes_ + kLineEnd.size();
}

void Session::left() noexcept {
  BP_DCHECK(environment_.is_own_thread());
  BP_KEEPS_VALID(*this);
  if (item_ != nullptr) cache_.release(*item_);
  item_ = nullptr;
  keys_ = Keys::kNone;
  keys_bytes_ = keys_end_bytes_ = 0;
  give_up_turn();
}

StreamStep Session::work(uint64_t now_ns) noexcept {
  BP_DCHECK(environment_.is_own_thread());
  BP_KEEPS_VALID(*this);
  cache_.set_time(now_ns);
  if (item_ == nullptr && keys_ == Keys::kNone) return work_on_line();
  if (keys_ == Keys::kDropped) return taken_if(drop_keys());
  if (keys_ == Keys::kAnswered && keys_bytes_ == 0) return taken_if(find_keys());
  if (item_ == nullptr) return answer_key();
  end_storing();
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
  if (BP_UNLIKELY(form_->syntax != Syntax::kWords)) {
    return form_->syntax == Syntax::kMeta ? parse_meta(line) : kNoCommand;
  }
  constexpr size_t kWordsMax = 8;
  BP_DCHECK(form_ != nullptr && form_->words.size() + form_->more_max < kWordsMax);
  std::string_view words[kWordsMax];
  size_t count = 0;
  while (count < kWordsMax && !(words[count] = take_word(&line)).empty()) ++count;
  const size_t words_min = form_->words.size(), words_max = words_min + form_->more_max;
  if (count < words_min || count > words_max) return kNoCommand;
  const bool is_quiet = count > 0 && words[count - 1] == "noreply";
  reply_ = is_quiet ? Reply::kNone : Reply::kText;
  key_ = words[0];
  more_ = count > words_min + (is_quiet ? 1 : 0) ? words[words_min] : "";
  for (size_t i = 0; i < words_min; ++i) {
    const char kind = form_->words[i];
    if (!read_word(kind, words[i])) return kind == 'k' ? kBadLine : form_->refusal;
  }
  return nullptr;
}

// The first fault of a meta command's words; or nullptr. The value behind a refused ms is skipped,
// if its length is known.
const char* Session::parse_meta(std::string_view line) noexcept {
  const std::string_view key = take_word(&line);
  if (key.empty()) return kBadLine;
  const bool has_value = form_->storing != Storing::kNone;
  if (has_value) {
    const std::string_view bytes = take_word(&line);
    if (bytes.empty() || !read_word('b', bytes)) return kBadLine;
  }
  const char* const fault = request_.parse(key, line, request_memory_);
  if (has_value) refused_bytes_ = value_bytes_ + kLineEnd.size();
  if (fault != nullptr || !has_value || meta_store_terms(request_, &terms_)) return fault;
  return "CLIENT_ERROR invalid mode for ms M token\r\n";
}

// Takes a line with, unless it goes straight to its item, its value.
StreamStep Session::work_on_line() noexcept {
  BP_DCHECK(item_ == nullptr && keys_ == Keys::kNone);
  if (arrived().empty()) return StreamStep::kStarved;
  static_assert(kTlsHandshake < ' ' && kBinaryMagic < ' ');
  if (BP_UNLIKELY(arrived().front() < ' ') && end_other_protocol()) return StreamStep::kStarved;
  std::string_view line = arrived_line();
  const uint64_t line_bytes = line.size();
  if (line.empty()) {
    if (!is_input_full()) return StreamStep::kStarved;
    if (begin_long_get()) return StreamStep::kTaken;
    say("CLIENT_ERROR line too long\r\n");
    return quit(), StreamStep::kStarved;
  }
  line.remove_suffix(line.ends_with(kLineEnd) ? 2 : 1);
  const std::string_view whole = line;
  const std::string_view word = take_word(&line);
  form_ = std::find_if(kForms, std::end(kForms) - 1,
                       [&](const Form& form) { return form.word == word; });
  reply_ = Reply::kText;
  expiry_s_ = 0;
  refused_bytes_ = 0;
  const bool is_get = form_->get != 0;
  const char* const refusal = is_get                  ? parse_keys(&line)
                              : line_bytes > kLineMax ? kNoCommand
                                                      : parse(line);
  if (refusal != nullptr) {
    if (is_of_http(whole)) return end_foreign("HTTP"), StreamStep::kStarved;
    take(line_bytes);
    if (refused_bytes_ > 0) skip(refused_bytes_);
    answer(refusal);
  } else if (is_get) {
    keys_ = Keys::kAnswered;
    keys_bytes_ = line.size();
    keys_end_bytes_ = static_cast<uint64_t>(arrived().data() + line_bytes - line.end());
    BP_DCHECK(keys_bytes_ + keys_end_bytes_ < line_bytes);  // the command comes before them
    take(line_bytes - keys_bytes_ - keys_end_bytes_);
    return answer_key();
  } else {
    const uint64_t whole_bytes = line_bytes + value_bytes_ + kLineEnd.size();
    const bool has_value = form_->storing != Storing::kNone;
    if (has_value && value_bytes_ <= kDirectBytes && arrived().size() < whole_bytes) {
      want(whole_bytes);
      return StreamStep::kStarved;
    }
    if (BP_UNLIKELY(environment_.is_limited) && !may_execute()) return StreamStep::kWaits;
    take(line_bytes);
    if (!has_value) {
      form_->meta == meta_get ? answered(environment_.counters->get_ns, kKindGet)
                              : answered(environment_.counters->other_ns, kKindOther);
    }
    BP_DCHECK(form_->execute != nullptr);
    (this->*form_->execute)();
  }
  return StreamStep::kTaken;
}

// Ends the session if what has arrived begins as another protocol does. Returns whether it does.
bool Session::end_other_protocol() noexcept {
  const char first = arrived().front();
  if (first == kTlsHandshake) return end_foreign("TLS"), true;
  if (first != kBinaryMagic) return false;
  environment_.counters->binary_refused.add(1);
  say(kNoBinary);
  quit();
  return true;
}

// ---- reading ------------------------------------------------------------------------------------

// Removes the expiry before the keys, if the command has one. Returns the fault before the first
// key, or nullptr.
const char* Session::parse_keys(std::string_view* line) noexcept {
  const bool is_touching = (form_->get & kTouching) != 0;
  const std::string_view expiry = is_touching ? take_word(line) : "";
  std::string_view keys = *line;
  if (take_word(&keys).empty()) return kNoCommand;
  return is_touching && !parse_number(expiry, &expiry_s_) ? kBadExpiry : nullptr;
}

// Begins a get whose line fills the buffer without an end. Returns true if it is a get with a key.
bool Session::begin_long_get() noexcept {
  std::string_view rest = arrived();
  const std::string_view word = take_word(&rest);
  const Form* const form = std::find_if(kForms, std::end(kForms) - 1, [&](const Form& each) {
    return each.get != 0 && each.word == word;
  });
  if (form == std::end(kForms) - 1) return false;
  form_ = form;
  if (parse_keys(&rest) != nullptr) return false;
  keys_ = Keys::kAnswered;
  take(arrived().size() - rest.size());
  return true;
}

// Finds the keys that are complete now: those before the line's end, or before the last space.
// Returns true if work remains.
bool Session::find_keys() noexcept {
  BP_DCHECK(keys_ == Keys::kAnswered && keys_bytes_ == 0 && keys_end_bytes_ == 0);
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
  keys_ = Keys::kDropped;
  return true;
}

bool Session::drop_keys() noexcept {
  const size_t end = arrived().find('\n');
  const bool has_end = end != arrived().npos;
  take(has_end ? end + 1 : arrived().size());
  if (has_end) keys_ = Keys::kNone;
  return has_end;
}

void Session::end_get() noexcept {
  take(keys_end_bytes_);
  keys_end_bytes_ = 0;
  keys_ = Keys::kNone;
  say("END\r\n");
  answered(environment_.counters->get_ns, kKindGet);
}

StreamStep Session::answer_key() noexcept {
  BP_DCHECK(keys_ == Keys::kAnswered && keys_bytes_ > 0 && item_ == nullptr);
  std::string_view keys = arrived().substr(0, keys_bytes_);
  const std::string_view key = take_word(&keys);
  if (key.size() > kKeyBytesMax) {
    say(kBadLine);
    keys_ = Keys::kDropped;
    keys_bytes_ = keys_end_bytes_ = 0;
    return StreamStep::kTaken;
  }
  if (!key.empty()) {
    if (BP_UNLIKELY(environment_.is_limited) && !may_answer(key)) return StreamStep::kWaits;
    if (BP_UNLIKELY(form_->get != kGet)) {
      answer_more(key);
    } else if (CacheItem* const item = items_.get(key); item != nullptr) {
      answer_text(*item, item->text());
    }
  }
  take(keys_bytes_ - keys.size());
  keys_bytes_ = keys.size();
  if (keys_bytes_ == 0 && keys_end_bytes_ > 0) end_get();
  return StreamStep::kTaken;
}

// Answers a key of a get that touches its item, or says its version.
void Session::answer_more(std::string_view key) noexcept {
  CacheItem* const item =
      (form_->get & kTouching) != 0 ? items_.get_and_touch(key, expiry_s_) : items_.get(key);
  if (item == nullptr) return;
  std::string_view rest = item->text();
  if ((form_->get & kWithVersion) != 0) {
    const size_t head_bytes = item->head_bytes - kLineEnd.size();
    say(rest.substr(0, head_bytes));
    say(" ");
    say_number(item->version);
    rest.remove_prefix(head_bytes);
  }
  answer_text(*item, rest);
}

// Answers the end of an item's text, whatever its length.
void Session::answer_text(CacheItem& item, std::string_view text) noexcept {
  BP_DCHECK(item.is_linked && item.text().starts_with(kValueWord));
  if (text.size() <= kCopyMax) return say(text);
  BP_DCHECK(text.ends_with(kLineEnd) && item.text().ends_with(text));
  cache_.pin(item);
  lend(text, &item);
}

void Session::answer_meta() noexcept {
  char text[kMetaReplyBytesMax];
  TextWriter reply(text);
  CacheItem* const item = form_->meta(environment_, request_, reply);
  BP_DCHECK(!reply.is_full());
  if (reply.bytes() > 0) say({text, reply.bytes()});
  if (item != nullptr) answer_text(*item, {item->body(), item->body_bytes});
}

void Session::say_version() noexcept {
  answer("VERSION ");
  answer(kVersion);
  answer(kLineEnd);
}

// Asked for statistics that kvd lacks, it answers END alone, as memcached does for empty sections.
void Session::answer_stats() noexcept {
  using Section = Stats::Section;
  constexpr std::pair<std::string_view, Section> kSections[] = {{"", Section::kGeneral},
                                                                {"settings", Section::kSettings},
                                                                {"items", Section::kItems},
                                                                {"slabs", Section::kSlabs}};
  Stats& stats = *environment_.stats;
  if (reply_ == Reply::kNone) return say(kNoCommand);
  if (more_ == "reset") {
    stats.reset();
    return say("RESET\r\n");
  }
  const auto* const section = std::find_if(kSections, std::end(kSections),
                                           [&](const auto& each) { return each.first == more_; });
  if (section == std::end(kSections)) {
    return say(more_ == "sizes" || more_ == "conns" ? "END\r\n" : kNoCommand);
  }
  for (size_t i = 0; i < stats.count(section->second); ++i) {
    const Stats::Line line = stats.line(section->second, i, cache_.now_ns());
    say("STAT ");
    say(line.name);
    say(" ");
    line.text.empty() ? say_number(line.number) : say(line.text);
    say(kLineEnd);
  }
  say("END\r\n");
}

// ---- storing ------------------------------------------------------------------------------------

void Session::begin_storing() noexcept {
  terms_ = {.storing = form_->storing, .version = number_};
  receive_value();
}

void Session::begin_meta_storing() noexcept {
  const bool is_join = terms_.storing == Storing::kAppend || terms_.storing == Storing::kPrepend;
  key_ = request_.key;
  flags_ = request_.client_flags;
  expiry_s_ = is_join ? request_.missing_expiry_s : request_.expiry_s;
  reply_ = Reply::kMeta;
  receive_value();
  if (item_ != nullptr) request_.keep(request_memory_);  // its line goes before the value comes
}

// Receives the value into its item, or refuses and skips it.
void Session::receive_value() noexcept {
  BP_DCHECK(item_ == nullptr && terms_.storing != Storing::kNone);
  const uint64_t data_bytes = value_bytes_ + kLineEnd.size();
  const bool is_direct = value_bytes_ > kDirectBytes;
  const bool is_set = terms_.storing == Storing::kSet;
  if (!is_direct && !arrived().substr(value_bytes_).starts_with(kLineEnd) &&
      items_.fits(value_bytes_)) {
    take(data_bytes);
    return answer(kBadData);
  }
  const Items::Changed made = items_.make_for(key_,
                                              {.flags = flags_,
                                               .expires_ns = items_.expires_ns(expiry_s_),
                                               .value_bytes = value_bytes_,
                                               .may_reuse = is_set && !is_direct},
                                              terms_.storing);
  item_ = made.item;
  if (item_ == nullptr) {
    skip(data_bytes);
    return answer(text_of(made.outcome));
  }
  fill(item_->body(), data_bytes);
  if (!is_direct) end_storing();
}

void Session::end_storing() noexcept {
  BP_ASSERT(item_ != nullptr);
  BP_DCHECK(item_->pins > 0);
  CacheItem& item = *item_;
  item_ = nullptr;
  if (item.text().ends_with(kLineEnd)) {
    answer_stored(items_.store_received(item, terms_), value_bytes_);
  } else {
    cache_.release(item);
    answer(kBadData);
  }
  answered(environment_.counters->set_ns, kKindSet);
}

void Session::answer_stored(const Items::Changed& changed, uint64_t value_bytes) noexcept {
  if (BP_LIKELY(reply_ == Reply::kText)) return say(text_of(changed.outcome));
  if (reply_ == Reply::kNone) return;
  char text[kMetaReplyBytesMax];
  TextWriter reply(text);
  meta_stored(request_, changed, value_bytes, reply);
  BP_DCHECK(!reply.is_full());
  if (reply.bytes() > 0) say({text, reply.bytes()});
}

// ---- changing -----------------------------------------------------------------------------------

void Session::count() noexcept {
  const auto [changed, number] =
      items_.count(key_, {.is_incr = form_->word == "incr", .delta = number_});
  if (changed.outcome == Outcome::kNoMemory)
    return answer("SERVER_ERROR out of memory in incr\r\n");
  if (changed.outcome != Outcome::kDone) return answer(text_of(changed.outcome));
  if (reply_ == Reply::kNone) return;
  say_number(number);
  say(kLineEnd);
}

void Session::touch() noexcept {
  const Outcome outcome = items_.touch(key_, expiry_s_);
  answer(outcome == Outcome::kDone ? "TOUCHED\r\n" : text_of(outcome));
}

void Session::remove() noexcept {
  if (!more_.empty() && more_ != "0") {
    return answer("CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n");
  }
  const Outcome outcome = items_.remove(key_);
  answer(outcome == Outcome::kDone ? "DELETED\r\n" : text_of(outcome));
}

void Session::flush() noexcept {
  if (!more_.empty() && !parse_number(more_, &expiry_s_)) {
    return answer(kBadExpiry);
  }
  environment_.counters->flushes.add(1);
  items_.flush(expiry_s_);
  say_ok();
}

}  // namespace bedplate::kvd
