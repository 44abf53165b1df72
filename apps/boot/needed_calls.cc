#include "apps/boot/needed_calls.h"

#include <algorithm>

#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "apps/boot/preflight.h"
#include "platform/forbidden_calls.h"
#include "platform/numa.h"

namespace bedplate {
namespace {

constexpr unsigned long kBad = ~0UL;  // an invalid descriptor, process, flag set or operation

// A call that an appliance serves without, such as lseek, is not listed.

// Memory, threads, files, signals and time need these. The kernel refuses each call because of its
// first bad argument.
constexpr CallTrial kOfAll[] = {
    {"read", SYS_read, {kBad}},
    {"pread64", SYS_pread64, {kBad}},
    {"openat", SYS_openat, {kBad}},
    {"close", SYS_close, {kBad}},
    {"newfstatat", SYS_newfstatat, {kBad}},
    {"fcntl", SYS_fcntl, {kBad}},
    {"ftruncate", SYS_ftruncate, {kBad}},
    {"fallocate", SYS_fallocate, {kBad}},
    {"fchmod", SYS_fchmod, {kBad}},
    {"access", SYS_access, {0, kBad}},
    {"unlink", SYS_unlink, {}},
    {"mmap", SYS_mmap, {0, 0, 0, MAP_PRIVATE | MAP_ANONYMOUS, kBad}},
    {"munmap", SYS_munmap, {1}},
    {"mprotect", SYS_mprotect, {1}},
    {"madvise", SYS_madvise, {1}},
    {"mlock2", SYS_mlock2, {0, 0, kBad}, true},
    {"mlockall", SYS_mlockall, {}},
    {"memfd_create", SYS_memfd_create, {0, kBad}},
    {"prlimit64", SYS_prlimit64, {0, kBad}},
    {"getrandom", SYS_getrandom, {0, 0, kBad}},
    {"clone3", SYS_clone3, {}, true},
    {"futex", SYS_futex, {0, FUTEX_WAKE_PRIVATE}},
    {"sched_getaffinity", SYS_sched_getaffinity, {}},
    {"sched_setaffinity", SYS_sched_setaffinity, {kBad}},
    {"rt_sigaction", SYS_rt_sigaction, {}},
    {"rt_sigprocmask", SYS_rt_sigprocmask, {0, 0, 0, 8}},
    {"rt_sigtimedwait", SYS_rt_sigtimedwait, {}},
    {"gettid", SYS_gettid, {}},
    {"geteuid", SYS_geteuid, {}},
    {"eventfd2", SYS_eventfd2, {0, kBad}},
    {"pipe2", SYS_pipe2, {0, kBad}},
    {"poll", SYS_poll, {}},
};

// All sockets use these.
constexpr CallTrial kOfSockets[] = {
    {"socket", SYS_socket, {kBad, kBad, kBad}},
    {"bind", SYS_bind, {kBad}},
    {"getsockopt", SYS_getsockopt, {kBad}},
    {"setsockopt", SYS_setsockopt, {kBad}},
    {"sendto", SYS_sendto, {kBad}},
    {"recvfrom", SYS_recvfrom, {kBad}},
};

constexpr CallTrial kOfStreams[] = {
    {"listen", SYS_listen, {kBad}},
    {"accept4", SYS_accept4, {kBad}},
};

constexpr CallTrial kOfDatagrams[] = {
    {"recvmmsg", SYS_recvmmsg, {kBad}},
    {"sendmmsg", SYS_sendmmsg, {kBad}},
};

// Sockets without io_uring use these: those of shards that have none, of processes that join, and
// of threads beside the shards.
constexpr CallTrial kOfEpoll[] = {
    {"epoll_create1", SYS_epoll_create1, {kBad}},
    {"epoll_ctl", SYS_epoll_ctl, {kBad, EPOLL_CTL_DEL}},
    {"epoll_wait", SYS_epoll_wait, {kBad}},
    {"sendmsg", SYS_sendmsg, {kBad}},
    {"recvmsg", SYS_recvmsg, {kBad}},
};

// The table of members and the detection of dead ones need these.
constexpr CallTrial kOfGroups[] = {
    {"get_robust_list", SYS_get_robust_list, {kBad}},
    {"set_robust_list", SYS_set_robust_list, {}},
};

// Memory bound to a node needs these.
constexpr CallTrial kOfNodes[] = {{"mbind", SYS_mbind, {1}}};

// Not tried if the limit of locked memory is 0: the kernel's own answer is then EPERM.
constexpr CallTrial kOfLocking[] = {{"mlock", SYS_mlock, {}}};

bool may_lock_something() noexcept {
  rlimit limit = {};
  return getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur > 0;
}

}  // namespace

Result<void> check_calls(const Configuration& configuration, const AppliancePlan& plan) noexcept {
  const auto is_any = [&](auto&& has) {
    return std::any_of(plan.services.begin(), plan.services.end(), has);
  };
  const bool has_streams = is_any([](const ServiceNeeds& each) { return !each.listens.empty(); });
  const bool has_datagrams = is_any([](const ServiceNeeds& service) {
    return std::any_of(service.datagrams.begin(), service.datagrams.end(),
                       [](const DatagramNeed& each) { return each.network == nullptr; });
  });
  const bool has_processes = !plan.groups.empty();
  const SocketBackendChoice sockets = configuration.event_loop.sockets;
  const bool has_epoll =
      sockets == SocketBackendChoice::kEpoll ||
      (sockets == SocketBackendChoice::kIoUringOrEpoll && !probe_io_uring().ok());
  const bool has_socket_threads =
      is_any([](const ServiceNeeds& each) { return each.has_socket_thread; });
  const bool has_nodes =
      memory_nodes().count() > 1 &&
      std::any_of(plan.pool.segments.begin(), plan.pool.segments.end(),
                  [](const SegmentPlan& segment) { return segment.node != kAnyNode; });
  CallTrial needed[std::size(kOfAll) + std::size(kOfSockets) + std::size(kOfStreams) +
                   std::size(kOfDatagrams) + std::size(kOfEpoll) + std::size(kOfGroups) +
                   std::size(kOfNodes) + std::size(kOfLocking)];
  size_t count = 0;
  const auto add = [&](bool is_needed, std::span<const CallTrial> trials) {
    if (!is_needed) return;
    std::copy(trials.begin(), trials.end(), needed + count);
    count += trials.size();
  };
  add(true, kOfAll);
  add(has_nodes, kOfNodes);
  add(may_lock_something(), kOfLocking);
  add(has_streams || has_datagrams || has_processes, kOfSockets);
  add(has_streams || has_processes, kOfStreams);
  add(has_datagrams, kOfDatagrams);
  add(has_epoll || has_processes || has_socket_threads, kOfEpoll);
  add(has_processes || plan.has_shard_group, kOfGroups);
  return try_calls(std::span(needed).first(count));
}

}  // namespace bedplate
