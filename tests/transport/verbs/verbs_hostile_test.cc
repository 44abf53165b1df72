// Peers that violate docs/verbs.md: garbage instead of a record, and bad messages of a connected
// peer. Each peer is refused or cut off and logged once, and the others do not notice.
#include <cstring>
#include <random>

#include "tests/support/seed.h"
#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"
#include "tests/transport/verbs/verbs_rig.h"
#include "tests/transport/verbs/verbs_stranger.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

TEST_GROUP(VerbsHostile) {
  std::unique_ptr<VerbsRig> rig;
  uint32_t delivered = 0;

  void teardown() override { Stranger::release_all(); }
  bool start() {
    if (!has_verbs_device()) return false;
    rig = std::make_unique<VerbsRig>(VerbsRigOptions{.has_c = true});
    CHECK(rig->connect());
    count_what_b_gets();
    return true;
  }
  void count_what_b_gets() {
    rig->b.messenger->set_handler(
        kHeard, {[](void* count, const Message&) noexcept { ++*static_cast<uint32_t*>(count); },
                 &delivered});
  }
  StrangerOptions stranger_options() {
    return {.device = &rig->device(),
            .keys = &rig->keys(),
            .address = parse_socket_address(rig->address()).take(),
            .meanwhile = [this] { rig->poll(); }};
  }
  // Checks that a and b go on as if nothing had happened.
  void check_that_a_is_unaffected() {
    const uint32_t before = delivered;
    for (int i = 0; i < 200; ++i) {
      CHECK(
          rig->poll_until([&] { return rig->a.to("b").am_send(kHeard, {}) == SendStatus::kDone; }));
    }
    CHECK(rig->poll_until([&] { return delivered == before + 200; }));
    LONGS_EQUAL(0, rig->a.counters.broken.read());
  }
};

TEST(VerbsHostile, WhatIsNoRecordIsHungUpOnAndToldOnce) {
  if (!start()) BP_SKIP(kNoVerbs);
  StderrCapture log;
  for (int i = 0; i < 5; ++i) {
    Stranger stranger(stranger_options());
    stranger.dial();
    stranger.say("GET / HTTP/1.1\r\n", 16);
    CHECK_FALSE(stranger.answer().has_value());
  }
  LONGS_EQUAL(5, rig->b.verbs->refused_count());
  // Lines about the honest connection may come in between.
  const std::string text = log.finish();
  const std::string told = "bedplate: warning: verbs: refusing a handshake with a local socket: a "
                           "malformed record; further ones are only counted\n";
  const size_t at = text.find(told);
  CHECK_TEXT(at != std::string::npos, text.c_str());
  CHECK_TEXT(text.find("refusing", at + told.size()) == std::string::npos, text.c_str());
  check_that_a_is_unaffected();
}

TEST(VerbsHostile, RecordsWithAFaultAreAnsweredWithItsName) {
  if (!start()) BP_SKIP(kNoVerbs);
  for (const RecordFault& one : kRecordFaults) {
    Stranger stranger(stranger_options());
    HandshakeRecord record = stranger.hello();
    one.spoil(record);
    if (one.is_summed) finish_record(record);
    stranger.dial();
    stranger.say(&record, sizeof record);
    const auto answer = stranger.answer();
    CHECK(answer.has_value());
    CHECK(check_record(*answer, HandshakeKind::kRefusal) == Refusal::kNone);
    STRCMP_EQUAL(to_text(one.refusal), to_text(static_cast<Refusal>(answer->refusal)));
  }
  check_that_a_is_unaffected();
}

TEST(VerbsHostile, RecordsOfChanceHarmNobody) {
  if (!start()) BP_SKIP(kNoVerbs);
  Seed seed;
  std::mt19937_64 random(seed.value());
  for (int i = 0; i < 200; ++i) {
    Stranger stranger(stranger_options());
    stranger.instance = random() | 1;
    HandshakeRecord record = stranger.hello();
    auto* bytes = reinterpret_cast<unsigned char*>(&record);
    for (uint64_t left = 1 + random() % 8; left > 0; --left) {
      bytes[8 + random() % (sizeof record - 8)] = static_cast<unsigned char>(random());
    }
    // A record with a's name, or b's, would count as a restart of that peer.
    if (std::strncmp(record.name, "a", 2) == 0 || std::strncmp(record.name, "b", 2) == 0) continue;
    if (random() % 4 != 0) finish_record(record);
    stranger.dial();
    stranger.say(&record, random() % 8 == 0 ? random() % sizeof record : sizeof record);
    rig->poll();
  }
  Stranger good(stranger_options());
  CHECK_TEXT(good.connect(), seed.text());
  CHECK_TEXT(rig->poll_until([&] { return VerbsProvider::is_connected(rig->b.to("c")); }),
             seed.text());
  check_that_a_is_unaffected();
}

TEST(VerbsHostile, WhoSaysHalfAndWaitsHoldsNothingUp) {
  if (!start()) BP_SKIP(kNoVerbs);
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (int i = 0; i < 40; ++i) {
    strangers.push_back(std::make_unique<Stranger>(stranger_options()));
    strangers.back()->dial();
    strangers.back()->say(kHandshakeMagic, sizeof kHandshakeMagic);
  }
  rig->restart_b();  // a must connect once more
  count_what_b_gets();
  for (auto& stranger : strangers) {
    stranger->dial();
    stranger->say(kHandshakeMagic, sizeof kHandshakeMagic);
  }
  CHECK(rig->connect());
  CHECK(rig->a.to("b").am_send(kHeard, {}) == SendStatus::kDone);
  CHECK(rig->poll_until([&] { return delivered == 1; }));
}

TEST(VerbsHostile, NonsenseInMessagesIsCutOffForGood) {
  if (!start()) BP_SKIP(kNoVerbs);
  uint64_t instance = 100;
  for (const MessageAttack& attack : kMessageAttacks) {
    StderrCapture log;
    Stranger stranger(stranger_options());
    stranger.instance = ++instance;
    CHECK(stranger.connect());
    const uint64_t before = rig->b.counters.cut_off.read();
    attack.run(stranger);
    CHECK(rig->poll_until([&] { return rig->b.counters.cut_off.read() == before + 1; }));
    STRCMP_CONTAINS("verbs: cutting off c at a local socket: ", log.text().c_str());
    LONGS_EQUAL(0, delivered);
    // The same instance may not come back.
    stranger.hang_up();
    CHECK_FALSE(stranger.connect());
  }
  check_that_a_is_unaffected();
}

TEST(VerbsHostile, WhoTakesAllReceivesDoesNotCostOthersTheirConnection) {
  if (!start()) BP_SKIP(kNoVerbs);
  Stranger stranger(stranger_options());
  CHECK(stranger.connect());
  for (uint32_t i = 0; i < 300; ++i) {  // more than b has for all its peers
    VerbsMessageHeader header = stranger.header();
    header.number = i;
    header.am = kUnheard;
    stranger.post(header, "", 0);
  }
  CHECK(rig->a.to("b").am_send(kHeard, {}) == SendStatus::kDone);
  const uint64_t end_ns = monotonic_ns() + 70 * kNsPerMs;
  while (monotonic_ns() < end_ns) rig->a.messenger->poll(16);  // b is late
  CHECK(rig->poll_until([&] { return rig->b.counters.cut_off.read() == 1 && delivered == 1; }));
  check_that_a_is_unaffected();
}

TEST(VerbsHostile, WhoSendsMoreThanItsWindowIsCutOff) {
  if (!start()) BP_SKIP(kNoVerbs);
  Stranger stranger(stranger_options());
  CHECK(stranger.connect());
  constexpr uint32_t kCount = 100;
  for (uint32_t i = 0; i < kCount; ++i) {
    VerbsMessageHeader header = stranger.header();
    header.number = i;
    stranger.post(header, "", 0);
  }
  stranger.await_arrival(kCount);
  StderrCapture log;
  rig->b.verbs->poll(2 * kCount);  // before an acknowledgement could go out
  LONGS_EQUAL(1, rig->b.counters.cut_off.read());
  STRCMP_CONTAINS("cutting off c at a local socket: more than its window", log.text().c_str());
  LONGS_EQUAL(64, delivered);
  check_that_a_is_unaffected();
}
