// The control methods of every appliance, whatever its services are: they tell its name, methods,
// counters, plan and its threads' places, read and set its log levels, and drain a service.
//
// Threads: that of the control socket. Nothing is allocated once they are added.
#pragma once

#include <string>

#include "apps/counters/counters_view.h"
#include "apps/services/control_methods.h"
#include "platform/file.h"

namespace bedplate {

class ServiceDrains;

class RuntimeMethods {
 public:
  // Adds these methods. `methods` and this outlive the appliance.
  void add_to(ControlMethods* methods);

  // The methods' data; set before one is called.
  std::string appliance;
  std::string plan;  // as JSON, in one line
  CountersView counters;
  Fd counters_file;  // theirs: read(2) copies what other threads write meanwhile
  ServiceDrains* drains = nullptr;

 private:
  void ping(ControlCall& call) const noexcept;
  void list(ControlCall& call) const noexcept;
  void say_counters(ControlCall& call) const noexcept;
  void read_counters(ControlCall& call) const noexcept;
  void say_plan(ControlCall& call) const noexcept;
  void show_log_levels(ControlCall& call) const noexcept;
  void list_services(ControlCall& call) const noexcept;
  void drain(ControlCall& call) const noexcept;
  void record(ControlCall& call) const noexcept;
  void set_log_levels(ControlCall& call) const noexcept;

  const ControlMethods* methods_ = nullptr;
};

}  // namespace bedplate
