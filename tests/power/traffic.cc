// Random requests to one volume from two connections at once, and a mark around each:
//
//     power-traffic unix:PATH|tcp:ADDRESS:PORT EXPORT MARKS SEED REQUESTS [without-fua]
//
// MARKS as in marks.h; `without-fua`: for a drive that ignores FUA of a write.
// `b:NUMBER:COMMAND:OFFSET:BYTES:FLAGS` comes before a request is sent, and `a:NUMBER` after it was
// answered without an error; an error ends the traffic with exit code 1. The bytes of a write
// identify its request (value_of). The commands: w write, z zeroes, t trim, f flush; the flags: u
// FUA, n NO_HOLE, - none.
//
// A volume is divided into slots of 8 KiB. Each belongs to one connection, which sends one request
// at a time to it: so the slot's contents are a sequence of versions. A write has no FUA if an
// earlier write of its slot was not flushed: dm-log-writes would log the earlier write after it.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "apps/blockd/nbd_wire.h"
#include "platform/units.h"
#include "tests/power/marks.h"

namespace bedplate::power {
namespace {

constexpr uint64_t kSlotBytes = 8 * kKiB;
constexpr uint64_t kSlotCount = 128;
constexpr uint64_t kSectorBytes = 512;
constexpr size_t kDepth = 4;

// The eight bytes that a write of this number repeats, aligned to the offsets of the volume.
uint64_t value_of(uint64_t number) { return number * 0x9e3779b97f4a7c15; }

struct Request {
  uint64_t number = 0;
  uint64_t slot = 0;
  uint64_t offset = 0;
  uint32_t bytes = 0;
  nbd::Command command = nbd::Command::kFlush;
  uint16_t flags = 0;
};

class Client {
 public:
  Client(const std::string& address, const std::string& name) : fd_(connected(address)) {
    nbd::Greeting greeting{};
    receive(&greeting, sizeof greeting);
    send_all(nbd::Be32(nbd::kClientFixedNewstyle | nbd::kClientNoZeroes));
    send_all(nbd::OptionHeader{nbd::kOptionMagic, nbd::Option::kGo,
                               static_cast<uint32_t>(name.size() + 6)});
    send_all(nbd::Be32(static_cast<uint32_t>(name.size())));
    send_bytes(name.data(), name.size());
    send_all(nbd::Be16(0));
    nbd::OptionReplyHeader reply{};
    do {
      receive(&reply, sizeof reply);
      std::vector<std::byte> data(reply.data_bytes.value());
      receive(data.data(), data.size());
    } while (reply.type.value() == nbd::OptionReplyType::kInfo);
    if (reply.type.value() != nbd::OptionReplyType::kAck) fail("asking for " + name);
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(const Request& request) {
    std::vector<std::byte> message(sizeof(nbd::RequestHeader));
    const nbd::RequestHeader header = {nbd::kRequestMagic, request.flags,  request.command,
                                       request.number,     request.offset, request.bytes};
    std::memcpy(message.data(), &header, sizeof header);
    if (request.command == nbd::Command::kWrite) {
      std::array<std::byte, 8> value{};
      nbd::store_be(value.data(), value_of(request.number));
      for (uint64_t i = 0; i < request.bytes; ++i)
        message.push_back(value[(request.offset + i) % value.size()]);
    }
    send_bytes(message.data(), message.size());
  }

  // Receives a reply. Returns the number of the request that it answers.
  uint64_t answer() {
    nbd::SimpleReply reply{};
    receive(&reply, sizeof reply);
    errno = static_cast<int>(reply.error.value());
    if (reply.magic.value() != nbd::kSimpleReplyMagic || errno != 0)
      fail("being answered to request " + std::to_string(reply.cookie.value()));
    return reply.cookie.value();
  }

 private:
  static int connected(const std::string& address) {
    const bool is_unix = address.starts_with("unix:");
    const int fd = socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un local{.sun_family = AF_UNIX, .sun_path = {}};
    sockaddr_in remote{};
    remote.sin_family = AF_INET;
    if (is_unix) {
      std::snprintf(local.sun_path, sizeof local.sun_path, "%s",
                    address.c_str() + std::strlen("unix:"));
    } else {
      const size_t host = std::strlen("tcp:"), port = address.rfind(':');
      inet_pton(AF_INET, address.substr(host, port - host).c_str(), &remote.sin_addr);
      remote.sin_port = htons(static_cast<uint16_t>(std::stoul(address.substr(port + 1))));
      const int one = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    const auto* to = is_unix ? reinterpret_cast<const sockaddr*>(&local)
                             : reinterpret_cast<const sockaddr*>(&remote);
    if (connect(fd, to, is_unix ? sizeof local : sizeof remote) != 0)
      fail("connecting to " + address);
    return fd;
  }

  template <typename T>
  void send_all(const T& message) {
    send_bytes(&message, sizeof message);
  }
  void send_bytes(const void* bytes, size_t count) {
    if (::send(fd_, bytes, count, MSG_NOSIGNAL) != static_cast<ssize_t>(count)) fail("sending");
  }
  void receive(void* bytes, size_t count) {
    errno = 0;
    if (count > 0 && recv(fd_, bytes, count, MSG_WAITALL) != static_cast<ssize_t>(count))
      fail("receiving");
  }

  int fd_;
};

// A connection's state of one of its slots.
struct Slot {
  bool is_busy = false;
  bool is_trimmed = false;  // by the last request: the content of a part is unknown
  uint64_t unflushed = 0;   // the last request that changed it and was not flushed
};

class Connection {
 public:
  Connection(const std::string& address, const std::string& name, Marks& marks,
             std::atomic<uint64_t>& next, uint64_t last, uint64_t first_slot, uint64_t seed,
             bool writes_with_fua)
      : client_(address, name),
        marks_(marks),
        next_(next),
        last_(last),
        first_slot_(first_slot),
        writes_with_fua_(writes_with_fua),
        dice_(seed) {}

  void run() {
    for (;;) {
      const uint64_t number = next_.fetch_add(1);
      if (number > last_) break;
      begin(number);
      while (in_flight_.size() >= kDepth || (!in_flight_.empty() && roll(3))) end_one();
    }
    while (!in_flight_.empty()) end_one();
  }

 private:
  // True once in `sides` times, at random.
  bool roll(uint64_t sides) { return below(sides) == 0; }
  uint64_t below(uint64_t end) { return dice_() % end; }

  void begin(uint64_t number) {
    Request request = roll(8) ? Request{} : on_a_slot();
    request.number = number;
    char text[128];
    std::snprintf(
        text, sizeof text, "b:%llu:%c:%llu:%u:%s%s%s", static_cast<unsigned long long>(number),
        letter(request.command), static_cast<unsigned long long>(request.offset), request.bytes,
        (request.flags & nbd::kCommandFlagFua) != 0 ? "u" : "",
        (request.flags & nbd::kCommandFlagNoHole) != 0 ? "n" : "", request.flags == 0 ? "-" : "");
    marks_.add(text);
    if (request.command == nbd::Command::kFlush) {
      // The flush covers the requests that have been answered by now.
      std::vector<uint64_t>& covered = flushes_[number];
      for (const Slot& slot : slots_) covered.push_back(slot.is_busy ? 0 : slot.unflushed);
    } else {
      Slot& slot = slots_[request.slot];
      slot.is_busy = true;
      slot.is_trimmed = request.command == nbd::Command::kTrim;
      slot.unflushed = number;
    }
    in_flight_[number] = request;
    client_.send(request);
  }

  static char letter(nbd::Command command) {
    switch (command) {
      case nbd::Command::kWrite: return 'w';
      case nbd::Command::kWriteZeroes: return 'z';
      case nbd::Command::kTrim: return 't';
      default: return 'f';
    }
  }

  Request on_a_slot() {
    uint64_t index = below(slots_.size());
    while (slots_[index].is_busy) index = below(slots_.size());
    const Slot& slot = slots_[index];
    Request request;
    request.slot = index;
    const uint64_t kind = below(10);
    request.command = kind < 6   ? nbd::Command::kWrite
                      : kind < 8 ? nbd::Command::kWriteZeroes
                                 : nbd::Command::kTrim;
    // After a trim the content of a part of a block is unknown.
    const bool is_whole = slot.is_trimmed || roll(2);
    const uint64_t unit = request.command == nbd::Command::kTrim || roll(2) ? kSectorBytes : 1;
    uint64_t begin = 0, end = kSlotBytes;
    if (!is_whole) {
      begin = below(kSlotBytes / unit) * unit;
      end = begin + (1 + below((kSlotBytes - begin) / unit)) * unit;
    }
    // Each connection has every second slot.
    request.offset = (index * 2 + first_slot_) * kSlotBytes + begin;
    request.bytes = static_cast<uint32_t>(end - begin);
    const bool may_last =
        request.command != nbd::Command::kWrite || (writes_with_fua_ && slot.unflushed == 0);
    if (may_last && roll(2)) request.flags |= nbd::kCommandFlagFua;
    if (request.command == nbd::Command::kWriteZeroes && roll(2))
      request.flags |= nbd::kCommandFlagNoHole;
    return request;
  }

  void end_one() {
    const uint64_t number = client_.answer();
    const auto found = in_flight_.find(number);
    if (found == in_flight_.end()) fail("looking for request " + std::to_string(number));
    marks_.add("a:" + std::to_string(number));
    const Request request = found->second;
    in_flight_.erase(found);
    if (request.command == nbd::Command::kFlush) {
      const std::vector<uint64_t>& covered = flushes_[number];
      for (size_t i = 0; i < slots_.size(); ++i)
        if (covered[i] != 0 && slots_[i].unflushed == covered[i]) slots_[i].unflushed = 0;
      flushes_.erase(number);
      return;
    }
    slots_[request.slot].is_busy = false;
    if ((request.flags & nbd::kCommandFlagFua) != 0) slots_[request.slot].unflushed = 0;
  }

  Client client_;
  Marks& marks_;
  std::atomic<uint64_t>& next_;
  const uint64_t last_;
  const uint64_t first_slot_;
  const bool writes_with_fua_;
  std::mt19937_64 dice_;
  std::array<Slot, kSlotCount / 2> slots_{};
  std::map<uint64_t, Request> in_flight_;
  std::map<uint64_t, std::vector<uint64_t>> flushes_;  // by number: unflushed request of each slot
};

}  // namespace
}  // namespace bedplate::power

int main(int count, char** words) {
  using namespace bedplate::power;
  const bool without_fua = count == 7 && std::string(words[6]) == "without-fua";
  if (count != 6 && !without_fua) {
    std::fprintf(stderr, "usage: %s ADDRESS EXPORT MARKS SEED REQUESTS [without-fua]\n", words[0]);
    return 2;
  }
  const std::string address = words[1], name = words[2];
  const uint64_t seed = std::strtoull(words[4], nullptr, 10);
  const uint64_t last = std::strtoull(words[5], nullptr, 10);
  Marks marks(words[3]);
  std::atomic<uint64_t> next = 1;
  std::vector<std::jthread> threads;
  for (uint64_t i = 0; i < 2; ++i)
    threads.emplace_back([&, i] {
      Connection(address, name, marks, next, last, i, seed * 2 + i, !without_fua).run();
    });
  threads.clear();
  std::printf("power-traffic: %llu requests\n", static_cast<unsigned long long>(last));
  return 0;
}
