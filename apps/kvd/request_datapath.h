// The commands of kvd's clients, and the line of one, parsed: memcached's text protocol.
//
// One table lists all commands: which words a line has, and what the command is. A Request is the
// present command of a session. It knows the limits and the words of the protocol, but no item and
// no answer, except for those to a line that is refused.
//
// Threads: any. Nothing is allocated.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "apps/kvd/items_datapath.h"
#include "apps/kvd/meta_commands_datapath.h"
#include "apps/kvd/meta_request_datapath.h"

namespace bedplate::kvd {

// The kinds of commands. kMeta: the work is that of Form::meta.
enum class Verb : uint8_t {
  kUnknown,
  kGet,
  kStore,
  kCount,
  kTouch,
  kDelete,
  kFlush,
  kVersion,
  kVerbosity,
  kStats,
  kQuit,
  kMeta,
  kNoOp,
};

// A command's syntax and its meaning.
struct Form {
  // Answers to a line that is refused.
  static constexpr const char* kNoCommand = "ERROR\r\n";
  static constexpr const char* kBadLine = "CLIENT_ERROR bad command line format\r\n";
  static constexpr const char* kBadExpiry = "CLIENT_ERROR invalid exptime argument\r\n";
  static constexpr const char* kBadDelta = "CLIENT_ERROR invalid numeric delta argument\r\n";

  enum class Syntax : uint8_t { kWords, kMeta, kUnknown };
  enum Get : uint8_t { kGet = 1, kWithVersion = 2, kTouching = 4 };

  std::string_view word;
  // A letter for each required word. k: a key; f: flags; e: expiry; b: the bytes of the value after
  // the line; n: a number. K: keys, up to the line's end; m: the flags of a meta command, up to it.
  std::string_view words;
  uint32_t more_max = 0;  // the most optional words after these, such as noreply
  Verb verb = Verb::kUnknown;
  const char* refusal = kBadLine;  // the answer if a word is not a valid number
  Storing storing = Storing::kNone;
  uint8_t get = 0;  // bits of Get
  Syntax syntax = Syntax::kWords;
  MetaCommand* meta = nullptr;  // kMeta, and the line has no value behind it

  bool has_value() const noexcept { return storing != Storing::kNone; }
  // Whether it may change items.
  bool is_change() const noexcept {
    return has_value() || verb == Verb::kCount || verb == Verb::kTouch || verb == Verb::kDelete ||
           verb == Verb::kFlush || meta == meta_delete || meta == meta_count;
  }

  static constexpr Form of_get(std::string_view word, std::string_view words, int get) noexcept {
    return {.word = word, .words = words, .verb = Verb::kGet, .get = static_cast<uint8_t>(get)};
  }
  static constexpr Form of_store(std::string_view word, Storing storing) noexcept {
    return {.word = word,
            .words = storing == Storing::kCas ? "kfebn" : "kfeb",
            .more_max = 1,
            .verb = Verb::kStore,
            .storing = storing};
  }
  static constexpr Form of_meta(std::string_view word, MetaCommand* command) noexcept {
    return {
        .word = word, .words = "km", .verb = Verb::kMeta, .syntax = Syntax::kMeta, .meta = command};
  }
};

// The last one is that of a word that is no command.
inline constexpr Form kForms[] = {
    Form::of_get("get", "K", Form::kGet),
    Form::of_store("set", Storing::kSet),
    Form::of_meta("mg", meta_get),
    {.word = "ms",
     .words = "kbm",
     .verb = Verb::kStore,
     .storing = Storing::kSet,
     .syntax = Form::Syntax::kMeta},
    Form::of_get("gets", "K", Form::kGet | Form::kWithVersion),
    Form::of_get("gat", "eK", Form::kGet | Form::kTouching),
    Form::of_get("gats", "eK", Form::kGet | Form::kWithVersion | Form::kTouching),
    Form::of_store("add", Storing::kAdd),
    Form::of_store("replace", Storing::kReplace),
    Form::of_store("append", Storing::kAppend),
    Form::of_store("prepend", Storing::kPrepend),
    Form::of_store("cas", Storing::kCas),
    {"incr", "kn", 1, Verb::kCount, Form::kBadDelta},
    {"decr", "kn", 1, Verb::kCount, Form::kBadDelta},
    {"touch", "ke", 1, Verb::kTouch, Form::kBadExpiry},
    {"delete", "k", 2, Verb::kDelete},
    {"flush_all", "", 2, Verb::kFlush},
    {"version", "", 0, Verb::kVersion},
    {"verbosity", "n", 1, Verb::kVerbosity},
    {"stats", "", 1, Verb::kStats},
    {"quit", "", 0, Verb::kQuit},
    Form::of_meta("md", meta_delete),
    Form::of_meta("ma", meta_count),
    Form::of_meta("me", meta_debug),
    {"mn", "", 0, Verb::kNoOp},
    {.word = "", .words = "", .syntax = Form::Syntax::kUnknown},
};

inline const Form& form_of(std::string_view word) noexcept {
  return *std::find_if(kForms, std::end(kForms) - 1,
                       [&](const Form& each) { return each.word == word; });
}

// kNone: noreply; kMeta: the answer is that of an ms.
enum class Reply : uint8_t { kText, kNone, kMeta };

struct Request {
  // Parses the words after the command of `form`. Returns the answer to the first fault, in
  // memcached's order of checks, or nullptr. Lifetime: the request refers to the line.
  const char* parse(std::string_view line) noexcept;
  // The same for a get: removes what comes before its keys from *line.
  const char* parse_keys(std::string_view* line) noexcept;
  // Begins with a line whose command is `word`.
  void begin(std::string_view word) noexcept {
    form = &form_of(word);
    reply = Reply::kText;
    expiry_s = 0;
    refused_bytes = 0;
  }

  bool is_quiet() const noexcept { return reply == Reply::kNone; }
  bool is_incr() const noexcept { return form->word == "incr"; }

  const Form* form = nullptr;
  std::string_view key;
  std::string_view more;  // the first optional word, except noreply
  uint32_t flags = 0;
  int64_t expiry_s = 0;  // as the client sent it
  uint32_t value_bytes = 0;
  uint64_t number = 0;
  Items::StoreTerms terms;     // of the value to store
  uint64_t refused_bytes = 0;  // a value behind a refused line, to be skipped
  Reply reply = Reply::kText;
  MetaRequest meta;  // of a meta command
  char meta_memory[MetaRequest::kMemoryBytes];

 private:
  const char* parse_meta(std::string_view line) noexcept;
  const char* parse_more() noexcept;
  bool read_word(char kind, std::string_view word) noexcept;
};

}  // namespace bedplate::kvd
