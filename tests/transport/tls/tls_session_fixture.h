// A session and a client connected through memory, for the tests of sessions.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/bytes_of.h"
#include "tests/transport/tls/tls_rig.h"
#include "transport/tls/tls_session.h"

#include "CppUTest/TestHarness.h"

namespace bedplate::test {

inline constexpr size_t kTlsBufferBytes = 64 * 1024;

class TlsSessionFixture : public Utest {
 public:
  using Outcome = TlsSession::Outcome;

  TlsFolder folder;
  TestCertificate authority{"authority", {.is_authority = true}};
  TestCertificate stranger{"stranger", {.is_authority = true}};
  TestCertificate server{"localhost", {.issuer = &authority}};
  TestCertificate client_certificate{"client", {.issuer = &authority}};
  std::vector<Error> problems;
  std::unique_ptr<TlsCredentials> credentials;
  std::vector<std::byte> input = std::vector<std::byte>(kTlsBufferBytes);
  std::vector<std::byte> output = std::vector<std::byte>(kTlsBufferBytes);
  TlsSession session;
  std::unique_ptr<TlsClient> client = std::make_unique<TlsClient>();

  void teardown() override { limit_heap_owner(owner(), kNoLimit); }
  static HeapOwner owner() { return heap_owner(OwnerName(TlsCredentials::kHeapOwner)).take(); }

  void load(const TlsFiles& files) {
    credentials = std::make_unique<TlsCredentials>();
    CHECK(credentials->load(files, "[server]", &problems));
  }
  TlsFiles shared_keys() { return {.shared_keys = folder.write("keys.psk", kSharedKeyLine)}; }
  TlsFiles certificates() {
    return {.certificate = folder.write("cert.pem", server.pem(), 0644),
            .key = folder.write("key.pem", server.key_pem())};
  }
  TlsFiles with_authorities() {
    TlsFiles files = certificates();
    files.client_authorities = folder.write("ca.pem", authority.pem(), 0644);
    return files;
  }
  void new_client(int version) {
    client = std::make_unique<TlsClient>();
    client->speak(version);
  }
  void begin() { session.begin(*credentials, input, output); }
  // One step of the handshake, on each side.
  virtual Outcome session_goes_on() { return session.handshake(); }
  virtual int client_goes_on() { return client->handshake(); }

  // Moves the client's output to the session, at most `bytes_max` of it.
  void bring(size_t bytes_max = kTlsBufferBytes) {
    const std::span<std::byte> room = session.input_room();
    const size_t count = std::min({bytes_max, room.size(), client->sent.size()});
    if (count == 0) return;
    std::memcpy(room.data(), client->sent.data(), count);
    client->sent.erase(0, count);
    session.arrived(count);
  }
  // Moves the session's output to the client.
  void take_pending() {
    const auto pending = session.pending();
    client->arriving.append(reinterpret_cast<const char*>(pending.data()), pending.size());
    if (!pending.empty()) session.sent(pending.size());
  }
  // Runs the handshake until both sides are done or one fails. Returns the session's last outcome.
  Outcome shake_hands(size_t bytes_max = kTlsBufferBytes) {
    Outcome outcome = Outcome::kMore;
    client_outcome = SSL_ERROR_WANT_READ;
    for (int i = 0; i < 100'000; ++i) {
      if (client_outcome == SSL_ERROR_WANT_READ) client_outcome = client_goes_on();
      bring(bytes_max);
      if (outcome == Outcome::kMore) outcome = session_goes_on();
      take_pending();
      if (outcome == Outcome::kFailed) break;
      if (outcome == Outcome::kDone && client_outcome == 0) break;
      const bool client_failed = client_outcome != 0 && client_outcome != SSL_ERROR_WANT_READ;
      if (client_failed && client->sent.empty()) break;
    }
    return outcome;
  }
  int client_outcome = 0;

  void agree(const TlsFiles& files) {
    load(files);
    if (!files.shared_keys.empty()) client->share("alice", kSharedKey);
    client->start();
    begin();
    CHECK(shake_hands() == Outcome::kDone);
    CHECK(session.is_established());
  }
  std::string read(Outcome* last, size_t bytes_max = kTlsBufferBytes) {
    std::string text;
    std::vector<std::byte> memory(1000);
    while (true) {
      bring(bytes_max);
      const auto moved = session.read(memory);
      text.append(reinterpret_cast<const char*>(memory.data()), moved.bytes);
      *last = moved.outcome;
      if (moved.outcome == Outcome::kDone) continue;
      if (moved.outcome != Outcome::kMore || client->sent.empty()) return text;
    }
  }
  void fails_with(TlsFailure failure) {
    CHECK(shake_hands() == Outcome::kFailed);
    STRCMP_EQUAL(to_text(failure), to_text(session.failure()));
    CHECK(session.handshake() == Outcome::kFailed);
    CHECK_FALSE(session.is_established());
  }
};

}  // namespace bedplate::test
