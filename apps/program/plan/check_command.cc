#include <algorithm>
#include <cstdio>
#include <vector>

#include "apps/program/commands.h"
#include "apps/program/json_output.h"
#include "apps/program/plan/judgement.h"
#include "platform/assert.h"
#include "platform/product.h"

namespace bedplate {
namespace {

JsonValue to_json(const std::vector<Error>& problems) {
  JsonValue json;
  json["ok"] = problems.empty();
  json["problems"] = JsonValue::array();
  for (const Error& problem : problems) {
    json["problems"].push_back(
        {{"doing", problem.doing}, {"answer", problem.answer}, {"cure", problem.cure}});
  }
  return json;
}

}  // namespace

int check_command(const Arguments& arguments) {
  BP_ASSERT(arguments.operands.size() == 1);
  const std::vector<Error> problems =
      judge(arguments.operands[0].c_str(), arguments.services).problems;
  if (arguments.has("--json")) {
    print_json(to_json(problems));
    int code = kExitGood;
    for (const Error& problem : problems) code = std::max(code, static_cast<int>(problem.kind));
    return code;
  }
  if (problems.empty()) {
    std::printf("%s: %s: good; this machine has what it takes\n", product().name,
                arguments.operands[0].c_str());
  }
  return fail(problems);
}

}  // namespace bedplate
