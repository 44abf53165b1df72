#include "apps/kvd/command_datapath.h"

#include <charconv>
#include <climits>

#include "apps/kvd/store_datapath.h"

namespace bedplate::kvd {
namespace {

constexpr uint32_t kWordsMax = 7;
constexpr uint32_t kAny = ~uint32_t{0};
constexpr const char* kBadLine = "CLIENT_ERROR bad command line format\r\n";
constexpr const char* kBadExpiry = "CLIENT_ERROR invalid exptime argument\r\n";

// How many words a line has, its first one included.
struct Form {
  std::string_view word;
  Verb verb;
  uint32_t words_min;
  uint32_t words_max;
};
constexpr Form kForms[] = {
    {"get", Verb::kGet, 2, kAny},          {"set", Verb::kSet, 5, 6},
    {"gets", Verb::kGets, 2, kAny},        {"add", Verb::kAdd, 5, 6},
    {"replace", Verb::kReplace, 5, 6},     {"append", Verb::kAppend, 5, 6},
    {"prepend", Verb::kPrepend, 5, 6},     {"cas", Verb::kCas, 6, 7},
    {"incr", Verb::kIncrement, 3, 4},      {"decr", Verb::kDecrement, 3, 4},
    {"touch", Verb::kTouch, 3, 4},         {"delete", Verb::kDelete, 2, 4},
    {"flush_all", Verb::kFlush, 1, 3},     {"version", Verb::kVersion, 1, 1},
    {"verbosity", Verb::kVerbosity, 2, 3}, {"stats", Verb::kStats, 1, 1},
    {"quit", Verb::kQuit, 1, 1},
};

const Form* find_form(std::string_view word) noexcept {
  for (const Form& form : kForms) {
    if (form.word == word) return &form;
  }
  return nullptr;
}

// What is wrong with the words of a command that has as many as it should, or nullptr.
const char* read_words(const std::string_view* words, uint32_t count, Command* command) noexcept {
  const bool has_key = command->verb <= Verb::kDelete;
  if (has_key && words[1].size() > kKeyBytesMax) return kBadLine;
  command->key = words[1];
  switch (command->verb) {
    case Verb::kIncrement:
    case Verb::kDecrement:
      if (parse_number(words[2], &command->number)) return nullptr;
      return "CLIENT_ERROR invalid numeric delta argument\r\n";
    case Verb::kTouch: return parse_number(words[2], &command->expiry_s) ? nullptr : kBadExpiry;
    case Verb::kDelete:
      if (count == 2 || words[2] == "0" || (count == 3 && command->is_quiet)) return nullptr;
      return "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
    case Verb::kFlush:
      if (count == 1 || (count == 2 && command->is_quiet)) return nullptr;
      return parse_number(words[1], &command->expiry_s) ? nullptr : kBadExpiry;
    case Verb::kVerbosity: return parse_number(words[1], &command->number) ? nullptr : kBadLine;
    default: break;
  }
  if (!command->is_storing()) return nullptr;
  const bool is_good = parse_number(words[2], &command->flags) &&
                       parse_number(words[3], &command->expiry_s) &&
                       parse_number(words[4], &command->value_bytes) &&
                       command->value_bytes <= INT_MAX - kLineEnd.size() &&
                       (command->verb != Verb::kCas || parse_number(words[5], &command->number));
  return is_good ? nullptr : kBadLine;
}

}  // namespace

template <typename Number>
bool parse_number(std::string_view word, Number* to) noexcept {
  const auto [end, outcome] = std::from_chars(word.data(), word.data() + word.size(), *to);
  return outcome == std::errc() && end == word.data() + word.size();
}
template bool parse_number(std::string_view, uint64_t*) noexcept;

std::string_view take_word(std::string_view* text) noexcept {
  const char* begin = text->data();
  const char* const end = begin + text->size();
  while (begin < end && *begin == ' ') ++begin;
  const char* word_end = begin;
  while (word_end < end && *word_end != ' ') ++word_end;
  *text = {word_end, static_cast<size_t>(end - word_end)};
  return {begin, static_cast<size_t>(word_end - begin)};
}

Command parse_command(std::string_view line) noexcept {
  Command command;
  command.refusal = "ERROR\r\n";
  std::string_view words[kWordsMax];
  words[0] = take_word(&line);
  const Form* form = find_form(words[0]);
  if (form == nullptr) return command;
  if (form->verb <= Verb::kGets) {
    std::string_view rest = line;
    if (take_word(&rest).empty()) return command;
    command.verb = form->verb;
    command.key = line;
    command.refusal = nullptr;
    return command;
  }
  uint32_t count = 1;
  while (count < kWordsMax && !(words[count] = take_word(&line)).empty()) ++count;
  const bool has_more = !take_word(&line).empty();
  if (count < form->words_min || count > form->words_max || has_more) return command;
  command.is_quiet = count > 1 && words[count - 1] == "noreply";
  command.verb = form->verb;
  command.refusal = read_words(words, count, &command);
  return command;
}

}  // namespace bedplate::kvd
