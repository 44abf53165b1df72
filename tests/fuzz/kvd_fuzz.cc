// Fuzz target of kvd's protocol: any bytes must get the same answers whole and in parts, unless
// items had to be evicted.
//
// The first byte chooses the memory (bit 0: small, so that items are evicted), the next two choose
// the size of the parts. A `\x01` stands for a set of 5000 bytes, so that short inputs fill the
// memory. A second, simple reader checks the answers: replies are whole lines, and values have the
// announced length. `make fuzz-run` builds and runs this.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "alloc/heap_owner.h"
#include "alloc/thread_heaps.h"
#include "platform/text_words.h"
#include "tests/apps/kvd/kvd_driver.h"

namespace bedplate {

// Stubs: the heap is the sanitizer's, which has no owners and gives no pages back.
constinit thread_local HeapOwner current_owner;
HeapOwner enter_heap_owner(HeapOwner owner) noexcept { return owner; }
void return_empty_pages() noexcept {}

}  // namespace bedplate

namespace bedplate::kvd {
namespace {

void require(bool kept, const char* what) {
  if (kept) return;
  std::fprintf(stderr, "kvd_fuzz: broken promise: %s\n", what);
  std::abort();
}

// Checks that every line ends, and that each VALUE or VA line is followed by the announced bytes.
void read_replies(std::string_view replies) {
  while (!replies.empty()) {
    const size_t end = replies.find("\r\n");
    require(end != std::string_view::npos, "a reply is whole");
    std::string_view line = replies.substr(0, end);
    replies.remove_prefix(end + 2);
    const std::string_view code = take_word(&line);
    if (code != "VALUE" && code != "VA") continue;
    const int words_before = code == "VALUE" ? 2 : 0;  // the key and the flags
    for (int i = 0; i < words_before; ++i) (void)take_word(&line);
    const size_t bytes = std::strtoull(std::string(take_word(&line)).c_str(), nullptr, 10);
    require(replies.size() >= bytes + 2, "a value is whole");
    require(replies.substr(bytes, 2) == "\r\n", "a value has its length");
    replies.remove_prefix(bytes + 2);
  }
}

// Returns the answer without the times of `stats`, which may change between two answers.
std::string timeless(std::string answer) {
  for (const std::string_view name : {"STAT uptime ", "STAT time "}) {
    for (size_t at = 0; (at = answer.find(name, at)) != answer.npos;) {
      at += name.size();
      const size_t end = answer.find("\r\n", at);
      if (end != answer.npos) answer.erase(at, end - at);
    }
  }
  return answer;
}

std::string expanded(std::string_view input) {
  std::string text;
  for (const char c : input) {
    if (c == '\x01') {
      text += "set k" + std::to_string(text.size() % 61) + " 0 0 5000\r\n" +
              std::string(5000, 'v') + "\r\n";
    } else {
      text += c;
    }
  }
  return text;
}

void fuzz(std::string_view input) {
  const uint64_t memory_bytes = (input[0] & 1) != 0 ? 64 * 1024 : 1024 * 1024;
  const auto cut = static_cast<uint8_t>(input[1]);
  const auto cut_more = static_cast<uint8_t>(input[2]);
  const std::string text = expanded(input.substr(3, 4096));
  std::string whole;
  uint64_t evictions = 0;
  for (const size_t piece : {text.size() + 1, size_t{1} + cut, size_t{1} + cut * 256U + cut_more}) {
    CacheRig rig(memory_bytes, 16 * 1024);
    Client client(rig);
    const std::string said = client.say(text, piece);
    read_replies(said);
    const std::string answer = timeless(said);
    if (piece > text.size()) whole = answer;
    // Evictions depend on the values that are on their way to the client at that time.
    evictions += rig.counters.cache.evictions.read() + rig.counters.cache.reclaimed.read();
    require(answer == whole || evictions > 0, "pieces change nothing");
    require(rig.counters.cache.bytes.read() <= memory_bytes, "items take what was planned at most");
    require(rig.counters.hits.read() + rig.counters.misses.read() == rig.counters.gets.read(),
            "a get hits or misses");
  }
}

}  // namespace
}  // namespace bedplate::kvd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes < 4) return 0;
  bedplate::kvd::fuzz({reinterpret_cast<const char*>(data), bytes});
  return 0;
}
