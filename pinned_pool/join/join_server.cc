#include "pinned_pool/join/join_server.h"

#include <algorithm>
#include <span>
#include <utility>

#include <sys/epoll.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/clock.h"

namespace bedplate {

JoinServer::JoinServer(JoinServerOptions&& options, std::unique_ptr<JoinRoster> roster)
    : options_(std::move(options)),
      roster_(std::move(roster)),
      acceptor_(watch_),
      connections_(watch_, closing_, roster_->instance_count()),
      reports_(*roster_, control_, options_.on_event, options_.log_period_ns),
      doorbells_(*roster_, control_),
      processes_(*roster_, connections_, reports_, doorbells_, options_.ready_timeout_ns),
      strangers_({options_.pool, options_.request_timeout_ns}, acceptor_, connections_, *roster_,
                 reports_, processes_) {}

JoinServer::~JoinServer() { stop(); }

Result<std::unique_ptr<JoinServer>> JoinServer::create(JoinServerOptions options) {
  auto roster = JoinRoster::create(
      {options.pool, options.pool_id, std::move(options.groups), std::move(options.grants)});
  if (!roster.ok()) return roster.error();
  std::unique_ptr<JoinServer> server(new JoinServer(std::move(options), roster.take()));
  BP_TRY(allow_open_files(open_files_min(server->roster_->instance_count())));
  BP_TRY(server->acceptor_.open(server->options_.listener, server->options_.socket_path));
  BP_TRY(server->watch_.open(JoinConnections::kWatchedCount * server->connections_.all().size()));
  BP_DCHECK_SLOW(server->is_valid());
  return server;
}

uint32_t JoinServer::add_own_member(uint32_t group, const MemberName& name) noexcept {
  BP_ASSERT(!is_running_);
  return roster_->add_own_member(group, name);
}

Result<void> JoinServer::start() noexcept {
  BP_ASSERT(!is_running_);
  BP_TRY(closing_.start());
  BP_TRY(thread_.start(
      "control", [](void* self) noexcept { static_cast<JoinServer*>(self)->run(); }, this));
  is_running_ = true;
  has_tried_life_.wait(false, std::memory_order_acquire);
  return life_.ok() ? Result<void>() : life_.error();
}

Result<void> JoinServer::serve() noexcept {
  BP_ASSERT(is_running_);
  if (acceptor_.begin()) return {};
  return error_from_errno("watching the socket for processes that join")
      .set_cure("raise the limit of watched files: sysctl fs.epoll.max_user_watches");
}

void JoinServer::stop() noexcept {
  BP_ASSERT(!control_.is_held_by_caller());  // else it would wait for itself
  Fd& listener = acceptor_.listener();
  if (listener.is_open()) unlink(options_.socket_path.c_str());
  if (!is_running_) return listener.close();
  watch_.stop();
  thread_.join();
  is_running_ = false;
  closing_.close(listener);
  closing_.stop();
}

bool JoinServer::is_valid() const noexcept {
  BP_ASSERT(control_.is_caller());
  return processes_.is_valid();
}

void JoinServer::run() noexcept {
  const ThreadOwner::Hold hold(control_);
  uint32_t held_count = 0;
  while (life_.ok() && held_count < roster_->group_count()) {
    life_ = roster_->group(held_count).table->hold_owner_life();
    held_count += life_.ok() ? 1 : 0;
  }
  has_tried_life_.store(true, std::memory_order_release);
  has_tried_life_.notify_all();
  while (life_.ok() && !is_stopping_) turn();
  BP_DCHECK_SLOW(is_valid());
  for (uint32_t i = 0; i < held_count; ++i) {
    roster_->group(i).table->release_owner_life();
    roster_->group(i).keeper->wake_members();
  }
  connections_.close_all();
}

void JoinServer::turn() noexcept {
  BP_KEEPS_VALID(*this);
  const std::span<const epoll_event> events = watch_.wait(milliseconds_to_wait());
  for (const epoll_event& event : events) {
    if (event.data.u64 == JoinWatch::kStopMark) is_stopping_ = true;
  }
  if (is_stopping_) return;
  for (const epoll_event& event : events) {
    if (event.data.u64 == JoinWatch::kListenerMark) continue;
    JoinConnection* connection = connections_.find(event.data.u64);
    if (connection == nullptr || !connection->has_part()) continue;
    processes_.handle(*connection, JoinConnections::watched_of(event.data.u64));
  }
  doorbells_.ring_due();
  strangers_.serve(events);
  reports_.lift_limits();
  strangers_.check_deadlines();
  processes_.end_late_ones();
  processes_.release_parts();
  doorbells_.ring_due();
}

int JoinServer::milliseconds_to_wait() const noexcept {
  const uint64_t due =
      std::min({processes_.due_ns(), strangers_.due_ns(), doorbells_.due_ns(), reports_.due_ns()});
  if (due == UINT64_MAX) return -1;
  const uint64_t now = monotonic_ns();
  return due <= now ? 0 : static_cast<int>((due - now) / kNsPerMs + 1);
}

}  // namespace bedplate
