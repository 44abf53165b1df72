// Tests of the NBD handshake: every reply and every error. Random conversations, split at random
// bytes, must give the same output as the slow reference.
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/blockd/nbd_negotiation.h"
#include "tests/apps/blockd/nbd_reference.h"

#include "CppUTest/TestHarness.h"

namespace bedplate::nbd {
namespace {

using nbd_reference::be;
using nbd_reference::Driver;
using nbd_reference::Feeding;
using nbd_reference::info_data;
using nbd_reference::kFeedings;
using nbd_reference::option;
using nbd_reference::Outcome;
using nbd_reference::reply;
using nbd_reference::State;
using nbd_reference::without_error_texts;

constexpr ExportInfo kExports[] = {
    {.name = "ram0", .bytes = 64 << 20, .read_only = false},
    {.name = "ram", .bytes = 4096, .read_only = true},
};
const std::string kGreeting = "NBDMAGICIHAVEOPT" + be(3, 2);
const std::string kHello = be(3, 4);  // FIXED_NEWSTYLE and NO_ZEROES
constexpr uint64_t kFlagsPlain = 0x96d;
const std::string kInfoRam0 = be(0, 2) + be(64 << 20, 8) + be(kFlagsPlain, 2);

constexpr uint32_t kUnsup = 0x80000001;
constexpr uint32_t kInvalid = 0x80000003;
constexpr uint32_t kUnknown = 0x80000006;
constexpr uint32_t kTooBig = 0x80000009;

// The maximum of 64 exports, with names of the maximum length.
struct ManyExports {
  std::vector<std::string> names;
  std::vector<ExportInfo> infos;

  ManyExports() {
    for (int i = 0; i < 64; ++i) {
      names.push_back(std::to_string(i + 100) + std::string(kNameMaxBytes - 3, 'n'));
    }
    for (const std::string& name : names) {
      infos.push_back({.name = name, .bytes = 1 << 20, .read_only = false});
    }
  }
};

}  // namespace

TEST_GROUP(NbdNegotiation){
    // Feeds `input` in one piece. Returns the outcome, with error texts removed from its output.
    static Outcome converse(std::string_view input, std::span<const ExportInfo> exports = kExports){
        Negotiation negotiation(exports);
Outcome outcome = Driver(negotiation, input, Feeding::kWhole, 1).converse();
CHECK_TEXT(outcome.broken == nullptr, outcome.broken);
outcome.output = without_error_texts(outcome.output);
return outcome;
}  // namespace bedplate::nbd

static void expect_output(const std::string& output, const Outcome& outcome) {
  LONGS_EQUAL(output.size(), outcome.output.size());
  MEMCMP_EQUAL(output.data(), outcome.output.data(), output.size());
}

// Sends the client's flags, then `options`, then a LIST. Checks that the server answers `options`
// with `replies`, and then answers the LIST.
static void expect_goes_on(const std::string& options, const std::string& replies) {
  const std::string input = kHello + options + option(3, "");
  const Outcome outcome = converse(input);
  expect_output(kGreeting + replies + reply(3, 2, be(4, 4) + "ram0") +
                    reply(3, 2, be(3, 4) + "ram") + reply(3, 1, ""),
                outcome);
  CHECK(outcome.state == State::kNegotiating);
  LONGS_EQUAL(input.size(), outcome.taken_bytes);
}

// Checks that the server sends no answer to `input`, and disconnects for `reason`.
static void expect_disconnect(const std::string& input, const char* reason) {
  Negotiation negotiation(kExports);
  const Outcome outcome = Driver(negotiation, input, Feeding::kWhole, 1).converse();
  CHECK_TEXT(outcome.broken == nullptr, outcome.broken);
  expect_output(kGreeting, outcome);
  CHECK(outcome.state == State::kDisconnect);
  CHECK_FALSE(outcome.aborted);
  STRCMP_EQUAL(reason, negotiation.reason());
}
}
;

TEST(NbdNegotiation, GreetsFirst) {
  Negotiation negotiation(kExports);
  const auto pending = negotiation.pending_output();
  LONGS_EQUAL(kGreeting.size(), pending.size());
  MEMCMP_EQUAL(kGreeting.data(), pending.data(), kGreeting.size());
  CHECK(negotiation.state() == State::kNegotiating);
  LONGS_EQUAL(0, negotiation.wanted_bytes());
  negotiation.output_sent(pending.size());
  LONGS_EQUAL(4, negotiation.wanted_bytes());
}

TEST(NbdNegotiation, GoEntersTransmission) {
  const Outcome outcome = converse(kHello + option(7, info_data("ram0")));
  expect_output(kGreeting + reply(7, 3, kInfoRam0) + reply(7, 1, ""), outcome);
  CHECK(outcome.state == State::kTransmission);
  LONGS_EQUAL(0, outcome.export_index);
  CHECK_FALSE(outcome.structured_replies);
}

TEST(NbdNegotiation, GoTellsSizesAndNameWhenAsked) {
  const Outcome outcome = converse(kHello + option(7, info_data("", {1, 0, 3, 2, 77, 3})));
  expect_output(kGreeting + reply(7, 3, kInfoRam0) +
                    reply(7, 3, be(3, 2) + be(1, 4) + be(4096, 4) + be(32 << 20, 4)) +
                    reply(7, 3, be(1, 2) + "ram0") + reply(7, 1, ""),
                outcome);
  CHECK(outcome.state == State::kTransmission);
}

TEST(NbdNegotiation, InfoTellsAndGoesOn) {
  expect_goes_on(option(6, info_data("ram0")), reply(6, 3, kInfoRam0) + reply(6, 1, ""));
}

TEST(NbdNegotiation, InformationAskedForOnceIsNotToldWithTheNextOption) {
  const std::string plain = reply(6, 3, kInfoRam0) + reply(6, 1, "");
  const Outcome outcome =
      converse(kHello + option(6, info_data("ram0", {1, 3})) + option(6, info_data("ram0")));
  CHECK(outcome.output.ends_with(reply(6, 1, "") + plain));
}

TEST(NbdNegotiation, ReadOnlyIsAnnounced) {
  const Outcome outcome = converse(kHello + option(7, info_data("ram")));
  expect_output(
      kGreeting + reply(7, 3, be(0, 2) + be(4096, 8) + be(kFlagsPlain | 2, 2)) + reply(7, 1, ""),
      outcome);
  LONGS_EQUAL(1, outcome.export_index);
}

TEST(NbdNegotiation, StructuredRepliesAnnounceDontFragment) {
  const Outcome outcome =
      converse(kHello + option(8, "") + option(8, "") + option(7, info_data("ram0")));
  expect_output(kGreeting + reply(8, 1, "") + reply(8, 1, "") +
                    reply(7, 3, be(0, 2) + be(64 << 20, 8) + be(kFlagsPlain | 0x80, 2)) +
                    reply(7, 1, ""),
                outcome);
  CHECK(outcome.structured_replies);
}

TEST(NbdNegotiation, ExportNameEntersTransmissionWithoutZeroes) {
  const Outcome outcome = converse(kHello + option(1, "ram0"));
  expect_output(kGreeting + be(64 << 20, 8) + be(kFlagsPlain, 2), outcome);
  CHECK(outcome.state == State::kTransmission);
}

TEST(NbdNegotiation, ExportNameIsPaddedWithoutNoZeroes) {
  const Outcome outcome = converse(be(1, 4) + option(1, ""));
  expect_output(kGreeting + be(64 << 20, 8) + be(kFlagsPlain, 2) + std::string(124, '\0'), outcome);
  CHECK(outcome.state == State::kTransmission);
  LONGS_EQUAL(0, outcome.export_index);
}

TEST(NbdNegotiation, ServesAClientThatDoesNotSayFixedNewstyle) {
  CHECK(converse(be(0, 4) + option(7, info_data("ram0"))).state == State::kTransmission);
}

TEST(NbdNegotiation, ListsNothing) {
  const Outcome outcome = converse(kHello + option(3, "") + option(7, info_data("")), {});
  expect_output(kGreeting + reply(3, 1, "") + reply(7, kUnknown, ""), outcome);
  CHECK(outcome.state == State::kNegotiating);
}

TEST(NbdNegotiation, ListsTheMostThatThereCanBe) {
  const ManyExports exports;
  std::string replies;
  for (const std::string& name : exports.names) {
    replies += reply(3, 2, be(255, 4) + name);
  }
  const Outcome outcome = converse(kHello + option(3, ""), exports.infos);
  expect_output(kGreeting + replies + reply(3, 1, ""), outcome);
}

TEST(NbdNegotiation, AllTheInformationThereCanBeFits) {
  const ManyExports exports;
  const Outcome outcome =
      converse(kHello + option(7, info_data(exports.names[63], {1, 3})), exports.infos);
  CHECK(outcome.state == State::kTransmission);
  LONGS_EQUAL(63, outcome.export_index);
}

TEST(NbdNegotiation, AbortIsAcknowledgedWhateverItsData) {
  for (const size_t data_bytes : {0U, 5U, 8192U, 8193U, 65536U}) {
    const Outcome outcome = converse(kHello + option(2, std::string(data_bytes, 'x')));
    expect_output(kGreeting + reply(2, 1, ""), outcome);
    CHECK(outcome.state == State::kDisconnect);
    CHECK(outcome.aborted);
  }
}

TEST(NbdNegotiation, BytesBehindTheNegotiationStayWithTheCaller) {
  const std::string pipelined = nbd_reference::request(0, 0, 1, 0, 4096);
  for (const std::string& last : {option(7, info_data("ram0")), option(1, "ram0")}) {
    const std::string input = kHello + last + pipelined;
    for (const Feeding feeding : kFeedings) {
      Negotiation negotiation(kExports);
      const Outcome outcome = Driver(negotiation, input, feeding, 7).converse();
      CHECK_TEXT(outcome.broken == nullptr, outcome.broken);
      CHECK(outcome.state == State::kTransmission);
      LONGS_EQUAL(input.size() - pipelined.size(), outcome.taken_bytes);
    }
  }
}

TEST(NbdNegotiation, ResetBeginsAnew) {
  Negotiation negotiation(kExports);
  const std::string first = be(1, 4) + option(8, "") + option(7, info_data("ram", {1, 3}));
  CHECK(Driver(negotiation, first, Feeding::kWhole, 1).converse().structured_replies);
  const std::string_view cut_off[] = {"", "IHAVEOPT", std::string_view(first).substr(0, 30)};
  for (const std::string_view text : cut_off) {
    negotiation.reset();
    (void)Driver(negotiation, text, Feeding::kWhole, 1).converse();
    negotiation.reset();
    const Outcome outcome =
        Driver(negotiation, kHello + option(7, info_data("ram0")), Feeding::kWhole, 1).converse();
    CHECK_TEXT(outcome.broken == nullptr, outcome.broken);
    expect_output(kGreeting + reply(7, 3, kInfoRam0) + reply(7, 1, ""), outcome);
    CHECK_FALSE(outcome.structured_replies);
  }
}

TEST(NbdNegotiation, UnknownClientFlagsDisconnect) {
  for (int bit = 2; bit < 32; ++bit) {
    expect_disconnect(be(uint64_t{1} << bit | 3, 4) + option(3, ""),
                      "the client set unknown handshake flags");
  }
}

TEST(NbdNegotiation, GarbageInPlaceOfAnOptionDisconnects) {
  expect_disconnect(kHello + "GET / HTTP/1.1\r\n\r\n", "an option did not begin with IHAVEOPT");
  expect_disconnect(kHello + "IHAVEOPU" + be(3, 4) + be(0, 4),
                    "an option did not begin with IHAVEOPT");
}

TEST(NbdNegotiation, UnknownOptionsAreUnsupported) {
  for (const uint32_t type : {0U, 4U, 5U, 11U, 12U, 0x80000001U, 0xffffffffU}) {
    expect_goes_on(option(type, ""), reply(type, kUnsup, ""));
    expect_goes_on(option(type, std::string(8192, 'x')), reply(type, kUnsup, ""));
  }
}

TEST(NbdNegotiation, TheAllocationContextIsListedAndSet) {
  const auto data = [](const char* name, std::initializer_list<const char*> queries) {
    std::string text = be(std::string(name).size(), 4) + name + be(queries.size(), 4);
    for (const char* query : queries) text += be(std::string(query).size(), 4) + query;
    return text;
  };
  const auto told = [](uint32_t type, uint32_t number) {
    return reply(type, 4, be(number, 4) + "base:allocation") + reply(type, 1, "");
  };
  const std::string ready = kHello + option(8, "");
  const std::string head = kGreeting + reply(8, 1, "");
  CHECK(converse(ready + option(9, data("ram0", {}))).output == head + told(9, 0));
  CHECK(converse(ready + option(9, data("", {"base:"}))).output == head + told(9, 0));
  CHECK(converse(ready + option(10, data("ram0", {"base:"}))).output == head + reply(10, 1, ""));
  const std::string set = option(10, data("ram0", {"qemu:x", "base:allocation"}));
  CHECK(converse(ready + set).output == head + told(10, 1));
  CHECK(converse(ready + set + option(7, info_data("ram0"))).block_status);
  CHECK(converse(ready + set + option(1, "ram0")).block_status);
  CHECK_FALSE(converse(ready + set + option(7, info_data("ram"))).block_status);
  CHECK_FALSE(converse(ready + option(7, info_data("ram0"))).block_status);
  // The last SET_META_CONTEXT counts, even if it is refused.
  const std::string refused = option(10, data("ram0", {"base:allocation"}) + "x");
  CHECK_FALSE(converse(ready + set + refused + option(7, info_data("ram0"))).block_status);
  const std::string too_long = option(10, std::string(8193, 'x'));
  CHECK_FALSE(converse(ready + set + too_long + option(7, info_data("ram0"))).block_status);
  for (const uint32_t type : {9U, 10U}) {
    expect_goes_on(option(type, data("ram0", {})), reply(type, kInvalid, ""));  // without option 8
    expect_goes_on(option(type, ""), reply(type, kInvalid, ""));
    CHECK(without_error_texts(converse(ready + option(type, data("x", {}))).output) ==
          head + reply(type, kUnknown, ""));
  }
}

TEST(NbdNegotiation, DataWhereNoneBelongsIsInvalid) {
  expect_goes_on(option(3, "x"), reply(3, kInvalid, ""));
  expect_goes_on(option(8, std::string(8192, 'x')), reply(8, kInvalid, ""));
  CHECK_FALSE(converse(kHello + option(8, "x")).structured_replies);
}

TEST(NbdNegotiation, MalformedInfoAndGoAreInvalid) {
  const std::string good = info_data("ram0", {1, 3});
  for (const uint32_t type : {6U, 7U}) {
    const std::string refusal = reply(type, kInvalid, "");
    for (size_t bytes = 0; bytes < good.size(); ++bytes) {
      expect_goes_on(option(type, good.substr(0, bytes)), refusal);
    }
    expect_goes_on(option(type, good + "x"), refusal);
    expect_goes_on(option(type, be(5, 4) + "ram0" + be(0, 2)), refusal);
    expect_goes_on(option(type, be(0xffffffff, 4) + "ram0" + be(0, 2)), refusal);
    expect_goes_on(option(type, be(4, 4) + "ram0" + be(0xffff, 2)), refusal);
    // Malformed data are refused before the name is looked up.
    expect_goes_on(option(type, info_data("none") + "x"), refusal);
  }
}

TEST(NbdNegotiation, UnknownNamesAreUnknown) {
  const std::string names[] = {"r",
                               "ram1",
                               "ram00",
                               "RAM0",
                               std::string("ram0\0", 5),
                               " ",
                               std::string(255, 'r'),
                               std::string(256, 'r'),
                               "ram0" + std::string(252, '\0'),
                               std::string(8000, 'r')};
  for (const std::string& name : names) {
    expect_goes_on(option(6, info_data(name, {1, 3})), reply(6, kUnknown, ""));
    expect_goes_on(option(7, info_data(name)), reply(7, kUnknown, ""));
    expect_disconnect(kHello + option(1, name), "EXPORT_NAME named an unknown export");
  }
}

TEST(NbdNegotiation, DataOf8KiBIsLookedAtAndNoMore) {
  // Returns the data of an INFO for "ram0" with this many information requests. The server knows
  // only the type of the last request.
  const auto stretched = [](size_t requests) {
    std::string data = be(4, 4) + "ram0" + be(requests, 2);
    while (requests-- > 1) data += be(99, 2);
    return data + be(1, 2);
  };
  const std::string fits = stretched((8192 - 10) / 2);
  LONGS_EQUAL(8192, fits.size());
  expect_goes_on(option(6, fits),
                 reply(6, 3, kInfoRam0) + reply(6, 3, be(1, 2) + "ram0") + reply(6, 1, ""));
  expect_goes_on(option(6, stretched((8192 - 10) / 2 + 1)), reply(6, kTooBig, ""));
}

TEST(NbdNegotiation, LongDataIsTooBigAndSkipped) {
  for (const uint32_t type : {3U, 5U, 6U, 7U, 8U, 0xffffffffU}) {
    expect_goes_on(option(type, std::string(8193, 'x')), reply(type, kTooBig, ""));
    expect_goes_on(option(type, std::string(65536, 'x')), reply(type, kTooBig, ""));
  }
}

TEST(NbdNegotiation, StillLongerDataDisconnectsAtOnce) {
  for (const uint32_t type : {1U, 2U, 3U, 5U, 7U}) {
    expect_disconnect(kHello + "IHAVEOPT" + be(type, 4) + be(65537, 4),
                      "an option had more than 64 KiB of data");
    expect_disconnect(kHello + "IHAVEOPT" + be(type, 4) + be(0xffffffff, 4),
                      "an option had more than 64 KiB of data");
  }
}

TEST(NbdNegotiation, ErrorTextsAreOneLineOfText) {
  Negotiation negotiation(kExports);
  const std::string input = kHello + option(42, "") + option(3, "x") + option(7, info_data("x")) +
                            option(7, std::string(9000, 'x')) + option(7, "x");
  const std::string output = Driver(negotiation, input, Feeding::kWhole, 1).converse().output;
  const std::string texts = output.substr(18);
  CHECK(texts.find("the option is not supported") != std::string::npos);
  CHECK(texts.find("no export has this name") != std::string::npos);
  CHECK(texts.find('\n') == std::string::npos);
}

// ---- Random conversations ---------------------------------------------------------------------

namespace {

class RandomClient {
 public:
  explicit RandomClient(uint64_t seed) : random_(seed) {}

  uint64_t below(uint64_t limit) { return random_() % limit; }

  // Returns a conversation that is mostly valid, so that it gets far.
  std::string conversation(std::span<const ExportInfo> exports) {
    std::string text = be(below(20) == 0 ? random_() : below(4), 4);
    for (uint64_t left = below(12); left > 0; --left) text += some_option(exports);
    if (below(8) == 0 && !exports.empty()) text += some_start(exports);
    if (below(4) == 0) text += option(7, some_info_data(exports));
    if (below(6) == 0) text.resize(below(text.size() + 1));
    if (below(6) == 0 && !text.empty()) text[below(text.size())] ^= static_cast<char>(random_());
    return text;
  }

 private:
  std::string some_bytes(uint64_t limit) {
    std::string text(below(limit), '\0');
    for (char& each : text) each = static_cast<char>(random_());
    return text;
  }

  std::string some_name(std::span<const ExportInfo> exports) {
    if (below(4) == 0 || exports.empty()) return some_bytes(300);
    std::string name(exports[below(exports.size())].name);
    if (below(4) == 0) name.resize(below(name.size() + 3));
    return name;
  }

  std::string some_info_data(std::span<const ExportInfo> exports) {
    const std::string name = some_name(exports);
    const uint64_t requests = below(6);
    std::string data = be(name.size(), 4) + name + be(requests, 2);
    for (uint64_t i = 0; i < requests; ++i) data += be(below(5), 2);
    if (below(5) == 0) data.resize(below(data.size() + 4));
    return data;
  }

  // Returns the options that a client sends before it uses BLOCK_STATUS. Sometimes GO names another
  // export than SET_META_CONTEXT.
  std::string some_start(std::span<const ExportInfo> exports) {
    const std::string name(exports[below(exports.size())].name);
    const std::string_view other = below(4) == 0 ? exports[below(exports.size())].name : name;
    const std::string query = "base:allocation";
    return option(8, "") +
           option(10, be(name.size(), 4) + name + be(1, 4) + be(query.size(), 4) + query) +
           option(7, info_data(other));
  }

  std::string some_contexts_data(std::span<const ExportInfo> exports) {
    const std::string name = some_name(exports);
    const uint64_t queries = below(4);
    std::string data = be(name.size(), 4) + name + be(queries, 4);
    for (uint64_t i = 0; i < queries; ++i) {
      const std::string kQueries[] = {"base:allocation", "base:", "base:other", some_bytes(300)};
      const std::string& query = kQueries[below(4)];
      data += be(query.size(), 4) + query;
    }
    if (below(5) == 0) data.resize(below(data.size() + 4));
    return data;
  }

  std::string some_option(std::span<const ExportInfo> exports) {
    switch (below(16)) {
      case 0: return option(below(30) == 0 ? 2 : 3, some_bytes(3));
      case 1: return option(8, some_bytes(2));
      case 2: return option(random_(), some_bytes(60));
      case 3: return option(below(12), std::string(below(20000), 'x'));
      case 4: return option(3, "");
      case 5: return below(4) == 0 ? option(1, some_name(exports)) : option(8, "");
      case 6:
      case 7: return option(9, some_contexts_data(exports));
      case 8:
      case 9: return option(10, some_contexts_data(exports));
      default: return option(below(12) == 0 ? 7 : 6, some_info_data(exports));
    }
  }

  std::mt19937_64 random_;
};

}  // namespace

TEST(NbdNegotiation, AnyConversationInAnyPiecesIsAnsweredAsTheReferenceDoes) {
  const uint64_t seed = nbd_reference::test_seed();
  UT_PRINT(StringFromFormat("BEDPLATE_TEST_SEED=%llu", static_cast<unsigned long long>(seed)));
  RandomClient client(seed);
  const ManyExports many;
  const std::span<const ExportInfo> sets[] = {kExports, many.infos, {}};
  int agreed = 0;
  std::map<Negotiation::State, int> ends;
  int contexts = 0;
  for (int round = 0; round < 1500; ++round) {
    const auto exports = sets[client.below(10) == 0 ? 1 + client.below(2) : 0];
    const std::string input = client.conversation(exports);
    const Outcome expected = nbd_reference::expected(exports, input);
    ++ends[expected.state];
    contexts += expected.block_status ? 1 : 0;
    Negotiation negotiation(exports);
    for (const Feeding feeding : kFeedings) {
      negotiation.reset();
      Outcome outcome =
          Driver(negotiation, input, feeding, static_cast<uint32_t>(round + 1)).converse();
      CHECK_TEXT(outcome.broken == nullptr, outcome.broken);
      outcome.output = without_error_texts(outcome.output);
      CHECK(outcome == expected);
      ++agreed;
    }
  }
  LONGS_EQUAL(6000, agreed);
  // Each state and the contexts must occur often, or the random client proves little.
  LONGS_EQUAL(3, ends.size());
  for (const auto& [state, count] : ends) CHECK(count > 100);
  CHECK(contexts > 10);
}

}  // namespace bedplate::nbd
