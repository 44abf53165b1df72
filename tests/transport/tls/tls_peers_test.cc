// Unusual peers of both versions: refused certificates, sessions to resume, short records, and
// messages in two records. And allocations that fail anywhere.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "tests/support/datapath_law.h"
#include "tests/support/seed.h"
#include "tests/support/skip.h"
#include "tests/transport/tls/tls_session_fixture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;
using Outcome = TlsSession::Outcome;

TEST_GROUP_BASE(TlsPeers, TlsSessionFixture){};

TEST(TlsPeers, CertificatesThatAreNotTaken) {
  const TestCertificate expired{"old", {.issuer = &authority, .until = "20210203000000Z"}};
  const TestCertificate early{"new", {.issuer = &authority, .from = "20980101000000Z"}};
  const TestCertificate foreign{"client", {.issuer = &stranger}};
  load(with_authorities());
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    for (const auto& [shown, said] :
         {std::pair<const TestCertificate*, const char*>{&expired, "certificate has expired"},
          {&early, "certificate is not yet valid"},
          {&foreign, "unable to get local issuer certificate"},
          {nullptr, "peer did not return a certificate"}}) {
      new_client(version);
      if (shown != nullptr) client->show(*shown);
      client->start();
      begin();
      fails_with(TlsFailure::kCredentials);
      STRCMP_EQUAL(said, session.failure_text());
      session.end();
    }
    new_client(version);
    client->show(client_certificate);
    client->start();
    begin();
    CHECK(shake_hands() == Outcome::kDone);
    session.end();
  }
}

// A client may do without one, but a wrong one is refused.
TEST(TlsPeers, ACertificateThatIsNotNeeded) {
  const TestCertificate expired{"old", {.issuer = &authority, .until = "20210203000000Z"}};
  const TestCertificate foreign{"client", {.issuer = &stranger}};
  TlsFiles files = with_authorities();
  files.takes_clients_without = true;
  load(files);
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    for (const TestCertificate* shown : std::initializer_list<const TestCertificate*>{
             &client_certificate, &expired, &foreign, nullptr}) {
      new_client(version);
      if (shown != nullptr) client->show(*shown);
      client->start();
      begin();
      if (shown == &expired || shown == &foreign) {
        fails_with(TlsFailure::kCredentials);
      } else {
        CHECK(shake_hands() == Outcome::kDone);
        CHECK_EQUAL(shown != nullptr, session.has_certificate());
      }
      session.end();
    }
  }
}

// Each connection makes a full handshake: nothing of earlier ones is kept, here or in a ticket.
TEST(TlsPeers, NoSessionIsTakenUpAgain) {
  load(certificates());
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsPointer<SSL_SESSION, SSL_SESSION_free> before;
    for (int round = 0; round < 2; ++round) {
      new_client(version);
      client->start();
      if (before != nullptr) SSL_set_session(client->session(), before.get());
      begin();
      CHECK(shake_hands() == Outcome::kDone);
      CHECK(session.write(bytes_of(std::string("x"))).outcome == Outcome::kDone);
      take_pending();
      STRCMP_EQUAL("x", client->read().c_str());  // a ticket would have come before it
      LONGS_EQUAL(0, SSL_session_reused(client->session()));
      before.reset(SSL_get1_session(client->session()));
      LONGS_EQUAL(0, SSL_SESSION_is_resumable(before.get()));
      session.end();
    }
  }
}

// Short records take up to 32 times the overhead of one long record (RFC 6066).
TEST(TlsPeers, AClientThatAsksForShortRecordsGetsThem) {
  load(certificates());
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    new_client(version);
    client->start();
    LONGS_EQUAL(
        1, SSL_set_tlsext_max_fragment_length(client->session(), TLSEXT_max_fragment_length_512));
    session.begin(*credentials, input, std::span(output).first(TlsSession::kBufferMinBytes));
    CHECK(shake_hands() == Outcome::kDone);
    const std::string text(3 * TlsSession::kTextMaxBytes, 's');
    std::string heard;
    for (size_t done = 0; done < text.size();) {
      done += session.write(bytes_of(text).subspan(done)).bytes;
      CHECK(session.is_valid());
      const auto pending = session.pending();
      for (size_t at = 0; at < pending.size();) {
        const size_t bytes = std::to_integer<size_t>(pending[at + 3]) << 8 |
                             std::to_integer<size_t>(pending[at + 4]);
        CHECK(bytes <= 512 + 48);
        at += 5 + bytes;
      }
      take_pending();
      heard += client->read();
    }
    CHECK(heard == text);
    // For each size of the space that is left: the text fits, or uses none of it.
    const std::string whole = text.substr(0, TlsSession::kTextMaxBytes);
    for (size_t first = 1; first < whole.size(); first += 50) {
      CHECK(session.write(bytes_of(whole).first(first)).outcome == Outcome::kDone);
      CHECK(session.write(bytes_of(whole)).outcome != Outcome::kFailed);
      take_pending();
      client->read();
    }
    session.end();
  }
}

// Text that is written between the two records waits, and is sent with the new key.
TEST(TlsPeers, AChangeOfKeysThatComesInTwoRecords) {
  constexpr uint8_t kHandshake = 22;
  load(shared_keys());
  client->share("alice", kSharedKey);
  LONGS_EQUAL(1, client->offer_13("TLS_AES_128_GCM_SHA256"));
  client->start();
  begin();
  CHECK(shake_hands() == Outcome::kDone);
  const std::string update = {SSL3_MT_KEY_UPDATE, 0, 0, 1, SSL_KEY_UPDATE_NOT_REQUESTED};
  const std::string text(100'000, 't');
  Outcome last = Outcome::kDone;

  client->sent = client->record(0, update.substr(0, 4), kHandshake);
  STRCMP_EQUAL("", read(&last).c_str());
  CHECK(last == Outcome::kMore);
  auto moved = session.write(bytes_of(text));
  CHECK(moved.outcome == Outcome::kMore);
  LONGS_EQUAL(0, moved.bytes);
  CHECK(session.waits_for_input());
  CHECK(session.failure() == TlsFailure::kNone);
  CHECK_FALSE(session.input_room().empty());
  CHECK(session.is_valid());

  client->sent = client->record(1, update.substr(4), kHandshake);
  bring();
  moved = session.write(bytes_of(text));
  CHECK(moved.bytes > 0);
  CHECK_FALSE(session.waits_for_input());
  take_pending();
  STRCMP_EQUAL(text.substr(0, moved.bytes).c_str(), client->read().c_str());
}

// The peer goes away between the two records.
TEST(TlsPeers, AChangeOfKeysThatNeverComesWhole) {
  load(shared_keys());
  client->share("alice", kSharedKey);
  LONGS_EQUAL(1, client->offer_13("TLS_AES_128_GCM_SHA256"));
  client->start();
  begin();
  CHECK(shake_hands() == Outcome::kDone);
  Outcome last = Outcome::kDone;
  client->sent = client->record(0, std::string{SSL3_MT_KEY_UPDATE, 0, 0, 1}, 22);
  read(&last);
  CHECK(session.write(bytes_of(std::string("x"))).outcome == Outcome::kMore);
  session.arrived(0);
  CHECK(session.write(bytes_of(std::string("x"))).outcome == Outcome::kFailed);
}

// Each allocation of the library is refused once, one after the other. The session fails, or goes
// on without that block, and frees all its memory.
TEST_GROUP_BASE(TlsMemory, TlsSessionFixture) {
  std::unique_ptr<AllocationWatch> watch;
  Outcome outcome = Outcome::kDone;
  TlsFailure failure = TlsFailure::kNone;

  Outcome session_goes_on() override {
    return watch->in([this] { return session.handshake(); });
  }
  // On a thread of its own, so that the library keeps no freed memory of the client for the
  // session.
  int client_goes_on() override {
    int result = 0;
    std::thread([&] { result = client->handshake(); }).join();
    return result;
  }
  // A handshake, and a record in each direction.
  Outcome converse() {
    watch->in([this] { begin(); });
    if (const Outcome agreed = shake_hands(); agreed != Outcome::kDone) return agreed;
    std::thread([this] { client->write("hello"); }).join();
    bring();
    std::byte memory[5];
    const Outcome heard = watch->in([&] { return session.read(memory).outcome; });
    if (heard != Outcome::kDone) return heard;
    const std::string text = "and back";
    return watch->in([&] { return session.write(bytes_of(text)).outcome; });
  }
  // On a thread that ends, and with it all memory that the library keeps for the thread.
  void converse(int version, uint64_t refused_index) {
    new_client(version);
    client->show(client_certificate);
    client->start();
    watch = std::make_unique<AllocationWatch>(refused_index);
    std::thread([this] {
      outcome = converse();
      failure = session.failure();
      watch->in([this] {
        session.end();
        OPENSSL_thread_stop();
      });
    }).join();
    CHECK(session.is_valid());
  }
};

TEST(TlsMemory, AnyBlockOfAConversationMayBeRefused) {
  BP_SKIP_UNDER_SANITIZER();
  load(with_authorities());
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    for (int i = 0; i < 2; ++i) {  // the first one may allocate memory for the process
      converse(version, AllocationWatch::kNone);
      CHECK(outcome == Outcome::kDone);
    }
    LONGS_EQUAL(0, watch->held_count());
    // To refuse each block takes seconds, so each run refuses a random selection.
    const Seed seed;
    std::mt19937_64 chance(seed.value());
    uint64_t failed_count = 0;
    uint64_t index = 0;
    do {
      converse(version, index);
      if (outcome != Outcome::kDone) {
        CHECK(outcome == Outcome::kFailed);
        STRCMP_EQUAL(to_text(TlsFailure::kMemory), to_text(failure));
        ++failed_count;
      }
      LONGS_EQUAL_TEXT(0, watch->held_count(),
                       ("of what was refused block " + std::to_string(index)).c_str());
      index += 1 + chance() % 12;
    } while (watch->has_refused());
    CHECK(failed_count > 20 && failed_count < index);
    converse(version, AllocationWatch::kNone);
    CHECK(outcome == Outcome::kDone);
  }
}
