// STARTTLS in the handshake: which options the server accepts before TLS and after it.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "apps/blockd/nbd_negotiation.h"
#include "tests/apps/blockd/nbd_reference.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::nbd;
using nbd_reference::be;
using nbd_reference::option;
using nbd_reference::reply;
using nbd_reference::without_error_texts;

namespace {

constexpr ExportInfo kExports[] = {{.name = "ram0", .bytes = 64 << 20, .read_only = false}};
constexpr uint32_t kUnsup = 0x80000001;
constexpr uint32_t kInvalid = 0x80000003;
constexpr uint32_t kTlsReqd = 0x80000005;
const std::string kStartTls = option(5, "");
const std::string kGo = option(7, be(0, 4) + be(0, 2));

}  // namespace

TEST_GROUP(NbdTls) {
  Negotiation negotiation{kExports};

  // Returns the pending output, and marks it as sent.
  std::string pending() {
    std::string all;
    while (!negotiation.pending_output().empty()) {
      const auto output = negotiation.pending_output();
      all.append(reinterpret_cast<const char*>(output.data()), output.size());
      negotiation.output_sent(output.size());
    }
    return all;
  }
  void begin(LayerUse tls) {
    negotiation.reset(tls);
    pending();
    say(be(3, 4));
  }
  void say(const std::string& text) {
    CHECK_EQUAL(text.size(), negotiation.consume(std::as_bytes(std::span(text))));
  }
  // Returns the answer to one option, without error texts.
  std::string answer(const std::string& text) {
    say(text);
    // without_error_texts() expects a greeting of 18 bytes first.
    return without_error_texts(std::string(18, 'g') + pending()).substr(18);
  }
  void start() {
    CHECK(answer(kStartTls) == reply(5, 1, ""));
    CHECK(negotiation.state() == Negotiation::State::kStartTls);
    LONGS_EQUAL(0, negotiation.wanted_bytes());
    negotiation.tls_started();
    CHECK(negotiation.state() == Negotiation::State::kNegotiating);
  }
};

TEST(NbdTls, IsRefusedWhereItIsNotConfigured) {
  begin(LayerUse::kNone);
  CHECK(answer(kStartTls) == reply(5, kUnsup, ""));
  answer(kGo);
  CHECK(negotiation.state() == Negotiation::State::kTransmission);
}

TEST(NbdTls, MayBeHadOrNot) {
  begin(LayerUse::kOffered);
  answer(kGo);
  CHECK(negotiation.state() == Negotiation::State::kTransmission);
  begin(LayerUse::kOffered);
  start();
  answer(kGo);
  CHECK(negotiation.state() == Negotiation::State::kTransmission);
}

TEST(NbdTls, NothingElseIsAnsweredBeforeItWhereItIsRequired) {
  begin(LayerUse::kRequired);
  for (const uint32_t type : {3, 6, 7, 8, 9, 10, 11, 99}) {
    CHECK(answer(option(type, "")) == reply(type, kTlsReqd, ""));
    CHECK(answer(option(type, std::string(300, 'x'))) == reply(type, kTlsReqd, ""));
  }
  CHECK(answer(kGo) == reply(7, kTlsReqd, ""));
  start();
  CHECK(answer(option(8, "")) == reply(8, 1, ""));
  answer(kGo);
  CHECK(negotiation.state() == Negotiation::State::kTransmission);
  CHECK(negotiation.structured_replies());
}

TEST(NbdTls, ExportNameBeforeItEndsTheConnection) {
  begin(LayerUse::kRequired);
  say(option(1, ""));
  CHECK(negotiation.state() == Negotiation::State::kDisconnect);
  CHECK(pending().empty());
  STRCMP_EQUAL("EXPORT_NAME came without TLS", negotiation.reason());
}

TEST(NbdTls, AbortIsAnsweredBeforeIt) {
  begin(LayerUse::kRequired);
  CHECK(answer(option(2, "")) == reply(2, 1, ""));
  CHECK(negotiation.is_aborted());
}

TEST(NbdTls, TakesNoData) {
  begin(LayerUse::kRequired);
  CHECK(answer(option(5, "x")) == reply(5, kInvalid, ""));
  start();
}

TEST(NbdTls, IsHadOnce) {
  begin(LayerUse::kOffered);
  start();
  CHECK(answer(kStartTls) == reply(5, kInvalid, ""));
  answer(kGo);
  CHECK(negotiation.state() == Negotiation::State::kTransmission);
}

// An attacker on the network may have sent the options before TLS.
TEST(NbdTls, WhatWasAgreedBeforeItIsForgotten) {
  begin(LayerUse::kOffered);
  CHECK(answer(option(8, "")) == reply(8, 1, ""));
  const std::string context = "base:allocation";
  const std::string query = be(0, 4) + be(1, 4) + be(context.size(), 4) + context;
  CHECK(answer(option(10, query)).size() > reply(10, 1, "").size());
  start();
  CHECK_FALSE(negotiation.structured_replies());
  CHECK(answer(option(10, query)) == reply(10, kInvalid, ""));
  answer(kGo);
  CHECK_FALSE(negotiation.structured_replies());
  CHECK_FALSE(negotiation.block_status());
}

TEST(NbdTls, WhatComesBehindItIsNotTaken) {
  begin(LayerUse::kOffered);
  const std::string text = kStartTls + option(8, "");
  CHECK_EQUAL(kStartTls.size(), negotiation.consume(std::as_bytes(std::span(text))));
  pending();
  LONGS_EQUAL(0, negotiation.consume(std::as_bytes(std::span(text))));
}
