#include "apps/kvd/session_answers_datapath.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "platform/text_writer.h"

namespace bedplate::kvd {
namespace {

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

}  // namespace

void SessionAnswers::say_outcome(Work work, Outcome outcome, uint64_t number) noexcept {
  if (work == Work::kCount) {
    if (outcome == Outcome::kNoMemory) return say("SERVER_ERROR out of memory in incr\r\n");
    if (outcome != Outcome::kDone) return say(text_of(outcome));
    say_number(number);
    return say(kLineEnd);
  }
  if (outcome == Outcome::kDone && work == Work::kTouch) return say("TOUCHED\r\n");
  if (outcome == Outcome::kDone && work == Work::kDelete) return say("DELETED\r\n");
  if (outcome == Outcome::kDone && work == Work::kFlush) return say("OK\r\n");
  say(text_of(outcome));
}

// ---- Commands of this shard ---------------------------------------------------------------------

// Answers a key of a get that touches its item, or says its version.
void SessionAnswers::answer_more(std::string_view key) noexcept {
  const uint8_t get = request_.form->get;
  CacheItem* const item =
      (get & Form::kTouching) != 0 ? items_.get_and_touch(key, request_.expiry_s) : items_.get(key);
  if (item == nullptr) return;
  std::string_view text = item->text();
  if ((get & Form::kWithVersion) != 0) say_head(&text, item->head_bytes, item->version);
  answer_text(*item, text);
}

void SessionAnswers::say_head(std::string_view* text, size_t head_bytes,
                              uint64_t version) noexcept {
  const size_t words_bytes = head_bytes - kLineEnd.size();
  say(text->substr(0, words_bytes));
  say(" ");
  say_number(version);
  text->remove_prefix(words_bytes);
}

void SessionAnswers::answer_meta() noexcept {
  char text[kMetaReplyBytesMax];
  TextWriter reply(text);
  CacheItem* const item = request_.form->meta(environment_, request_.meta, reply);
  BP_DCHECK(!reply.is_full());
  if (reply.bytes() > 0) say({text, reply.bytes()});
  if (item != nullptr) answer_text(*item, {item->body(), item->body_bytes});
}

void SessionAnswers::answer_stored(const Items::Changed& changed) noexcept {
  if (BP_LIKELY(request_.reply == Reply::kText)) return say(text_of(changed.outcome));
  if (request_.is_quiet()) return;
  char text[kMetaReplyBytesMax];
  TextWriter reply(text);
  meta_stored(request_.meta, changed, request_.value_bytes, reply);
  BP_DCHECK(!reply.is_full());
  if (reply.bytes() > 0) say({text, reply.bytes()});
}

// Asked for statistics that kvd lacks, it answers END alone, as memcached does for empty sections.
void SessionAnswers::answer_stats() noexcept {
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

// ---- Commands that have crossed, or that waited behind one --------------------------------------

bool SessionAnswers::answer_operation(Operation& operation) noexcept {
  Counters& counters = *environment_.counters;
  switch (operation.work) {
    case Work::kSay:
      say(operation.text);
      if (operation.ends_get) answered(counters.get_ns, kKindGet);
      return false;
    case Work::kGet: return answer_got(operation);
    case Work::kMeta: {
      const bool is_get = operation.meta == meta_get;
      answered(is_get ? counters.get_ns : counters.other_ns, is_get ? kKindGet : kKindOther);
      if (!operation.text.empty()) say(operation.text);
      if (operation.value.empty()) return false;
      charge_read(operation.value.size() - kLineEnd.size());
      return answer_pinned(operation, operation.value);
    }
    case Work::kStore:
    case Work::kFinish:
      answered(counters.set_ns, kKindSet);
      if (!operation.text.empty()) say(operation.text);
      if (operation.request != nullptr) return false;
      break;
    default: answered(counters.other_ns, kKindOther);
  }
  if (!operation.is_quiet) say_outcome(operation.work, operation.outcome, operation.number);
  return false;
}

// Answers a key of a get.
bool SessionAnswers::answer_got(Operation& operation) noexcept {
  std::string_view text = operation.text;
  if (text.empty()) return false;
  const bool has_crossed = wave_->crossed(operation);
  if (has_crossed) charge_read(text.size() - operation.head_bytes - kLineEnd.size());
  if ((operation.get & Form::kWithVersion) != 0) {
    say_head(&text, operation.head_bytes, operation.number);
  }
  return answer_pinned(operation, text);
}

// Answers the end of the text of an operation, which its item has, or a copy if it has none.
bool SessionAnswers::answer_pinned(Operation& operation, std::string_view text) noexcept {
  CacheItem* const item = operation.item;
  const bool has_crossed = wave_->crossed(operation);
  if (item != nullptr && text.size() > kCopyMax) {
    has_crossed ? lend(text, &operation) : lend(text, item);
    return has_crossed;
  }
  say(text);
  if (item != nullptr && !has_crossed) cache_.release(*item);
  return false;
}

}  // namespace bedplate::kvd
