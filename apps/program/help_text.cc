#include "apps/program/help_text.h"

namespace bedplate {
namespace {

std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

}  // namespace

std::string program_help() {
  std::string text = "usage: bedplate COMMAND [OPTIONS]\n\n";
  for (const Command& command : commands()) {
    text += "  " + padded(command.name, 8) + " " + padded(command.operands, 14) + " " +
            command.summary + "\n";
  }
  return text + "\n"
                "`bedplate COMMAND --help` says more, `bedplate --version` prints the version.\n"
                "Exit codes: 0 good, 1 boot or run failure, 2 usage or configuration.\n";
}

std::string command_help(const Command& command) {
  const std::string name = command.name;
  std::string text = "usage: bedplate " + name + (command.operands[0] ? " " : "") +
                     command.operands + (command.options.empty() ? "" : " [OPTION...]") + "\n\n" +
                     name + ": " + command.summary + ".\n" + command.help;
  for (const CommandOption& option : command.options) {
    text +=
        "  " + padded(std::string(option.name) + " " + option.value, 20) + " " + option.help + "\n";
  }
  return text;
}

}  // namespace bedplate
