// The data path's law for a session of kvd, and with it for StreamSession: every command, values
// that are received in place or lent, and input in parts of any length.
#include <string>
#include <string_view>

#include "tests/apps/kvd/kvd_driver.h"
#include "tests/support/datapath_law.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::kvd;
using namespace bedplate::test;

TEST_GROUP(KvdLaw) {
  CacheRig rig{1024 * 1024};
  Client client{rig};

  // Receives all replies without copying them. Returns how many bytes they have.
  size_t drain() noexcept {
    size_t bytes = 0;
    for (auto pieces = client.session().replies(); !pieces.empty();
         pieces = client.session().replies()) {
      for (const iovec& piece : pieces) bytes += piece.iov_len;
      client.session().handed_over(rig.cache.now_ns());
      client.sent();
    }
    return bytes;
  }
  size_t say(std::string_view text, size_t piece_max) noexcept {
    size_t bytes = 0;
    for (bool moves = true; moves && !text.empty();) {
      moves = client.give(&text, piece_max);
      const size_t answered = drain();
      moves |= answered > 0;
      bytes += answered;
    }
    return bytes;
  }
};

TEST(KvdLaw, EveryCommand) {
  BP_SKIP_WITHOUT_LAW();
  const std::string script =
      "set a 1 0 3\r\nabc\r\nget a\r\ngets a b\r\nbogus\r\nadd a 0 0 1\r\nx\r\n"
      "set b 0 0 1 noreply\r\ny\r\nget  a  b \r\nappend a 0 0 2\r\nde\r\n"
      "prepend a 0 0 1\r\n_\r\nset n 0 0 2\r\n10\r\nincr n 5\r\ndecr n 100\r\nget n\r\n"
      "set big 0 0 60000\r\n" +
      std::string(60'000, 'v') + "\r\nget big\r\nset huge 0 0 70000\r\n" +
      std::string(70'000, 'v') +
      "\r\nget huge big\r\ncas a 0 0 1 1\r\nz\r\ndelete a\r\ntouch b 100\r\ngat 5 b\r\n"
      "ms m 3 T30 c k Oo\r\nabc\r\nms m 3 C1 I\r\nabc\r\nms m 1 MA s\r\nd\r\n"
      "mg m v s f h l t k q R60\r\nmg none N30 T9\r\nma n N0 J5 v t\r\nma n MD D99\r\n"
      "md m I x T30\r\nmg m v\r\nme m\r\nmd m q\r\nmg none E1\r\nmn\r\n"
      "stats settings\r\nstats items\r\nstats slabs\r\n"
      "verbosity 1\r\nversion\r\nstats\r\nflush_all\r\nget a b n big\r\n";
  for (const size_t piece : {script.size(), size_t{1000}, size_t{7}}) {
    const size_t warm = say(script, piece);
    CHECK(warm > 100'000);
    size_t bytes = 0;
    LONGS_EQUAL(0, breaches_in([&] {
                  for (int i = 0; i < 20; ++i) bytes += say(script, piece);
                }));
    CHECK(bytes > 20 * 100'000);
  }
}
