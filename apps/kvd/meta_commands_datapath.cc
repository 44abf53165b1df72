#include "apps/kvd/meta_commands_datapath.h"

#include <charconv>
#include <span>

#include "platform/assert.h"
#include "platform/units.h"

namespace bedplate::kvd {
namespace {

constexpr const char* kNoMemory = "SERVER_ERROR out of memory storing object\r\n";

// nullptr: error_of() has the reply.
const char* code_of(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::kDone: return "HD";
    case Outcome::kNotStored: return "NS";
    case Outcome::kExists: return "EX";
    case Outcome::kNotFound: return "NF";
    default: return nullptr;
  }
}

const char* error_of(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::kNotNumber:
      return "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
    case Outcome::kTooLarge: return "SERVER_ERROR object too large for cache\r\n";
    default: return kNoMemory;
  }
}

// Repeats a flag of the request whose reply is the same for all commands.
void echo(const MetaRequest& request, char letter, TextWriter& reply) noexcept {
  if (letter == 'O') reply.text(" ").text(request.opaque);
  if (letter != 'k') return;
  reply.text(" k").text(request.key_text);
  if (request.has('b')) reply.text(" b");
}

// A whole reply of a code and the repeated flags.
CacheItem* say(const char* code, const MetaRequest& request, TextWriter& reply) noexcept {
  reply.text(code);
  for (const char letter : request.order()) echo(request, letter, reply);
  reply.text(kLineEnd);
  return nullptr;
}

CacheItem* say_error(const char* error, TextWriter& reply) noexcept {
  reply.text(error);
  return nullptr;
}

void say_flag(char letter, uint64_t number, TextWriter& reply) noexcept {
  const char text[] = {' ', letter};
  reply.text({text, sizeof text}).number(number);
}

std::string_view digits_of(uint64_t number, std::span<char, kDigitsMax> memory) noexcept {
  char* const end = std::to_chars(memory.data(), memory.data() + memory.size(), number).ptr;
  return {memory.data(), static_cast<size_t>(end - memory.data())};
}

// The time until the item expires, rounded up; -1: it does not.
void say_time_left(const CacheItem& item, uint64_t now_ns, TextWriter& reply) noexcept {
  if (item.expires_ns == KeyedCache::kNever) {
    reply.text("-1");
  } else {
    const uint64_t left_ns = item.expires_ns > now_ns ? item.expires_ns - now_ns : 0;
    reply.number((left_ns + kNsPerSecond - 1) / kNsPerSecond);
  }
}

uint64_t idle_s(const Items& items, const CacheItem& item) noexcept {
  return (items.idle_ns(item) + kNsPerSecond / 2) / kNsPerSecond;
}

}  // namespace

CacheItem* meta_get(const Environment& environment, const MetaRequest& request,
                    TextWriter& reply) noexcept {
  KeyedCache& cache = *environment.cache;
  Counters& counters = *environment.counters;
  Items items(environment);
  CacheItem* item = request.has('u') ? cache.peek(request.key) : cache.find(request.key);
  counters.count_get(item != nullptr);
  if (request.has('T')) (item != nullptr ? counters.touch_hits : counters.touch_misses).add(1);
  const bool is_new = item == nullptr && request.has('N');
  if (is_new) {
    item = items.put(request.key, "", 0, items.expires_ns(request.missing_expiry_s));
    if (item == nullptr) return say_error(kNoMemory, reply);
  }
  if (item == nullptr) return request.has('q') ? nullptr : say("EN", request, reply);

  ItemNote note = note_of(*item);
  const uint64_t value_bytes = value_of(*item).size();
  const bool has_value =
      request.has('v') && !(request.has('C') && item->version == request.version);
  has_value ? reply.text("VA ").number(value_bytes) : reply.text("HD");
  bool wins = is_new || note.is_stale != 0;
  for (const char letter : request.order()) {
    switch (letter) {
      case 'T': item->expires_ns = items.expires_ns(request.expiry_s); break;
      case 'R':
        wins |= request.recache_s != 0 && item->expires_ns != KeyedCache::kNever &&
                item->expires_ns < items.expires_ns(request.recache_s);
        break;
      case 's': say_flag('s', value_bytes, reply); break;
      case 'c': say_flag('c', item->version, reply); break;
      case 'f': say_flag('f', note.flags, reply); break;
      case 'h': say_flag('h', item->is_fetched ? 1 : 0, reply); break;
      case 'l': say_flag('l', idle_s(items, *item), reply); break;
      case 't': say_time_left(*item, cache.now_ns(), reply.text(" t")); break;
      default: echo(request, letter, reply);
    }
  }
  wins &= note.is_won == 0;
  if (note.is_won != 0) reply.text(" Z");
  if (note.is_stale != 0) reply.text(" X");
  if (wins) reply.text(" W");
  reply.text(kLineEnd);
  if (wins) note.is_won = 1;
  set_note(*item, note);
  if (!request.has('u')) items.use(*item);
  return has_value ? item : nullptr;
}

CacheItem* meta_delete(const Environment& environment, const MetaRequest& request,
                       TextWriter& reply) noexcept {
  KeyedCache& cache = *environment.cache;
  Counters& counters = *environment.counters;
  Items items(environment);
  CacheItem* item = cache.find(request.key);
  if (item == nullptr) {
    counters.delete_misses.add(1);
    return say("NF", request, reply);
  }
  if (request.has('C') && item->version != request.version) {
    counters.cas_badval.add(1);
    return say("EX", request, reply);
  }
  if (request.has('x')) {
    item = items.put(request.key, "", request.client_flags, item->expires_ns);
    if (item == nullptr) return say_error(kNoMemory, reply);
  }
  if (request.has('I')) {
    if (request.has('T')) item->expires_ns = items.expires_ns(request.expiry_s);
    ItemNote note = note_of(*item);
    note.is_stale = 1;
    note.is_won = 0;
    set_note(*item, note);
    cache.link(*item);
  } else if (!request.has('x')) {
    cache.unlink(*item);
    counters.delete_hits.add(1);
  }
  return request.has('q') ? nullptr : say("HD", request, reply);
}

CacheItem* meta_count(const Environment& environment, const MetaRequest& request,
                      TextWriter& reply) noexcept {
  const bool is_decr = request.mode == 'D' || request.mode == '-';
  if (request.has('M') && !is_decr && request.mode != 'I' && request.mode != '+') {
    return say_error("CLIENT_ERROR invalid mode for ma M token\r\n", reply);
  }
  Items items(environment);
  auto [changed, number] = items.count(
      request.key, {.is_incr = !is_decr,
                    .delta = request.delta,
                    .version = request.has('C') ? std::optional(request.version) : std::nullopt});
  const bool is_new = changed.outcome == Outcome::kNotFound && request.has('N');
  char memory[kDigitsMax];
  const std::string_view digits = digits_of(is_new ? request.initial : number, memory);
  if (is_new) {
    CacheItem* const made =
        items.put(request.key, digits, 0, items.expires_ns(request.missing_expiry_s));
    changed = {made != nullptr ? Outcome::kDone : Outcome::kNoMemory, made};
  }
  CacheItem* const item = changed.item;
  if (item == nullptr) {
    if (changed.outcome == Outcome::kExists) environment.counters->cas_badval.add(1);
    const char* const code = code_of(changed.outcome);
    if (code == nullptr) return say_error(error_of(changed.outcome), reply);
    return say(code, request, reply);
  }
  const bool has_value = request.has('v');
  TextWriter nowhere(std::span<char>{});
  TextWriter& said = request.has('q') ? nowhere : reply;
  has_value ? said.text("VA ").number(digits.size()) : said.text("HD");
  for (const char letter : request.order()) {
    switch (letter) {
      case 'T': item->expires_ns = items.expires_ns(request.expiry_s); break;
      case 'c': say_flag('c', item->version, said); break;
      case 't': say_time_left(*item, environment.cache->now_ns(), said.text(" t")); break;
      default: echo(request, letter, said);
    }
  }
  said.text(kLineEnd);
  if (has_value) said.text(digits).text(kLineEnd);
  return nullptr;
}

CacheItem* meta_debug(const Environment& environment, const MetaRequest& request,
                      TextWriter& reply) noexcept {
  CacheItem* const item = environment.cache->peek(request.key);
  if (item == nullptr) return say_error("EN\r\n", reply);
  reply.text("ME ").text(request.key_text).text(" exp=");
  say_time_left(*item, environment.cache->now_ns(), reply);
  reply.text(" la=").number(idle_s(Items(environment), *item));
  reply.text(" cas=").number(item->version);
  reply.text(" fetch=").text(item->is_fetched ? "yes" : "no");
  reply.text(" cls=1 size=").number(uint64_t{item->lines} * kCacheLineBytes).text(kLineEnd);
  return nullptr;
}

bool meta_store_terms(const MetaRequest& request, Items::StoreTerms* terms) noexcept {
  const bool has_version = request.has('C');
  *terms = {.version = request.version,
            .joins_version = has_version,
            .may_be_stale = request.has('I'),
            .makes_missing = request.has('N')};
  switch (request.has('M') ? request.mode : 'S') {
    case 'S': terms->storing = has_version ? Storing::kCas : Storing::kSet; return true;
    case 'R': terms->storing = has_version ? Storing::kCas : Storing::kReplace; return true;
    case 'E': terms->storing = Storing::kAdd; return true;
    case 'A': terms->storing = Storing::kAppend; return true;
    case 'P': terms->storing = Storing::kPrepend; return true;
    default: return false;
  }
}

void meta_stored(const MetaRequest& request, const Items::Changed& changed, uint64_t value_bytes,
                 TextWriter& reply) noexcept {
  const char* const code = code_of(changed.outcome);
  if (code == nullptr) return (void)say_error(error_of(changed.outcome), reply);
  CacheItem* const item = changed.item;
  if (item != nullptr && request.has('q')) return;
  reply.text(code);
  for (const char letter : request.order()) {
    switch (letter) {
      case 'c': say_flag('c', item != nullptr ? item->version : 0, reply); break;
      case 's': say_flag('s', item != nullptr ? value_of(*item).size() : value_bytes, reply); break;
      default: echo(request, letter, reply);
    }
  }
  reply.text(kLineEnd);
}

}  // namespace bedplate::kvd
