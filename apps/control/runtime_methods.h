// The control methods that every appliance has, whatever its services: they report its name,
// methods, counters, plan and services, log the call stacks of its threads, read and set its log
// levels, and drain a service.
//
// Threads: the thread of the connections. Nothing is allocated after add_to().
#pragma once

#include <string>

#include "apps/counters/counters_view.h"
#include "apps/services/control_methods.h"
#include "platform/file.h"

namespace bedplate {

class ServiceDrains;

class RuntimeMethods {
 public:
  // Adds these methods to `methods`. Requires: both objects outlive all calls.
  void add_to(ControlMethods* methods);

  // The methods' data; set before one is called.
  std::string appliance;
  std::string plan;  // as JSON, in one line
  CountersView counters;
  Fd counters_file;  // read(2) on it copies counters while other threads write them
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
