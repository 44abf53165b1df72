#include "apps/kvd/session_datapath.h"

#include <algorithm>

#include "platform/text_words.h"

namespace bedplate::kvd {
namespace {

constexpr const char* kBadData = "CLIENT_ERROR bad data chunk\r\n";

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

bool Session::is_valid() const noexcept {
  const Form* const form = request_.form;
  if (keys_ != Keys::kNone && (form == nullptr || form->get == 0 || item_ != nullptr)) return false;
  if (keys_ != Keys::kAnswered && keys_bytes_ + keys_end_bytes_ > 0) return false;
  if (keys_bytes_ + keys_end_bytes_ > arrived().size()) return false;
  if (has_turn_ && waits_for_ != nullptr) return false;
  if (item_ == nullptr) return true;
  return form != nullptr && form->has_value() && item_->pins > 0 && !item_->is_linked &&
         item_->body_bytes == request_.value_bytes + kLineEnd.size();
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
    return end(), StreamStep::kStarved;
  }
  line.remove_suffix(line.ends_with(kLineEnd) ? 2 : 1);
  const std::string_view whole = line;
  request_.begin(take_word(&line));
  const Form& form = *request_.form;
  const bool is_get = form.get != 0;
  const char* const refusal = is_get                  ? request_.parse_keys(&line)
                              : line_bytes > kLineMax ? Form::kNoCommand
                                                      : request_.parse(line);
  if (refusal != nullptr) {
    if (is_of_http(whole)) return end_foreign("HTTP"), StreamStep::kStarved;
    take(line_bytes);
    if (request_.refused_bytes > 0) skip(request_.refused_bytes);
    answer(refusal);
  } else if (is_get) {
    keys_ = Keys::kAnswered;
    keys_bytes_ = line.size();
    keys_end_bytes_ = static_cast<uint64_t>(arrived().data() + line_bytes - line.end());
    BP_DCHECK(keys_bytes_ + keys_end_bytes_ < line_bytes);  // the command comes before them
    take(line_bytes - keys_bytes_ - keys_end_bytes_);
    return answer_key();
  } else {
    const uint64_t whole_bytes = line_bytes + request_.value_bytes + kLineEnd.size();
    const bool has_value = form.has_value();
    if (has_value && request_.value_bytes <= kDirectBytes && arrived().size() < whole_bytes) {
      want(whole_bytes);
      return StreamStep::kStarved;
    }
    if (BP_UNLIKELY(environment_.is_limited) && !may_execute()) return StreamStep::kWaits;
    take(line_bytes);
    if (!has_value) {
      form.meta == meta_get ? answered(environment_.counters->get_ns, kKindGet)
                            : answered(environment_.counters->other_ns, kKindOther);
    }
    execute();
  }
  return StreamStep::kTaken;
}

// Executes the current command, whose line is taken.
void Session::execute() noexcept {
  switch (request_.form->verb) {
    case Verb::kStore: return receive_value();
    case Verb::kMeta: return answer_meta();
    case Verb::kCount: return count();
    case Verb::kTouch: return touch();
    case Verb::kDelete: return remove();
    case Verb::kFlush: return flush();
    case Verb::kVersion: return say_version();
    case Verb::kVerbosity: return answer("OK\r\n");
    case Verb::kStats: return answer_stats();
    case Verb::kQuit: return end();
    case Verb::kNoOp: return answer("MN\r\n");
    case Verb::kGet:
    case Verb::kUnknown: break;
  }
  BP_DCHECK(false);  // gets, and words that are no commands, are answered elsewhere
}

// Ends the session if what has arrived begins as another protocol does. Returns whether it does.
bool Session::end_other_protocol() noexcept {
  const char first = arrived().front();
  if (first == kTlsHandshake) return end_foreign("TLS"), true;
  if (first != kBinaryMagic) return false;
  environment_.counters->binary_refused.add(1);
  say(kNoBinary);
  end();
  return true;
}

// ---- reading ------------------------------------------------------------------------------------

// Begins a get whose line fills the buffer without an end. Returns true if it is a get with a key.
bool Session::begin_long_get() noexcept {
  std::string_view rest = arrived();
  request_.begin(take_word(&rest));
  if (request_.form->get == 0 || request_.parse_keys(&rest) != nullptr) return false;
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
  say(Form::kBadLine);
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
    say(Form::kBadLine);
    keys_ = Keys::kDropped;
    keys_bytes_ = keys_end_bytes_ = 0;
    return StreamStep::kTaken;
  }
  if (!key.empty()) {
    if (BP_UNLIKELY(environment_.is_limited) && !may_answer(key)) return StreamStep::kWaits;
    if (BP_UNLIKELY(request_.form->get != Form::kGet)) {
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
  const uint8_t get = request_.form->get;
  CacheItem* const item =
      (get & Form::kTouching) != 0 ? items_.get_and_touch(key, request_.expiry_s) : items_.get(key);
  if (item == nullptr) return;
  std::string_view rest = item->text();
  if ((get & Form::kWithVersion) != 0) {
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
  CacheItem* const item = request_.form->meta(environment_, request_.meta, reply);
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
  if (request_.is_quiet()) return say(Form::kNoCommand);
  if (request_.more == "reset") {
    stats.reset();
    return say("RESET\r\n");
  }
  const auto* const section = std::find_if(kSections, std::end(kSections), [&](const auto& each) {
    return each.first == request_.more;
  });
  if (section == std::end(kSections)) {
    const bool is_empty = request_.more == "sizes" || request_.more == "conns";
    return say(is_empty ? "END\r\n" : Form::kNoCommand);
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

// Receives the value into its item, or refuses and skips it.
void Session::receive_value() noexcept {
  const Storing storing = request_.terms.storing;
  BP_DCHECK(item_ == nullptr && storing != Storing::kNone);
  const uint64_t data_bytes = request_.value_bytes + kLineEnd.size();
  const bool is_direct = request_.value_bytes > kDirectBytes;
  if (!is_direct && !arrived().substr(request_.value_bytes).starts_with(kLineEnd) &&
      items_.fits(request_.value_bytes)) {
    take(data_bytes);
    return answer(kBadData);
  }
  const Items::Changed made = items_.make_for(request_.key,
                                              {.flags = request_.flags,
                                               .expires_ns = items_.expires_ns(request_.expiry_s),
                                               .value_bytes = request_.value_bytes,
                                               .may_reuse = storing == Storing::kSet && !is_direct},
                                              storing);
  item_ = made.item;
  if (item_ == nullptr) {
    skip(data_bytes);
    return answer(text_of(made.outcome));
  }
  fill(item_->body(), data_bytes);
  if (!is_direct) return end_storing();
  // The line goes before the value comes.
  if (request_.reply == Reply::kMeta) request_.meta.keep(request_.meta_memory);
}

void Session::end_storing() noexcept {
  BP_ASSERT(item_ != nullptr);
  BP_DCHECK(item_->pins > 0);
  CacheItem& item = *item_;
  item_ = nullptr;
  if (item.text().ends_with(kLineEnd)) {
    answer_stored(items_.store_received(item, request_.terms));
  } else {
    cache_.release(item);
    answer(kBadData);
  }
  answered(environment_.counters->set_ns, kKindSet);
}

void Session::answer_stored(const Items::Changed& changed) noexcept {
  if (BP_LIKELY(request_.reply == Reply::kText)) return say(text_of(changed.outcome));
  if (request_.is_quiet()) return;
  char text[kMetaReplyBytesMax];
  TextWriter reply(text);
  meta_stored(request_.meta, changed, request_.value_bytes, reply);
  BP_DCHECK(!reply.is_full());
  if (reply.bytes() > 0) say({text, reply.bytes()});
}

// ---- changing -----------------------------------------------------------------------------------

void Session::count() noexcept {
  const auto [changed, number] =
      items_.count(request_.key, {.is_incr = request_.is_incr(), .delta = request_.number});
  if (changed.outcome == Outcome::kNoMemory)
    return answer("SERVER_ERROR out of memory in incr\r\n");
  if (changed.outcome != Outcome::kDone) return answer(text_of(changed.outcome));
  if (request_.is_quiet()) return;
  say_number(number);
  say(kLineEnd);
}

void Session::touch() noexcept {
  const Outcome outcome = items_.touch(request_.key, request_.expiry_s);
  answer(outcome == Outcome::kDone ? "TOUCHED\r\n" : text_of(outcome));
}

void Session::remove() noexcept {
  const Outcome outcome = items_.remove(request_.key);
  answer(outcome == Outcome::kDone ? "DELETED\r\n" : text_of(outcome));
}

void Session::flush() noexcept {
  environment_.counters->flushes.add(1);
  items_.flush(request_.expiry_s);
  answer("OK\r\n");
}

}  // namespace bedplate::kvd
