// `ctl`: asks a running appliance over its control socket or a serial line (docs/control.md), or
// prints the table of methods.
#include <cstdio>
#include <string>

#include <nlohmann/json.hpp>

#include "apps/control/control_client.h"
#include "apps/control/control_service.h"
#include "apps/counters/counters_reader.h"
#include "apps/program/asked_line.h"
#include "apps/program/commands.h"
#include "apps/program/json_output.h"
#include "apps/services/control_methods.h"
#include "platform/text.h"

namespace bedplate {
namespace {

void print_list(const ControlMethods& methods) {
  for (const ControlMethod& method : methods.all()) {
    std::printf("%s: %s\n", method.name.c_str(), method.help.c_str());
    for (const ControlParameter& parameter : method.parameters) {
      std::printf("    %s=%s%s  %s\n", parameter.name.c_str(), to_text(parameter.type),
                  parameter.is_required ? "" : " (optional)", parameter.help.c_str());
    }
    std::printf("  answers %s\n", method.result.c_str());
    if (!method.needs.empty()) std::printf("  needs %s\n", method.needs.c_str());
  }
}

// Rows of a table: method, parameters, answer, effect.
void print_markdown(const ControlMethods& methods) {
  for (const ControlMethod& method : methods.all()) {
    std::string parameters;
    for (const ControlParameter& parameter : method.parameters) {
      parameters += (parameters.empty() ? "`" : "; `") + parameter.name + "`, a " +
                    to_text(parameter.type) + (parameter.is_required ? ": " : ", optional: ") +
                    parameter.help.substr(0, parameter.help.find_last_not_of('.') + 1);
    }
    const std::string needs = method.needs.empty() ? "" : " Needs " + method.needs + ".";
    std::printf("| `%s` | %s | `%s` | %s%s |\n", method.name.c_str(), parameters.c_str(),
                method.result.c_str(), method.help.c_str(), needs.c_str());
  }
}

// "asking NAME for METHOD".
Error failure(const std::string& path, const std::string& method) {
  return error_while("asking %s for %s", path.c_str(), method.c_str());
}

// The path of the line or of the socket.
Result<std::string> path_to_ask(const Arguments& arguments) {
  if (const char* option = asked_line_option(arguments)) return arguments.value(option);
  const std::string directory = arguments.directory();
  if (arguments.has("--name")) return control_path(directory, arguments.value("--name"));
  auto names = list_appliances(directory);
  if (!names.ok()) return names.error();
  if (names.value().empty()) return no_appliance(directory);
  if (names.value().size() == 1) return control_path(directory, names.value()[0]);
  return configuration_error_while("looking for an appliance in %s", directory.c_str())
      .set_answer("there are %zu", names.value().size())
      .set_cure("name one: --name %s", names.value()[0].c_str());
}

int print_answer(const std::string& path, const std::string& method, const std::string& answer,
                 bool is_raw) {
  const auto json = nlohmann::ordered_json::parse(answer, nullptr, false);
  const bool is_answer = json.is_object() && (json.contains("result") || json.contains("error"));
  if (!is_answer) {
    return fail(failure(path, method).set_answer("its reply is not a valid answer"));
  }
  if (is_raw) std::fputs(answer.c_str(), stdout);
  if (json.contains("error")) {
    const auto& error = json["error"];
    const bool has_message =
        error.is_object() && error.contains("message") && error["message"].is_string();
    const std::string said = has_message ? printable(error["message"].get_ref<const std::string&>())
                                         : "an error without a message";
    return fail(failure(path, method).set_answer("%s", said.c_str()));
  }
  if (!is_raw) std::printf("%s\n", json["result"].dump(2).c_str());
  return kExitGood;
}

}  // namespace

int ctl_command(const Arguments& arguments) {
  if (arguments.has("--list")) {
    static RuntimeMethods runtime;
    ControlMethods methods;
    const auto added = add_all_methods(arguments.services, &runtime, &methods);
    if (!added.ok()) return fail(added.error());
    arguments.has("--markdown") ? print_markdown(methods) : print_list(methods);
    return kExitGood;
  }
  if (arguments.operands.empty()) return usage_failure("missing METHOD, or --list", "", "ctl");
  JsonValue parameters = JsonValue::object();
  for (size_t i = 1; i < arguments.operands.size(); ++i) {
    const std::string& word = arguments.operands[i];
    const size_t equals = word.find('=');
    if (equals == word.npos || equals == 0) {
      return usage_failure("a parameter is KEY=VALUE, not", word, "ctl");
    }
    parameters[word.substr(0, equals)] = word.substr(equals + 1);
  }
  const std::string& method = arguments.operands[0];
  int exit_code = kExitGood;
  if (!check_asked_line(arguments, "ctl", &exit_code)) return exit_code;
  auto found = path_to_ask(arguments);
  if (!found.ok()) return fail(found.error());
  const std::string& path = found.value();
  auto client = asked_line_option(arguments) == nullptr ? ControlClient::connect(path)
                                                        : open_asked_line(arguments);
  if (!client.ok()) return fail(client.error());
  auto answer = client.value().ask(method, parameters.dump(-1));
  if (!answer.ok()) return fail(answer.error());
  return print_answer(path, method, answer.value(), arguments.has("--json"));
}

}  // namespace bedplate
