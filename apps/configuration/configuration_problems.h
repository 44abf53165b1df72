// The problems of a configuration, which its reader and the checks of its tables find.
//
// All of them are told, in one report. It also knows which keys and tables were refused: a check
// across keys is left out if one of its sides was, since it would only blame the wrong line.
// Threads: one (it allocates).
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/configuration/toml_reader.h"
#include "platform/result.h"

namespace bedplate {

class ConfigurationProblems {
 public:
  // `answer`: what is wrong; `cure`: what is expected instead.
  void add(TomlPosition position, std::string answer, std::string cure) {
    all_.push_back({position, std::move(answer), std::move(cure)});
  }

  // `path`: a key with its table ("pool.bytes"), or a table, without a usable value somewhere.
  void mark_refused(std::string path) { refused_.insert(std::move(path)); }
  bool was_refused(std::string_view path) const { return refused_.contains(path); }

  // Every problem, in the order of the file, which is at `path`; each is of kind kConfiguration.
  std::vector<Error> errors(const char* path) const;

 private:
  struct Problem {
    TomlPosition position;
    std::string answer;
    std::string cure;
  };

  std::vector<Problem> all_;
  std::set<std::string, std::less<>> refused_;
};

}  // namespace bedplate
