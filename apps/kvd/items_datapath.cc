#include "apps/kvd/items_datapath.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <ctime>

#include "platform/text_words.h"
#include "platform/units.h"

namespace bedplate::kvd {

// Whether the item may be linked.
bool Items::is_ready(CacheItem& item) noexcept {
  return item.pins > 0 && item.key_bytes > 0 && item.text().ends_with(kLineEnd);
}

uint64_t Items::expires_ns(int64_t seconds) const noexcept {
  constexpr int64_t kRelativeMax = 60 * 60 * 24 * 30;  // larger values: seconds since 1970
  constexpr int64_t kFar = kRelativeMax * 12 * 100;
  if (seconds == 0) return KeyedCache::kNever;
  if (seconds > kRelativeMax) seconds = std::min(seconds - std::time(nullptr), kFar);
  if (seconds <= 0) return 0;
  return environment_.cache->now_ns() + static_cast<uint64_t>(seconds) * kNsPerSecond;
}

// nullptr: there is none.
Outcome Items::set_expiry(CacheItem* item, int64_t expiry_s) noexcept {
  Counters& counters = *environment_.counters;
  (item != nullptr ? counters.touch_hits : counters.touch_misses).add(1);
  if (item == nullptr) return Outcome::kNotFound;
  item->expires_ns = expires_ns(expiry_s);
  use(*item);
  return Outcome::kDone;
}

CacheItem* Items::get_and_touch(std::string_view key, int64_t expiry_s) noexcept {
  CacheItem* const item = get(key);
  (void)set_expiry(item, expiry_s);
  return item;
}

Outcome Items::remove(std::string_view key) noexcept {
  Counters& counters = *environment_.counters;
  CacheItem* const item = environment_.cache->find(key);
  (item != nullptr ? counters.delete_hits : counters.delete_misses).add(1);
  if (item == nullptr) return Outcome::kNotFound;
  environment_.cache->unlink(*item);
  return Outcome::kDone;
}

void Items::flush(int64_t expiry_s) noexcept {
  KeyedCache& cache = *environment_.cache;
  cache.flush(expiry_s > 0 ? expires_ns(expiry_s) : cache.now_ns());
}

CacheItem* Items::make(std::string_view key, const NewItem& wanted) noexcept {
  BP_DCHECK(!key.empty() && key.size() <= kKeyBytesMax);
  BP_DCHECK(wanted.value_bytes <= INT_MAX - kLineEnd.size());
  char head[kValueWord.size() + kKeyBytesMax + 2 * kDigitsMax + 4];
  char* to = head + kValueWord.copy(head, kValueWord.size());
  to += key.copy(to, key.size());
  *to++ = ' ';
  to = std::to_chars(to, to + kDigitsMax, wanted.flags).ptr;
  *to++ = ' ';
  to = std::to_chars(to, to + kDigitsMax, wanted.value_bytes).ptr;
  to += kLineEnd.copy(to, kLineEnd.size());
  const ItemNote note = {.flags = wanted.flags, .used_at = now() & kUsesMask};
  CacheItem* item = environment_.cache->make(
      {.head = {head, static_cast<size_t>(to - head)},
       .key_bytes = static_cast<uint8_t>(key.size()),
       .body_bytes = static_cast<uint32_t>(wanted.value_bytes + kLineEnd.size()),
       .note = std::bit_cast<uint64_t>(note),
       .expires_ns = wanted.expires_ns,
       .may_reuse = wanted.may_reuse});
  BP_DCHECK(static_cast<size_t>(to - head) <= sizeof head);
  BP_DCHECK(item == nullptr || (item->pins == 1 && (wanted.may_reuse || !item->is_linked)));
  if (item != nullptr) kLineEnd.copy(item->body() + wanted.value_bytes, kLineEnd.size());
  return item;
}

Outcome Items::refused(Outcome outcome) noexcept {
  BP_DCHECK(outcome == Outcome::kTooLarge || outcome == Outcome::kNoMemory);
  Counters& counters = *environment_.counters;
  (outcome == Outcome::kTooLarge ? counters.too_large : counters.no_memory).add(1);
  return outcome;
}

Items::Changed Items::link(CacheItem& item) noexcept {
  BP_DCHECK(is_ready(item));
  environment_.cache->link(item);
  environment_.counters->stored.add(1);
  return {Outcome::kDone, &item};
}

// Compares the version of a cas. Returns kDone if it may store `item` in place of `old`, or the
// reason why not, and counts either.
Outcome Items::compare(const CacheItem* old, CacheItem& item, const StoreTerms& terms) noexcept {
  Counters& counters = *environment_.counters;
  if (old == nullptr) {
    counters.cas_misses.add(1);
    return Outcome::kNotFound;
  }
  const bool is_stale = terms.may_be_stale && terms.version < old->version;
  if (old->version != terms.version && !is_stale) {
    counters.cas_badval.add(1);
    return Outcome::kExists;
  }
  if (is_stale) {
    ItemNote note = note_of(item);
    note.is_stale = 1;
    note.is_won = note_of(*old).is_won;
    set_note(item, note);
    item.expires_ns = old->expires_ns;
  }
  counters.cas_hits.add(1);
  return Outcome::kDone;
}

Items::Changed Items::store(CacheItem& item, const StoreTerms& terms) noexcept {
  BP_DCHECK(terms.storing != Storing::kNone && is_ready(item));
  if (terms.storing == Storing::kSet) return link(item);
  CacheItem* const old = environment_.cache->find(environment_.cache->key_of(item));
  if (terms.storing == Storing::kCas) {
    const Outcome outcome = compare(old, item, terms);
    if (outcome != Outcome::kDone) return {outcome};
  } else if (terms.storing < Storing::kAppend) {
    if ((old == nullptr) != (terms.storing == Storing::kAdd)) return {Outcome::kNotStored};
  } else if (old != nullptr) {
    if (terms.joins_version && old->version != terms.version) return {Outcome::kExists};
    return join(*old, item, terms.storing == Storing::kAppend);
  } else if (!terms.makes_missing) {
    return {Outcome::kNotStored};
  }
  return link(item);
}

Items::Changed Items::make_for(std::string_view key, const NewItem& wanted,
                               Storing storing) noexcept {
  BP_DCHECK(storing != Storing::kNone);
  const bool is_short = fits(wanted.value_bytes);
  CacheItem* const item = is_short ? make(key, wanted) : nullptr;
  if (item != nullptr) return {Outcome::kDone, item};
  CacheItem* const old = storing == Storing::kSet ? environment_.cache->find(key) : nullptr;
  if (old != nullptr) environment_.cache->unlink(*old);
  return {refused(is_short ? Outcome::kNoMemory : Outcome::kTooLarge)};
}

Items::Changed Items::store_value(std::string_view key, std::string_view value,
                                  const NewItem& wanted, const StoreTerms& terms) noexcept {
  BP_DCHECK(value.size() == wanted.value_bytes);
  const Changed made = make_for(key, wanted, terms.storing);
  if (made.item == nullptr) return made;
  value.copy(made.item->body(), value.size());
  return store_received(*made.item, terms);
}

CacheItem* Items::put(std::string_view key, std::string_view value, uint32_t flags,
                      uint64_t expires_ns) noexcept {
  CacheItem* const item =
      make(key, {.flags = flags, .expires_ns = expires_ns, .value_bytes = value.size()});
  if (item == nullptr) {
    (void)refused(Outcome::kNoMemory);
    return nullptr;
  }
  value.copy(item->body(), value.size());
  link(*item);
  environment_.cache->release(*item);
  return item;
}

// Stores the joined values of `old` and `more`, with the flags and the expiry of `old`.
Items::Changed Items::join(CacheItem& old, CacheItem& more, bool is_append) noexcept {
  BP_DCHECK(old.is_linked && !more.is_linked && &old != &more);
  KeyedCache& cache = *environment_.cache;
  const std::string_view first = value_of(is_append ? old : more);
  const std::string_view second = value_of(is_append ? more : old);
  if (!fits(first.size() + second.size())) return {refused(Outcome::kTooLarge)};
  cache.pin(old);
  CacheItem* both = make(cache.key_of(more), {.flags = note_of(old).flags,
                                              .expires_ns = old.expires_ns,
                                              .value_bytes = first.size() + second.size()});
  if (both != nullptr) {
    first.copy(both->body(), first.size());
    second.copy(both->body() + first.size(), second.size());
    use(*both);
    link(*both);
    cache.release(*both);
  }
  cache.release(old);
  if (both == nullptr) return {refused(Outcome::kNoMemory)};
  return {Outcome::kDone, both};
}

Items::Counted Items::count(std::string_view key, const CountTerms& terms) noexcept {
  KeyedCache& cache = *environment_.cache;
  Counters& counters = *environment_.counters;
  CacheItem* item = cache.find(key);
  if (item == nullptr) {
    (terms.is_incr ? counters.incr_misses : counters.decr_misses).add(1);
    return {{Outcome::kNotFound}};
  }
  if (terms.version && item->version != *terms.version) return {{Outcome::kExists}};
  std::string_view text = value_of(*item);
  const uint64_t value_bytes = text.size();
  while (text.ends_with(' ')) text.remove_suffix(1);  // padding after a longer number
  uint64_t number = 0;
  if (value_bytes > kDigitsMax || !parse_number(text, &number)) return {{Outcome::kNotNumber}};
  number = terms.is_incr ? number + terms.delta : number - std::min(number, terms.delta);
  char digits[kDigitsMax];
  const auto digit_count =
      static_cast<uint64_t>(std::to_chars(digits, std::end(digits), number).ptr - digits);
  if (item->pins == 0 && digit_count <= value_bytes) {
    cache.pin(*item);
  } else {
    const ItemNote note = note_of(*item);
    item = make(key, {.flags = note.flags,
                      .expires_ns = item->expires_ns,
                      .value_bytes = std::max(digit_count, value_bytes)});
    if (item == nullptr) return {{refused(Outcome::kNoMemory)}};
    set_note(*item, note);
    counters.stored.add(1);
  }
  use(*item);
  (terms.is_incr ? counters.incr_hits : counters.decr_hits).add(1);
  BP_DCHECK(item->pins == 1 && digit_count <= value_of(*item).size());  // no other reader
  std::fill_n(item->body(), value_of(*item).size(), ' ');
  std::copy_n(digits, digit_count, item->body());
  BP_DCHECK(is_ready(*item));
  cache.link(*item);
  cache.release(*item);
  return {{Outcome::kDone, item}, number};
}

}  // namespace bedplate::kvd
