// Sessions whose answers come later: their order, how many may wait, waits of the session itself,
// and peers that go meanwhile.
#include "transport/sockets/later_answers_datapath.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "apps/testing/session_peer.h"
#include "transport/sockets/answer_watch.h"
#include "tests/support/death_test.h"
#include "transport/sockets/stream_session_datapath.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

// Answers "now X" at once, "later X" by finish(X), "lend X" by finish(X) with a loan, "inside X"
// by an answer that is finished before work() returns. "wait X" waits for resume(), and then says
// X. Each answer is the line. "end" ends.
class Deferring final : public StreamSession {
 public:
  explicit Deferring(AnswerOrder order) noexcept : StreamSession(input_, output_, later_, order) {}

  static constexpr size_t kLaterCount = 3;
  struct Waiting {
    std::string line;
    LaterAnswer* answer;
  };
  std::vector<Waiting> waiting;
  std::vector<void*> released_loans;
  std::string lent = "a loan\n";
  Histogram times;
  uint32_t left_count = 0;
  uint32_t step_count = 0;

  void finish(size_t index, uint64_t now_ns = 1000) {
    const Waiting it = waiting[index];
    waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(index));
    answer(*it.answer, it.line, now_ns);
  }
  void finish(const std::string& line) {
    const auto at = std::find_if(waiting.begin(), waiting.end(),
                                 [&](const Waiting& each) { return each.line == line; });
    CHECK(at != waiting.end());
    finish(static_cast<size_t>(at - waiting.begin()));
  }
  void go_on() { resume(1000); }
  bool is_stopped() const { return !waited_.empty(); }
  bool has_peer_left() const { return has_left(); }

 private:
  void answer(LaterAnswer& to, const std::string& line, uint64_t now_ns) {
    if (line.starts_with("lend ")) to.lend(lent, &lent);
    to.say(line);
    to.answered(times);
    to.finish(now_ns);
  }
  StreamStep work(uint64_t now_ns) noexcept override {
    ++step_count;
    if (!waited_.empty()) {
      say(waited_);
      waited_.clear();
      return StreamStep::kTaken;
    }
    const std::string line(arrived_line());
    if (line.empty()) return StreamStep::kStarved;
    take(line.size());
    if (line == "end\n") {
      end();
    } else if (line.starts_with("wait ")) {
      waited_ = line;
      return StreamStep::kWaits;
    } else if (line.starts_with("inside ")) {
      answer(later(), line, now_ns);
    } else if (line.starts_with("now ")) {
      say(line);
      answered(times);
    } else {
      waiting.push_back({line, &later()});
    }
    return StreamStep::kTaken;
  }
  void released(void* loan) noexcept override { released_loans.push_back(loan); }
  void left() noexcept override {
    ++left_count;
    waited_.clear();
  }

  std::string waited_;
  LaterAnswer later_[kLaterCount];
  char input_[512];
  char output_[2 * StreamSession::kStepTextBytes];
};

}  // namespace

TEST_GROUP(LaterAnswers) {
  Deferring ordered{AnswerOrder::kOfRequests};
  Deferring free{AnswerOrder::kAny};

  void give(Deferring & session, std::string_view text, uint64_t now_ns = 1000) {
    testing::SessionPeer peer(session);
    peer.now_ns = now_ns;
    while (!text.empty()) {
      CHECK(peer.give(&text) > 0);
      CHECK(session.is_valid());
    }
  }
  std::string take(Deferring & session) {
    testing::SessionPeer peer(session);
    peer.now_ns = 2000;
    const std::string all = peer.take();
    CHECK(session.is_valid());
    return all;
  }
};

TEST(LaterAnswers, KeepTheOrderOfRequests) {
  give(ordered, "now 1\nlater 2\nlater 3\n");
  STRCMP_EQUAL("now 1\n", take(ordered).c_str());
  ordered.finish("later 3\n");
  STRCMP_EQUAL("", take(ordered).c_str());
  CHECK(ordered.is_waiting());
  ordered.finish("later 2\n");
  STRCMP_EQUAL("later 2\nlater 3\n", take(ordered).c_str());
  CHECK(!ordered.is_waiting());
}

TEST(LaterAnswers, AnAnswerAtOnceStaysBehindAWaitingOne) {
  give(ordered, "later 1\nnow 2\n");
  STRCMP_EQUAL("", take(ordered).c_str());
  ordered.finish("later 1\n");
  give(ordered, "now 3\n");
  STRCMP_EQUAL("later 1\nnow 2\nnow 3\n", take(ordered).c_str());
}

TEST(LaterAnswers, MayBeSentAsTheyAreFinished) {
  give(free, "later 1\nnow 2\nlater 3\n");
  STRCMP_EQUAL("now 2\n", take(free).c_str());
  free.finish("later 3\n");
  STRCMP_EQUAL("later 3\n", take(free).c_str());
  free.finish("later 1\n");
  STRCMP_EQUAL("later 1\n", take(free).c_str());
}

TEST(LaterAnswers, NoRequestBeginsWhileAllPlannedOnesWait) {
  for (Deferring* session : {&ordered, &free}) {
    give(*session, "later 1\nlater 2\nlater 3\nlater 4\n");
    LONGS_EQUAL(Deferring::kLaterCount, session->waiting.size());
    session->finish("later 1\n");
    STRCMP_EQUAL("later 1\n", take(*session).c_str());
    LONGS_EQUAL(Deferring::kLaterCount, session->waiting.size());
    while (!session->waiting.empty()) session->finish(0);
    STRCMP_EQUAL("later 2\nlater 3\nlater 4\n", take(*session).c_str());
  }
}

TEST(LaterAnswers, ASessionWaitsAndGoesOn) {
  give(ordered, "wait 1\nnow 2\n");
  CHECK(ordered.is_waiting() && ordered.is_stopped());
  const uint32_t steps = ordered.step_count;
  give(ordered, "now 3\n");
  LONGS_EQUAL(steps, ordered.step_count);
  STRCMP_EQUAL("", take(ordered).c_str());
  ordered.go_on();
  STRCMP_EQUAL("wait 1\nnow 2\nnow 3\n", take(ordered).c_str());
  CHECK(!ordered.is_waiting());
}

TEST(LaterAnswers, MayBeFinishedWithinTheStep) {
  give(ordered, "inside 1\nlater 2\ninside 3\n");
  STRCMP_EQUAL("inside 1\n", take(ordered).c_str());
  ordered.finish("later 2\n");
  STRCMP_EQUAL("later 2\ninside 3\n", take(ordered).c_str());
  give(free, "later 1\ninside 2\n");
  STRCMP_EQUAL("inside 2\n", take(free).c_str());
  free.finish(0);
}

TEST(LaterAnswers, ALoanIsReleasedOnceItIsSent) {
  give(ordered, "later 1\nlend 2\n");
  ordered.finish("lend 2\n");
  LONGS_EQUAL(0, ordered.released_loans.size());
  ordered.finish("later 1\n");
  STRCMP_EQUAL("later 1\na loan\nlend 2\n", take(ordered).c_str());
  LONGS_EQUAL(1, ordered.released_loans.size());
}

TEST(LaterAnswers, TheEndWaitsForThem) {
  give(ordered, "later 1\nnow 2\nend\n");
  CHECK(ordered.is_over() && ordered.is_waiting());
  ordered.finish(0);
  STRCMP_EQUAL("later 1\nnow 2\n", take(ordered).c_str());
}

TEST(LaterAnswers, APeerThatGoesIsToldAtOnceAndItsAnswersAreDropped) {
  for (Deferring* session : {&ordered, &free}) {
    give(*session, "later 1\nlend 2\nnow 3\n");
    session->leave();
    session->leave();
    LONGS_EQUAL(1, session->left_count);
    CHECK(session->has_peer_left());
    CHECK(!session->waiting[0].answer->is_wanted());
    session->finish("lend 2\n");
    CHECK(session->is_waiting());
    session->finish("later 1\n");
    CHECK(!session->is_waiting());
    session->reset();
    LONGS_EQUAL(1, session->left_count);
    LONGS_EQUAL(1, session->released_loans.size());
    CHECK(!session->has_peer_left());
    // The next peer gets nothing of it.
    give(*session, "now 4\n");
    STRCMP_EQUAL("now 4\n", take(*session).c_str());
  }
}

TEST(LaterAnswers, ASessionThatWaitsForAPeerThatHasGoneDoesNoMoreSteps) {
  give(ordered, "wait 1\nnow 2\n");
  ordered.leave();
  const uint32_t steps = ordered.step_count;
  ordered.go_on();
  LONGS_EQUAL(steps, ordered.step_count);
  CHECK(!ordered.is_waiting());
  ordered.reset();
}

TEST(LaterAnswers, TellTheirOwnerWhenSomethingChanges) {
  uint32_t told = 0;
  EventLoop loop;
  CHECK(loop.create({}).ok());
  Counter waiting, late;
  AnswerWatch watch;
  watch.create(loop, 0, waiting, late);
  ordered.set_owner({.changed = [](void* count) noexcept { ++*static_cast<uint32_t*>(count); },
                     .context = &told,
                     .watch = &watch});
  give(ordered, "later 1\nlater 2\nwait 3\n");
  LONGS_EQUAL(0, told);
  LONGS_EQUAL(3, waiting.read());  // and the session
  ordered.finish(0);
  LONGS_EQUAL(1, told);
  LONGS_EQUAL(2, waiting.read());
  ordered.go_on();
  LONGS_EQUAL(2, told);
  LONGS_EQUAL(1, waiting.read());
  ordered.finish(0);
  LONGS_EQUAL(0, waiting.read());
  // One that is finished within a step changes nothing that the owner does not see anyway.
  give(ordered, "inside 4\n");
  LONGS_EQUAL(3, told);
}

TEST(LaterAnswers, AreTimedFromTheirRequest) {
  give(ordered, "later 1\n", 5000);
  give(ordered, "later 2\n", 6000);
  ordered.finish(1, 6010);
  LONGS_EQUAL(0, ordered.times.count());
  ordered.finish(0, 6010);
  LONGS_EQUAL(2, ordered.times.count());
  LONGS_EQUAL(10, ordered.times.percentile(0.5));
  CHECK(ordered.times.percentile(1) >= 1010);
  take(ordered);
  LONGS_EQUAL(2, ordered.times.count());
}

TEST(LaterAnswers, AnyMixOfThemKeepsTheOrder) {
  std::mt19937 random(38);
  const char* const kinds[] = {"now ", "later ", "lend ", "wait ", "inside "};
  for (int round = 0; round < 200; ++round) {
    std::string expected, got;
    for (int i = 0; i < 40; ++i) {
      const std::string line = kinds[random() % 5] + std::to_string(i) + "\n";
      expected += line.starts_with("lend ") ? ordered.lent + line : line;
      give(ordered, line);
      while (!ordered.waiting.empty() && random() % 3 == 0) {
        ordered.finish(random() % ordered.waiting.size());
        CHECK(ordered.is_valid());
      }
      if (ordered.is_stopped() && random() % 2 == 0) ordered.go_on();
      if (random() % 4 == 0) got += take(ordered);
    }
    while (ordered.is_waiting()) {
      if (ordered.is_stopped()) ordered.go_on();
      if (!ordered.waiting.empty()) ordered.finish(random() % ordered.waiting.size());
      got += take(ordered);
    }
    got += take(ordered);
    STRCMP_EQUAL(expected.c_str(), got.c_str());
  }
}

// ---- Mistakes -----------------------------------------------------------------------------------

namespace {

// Takes a line, and does `step` with it; its peer's end does `gone`.
class Scripted final : public StreamSession {
 public:
  using Act = void (*)(Scripted& self);
  explicit Scripted(Act step, Act gone = nullptr, AnswerOrder order = AnswerOrder::kAny) noexcept
      : StreamSession(input_, output_, later_, order), step_(step), gone_(gone) {}

  using StreamSession::answered;
  using StreamSession::later;
  using StreamSession::lend;
  using StreamSession::resume;
  using StreamSession::say;
  LaterAnswer* answer = nullptr;
  Histogram times;

  void begin() {
    std::string_view line = "a line\n";
    testing::SessionPeer(*this).give(&line);
  }

 private:
  StreamStep work(uint64_t) noexcept override {
    if (arrived_line().empty()) return StreamStep::kStarved;
    take(arrived_line().size());
    step_(*this);
    return StreamStep::kTaken;
  }
  void left() noexcept override {
    if (gone_ != nullptr) gone_(*this);
  }

  const Act step_;
  const Act gone_;
  LaterAnswer later_[2];
  char input_[64];
  char output_[2 * StreamSession::kStepTextBytes];
};

void defer(Scripted& self) { self.answer = &self.later(); }
void finish(Scripted& self) { self.answer->finish(2000); }

}  // namespace

TEST(LaterAnswers, MayBeFinishedAsTheirPeerGoes) {
  uint32_t told = 0;
  Scripted session(defer, finish);
  session.set_owner({.changed = [](void* count) noexcept { ++*static_cast<uint32_t*>(count); },
                     .context = &told});
  session.begin();
  session.leave();
  LONGS_EQUAL(0, told);  // its owner sees it anyway
  CHECK(!session.is_waiting());
  session.reset();
  CHECK(session.is_valid());
}

TEST(LaterAnswers, AStepThatSaysSomethingAfterItsOwnIsAProgrammingError) {
  const char* const text = "a step says something after later()";
  for (const AnswerOrder order : {AnswerOrder::kOfRequests, AnswerOrder::kAny}) {
    BP_CHECK_DIES(text, {
      Scripted([](Scripted& self) { defer(self), self.say("x"); }, nullptr, order).begin();
    });
    BP_CHECK_DIES(text, {
      Scripted([](Scripted& self) { defer(self), self.lend("x", &self); }, nullptr, order).begin();
    });
    BP_CHECK_DIES(text, {
      const auto step = [](Scripted& self) { defer(self), self.answered(self.times); };
      Scripted(step, nullptr, order).begin();
    });
    BP_CHECK_DIES(text, {
      const auto step = [](Scripted& self) { defer(self), finish(self), self.say("x"); };
      Scripted(step, nullptr, order).begin();
    });
  }
}

TEST(LaterAnswers, ASecondOneInAStepIsAProgrammingError) {
  for (const AnswerOrder order : {AnswerOrder::kOfRequests, AnswerOrder::kAny}) {
    BP_CHECK_DIES("a step asks for a second later answer", {
      Scripted([](Scripted& self) { defer(self), defer(self); }, nullptr, order).begin();
    });
  }
}

TEST(LaterAnswers, FinishedTwiceOrFilledAfterwardsIsAProgrammingError) {
  BP_CHECK_DIES("a later answer is finished that does not wait", {
    Scripted session(defer, finish);
    session.begin();
    session.leave();
    finish(session);
  });
  BP_CHECK_DIES("a later answer is filled after it was finished", {
    Scripted session(defer);
    session.begin();
    finish(session);
    session.answer->say("x");
  });
}

TEST(LaterAnswers, AskedForAsThePeerGoesIsAProgrammingError) {
  BP_CHECK_DIES("a later answer is asked for outside of work()", {
    Scripted session(defer, defer);
    session.begin();
    session.leave();
  });
}

TEST(LaterAnswers, ASessionThatResumesWithoutAWaitIsAProgrammingError) {
  BP_CHECK_DIES("a session is resumed that does not wait, or from within work()", {
    Scripted session([](Scripted& self) { self.resume(2000); });
    session.begin();
  });
}
