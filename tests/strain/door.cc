#include "tests/strain/door.h"

#include <algorithm>
#include <cinttypes>
#include <deque>

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "pinned_pool/join/join_protocol.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "tests/strain/strained_group.h"
#include "tests/support/patience.h"
#include "tests/support/pool_fixture.h"

namespace bedplate::strain {
namespace {

constexpr uint32_t kHonestCount = 4;  // including the owner
constexpr uint32_t kFlooderCount = 2;
using test::kPatienceNs;
constexpr uid_t kStranger = 65534;

Fd connect_to(const char* path) {
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  if (connect(socket.number(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return {};
  }
  return socket;
}

// The file behind memory that this process has mapped.
Fd file_of(const Segment& segment) {
  char path[96];
  const auto begin = reinterpret_cast<uintptr_t>(segment.address);
  std::snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", begin, begin + segment.bytes);
  return Fd(open(path, O_RDWR | O_CLOEXEC));
}

// Tries all seals, among them one against writes by the next joiner.
void seal(const Segment& segment) {
  const Fd file = file_of(segment);
  for (const int kind :
       {F_SEAL_FUTURE_WRITE, F_SEAL_WRITE, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL}) {
    fcntl(file.number(), F_ADD_SEALS, kind);
  }
}

void punch(const Segment& segment) {
  fallocate(file_of(segment).number(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
            static_cast<off_t>(segment.bytes));
}

class Door {
 public:
  explicit Door(uint64_t seed)
      : group_(strained_shape(GroupKind::kLazy, kHonestCount + 2), seed), random_(seed) {
    StrainedGroup::seal_pool();
  }

  void run(uint64_t nanoseconds);

 private:
  void start_honest();
  void start_rude(const char* role) { rude_.push_back(group_.start_peer(role)); }
  void kill_one();

  StrainedGroup group_;
  std::mt19937_64 random_;
  std::vector<pid_t> honest_;
  std::vector<pid_t> rude_;
  uint64_t longest_join_ns_ = 0;
  uint64_t longest_death_ns_ = 0;
  uint32_t rounds_ = 0;
};

void Door::start_honest() {
  const uint64_t begin = monotonic_ns();
  honest_.push_back(group_.start_peer());
  group_.wait_until_alive(honest_.back());
  longest_join_ns_ = std::max(longest_join_ns_, monotonic_ns() - begin);
}

// Kills a member. The others must be notified, and the member's slot must become free.
void Door::kill_one() {
  const size_t index = random_() % honest_.size();
  const pid_t pid = honest_[index];
  honest_.erase(honest_.begin() + static_cast<std::ptrdiff_t>(index));
  const uint32_t member = group_.wait_until_alive(pid);
  ::kill(pid, SIGKILL);
  if (const int status = StrainedGroup::status_of(pid); status != -SIGKILL) {
    fail("process %d ended with %d before it was killed", pid, status);
  }
  const auto is_in = [&](MemberState state) { return group_.members().state(member) == state; };
  const uint64_t took = time_until([&] { return !is_in(MemberState::kAlive); }, kPatienceNs);
  if (took == UINT64_MAX) fail("nobody was told of a death");
  longest_death_ns_ = std::max(longest_death_ns_, took);
  if (time_until([&] { return is_in(MemberState::kFree); }, kPatienceNs) == UINT64_MAX) {
    fail("the place of a dead member does not become free");
  }
}

void Door::run(uint64_t nanoseconds) {
  group_.start_own_traffic();
  while (honest_.size() + 1 < kHonestCount) start_honest();
  for (uint32_t i = 0; i < kFlooderCount; ++i) start_rude("flooder");
  start_rude("sealer");
  group_.wait_until_alive(rude_.back());
  for (const uint64_t until = monotonic_ns() + nanoseconds; monotonic_ns() < until; ++rounds_) {
    kill_one();
    start_honest();
  }
  for (const pid_t pid : rude_) {
    ::kill(pid, SIGKILL);
    if (const int status = StrainedGroup::status_of(pid); status != -SIGKILL) {
      fail("a rude process ended with %d by itself", status);
    }
  }
  if (time_until([&] { return group_.taken_count() == kHonestCount; }, kPatienceNs) == UINT64_MAX) {
    fail("a rude member's place does not become free");
  }
  group_.settle();
  uint64_t received = 0;
  for (const BoardRow& row : group_.board().rows) received += row.received.load();
  group_.end(honest_);
  group_.end_own_traffic();
  std::printf("door: %u rounds beside a flood, seals and holes: %" PRIu64 " messages verified, a "
              "death was told within %" PRIu64 " ms, a new member came within %" PRIu64 " ms\n",
              rounds_, received, longest_death_ns_ / kNsPerMs, longest_join_ns_ / kNsPerMs);
}

}  // namespace

// Runs as another user, which may not join. Connects, and then sends nothing, nonsense, or a
// request that is refused.
int be_flooder(const char* socket_path, uint64_t seed) {
  if (setgroups(0, nullptr) == 0 && setresgid(kStranger, kStranger, kStranger) == 0 &&
      setresuid(kStranger, kStranger, kStranger) != 0) {
    fail("this process remains root");
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::mt19937_64 random(seed);
  std::deque<Fd> silent;
  join::Request request;
  request.pool_base = test::kTestPoolBase;
  request.process = MemberName("peer");
  std::byte nonsense[512];
  fill(nonsense, seed);
  for (;;) {
    Fd socket = connect_to(socket_path);
    switch (random() % 4) {
      case 0: break;
      case 1:
        silent.push_back(std::move(socket));
        if (silent.size() > 100) silent.pop_front();
        break;
      case 2: join::send_packet(socket.number(), nonsense, random() % sizeof nonsense); break;
      default: join::send_packet(socket.number(), &request, sizeof request); break;
    }
  }
}

// Runs a member that polls like others, but seals the group's memory and its own, and punches holes
// in its own.
int be_sealer(const char* socket_path, uint64_t) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  JoinedGroup group = join_group(socket_path);
  static Messenger messenger;
  static ShmProvider shm;
  if (auto created = shm.create(group.shm, messenger.dispatcher()); !created.ok()) {
    fail("%s: %s", created.error().doing, created.error().answer);
  }
  messenger.add_provider(shm);
  if (!group.pool.ready().ok()) fail("not ready");
  seal(group.pool.fifo());
  seal(*group.pool.own_heap());
  for (uint64_t round = 0;; ++round) {
    if (messenger.poll(64) == 0) messenger.wait(kNsPerMs);
    if (round % 64 == 0) punch(*group.pool.own_heap());
  }
}

void strain_door(uint64_t nanoseconds, uint64_t seed) {
  set_log_level(LogLevel::kError);
  Door(seed).run(nanoseconds);
}

}  // namespace bedplate::strain
