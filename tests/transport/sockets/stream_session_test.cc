// Sessions of a line protocol without a socket: split input, pipelines, bodies received in place,
// loans, peers that do not read, and times.
#include "transport/sockets/stream_session_datapath.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "apps/testing/session_peer.h"
#include "tests/support/death_test.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// Answers each line: "fill N" receives N bytes in place, "skip N" drops N bytes, "lend" lends
// `lent`, "wait N" wants N bytes, "number" sends a number, "starttls" starts the layer, and "end"
// ends. Any other line comes back.
class Lines final : public StreamSession {
 public:
  Lines() noexcept : StreamSession(input_, output_) {}

  std::string filled;
  std::string lent = std::string(3000, 'l');
  std::vector<void*> back;
  uint32_t step_count = 0;
  bool has_left = false;
  Histogram times;

 private:
  StreamStep work(uint64_t) noexcept override {
    ++step_count;
    if (is_filling_) {
      is_filling_ = false;
      say("filled\n");
      return StreamStep::kTaken;
    }
    const std::string line(arrived_line());
    if (line.empty()) {
      if (is_input_full()) end();
      return StreamStep::kStarved;
    }
    const size_t bytes = line.size() > 5 ? std::strtoull(line.c_str() + 5, nullptr, 10) : 0;
    if (line.starts_with("wait ") && arrived().size() < bytes) {
      want(bytes);
      return StreamStep::kStarved;
    }
    take(line.size());
    if (line.starts_with("fill ")) {
      filled.assign(bytes, '?');
      is_filling_ = true;
      fill(filled.data(), bytes);
    } else if (line.starts_with("skip ")) {
      skip(bytes);
    } else if (line == "lend\n") {
      lend(lent, &lent);
    } else if (line == "starttls\n") {
      say(line);
      start_layer();
    } else if (line == "end\n") {
      end();
    } else if (line == "number\n") {
      say_number(~uint64_t{0});
    } else {
      say(line);
    }
    answered(times, 1);
    return StreamStep::kTaken;
  }
  void released(void* loan) noexcept override { back.push_back(loan); }
  void left() noexcept override {
    has_left = true;
    is_filling_ = false;
  }

  bool is_filling_ = false;
  char input_[256];
  char output_[3 * StreamSession::kStepTextBytes];
};

// Starts its layer at the first line. Its input is longer than what may come before a layer.
class Spacious final : public StreamSession {
 public:
  Spacious() noexcept : StreamSession(input_, output_) {}

 private:
  StreamStep work(uint64_t) noexcept override {
    const size_t bytes = arrived_line().size();
    if (bytes == 0) return StreamStep::kStarved;
    take(bytes);
    start_layer();
    return StreamStep::kTaken;
  }
  char input_[2 * kLayerEarlyBytesMax];
  char output_[2 * StreamSession::kStepTextBytes];
};

}  // namespace

TEST_GROUP(StreamSession) {
  Lines session;
  testing::SessionPeer peer{session};

  size_t give(std::string_view * text, size_t piece_max = SIZE_MAX, uint64_t now_ns = 1000) {
    peer.now_ns = now_ns;
    return peer.give(text, piece_max);
  }
  std::string take() { return peer.take(); }
  std::string say(std::string_view text, size_t piece_max = SIZE_MAX) {
    return peer.say(text, piece_max);
  }
};

TEST(StreamSession, AnyPiecesSayTheSame) {
  const std::string text = "one\nfill 500\n" + std::string(500, 'f') + "two\nskip 300\n" +
                           std::string(300, 's') + "lend\nnumber\nthree\n";
  const std::string answer = "one\nfilled\ntwo\n" + session.lent + "18446744073709551615three\n";
  for (size_t piece : {1, 2, 3, 7, 100, 10'000}) {
    CHECK_EQUAL(answer, say(text, piece));
    CHECK(session.filled == std::string(500, 'f'));
  }
  LONGS_EQUAL(6, session.back.size());
}

// The socket receives into the buffer while a reply is being sent. Then the reply is sent, and the
// next step fills memory: its bytes are in the buffer already, or still arrive there.
TEST(StreamSession, FillsFromAReceiveThatBeganBeforeIt) {
  for (const std::string body : {"cdefghij", "cde", "cdefghijnext\n"}) {
    std::string_view text = "lend\nfill 10\nab";
    give(&text, 5);
    CHECK(!session.replies().empty());
    give(&text);
    CHECK(text.empty());
    const StreamSession::Input input = session.input();
    LONGS_EQUAL(1, input.piece_count);
    session.sent(1000);
    CHECK(session.filled == "ab????????");
    std::memcpy(input.pieces[0].iov_base, body.data(), body.size());
    session.received(body.size(), 1000);
    CHECK(session.is_valid());
    text = std::string_view("fghij").substr(body == "cde" ? 0 : 5);
    if (!text.empty()) give(&text);
    CHECK(session.filled == "abcdefghij");
    CHECK_EQUAL("filled\n" + body.substr(std::min<size_t>(body.size(), 8)), take());
  }
}

TEST(StreamSession, ABatchIsAnsweredByOneSend) {
  std::string_view text = "one\ntwo\nthree\n";
  give(&text);
  const auto pieces = session.replies();
  LONGS_EQUAL(1, pieces.size());
  LONGS_EQUAL(14, pieces[0].iov_len);
  session.sent(0);
  CHECK(session.replies().empty());
}

TEST(StreamSession, WhatIsFilledIsReceivedInPlace) {
  std::string_view text = "fill 5000\nbegin";
  give(&text);
  const StreamSession::Input input = session.input();
  POINTERS_EQUAL(session.filled.data() + 5, input.pieces[0].iov_base);
  LONGS_EQUAL(4995, input.pieces[0].iov_len);
  LONGS_EQUAL(4995, input.min_bytes);
  CHECK(session.filled.starts_with("begin?"));
}

TEST(StreamSession, NoStepComesBeforeWhatItWants) {
  CHECK_EQUAL(std::string(""), say("wait 100\n"));
  const uint32_t before = session.step_count;
  for (int i = 0; i < 90; ++i) CHECK_EQUAL(std::string(""), say("x"));
  LONGS_EQUAL(before, session.step_count);
  CHECK_EQUAL(std::string("wait 100\nxxxxxxxxxx"), say("x\n").substr(0, 19));
}

TEST(StreamSession, NothingMoreIsTakenFromAPeerThatReadsNothing) {
  std::string endless;
  for (int i = 0; i < 10'000; ++i) endless += "line\n";
  std::string_view text(endless);
  while (give(&text) > 0) (void)session.replies();
  CHECK(endless.size() - text.size() <= 512);
  const uint32_t before = session.step_count;
  session.sent(0);
  CHECK(session.step_count > before);  // the session goes on where it stopped
}

TEST(StreamSession, AReplyOnItsWayStaysAsItIs) {
  std::string_view text = "lend\none\n", more = "two\n";
  give(&text);
  const auto pieces = session.replies();
  give(&more);
  CHECK(session.replies().empty());
  LONGS_EQUAL(2, pieces.size());
  LONGS_EQUAL(4, pieces[1].iov_len);
  CHECK(session.back.empty());
  session.sent(0);
  LONGS_EQUAL(1, session.back.size());
  CHECK_EQUAL(std::string("two\n"), take());
}

TEST(StreamSession, ManyLoansAreSentInSeveralBatches) {
  std::string text, answer;
  for (int i = 0; i < 100; ++i) text += "lend\n", answer += session.lent;
  CHECK(say(text) == answer);
  LONGS_EQUAL(100, session.back.size());
}

TEST(StreamSession, AnEndTakesNothingMore) {
  CHECK_EQUAL(std::string("one\n"), say("one\nend\ntwo\n"));
  CHECK(session.is_over());
  LONGS_EQUAL(0, session.input().piece_count);
  session.reset();
  CHECK_EQUAL(std::string("three\n"), say("three\n"));
}

TEST(StreamSession, StartsALayerOnceItsRepliesAreSent) {
  session.layer().set(LayerUse::kOffered, false);
  CHECK_EQUAL(std::string("one\nstarttls\n"), say("one\nstarttls\n"));
  CHECK(session.layer().is_wanted() && session.is_over());
  LONGS_EQUAL(0, session.input().piece_count);
  LONGS_EQUAL(0, session.begin_layer(0).size());
  CHECK(!session.layer().is_wanted() && !session.is_over());
  CHECK_EQUAL(std::string("two\n"), say("two\n"));
  session.reset();
  session.layer().set(LayerUse::kRequired, false);
  CHECK_EQUAL(std::string("starttls\n"), say("starttls\n"));
  session.reset();  // its peer has gone
  CHECK(!session.layer().is_wanted());
  CHECK_EQUAL(std::string("three\n"), say("three\n"));
}

TEST(StreamSession, RefusesBytesBehindTheRequestForALayer) {
  session.layer().set(LayerUse::kOffered, false);
  std::string_view text = "starttls\nmore\n";
  give(&text);
  CHECK(!session.layer().is_wanted() && session.is_over());
  STRCMP_EQUAL("in clear behind its request for encryption", session.foreign());
  LONGS_EQUAL(1, session.step_count);
}

TEST(StreamSession, GivesTheLayerWhatComesBehindTheRequest) {
  session.layer().set(LayerUse::kOffered, false);
  std::string_view text = "lend\nstarttls\n";
  give(&text, 5);
  CHECK(!session.replies().empty());
  give(&text);
  const StreamSession::Input input = session.input();
  session.sent(1000);
  CHECK(session.layer().is_wanted());
  std::memcpy(input.pieces[0].iov_base, "hello", 5);
  CHECK_EQUAL(std::string("starttls\n"), take());
  const auto early = session.begin_layer(5);
  CHECK_EQUAL(std::string("hello"),
              std::string(reinterpret_cast<const char*>(early.data()), early.size()));
  CHECK_EQUAL(std::string("two\n"), say("two\n"));
}

TEST(StreamSession, StartsNoLayerThatItDoesNotHave) {
  BP_CHECK_DIES("a session starts a layer that it does not have", say("starttls\n"));
  session.layer().set(LayerUse::kRequired, true);
  BP_CHECK_DIES("a session starts a layer that it does not have, twice", say("starttls\n"));
}

// A ClientHello is shorter.
TEST(StreamSession, RefusesTooMuchBeforeTheLayer) {
  Spacious spacious;
  testing::SessionPeer its_peer(spacious);
  for (const uint64_t bytes : {kLayerEarlyBytesMax, kLayerEarlyBytesMax + 1}) {
    const bool is_too_much = bytes > kLayerEarlyBytesMax;
    spacious.layer().set(LayerUse::kOffered, false);
    its_peer.say("starttls\n");
    CHECK_EQUAL(is_too_much ? 0 : bytes, spacious.begin_layer(bytes).size());
    CHECK_EQUAL(is_too_much, spacious.foreign() != nullptr);
    spacious.reset();
  }
}

TEST(StreamSession, APeerThatGoesGivesBackWhatItHad) {
  std::string_view text = "lend\nfill 1000\nhalf";
  give(&text);
  (void)session.replies();
  session.reset();
  CHECK(session.has_left);
  LONGS_EQUAL(1, session.back.size());
  CHECK_EQUAL(std::string("one\n"), say("one\n"));  // not the rest of the body
}

TEST(StreamSession, AnInputThatIsFullIsSaidSo) {
  CHECK_EQUAL(std::string(""), say(std::string(1000, 'x')));
  CHECK(session.is_over());
}

// A request's time runs from the receipt of its last byte, also while it waits for a send.
TEST(StreamSession, TimesRequestsUntilTheirReplyIsHandedOver) {
  std::string_view begin = "on", end = "e\n", more = "two\nthree\n";
  give(&begin, 100, 1000);
  give(&end, 100, 5000);
  (void)session.replies();
  session.handed_over(5016);
  CHECK_EQUAL(16, session.times.percentile(1));
  give(&more, 4, 6000);
  give(&more, 100, 7000);
  session.sent(8000);
  (void)session.replies();
  session.handed_over(8000);
  LONGS_EQUAL(3, session.times.count());
  CHECK(session.times.percentile(1) >= 2000);
}

// Requests that one send answers pass their stations together. One record has their number.
TEST(StreamSession, WhatASendAnswersIsTraced) {
  TraceRecord records[2];
  TraceRing ring;
  ring.create(records);
  session.set_owner({.trace = TraceWriter(&ring, 3)});
  std::string_view text = "a\nb\n";
  give(&text, SIZE_MAX, 1000);
  CHECK(!session.replies().empty());
  session.handed_over(1640);
  CHECK_EQUAL(0, records[0].number);
  session.sent(7400);
  CHECK_EQUAL(1, records[0].number);
  LONGS_EQUAL(3, records[0].source);
  LONGS_EQUAL(1, records[0].kind);
  CHECK_EQUAL(2, records[0].handle);
  CHECK_EQUAL(4, records[0].bytes);
  CHECK_EQUAL(1000, records[0].begin_ns);
  CHECK_EQUAL(10, records[0].passed[0]);
  CHECK_EQUAL(100, records[0].passed[1]);
  CHECK_EQUAL(kTraceNotPassed, records[0].passed[2]);
  CHECK_EQUAL(2, session.times.count());
  // A reply not handed over before the peer went is not recorded.
  text = "c\n";
  give(&text);
  CHECK(!session.replies().empty());
  session.reset();
  CHECK_EQUAL(0, records[1].number);
  // A reply handed over but never sent is not recorded either: nobody knows if the peer got it.
  text = "d\n";
  give(&text);
  CHECK(!session.replies().empty());
  session.handed_over(2000);
  session.reset();
  CHECK_EQUAL(0, records[1].number);
}

// The socket had not taken the answer to the first line yet.
TEST(StreamSession, TakesNoRequestOfAPeerThatHasGone) {
  std::string_view first = "one\n", second = "two\n";
  give(&first);
  CHECK(!session.replies().empty());
  give(&second);
  const uint32_t steps_before = session.step_count;
  session.leave();
  session.sent(1000);
  LONGS_EQUAL(steps_before, session.step_count);
  CHECK(session.replies().empty());
}

namespace {

// Keeps its first line in place while it waits, and has more to do when its peer has gone.
class Keeping final : public StreamSession {
 public:
  Keeping() noexcept : StreamSession(input_, output_) {}
  void go_on() { resume(1000); }

  std::string_view kept;
  bool takes_at_once = false;
  bool has_gone_on = false;

 private:
  StreamStep work(uint64_t) noexcept override {
    if (kept.empty()) {
      take(4);
      kept = arrived_line();
      keep_arrived(true);
      if (takes_at_once) take(kept.size());
      return StreamStep::kWaits;
    }
    has_gone_on = true;
    if (!takes_at_once) take(kept.size());
    keep_arrived(false);
    return StreamStep::kStarved;
  }
  void left() noexcept override { wait(); }

  char input_[32];
  char output_[2 * StreamSession::kStepTextBytes];
};

}  // namespace

// So a session may work on several requests at a time.
TEST(StreamSession, KeepsBytesInPlaceIfToldSo) {
  for (const bool takes_at_once : {false, true}) {
    Keeping keeping;
    keeping.takes_at_once = takes_at_once;
    const auto give_all = [&](std::string_view text) {
      const StreamSession::Input input = keeping.input();
      LONGS_EQUAL(1, input.piece_count);
      CHECK(input.pieces[0].iov_len >= text.size());
      std::memcpy(input.pieces[0].iov_base, text.data(), text.size());
      keeping.received(text.size(), 1000);
    };
    give_all("one\nthe second line\n");
    give_all("and more");  // else the line would have moved to the front
    CHECK(keeping.kept == "the second line\n");
    CHECK_EQUAL(4, keeping.input().pieces[0].iov_len);
    keeping.go_on();
    CHECK(keeping.has_gone_on);
    CHECK_EQUAL(24, keeping.input().pieces[0].iov_len);
  }
}

TEST(StreamSession, MayWaitBehindItsPeer) {
  Keeping keeping;
  int changed_count = 0;
  keeping.set_owner(
      {.changed = [](void* count) { ++*static_cast<int*>(count); }, .context = &changed_count});
  keeping.leave();
  CHECK(keeping.is_waiting());
  keeping.go_on();
  CHECK_FALSE(keeping.is_waiting());
  CHECK_FALSE(keeping.has_gone_on);  // it works for no peer
  LONGS_EQUAL(1, changed_count);
  keeping.reset();
}

TEST(StreamSession, TellsItsProgress) {
  CHECK_FALSE(session.progress().has_begun);
  std::string_view text = "one\ntw";
  give(&text, SIZE_MAX, 1000);
  take();
  CHECK_EQUAL(1, session.progress().steps);
  CHECK(session.progress().has_begun);
  CHECK_EQUAL(1000, session.progress().received_ns);
  text = "o\nfill 10\nabc";
  give(&text, SIZE_MAX, 2000);
  take();
  CHECK_EQUAL(3, session.progress().steps);
  CHECK(session.progress().has_begun);  // the rest of what it fills
  session.late();
  CHECK(session.is_over());  // it has no word for that
  session.reset();
  CHECK_FALSE(session.progress().has_begun);
  CHECK_EQUAL(0, session.progress().received_ns);
}

TEST(StreamSession, MayEndItsWaitWhenItsPeerGoes) {
  struct Parting final : StreamSession {
    Parting() noexcept : StreamSession(input, output) {}
    StreamStep work(uint64_t) noexcept override {
      take(arrived().size());
      return StreamStep::kWaits;
    }
    void left() noexcept override { resume(0); }

    char input[16];
    char output[2 * kStepTextBytes];
  } parting;
  int changed_count = 0;
  parting.set_owner(
      {.changed = [](void* count) { ++*static_cast<int*>(count); }, .context = &changed_count});
  std::string_view text = "x";
  testing::SessionPeer(parting).give(&text);
  CHECK(parting.is_waiting());
  parting.leave();
  CHECK_FALSE(parting.is_waiting());
  LONGS_EQUAL(0, changed_count);  // the caller of leave() knows
  parting.reset();
}
