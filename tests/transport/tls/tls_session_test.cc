// A session and a client, connected through memory: shared keys, certificates, split input,
// garbage, ends, and an exhausted heap.
#include "transport/tls/tls_session.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CppUTest/TestHarness.h"
#include "tests/support/datapath_law.h"
#include "tests/support/seed.h"
#include "tests/support/skip.h"
#include "tests/transport/tls/tls_session_fixture.h"

using namespace bedplate;
using namespace bedplate::test;
using Outcome = TlsSession::Outcome;

namespace {

bool has_aes() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("aes");
#else
  return false;
#endif
}

// Uses up all space in the pages that `owner` holds in this thread, until the destructor, so that
// the next allocation takes another page.
class UsedUpPages {
 public:
  // Requires: `owner` is limited to what it holds.
  explicit UsedUpPages(HeapOwner owner) {
    const HeapOwnerScope scope(owner);
    // The largest blocks first, because their pages are the largest. Steps of an eighth leave out
    // no class of sizes.
    for (size_t bytes = 512 * kKiB; bytes >= sizeof(Block); bytes -= bytes / 8) {
      while (auto* block = static_cast<Block*>(std::malloc(bytes))) {
        block->next = first_;
        first_ = block;
      }
    }
  }
  UsedUpPages(const UsedUpPages&) = delete;
  UsedUpPages& operator=(const UsedUpPages&) = delete;
  ~UsedUpPages() {
    while (first_ != nullptr) std::free(std::exchange(first_, first_->next));
  }

 private:
  struct Block {
    Block* next;
  };
  Block* first_ = nullptr;
};

}  // namespace

TEST_GROUP_BASE(TlsSession, TlsSessionFixture){};

TEST(TlsSession, SpeaksWithAClientOfTheSameKey) {
  agree(shared_keys());
  STRCMP_EQUAL("TLSv1.3", session.version());
  // Without AES in the processor the cipher is the client's first.
  if (has_aes()) STRCMP_EQUAL("TLS_AES_128_GCM_SHA256", session.cipher());
  client->write("hello");
  Outcome last = Outcome::kDone;
  STRCMP_EQUAL("hello", read(&last).c_str());
  CHECK(last == Outcome::kMore);
  const auto moved = session.write(bytes_of("and back"));
  LONGS_EQUAL(8, moved.bytes);
  CHECK(moved.outcome == Outcome::kDone);
  take_pending();
  STRCMP_EQUAL("and back", client->read().c_str());
}

TEST(TlsSession, SpeaksWithAClientThatTrustsItsCertificate) {
  client->trust(authority);
  agree(certificates());
  STRCMP_EQUAL("TLSv1.3", session.version());
  Outcome last = Outcome::kDone;
  client->write("hello");
  STRCMP_EQUAL("hello", read(&last).c_str());
}

TEST(TlsSession, TakesACertificateOfAClientThatItsAuthoritySigned) {
  TlsFiles files = certificates();
  files.client_authorities = folder.write("ca.pem", authority.pem());
  client->trust(authority);
  client->show(client_certificate);
  agree(files);
}

TEST(TlsSession, RefusesAClientWithoutACertificate) {
  TlsFiles files = certificates();
  files.client_authorities = folder.write("ca.pem", authority.pem());
  load(files);
  client->start();
  begin();
  fails_with(TlsFailure::kCredentials);
}

TEST(TlsSession, RefusesACertificateThatAStrangerSigned) {
  TlsFiles files = certificates();
  files.client_authorities = folder.write("ca.pem", authority.pem());
  load(files);
  client->show(stranger);
  client->start();
  begin();
  fails_with(TlsFailure::kCredentials);
}

TEST(TlsSession, SaysThatTheClientRefusedIt) {
  load(certificates());
  client->trust(stranger);
  client->start();
  begin();
  fails_with(TlsFailure::kRefused);
}

TEST(TlsSession, RefusesAnotherKeyAndAnotherName) {
  load(shared_keys());
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    for (const auto& [name, key] :
         {std::pair<const char*, std::string>{"alice", "another key"}, {"mallory", kSharedKey}}) {
      client = std::make_unique<TlsClient>();
      client->speak(version);
      client->share(name, key);
      client->start();
      begin();
      fails_with(TlsFailure::kCredentials);
      session.end();
    }
  }
}

// Each cipher that clients of TLS 1.2 may have.
TEST(TlsSession, GivesUpAHandshakeOnce) {
  load(shared_keys());
  client->share("alice", kSharedKey);
  client->start();
  begin();
  client->handshake();
  bring(10);
  CHECK(session.handshake() == Outcome::kMore);
  session.give_up();
  STRCMP_EQUAL(to_text(TlsFailure::kLate), to_text(session.failure()));
  STRCMP_EQUAL("it has not sent all of its part", session.failure_text());
  CHECK(session.handshake() == Outcome::kFailed);
  session.give_up();
  session.end();
  begin();
  session.give_up();
  STRCMP_EQUAL("it has sent nothing", session.failure_text());
  session.end();
}

TEST(TlsSession, SpeaksTheVersionBefore) {
  TlsFiles files = certificates();
  files.shared_keys = shared_keys().shared_keys;
  files.client_authorities = folder.write("ca.pem", authority.pem());
  load(files);
  for (const char* cipher : {"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384",
                             "ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-PSK-CHACHA20-POLY1305"}) {
    client = std::make_unique<TlsClient>();
    client->speak(TLS1_2_VERSION);
    client->offer(cipher);
    client->share("alice", kSharedKey);
    client->show(client_certificate);
    client->start();
    begin();
    CHECK(shake_hands() == Outcome::kDone);
    STRCMP_EQUAL("TLSv1.2", session.version());
    STRCMP_EQUAL(cipher, session.cipher());
    client->write("hello");
    Outcome last = Outcome::kDone;
    STRCMP_EQUAL("hello", read(&last).c_str());
    session.end();
  }
}

// Even if other clients must show a certificate.
TEST(TlsSession, AClientWithASharedKeyNeedsNoCertificate) {
  TlsFiles files = certificates();
  files.client_authorities = folder.write("ca.pem", authority.pem());
  files.shared_keys = shared_keys().shared_keys;
  agree(files);
  STRCMP_EQUAL("TLSv1.3", session.version());
}

TEST(TlsSession, RefusesAnOlderVersionAndOtherCiphers) {
  load(shared_keys());
  client->share("alice", kSharedKey);
  client->speak(TLS1_1_VERSION);
  client->start();
  begin();
  fails_with(TlsFailure::kProtocol);
  session.end();
  // Without a key exchange, recorded traffic could be read once the key is known.
  client = std::make_unique<TlsClient>();
  client->share("alice", kSharedKey);
  client->speak(TLS1_2_VERSION);
  client->offer("PSK-AES128-GCM-SHA256:DHE-PSK-AES128-GCM-SHA256:ECDHE-PSK-AES128-CBC-SHA256");
  client->start();
  begin();
  fails_with(TlsFailure::kCredentials);
}

TEST(TlsSession, TakesAHandshakeByteByByte) {
  load(shared_keys());
  client->share("alice", kSharedKey);
  client->start();
  begin();
  CHECK(shake_hands(1) == Outcome::kDone);
  client->write("one at a time");
  Outcome last = Outcome::kDone;
  STRCMP_EQUAL("one at a time", read(&last, 1).c_str());
}

TEST(TlsSession, WritesWhatItHasRoomForInWholeRecords) {
  agree(shared_keys());
  const Seed seed;
  std::mt19937_64 chance(seed.value());
  std::string text(300'000, '\0');
  for (char& c : text) c = static_cast<char>(chance() % 256);
  std::string got;
  size_t done = 0;
  size_t full_count = 0;
  while (done < text.size()) {
    const auto moved = session.write(bytes_of(text).subspan(done));
    done += moved.bytes;
    full_count += moved.outcome == Outcome::kMore ? 1 : 0;
    CHECK(moved.outcome == (done < text.size() ? Outcome::kMore : Outcome::kDone));
    CHECK(session.is_valid());
    take_pending();
    got += client->read();
  }
  CHECK(full_count > 3);
  CHECK_TEXT(got == text, seed.text());
}

TEST(TlsSession, ReadsLongTextsInPieces) {
  agree(shared_keys());
  std::string text(200'000, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 / 7);
  client->write(text);
  Outcome last = Outcome::kDone;
  CHECK(read(&last, 777) == text);
}

TEST(TlsSession, SaysThatThePeerHasEnded) {
  agree(shared_keys());
  client->write("last");
  client->close_notify();
  Outcome last = Outcome::kDone;
  STRCMP_EQUAL("last", read(&last).c_str());
  CHECK(last == Outcome::kEnded);
}

TEST(TlsSession, SaysThatThePeerHasClosed) {
  agree(shared_keys());
  session.arrived(0);
  std::byte memory[10];
  CHECK(session.read(memory).outcome == Outcome::kEnded);
}

TEST(TlsSession, ItsOwnEndReachesThePeer) {
  agree(shared_keys());
  session.close_notify();
  take_pending();
  client->read();
  LONGS_EQUAL(SSL_ERROR_ZERO_RETURN, client->last_read);
}

TEST(TlsSession, APeerThatLeavesInTheHandshakeIsGone) {
  load(shared_keys());
  client->share("alice", kSharedKey);
  client->start();
  begin();
  client->handshake();
  client->sent.resize(client->sent.size() / 2);
  bring();
  CHECK(session.handshake() == Outcome::kMore);
  session.arrived(0);
  CHECK(session.handshake() == Outcome::kFailed);
  STRCMP_EQUAL(to_text(TlsFailure::kGone), to_text(session.failure()));
}

TEST(TlsSession, RefusesGarbage) {
  load(shared_keys());
  const Seed seed;
  std::mt19937_64 chance(seed.value());
  for (int round = 0; round < 200; ++round) {
    begin();
    client->sent.resize(1 + chance() % 2000);
    for (char& c : client->sent) c = static_cast<char>(chance() % 256);
    bring();
    Outcome outcome = session.handshake();
    if (outcome == Outcome::kMore) {  // it waits for a record of some length
      session.arrived(0);
      outcome = session.handshake();
    }
    CHECK_TEXT(outcome == Outcome::kFailed, seed.text());
    CHECK(session.failure_text()[0] != '\0');
    session.end();
  }
}

TEST(TlsSession, RefusesARecordThatWasChanged) {
  agree(shared_keys());
  client->write("hello");
  client->sent.back() = static_cast<char>(client->sent.back() ^ 1);
  Outcome last = Outcome::kDone;
  STRCMP_EQUAL("", read(&last).c_str());
  CHECK(last == Outcome::kFailed);
  STRCMP_EQUAL(to_text(TlsFailure::kProtocol), to_text(session.failure()));
  CHECK(session.write(bytes_of("x")).outcome == Outcome::kFailed);
}

// Each renegotiation is answered. A peer that reads nothing would fill the output with answers.
TEST(TlsSession, APeerThatWouldAgreeAnewEndsIt) {
  client->speak(TLS1_2_VERSION);
  agree(shared_keys());
  client->write("hello");
  LONGS_EQUAL(SSL_ERROR_WANT_READ, client->renegotiate());
  Outcome last = Outcome::kDone;
  STRCMP_EQUAL("hello", read(&last).c_str());
  CHECK(last == Outcome::kFailed);
  CHECK(session.failure() == TlsFailure::kProtocol);
  const auto moved = session.write(bytes_of(std::string("too late")));
  CHECK(moved.outcome == Outcome::kFailed && moved.bytes == 0);
}

// TLS 1.3 has key changes instead. Each of them costs a computation.
TEST(TlsSession, APeerMayChangeItsKeysAFewTimes) {
  agree(shared_keys());
  std::string said;
  std::string heard;
  Outcome last = Outcome::kMore;
  for (uint64_t i = 0; i < TlsSession::kKeyChangesMin && last == Outcome::kMore; ++i) {
    LONGS_EQUAL(0, client->change_keys());
    client->write("hello ");
    said += "hello ";
    heard += read(&last);
    CHECK(session.write(bytes_of(std::string("back "))).outcome == Outcome::kDone);
    take_pending();
    STRCMP_EQUAL("back ", client->read().c_str());
  }
  CHECK(last == Outcome::kMore);
  STRCMP_EQUAL(said.c_str(), heard.c_str());
  client->change_keys();
  read(&last);
  CHECK(last == Outcome::kFailed);
  CHECK(session.failure() == TlsFailure::kProtocol);
  STRCMP_EQUAL("too many key changes", session.failure_text());
}

// The answers to a peer that reads nothing stay small.
TEST(TlsSession, AnswersToChangesOfKeysAreFew) {
  agree(shared_keys());
  for (uint64_t i = 0; i < TlsSession::kKeyChangesMin; ++i) client->change_keys();
  client->write("hello");
  Outcome last = Outcome::kDone;
  STRCMP_EQUAL("hello", read(&last).c_str());
  CHECK(last == Outcome::kMore);
  CHECK(session.pending().size() < TlsSession::kKeyChangesMin * 64);
  session.write(bytes_of(std::string("and back")));
  take_pending();
  STRCMP_EQUAL("and back", client->read().c_str());
  for (int i = 0; i < 1000; ++i) client->change_keys();
  read(&last);
  CHECK(last == Outcome::kFailed);
  CHECK(session.pending().size() < 200);
}

TEST(TlsSession, APeerThatHasSentMuchMayChangeItsKeysOnceMore) {
  agree(shared_keys());
  const std::string text(1 << 20, 'm');
  Outcome last = Outcome::kDone;
  for (uint64_t i = 0; i < TlsSession::kKeyChangesMin; ++i) client->change_keys();
  for (uint64_t sent = 0; sent < TlsSession::kBytesForAKeyChange; sent += text.size()) {
    client->write(text);
    LONGS_EQUAL(text.size(), read(&last).size());
  }
  client->change_keys();
  read(&last);
  CHECK(last == Outcome::kMore);
  client->change_keys();
  read(&last);
  CHECK(last == Outcome::kFailed);
}

// After the handshake, and one record in each direction.
TEST(TlsSession, MovesBytesWithoutAllocating) {
  BP_SKIP_WITHOUT_LAW();
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    client = std::make_unique<TlsClient>();
    client->speak(version);
    agree(shared_keys());
    Outcome last = Outcome::kDone;
    client->write("warm");
    read(&last);
    session.write(bytes_of(std::string("warm")));
    take_pending();
    const std::string text(40'000, 't');
    std::vector<std::byte> memory(text.size());
    client->write(text);
    bring();
    size_t read_bytes = 0;
    size_t written_bytes = 0;
    const uint32_t breaches = breaches_in(
        [&] {
          read_bytes = session.read(memory).bytes;
          written_bytes = session.write(bytes_of(text)).bytes;
        },
        Permit::kLibrary);
    LONGS_EQUAL(0, breaches);
    LONGS_EQUAL(text.size(), read_bytes);
    LONGS_EQUAL(text.size(), written_bytes);
    take_pending();
    session.end();
  }
}

// The library's memory for a thread is freed with the thread.
TEST(TlsSession, AThreadThatEndsLeavesNothing) {
  BP_SKIP_UNDER_SANITIZER();
  load(certificates());
  uint64_t held = 0;
  for (int round = 0; round < 20; ++round) {
    client = std::make_unique<TlsClient>();
    client->start();
    std::thread([this] {
      begin();
      shake_hands();
      session.end();
    }).join();
    if (round == 5) held = heap_owner_use(owner()).used_bytes;
  }
  CHECK_EQUAL(held, heap_owner_use(owner()).used_bytes);
}

TEST(TlsSession, AFlippedBitAnywhereInTheHandshakeNeverAgrees) {
  load(shared_keys());
  const Seed seed;
  std::mt19937_64 chance(seed.value());
  for (int round = 0; round < 60; ++round) {
    client = std::make_unique<TlsClient>();
    client->share("alice", kSharedKey);
    client->start();
    begin();
    client->handshake();
    // Behind the record's header, because the version in the first header means nothing.
    const size_t position = 5 + chance() % (client->sent.size() - 5);
    client->sent[position] = static_cast<char>(client->sent[position] ^ (1 << (chance() % 8)));
    CHECK_FALSE_TEXT(shake_hands() == Outcome::kDone && client_outcome == 0, seed.text());
    session.end();
  }
}

// Any allocation may be refused: the limit rises from the present use until all succeed.
TEST(TlsSession, AHeapThatIsUsedUpEndsOneSessionAndNothingElse) {
  BP_SKIP_UNDER_SANITIZER();
  load(certificates());
  const uint64_t held = heap_owner_use(owner()).used_bytes;
  limit_heap_owner(owner(), held);
  const UsedUpPages pages(owner());  // otherwise a session may use space in pages of an earlier one
  bool has_failed = false;
  bool has_agreed = false;
  for (uint64_t more = 0; more < 8 * kMiB && !has_agreed; more += 64 * kKiB) {
    client = std::make_unique<TlsClient>();
    client->start();
    limit_heap_owner(owner(), held + more);
    begin();
    if (shake_hands() == Outcome::kDone) {
      has_agreed = true;
    } else {
      has_failed = true;
      STRCMP_EQUAL(to_text(TlsFailure::kMemory), to_text(session.failure()));
    }
    session.end();
  }
  CHECK(has_failed && has_agreed);
  CHECK(heap_owner_use(owner()).refused_count > 0);
}

TEST(TlsSession, WhatItAllocatesIsChargedToItsOwnerAndGivenBack) {
  BP_SKIP_UNDER_SANITIZER();
  load(shared_keys());
  const uint64_t before = heap_owner_use(owner()).used_bytes;
  std::vector<std::unique_ptr<TlsSession>> sessions;
  for (int i = 0; i < 100; ++i) {
    sessions.push_back(std::make_unique<TlsSession>());
    sessions.back()->begin(*credentials, input, output);
    CHECK(sessions.back()->handshake() == Outcome::kMore);
  }
  CHECK(heap_owner_use(owner()).used_bytes >= before + 100 * 16 * kKiB);
  const uint64_t full = heap_owner_use(owner()).used_bytes;
  sessions.clear();
  CHECK(heap_owner_use(owner()).used_bytes < full);
}
