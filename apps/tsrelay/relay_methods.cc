// The relay's methods on the control socket: list streams and outputs, and mute outputs.
#include <algorithm>
#include <string_view>

#include "apps/services/control_methods.h"
#include "apps/tsrelay/relay_service.h"
#include "platform/product.h"
#include "platform/shown_text.h"

namespace bedplate {
namespace {

template <auto kMethod>
void call(void* self, ControlCall& call) noexcept {
  (static_cast<RelayService*>(self)->*kMethod)(call);
}

// `method` lists what there is.
void refuse(ControlCall& call, const char* what, std::string_view name,
            const char* method) noexcept {
  call.refuse(error_while("looking for the %s %s", what, ShownText(name).c_str())
                  .set_answer("tsrelay has none with this name")
                  .set_cure("see: %s ctl %s", product().name, method));
}

}  // namespace

void RelayService::methods(ControlMethods& methods) {
  const ControlParameter stream = {.name = "stream",
                                   .help = "The stream's name in [[tsrelay.stream]]."};
  methods.add({.name = "streams",
               .result = "[{\"stream\", \"shard\", \"drained\", \"legs\": [{\"address\", "
                         "\"silent\"}], \"outputs\": N, \"muted\": N}]",
               .help = "Lists the streams, with their shards, their legs and the number of "
                       "outputs."},
              &call<&RelayService::list_streams>, this);
  methods.add({.name = "outputs",
               .parameters = {stream},
               .result = "[{\"output\", \"to\", \"muted\", \"aside\"}]",
               .help = "Lists the outputs of a stream and their present state."},
              &call<&RelayService::list_outputs>, this);
  methods.add(
      {.name = "mute",
       .parameters =
           {stream,
            {.name = "on",
             .type = ControlType::kBoolean,
             .help = "True: nothing is sent from now on."},
            {.name = "output",
             .is_required = false,
             .help =
                 "The output's name, as `outputs` lists it; default: all outputs of the stream."}},
       .result = "{\"stream\", \"muted\": N, \"outputs\": N}",
       .help = "Mutes outputs, or sends to them again; packets of the meantime are not sent "
               "later. Recordings and readers continue."},
      &call<&RelayService::mute_outputs>, this);
}

// Refuses the call if no stream has the name that it gives.
RelayService::Instance* RelayService::find_stream(ControlCall& call) noexcept {
  const std::string_view name = call.text("stream");
  for (const auto& instance : instances_) {
    if (instance->settings.name == name) return instance.get();
  }
  refuse(call, "stream", name, "tsrelay.streams");
  return nullptr;
}

void RelayService::list_streams(ControlCall& call) noexcept {
  constexpr size_t kAtOnce = 8;
  const auto is_muted = [](const relay::Output& output) {
    return output.counters->is_muted.read() != 0;
  };
  JsonText& json = call.result();
  if (call.page() == 0) json.begin_array();
  const size_t end = std::min<size_t>(call.page() + kAtOnce, instances_.size());
  for (size_t i = call.page(); i < end; ++i) {
    const Instance& its = *instances_[i];
    json.begin_object().key("stream").text(its.settings.name);
    json.key("shard").text(its.shard_name);
    json.key("drained").boolean(its.stream.is_drained()).key("legs").begin_array();
    for (uint32_t leg = 0; leg < its.settings.legs.size(); ++leg) {
      json.begin_object().key("address").text(its.settings.legs[leg].address).key("silent");
      json.boolean(its.stream.leg(leg).counters->is_silent.read() != 0).end_object();
    }
    json.end_array().key("outputs").number(its.outputs.size()).key("muted");
    json.number(
        static_cast<uint64_t>(std::count_if(its.outputs.begin(), its.outputs.end(), is_muted)));
    json.end_object();
  }
  end < instances_.size() ? call.more(end) : (void)json.end_array();
}

void RelayService::list_outputs(ControlCall& call) noexcept {
  constexpr size_t kAtOnce = 32;
  const Instance* its = find_stream(call);
  if (its == nullptr) return;
  JsonText& json = call.result();
  if (call.page() == 0) json.begin_array();
  const size_t end = std::min<size_t>(call.page() + kAtOnce, its->outputs.size());
  for (size_t i = call.page(); i < end; ++i) {
    const relay::OutputCounters& counters = *its->outputs[i].counters;
    json.begin_object().key("output").text(its->output_names[i]);
    json.key("to").text(its->settings.outputs[i].to);
    json.key("muted").boolean(counters.is_muted.read() != 0);
    json.key("aside").boolean(counters.is_aside.read() != 0).end_object();
  }
  end < its->outputs.size() ? call.more(end) : (void)json.end_array();
}

// Threads: the stream's shard.
void RelayService::mute(Instance& instance, ControlCall& call) noexcept {
  const std::string_view only = call.text("output");
  uint64_t muted_count = 0;
  for (size_t i = 0; i < instance.outputs.size(); ++i) {
    relay::Output& output = instance.outputs[i];
    if (!call.has("output") || instance.output_names[i] == only)
      output.mute(call.boolean("on"), instance.stream.ring().end());
    output.counters->is_muted.set(output.is_muted ? 1 : 0);
    if (output.is_muted) ++muted_count;
  }
  JsonText& json = call.result().begin_object().key("stream").text(instance.settings.name);
  json.key("muted").number(muted_count).key("outputs").number(instance.outputs.size()).end_object();
}

void RelayService::mute_outputs(ControlCall& call) noexcept {
  Instance* its = find_stream(call);
  if (its == nullptr) return;
  const std::string_view output = call.text("output");
  const auto& names = its->output_names;
  if (call.has("output") && std::find(names.begin(), names.end(), output) == names.end()) {
    return refuse(call, "output", output, "tsrelay.outputs stream=NAME");
  }
  const auto at_shard = [](void* instance, ControlCall& there) noexcept {
    mute(*static_cast<Instance*>(instance), there);
  };
  call.go_on(*its->loop, at_shard, its);
}

}  // namespace bedplate
