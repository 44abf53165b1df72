#include "apps/control/counter_words.h"

#include <cstring>

#include "platform/text_writer.h"

namespace bedplate {
namespace {

constexpr size_t kWordBytes = sizeof(uint64_t);

size_t zeros_at(std::span<const uint64_t> words) noexcept {
  size_t count = 0;
  while (count < words.size() && words[count] == 0) ++count;
  return count;
}

// The number of printable bytes at the start; 0 if the bytes after them are not all zero, as the
// word could not be read back.
size_t text_bytes_of(uint64_t word) noexcept {
  char bytes[kWordBytes];
  std::memcpy(bytes, &word, sizeof bytes);
  size_t count = 0;
  while (count < kWordBytes && bytes[count] >= ' ' && bytes[count] <= '~') ++count;
  for (size_t i = count; i < kWordBytes; ++i) {
    if (bytes[i] != '\0') return 0;
  }
  return count;
}

// The length of the text that begins here; 0: none. A count rarely looks like eight printable
// characters; a shorter text is written as a number.
size_t text_bytes_at(std::span<const uint64_t> words) noexcept {
  size_t bytes = 0;
  for (const uint64_t word : words) {
    const size_t more = text_bytes_of(word);
    if (bytes == 0 && more < kWordBytes) return 0;
    bytes += more;
    if (more < kWordBytes) break;
  }
  return bytes;
}

}  // namespace

void write_counter_words(std::span<const uint64_t> words, JsonText* json) noexcept {
  while (!words.empty()) {
    size_t count = zeros_at(words);
    if (count > 0) {
      char text[kCounterWordRoom];
      TextWriter minus(text);
      minus.text("-").number(count);
      json->raw({text, minus.bytes()});
    } else if (const size_t bytes = text_bytes_at(words); bytes > 0) {
      json->text({reinterpret_cast<const char*>(words.data()), bytes});
      count = (bytes + kWordBytes - 1) / kWordBytes;
    } else {
      json->number(words[0]);
      count = 1;
    }
    words = words.subspan(count);
  }
}

}  // namespace bedplate
