// The requirements of docs/transport.md for every provider, tested with each: self, shm in its
// three layouts, verbs if there is a device, and the fake one.
//
// A provider is tested through a Link: an endpoint, and the messengers of both ends, which are the
// same if a provider sends to itself. Links has the memory that may be lent and exposed.
#include <functional>
#include <random>

#include "tests/support/pool_fixture.h"
#include "tests/support/seed.h"
#include "tests/support/skip.h"
#include "tests/transport/messages/fake_provider.h"
#include "tests/transport/shm/group_rig.h"
#include "tests/transport/verbs/verbs_rig.h"
#include "transport/self/self_provider.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

constexpr AmId kData = 3;

struct Arrived {
  std::string payload;
  Loan loan;
};

struct Link {
  const char* name = "";
  Endpoint* endpoint = nullptr;  // from sender to receiver
  Endpoint* back = nullptr;      // from receiver to sender: the receiver exposes memory by it
  Messenger* sender = nullptr;
  Messenger* receiver = nullptr;
  std::vector<Arrived> arrived;

  void handle(const Message& message) {
    arrived.push_back(
        {{reinterpret_cast<const char*>(message.payload.data()), message.payload.size()},
         message.loan});
  }
  void listen() {
    receiver->set_handler(kData, {[](void* self, const Message& message) noexcept {
                                    static_cast<Link*>(self)->handle(message);
                                  },
                                  this});
  }
  void poll() {
    sender->poll(16);
    if (receiver != sender) receiver->poll(16);
  }
  // Polls until `is_done`, or so often that only a provider that forgot it can have failed.
  bool poll_until(const std::function<bool()>& is_done) {
    for (int i = 0; i < 10000 && !is_done(); ++i) poll();
    return is_done();
  }
  // The bytes of a loan, read directly or by a get.
  std::vector<std::byte> bytes_of(const Loan& loan) {
    if (!loan.memory.empty()) return {loan.memory.begin(), loan.memory.end()};
    std::vector<std::byte> bytes(loan.remote.bytes);
    complete([&](Completion* done) { return back->get(bytes, loan.remote, done); });
    return bytes;
  }
  // Repeats the operation while it returns kAgain.
  SendStatus insist(const std::function<SendStatus()>& operation) {
    SendStatus status = operation();
    for (int i = 0; i < 10000 && status == SendStatus::kAgain; ++i) {
      poll();
      status = operation();
    }
    return status;
  }
  // The same, for an operation with a completion. Checks that the completion comes once, and not
  // from within the call.
  void complete(const std::function<SendStatus(Completion*)>& operation) {
    Counted done;
    uint32_t during_the_call = 0;
    const SendStatus status = insist([&] {
      const SendStatus said = operation(&done);
      during_the_call += done.count;
      return said;
    });
    LONGS_EQUAL_TEXT(0, during_the_call, name);
    if (status == SendStatus::kPending) {
      CHECK_TEXT(poll_until([&] { return done.count > 0; }), name);
      CHECK_TEXT(done.outcome == Outcome::kDone, name);
    } else {
      CHECK_TEXT(status == SendStatus::kDone, name);
    }
    for (int i = 0; i < 10; ++i) poll();
    LONGS_EQUAL_TEXT(status == SendStatus::kPending ? 1 : 0, done.count, name);
  }
};

std::span<const std::byte> view(const std::string& text) { return std::as_bytes(std::span(text)); }

// A link of each provider, and memory that every member may lend, because it is a segment of the
// pool.
class Links {
 public:
  Links() {
    auto made = pool_->create_segment("lent", 64 * kKiB, PageSize::k4KiB, 1);
    BP_ASSERT(made.ok());
    memory_ = made.value()->memory();
  }

  std::span<std::byte> memory() const { return memory_; }

  // Calls `test` with a link of each provider.
  void for_each(const std::function<void(Link&)>& test) {
    Seed seed;
    for (GroupKind kind : {GroupKind::kLazy, GroupKind::kMesh, GroupKind::kExchange}) {
      GroupRig rig(shape_of(kind, 2), &*pool_);
      Member& a = rig.join(0);
      Member& b = rig.join(1);
      Link link{to_text(kind), &a.to(1), &b.to(0), &a.messenger, &b.messenger, {}};
      link.listen();
      test(link);
    }
    Messenger messenger;
    SelfProvider self(5, messenger.dispatcher());
    run(messenger, self, 5, test);
    Messenger faked;
    FakeProvider fake(1, seed.value(), faked.dispatcher());
    fake.refuse(3);
    run(faked, fake, 0, test);
    if (has_verbs_device()) run_verbs(test, false);
    if (has_verbs_device() && has_managed_device()) run_verbs(test, true);
    rest_managed_device();
  }

 private:
  void run_verbs(const std::function<void(Link&)>& test, bool by_manager) const {
    VerbsRig rig({.exported = memory_, .by_manager = by_manager});
    CHECK(rig.connect());
    Link link{by_manager ? "verbs by rdma_cm" : "verbs",
              &rig.a.to("b"),
              &rig.b.to("a"),
              rig.a.messenger.get(),
              rig.b.messenger.get(),
              {}};
    link.listen();
    test(link);
  }
  static void run(Messenger& messenger, Provider& provider, uint32_t member,
                  const std::function<void(Link&)>& test) {
    messenger.add_provider(provider);
    auto endpoint = messenger.connect({member});
    BP_ASSERT(endpoint.ok());
    Link link{provider.name(), endpoint.value(), endpoint.value(), &messenger, &messenger, {}};
    link.listen();
    test(link);
  }

  TestPool pool_;
  std::span<std::byte> memory_;
};

}  // namespace

TEST_GROUP(ProviderConformance) { Links links; };

TEST(ProviderConformance, MessagesArriveOnceAndInOrder) {
  Seed seed;
  links.for_each([&](Link& link) {
    std::mt19937_64 random(seed.value());
    std::vector<std::string> sent;
    for (int i = 0; i < 500; ++i) {
      const uint64_t limit = i % 10 == 0 ? link.endpoint->limits().am_bytes_max : 100;
      sent.push_back(std::to_string(i) + std::string(random() % (limit - 4), 'x'));
      const SendStatus status =
          link.insist([&] { return link.endpoint->am_send(kData, view(sent.back())); });
      CHECK_TEXT(status == SendStatus::kDone, link.name);
    }
    CHECK_TEXT(link.poll_until([&] { return link.arrived.size() >= sent.size(); }), link.name);
    for (int i = 0; i < 10; ++i) link.poll();
    LONGS_EQUAL_TEXT(sent.size(), link.arrived.size(), link.name);
    for (size_t i = 0; i < sent.size(); ++i) {
      CHECK_TEXT(sent[i] == link.arrived[i].payload, seed.text());
    }
  });
}

TEST(ProviderConformance, HandlersRunWhenPolled) {
  links.for_each([](Link& link) {
    CHECK_TEXT(link.insist([&] { return link.endpoint->am_send(kData, {}); }) == SendStatus::kDone,
               link.name);
    LONGS_EQUAL_TEXT(0, link.arrived.size(), link.name);
    CHECK_TEXT(link.poll_until([&] { return link.arrived.size() == 1; }), link.name);
    LONGS_EQUAL_TEXT(0, link.arrived[0].payload.size(), link.name);
  });
}

// A waiting room call is called once, when the receiver has read, and not before.
TEST(ProviderConformance, RoomIsToldWhenThereIsSome) {
  struct Room : RoomCall {
    int count = 0;
  };
  const auto called = [](RoomCall& self) noexcept { ++static_cast<Room&>(self).count; };
  links.for_each([&](Link& link) {
    SendStatus status = SendStatus::kDone;
    for (int i = 0; i < 100'000 && status == SendStatus::kDone; ++i) {
      status = link.endpoint->am_send(kData, {});
    }
    CHECK_TEXT(status == SendStatus::kAgain, link.name);
    Room room, taken_back;
    room.call = taken_back.call = called;
    link.sender->notify_room(*link.endpoint, taken_back);
    link.sender->notify_room(*link.endpoint, room);
    CHECK_TEXT(link.sender->sleep_max_ns() <= RoomWait::kLookMaxNs, link.name);
    link.sender->take_back(taken_back);
    LONGS_EQUAL_TEXT(0, room.count, link.name);  // only a poll calls it
    if (link.receiver != link.sender) {
      for (int i = 0; i < 100; ++i) link.sender->poll(16);
      LONGS_EQUAL_TEXT(0, room.count, link.name);
    }
    CHECK_TEXT(link.poll_until([&] { return room.count > 0; }), link.name);
    CHECK_TEXT(link.sender->sleep_max_ns() == PollSource::kUnlimitedNs, link.name);
    CHECK_TEXT(!room.is_waiting(), link.name);
    CHECK_TEXT(link.insist([&] { return link.endpoint->am_send(kData, {}); }) == SendStatus::kDone,
               link.name);
    for (int i = 0; i < 100; ++i) link.poll();
    LONGS_EQUAL_TEXT(1, room.count, link.name);
    LONGS_EQUAL_TEXT(0, taken_back.count, link.name);
  });
}

TEST(ProviderConformance, WhatIsTooLongIsRefusedWhole) {
  links.for_each([this](Link& link) {
    const EndpointLimits limits = link.endpoint->limits();
    CHECK_TEXT(limits.am_bytes_max >= limits.inline_bytes_max, link.name);
    CHECK_TEXT(limits.inline_bytes_max > 0, link.name);
    const std::string too_long(limits.am_bytes_max + 1, 'x');
    CHECK_TEXT(link.endpoint->am_send(kData, view(too_long)) == SendStatus::kTooLong, link.name);
    const std::string header(limits.loan_header_bytes_max + 1, 'x');
    CHECK_TEXT(link.endpoint->am_send_loan(kData, view(header), links.memory(), nullptr) ==
                   SendStatus::kTooLong,
               link.name);
    for (int i = 0; i < 20; ++i) link.poll();
    LONGS_EQUAL_TEXT(0, link.arrived.size(), link.name);
  });
}

TEST(ProviderConformance, LoansLieWhereTheyLayAndComeBackOnce) {
  links.for_each([this](Link& link) {
    const std::span<std::byte> block = links.memory().subspan(128, 1000);
    block[999] = std::byte{42};
    Counted returned;
    const SendStatus status = link.insist(
        [&] { return link.endpoint->am_send_loan(kData, view("header"), block, &returned); });
    CHECK_TEXT(status == SendStatus::kPending, link.name);
    CHECK_TEXT(link.poll_until([&] { return link.arrived.size() == 1; }), link.name);
    STRCMP_EQUAL("header", link.arrived[0].payload.c_str());
    const Loan loan = link.arrived[0].loan;
    CHECK_TEXT(loan.is_there(), link.name);
    const std::vector<std::byte> bytes = link.bytes_of(loan);
    LONGS_EQUAL_TEXT(1000, bytes.size(), link.name);
    CHECK_TEXT(bytes[999] == std::byte{42}, link.name);
    for (int i = 0; i < 1000; ++i) link.poll();
    LONGS_EQUAL_TEXT(0, returned.count, link.name);  // it has not been released
    link.receiver->release(loan);
    LONGS_EQUAL_TEXT(0, returned.count, link.name);  // never from within a call
    CHECK_TEXT(link.poll_until([&] { return returned.count > 0; }), link.name);
    for (int i = 0; i < 1000; ++i) link.poll();
    LONGS_EQUAL_TEXT(1, returned.count, link.name);
    CHECK_TEXT(returned.outcome == Outcome::kDone, link.name);
  });
}

TEST(ProviderConformance, ManyLoansComeBackInAnyOrder) {
  Seed seed;
  links.for_each([&](Link& link) {
    std::mt19937_64 random(seed.value());
    std::vector<Counted> returned(40);
    for (size_t i = 0; i < returned.size(); ++i) {
      const std::span<std::byte> block = links.memory().subspan(i * 64, 64);
      CHECK_TEXT(link.insist([&] {
        return link.endpoint->am_send_loan(kData, {}, block, &returned[i]);
      }) == SendStatus::kPending,
                 link.name);
    }
    CHECK_TEXT(link.poll_until([&] { return link.arrived.size() == returned.size(); }), link.name);
    std::shuffle(link.arrived.begin(), link.arrived.end(), random);
    for (const Arrived& arrived : link.arrived) link.receiver->release(arrived.loan);
    const auto all_are_back = [&] {
      return std::all_of(returned.begin(), returned.end(),
                         [](const Counted& one) { return one.count == 1; });
    };
    CHECK_TEXT(link.poll_until(all_are_back), link.name);
  });
}

TEST(ProviderConformance, PutsAndGetsCopyAndEndOnce) {
  links.for_each([this](Link& link) {
    const std::span<std::byte> target = links.memory().subspan(4096, 20000);
    auto exposed = link.back->expose(target);
    CHECK_TEXT(exposed.ok(), link.name);
    std::vector<std::byte> from(20000);
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7);
    link.complete(
        [&](Completion* done) { return link.endpoint->put(from, exposed.value(), done); });
    link.complete([&](Completion* done) { return link.endpoint->flush(done); });
    CHECK_TEXT(std::equal(from.begin(), from.end(), target.begin()), link.name);
    std::vector<std::byte> into(9000);
    link.complete([&](Completion* done) {
      return link.endpoint->get(into, exposed.value().part(1000, 9000), done);
    });
    CHECK_TEXT(std::equal(into.begin(), into.end(), from.begin() + 1000), link.name);
    CHECK_TEXT(
        link.endpoint->put(from, exposed.value().part(0, 100), nullptr) == SendStatus::kTooLong,
        link.name);
    link.back->withdraw(exposed.value());
  });
}

// The initiator's memory is outside the pool; the target's is in it.
TEST(ProviderConformance, PutsAndGetsTakeMemoryThatIsNotOfThePool) {
  static std::byte from[10'000], into[10'000];
  links.for_each([this](Link& link) {
    auto exposed = link.back->expose(links.memory().first(sizeof from));
    CHECK_TEXT(exposed.ok(), link.name);
    for (size_t i = 0; i < sizeof from; ++i) from[i] = static_cast<std::byte>(i * 13);
    std::fill(std::begin(into), std::end(into), std::byte{0});
    link.complete(
        [&](Completion* done) { return link.endpoint->put(from, exposed.value(), done); });
    link.complete([&](Completion* done) { return link.endpoint->flush(done); });
    link.complete(
        [&](Completion* done) { return link.endpoint->get(into, exposed.value(), done); });
    CHECK_TEXT(std::equal(std::begin(from), std::end(from), into), link.name);
    link.back->withdraw(exposed.value());
  });
}

TEST(ProviderConformance, LoansOfMemoryThatIsNotOfThePoolArriveWholeOrAreRefused) {
  static std::byte block[3000];
  links.for_each([](Link& link) {
    std::fill(std::begin(block), std::end(block), std::byte{42});
    Counted returned;
    const SendStatus status =
        link.insist([&] { return link.endpoint->am_send_loan(kData, {}, block, &returned); });
    if (status == SendStatus::kRefused) return;
    CHECK_TEXT(status == SendStatus::kPending, link.name);
    CHECK_TEXT(link.poll_until([&] { return link.arrived.size() == 1; }), link.name);
    const std::vector<std::byte> bytes = link.bytes_of(link.arrived[0].loan);
    CHECK_TEXT(std::equal(bytes.begin(), bytes.end(), block) && bytes.size() == 3000, link.name);
    link.receiver->release(link.arrived[0].loan);
    CHECK_TEXT(link.poll_until([&] { return returned.count == 1; }), link.name);
  });
}

TEST(ProviderConformance, AtomicsTellTheValueBefore) {
  links.for_each([this](Link& link) {
    auto* word = reinterpret_cast<uint64_t*>(links.memory().data());
    *word = 40;
    auto exposed = link.back->expose(links.memory().first(sizeof *word));
    CHECK_TEXT(exposed.ok(), link.name);
    const RemoteMemory remote = exposed.value();
    uint64_t before = 0;
    link.complete(
        [&](Completion* done) { return link.endpoint->fetch_add(remote, 2, &before, done); });
    LONGS_EQUAL_TEXT(40, before, link.name);
    LONGS_EQUAL_TEXT(42, *word, link.name);
    link.complete(
        [&](Completion* done) { return link.endpoint->compare_swap(remote, 1, 7, &before, done); });
    LONGS_EQUAL_TEXT(42, before, link.name);
    LONGS_EQUAL_TEXT(42, *word, link.name);
    link.complete([&](Completion* done) {
      return link.endpoint->compare_swap(remote, 42, 7, &before, done);
    });
    LONGS_EQUAL_TEXT(7, *word, link.name);
    CHECK_TEXT(
        link.endpoint->fetch_add(remote.part(0, 4), 2, nullptr, nullptr) == SendStatus::kTooLong,
        link.name);
    LONGS_EQUAL_TEXT(7, *word, link.name);
    link.back->withdraw(remote);
  });
}

TEST(ProviderConformance, FlushEndsAfterWhatWasStartedBefore) {
  links.for_each([this](Link& link) {
    auto exposed = link.back->expose(links.memory());
    CHECK_TEXT(exposed.ok(), link.name);
    std::vector<std::byte> from(16 * 1024, std::byte{9});
    links.memory()[from.size() - 1] = std::byte{0};
    Counted put;
    Counted flush;
    const SendStatus put_status =
        link.insist([&] { return link.endpoint->put(from, exposed.value(), &put); });
    const SendStatus flush_status = link.insist([&] { return link.endpoint->flush(&flush); });
    if (flush_status == SendStatus::kPending) {
      CHECK_TEXT(link.poll_until([&] { return flush.count > 0; }), link.name);
    }
    CHECK_TEXT(links.memory()[from.size() - 1] == std::byte{9}, link.name);
    if (put_status == SendStatus::kPending) LONGS_EQUAL_TEXT(1, put.count, link.name);
    link.back->withdraw(exposed.value());
  });
}

TEST(ProviderConformance, RefusesWhoIsNotThere) {
  Messenger messenger;
  SelfProvider self(0, messenger.dispatcher());
  FakeProvider fake(2, 1, messenger.dispatcher());
  messenger.add_provider(self);
  messenger.add_provider(fake);
  CHECK(messenger.connect({1}).ok());  // by the second provider
  const auto refused = messenger.connect({9});
  CHECK_FALSE(refused.ok());
  STRCMP_EQUAL("self: this is member 0; fake: there are 2 fake peers", refused.error().answer);
}

TEST(ProviderConformance, WhatIsLostIsSaid) {
  Messenger messenger;
  FakeProvider fake(1, 1, messenger.dispatcher());
  messenger.add_provider(fake);
  Endpoint& endpoint = *messenger.connect({0}).value();
  uint64_t word = 1;
  auto exposed = endpoint.expose(std::as_writable_bytes(std::span(&word, 1)));
  Counted done;
  CHECK(endpoint.fetch_add(exposed.value(), 1, nullptr, &done) == SendStatus::kPending);
  fake.lose(0, Outcome::kUnknown);
  messenger.poll(16);
  LONGS_EQUAL(1, done.count);
  CHECK(done.outcome == Outcome::kUnknown);
  CHECK(endpoint.am_send(kData, {}) == SendStatus::kGone);
}
