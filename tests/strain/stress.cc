#include "tests/strain/stress.h"

#include <cinttypes>

#include "platform/clock.h"
#include "tests/strain/strained_group.h"

namespace bedplate::strain {

void stress_group(GroupKind kind, uint32_t process_count, uint64_t nanoseconds, uint64_t seed) {
  StrainedGroup group(strained_shape(kind, process_count), seed);
  group.start_own_traffic();
  std::vector<pid_t> peers;
  for (uint32_t i = 1; i < process_count; ++i) peers.push_back(group.start_peer());
  for (const pid_t pid : peers) group.wait_until_alive(pid);
  const timespec duration = {static_cast<time_t>(nanoseconds / kNsPerSecond),
                             static_cast<long>(nanoseconds % kNsPerSecond)};
  nanosleep(&duration, nullptr);
  group.settle();

  uint64_t sent = 0, heard = 0, bytes = 0, granted = 0, returned = 0;
  for (uint32_t from = 0; from < process_count; ++from) {
    const BoardRow& row = group.board().rows[from];
    bytes += row.sent_bytes.load();
    granted += row.boxes_granted.load();
    returned += row.boxes_returned.load();
    for (uint32_t to = 0; to < process_count; ++to) {
      const uint64_t sent_there = count_for(row.sent[to].load(), group.members().generation(to));
      const uint64_t heard_there = group.board().rows[to].heard[from].load();
      if (sent_there != heard_there) {
        fail("member %u sent %" PRIu64 " messages to member %u, which received %" PRIu64, from,
             sent_there, to, heard_there);
      }
      sent += sent_there;
      heard += heard_there;
    }
  }
  group.end(peers);
  group.end_own_traffic();
  if (sent < process_count * 100) fail("%" PRIu64 " messages are no stress", sent);
  std::printf("stress: %s, %2u processes: %" PRIu64 " messages sent, %" PRIu64 " received, %" PRIu64
              " MiB, %" PRIu64 " boxes given, %" PRIu64 " given back\n",
              to_text(kind), process_count, sent, heard, bytes / kMiB, granted, returned);
}

}  // namespace bedplate::strain
