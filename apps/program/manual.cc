#include "apps/program/manual.h"

#include <algorithm>
#include <cctype>

#include "apps/program/help_text.h"
#include "platform/product.h"

namespace bedplate {
namespace {

// `text` with what troff would take for itself escaped.
std::string escaped(std::string_view text) {
  std::string all;
  for (const char c : text) {
    const bool begins_line = all.empty() || all.back() == '\n';
    switch (c) {
      case '\\': all += "\\e"; break;
      case '-': all += "\\-"; break;
      case '\'': all += "\\(aq"; break;
      case '.': all += begins_line ? "\\&." : "."; break;
      default: all += c;
    }
  }
  return all;
}

// Markdown's links become their text.
std::string without_links(std::string_view text) {
  std::string all;
  for (size_t at = 0; at < text.size(); ++at) {
    const size_t close = text[at] == '[' ? text.find(']', at) : text.npos;
    const bool is_link = close != text.npos && text.substr(close + 1, 1) == "(";
    const size_t end = is_link ? text.find(')', close) : text.npos;
    if (end == text.npos) {
      all += text[at];
      continue;
    }
    all += text.substr(at + 1, close - at - 1);
    at = end;
  }
  return all;
}

// A help in Markdown: links become their text, code becomes bold.
std::string from_markdown(std::string_view help) {
  std::string all;
  bool is_code = false;
  for (const char c : escaped(without_links(help))) {
    if (c == '`') is_code = !is_code;
    c == '`' ? all += is_code ? "\\fB" : "\\fR" : all += c;
  }
  return all;
}

// Lines as they are.
std::string block(std::string_view text) {
  const std::string lines = escaped(text.substr(0, text.find_last_not_of('\n') + 1));
  return ".nf\n" + lines + "\n.fi\n";
}

std::string head(const std::string& page, const char* section, const char* title) {
  std::string name = page;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return ".TH " + name + " " + section + " \"\" \"" + name_and_version() + "\" \"" + title + "\"\n";
}

// The first line of `text`, and what follows the empty line behind it.
struct Parts {
  std::string usage;
  std::string rest;
};
Parts parts_of(const std::string& text) {
  constexpr std::string_view kUsage = "usage: ";
  const size_t end = text.find("\n\n");
  return {text.substr(kUsage.size(), end - kUsage.size()), text.substr(end + 2)};
}

}  // namespace

std::string program_manual() {
  const std::string name = escaped(product().name);
  std::string page = head(product().name, "1", "User Commands");
  page += ".SH NAME\n" + name + " \\- " + escaped(product().summary) + "\n";
  page += ".SH SYNOPSIS\n.B " + name + "\n.I COMMAND\n[\\fIOPTION\\fR...]\n";
  page += ".SH DESCRIPTION\n" + block(parts_of(program_help()).rest);
  for (const Command& command : commands()) {
    const Parts parts = parts_of(command_help(command));
    std::string title = command.name;
    std::transform(title.begin(), title.end(), title.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    page += ".SH " + title + "\n" + block(parts.usage) + ".PP\n" + block(parts.rest);
  }
  page += ".SH FILES\n.TP\n.I " + escaped(usual_runtime_directory()) +
          "/NAME.stats\nThe counters of the running appliance NAME, as \\fB" + name +
          " stats\\fR prints them.\n.TP\n.I " + escaped(usual_runtime_directory()) +
          "/NAME.crash\nThe same of its latest crash, with the record of it, for \\fB" + name +
          " stats \\-\\-from\\fR.\n.TP\n.I /etc/" + name +
          "/NAME.toml\nThe configuration that the unit \\fB" + name + "@NAME.service\\fR runs.\n";
  return page + ".SH SEE ALSO\n.BR bedplate\\-image (1),\n.BR " + name + ".toml (5)\n";
}

std::string keys_manual(const std::vector<KeyDescription>& keys) {
  const std::string name = escaped(product().name);
  std::string page = head(std::string(product().name) + ".toml", "5", "File Formats");
  page += ".SH NAME\n" + name + ".toml \\- the configuration of an appliance\n";
  page += ".SH DESCRIPTION\nOne file in TOML 1.0 configures an appliance. It is read strictly: an "
          "unknown key, a wrong type or a value out of range stops the boot.\n\\fB" +
          name + " check\\fR \\fIFILE\\fR prints all its errors.\n";
  std::string last_table;
  for (const KeyDescription& key : keys) {
    const size_t dot = key.name.rfind('.');
    const std::string table = key.name.substr(0, dot);
    if (table != last_table) page += ".SH [" + escaped(table) + "]\n";
    last_table = table;
    page += ".TP\n\\fB" + escaped(key.name.substr(dot + 1)) + "\\fR (" + escaped(key.type) + "; " +
            escaped(key.default_text) + ")\n" + from_markdown(key.help) + "\n";
    if (!key.range.empty()) page += "Range: " + escaped(key.range) + ".\n";
  }
  return page + ".SH SEE ALSO\n.BR " + name + " (1)\n";
}

}  // namespace bedplate
