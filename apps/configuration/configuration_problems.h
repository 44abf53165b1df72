// The problems of a configuration: the reader and the checks of tables add them.
//
// One report lists the first 64 of them, and counts the rest. The object also remembers the refused
// keys and tables: a check across keys is skipped if one of its keys was refused, since it would
// blame the wrong line. Threads: one (it allocates).
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

  // Marks a key with its table ("pool.bytes"), or a table, as refused: somewhere in the file it has
  // no usable value.
  void mark_refused(std::string path) { refused_.insert(std::move(path)); }
  bool was_refused(std::string_view path) const { return refused_.contains(path); }

  // The problems of the file at `path`, in the order of the file; each is of kind kConfiguration.
  // After the first 64, one more error says how many there are from there on.
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
