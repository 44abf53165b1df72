#include "apps/program/help_text.h"

#include <string_view>

#include "apps/c_interface/bedplate_version.h"
#include "platform/build_id.h"
#include "platform/product.h"

namespace bedplate {
namespace {

std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

}  // namespace

std::string name_and_version() {
  const std::string name = product().name;
  return product().version[0] == '\0' ? name : name + " " + product().version;
}

std::string version_text() {
  const bool is_bedplate = std::string_view(product().name) == Product{}.name;
  const std::string runtime = is_bedplate ? "" : "Bedplate " + std::string(kBedplateVersion) + ", ";
  return name_and_version() + " (" + runtime + "build " + build_id().text +
         ", interface " BP_TEXT_OF(BP_INTERFACE) ")\n";
}

std::string program_help() {
  std::string text = "usage: PROGRAM COMMAND [OPTIONS]\n\n";
  for (const Command& command : commands()) {
    text += "  " + padded(command.name, 8) + " " + padded(command.operands, 14) + " " +
            command.summary + "\n";
  }
  text +=
      "\n"
      "`PROGRAM COMMAND --help` says more, `PROGRAM --version` prints the version.\n"
      "For packages, `PROGRAM --man` prints a manual page, `PROGRAM --unit` a unit of systemd.\n"
      "Exit codes: 0 good, 1 boot or run failure, 2 usage or configuration.\n";
  return with_product_name(text);
}

std::string command_help(const Command& command) {
  const std::string name = command.name;
  std::string text = "usage: PROGRAM " + name + (command.operands[0] ? " " : "") +
                     command.operands + (command.options.empty() ? "" : " [OPTION...]") + "\n\n" +
                     name + ": " + command.summary + ".\n" + command.help;
  for (const CommandOption& option : command.options) {
    text +=
        "  " + padded(std::string(option.name) + " " + option.value, 20) + " " + option.help + "\n";
  }
  return with_product_name(text);
}

}  // namespace bedplate
