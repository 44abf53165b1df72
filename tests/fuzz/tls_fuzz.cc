// Fuzz target of TLS: a client's bytes are changed on their way to a session, or are no TLS at all.
//
// The first byte chooses the client and the size of the parts. The other bytes are edits of four
// bytes each (Edit), or the bytes of a client that sends garbage. Each side's random numbers are
// fixed, and the clock stands still, so an input gives the same result each time. `make fuzz-run`
// builds and runs this.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
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

#include <openssl/rand.h>

// A clock that stands still. The library checks certificates with it, and sends the time.
extern "C" time_t time(time_t* now) noexcept {
  constexpr time_t kNow = 1'780'000'000;
  if (now != nullptr) *now = kNow;
  return kNow;
}

namespace bedplate {

// Stubs: there is no pool here.
Result<HeapOwner> heap_owner(const OwnerName&) noexcept { return HeapOwner{}; }
HeapOwner enter_heap_owner(HeapOwner owner) noexcept { return owner; }

namespace {

using Outcome = TlsSession::Outcome;

void require(bool kept, const char* what) {
  if (kept) return;
  std::fprintf(stderr, "tls_fuzz: broken promise: %s\n", what);
  std::abort();
}

// The random numbers of one side, so that they do not depend on the parts of the other side's data.
struct Numbers;
Numbers* numbers = nullptr;  // of the side that runs
struct Numbers {
  explicit Numbers(uint64_t seed) : state(seed) { numbers = this; }

  uint64_t state;
};

// splitmix64
int next_bytes(unsigned char* bytes, int count) {
  for (int i = 0; i < count; ++i) {
    uint64_t mixed = numbers->state += 0x9e3779b97f4a7c15;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
    bytes[i] = static_cast<unsigned char>(mixed ^ mixed >> 31);
  }
  return 1;
}

// Replaces the random numbers of the library.
void set_random_numbers() {
  static const RAND_METHOD method = {.seed = nullptr,
                                     .bytes = &next_bytes,
                                     .cleanup = nullptr,
                                     .add = nullptr,
                                     .pseudorand = &next_bytes,
                                     .status = [] { return 1; }};
  require(prepare_tls_library() && RAND_set_rand_method(&method) == 1, "numbers are known");
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
  Numbers own{1};
  bool is_set = (set_random_numbers(), true);
  test::TestCertificate authority{"authority", {.is_authority = true}};
  test::TestCertificate server{"localhost", {.issuer = &authority}};
  test::TestCertificate client{"client", {.issuer = &authority}};
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

// A change at byte number `at` of all bytes of the client.
struct Edit {
  enum class Kind { kFlip, kDrop, kRepeat, kClose };
  Kind kind;
  uint32_t at;
  uint8_t value;  // the bits to flip, the number of bytes to drop, or of further copies
};

std::vector<Edit> edits_of(std::span<const uint8_t> bytes) {
  std::vector<Edit> edits;
  for (; bytes.size() >= 4 && edits.size() < 16; bytes = bytes.subspan(4)) {
    const auto at = static_cast<uint32_t>(bytes[1] | bytes[2] << 8);
    edits.push_back({static_cast<Edit::Kind>(bytes[0] % 4), at, bytes[3]});
  }
  return edits;
}

// The bytes from the client to the session.
class Wire {
 public:
  explicit Wire(std::span<const Edit> edits) : edits_(edits) {}

  void add(std::string_view bytes) {
    for (char byte : bytes) add(byte);
  }
  void close() { is_closed_ = true; }

  // Delivers at most `step` bytes that are in flight. After the last byte, reports the end once.
  bool bring(TlsSession& session, size_t step) {
    const auto room = session.input_room();
    if (room.empty()) return false;
    const size_t bytes = std::min({step, room.size(), in_flight_.size()});
    if (bytes == 0 && (!is_closed_ || has_told_end_)) return false;
    std::memcpy(room.data(), in_flight_.data(), bytes);
    in_flight_.erase(0, bytes);
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
    if (!is_closed_) in_flight_.append(count, byte);
  }

  std::span<const Edit> edits_;
  std::string in_flight_;
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

// Reads all that has arrived.
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

// Clients use TLS 1.3, or TLS 1.2 if the name ends with 12.
enum class Client {
  kGarbage,
  kSharedKey,
  kCertificate,
  kNewKeys,  // changes its keys, and continues
  kSharedKey12,
  kCertificate12,
  kAnew12,  // tries to renegotiate
  kNewKeysForEver,
};
constexpr unsigned kClientCount = 8;

constexpr bool is_of_12(Client kind) {
  return kind == Client::kSharedKey12 || kind == Client::kCertificate12 || kind == Client::kAnew12;
}

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
    numbers = &server_numbers_;
    session_.begin(peers().credentials, input_, output_);
    if (kind == Client::kGarbage) {
      edits_.clear();
      wire_ = Wire(edits_);
      wire_.add({reinterpret_cast<const char*>(rest.data()), rest.size()});
      wire_.close();
      return;
    }
    numbers = &client_numbers_;
    client_.speak(is_of_12(kind) ? TLS1_2_VERSION : TLS1_3_VERSION);
    if (kind == Client::kCertificate || kind == Client::kCertificate12) {
      client_.show(peers().client);
    } else {
      client_.share("alice", test::kSharedKey);
      client_.offer("ECDHE-PSK-CHACHA20-POLY1305");
    }
    client_.start();
  }

  Heard run() {
    for (bool moves = true; moves;) {
      moves = speak();
      moves = wire_.bring(session_, step_) || moves;
      numbers = &server_numbers_;
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
    numbers = &client_numbers_;
    if (last_ == SSL_ERROR_WANT_READ) last_ = client_.handshake();
    if (last_ == SSL_ERROR_NONE && !has_spoken_) {
      has_spoken_ = true;
      client_.write(std::string_view(said).substr(0, 100));
      if (kind_ == Client::kNewKeys) client_.change_keys();
      for (int i = 0; i < 100 && kind_ == Client::kNewKeysForEver; ++i) client_.change_keys();
      client_.write(std::string_view(said).substr(100));
      if (kind_ == Client::kAnew12) client_.renegotiate();
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
    if (last_ == SSL_ERROR_NONE && kind_ != Client::kAnew12) answer_heard_ += client_.read();
    return bytes > 0;
  }

  const Client kind_;
  const size_t step_;
  std::vector<Edit> edits_;
  Wire wire_;
  Numbers server_numbers_{2};
  Numbers client_numbers_{3};
  test::TlsClient client_;
  std::vector<std::byte> input_ = std::vector<std::byte>(64 * 1024);
  std::vector<std::byte> output_ = std::vector<std::byte>(64 * 1024);
  TlsSession session_;
  Heard heard_;
  std::string answer_heard_;
  size_t answered_bytes_ = 0;
  int last_ = SSL_ERROR_WANT_READ;  // the last result of the client's handshake
  bool has_spoken_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes == 0) return 0;
  const auto kind = static_cast<Client>(data[0] % kClientCount);
  const size_t step = size_t{1} + data[0] / kClientCount * 73;
  const std::span<const uint8_t> rest(data + 1, bytes - 1);
  auto whole = std::make_unique<Conversation>(kind, rest, SIZE_MAX);
  const Heard heard = whole->run();
  require(whole->said.starts_with(heard.text), "what is read was said");
  require(whole->answered.starts_with(whole->answer_heard()), "what is heard was answered");
  require(kind != Client::kGarbage || !heard.is_established, "nothing is agreed with garbage");
  const bool is_hostile = kind == Client::kAnew12 || kind == Client::kNewKeysForEver;
  require(!is_hostile || !whole->is_intact() || heard.failure != TlsFailure::kNone,
          "nothing is agreed anew, nor for ever");
  if (whole->is_intact() && !is_hostile && kind != Client::kGarbage) {
    require(heard.has_ended && heard.text == whole->said, "all is read");
    require(whole->answer_heard() == whole->answered, "all is answered");
  }
  const Heard in_pieces = std::make_unique<Conversation>(kind, rest, step)->run();
  require(heard == in_pieces, "pieces are read as the whole");
  return 0;
}

}  // namespace bedplate
