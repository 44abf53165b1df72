// memcached's meta commands: each command and flag by a table of requests and replies, malformed
// requests, and the story of a stale item.
#include <string>
#include <utility>
#include <vector>

#include "tests/apps/kvd/kvd_driver.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::kvd;

namespace {

constexpr const char* kBadLine = "CLIENT_ERROR bad command line format";
constexpr const char* kBadToken = "CLIENT_ERROR bad token in command line format";

}  // namespace

TEST_GROUP(KvdMeta) {
  CacheRig rig{1024 * 1024};
  Client client{rig};

  // Requests and replies without their last line end; an empty reply is none.
  using Exchange = std::pair<std::string, std::string>;
  void exchange(std::initializer_list<Exchange> all) {
    for (const auto& [request, reply] : all) {
      const std::string wanted = reply.empty() ? "" : reply + "\r\n";
      const std::string said = client.say(request + "\r\n");
      if (said != wanted) FAIL((request + "\nis answered\n" + said + "not\n" + wanted).c_str());
    }
  }
  void pass(uint64_t seconds) { rig.cache.set_time(rig.cache.now_ns() + seconds * 1'000'000'000); }
};

TEST(KvdMeta, Get) {
  exchange({{"mg a", "EN"},
            {"mg a v", "EN"},
            {"mg a k Oab v", "EN ka Oab"},
            {"mg a q k O1", ""},
            {"set a 5 0 3\r\nabc", "STORED"},
            {"mg a", "HD"},
            {"mg a q", "HD"},
            {"mg a v", "VA 3\r\nabc"},
            {"mg a q v", "VA 3\r\nabc"},
            {"mg  a  v  s ", "VA 3 s3\r\nabc"},
            {"mg a s v f c t k O", "VA 3 s3 f5 c1 t-1 ka O\r\nabc"},
            {"mg a t k f s", "HD t-1 ka f5 s3"},
            {"mg a Pproxy/path L v", "VA 3\r\nabc"},
            {"mg a C1 v c", "HD c1"},
            {"mg a C2 v c", "VA 3 c1\r\nabc"},
            {"mg a C1 s", "HD s3"},
            {"set e 0 0 0\r\n", "STORED"},
            {"mg e v", "VA 0\r\n"}});
  LONGS_EQUAL(4, rig.counters.misses.read());
  LONGS_EQUAL(12, rig.counters.hits.read());
  LONGS_EQUAL(16, rig.counters.get_ns.count());
  LONGS_EQUAL(2, rig.counters.set_ns.count());
}

TEST(KvdMeta, GetOfALongValueLendsIt) {
  const std::string value(5000, 'v');
  exchange({{"ms a 5000\r\n" + value, "HD"},
            {"mg a s v", "VA 5000 s5000\r\n" + value},
            {"mg a s", "HD s5000"}});
  std::string_view text("mg a v\r\n");
  client.give(&text, text.size());
  CHECK(client.session().replies().size() > 1);
  client.sent();
}

TEST(KvdMeta, HitBeforeAndLastUse) {
  exchange({{"ms a 1 T100\r\nx", "HD"}});
  pass(20);
  exchange({{"mg a h l u t", "HD h0 l20 t80"}, {"mg a h l t", "HD h0 l20 t80"}});
  pass(10);
  exchange({{"mg a u h l t", "HD h1 l10 t70"},
            {"me a", "ME a exp=70 la=10 cas=1 fetch=yes cls=1 size=64"},
            {"mg a h l", "HD h1 l10"},
            {"mg a l", "HD l0"},
            {"get a", "VALUE a 0 1\r\nx\r\nEND"},
            {"ms a 1\r\ny", "HD"},
            {"mg a h l", "HD h0 l0"}});
}

TEST(KvdMeta, GetTouches) {
  exchange({{"mg a T30 t", "EN"},
            {"ms a 1 T10\r\nx", "HD"},
            {"mg a t T30", "HD t10"},
            {"mg a T40 t", "HD t40"},
            {"mg a T0 t", "HD t-1"},
            {"mg a T-1 t v", "VA 1 t0\r\nx"},
            {"mg a", "EN"}});
  LONGS_EQUAL(4, rig.counters.touch_hits.read());
  LONGS_EQUAL(1, rig.counters.touch_misses.read());
}

TEST(KvdMeta, TheFirstReaderOfAMissingItemWins) {
  exchange({{"mg a s c v N30 t", "VA 0 s0 c1 t30 W\r\n"},
            {"mg a s c v N30 t q", "VA 0 s0 c1 t30 Z\r\n"},
            {"mg a", "HD Z"},
            {"ms a 2 C5000 T120\r\nnu", "EX"},
            {"ms a 2 C1 T120\r\nmu", "HD"},
            {"mg a s t v N30", "VA 2 s2 t120\r\nmu"},
            {"mg b N30 T60 t q", "HD t60 W"},
            {"mg c N-1", "HD W"},
            {"mg c", "EN"}});
  LONGS_EQUAL(4, rig.counters.misses.read());
}

TEST(KvdMeta, OneReaderOfAnItemThatExpiresSoonWins) {
  exchange({{"ms a 1 T100\r\nx", "HD"},
            {"mg a R100 v", "VA 1\r\nx"},
            {"mg a R0", "HD"},
            {"mg a R-1", "HD"},
            {"mg a R101 v t", "VA 1 t100 W\r\nx"},
            {"mg a R101 v", "VA 1 Z\r\nx"},
            {"ms a 1 T300\r\ny", "HD"},
            {"mg a R101 v", "VA 1\r\ny"},
            {"ms a 1\r\ny", "HD"},
            {"mg a R101", "HD"}});
}

TEST(KvdMeta, AStaleItemIsServedUntilItsWinnerStoresAnother) {
  exchange({{"ms a 3 T100 F7\r\nmoo", "HD"},
            {"md a I T30 q", ""},
            {"mg a t c v u", "VA 3 t30 c2 X W\r\nmoo"},
            {"mg a t c v", "VA 3 t30 c2 Z X\r\nmoo"},
            {"get a", "VALUE a 7 3\r\nmoo\r\nEND"},
            // A value made before the item became stale is stored, but remains stale.
            {"ms a 1 T90 C0\r\nf", "EX"},
            {"ms a 1 I T90 C1\r\nf", "HD"},
            {"mg a t c v", "VA 1 t30 c3 Z X\r\nf"},
            {"ms a 1 I T90 C4\r\ng", "EX"},
            {"ms a 1 T90 C3\r\ng", "HD"},
            {"mg a t c v", "VA 1 t90 c4\r\ng"},
            // A counted item remains stale, whether it becomes longer or not.
            {"ms n 1\r\n9", "HD"},
            {"md n I", "HD"},
            {"mg n", "HD X W"},
            {"ma n v", "VA 2\r\n10"},
            {"ma n v", "VA 2\r\n11"},
            {"mg n v", "VA 2 Z X\r\n11"},
            {"md n I", "HD"},
            {"mg n", "HD X W"}});
}

TEST(KvdMeta, SetInEachMode) {
  exchange({{"ms a 2\r\naa", "HD"},
            {"ms a 2 MS\r\nab", "HD"},
            {"ms a 2 ME\r\nxx", "NS"},
            {"ms b 2 ME T120\r\nbb", "HD"},
            {"ms b 2 MA T120 s\r\ncc", "HD s4"},
            {"ms b 2 MP s k\r\n__", "HD s6 kb"},
            {"mg b v t", "VA 6 t120\r\n__bbcc"},
            {"ms c 2 MR\r\nxx", "NS"},
            {"ms b 2 MR F4294967295\r\nyy", "HD"},
            {"mg b v f t", "VA 2 f4294967295 t-1\r\nyy"},
            {"ms d 1 MA\r\nx", "NS"},
            {"ms d 1 MA N30 T60\r\nx", "HD"},
            {"ms d 1 MP N90 s\r\ny", "HD s2"},
            {"mg d v t", "VA 2 t30\r\nyx"},
            {"ms d 1 MZ\r\nx", "CLIENT_ERROR invalid mode for ms M token"},
            {"ms d 1 M\r\nx", "CLIENT_ERROR invalid mode for ms M token"}});
}

TEST(KvdMeta, SetOfAVersion) {
  exchange({{"ms a 1 C1\r\nx", "NF"},
            {"ms a 1 c\r\nx", "HD c1"},
            {"ms a 1 C9 q\r\nyy", "CLIENT_ERROR bad data chunk\r\nERROR"},
            {"ms a 2 C9 c s k Ot\r\nyy", "EX c0 s2 ka Ot"},
            {"ms a 2 C9 q\r\nyy", "EX"},
            {"ms a 2 C1 c\r\nyy", "HD c2"},
            {"ms a 2 C2 MR c\r\nyy", "HD c3"},
            {"ms a 1 C9 MA\r\nz", "EX"},
            {"ms a 1 C3 MA\r\nz", "HD"},
            {"append a 0 0 1\r\nz", "STORED"},
            {"mg a v c", "VA 4 c5\r\nyyzz"},
            {"ms none 1 C9 MA\r\nz", "NS"},
            {"ms a 1 C5 ME\r\nz", "NS"}});
  LONGS_EQUAL(2, rig.counters.cas_hits.read());
  LONGS_EQUAL(2, rig.counters.cas_badval.read());
  LONGS_EQUAL(1, rig.counters.cas_misses.read());
}

TEST(KvdMeta, SetIsQuietOnSuccessAlone) {
  const std::string value(70'000, 'x');
  exchange({{"ms a 1 q\r\nx", ""},
            {"ms a 1 q c s k O1\r\ny", ""},
            {"ms a 1 q ME\r\nz", "NS"},
            {"ms b 1 q MR\r\nz", "NS"},
            {"ms b 1 q C7\r\nz", "NF"},
            {"ms a 70000 q\r\n" + value, "SERVER_ERROR object too large for cache"},
            {"mg a v", "EN"},  // the client wanted to replace it
            {"ms a 1 q\r\nx", ""},
            {"ms a 70000 q MR\r\n" + value, "SERVER_ERROR object too large for cache"},
            {"mg a v", "VA 1\r\nx"}});
}

// The reply repeats the flags of a line that is gone when the value has come.
TEST(KvdMeta, SetOfALongValueRepeatsItsFlags) {
  const std::string value(50'000, 'v');
  for (const size_t piece : {size_t{1} << 20, size_t{7}, size_t{1000}}) {
    const std::string text = "ms a2V5 50000 b k Oopaque s q MA N0\r\n" + value + "\r\n" +
                             "ms a2V5 1 b k Oopaque s MR\r\nx\r\n" +
                             "ms a2V5 50000 b k Oopaque s\r\n" + value + "\r\nmn\r\n";
    client.say("delete key\r\n");
    STRCMP_EQUAL("HD ka2V5 b Oopaque s1\r\nHD ka2V5 b Oopaque s50000\r\nMN\r\n",
                 client.say(text, piece).c_str());
    const std::string got = "VALUE key 0 50000\r\n" + value + "\r\nEND\r\n";
    CHECK(client.say("get key\r\n") == got);
  }
}

TEST(KvdMeta, Delete) {
  exchange({{"md a", "NF"},
            {"md a q k O1", "NF ka O1"},
            {"ms a 1 c\r\nx", "HD c1"},
            {"md a C2", "EX"},
            {"md a C2 q k", "EX ka"},
            {"md a C1 k O1", "HD ka O1"},
            {"mg a", "EN"},
            {"ms a 1 q\r\nx", ""},
            {"md a q", ""},
            {"mg a", "EN"},
            {"ms a 2 T50 F3\r\nmx", "HD"},
            {"md a x", "HD"},
            {"mg a v t f", "VA 0 t50 f0\r\n"},
            {"md a x F9 I T20", "HD"},
            {"mg a v t f", "VA 0 t20 f9 X W\r\n"},
            {"md a T9", "HD"},
            {"mg a", "EN"}});
  LONGS_EQUAL(3, rig.counters.delete_hits.read());
  LONGS_EQUAL(2, rig.counters.delete_misses.read());
  LONGS_EQUAL(2, rig.counters.cas_badval.read());
}

TEST(KvdMeta, Count) {
  exchange({{"ma n", "NF"},
            {"ma n q k O1 D2", "NF kn O1"},
            {"ma n N90 t v c", "VA 1 t90 c1\r\n0"},
            {"ma n N90 v", "VA 1\r\n1"},
            {"ma n D30 v k", "VA 2 kn\r\n31"},
            {"ma n MD D22 v", "VA 1\r\n9"},
            {"ma n M- D9000 v", "VA 1\r\n0"},
            {"ma n M+ D5", "HD"},
            {"ma n MI q v", ""},
            {"mg n v", "VA 2\r\n6 "},
            {"ma n T300 t", "HD t300"},
            {"ma n t T60 q", ""},
            {"mg n t", "HD t60"},
            {"ma n C1 v", "EX"},
            {"ma m N0 J13 v t", "VA 2 t-1\r\n13"},
            {"ma m N0 J13 C99 q", "EX"},
            {"ma m N0 J13 C10 c v", "VA 2 c11\r\n14"},
            {"ma k N0 J18446744073709551615 q", ""},
            {"ma k v", "VA 1\r\n0"},
            {"set w 0 0 1\r\nq", "STORED"},
            {"ma w q", "CLIENT_ERROR cannot increment or decrement non-numeric value"},
            {"set w 0 0 0\r\n", "STORED"},
            {"ma w", "CLIENT_ERROR cannot increment or decrement non-numeric value"},
            {"ma n MX", "CLIENT_ERROR invalid mode for ma M token"},
            {"ma n M", "CLIENT_ERROR invalid mode for ma M token"}});
  LONGS_EQUAL(5, rig.counters.incr_misses.read());
  LONGS_EQUAL(2, rig.counters.decr_hits.read());
}

TEST(KvdMeta, DebugAndNoOp) {
  exchange({{"me a", "EN"},
            {"me a b", "CLIENT_ERROR error decoding key"},
            {"set a 0 0 1\r\nx", "STORED"},
            {"me a", "ME a exp=-1 la=0 cas=1 fetch=no cls=1 size=64"},
            {"me YQ== b", "ME YQ== exp=-1 la=0 cas=1 fetch=no cls=1 size=64"},
            {"mn", "MN"},
            {"mn x", "ERROR"},
            {"mg none q\r\nmg a q v\r\nmg none q\r\nmn", "VA 1\r\nx\r\nMN"}});
}

TEST(KvdMeta, BinaryKeys) {
  exchange({{"ms 44OG44K544OI 2 b\r\npo", "HD"},
            {"mg 44OG44K544OI v", "EN"},
            {"mg 44OG44K544OI b v k", "VA 2 k44OG44K544OI b\r\npo"},
            {"mg 44OG44K544OI k v b O1", "VA 2 k44OG44K544OI b O1\r\npo"},
            {"mg AAECAw== b k", "EN kAAECAw== b"},
            {"md 44OG44K544OI b k q", ""},
            {"ma IA0K N0 b v k", "VA 1 kIA0K b\r\n0"},  // a space and a line end
            {"ma IA0K b v", "VA 1\r\n1"},
            {"ms a2V5 1 b\r\nx", "HD"},
            {"get key", "VALUE key 0 1\r\nx\r\nEND"},
            {"mg key v k", "VA 1 kkey\r\nx"}});
  for (const char* key : {"a", "a2V", "a2V=5", "a2!5", "=", "====", "YQ=", "a2V5=", "-_-_"}) {
    exchange({{std::string("mg ") + key + " b q", "CLIENT_ERROR error decoding key"},
              {std::string("ms ") + key + " 1 b q\r\nx", "CLIENT_ERROR error decoding key"}});
  }
}

// Each is refused whatever else it says, and the value behind a line of known length is skipped.
TEST(KvdMeta, MalformedLines) {
  const std::string longest(250, 'k');
  const std::string token(32, 'o');
  exchange({{"mg " + longest + " k O" + token, "EN k" + longest + " O" + token},
            {"ms " + longest + " 1 k O" + token + "\r\nx", "HD k" + longest + " O" + token}});
  for (const char* command : {"mg", "md", "ma", "me"}) {
    const std::string word(command);
    exchange({{word, kBadLine},
              {word + " ", kBadLine},
              {word + " " + longest + "k q", kBadLine},
              {word + " a q q", "CLIENT_ERROR duplicate flag"},
              {word + " a Oa q Ob", "CLIENT_ERROR duplicate flag"},
              {word + " a E5", "CLIENT_ERROR invalid flag"},
              {word + " a q !", "CLIENT_ERROR invalid flag"},
              {word + " a q \x80", "CLIENT_ERROR invalid flag"},
              {word + " a q noreply", "CLIENT_ERROR invalid flag"},
              {word + " a q O" + token + "o", "CLIENT_ERROR opaque token too long"},
              {word + " a q T", kBadToken},
              {word + " a q Tx", kBadToken},
              {word + " a q N1x", kBadToken},
              {word + " a q R-", kBadToken},
              {word + " a q C-1", kBadToken},
              {word + " a q C18446744073709551616", kBadToken},
              {word + " a q D", "CLIENT_ERROR invalid numeric delta value"},
              {word + " a q J-1", "CLIENT_ERROR invalid numeric initial value"},
              {word + " a q F4294967296", kBadLine},
              {word + " a " + std::string(3000, 'P'), "ERROR"}});
  }
  for (const char* line : {"ms", "ms a", "ms a x", "ms a -1", "ms a 2147483647", "ms a T1"}) {
    exchange({{line, kBadLine}});
  }
  const std::string value = "\r\nmn\r\n--";
  exchange({{"ms a 6 E5 q" + value, "CLIENT_ERROR invalid flag"},
            {"ms a 6 Tx q" + value, kBadToken},
            {"ms a 6 q q" + value, "CLIENT_ERROR duplicate flag"},
            {"ms a 6 MX q" + value, "CLIENT_ERROR invalid mode for ms M token"},
            {"ms " + longest + "k 6 q" + value, kBadLine},
            {"ms a 6 E5 q\r\n" + std::string(8, '-'), "CLIENT_ERROR invalid flag\r\nERROR"},
            {"mg a", "EN"}});
  CHECK_FALSE(client.session().is_over());
  LONGS_EQUAL(1, rig.counters.sets.read());
  Client page(rig);
  STRCMP_EQUAL("", page.say("mg / HTTP/1.1\r\nms a 1\r\nx\r\n").c_str());
  CHECK(page.session().foreign() != nullptr);
}

TEST(KvdMeta, AFullCacheThatIsPinnedHasNoMemory) {
  std::string filler = "set filler 0 0 60000\r\n" + std::string(60'000, 'f') + "\r\n";
  std::vector<CacheItem*> pinned;
  while (client.say(filler) == "STORED\r\n") {
    pinned.push_back(rig.cache.find("filler"));
    rig.cache.pin(*pinned.back());
  }
  for (int i = 0; client.say("set " + std::to_string(i) + " 0 0 1000\r\n" + std::string(1000, 'f') +
                             "\r\n") == "STORED\r\n";
       ++i) {
    pinned.push_back(rig.cache.find(std::to_string(i)));
    rig.cache.pin(*pinned.back());
  }
  for (int i = 0; client.say("ms s" + std::to_string(i) + " 1 q\r\nx\r\n").empty(); ++i) {
    pinned.push_back(rig.cache.find("s" + std::to_string(i)));
    rig.cache.pin(*pinned.back());
  }
  const char* no_memory = "SERVER_ERROR out of memory storing object";
  exchange({{"mg none N30 q", no_memory},
            {"ma none N30 q", no_memory},
            {"md s0 x q", no_memory},
            {"ms s0 1 MA q\r\nx", no_memory}});
  CHECK(rig.counters.no_memory.read() >= 4);
  for (CacheItem* item : pinned) rig.cache.release(*item);
}

TEST(KvdMeta, AnyPiecesSayTheSame) {
  const std::string script =
      "ms a 3 T100 c k\r\nabc\r\nmg a v s c t\r\nmg none q\r\nmg none N30 v\r\nms b 2 E1\r\nxx\r\n"
      "ms b 2 q\r\nxx\r\nms b 1 MA s Oo\r\ny\r\nmd a I q\r\nmg a v c\r\nma n N0 J5 v\r\nma n v\r\n"
      "ms big 6000 k Ob q\r\n" +
      std::string(6000, 'v') + "\r\nms big 6000 k Ob\r\n" + std::string(6000, 'w') +
      "\r\nmg big v k\r\nms huge 70000 q\r\n" + std::string(70'000, 'v') +
      "\r\nms YQ== 1 b k\r\nq\r\nmg a k v\r\nme a\r\nmd a x\r\nmn\r\n";
  const std::string whole = client.say(script);
  CHECK(whole.size() > 6'000);
  CHECK(whole.ends_with("MN\r\n"));
  for (size_t piece : {1, 2, 3, 7, 100, 4096, 5000, 16'384}) {
    CacheRig other_rig(1024 * 1024);
    Client other(other_rig);
    CHECK(whole == other.say(script, piece));
  }
}
