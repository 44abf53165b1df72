#include "pinned_pool/join/join_roster.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/log.h"
#include "platform/units.h"

namespace bedplate {
namespace {

// Returns whether a process may register the segment with its devices. It may if no other process
// can free the segment's pages.
bool is_for_its_devices(const Segment& segment, join::SegmentRole role) noexcept {
  return segment.is_for_devices || role == join::SegmentRole::kOwnHeap;
}

// Returns the table's state for the members of an instance in `state`, which is not kFree.
MemberState state_of_members(JoinRoster::Instance::State state) noexcept {
  using State = JoinRoster::Instance::State;
  switch (state) {
    case State::kJoining: return MemberState::kJoining;
    case State::kAlive: return MemberState::kAlive;
    case State::kDead: return MemberState::kDead;
    default: return MemberState::kQuiet;  // includes kRenewing: its members are not free yet
  }
}

// Whether the instance has a process that has neither died nor left.
bool has_process(const JoinRoster::Instance& instance) noexcept {
  return instance.state == JoinRoster::Instance::State::kJoining ||
         instance.state == JoinRoster::Instance::State::kAlive;
}

Error configuration_error(const ProcessGrant& grant) noexcept {
  return configuration_error_while("planning who may join as %s", grant.name.text);
}

}  // namespace

Segment& JoinRoster::members_segment(const JoinGroup& group) const noexcept {
  PinnedPool& pool = *options_.pool;
  for (uint32_t i = 0; i < pool.segment_count(); ++i) {
    const auto offset = static_cast<uint64_t>(reinterpret_cast<const std::byte*>(group.table) -
                                              pool.segment(i).address);
    if (offset < pool.segment(i).bytes) return pool.segment(i);
  }
  BP_ASSERT(!"the members table lies in the pool");
  __builtin_unreachable();
}

Result<void> JoinRoster::check_grant(const ProcessGrant& grant) const noexcept {
  Error error = configuration_error(grant);
  const uint64_t groups = grant.is_trusted ? 1 : grant.max_count;
  if (grant.name.text[0] == '\0' || grant.max_count == 0 || grant.members_max == 0 ||
      grant.members_max > join::kMemberCountMax) {
    return error.set_answer("%u processes with %u members each", grant.max_count, grant.members_max)
        .set_cure("at least one process, with 1 to %u members", join::kMemberCountMax);
  }
  if (grant.group + groups > options_.groups.size()) {
    return error
        .set_answer("groups %u to %llu of %zu", grant.group,
                    static_cast<unsigned long long>(grant.group + groups - 1),
                    options_.groups.size())
        .set_cure("plan a group for each process that is not trusted");
  }
  if (!grant.is_trusted && grant.spare_count > 0) {
    return error.set_answer("%u spare slots", grant.spare_count)
        .set_cure("plan none for processes that are not trusted");
  }
  if (!grant.heaps.empty() && grant.heaps.size() != grant.place_count()) {
    return error.set_answer("%zu heaps for %u slots", grant.heaps.size(), grant.place_count())
        .set_cure("plan one heap for each, or none");
  }
  const size_t segments = 2 + grant.segments.size() + heaps_[grant.group].size();
  if (segments > kSegmentCountMax) {
    return error.set_answer("%zu segments to be mapped", segments)
        .set_cure("a process can map %u: give fewer processes a heap of their own",
                  kSegmentCountMax);
  }
  return {};
}

Result<void> JoinRoster::check_pages(const ProcessGrant& grant) const noexcept {
  if (!is_outsider(grant.is_trusted, grant.uid)) return {};
  const Segment* huge = nullptr;
  const auto look_at = [&huge](const Segment& segment) {
    if (is_huge(segment.page)) huge = &segment;
  };
  const uint32_t groups = grant.is_trusted ? 1 : grant.max_count;
  for (uint32_t i = 0; i < groups; ++i) look_at(*options_.groups[grant.group + i].fifo);
  for (const Segment* heap : grant.heaps) look_at(*heap);
  for (const GrantedSegment& granted : grant.segments) {
    if (granted.is_writable) look_at(*granted.segment);
  }
  if (huge == nullptr) return {};
  return configuration_error(grant)
      .set_answer("it may write %s, which has pages of %s", huge->owner.text,
                  format_bytes(page_bytes(huge->page)).text)
      .set_cure(
          "use pages of 4 KiB for what it may write, or make it trusted and run it as this user");
}

// Sets the mode of the segment's file so that other users cannot open it again for writing. Opens
// the file again read-only, for processes that may only read the segment. A writable segment does
// not take the pool's write seal.
Result<void> JoinRoster::prepare(Segment& segment, bool is_writable) noexcept {
  if (is_writable) segment.takes_write_seal = false;
  Fd& read_only = read_only_[segment.number];
  if (read_only.is_open()) return {};
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", segment.memfd);
  // 0600: a joiner of another user can map its descriptor, but not open the file again.
  if (fchmod(segment.memfd, 0600) == 0) read_only = Fd(open(path, O_RDONLY | O_CLOEXEC));
  if (read_only.is_open()) return {};
  return error_from_errno("opening %s to hand it out", segment.owner.text)
      .set_cure("mount /proc, and raise the limit of open files (ulimit -n)");
}

Result<std::unique_ptr<JoinRoster>> JoinRoster::create(Options options) {
  BP_ASSERT(!options.pool->is_sealed());
  std::unique_ptr<JoinRoster> roster(new JoinRoster(std::move(options)));
  const Options& planned = roster->options_;
  BP_TRY(roster->wiper_.create());
  for (const JoinGroup& group : planned.groups) {
    BP_ASSERT(group.table->pool_id() == planned.pool_id && group.keeper != nullptr);
    BP_ASSERT(group.layout.size() <= join::kLayoutBytesMax);
    BP_TRY(roster->prepare(roster->members_segment(group), false));
    BP_TRY(roster->prepare(*group.fifo, true));
  }
  roster->heaps_.resize(planned.groups.size());
  roster->own_member_counts_.resize(planned.groups.size());
  for (const ProcessGrant& grant : planned.grants) {
    BP_ASSERT(grant.terms.size() <= join::kTermsBytesMax);
    for (size_t k = 0; k < grant.heaps.size(); ++k) {
      const size_t group = grant.group + (grant.is_trusted ? 0 : k);
      if (group < planned.groups.size()) roster->heaps_[group].push_back(grant.heaps[k]);
      BP_TRY(roster->prepare(*grant.heaps[k], true));
    }
    for (const GrantedSegment& granted : grant.segments) {
      BP_TRY(roster->prepare(*granted.segment, granted.is_writable));
    }
  }
  for (uint32_t i = 0; i < planned.grants.size(); ++i) {
    const ProcessGrant& grant = planned.grants[i];
    BP_TRY(roster->check_grant(grant));
    BP_TRY(roster->check_pages(grant));
    roster->first_instance_.push_back(roster->instance_count());
    for (uint32_t k = 0; k < grant.place_count(); ++k) {
      Instance instance;
      instance.grant = i;
      instance.number = k;
      instance.group = grant.group + (grant.is_trusted ? 0 : k);
      roster->instances_.push_back(instance);
    }
  }
  BP_DCHECK_SLOW(roster->is_valid());
  return roster;
}

uint32_t JoinRoster::add_own_member(uint32_t group, const MemberName& name) noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(group < group_count());
  MembersTable& table = *options_.groups[group].table;
  uint32_t member = 0;
  while (member < table.member_count() && table.state(member) != MemberState::kFree) ++member;
  BP_ASSERT(member < table.member_count());
  ++own_member_counts_[group];
  table.begin_join(member, static_cast<uint32_t>(getpid()), name, SegmentRights::all());
  table.set_state(member, MemberState::kAlive);
  return member;
}

uint32_t JoinRoster::find_grant(const MemberName& name, uid_t uid) const noexcept {
  for (uint32_t i = 0; i < grant_count(); ++i) {
    const ProcessGrant& grant = options_.grants[i];
    if (std::strcmp(grant.name.text, name.text) != 0) continue;
    return !grant.uid.has_value() || *grant.uid == uid ? i : kNoGrant;
  }
  return kNoGrant;
}

Result<uint32_t> JoinRoster::find_place(const join::Request& request, uid_t uid,
                                        bool* may_come) const noexcept {
  *may_come = false;
  Error error = error_while("joining the pool as %s", request.process.text);
  const auto grant =
      std::find_if(options_.grants.begin(), options_.grants.end(), [&](const ProcessGrant& known) {
        return std::strcmp(known.name.text, request.process.text) == 0;
      });
  if (grant == options_.grants.end()) {
    return error.set_answer("the pool's configuration has no process of this name")
        .set_cure("add a [[process]] of this name to it, or join with a name that it has");
  }
  if (grant->uid.has_value() && *grant->uid != uid) {
    return error.set_answer("user %u may not join, user %u may", uid, *grant->uid)
        .set_cure("start it as that user, or change user in the owner's [[process]]");
  }
  if (request.member_count > grant->members_max) {
    return error
        .set_answer("it asks for %u members, the configuration has %u for it", request.member_count,
                    grant->members_max)
        .set_cure("ask for fewer, or raise members in the owner's [[process]]");
  }
  const auto first =
      instances_.begin() + first_instance_[static_cast<size_t>(grant - options_.grants.begin())];
  const auto end = first + grant->place_count();
  const auto count = [&](auto&& is_counted) {
    return static_cast<uint32_t>(std::count_if(first, end, is_counted));
  };
  const uint32_t there = count(has_process);
  const auto taken = [&](uint32_t planned, const char* cure) {
    *may_come = true;
    return error
        .set_answer("all %u planned slots are in use, %u of them by processes that died or left "
                    "and are not released yet",
                    planned, planned - there)
        .set_cure("%s", cure);
  };
  if (there >= grant->max_count) {
    return taken(there, "wait longer, end one, or raise max_count in the owner's [[process]]");
  }
  const auto place = std::find_if(first, end, [](const Instance& instance) {
    return instance.state == Instance::State::kFree;
  });
  if (place == end) {
    return taken(
        grant->place_count(),
        grant->is_trusted
            ? "wait longer: a slot is free once the old process has ended, its loans are returned "
              "and no member is stopped; or raise spare_count in the owner's [[process]]"
            : "wait longer: a slot is free once the old process has ended and its loans are "
              "returned");
  }
  const MembersTable& table = *options_.groups[place->group].table;
  uint32_t free_count = 0;
  for (uint32_t i = 0; i < table.member_count(); ++i) {
    if (table.state(i) == MemberState::kFree) ++free_count;
  }
  if (free_count < request.member_count) {
    *may_come = request.member_count < table.member_count();  // one member is the owner's
    return error
        .set_answer("group %s has %u free members of %u, %u are needed",
                    options_.groups[place->group].name.text, free_count, table.member_count(),
                    request.member_count)
        .set_cure("end a process of the group, or plan it for more members");
  }
  return static_cast<uint32_t>(place - instances_.begin());
}

void JoinRoster::admit(uint32_t index, const join::Request& request, pid_t pid) noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(index < instance_count() && request.member_count > 0);
  Instance& instance = instances_[index];
  BP_ASSERT(instance.state == Instance::State::kFree);
  instance.member_count = request.member_count;
  instance.pid = static_cast<uint32_t>(pid);
  instance.renewed_segments = 0;
  instance.renewed_bytes = 0;
  instance.lacks_pages = false;
  instance.state = Instance::State::kJoining;
  const SegmentRights rights =
      visit_segments(instance, [](const Segment&, bool, join::SegmentRole) {});
  MembersTable& table = *options_.groups[instance.group].table;
  uint32_t member = 0;
  for (uint32_t i = 0; i < instance.member_count; ++i, ++member) {
    while (member < table.member_count() && table.state(member) != MemberState::kFree) ++member;
    BP_ASSERT(member < table.member_count());
    instance.members[i] = static_cast<uint16_t>(member);
    table.begin_join(member, instance.pid, request.process, rights);
  }
}

Segment* JoinRoster::heap_of(const Instance& instance) const noexcept {
  const ProcessGrant& grant = options_.grants[instance.grant];
  BP_DCHECK(grant.heaps.empty() || instance.number < grant.heaps.size());
  return grant.heaps.empty() ? nullptr : grant.heaps[instance.number];
}

template <typename Visit>
SegmentRights JoinRoster::visit_segments(const Instance& instance, Visit visit) const noexcept {
  const JoinGroup& group = options_.groups[instance.group];
  SegmentRights rights;
  const auto hand_out = [&](const Segment& segment, bool is_writable, join::SegmentRole role) {
    if (rights.may_read(segment.number)) return;  // already visited: a grant may list it again
    rights.add(segment.number, is_writable);
    visit(segment, is_writable, role);
  };
  hand_out(members_segment(group), false, join::SegmentRole::kMembers);
  hand_out(*group.fifo, true, join::SegmentRole::kFifo);
  const Segment* own_heap = heap_of(instance);
  for (const Segment* heap : heaps_[instance.group]) {
    const bool is_own = heap == own_heap;
    hand_out(*heap, is_own, is_own ? join::SegmentRole::kOwnHeap : join::SegmentRole::kOther);
  }
  for (const GrantedSegment& granted : options_.grants[instance.grant].segments) {
    hand_out(*granted.segment, granted.is_writable, join::SegmentRole::kOther);
  }
  return rights;
}

uint32_t JoinRoster::describe(uint32_t index, join::Accepted* accepted,
                              std::span<int> descriptors) const noexcept {
  BP_ASSERT(index < instance_count());
  const Instance& instance = instances_[index];
  BP_ASSERT(instance.state == Instance::State::kJoining);
  const JoinGroup& group = options_.groups[instance.group];
  uint32_t count = 0;
  visit_segments(instance, [&](const Segment& segment, bool is_writable, join::SegmentRole role) {
    BP_ASSERT(count < descriptors.size() && count < kSegmentCountMax);
    descriptors[count] = is_writable ? segment.memfd : read_only_[segment.number].number();
    // The memfd itself grants writing; the separate read-only descriptor grants reading.
    BP_ASSERT(descriptors[count] >= 0 && (!is_writable || !segment.takes_write_seal));
    accepted->segments[count++] = {segment.owner,
                                   reinterpret_cast<uintptr_t>(segment.address),
                                   segment.bytes,
                                   page_bytes(segment.page),
                                   static_cast<uint8_t>(is_writable),
                                   static_cast<uint8_t>(is_for_its_devices(segment, role)),
                                   static_cast<uint16_t>(segment.number),
                                   role};
  });
  accepted->pool_id = options_.pool_id;
  accepted->group = group.name;
  accepted->members_address = reinterpret_cast<uintptr_t>(group.table);
  accepted->member_count = instance.member_count;
  for (uint32_t i = 0; i < instance.member_count; ++i) {
    accepted->members[i] = {instance.members[i], group.table->generation(instance.members[i])};
  }
  accepted->segment_count = count;
  accepted->layout_bytes = static_cast<uint32_t>(group.layout.size());
  std::copy(group.layout.begin(), group.layout.end(), accepted->layout);
  const std::span<const std::byte> terms = grant_of(instance).terms;
  accepted->terms_bytes = static_cast<uint32_t>(terms.size());
  std::copy(terms.begin(), terms.end(), accepted->terms);
  return count;
}

void JoinRoster::set_members(const Instance& instance, MemberState state) noexcept {
  MembersTable& table = *options_.groups[instance.group].table;
  for (uint32_t i = 0; i < instance.member_count; ++i) table.set_state(instance.members[i], state);
}

bool JoinRoster::is_valid(const Instance& instance) const noexcept {
  const auto index = static_cast<uint32_t>(&instance - instances_.data());
  if (instance.grant >= grant_count() || instance.group >= group_count()) return false;
  const ProcessGrant& its = options_.grants[instance.grant];
  if (instance.number >= its.place_count() ||
      first_instance_[instance.grant] + instance.number != index ||
      instance.group != its.group + (its.is_trusted ? 0 : instance.number)) {
    return false;
  }
  if (instance.state == Instance::State::kFree) return true;
  const MembersTable& table = *options_.groups[instance.group].table;
  if (instance.member_count == 0 || instance.member_count > its.members_max) return false;
  for (uint32_t i = 0; i < instance.member_count; ++i) {
    if (instance.members[i] >= table.member_count() ||
        table.state(instance.members[i]) != state_of_members(instance.state) ||
        (i > 0 && instance.members[i] <= instance.members[i - 1])) {
      return false;
    }
  }
  const bool is_begun = instance.renewed_segments > 0 || instance.renewed_bytes > 0;
  if (instance.state != Instance::State::kRenewing) return !is_begun;
  uint32_t writable_count = 0;
  uint64_t bytes_max = 0;  // of the segment being renewed
  visit_segments(instance, [&](const Segment& segment, bool is_writable, join::SegmentRole) {
    if (is_writable && writable_count++ == instance.renewed_segments) bytes_max = segment.bytes;
  });
  return instance.renewed_segments <= writable_count && instance.renewed_bytes <= bytes_max;
}

bool JoinRoster::are_members_known(uint32_t group) const noexcept {
  const MembersTable& table = *options_.groups[group].table;
  uint32_t known = own_member_counts_[group];
  for (const Instance& instance : instances_) {
    const bool counts = instance.group == group && instance.state != Instance::State::kFree;
    known += counts ? instance.member_count : 0;
  }
  uint32_t taken = 0;
  for (uint32_t i = 0; i < table.member_count(); ++i) {
    taken += table.state(i) != MemberState::kFree ? 1 : 0;
  }
  return taken == known;
}

bool JoinRoster::is_valid() const noexcept {
  uint32_t there = 0;  // of one grant
  for (const Instance& instance : instances_) {
    if (!is_valid(instance)) return false;
    if (instance.number == 0) there = 0;
    there += has_process(instance) ? 1 : 0;
    if (there > options_.grants[instance.grant].max_count) return false;
  }
  for (uint32_t i = 0; i < group_count(); ++i) {
    if (!are_members_known(i)) return false;
  }
  return true;
}

void JoinRoster::set_alive(uint32_t index) noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(index < instance_count());
  BP_ASSERT(instances_[index].state == Instance::State::kJoining);
  instances_[index].state = Instance::State::kAlive;
  set_members(instances_[index], MemberState::kAlive);
}

void JoinRoster::set_dead(uint32_t index) noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(index < instance_count());
  BP_ASSERT(has_process(instances_[index]));
  instances_[index].state = Instance::State::kDead;
  set_members(instances_[index], MemberState::kDead);
}

void JoinRoster::set_stopped(uint32_t index) noexcept {
  BP_DCHECK_SLOW(is_valid());
  BP_ASSERT(index < instance_count());
  const Instance& instance = instances_[index];
  BP_ASSERT(instance.state != Instance::State::kFree);
  for (uint32_t i = 0; i < instance.member_count; ++i) {
    options_.groups[instance.group].keeper->stop_writing(instance.members[i]);
  }
}

void JoinRoster::set_quiet(uint32_t index) noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(index < instance_count());
  BP_ASSERT(instances_[index].state == Instance::State::kDead);
  instances_[index].state = Instance::State::kQuiet;
  set_members(instances_[index], MemberState::kQuiet);
}

JoinRoster::Release JoinRoster::try_release(uint32_t index) noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(index < instance_count());
  Instance& instance = instances_[index];
  JoinGroup& group = options_.groups[instance.group];
  const std::span<const uint16_t> members(instance.members, instance.member_count);
  if (instance.state == Instance::State::kQuiet) {
    for (const uint16_t member : members) {
      if (!group.keeper->is_forgotten(member, group.table->changed_epoch(member))) {
        return Release::kNotYet;
      }
    }
    for (const uint16_t member : members) group.keeper->reset_member(member);
    instance.state = Instance::State::kRenewing;
  }
  BP_ASSERT(instance.state == Instance::State::kRenewing);
  const Release renewed = renew(instance);
  if (renewed != Release::kFree) return renewed;
  instance.state = Instance::State::kFree;
  set_members(instance, MemberState::kFree);
  return Release::kFree;
}

// Renews the next chunk of the segments that the former process could write. It zeroes that
// process's heap, so that the next process sees no old data. In the other segments it only takes
// missing pages. It uses system calls and never touches the memory: another process may still punch
// holes into the file, and a touch of a hole may raise SIGBUS.
JoinRoster::Release JoinRoster::renew(Instance& instance) noexcept {
  const Segment* segment = nullptr;
  uint32_t count = 0;
  visit_segments(instance, [&](const Segment& each, bool is_writable, join::SegmentRole) {
    if (is_writable && count++ == instance.renewed_segments) segment = &each;
  });
  if (segment == nullptr) return Release::kFree;
  const bool is_heap = segment == heap_of(instance);
  if (is_heap || instance.renewed_bytes > 0 || has_holes(*segment)) {
    const std::span<std::byte> piece = segment->memory().subspan(
        instance.renewed_bytes,
        std::min(PageWiper::kPieceBytesMax, segment->bytes - instance.renewed_bytes));
    const uint64_t done = is_heap ? wiper_.zero(piece) : take_pages(piece) == 0 ? piece.size() : 0;
    instance.renewed_bytes += done;
    BP_ASSERT(instance.renewed_bytes <= segment->bytes);
    if (done < piece.size()) return without_pages(instance, *segment);
    if (instance.renewed_bytes < segment->bytes) return Release::kRenewing;
  }
  instance.renewed_bytes = 0;
  ++instance.renewed_segments;
  return Release::kRenewing;
}

JoinRoster::Release JoinRoster::without_pages(Instance& instance, const Segment& segment) noexcept {
  if (!instance.lacks_pages) {
    log_error(
        error_from_errno("preparing %s for the next process", segment.owner.text)
            .set_cure(
                "its slot stays in use until %s are available: its process has freed some of them",
                is_huge(segment.page) ? "hugepages" : "pages"));
  }
  instance.lacks_pages = true;
  return Release::kNotYet;
}

}  // namespace bedplate
