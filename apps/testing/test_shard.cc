#include "apps/testing/test_shard.h"

#include <algorithm>

namespace bedplate::testing {

// The runtime's own sources: sockets, files, the messenger.
constexpr uint32_t kOwnSourceCount = 3;
constexpr uint32_t kBudget = 64;

Result<void> TestShard::create(const TestShardOptions& options) {
  plan_ = options.plan;
  EventLoopOptions loop;
  loop.source_count_max = kOwnSourceCount + options.needs.sources;
  loop.counters = &options.counters->loop;
  loop.test_clock_ns = options.clock_ns;
  loop.plan = &*plan_;
  BP_TRY(loop_.create(loop));

  StreamSocketsOptions sockets;
  sockets.socket_count_max = std::max(options.needs.connections, 1U);
  sockets.watch_count_max = options.needs.watches;
  sockets.loop = &loop_;
  sockets.counters = &options.counters->sockets;
  sockets.plan = &*plan_;
  sockets_ = make_epoll_sockets();
  BP_TRY(sockets_->create(sockets));
  loop_.add_source(*sockets_, kBudget, "the sockets");

  std::vector<FileOptions> files;
  for (TestFile* file : options.files) {
    memory_files_.add(file->content, file->is_writable);
    files.push_back(file->options);
    files.back().bytes = file->content.content.size();
  }
  BP_TRY(files_.open(files, memory_files_, keys_));
  loop_.add_source(memory_files_, kBudget, "a completion of files");

  messenger_ = options.messenger;
  if (messenger_ != nullptr) loop_.add_source(*messenger_, kBudget, "a handler of messages");
  if (!options.trace_records.empty()) trace_ring_.create(options.trace_records);
  return {};
}

ShardParts TestShard::parts() noexcept {
  return {loop_, *sockets_, files_, trace_ring_.is_there() ? &trace_ring_ : nullptr,
          messenger_ != nullptr ? &messenger_->messenger() : nullptr};
}

}  // namespace bedplate::testing
