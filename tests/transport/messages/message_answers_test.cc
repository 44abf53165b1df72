// Questions by message: the order of answers, questions that wait, and the limits of loans.
#include "transport/messages/message_answers_datapath.h"

#include <memory>
#include <string>
#include <vector>

#include "tests/support/patience.h"
#include "tests/transport/messages/fake_provider.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

constexpr AmId kQuestion = 3;
constexpr AmId kReply = 4;
constexpr uint64_t kLentBytesMax = 1000;

// Answers "lend N" with a loan of N bytes and "long" with a loan that no endpoint takes, drops
// "bad", and echoes anything else.
class Library final : public MessageAnswers {
 public:
  uint32_t returned_count = 0;
  std::vector<std::byte> memory = std::vector<std::byte>(2 * kLentBytesMax);

 private:
  Verdict answer(const Message& question) noexcept override {
    const std::string text(reinterpret_cast<const char*>(question.payload.data()),
                           question.payload.size());
    if (text == "bad") return Verdict::kDropped;
    SendStatus status = SendStatus::kDone;
    if (text == "long") {
      const std::byte header[100] = {};
      status = lend(question.from, kReply, header, memory, this);
      CHECK(status == SendStatus::kTooLong);
    } else if (text.starts_with("lend ")) {
      const size_t bytes = std::stoul(text.substr(5));
      status = lend(question.from, kReply, {}, {memory.data(), bytes}, this);
    } else {
      status = question.from.am_send(kReply, question.payload);
    }
    return status == SendStatus::kAgain ? Verdict::kAgain : Verdict::kDone;
  }
  void returned(void* loan) noexcept override {
    POINTERS_EQUAL(this, loan);
    ++returned_count;
  }
};

// The answers and loans that came back, in order.
struct Answered {
  std::vector<std::string> heard;
  std::vector<Loan> loans;

  static void hear(void* self, const Message& message) noexcept {
    auto& its = *static_cast<Answered*>(self);
    its.heard.emplace_back(reinterpret_cast<const char*>(message.payload.data()),
                           message.payload.size());
    if (message.loan.is_there()) its.loans.push_back(message.loan);
  }
};

}  // namespace

TEST_GROUP(MessageAnswers) {
  Messenger messenger;
  static constexpr uint32_t kOther = 1;  // the second of two peers
  FakeProvider provider{2, 1, messenger.dispatcher()};
  Counter dropped;
  Library library;
  Endpoint* peers[2] = {};
  Answered answered;
  std::vector<std::string>& heard = answered.heard;
  std::vector<Loan>& loans = answered.loans;

  void setup() override {
    provider.set_delay_max(0);
    messenger.add_provider(provider);
    for (uint32_t i = 0; i < 2; ++i) peers[i] = messenger.connect({i}).value();
    library.create({.messenger = &messenger,
                    .question = kQuestion,
                    .lent_bytes_max = kLentBytesMax,
                    .dropped = &dropped});
    messenger.set_handler(kReply, {Answered::hear, &answered});
  }
  void ask(const std::string& question, uint32_t peer = 0) {
    CHECK(peers[peer]->am_send(kQuestion, std::as_bytes(std::span(question))) == SendStatus::kDone);
    deliver();
  }
  void deliver() {
    while (messenger.poll(64) > 0) {
    }
  }
  void poll() {
    for (int i = 0; i < 4; ++i) {
      library.poll(MessageAnswers::kWaitingMax);
      deliver();
    }
  }
  void give_back(size_t index) { messenger.release(loans[index]); }
};

TEST(MessageAnswers, AnswersAtOnce) {
  ask("apple");
  LONGS_EQUAL(1, heard.size());
  STRCMP_EQUAL("apple", heard[0].c_str());
  LONGS_EQUAL(0, library.poll(8));
}

TEST(MessageAnswers, WhatFindsNoRoomWaitsAndThoseBehindItWithIt) {
  ask("lend 1000");
  ask("lend 1");
  ask("apple");
  poll();
  LONGS_EQUAL(1, heard.size());
  give_back(0);
  poll();
  LONGS_EQUAL(3, heard.size());
  STRCMP_EQUAL("apple", heard[2].c_str());
}

TEST(MessageAnswers, AFullPeerIsAskedAgain) {
  CHECK(peers[0]->am_send(kQuestion, std::as_bytes(std::span("apple", 5))) == SendStatus::kDone);
  provider.refuse(2);
  messenger.poll(1);
  LONGS_EQUAL(0, library.poll(8));  // refused a second time
  LONGS_EQUAL(1, library.poll(8));
  poll();
  LONGS_EQUAL(1, heard.size());
  CHECK_EQUAL(0, dropped.read());
}

TEST(MessageAnswers, AsManyBytesAreLentAsMayBeAndNoMore) {
  ask("lend 400");
  ask("lend 600", kOther);
  ask("lend 1");
  poll();
  LONGS_EQUAL(2, loans.size());
  LONGS_EQUAL(2, library.lent_count());
  give_back(0);
  poll();
  LONGS_EQUAL(3, loans.size());
  LONGS_EQUAL(1, library.returned_count);
  ask("lend 400");  // with the 601 bytes that are lent, this is one byte too many
  poll();
  LONGS_EQUAL(3, loans.size());
  give_back(2);
  poll();
  LONGS_EQUAL(4, loans.size());
}

TEST(MessageAnswers, OnePeerIsLentHalfOfItAtMost) {
  ask("lend 300");
  ask("lend 200");
  ask("lend 1");
  LONGS_EQUAL(2, loans.size());
  ask("lend 500", kOther);
  LONGS_EQUAL(3, loans.size());
  give_back(1);
  poll();
  LONGS_EQUAL(4, loans.size());
}

// A peer that reads nothing, or returns no loans, does not hinder other peers.
TEST(MessageAnswers, NoPeerWaitsForAnotherOnesQuestions) {
  ask("lend 500");
  for (uint32_t i = 0; i < MessageAnswers::kWaitingPerPeerMax; ++i) ask("lend 500");
  CHECK_EQUAL(0, dropped.read());
  ask("lend 500");  // too many
  CHECK_EQUAL(1, dropped.read());
  poll();
  LONGS_EQUAL(1, loans.size());
  ask("apple", kOther);
  ask("lend 500", kOther);
  LONGS_EQUAL(3, heard.size());
  LONGS_EQUAL(2, loans.size());
  // Questions of both peers wait. An answer to one peer leaves the other's questions in the queue.
  ask("lend 400", kOther);
  give_back(1);
  poll();
  LONGS_EQUAL(3, loans.size());
  LONGS_EQUAL(400, loans[2].memory.size());
  give_back(0);
  poll();
  LONGS_EQUAL(4, loans.size());
  LONGS_EQUAL(500, loans[3].memory.size());
}

TEST(MessageAnswers, LooksForRoomMoreAndMoreSeldom) {
  CHECK(library.sleep_max_ns() == PollSource::kUnlimitedNs);
  ask("lend 1000");
  ask("lend 1000");
  const uint64_t first_ns = library.sleep_max_ns();
  CHECK(first_ns >= RoomWait::kLookMinNs);
  CHECK(test::eventually([&] { return library.sleep_max_ns() == RoomWait::kLookMaxNs; }));
  give_back(0);
  poll();
  CHECK(library.sleep_max_ns() == PollSource::kUnlimitedNs);
}

TEST(MessageAnswers, OneLoanMayBeLargerThanTheBoundAlone) {
  ask("lend 1500");
  ask("lend 1");
  poll();
  LONGS_EQUAL(1, loans.size());
  give_back(0);
  poll();
  LONGS_EQUAL(2, loans.size());
  ask("lend 1500");  // not beside another loan
  poll();
  LONGS_EQUAL(2, loans.size());
}

TEST(MessageAnswers, AsManyLoansAreOutAsMayBeAndNoMore) {
  for (uint32_t i = 0; i < MessageAnswers::kLoansPerPeerMax + 2; ++i) ask("lend 1");
  LONGS_EQUAL(MessageAnswers::kLoansPerPeerMax, loans.size());
  for (uint32_t i = 0; i < MessageAnswers::kLoansPerPeerMax + 2; ++i) ask("lend 1", kOther);
  poll();
  LONGS_EQUAL(MessageAnswers::kLoansMax, loans.size());
  for (uint32_t i = 1; i <= 4; ++i) {
    give_back(i % 2 == 0 ? i : MessageAnswers::kLoansPerPeerMax + i);  // any loan
    poll();
    LONGS_EQUAL(MessageAnswers::kLoansMax + i, loans.size());
    LONGS_EQUAL(MessageAnswers::kLoansMax, library.lent_count());
  }
}

// A loan that the endpoint refuses takes no slot. Otherwise 64 refused loans, such as to peers that
// are gone, would use up all slots.
TEST(MessageAnswers, ALoanThatIsNotTakenCountsAsNone) {
  for (uint32_t i = 0; i < MessageAnswers::kLoansMax + 1; ++i) ask("long");
  LONGS_EQUAL(0, library.lent_count());
  ask("lend 1000");
  poll();
  LONGS_EQUAL(1, loans.size());
  LONGS_EQUAL(0, library.returned_count);
}

TEST(MessageAnswers, WhatIsLentComesBackWithTheEndOfThePeer) {
  ask("lend 1000");
  poll();
  give_back(0);
  provider.lose(0, Outcome::kUnknown);
  poll();
  LONGS_EQUAL(1, library.returned_count);
  LONGS_EQUAL(0, library.lent_count());
}

// If the service kept a question's loan, the lender's place would stay occupied, even after the
// lender's death.
TEST(MessageAnswers, WhatIsLentWithAQuestionGoesBackAtOnce) {
  struct : Completion {
    uint32_t count = 0;
  } returned;
  returned.call = [](Completion& self, Outcome) noexcept {
    ++static_cast<decltype(returned)&>(self).count;
  };
  std::byte block[8] = {};
  const auto ask_by_loan = [&](std::string_view question) {
    CHECK(peers[0]->am_send_loan(kQuestion, std::as_bytes(std::span(question)), block, &returned) ==
          SendStatus::kPending);
    deliver();
  };
  ask_by_loan("apple");
  LONGS_EQUAL(1, returned.count);
  LONGS_EQUAL(1, heard.size());
  ask_by_loan("bad");
  LONGS_EQUAL(2, returned.count);
  ask("lend 500");
  ask("lend 1");
  ask_by_loan("apple");  // the question waits
  LONGS_EQUAL(3, returned.count);
  give_back(0);
  poll();
  LONGS_EQUAL(4, heard.size());
}

TEST(MessageAnswers, WhatMakesNoSenseOrFindsNoRoomToWaitIsCountedAndDropped) {
  ask("bad");
  CHECK_EQUAL(1, dropped.read());
  ask("lend 1000");
  ask("lend 1000");
  ask("bad");  // waits like any question, and is dropped in its turn
  ask(std::string(MessageAnswers::kQuestionBytesMax, 'a'));
  CHECK_EQUAL(1, dropped.read());
  ask(std::string(MessageAnswers::kQuestionBytesMax + 1, 'b'));
  CHECK_EQUAL(2, dropped.read());
  for (uint32_t i = 3; i < MessageAnswers::kWaitingPerPeerMax; ++i) ask("c");
  CHECK_EQUAL(2, dropped.read());
  ask("d");
  CHECK_EQUAL(3, dropped.read());
  poll();
  give_back(0);
  poll();
  CHECK_EQUAL(4, dropped.read());
  LONGS_EQUAL(1 + MessageAnswers::kWaitingPerPeerMax - 1, heard.size());
  CHECK(heard[2] == std::string(MessageAnswers::kQuestionBytesMax, 'a'));
}
