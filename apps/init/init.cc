#include "apps/init/init.h"

#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>

#include <sys/utsname.h>
#include <unistd.h>

#include "apps/boot/appliance.h"
#include "apps/boot/loaded_configuration.h"
#include "apps/boot/preflight.h"
#include "apps/boot/service_context.h"
#include "apps/init/core_dump.h"
#include "apps/init/crash.h"
#include "apps/init/drill.h"
#include "apps/init/image_settings.h"
#include "apps/init/kernel_command_line.h"
#include "apps/init/machine.h"
#include "apps/init/modules.h"
#include "apps/init/mounts.h"
#include "apps/init/network.h"
#include "apps/init/rdma_link.h"
#include "apps/init/watchdog.h"
#include "apps/peers/verbs_settings.h"
#include "platform/assert.h"
#include "platform/build_id.h"
#include "platform/capabilities.h"
#include "platform/clock.h"
#include "platform/file.h"
#include "platform/log.h"
#include "platform/product.h"
#include "transport/vfio/pci_device.h"

namespace bedplate {
namespace {

constexpr const char* kConfigurationPath = "/bedplate.toml";
constexpr const char* kModulesDirectory = "/modules";
constexpr long kSentPollNs = 10 * static_cast<long>(kNsPerMs);

double seconds(uint64_t ns) noexcept {
  return static_cast<double>(ns) / static_cast<double>(kNsPerSecond);
}

// The machine as a service, beside the program's services.
class Init final : public Service {
 public:
  explicit Init(std::span<Service* const> services) : services_(services) {}
  // Returns how the machine is to end. Errors: the failed step.
  Result<MachineEnd> run();
  const CrashSettings& crash() const noexcept { return settings().crash; }

  const char* name() const noexcept override { return "init"; }
  Result<void> plan(ServicePlan& plan) override;
  Result<void> prepare() override;
  Result<void> create(ServiceContext& context) override;
  Result<void> sealed() override;
  void start(uint32_t shard) noexcept override;
  void request_drain() noexcept override { give_up_ctrl_alt_del(); }
  bool drains_alone() const noexcept override { return false; }  // the machine ends with it
  void tick() noexcept override {
    drill_control(drill_);
    watchdog_.feed();
  }
  void stop_watchdog() noexcept { watchdog_.stop(); }

 private:
  const ImageSettings& settings() const noexcept { return image_settings(configuration_); }
  Result<void> read_command_line();
  Result<void> read_configuration();
  Result<void> prepare_machine();
  void wait_until_sent() noexcept;

  std::span<Service* const> services_;
  std::string command_line_;
  Configuration configuration_;
  Watchdog watchdog_;
  Drill drill_ = Drill::kNone;
  EventLoop* first_loop_ = nullptr;
  uint64_t kept_ = 0;
};

// Turns off the kernel's rate limit for Bedplate's log lines: a crash writes many.
void take_all_kernel_lines() noexcept {
  const Fd file(open("/proc/sys/kernel/printk_devkmsg", O_WRONLY | O_CLOEXEC));
  [[maybe_unused]] const ssize_t written = write(file.number(), "on\n", 3);
}

Result<void> Init::read_command_line() {
  char text[4096];
  if (auto read = read_text_file("/proc/cmdline", text, sizeof text); !read) {
    Error error = read.error();
    return error.set_cure("boot a kernel that provides its command line");
  }
  command_line_ = text;
  BP_TRY_ASSIGN(drill_, parse_drill(command_line_value(command_line_, "bedplate.drill")));
  return {};
}

Result<void> Init::read_configuration() {
  std::vector<Error> problems;
  auto configuration = load_configuration(kConfigurationPath, services_, &problems);
  if (configuration) {
    configuration_ = std::move(*configuration);
    configuration_.is_first_process = true;
    // Added last: the watchdog must be fed from the moment that it is started.
    configuration_.services.push_back(this);
    return {};
  }
  BP_ASSERT(!problems.empty());
  const Error last = problems.back();  // logged when the machine ends
  problems.pop_back();
  for (const Error& problem : problems) log_error(problem);
  return last;
}

Result<void> Init::prepare_machine() {
  const WatchdogSettings& watchdog = settings().watchdog;
  BP_TRY_ASSIGN(const auto plan, plan_appliance(configuration_));
  // Called before drivers are loaded: no kernel driver may take a device that a service drives
  // itself. If it fails, preflight reports the reason.
  const std::vector<std::string> devices = plan.vfio_devices();
  for (const std::string& device : devices) (void)reserve_for_vfio(device);
  BP_TRY(load_modules(kModulesDirectory, command_line_, watchdog.required ? "" : watchdog.driver));
  for (const std::string& device : devices) (void)give_to_vfio(device);
  show_old_records();  // after the modules: pstore's store may need one
  say_where_records_go();
  BP_TRY(bring_networks_up(settings().networks));
  BP_TRY(bring_verbs_up(verbs_settings(configuration_)));
  BP_TRY(raise_limits());
  reserve_hugepages(plan);
  kept_ = capabilities_to_keep(configuration_) | plan.capabilities();
  return take_ctrl_alt_del();
}

Result<MachineEnd> Init::run() {
  const uint64_t began_ns = monotonic_ns();
  BP_TRY(mount_file_systems());
  open_missing_streams();
  take_all_kernel_lines();
  BP_TRY(read_command_line());
  BP_TRY(read_configuration());
  watchdog_.create(settings().watchdog);
  BP_TRY(end_machine_at_crash(settings().crash, watchdog_));
  utsname kernel = {};
  uname(&kernel);
  BP_LOG_INFO("build %s is the first process of Linux %s", build_id().text, kernel.release);
  BP_TRY(prepare_machine());
  drill_boot(drill_);
  BP_TRY(check_heap_expectation(configuration_.alloc.expect, interception_decision()));
  Appliance appliance(configuration_);
  if (appliance.boot()) {
    return error_while("booting the appliance %s", configuration_.appliance.name.c_str())
        .set_answer("refused, as reported above")
        .set_cure("correct the configuration, and build the image again");
  }
  const uint64_t ready_ns = monotonic_ns();
  std::printf("%s: ready\n", product().name);
  std::fflush(stdout);
  BP_LOG_INFO("%.3f s after the kernel began, %.3f s after its first process did",
              seconds(ready_ns), seconds(ready_ns - began_ns));
  const int signal_number = appliance.serve_until_signal();
  wait_until_sent();
  watchdog_.keep_alive();  // the last time: the end has the full timeout
  if (signal_number == SIGINT) return settings().init.on_ctrl_alt_del;
  if (signal_number == SIGTERM) return settings().init.on_terminate;
  return error_while("serving")
      .set_answer("a process that had joined failed, as reported above, and on_join_failure is "
                  "\"stop\"")
      .set_cure("correct the process, or change [messages] on_join_failure");
}

// Waits until peers have acknowledged the bytes that the kernel still sends for closed connections:
// they would be lost with the machine.
void Init::wait_until_sent() noexcept {
  const uint32_t timeout_ms = configuration_.appliance.drain_timeout_ms;
  const uint64_t deadline_ns = monotonic_ns() + timeout_ms * kNsPerMs;
  if (const uint64_t bytes = unsent_bytes()) {
    BP_LOG_INFO("%s: peers still have to receive %" PRIu64 " bytes, waiting %u ms at most",
                configuration_.appliance.name.c_str(), bytes, timeout_ms);
  }
  while (const uint64_t bytes = unsent_bytes()) {
    if (monotonic_ns() >= deadline_ns) {
      BP_LOG_WARNING("%s: peers have not received %" PRIu64 " bytes after %u ms; these are lost",
                     configuration_.appliance.name.c_str(), bytes, timeout_ms);
      return;
    }
    watchdog_.keep_alive();
    const timespec pause = {0, kSentPollNs};
    nanosleep(&pause, nullptr);
  }
}

// Plans timers: the watchdog's mark on each shard, and the drill on the first.
Result<void> Init::plan(ServicePlan& plan) {
  // The appliance has a copy of this configuration.
  BP_ASSERT(plan.configuration().shards.size() == configuration_.shards.size());
  for (uint32_t shard = 0; shard < configuration_.shards.size(); ++shard) {
    plan.timers(shard, shard == 0 ? 2 : 1);
  }
  return {};
}

Result<void> Init::prepare() {
  BP_TRY(choose_dump(settings().crash, process_pool()));
  if (settings().crash.dump != CrashDump::kNone) dump_crashes();
  BP_ASSERT(kept_ != 0);  // prepare_machine() has chosen them: ending the machine needs one
  // Called while no other thread runs: capabilities belong to a thread, and new threads inherit
  // them.
  return keep_capabilities(kept_);
}

Result<void> Init::create(ServiceContext& context) {
  BP_ASSERT(first_loop_ == nullptr);
  BP_ASSERT(context.shard_count() == configuration_.shards.size());  // each has its timers
  first_loop_ = &context.loop(0);
  for (uint32_t i = 0; i < context.shard_count(); ++i) watchdog_.loop_made(i, context.loop(i));
  return {};
}

Result<void> Init::sealed() {
  BP_TRY(check_capabilities(kept_));
  BP_LOG_INFO("capabilities kept: %s", name_capabilities(kept_).c_str());
  const WatchdogSettings& watchdog = settings().watchdog;
  if (watchdog.enabled && watchdog.required) {
    wait_for_device(watchdog.device.c_str(),
                    [&] { return access(watchdog.device.c_str(), F_OK) == 0; });
  }
  return watchdog_.start();
}

void Init::start(uint32_t shard) noexcept {
  BP_ASSERT(first_loop_ != nullptr);  // create() was called
  watchdog_.loop_begins(shard);
  if (shard == 0) begin_drill(drill_, *first_loop_);
}

}  // namespace

bool is_init(int count, char** words) noexcept {
  if (count < 1) return false;
  const char* slash = std::strrchr(words[0], '/');
  if (std::strcmp(slash == nullptr ? words[0] : slash + 1, "init") != 0) return false;
  return getpid() == 1 || (count > 1 && std::strcmp(words[1], kDumpCore) == 0);
}

int init_main(int count, char** words, std::span<Service* const> services) {
  if (getpid() != 1) return dump_core(count, words);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_IGN);  // the kernel then reaps every child, and every orphan
  // Static: its watchdog must outlive a crash at any time.
  static Init init(services);
  auto end = init.run();
  // The appliance has ended, or never started: the machine ends on purpose.
  init.stop_watchdog();
  if (end.ok()) {
    BP_LOG_INFO("the machine ends: %s", to_text(end.value()));
    end_machine(end.value());
  }
  log_error(end.error());
  give_up_ctrl_alt_del();  // from here on the user may reset at once
  const MachineEnd action = init.crash().action;
  BP_LOG_ERROR("the machine ends: %s in %u s", to_text(action), init.crash().delay_s);
  sleep_s(init.crash().delay_s);
  end_machine(action);
}

}  // namespace bedplate

extern "C" const bedplate::InitPart bedplate_init_part;
const bedplate::InitPart bedplate_init_part = {&bedplate::is_init, &bedplate::init_main,
                                               &bedplate::needed_modules};
