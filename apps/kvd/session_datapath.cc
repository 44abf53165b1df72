#include "apps/kvd/session_datapath.h"

#include <utility>

#include "platform/text_words.h"

namespace bedplate::kvd {
namespace {

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

Session::Session(const Environment& environment) noexcept
    : SessionAnswers(environment, input_, output_) {
  came = [](TurnWaiter& self, uint64_t now_ns) noexcept {
    auto& session = static_cast<Session&>(self);
    BP_DCHECK(session.waits_for_ != nullptr);
    session.waits_for_ = nullptr;
    session.has_turn_ = true;
    session.resume(now_ns);
  };
  if (wave_ == nullptr) return;
  const auto changed = [](void* self) noexcept { static_cast<Session*>(self)->came_back(); };
  wave_->serve(changed, this);
  wave_->turn().serve(changed, this);
}

bool Session::is_valid() const noexcept {
  const Form* const form = request_.form;
  if (keys_ != Keys::kNone && (form == nullptr || form->get == 0 || item_ != nullptr)) return false;
  if (keys_ != Keys::kAnswered && keys_bytes_ + keys_end_bytes_ > 0) return false;
  if (keys_bytes_ + keys_end_bytes_ > arrived().size()) return false;
  const int waits = (waits_for_ != nullptr ? 1 : 0) + (waits_for_wave_ ? 1 : 0) +
                    (waits_for_far_turn_ ? 1 : 0) + (is_settling_ ? 1 : 0);
  if (waits > 1 || (has_turn_ && (waits_for_ != nullptr || waits_for_far_turn_))) return false;
  if (wave_ != nullptr && !wave_->is_valid()) return false;
  if (waits_for_far_turn_ && !wave_->turn().is_awaited()) return false;
  if (waits_for_wave_ && (wave_->is_idle() || wave_->is_open() || wave_->is_back())) return false;
  if (item_ == nullptr) return true;
  return form != nullptr && form->has_value() && item_->pins > 0 && !item_->is_linked &&
         item_->body_bytes == request_.value_bytes + kLineEnd.size();
}

void Session::left() noexcept {
  BP_DCHECK(environment_.is_own_thread());
  BP_KEEPS_VALID(*this);
  CacheItem* const item = std::exchange(item_, nullptr);
  if (item != nullptr) {
    const uint32_t owner = std::exchange(item_owner_, kOwn);
    owner != kOwn ? wave_->give_back(*item, owner) : cache_.release(*item);
  }
  keys_ = Keys::kNone;
  keys_bytes_ = keys_end_bytes_ = 0;
  give_up_turn();
  if (wave_ != nullptr) leave_shards();
}

StreamStep Session::work(uint64_t now_ns) noexcept {
  BP_DCHECK(environment_.is_own_thread());
  BP_KEEPS_VALID(*this);
  cache_.set_time(now_ns);
  return BP_LIKELY(wave_ == nullptr) ? step() : step_with_wave();
}

// Takes a line with, unless it goes straight to its item, its value.
StreamStep Session::work_on_line() noexcept {
  BP_DCHECK(item_ == nullptr && keys_ == Keys::kNone);
  if (arrived().empty()) return StreamStep::kStarved;
  static_assert(kTlsHandshake < ' ' && kBinaryMagic < ' ');
  if (BP_UNLIKELY(arrived().front() < ' ')) {
    if (has_open_wave()) return send_wave();  // the session may end
    if (end_other_protocol()) return StreamStep::kStarved;
  }
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
    const bool is_last = is_of_http(whole);
    if (has_open_wave() && (is_last || request_.refused_bytes > 0)) return send_wave();
    if (is_last) return end_foreign("HTTP"), StreamStep::kStarved;
    take(line_bytes);
    if (request_.refused_bytes > 0) skip(request_.refused_bytes);
    refuse(refusal);
  } else if (is_get) {
    keys_ = Keys::kAnswered;
    keys_bytes_ = line.size();
    keys_end_bytes_ = static_cast<uint64_t>(arrived().data() + line_bytes - line.end());
    BP_DCHECK(keys_bytes_ + keys_end_bytes_ < line_bytes);  // the command comes before them
    take(line_bytes - keys_bytes_ - keys_end_bytes_);
    return answer_key();
  } else {
    const uint64_t whole_bytes = line_bytes + request_.value_bytes + kLineEnd.size();
    if (form.has_value() && request_.value_bytes <= kDirectBytes &&
        arrived().size() < whole_bytes) {
      if (!has_open_wave()) want(whole_bytes);
      return StreamStep::kStarved;
    }
    if (BP_UNLIKELY(environment_.needs_care)) return execute_with_care(line_bytes);
    take(line_bytes);
    execute_here();
  }
  return StreamStep::kTaken;
}

// Executes the current command, whose line is taken, on this shard.
void Session::execute_here() noexcept {
  const Form& form = *request_.form;
  Counters& counters = *environment_.counters;
  if (!form.has_value()) {
    form.meta == meta_get ? answered(counters.get_ns, kKindGet)
                          : answered(counters.other_ns, kKindOther);
  }
  switch (form.verb) {
    case Verb::kStore: return receive_value();
    case Verb::kMeta: return answer_meta();
    case Verb::kCount: {
      const Items::Counted counted =
          items_.count(request_.key, {.is_incr = request_.is_incr(), .delta = request_.number});
      return answer_outcome(Work::kCount, counted.changed.outcome, counted.number);
    }
    case Verb::kTouch:
      return answer_outcome(Work::kTouch, items_.touch(request_.key, request_.expiry_s));
    case Verb::kDelete: return answer_outcome(Work::kDelete, items_.remove(request_.key));
    case Verb::kFlush:
      counters.flushes.add(1);
      items_.flush(request_.expiry_s);
      return answer_outcome(Work::kFlush, Outcome::kDone);
    case Verb::kVersion:
      say("VERSION ");
      say(kServerVersion);
      return say(kLineEnd);
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
    if (keys_bytes_ == 0) end_get(has_open_wave());
    return true;
  }
  const size_t space = there.rfind(' ');
  keys_bytes_ = space == there.npos ? 0 : space + 1;
  const uint64_t longest_bytes = kKeyBytesMax + 1;  // with the first half of the line's end
  if (keys_bytes_ > 0 || there.size() <= longest_bytes) return keys_bytes_ > 0;
  refuse(Form::kBadLine);
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

StreamStep Session::answer_key() noexcept {
  BP_DCHECK(keys_ == Keys::kAnswered && keys_bytes_ > 0 && item_ == nullptr);
  std::string_view keys = arrived().substr(0, keys_bytes_);
  const std::string_view key = take_word(&keys);
  if (key.size() > kKeyBytesMax) {
    refuse(Form::kBadLine);
    keys_ = Keys::kDropped;
    keys_bytes_ = keys_end_bytes_ = 0;
    return StreamStep::kTaken;
  }
  if (BP_UNLIKELY(environment_.needs_care)) return answer_key_with_care(key, keys.size());
  if (!key.empty()) answer_here(key);
  take(keys_bytes_ - keys.size());
  keys_bytes_ = keys.size();
  if (keys_bytes_ == 0 && keys_end_bytes_ > 0) end_get(false);
  return StreamStep::kTaken;
}

// ---- storing ------------------------------------------------------------------------------------

// Whether a short value, which is there, lacks its line end. Its line is taken.
bool Session::is_bad_data() const noexcept {
  return request_.value_bytes <= kDirectBytes &&
         !arrived().substr(request_.value_bytes).starts_with(kLineEnd) &&
         items_.fits(request_.value_bytes);
}

// Receives the value into its item, or refuses and skips it.
void Session::receive_value() noexcept {
  const Storing storing = request_.terms.storing;
  BP_DCHECK(item_ == nullptr && storing != Storing::kNone);
  if (is_bad_data()) {
    take(request_.value_bytes + kLineEnd.size());
    return answer(kBadData);
  }
  const bool is_short = request_.value_bytes <= kDirectBytes;
  begin_receiving(items_.make_for(request_.key,
                                  {.flags = request_.flags,
                                   .expires_ns = items_.expires_ns(request_.expiry_s),
                                   .value_bytes = request_.value_bytes,
                                   .may_reuse = storing == Storing::kSet && is_short},
                                  storing));
}

// The value comes into `made`, or, if there is no item, is skipped.
void Session::begin_receiving(const Items::Changed& made) noexcept {
  const uint64_t data_bytes = request_.value_bytes + kLineEnd.size();
  item_ = made.item;
  if (item_ == nullptr) {
    skip(data_bytes);
    return answer_outcome(Work::kStore, made.outcome);
  }
  fill(item_->body(), data_bytes);
  if (request_.value_bytes <= kDirectBytes) return end_storing();
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

}  // namespace bedplate::kvd
