// Returns of loans and windows without credit, or without space in the send queue. They wait, and
// are sent once each when there is credit or space.
#include <algorithm>
#include <deque>
#include <optional>

#include "tests/support/skip.h"
#include "tests/transport/verbs/verbs_fixture.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

constexpr size_t kLoanCount = 60;    // their returns take more than one message
constexpr size_t kWindowCount = 16;  // windows of exposed memory that one peer may have

}  // namespace

TEST_GROUP_BASE(VerbsReturns, VerbsFixture) {
  std::deque<Block> blocks;
  std::deque<Counted> returned;
  ReceivedTexts at_a, at_b;

  bool start_with(const VerbsRigOptions& options) {
    if (!start(options)) return false;
    at_a.listen(*rig->a.messenger);
    at_b.listen(*rig->b.messenger);
    return true;
  }
  // a lends, b has received all loans, and both have nothing else to do.
  void lend_all() {
    returned.clear();
    at_b.loans.clear();
    while (blocks.size() < kLoanCount) blocks.emplace_back(100);
    for (const Block& block : blocks) {
      returned.emplace_back();
      CHECK(insist([&] {
              return to_b().am_send_loan(kLent, {}, block.span(), &returned.back());
            }) == SendStatus::kPending);
    }
    CHECK(rig->poll_until([&] { return at_b.loans.size() == kLoanCount; }));
    for (int i = 0; i < 100; ++i) rig->poll();
  }
  void release_all() {
    for (const Loan& loan : at_b.loans) rig->b.messenger->release(loan);
  }
  size_t returned_count() const {
    size_t count = 0;
    for (const Counted& one : returned) {
      CHECK(one.count <= 1 && (one.count == 0 || one.outcome == Outcome::kDone));
      count += static_cast<size_t>(one.count);
    }
    return count;
  }
  bool are_all_back() {
    return rig->poll_until([&] { return returned_count() == kLoanCount; });
  }
};

TEST(VerbsReturns, WaitForCreditAndComeWithIt) {
  constexpr uint16_t kWindow = 8;
  if (!start_with({.shape = {.peer_count_max = 2, .window = kWindow, .message_bytes = 256}})) {
    BP_SKIP(kNoVerbs);
  }
  int prompt_count = 0;
  for (int round = 0; round < 3; ++round) {  // the same loans are lent again
    lend_all();
    const uint64_t kicks = rig->b.counters.kicks.read();
    size_t sent = 0;
    // a does not poll: all messages of b end, and none is consumed.
    for (int i = 0; i < 1000; ++i) {
      if (to_a().am_send(kData, {}) == SendStatus::kDone) ++sent;
      rig->b.messenger->poll(64);
    }
    CHECK(sent > 0 && sent <= kWindow);
    release_all();
    for (int i = 0; i < 100; ++i) rig->b.messenger->poll(64);
    rig->a.messenger->poll(1);
    LONGS_EQUAL(0, returned_count());
    CHECK(are_all_back());
    prompt_count += rig->b.counters.kicks.read() == kicks ? 1 : 0;
  }
  CHECK(prompt_count > 0);  // the watch for stopped devices, once a second, did not send them
  LONGS_EQUAL(0, rig->a.counters.broken.read() + rig->b.counters.broken.read());
}

TEST(VerbsReturns, WaitForRoomInTheSendQueueAndTakeIt) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  Block target(64 * kKiB), source(64 * kKiB);
  CHECK(start_with(
      {.shape = {.peer_count_max = 2, .operation_count_max = 8}, .exported = target.span()}));
  const RemoteMemory exposed = to_b().expose(target.span()).take();
  for (int round = 0; round < 3; ++round) {
    lend_all();
    std::deque<Counted> ended;
    const auto put = [&] {
      ended.emplace_back();
      return to_a().put(source.span().first(1000), exposed, &ended.back());
    };
    while (put() == SendStatus::kPending) {
    }
    ended.pop_back();
    while (to_a().am_send(kData, {}) == SendStatus::kDone) {  // takes the space that puts leave
    }
    CHECK(ended.size() > 8);
    release_all();
    CHECK(are_all_back());
    CHECK(rig->poll_until([&] {
      return std::all_of(ended.begin(), ended.end(),
                         [](const Counted& one) { return one.count == 1; });
    }));
  }
  LONGS_EQUAL(0, rig->a.counters.broken.read() + rig->b.counters.broken.read());
}

// Within a callback: the requests that have ended leave space for the end of the window, and for no
// more.
TEST(VerbsReturns, AWindowThatAFlushListsBeforeItFindsNoRoomGoesWithTheNextPoll) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  Block target(4 * kKiB), source(4 * kKiB), lent(4 * kKiB);
  // All requests that the queue takes are one list.
  CHECK(start_with(
      {.shape = {.peer_count_max = 2, .window = 2, .message_bytes = 256, .operation_count_max = 1},
       .exported = target.span(),
       .trust_windows = true}));
  if (!rig->device().has_windows()) BP_SKIP("this RDMA device has no memory windows");
  const RemoteMemory to = to_a().expose(target.span()).take();
  std::deque<RemoteMemory> exposed;
  const auto expose = [&] {
    auto made = to_b().expose(lent.span());
    if (made.ok()) exposed.push_back(made.value());
    return made.ok();
  };
  while (exposed.size() < kWindowCount) CHECK(rig->poll_until(expose));
  CHECK_FALSE(expose());

  struct Flusher : Completion {
    Endpoint* endpoint = nullptr;
    Counted flushed;
    std::optional<SendStatus> status;
  };
  int prompt_count = 0;
  for (int round = 0; round < 3; ++round) {
    Counted settled;
    const SendStatus status = insist([&] { return to_b().flush(&settled); });
    CHECK(status == SendStatus::kDone || rig->poll_until([&] { return settled.count == 1; }));
    Flusher first;
    first.endpoint = &to_b();
    first.call = [](Completion& self, Outcome) noexcept {
      auto& its = static_cast<Flusher&>(self);
      its.status = its.endpoint->flush(&its.flushed);
    };
    std::deque<Counted> others;
    CHECK(to_b().put(source.span(), to, &first) == SendStatus::kPending);
    do {
      others.emplace_back();
    } while (to_b().put(source.span(), to, &others.back()) == SendStatus::kPending);
    // Uses the space that puts leave free.
    uint64_t before = 0;
    CHECK(to_b().compare_swap(to.part(0, 8), 0, 0, &before, &others.back()) ==
          SendStatus::kPending);
    to_b().withdraw(exposed.front());  // no space for it
    exposed.pop_front();
    const uint64_t kicks = rig->a.counters.kicks.read();
    CHECK(rig->poll_until([&] { return first.status.has_value(); }));
    CHECK(*first.status == SendStatus::kAgain);
    CHECK(rig->poll_until(expose));
    prompt_count += rig->a.counters.kicks.read() == kicks ? 1 : 0;
    LONGS_EQUAL(others.size(), std::count_if(others.begin(), others.end(), [](const auto& one) {
                  return one.count == 1 && one.outcome == Outcome::kDone;
                }));
  }
  CHECK(prompt_count > 0);  // not the watch for stopped devices, once a second
  LONGS_EQUAL(0, rig->a.counters.broken.read() + rig->b.counters.broken.read());
}

TEST(VerbsReturns, ThatWaitedWhenTheConnectionBrokeMeanNothing) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  Block target(4 * kKiB);
  CHECK(start_with({.shape = {.peer_count_max = 2, .window = 8, .message_bytes = 256},
                    .exported = target.span()}));
  const RemoteMemory exposed = to_a().expose(target.span()).take();
  lend_all();
  for (int i = 0; i < 100; ++i) {
    to_a().am_send(kData, {});
    rig->b.messenger->poll(64);
  }
  release_all();
  break_connection(exposed);
  CHECK(rig->poll_until([&] {
    return std::all_of(returned.begin(), returned.end(),
                       [](const Counted& one) { return one.count == 1; });
  }));
  CHECK(rig->connect());
  lend_all();  // each number is free again, at both sides
  release_all();
  CHECK(are_all_back());
  LONGS_EQUAL(0, rig->a.counters.cut_off.read() + rig->b.counters.cut_off.read());
}
