#include "apps/boot/messaging.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "platform/log.h"
#include "platform/user.h"

namespace bedplate {
namespace {

// Adds the segments that `list` names, except those already granted.
void grant(const std::vector<std::string>& list, bool is_writable, PinnedPool& pool,
           std::vector<GrantedSegment>* granted) {
  for (uint32_t i = 0; i < pool.segment_count(); ++i) {
    Segment& segment = pool.segment(i);
    const bool is_named = std::any_of(list.begin(), list.end(), [&](const std::string& text) {
      return names_segment(text, segment.owner);
    });
    const bool is_there = std::any_of(granted->begin(), granted->end(),
                                      [&](const auto& other) { return other.segment == &segment; });
    if (is_named && !is_there) granted->push_back({&segment, is_writable});
  }
}

}  // namespace

Result<void> Messaging::create(const Configuration& configuration, const AppliancePlan& plan,
                               PinnedPool& pool, ShardMessenger* messenger, Doorbell& doorbell,
                               const ProcessTerms& verbs, JoinListener* joiners,
                               CountersFile& counters) {
  BP_ASSERT(is_valid());
  if (plan.groups.empty()) return {};
  BP_ASSERT(groups_.empty() && server_ == nullptr && messenger != nullptr && !pool.is_sealed());
  name_ = configuration.appliance.name;
  stops_at_failure_ = configuration.messages.on_join_failure == JoinFailure::kStop;
  BP_TRY_ASSIGN(pool_id_, make_pool_id());
  terms_with_verbs_ = verbs;
  make_groups(configuration, plan, pool);
  choose_copying(configuration);
  count_processes(configuration, counters);  // before the thread that updates them starts
  BP_TRY(start_server(configuration, joiners, pool));
  count_groups(counters);
  BP_TRY(join_groups(pool, *messenger, doorbell));
  BP_ASSERT(groups_.size() == plan.groups.size() && is_valid());
  return {};
}

bool Messaging::is_valid() const noexcept {
  const auto is_good = [](const std::unique_ptr<Group>& group) {
    const uint32_t member_count = group->segment.shape().member_count;
    return group->table.member_count() == member_count && group->fifo.carved_bytes != 0 &&
           group->terms.shape.member_count == member_count;
  };
  return counters_.size() == groups_.size() && (server_ != nullptr) == !groups_.empty() &&
         std::all_of(groups_.begin(), groups_.end(), is_good);
}

void Messaging::make_groups(const Configuration& configuration, const AppliancePlan& plan,
                            PinnedPool& pool) {
  const BellFence fence = join_bell_fence().ok() ? BellFence::kSleeper : BellFence::kBoth;
  Segment& members = *pool.find_segment("members");
  for (const GroupPlan& planned : plan.groups) {
    const uint32_t member_count = planned.shape.member_count;
    const std::string_view name = group_name(planned.segment);
    const std::span<std::byte> table =
        pool.carve(members, OwnerName("members", name), MembersTable::bytes_for(member_count));
    Segment& fifo = *pool.find_segment(planned.segment);
    BP_ASSERT(fifo.carved_bytes == 0);  // a group has its segment to itself
    const std::span<std::byte> memory =
        pool.carve(fifo, planned.segment, GroupLayout(planned.shape).bytes());
    groups_.push_back(std::make_unique<Group>(
        OwnerName(name), GroupSegment::create(memory, planned.shape, pool_id_, fence), fifo,
        *MembersTable::create(table, member_count, pool_id_), configuration.messages.single_copy));
  }
}

Result<std::vector<ProcessGrant>> Messaging::make_grants(const Configuration& configuration,
                                                         PinnedPool& pool) const {
  std::vector<ProcessGrant> grants;
  auto next_group = static_cast<uint32_t>(configuration.groups.size());
  for (const ProcessSettings& process : configuration.processes) {
    auto user = find_user_id(process.user.c_str());
    if (!user.ok()) return user.error();
    ProcessGrant& made = grants.emplace_back();
    made.name = MemberName(process.name);
    made.uid = user.value();
    made.max_count = process.max_count;
    made.spare_count = process.place_count() - process.max_count;
    made.members_max = process.members;
    made.is_trusted = process.trusted;
    if (process.verbs) made.terms = std::as_bytes(std::span(&terms_with_verbs_, 1));
    made.group = process.trusted ? process.group : next_group;
    if (!process.trusted) next_group += process.max_count;
    BP_ASSERT(!process.trusted || made.group < configuration.groups.size());
    BP_ASSERT(made.spare_count <= process.place_count());
    for (uint32_t k = 0; process.heap_bytes != 0 && k < process.place_count(); ++k) {
      const OwnerName owner = instance_owner("heap", process, k);
      Segment& heap = *pool.find_segment(owner);
      BP_ASSERT(heap.carved_bytes == 0);
      pool.carve(heap, owner, process.heap_bytes);
      made.heaps.push_back(&heap);
    }
    grant(process.write, true, pool, &made.segments);
    grant(process.read, false, pool, &made.segments);
  }
  BP_ASSERT(next_group == groups_.size());  // plan_messages counts in the same way
  return grants;
}

// Logs one line for each kind of single copy, up to the one that is taken; the lines of the others
// say why they were not.
void Messaging::choose_copying(const Configuration& configuration) {
  BP_ASSERT(single_copy_.taken == nullptr);  // a process has one kind
  const std::vector<SingleCopyKind>& order = configuration.messages.single_copy;
  single_copy_ = choose_single_copy(order);
  const SingleCopy* taken = single_copy_.taken.get();
  for (const SingleCopyKind kind : order) {
    char text[512];
    BP_LOG_INFO("%s: single copy by %s", name_.c_str(), single_copy_.line(kind, text, sizeof text));
    if (taken != nullptr && taken->kind() == kind) break;
  }
  if (taken == nullptr || taken->kind() != SingleCopyKind::kCma) return;
  if (auto allowed = allow_peer(kAnyPeer); !allowed.ok()) log_error(allowed.error());
}

Result<void> Messaging::start_server(const Configuration& configuration, JoinListener* joiners,
                                     PinnedPool& pool) {
  auto grants = make_grants(configuration, pool);
  if (!grants.ok()) return grants.error();
  JoinServerOptions options;
  options.socket_path = configuration.messages.socket;
  options.listener = joiners;
  options.pool = &pool;
  options.pool_id = pool_id_;
  options.grants = grants.take();
  for (const auto& group : groups_) {
    options.groups.push_back({group->name, &group->table,
                              std::as_bytes(std::span(&group->terms, 1)), &group->fifo,
                              &group->keeper});
  }
  options.on_event = [this](const JoinEvent& event) { heard(event); };
  auto server = JoinServer::create(std::move(options));
  if (!server.ok()) return server.error();
  server_ = server.take();
  for (uint32_t i = 0; i < groups_.size(); ++i) {
    server_->add_own_member(i, MemberName(name_));
  }
  return server_->start();
}

void Messaging::count_groups(CountersFile& counters) {
  for (const auto& group : groups_) {
    counters_.push_back(&counters.runtime<GroupCounters>("group", group->name.view()));
    counters.set_label("group", group->name.view(), "layout", to_text(group->terms.shape.kind));
  }
}

void Messaging::count_processes(const Configuration& configuration, CountersFile& counters) {
  for (const ProcessSettings& process : configuration.processes) {
    processes_.push_back(
        {MemberName(process.name), &counters.runtime<ProcessCounters>("process", process.name)});
    processes_.back().counters->pid.set(kNoValue);
    processes_.back().counters->dead_pid.set(kNoValue);
  }
}

// Called on the control thread of the join server, the only writer of these counters.
void Messaging::count(const JoinEvent& event) noexcept {
  using Kind = JoinEvent::Kind;
  const bool has_joined = event.kind == Kind::kJoined;
  const bool has_died = event.kind == Kind::kDied;
  if (!has_joined && !has_died && event.kind != Kind::kLeft) return;
  for (CountedProcess& each : processes_) {
    if (std::string_view(each.name.text) != event.process.text) continue;
    ProcessCounters& counters = *each.counters;
    const ProcessState state = has_joined ? ProcessState::kThere
                               : has_died ? ProcessState::kDied
                                          : ProcessState::kLeft;
    counters.state.set(static_cast<uint64_t>(state));
    counters.pid.set(static_cast<uint64_t>(event.pid));
    // A process that joins replaces a dead one; a process that leaves needs no replacement.
    if (has_joined && each.down > 0) --each.down;
    if (has_died) ++each.down;
    counters.is_down.set(each.down > 0 ? 1 : 0);
    if (has_joined) counters.joined.add(1);
    if (!has_died) continue;
    counters.died.add(1);
    counters.dead_pid.set(static_cast<uint64_t>(event.pid));
  }
}

Result<void> Messaging::join_groups(PinnedPool& pool, ShardMessenger& messenger,
                                    Doorbell& doorbell) {
  BP_ASSERT(counters_.size() == groups_.size());
  std::vector<FutexBell> bells;
  for (size_t i = 0; i < groups_.size(); ++i) {
    const std::unique_ptr<Group>& group = groups_[i];
    ShmProviderOptions options;
    options.segment = group->segment;
    options.members = &group->table;
    options.member = 0;
    options.pool = &pool;
    // This process neither copies from an untrusted process nor waits for one.
    const bool may_copy = !group->terms.single_copy().empty();
    options.single_copy = may_copy ? single_copy_.taken.get() : nullptr;
    options.counters = &counters_[i]->shm;
    BP_TRY(group->shm.create(options, messenger.messenger().dispatcher()));
    messenger.add_group(group->shm);
    bells.push_back(group->shm.bell());
  }
  BP_TRY(watch_.start(bells, doorbell));
  messenger.set_watch(watch_);
  return {};
}

Result<void> Messaging::serve() noexcept {
  if (!server_) return {};
  BP_ASSERT(process_pool().is_sealed() && is_valid());
  return server_->serve();
}

void Messaging::stop() noexcept {
  if (server_) server_->stop();
  watch_.stop();
}

void Messaging::refresh_counters() noexcept {
  BP_DCHECK_SLOW(is_valid());
  for (size_t i = 0; i < groups_.size(); ++i) {
    const MembersTable& table = groups_[i]->table;
    uint64_t counts[kMemberStateCount] = {};
    for (uint32_t member = 0; member < table.member_count(); ++member) {
      ++counts[static_cast<size_t>(table.state(member))];
    }
    for (size_t state = 0; state < kMemberStateCount; ++state) {
      counters_[i]->members[state].set(counts[state]);
    }
  }
}

// Called on the control thread. The server has logged the reason of a failure.
void Messaging::heard(const JoinEvent& event) noexcept {
  if (event.kind == JoinEvent::Kind::kRefused) return;  // nobody else is affected
  count(event);
  BP_ASSERT(event.group < groups_.size() && event.member_count > 0);
  BP_ASSERT(event.member + event.member_count <= groups_[event.group]->table.member_count());
  if (event.may_be_logged) {
    const bool is_trouble =
        event.kind == JoinEvent::Kind::kFailed || event.kind == JoinEvent::Kind::kDied;
    BP_LOG(is_trouble ? LogLevel::kWarning : LogLevel::kInfo,
           "%s: %s (process %d), member%s %u of %s, %s", name_.c_str(), event.process.text,
           event.pid, event.member_count > 1 ? "s from" : "", event.member,
           groups_[event.group]->name.text, to_text(event.kind));
  }
  if (event.kind != JoinEvent::Kind::kFailed || !stops_at_failure_ || !event.is_trusted) return;
  BP_LOG_ERROR("%s: stopping, because [messages] on_join_failure is \"stop\"", name_.c_str());
  must_stop_.store(true, std::memory_order_release);  // pairs with must_stop()
}

}  // namespace bedplate
