// Chooses the boundaries to test and their order, and reports the results.
#include "tests/strain/step.h"

#include <algorithm>
#include <cinttypes>
#include <random>
#include <string>
#include <vector>

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "platform/clock.h"
#include "platform/log.h"
#include "tests/strain/step_group.h"

namespace bedplate::strain {
namespace {

constexpr uint32_t kBoundaryMax = 1024;

// The record of a case, in memory shared with the process that tries the case. If that process
// ends, the next process continues from this record.
struct CaseResult {
  uint32_t boundary_count = 0;  // 0: not measured yet
  uint32_t next = 0;            // index of the next boundary in the shuffled order
  uint32_t tried = 0;
  uint32_t slept = 0;
  uint32_t unsaid = 0;
  uint64_t longest_ns = 0;  // from the first send of the others to the last arrival
  bool is_unmeasurable = false;
  uint32_t faults[kBoundaryMax] = {};                            // of each boundary
  char texts[static_cast<size_t>(StepFault::kCount)][160] = {};  // the first text of each fault
};

std::string text_of(const StepCase& which) {
  return std::string(to_text(which.queue)) + " " + to_text(which.deed) + ", " +
         to_text(which.fate) + ", receiver " + (which.is_sleepy ? "asleep" : "awake");
}

std::vector<StepCase> all_cases(const char* filter) {
  std::vector<StepCase> cases;
  for (const StepQueue queue : kStepQueues) {
    for (const Fate fate : kFates) {
      for (const Deed deed : kDeeds) {
        for (const bool is_sleepy : {false, true}) {
          const StepCase which = {queue, deed, fate, is_sleepy};
          if (is_possible(queue, deed) && text_of(which).find(filter) != std::string::npos) {
            cases.push_back(which);
          }
        }
      }
    }
  }
  return cases;
}

// The boundary to try as number `index`. Each boundary occurs once; the seed shuffles the order.
uint32_t shuffled(uint32_t index, uint32_t count, uint64_t seed) {
  std::vector<uint32_t> order(count);
  for (uint32_t i = 0; i < count; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
  return order[index];
}

void try_next(StepGroup& group, const StepCase& which, CaseResult& result, uint64_t seed) {
  if (result.boundary_count == 0) {
    result.is_unmeasurable = true;  // until the measurement succeeds
    const uint32_t count = group.measure(which);
    if (count == 0) return;
    result.boundary_count = std::min(count + 1, kBoundaryMax);
    result.is_unmeasurable = false;
  }
  if (result.next == result.boundary_count) return;
  const uint32_t boundary = shuffled(result.next++, result.boundary_count, seed);
  const StepOutcome outcome = group.try_boundary(which, boundary);
  ++result.tried;
  if (outcome.slept) ++result.slept;
  if (outcome.is_unsaid) ++result.unsaid;
  result.longest_ns = std::max(result.longest_ns, outcome.delivery_ns);
  result.faults[boundary] = outcome.faults;
  for (size_t i = 0; i < std::size(result.texts); ++i) {
    if (result.texts[i][0] == '\0') std::memcpy(result.texts[i], outcome.texts[i], 160);
  }
}

// Runs in its own process until the time is over, all boundaries are tried, or the group is
// unusable.
void try_in_group(std::span<const StepCase> cases, std::span<CaseResult> results,
                  const StepOptions& options, uint64_t until_ns) {
  set_log_level(LogLevel::kError);
  StepGroup group(cases[0].queue, options.hang_ns, options.seed);
  for (bool is_more = true; is_more && group.is_good();) {
    is_more = false;
    for (size_t i = 0; i < cases.size() && group.is_good(); ++i) {
      if (monotonic_ns() >= until_ns) return;
      CaseResult& result = results[i];
      if (result.is_unmeasurable) continue;
      if (result.boundary_count != 0 && result.next == result.boundary_count) continue;
      is_more = true;
      try_next(group, cases[i], result, options.seed + i);
    }
  }
}

bool is_complete(std::span<const CaseResult> results) {
  return std::all_of(results.begin(), results.end(), [](const CaseResult& result) {
    return result.is_unmeasurable ||
           (result.boundary_count != 0 && result.next == result.boundary_count);
  });
}

void try_queue(std::span<const StepCase> cases, std::span<CaseResult> results,
               const StepOptions& options, uint64_t nanoseconds) {
  const uint64_t until_ns = monotonic_ns() + nanoseconds;
  while (monotonic_ns() < until_ns && !is_complete(results)) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      try_in_group(cases, results, options, until_ns);
      std::fflush(nullptr);
      _exit(0);  // the sender ends with its tracer
    }
    const int status = StrainedGroup::status_of(child);
    StrainedGroup::remove_sockets_of(child);
    if (status != 0) {
      std::printf("step: the owner of the group ended with %d\n", status);
      results[0].is_unmeasurable = true;
      return;
    }
  }
}

// The boundaries that have `fault`, as ranges: 1-3, 7, ...
std::string ranges_of(const CaseResult& result, uint32_t fault) {
  const auto has = [&](uint32_t i) { return (result.faults[i] >> fault & 1) != 0; };
  std::string text;
  for (uint32_t i = 0; i < result.boundary_count; ++i) {
    if (!has(i)) continue;
    uint32_t last = i;
    while (last + 1 < result.boundary_count && has(last + 1)) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(i);
    if (last != i) text += "-" + std::to_string(last);
    i = last;
  }
  return text;
}

bool report(const StepCase& which, const CaseResult& result) {
  const auto failed = std::count_if(result.faults, result.faults + result.boundary_count,
                                    [](uint32_t faults) { return faults != 0; });
  const bool is_good = failed == 0 && !result.is_unmeasurable;
  std::printf("step: %s %s: %u of %u boundaries, %ld failed; others' messages came within %" PRIu64
              " us",
              is_good ? "good  " : "FAILED", text_of(which).c_str(), result.tried,
              result.boundary_count, static_cast<long>(failed), result.longest_ns / kNsPerUs);
  if (which.is_sleepy) std::printf(", %u times to a sleeper", result.slept);
  if (result.unsaid > 0) std::printf(", %u lost what it was sending as it died", result.unsaid);
  if (result.is_unmeasurable) std::printf("; the call does not work unstopped");
  std::printf("\n");
  for (uint32_t i = 0; i < static_cast<uint32_t>(StepFault::kCount); ++i) {
    const std::string ranges = ranges_of(result, i);
    if (ranges.empty()) continue;
    std::printf("    %s (%s): %s\n", to_text(static_cast<StepFault>(i)), result.texts[i],
                ranges.c_str());
  }
  return is_good;
}

}  // namespace

uint32_t step_senders(const StepOptions& options, uint32_t* count) {
  const std::vector<StepCase> cases = all_cases(options.filter);
  *count = static_cast<uint32_t>(cases.size());
  if (cases.empty()) return 0;
  void* memory = mmap(nullptr, cases.size() * sizeof(CaseResult), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("no memory for the results");
  const std::span<CaseResult> results(static_cast<CaseResult*>(memory), cases.size());
  for (CaseResult& result : results) new (&result) CaseResult;
  for (size_t begin = 0, end = 0; begin < cases.size(); begin = end) {
    while (end < cases.size() && cases[end].queue == cases[begin].queue) ++end;
    const std::span<const StepCase> those = std::span(cases).subspan(begin, end - begin);
    try_queue(those, results.subspan(begin, those.size()), options,
              options.nanoseconds * those.size() / cases.size());
  }
  uint32_t failed = 0;
  for (size_t i = 0; i < cases.size(); ++i) failed += report(cases[i], results[i]) ? 0 : 1;
  munmap(memory, cases.size() * sizeof(CaseResult));
  return failed;
}

}  // namespace bedplate::strain
