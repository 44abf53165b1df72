// A client's session: memcached's commands and their answers, over StreamSession.
//
// items_datapath.h has the work of commands on the cache. A value too large for the buffer is
// received straight into its item. If listeners have limits, a session waits for its turn before a
// command or a key of a get (session_limits_datapath.cc).
#pragma once

#include "apps/kvd/items_datapath.h"
#include "apps/kvd/meta_commands_datapath.h"
#include "apps/kvd/meta_request_datapath.h"
#include "platform/text_words.h"
#include "transport/loop/request_limit_datapath.h"
#include "transport/sockets/stream_session_datapath.h"

namespace bedplate::kvd {

// The kinds of commands in `bedplate trace`, one for each histogram that counts them.
enum RequestKind : uint8_t { kKindGet, kKindSet, kKindOther };
inline constexpr const char* kRequestKinds = "get|set|other";

// The keys of a get are answered as they arrive, since its line may be longer than the buffer.
//
// Invariants, which is_valid() checks before and after each step: 1. A command is set while its
// keys or its value are being processed. 2. The bytes of complete keys, and of their line's end
// once it has come, lie within arrived(); without a get both are 0. 3. An item that receives its
// value is pinned, not linked, and has that value's length. 4. It does not wait for a turn that it
// has.
//
// Other assertions check: 5. Only the loop's thread works on the session. (is_own_thread, in each
// step) 6. An item that a reply lends is linked: nobody writes it. (answer_text)
class Session final : public StreamSession, private RateWaiter {
 public:
  static constexpr uint32_t kBufferBytes = 16 * 1024;  // longer lines but gets end the session
  static constexpr uint32_t kDirectBytes = 4 * 1024;   // longer values skip the buffer

  explicit Session(const Environment& environment) noexcept
      : StreamSession(input_, output_),
        environment_(environment),
        cache_(*environment.cache),
        items_(environment) {}

  // The let_go() of the limits of listeners, on `loop`. If a listener has a limit, that is what
  // StreamPeer::listener() returns for its clients, as a RequestLimit.
  static void turn_came(void* loop, RateWaiter& waiter) noexcept;

  bool is_valid() const noexcept;

 private:
  static constexpr const char* kBadLine = "CLIENT_ERROR bad command line format\r\n";
  static constexpr uint32_t kLineMax = 2048;  // longer lines: ERROR, except a get's
  static constexpr uint32_t kCopyMax = 1024;  // longer replies to get are sent from the item
  enum class Syntax : uint8_t { kWords, kMeta, kUnknown };
  // A command's syntax and its function.
  struct Form {
    std::string_view word;
    // A letter for each required word. k: a key; f: flags; e: expiry; b: the bytes of the value
    // after the line; n: a number. K: keys, up to the line's end; m: the flags of a meta command,
    // up to it.
    std::string_view words;
    uint32_t more_max = 0;  // the most optional words after these, such as noreply
    void (Session::*execute)() noexcept = nullptr;
    const char* refusal = kBadLine;  // the answer if a word is not a valid number
    Storing storing = Storing::kNone;
    uint8_t get = 0;  // bits of Get
    Syntax syntax = Syntax::kWords;
    MetaCommand* meta = nullptr;  // kMeta, and the line has no value behind it

    bool is_change() const noexcept;  // it may change items
    static constexpr Form of_get(std::string_view word, std::string_view words, int get) noexcept {
      return {.word = word, .words = words, .get = static_cast<uint8_t>(get)};
    }
    static constexpr Form of_meta(std::string_view word, MetaCommand* command) noexcept {
      return {.word = word,
              .words = "km",
              .execute = &Session::answer_meta,
              .syntax = Syntax::kMeta,
              .meta = command};
    }
  };
  enum Get : uint8_t { kGet = 1, kWithVersion = 2, kTouching = 4 };
  static const Form kForms[];

  StreamStep work(uint64_t now_ns) noexcept override;
  void released(void* item) noexcept override { cache_.release(*static_cast<CacheItem*>(item)); }
  void left() noexcept override;

  StreamStep work_on_line() noexcept;
  const char* parse(std::string_view line) noexcept;
  const char* parse_meta(std::string_view line) noexcept;
  bool read_word(char kind, std::string_view word) noexcept;
  void answer(std::string_view text) noexcept {
    if (reply_ != Reply::kNone) say(text);
  }
  bool end_other_protocol() noexcept;
  const char* parse_keys(std::string_view* line) noexcept;
  bool begin_long_get() noexcept;
  bool find_keys() noexcept;
  bool drop_keys() noexcept;
  StreamStep answer_key() noexcept;
  void end_get() noexcept;
  void answer_more(std::string_view key) noexcept;
  void answer_text(CacheItem& item, std::string_view text) noexcept;
  void answer_meta() noexcept;
  void begin_storing() noexcept;
  void begin_meta_storing() noexcept;
  void receive_value() noexcept;
  void end_storing() noexcept;
  void answer_stored(const Items::Changed& changed, uint64_t value_bytes) noexcept;
  void count() noexcept;
  void touch() noexcept;
  void remove() noexcept;
  void flush() noexcept;
  void say_version() noexcept;
  void say_ok() noexcept { answer("OK\r\n"); }
  void say_no_op() noexcept { answer("MN\r\n"); }
  void answer_stats() noexcept;
  void quit() noexcept { end(); }
  // These are in session_limits_datapath.cc. They are called only while a listener has a limit.
  bool may_answer(std::string_view key) noexcept;
  bool may_execute() noexcept;
  bool take_turn(RateLimit& rate) noexcept;
  void give_up_turn() noexcept;

  const Environment& environment_;
  KeyedCache& cache_;
  Items items_;
  const Form* form_ = nullptr;  // of the current command, like the next members
  std::string_view key_;
  std::string_view more_;  // the first optional word, except noreply
  uint32_t flags_ = 0;
  int64_t expiry_s_ = 0;  // as the client sent it
  uint32_t value_bytes_ = 0;
  uint64_t number_ = 0;
  Items::StoreTerms terms_;     // of the value to store
  uint64_t refused_bytes_ = 0;  // a value behind a refused line, to be skipped
  // kNone: noreply; kMeta: the answer is that of an ms.
  enum class Reply : uint8_t { kText, kNone, kMeta };
  Reply reply_ = Reply::kText;
  MetaRequest request_;                                      // of a meta command
  enum class Keys : uint8_t { kNone, kAnswered, kDropped };  // kDropped: the rest of a bad line
  Keys keys_ = Keys::kNone;
  uint64_t keys_bytes_ = 0;         // bytes of complete keys, at the front of arrived()
  uint64_t keys_end_bytes_ = 0;     // bytes of the line's end after them; 0: it has not come
  CacheItem* item_ = nullptr;       // the item that receives its value
  RateLimit* waits_for_ = nullptr;  // it is in this queue
  bool has_turn_ = false;           // its turn has come, and the step that waited for it has not
  char request_memory_[MetaRequest::kMemoryBytes];
  char input_[kBufferBytes];
  char output_[kBufferBytes];
};

}  // namespace bedplate::kvd
