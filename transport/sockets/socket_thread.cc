#include "transport/sockets/socket_thread.h"

#include "platform/assert.h"

namespace bedplate {
namespace {

constexpr uint32_t kBudget = 64;

}  // namespace

void SocketThread::set_state(State state) noexcept {
  [[maybe_unused]] const State before = state_.load(std::memory_order_relaxed);
  BP_DCHECK(before ==
            (state == State::kFailed || state == State::kReady ? State::kStarting : State::kReady));
  // Pairs with the acquire loads of state_: create() then sees failure_ or the sockets, the thread
  // sees what was made since.
  state_.store(state, std::memory_order_release);
  state_.notify_all();
}

Result<void> SocketThread::create(const SocketThreadOptions& options) {
  BP_DCHECK(!is_started_ && options.socket_count_max > 0);
  options_ = options;
  asker_ = current_heap_owner();
  EventLoopOptions loop;
  loop.spin_ns = 0;
  loop.source_count_max = 1 + options.source_count_max;
  BP_TRY(loop_.create(loop));
  BP_TRY(thread_.start(
      options.name, [](void* self) noexcept { static_cast<SocketThread*>(self)->thread_main(); },
      this));
  is_started_ = true;
  state_.wait(State::kStarting, std::memory_order_acquire);
  if (state_.load(std::memory_order_acquire) == State::kFailed) return failure_;
  return {};
}

Result<void> SocketThread::set_up() {
  StreamSocketsOptions options;
  options.socket_count_max = options_.socket_count_max;
  options.watch_count_max = options_.watch_count_max;
  options.loop = &loop_;
  options.counters = &counters_;
  sockets_ = make_epoll_sockets();
  BP_TRY(sockets_->create(options));
  loop_.add_source(*sockets_, kBudget, "the sockets");
  loop_.set_sleeper(*sockets_);
  return {};
}

void SocketThread::thread_main() noexcept {
  enter_heap_owner(asker_);
  if (auto outcome = set_up(); !outcome.ok()) {
    failure_ = outcome.error();
    sockets_.reset();
    return set_state(State::kFailed);
  }
  set_state(State::kReady);
  state_.wait(State::kReady, std::memory_order_acquire);
  if (state_.load(std::memory_order_acquire) == State::kRunning) {
    if (options_.begin != nullptr) options_.begin(options_.context);
    loop_.run();
    enter_heap_owner(asker_);
    if (options_.end != nullptr) options_.end(options_.context);
  }
  sockets_.reset();
}

void SocketThread::add_source(PollSource& source, const char* name) noexcept {
  BP_DCHECK(state_.load(std::memory_order_relaxed) == State::kReady);
  loop_.add_source(source, kBudget, name);
}

void SocketThread::begin() noexcept {
  BP_ASSERT(state_.load(std::memory_order_relaxed) == State::kReady);
  set_state(State::kRunning);
}

void SocketThread::stop() noexcept {
  if (!is_started_) return;
  is_started_ = false;
  if (state_.load(std::memory_order_acquire) == State::kReady) set_state(State::kAbandoned);
  loop_.stop();
  thread_.join();
}

}  // namespace bedplate
