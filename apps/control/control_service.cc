#include "apps/control/control_service.h"

#include <algorithm>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apps/boot/appliance_plan.h"
#include "apps/boot/service_context.h"
#include "apps/counters/counters_file.h"
#include "apps/services/service_calls.h"
#include "apps/services/service_plan.h"
#include "platform/product.h"
#include "platform/user.h"

namespace bedplate {
namespace {

// The heap of the parser for a line, and of the texts of the plan and the methods. The heap gives
// each size class of a thread its own pages.
constexpr uint64_t kLineHeapBytes = 512 * kKiB;
constexpr uint64_t kTextHeapBytes = 2 * kMiB;
// A line begins with an empty line: the last text on it may be incomplete.
constexpr std::string_view kFirstOfLine = "\n";
constexpr std::string_view kTooManyAskers =
    "there are too many connections: raise max_connections in [control], or close one";

bool has_group(int fd, uint32_t group) noexcept {
  gid_t groups[256];
  socklen_t bytes = sizeof groups;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) != 0) return false;
  return std::find(groups, groups + bytes / sizeof groups[0], group) !=
         groups + bytes / sizeof groups[0];
}

// The answer to a client whose connection is closed before its first request.
std::string_view unasked(ControlFault fault, std::string_view text, std::span<char> room) noexcept {
  JsonText json(room);
  json.begin_object().key("jsonrpc").text("2.0").key("id").null().key("error");
  json.begin_object().key("code").raw("-").more(std::to_string(-static_cast<int>(fault)));
  json.key("message").text(text).end_object().end_object().more("\n");
  return {room.data(), json.bytes()};
}

}  // namespace

std::string control_path(const std::string& directory, const std::string& name) {
  return directory + "/" + name + ".control";
}

Result<void> add_all_methods(std::span<Service* const> services, RuntimeMethods* runtime,
                             ControlMethods* methods) {
  methods->set_owner("");
  runtime->add_to(methods);
  for (Service* service : services) {
    methods->set_owner(service->name());
    BP_TRY(in_service(*service, [&] {
      return call_service(*service, "adding its control methods", [&] {
        service->methods(*methods);
        return methods->refusal();
      });
    }));
  }
  return {};
}

Result<void> ControlService::plan(ServicePlan& plan) {
  const ApplianceSettings& appliance = plan.configuration().appliance;
  user_ = appliance.user;
  SocketAddress address;
  address.kind = SocketAddress::Kind::kUnix;
  address.path = control_path(appliance.runtime_directory, appliance.name);
  plan.listen("group", {address}, {},
              {.access = {.is_restricted = true, .group = settings_.group}});
  plan.counters<ControlCounters>("control");
  const uint32_t count = settings_.max_connections;
  plan.socket_thread(count + StreamServer::kOtherSocketsMax, "max_connections");
  plan.descriptors(1, nullptr);  // the counters file
  plan.heap(StreamServer::bytes_for<ControlSession>(count) + kTextHeapBytes);
  if (!settings_.serial.empty()) {
    plan.descriptors(1, nullptr);
    plan.heap(line_session_count(plan.configuration()) * sizeof(ControlSession));
  }
  plan.kept_heap(OwnerName("heap", name()), kLineHeapBytes, 1);
  return {};
}

uint64_t ControlService::line_session_count(const Configuration& configuration) noexcept {
  return configuration.shards.size() + 1;
}

void ControlService::preflight(std::vector<Error>* problems) {
  if (settings_.serial.empty()) return;
  if (auto there = check_serial_line(settings_.serial.c_str()); !there.ok()) {
    problems->push_back(there.error());
  }
}

// Finds the users that may connect. The kernel first checks the socket's file (SocketAccess);
// is_allowed() checks the peer as well, since a descriptor can be passed on and a file's mode
// changed.
Result<void> ControlService::prepare() {
  own_ = own_user();
  if (own_ == 0 && !user_.empty()) {
    BP_TRY_ASSIGN(own_, find_user_id(user_.c_str()));
  }
  if (!settings_.group.empty()) {
    auto group = find_group_id(settings_.group.c_str());
    if (!group.ok()) return group.error();
    group_id_ = group.value();
  }
  if (!settings_.serial.empty()) return line_.begin(settings_.serial, settings_.serial_baud);
  return {};
}

Result<void> ControlService::create(ServiceContext& context) {
  BP_TRY_ASSIGN(const auto counters, context.counters<ControlCounters>("control"));
  BP_TRY_ASSIGN(const auto listening, context.listeners("group"));
  BP_TRY_ASSIGN(const auto owner, heap_owner(OwnerName("heap", name())));
  const Configuration& configuration = context.configuration();
  runtime_.appliance = configuration.appliance.name;
  runtime_.plan = plan_text_(context.appliance_plan(), configuration);
  runtime_.counters = context.all_counters();
  const std::string path =
      counters_path(configuration.appliance.runtime_directory, configuration.appliance.name);
  runtime_.counters_file = Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!runtime_.counters_file.is_open()) return error_from_errno("opening %s", path.c_str());
  runtime_.drains = &context.drains();
  site_.methods = &methods_;
  site_.counters = counters;
  site_.owner = owner;
  site_.own_loop = &thread_.loop();
  line_.count_in(&counters->line_losses);
  for (uint32_t i = 0; i < context.shard_count(); ++i) {
    site_.shards.push_back({&context.loop(i), configuration.shards[i].name});
  }
  BP_TRY(add_all_methods(configuration.services, &runtime_, &methods_));
  BP_TRY(thread_.create(
      {.name = name(),
       .socket_count_max = settings_.max_connections + StreamServer::kOtherSocketsMax,
       .watch_count_max = 1,
       .begin = [](void* self) noexcept { static_cast<ControlService*>(self)->begin(); },
       .end = [](void* self) noexcept { static_cast<ControlService*>(self)->end(); },
       .context = this}));
  server_.create<ControlSession>({.name = name(),
                                  .loop = &thread_.loop(),
                                  .sockets = &thread_.sockets(),
                                  .counters = &counters->clients,
                                  .answer_ns_max = 0,  // sessions limit their waits themselves
                                  .refusals = {.refusal = &ControlService::refusal,
                                               .too_many = &ControlService::too_many,
                                               .context = this},
                                  .patience = kUsualPatience,
                                  .replaces_idle = true},
                                 {}, site_);
  // In pieces, for which the heap finds space more easily.
  constexpr uint64_t kBytes = StreamServer::bytes_for<ControlSession>(1);
  for (uint32_t i = 0; i < settings_.max_connections; ++i) {
    memory_.push_back(std::make_unique_for_overwrite<CacheLine[]>(kBytes / sizeof(CacheLine)));
    server_.add<ControlSession>({memory_.back()[0].bytes, kBytes}, site_);
  }
  for (const Fd& socket : listening) server_.add_listener(socket.number());
  if (settings_.serial.empty()) return {};
  for (uint64_t i = 0; i < line_session_count(configuration); ++i) {
    line_sessions_.push_back(std::make_unique<ControlSession>(site_, ControlSession::Kind::kLine));
    line_session_list_.push_back(line_sessions_.back().get());
  }
  line_server_.create({.loop = &thread_.loop(),
                       .sockets = &thread_.sockets(),
                       .line = &line_,
                       .greeting = kFirstOfLine,
                       .slow_ns_max = kUsualPatience.slow_ns_max,
                       .sent_bytes = &counters->clients.sent_bytes,
                       .timed_out = &counters->clients.connections_timed_out},
                      line_session_list_);
  return {};
}

void ControlService::begin() noexcept {
  server_.start();
  if (!settings_.serial.empty()) line_server_.start();
}

void ControlService::end() noexcept {
  line_server_.end();
  server_.end();
}

Result<void> ControlService::sealed() {
  thread_.begin();
  return {};
}

bool ControlService::is_allowed(int fd, uint32_t* user) const noexcept {
  ucred peer = {};
  socklen_t bytes = sizeof peer;
  *user = ~0U;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return false;
  *user = peer.uid;
  if (is_own_user(peer.uid, own_)) return true;
  return group_id_ && (peer.gid == *group_id_ || has_group(fd, *group_id_));
}

std::string_view ControlService::refusal(void* self, int fd, std::span<char> room) noexcept {
  auto& service = *static_cast<ControlService*>(self);
  uint32_t user = 0;
  if (service.is_allowed(fd, &user)) return {};
  service.site_.counters->not_allowed.add(1);
  char text[256];
  TextWriter message(text);
  message.text("the user ").number(user).text(" may not send requests: only root, the user ");
  message.number(service.own_).text(" and the group of [control] may");
  return unasked(ControlFault::kNotAllowed, {text, message.bytes()}, room);
}

// Names a stuck shard if there is one: more connections help little then, since each one that calls
// it keeps its slot.
std::string_view ControlService::too_many(void* self, std::span<char> room) noexcept {
  const ControlSite& site = static_cast<ControlService*>(self)->site_;
  const EventLoop* stuck = nullptr;
  uint64_t late_count = 0;
  uint64_t connection_count = 0;
  for (const ControlSession* session : site.sessions) {
    if (session->is_line()) continue;
    ++connection_count;
    const EventLoop* const late = session->late_loop();
    if (late == nullptr) continue;
    stuck = late;
    ++late_count;
  }
  if (stuck == nullptr) return unasked(ControlFault::kRefused, kTooManyAskers, room);
  char text[256];
  TextWriter message(text);
  message.number(late_count).text(" of ").number(connection_count);
  message.text(" connections wait for stuck shards, and keep their slots: see ");
  message.text("`").text(product().name);
  message.text(" top`, and find what blocks the shard ").text(site.name_of(*stuck));
  return unasked(ControlFault::kRefused, {text, message.bytes()}, room);
}

}  // namespace bedplate
