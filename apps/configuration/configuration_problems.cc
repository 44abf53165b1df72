#include "apps/configuration/configuration_problems.h"

#include <algorithm>

namespace bedplate {

// More problems do not help, and an error takes about a KiB.
static constexpr size_t kProblemsShownMax = 64;

std::vector<Error> ConfigurationProblems::errors(const char* path) const {
  std::vector<const Problem*> sorted;
  for (const Problem& problem : all_) sorted.push_back(&problem);
  // Problems at one position stay in the order in which they were found.
  std::stable_sort(sorted.begin(), sorted.end(), [](const Problem* left, const Problem* right) {
    return left->position < right->position;
  });
  std::vector<Error> errors;
  for (const Problem* problem : sorted) {
    if (errors.size() == kProblemsShownMax) {
      errors.push_back(configuration_error(path, problem->position,
                                           "there are " +
                                               std::to_string(sorted.size() - errors.size()) +
                                               " more problems from here on",
                                           "correct those above first"));
      break;
    }
    errors.push_back(configuration_error(path, problem->position, problem->answer, problem->cure));
  }
  return errors;
}

}  // namespace bedplate
