#include "tests/strain/strained_group.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/patience.h"
#include "tests/support/pool_fixture.h"

extern char** environ;

namespace bedplate::strain {
namespace {

using test::kPatienceNs;
constexpr char kProcessName[] = "peer";
constexpr int kGroupCountMax = 3;  // of one owner

// The socket of group `number` of the process `owner`, which may own several groups.
std::string socket_path(pid_t owner, int number) {
  return "/tmp/bedplate-strain-" + std::to_string(owner) + "-" + std::to_string(number) + ".sock";
}

// The pool, at the same address in all processes. Its segments are never given back.
PinnedPool& strained_pool() {
  static PinnedPool pool(test::kTestPoolBase);
  return pool;
}

}  // namespace

GroupShape strained_shape(GroupKind kind, uint32_t member_count) {
  GroupShape shape;
  shape.kind = kind;
  shape.member_count = member_count;
  shape.entry_count = 32;
  shape.eager_count = kind == GroupKind::kMesh ? 16 : 4;
  shape.box_count = member_count;
  shape.box_count_max = 2;
  shape.send_threshold = 4;
  shape.loan_count = 32;
  return shape;
}

Segment& StrainedGroup::create(const char* owner, uint64_t bytes) {
  auto created =
      strained_pool().create_segment(owner, align_up(bytes, 4 * kKiB), PageSize::k4KiB, 1);
  if (!created.ok()) fail("%s: %s", created.error().doing, created.error().answer);
  return *created.value();
}

StrainedGroup::StrainedGroup(const GroupShape& shape, uint64_t seed, uint32_t own_count,
                             uint32_t spare_count)
    : shape_(shape), seed_(seed), pool_id_(make_pool_id().take()) {
  if (auto checked = check_group_shape(shape); !checked.ok()) fail("%s", checked.error().answer);
  const GroupLayout layout(shape);
  Segment& table = create("members", MembersTable::bytes_for(shape.member_count));
  Segment& fifo = create("fifo:strain", layout.bytes());
  Segment& board = create(kBoardOwner, sizeof(Board));
  heap_ = &create(kOwnerHeapOwner, Participant::kHeapBytes);
  members_ = MembersTable::create(table.memory(), shape.member_count, pool_id_);
  board_ = new (board.address) Board{};
  segment_ = GroupSegment::create(fifo.memory().first(layout.bytes()), shape, pool_id_,
                                  BellFence::kSleeper);
  keeper_ = std::make_unique<ShmGroupKeeper>(segment_, *members_);

  ProcessGrant grant;
  grant.name = MemberName(kProcessName);
  grant.uid = getuid();
  grant.max_count = shape.member_count - own_count - spare_count;
  grant.spare_count = spare_count;
  grant.segments = {{&board, true}, {heap_, false}};
  for (uint32_t i = own_count; i < shape.member_count; ++i) {
    char owner[64];
    std::snprintf(owner, sizeof owner, "heap:peer#%u", i);
    grant.heaps.push_back(&create(owner, Participant::kHeapBytes));
  }
  static int group_count = 0;
  socket_path_ = socket_path(getpid(), group_count++);
  JoinServerOptions options;
  options.socket_path = socket_path_;
  options.pool = &strained_pool();
  options.pool_id = pool_id_;
  options.groups = {
      {"strain", members_, std::as_bytes(std::span(&shape_, 1)), &fifo, keeper_.get()}};
  options.grants = {std::move(grant)};
  options.ready_timeout_ns = kPatienceNs;  // a slow machine must not cause a cut-off
  auto server = JoinServer::create(std::move(options));
  if (!server.ok()) fail("%s: %s", server.error().doing, server.error().answer);
  server_ = server.take();
  for (uint32_t i = 0; i < own_count; ++i) {
    if (server_->add_own_member(0, MemberName("owner")) != i) fail("the owner is not member %u", i);
  }
  if (!server_->start().ok() || !server_->serve().ok()) fail("no control thread");
}

void StrainedGroup::seal_pool() { strained_pool().seal(); }

StrainedGroup::~StrainedGroup() { server_->stop(); }

void StrainedGroup::start_own_traffic() {
  own_ = std::make_unique<Participant>();
  Participant::Options options;
  options.shm = own_options();
  options.board = board_;
  options.heap = heap_->memory();
  options.seed = seed_;
  own_->create(options);
  traffic_ = std::thread([this] { own_->run(); });
}

void StrainedGroup::end_own_traffic() { traffic_.join(); }

ShmProviderOptions StrainedGroup::own_options(uint32_t member) const noexcept {
  ShmProviderOptions options;
  options.segment = segment_;
  options.members = members_;
  options.member = member;
  options.pool = &strained_pool();
  return options;
}

pid_t StrainedGroup::start_peer(const char* role) {
  const std::string seed = std::to_string(seed_ + ++started_);
  const char* arguments[] = {"message-strain", role, socket_path_.c_str(), seed.c_str(), nullptr};
  pid_t pid = 0;
  if (posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, const_cast<char**>(arguments),
                  environ) != 0) {
    fail("no process can be started");
  }
  return pid;
}

uint32_t StrainedGroup::member_of(pid_t pid) const noexcept {
  for (uint32_t i = 1; i < shape_.member_count; ++i) {
    if (members_->state(i) == MemberState::kAlive &&
        members_->pid(i) == static_cast<uint32_t>(pid)) {
      return i;
    }
  }
  return 0;
}

uint32_t StrainedGroup::wait_until_alive(pid_t pid) {
  if (time_until([&] { return member_of(pid) != 0; }, kPatienceNs) == UINT64_MAX) {
    fail("process %d did not come to join", pid);
  }
  return member_of(pid);
}

void StrainedGroup::remove_sockets_of(pid_t owner) {
  for (int number = 0; number < kGroupCountMax; ++number) {
    unlink(socket_path(owner, number).c_str());
  }
}

int StrainedGroup::status_of(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

uint32_t StrainedGroup::taken_count() const noexcept {
  uint32_t count = 0;
  for (uint32_t i = 0; i < shape_.member_count; ++i) {
    if (members_->state(i) != MemberState::kFree) ++count;
  }
  return count;
}

void StrainedGroup::settle() {
  board_->command.store(Command::kStop, std::memory_order_release);
  const uint64_t took = time_until(
      [&] {
        for (uint32_t i = 0; i < shape_.member_count; ++i) {
          if (members_->state(i) != MemberState::kAlive) continue;
          if (board_->rows[i].is_done.load(std::memory_order_acquire) == 0) return false;
        }
        return true;
      },
      kPatienceNs);
  if (took != UINT64_MAX) return;
  for (uint32_t i = 0; i < shape_.member_count; ++i) {
    const BoardRow& row = board_->rows[i];
    if (members_->state(i) != MemberState::kAlive) continue;
    std::fprintf(
        stderr, "member %u: %" PRIu64 " loans out, steps %" PRIu64 ", done: %u, stopped: %u\n", i,
        row.loans_out.load(), row.steps.load(), row.is_done.load(), row.has_stopped.load());
    for (uint32_t j = 0; j < shape_.member_count; ++j) {
      std::fprintf(
          stderr, "  heard %" PRIu64 " of %" PRIu64 " from member %u, lent it %" PRIu64 "\n",
          row.heard[j].load(), count_for(board_->rows[j].sent[i].load(), members_->generation(i)),
          j, row.lent[j].load());
    }
  }
  fail("not everything that was sent has come, or come back");
}

void StrainedGroup::end(const std::vector<pid_t>& peers) {
  board_->command.store(Command::kEnd, std::memory_order_release);
  for (const pid_t pid : peers) {
    const int status = status_of(pid);
    if (status != 0) fail("process %d ended with %d", pid, status);
  }
}

JoinedGroup join_group(const char* socket_path) {
  alarm(3600);  // ends this process even if its parent does not
  JoinOptions join;
  join.socket_path = socket_path;
  join.process = kProcessName;
  join.pool = &strained_pool();
  join.timeout_ns = kPatienceNs;
  auto joined = JoinedPool::join(join);
  if (!joined.ok()) fail("%s: %s", joined.error().doing, joined.error().answer);
  JoinedGroup group = {joined.take(), {}};
  group.board = reinterpret_cast<Board*>(strained_pool().find_segment(kBoardOwner)->address);
  const JoinedPool& pool = group.pool;
  GroupShape shape;
  if (pool.layout().size() != sizeof shape) fail("a layout of %zu bytes", pool.layout().size());
  std::memcpy(&shape, pool.layout().data(), sizeof shape);
  auto segment = GroupSegment::attach(pool.fifo().memory(), shape, pool.pool_id());
  if (!segment.ok()) fail("%s: %s", segment.error().doing, segment.error().answer);
  group.shm.segment = segment.value();
  group.shm.members = &pool.table();
  group.shm.member = static_cast<uint32_t>(pool.members()[0].index);
  group.shm.pool = &strained_pool();
  return group;
}

int be_peer(const char* socket_path, uint64_t seed) {
  JoinedGroup group = join_group(socket_path);
  JoinedPool& pool = group.pool;
  static Participant self;
  Participant::Options options;
  options.shm = group.shm;
  options.board = group.board;
  options.heap = pool.own_heap()->memory();
  options.seed = seed;
  self.create(options);
  if (!pool.ready().ok()) fail("not ready");
  self.run();
  pool.leave();
  return 0;
}

}  // namespace bedplate::strain
