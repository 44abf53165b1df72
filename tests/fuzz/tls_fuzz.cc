// Fuzz target of TLS: what a client sends is changed on its way to a session, or is no TLS at all.
//
// The first byte says which client it is and how the rest is cut, the others are edits of four
// bytes (Edit), or what the client sends. All randomness is from fixed seeds and the clock stands
// still, so an input does the same each time. The build and how long it runs: `make fuzz-run`.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alloc/heap_owner.h"
#include "tests/transport/tls/tls_rig.h"
#include "transport/tls/tls_session.h"

// The library asks it for certificates, and puts it into its random numbers.
extern "C" time_t time(time_t* now) noexcept {
  constexpr time_t kNow = 1'780'000'000;
  if (now != nullptr) *now = kNow;
  return kNow;
}

namespace bedplate {

// There is no pool here.
Result<HeapOwner> heap_owner(const OwnerName&) noexcept { return HeapOwner{}; }
HeapOwner enter_heap_owner(HeapOwner owner) noexcept { return owner; }

namespace {

using Outcome = TlsSession::Outcome;

void require(bool kept, const char* what) {
  if (kept) return;
  std::fprintf(stderr, "tls_fuzz: broken promise: %s\n", what);
  std::abort();
}

// A file in memory, open as long as the program runs.
std::string file_of(std::string_view text) {
  const int fd = memfd_create("tls_fuzz", 0);
  require(fd >= 0 && fchmod(fd, 0600) == 0, "there is memory for a file");
  require(write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()),
          "it is written");
  return "/proc/self/fd/" + std::to_string(fd);
}

struct Peers {
  test::TlsRandom random{"credentials"};
  test::TestCertificate authority{random, "authority", {.is_authority = true}};
  test::TestCertificate server{random, "localhost", {.issuer = &authority}};
  test::TestCertificate client{random, "client", {.issuer = &authority}};
  TlsCredentials credentials;

  Peers() {
    std::vector<Error> problems;
    const TlsFiles files = {.certificate = file_of(server.pem()),
                            .key = file_of(server.key_pem()),
                            .client_authorities = file_of(authority.pem()),
                            .shared_keys = file_of(test::kSharedKeyLine)};
    require(credentials.load(files, "[fuzz]", &problems), "the credentials are good");
  }
};

Peers& peers() {
  static Peers only;
  return only;
}

// A change at a byte of what the client sends, counted from its first one.
struct Edit {
  enum class Kind { kFlip, kDrop, kRepeat, kClose };
  Kind kind;
  uint32_t at;
  uint8_t value;  // the bits that are flipped; how many are dropped, or are there instead of one
};

std::vector<Edit> edits_of(std::span<const uint8_t> bytes) {
  std::vector<Edit> edits;
  for (; bytes.size() >= 4 && edits.size() < 16; bytes = bytes.subspan(4)) {
    const auto at = static_cast<uint32_t>(bytes[1] | bytes[2] << 8);
    edits.push_back({static_cast<Edit::Kind>(bytes[0] % 4), at, bytes[3]});
  }
  return edits;
}

// From the client to the session.
class Wire {
 public:
  explicit Wire(std::span<const Edit> edits) : edits_(edits) {}

  void add(std::string_view bytes) {
    for (char byte : bytes) add(byte);
  }
  void close() { is_closed_ = true; }

  // At most `step` of what is under way; at its end, once, that there is no more.
  bool bring(TlsSession& session, size_t step) {
    const auto room = session.input_room();
    if (room.empty()) return false;
    const size_t bytes = std::min({step, room.size(), under_way_.size()});
    if (bytes == 0 && (!is_closed_ || has_told_end_)) return false;
    std::memcpy(room.data(), under_way_.data(), bytes);
    under_way_.erase(0, bytes);
    has_told_end_ = bytes == 0;
    session.arrived(bytes);
    return true;
  }

 private:
  void add(char byte) {
    uint32_t count = 1;
    for (const Edit& edit : edits_) {
      switch (edit.kind) {
        case Edit::Kind::kFlip:
          if (edit.at == at_) byte = static_cast<char>(byte ^ edit.value);
          break;
        case Edit::Kind::kDrop:
          if (at_ >= edit.at && at_ < edit.at + edit.value) count = 0;
          break;
        case Edit::Kind::kRepeat:
          if (edit.at == at_) count += edit.value;
          break;
        case Edit::Kind::kClose: is_closed_ = is_closed_ || edit.at == at_; break;
      }
    }
    ++at_;
    if (!is_closed_) under_way_.append(count, byte);
  }

  std::span<const Edit> edits_;
  std::string under_way_;
  uint32_t at_ = 0;
  bool is_closed_ = false;
  bool has_told_end_ = false;
};

struct Heard {
  bool is_established = false;
  bool has_ended = false;
  TlsFailure failure = TlsFailure::kNone;
  std::string text;

  bool operator==(const Heard&) const = default;
};

// All that has arrived.
void hear(TlsSession& session, Heard* heard) {
  if (!session.is_established()) {
    if (session.handshake() != Outcome::kDone) return;
    heard->is_established = true;
  }
  std::byte memory[3000];
  while (!heard->has_ended) {
    const auto moved = session.read(memory);
    require(moved.bytes <= sizeof memory, "no more is read than there is room for");
    heard->text.append(reinterpret_cast<const char*>(memory), moved.bytes);
    heard->has_ended = moved.outcome == Outcome::kEnded;
    if (moved.outcome != Outcome::kDone) return;
  }
}

enum class Client { kGarbage, kSharedKey, kCertificate, kAnew };

// Long enough for several records.
std::string text_of(char first, size_t bytes) {
  std::string text(bytes, first);
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(first + i * 7 % 251);
  return text;
}

struct Conversation {
  const std::string said = text_of('s', 18'000);
  const std::string answered = text_of('a', 18'000);

  Conversation(Client kind, std::span<const uint8_t> rest, size_t step)
      : kind_(kind), step_(step), edits_(edits_of(rest)), wire_(edits_) {
    server_random_.emplace("server");
    auto& config = const_cast<mbedtls_ssl_config&>(peers().credentials.config());
    mbedtls_ssl_conf_rng(&config, mbedtls_ctr_drbg_random, server_random_->context());
    session_.begin(peers().credentials, input_, output_);
    if (kind == Client::kGarbage) {
      edits_.clear();
      wire_ = Wire(edits_);
      wire_.add({reinterpret_cast<const char*>(rest.data()), rest.size()});
      wire_.close();
      return;
    }
    if (kind == Client::kCertificate) {
      client_.show(peers().client);
    } else {
      static constexpr int kCiphers[] = {MBEDTLS_TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256, 0};
      mbedtls_ssl_conf_ciphersuites(&client_.config(), kCiphers);
      client_.share("alice", test::kSharedKey);
    }
    if (kind == Client::kAnew) {
      mbedtls_ssl_conf_renegotiation(&client_.config(), MBEDTLS_SSL_RENEGOTIATION_ENABLED);
    }
    client_.start();
  }

  Heard run() {
    for (bool moves = true; moves;) {
      moves = speak();
      moves = wire_.bring(session_, step_) || moves;
      hear(session_, &heard_);
      answer();
      require(session_.is_valid(), "the session is valid");
      moves = listen() || moves;
      if (session_.failure() != TlsFailure::kNone) break;
    }
    heard_.failure = session_.failure();
    if (heard_.failure == TlsFailure::kNone) return heard_;
    std::byte one[1];
    const auto after = heard_.is_established ? session_.read(one).outcome : session_.handshake();
    require(after == Outcome::kFailed, "what has failed stays so");
    return heard_;
  }

  bool is_intact() const { return edits_.empty(); }
  const std::string& answer_heard() const { return answer_heard_; }

 private:
  bool speak() {
    if (kind_ == Client::kGarbage) return false;
    if (last_ == MBEDTLS_ERR_SSL_WANT_READ) last_ = client_.handshake();
    if (last_ == 0 && !has_spoken_) {
      has_spoken_ = true;
      for (std::string_view rest = said; !rest.empty();) {
        const int bytes = client_.write(rest);
        require(bytes > 0, "the client can write");
        rest.remove_prefix(static_cast<size_t>(bytes));
      }
      if (kind_ == Client::kAnew) client_.renegotiate();
      client_.close_notify();
    }
    const bool has_sent = !client_.sent.empty();
    wire_.add(client_.sent);
    client_.sent.clear();
    return has_sent;
  }

  void answer() {
    if (!session_.is_established()) return;
    while (answered_bytes_ < answered.size()) {
      const auto moved =
          session_.write(std::as_bytes(std::span(answered)).subspan(answered_bytes_));
      answered_bytes_ += moved.bytes;
      if (moved.outcome != Outcome::kDone) return;
    }
  }

  bool listen() {
    const auto pending = session_.pending();
    const size_t bytes = std::min(step_, pending.size());
    client_.arriving.append(reinterpret_cast<const char*>(pending.data()), bytes);
    if (bytes > 0) session_.sent(bytes);
    if (last_ == 0 && kind_ != Client::kAnew) answer_heard_ += client_.read();
    return bytes > 0;
  }

  const Client kind_;
  const size_t step_;
  std::vector<Edit> edits_;
  Wire wire_;
  std::optional<test::TlsRandom> server_random_;
  test::TlsRandom client_random_{"client"};
  test::TlsClient client_{client_random_};
  std::vector<std::byte> input_ = std::vector<std::byte>(64 * 1024);
  std::vector<std::byte> output_ = std::vector<std::byte>(64 * 1024);
  TlsSession session_;
  Heard heard_;
  std::string answer_heard_;
  size_t answered_bytes_ = 0;
  int last_ = MBEDTLS_ERR_SSL_WANT_READ;  // what the client's handshake said
  bool has_spoken_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes == 0) return 0;
  const auto kind = static_cast<Client>(data[0] % 4);
  const size_t step = size_t{1} + data[0] / 4 * 37;
  const std::span<const uint8_t> rest(data + 1, bytes - 1);
  auto whole = std::make_unique<Conversation>(kind, rest, SIZE_MAX);
  const Heard heard = whole->run();
  require(whole->said.starts_with(heard.text), "what is read was said");
  require(whole->answered.starts_with(whole->answer_heard()), "what is heard was answered");
  require(kind != Client::kGarbage || !heard.is_established, "nothing is agreed with garbage");
  require(kind != Client::kAnew || !whole->is_intact() || heard.failure == TlsFailure::kProtocol,
          "nothing is agreed anew");
  if (whole->is_intact() && (kind == Client::kSharedKey || kind == Client::kCertificate)) {
    require(heard.has_ended && heard.text == whole->said, "all is read");
    require(whole->answer_heard() == whole->answered, "all is answered");
  }
  const Heard in_pieces = std::make_unique<Conversation>(kind, rest, step)->run();
  require(heard == in_pieces, "pieces are read as the whole");
  return 0;
}

}  // namespace bedplate
