// blockd's methods on the control socket: list, hold and write-protect volumes, take no clients.
#include <algorithm>
#include <string_view>

#include "apps/blockd/block_service.h"
#include "apps/services/control_methods.h"
#include "platform/product.h"
#include "platform/shown_text.h"

namespace bedplate {
namespace {

// Calls `kMethod` of the service.
template <auto kMethod>
void call(void* self, ControlCall& call) noexcept {
  (static_cast<BlockService*>(self)->*kMethod)(call);
}

}  // namespace

void BlockService::methods(ControlMethods& methods) {
  const ControlParameter volume = {.name = "volume",
                                   .help = "The volume's name in [[blockd.volume]]."};
  const auto on = [](const char* help) {
    return ControlParameter{.name = "on", .type = ControlType::kBoolean, .help = help};
  };
  methods.add({.name = "volumes",
               .result = "[{\"volume\", \"shard\", \"bytes\", \"read_only\", \"held\"}]",
               .help = "Lists the volumes and their present state."},
              &call<&BlockService::list_volumes>, this);
  methods.add(
      {.name = "read_only",
       .parameters = {volume, on("True: writes are refused with EPERM from now on.")},
       .result = "{\"volume\", \"read_only\"}",
       .help = "Makes a volume refuse writes, or accept them again; requests in flight continue.",
       .needs = "to take writes: a volume that was not read_only when it was opened"},
      &call<&BlockService::set_read_only>, this);
  methods.add(
      {.name = "hold",
       .parameters = {volume, on("True: requests wait from now on.")},
       .result = "{\"volume\", \"held\", \"released\": N}",
       .help = "Holds new requests back from the volume, or releases them; requests in flight "
               "continue. A drain releases all.",
       .needs = "that blockd does not drain"},
      &call<&BlockService::hold_volume>, this);
  methods.add({.name = "listen",
               .parameters = {on(
                   "True: new clients are served. False: their connections are closed at once.")},
               .result = "{\"listening\": BOOLEAN}",
               .help = "Accepts new clients, or refuses them; connected ones stay."},
              &call<&BlockService::set_listening>, this);
  limit_methods_.add_to(methods);
}

// Refuses the call if no volume has the name that it gives.
bool BlockService::find_volume(ControlCall& call) noexcept {
  const std::string_view name = call.text("volume");
  if (server_.find_volume(name)) return true;
  call.refuse(error_while("looking for the volume %s", ShownText(name).c_str())
                  .set_answer("blockd has no volume of this name")
                  .set_cure("see: %s ctl blockd.volumes", product().name));
  return false;
}

void BlockService::list_volumes(ControlCall& call) noexcept {
  constexpr size_t kAtOnce = 8;
  const auto write = [](void* self, ControlCall& there) noexcept {
    auto& service = *static_cast<BlockService*>(self);
    BlockServer& server = service.server_;
    const size_t count = server.volumes().size();
    JsonText& json = there.result();
    if (there.page() == 0) json.begin_array();
    const size_t end = std::min<size_t>(there.page() + kAtOnce, count);
    for (size_t i = there.page(); i < end; ++i) {
      const Volume& volume = server.volumes()[i];
      json.begin_object().key("volume").text(volume.plan->name);
      json.key("shard").text(service.shard_names_[volume.plan->shard]);
      json.key("bytes").number(volume.store->bytes());
      json.key("read_only").boolean(server.is_read_only(i));
      json.key("held").boolean(server.is_held(i)).end_object();
    }
    end < count ? there.more(end) : (void)json.end_array();
  };
  call.go_on(server_.connections_loop(), write, this);
}

void BlockService::set_read_only(ControlCall& call) noexcept {
  if (!find_volume(call)) return;
  const VolumePlan& plan = *server_.volumes()[*server_.find_volume(call.text("volume"))].plan;
  if (!call.boolean("on") && plan.read_only) {
    call.refuse(error_while("letting the volume %.64s accept writes", plan.name.c_str())
                    .set_answer("it was opened read-only")
                    .set_cure("set read_only = false in its [[blockd.volume]], and start again"));
    return;
  }
  const auto set = [](void* self, ControlCall& there) noexcept {
    auto& service = *static_cast<BlockService*>(self);
    if (there.page() == 0) {
      BlockServer& server = service.server_;
      const size_t index = *server.find_volume(there.text("volume"));
      server.set_read_only(index, there.boolean("on"));
      there.result().begin_object().key("volume").text(there.text("volume")).key("read_only");
      there.result().boolean(server.is_read_only(index));
    }
    service.end_on_each_shard(there);
  };
  call.go_on(server_.connections(static_cast<uint32_t>(call.page())).loop(), set, this);
}

// Ends the answer to a call that changes a fact of all shards of connections. Page 0 was made on
// the first of them, which has told the others. Each further page is made on the next shard, which
// has followed before, and is named in the answer.
void BlockService::end_on_each_shard(ControlCall& there) const noexcept {
  const size_t count = connections_names_.size();
  if (count > 1) {
    if (there.page() == 0) there.result().key("shards").begin_array();
    there.result().text(connections_names_[there.page()]);
    if (there.page() + 1 < count) return there.more(there.page() + 1);
    there.result().end_array();
  }
  there.result().end_object();
}

void BlockService::hold_volume(ControlCall& call) noexcept {
  if (!find_volume(call)) return;
  const auto hold = [](void* self, ControlCall& there) noexcept {
    auto& service = *static_cast<BlockService*>(self);
    const size_t index = *service.server_.find_volume(there.text("volume"));
    // The drain releases held requests by a call on this loop. That call ran before this one, or
    // will run after it.
    if (there.boolean("on") && service.is_draining_.load(std::memory_order_relaxed)) {
      there.refuse(error_while("holding the volume %.64s",
                               service.server_.volumes()[index].plan->name.c_str())
                       .set_answer("blockd is draining: waiting requests are answered")
                       .set_cure("hold it after the next start"));
      return;
    }
    const uint32_t released = service.server_.set_held(index, there.boolean("on"));
    there.result().begin_object().key("volume").text(there.text("volume")).key("held");
    there.result().boolean(service.server_.is_held(index));
    there.result().key("released").number(released).end_object();
  };
  call.go_on(server_.volume_loop(*server_.find_volume(call.text("volume"))), hold, this);
}

void BlockService::set_listening(ControlCall& call) noexcept {
  const auto set = [](void* self, ControlCall& there) noexcept {
    auto& service = *static_cast<BlockService*>(self);
    if (there.page() == 0) {
      service.server_.set_accepting(there.boolean("on"));
      there.result().begin_object().key("listening").boolean(service.server_.is_accepting());
    }
    service.end_on_each_shard(there);
  };
  call.go_on(server_.connections(static_cast<uint32_t>(call.page())).loop(), set, this);
}

}  // namespace bedplate
