#include "apps/program/doctor/mend.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <initializer_list>
#include <string_view>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/file.h"
#include "platform/hugepage.h"
#include "platform/product.h"
#include "platform/text_words.h"

namespace bedplate {
namespace {

constexpr char kAsRoot[] = "run it as root, and where /proc, /sys and /etc are writable";

// A setting is taken in one write or not at all. A file may take a part; then the next write fails.
Result<void> write_file(const std::string& path, int flags, std::string_view text) {
  BP_ASSERT(!text.empty());
  const Fd opened(open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0644));
  ssize_t count = opened.is_open() ? 1 : -1;
  while (count > 0) {
    count = write(opened.number(), text.data(), text.size());
    if (count == static_cast<ssize_t>(text.size())) return {};
    if (count > 0) text.remove_prefix(static_cast<size_t>(count));
  }
  return error_from_errno("writing %s", path.c_str()).set_cure("%s", kAsRoot);
}

std::string joined(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += part;
  return text;
}

// "a.b" for "a.b = 1"; empty for a comment.
std::string_view name_of(std::string_view line) {
  const std::string_view name = line.substr(0, line.find_first_of("#;="));
  const size_t end = name.find_last_not_of(" \t");
  return end == std::string_view::npos ? "" : name.substr(0, end + 1);
}

// All lines, of any length, with or without a newline after the last. No file: no lines.
Result<std::vector<std::string>> lines_of(const std::string& path) {
  const Fd opened(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened.is_open() && (errno == ENOENT || errno == ENOTDIR)) return std::vector<std::string>();
  std::string text;
  char piece[4096];
  ssize_t count = opened.is_open() ? 1 : -1;
  while (count > 0) {
    count = read(opened.number(), piece, sizeof piece);
    if (count > 0) text.append(piece, static_cast<size_t>(count));
  }
  if (count < 0) return error_from_errno("reading %s", path.c_str()).set_cure("%s", kAsRoot);
  std::vector<std::string> lines;
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
  }
  return lines;
}

void add_once(std::vector<std::string>* all, const std::string& one) {
  if (!one.empty() && std::find(all->begin(), all->end(), one) == all->end()) all->push_back(one);
}

// The kernel reserves only pages that it finds memory for, and returns no error.
Result<void> check_count(const Setting& setting, const std::string& root) {
  if (!setting.page) return {};
  const std::string path = root + setting.file;
  const uint64_t count = read_number_file(path.c_str()).value_or(0);
  uint64_t wanted = 0;
  if (!parse_number(setting.value, &wanted) || count >= wanted) return {};
  return error_while("reserving hugepages in %s", path.c_str())
      .set_answer("%s were asked for, and there are %" PRIu64, setting.value.c_str(), count)
      .set_cure("free memory, or let the kernel reserve them when it boots");
}

}  // namespace

Result<void> apply(const Setting& setting, const std::string& root) {
  BP_ASSERT(setting.file.starts_with('/'));
  const std::string path = root + setting.file;
  if (!setting.page) return write_file(path, 0, setting.value);
  uint64_t count = 0;
  const bool is_number = parse_number(setting.value, &count);
  BP_ASSERT(is_number);
  auto written = write_hugepage_count(path.c_str(), *setting.page, count);
  if (written.ok()) return written;
  return Error(written.error()).set_cure("%s", kAsRoot);
}

std::string lasting_file() { return with_product_name("/etc/sysctl.d/90-PROGRAM.conf"); }

Result<std::string> lasting_text(const std::vector<std::string>& lines, const std::string& root) {
  if (lines.empty()) return std::string();
  BP_TRY_ASSIGN(const std::vector<std::string> before, lines_of(root + lasting_file()));
  std::vector<std::string> after = before;
  if (after.empty()) after.push_back(with_product_name("# Written by `PROGRAM doctor --fix`."));
  for (const std::string& line : lines) {
    BP_ASSERT(!name_of(line).empty());  // else it would replace a comment
    // At boot the last line of a name wins.
    const auto same = std::find_if(after.rbegin(), after.rend(), [&](const std::string& other) {
      return name_of(other) == name_of(line);
    });
    if (same == after.rend()) {
      after.push_back(line);
    } else {
      *same = line;
    }
  }
  if (after == before) return std::string();
  std::string text;
  for (const std::string& line : after) text += line + '\n';
  return text;
}

Result<void> write_lasting(const std::string& text, const std::string& root) {
  BP_ASSERT(!text.empty());
  const std::string path = root + lasting_file();
  const std::string fresh = path + ".new";
  BP_TRY(ensure_directory((root + "/etc/sysctl.d").c_str(), 0755));
  auto written = write_file(fresh, O_CREAT | O_TRUNC, text);
  if (written.ok() && rename(fresh.c_str(), path.c_str()) == 0) return {};
  Error error = written.ok() ? error_from_errno("renaming %s", fresh.c_str()) : written.error();
  error.set_cure("%s", kAsRoot);
  unlink(fresh.c_str());
  return error;
}

std::vector<Error> mend(const std::vector<Finding>& findings, const MendTalk& talk,
                        const std::string& root) {
  BP_ASSERT(talk.agrees && talk.tell);
  std::vector<Error> failed;
  std::vector<std::string> lines, words;
  for (const Finding& finding : findings) {
    for (const Setting& setting : finding.settings) {
      if (auto applied = apply(setting, root); !applied.ok()) {
        failed.push_back(applied.error());
        continue;
      }
      add_once(&lines, setting.lasting);
      if (auto counted = check_count(setting, root); !counted.ok()) {
        failed.push_back(counted.error());
        continue;
      }
      talk.tell(joined({"done: echo ", setting.value, " > ", setting.file}));
    }
    add_once(&words, finding.kernel_words);
  }
  auto lasting = lasting_text(lines, root);
  if (!lasting.ok()) {
    failed.push_back(lasting.error());
  } else if (const std::string& text = lasting.value(); !text.empty()) {
    const std::string file = lasting_file();
    if (!talk.agrees(joined({"write ", file, " with this content:\n", text}))) {
      talk.tell("not written: the changes last until the next boot");
    } else if (auto written = write_lasting(text, root); !written.ok()) {
      failed.push_back(written.error());
    } else {
      talk.tell(joined({"done: wrote ", file}));
    }
  }
  if (!words.empty()) {
    std::string all;
    for (const std::string& each : words) all += joined({" ", each});
    talk.tell(joined({"to do: set this in /etc/default/grub, then run update-grub and reboot:\n"
                      "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX",
                      all, "\""}));
  }
  return failed;
}

}  // namespace bedplate
