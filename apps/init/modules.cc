#include "apps/init/modules.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>

#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "apps/init/image_settings.h"
#include "apps/init/kernel_command_line.h"
#include "apps/peers/verbs_settings.h"
#include "platform/file.h"
#include "platform/log.h"
#include "platform/plain_lines.h"

namespace bedplate {
namespace {

const char* module_cure(int error_number) noexcept {
  switch (error_number) {
    case ENOENT: return "it needs symbols that no earlier module provides: build the image again";
    case ENOEXEC:
    case EINVAL: return "build it for this kernel, and pass only parameters that it has";
    case EKEYREJECTED:
    case EPERM: return "this kernel accepts signed modules only: sign it, or turn Secure Boot off";
    case ENODEV: return "this machine has no such device: name another driver";
    default: return "see the kernel's messages above";
  }
}

Result<void> load_module(const std::string& path, const std::string& parameters) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) {
    return error_from_errno("loading the module %s", path.c_str())
        .set_cure("build the image again: its list of modules names this file");
  }
  if (syscall(SYS_finit_module, file.number(), parameters.c_str(), 0) == 0 || errno == EEXIST) {
    return {};
  }
  const int reason = errno;
  utsname kernel = {};
  uname(&kernel);
  errno = reason;
  return error_from_errno("loading the module %s%s%s into kernel %s", path.c_str(),
                          parameters.empty() ? "" : " ", parameters.c_str(), kernel.release)
      .set_cure("%s", module_cure(reason));
}

}  // namespace

std::vector<std::string> needed_modules(const Configuration& configuration,
                                        const AppliancePlan& plan) {
  std::vector<std::string> modules;
  const auto need = [&modules](const std::string& module) {
    if (module.empty() || std::count(modules.begin(), modules.end(), module) != 0) return;
    modules.push_back(module);
  };
  const ImageSettings& image = image_settings(configuration);
  for (const NetworkSettings& network : image.networks) need(network.driver);
  const VerbsSettings& verbs = verbs_settings(configuration);
  if (verbs.enabled) {
    need("ib_uverbs");
    if (verbs.connect == VerbsConnect::kRdmaCm) need("rdma_ucm");
    need(verbs.driver);
  }
  if (!plan.vfio_devices().empty()) {
    need("vfio_iommu_type1");
    need("vfio_pci");
  }
  for (const ServiceNeeds& service : plan.services) {
    for (const std::string& module : service.modules) need(module);
  }
  need(image.watchdog.driver);
  for (const std::string& driver : image.crash.drivers) need(driver);
  return modules;
}

Result<void> load_modules(const std::string& directory, std::string_view command_line,
                          std::string_view optional) {
  const std::string order = directory + "/order";
  std::string text;
  const auto read = read_lines(
      order.c_str(),
      [](const char* line, void* into) {
        *static_cast<std::string*>(into) += std::string(line) + "\n";
      },
      &text);
  if (!read.ok()) {
    Error error = read.error();
    return error.set_cure("build the image again");
  }
  std::vector<std::string> files;
  PlainLines lines(text);
  while (lines.next()) files.emplace_back(lines.line());
  if (lines.fault() != nullptr) {
    return error_while("reading %s", order.c_str())
        .set_answer("line %u, column %u: there is %s", lines.number(), lines.column(),
                    lines.fault())
        .set_cure("build the image again");
  }
  for (const std::string& file : files) {
    const std::string name = file.substr(0, file.find('.'));
    const auto loaded = load_module(directory + "/" + file, module_parameters(command_line, name));
    if (loaded.ok()) continue;
    if (module_name(name) != module_name(optional)) return loaded;
    log_error(loaded.error());
  }
  return {};
}

}  // namespace bedplate
