#include "transport/nvme/nvme_problem.h"

#include <iterator>

#include "platform/assert.h"

namespace bedplate {
namespace {

struct Words {
  const char* answer;
  const char* cure;
};

constexpr char kBroken[] = "the drive is broken, or not seated well: try another one";
constexpr char kOther[] = "name another drive; the kernel's driver may support this one";

constexpr Words kWords[] = {
    {"nothing is wrong", ""},
    {"is gone: its registers read as all ones", kBroken},
    {"was taken back by the kernel", "give it to vfio-pci again"},
    {"does not stop", kBroken},
    {"does not become ready", kBroken},
    {"reports that it has failed, or is no longer ready", kBroken},
    {"does not answer an admin command", kBroken},
    {"neither answers a command nor aborts it", "raise nvme_timeout_ms if the drive is only slow"},
    {"refuses an admin command", kOther},
    {"does not support the commands for blocks", kOther},
    {"does not support pages of 4 KiB", kOther},
    {"has no I/O queue, doorbell or interrupt, or too short queues", kOther},
    {"grants fewer I/O queues than before", "start the appliance again"},
    {"has no volatile write cache", "leave nvme_write_cache out"},
    {"has no such namespace", "name one that it has in nvme_namespace (nvme list-ns, while the "
                              "kernel's driver has the drive)"},
    {"has its blocks formatted with metadata", "format it without, which erases it: nvme format "
                                               "--lbaf=N, while the kernel's driver has the drive"},
    {"has blocks of less than 512 or more than 4096 bytes",
     "format it with blocks of 512 or 4096 bytes, which erases it: nvme format --lbaf=N, while "
     "the kernel's driver has the drive"},
    {"has changed: it is smaller, or has other blocks or smaller transfers",
     "start the appliance again"},
};
static_assert(std::size(kWords) == static_cast<size_t>(NvmeProblem::kCount));

const Words& words_of(NvmeProblem problem) noexcept {
  BP_ASSERT(problem < NvmeProblem::kCount);
  return kWords[static_cast<size_t>(problem)];
}

}  // namespace

const char* to_text(NvmeProblem problem) noexcept { return words_of(problem).answer; }

Error error_of(NvmeProblem problem, uint32_t detail, const std::string& address) noexcept {
  const Words& words = words_of(problem);
  Error error;
  if (problem >= NvmeProblem::kMissingNamespace) {
    error.set_doing("checking namespace %u of the NVMe drive %s", detail, address.c_str());
  } else {
    error.set_doing("starting the NVMe drive %s", address.c_str());
  }
  if (problem == NvmeProblem::kRefused) {
    error.set_answer("it %s (status 0x%03x)", words.answer, detail);
  } else {
    error.set_answer("it %s", words.answer);
  }
  return error.set_cure("%s", words.cure);
}

}  // namespace bedplate
