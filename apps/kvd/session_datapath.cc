#include "apps/kvd/session_datapath.h"

#include <algorithm>
#include <charconv>
#include <ctime>

#include "platform/units.h"

namespace bedplate::kvd {
namespace {

constexpr uint32_t kLineMax = 2048;  // of what is no get
constexpr uint32_t kDigitsMax = 20;

std::string_view digits_of(uint64_t number, char (&text)[kDigitsMax]) noexcept {
  return {text, static_cast<size_t>(std::to_chars(text, text + kDigitsMax, number).ptr - text)};
}

}  // namespace

void Session::reset() noexcept {
  if (item_ != nullptr) environment_.store->release(*item_);
  item_ = nullptr;
  keys_ = {};
  is_over_ = true;  // nothing is left to be worked on
  sent();
  is_over_ = false;
  value_left_ = skip_bytes_ = 0;
  begin_ = end_ = 0;
  wanted_bytes_ = 1;
  answered_ = {};
  is_starved_ = true;
}

// ---- what comes ---------------------------------------------------------------------------------

Session::Input Session::input() noexcept {
  if (is_over_ || !keys_.empty()) return {input_, 0, 0};
  uint32_t count = 0;
  if (item_ != nullptr && value_left_ > 0) {
    char* const end = item_->value() + item_->value_bytes + kLineEnd.size();
    input_[count++] = {end - value_left_, value_left_};
  }
  if (begin_ > 0 && (begin_ == end_ || end_ > kBufferBytes / 2)) {
    std::memmove(buffer_, buffer_ + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ < kBufferBytes) input_[count++] = {buffer_ + end_, kBufferBytes - end_};
  return {input_, count, std::max<uint64_t>(value_left_, 1)};
}

void Session::received(uint64_t bytes) noexcept {
  const uint64_t of_value = std::min(bytes, value_left_);
  value_left_ -= of_value;
  end_ += static_cast<uint32_t>(bytes - of_value);
  // What waits behind a send has waited since it came.
  if (is_starved_) received_ns_ = environment_.store->now_ns();
  work();
}

bool Session::has_room() const noexcept {
  return text_bytes_ + kTextRoom <= kTextBytes && piece_count_ + 2 < kPieces &&
         reply_bytes_ < kBatchBytes;
}

void Session::work() noexcept {
  is_starved_ = false;
  while (!is_over_ && !is_sending_ && has_room()) {
    if (!keys_.empty()) {
      answer_key();
    } else if (skip_bytes_ > 0) {
      const auto skipped = static_cast<uint32_t>(std::min<uint64_t>(skip_bytes_, end_ - begin_));
      is_starved_ = skipped == 0;
      if (is_starved_) return;
      skip_bytes_ -= skipped;
      begin_ += skipped;
    } else if (item_ != nullptr) {
      is_starved_ = value_left_ > 0;
      if (is_starved_) return;
      end_storing();
    } else if (!work_on_line()) {
      is_starved_ = true;
      return;
    }
  }
}

// Returns whether a line was there, and the value behind it, unless that goes to its item.
bool Session::work_on_line() noexcept {
  const uint32_t there = end_ - begin_;
  if (there < wanted_bytes_) return false;
  const char* const begin = buffer_ + begin_;
  const auto* end = static_cast<const char*>(std::memchr(begin, '\n', there));
  if (end == nullptr) {
    if (there < kBufferBytes) return false;
    say("CLIENT_ERROR line too long\r\n");
    is_over_ = true;
    return false;
  }
  const auto line_bytes = static_cast<uint32_t>(end - begin) + 1;
  command_ = parse_command({begin, line_bytes - (end > begin && end[-1] == '\r' ? 2U : 1U)});
  if (command_.verb > Verb::kGets && line_bytes > kLineMax) command_.refusal = "ERROR\r\n";
  if (command_.is_storing() && command_.refusal == nullptr) {
    wanted_bytes_ = line_bytes + command_.value_bytes + static_cast<uint32_t>(kLineEnd.size());
    if (command_.value_bytes <= kDirectBytes && there < wanted_bytes_) return false;
  }
  wanted_bytes_ = 1;
  begin_ += line_bytes;
  execute();
  return true;
}

// ---- commands -----------------------------------------------------------------------------------

void Session::execute() noexcept {
  if (command_.refusal != nullptr) return say(command_.refusal);
  if (command_.is_storing()) return begin_storing();
  Store& store = *environment_.store;
  Item* item = nullptr;
  if (command_.verb > Verb::kGets) ++answered_.others;
  switch (command_.verb) {
    case Verb::kGet:
    case Verb::kGets: keys_ = command_.key; break;
    case Verb::kIncrement:
    case Verb::kDecrement: count_up_or_down(); break;
    case Verb::kTouch:
      item = store.find(command_.key);
      if (item != nullptr) item->expires_ns = expiry_ns(command_.expiry_s);
      say(item != nullptr ? "TOUCHED\r\n" : "NOT_FOUND\r\n");
      break;
    case Verb::kDelete:
      item = store.find(command_.key);
      if (item != nullptr) store.unlink(*item);
      say(item != nullptr ? "DELETED\r\n" : "NOT_FOUND\r\n");
      break;
    case Verb::kFlush:
      store.flush(command_.expiry_s > 0 ? expiry_ns(command_.expiry_s) : store.now_ns());
      say("OK\r\n");
      break;
    case Verb::kVersion: say("VERSION 1.0.0-bedplate\r\n"); break;
    case Verb::kVerbosity: say("OK\r\n"); break;
    case Verb::kStats: answer_stats(); break;
    default: is_over_ = true; break;
  }
}

uint64_t Session::expiry_ns(int64_t seconds) const noexcept {
  constexpr int64_t kRelativeMax = 60 * 60 * 24 * 30;  // beyond: seconds since 1970
  constexpr int64_t kFar = kRelativeMax * 12 * 100;
  if (seconds == 0) return Store::kNever;
  if (seconds > kRelativeMax) seconds = std::min(seconds - std::time(nullptr), kFar);
  if (seconds <= 0) return 0;
  return environment_.store->now_ns() + static_cast<uint64_t>(seconds) * kNsPerSecond;
}

void Session::answer_key() noexcept {
  const std::string_view key = take_word(&keys_);
  if (key.size() > kKeyBytesMax) {
    keys_ = {};
    return say("CLIENT_ERROR bad command line format\r\n");
  }
  if (!key.empty()) {
    Item* item = environment_.store->find(key);
    environment_.counters->gets.add(1);
    (item != nullptr ? environment_.counters->hits : environment_.counters->misses).add(1);
    if (item != nullptr) answer_item(*item);
  }
  if (!keys_.empty()) return;
  add_text("END\r\n");
  ++answered_.gets;
}

void Session::answer_item(Item& item) noexcept {
  std::string_view rest = item.reply();
  if (command_.verb == Verb::kGets) {
    const size_t head_bytes = item.head_bytes - kLineEnd.size();
    char digits[kDigitsMax];
    add_text(rest.substr(0, head_bytes));
    add_text(" ");
    add_text(digits_of(item.cas, digits));
    rest.remove_prefix(head_bytes);
  }
  if (rest.size() <= kCopyMax) return add_text(rest);
  environment_.store->pin(item);
  pinned_[pin_count_++] = &item;
  pieces_[piece_count_++] = {const_cast<char*>(rest.data()), rest.size()};
  reply_bytes_ += rest.size();
}

void Session::begin_storing() noexcept {
  const uint64_t data_bytes = command_.value_bytes + kLineEnd.size();
  const bool fits = command_.value_bytes <= environment_.value_bytes_max;
  const bool is_direct = command_.value_bytes > kDirectBytes;
  if (fits && !is_direct &&
      std::string_view(buffer_ + begin_ + command_.value_bytes, kLineEnd.size()) != kLineEnd) {
    begin_ += static_cast<uint32_t>(data_bytes);
    return say("CLIENT_ERROR bad data chunk\r\n");
  }
  if (fits) {
    item_ =
        environment_.store->make({command_.key, command_.flags, expiry_ns(command_.expiry_s),
                                  command_.value_bytes, command_.verb == Verb::kSet && !is_direct});
  }
  if (item_ == nullptr) {
    // What the client wanted gone does not stay.
    Item* old = command_.verb == Verb::kSet ? environment_.store->find(command_.key) : nullptr;
    if (old != nullptr) environment_.store->unlink(*old);
    skip_bytes_ = data_bytes;
    return say(fits ? "SERVER_ERROR out of memory storing object\r\n"
                    : "SERVER_ERROR object too large for cache\r\n");
  }
  const auto there = static_cast<uint32_t>(std::min<uint64_t>(data_bytes, end_ - begin_));
  std::memcpy(item_->value(), buffer_ + begin_, there);
  begin_ += there;
  value_left_ = data_bytes - there;
}

void Session::end_storing() noexcept {
  Item& item = *item_;
  item_ = nullptr;
  const bool is_whole = item.reply().ends_with(kLineEnd);
  if (is_whole) environment_.counters->sets.add(1);
  say(is_whole ? store(item) : "CLIENT_ERROR bad data chunk\r\n");
  ++answered_.sets;
  environment_.store->release(item);
}

const char* Session::store(Item& item) noexcept {
  Item* old = command_.verb == Verb::kSet ? nullptr : environment_.store->find(item.key());
  switch (command_.verb) {
    case Verb::kSet: break;
    case Verb::kAdd:
      if (old != nullptr) return "NOT_STORED\r\n";
      break;
    case Verb::kCas:
      if (old == nullptr) return "NOT_FOUND\r\n";
      if (old->cas != command_.number) return "EXISTS\r\n";
      break;
    default:
      if (old == nullptr) return "NOT_STORED\r\n";
      if (command_.verb != Verb::kReplace) return join(*old, item);
      break;
  }
  environment_.store->link(item);
  return "STORED\r\n";
}

// Stores what `old` and `more` are together, with the flags and the expiry of `old`.
const char* Session::join(Item& old, Item& more) noexcept {
  Store& store = *environment_.store;
  const uint64_t bytes = uint64_t{old.value_bytes} + more.value_bytes;
  if (bytes > environment_.value_bytes_max) return "SERVER_ERROR object too large for cache\r\n";
  store.pin(old);
  Item* both = store.make({more.key(), old.flags, old.expires_ns, static_cast<uint32_t>(bytes)});
  if (both != nullptr) {
    Item& first = command_.verb == Verb::kAppend ? old : more;
    Item& second = command_.verb == Verb::kAppend ? more : old;
    std::memcpy(both->value(), first.value(), first.value_bytes);
    std::memcpy(both->value() + first.value_bytes, second.value(), second.value_bytes);
    store.link(*both);
    store.release(*both);
  }
  store.release(old);
  return both != nullptr ? "STORED\r\n" : "SERVER_ERROR out of memory storing object\r\n";
}

void Session::count_up_or_down() noexcept {
  Store& store = *environment_.store;
  Item* item = store.find(command_.key);
  if (item == nullptr) return say("NOT_FOUND\r\n");
  std::string_view text(item->value(), item->value_bytes);
  while (text.ends_with(' ')) text.remove_suffix(1);  // what a longer number left
  uint64_t number = 0;
  if (item->value_bytes > kDigitsMax || !parse_number(text, &number)) {
    return say("CLIENT_ERROR cannot increment or decrement non-numeric value\r\n");
  }
  if (command_.verb == Verb::kIncrement) {
    number += command_.number;
  } else {
    number -= std::min(number, command_.number);
  }
  char memory[kDigitsMax];
  const std::string_view digits = digits_of(number, memory);
  const bool is_in_place = item->pins == 0 && digits.size() <= item->value_bytes;
  if (is_in_place) {
    store.pin(*item);
  } else {
    const auto bytes = std::max<uint32_t>(static_cast<uint32_t>(digits.size()), item->value_bytes);
    item = store.make({command_.key, item->flags, item->expires_ns, bytes});
    if (item == nullptr) return say("SERVER_ERROR out of memory in incr\r\n");
  }
  std::memset(item->value(), ' ', item->value_bytes);
  std::memcpy(item->value(), digits.data(), digits.size());
  store.link(*item);
  store.release(*item);
  say(digits);
  say(kLineEnd);
}

void Session::answer_stats() noexcept {
  const Counters& counters = *environment_.counters;
  const Store& store = *environment_.store;
  const auto add = [this](std::string_view name, uint64_t value) {
    char digits[kDigitsMax];
    for (const std::string_view part : {std::string_view("STAT "), name, std::string_view(" "),
                                        digits_of(value, digits), kLineEnd}) {
      add_text(part);
    }
  };
  add("uptime", (store.now_ns() - environment_.started_ns) / kNsPerSecond);
  add("time", static_cast<uint64_t>(std::time(nullptr)));
  add("curr_connections", counters.connections_open.read());
  add("total_connections", counters.connections_total.read());
  add("cmd_get", counters.gets.read());
  add("cmd_set", counters.sets.read());
  add("get_hits", counters.hits.read());
  add("get_misses", counters.misses.read());
  add("evictions", counters.evictions.read());
  add("curr_items", counters.items.read());
  add("bytes", counters.bytes.read());
  add("limit_maxbytes", store.memory_bytes());
  add_text("END\r\n");
}

// ---- what is answered ---------------------------------------------------------------------------

void Session::say(std::string_view text) noexcept {
  if (!command_.is_quiet) add_text(text);
}

void Session::add_text(std::string_view text) noexcept {
  char* const to = text_ + text_bytes_;
  std::memcpy(to, text.data(), text.size());
  text_bytes_ += static_cast<uint32_t>(text.size());
  reply_bytes_ += text.size();
  iovec* last = piece_count_ == 0 ? nullptr : &pieces_[piece_count_ - 1];
  if (last != nullptr && static_cast<char*>(last->iov_base) + last->iov_len == to) {
    last->iov_len += text.size();
  } else {
    pieces_[piece_count_++] = {to, text.size()};
  }
}

std::span<iovec> Session::replies() noexcept {
  if (is_sending_ || piece_count_ == 0) return {};
  is_sending_ = true;
  return {pieces_, piece_count_};
}

void Session::handed_over(uint64_t now_ns) noexcept {
  const uint64_t ns = now_ns - received_ns_;
  Counters& counters = *environment_.counters;
  if (answered_.gets > 0) counters.get_ns.add(ns, answered_.gets);
  if (answered_.sets > 0) counters.set_ns.add(ns, answered_.sets);
  if (answered_.others > 0) counters.other_ns.add(ns, answered_.others);
  answered_ = {};
}

void Session::sent() noexcept {
  while (pin_count_ > 0) environment_.store->release(*pinned_[--pin_count_]);
  text_bytes_ = piece_count_ = 0;
  reply_bytes_ = 0;
  is_sending_ = false;
  work();
}

}  // namespace bedplate::kvd
