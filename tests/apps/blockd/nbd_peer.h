// A small NBD client for tests. Every wait has a time limit. It also receives while it sends, so
// that neither side can block the other. It finds outstanding requests by their cookies.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "platform/clock.h"
#include "platform/file.h"
#include "tests/apps/blockd/nbd_reference.h"
#include "tests/support/patience.h"

namespace bedplate::test {

enum : uint16_t { kRead = 0, kWrite = 1, kDisc = 2, kFlush = 3, kTrim = 4, kWriteZeroes = 6 };

struct PeerReply {
  uint64_t cookie = 0;
  uint32_t error = 0;
  std::string data;  // of a READ
};

class NbdPeer {
 public:
  NbdPeer() = default;
  explicit NbdPeer(Fd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.number(); }
  bool is_connected() const { return fd_.is_open(); }
  void close() { fd_.close(); }
  // Closes with a reset instead of an orderly end.
  void reset() {
    const linger at_once = {1, 0};
    setsockopt(fd_.number(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    fd_.close();
  }
  size_t outstanding_count() const { return outstanding_.size(); }

  // ---- Bytes ----

  void queue(std::string_view bytes) { out_ += bytes; }

  // Sends and receives once, as far as possible; waits at most 100 ms. Returns whether the stream
  // is still open.
  bool pump() {
    pollfd event = {fd_.number(), static_cast<short>(POLLIN | (out_.empty() ? 0 : POLLOUT)), 0};
    ::poll(&event, 1, 100);
    if (!out_.empty() && (event.revents & POLLOUT) != 0) {
      const ssize_t sent =
          ::send(fd_.number(), out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent > 0) out_.erase(0, static_cast<size_t>(sent));
      if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        out_.clear();
        is_ended_ = true;
      }
    }
    if ((event.revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
      char bytes[65536];
      const ssize_t got = recv(fd_.number(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (got > 0) in_.append(bytes, static_cast<size_t>(got));
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) is_ended_ = true;
    }
    return !is_ended_;
  }
  bool flush() {
    const uint64_t end = monotonic_ns() + kPatienceNs;
    while (!out_.empty() && monotonic_ns() < end && pump()) {
    }
    return out_.empty() && !is_ended_;
  }
  bool say(std::string_view bytes) {
    queue(bytes);
    return flush();
  }
  // Returns the next `count` bytes, or fewer if the stream ends or the time is up.
  std::string hear(size_t count) {
    const uint64_t end = monotonic_ns() + kPatienceNs;
    while (in_.size() < count && monotonic_ns() < end && pump()) {
    }
    std::string heard = in_.substr(0, count);
    in_.erase(0, heard.size());
    return heard;
  }
  // Whether the server ends the stream and sends nothing more.
  bool hears_the_end() {
    const uint64_t end = monotonic_ns() + kPatienceNs;
    while (in_.empty() && monotonic_ns() < end && pump()) {
    }
    return in_.empty() && is_ended_;
  }
  // Waits until the server has received all bytes sent. Returns whether it has. Requires: a Unix
  // socket.
  bool is_taken() {
    const uint64_t end = monotonic_ns() + kPatienceNs;
    int left = 1;
    while (ioctl(fd_.number(), TIOCOUTQ, &left) == 0 && left != 0 && monotonic_ns() < end) {
      sched_yield();
    }
    return left == 0;
  }

  // ---- NBD ----

  // Negotiates up to the transmission. Returns the size of the export; 0: it failed.
  uint64_t negotiate(bool structured = false, std::string_view name = "") {
    using namespace nbd_reference;
    if (hear(18) != "NBDMAGICIHAVEOPT" + be(3, 2)) return 0;
    queue(be(3, 4));
    if (structured) {
      if (!say(option(8, ""))) return 0;
      if (hear(20) != be(0x3e889045565a9, 8) + be(8, 4) + be(1, 4) + be(0, 4)) return 0;
    }
    structured_ = structured;
    if (!say(option(7, info_data(name)))) return 0;
    const std::string answer = hear(32 + 20);
    if (answer.size() != 52 || number_at(answer, 12, 4) != 3) return 0;
    flags = static_cast<uint16_t>(number_at(answer, 30, 2));
    return number_at(answer, 22, 8);
  }
  uint16_t flags = 0;  // of the export

  // Queues a request. Returns its cookie.
  uint64_t ask(uint16_t command, uint64_t offset, uint32_t length, std::string_view payload = {},
               uint16_t command_flags = 0) {
    const uint64_t cookie = next_cookie_++;
    queue(nbd_reference::request(command_flags, command, cookie, offset, length));
    queue(payload);
    if (command != kDisc) outstanding_[cookie] = {command, offset, length};
    return cookie;
  }

  // Receives the next reply. Returns false if the stream ends, the time is up, or the reply is not
  // valid.
  bool next_reply(PeerReply& reply) {
    using nbd_reference::number_at;
    if (!flush()) return false;
    const std::string head = hear(16);
    if (head.size() != 16) return false;
    reply = {};
    reply.cookie = number_at(head, 8, 8);
    const auto found = outstanding_.find(reply.cookie);
    if (found == outstanding_.end()) return false;
    const Asked asked = found->second;
    outstanding_.erase(found);
    const bool is_chunk = structured_ && asked.command == kRead;
    if (number_at(head, 0, 4) != (is_chunk ? 0x668e33ef : 0x67446698)) return false;
    if (!is_chunk) {
      reply.error = static_cast<uint32_t>(number_at(head, 4, 4));
      if (asked.command == kRead && reply.error == 0) reply.data = hear(asked.length);
      return asked.command != kRead || reply.error != 0 || reply.data.size() == asked.length;
    }
    const std::string length_bytes = hear(4);
    if (length_bytes.size() != 4 || number_at(head, 4, 2) != 1) return false;
    const std::string payload = hear(number_at(length_bytes, 0, 4));
    const uint64_t type = number_at(head, 6, 2);
    if (type == 0x8001 && payload.size() == 6) {
      reply.error = static_cast<uint32_t>(number_at(payload, 0, 4));
      return reply.error != 0;
    }
    if (type != 1 || payload.size() != asked.length + 8) return false;
    reply.data = payload.substr(8);
    return number_at(payload, 0, 8) == asked.offset;
  }

  // Sends one request and receives its reply. Returns the error of the reply; kNoReply: there was
  // no valid reply.
  static constexpr uint32_t kNoReply = ~uint32_t{0};
  uint32_t do_one(uint16_t command, uint64_t offset, uint32_t length, std::string_view payload = {},
                  uint16_t command_flags = 0) {
    const uint64_t cookie = ask(command, offset, length, payload, command_flags);
    PeerReply reply;
    if (!next_reply(reply) || reply.cookie != cookie) return kNoReply;
    last_data = reply.data;
    return reply.error;
  }
  std::string last_data;  // of do_one's READ

  // Whether a range reads as `expected`.
  bool reads(uint64_t offset, std::string_view expected) {
    return do_one(kRead, offset, static_cast<uint32_t>(expected.size())) == 0 &&
           last_data == expected;
  }

 private:
  struct Asked {
    uint16_t command = 0;
    uint64_t offset = 0;
    uint32_t length = 0;
  };

  Fd fd_;
  bool is_ended_ = false;
  bool structured_ = false;
  std::string out_;
  std::string in_;
  uint64_t next_cookie_ = 0x1122334455660000;
  std::map<uint64_t, Asked> outstanding_;
};

}  // namespace bedplate::test
