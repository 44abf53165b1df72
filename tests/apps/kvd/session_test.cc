// A kvd client's session: every command, every refusal, input in parts, pipelines and limits.
#include <ctime>
#include <string>

#include "tests/apps/kvd/kvd_driver.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::kvd;

#define ANSWERS(answer, ...) STRCMP_EQUAL(answer, client.say(__VA_ARGS__).c_str())

namespace {

std::string set_text(const std::string& key, const std::string& value) {
  return "set " + key + " 0 0 " + std::to_string(value.size()) + "\r\n" + value + "\r\n";
}

// Many commands, some of them with mistakes.
const std::string kScript =
    "set a 1 0 3\r\nabc\r\nget a\r\ngets a b\r\nbogus\r\nadd a 0 0 1\r\nx\r\n"
    "set b 0 0 1 noreply\r\ny\r\nget  a  b \r\nappend a 0 0 2\r\nde\r\n"
    "prepend a 0 0 1\r\n_\r\nget a\nset n 0 0 2\r\n10\r\n"
    "incr n 5\r\ndecr n 100\r\nget n\r\nset a 0 0 3\r\nabcdefgh\r\ncas a 0 0 1 1\r\nz\r\n"
    "set big 0 0 6000\r\n" +
    std::string(6000, 'v') + "\r\nget big\r\nset huge 0 0 70000\r\n" + std::string(70000, 'v') +
    "\r\nget huge big\r\ndelete a\r\ndelete a\r\ntouch b 100\r\n"
    "gat 100 b missing big\r\ngats x b\r\nverbosity 1\r\nflush_all\r\nget a b n big\r\n";

}  // namespace

TEST_GROUP(KvdSession) {
  CacheRig rig{1024 * 1024};
  Client client{rig};
};

TEST(KvdSession, StoresAndAnswers) {
  ANSWERS("STORED\r\n", "set a 5 0 3\r\nabc\r\n");
  ANSWERS("VALUE a 5 3\r\nabc\r\nEND\r\n", "get a\r\n");
  ANSWERS("VALUE a 5 3\r\nabc\r\nEND\r\n", "get a\n");
  ANSWERS("VALUE a 5 3 1\r\nabc\r\nVALUE a 5 3 1\r\nabc\r\nEND\r\n", "gets a missing a\r\n");
  ANSWERS("END\r\n", "get missing\r\n");
  ANSWERS("DELETED\r\nNOT_FOUND\r\n", "delete a\r\ndelete a 0\r\n");
  ANSWERS("STORED\r\nVALUE e 0 0\r\n\r\nEND\r\n", "set e 0 0 0\r\n\r\nget e\r\n");
  LONGS_EQUAL(5, rig.counters.hits.read());
  LONGS_EQUAL(2, rig.counters.misses.read());
  LONGS_EQUAL(7, rig.counters.gets.read());
  LONGS_EQUAL(2, rig.counters.sets.read());
}

TEST(KvdSession, ConditionsAreKept) {
  ANSWERS("NOT_STORED\r\n", "replace a 0 0 1\r\nx\r\n");
  ANSWERS("NOT_STORED\r\nNOT_STORED\r\n", "append a 0 0 1\r\nx\r\nprepend a 0 0 1\r\nx\r\n");
  ANSWERS("STORED\r\nNOT_STORED\r\nSTORED\r\n",
          "add a 7 0 1\r\nm\r\nadd a 0 0 1\r\nx\r\nreplace a 7 0 1\r\nn\r\n");
  ANSWERS("STORED\r\nSTORED\r\nVALUE a 7 3\r\nlnr\r\nEND\r\n",
          "append a 9 0 1\r\nr\r\nprepend a 9 0 1\r\nl\r\nget a\r\n");
  const std::string number = std::to_string(rig.cache.find("a")->version);
  ANSWERS("EXISTS\r\nNOT_FOUND\r\n", "cas a 0 0 1 999\r\nx\r\ncas b 0 0 1 999\r\nx\r\n");
  ANSWERS("STORED\r\nEXISTS\r\n",
          "cas a 0 0 1 " + number + "\r\nx\r\ncas a 0 0 1 " + number + "\r\ny\r\n");
}

TEST(KvdSession, Counts) {
  ANSWERS("STORED\r\n15\r\n0\r\nVALUE n 5 2\r\n0 \r\nEND\r\n",
          "set n 5 0 2\r\n10\r\nincr n 5\r\ndecr n 100\r\nget n\r\n");
  ANSWERS("100\r\nVALUE n 5 3\r\n100\r\nEND\r\n", "incr n 100\r\nget n\r\n");
  ANSWERS("STORED\r\n0\r\n", "set n 0 0 20\r\n18446744073709551615\r\nincr n 1\r\n");
  ANSWERS("NOT_FOUND\r\n", "incr missing 1\r\n");
  ANSWERS("CLIENT_ERROR invalid numeric delta argument\r\n", "incr n -1\r\n");
  ANSWERS("STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
          "set n 0 0 2\r\n1a\r\nincr n 1\r\n");
}

TEST(KvdSession, Expires) {
  ANSWERS("STORED\r\nEND\r\n", "set a 0 -1 1\r\nx\r\nget a\r\n");
  ANSWERS("STORED\r\nEND\r\n", "set a 0 2592001 1\r\nx\r\nget a\r\n");  // a time in 1970
  ANSWERS("STORED\r\nSTORED\r\n", "set a 0 10 1\r\nx\r\nset b 0 10 1\r\nx\r\n");
  ANSWERS("TOUCHED\r\nNOT_FOUND\r\n", "touch b 20\r\ntouch c 20\r\n");
  rig.cache.set_time(rig.cache.now_ns() + 10'000'000'000);
  ANSWERS("VALUE b 0 1\r\nx\r\nEND\r\n", "get a b\r\n");
  const std::string far = std::to_string(std::time(nullptr) + 1000);
  ANSWERS("STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n", "set a 0 " + far + " 1\r\nx\r\nget a\r\n");
  ANSWERS("OK\r\nVALUE b 0 1\r\nx\r\nEND\r\n", "flush_all 5\r\nget b\r\n");
  rig.cache.set_time(rig.cache.now_ns() + 5'000'000'000);
  ANSWERS("END\r\n", "get a b\r\n");
  ANSWERS("STORED\r\nOK\r\nEND\r\n", "set a 0 10 1\r\nx\r\nflush_all\r\nget a\r\n");
}

TEST(KvdSession, GetsAndTouches) {
  ANSWERS("STORED\r\nSTORED\r\n", "set a 5 10 1\r\nx\r\nset b 0 10 1\r\ny\r\n");
  ANSWERS("VALUE a 5 1\r\nx\r\nEND\r\n", "gat 20 a missing\r\n");
  ANSWERS("VALUE a 5 1 1\r\nx\r\nVALUE b 0 1 2\r\ny\r\nEND\r\n", "gats 20 a b\r\n");
  LONGS_EQUAL(3, rig.counters.hits.read());
  LONGS_EQUAL(1, rig.counters.misses.read());
  LONGS_EQUAL(3, rig.counters.touch_hits.read());
  LONGS_EQUAL(1, rig.counters.touch_misses.read());
  rig.cache.set_time(rig.cache.now_ns() + 19'000'000'000);
  ANSWERS("VALUE a 5 1\r\nx\r\nVALUE b 0 1\r\ny\r\nEND\r\n", "get a b\r\n");
  ANSWERS("VALUE a 5 1\r\nx\r\nEND\r\nEND\r\n", "gat -1 a\r\nget a\r\n");
  rig.cache.set_time(rig.cache.now_ns() + 1'000'000'000);
  ANSWERS("END\r\n", "gat 0 b\r\n");
  client.say(set_text("big", std::string(5000, 'b')));
  ANSWERS(("VALUE big 0 5000\r\n" + std::string(5000, 'b') + "\r\nEND\r\n").c_str(),
          "gat 0 big\r\n");
}

TEST(KvdSession, RefusesAsMemcachedDoes) {
  const std::string longest(250, 'k');
  for (const char* line : {"", "bogus", "get", "gets ", "GET a", "set a 0 0", "incr n", "touch a",
                           "gat", "gat 10", "gats 10 ", "verbosity", "verbosity 1 2 3", "delete",
                           "flush_all 1 2 3", "version foo", "set a 0 0 3 noreply junk"}) {
    ANSWERS("ERROR\r\n", std::string(line) + "\r\n");
  }
  const std::string lines[] = {"get " + longest + "k",
                               "set " + longest + "k 0 0 3",
                               "delete " + longest + "k",
                               "set a 0 0 -1",
                               "set a x 0 3",
                               "set a 0 x 3",
                               "set a 0 0 2147483647",
                               "set a -1 0 3",
                               "set a 4294967296 0 3",
                               "cas a 0 0 1 x",
                               "verbosity x"};
  for (const std::string& line : lines) {
    ANSWERS("CLIENT_ERROR bad command line format\r\n", line + "\r\n");
  }
  ANSWERS("CLIENT_ERROR invalid exptime argument\r\n", "touch a x\r\n");
  ANSWERS("CLIENT_ERROR invalid exptime argument\r\n", "gat x a\r\n");
  ANSWERS("CLIENT_ERROR bad command line format\r\n", "gat 0 " + longest + "k a\r\n");
  ANSWERS("CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n",
          "delete a 5\r\n");
  ANSWERS("STORED\r\n", set_text(longest, "x"));
  ANSWERS("CLIENT_ERROR bad data chunk\r\nERROR\r\n", "set a 0 0 3\r\nabcdefgh\r\n");
  CHECK_FALSE(client.session().is_over());
}

// A web page can make a browser send most of these texts.
TEST(KvdSession, OtherProtocolsEndItBeforeAnythingOfThemIsObeyed) {
  const std::string body = "set pwned 0 0 1\r\nx\r\nflush_all\r\n";
  const std::string long_path(3000, 'p');
  const std::pair<const char*, std::string> all[] = {
      {"HTTP", "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + body},
      {"HTTP", "GET /" + long_path + " HTTP/1.0 \r\n\r\n" + body},
      {"HTTP", "PRI * HTTP/2.0\n" + body},
      {"HTTP", "version / HTTP/1.1\r\n" + body},
      {"HTTP", "Host: 127.0.0.1\r\n" + body},
      {"HTTP", "content-type:text/plain\r\n" + body},
      {"HTTP", "set a x 0 1\r\nPOST / HTTP/1.1\r\n" + body},
      {"TLS", "\x16\x03\x01\r\n" + body}};
  for (const auto& [what, text] : all) {
    for (const size_t piece : {text.size(), size_t{1}, size_t{17}}) {
      Client other(rig);
      const std::string answer = other.say(text, piece);
      CHECK(answer.empty() || answer == "CLIENT_ERROR bad command line format\r\n");
      CHECK(other.session().is_over());
      CHECK(other.session().foreign() != nullptr);
      STRCMP_EQUAL(what, other.session().foreign());
    }
  }
  CHECK(rig.cache.find("pwned") == nullptr);
  LONGS_EQUAL(0, rig.counters.sets.read());
  // The words of HTTP in a value, or as a key, are not taken for HTTP.
  ANSWERS("STORED\r\n", set_text("HTTP/1.1", "GET / HTTP/1.1\r\nHost: a"));
  ANSWERS("END\r\n", "get / HTTP/1.2\r\n");
  CHECK_FALSE(client.session().is_over());
}

// Its client learns why, instead of waiting for an answer.
TEST(KvdSession, TheBinaryProtocolIsRefusedInOneLine) {
  const std::string request = "\x80" + std::string(23, '\0') + "set a 0 0 1\r\nx\r\n";
  for (const size_t piece : {request.size(), size_t{1}}) {
    Client other(rig);
    STRCMP_EQUAL("CLIENT_ERROR the binary protocol is not supported: use the text protocol\r\n",
                 other.say(request, piece).c_str());
    CHECK(other.session().is_over());
  }
  ANSWERS("END\r\nCLIENT_ERROR the binary protocol is not supported: use the text protocol\r\n",
          "get a\r\n" + request);
  CHECK(rig.cache.find("a") == nullptr);
  LONGS_EQUAL(3, rig.counters.binary_refused.read());
}

TEST(KvdSession, SaysNothingWhereNothingIsWanted) {
  ANSWERS("", "set a 0 0 1 noreply\r\nx\r\nadd a 0 0 1 noreply\r\ny\r\ndelete b noreply\r\n");
  ANSWERS("", "incr a x noreply\r\ntouch a 0 noreply\r\nflush_all noreply\r\n");
  ANSWERS("", "verbosity 0 noreply\r\n");
  ANSWERS("END\r\n", "get a\r\n");
}

TEST(KvdSession, AnObjectTooLargeIsRefusedAndSkipped) {
  const std::string value(70'000, 'x');
  ANSWERS("STORED\r\n", set_text("a", "old"));
  ANSWERS("SERVER_ERROR object too large for cache\r\n", set_text("a", value));
  ANSWERS("END\r\n", "get a\r\n");  // the client wanted to replace the old value
  ANSWERS("STORED\r\n", set_text("a", std::string(40'000, 'a')));
  ANSWERS("SERVER_ERROR object too large for cache\r\n",
          "append a 0 0 40000\r\n" + std::string(40'000, 'b') + "\r\n");
}

TEST(KvdSession, AnyPiecesSayTheSame) {
  const std::string whole = client.say(kScript);
  CHECK(whole.size() > 12'000);
  for (size_t piece : {1, 2, 3, 7, 100, 4096, 5000, 16'384}) {
    CacheRig other_rig(1024 * 1024);
    Client other(other_rig);
    const std::string answer = other.say(kScript, piece);
    CHECK(whole == answer);
  }
}

TEST(KvdSession, AnySplitSaysTheSame) {
  const std::string script = kScript.substr(0, kScript.find("set huge"));
  const std::string whole = client.say(script);
  for (size_t split = 1; split < script.size(); ++split) {
    CacheRig other_rig(64 * 1024, 16 * 1024);
    Client other(other_rig);
    const std::string_view text(script);
    std::string answer = other.say(text.substr(0, split));
    answer += other.say(text.substr(split));
    CHECK(whole == answer);
  }
}

TEST(KvdSession, ABatchIsAnsweredByOneSend) {
  std::string batch;
  for (int i = 0; i < 32; ++i) batch += set_text("k" + std::to_string(i), std::string(100, 'v'));
  std::string_view text(batch);
  CHECK(client.give(&text, batch.size()));
  const auto pieces = client.session().replies();
  LONGS_EQUAL(1, pieces.size());
  LONGS_EQUAL(32 * 8, pieces[0].iov_len);
  client.sent();
}

TEST(KvdSession, NothingMoreIsTakenFromWhoReadsNothing) {
  client.say(set_text("big", std::string(60'000, 'b')));
  std::string endless;
  for (int i = 0; i < 20'000; ++i) endless += "get big\r\n";
  std::string_view text(endless);
  while (client.give(&text, endless.size())) (void)client.session().replies();
  CHECK(endless.size() - text.size() <= 2 * Session::kBufferBytes);
  client.sent();
  CHECK(client.session().replies().size() > 1);  // the session continues with the rest
}

TEST(KvdSession, WhatIsOnItsWayDoesNotGrow) {
  std::string_view text("get a\r\n"), more("get b\r\n");
  client.give(&text, text.size());
  const auto pieces = client.session().replies();
  client.give(&more, more.size());
  CHECK(client.session().replies().empty());
  LONGS_EQUAL(5, pieces[0].iov_len);
  client.sent();
  LONGS_EQUAL(5, client.session().replies()[0].iov_len);
  client.sent();
}

TEST(KvdSession, AValueOnItsWayIsNotOverwritten) {
  client.say(set_text("big", std::string(5000, 'b')));
  std::string_view text("get big\r\n");
  client.give(&text, text.size());
  const auto pieces = client.session().replies();
  Client other(rig);
  other.say(set_text("big", std::string(5000, 'c')));
  for (int i = 0; i < 2000; ++i) other.say(set_text(std::to_string(i), std::string(1000, 'd')));
  std::string seen;
  for (const iovec& piece : pieces) {
    seen.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
  }
  CHECK_EQUAL("VALUE big 0 5000\r\n" + std::string(5000, 'b') + "\r\nEND\r\n", seen);
  client.sent();
}

// A value that a process got by message is pinned like this one.
TEST(KvdSession, AValueThatOthersReadIsNotCountedInPlace) {
  client.say(set_text("n", "10"));
  CacheItem& held = *rig.cache.find("n");
  rig.cache.pin(held);
  ANSWERS("15\r\nVALUE n 0 2\r\n15\r\nEND\r\n", "incr n 5\r\nget n\r\n");
  STRNCMP_EQUAL("10\r\n", reinterpret_cast<const char*>(held.body()), 4);
  rig.cache.release(held);
}

TEST(KvdSession, AValueOfAnyLengthWithoutItsLineEndIsNotStored) {
  for (const size_t bytes : {1, 100, 5000, 60'000}) {
    client.say(set_text("a", "old"));
    const std::string line = "set a 0 0 " + std::to_string(bytes) + "\r\n";
    ANSWERS("CLIENT_ERROR bad data chunk\r\nVALUE a 0 3\r\nold\r\nEND\r\n",
            line + std::string(bytes, 'v') + "xxget a\r\n");
  }
}

TEST(KvdSession, ALineIsNotEndless) {
  std::string keys;
  while (keys.size() < 16'000) keys += " " + std::string(249, 'k');
  ANSWERS("END\r\n", "get" + keys + "\r\n");
  ANSWERS("ERROR\r\n", std::string(3000, 'x') + "\r\n");
  ANSWERS("END\r\n", "get" + keys + keys + "\r\n");
  ANSWERS("CLIENT_ERROR line too long\r\n", "delete" + keys + keys + "\r\n");
  CHECK(client.session().is_over());
}

// Some clients ask for a thousand keys at once.
TEST(KvdSession, AGetHasAnyNumberOfKeys) {
  std::string keys, values;
  for (int i = 0; i < 2000; ++i) {
    const std::string key = "session:" + std::to_string(i) + ":user-profile";
    client.say("set " + key + " 7 0 1\r\nx\r\n");
    values += "VALUE " + key + " 7 1\r\nx\r\n";
    keys += (i % 3 == 0 ? "  " : " ") + key;
    if (i % 5 == 0) keys += " missing";
  }
  CHECK(keys.size() > 3 * Session::kBufferBytes);
  for (const char* end : {"\r\n", "\n", " \r\n", "   \n"}) {
    for (const size_t piece : {keys.size() + 100, size_t{1}, size_t{7}, size_t{4096}}) {
      Client other(rig);
      CHECK(other.say("get" + keys + end + "get a\r\n", piece) == values + "END\r\nEND\r\n");
      CHECK(other.say("gat 9" + keys + end + "get a\r\n", piece) == values + "END\r\nEND\r\n");
    }
  }
  LONGS_EQUAL(2 * 16 * 2000, rig.counters.hits.read());
  LONGS_EQUAL(2 * (16 * 400 + 16), rig.counters.misses.read());
  LONGS_EQUAL(16 * 2000, rig.counters.touch_hits.read());
  ANSWERS("CLIENT_ERROR line too long\r\n", "gat x" + keys + "\r\n");
}

TEST(KvdSession, ALongKeyInALongLineIsRefusedAndTheRestDropped) {
  std::string keys;
  while (keys.size() < 3 * Session::kBufferBytes) keys += " " + std::string(250, 'k');
  const std::string bad = "CLIENT_ERROR bad command line format\r\n";
  for (const size_t piece : {size_t{1} << 20, size_t{1}, size_t{251}, size_t{16'384}}) {
    for (const std::string& key :
         {std::string(251, 'k'), std::string(252, 'k'), std::string(40'000, 'k')}) {
      Client other(rig);
      CHECK_TRUE(other.say("get" + keys + " " + key + " a b\r\nget a\r\n", piece) ==
                 bad + "END\r\n");
      CHECK_TRUE(other.say("get" + keys + " " + key + "\r\nget a\n", piece) == bad + "END\r\n");
      CHECK_TRUE(other.say("get " + key + keys + "\r\nget a\n", piece) == bad + "END\r\n");
    }
    Client other(rig);
    CHECK_TRUE(other.say("get" + keys + "\r\nget a\n", piece) == "END\r\nEND\r\n");
    // A whole buffer without a key.
    CHECK_TRUE(other.say("get" + std::string(20'000, ' ') + "\r\n", piece) ==
               "CLIENT_ERROR line too long\r\n");
  }
}

TEST(KvdSession, AClientMayLeaveInTheMiddleOfALongLine) {
  Client leaving(rig);
  leaving.say("get a " + std::string(16'000, 'k'));
  leaving.session().reset();
  STRCMP_EQUAL("END\r\n", leaving.say("get a\r\n").c_str());
}

TEST(KvdSession, QuitEndsIt) {
  ANSWERS("END\r\n", "get a\r\nquit\r\nget a\r\n");
  CHECK(client.session().is_over());
}

TEST(KvdSession, AClientThatLeavesGivesBackWhatItHad) {
  for (int i = 0; i < 100; ++i) {
    Client leaving(rig);
    std::string_view half = "set a 0 0 30000\r\nthe beginning of it";
    leaving.give(&half, half.size());
  }
  ANSWERS("STORED\r\n", set_text("x", std::string(30'000, 'x')));
  ANSWERS("END\r\n", "get a\r\n");
}

// The counters have memcached's names and meanings.
TEST(KvdSession, StatsHaveTheCounters) {
  const auto expect = [&](const std::string& name, const std::string& value) {
    const std::string stats = client.say("stats\r\n");
    CHECK(stats.ends_with("END\r\n"));
    const std::string line = "STAT " + name + " " + value + "\r\n";
    if (stats.find(line) == stats.npos) FAIL((line + "is not in\n" + stats).c_str());
  };
  client.say(set_text("a", "x") + "get a b\r\n" + set_text("n", "1") + set_text("n", "1"));
  client.say("add a 0 0 1\r\ny\r\nappend a 0 0 1\r\ny\r\n");
  client.say("incr n 1\r\nincr none 1\r\nincr a 1\r\ndecr n 1\r\ndecr n 1\r\ndecr none 1\r\n");
  client.say("incr n 99\r\n");  // a longer number is a new item
  const std::string number = std::to_string(rig.cache.find("a")->version);
  client.say("cas a 0 0 1 " + number + "\r\nz\r\ncas a 0 0 1 " + number + "\r\nz\r\n");
  client.say("cas a 0 0 1 1\r\nz\r\ncas none 0 0 1 1\r\nz\r\ndelete a\r\ndelete a\r\ndelete b\r\n");
  client.say("touch n 100\r\ntouch none 1\r\ntouch none 1\r\nflush_all 1000\r\n");
  client.say(set_text("large", std::string(70'000, 'x')));
  const std::pair<const char*, const char*> all[] = {{"pid", "4711"},
                                                     {"version", "1.0.0-bedplate"},
                                                     {"pointer_size", "64"},
                                                     {"threads", "1"},
                                                     {"max_connections", "256"},
                                                     {"curr_connections", "0"},
                                                     {"cmd_get", "2"},
                                                     {"get_hits", "1"},
                                                     {"get_misses", "1"},
                                                     {"cmd_set", "9"},
                                                     {"total_items", "6"},
                                                     {"curr_items", "1"},
                                                     {"incr_hits", "2"},
                                                     {"incr_misses", "1"},
                                                     {"decr_hits", "2"},
                                                     {"decr_misses", "1"},
                                                     {"cas_hits", "1"},
                                                     {"cas_badval", "2"},
                                                     {"cas_misses", "1"},
                                                     {"delete_hits", "1"},
                                                     {"delete_misses", "2"},
                                                     {"cmd_touch", "3"},
                                                     {"touch_hits", "1"},
                                                     {"touch_misses", "2"},
                                                     {"cmd_flush", "1"},
                                                     {"store_too_large", "1"},
                                                     {"store_no_memory", "0"},
                                                     {"evictions", "0"},
                                                     {"expired_unfetched", "0"},
                                                     {"limit_maxbytes", "1048576"},
                                                     {"rejected_connections", "0"}};
  for (const auto& [name, value] : all) expect(name, value);
}

TEST(KvdSession, StatsOfOtherKindsAndTheirReset) {
  for (const char* none : {"sizes", "conns"}) {
    ANSWERS("END\r\n", std::string("stats ") + none + "\r\n");
  }
  for (const char* unknown : {"bogus", "items 1", "noreply"}) {
    ANSWERS("ERROR\r\n", std::string("stats ") + unknown + "\r\n");
  }
  const std::string settings = client.say("stats settings\r\n");
  for (const char* line : {"STAT maxbytes 1048576\r\n", "STAT maxconns 256\r\n",
                           "STAT item_size_max 65536\r\n", "STAT cas_enabled yes\r\n",
                           "STAT binding_protocol ascii\r\n", "STAT client_flags_size 4\r\n"}) {
    CHECK(settings.find(line) != settings.npos);
  }
  client.say(set_text("a", "x") + "get a b\r\n");
  ANSWERS("RESET\r\n", "stats reset\r\n");
  client.say("get b\r\n");
  const std::string stats = client.say("stats\r\n");
  for (const char* line :
       {"STAT cmd_get 1\r\n", "STAT cmd_set 0\r\n", "STAT get_hits 0\r\n", "STAT get_misses 1\r\n",
        "STAT total_items 0\r\n", "STAT curr_items 1\r\n", "STAT pid 4711\r\n"}) {
    if (stats.find(line) == stats.npos) FAIL((line + stats).c_str());
  }
  LONGS_EQUAL(3, rig.counters.gets.read());  // the appliance's counters only grow
}

// Collectors such as memcached_exporter read these, and memcached-tool shows them.
TEST(KvdSession, TheCacheIsOneSlabClass) {
  client.say(set_text("a", std::string(100, 'x')) + set_text("b", "x") + "get a c\r\ndelete b\r\n");
  ANSWERS("STAT items:1:number 1\r\nSTAT items:1:evicted 0\r\nSTAT items:1:outofmemory 0\r\n"
          "STAT items:1:reclaimed 0\r\nSTAT items:1:expired_unfetched 0\r\n"
          "STAT items:1:evicted_unfetched 0\r\nEND\r\n",
          "stats items\r\n");
  ANSWERS("STAT 1:chunk_size 64\r\nSTAT 1:chunks_per_page 16384\r\nSTAT 1:total_pages 1\r\n"
          "STAT 1:total_chunks 16384\r\nSTAT 1:used_chunks 3\r\nSTAT 1:free_chunks 16381\r\n"
          "STAT 1:free_chunks_end 0\r\nSTAT 1:mem_requested 192\r\nSTAT 1:get_hits 1\r\n"
          "STAT 1:cmd_set 2\r\nSTAT 1:delete_hits 1\r\nSTAT 1:incr_hits 0\r\n"
          "STAT 1:decr_hits 0\r\nSTAT 1:cas_hits 0\r\nSTAT 1:cas_badval 0\r\n"
          "STAT 1:touch_hits 0\r\nSTAT active_slabs 1\r\nSTAT total_malloced 1048576\r\n"
          "END\r\n",
          "stats slabs\r\n");
  client.say("stats reset\r\n");
  const std::string slabs = client.say("stats slabs\r\n");
  CHECK(slabs.find("STAT 1:cmd_set 0\r\n") != slabs.npos);
  CHECK(slabs.find("STAT 1:used_chunks 3\r\n") != slabs.npos);
}

// All requests that one send answers get the same time: from their first receive to the send.
TEST(KvdSession, CountsTheTimeOfEachRequestByItsKind) {
  const auto give_at = [&](uint64_t ns, std::string_view text) {
    rig.cache.set_time(ns);
    while (!text.empty()) CHECK(client.give(&text, text.size()));
  };
  give_at(1000, "set a 0 0 1\r\nx\r\nget a\r\nget b\r\n");
  CHECK_FALSE(client.session().replies().empty());
  client.session().handed_over(1016);
  // These requests wait for the send, so their time does not begin with the last receive.
  give_at(2000, "get a\r\n");
  give_at(3000, "delete a\r\n");
  client.sent();
  CHECK_FALSE(client.session().replies().empty());
  client.session().handed_over(4000);
  client.sent();
  const auto times = [](const Histogram& histogram) {
    return std::to_string(histogram.count()) + " to " + std::to_string(histogram.percentile(1));
  };
  STRCMP_EQUAL("1 to 16", times(rig.counters.set_ns).c_str());
  STRCMP_EQUAL("3 to 2047", times(rig.counters.get_ns).c_str());
  STRCMP_EQUAL("1 to 2047", times(rig.counters.other_ns).c_str());
  CHECK_EQUAL(16, rig.counters.get_ns.percentile(0.5));
}

// The time of a request begins when its last byte arrives.
TEST(KvdSession, TheTimeOfARequestBeginsWithItsLastByte) {
  for (const auto& [ns, text] :
       {std::pair<uint64_t, std::string_view>{1000, "ge"}, {9000, "t a\r\n"}}) {
    rig.cache.set_time(ns);
    std::string_view left = text;
    CHECK(client.give(&left, left.size()));
  }
  CHECK_FALSE(client.session().replies().empty());
  client.session().handed_over(9008);
  client.sent();
  CHECK_EQUAL(8, rig.counters.get_ns.percentile(1));
}
