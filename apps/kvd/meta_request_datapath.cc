#include "apps/kvd/meta_request_datapath.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "platform/assert.h"
#include "platform/text_words.h"

namespace bedplate::kvd {
namespace {

constexpr const char* kBadLine = "CLIENT_ERROR bad command line format\r\n";
constexpr const char* kBadToken = "CLIENT_ERROR bad token in command line format\r\n";
constexpr const char* kBadKey = "CLIENT_ERROR error decoding key\r\n";

template <auto kMember>
bool number(MetaRequest& request, std::string_view token) noexcept {
  return parse_number(token, &(request.*kMember));
}

bool mode(MetaRequest& request, std::string_view token) noexcept {
  request.mode = token.empty() ? ' ' : token.front();
  return true;
}

bool opaque(MetaRequest& request, std::string_view token) noexcept {
  request.opaque = {token.data() - 1, token.size() + 1};
  return token.size() <= MetaRequest::kOpaqueBytesMax;
}

struct Flag {
  char letter;
  bool (*read)(MetaRequest& request, std::string_view token) noexcept = nullptr;
  const char* fault = kBadToken;  // if read() says no
};

constexpr Flag kFlags[] = {
    {'v'},  // the value
    {'k'},  // the key
    {'O', opaque, "CLIENT_ERROR opaque token too long\r\n"},
    {'q'},  // no answer to the usual case
    {'T', number<&MetaRequest::expiry_s>},
    {'c'},  // the version
    {'f'},  // the client's flags
    {'F', number<&MetaRequest::client_flags>, kBadLine},
    {'t'},  // the seconds left
    {'s'},  // the length of the value
    {'b'},  // the key is base64
    {'C', number<&MetaRequest::version>},
    {'M', mode},
    {'N', number<&MetaRequest::missing_expiry_s>},
    {'R', number<&MetaRequest::recache_s>},
    {'D', number<&MetaRequest::delta>, "CLIENT_ERROR invalid numeric delta value\r\n"},
    {'J', number<&MetaRequest::initial>, "CLIENT_ERROR invalid numeric initial value\r\n"},
    {'I'},  // makes it stale
    {'h'},  // whether it was read before
    {'l'},  // the seconds since its last use
    {'u'},  // the read does not count as a use
    {'x'},  // removes the value alone
    {'P'},  // for proxies
    {'L'},  // the same
};
static_assert(std::size(kFlags) <= MetaRequest::kFlagsMax);

// The six bits of a letter of base64, or -1.
int bits_of(char letter) noexcept {
  if (letter >= 'A' && letter <= 'Z') return letter - 'A';
  if (letter >= 'a' && letter <= 'z') return letter - 'a' + 26;
  if (letter >= '0' && letter <= '9') return letter - '0' + 52;
  return letter == '+' ? 62 : letter == '/' ? 63 : -1;
}

// Decodes base64 with its padding. Returns the length; 0: it is no base64, or nothing.
size_t decode(std::string_view text, std::span<char> to) noexcept {
  if (text.size() % 4 != 0 || text.size() / 4 * 3 > to.size()) return 0;
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  size_t bytes = 0;
  uint32_t bits = 0;
  uint32_t bit_count = 0;
  for (const char letter : text) {
    const int six = bits_of(letter);
    if (six < 0) return 0;
    bits = bits << 6 | static_cast<uint32_t>(six);
    bit_count += 6;
    if (bit_count < 8) continue;
    bit_count -= 8;
    to[bytes++] = static_cast<char>(bits >> bit_count & 0xff);
  }
  return bytes;
}

}  // namespace

const char* MetaRequest::parse(std::string_view text_of_key, std::string_view flags,
                               std::span<char, kMemoryBytes> memory) noexcept {
  *this = {};
  key = key_text = text_of_key;
  if (key.size() > kKeyBytesMax) return kBadLine;
  for (std::string_view word = take_word(&flags); !word.empty(); word = take_word(&flags)) {
    const char letter = word.front();
    const Flag* const flag = std::find_if(kFlags, std::end(kFlags),
                                          [&](const Flag& each) { return each.letter == letter; });
    if (flag == std::end(kFlags)) return "CLIENT_ERROR invalid flag\r\n";
    if (has(letter)) return "CLIENT_ERROR duplicate flag\r\n";
    letters |= bit_of(letter);
    order_of_letters[letter_count++] = letter;
    if (flag->read != nullptr && !flag->read(*this, word.substr(1))) return flag->fault;
  }
  if (!has('b')) return nullptr;
  key = {memory.data(), decode(key_text, memory)};
  return key.empty() ? kBadKey : nullptr;
}

void MetaRequest::keep(std::span<char, kMemoryBytes> memory) noexcept {
  BP_DCHECK(key_text.size() + opaque.size() <= memory.size());
  char* to = memory.data();
  for (std::string_view* const text : {&key_text, &opaque}) {
    const size_t bytes = text->copy(to, text->size());
    *text = {to, bytes};
    to += bytes;
  }
  key = {};
}

}  // namespace bedplate::kvd
