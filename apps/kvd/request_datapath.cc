#include "apps/kvd/request_datapath.h"

#include <climits>
#include <cstring>

#include "platform/assert.h"
#include "platform/text_words.h"

namespace bedplate::kvd {

// The parsers of numbers are inlined: a set has three of them.
[[gnu::flatten]] bool Request::read_word(char kind, std::string_view word) noexcept {
  BP_DCHECK(!word.empty() && std::strchr("kfebn", kind) != nullptr);
  switch (kind) {
    case 'k': return word.size() <= kKeyBytesMax;
    case 'f': return parse_number(word, &flags);
    case 'e': return parse_number(word, &expiry_s);
    case 'b': return parse_number(word, &value_bytes) && value_bytes <= INT_MAX - kLineEnd.size();
    default: return parse_number(word, &number);
  }
}

const char* Request::parse(std::string_view line) noexcept {
  if (BP_UNLIKELY(form->syntax != Form::Syntax::kWords)) {
    return form->syntax == Form::Syntax::kMeta ? parse_meta(line) : Form::kNoCommand;
  }
  constexpr size_t kWordsMax = 8;
  BP_DCHECK(form->words.size() + form->more_max < kWordsMax);
  std::string_view words[kWordsMax];
  size_t count = 0;
  while (count < kWordsMax && !(words[count] = take_word(&line)).empty()) ++count;
  const size_t words_min = form->words.size(), words_max = words_min + form->more_max;
  if (count < words_min || count > words_max) return Form::kNoCommand;
  const bool has_noreply = count > 0 && words[count - 1] == "noreply";
  reply = has_noreply ? Reply::kNone : Reply::kText;
  key = words[0];
  more = count > words_min + (has_noreply ? 1 : 0) ? words[words_min] : "";
  for (size_t i = 0; i < words_min; ++i) {
    const char kind = form->words[i];
    if (!read_word(kind, words[i])) return kind == 'k' ? Form::kBadLine : form->refusal;
  }
  terms = {.storing = form->storing, .version = number};
  return BP_UNLIKELY(!more.empty()) ? parse_more() : nullptr;
}

// The first optional word.
const char* Request::parse_more() noexcept {
  if (form->verb == Verb::kDelete && more != "0") {
    return "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
  }
  if (form->verb == Verb::kFlush && !parse_number(more, &expiry_s)) return Form::kBadExpiry;
  return nullptr;
}

// The value behind a refused ms is skipped, if its length is known.
const char* Request::parse_meta(std::string_view line) noexcept {
  const std::string_view key_text = take_word(&line);
  if (key_text.empty()) return Form::kBadLine;
  if (form->has_value()) {
    const std::string_view bytes = take_word(&line);
    if (bytes.empty() || !read_word('b', bytes)) return Form::kBadLine;
  }
  const char* const fault = meta.parse(key_text, line, meta_memory);
  if (form->has_value()) refused_bytes = value_bytes + kLineEnd.size();
  if (fault != nullptr) return fault;
  key = meta.key;
  if (!form->has_value()) return nullptr;
  if (!meta_store_terms(meta, &terms)) return "CLIENT_ERROR invalid mode for ms M token\r\n";
  const bool is_join = terms.storing == Storing::kAppend || terms.storing == Storing::kPrepend;
  flags = meta.client_flags;
  expiry_s = is_join ? meta.missing_expiry_s : meta.expiry_s;
  reply = Reply::kMeta;
  return nullptr;
}

const char* Request::parse_keys(std::string_view* line) noexcept {
  const bool is_touching = (form->get & Form::kTouching) != 0;
  const std::string_view expiry = is_touching ? take_word(line) : "";
  std::string_view keys = *line;
  if (take_word(&keys).empty()) return Form::kNoCommand;
  return is_touching && !parse_number(expiry, &expiry_s) ? Form::kBadExpiry : nullptr;
}

}  // namespace bedplate::kvd
