#include "apps/boot/shard.h"

#include <algorithm>

#include <unistd.h>

#include "apps/boot/appliance_crash.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/cpu.h"
#include "platform/log.h"

namespace bedplate {

Shard::~Shard() { stop(); }

void Shard::set_state(State state) noexcept {
  [[maybe_unused]] const auto is_next = [](State before, State after) {
    switch (before) {
      case State::kStarting: return after == State::kReady || after == State::kFailed;
      case State::kReady: return after == State::kRunning || after == State::kAbandoned;
      case State::kRunning:
      case State::kAbandoned: return after == State::kClosed;
      case State::kFailed:
      case State::kClosed: break;
    }
    return false;
  };
  BP_DCHECK(is_next(state_.load(std::memory_order_relaxed), state));
  // Pairs with the acquire loads of state_: create() then sees failure_ or the thread's sockets and
  // files, the thread sees on_start_, stop() sees has_left_operations_.
  state_.store(state, std::memory_order_release);
  state_.notify_all();
}

Result<void> Shard::create(const ShardOptions& options) {
  BP_DCHECK(!is_started_ && state_.load(std::memory_order_relaxed) == State::kStarting);
  BP_DCHECK(options.counters != nullptr && options.socket_count_max > 0);
  options_ = options;
  EventLoopOptions loop_options;
  loop_options.spin_ns = options.event_loop.spin_us * kNsPerUs;
  loop_options.stall_ns = options.event_loop.stall_ms * kNsPerMs;
  loop_options.pulse = options.pulse;
  loop_options.counters = &options.counters->loop;
  loop_options.source_count_max = options.source_count;
  loop_options.plan = options_.plan ? &*options_.plan : nullptr;
  BP_TRY(loop_.create(loop_options));
  if (!options.trace_records.empty()) trace_ring_.create(options.trace_records);
  BP_TRY(thread_.start(
      options_.settings.name.c_str(),
      [](void* self) noexcept { static_cast<Shard*>(self)->thread_main(); }, this));
  is_started_ = true;
  state_.wait(State::kStarting, std::memory_order_acquire);
  if (state_.load(std::memory_order_acquire) == State::kFailed) return failure_;
  return {};
}

Result<void> Shard::make_sockets() {
  StreamSocketsOptions options;
  options.socket_count_max = options_.socket_count_max;
  options.watch_count_max = options_.watch_count;
  for (const FileOptions& file : options_.files) {
    options.file_operation_count_max += file.operation_count_max;
  }
  options.loop = &loop_;
  options.counters = &options_.counters->sockets;
  options.plan = options_.plan ? &*options_.plan : nullptr;
  const SocketBackendChoice choice = options_.event_loop.sockets;
  if (choice != SocketBackendChoice::kEpoll) {
    sockets_ = make_uring_sockets();
    auto made = sockets_->create(options);
    if (made.ok() || choice == SocketBackendChoice::kIoUring) return made;
    log_error(made.error());
    BP_LOG_WARNING("shard %s uses epoll instead of io_uring, as [event_loop] sockets allows",
                   options_.settings.name.c_str());
  }
  sockets_ = make_epoll_sockets();
  return sockets_->create(options);
}

Result<void> Shard::set_up() {
  BP_DCHECK(sockets_ == nullptr && !process_pool().is_sealed() && loop_.is_own_thread());
  thread_id_ = gettid();
  BP_TRY(pin_this_thread(options_.settings.cpu));
  BP_TRY(make_sockets());
  if (Device* device = sockets_->device(); device != nullptr) {
    BP_TRY(keys_.create(process_pool(), *device));
  }
  loop_.add_source(*sockets_, 256, options_.sockets_name.c_str(), options_.socket_counters);
  if (!options_.files.empty()) BP_TRY(open_files());
  loop_.set_sleeper(*sockets_);
  return {};
}

Result<void> Shard::open_files() {
  files_.follow(loop_.thread());
  FileBackend* backend = sockets_->file_backend();
  const bool are_searched = std::any_of(options_.files.begin(), options_.files.end(),
                                        [](const FileOptions& file) { return file.tells_extents; });
  FileBackend* searcher = are_searched && backend != nullptr ? &file_thread_ : nullptr;
  if (backend == nullptr || searcher != nullptr) {
    loop_.add_source(file_thread_, 256, "a completion of files");
  }
  uint32_t polled_count_max = 0;
  for (const FileOptions& file : options_.files) {
    if (!file.polled.is_none()) polled_count_max += file.operation_count_max;
  }
  if (polled_count_max > 0) {
    BP_TRY(polled_files_.create(loop_, process_pool(), polled_count_max,
                                options_.counters->sockets.system_calls));
    loop_.add_source(polled_files_, 256, "a completion of polled files");
  }
  return files_.open(options_.files, backend != nullptr ? *backend : file_thread_, keys_, searcher,
                     polled_count_max > 0 ? &polled_files_ : nullptr);
}

// The order matters: operations on files use the rings' registrations.
void Shard::close() noexcept {
  BP_DCHECK(loop_.is_own_thread() && !has_left_operations_);
  has_left_operations_ = !files_.close(options_.file_patience_ns);
  if (has_left_operations_) return;
  polled_files_.destroy();
  keys_.destroy();
  sockets_.reset();
}

void Shard::thread_main() noexcept {
  this_thread_is_shard(options_.settings.name.c_str());
  if (auto outcome = set_up(); !outcome.ok()) {
    failure_ = outcome.error();
    close();
    set_state(State::kFailed);
    return;
  }
  set_state(State::kReady);
  state_.wait(State::kReady, std::memory_order_acquire);
  if (state_.load(std::memory_order_acquire) == State::kRunning) {
    BP_DCHECK(on_start_ != nullptr && process_pool().is_sealed());
    on_start_();
    loop_.run();
  }
  close();
  set_state(State::kClosed);
}

void Shard::run(std::function<void()> on_start) {
  BP_ASSERT(state_.load(std::memory_order_relaxed) == State::kReady);
  on_start_ = std::move(on_start);
  set_state(State::kRunning);
}

// A thread ends only after the kernel's worker threads have ended the work of its ring. If that
// work hangs, the thread is abandoned, too.
void Shard::stop() noexcept {
  if (!is_started_) return;
  BP_DCHECK(state_.load(std::memory_order_relaxed) != State::kStarting);
  is_started_ = false;
  if (state_.load(std::memory_order_acquire) == State::kReady) set_state(State::kAbandoned);
  loop_.stop();
  for (State state = state_.load(std::memory_order_acquire);
       state != State::kClosed && state != State::kFailed;
       state = state_.load(std::memory_order_acquire)) {
    state_.wait(state, std::memory_order_acquire);
  }
  if (has_left_operations_) {
    thread_.join_or_leave(0);
  } else {
    thread_.join();
  }
}

}  // namespace bedplate
