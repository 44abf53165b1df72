// Measures the memory of messages with many processes that really joined. Prints JSON in the format
// of `bedplate plan --fifo --json`, with the measured values.
//
//     joined_memory lazy|mesh MEMBERS HEARD
//
// HEARD: each member then receives from this many others, enough messages from each to give the
// pair a box, and the memory for that is measured, too; 0: nothing is sent. The processes are
// forked from a process without the pool; each joins through the socket and makes its provider.
#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <malloc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pinned_pool/join/join_server.h"
#include "pinned_pool/join/joined_pool.h"
#include "platform/clock.h"
#include "transport/messages/messenger.h"
#include "transport/shm/endpoint/shm_provider.h"
#include "transport/shm/membership/group_keeper.h"

using namespace bedplate;

namespace {

constexpr uint32_t kMemberMax = 1024;
constexpr AmId kData = 1;
constexpr uint64_t kPatienceNs = 300 * kNsPerSecond;

// Words shared between the processes and their starter; not part of the pool.
struct Control {
  std::atomic<uint32_t> may_start;
  std::atomic<uint32_t> joined;
  std::atomic<uint32_t> may_send;
  std::atomic<uint32_t> heard_all;
  std::atomic<uint32_t> failed;
  std::atomic<uint64_t> private_bytes[kMemberMax];
  char text[256];
};

Control* control;
uint32_t heard_count;
char socket_path[64];

[[noreturn]] void fail(const char* doing, const Error& error) {
  std::fprintf(stderr, "joined_memory: %s: %s: %s; %s\n", doing, error.doing, error.answer,
               error.cure);
  if (control != nullptr) control->failed.fetch_add(1);
  _exit(1);
}

template <typename T>
T take(const char* doing, Result<T> result) {
  if (!result.ok()) fail(doing, result.error());
  return result.take();
}

void await(const char* what, const std::function<bool()>& is_there) {
  const uint64_t deadline_ns = monotonic_ns() + kPatienceNs;
  while (!is_there()) {
    if (control->failed.load() > 0 || monotonic_ns() > deadline_ns) {
      std::fprintf(stderr, "joined_memory: waiting for %s: it did not happen\n", what);
      std::exit(1);
    }
    usleep(500);
  }
}

uint64_t allocated_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// ---- One process ----

struct Own {
  Messenger messenger;
  ShmProvider shm;
  uint64_t received = 0;
};

void send_to_others(Own& own, uint32_t self, const GroupShape& shape) {
  const uint32_t messages = shape.send_threshold + 1;
  const uint64_t wanted = uint64_t{heard_count} * messages;
  uint32_t sent[kMemberMax] = {};
  for (uint32_t done = 0; done < heard_count || own.received < wanted;) {
    const uint64_t before = own.received + done;
    done = 0;
    for (uint32_t i = 0; i < heard_count; ++i) {
      const uint32_t peer = (self + 1 + i) % shape.member_count;
      auto endpoint = own.messenger.connect({peer});
      if (!endpoint.ok()) fail("sending", endpoint.error());
      while (sent[i] < messages && endpoint.value()->am_send(kData, {}) == SendStatus::kDone) {
        ++sent[i];
      }
      done += sent[i] == messages;
      own.messenger.poll(256);
    }
    if (own.received + done == before) own.messenger.wait(10 * kNsPerMs);
  }
}

[[noreturn]] void be_member() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  JoinOptions options;
  options.socket_path = socket_path;
  options.process = "member";
  options.timeout_ns = kPatienceNs;
  auto joined = JoinedPool::join(options);
  if (!joined.ok()) fail("joining", joined.error());
  JoinedPool& pool = joined.value();
  GroupShape shape;
  std::memcpy(&shape, pool.layout().data(), sizeof shape);
  const auto self = static_cast<uint32_t>(pool.members()[0].index);
  const uint64_t before = allocated_bytes();
  auto own = std::make_unique<Own>();
  ShmProviderOptions shm;
  shm.segment =
      take("attaching", GroupSegment::attach(pool.fifo().memory(), shape, pool.pool_id()));
  shm.members = &pool.table();
  shm.member = self;
  own->messenger.set_handler(kData, {[](void* context, const Message&) noexcept {
                                       ++static_cast<Own*>(context)->received;
                                     },
                                     own.get()});
  if (auto made = own->shm.create(shm, own->messenger.dispatcher()); !made.ok()) {
    fail("making a provider", made.error());
  }
  own->messenger.add_provider(own->shm);
  control->private_bytes[self].store(allocated_bytes() - before);
  if (auto ready = pool.ready(); !ready.ok()) fail("being ready", ready.error());
  control->joined.fetch_add(1);
  while (control->may_send.load() == 0) own->messenger.wait(100 * kNsPerMs);
  send_to_others(*own, self, shape);
  control->private_bytes[self].store(allocated_bytes() - before);
  control->heard_all.fetch_add(1);
  for (;;) own->messenger.wait(100 * kNsPerMs);
}

// Forks the members on demand, and ends them when it is itself ended.
pid_t start_starter(uint32_t count) {
  const pid_t starter = fork();
  if (starter != 0) return starter;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (control->may_start.load() == 0) usleep(200);
  for (uint32_t i = 0; i < count; ++i) {
    if (fork() == 0) be_member();
  }
  while (wait(nullptr) > 0) {
  }
  _exit(0);
}

// ---- The owner ----

uint64_t block_bytes(const Segment& segment) {
  struct stat status = {};
  fstat(segment.memfd, &status);
  return static_cast<uint64_t>(status.st_blocks) * 512;
}

uint64_t page_table_bytes(pid_t starter) {
  uint64_t kib = 0;
  char command[160];
  std::snprintf(command, sizeof command,
                "for p in $(ps -o pid= --ppid %d); do cat /proc/$p/status; done | "
                "awk '/^VmPTE/ {s += $2} END {print s}'",
                starter);
  std::FILE* pipe = popen(command, "r");
  if (std::fscanf(pipe, "%" SCNu64, &kib) != 1) kib = 0;
  pclose(pipe);
  return kib * kKiB;
}

uint64_t private_bytes() {
  uint64_t bytes = 0;
  for (const auto& each : control->private_bytes) bytes += each.load();
  return bytes;
}

void print_parts(const GroupLayout& layout, const Segment& fifo, const Segment& members) {
  std::printf("\"parts\": [");
  uint64_t total = 0;
  for (uint32_t i = 0; i < static_cast<uint32_t>(GroupPart::kCount); ++i) {
    const auto part = static_cast<GroupPart>(i);
    if (layout.part_bytes(part) == 0) continue;
    std::printf("{\"part\": \"%s\", \"bytes\": %" PRIu64 "}, ", to_text(part),
                layout.part_bytes(part));
    total += layout.part_bytes(part);
  }
  const uint64_t blocks = block_bytes(fifo) + block_bytes(members);
  std::printf("{\"part\": \"members table\", \"bytes\": %" PRIu64 "}, ", members.bytes);
  std::printf("{\"part\": \"rest of the last page\", \"bytes\": %" PRIu64 "}, ",
              blocks - total - members.bytes);
  std::printf("{\"part\": \"private to each process\", \"bytes\": %" PRIu64 "}], ",
              private_bytes());
  std::printf("\"total_bytes\": %" PRIu64, blocks + private_bytes());
}

uint32_t boxes_given(const GroupSegment& segment) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < segment.shape().box_count; ++i) count += segment.box_owner(i) != 0;
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: joined_memory lazy|mesh MEMBERS HEARD\n");
    return 2;
  }
  GroupShape shape;
  shape.kind = std::strcmp(argv[1], "mesh") == 0 ? GroupKind::kMesh : GroupKind::kLazy;
  shape.member_count = static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10));
  heard_count = static_cast<uint32_t>(std::strtoul(argv[3], nullptr, 10));
  if (shape.kind == GroupKind::kMesh) {
    shape.entry_count = 16;
    shape.eager_count = 1;
    shape.loan_count = 64;
  } else {
    shape.box_count = default_box_count(shape.member_count);
  }
  if (shape.member_count < 2 || shape.member_count > kMemberMax ||
      heard_count >= shape.member_count) {
    std::fprintf(stderr, "joined_memory: MEMBERS is 2..%u, HEARD less than that\n", kMemberMax);
    return 2;
  }
  const rlimit files = {16384, 16384};
  setrlimit(RLIMIT_NOFILE, &files);
  std::snprintf(socket_path, sizeof socket_path, "/tmp/bedplate-memory-%d.sock", getpid());
  control = static_cast<Control*>(
      mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const pid_t starter = start_starter(shape.member_count - 1);

  PinnedPool& pool = process_pool();
  const GroupLayout layout(shape);
  take("making segment 0", pool.create_segment("boot", 64 * kKiB, PageSize::k4KiB, 1));
  Segment& members =
      *take("making the members table",
            pool.create_segment("members",
                                align_up(MembersTable::bytes_for(shape.member_count), 4 * kKiB),
                                PageSize::k4KiB, 1));
  Segment& fifo = *take(
      "making the group",
      pool.create_segment("fifo:all", align_up(layout.bytes(), 2 * kMiB), PageSize::k2MiB, 2));
  const uint64_t begin_ns = monotonic_ns();
  const PoolId pool_id = make_pool_id().take();
  MembersTable* table = MembersTable::create(members.memory(), shape.member_count, pool_id);
  const GroupSegment segment = GroupSegment::create(fifo.memory().first(layout.bytes()), shape,
                                                    pool_id, BellFence::kSleeper);
  ShmGroupKeeper keeper(segment, *table);
  JoinServerOptions options;
  options.socket_path = socket_path;
  options.pool_id = pool_id;
  options.groups = {{"all", table, std::as_bytes(std::span(&shape, 1)), &fifo, &keeper}};
  options.grants = {{.name = MemberName("member"), .max_count = shape.member_count - 1}};
  auto server = take("serving", JoinServer::create(std::move(options)));
  server->add_own_member(0, MemberName("owner"));
  if (auto started = server->start(); !started.ok()) fail("serving", started.error());
  if (auto serving = server->serve(); !serving.ok()) fail("serving", serving.error());
  auto own = std::make_unique<Own>();
  ShmProviderOptions shm;
  shm.segment = segment;
  shm.members = table;
  own->messenger.set_handler(kData, {[](void* context, const Message&) noexcept {
                                       ++static_cast<Own*>(context)->received;
                                     },
                                     own.get()});
  if (!own->shm.create(shm, own->messenger.dispatcher()).ok()) return 1;
  own->messenger.add_provider(own->shm);
  control->may_start.store(1);
  await("everybody to join", [&] { return control->joined.load() == shape.member_count - 1; });
  await("everybody to be alive", [&] {
    for (uint32_t i = 0; i < shape.member_count; ++i) {
      if (table->state(i) != MemberState::kAlive) return false;
    }
    return true;
  });
  const uint64_t setup_ns = monotonic_ns() - begin_ns;
  std::printf("{\"layout\": \"%s\", \"members\": %u, \"setup_s\": %.3f, ", argv[1],
              shape.member_count, static_cast<double>(setup_ns) / 1e9);
  print_parts(layout, fifo, members);
  std::printf(", \"page_tables_bytes\": %" PRIu64, page_table_bytes(starter));
  if (heard_count > 0) {
    const uint64_t before = private_bytes();
    control->may_send.store(1);
    send_to_others(*own, 0, shape);
    control->heard_all.fetch_add(1);
    await("everybody to hear from others", [&] {
      own->messenger.poll(256);
      return control->heard_all.load() == shape.member_count;
    });
    const uint32_t boxes = boxes_given(segment);
    std::printf(", \"heard\": %u, \"boxes_given\": %u, \"box_bytes\": %" PRIu64
                ", \"private_growth_bytes\": %" PRIu64,
                heard_count, boxes, uint64_t{boxes} * shape.box_bytes, private_bytes() - before);
  }
  std::printf("}\n");
  server->stop();
  kill(starter, SIGKILL);
  waitpid(starter, nullptr, 0);
  unlink(socket_path);
  return 0;
}
