// Sends or writes a generated transport stream with a moving picture
// (apps/examples/ts_generator.h), for users without one:
//
//     tsgen --to 127.0.0.1:5004 [--rtp] [--rate 4000000] [--seconds 60]
//     tsgen --file clip.ts --seconds 60 [--rate 4000000]
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string_view>

#include <netinet/in.h>
#include <sys/socket.h>

#include "apps/tsrelay/rtp_datapath.h"
#include "apps/examples/ts_generator.h"
#include "platform/clock.h"
#include "platform/text_words.h"
#include "transport/udp/udp_socket.h"

using namespace bedplate;
using namespace bedplate::relay;
namespace {

constexpr uint32_t kPacketsPerDatagram = 7;
constexpr uint32_t kPayloadBytes = kPacketsPerDatagram * kTsPacketBytes;

struct Wish {
  const char* to = nullptr;
  const char* file = nullptr;
  bool has_rtp = false;
  uint64_t bits_per_second = 4'000'000;
  uint64_t seconds = ~uint64_t{0};
};

int usage() {
  std::fputs("usage: tsgen --to ADDRESS:PORT [--rtp] [--rate BITS] [--seconds N]\n"
             "       tsgen --file PATH --seconds N [--rate BITS]\n",
             stderr);
  return 2;
}

int fail(const char* doing) {
  std::fprintf(stderr, "tsgen: %s: %s\n", doing, std::strerror(errno));
  return 1;
}

bool read(int count, char** words, Wish* wish) {
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    if (word == "--rtp") {
      wish->has_rtp = true;
      continue;
    }
    if (++i == count) return false;
    if (word == "--to") {
      wish->to = words[i];
    } else if (word == "--file") {
      wish->file = words[i];
    } else if (word == "--rate") {
      if (!parse_number(words[i], &wish->bits_per_second)) return false;
    } else if (word == "--seconds") {
      if (!parse_number(words[i], &wish->seconds)) return false;
    } else {
      return false;
    }
  }
  const bool is_endless = wish->seconds == ~uint64_t{0};
  return (wish->to == nullptr) != (wish->file == nullptr) &&
         (wish->file == nullptr || !is_endless) &&
         wish->bits_per_second >= TsGenerator::kBitsPerSecondMin;
}

int write_file(const Wish& wish, TsGenerator& generator) {
  std::FILE* file = std::fopen(wish.file, "wb");
  if (file == nullptr) return fail(wish.file);
  std::byte bytes[kPayloadBytes];
  while (generator.ns_of(generator.packet_count()) < wish.seconds * kNsPerSecond) {
    // As many packets as fill a datagram, so that the file can be sent whole.
    for (uint32_t i = 0; i < kPacketsPerDatagram; ++i) generator.next(bytes + i * kTsPacketBytes);
    if (std::fwrite(bytes, sizeof bytes, 1, file) != 1) return fail(wish.file);
  }
  return std::fclose(file) == 0 ? 0 : fail(wish.file);
}

void sleep_until(uint64_t ns) {
  const timespec time = {static_cast<time_t>(ns / kNsPerSecond),
                         static_cast<long>(ns % kNsPerSecond)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) == EINTR) {
  }
}

int send_stream(const Wish& wish, TsGenerator& generator) {
  auto address = parse_datagram_address(wish.to);
  if (!address.ok()) return usage();
  sockaddr_in6 name;
  const socklen_t name_bytes = to_kernel(address.value(), &name);
  const int fd = socket(address.value().ip.family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return fail("making a socket");
  std::byte datagram[kRtpHeaderBytes + kPayloadBytes];
  RtpPacket head;
  head.payload_type = kRtpTransportStream;
  head.ssrc = static_cast<uint32_t>(monotonic_ns());
  const size_t head_bytes = wish.has_rtp ? kRtpHeaderBytes : 0;
  const uint64_t begun_ns = monotonic_ns();
  for (;; ++head.sequence) {
    const uint64_t at_ns = generator.ns_of(generator.packet_count());
    if (at_ns / kNsPerSecond >= wish.seconds) return 0;
    head.timestamp = static_cast<uint32_t>(at_ns / 1000 * 9 / 100);
    if (wish.has_rtp) write_rtp(head, datagram);
    std::byte* payload = datagram + head_bytes;
    for (uint32_t i = 0; i < kPacketsPerDatagram; ++i) {
      generator.next(payload + i * kTsPacketBytes);
    }
    sleep_until(begun_ns + at_ns);
    const ssize_t sent = sendto(fd, datagram, head_bytes + kPayloadBytes, 0,
                                reinterpret_cast<sockaddr*>(&name), name_bytes);
    // The receiver may not be running yet.
    if (sent < 0 && errno != ECONNREFUSED) return fail(wish.to);
  }
}

}  // namespace
int main(int count, char** words) {
  Wish wish;
  if (!read(count, words, &wish)) return usage();
  static TsGenerator generator(wish.bits_per_second);
  return wish.file != nullptr ? write_file(wish, generator) : send_stream(wish, generator);
}
