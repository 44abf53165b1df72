#include "apps/program/asked_line.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "platform/assert.h"
#include "platform/serial_line.h"
#include "platform/text_words.h"

namespace bedplate {
namespace {

constexpr const char* kUsualBaud = "115200";
// Pairs of options that each name an appliance: together they would name two different ones.
constexpr std::pair<const char*, const char*> kContradictions[] = {
    {"--serial", "--socket"}, {"--serial", "--name"}, {"--serial", "--directory"},
    {"--serial", "--from"},   {"--socket", "--name"}, {"--socket", "--directory"},
    {"--socket", "--from"}};

std::optional<uint32_t> parse_whole(const std::string& text) {
  uint32_t number = 0;
  return parse_number(text, &number) ? std::optional(number) : std::nullopt;
}

std::optional<uint32_t> baud_of(const Arguments& arguments) {
  return parse_whole(arguments.value("--baud", kUsualBaud));
}

}  // namespace

const char* asked_line_option(const Arguments& arguments) {
  return arguments.has("--serial") ? "--serial" : arguments.has("--socket") ? "--socket" : nullptr;
}

bool check_asked_line(const Arguments& arguments, const char* command, int* exit_code) {
  for (const auto& [option, other] : kContradictions) {
    if (!arguments.has(option) || !arguments.has(other)) continue;
    *exit_code = usage_failure(std::string(option) + " cannot be combined with", other, command);
    return false;
  }
  if (arguments.has("--baud") && !arguments.has("--serial")) {
    *exit_code = usage_failure("--baud needs a serial line: name it with", "--serial", command);
    return false;
  }
  const auto baud = baud_of(arguments);
  if (!baud || !is_serial_baud(*baud)) {
    *exit_code = usage_failure(std::string("--baud takes ") + kSerialBauds + ", not",
                               arguments.value("--baud"), command);
    return false;
  }
  return true;
}

Result<ControlClient> open_asked_line(const Arguments& arguments, const ControlPatience& patience) {
  const char* option = asked_line_option(arguments);
  BP_ASSERT(option != nullptr);
  const std::string path = arguments.value(option);
  if (!arguments.has("--serial")) return ControlClient::connect_to_line(path, patience);
  const auto baud = baud_of(arguments);
  BP_ASSERT(baud && is_serial_baud(*baud));  // check_asked_line() has checked it
  return ControlClient::open_line(path, *baud, patience);
}

}  // namespace bedplate
