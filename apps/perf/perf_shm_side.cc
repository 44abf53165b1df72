// The two sides over shared memory: the server makes a group of a pool, the client joins it.
#include <unistd.h>

#include "apps/perf/perf_side.h"
#include "pinned_pool/boot_segment.h"
#include "pinned_pool/join/join_server.h"
#include "platform/assert.h"
#include "platform/product.h"
#include "transport/messages/joined_process.h"
#include "transport/shm/endpoint/shm_provider.h"
#include "transport/shm/membership/group_keeper.h"
#include "transport/shm/membership/group_terms.h"

namespace bedplate {
namespace {

constexpr char kAreaOwner[] = "perf:area";
constexpr uint64_t kAreaBytes = 2 * kPerfBytesMax;  // of each side

// One member more than used: the next client may join before the previous one's place is free.
GroupShape shape() noexcept {
  GroupShape shape;
  shape.member_count = 3;
  shape.box_count = default_box_count(shape.member_count);
  return shape;
}

class ShmServer final : public PerfSide {
 public:
  ~ShmServer() override {
    if (server_ != nullptr) server_->stop();
  }

  Messenger& messenger() noexcept override { return messenger_; }
  Result<Endpoint*> connect() override {
    assertion_failed(__FILE__, __LINE__, "the server waits for its client");
  }

  Result<void> create(const std::string& socket) {
    connection_.provider = "shm";
    const uint64_t fifo_bytes = GroupLayout(shape()).bytes();
    const uint64_t table_bytes = MembersTable::bytes_for(shape().member_count);
    choose_pages(2 * kAreaBytes + fifo_bytes + table_bytes);
    auto area = take_segment(kAreaOwner, 2 * kAreaBytes);
    if (!area.ok()) return area.error();
    auto fifo = take_segment("fifo:perf", fifo_bytes);
    if (!fifo.ok()) return fifo.error();
    auto members = take_segment("members", table_bytes);
    if (!members.ok()) return members.error();
    set_area(area.value()->memory().first(kAreaBytes));

    PinnedPool& pool = process_pool();
    BP_TRY_ASSIGN(pool_id_, make_pool_id());
    table_ = MembersTable::create(pool.carve(*members.value(), "members:perf", table_bytes),
                                  shape().member_count, pool_id_);
    const BellFence fence = join_bell_fence().ok() ? BellFence::kSleeper : BellFence::kBoth;
    group_ = GroupSegment::create(pool.carve(*fifo.value(), "fifo:perf", fifo_bytes), shape(),
                                  pool_id_, fence);
    terms_ = GroupTerms(shape(), {});
    keeper_ = std::make_unique<ShmGroupKeeper>(group_, *table_);
    BP_TRY(start(socket, *fifo.value(), *area.value()));
    ShmProviderOptions options;
    options.segment = group_;
    options.members = table_;
    options.member = 0;
    options.pool = &pool;
    BP_TRY(shm_.create(options, messenger_.dispatcher()));
    messenger_.add_provider(shm_);
    pool.seal();
    return server_->serve();
  }

 private:
  Result<void> start(const std::string& socket, Segment& fifo, Segment& area) {
    JoinServerOptions options;
    options.socket_path = socket;
    options.pool_id = pool_id_;
    options.groups = {{"perf", table_, std::as_bytes(std::span(&terms_, 1)), &fifo, keeper_.get()}};
    options.grants = {{.name = MemberName(kPerfClientName),
                       .uid = geteuid(),
                       .max_count = 2,
                       .segments = {{&area, true}}}};
    auto server = JoinServer::create(std::move(options));
    if (!server.ok()) return server.error();
    server_ = server.take();
    server_->add_own_member(0, MemberName(kPerfServerName));
    return server_->start();
  }

  PoolId pool_id_;
  MembersTable* table_ = nullptr;
  GroupSegment group_;
  GroupTerms terms_;
  std::unique_ptr<ShmGroupKeeper> keeper_;
  std::unique_ptr<JoinServer> server_;
  Messenger messenger_;
  ShmProvider shm_;
};

class ShmClient final : public PerfSide {
 public:
  ~ShmClient() override {
    if (process_ != nullptr) process_->leave();
  }

  Messenger& messenger() noexcept override { return process_->messenger(); }
  Result<Endpoint*> connect() override {
    return messenger().connect({process_->find_member(kPerfServerName)});
  }

  Result<void> create(const std::string& socket) {
    auto joined = JoinedProcess::join(
        {.join = {.socket_path = socket.c_str(), .process = kPerfClientName}, .single_copy = {}});
    if (!joined.ok()) {
      Error error = joined.error();
      if (access(socket.c_str(), F_OK) == 0) return error;
      return error.set_cure("start there, as the same user: %s perf serve unix:%s", product().name,
                            socket.c_str());
    }
    process_ = joined.take();
    const Segment* area = process_pool().find_segment(kAreaOwner);
    if (area == nullptr || area->bytes < 2 * kAreaBytes) {
      return error_while("joining %s", socket.c_str())
          .set_answer("its pool has no %s", kAreaOwner)
          .set_cure("start it with: %s perf serve unix:%s", product().name, socket.c_str());
    }
    connection_ = {.provider = "shm", .pool_bytes = area->bytes, .page = area->page};
    set_area(area->memory().subspan(kAreaBytes, kAreaBytes));
    return {};
  }

 private:
  std::unique_ptr<JoinedProcess> process_;
};

template <typename Side>
Result<std::unique_ptr<PerfSide>> open_side(const std::string& socket) {
  auto side = std::make_unique<Side>();
  BP_TRY(side->create(socket));
  return std::unique_ptr<PerfSide>(std::move(side));
}

}  // namespace

Result<std::unique_ptr<PerfSide>> open_shm_side(const PerfSideOptions& options) {
  BP_ASSERT(options.address.starts_with("unix:"));
  const std::string socket = options.address.substr(std::string("unix:").size());
  return options.is_server ? open_side<ShmServer>(socket) : open_side<ShmClient>(socket);
}

}  // namespace bedplate
