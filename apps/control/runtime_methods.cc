#include "apps/control/runtime_methods.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include <unistd.h>

#include "apps/c_interface/bedplate_version.h"
#include "apps/control/counter_words.h"
#include "apps/counters/counters_snapshot.h"
#include "apps/counters/stats_json.h"
#include "apps/services/service_drains.h"
#include "platform/assert.h"
#include "platform/build_id.h"
#include "platform/clock.h"
#include "platform/counter_table.h"
#include "platform/log.h"
#include "platform/product.h"
#include "platform/shown_text.h"
#include "platform/thread_calls.h"

namespace bedplate {
namespace {

template <void (RuntimeMethods::*kMethod)(ControlCall&) const noexcept>
void call(void* self, ControlCall& call) noexcept {
  (static_cast<const RuntimeMethods*>(self)->*kMethod)(call);
}

void begin_set(const CountersView& counters, const CounterSetRecord& set, JsonText* json) noexcept {
  json->begin_object();
  json->key("owner").text(CountersView::text(set.owner.text));
  json->key("name").text(CountersView::text(set.name.text));
  json->key("instance").text(CountersView::text(set.instance.text));
  json->key("labels").begin_object();
  for (uint32_t i = 0; i < set.label_count; ++i) {
    const CounterLabelRecord& label = counters.label(set, i);
    json->key(CountersView::text(label.name)).text(CountersView::text(label.value));
  }
  json->end_object().key("counters").begin_object();
}

void write_service(const ServiceDrains& drains, size_t index, JsonText* json) noexcept {
  json->begin_object().key("service").text(drains.name_of(index)).key("state");
  json->text(to_text(drains.state_of(index))).end_object();
}

}  // namespace

void RuntimeMethods::add_to(ControlMethods* methods) {
  methods_ = methods;
  methods->add({.name = "ping",
                .result = "{\"appliance\": NAME, \"pid\": N, \"product\": NAME, \"version\": TEXT, "
                          "\"bedplate\": TEXT, \"build\": TEXT}",
                .help = "Returns the appliance's name, its program's name and version, Bedplate's "
                        "version, and the build."},
               &call<&RuntimeMethods::ping>, this);
  methods->add({.name = "methods",
                .result = "[{\"name\", \"parameters\": [...], \"result\", \"help\", \"needs\"}]",
                .help = "Lists the methods of this appliance and of its services."},
               &call<&RuntimeMethods::list>, this);
  methods->add({.name = "counters",
                .parameters = {{.name = "owner",
                                .is_required = false,
                                .help = "A service: only its counters, not the runtime's."}},
                .result = "[{\"owner\", \"name\", \"instance\", \"labels\", \"counters\"}]",
                .help = "Returns all counters, set by set."},
               &call<&RuntimeMethods::say_counters>, this);
  methods->add(
      {.name = "counters.read",
       .parameters = {{.name = "from",
                       .type = ControlType::kNumber,
                       .is_required = false,
                       .help = "The first byte to return, a multiple of 8; default: 0."},
                      {.name = "bytes",
                       .type = ControlType::kNumber,
                       .is_required = false,
                       .help = "The number of bytes, a multiple of 8; default: all that follow."}},
       .result = "{\"created_ns\": N, \"now_ns\": N, \"bytes\": N, \"words\": [...]}",
       .help = with_product_name(
           "Returns the bytes of the counters file, without the traces, for `PROGRAM top` over "
           "a serial line: -N stands for N words of zeros, a text for its bytes.")},
      &call<&RuntimeMethods::read_counters>, this);
  methods->add({.name = "plan",
                .result = with_product_name("as `PROGRAM plan --json` prints it"),
                .help = "Returns every byte of the pool with its owner."},
               &call<&RuntimeMethods::say_plan>, this);
  methods->add({.name = "services",
                .result = "[{\"service\", \"state\": \"serving\", \"wished\", \"draining\" or "
                          "\"drained\"}]",
                .help = "Lists the services that run, and whether they drain."},
               &call<&RuntimeMethods::list_services>, this);
  methods->add(
      {.name = "drain",
       .parameters = {{.name = "service", .help = "The service's name, as `services` lists it."}},
       .result = "{\"service\", \"state\"}",
       .help = "Makes a service finish its requests and accept no new ones, for good; the other "
               "services continue."},
      &call<&RuntimeMethods::drain>, this);
  methods->add(
      {.name = "record",
       .result = "{\"build\": TEXT, \"threads\": N, \"silent\": N}",
       .help = "Logs the contents of a crash record, and continues: the build, and the call "
               "stack of each thread that responds.",
       .needs = "a signal (SIGRTMAX - 3) that nobody else handles"},
      &call<&RuntimeMethods::record>, this);
  methods->add(
      {.name = "log.show",
       .result = "[{\"component\", \"level\"}]",
       .help = "Lists the parts of the program that log, each with its lowest logged level."},
      &call<&RuntimeMethods::show_log_levels>, this);
  methods->add(
      {.name = "log.set",
       .parameters = {{.name = "level", .help = "debug, info, warning or error."},
                      {.name = "component",
                       .is_required = false,
                       .help = "A part, including the parts below it; default: all parts."}},
       .result = "{\"level\", \"components\": N}",
       .help = "Drops log lines below the level from now on.",
       .needs = "a part that log.show lists, or one above such parts"},
      &call<&RuntimeMethods::set_log_levels>, this);
}

void RuntimeMethods::ping(ControlCall& call) const noexcept {
  JsonText& json = call.result();
  json.begin_object().key("appliance").text(appliance);
  json.key("pid").number(static_cast<uint64_t>(getpid()));
  json.key("product").text(product().name).key("version").text(product().version);
  json.key("bedplate").text(kBedplateVersion).key("build").text(build_id().text).end_object();
}

// One page for each method.
void RuntimeMethods::list(ControlCall& call) const noexcept {
  const std::vector<ControlMethod>& all = methods_->all();
  JsonText& json = call.result();
  if (call.page() == 0) json.begin_array();
  const ControlMethod& method = all[call.page()];
  json.begin_object().key("name").text(method.name).key("parameters").begin_array();
  for (const ControlParameter& parameter : method.parameters) {
    json.begin_object().key("name").text(parameter.name).key("type").text(to_text(parameter.type));
    json.key("required").boolean(parameter.is_required).key("help").text(parameter.help);
    json.end_object();
  }
  json.end_array().key("result").text(method.result).key("help").text(method.help);
  json.key("needs").text(method.needs).end_object();
  if (call.page() + 1 < all.size()) {
    call.more(call.page() + 1);
  } else {
    json.end_array();
  }
}

// Writes as many counters as fit. A page's number encodes its first set, and the first counter in
// it.
void RuntimeMethods::say_counters(ControlCall& call) const noexcept {
  constexpr size_t kRoomBytes = 2 * 1024;  // a set's head, and a counter
  constexpr size_t kPieceBytes = 16 * 1024;
  JsonText& json = call.result();
  if (call.page() == 0) json.begin_array();
  auto set_index = static_cast<uint32_t>(call.page() >> 32);
  auto first = static_cast<uint32_t>(call.page());
  for (; set_index < counters.set_count(); ++set_index, first = 0) {
    const CounterSetRecord& set = counters.set(set_index);
    const bool is_wanted =
        !call.has("owner") || CountersView::text(set.owner.text) == call.text("owner");
    if (!counters.is_there(set_index) || !is_wanted || set.count == 0) continue;
    for (uint32_t i = first; i < set.count; ++i) {
      if (json.bytes() > kPieceBytes - kRoomBytes) {
        call.more(uint64_t{set_index} << 32 | i);
        return;
      }
      if (i == 0) begin_set(counters, set, &json);
      const SeenCounter counter = SeenCounter::of(counters, set, i);
      json.key(counter.name);
      const bool is_known = write_known_value(counter, &json);
      BP_ASSERT(is_known);  // the session's own parameter
    }
    json.end_object().end_object();
  }
  json.end_array();
}

// A page's number is its start offset in the file.
void RuntimeMethods::read_counters(ControlCall& call) const noexcept {
  constexpr size_t kPageWords = 512;
  static_assert(kPageWords * kCounterWordRoom < 14 * 1024, "a page fits into an answer's piece");
  const CountersHeader& header = counters.header();
  const uint64_t all = CountersSnapshot::bytes_of(header, header.file_bytes);
  const uint64_t first = call.number("from");
  Error error = error_while("reading counters");
  if (first % 8 != 0 || first > all || call.number("bytes") % 8 != 0) {
    error.set_answer("from or bytes is not a multiple of 8, or from is beyond the last of %" PRIu64
                     " bytes",
                     all);
    return call.refuse(error.set_cure("ask for bytes that exist"));
  }
  const uint64_t end = first + std::min(call.number("bytes", all), all - first);
  const uint64_t from = std::max(call.page(), first);
  uint64_t words[kPageWords];
  const size_t bytes = std::min<uint64_t>(end - from, sizeof words);
  if (read_at(counters_file.number(), words, bytes, from) != static_cast<ssize_t>(bytes)) {
    error.set_answer("the file was truncated");
    return call.refuse(error.set_cure("restart the appliance: something has written to its files"));
  }
  JsonText& json = call.result();
  if (call.page() == 0) {
    json.begin_object().key("created_ns").number(header.created_ns);
    json.key("now_ns").number(monotonic_ns()).key("bytes").number(all);
    json.key("words").begin_array();
  }
  write_counter_words({words, bytes / sizeof words[0]}, &json);
  from + bytes < end ? call.more(from + bytes) : (void)json.end_array().end_object();
}

void RuntimeMethods::say_plan(ControlCall& call) const noexcept {
  constexpr size_t kPieceBytes = 16 * 1024;
  const std::string_view rest = std::string_view(plan).substr(call.page());
  call.result().more(rest.substr(0, kPieceBytes));
  if (rest.size() > kPieceBytes) call.more(call.page() + kPieceBytes);
}

void RuntimeMethods::list_services(ControlCall& call) const noexcept {
  constexpr size_t kAtOnce = 64;
  JsonText& json = call.result();
  if (call.page() == 0) json.begin_array();
  const size_t end = std::min<size_t>(call.page() + kAtOnce, drains->count());
  for (size_t i = call.page(); i < end; ++i) write_service(*drains, i, &json);
  end < drains->count() ? call.more(end) : (void)json.end_array();
}

void RuntimeMethods::drain(ControlCall& call) const noexcept {
  const auto index = drains->find(call.text("service"));
  if (!index) {
    return call.refuse(error_while("draining %s", ShownText(call.text("service")).c_str())
                           .set_answer("no service of this name runs")
                           .set_cure("see: %s ctl services", product().name));
  }
  if (!drains->drains_alone(*index)) {
    return call.refuse(error_while("draining %s", drains->name_of(*index))
                           .set_answer("it belongs to the machine, and drains when the appliance "
                                       "ends")
                           .set_cure("end the appliance (SIGTERM), or drain another service"));
  }
  drains->wish(*index);
  write_service(*drains, *index, &call.result());
}

void RuntimeMethods::record(ControlCall& call) const noexcept {
  constexpr uint64_t kPatienceNs = kNsPerSecond / 2;  // for each thread
  BP_LOG_ERROR("record of %s, on request: build %s", appliance.c_str(), build_id().text);
  auto logged = log_thread_calls(kPatienceNs);
  if (!logged.ok()) return call.refuse(logged.error());
  JsonText& json = call.result().begin_object().key("build").text(build_id().text);
  json.key("threads").number(logged.value().threads).key("silent");
  json.number(logged.value().silent).end_object();
}

void RuntimeMethods::show_log_levels(ControlCall& call) const noexcept {
  constexpr uint64_t kAtOnce = 64;
  JsonText& json = call.result();
  if (call.page() == 0) json.begin_array();
  uint64_t index = 0;
  for (const LogComponent* each = LogComponent::first(); each; each = each->next(), ++index) {
    if (index < call.page()) continue;
    if (index == call.page() + kAtOnce) return call.more(index);
    json.begin_object().key("component").text(each->name());
    json.key("level").text(to_text(each->level())).end_object();
  }
  json.end_array();
}

void RuntimeMethods::set_log_levels(ControlCall& call) const noexcept {
  Error error = error_while("setting the log level");
  const std::string_view text = call.text("level");
  const auto level = parse_log_level(text);
  if (!level) {
    error.set_answer("there is no level \"%s\"", ShownText(text).c_str());
    return call.refuse(error.set_cure("write debug, info, warning or error"));
  }
  const std::string_view component = call.text("component");
  const uint32_t count =
      call.has("component") ? set_log_level(component, *level) : set_log_level(*level);
  if (count == 0) {
    error.set_answer("no part that logs is called \"%s\"", ShownText(component).c_str());
    return call.refuse(error.set_cure("see: %s ctl log.show", product().name));
  }
  JsonText& json = call.result().begin_object();
  json.key("level").text(to_text(*level)).key("components").number(count).end_object();
}

}  // namespace bedplate
